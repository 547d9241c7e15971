"""Cgroups: one for each slot, so that memory, processes and CPU time are counted and cut by the kernel.

Per-process limits multiply with every fork and miss shared memory and memfds; `wait4` misses descendants
that were killed. A cgroup counts everything that ever ran in it, at no cost per candidate.

`detect` looks for a place in which this process may make cgroups: version 2 with the controllers memory and
pids, in a cgroup that was delegated to us; version 1 with memory, pids and cpuacct. It is never guessed: a
cgroup is made and removed. Where there is none, `Places.reason` and `Places.remedy` say so in words.

Version 2 allows no cgroup both processes and controlled children. So whoever is in our own cgroup, this
process too, moves into a leaf of it, `steelyard-host`, and only if the cgroup was handed to us: it is the
root of a container's view, a systemd unit with `Delegate=yes`, our user's, or a setting named it. Whoever
only wants to know asks `detect(dry=True)`, which changes nothing and guesses from rights.

The kernel also counts on a cgroup what a limit above it, or the want of the whole machine, ended in it. Only
together with a limit of its own that was reached is that the candidate's doing.

Not covered: CPU quotas, disk bandwidth, and what a kernel does not charge.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.sandbox.processes import State, killable, numbers, ourselves, state

LEAF: Final = "steelyard-host"
"""Where processes go that may not stay beside controlled children; no sweep ever empties it."""

_NEEDED: Final = ("memory", "pids")
_NEEDED_V1: Final = ("memory", "pids", "cpuacct")
_LARGEST_BYTES: Final = 32 << 10  # the most that a limit refuses at once before the kernel ends somebody
_DELEGATE: Final = (
    "start it in a cgroup of its own: systemd-run {user}--scope -p Delegate=yes steelyard ...; in a "
    "container mount /sys/fs/cgroup writable (docker run --privileged --cgroupns private)"
)


class Places(NamedTuple):
    """Where cgroups can be made.

    Parameters
    ----------
    mode
        `v2`, `v1` or `none`.
    folders
        The folder in which they are made, by controller; on version 2 one folder, called `unified`.
    reason
        Why there is none.
    remedy
        What mends that.
    would
        What a dry look left undone.
    """

    mode: str
    folders: Mapping[str, Path] = {}
    reason: str = ""
    remedy: str = ""
    would: str = ""


# --- finding a place


def detect(path: str | None = None, *, proc: Path = Path("/proc/self"), dry: bool = False) -> Places:
    """Find where this process may make cgroups, and prepare it; asking again changes nothing.

    Parameters
    ----------
    path
        Where to make them: a folder of version 2, or a path below every hierarchy of version 1.
    proc
        The folder of /proc that says which cgroup is ours.
    dry
        Change nothing, not even for a moment: say what would be done.
    """
    try:
        hierarchies = dict(_hierarchies(proc, path))
    except (OSError, ValueError) as error:
        return Places("none", reason=f"{proc} does not say which cgroup is ours: {error}", remedy=_remedy())
    why: list[str] = []
    if "unified" in hierarchies:
        folder = Path(path) if path is not None else hierarchies["unified"]
        own = folder.parent if folder.name == LEAF else folder
        fault, would = _prepared_v2(own, named=path is not None, dry=dry)
        if not fault:
            return Places("v2", {"unified": own}, would=would)
        why.append(fault)
    if missing := [name for name in _NEEDED_V1 if name not in hierarchies]:
        why.append(f"version 1 lacks {', '.join(missing)}")
    else:
        folders = {name: hierarchies[name] for name in _NEEDED_V1}
        tried = [_tried(folder, dry=dry) for folder in folders.values()]
        if not any(tried):
            return Places("v1", folders)
        why += filter(None, tried)
    return Places("none", reason="; ".join(why), remedy=_remedy())


def _remedy() -> str:
    return _DELEGATE.format(user="" if os.geteuid() == 0 else "--user ")


def _hierarchies(proc: Path, path: str | None) -> Iterator[tuple[str, Path]]:
    """Yield controllers with the folder of our own cgroup, `unified` for version 2."""
    ours: dict[str, str] = {}
    for line in (proc / "cgroup").read_text("utf-8").splitlines():
        _, controllers, where = line.split(":", 2)
        ours |= dict.fromkeys(controllers.split(",") if controllers else ["unified"], where)
    for line in (proc / "mountinfo").read_text("utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ")[:3]
        root, mounted = (_unescaped(field) for field in left.split(" ")[3:5])
        names = {"cgroup2": ["unified"], "cgroup": options.split(",")}.get(kind, [])
        for name in names:
            if name in ours:
                where = ours[name] if path is None or name == "unified" else path
                yield name, Path(mounted) / _below(where, root)


def _unescaped(field: str) -> str:
    return field.replace("\\040", " ").replace("\\134", "\\")


def _below(where: str, root: str) -> str:
    """Our cgroup as seen from a mount, which in a container may begin at that very cgroup."""
    inside = where == root or where.startswith(f"{root.rstrip('/')}/")
    return (where[len(root.rstrip("/")) :] if inside else "").lstrip("/")


def _prepared_v2(own: Path, *, named: bool, dry: bool) -> tuple[str, str]:
    """Give a cgroup's children memory and pids; return what is in the way, and what was not done yet."""
    would = ""
    try:
        there = (own / "cgroup.controllers").read_text("ascii").split()
        if missing := [name for name in _NEEDED if name not in there]:
            return f"version 2: {own} has no controller {', '.join(missing)}", ""
        if not set(_NEEDED) <= set((own / "cgroup.subtree_control").read_text("ascii").split()):
            moves = (own / "cgroup.type").exists()  # the machine's root may have processes and children
            if moves and not (named or _delegated(own)):
                return f"version 2: {own} was not delegated to us", ""
            if dry:
                leaf = f"everybody in it would move into {own / LEAF}, and " if moves else ""
                would = f"{leaf}its children would be given {' and '.join(_NEEDED)}"
            else:
                if moves:
                    _move_aside(own)
                (own / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
    except OSError as error:
        return f"version 2: {error}", ""
    return _tried(own, dry=dry), would


def _delegated(own: Path) -> bool:
    """Whether a cgroup was handed to us to divide."""
    for attribute in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(own, attribute) == b"1":
                return True
    a_containers_root = not (own.parent / "cgroup.procs").exists()
    return a_containers_root or own.stat().st_uid == os.geteuid() != 0


def _move_aside(own: Path) -> None:
    """Move everybody into a leaf; several looks, since processes may fork meanwhile."""
    leaf = own / LEAF
    leaf.mkdir(exist_ok=True)
    for _ in range(5):
        pids = numbers((own / "cgroup.procs").read_text("ascii"))
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(str(pid), encoding="ascii")


def _tried(folder: Path, *, dry: bool) -> str:
    """Make a cgroup and remove it; return what failed, or nothing. Dry, only the rights are looked at."""
    if dry:
        may = os.access(folder, os.W_OK | os.X_OK)
        return "" if may else f"no cgroup can be made in {folder}: it is not ours to write"
    probe = folder / ourselves().named("probe")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup can be made in {folder}: {error.strerror}"
    return ""


class _Files(NamedTuple):
    """Where a slot's numbers stand; what both versions write alike has one reader."""

    folders: tuple[Path, ...]
    procs: Path
    processes: Path  # the limit
    most: Path  # of them at one time, where the kernel says
    forks: Path  # holds `max N`
    memory: Path  # the limit
    swap: Path
    kills: Path  # holds `oom_kill N`
    refusals: Path  # by the memory limit; on version 2 `kills` holds `oom N`
    peak: Path
    cpu: Path
    cpu_field: int
    cpu_unit_s: float
    end: Path | None


def _files(places: Places, name: str) -> _Files:
    if places.mode == "v2":
        own = places.folders["unified"] / name
        events = own / "memory.events"  # a slot has no children, so these are its own
        return _Files(
            folders=(own,),
            procs=own / "cgroup.procs",
            processes=own / "pids.max",
            most=own / "pids.peak",
            forks=own / "pids.events",
            memory=own / "memory.max",
            swap=own / "memory.swap.max",
            kills=events,
            refusals=events,
            peak=own / "memory.peak",
            cpu=own / "cpu.stat",
            cpu_field=1,  # usage_usec N
            cpu_unit_s=1e-6,
            end=own / "cgroup.kill",
        )
    memory, pids, cpuacct = (places.folders[controller] / name for controller in _NEEDED_V1)
    return _Files(
        folders=tuple(dict.fromkeys((memory, pids, cpuacct))),
        procs=pids / "cgroup.procs",
        processes=pids / "pids.max",
        most=pids / "pids.peak",
        forks=pids / "pids.events",
        memory=memory / "memory.limit_in_bytes",
        swap=memory / "memory.memsw.limit_in_bytes",
        kills=memory / "memory.oom_control",
        refusals=memory / "memory.failcnt",
        peak=memory / "memory.max_usage_in_bytes",
        cpu=cpuacct / "cpuacct.usage",
        cpu_field=0,
        cpu_unit_s=1e-9,
        end=None,
    )


class Cgroup:
    """The cgroup in which one slot lives; `make` makes it.

    Every number is since the cgroup was made: whoever wants a candidate's takes the difference.
    """

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._cpu = self._kills = self._forks = self._peak = -1
        try:
            self._cpu = _opened(files.cpu)
            self._kills = _opened(files.kills)
            self._forks = _opened(files.forks)
        except OSError:
            self.close()
            raise
        for mode in (os.O_RDWR, os.O_RDONLY):  # to be reset through the same descriptor, where it can be
            with suppress(OSError):
                self._peak = _opened(files.peak, mode)
                break

    def close(self) -> None:
        """Read no more; what is asked for now is as if nothing had been counted."""
        for descriptor in (self._cpu, self._kills, self._forks, self._peak):
            if descriptor >= 0:
                os.close(descriptor)
        self._cpu = self._kills = self._forks = self._peak = -1

    @property
    def join_paths(self) -> tuple[Path, ...]:
        """Where a process writes 0 to move itself in."""
        return tuple(folder / "cgroup.procs" for folder in self._files.folders)

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """Set what all its processes together may use; what is used already is not taken back.

        Raises
        ------
        OSError
            If the kernel refuses, as when more memory is in use than it could free.
        """
        files = self._files
        files.processes.write_text(str(processes), encoding="ascii")
        if files.end is not None:
            files.memory.write_text(str(memory_bytes), encoding="ascii")
            _write_if_there(files.swap, "0")
            return
        with suppress(OSError):  # both count memory, and memsw may never be the smaller: it is raised first
            _write_if_there(files.swap, str(memory_bytes))
        files.memory.write_text(str(memory_bytes), encoding="ascii")
        _write_if_there(files.swap, str(memory_bytes))

    def cpu_s(self) -> Seconds:
        """CPU seconds, user and system, of all that ever ran in it."""
        fields = os.pread(self._cpu, 128, 0).split()
        return int(fields[self._files.cpu_field]) * self._files.cpu_unit_s

    def memory_peak(self) -> int | None:
        """Most bytes that it held since `reset_peak`; `None` where the kernel does not say."""
        return None if self._peak < 0 else int(os.pread(self._peak, 64, 0))

    def reset_peak(self) -> bool:
        """Count the peak from now on; false where the kernel cannot (version 2 before Linux 6.12)."""
        try:
            os.pwrite(self._peak, b"0", 0)
        except OSError:
            return False
        return True

    def oom_kills(self) -> int:
        """How many of its processes were killed for want of memory: its own, one above it, the machine's."""
        return _field(self._kills, b"oom_kill")

    def memory_refusals(self) -> int:
        """How often its own memory limit was in the way; version 1 may count many as one."""
        files = self._files
        if files.end is not None:
            return _field(self._kills, b"oom")
        # where memory and swap have one limit it is that of both that refuses, and newer kernels count none
        full = (self.memory_peak() or 0) >= _number(files.memory) - _LARGEST_BYTES
        return _number(files.refusals) + full

    def refused_forks(self) -> int:
        """How often it was refused a further process: by its own limit, or one above it."""
        return _field(self._forks, b"max")

    def was_full(self) -> bool:
        """Whether it ever held as many processes as it may; false where the kernel does not say."""
        return 0 < _number(self._files.processes) <= _number(self._files.most)

    def pids(self) -> list[int]:
        """Return its living processes."""
        with suppress(OSError):
            return numbers(self._files.procs.read_text("ascii"))
        return []

    def state(self, without: frozenset[int] = frozenset()) -> State:
        """What its processes are doing, those left aside that belong to the slot itself."""
        return state(pid for pid in self.pids() if pid not in without)

    def kill(self, within_s: Seconds = 0.05) -> None:
        """Kill all that runs in it and let nothing further start: the slot's end."""
        with suppress(OSError):
            self._files.processes.write_text("0", encoding="ascii")
        if self._files.end is not None:
            with suppress(OSError):  # before Linux 5.14 there is none
                self._files.end.write_text("1", encoding="ascii")
                return
        _kill_all(self._files.procs, within_s=within_s)

    def remove(self, within_s: Seconds = 1.0) -> bool:
        """Kill all that runs in it, and remove it; return whether it is gone. A sweep finds what is left."""
        return remove_all((self,), within_s)

    def folders(self) -> tuple[Path, ...]:
        """Return what it consists of: on version 1 one for each controller."""
        return self._files.folders


def visible(root: Path = Path("/sys/fs/cgroup")) -> Cgroup | None:
    """The cgroup that a container sees as the root of its view, to be read; `None` where it sees none."""
    places = (Places("v2", {"unified": root}), Places("v1", {name: root / name for name in _NEEDED_V1}))
    for place in places:
        with suppress(OSError):
            return Cgroup(_files(place, ""))
    return None


def make(places: Places, name: str, *, memory_bytes: int, processes: int) -> Cgroup:
    """Make a slot's cgroup.

    Parameters
    ----------
    places
        Where, from `detect`.
    name
        As from `processes.ourselves().named(...)`, so that a sweep knows whose it is.
    memory_bytes, processes
        What all its processes together may use.

    Raises
    ------
    OSError
        If it cannot be made; nothing is left of it then.
    """
    files = _files(places, name)
    made: list[Path] = []
    try:
        for folder in files.folders:
            folder.mkdir()
            made.append(folder)
        cgroup = Cgroup(files)
    except OSError:
        remove(tuple(made), within_s=0.0)
        raise
    try:
        cgroup.limit(memory_bytes=memory_bytes, processes=processes)
        if files.end is not None:  # of a candidate's processes one ends, and not the server beside it
            _write_if_there(files.memory.with_name("memory.oom.group"), "0")
    except OSError:
        cgroup.remove(within_s=0.0)
        raise
    return cgroup


def remove_all(cgroups: Iterable[Cgroup], within_s: Seconds) -> bool:
    """Kill all that runs in them, and remove them, under one deadline; return whether all are gone.

    What is left of them a sweep finds.
    """
    folders: list[Path] = []
    for cgroup in cgroups:
        cgroup.close()
        cgroup.kill(within_s=0.0)
        folders += cgroup.folders()
    return remove(tuple(folders), within_s)


def remove(folders: tuple[Path, ...], within_s: Seconds) -> bool:
    """Remove cgroups, killing what still runs in them; return whether all are gone."""
    give_up = time.monotonic() + within_s
    left = list(folders)
    while True:
        left = [folder for folder in left if not _removed(folder)]
        if not left:
            return True
        if time.monotonic() >= give_up:
            return False
        for folder in left:
            _kill_all(folder / "cgroup.procs", within_s=0.0)
        time.sleep(0.002)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # tasks are dying in it
        return False
    return True


def _kill_all(procs: Path, *, within_s: Seconds) -> None:
    """Kill one by one until nobody is left: whoever was forked meanwhile is met at the next look."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            pids = killable(numbers(procs.read_text("ascii")))
        except OSError:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not pids or time.monotonic() >= give_up:
            return
        time.sleep(0.001)


def _opened(path: Path, mode: int = os.O_RDONLY) -> int:
    return os.open(path, mode | os.O_CLOEXEC)


def _write_if_there(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text, encoding="ascii")


def _field(descriptor: int, name: bytes) -> int:
    """Return a number from an open file of `name number` lines; 0 where there is none."""
    with suppress(OSError):
        for line in os.pread(descriptor, 1_024, 0).splitlines():
            if line.startswith(name + b" "):
                return int(line.split()[1])
    return 0


def _number(path: Path) -> int:
    """Return a file's only number; 0 where there is none."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return 0
