"""Two answers are equal as mathematics, or they are not: by kind, with their near misses."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from steelyard.outcome import Scored
from steelyard.rewards.symbolic import equal

EQUAL = {
    "fractions": [
        (r"\frac{3}{4}", "0.75"),
        (r"\dfrac{6}{8}", r"\frac34"),
        (r"-\frac{2}{5}", r"\frac{-2}{5}"),
        (r"\frac{2}{-5}", r"-\frac25"),
        (r"2\frac{3}{4}", "2.75"),
        ("2 3/4", r"\frac{11}{4}"),
        (r"0.\overline{6}", r"\frac23"),
        (r"0.1\overline{6}", r"\frac16"),
    ],
    "numbers": [
        ("2,345", "2345"),
        (r"2{,}345", r"2\,345"),
        (r"12,\!345,\!678", "12345678"),
        ("007", "7"),
        (r"3\times10^4", "30000"),
        (r"4.5\cdot 10^{-2}", "0.045"),
        ("6.1e7", r"6.1\times 10^7"),
        ("2^{12}", "4096"),
        ("6!", "720"),
        (r"\binom{8}{3}", "56"),
        ("9 + 8 = 17", "17"),
        (r"\frac{14}{4} = 3.5", "3.5"),
    ],
    "surds": [
        (r"3\sqrt{5}", r"\sqrt{45}"),
        (r"\frac{1}{\sqrt{7}}", r"\frac{\sqrt7}{7}"),
        (r"\sqrt{7+4\sqrt3}", r"2+\sqrt{3}"),
        (r"5\sqrt(3)", r"5\sqrt{3}"),
        (r"\sqrt[3]{54}", r"3\sqrt[3]{2}"),
        (r"\sqrt[3]{-27}", "-3"),
        ("√45", r"3\sqrt5"),
        ("sqrt(45)/3", r"\sqrt{5}"),
    ],
    "constants": [
        (r"\frac{2}{3}\pi", r"\frac{2\pi}{3}"),
        ("2pi/3", r"\frac{2\pi}{3}"),
        (r"e^{2}", r"\mathrm{e}^2"),
        (r"e^{i\pi}+1", "0"),
        (r"\log_3 81", "4"),
        (r"\ln 8", r"3\ln2"),
        (r"\log 1000", "3"),
        (r"\cos 60^\circ", r"\frac12"),
        (r"\sin\frac{\pi}{3}", r"\frac{\sqrt3}{2}"),
        (r"\arctan 1", r"\frac{\pi}{4}"),
        (r"|-7|", "7"),
        (r"\left\lfloor 3.7 \right\rfloor", "3"),
        ("3 - 2i", "-2i + 3"),
        ("(1+i)^2", "2i"),
        (r"+\infty", r"\infty"),
    ],
    "polynomials": [
        ("(x-3)(x+5)", "x^2+2x-15"),
        ("x**2 + 2*x", "x(x+2)"),
        (r"\frac{1}{3}x", r"\frac{x}{3}"),
        ("1/3x", r"\frac{x}{3}"),
        (r"\frac{a^2-b^2}{a-b}", "a+b"),
        ("nm", "mn"),
        ("x_1 + x_{2}", "x_2+x_1"),
        (r"\alpha\beta", r"\beta\alpha"),
        (r"\frac{(n+1)!}{n!}", "n+1"),
        (r"(-1)^n", r"\cos(n\pi)"),
        ("f(2)+1", "1+f(2)"),
        (r"\mathbf{v}+w", "w+v"),
    ],
    "identities": [
        (r"\sin 2x", r"2\sin x\cos x"),
        (r"\tan^2 y+1", r"\sec^2(y)"),
        (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"),
        (r"\sqrt{x^2}", "|x|"),
        (r"\ln x^3", r"3\ln x"),
        (r"\sqrt{3-x}", r"(3-x)^{1/2}"),
        (r"e^{x}e^{y}", r"e^{x+y}"),
    ],
    "assignments": [
        ("y = 9", "9"),
        ("9", "y = 9"),
        ("9 = y", "9"),
        (r"\text{Area} = 9", "9"),
        ("f(x) = 3x", "3x"),
        ("P(A) = 0.4", r"\frac25"),
        (r"V = \pi r^2 h = 12\pi", r"12\pi"),
        ("x=1,y=2", "y=2, x=1"),
        (r"\angle ABC = 40^\circ", "40"),
        (r"3\pi \approx 9.42", r"3\pi"),
    ],
    "equations": [
        ("4x - 2y = 6", "y = 2x - 3"),
        ("y - 2 = 3(x - 1)", "y = 3x - 1"),
        ("xy = 6", r"y = \frac{6}{x}"),
        ("x^2 + y^2 = 9", "2x^2 + 2y^2 - 18 = 0"),
        (r"y = \pi x", r"2y = 2\pi x"),
    ],
    "inequalities": [
        ("x > 4", r"(4, \infty)"),
        (r"x \le 4", r"(-\infty, 4]"),
        ("4 < x", "x > 4"),
        (r"1 \le x < 6", "[1, 6)"),
        (r"x \in [1, 6)", r"1 \leq x < 6"),
        (r"\{x \mid x > 4\}", "x > 4"),
        (r"\{x \in \mathbb{R} : x > 4\}", r"(4,\infty)"),
        ("-2x < -8", "x > 4"),
        ("x >= 4", r"x \geq 4"),
        ("x != 4", r"x \ne 4"),
        (r"x < 1 \text{ or } x > 4", r"(-\infty,1) \cup (4,\infty)"),
        (r"\mathbb{R}", r"(-\infty, \infty)"),
        (r"\pi < x", r"(\pi, \infty)"),
    ],
    "lists and sets": [
        ("4, 9", r"\{9, 4\}"),
        ("4 and 9", "9, 4"),
        (r"4 \text{ or } 9", "4,9"),
        ("x = 4 or x = 9", "4, 9"),
        (r"\pm 6", "-6, 6"),
        (r"1 \pm \sqrt{3}", r"1 - \sqrt3, 1 + \sqrt3"),
        (r"\left\{2 \pm \sqrt{3}, -1\right\}", r"\{-1, 2+\sqrt3, 2-\sqrt3\}"),
        (r"\{4\}", "4"),
        (r"\varnothing", r"\{\}"),
        ("(3,4), (1,2)", "(1,2), (3,4)"),
        ("100, 200, 300", "300,200,100"),
        (r"(3,\infty) \cup (-\infty,1)", r"(-\infty,1) \cup (3,\infty)"),
    ],
    "tuples": [
        (r"\left( \frac{1}{2}, 3 \right)", "(0.5, 3)"),
        (r"\langle 1, 2, 3 \rangle", "(1,2,3)"),
        ("1, 2", "(1, 2)"),
        (r"(4, \pi/6)", r"\left(4, \frac{\pi}{6}\right)"),
        (r"(x, y) = (1, 2)", "(1, 2)"),
    ],
    "matrices": [
        (r"\begin{bmatrix} 5 & 6 \\ 7 & 8 \end{bmatrix}", r"\begin{pmatrix}5&6\\7&8\\\end{pmatrix}"),
        (
            r"\left[\begin{array}{cc} 5 & 6 \\ 7 & 8 \end{array}\right]",
            r"\begin{pmatrix}5&6\\7&8\end{pmatrix}",
        ),
        (r"\begin{pmatrix} 1/2 \\ -3 \end{pmatrix}", r"\begin{pmatrix} \frac12 \\ -3 \end{pmatrix}"),
        (r"\begin{pmatrix} 1 \\ 2 \\ 3 \end{pmatrix}", "(1, 2, 3)"),
    ],
    "units": [
        (r"48\text{ cm}^2", "48"),
        ("48 cm", r"48\,\mathrm{cm}"),
        (r"3\sqrt{2}\text{ inches}", r"3\sqrt2"),
        (r"75^\circ", "75"),
        (r"75\text{ degrees}", r"75^{\circ}"),
        (r"36^\circ\text{C}", "36"),
        (r"25\%", "25"),
        (r"25\%", "0.25"),
        (r"\$4.50", "4.5"),
        (r"17^{\text{th}}", "17"),
        ("6:45 pm", "6:45"),
        (r"6:45\text{ p.m.}", "6:45 PM"),
        ("3:4:5", "3 : 4 : 5"),
    ],
    "words": [
        (r"\text{Tuesday}", "tuesday"),
        (r"\text{no real solutions}", "No real solutions."),
        (r"\text{June }20", "June 20"),
        (r"\text{A, D}", "D, A"),
        (r"\text{(E)}", "E"),
    ],
    "as text": [
        ("36_{7}", "36_7"),
        (r"x \equiv 3 \pmod{7}", r"x\equiv 3\pmod 7"),
        (r"2, 4, \ldots, 2n", r"2,4,\dots,2n"),
        ("f(1) < f(3)", "f(1)<f(3)"),
    ],
}
ONE_WAY = {  # what may be said of a gold; the gold may not say it of an answer
    "numbers": [("1.047198", r"\frac{\pi}{3}"), ("a + b = 9", "9"), ("0.25, 1/4", r"\frac14")],
}
DIFFERENT = {
    "numbers": [
        ("0.667", r"\frac23"),
        ("0.666667", r"\frac23"),
        ("1.0000001", "1"),
        (r"\frac{1}{3^{70}}", r"\frac{1}{3^{71}}"),
        (r"\frac{1}{1803!}", r"\frac{1}{1801!}"),
        (r"\frac{2^{1500}+1}{2^{1501}}", r"\frac12"),
        ("3(2)", "5"),
        (r"7\frac{3}{2}", "8.5"),
        ("2 345", "2.345"),
        ("45, 678", "45678"),
        ("36_7", "36"),
        ("36_7", "36_8"),
        ("3", r"3 \pmod 7"),
    ],
    "constants": [
        ("3.14", r"\pi"),
        ("9.42", r"3\pi"),
        ("1.04719", r"\frac{\pi}{3}"),
        ("1.047199", r"\frac{\pi}{3}"),
        (r"1 + \frac{1}{\mathrm{e}}", r"1 - \frac{1}{\mathrm{e}}"),
        (r"e^{100}", r"e^{100}+1"),
        (r"e^{-300}", "0"),
        (r"\ln 5", r"\log 5"),
        (r"5\sqrt{3}", "5"),
        (r"-\infty", r"\infty"),
        (r"3\pi \approx 9.43", "9.43"),
        (r"\frac{\pi}{3}", r"60^\circ"),
    ],
    "polynomials": [
        ("x^2+2x-14", "(x-3)(x+5)"),
        (r"\sqrt{x^2}", "x"),
        ("a-b", "b-a"),
        (r"\pi(S^2-s^2)", "0"),
        ("t", "T"),
        ("5t", "5"),
        ("5m", "5"),
        ("f(3x)", "3f(x)"),
        (r"\overline{AB}", "AB"),
        ("y'", "y"),
    ],
    "relations": [
        ("y = 9", "x = 9"),
        ("x = 8", "9"),
        ("3x = 27", "x = 9"),
        ("3x = 27", "9"),
        ("x = 8 = 9", "9"),
        ("9", "a + b = 9"),
        ("0", "4x - 3y + 1 = 0"),
        ("4x + 5y + 1 = 0", "4x - 3y + 1 = 0"),
        ("(x-1)(y-2)=0", "(x-1)(y-3)=0"),
        (r"\frac{x^2}{9}+\frac{y^2}{4}=1", r"\frac{x^2}{4}+\frac{y^2}{9}=1"),
        (r"F_n = \sum_{k=0}^{n-2} F_k", r"F_n = \sum_{k=0}^{n-1} F_k"),
        (r"x \ge 4", "x > 4"),
        ("y > 4", "x > 4"),
        ("-2x < 8", "x > 4"),
        ("x > 4", "x < 4"),
    ],
    "order and brackets": [
        ("(2, 7)", "(7, 2)"),
        ("7, 2", "(2, 7)"),
        (r"\{2, 7\}", "(2, 7)"),
        ("[2, 7]", "(2, 7)"),
        ("[2, 7)", "(2, 7]"),
        ("A = (2, 7.5)", "A = (2, 7)"),
        ("(3,4), (1,2)", "(3,4), (2,1)"),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\begin{pmatrix} 5 & 6 \\ 7 & 9 \end{pmatrix}", r"\begin{pmatrix} 5 & 6 \\ 7 & 8 \end{pmatrix}"),
    ],
    "more or fewer": [
        (r"\pm 6", "6"),
        ("6", r"\pm 6"),
        ("4 or 9", "4"),
        ("4, 9, 4", "4, 9"),
        ("0.25, 1/3", r"\frac14"),
        ("4 or more", "4"),
        ("1, 2, 3, ...", "1, 2, 3"),
        (r"1, 3, \ldots, 2n-1", r"1, 2, \ldots, n"),
        (r"1:4:9:\ldots", r"1:2:3:\ldots"),
        ("n = 3, 4, 5", "n = 2, 3, 4"),
    ],
    "units": [
        ("48 cm", r"48\text{ m}"),
        ("6:45 am", "6:45 pm"),
        ("6:45", "5:45"),
        ("3:4", "6:8"),
        ("500%", "5"),
        (r"(4\text{ million}, 1)", "(4, 1)"),
    ],
    "words": [
        ("angel", "angle"),
        (r"\text{Listen}", r"\text{silent}"),
        ("no", "on"),
        ("even", "odd"),
        ("E", "F"),
        ("5", "five"),
    ],
}


def cases(table):
    return [
        pytest.param(one, other, id=f"{kind}: {one} | {other}")
        for kind in table
        for one, other in table[kind]
    ]


@pytest.mark.parametrize(("said", "gold"), cases(EQUAL))
def test_answers_of_one_meaning_are_equal_in_both_directions(said, gold):
    assert equal(said, gold) is True
    assert equal(gold, said) is True


@pytest.mark.parametrize(("said", "gold"), cases(ONE_WAY))
def test_an_answer_may_say_more_than_the_gold(said, gold):
    assert equal(said, gold) is True
    assert equal(gold, said) is False


@pytest.mark.parametrize(("said", "gold"), cases(DIFFERENT))
def test_near_misses_are_not_equal(said, gold):
    assert equal(said, gold) is False


HOSTILE = {
    "a tower with a logarithm": r"10^{(7^{7^{7^{7^{7}}} \cdot \log_{10}(7)} - 4)}",
    "a tower": "8^{8^{8^{8}}}",
    "a power of a power": "10^{10^{10}}",
    "a huge exponent": "3^{99999999999}",
    "an expanded power": "(x+1)^{5000}",
    "many expanded powers": "(x+y)^{999}" * 150,
    "a letter in a tower": "x^{x^{x^{x^{x^{x}}}}}",
    "factorials": "2999!" * 300,
    "a factorial of a factorial": "((9!)!)!",
    "binomials": r"\binom{2999}{1499}" * 80,
    "a huge binomial": r"\binom{10^9}{10^8}",
    "exponentials": r"\exp(\exp(\exp(\exp(20))))",
    "an exact sum": r"\frac{1}{7^{9000}}+" * 100 + "1",
    "nested roots": r"\sqrt{" * 300 + "2" + "}" * 300,
    "roots without braces": r"\sqrt" * 300 + "2",
    "sines": r"\sin" * 400 + "x",
    "a sine of a huge number": r"\sin(10^{4000})",
    "a continued fraction": r"\frac{1}{1+" * 100 + "x" + "}" * 100,
    "signs": "-" * 1900 + "1",
    "marks": "5" + "!" * 1900,
    "bars": "|" * 1900,
    "brackets": "(" * 1900,
    "pairs of brackets": "()" * 900,
    "tuples in tuples": "(1," * 23 + "2" + ")" * 23,
    "a long list": "1," * 900 + "1",
    "digits": "9" * 1900,
    "digits over digits": r"\frac{" + "9" * 399 + "}{" + "7" * 399 + "}" + "^{400}",
    "a sum to a billion": r"\sum_{k=1}^{10^9} \sin(k)",
    "a product to a billion": r"\prod_{k=1}^{1000000000} k",
    "an integral": r"\int_0^1 x^{x^{x}} dx",
    "a limit of a tower": r"\lim_{x\to 0} x^{x^{x^{x}}}",
    "a large matrix": r"\begin{pmatrix}" + r"\\".join(["&".join("1" * 30)] * 30) + r"\end{pmatrix}",
    "an identity matrix": r"\operatorname{eye}(1000000)",
    "equations": "=".join(["x"] * 900),
    "signs of two": r"1\pm" * 400 + "1",
    "spaces": " " * 1990 + "1",
    "a megabyte": "x" * 1_000_000,
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_are_judged_at_once_and_the_next_is_unharmed(said):
    for gold in ("5", r"\sqrt{2}x", "(1, 2)", "y = 2x"):
        start = time.process_time()
        verdict = equal(said, gold)
        assert time.process_time() - start < 2
        assert verdict is False or (
            isinstance(verdict, Scored) and verdict.code == "malformed" and verdict.reason
        )
    assert equal(r"\sqrt{8}", r"2\sqrt2") is True


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_that_is_its_gold_to_the_letter_is_equal_whatever_it_costs(said):
    assert equal(said, said) is True


def test_a_series_is_left_to_math_verify_and_neither_alarms_nor_threads_are_used():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append("alarm"))
    try:
        threads = threading.active_count()
        assert equal(r"\int_0^1 2x dx", "1") is True
        assert equal(r"\int_0^1 2x dx", "2") is False
        assert threading.active_count() == threads
        assert signal.getsignal(signal.SIGALRM) is not before
        assert not heard
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_verdict_is_the_same_in_any_thread():
    said = []
    threads = [
        threading.Thread(target=lambda: said.append(equal(r"\sqrt{50}", r"5\sqrt{2}"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [True] * 8


def test_importing_it_and_comparing_ordinary_answers_imports_no_sympy():
    program = r"""
