"""What an instruction is: a check of the text, and the arguments that its row must bring.

A check is a plain function `check(text, *arguments) -> bool` whose cost is bounded by the length of the
text. Its arguments are read from the row by small readers, which say what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Reader = Callable[[Any], Any]

AT_LEAST = "at least"
LESS_THAN = "less than"


def _nothing() -> None:
    return None


class Kind(NamedTuple):
    """One kind of instruction.

    Parameters
    ----------
    check
        Says whether a text follows it.
    takes
        The arguments by their names in the row's `kwargs`, in the order of the check.
    absent
        Says what is not installed that the check needs, and how to get it; `None` if all is there.
    """

    check: Callable[..., bool]
    takes: Mapping[str, Reader]
    absent: Callable[[], str | None]


def kind(
    check: Callable[..., bool], /, *, absent: Callable[[], str | None] = _nothing, **takes: Reader
) -> Kind:
    """Make a kind; the keywords name the arguments."""
    return Kind(check, takes, absent)


def whole(value: Any) -> int:  # noqa: ANN401 - whatever the row holds
    """Read a whole number from 0, also written as `5.0`, which is how the published files write it."""
    exact = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not exact or value < 0:
        raise ValueError("must be a whole number from 0")
    return int(value)


def positive(value: Any) -> int:  # noqa: ANN401
    """Read a whole number from 1."""
    if (number := whole(value)) == 0:
        raise ValueError("must be a whole number from 1")
    return number


def percentage(value: Any) -> float:  # noqa: ANN401
    """Read a number from 0 to 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError("must be a number from 0 to 100")
    return value


def text(value: Any) -> str:  # noqa: ANN401
    """Read a text that is not blank, without the whitespace around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value.strip()


def verbatim(value: Any) -> str:  # noqa: ANN401
    """Read a text that is not blank, as it is."""
    text(value)
    return str(value)


def texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Read a list of texts, none of them blank."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be a list of texts")
    return tuple(map(verbatim, value))


def letter(value: Any) -> str:  # noqa: ANN401
    """Read one character, in lower case."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("must be one character")
    return value.strip().lower()


def relation(value: Any) -> str:  # noqa: ANN401
    """Read how a count is compared."""
    if value not in (LESS_THAN, AT_LEAST):
        raise ValueError(f"must be {LESS_THAN!r} or {AT_LEAST!r}")
    return str(value)


def compared(count: int, how: str, limit: int) -> bool:
    """Compare a count as a `relation` says."""
    return count < limit if how == LESS_THAN else count >= limit
