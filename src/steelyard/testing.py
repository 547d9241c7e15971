"""Doubles for tests of your own code: a clock that ticks when you say so.

Examples
--------
>>> clock = FakeClock()
>>> clock.tick(2.5)
>>> clock.now()
2.5
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from steelyard.clock import Seconds


class FakeTimer:
    """A call that `FakeClock.tick` makes when its time has come."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Call it off."""
        self.callback = None


class FakeClock:
    """A `steelyard.clock.Clock` that stands still until it is ticked."""

    def __init__(self, *, unix: Seconds = 0.0) -> None:
        self._now = 0.0
        self._unix = unix
        self._timers: list[tuple[Seconds, int, FakeTimer]] = []
        self._order = count()

    def now(self) -> Seconds:
        """Seconds ticked so far."""
        return self._now

    def unix(self) -> Seconds:
        """The same, since the `unix` it was made with."""
        return self._unix + self._now

    def call_later(self, delay_s: Seconds, callback: Callable[[], object]) -> FakeTimer:
        """Call `callback` when `delay_s` have been ticked."""
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (self._now + delay_s, next(self._order), timer))
        return timer

    def tick(self, seconds: Seconds) -> None:
        """Let time pass; calls whose time has come are made, the earliest first."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self._now = until