import sys
from steelyard.rewards.symbolic import equal, warm
assert equal(r"\frac{\sqrt{8}}{2}x", r"\sqrt{2}x") is True
assert not {"sympy", "math_verify", "latex2sympy2_extended"} & set(sys.modules)
warm()
assert {"sympy", "math_verify", "mpmath"} <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_nothing_that_is_said_is_evaluated_as_python(tmp_path):
    for place in (r"{}", r"\text{{{}}}", r"\sum_{{k=1}}^2 {}", r"1+{}", r"\frac{{{}}}{{1}}"):
        mark = tmp_path / "ran"
        code = f"__import__('pathlib').Path('{mark}').touch()"
        assert equal(place.format(code), "5") is not True
        assert not mark.exists()


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("frac34", r"\frac34"),
        ("frac34", r"-\frac34"),
        ("fracnn12", r"\frac{n(n-1)}{2}"),
        ("lnx1", r"\ln(x+1)"),
        ("abc", "a+b+c"),
        ("-abc", "a(b-c)"),
    ],
)
def test_letters_alone_stand_for_no_expression(said, gold):
    assert equal(said, gold) is not True


@pytest.mark.parametrize("gold", ["[2,5)", "(2,5]", "[2,5]", r"(-\infty,5]", r"(-\infty,5)"])
def test_bare_numbers_leave_open_which_interval_they_mean(gold):
    bare = gold.strip("()[]")
    assert equal(bare, gold) is not True
    assert equal("(2,5)", "2,5") is True


@pytest.mark.parametrize(
    ("said", "gold", "right"),
    [
        (r"17.5 \approx 18", "17.5", True),
        (r"17.5 \approx 18", "18", False),
        (r"\sqrt2 \approx 1", "1", False),
        (r"0.5 \approx 1", "1", False),
        (r"2\pi \approx 6.28", "6.28", True),
    ],
)
def test_a_coarse_rounding_is_no_second_answer(said, gold, right):
    assert (equal(said, gold) is True) is right
