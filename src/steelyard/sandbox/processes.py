"""What /proc says of processes: who descends from whom, what they used, whether any of them could run.

Used where no cgroup counts, and for the one limit that no cgroup has: a candidate that is *idle*, whose
tasks all sleep, that uses no CPU and does no I/O of its own.

CPU time is what the kernel has booked on living processes and on the dead that they waited for; a
descendant that was killed and never waited for is lost (a cgroup would have counted it). Processes that
others may not look into say nothing of their I/O: `None`, not 0.

Folders and cgroups carry their owner's name, so that those of a dead owner can be told from those of a
living one: process namespace, process, start in ticks since boot. An owner in another process namespace
cannot be seen and is never called dead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Seconds

_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_OWNED: Final = re.compile(r"steelyard-([0-9]+)-([0-9]+)-([0-9]+)-.+")
_IDLE_CPU_SHARE: Final = 0.005
"""Of one core: 5 ms in a second. A loop of short sleeps stays below; nothing that computes does."""


class State(NamedTuple):
    """What a set of processes is doing, and has done.

    Parameters
    ----------
    tasks
        Threads of all of them; zombies are none.
    runnable
        Threads that run, could run, or wait for a disk.
    cpu_s
        Seconds on a CPU, of the living threads and of dead processes that were waited for.
    run_delay_s
        Seconds in which living threads could run and did not; `None` where the kernel does not say.
    turns
        How often living threads were given a CPU; `None` where the kernel does not say.
    io_bytes
        What they have read and written, files and pipes; `None` where that is not to be read.
    """

    tasks: int
    runnable: int
    cpu_s: Seconds
    run_delay_s: Seconds | None
    turns: int | None
    io_bytes: int | None


def state(pids: Iterable[int]) -> State:
    """Look at processes and all their threads; one that has ended meanwhile counts no more."""
    tasks = runnable = 0
    cpu_s = 0.0
    delays: list[tuple[float, int] | None] = []
    moved: list[int | None] = []
    for pid in pids:
        folder = f"/proc/{pid}"
        stat = _stat(folder)
        if stat is None:
            continue
        cpu_s += sum(map(int, stat[11:15])) * _TICK_S
        if stat[0] in "ZX":
            continue
        moved.append(_moved(folder))
        for thread in _threads(folder):
            seen = _stat(thread)
            if seen is not None and seen[0] not in "ZX":
                tasks += 1
                runnable += seen[0] in "RD"
                delays.append(_scheduled(thread))
    known = [one for one in delays if one is not None]
    return State(
        tasks,
        runnable,
        cpu_s,
        sum(delay for delay, _ in known) if len(known) == len(delays) else None,
        sum(turns for _, turns in known) if len(known) == len(delays) else None,
        None if None in moved else sum(filter(None, moved)),
    )


def idle(before: State, after: State, wall_s: Seconds) -> bool:
    """Whether nothing went on between two looks: nothing could run, no CPU was used, nothing was moved.

    Examples
    --------
    >>> asleep = State(tasks=1, runnable=0, cpu_s=0.2, run_delay_s=0.0, turns=9, io_bytes=100)
    >>> idle(asleep, asleep, 1.0)
    True
    >>> idle(asleep, asleep._replace(io_bytes=164), 1.0)
    False
    >>> idle(asleep, asleep._replace(runnable=1), 1.0)
    False
    """
    return (
        before.runnable == 0
        and after.runnable == 0
        and after.cpu_s - before.cpu_s <= _IDLE_CPU_SHARE * wall_s
        and after.io_bytes == before.io_bytes
    )


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, as far as their chain of parents is unbroken."""
    found = [pid]
    if Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        for one in found:
            for thread in _threads(f"/proc/{one}"):
                found += map(int, _read(f"{thread}/children").split())
        return found
    children = _children()
    for one in found:
        found += children.get(one, ())
    return found


def tree_cpu(pid: int) -> Seconds:
    """CPU seconds of a process and all its descendants."""
    stats = (_stat(f"/proc/{one}") for one in tree(pid))
    return sum(sum(map(int, stat[11:15])) * _TICK_S for stat in stats if stat is not None)


def tree_state(pid: int) -> State:
    """`state` of a process and all its descendants."""
    return state(tree(pid))


def run_delay(pid: int) -> Seconds | None:
    """Seconds in which a process's threads could run and did not: evidence, never an excuse."""
    return state([pid]).run_delay_s


# --- owners


class Owner(NamedTuple):
    """The process that made a folder or a cgroup.

    Parameters
    ----------
    namespace
        The number of its process namespace.
    pid
        Its number there.
    start
        Clock ticks from the machine's start to its own: numbers of processes come again.
    """

    namespace: int
    pid: int
    start: int

    def named(self, which: object) -> str:
        """Name something that it makes: `steelyard-NAMESPACE-PID-START-WHICH`."""
        return f"steelyard-{self.namespace}-{self.pid}-{self.start}-{which}"

    def is_dead(self) -> bool:
        """Whether it has certainly ended: not if it belongs to another process namespace."""
        if self.namespace != _namespace():
            return False
        stat = _stat(f"/proc/{self.pid}")
        if stat is not None:
            return stat[0] in "ZX" or int(stat[19]) != self.start
        try:
            os.kill(self.pid, 0)  # a /proc may hide the processes of others (hidepid)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False


def ourselves() -> Owner:
    """Return this process as an owner."""
    stat = _stat("/proc/self")
    return Owner(_namespace(), os.getpid(), int(stat[19]) if stat else 0)


def owner(name: str) -> Owner | None:
    """Return who made what is called so; `None` if it is no name of ours.

    Examples
    --------
    >>> owner("steelyard-4026531836-812-77120-slot3")
    Owner(namespace=4026531836, pid=812, start=77120)
    >>> owner("steelyard-host") is None
    True
    """
    found = _OWNED.fullmatch(name)
    return Owner(*map(int, found.groups())) if found else None


@cache
def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


# --- reading /proc


def _read(path: str) -> str:
    """Return a file's text; empty if the process has ended, or is none of our business."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - a hundred in a look
            return file.read()
    except OSError:
        return ""


def _stat(folder: str) -> list[str] | None:
    """Fields of `stat` from the third, the state, on: a process may call itself `) R 1`."""
    return _read(f"{folder}/stat").rpartition(") ")[2].split() or None


def _threads(folder: str) -> list[str]:
    with suppress(OSError):
        return [f"{folder}/task/{name}" for name in os.listdir(f"{folder}/task")]  # noqa: PTH208 - names only
    return []


def _scheduled(thread: str) -> tuple[float, int] | None:
    """Run delay and turns of a thread."""
    fields = _read(f"{thread}/schedstat").split()
    return (int(fields[1]) / 1e9, int(fields[2])) if len(fields) == 3 else None


def _moved(folder: str) -> int | None:
    """Bytes that a process has read and written."""
    counts = dict(line.split(": ") for line in _read(f"{folder}/io").splitlines())
    return int(counts["rchar"]) + int(counts["wchar"]) if "wchar" in counts else None


def _children() -> dict[int, list[int]]:
    """Who descends from whom, of all processes."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only
        stat = _stat(f"/proc/{name}") if name.isdigit() else None
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(int(name))
    return children


def killable(pids: Iterable[int]) -> list[int]:
    """Of processes in a cgroup, those that we can name and are not ourselves; 0 is in another namespace."""
    return [pid for pid in pids if pid > 0 and pid != os.getpid()]


def numbers(*texts: str) -> list[int]:
    """Return numbers that stand one a line, in several files, each once."""
    return sorted(set(map(int, chain.from_iterable(text.split() for text in texts))))
