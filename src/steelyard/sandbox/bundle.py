"""Containers of OCI bundles, by runc or by runsc (gVisor): no daemon, no image, this machine's Python.

Each place is a bundle of its own: a root file system of empty folders, read-only, in which the system's and
Python's folders are shown read-only, a tiny /etc, and folders in memory. The only network is an empty one.

`runc`: the container's users are mapped to users of no rights outside, and each candidate is confined again
by namespaces, seccomp and landlock, as behind bubblewrap. It talks to the machine's kernel.

`runsc`: the runner is root inside gVisor's own kernel, and each candidate a user of its own there, in its own
namespace of processes, behind the same filter. The machine's kernel sees few calls, and those are gVisor's.

Memory is limited for the container as a whole where cgroups can be made, and for each process where not, and
with `runsc`. Does not cover: with `runc` faults of the machine's kernel; with `runsc` the number of files;
with both side channels, the time of day, and starvation by the machine, which cannot be told from inside and
stays suspect.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import MIB
from steelyard.sandbox import cgroups, launch, processes
from steelyard.sandbox.inside import COUNTERS
from steelyard.sandbox.interior import ETC, SYSTEM, USER, Interior, written
from steelyard.sandbox.machine import FIRST_USER
from steelyard.sandbox.machine import run as asked
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.process import ProcessLine, ran
from steelyard.sandbox.site import Line
from steelyard.sandbox.sweep import PLACES, sweep

_USERS: Final = 65_536
_BESIDE: Final = 512 * MIB
"""Memory of a container beside its candidate's: the runner, two fork servers, a judge, gVisor's own."""
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_ENDS_S: Final = 1.5
_CGROUPS: Final = Path("/sys/fs/cgroup")
_THREADS, _THREADS_EACH = 512, 4
"""Tasks of gVisor itself in its cgroup, and for each process of a candidate."""
_CAPABILITIES: Final = tuple(
    f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_ADMIN")
)
_GVISOR: Final = ("--network=none", "--platform={platform}", "--ignore-cgroups")
_COUNTERS: Final = {
    "destination": "/sys/fs/cgroup",
    "type": "cgroup",
    "source": "cgroup",
    "options": ["ro", "nosuid", "noexec", "nodev"],
}
"""Where the runner reads whether the kernel ended somebody for want of memory."""
_INSTALL: Final = {"runc": "apt-get install runc", "runsc": "apt-get install runsc, or gvisor.dev's package"}
_NUMBERS: Final = count(1)


class BundleSite:
    """Makes places with an OCI runtime.

    Parameters
    ----------
    program
        `runc` or `runsc`.
    platform
        How gVisor stands between: `ptrace` works everywhere, `systrap` is faster and in newer versions.
    cgroup
        Where cgroups are made, if not where this process is.

    Raises
    ------
    RefusedError
        If the program is not there, or has no answer.
    """

    def __init__(self, program: str, *, platform: str = "ptrace", cgroup: str | None = None) -> None:
        path = shutil.which(program)
        if path is None:
            raise RefusedError(
                f"there is no {program}", where=f"boundary {program}", remedy=_INSTALL.get(program, "")
            )
        self.name = "gvisor" if program == "runsc" else program
        self.identity = f"{self.name}/1"
        self._program = program
        self._path = path
        self._gvisor = program == "runsc"
        self._options = [option.format(platform=platform) for option in _GVISOR] if self._gvisor else []
        self._places = cgroups.detect(cgroup)
        sweep(self._places)
        self._interior: Interior | None = None
        self._open: dict[str, cgroups.Cgroup | None] = {}

    def facts(self) -> Mapping[str, str]:
        """What is known of the outside."""
        _status, said = asked(self._path, "--version")
        counted = self._places.mode if self._limited else f"none ({self._places.reason})"
        return {self._program: f"{said.splitlines()[0] if said else '?'}, {self._path}", "cgroups": counted}

    @property
    def counted(self) -> bool:
        """Whether the kernel ends single processes of a container for want of memory, and says so inside.

        gVisor is one program for it: there each process has its own limit, and the whole is ended beyond.
        """
        return self._places.mode != "none" and not self._gvisor

    @property
    def _limited(self) -> bool:
        """Whether a container lives in a cgroup with limits."""
        return self._places.mode != "none"

    @property
    def emulated(self) -> bool:
        """Whether the kernel inside is gVisor's."""
        return self._gvisor

    @property
    def first_user(self) -> int | None:
        """From which number on candidates are users; gVisor's are nobody else's."""
        return USER if self._gvisor else None

    @property
    def packages(self) -> tuple[str, ...]:
        """Where this Python's packages are inside."""
        return tuple(self._furnished().packages)

    @property
    def python(self) -> str:
        """Where this Python is inside."""
        return self._furnished().python

    def _furnished(self) -> Interior:
        if self._interior is None:
            folder = Path(tempfile.mkdtemp(prefix=processes.ourselves().named("")))
            folder.chmod(0o755)
            self._interior = Interior(folder)
            self._interior.furnish()
            written(folder / PLACES, "".join(f"{path}\n" for path in self._parents()))
            if self._gvisor:  # where each candidate is another user
                names = (f"user:x:{uid}:{uid}::/box/home:/bin/sh" for uid in range(USER, USER + 200))
                written(folder / "etc" / "passwd", "\n".join(names) + "\n")
            self._root(folder / "root", self._interior)
        return self._interior

    def _root(self, root: Path, interior: Interior) -> None:
        """Make the root file system: folders to show things in, and links."""
        names = ["usr", "proc", "dev", "etc/alternatives", "box", "fake-proc", "run", "sys/fs/cgroup", "var"]
        names += [f"counters/{name}" for name in self._places.folders]
        names += [str(shown).strip("/") for shown in interior.shown]
        for name in names:
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in SYSTEM:
            path, shown = Path(name), root / name.strip("/")
            if path.is_symlink():
                shown.symlink_to(path.readlink())
            elif path.is_dir():
                shown.mkdir()
        for name in (*ETC, "ld.so.cache"):
            (root / "etc" / name).touch()
        if self._gvisor:
            (root / "tmp").mkdir()
        else:
            self._furnish_for_runc(root, interior.folder / "dev")

    def _furnish_for_runc(self, root: Path, devices: Path) -> None:
        """Make what a candidate finds as it does behind bubblewrap: its box in place of /tmp and /dev/shm."""
        (root / "tmp").symlink_to("/box/tmp")
        for name in ("box", "run"):  # runc gives what it mounts the mode of what is there
            (root / name).chmod(0o1777)
        devices.mkdir()
        (devices / "shm").symlink_to("/box/shm")
        for name in _DEVICES:
            (devices / name).touch()

    async def open(self, command: Sequence[str], mould: Mould) -> Line:
        """Make a container, and start a command in it: see `steelyard.sandbox.site.Site`."""
        interior = self._furnished()
        number = next(_NUMBERS)
        name = processes.ourselves().named(number)
        bundle = interior.folder / name
        argv = [self._path, *self._state(interior), "run", "--bundle", str(bundle), name]
        try:
            cgroup = self._cgroup(name, mould)
            bundle.mkdir(mode=0o755)
            told = self._config(command, mould, interior, name, number)
            (bundle / "config.json").write_text(json.dumps(told))
        except OSError as error:
            raise SandboxError(f"sandbox:{self.name}", f"no place can be made: {error}") from error
        self._open[name] = cgroup
        config = {
            "parent": os.getpid(),
            "cgroup_procs": [] if cgroup is None else [str(path) for path in cgroup.join_paths],
            "oom_score_adj": 500,
            "argv": argv,
        }

        async def end() -> None:
            await self._ended(name)

        try:
            return await ProcessLine.start(
                [sys.executable, "-I", "-S", launch.__file__, json.dumps(config)], end
            )
        except SandboxError:
            await end()
            raise

    def _below(self) -> str:
        """Where below each hierarchy of cgroups runc makes its own: beside ours, where that is one place."""
        if self._places.mode == "v2":
            return f"/{self._places.folders['unified'].relative_to(_CGROUPS)}".rstrip("/.")
        below = {
            str(folder.relative_to(_CGROUPS / name)) if folder.is_relative_to(_CGROUPS / name) else ""
            for name, folder in self._places.folders.items()
        }
        return f"/{below.pop()}".rstrip("/.") if len(below) == 1 else ""

    def _parents(self) -> list[Path]:
        """Where cgroups of ours may be: runc makes one in every hierarchy."""
        below = self._below().strip("/")
        all_of = [one / below for one in _CGROUPS.iterdir()] if self._places.mode == "v1" else []
        return list(dict.fromkeys([*self._places.folders.values(), *filter(Path.is_dir, all_of)]))

    def _state(self, interior: Interior) -> list[str]:
        return ["--root", str(interior.folder / "state"), *self._options]

    def _cgroup(self, name: str, mould: Mould) -> cgroups.Cgroup | None:
        """The cgroup of everything that gVisor is; runc makes its container's own."""
        if not (self._gvisor and self._limited):
            return None
        return cgroups.make(
            self._places,
            name,
            memory_bytes=mould.memory_bytes + _BESIDE,
            processes=_THREADS + _THREADS_EACH * mould.processes,
        )

    def _config(
        self, command: Sequence[str], mould: Mould, interior: Interior, name: str, number: int
    ) -> dict[str, Any]:
        mapped = not self._gvisor and os.geteuid() == 0
        inner = 0 if self._gvisor else USER
        spaces = ["pid", "ipc", "uts", "mount", "network"] + ["user"] * (not self._gvisor)
        linux: dict[str, Any] = {
            "namespaces": [{"type": kind} for kind in spaces],
            "maskedPaths": [],
            "readonlyPaths": [],
        }
        if not self._gvisor:
            outer = FIRST_USER + (os.getpid() * 64 + number) % 64 * _USERS if mapped else os.geteuid()
            ids = [{"containerID": 0 if mapped else inner, "hostID": outer, "size": _USERS if mapped else 1}]
            linux |= {"uidMappings": ids, "gidMappings": ids}
        if self.counted:
            linux["cgroupsPath"] = f"{self._below()}/{name}"
            linux["resources"] = {
                "memory": {"limit": mould.memory_bytes + _BESIDE},
                "pids": {"limit": mould.processes + 64},
            }
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            *([_COUNTERS] if self.counted else []),
            *(_memory(place, options) for place, options in self._in_memory(mould)),
            *(
                {"destination": to, "type": "bind", "source": of, "options": ["rbind", "nosuid", how]}
                for of, to, how in [*self._shown(interior), *self._counters(name)]
            ),
        ]
        names = list(_CAPABILITIES) if self._gvisor else []
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": inner, "gid": inner},
                "args": list(command),
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TMPDIR=/run", "HOME=/run"],
                "cwd": "/",
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), names),
                "noNewPrivileges": False,
            },
            "root": {"path": str(interior.folder / "root"), "readonly": True},
            "hostname": "sandbox",
            "mounts": mounts,
            "linux": linux,
        }

    def _in_memory(self, mould: Mould) -> list[tuple[str, list[str]]]:
        """What lies in memory: the box of guests, where the runner is unpacked, and gVisor's devices."""
        size = f"size={mould.file_bytes + 64 * MIB}"
        if not self._gvisor:
            return [("/run", [size]), ("/box", [size])]
        shared = [(name, [size, "mode=1777"]) for name in ("/tmp", "/dev/shm")]  # noqa: S108 - inside
        return [("/dev", ["mode=755"]), ("/run", [size, "mode=755"]), ("/box", [size, "mode=711"]), *shared]

    def _shown(self, interior: Interior) -> list[tuple[str, str, str]]:
        """What is shown: of where, where, and whether only to be read."""
        places = [("/usr", "/usr")]
        places += [(name, name) for name in SYSTEM if not Path(name).is_symlink() and Path(name).is_dir()]
        places += [
            (str(tree.source), str(shown)) for tree, shown in zip(interior.trees, interior.shown, strict=True)
        ]
        places += [(str(interior.folder / "proc"), "/fake-proc")]
        places += [(str(interior.folder / "etc" / name), f"/etc/{name}") for name in ETC]
        more = [f"/etc/{name}" for name in ("ld.so.cache", "alternatives")]
        places += [(name, name) for name in more if Path(name).exists()]
        if self._gvisor:
            return [(*place, "ro") for place in places]
        devices = [(f"/dev/{name}", f"/dev/{name}", "rw") for name in _DEVICES]
        return [(*place, "ro") for place in [*places, (str(interior.folder / "dev"), "/dev")]] + devices

    def _counters(self, name: str) -> list[tuple[str, str, str]]:
        """Where the runner in gVisor reads what the machine has really given."""
        if not (self._gvisor and self._limited):
            return []
        if self._places.mode == "v2":
            return [(str(self._places.folders["unified"] / name), str(COUNTERS), "ro")]
        return [
            (str(folder / name), f"{COUNTERS}/{controller}", "ro")
            for controller, folder in self._places.folders.items()
        ]

    async def _ended(self, name: str) -> None:
        """End a container: its processes, what the runtime remembers of it, and its bundle."""
        if self._interior is None or name not in self._open:
            return
        cgroup = self._open.pop(name)
        if cgroup is None:
            await ran([self._path, *self._state(self._interior), "delete", "--force", name], _ENDS_S)
        else:
            await asyncio.to_thread(cgroup.remove)
        shutil.rmtree(self._interior.folder / name, ignore_errors=True)

    async def close(self) -> None:
        """End whatever is left."""
        for name in list(self._open):
            await self._ended(name)
        if self._interior is not None:
            shutil.rmtree(self._interior.folder, ignore_errors=True)
            self._interior = None


def _memory(place: str, options: list[str]) -> dict[str, Any]:
    return {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}
