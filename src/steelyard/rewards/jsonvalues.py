"""JSON values: strictly compared, and followed by pointers.

Python's own equality takes `True` for 1, and a way through a JSON writer makes `[1, 3]` of `(1, 3)`. Here
types count as JSON has them: 1 is 1.0, but neither `true` nor `"1"`; what JSON has no word for (a tuple,
NaN) equals nothing. Nothing recurses: a value may be nested as deeply as a completion likes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from steelyard.rewards.answers import shown

ABSENT: Final = object()
"""Stands where there is no value: `null` is one."""

_KINDS: Mapping[type, str] = {int: "number", float: "number", str: "text", list: "a list", dict: "an object"}
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def unequal(expected: object, found: object, *, subset: bool = False) -> str | None:
    """Return where two JSON values first differ, as a JSON pointer and in words; `None` if nowhere.

    Parameters
    ----------
    expected, found
        The values.
    subset
        Whether objects may hold keys that are not expected; those inside a list may not.

    Examples
    --------
    >>> unequal({"orders": [{"paid": True}]}, {"orders": [{"paid": 1}]})
    'at /orders/0/paid: 1, expected True'
    """
    todo: list[tuple[Any, object, object, bool]] = [((), expected, found, subset)]
    while todo:
        path, wanted, there, loose = todo.pop()
        kind = _kind(wanted)
        if kind is None or kind != _kind(there):
            return _difference(path, wanted, there)
        if isinstance(wanted, dict) and isinstance(there, dict):
            if not loose and len(there) > len(wanted):
                extra = next(key for key in there if key not in wanted)
                return _difference((path, extra), ABSENT, there[extra])
            todo += [((path, key), one, there.get(key, ABSENT), loose) for key, one in wanted.items()][::-1]
        elif isinstance(wanted, list) and isinstance(there, list):
            if len(wanted) != len(there):
                return f"{_at(path)}: {len(there)} items, expected {len(wanted)}"
            pairs = zip(wanted, there, strict=True)
            todo += [((path, at), one, other, False) for at, (one, other) in enumerate(pairs)][::-1]
        elif wanted != there:
            return _difference(path, wanted, there)
    return None


def _kind(value: object) -> str | None:
    """Name the type that JSON gives a value; `None` if it gives none."""
    if value is None or isinstance(value, bool):
        return str(value)
    return _KINDS.get(type(value))


def _difference(path: Any, wanted: object, there: object) -> str:  # noqa: ANN401 - linked pairs
    return f"{_at(path)}: {brief(there)}, expected {brief(wanted)}"


def brief(value: object) -> str:
    """A value as a message shows it; what may be deep is not looked into."""
    if value is ABSENT:
        return "nothing"
    if isinstance(value, dict | list | tuple):
        return f"{_KINDS.get(type(value), 'a tuple')} of {len(value)}"
    return shown(value)


def _at(path: Any) -> str:  # noqa: ANN401 - (((), "orders"), 0)
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(str(step)[:40].replace("~", "~0").replace("/", "~1"))
    if len(steps) > 8:
        steps = [*steps[:4], "...", *steps[-3:]]
    return f"at /{'/'.join(reversed(steps))}" if steps else "as a whole"


def pointed(document: object, pointer: str) -> object:
    """Follow a JSON pointer (RFC 6901); `ABSENT` where it leads nowhere."""
    for escaped in pointer.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(step, ABSENT)
        elif isinstance(document, list) and _INDEX.fullmatch(step) and int(step) < len(document):
            document = document[int(step)]
        else:
            return ABSENT
    return document


def json_fault(value: object) -> str | None:
    """Say what in a value JSON has no word for, or `None`."""
    todo = [value]
    while todo:
        one = todo.pop()
        kind = _kind(one)
        if kind is None or (isinstance(one, float) and not isfinite(one)):
            return f"{brief(one)} is no JSON value"
        if isinstance(one, dict):
            if not all(type(key) is str for key in one):
                return "an object has a key that is no text"
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return None
