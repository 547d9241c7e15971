"""Values for a person: what they are in a line, and where two of them part.

Read by the host and by judges, of values that `codec` has read: plain data, and what is `Opaque`. No method
of anything else runs, and nothing costs more than the text that comes of it; where two values part costs what
comparing them did.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

from .reading import Opaque

LONG = 1_000
"""Characters of a value that a report shows."""

_SHORT, _LINE, _ITEMS, _DEPTH = 120, 40, 8, 3
_NOTHING = object()
_BITS = 256
_BRACKETS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}
_TEXTS = (str, bytes, bytearray)
_EXACT = (("decimal", "Decimal"), ("datetime", "datetime"), ("datetime", "date"), ("datetime", "timedelta"))


def shown(value: Any, most: int = _SHORT, depth: int = _DEPTH) -> str:
    """Show a value in at most `most` characters, without looking at more of it than that.

    Examples
    --------
    >>> shown([1, "two", list(range(100))]), shown(10**500)
    ("[1, 'two', [0, 1, 2, 3, 4, 5, 6, 7, ...]]", 'an integer of 1661 bits')
    """
    kind = type(value)
    if kind is int:
        text = repr(value) if value.bit_length() <= _BITS else f"an integer of {value.bit_length()} bits"
    elif kind in _TEXTS:
        room = most - 20
        text = repr(value[:room]) + ("..." if len(value) > room else "")
    elif value is None or kind in {bool, float, complex, range}:
        text = repr(value)
    elif kind in _BRACKETS or _is(value, "collections", "deque"):
        text = _contained(value, most, depth)
    elif _is(value, "numpy", "ndarray"):
        text = f"array of shape {value.shape}, {shown(value.flat[:most].tolist(), most - 40, depth)}"
    elif any(_is(value, *where) for where in _EXACT) or (
        _is(value, "fractions", "Fraction")
        and max(value.numerator.bit_length(), value.denominator.bit_length()) <= _BITS
    ):
        text = str(value)[:most]
    else:
        named = value.type_name if issubclass(kind, Opaque) else type.__dict__["__name__"].__get__(kind)
        text = f"an object {str(named)[:60]}"
    return text if len(text) <= most else text[: most - 3] + "..."


def _contained(value: Any, most: int, depth: int) -> str:
    pairs = type(value) is dict
    left, parts = most, []
    for item in islice(value.items() if pairs else value, max(_ITEMS, most // 15) if depth else 0):
        some = item if pairs else (item,)
        parts.append(": ".join(shown(part, max(left, _SHORT), depth - 1) for part in some))
        left -= len(parts[-1])
        if left < 0:
            break
    parts += ["..."] if len(value) > len(parts) else []
    brackets = _BRACKETS.get(type(value), "[]")
    comma = "," if type(value) is tuple and len(value) == 1 else ""
    text = f"{brackets[0]}{', '.join(parts)}{comma}{brackets[1]}"
    return f"{type(value).__name__}({text})" if type(value) not in {list, tuple, set, dict} else text


def sides(sign: str, left: Any, right: Any, *, mirrored: bool = False) -> dict[str, str]:
    """Say what a comparison that does not hold expected and what it got.

    Parameters
    ----------
    sign
        Python's, or `approx`.
    left, right
        Its sides.
    mirrored
        Whether the left one is what was expected.

    Examples
    --------
    >>> sides("==", 4, 5), sides("<", 7, 2)
    ({'expected': '5', 'got': '4'}, {'expected': 'it < 2', 'got': '7'})
    """
    stated, got = (left, right) if mirrored else (right, left)
    expected, parts = shown(stated, LONG), ""
    if sign == "==":
        parts = parting(stated, got)
    elif sign == "approx":
        expected = f"about {expected}"
    elif sign != "is":
        expected = f"{expected} {sign} it" if mirrored else f"it {sign} {expected}"
    return {"expected": expected, "got": shown(got, LONG)} | ({"parts": parts} if parts else {})


def truth(value: Any, *, wanted: bool) -> dict[str, str]:
    """Say the same of a condition that is a mere value."""
    return {"expected": f"a {str(wanted).lower()} value", "got": shown(value, LONG)}


def parting(expected: Any, got: Any) -> str:
    """Say where two containers that are not equal part; empty where they are none.

    Examples
    --------
    >>> parting([1, {"a": 2}], [1, {"a": 3}]), parting([1, 2], [1]), parting(1, 2)
    ("at [1]['a']: 2 expected, 3 came back", 'at [1]: 2 expected, nothing came back', '')
    """
    path = ""
    try:
        while type(expected) is type(got) and (step := _step(expected, got)) and len(path) < _SHORT:
            at, expected, got = step
            path += f"[{shown(at, 60)}]"
    except Exception:  # what cannot be compared parts nowhere
        return ""
    one, other = ("nothing" if side is _NOTHING else shown(side) for side in (expected, got))
    return f"at {path}: {one} expected, {other} came back" if path else ""


def _step(one: Any, other: Any) -> tuple[Any, Any, Any] | None:
    """The first place in which two containers of one kind differ, and what each holds there."""
    if type(one) in {list, tuple}:
        length = min(len(one), len(other))
        at: Any = next((at for at in range(length) if one[at] != other[at]), length)
        found = [side[at] if at < len(side) else _NOTHING for side in (one, other)]
    elif type(one) is dict:
        at = next((key for key in one if key not in other or one[key] != other[key]), _NOTHING)
        at = next((key for key in other if key not in one), _NOTHING) if at is _NOTHING else at
        found = [side.get(at, _NOTHING) for side in (one, other)]
    elif type(one) is str and max(len(one), len(other)) > _LINE:
        at = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(one), len(other)) if at is None else at
        found = [side[at : at + _LINE] or _NOTHING for side in (one, other)]
    else:
        return None
    return None if found[0] is _NOTHING and found[1] is _NOTHING else (at, *found)


def _is(value: object, module: str, name: str) -> bool:
    """Whether a value is exactly of a class that may not even be loaded."""
    return type(value) is getattr(sys.modules.get(module), name, None)
