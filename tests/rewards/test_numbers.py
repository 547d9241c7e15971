"""A text is one exact number, or a named reason why not."""

import time
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.rewards.numbers import HEDGED, MALFORMED, NOTHING, last_number, read_number

READ = r"""
18 | 18
007 | 7
0 | 0
-0 | 0
0.0 | 0
18.00 | 18
53.8 | 53.8
.5 | 0.5
5. | 5
+18 | 18
-4 | -4
− 4 | -4
–4 | -4
－４ | -4
minus 4 | -4
negative 4 | -4
$18 | 18
$ 18 | 18
18 $ | 18
-$18 | -18
$-18 | -18
US$18 | 18
USD 18 | 18
USD18 | 18
Rs. 18 | 18
€18 | 18
18 € | 18
£18.50 | 18.5
64,000 | 64000
3,000.50 | 3000.5
1 080 | 1080
1 080 | 1080
1 080 | 1080
1 080 | 1080
1_000 | 1000
1'000 | 1000
1’000 | 1000
1,00,000 | 100000
11,\!111 | 11111
11\!111 | 11111
11{,}111 | 11111
10\,000 | 10000
1.080,00 | 1080
1 080,50 | 1080.5
1.234.567 | 1234567
1.080 | 1.08
１８ | 18
１，０００ | 1000
٥ | 5
१२ | 12
𝟏𝟖 | 18
5 hours | 5
18kg | 18
18 cm^2 | 18
18 m² | 18
18 m2 | 18
35\,\mathrm{cm}^2 | 35
18\text{ cm} | 18
18 km/h | 18
$18/hour | 18
60 miles/hour | 60
60 miles per hour | 60
18-year-old | 18
18°C | 18
18^\circ | 18
18^{\circ} | 18
2nd | 2
2 dozen | 2
50% | 50
50\% | 50
50 % | 50
50 percent | 50
0.5% | 0.5
**12** | 12
*12* | 12
__12__ | 12
`12` | 12
"18" | 18
(18) | 18
[18] | 18
$18$ | 18
\(18\) | 18
\[18\] | 18
$\boxed{12}$ | 12
\boxed{12} | 12
\boxed{\text{18 apples}} | 18
\text{Total: } 18 | 18
1.2e3 | 1200
1.2E+3 | 1200
1e-3 | 1/1000
1.2 x 10^3 | 1200
1.2×10³ | 1200
1.2 \times 10^{3} | 1200
1.2 \times 10^{-3} | 3/2500
6.02\cdot 10^{23} | 602000000000000000000000
10^6 | 1000000
3/4 | 3/4
3⁄4 | 3/4
7/14 | 1/2
\frac{3}{4} | 3/4
\dfrac{3}{4} | 3/4
\frac34 | 3/4
-\frac{1}{2} | -1/2
\frac{-1}{2} | -1/2
3\frac{1}{2} | 7/2
-3\frac{1}{2} | -7/2
3 1/2 | 7/2
3½ | 7/2
½ | 1/2
-½ | -1/2
3 and a half | 7/2
3 and 1/2 cups | 7/2
9.9 billion | 9900000000
-1.8 billion | -1800000000
$2 million | 2000000
3 thousand dollars | 3000
5k | 5000
x = 18 | 18
x=-18 | -18
x ≈ 18 | 18
≈ 18 | 18
about 18 | 18
9 + 9 = 18 | 18
2*9 = 9+9 = 18 | 18
109 = 100 + 9 | 109
18 = 18.0 | 18
<<9*2=18>>18 | 18
<answer>18</answer> | 18
18</s> | 18
18<|im_end|> | 18
Answer: 18 | 18
Answer:-18 | -18
The answer is 18. | 18
The answer is -18. | -18
John has 18 apples. | 18
18 apples left. | 18
18 dollars in 7 days | 18
109 (that is, 100 + 9) | 109
5 hours (300 minutes) | 5
18 because 9+9 = 18 | 18
18, because 9+9=18 and 2+2=4 | 18
18. She has 3 apples | 18
18, not 17 | 18
18 rather than $17 | 18
18 (17-19) | 18
Solution: 18 | 18
page 18 | 18
2*$9=18 | 18
18 — that is 9*2 | 18
18 – the total | 18
18: the number of apples | 18
18 more apples | 18
18 each | 18
~~17~~ 18 | 18
Twelve (12) | 12
18 (eighteen) | 18
18, so she has 18 left | 18
18 - that is 9 + 9 | 18
Total: $18, tax included | 18
$1.2\text{ million}$ | 1200000
18 = x | 18
100% - 50% = 50% | 50
18 ÷ 2 = 9 | 9
_18_ | 18
** 18 ** | 18
=> 18 | 18
→ 18 | 18
18 = | 18
18 m/s^2 | 18
18 kg·m | 18
18x more | 18
16 half-gallon jars | 16
1 point | 1
18 points each | 18
18 pieces divided evenly | 18
The total plus tax is $18 | 18
It does not matter much here but the answer is 18 | 18
"""

