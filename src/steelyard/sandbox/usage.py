"""What the guest of a slot uses: from the slot's cgroup, or from /proc where there is none.

A slot runs one candidate at a time, so what its counters gained since the candidate began is the
candidate's. The slot's own processes sleep meanwhile.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

from steelyard.clock import Clock, Seconds
from steelyard.sandbox import cgroups, processes
from steelyard.sandbox.sentinel import Sentinel, starved

PROBATION_S: Final = 2.0
"""How long a guest that ran into the wall is looked at, to learn whether it was starved."""


class SlotUsage:
    """What one guest uses, as `steelyard.sandbox.watch.Usage` wants it.

    Parameters
    ----------
    pid, own
        The first process of its slot, and all that belong to the slot itself.
    cgroup
        The slot's, if it has one.
    cores
        How many cores it may count on.
    clock
        Time.
    """

    def __init__(
        self, pid: int, own: frozenset[int], cgroup: cgroups.Slot | None, cores: float, clock: Clock
    ) -> None:
        self._pid = pid
        self._own = own
        self._cgroup = cgroup
        self._cores = cores
        self._clock = clock
        self._used_s: Seconds = 0.0
        self._last: processes.State | None = None
        self._at_the_wall: tuple[Seconds, Seconds, Sentinel] | None = None
        if cgroup is not None:
            self._cpu_s = cgroup.cpu_s()
            self._kills = cgroup.oom_kills()
            self._forks = cgroup.refused_forks()
            self._reset = cgroup.reset_peak()

    def cpu_s(self) -> Seconds:
        """CPU seconds since the guest began."""
        if self._cgroup is None:
            return self._state().cpu_s
        with suppress(OSError):  # its slot is gone, and the cgroup with it: what was seen last stands
            self._used_s = self._cgroup.cpu_s() - self._cpu_s
        return self._used_s

    def _state(self) -> processes.State:
        if self._cgroup is None:
            return processes.state(pid for pid in processes.tree(self._pid) if pid not in self._own)
        return self._cgroup.state(self._own)

    def active(self) -> bool:
        """Whether a task of it could run, was given a CPU, or moved a byte, since it was asked last."""
        last, self._last = self._last, self._state()
        if last is None or self._last.runnable:
            return True
        return (last.turns, last.io_bytes, last.tasks) != (
            self._last.turns,
            self._last.io_bytes,
            self._last.tasks,
        )

    def runnable(self) -> bool:
        """Whether a task of it could run when `active` was asked last."""
        return self._last is not None and self._last.runnable > 0

    def starved(self) -> bool:
        """Whether the machine kept it from its share of the cores; it is looked at for a while first."""
        if self._cgroup is None:
            return False
        now, cpu_s = self._clock.now(), self.cpu_s()
        if self._at_the_wall is None:
            self._at_the_wall = (now, cpu_s, Sentinel().__enter__())
        since, before_s, sentinel = self._at_the_wall
        wall_s = now - since
        if wall_s < PROBATION_S:
            return True
        state = self._state()
        return starved(
            self._cores,
            cpu_s - before_s,
            wall_s,
            state.runnable,
            sentinel.delay_s(),
            cores=os.cpu_count(),
        )

    def memory_kills(self) -> int:
        """How many of its processes the kernel ended for want of memory."""
        return 0 if self._cgroup is None else max(0, self._cgroup.oom_kills() - self._kills)

    def peak_bytes(self) -> int | None:
        """The most memory that its slot held, where that is counted from its beginning."""
        return self._cgroup.memory_peak() if self._cgroup is not None and self._reset else None

    def counted(self) -> dict[str, Any]:
        """What else was counted, as evidence."""
        if self._cgroup is None:
            return {}
        forks = max(0, self._cgroup.refused_forks() - self._forks)
        return {"memory_kills": self.memory_kills(), "refused_processes": forks}

    def close(self) -> None:
        """Look no longer."""
        if self._at_the_wall is not None:
            self._at_the_wall[2].__exit__()
            self._at_the_wall = None
