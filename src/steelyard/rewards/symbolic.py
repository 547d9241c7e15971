r"""Whether what was said equals the gold, as mathematics: form by form, value by value, then math-verify.

`equal(said, gold)` compares the text in one spelling (`latex.normal`) before it guards against size. Then:

| | |
|---|---|
| lists, sets | the same parts in any order; `1, 2` is `\{1, 2\}`; one value is the set of it |
| tuples, intervals | part by part; `(1, 3)` is not `[1, 3]`, but a bare `1, 2` is `(1, 2)` |
| matrices | cell by cell, of one shape; a single column is also that tuple |
| `x = 5` against `5` | the value, whichever side names it; names on both sides must be the same |
| `a + b = 7` against `7` | the number, where it was said; a gold that is an equation is not its right side |
| equations | the same zeros: up to a constant factor, or solved for the same letter |
| solved golds, `x = 5` | only that value: `2x = 10` may be the question |
| inequalities | as intervals where they bound one letter, else up to a constant factor |
| `9 + 9 = 18`, `2\pi \approx 6.28` | the last value, if all agree; the value, or its correct rounding |
| clock times, ratios | part by part: `1:2` is not `2:4` |
| units, `^\circ`, `\%`, currency | may be left out; units that both sides name must share a word |
| words | without case, never symbolically |
| decimals | exact: 0.33 is not 1/3; six correctly rounded digits stand for a value that is no fraction |
| bases, remainders, dots | only as text: `12_8` is not 12 |

Values are compared by `values`, which bounds its own costs. Only a sum, product, integral or limit, which
`expressions` does not read, goes to math-verify: to its parser and its `verify`, with their timeouts off
(never SIGALRM, never a thread), without its search for expressions in prose (which evaluates Python), and
only small texts of few commands. It is called where a kernel timer ends the process; sympy is imported
then, or by `warm`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from steelyard.outcome import Scored
from steelyard.rewards.expressions import TooLargeError, Tree, UnreadError
from steelyard.rewards.latex import Form, folded, form, normal, spellings, too_large, worded
from steelyard.rewards.numbers import read_number
from steelyard.rewards.values import Expression, difference, expression, factor, is_real
from steelyard.rewards.values import equal as equal_values

ROUNDED: Final = 6
"""Correct digits that stand for an irrational value."""

_MEASURED = re.compile(r"(.+?)((?:\\text\{[^{}]*\}(?:\^\(?-?\d\)?)?[*/]?)+|\\?%)", re.DOTALL)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_DEGREES = re.compile(r"\^(?:\{\\circ\}|\\circ(?![A-Za-z]))(?: ?[CF](?![A-Za-z]))?")
_FUNCTION = re.compile(r"\\(?:a?(?:rc)?(?:sin|cos|tan|cot|sec|csc))(?![A-Za-z])")
_NAME = re.compile(
    r"\\text\{[^{}]*\}|(?:\\[A-Za-z]+|[A-Z]{1,4}|[a-z])'*(?:_(?:\w|\{[^{}]*\}))?(?:\([^()]{1,20}\))?"
    r"|\([A-Za-z](?:,[A-Za-z])+\)|m?\\(?:angle|triangle) ?[A-Z]{1,3}"
)
_DECIMAL = re.compile(r"-?(\d*)\.?(\d*)")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_SERIES = re.compile(r"\\(?:sum|prod|int|lim)(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_SAFE = frozenset(
    {
        r"\sum",
        r"\prod",
        r"\int",
        r"\lim",
        r"\to",
        r"\infty",
        r"\frac",
        r"\sqrt",
        r"\pi",
        r"\sin",
        r"\cos",
        r"\tan",
    }
    | {r"\ln", r"\log", r"\exp", r"\binom", r"\alpha", r"\beta", r"\theta", r"\le", r"\ge"}
)
_COSTLY = re.compile(  # large numbers, towers, deep brackets, sequences
    r"\d{4}|\^\{?[^{}]*\^|!|\([^()]*\([^()]*\(|(?<!\\sum)(?<!\\prod)(?<!\\int)(?<!\\lim)(?<!\\log)_"
)


def equal(said: str, gold: str) -> bool | Scored:
    r"""Compare two answers; the floor with `malformed` where what was said would cost too much to compare.

    Examples
    --------
    >>> equal(r"\{2, 1\}", "1, 2"), equal("(2, 1)", "(1, 2)"), equal(r"\frac{\sqrt{8}}{2}", r"\sqrt2")
    (True, False, True)
    >>> equal("9^{9^{9^9}}", "5").reason
    'a power is too large'
    """
    if said.strip() == gold.strip():
        return True
    if reason := too_large(said):
        return Scored(0.0, "malformed", reason)
    try:
        return any(
            _same(form(one), form(other))
            for one in spellings(normal(said))
            for other in spellings(normal(gold))
        )
    except TooLargeError as error:
        return Scored(0.0, "malformed", str(error))


def warm() -> None:
    """Import what a comparison may need, and compare once: a worker does so before its clock starts."""
    equal(r"\sqrt{2}", r"\sqrt{3}")
    _by_math_verify(r"\int_0^1xdx", r"\int_0^1xdx")


# --- forms


def _same(said: Form, gold: Form) -> bool:
    if said.text == gold.text:
        return said.text != ""
    if r"\approx" in said.marks or r"\approx" in gold.marks:
        return any(_same(one, other) for one in _readings(said) for other in _readings(gold))
    if "relation" in {said.kind, gold.kind}:
        return _same_relation(said, gold)
    if said.kind == gold.kind == "leaf":
        return _same_leaf(said.text, gold.text)
    return _same_parts(said, gold)


def _same_parts(said: Form, gold: Form) -> bool:
    kinds = {said.kind, gold.kind}
    if "leaf" in kinds:
        one = said.parts if gold.kind == "leaf" else gold.parts
        alike = len(one) == 1 or (bool(one) and said.kind == "list")  # {5}, and "0.5, that is, 1/2"
        leaf = gold if gold.kind == "leaf" else said
        return alike and all(_same(form(part), leaf) for part in one)
    if kinds <= {"list", "set"}:
        return _any_order(_flat(said), _flat(gold))
    if kinds == {"matrix", "tuple"}:
        same = ("1",) in {said.marks, gold.marks}
    elif kinds == {"matrix"}:
        same = said.marks == gold.marks
    elif kinds == {"tuple"}:
        same = len(said.parts) != 2 or _brackets(said) == _brackets(gold)
    else:  # bare numbers may be a point; of an interval they leave open which ends belong to it
        written = said if said.kind == "tuple" else gold
        point = written.kind == "tuple" and _brackets(written) == ["(", ")"] and r"\infty" not in written.text
        same = kinds == {"list", "tuple"} and point
    return same and _in_order(said.parts, gold.parts)


def _brackets(of: Form) -> list[str]:
    return [{r"\langle": "(", r"\rangle": ")"}.get(bracket, bracket) for bracket in of.marks]


def _in_order(said: Sequence[str], gold: Sequence[str]) -> bool:
    return len(said) == len(gold) and all(
        _same(form(one), form(other)) for one, other in zip(said, gold, strict=True)
    )


def _flat(of: Form) -> list[str]:
    r"""Return the parts of a list or set, and of the lists in it: `\pm` makes one."""
    parts = ((part, form(part)) for part in of.parts)
    return [one for part, inner in parts for one in (inner.parts if inner.kind == "list" else (part,))]


def _any_order(said: Sequence[str], gold: Sequence[str]) -> bool:
    """Whether each part has an equal of its own on the other side."""
    left = [form(part) for part in gold]
    for part in map(form, said):
        found = next((at for at, other in enumerate(left) if _same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return not left


# --- relations


def _same_relation(said: Form, gold: Form) -> bool:
    """One side or both are relations."""
    if gold.kind != "relation":
        one = _stated(said, named=False)
        return _same(form(one[1]), gold) if one else _same_bounds(said, gold)
    other = _stated(gold)
    if said.kind != "relation":
        return _same(said, form(other[1])) if other else _same_bounds(said, gold)
    one = _stated(said)
    if one and other and one[0] == other[0] != "":
        values = form(one[1]), form(other[1])
        if _same(*values) or values[1].kind != "leaf":
            return _same(*values)
    if len(said.parts) == len(gold.parts) == 2:
        if said.marks == gold.marks == ("=",):
            return not (other and _constant(other[1])) and _same_zeros(said, gold)
        if _same_order(said, gold):
            return True
    return _same_bounds(said, gold)


def _stated(relation: Form, *, named: bool = True) -> tuple[str, str] | None:
    r"""Return the name and the value in `x = 5`, `x \in A`, `S = 9\pi r^2 = 9\pi`; `None` if it states none.

    All numbers in it must agree. Without `named`, also the number in `a + b = 7`.
    """
    marks = set(relation.marks)
    first, *between, value = relation.parts
    if marks == {"="} and not _NAME.fullmatch(first) and _NAME.fullmatch(value) and not between:
        first, value = value, first
    name = first if _NAME.fullmatch(first) else ""
    if marks == {r"\in"} and name and not between:
        return name, value
    if marks != {"="}:
        return None
    if name and not between:
        return name, value
    wanted = _constant(value)
    others = [_constant(part) for part in (between if name else (first, *between))]
    if named and not name and None in others:
        return None
    agree = all(wanted is not None and equal_values(one, wanted) for one in others if one)
    return (name, value) if agree and (name or wanted) else None


def _constant(text: str) -> Expression | None:
    try:
        said = expression(text)
    except UnreadError:
        return None
    return None if said.symbols or said.at(0)[0] is None else said


def _readings(said: Form) -> list[Form]:
    r"""Return what `x = 2\pi \approx 6.28` may say: the value, and its rounding if that is right."""
    if r"\approx" not in said.marks:
        return [said]
    at = said.marks.index(r"\approx")
    value, rounding = said.parts[at : at + 2]
    before = said.text[: said.text.index(r"\approx")]
    exact, rounded = _constant(value), _constant(rounding)
    if exact is None or rounded is None:
        return [form(rounding if _NAME.fullmatch(value) else before)]
    if not _rounds(rounding, rounded, exact, digits=1):
        return []
    close = _rounds(rounding, rounded, exact, digits=3)  # a coarser one would be a second answer
    return [form(before), form(rounding)] if close else [form(before)]


def _rounds(written: str, rounded: Expression, exact: Expression, *, digits: int = ROUNDED) -> bool:
    """Whether a decimal of enough digits is the correct rounding of a value."""
    decimal = _DECIMAL.fullmatch(written)
    if decimal is None or len((decimal[1] + decimal[2]).lstrip("0")) < digits:
        return False
    distance, _ = difference(rounded, exact).at(0)
    return distance is not None and is_real(distance) and abs(distance) * 2 * 10 ** len(decimal[2]) <= 1


def _same_bounds(said: Form, gold: Form) -> bool:
    """Compare inequalities with intervals, and with each other."""
    one, other = _bounds(said), _bounds(gold)
    if one is None or other is None or (one[0] and other[0] and one[0] != other[0]):
        return False
    return _same_parts(one[1], other[1])


def _bounds(of: Form) -> tuple[str, Form] | None:
    """Return the letter that an inequality bounds, and its interval; an interval has no letter."""
    if of.kind == "tuple" and len(of.parts) == 2:
        return "", of
    marks = set(of.marks)
    if of.marks == (r"\in",) and _NAME.fullmatch(of.parts[0]) and (inner := _bounds(form(of.parts[1]))):
        return of.parts[0], inner[1]
    if of.kind != "relation" or not (marks <= {"<", r"\le"} or marks <= {">", r"\ge"}):
        return None
    parts, marks_in_order = of.parts, of.marks
    if ">" in marks or r"\ge" in marks:
        parts, marks_in_order = parts[::-1], tuple(_FLIPPED[mark] for mark in of.marks[::-1])
    if len(parts) == 2:
        above = _constant(parts[0]) is None
        parts = (r"-\infty", *parts) if above else (*parts, r"\infty")
        marks_in_order = ("<", *marks_in_order) if above else (*marks_in_order, "<")
    if len(parts) != 3 or not _NAME.fullmatch(parts[1]) or not (_constant(parts[0]) and _constant(parts[2])):
        return None
    brackets = ("(" if marks_in_order[0] == "<" else "[", ")" if marks_in_order[1] == "<" else "]")
    return parts[1], Form("tuple", of.text, (parts[0], parts[2]), brackets)


def _zeros(relation: Form) -> Expression | None:
    try:
        return difference(expression(relation.parts[0]), expression(relation.parts[1]))
    except UnreadError:
        return None


def _same_zeros(said: Form, gold: Form) -> bool:
    """Whether two equations agree up to a factor, or solved for a letter in which both are linear."""
    one, other = _zeros(said), _zeros(gold)
    if one is None or other is None or one.symbols != other.symbols:
        return False
    if factor(one, other) is not None:
        return True
    roots = [(_root(one, name), _root(other, name)) for name in one.symbols]
    linear = [(first, second) for first, second in roots if first and second]
    return bool(linear) and all(equal_values(first, second) for first, second in linear)


def _same_order(said: Form, gold: Form) -> bool:
    """Whether two inequalities agree up to a factor, which flips them if it is negative."""
    one, other = _zeros(said), _zeros(gold)
    multiple = factor(one, other) if one and other else None
    if multiple is None:
        return False
    mark = said.marks[0]
    return (_FLIPPED.get(mark, mark) if multiple < 0 else mark) == gold.marks[0]


def _root(of: Expression, name: str) -> Expression | None:
    """Return what a letter is where an expression linear in it vanishes."""
    rest = of.symbols - {name}
    zero, one, two = (_replaced(of.tree, name, Fraction(value)) for value in range(3))
    bend = Expression(("+", zero, two, ("-", one), ("-", one)), rest)
    if not equal_values(bend, Expression(("number", Fraction(0)), frozenset())):
        return None
    return Expression(("fraction", zero, ("+", zero, ("-", one))), rest)


def _replaced(tree: Tree, name: str, value: Fraction) -> Tree:
    if tree == ("symbol", name):
        return ("number", value)
    return tuple(_replaced(part, name, value) if isinstance(part, tuple) else part for part in tree)


# --- leaves


def _same_leaf(said: str, gold: str) -> bool:
    if worded(said) or worded(gold):
        # letters alone would stand for every sign and operator between them
        return worded(said) and worded(gold) and folded(said) == folded(gold)
    one, other = _measured(said), _measured(gold)
    if one is None or other is None or (one[1] and other[1] and one[1].isdisjoint(other[1])):
        return False
    if ":" in one[0] or ":" in other[0]:
        parts = one[0].split(":"), other[0].split(":")
        return len(parts[0]) == len(parts[1]) and all(map(_same_value, *parts))
    if _same_value(one[0], other[0]):
        return True
    shares = [_share(*each) for each in (one, other)]
    return None not in shares and shares[0] == shares[1]


@lru_cache(maxsize=4_096)
def _measured(text: str) -> tuple[str, frozenset[str]] | None:
    """Split the unit off a value, `None` if what follows it is none; degrees stay in trigonometry."""
    unit: frozenset[str] = frozenset()
    if found := _MEASURED.fullmatch(text):
        said = " ".join(_TEXT.findall(found[2])) or "percent"
        reading = read_number(f"1 {said}")
        if reading.value != 1:  # no unit, or a magnitude
            return None
        text, unit = found[1], reading.unit
    if "circ" in text and not _FUNCTION.search(text):
        text, unit = _DEGREES.sub("", text), unit | {"degree"}
    return text, unit


def _same_value(said: str, gold: str) -> bool:
    if said == gold:
        return said != ""
    try:
        one, other = expression(said), expression(gold)
    except UnreadError:
        return _by_math_verify(said, gold)
    if equal_values(one, other):
        return True
    exact = other.at(0)[0]
    irrational = not other.symbols and exact is not None and not isinstance(exact, Fraction)
    return irrational and not one.symbols and _rounds(said, one, other)


def _share(text: str, unit: frozenset[str]) -> Fraction | None:
    """Return a percentage, or a number that is no integer, as a share of one."""
    said = _constant(text)
    value = said.at(0)[0] if said else None
    if not isinstance(value, Fraction):
        return None
    if unit == {"percent"}:
        return value / 100
    return value if value.denominator > 1 and not unit else None


# --- what only math-verify reads


def _by_math_verify(said: str, gold: str) -> bool:
    """Compare a sum, product, integral or limit with math-verify."""
    if not _SERIES.search(said) and not _SERIES.search(gold):
        return False
    trees = [_parsed(text) for text in (gold, said)]
    if trees[0] is None or trees[1] is None:
        return False
    from math_verify import grader  # noqa: PLC0415 - heavy: sympy

    grader.TIMEOUT_WARNING_SHOWN = True  # that it has no timeout is on purpose
    return bool(grader.verify(trees[0], trees[1], timeout_seconds=None))


@lru_cache(maxsize=256)
def _parsed(text: str) -> object:
    """Parse with math-verify's parser; `None` for what it does not read, or what might not end."""
    if len(text) > 200 or _COSTLY.search(text) or not _SAFE.issuperset(_COMMAND.findall(text)):
        return None
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy  # noqa: PLC0415 - heavy: sympy

    keep_case = ConversionConfig(lowercase_symbols=False)
    try:
        return latex2sympy(text, is_real=True, normalization_config=None, conversion_config=keep_case)
    except Exception:  # noqa: BLE001 - its parser raises bare exceptions
        return None
