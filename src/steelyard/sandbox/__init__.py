"""Where model-written code runs: boundaries, and the warm slots behind them.

`boundary` is the protocol. `bubblewrap` is the boundary that needs no daemon: `house` makes its slots,
`slot` talks with one, `forkserver` hands them out, `watch` enforces limits with what `usage` counts, `ends`
says how a guest ended, `judges` keeps the processes that hold tests. `guest/` is what runs inside, and
imports nothing from outside. `machine` says what this machine can isolate with.
"""

from collections.abc import Callable, Mapping
from typing import Final

from steelyard.errors import RefusedError
from steelyard.sandbox.boundary import Boundary as Boundary
from steelyard.sandbox.boundary import Checks as Checks
from steelyard.sandbox.boundary import Opinion as Opinion
from steelyard.sandbox.boundary import Program as Program

__all__ = ["Boundary", "Checks", "Opinion", "Program", "boundary_of"]


def _bubblewrap() -> Boundary:
    from steelyard.sandbox.bubblewrap import Bubblewrap  # noqa: PLC0415 - what it needs is only there on Linux

    return Bubblewrap()


BOUNDARIES: Final[Mapping[str, Callable[[], Boundary]]] = {"bubblewrap": _bubblewrap}
"""The boundaries of ours by name."""


def boundary_of(named: Boundary | str) -> Boundary:
    """Take a boundary, or make the one of that name.

    Raises
    ------
    RefusedError
        If there is none of that name.
    """
    if not isinstance(named, str):
        return named
    make = BOUNDARIES.get(named)
    if make is None:
        raise RefusedError(
            f"there is no boundary {named!r}",
            where="boundary",
            remedy=f"one of {', '.join(BOUNDARIES)} (steelyard doctor says which hold here)",
        )
    return make()
