"""Boundaries by what the command line says: one of ours by name, or what a factory of the user's makes."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.errors import RefusedError
from steelyard.rewards.importing import resolve
from steelyard.sandbox import Boundary, boundary_of
from steelyard.sandbox.kinds import KINDS

FORM = "yours is package.module:factory or path/to/file.py:factory"


def maker_of(named: str, *, where: str, slots: int | None = None) -> Callable[[], Boundary]:
    """Find what makes a boundary.

    Parameters
    ----------
    named
        One of ours, with its argument if it has one, or a factory.
    where
        The option, for messages.
    slots
        How many slots one of ours may have.

    Raises
    ------
    RefusedError
        If there is nothing of that name, or it cannot be called.
    """
    if is_ours(named):
        return lambda: boundary_of(named, slots=slots)
    if ":" not in named:
        file = named.endswith(".py")
        raise RefusedError(
            f"{named!r} is a file, and names no function" if file else f"there is no boundary {named!r}",
            where=where,
            remedy=f"say {named}:factory, the function that makes it"
            if file
            else f"one of {', '.join(KINDS)} (steelyard doctor says which hold here); {FORM}",
        )
    try:
        factory = resolve(named)
    except RefusedError as error:
        raise RefusedError(error.reason, where=f"{where} {named}", remedy=error.remedy) from error
    if not callable(factory):
        raise RefusedError(
            f"{named} is {type(factory).__name__}, and cannot be called",
            where=where,
            remedy="name a class or a function that returns a boundary (docs/conformance.md)",
        )
    return factory


def is_ours(named: str) -> bool:
    """Whether a name is that of a kind of ours."""
    return named.partition(":")[0] in KINDS


def made(named: str, *, where: str) -> Boundary | str:
    """Make the boundary of the user's that is named; one of ours is made where it is needed.

    Raises
    ------
    RefusedError
        If there is none of that name, or what it makes is no boundary.
    """
    if is_ours(named):
        return named
    from steelyard.sandbox.conformance.holding import made_by  # it brings the suite

    return made_by(maker_of(named, where=where), where=where)
