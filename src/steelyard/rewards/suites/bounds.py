"""How large values are, and what is too large for an operation to be performed on it.

A candidate chooses the values, so every walk here is linear in what they take to be sent: containers arrive
as trees, and an operation that repeats a part of one weighs it at every depth first.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple

LARGEST: Final = 1_000_000
LARGEST_BITS: Final = 1 << 16
LARGEST_SENT: Final = 4_000_000
_DEEPEST: Final = 100
_CROWD: Final = 64

SEQUENCES = (list, tuple, str, bytes)
SETS = (set, frozenset)
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
ITERABLE = frozenset((*SEQUENCES, *SETS, *VIEWS, dict, range, bytearray))
_SIMPLE = frozenset((type(None), bool, float, str))
_SENT = (type(None), bool, int, float, complex, str, bytes, bytearray, range)


class TooLargeError(Exception):
    """An operation that is not performed: its cost would not be bounded by the size of its operands."""


def fits(length: int) -> None:
    """Refuse more than `LARGEST` elements."""
    if length > LARGEST:
        raise TooLargeError(f"a sequence of {length} elements")


def items_of(value: Any) -> Any:  # noqa: ANN401
    """Return what is iterated over, if it is a container that does not take long."""
    if type(value) not in ITERABLE and not is_deque(value):
        raise TypeError(f"{type(value).__name__} is not iterated over")
    fits(len(value))
    return value


def weigh(value: Any, times: int = 1) -> None:  # noqa: ANN401
    """Refuse so many times what is in a value, at every depth, if that is more than `LARGEST`."""
    weight = 0
    stack = [value]
    while stack:
        value = stack.pop()
        if type(value) in ITERABLE or is_deque(value):
            weight += 1 if type(value) is range else len(value)
            fits(weight * times)
            opened(value, stack)


def uncrowded(items: Iterable[Any]) -> list[Any]:
    """Return the different ones of hashable items; refuse many that share one hash."""
    seen: dict[int, list[Any]] = {}
    for item in items:
        bucket = seen.setdefault(hash(item), [])
        if item not in bucket:
            if len(bucket) >= _CROWD:
                raise TooLargeError("a set whose elements share their hash")
            bucket.append(item)
    return [item for bucket in seen.values() for item in bucket]


def is_deque(value: Any) -> bool:  # noqa: ANN401
    """Whether it is a deque, whose module need not be loaded."""
    return type(value).__name__ == "deque" and type(value).__module__ == "collections"


class Traits(NamedTuple):
    """What in a value, at any depth, may make it slow to compare with another."""

    decimal: bool
    huge: bool
    array: bool


def traits_of(value: Any) -> Traits:  # noqa: ANN401
    """Look for decimals, huge integers and arrays."""
    decimal = huge = array = False
    stack = [value]
    while stack and not array:
        value = stack.pop()
        kind = type(value)
        if kind is int:
            huge = huge or value.bit_length() > LARGEST_BITS
        elif kind not in _SIMPLE and not opened(value, stack):
            decimal = decimal or kind is Decimal
            array = kind.__module__ == "numpy"
    return Traits(decimal, huge, array)


def comparable(several: Iterable[Traits]) -> None:
    """Refuse what does not compare in time linear in its size.

    That is a decimal beside a huge integer (quadratic in the digits), and an array (two broadcast).
    """
    seen = list(several)
    if any(traits.array for traits in seen):
        raise TypeError("an array")
    if any(traits.decimal for traits in seen) and any(traits.huge for traits in seen):
        raise TooLargeError("a decimal beside a huge integer")


def opened(value: Any, stack: list[Any]) -> bool:  # noqa: ANN401
    """Put what a container holds on a stack; false if it is none."""
    if type(value) in (list, tuple, *SETS) or is_deque(value):
        stack.extend(value)
    elif type(value) is dict:
        stack.extend((*value, *value.values()))
    else:
        return False
    return True


def _is_short(value: range) -> bool:
    """Whether a range can be sent."""
    return max(map(int.bit_length, (value.start, value.stop, value.step))) <= 64


def sendable(values: Iterable[Any]) -> tuple[str, int]:
    """Say what keeps values from being sent as arguments (empty: nothing), and how large they are."""
    size = 0
    level: list[Any] = list(values)
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            if not opened(value, inner):
                if type(value) not in _SENT or (type(value) is range and not _is_short(value)):
                    return f"an argument of {type(value).__name__}", size
                size += value.bit_length() // 4 if type(value) is int else 0
                size += len(value) if type(value) in (str, bytes, bytearray) else 0
        size += 20 * len(level)
        if size > LARGEST_SENT:
            return "arguments that are too large to be sent", size
        if not inner:
            return "", size
        level = inner
    return "arguments that are too deep to be sent", size