REFUSED = r"""
7:30 | malformed
12:00 | malformed
3:2 | malformed
1.5.2 | malformed
Step 3 | malformed
Step 3: add | malformed
Part #3 | malformed
36*.5 | malformed
2**.5 | malformed
2*-3 | malformed
18_2 | malformed
1_0000 | malformed
1..5 | malformed
2^3 | malformed
2**3 | malformed
10^9^9 | malformed
10^400 | malformed
1e400 | malformed
9e999999999 | malformed
3*6 | malformed
3 * 6 | malformed
3×6 | malformed
3 x 4 | malformed
3 by 4 | malformed
2(3) | malformed
5! | malformed
9+John's age | malformed
9 + John's age | malformed
John's age + 10 | malformed
x + 18 | malformed
x - 18 | malformed
x-18 | malformed
2x | malformed
2 x | malformed
18i | malformed
18π | malformed
2 pi | malformed
2\sqrt{3} | malformed
\sqrt{9} | malformed
18 squared | malformed
18 point five | malformed
18 hours and a half | malformed
18 divided by x | malformed
it is not equal to 18 | malformed
it cannot be 18 | malformed
no more than $18 | malformed
18 - John's age | malformed
x_1 | malformed
--4 | malformed
John's age*2 | malformed
1/x | malformed
x/2 | malformed
/2 | malformed
5M | malformed
5bn | malformed
18m+3 | malformed
18{1} | hedged
18 -> 19 | hedged
0,123 |
0 123 |
2 hours and 30 minutes | malformed
6 feet 2 inches | malformed
3:00 PM | malformed
18% of 50 | malformed
N/A | malformed
18 plus 3 | malformed
18+ | malformed
18 ± 1 | malformed
3/0 | malformed
1/2/3 | malformed
2024-01-02 |
H2O | malformed
x2 | malformed
5'6" | malformed
0,5 |
10,5 |
1,0000 |
1,234,56 |
10 dollars and 50 cents | malformed
18 apples and 3 pears | malformed
18 and fifty cents | malformed
18 hundred and fifty | malformed
1 in 4 | malformed
5 out of 10 | malformed
4 apples were eaten so 18 remain | malformed
at least 18 | malformed
more than 18 | malformed
not 18 | malformed
>18 | malformed
≥ 18 | malformed
between 18 and 20 |
18 or 19 | hedged
18 or more | hedged
either 18 or 19 | hedged
18 (or 19) | hedged
18 (19) | hedged
18, 19 | hedged
18,19 | hedged
18 and 19 | hedged
18; 19 | hedged
18 19 | hedged
1 2 3 | hedged
$1 $2 | hedged
18 & 19 | hedged
10-12 | hedged
10–12 | hedged
10 — 12 | malformed
10 to 12 | hedged
18 = 19 | hedged
x = 1, y = 2 | hedged
x=1 or x=2 | hedged
\boxed{5} or \boxed{7} | hedged
½ or ¾ | hedged
eighteen | malformed
Infinity | malformed
NaN | malformed
… | no_answer
"""


def _cases(table):
    return [tuple(part.strip() for part in line.rsplit("|", 1)) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("text", "number"), _cases(READ))
def test_a_number_is_read_however_it_is_written(text, number):
    assert read_number(text).value == Fraction(number)


@pytest.mark.parametrize(("text", "code"), _cases(REFUSED))
def test_what_is_not_one_number_is_refused_with_a_reason(text, code):
    reading = read_number(text)
    assert reading.value is None
    assert reading.code == code if code else reading.code in ("hedged", "malformed")


