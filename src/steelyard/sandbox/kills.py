"""Whom the kernel ended or refused in a cgroup: by the cgroup's own limits, or for somebody else's want.

The kernel also counts on a cgroup what a limit above it, or the want of the whole machine, ended or refused
there. Only where its own limit was reached is it the doing of what runs in it; everything else is foreign.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from steelyard.sandbox.cgroups import Cgroup


class Counted(NamedTuple):
    """Since the count began.

    Parameters
    ----------
    memory, processes
        Processes that were ended for want of memory, and that were refused, by limits of its own.
    foreign
        Both, by others'.
    """

    memory: int
    processes: int
    foreign: int


class Kills:
    """Counts from now on."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._kills = cgroup.oom_kills()
        self._forks = cgroup.refused_forks()
        self._refusals = cgroup.memory_refusals()

    def counted(self) -> Counted:
        """What was counted."""
        kills = max(0, self._cgroup.oom_kills() - self._kills)
        forks = max(0, self._cgroup.refused_forks() - self._forks)
        memory = kills if kills and self._cgroup.memory_refusals() > self._refusals else 0
        processes = forks if forks and self._cgroup.was_full() else 0
        return Counted(memory, processes, kills - memory + forks - processes)

    def evidence(self) -> dict[str, Any]:
        """The same, as it stands with an attempt."""
        counted = self.counted()
        told = {"memory_kills": counted.memory, "refused_processes": counted.processes}
        return told | ({"foreign": counted.foreign} if counted.foreign else {})
