"""The watchdog: which guest has used up a limit of its own.

CPU time is the verdict, wall time is loose. A guest is ended when all its processes together used their CPU
seconds, when none of them was runnable, made progress or did I/O for the idle time, when it wrote too much,
or when it ran into the wall. While its judge computes, neither idle time nor the wall goes on: what a suite
takes is no doing of the candidate's. Whether the wall was the machine's fault is asked of a sentinel that
stands outside the guest's cgroup on the same cores: a starved guest is given more of it.

Most guests are gone before the first look.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from steelyard.clock import Clock, Seconds, Timer
from steelyard.execution import Limits
from steelyard.sandbox.slot import Guest

TICK_S: Final = 0.02
"""Between two looks: how far a limit can be overshot, times the cores."""

SLOW_S: Final = 0.1
"""From then on a guest does not count among those for whom there are cores."""

SETUP_S: Final = 20.0
"""A guest that has not begun by then never will."""

KILLED_S: Final = 1.0
"""How long a killed guest may take to be gone before its whole slot is ended."""

PROBATION_S: Final = 2.0
"""How long before the wall a guest is looked at, to learn whether it was starved."""

STARVED_TIMES: Final = 4
"""How often over the wall limit a starved guest may go."""

PROGRESS_S: Final = 2e-4
"""CPU seconds between two looks that are progress: more than a context switch or two."""

DROWSY_TIMES: Final = 5
"""How many idle times a guest may spend with next to no CPU, waking up now and then."""

DROWSY_CPU_SHARE: Final = 0.02
"""Of one core, what is next to none: loops of short sleeps stay below, nothing that computes does."""


class Usage(Protocol):
    """What a guest's processes use, all together."""

    def cpu_s(self) -> Seconds:
        """CPU seconds since the guest began."""

    def active(self) -> bool:
        """Whether a task of it is runnable now, or did I/O since it was asked last."""

    def runnable(self) -> bool:
        """Whether a task of it could run when `active` was asked last."""

    def near_the_wall(self) -> None:
        """Begin to look whether the machine keeps it from the cores."""

    def starved(self) -> bool:
        """Whether the machine, and not the guest, keeps it from its share of the cores."""

    def memory_kills(self) -> int:
        """How many of its processes the kernel ended for want of memory."""

    def peak_bytes(self) -> int | None:
        """The most memory that it held, where something counts that."""

    def counted(self) -> dict[str, Any]:
        """What else was counted, as evidence."""

    def close(self) -> None:
        """Count no longer."""


class Watched:
    """One guest under watch.

    Parameters
    ----------
    guest, limits, usage
        Who, what it may use, and what it uses.
    waiting
        Whether it waits for us (a judge that computes), so that it is not idle and its wall stands still.
    """

    def __init__(
        self, guest: Guest, limits: Limits, usage: Usage, waiting: Callable[[], bool] = lambda: False
    ) -> None:
        self.guest = guest
        self.limits = limits
        self.usage = usage
        self.waiting = waiting
        self.cpu_s: Seconds = 0.0
        self._looked_at: Seconds | None = None
        self._waited_s: Seconds = 0.0
        self._active_at: Seconds = 0.0
        self._awake: tuple[Seconds, Seconds] = (0.0, 0.0)  # a window's beginning, and its CPU time then
        self._dozing = 0  # in that window: looks at which it slept, less those at which it could have run

    def look(self, now: Seconds) -> str | None:
        """Name the limit that is used up, if one is."""
        began = self.guest.started
        if began is None:
            return "setup" if now - self.guest.asked > SETUP_S else None
        limits, before = self.limits, self.cpu_s
        self.cpu_s = self.usage.cpu_s()
        if self.cpu_s >= limits.cpu_s:
            return "cpu"
        if sum(os.fstat(output).st_size for output in self.guest.outputs) > limits.output_bytes:
            return "output"
        waits, looked_at, self._looked_at = self.waiting(), self._looked_at, now
        if waits:
            self._waited_s += now - (began if looked_at is None else looked_at)
        if self._sleeps(now, looked_at, before, waits=waits):
            return "idle"
        wall_s = now - began - self._waited_s
        if wall_s < limits.wall_s:
            if wall_s >= limits.wall_s - PROBATION_S:
                self.usage.near_the_wall()
            return None
        starved = wall_s < limits.wall_s * STARVED_TIMES and self.usage.starved()
        return None if starved else "wall"

    def _sleeps(self, now: Seconds, looked_at: Seconds | None, before_s: Seconds, *, waits: bool) -> bool:
        """Whether it did nothing for the idle time, or next to nothing for several.

        Looks that are an idle time apart say that we were not there, and nothing of the guest; one that could
        run whenever it was looked at has little CPU because others have it.
        """
        idle_s = self.limits.idle_s
        if looked_at is None or now - looked_at > idle_s or waits:
            self._active_at, self._awake, self._dozing = now, (now, self.cpu_s), 0
            return False
        progress = self.cpu_s - before_s > PROGRESS_S
        if progress or self.usage.active():
            self._active_at = now
        self._dozing += -1 if progress or self.usage.runnable() else 1
        since, cpu_s = self._awake
        if now - since >= DROWSY_TIMES * idle_s:
            if self.cpu_s - cpu_s <= DROWSY_CPU_SHARE * (now - since) and self._dozing > 0:
                return True
            self._awake, self._dozing = (now, self.cpu_s), 0
        return now - self._active_at >= idle_s


class Watchdog:
    """Looks at every guest, again and again, while there are any.

    Parameters
    ----------
    clock
        Time.
    slow
        Told after each look how many guests are slow.
    """

    def __init__(self, clock: Clock, slow: Callable[[int], None]) -> None:
        self._clock = clock
        self._slow = slow
        self._watched: dict[Guest, Watched] = {}
        self._timer: Timer | None = None

    def add(self, watched: Watched) -> None:
        """Watch a guest until it is gone."""
        self._watched[watched.guest] = watched
        if self._timer is None:
            self._timer = self._clock.call_later(TICK_S, self._look)

    def remove(self, guest: Guest) -> None:
        """Watch it no longer."""
        self._watched.pop(guest, None)

    def close(self) -> None:
        """Watch nobody any more."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now, slow = self._clock.now(), 0
        try:
            for guest, watched in list(self._watched.items()):
                try:
                    slow += self._looked(guest, watched, now)
                except Exception:  # noqa: BLE001 - whatever it is, this one can be held to no limit any more
                    with suppress(Exception):  # and the others still can
                        guest.slot.close()
            self._slow(slow)
        finally:
            self._timer = self._clock.call_later(TICK_S, self._look) if self._watched else None

    def _looked(self, guest: Guest, watched: Watched, now: Seconds) -> bool:
        """Look at one; whether it is slow."""
        guest.listen()
        if guest.killed is not None:
            if now - guest.killed > KILLED_S:
                guest.slot.close()
            return False
        if now - guest.asked <= SLOW_S:
            return False
        limit = watched.look(now)
        if limit == "setup":
            guest.failed = f"it was not confined after {SETUP_S:g} s"
        if limit is not None:
            guest.kill(limit)
        return True
