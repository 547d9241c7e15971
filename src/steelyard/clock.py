"""The only door to time.

Everything that needs to know how long something took, or when it happened, is handed a `Clock`.
Durations come from a monotonic clock; `unix` is for records that people read. Tests hand in
`steelyard.testing.FakeClock` and tick by hand.

`Clocks` is what a stopwatch found out about one attempt. `None` means *not measured*, never zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Seconds: TypeAlias = float


def in_words(seconds: Seconds) -> str:
    """A duration for people, in the unit that suits it.

    Examples
    --------
    >>> in_words(45_070.0), in_words(5.6789), in_words(0.0344484), in_words(4.3e-6), in_words(0)
    ('45,070 s', '5.68 s', '34.4 ms', '4.3 µs', '0 s')
    """
    size = abs(seconds)
    if size >= 1_000:
        return f"{seconds:,.0f} s"
    times, unit = (1.0, "s") if size >= 0.1 or not size else (1e3, "ms") if size >= 1e-4 else (1e6, "µs")
    return f"{seconds * times:.3g} {unit}"


class Timer(Protocol):
    """A call that has been asked for and can still be called off."""

    def cancel(self) -> None:
        """Call it off; a second time changes nothing."""


class Clock(Protocol):
    """What the library may ask of time."""

    def now(self) -> Seconds:
        """Monotonic seconds since an arbitrary start."""

    def unix(self) -> Seconds:
        """Seconds since 1970-01-01 UTC, for records."""

    def call_later(self, delay_s: Seconds, callback: Callable[[], object]) -> Timer:
        """Call `callback` in the running event loop after `delay_s`."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> Seconds:
        """Monotonic seconds since an arbitrary start."""
        return time.monotonic()

    def unix(self) -> Seconds:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def call_later(self, delay_s: Seconds, callback: Callable[[], object]) -> Timer:
        """Call `callback` in the running event loop after `delay_s`."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of one attempt, in seconds; `None` where nobody measured.

    Parameters
    ----------
    queued_s, service_s
        The scheduler's: ready to started, started to ended. `service_s` is what pricing reads.
    spawn_s, wall_s, reap_s
        A boundary's: asked to first instruction, first instruction to end, kill to gone.
    cpu_s, run_delay_s, blocked_s
        A boundary's or worker's: user plus system time of all descendants, runnable but not
        running, and the rest.
    censored
        Whether the attempt was cut, by whoever cut it. Independent of the verdict: a cut attempt
        is a right-censored duration whatever was said about the rollout.
    began_s
        When the service began, on the machine's monotonic clock: comparable between processes of one
        machine until it is started again.
    """

    queued_s: Seconds | None = None
    service_s: Seconds | None = None
    spawn_s: Seconds | None = None
    wall_s: Seconds | None = None
    reap_s: Seconds | None = None
    cpu_s: Seconds | None = None
    run_delay_s: Seconds | None = None
    blocked_s: Seconds | None = None
    censored: bool = False
    began_s: Seconds | None = None


class Span(NamedTuple):
    """What one lane of a training loop did for a while.

    Parameters
    ----------
    step
        The training step.
    lane
        Who: a process, a rank, a thread.
    phase
        What: `step` for the whole of it; `generation`, `reward`, `training` or any other word; `call` for one
        call of a reward.
    start, end
        Monotonic seconds, as `Clocks.began_s`.
    group, member
        Of a call: which rollout it judged.
    cut_by
        Of a call: what cut it (`timeout`), if anything did.
    value
        Of a call: the reward; `None` if there is none.
    """

    step: int
    lane: str
    phase: str
    start: Seconds
    end: Seconds
    group: int | None = None
    member: int | None = None
    cut_by: str | None = None
    value: float | None = None
