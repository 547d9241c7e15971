"""The house of a runner: slots inside a container, which is the wall towards the machine.

Root makes each guest a user of its own (`guest/users.py`); anybody else needs user namespaces inside the
container, and the folders that a bundle of ours has.

What a guest uses is read from /proc, and from the container's cgroup where that can be seen: how many
processes were ended for want of memory, and CPU time that nobody was left to tell of. gVisor's /proc counts
CPU time by the clock on the wall while a task may run, so on a machine that is busy it says too much: there
the cgroup, which counts what the machine really gave, is the bound.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from steelyard.clock import Clock, Seconds
from steelyard.errors import RefusedError, SandboxError
from steelyard.sandbox import cgroups, kills, processes
from steelyard.sandbox.boot import ENVIRONMENT, command, settings
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.slot import Slot

BOX: Final = "/box"
COUNTERS: Final = Path("/counters")
"""Where a site shows the container's cgroup, if not where it belongs."""

_FURNISHED: Final = (BOX, "/fake-proc")
_THE_MACHINES: Final = "pid:[4026531836]"
"""The first namespace of processes, which has this number on every Linux (PROC_PID_INIT_INO)."""

_DEVICES: Final = frozenset({"null", "zero", "full", "random", "urandom", "tty", "ptmx"})
_USERS: Final = 100
_RESERVED: Final = 768 << 20
"""Address space that is no memory, where it is what each process is limited by: stacks, mapped files."""


class Inside:
    """Makes the slots of a runner.

    Parameters
    ----------
    first_user
        Root's guests are users from this one on.
    packages
        Where guests may import from, if not where this Python has its packages.
    counted
        Whether the container's own limit counts the memory of all processes together.
    emulated
        Whether /proc is gVisor's.
    root
        The host's root file system, as `root_seen` names it there.
    clock
        Time.

    Raises
    ------
    RefusedError
        If there is no container around it, or no folder to be written.
    """

    def __init__(
        self,
        *,
        first_user: int,
        packages: tuple[str, ...],
        counted: bool,
        emulated: bool,
        root: str,
        clock: Clock,
    ) -> None:
        _refuse_the_machine_itself(root)
        self.cores = len(os.sched_getaffinity(0))
        self.proven: dict[str, str] = {}
        self._first = first_user
        own = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        self._packages = list(packages or own)
        self._counted = counted
        self._clock = clock
        self._emulated = emulated
        self._container = cgroups.visible(COUNTERS) or cgroups.visible()
        self._own: dict[Slot, frozenset[int]] = {}
        self._box = _box() if os.geteuid() == 0 else None
        if self._box is not None:
            _introduce(range(first_user, first_user + 2 * _USERS))
            if emulated:
                _close_devices()

    def slot(self, mould: Mould, on_gone: Callable[[Slot], None]) -> Slot:
        """Start a slot; it is not ready yet.

        Raises
        ------
        SandboxError
            If it cannot be started.
        """

        def gone(slot: Slot) -> None:
            self._own.pop(slot, None)
            on_gone(slot)

        environment = {**ENVIRONMENT, "PYTHONPATH": ":".join(self._packages), "MALLOC_ARENA_MAX": "2"}
        slot = Slot(lambda control: self._command(control, mould), self._clock, gone, environment)
        slot.may_kill_itself = self._box is not None
        return slot

    def _command(self, control: int, mould: Mould) -> list[str]:
        reserved = mould._replace(memory_bytes=mould.memory_bytes + _RESERVED)
        told = settings(reserved, control, counted=self._counted)
        if self._box is not None:
            judging = mould.preload == "judge"
            told["limits"]["users"] = {
                "first": self._first + judging * _USERS,
                "count": _USERS,
                "box": f"{self._box}/judges" if judging else self._box,
                "each": judging,
            }
        folder = str(Path(__file__).parent)
        return command(sys.executable, folder=folder, packages=self._packages, told=told)

    async def prove(self, slot: Slot) -> None:
        """Wait until a slot is ready; what it proves is weighed by whoever asked for the container.

        Raises
        ------
        SandboxError
            If it does not start.
        """
        await slot.ready()
        self._own[slot] = frozenset(processes.tree(slot.pid))
        self.proven = {**await slot.facts(), "python": sys.version.split()[0]}

    def usage(self, slot: Slot) -> InsideUsage:
        """What the next guest of a slot uses."""
        return InsideUsage(
            slot.pid, self._own.get(slot, frozenset()), self._container, emulated=self._emulated
        )

    def adapt(self, _error: SandboxError) -> bool:
        """There is no other way to make one."""
        return False

    def facts(self) -> dict[str, str]:
        """What is known of the container."""
        return {"memory counted": "by the container" if self._counted else "of each process"}

    def refusal(self, error: SandboxError) -> RefusedError:
        """Say why no slot holds here, and the way out."""
        furnished = all(map(os.path.isdir, _FURNISHED))
        remedy = (
            "let the container's command be root: it makes each candidate a user of no rights by itself"
            if self._box is None and not furnished
            else "see the container's own words, and steelyard doctor"
        )
        return RefusedError(f"no slot holds inside: {error.cause}", where="runner", remedy=remedy)

    def close(self) -> None:
        """Read no more."""
        if self._container is not None:
            self._container.close()
            self._container = None


