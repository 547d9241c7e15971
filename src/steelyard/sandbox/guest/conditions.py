"""What a judge can tell of a check that failed: its call, what was expected, and what came back.

Nothing here asks the candidate: its objects are shown by the names of their classes, and what is shown is a
copy, made as values are made that travel. A suite's conditions are rewritten (`checks`) so that they pass
through here as they are evaluated; once, in their order, and with the same result.
"""

from __future__ import annotations

import operator
from typing import Any

from . import codec, proxies, showing, standin
from .link import Link
from .proxies import Function

_COMPARED = 1 << 18  # of a copy
_ARGUMENTS, _ARGUMENT = 6, 200
_SIGNS: dict[str, Any] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, container: item in container,
    "not in": lambda item, container: item not in container,
    "is": proxies.same,
    "is not": lambda one, other: not proxies.same(one, other),
}


class Conditions:
    """The conditions of one candidate's checks.

    Parameters
    ----------
    link
        Knows the call that was made last.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._last: tuple[Any, ...] | None = None

    def begin(self) -> None:
        """Begin a check: what was seen before is none of its business."""
        self._last = None

    def compared(self, sign: str, left: Any, right: Any, *, stated: bool) -> Any:
        """Compare as Python does; `stated` says that the left side holds no name."""
        result = _SIGNS[sign](left, right)
        self._last = (sign, left, right, stated)
        return result

    def seen(self, value: Any, *, wanted: bool) -> Any:
        """Let a value through that must be true, or false."""
        self._last = (value, wanted)
        return value

    def told(self, error: BaseException | None) -> dict[str, Any]:
        """Say what is known of the check that has just failed: all texts and numbers."""
        told: dict[str, Any] = {"call": call} if (call := self._call()) else {}
        if error is not None:
            line = getattr(error, "__dict__", {}).get("_steelyard_line")
            return told | ({"raised": line} if type(line) is int else {})
        if self._last is None:
            return told
        if len(self._last) == 2:
            value, wanted = self._last
            return told | showing.truth(_plain(value), wanted=wanted)
        sign, left, right, stated = self._last
        came = self._link.came
        mirrored = stated or (right is came and left is not came)
        for side in (left, right):
            if type(side) is standin.approx:
                sign, mirrored = "approx", side is left
        left, right = (
            _plain(side.expected if type(side) is standin.approx else side) for side in (left, right)
        )
        return told | showing.sides(sign, left, right, mirrored=mirrored)

    def _call(self) -> str:
        """The last call; arguments that it has changed are not shown."""
        if self._link.last is None:
            return ""
        target, name, args, kwargs, in_place = self._link.last
        owner: Any = self._link.handles.get(target, self._link.kinds.get(target))
        kind = owner if isinstance(owner, type) else type(owner)
        label = owner.__name__ if kind is Function else str(type.__dict__["__name__"].__get__(kind))
        label = f"{label}.{name}" if name else label
        if in_place:
            return f"{label}(...)"
        some = [("", value) for value in args] + [(f"{key}=", value) for key, value in kwargs.items()]
        given = [f"{key}{showing.shown(_plain(value), _ARGUMENT)}" for key, value in some[:_ARGUMENTS]]
        given += ["..."] if len(some) > _ARGUMENTS else []
        return f"{label}({', '.join(given)})"


def _plain(value: Any) -> Any:
    """A copy that is plain data; of anything else the name of its type."""
    try:
        return codec.decode(codec.encode(value, None, _COMPARED))
    except Exception:
        return codec.Opaque(codec.type_name(value))
