"""Bubblewrap: namespaces of an ordinary user around each slot, and again around each candidate.

Covers: the file system (the system's and Python's folders read-only, one private folder in memory), the
network (there is none), other processes, users and capabilities, System V and POSIX objects, the host's
environment, CPU, memory, processes, files and output. Works as root (who becomes a user of no name first)
and as an ordinary user, where the kernel allows user namespaces.

Does not cover: faults of the kernel, which all candidates share with the host; side channels; the time of
day. Where no cgroup can be written, memory is limited per process and not for all of a candidate's
processes together; the facts of `attest` say so.
"""

from __future__ import annotations

from functools import partial

from steelyard.clock import Clock, SystemClock
from steelyard.sandbox.house import House
from steelyard.sandbox.warm import Warm


class Bubblewrap(Warm):
    """The boundary `bubblewrap`.

    Parameters
    ----------
    slots
        How many slots there may be; eight for each core if not given.
    preload
        Modules that slots import before any candidate comes, beside the usual ones: what is not imported
        there costs a candidate its own CPU seconds. NumPy need not be named.
    cgroup
        Where cgroups are made, if not where this process is.
    clock
        Time.

    Raises
    ------
    RefusedError
        When it is used: if the boundary does not hold on this machine.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        preload: tuple[str, ...] = (),
        cgroup: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(
            "bubblewrap", partial(House, cgroup, clock), preload=preload, slots=slots, clock=clock
        )
