r"""Answers as mathematicians write them: their boxes, one spelling for all, and their outer form.

`boxes` finds the last committed box, or the run of boxes that make one answer. `normal` writes LaTeX and
plain text in one way: sizes, spaces, dollar signs and synonyms gone (`\left(`, `\,`, `\dfrac`, `\leq`,
`\cdot`, `π`), text in `\text{...}` only where it says something. `form` tells what an answer is:

| written | form |
|---|---|
| `1, 2`, `5 or 7`, `A \cup B`, `a \pm b` | `list`: parts in any order |
| `\{1, 2\}` | `set` |
| `(1, 2)`, `[1, 2)`, `\langle 1, 2 \rangle` | `tuple`, with its brackets: a point, a vector or an interval |
| `x = 5`, `1 < x \le 3`, `x \in A`, `\{x : x > 1\}` | `relation` |
| `\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}` | `matrix`, with its number of columns |
| anything else | `leaf` |

What an expression is worth is the business of `expressions` and `values`; what equals what, of `symbolic`.
Every function here is linear in its text, and `too_large` is asked before any other.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from steelyard.rewards.notation import fold

LONGEST: Final = 2_000
"""Characters of an answer that is compared as mathematics; a longer one only as text."""
NESTING: Final = 24
"""Brackets within brackets."""
DIGITS: Final = 400
PARTS: Final = 64
"""Parts of a list, cells of a matrix, boxes of one answer."""

_BOXED = 4_000  # characters a box may hold: the rest of the text is not searched for its brace
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}(?:\{|(?=\d))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BETWEEN = re.compile(
    r"(?:\s|[$,;.]|\\[()\[\],;:! ]|\\q?quad\b|\\text\s?\{\s*,?\s*(?:and|or)\s*\}|\b(?:and|or)\b)*", re.ASCII
)
_JOINS = re.compile(r"[,;]|\b(?:and|or)\b", re.ASCII)

_UNICODE = str.maketrans(
    {
        "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ",
        "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "≈": r"\approx ",
        "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ",
        "⟩": r"\rangle ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ",
        "ε": r"\epsilon ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ",
        "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ", "Δ": r"\Delta ", "Σ": r"\Sigma ", "Ω": r"\Omega ",
        "÷": "/", "€": "", "£": "", "¥": "", "…": r"\ldots ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    }
)  # fmt: skip
_RADICAL = re.compile(r"([√∛∜])\s*(\d+(?:\.\d+)?|[A-Za-z])?")
_RADICALS = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]"}
_LEAD = re.compile(
    r"\s*(?:(?:so|thus|therefore|hence),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|result|solution)s?\b"
    r"\s*(?:is\b|are\b|:)[:\s]*",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"(?<=\d)(?:\{,\}|,?\\[!,;: ])+\s*(?=\d{3}(?!\d))", re.ASCII)
_NO_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)\s*", re.DOTALL)
_SPELLED = {
    **dict.fromkeys(
        [
            r"\left", r"\right", r"\middle", r"\big", r"\Big", r"\bigg", r"\Bigg", r"\bigl", r"\bigr",
            r"\Bigl", r"\Bigr", r"\displaystyle", r"\textstyle", r"\limits", r"\nolimits", r"\bf", r"\rm",
            r"\it", r"\large", r"\Large", r"\$", r"\pounds", r"\euro", r"\!", r"\(", r"\)", r"\[", r"\]",
        ],
        "",
    ),
    **dict.fromkeys([r"\,", r"\;", r"\:", "\\ ", r"\quad", r"\qquad", r"\thinspace", "\\\n"], " "),
    **dict.fromkeys([r"\dfrac", r"\tfrac", r"\cfrac"], r"\frac"),
    **dict.fromkeys([r"\dbinom", r"\tbinom"], r"\binom"),
    **dict.fromkeys([r"\cdot", r"\times", r"\ast"], "*"),
    **dict.fromkeys([r"\leq", r"\leqslant"], r"\le"),
    **dict.fromkeys([r"\geq", r"\geqslant"], r"\ge"),
    **dict.fromkeys([r"\lvert", r"\rvert", r"\vert", r"\mid"], "|"),
    **dict.fromkeys([r"\dots", r"\cdots", r"\dotsc", r"\dotsb"], r"\ldots"),
    **dict.fromkeys([r"\lor", r"\land"], ","),
    **dict.fromkeys([r"\simeq", r"\cong"], r"\approx"),
    r"\div": "/", r"\lt": "<", r"\gt": ">", r"\neq": r"\ne", r"\lbrace": r"\{", r"\rbrace": r"\}",
    r"\lbrack": "[", r"\rbrack": "]", r"\degree": r"^\circ", r"\R": r"\mathbb{R}", r"\colon": ":",
    r"\varnothing": r"\emptyset", r"\rightarrow": r"\to", r"\prime": "'", r"\lg": r"\log",
}  # fmt: skip
_STYLED = re.compile(
    r"\\(?:(text\w*|mbox|hbox|mathrm|operatorname\*?|emph|underline)"
    r"|mathbf|boldsymbol|bm|mathit|mathsf|mathcal|mathtt)\s*\{([^{}]*)\}"
)
_FUNCTIONS = ["arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc"]
_FUNCTIONS += ["ln", "log", "exp"]
_NAMED = {
    **{name: f"\\{name} " for name in _FUNCTIONS},
    **dict.fromkeys(["and", "or", ", and", ", or", ",and", ",or", ",", ";"], ","),
    **dict.fromkeys(["degrees", "degree", "deg"], r"^\circ "),
    **dict.fromkeys(["percent", "%", "percentage"], r"\%"),
    "": " ",
}
_NUMERIC = re.compile(r"[-+\d.,/:\s]+", re.ASCII)
_ORDINAL = re.compile(r"(?<=\d)\s*\^?\{?\\(?:text|mathrm|textsuperscript)\{\s*(?:st|nd|rd|th)\s*\}\}?")
_PLAIN = {">=": r"\ge ", "<=": r"\le ", "!=": r"\ne ", "...": r"\ldots "}
_SPOKEN = re.compile(
    rf"(?<![A-Za-z\\])(?:({'|'.join(_FUNCTIONS)}|sqrt|pi|theta|alpha|beta|gamma|lambda)|(infinity|infty))"
    r"(?![A-Za-z])\s*"
)
_AND = re.compile(r",?\s+(?:and|or)\s+|;", re.ASCII)
_COMMAS = re.compile(r",(?:\s*,)+")
_MEASURE = re.compile(
    r"(?<=[\d})\]])\s*((?:sq\.?\s?|cu\.?\s?)?(?:[ap]\.?m|[AP]\.?M|[cmkd]m|kg|mg|m[lL]|ft|yd|mi|mph|kph|hrs?|min|sec|lbs?|oz|Hz)"
    r"(?:\s?/\s?[a-z]{1,4})?(?:\^?\{?[23]\}?)?)[.\s]*\Z"
    r"|(?<=[\d})\]])((?:\s+[A-Za-z]{3,}\.?){1,4}(?:\^?\{?[23]\}?)?)[.\s]*\Z"
)
_POWER_OF_MEASURE = re.compile(r"\^?\{?[23]\}?\Z")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORD = re.compile(r"[^\W\d_]{3,}|\b(?:no|on|up|is|to|am|pm)\b", re.IGNORECASE)
_NO_WORD = re.compile(r"[\\+*/^=<>_|!%{}]")
_SPACE = re.compile(r"(\\text\{[^{}]*\}|\\[A-Za-z]+\s(?=[A-Za-z])|(?<=\d)\s(?=\.?\d))|\s+")
_GROUP = re.compile(r"([\^_]|\\pmod)\{(\w|\\circ)\}", re.ASCII)

_SCAN = re.compile(r"\\(?:begin|end)\{[A-Za-z]+\*?\}|\\[A-Za-z]+|\\.|[][{}(),=<>]", re.DOTALL)
_OPEN = frozenset({"{", "(", "[", r"\{", r"\langle", r"\lfloor", r"\lceil"})
_CLOSE = frozenset({"}", ")", "]", r"\}", r"\rangle", r"\rfloor", r"\rceil"})
_RELATIONS = frozenset({"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx"})
_OUTER = frozenset({",", r"\cup"}) | _RELATIONS | _OPEN | _CLOSE
_BUILT = re.compile(r"\\\{([A-Za-z])(?:\\in[^|:]*)?[|:](.*)\\\}", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{([pbBv]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])", re.ASCII)
_KNOWN: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    r"\mathbb{R}": ("tuple", (r"-\infty", r"\infty"), ("(", ")")),
    r"\emptyset": ("set", (), ()),
}
_SPACED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?!\d|[.,]\d| ?/)", re.ASCII)
_BRACKETS = re.compile(r"[][{}()]")
_MANY_DIGITS = re.compile(rf"\d{{{DIGITS + 1}}}")


class Form(NamedTuple):
    """What an answer is, one level deep.

    Parameters
    ----------
    kind
        `leaf`, `list`, `set`, `tuple`, `relation` or `matrix`.
    text
        All of it, as `normal` writes it.
    parts
        The texts of its parts; of a matrix, its cells row by row.
    marks
        The brackets of a tuple, the signs between the sides of a relation, the columns of a matrix.
    """

    kind: str
    text: str
    parts: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


class Mark(NamedTuple):
    """A bracket, comma or relation outside all brackets, and where it stands."""

    said: str
    start: int
    end: int


def too_large(text: str) -> str | None:
    """Say why an answer is not compared as mathematics, or `None`: linear, and asked first of all."""
    if len(text) > LONGEST:
        return f"longer than {LONGEST} characters"
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "{([" else -1
        if depth > NESTING:
            return f"nested more than {NESTING} deep"
    return f"a number of more than {DIGITS} digits" if _MANY_DIGITS.search(text) else None


# --- boxes


def boxes(text: str) -> list[str]:
    r"""Return what the last box of a text holds, with those before it that are joined by `,`, "and", "or".

    A box that is empty or not closed is none.

    Examples
    --------
    >>> boxes(r"\boxed{1}, no: $\boxed{5}$ or $\boxed{\frac{1}{2}}$.")
    ['5', '\\frac{1}{2}']
    """
    said: list[str] = []
    start = 0
    openings = list(_BOX.finditer(text))[-PARTS:] if "box" in text else []
    for opening in reversed(openings):
        closing = _closing(text, opening.end())
        content = text[opening.end() : max(closing, 0)]
        if said and closing >= start:
            continue  # a box around the box
        if said and not _joined(text[closing:start] if closing >= 0 else ""):
            break
        if content.strip():
            said.insert(0, content)
            start = opening.start()
    return said


def _closing(text: str, start: int) -> int:
    """Return where the brace that was opened before `start` closes; -1 if it does not."""
    if text[start - 1] != "{":
        return start + 1  # `\boxed 5`
    depth = 1
    for brace in _BRACE.finditer(text, start, start + _BOXED):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return brace.start()
    return -1


def _joined(between: str) -> bool:
    between = between.removeprefix("}")
    return len(between) <= 60 and bool(_BETWEEN.fullmatch(between) and _JOINS.search(between))


# --- one spelling


@lru_cache(maxsize=4_096)
def normal(text: str) -> str:
    r"""Write an answer in one way, so that most equal answers become equal text.

    Examples
    --------
    >>> normal(r"$\left( \dfrac{1}{2},\, 3 \right)$."), normal("(½, 3)")
    ('(\\frac{1}{2},3)', '(1/2,3)')
    """
    text = fold(" ".join(text.replace("~", " ").split()))
    if not text.isascii():
        text = _RADICAL.sub(_radical, text).translate(_UNICODE)
    for written, spelled in (("\\$", ""), ("$", ""), *_PLAIN.items()):
        text = text.replace(written, spelled)
    if lead := _LEAD.match(text):
        text = text[lead.end() :]
    if "\\" in text or "{" in text:
        text = _ORDINAL.sub("", _NO_DELIMITER.sub("", _SEPARATORS.sub("", text)))
        text = " ".join(_COMMAND.sub(_spelled, _STYLED.sub(_styled, text)).split())
    text = _COMMAS.sub(",", _AND.sub(",", _SPOKEN.sub(_spoken, text)))
    text = _SPACED.sub(lambda found: found[0].replace(" ", ""), _THOUSANDS.sub(_grouped, text))
    text = _MEASURE.sub(_measured, text)
    text = _SPACE.sub(lambda found: found[1] or "", text)
    return _GROUP.sub(r"\1\2", text).lstrip('*`" ').rstrip('*`" .,:')


def _radical(found: re.Match[str]) -> str:
    return f"{_RADICALS[found[1]]}{{{found[2]}}}" if found[2] else f"{_RADICALS[found[1]]} "


def _spelled(found: re.Match[str]) -> str:
    name = found[0].rstrip()
    said = _SPELLED.get(name if len(name) > 1 else found[0][:2], name)
    return f"{said} " if said[-1:].isalpha() else said


def _spoken(found: re.Match[str]) -> str:
    return f"\\{found[1]} " if found[1] else r"\infty "


def _styled(found: re.Match[str]) -> str:
    """Text that is a number, a name or a connector stands as itself; letters lose their style."""
    said = " ".join(found[2].split())
    if (named := _NAMED.get(said.lower())) is not None:
        return named
    if not found[1]:
        return said if len(said) == 1 else f"{{{said}}}"
    whole = found[0] == found.string.strip()
    return said if whole or said in {"e", "i"} or _NUMERIC.fullmatch(said) else _text(said)


def _measured(found: re.Match[str]) -> str:
    return _text(_POWER_OF_MEASURE.sub("", (found[1] or found[2]).strip()))


def _text(said: str) -> str:
    return f"\\text{{{said.replace('.', '')}}}"


def _grouped(found: re.Match[str]) -> str:
    return found[0].replace(",", "{,}")


def spellings(text: str) -> list[str]:
    r"""Return the readings of thousands: what `normal` writes `1{,}234` is one number, or else two.

    Examples
    --------
    >>> spellings(normal("1,234")), spellings(normal("1, 234")), spellings(normal(r"1{,}234"))
    (['1234', '1,234'], ['1,234'], ['1234'])
    """
    return [text.replace("{,}", ""), text.replace("{,}", ",")] if "{,}" in text else [text]


def worded(text: str) -> bool:
    """Whether an answer, as `normal` writes it, is words and no mathematics."""
    text = _TEXT.sub(r" \1 ", text).strip()
    if _NO_WORD.search(text):
        return False
    word = _WORD.search(text)
    return word is not None and (word.start() == 0 or not any(char.isdigit() for char in text))


def folded(text: str) -> str:
    """Return what the words of an answer are compared by."""
    return "".join(char for char in _TEXT.sub(r"\1", text).casefold() if char.isalnum())


# --- outer form


@lru_cache(maxsize=4_096)
def form(text: str) -> Form:
    r"""Tell what an answer is, of the text that `normal` gives.

    Examples
    --------
    >>> form("(1,2]")
    Form(kind='tuple', text='(1,2]', parts=('1', '2'), marks=('(', ']'))
    >>> form(r"1<x\le 3").marks
    ('<', '\\le')
    """
    if known := _KNOWN.get(text):
        return Form(known[0], text, *known[1:])
    marks = outline(text)
    if marks is None or len(marks) > 4 * PARTS:
        return Form("leaf", text)
    said = [mark.said for mark in marks]
    separator = "," if "," in said else r"\cup" if r"\cup" in said and not {"=", r"\in"} & set(said) else ""
    if at := [mark for mark in marks if mark.said == separator]:
        return Form("list", text, _split(text, at))
    if at := [mark for mark in marks if mark.said in _RELATIONS]:
        return Form("relation", text, _split(text, at), tuple(mark.said for mark in at))
    if len(marks) == 2 and marks[0].start == 0 and marks[1].end == len(text):
        return _enclosed(text, *marks)
    signed = r"\pm" in text or r"\mp" in text
    return Form("list", text, _signed(text)) if signed else Form("leaf", text)


def outline(text: str) -> list[Mark] | None:
    """Return the outermost brackets, and what stands outside of them; `None` if they do not match."""
    marks: list[Mark] = []
    depth = 0
    for found in _SCAN.finditer(text):
        said = found[0]
        opens = said in _OPEN or said.startswith(r"\begin")
        closes = said in _CLOSE or said.startswith(r"\end")
        depth -= closes
        if depth < 0:
            return None
        if depth == 0 and (opens or closes or said in _OUTER):
            marks.append(Mark(said, found.start(), found.end()))
        depth += opens
    return None if depth else marks


def _split(text: str, at: list[Mark]) -> tuple[str, ...]:
    edges = [0, *(edge for mark in at for edge in (mark.start, mark.end)), len(text)]
    return tuple(text[edges[place] : edges[place + 1]].strip() for place in range(0, len(edges), 2))


def _signed(text: str) -> tuple[str, ...]:
    plus = text.replace(r"\pm", "+").replace(r"\mp", "-")
    return plus, text.replace(r"\pm", "-").replace(r"\mp", "+")


def _enclosed(text: str, opening: Mark, closing: Mark) -> Form:
    if opening.said.startswith(r"\begin"):
        return _matrix(text) or Form("leaf", text)
    if opening.said == r"\{" and (built := _BUILT.fullmatch(text)):
        return form(built[2])
    inner = text[opening.end : closing.start]
    commas = [mark for mark in outline(inner) or () if mark.said == ","]
    if opening.said == r"\{":
        return Form("set", text, _split(inner, commas) if inner else ())
    if commas and opening.said != "{":
        return Form("tuple", text, _split(inner, commas), (opening.said, closing.said))
    inside = opening.said in "{(" or inner.startswith(r"\begin")
    return form(inner) if inside else Form("leaf", text)


def _matrix(text: str) -> Form | None:
    found = _MATRIX.fullmatch(text)
    if found is None or r"\begin" in found[2]:
        return None
    rows = [row.split("&") for row in found[2].strip().removesuffix(r"\\").split(r"\\")]
    columns = len(rows[0])
    if len(rows) * columns > PARTS or any(len(row) != columns for row in rows):
        return None
    return Form("matrix", text, tuple(cell.strip() for row in rows for cell in row), (str(columns),))