def _box() -> str:
    """A folder for guests that root can write: one that was made for it, or a new one."""
    for parent in ("/", "/run", "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - its owner is root
        with suppress(OSError):
            place = Path(parent) / BOX.strip("/")
            place.mkdir(mode=0o711, exist_ok=True)
            (place / "judges").mkdir(mode=0o711, exist_ok=True)
            return str(place)
    raise RefusedError(
        "no folder can be written inside the container",
        where="runner",
        remedy="give it a temporary one (docker run --tmpfs /box:exec,mode=711)",
    )


def _refuse_the_machine_itself(root: str) -> None:
    """Refuse to begin, and to change anything, where there is no container around us.

    With the host's own processes, or its own root file system, there is none, whatever else was unshared.
    """
    if processes.namespace("pid") == _THE_MACHINES or root == root_seen():
        raise RefusedError(
            "it was started on the machine itself, and in no container",
            where="runner",
            remedy="a command that starts a container, such as docker run --rm -i IMAGE",
        )


def _close_devices() -> None:
    """Keep guests from devices that gVisor has of its own, and no program needs."""
    for device in (*Path("/dev").glob("*"), *Path("/dev/net").glob("*")):
        if not device.is_symlink() and device.is_char_device() and device.name not in _DEVICES:
            with suppress(OSError):
                device.chmod(0o600)


def root_seen() -> str:
    """Name the root file system that we see, so that two who see the same one can tell."""
    seen, boot = Path("/").stat(), Path("/proc/sys/kernel/random/boot_id")
    kernel = boot.read_text("ascii").strip() if boot.exists() else ""
    return f"{kernel}:{seen.st_dev}:{seen.st_ino}"


def _introduce(users: range) -> None:
    """Give users a name, where /etc can be written: programs ask who they are."""
    with suppress(OSError), Path("/etc/passwd").open("r+", encoding="utf-8") as file:
        known = file.read()
        if f":{users[0]}:" not in known:
            file.write("".join(f"user:x:{uid}:{uid}::{BOX}/home:/bin/sh\n" for uid in users))


class InsideUsage:
    """What one guest uses, as `steelyard.sandbox.watch.Usage` wants it."""

    def __init__(
        self, pid: int, own: frozenset[int], container: cgroups.Cgroup | None, *, emulated: bool
    ) -> None:
        self._pid = pid
        self._own = own
        self._container = container
        self._emulated = emulated
        self._times = processes.Times()
        self._last: processes.State | None = None
        self._kills = kills.Kills(container) if container is not None else None
        self._foreign = _killed_by_the_machine()
        self._before_s = self._all_s()
        self._most_s: Seconds = 0.0

    def _tree(self) -> list[int]:
        return [pid for pid in processes.tree(self._pid) if pid not in self._own]

    def _all_s(self) -> Seconds:
        """CPU seconds of the container, without those of whoever is no guest of this slot."""
        if self._container is None:
            return 0.0
        if self._emulated:
            return self._container.cpu_s()
        guests = set(self._tree())
        return self._container.cpu_s() - processes.used_s(
            pid for pid in processes.every() if pid not in guests
        )

    def cpu_s(self) -> Seconds:
        """CPU seconds since the guest began."""
        seen_s = self._times.cpu_s(self._tree())
        if self._container is not None:
            all_s = self._all_s() - self._before_s
            seen_s = min(seen_s, all_s) if self._emulated else max(seen_s, all_s)
        self._most_s = max(self._most_s, seen_s)
        return self._most_s

    def active(self) -> bool:
        """Whether a task of it could run, was given a CPU, or moved a byte, since it was asked last."""
        last, self._last = self._last, processes.state(self._tree())
        return self._last.active_since(last)

    def runnable(self) -> bool:
        """Whether a task of it could run when `active` was asked last."""
        return self._last is not None and self._last.runnable > 0

    def near_the_wall(self) -> None:
        """Nothing can be learnt from inside: who is starved stays suspect."""

    def starved(self) -> bool:
        """Never known from inside."""
        return False

    def memory_kills(self) -> int:
        """How many processes of the container the kernel ended since its own limit of memory was reached."""
        return 0 if self._kills is None else self._kills.counted().memory

    def peak_bytes(self) -> int | None:
        """Not counted for one guest."""
        return None

    def counted(self) -> dict[str, Any]:
        """What else was counted, as evidence."""
        delay_s = self._last.run_delay_s if self._last is not None else None
        counted: dict[str, Any] = {} if delay_s is None else {"run_delay_s": delay_s}
        if self._kills is not None:
            return counted | self._kills.evidence()
        foreign = _killed_by_the_machine() - self._foreign
        return counted | ({"foreign": foreign} if foreign > 0 else {})

    def close(self) -> None:
        """Look no longer."""


def _killed_by_the_machine() -> int:
    """How many processes the machine's kernel has ended for want of memory; 0 where it does not say."""
    with suppress(OSError), Path("/proc/vmstat").open(encoding="ascii") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0
