"""What /proc says of processes: who descends from whom, what they used, whether any of them could run.

Used where no cgroup counts, and for the one limit that no cgroup has: a candidate that is *idle*, whose
tasks all sleep, that uses no CPU and does no I/O of its own.

The kernel books CPU time on living processes, and that of the dead on whoever waited for them. A descendant
that was killed and never waited for takes its own along, so `Times` remembers what was seen of it last; what
it used after that look is lost (a cgroup would have counted it). Processes that others may not look into say
nothing of their I/O: `None`, not 0.

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


class State(NamedTuple):
    """What a set of processes is doing, and has done.

    Parameters
    ----------
    tasks
        Threads of all of them; zombies are none.
    runnable
        Threads that run, could run, or wait for a disk.
    run_delay_s
        Seconds in which living threads could run and did not; `None` where the kernel does not say.
    turns
        How often living threads were given a CPU; `None` where the kernel does not say.
    io_bytes
        What they have read and written, files and pipes; `None` where that is not to be read.
    """

    tasks: int
    runnable: int
    run_delay_s: Seconds | None
    turns: int | None
    io_bytes: int | None

    def active_since(self, last: State | None) -> bool:
        """Whether a task could run, was given a CPU, or moved a byte since the last look.

        Where there is no task nobody sleeps: they have ended and that was not told yet, or cannot be seen.
        """
        if last is None or self.runnable or not self.tasks:
            return True
        return (last.turns, last.io_bytes, last.tasks) != (self.turns, self.io_bytes, self.tasks)


def state(pids: Iterable[int]) -> State:
    """Look at processes and all their threads; one that has ended meanwhile counts no more."""
    tasks = runnable = 0
    delays: list[tuple[float, int] | None] = []
    moved: list[int | None] = []
    for pid in pids:
        folder = f"/proc/{pid}"
        before = tasks
        for thread in _threads(folder):  # the first may have ended, and others go on
            seen = _stat(thread)
            if seen is not None and seen[0] not in "ZX":
                tasks += 1
                runnable += seen[0] in "RD"
                delays.append(_scheduled(thread))
        if tasks > before:
            moved.append(_moved(folder))
    known = [one for one in delays if one is not None]
    return State(
        tasks,
        runnable,
        sum(delay for delay, _ in known) if len(known) == len(delays) else None,
        sum(turns for _, turns in known) if len(known) == len(delays) else None,
        None if None in moved else sum(filter(None, moved)),
    )


class Times:
    """CPU seconds of processes that come and go, the killed and forgotten with them.

    Examples
    --------
    >>> Times().cpu_s([os.getpid()]) > 0.0
    True
    """

    def __init__(self) -> None:
        self._own: dict[tuple[int, int], int] = {}  # ticks of the living, by number and start
        self._gone = 0
        self._most = 0

    def cpu_s(self, pids: Iterable[int]) -> Seconds:
        """CPU seconds of these processes, parents first, and of all that were named here before.

        Either what the living used and inherited from whom they waited for, or what everybody used who was
        ever seen: the larger, for the sum would count those twice who were seen and waited for.
        """
        living: dict[tuple[int, int], int] = {}
        inherited, named = 0, set(pids := list(pids))
        for pid in dict.fromkeys([*pids, *(pid for pid, _ in self._own)]):  # a tree may miss a moving child
            stat = _stat(f"/proc/{pid}")
            if stat is not None and (pid in named or (pid, int(stat[19])) in self._own):
                user, system, *waited = map(int, stat[11:15])
                living[pid, int(stat[19])] = user + system
                inherited += sum(waited)
        self._gone += sum(ticks for key, ticks in self._own.items() if key not in living)
        self._own = living
        self._most = max(self._most, sum(living.values()) + max(inherited, self._gone))
        return self._most * _TICK_S


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


def namespace(kind: str) -> str | None:
    """Which namespace of this kind we are in; `None` where the kernel does not say."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 - as it is written
    except OSError:
        return None


def every() -> list[int]:
    """Return all processes that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only


def used_s(pids: Iterable[int]) -> Seconds:
    """CPU seconds of processes and of whom they have waited for, as far as they live."""
    stats = (_stat(f"/proc/{pid}") for pid in pids)
    return sum(sum(map(int, stat[11:15])) for stat in stats if stat is not None) * _TICK_S


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
    read = counts.get("rchar", counts.get("char"))  # gVisor of old loses a letter
    return int(read) + int(counts["wchar"]) if read is not None and "wchar" in counts else None


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