@pytest.mark.parametrize(
    ("text", "alone"), [("Apollo 11", True), ("Boeing 747", True), ("4 July 1776", True)]
)
def test_a_name_with_a_number_is_no_number_when_it_stands_alone(text, alone):
    assert read_number(text, alone=alone).value is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("He needs 6 boxes (24/4).", "6"),
        ("3 * 6 = 18", "18"),
        ("3*6=18.", "18"),
        ("so \\boxed{18}", "18"),
        ("it fell to -4", "-4"),
        ("it costs $1,080.50 then", "1080.5"),
        ("a\n- 18 apples", "18"),
        ("I would say 3½", "3.5"),
        ("The total is 18 dollars", "18"),
    ],
)
def test_the_last_number_is_found_without_a_marker(text, number):
    assert last_number(text).value == Fraction(number)


@pytest.mark.parametrize("text", ["at 7:30", "20 - 2", "10-12", "2^3", "9+9", "version 1.5.2", "word", ""])
def test_the_last_number_is_refused_where_it_is_part_of_something_else(text):
    assert last_number(text).value is None


def test_nothing_and_something_unreadable_are_different():
    assert read_number("") == NOTHING
    assert read_number("many") == MALFORMED
    assert read_number("1 or 2") == HEDGED


def test_sizes_beyond_the_caps_are_refused_at_once():
    for text in ("9" * 5_000, "9" * 401, "9" * 390 + "e308" * 5, "1/" + "9" * 5_000, "1." + "0" * 5_000):
        assert read_number(text).code == "malformed"


@pytest.mark.parametrize(
    "unit",
    ["9", " ", ",", "{", "(", "\\frac{", "*", "$", "=1", "1 ", "1,", "\\boxed{", "½", "a ", "~", "<", "²"],
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_megabyte_of_anything_is_read_in_no_time(unit, alone):
    text = "1" + unit * (1_000_000 // len(unit))
    start = time.perf_counter()
    read_number(text, alone=alone)
    last_number(text)
    assert time.perf_counter() - start < 5  # quadratic would take minutes


numbers = st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=1)
decimals = st.decimals(min_value=-(10**9), max_value=10**9, places=3, allow_nan=False)


def _full_width(text):
    return text.translate({ord("0") + i: ord("０") + i for i in range(10)})


WRITERS = [
    str,
    "{:,}".format,
    lambda n: f"{n:,}".replace(",", "_"),
    "${:,}".format,
    "{} dollars".format,
    "{:,} km/h".format,
    "**{}**".format,
    r"$\boxed{{{}}}$".format,
    r"\text{{{} apples}}".format,
    "x = {}".format,
    "The answer is {}.".format,
    "{}%".format,
    "{} (that is, 3 + 4)".format,
    "{} because 3 + 4 = 9".format,
    lambda n: _full_width(str(n)),
    lambda n: str(n).replace("-", "−"),
    lambda n: f"{n:,}".replace(",", "\u202f"),
    lambda n: f"{n:,}".replace(",", r"{,}"),
    lambda n: f"{n:,}".replace(",", r",\!"),
    lambda n: f"{n}e0",
    lambda n: f"{n} x 10^0",
]


@given(decimals, st.sampled_from(WRITERS))
def test_any_formatting_of_a_decimal_reads_back_to_it(number, write):
    assert read_number(write(number)).value == Fraction(number)


@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.sampled_from(["{}/{}", r"\frac{{{}}}{{{}}}", "{} / {}", "${}/{}$"]),
)
def test_any_formatting_of_a_fraction_reads_back_to_it(above, below, write):
    assert read_number(write.format(above, below)).value == Fraction(above, below)


soup = st.lists(
    st.sampled_from(
        [
            *"0123456789.,:;/-+*^=(){}[]<>$%~_|'\" \n\\½²−",
            "10^",
            "e9",
            "or",
            " and ",
            "x",
            "\\frac",
            "\\boxed{",
            "because",
            "####",
        ]
    ),
    max_size=40,
).map("".join)


@given(st.one_of(st.text(), soup), st.booleans())
@example("²", False)
@example("1e", True)
@example("\ud800 1", False)
def test_no_text_makes_reading_raise(text, alone):
    for reading in (read_number(text, alone=alone), last_number(text)):
        assert (reading.value is None) == (reading.code is not None)
        assert reading.code in (None, "no_answer", "hedged", "malformed")
