"""How one call of a trusted function ended: with a value, or in one of four other ways.

These are facts. What they mean for a rollout (floor, second try, `Unscored`) the scheduler decides.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from steelyard.clock import Clocks, Seconds


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised, or returned what cannot be handed back.

    Parameters
    ----------
    type
        The exception's class name, `SystemExit` and `KeyboardInterrupt` included.
    message
        Its text, at most 300 characters.
    traceback_tail
        The innermost frames, as Python prints them.
    """

    type: str
    message: str
    traceback_tail: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Cut:
    """A limit of the pool ended it."""

    limit: Literal["cpu", "wall", "memory"]

    def __str__(self) -> str:
        return f"cut by its {self.limit} limit"


@dataclass(frozen=True, slots=True)
class Died:
    """Its process ended under it, by a signal or by an exit of its own.

    Parameters
    ----------
    signal
        The signal's number, if one ended it.
    code
        Else the exit code; 0 too is no answer.
    """

    signal: int | None = None
    code: int | None = None

    def __str__(self) -> str:
        if self.signal is None:
            return f"its process ended with exit code {self.code} before it returned"
        try:
            name = signals.Signals(self.signal).name
        except ValueError:
            name = str(self.signal)
        return f"its process was ended by signal {name} before it returned"


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The function was never called: the item cannot be sent, or no process would start.

    Parameters
    ----------
    cause
        Why.
    unsendable
        Whether it was the item.
    refused
        Whether the target itself refused to be made ready: no other process will do.
    """

    cause: str
    unsendable: bool = False
    refused: bool = False

    def __str__(self) -> str:
        return f"never started: {self.cause}"


Failure: TypeAlias = Raised | Cut | Died | NotStarted


class Outcome(NamedTuple):
    """What came of one call.

    Parameters
    ----------
    value
        What the function returned; it counts only where `failure` is `None` (a function may return
        `None`).
    failure
        How it ended otherwise.
    queued_s
        Seconds its message waited for a process, a replacement's start included. Waiting behind
        earlier items of the same message is not in it.
    service_s
        Seconds from the item's start to its end.
    cpu_s
        CPU seconds of the process meanwhile. Where the process died these include its reaped
        children; `None` where nobody could measure.
    began_s
        When the item started, by the parent's clock.
    """

    value: object = None
    failure: Failure | None = None
    queued_s: Seconds | None = None
    service_s: Seconds | None = None
    cpu_s: Seconds | None = None
    began_s: Seconds | None = None

    @property
    def clocks(self) -> Clocks:
        """The same clocks as the rest of the library writes them down."""
        return Clocks(
            queued_s=self.queued_s,
            service_s=self.service_s,
            cpu_s=self.cpu_s,
            censored=isinstance(self.failure, Cut),
            began_s=self.began_s,
        )
