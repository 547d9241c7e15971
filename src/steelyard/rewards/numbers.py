r"""Text to one exact number (`fractions.Fraction`), or to the reason why there is none.

Policy 2, "compare exact rationals first", begins here. What is read, and what is refused:

| read | as |
|---|---|
| `$1,080.00`, `1 080`, `1_080`, `1'080`, `10{,}80`-style LaTeX, `1,00,000` | grouping is dropped |
| `1.080,00`, `1 080,00`, `1.080.000` | European where no other reading exists; `1.080` is 1.08 |
| full-width digits, Unicode minus, `.5`, `5.`, `1.2e3`, `1.2 x 10^3`, `10^6` | NFKC, then the number |
| `3/4`, `\frac{3}{4}`, `3 1/2`, `3½`, `3 and a half` | a fraction |
| `9.9 billion`, `2 million`, `5k` | multiplied out; `dozen` stays a unit |
| `50%`, `5 hours`, `18kg`, `18 m^2`, `2nd` | sign and unit are dropped (`answers` compares a share) |
| `x = 18`, `9 + 9 = 18`, `The answer is 18` | the number that is stated |
| `18 because 9 + 9 = 18`, `109 (that is, 100 + 9)`, `18. So ...`, `18, not 17` | an explanation is not read |

Refused, as `hedged`: several numbers (`18 or 19`, `18, 19`, `10-12`, `x = 1, y = 2`). Refused, as
`malformed`: arithmetic left undone (`2^3`, `3*6`, `9+x`, `5!`), a second quantity (`10 dollars and
50 cents`), clock times and ratios (`7:30`), bounds and denials (`at least 18`, `not 18`), headings
(`Step 3: ...`), `1.5.2`, `10,5`, `1,0000`, and sizes beyond `DIGITS` digits or `EXPONENT`. Nothing is
ever evaluated.

Reading is pure, never raises, and looks at no more than `WINDOW` characters.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from steelyard.rewards.notation import clean

WINDOW = 1_000
DIGITS = 400
EXPONENT = 308  # the range of a double: larger powers are no answers, and cost memory

_GROUPED = r"""
    (?!0)\d{1,3}(?:,\d{3})+(?![\d,]\d|\d)
  | (?!0)\d{1,2}(?:,\d{2})+,\d{3}(?![\d,]\d|\d)
  | (?!0)\d{1,3}(?:[ ]\d{3})+(?![\d,]\d|\d|[ ]?/|[ ]\d)
  | (?!0)\d{1,3}(?:'\d{3})+(?!\d)
  | \d{1,3}(?:_\d{3})+(?![\d_])
"""
_EUROPEAN = r"\d{1,3}(?:[. ]\d{3})+,\d{1,2}(?![\d,.]) | \d{1,3}(?:\.\d{3}){2,}(?![\d,]|\.\d)"
_WHOLE = rf"(?:{_GROUPED} | \d+)"
_NUMBER = re.compile(
    rf"""
    (?:(?P<european>{_EUROPEAN})
      | (?P<mixed>{_WHOLE})(?:[ ]+(?:and[ ]+)?(?P<over>\d+)[ ]?/[ ]?(?P<under>\d+)(?![\d.])
                             | [ ]+and[ ]+(?:a|one)[ ]+(?P<part>half|quarter|third)\b)
      | (?P<numerator>{_WHOLE})[ ]?/[ ]?(?P<denominator>{_WHOLE})(?!\d|\.\d)
      | (?P<base>10)[ ]?(?:\^|\*\*)[ ]?\(?(?P<alone>[+-]?\d+)\)?
      | (?P<decimal>(?:{_WHOLE})(?:\.\d*)?|\.\d+)
        (?:[eE](?P<e>[+-]?\d+) | [ ]?[x*][ ]?10[ ]?(?:\^|\*\*)[ ]?\(?(?P<ten>[+-]?\d+)\)?)?
    )
    (?:[ ]*(?P<magnitude>hundred|thousand|million|billion|trillion)s?\b | (?P<kilo>[kK])(?![\w.]*\w))?
    """,
    re.VERBOSE | re.ASCII,
)
_MAGNITUDES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": Fraction(1, 2), "quarter": Fraction(1, 4), "third": Fraction(1, 3)}

_PIECE = 4_096
_BULLET = re.compile(r"\A\s*[-*•]\s+")
_DIGIT = re.compile(r"\d|[½⅓¼¾⅐-⅞↉]")
_START = re.compile(r"\d|\.\d", re.ASCII)
_EXPLAINS = re.compile(
    r"[,;:]?\s*(?:\b(?:because|since|which|thus|therefore|namely|meaning|where|as)\b|\bthat(?:'s| is)\b"
    r"|(?<!is )\b(?:not|rather than|instead of)\b(?=\s+\S{0,4}\d)"
    r"|\bi\.e\.|(?<=,)\s*so\b|(?<=\s)--?\s(?=(?:that|this|which|because|since|so)\b)|[—―]\s*(?=[A-Za-z]))"
    r"|[.!?]\s+(?=\D)(?!\s)|(?<=\d)\s*:\s+(?=[A-Za-z])",
    re.ASCII | re.IGNORECASE,
)
_CIRCUMSTANCE = re.compile(
    r"(?<=[A-Za-z])\s+(?:for|in|on|during|within|each|every|when|if|while)\b", re.ASCII | re.IGNORECASE
)
_LIST = re.compile(
    r"\s*(?:[,;&]|or\b|and\b|to\b|through\b|until\b|versus\b|vs\b|[-–|]|\s)\s*[-+$]*[\d.]", re.ASCII
)
_OR = re.compile(r"\b(?:or|either|maybe|perhaps)\b", re.IGNORECASE)
_DENIES = re.compile(
    r"(?:\b(?:not|never|no|neither|cannot)\b|n't\b)(?:\s+\w+){0,3}\W*\Z"
    r"|\b(?:between|under|above|below|except|unless|plus|times|at (?:least|most)"
    r"|(?:less|more|fewer|greater|larger|smaller|other) than)\W*\Z|[<>≤≥≠±∓^√]|\\",
    re.IGNORECASE,
)
_UNDONE = re.compile(
    r"\s*(?:[+*/^÷√!:<>≤≥≠±|_#(\[\\@&]|-(?![A-Za-z]{2})|\.\d|,\d)"
    r"|.*(?:\\|π|\b(?:plus|minus|squared|cubed|factorial|(?:divided|multiplied) by|modulo|mod|sqrt|pi"
    r"|point (?:zero|oh|one|two|three|four|five|six|seven|eight|nine))\b)"
    r"|\s*(?:(?-i:[^\W\d_smhgldkcCFKJNWVALG])(?:\s*/|\Z)|[A-Za-z]\s*[-+*^=])|\s*(?:[bm]n|mil)\b",
    re.ASCII | re.IGNORECASE,
)
_PER = re.compile(r"\s*/\s*(?![xyzn]\b)[A-Za-z]+\.?(?![\w^])(?!\s*[-+*/^])", re.ASCII)
_COUNTS = re.compile(
    r"\b(?:and|or)\s+(?:a\s+)?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty"
    r"|hundred|thousand|half|quarter|third)\b",
    re.IGNORECASE,
)
_POWER = re.compile(r"(?<=[A-Za-z])\^?\(?-?[23]\)?(?![\w.])", re.ASCII)
_LABEL = re.compile(
    r"\W*(?:(?:so|thus|therefore|hence|and|,|the|my|final|correct|numerical|total|answer|result|value|solution|is|are"
    r"|of|it|equals?|to|approximately|about|roughly|around|exactly|[a-z]|usd|us|eur|gbp|inr|rs|cad|aud)\b\W*)*",
    re.IGNORECASE,
)
_OPERATES = re.compile(r"(?:[\w)\]]\s*[*]|[/^÷])\s*\Z|\w\Z", re.ASCII)
_NAMES = re.compile(
    r"\b(?:step|part|section|problem|case|method|approach|example|exercise|solution|scenario|option|equation)"
    r"[\s#]{1,4}\Z",
    re.IGNORECASE,
)
_CODE_OF_MONEY = re.compile(r"(?:usd|eur|gbp|inr|cad|aud|\brs)\.?\Z", re.IGNORECASE)
_TWO_EQUATIONS = re.compile(r"=[^=]*(?:[,;]|\bor\b|\band\b)\s*[A-Za-z]\w{0,15}\s*=", re.ASCII)
_UNIT_WORDS = re.compile(r"[A-Za-z°]+")
_UNITS = {
    "h": "hour", "hr": "hour", "min": "minute", "sec": "second", "s": "second", "km": "kilometer",
    "kilometre": "kilometer", "m": "meter", "metre": "meter", "cm": "centimeter", "centimetre": "centimeter",
    "mm": "millimeter", "g": "gram", "kg": "kilogram", "lb": "pound", "oz": "ounce", "ft": "foot",
    "feet": "foot", "inche": "inch", "mi": "mile", "usd": "dollar", "litre": "liter", "l": "liter",
    "ml": "milliliter", "deg": "degree", "°": "degree", "people": "person", "children": "child",
}  # fmt: skip


class Reading(NamedTuple):
    """What a text says as a number.

    Parameters
    ----------
    value
        The number, exact; `None` where there is no single one.
    code
        Why not: `no_answer` (nothing there), `hedged` (several), `malformed`; `None` if there is one.
    unit
        The words after it, in one spelling: two readings whose units share no word disagree. A percent
        sign is the unit `percent`.
    """

    value: Fraction | None
    code: str | None = None
    unit: frozenset[str] = frozenset()


NOTHING = Reading(None, "no_answer")
HEDGED = Reading(None, "hedged")
MALFORMED = Reading(None, "malformed")


def read_number(text: str, *, alone: bool = False) -> Reading:
    r"""Read the one number that a text commits to.

    Parameters
    ----------
    text
        What follows a marker: its first line that says something is read. With `alone`, the
        content of a tag: all of it is read.
    alone
        Allow no other words before the number than labels (`x =`, `The answer is`) and at most four
        after it: "Apollo 11" is a name, not eleven.

    Examples
    --------
    >>> read_number(" $1,080.50 per week").value
    Fraction(2161, 2)
    >>> read_number("18 or 19").code
    'hedged'
    """
    line = clean(_line(text, whole=alone))
    if not _START.search(line):
        return MALFORMED if re.search(r"\w", line) else NOTHING
    line = _cut(line)
    if _TWO_EQUATIONS.search(line):
        return HEDGED
    parts = re.split(r"\s*(?:=|≈|≅|≃)+\s*", line)
    if len(parts) == 1:
        return _stated(line, alone=alone)
    return _equated(parts, alone=alone)


def last_number(text: str) -> Reading:
    """Read the last number that a text mentions, wherever it stands.

    Examples
    --------
    >>> last_number("He needs 6 boxes (24/4).").value
    Fraction(6, 1)
    """
    end = _last_digit(text)
    if end < 0:
        return NOTHING
    start = max(0, end - WINDOW)
    line = text[start:end].rpartition("\n")
    around = clean(_BULLET.sub("", line[2] + text[end : end + 40].partition("\n")[0], count=1))
    found = list(_NUMBER.finditer(around))
    if not found or (found[-1].start() == 0 and start and not line[1]):
        return MALFORMED
    last = found[-1]
    before, sign = _signed(around[: last.start()])
    after = around[last.end() :]
    if re.search(r"[\w.:^_*/+÷√\\-]\s*\Z", before[-3:]) and not re.search(
        r"[A-Za-z][.:]?\s+\Z|[:.]\s+\Z", before
    ):
        return MALFORMED
    after = after.partition("\n")[0].rstrip(")]} ").removesuffix("!")  # in prose it ends a sentence
    if _UNDONE.match(after) and not _PER.match(after):
        return MALFORMED
    value = _value(last)
    return MALFORMED if value is None else Reading(sign * value)


def _last_digit(text: str) -> int:
    """Find the last digit, in pieces from the end: -1 if there is none."""
    for stop in range(len(text), 0, -_PIECE):
        found = None
        for found in _DIGIT.finditer(text, max(0, stop - _PIECE), stop):  # noqa: B007 - the last one
            pass
        if found:
            return found.start()
    return -1


def _line(text: str, *, whole: bool) -> str:
    """Cut the window: all of it on one line, or the first line that is more than a label."""
    text = text[: 2 * WINDOW].lstrip() if text[:1].isspace() else text[: 2 * WINDOW]
    lines = [" ".join(text.split())] if whole else text.splitlines()
    said = next((line for line in lines if _DIGIT.search(line) or not _LABEL.fullmatch(line)), text).strip()
    return said if len(said) <= WINDOW else said[:WINDOW].rpartition(" ")[0] or said[:WINDOW]


def _cut(line: str) -> str:
    """Drop the explanation that follows a number; one that precedes every number is the sentence."""
    first = _START.search(line)
    if first is None:
        return line
    stop = _EXPLAINS.search(line, first.start())
    return line[: stop.start()] if stop else line


def _equated(parts: list[str], *, alone: bool) -> Reading:
    """`9 + 9 = 18` states 18, `109 = 100 + 9` states 109, `18 = 19` states nothing."""
    first = _stated(parts[0], alone=alone) if _START.search(parts[0]) else NOTHING
    last = _stated(parts[-1], alone=alone) if parts[-1] else NOTHING
    if last.value is None:
        pure = re.fullmatch(r"[\d\s.,+*/()x÷-]*", parts[-1])
        return first if first.value is not None and pure else (last if last.code == "hedged" else MALFORMED)
    if first.value is not None and first.value != last.value:
        return HEDGED
    return last


def _stated(line: str, *, alone: bool) -> Reading:
    """Read the first number, if nothing around it makes it another one."""
    first = _START.search(line)
    match = _NUMBER.match(line, first.start()) if first else None
    if match is None:
        return MALFORMED
    before, sign = _signed(line[: match.start()])
    if sign == 0 or _DENIES.search(before) or (alone and not _LABEL.fullmatch(before)):
        return HEDGED if _OR.search(before) else MALFORMED
    if _NAMES.search(before) or (_OPERATES.search(before) and not _CODE_OF_MONEY.search(before)):
        return MALFORMED
    after = _POWER.sub("", line[match.end() :]).rstrip(" .,;:")
    after = re.sub(r"\A[)\]}'\"’”]+|[)\]}]+\Z", "", after.replace("%", " percent"))
    refused = _refused(after, alone=alone)
    value = None if refused else _value(match)
    if value is None:
        return refused or MALFORMED
    words = (word.lower().removesuffix("s") or "s" for word in _UNIT_WORDS.findall(after))
    return Reading(sign * value, None, frozenset(_UNITS.get(word, word) for word in words))


def _refused(after: str, *, alone: bool) -> Reading | None:
    """Say why what follows a number forbids to take it alone."""
    if _LIST.match(after):
        return HEDGED
    if _OR.search(after):
        return HEDGED
    per = _PER.match(after)
    if (_UNDONE.match(after) and not per) or _COUNTS.search(after):
        return MALFORMED
    circumstance = _CIRCUMSTANCE.search(after)
    if re.search(r"\d", after[: circumstance.start()] if circumstance else after):
        return MALFORMED
    return MALFORMED if alone and len(after.split()) > 4 else None


def _signed(before: str) -> tuple[str, int]:
    """Split the sign off what precedes a number: 1, -1, or 0 where it is an operator."""
    rest = before.rstrip(" $€£¥₹¢([{\"'“‘")
    if worded := re.search(r"(?:\A|[\s:])(?:minus|negative)\Z", rest, re.IGNORECASE):
        return rest[: worded.start()], 0 if re.search(r"\d\s*\Z", rest[: worded.start()]) else -1
    if not rest.endswith(("-", "+")):
        return before, 1
    left, spaced_right = rest[:-1], before[len(rest) :].startswith(" ")
    word = left.rstrip(" $€£¥₹([{\"'“‘")
    if not word or word[-1] in ":=,\n":
        return left, -1 if rest[-1] == "-" else 1
    is_sign = rest[-1] == "-" and left[-1:] != word[-1:] and not spaced_right and len(word.split()[-1]) > 1
    return (left, -1) if is_sign and not word[-1].isdigit() else (left, 0)


def _value(match: re.Match[str]) -> Fraction | None:
    """Compute the exact value of a match; `None` beyond the caps, or over zero."""
    if match.end() - match.start() > DIGITS:
        return None
    get = match.group
    scale = _MAGNITUDES.get(get("magnitude") or "", 1) * (1000 if get("kilo") else 1)
    if european := get("european"):
        return _decimal(re.sub(r"[. ]", "", european).replace(",", ".")) * scale
    if mixed := get("mixed"):
        part = _PARTS.get(get("part") or "") or _ratio(get("over"), get("under"))
        return None if part is None else (_decimal(mixed) + part) * scale
    if numerator := get("numerator"):
        ratio = _ratio(numerator, get("denominator"))
        return None if ratio is None else ratio * scale
    exponent = int(get("alone") or get("e") or get("ten") or 0)
    if abs(exponent) > EXPONENT:
        return None
    return (Fraction(1) if get("base") else _decimal(get("decimal"))) * Fraction(10) ** exponent * scale


def _decimal(text: str) -> Fraction:
    whole, _, fraction = re.sub(r"[, _']", "", text).partition(".")
    return Fraction(int(whole + fraction or "0"), 10 ** len(fraction))


def _ratio(numerator: str | None, denominator: str | None) -> Fraction | None:
    above, below = _decimal(numerator or "0"), _decimal(denominator or "0")
    return above / below if below else None
