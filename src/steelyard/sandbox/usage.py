"""What the guest of a slot uses: from the slot's cgroup, or from /proc where there is none.

A slot runs one candidate at a time, so what its counters gained since the candidate began is the
candidate's. The slot's own processes sleep meanwhile. But the kernel also counts there what a limit above the
slot's, or the want of the whole machine, ended or refused: only where the slot's own limit was reached is it
the candidate's, everything else is `foreign`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

from steelyard.clock import Clock, Seconds
from steelyard.sandbox import cgroups, kills, processes
from steelyard.sandbox.sentinel import Sentinel, starved

LEAST_S: Final = 0.5
"""A shorter look than that tells nothing: a guest whose wall came unannounced waits for it."""


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
    machine_cores
        How many cores there are for all slots; those of this process, if not given.
    """

    def __init__(
        self,
        pid: int,
        own: frozenset[int],
        cgroup: cgroups.Cgroup | None,
        cores: float,
        clock: Clock,
        *,
        machine_cores: int | None = None,
    ) -> None:
        self._pid = pid
        self._own = own
        self._cgroup = cgroup
        self._cores = cores
        self._machine_cores = machine_cores if machine_cores is not None else len(os.sched_getaffinity(0))
        self._clock = clock
        self._used_s: Seconds = 0.0
        self._last: processes.State | None = None
        self._run_delay_s: Seconds | None = None
        self._times = processes.Times()
        self._probation: tuple[Seconds, Seconds, Sentinel] | None = None
        if cgroup is not None:
            self._cpu_s = cgroup.cpu_s()
            self._reset = cgroup.reset_peak()
            self._kills = kills.Kills(cgroup)

    def cpu_s(self) -> Seconds:
        """CPU seconds since the guest began."""
        if self._cgroup is None:
            return self._times.cpu_s(self._tree())
        with suppress(OSError):  # its slot is gone, and the cgroup with it: what was seen last stands
            self._used_s = self._cgroup.cpu_s() - self._cpu_s
        return self._used_s

    def _tree(self) -> list[int]:
        return [pid for pid in processes.tree(self._pid) if pid not in self._own]

    def _look(self) -> processes.State:
        state = processes.state(self._tree()) if self._cgroup is None else self._cgroup.state(self._own)
        if state.tasks:
            self._run_delay_s = state.run_delay_s
        return state

    def active(self) -> bool:
        """Whether a task of it could run, was given a CPU, or moved a byte, since it was asked last."""
        last, self._last = self._last, self._look()
        return self._last.active_since(last)

    def runnable(self) -> bool:
        """Whether a task of it could run when `active` was asked last."""
        return self._last is not None and self._last.runnable > 0

    def run_delay_s(self) -> Seconds | None:
        """Seconds in which its tasks could run and did not, as last seen: evidence, and never an excuse."""
        return self._run_delay_s

    def near_the_wall(self) -> None:
        """Begin to look whether the machine keeps it from the cores: `watch.PROBATION_S` before the wall."""
        if self._cgroup is not None and self._probation is None:
            self._probation = (self._clock.now(), self.cpu_s(), Sentinel().__enter__())

    def starved(self) -> bool:
        """Whether the machine kept it from its share of the cores, since it came near the wall."""
        self.near_the_wall()
        if self._probation is None:
            return False
        since, before_s, sentinel = self._probation
        wall_s = self._clock.now() - since
        if wall_s < LEAST_S:
            return True
        return starved(
            self._cores,
            self.cpu_s() - before_s,
            wall_s,
            self._look().runnable,
            sentinel.delay_s(),
            cores=self._machine_cores,
        )

    def memory_kills(self) -> int:
        """How many of its processes the kernel ended since its memory limit was reached."""
        return 0 if self._cgroup is None else self._kills.counted().memory

    def peak_bytes(self) -> int | None:
        """The most memory that its slot held, where that is counted from its beginning."""
        return self._cgroup.memory_peak() if self._cgroup is not None and self._reset else None

    def counted(self) -> dict[str, Any]:
        """What else was counted, as evidence; `foreign` is what no limit of its own brought about."""
        delay_s = self._run_delay_s
        counted: dict[str, Any] = {} if delay_s is None else {"run_delay_s": delay_s}
        if self._cgroup is not None:
            counted |= self._kills.evidence()
        return counted

    def close(self) -> None:
        """Look no longer."""
        if self._probation is not None:
            self._probation[2].__exit__()
            self._probation = None
