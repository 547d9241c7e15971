r"""Ways of writing, reduced to one: NFKC, Unicode minus, full-width digits, LaTeX, markdown.

Policy 2 and 3 compare what was said, not how it was typeset. Everything here is one pass of
substitutions without nested repetition, so the cost is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−‒‐‑﹣－˗➖⁃", "-"),
        **dict.fromkeys("×✕✖⨯·⋅∙∗", "*"),
        **dict.fromkeys("⁄∕", "/"),
        **dict.fromkeys("’‘ʼ´`′", "'"),
        **dict.fromkeys("“”„«»″「」『』", '"'),
        **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u2061\u2062\u2063", None),
        **dict.fromkeys("\u061c\u034f\u180e\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", None),
        **dict.fromkeys("\ufe0e\ufe0f", None),
        "٫": ".", "٬": ",", "。": ".", "、": ",", "–": "-",
    }
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR = re.compile("[½⅓¼¾⅐-⅞↉]")

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_SPECIAL = re.compile(r"<\|[^<>|]{0,40}\|>")
_DEGREE = re.compile(r"\^\s*(?:\{\s*)?\\circ\b\s*\}?")
_ASIDE = re.compile(r"(?<=\s)–(?=\s[A-Za-z]{2})")
_HTML = re.compile(r"</?[A-Za-z][^<>]{0,30}>")
_STRUCK = re.compile(r"~~[^~]*~~")
_SEPARATORS = re.compile(r"\{,\}|(?<=\d),?\\!(?=\d)|(?<=\d)\\,(?=\d{3})")
_BETWEEN = re.compile(r"(?<=\d)[{}]+(?=\d)")  # no braces join digits to one number
_ARROW = re.compile(r"[-=]+>|[→⇒⟹]")
_SPACES = re.compile(r"\\[,;:! ]|\\q?quad\b|~|\\\\")
WRAPPERS = re.compile(
    r"\\(?:boxed|fbox|text(?:bf|it|rm|tt|sf)?|math(?:rm|bf|it|sf|tt)|operatorname|mbox|emph|underline|bold)\b\s*(?=\{)"
    r"|\\(?:left|right|displaystyle|bf|rm|it|large|Large)\b|\\[()\[\]]"
)
_BOXED = 4_000  # characters a box may hold: the rest of the text is not searched for its brace
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{")
_BRACE = re.compile(r"[{}]")
_JOINED = re.compile(r"\}\s*\$*\s*(?:,|;|\band\b|\bor\b|,\s*(?:and|or))\s*\$*\s*\Z")
_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*(-?)([\d,.][\d,.\s]*)\}\s*\{\s*([\d,.][\d,.\s]*)\}|(\d)\s*(\d)|(\d)\s*\{(\d+)\})",
    re.ASCII,
)
_COMMANDS = {
    **dict.fromkeys([r"\times", r"\cdot"], " * "),
    **dict.fromkeys([r"\to", r"\rightarrow", r"\Rightarrow", r"\implies"], "="),
    **dict.fromkeys([r"\circ", r"\degree"], " degree"),
    **dict.fromkeys([r"\#", r"\pounds", r"\euro"], " "),
    **{rf"\{sign}": sign for sign in "$%&_"},
    r"\approx": "≈",
    r"\div": "÷",
}
_COMMAND = re.compile(
    r"\\(?:times|cdot|to|rightarrow|Rightarrow|implies|approx|div|circ|degree|pounds|euro|[$%#&_])(?![A-Za-z])|\\[$%#&_]"
)
_EMPHASIS = re.compile(
    r"(?<![\w)*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w(*]|\s*\d|\.\d|(?<=\d\*)[-+$]+\d)"
    r"|(?<!\w)_{1,3}(?=[^\s_])|(?<=[^\s_])_{1,3}(?!\w)|`+"
)
_REMARK = re.compile(r"(?<=[\w%.$*'\"])(\s*)[(\[]([^()\[\]]*)[)\]]")


class Box(NamedTuple):
    """The last box of a text: what it holds, whether it is one of several that make one answer, its end."""

    content: str
    joined: bool
    end: int = 0


def last_box(text: str) -> Box | None:
    r"""Return the last box that holds something, by its braces (policy 1); a cut one is none.

    Examples
    --------
    >>> last_box(r"first \boxed{1}, no, \boxed{\frac{1}{2}}").content
    '\\frac{1}{2}'
    """
    if "box" not in text:
        return None
    for opening in reversed(list(_BOX.finditer(text))[-4:]):
        depth, start = 1, opening.end()
        for brace in _BRACE.finditer(text, start, start + _BOXED):
            depth += 1 if brace[0] == "{" else -1
            if depth:
                continue
            content = text[start : brace.start()]
            if content.strip():
                before = text[max(0, opening.start() - 24) : opening.start()]
                return Box(content, _JOINED.search(before) is not None, brace.end())
            break
    return None


def fold(text: str) -> str:
    r"""Write characters in one way: NFKC, ASCII digits, one minus, one quote, no invisible ones.

    Superscripts become powers first, for NFKC makes `10²` a hundred and two.

    Examples
    --------
    >>> fold("\u221218 m²"), fold("3½")
    ('-18 m^2', '3 1/2')
    """
    if text.isascii():
        return text
    text = _SUPERSCRIPT.sub(lambda found: "^" + found[0].translate(_SUPERSCRIPTS), text)
    text = _VULGAR.sub(lambda found: " " + found[0], text)
    text = unicodedata.normalize("NFKC", _ASIDE.sub("—", text).translate(_CHARACTERS)).translate(_CHARACTERS)
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)
    return text.strip() if text[:1] == " " else text


def untypeset(text: str) -> str:
    r"""Drop LaTeX wrappers and markdown emphasis, and keep what they hold.

    Examples
    --------
    >>> untypeset(r"**$\boxed{\text{north}}$**").strip()
    'north'
    """
    if "\\" in text or "{" in text:
        text = _SEPARATORS.sub(lambda found: "" if "!" in found[0] and "," not in found[0] else ",", text)
        text = WRAPPERS.sub("", text)
        text = _FRACTION.sub(_fraction, _DEGREE.sub(" degree", text))
        text = _COMMAND.sub(lambda found: _COMMANDS[found[0]], text)
        text = _SPACES.sub(" ", _BETWEEN.sub(" ", text)).replace("{", "").replace("}", "")
    elif "~" in text:
        text = _STRUCK.sub(" ", text).replace("~", " ")
    return _EMPHASIS.sub("", text).replace("$", " ")


def clean(text: str) -> str:
    """Prepare a line for reading a number: typesetting gone, and the remarks in parentheses.

    A remark is not read, unless it is glued to its number (`2(3)` is a product) or is itself an
    answer (`18 (19)`, `18 (or 19)`): then it stays as an alternative.
    """
    text = fold(text)
    if "<" in text:
        text = _HTML.sub(" ", _SPECIAL.sub(" ", _CALCULATOR.sub("", text)))
    text = _ARROW.sub("=", untypeset(text))
    if "(" in text or "[" in text:
        text = _REMARK.sub(_remark, text)
    return " ".join(text.split()).strip("* ")


def _fraction(found: re.Match[str]) -> str:
    sign, above, below = found[1] or "", found[2] or found[4] or found[6], found[3] or found[5] or found[7]
    return f" {sign}{above.strip()}/{below.strip()} "


def _remark(found: re.Match[str]) -> str:
    said = found[2].strip()
    head = found.string[: found.start() + 1]
    counted = re.search(r"\d", head)
    if counted and (re.match(r"or\b", said) or re.fullmatch(r"-?[\d.,\s]+", said)):
        return f" or {said} " if found[1] or not re.search(r"\d", said) else f"*{said} "
    if not found[1] and re.match(r"[\d\s+*/^-]*\Z", said):
        return f"*{said}"
    return " " if counted else f"{found[1]}{said}"
