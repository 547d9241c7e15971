"""Containers of OCI bundles, by runc or by runsc (gVisor): no daemon, no image, this machine's Python.

Each place is a bundle of its own: a root file system of empty folders, read-only, in which the system's and
Python's folders are shown read-only, a tiny /etc, and folders in memory. The only network is an empty one.

`runc`: the container's users are mapped to users of no rights outside, and each candidate is confined again
by namespaces, seccomp and landlock, as behind bubblewrap. It talks to the machine's kernel.

`runsc`: the runner is root inside gVisor's own kernel, and each candidate a user of its own there, in its own
namespace of processes, behind the same filter. The machine's kernel sees few calls, and those are gVisor's.

Memory is limited for the container as a whole, and with `runsc` for each process besides; `runsc` does
without cgroups, too, `runc` does not. Both need root. Does not cover: with `runc` faults of the machine's
kernel; with `runsc` the number of files; with both side channels, the time of day, and starvation by the
machine, which cannot be told from inside and stays suspect.
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
from steelyard.sandbox.interior import ETC, SYSTEM, USER, Interior, javas, written
from steelyard.sandbox.machine import FIRST_USER, USERS
from steelyard.sandbox.machine import run as asked
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.process import ProcessLine, ran
from steelyard.sandbox.site import Line, Traits
from steelyard.sandbox.sweep import PLACES, sweep

_USERS: Final = 65_536
_BLOCKS: Final = 3_800  # of users, from where bubblewrap's end to the last that there are
_BESIDE: Final = 1_024 * MIB
"""Memory of a container beside its candidate's: the runner, two fork servers, a judge, gVisor's own."""
_PROCESSES: Final = 64
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_ENDS_S: Final = 1.5
_CGROUPS: Final = Path("/sys/fs/cgroup")
_THREADS, _THREADS_EACH = 512, 4
"""Tasks of gVisor itself in its cgroup, and for each process of a candidate."""
_CAPABILITIES: Final = tuple(
    f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_ADMIN")
)
_GVISOR: Final = ("--network=none", "--platform={platform}", "--ignore-cgroups")
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
        if os.geteuid() != 0:
            raise RefusedError(
                f"{program} is started by root here, and we are user {os.geteuid()}",
                where=f"boundary {self.name}",
                remedy="run as root, or take bubblewrap, which needs no rights",
            )
        self.identity = f"{self.name}/1"
        self._program = program
        self._path = path
        self._gvisor = program == "runsc"
        self._options = [option.format(platform=platform) for option in _GVISOR] if self._gvisor else []
        self._places = cgroups.detect(cgroup)
        if not self._gvisor and self._below() is None:
            self._places = cgroups.detect("/")
        if not self._gvisor and (self._places.mode == "none" or self._below() is None):
            why = self._places.reason or "they have no one place below all hierarchies"
            raise RefusedError(
                f"runc needs cgroups, and none can be made: {why}",
                where="boundary runc",
                remedy=self._places.remedy or "take bubblewrap",
            )
        sweep(self._places)
        self._interior: Interior | None = None
        self._open: dict[str, cgroups.Cgroup | None] = {}

    def facts(self) -> Mapping[str, str]:
        """What is known of the outside."""
        _status, said = asked(self._path, "--version")
        counted = self._places.mode if self._limited else f"none ({self._places.reason})"
        return {self._program: f"{said.splitlines()[0] if said else '?'}, {self._path}", "cgroups": counted}

    @property
    def traits(self) -> Traits:
        """What its places are like.

        gVisor is one program for the kernel: there each process has its own limit of memory, and the whole is
        ended beyond.
        """
        interior = self._furnished()
        return Traits(
            python=interior.python,
            packages=tuple(interior.packages),
            counted=not self._gvisor,
            emulated=self._gvisor,
            first_user=USER if self._gvisor else None,  # gVisor's users are nobody else's
            remedy=f"see what {self._program} says by itself; bubblewrap needs no such program",
        )

    @property
    def _limited(self) -> bool:
        """Whether a container lives in a cgroup with limits."""
        return self._places.mode != "none"

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
        names = [
            "usr",
            "proc",
            "dev",
            *(f"etc/{name}" for name in ("alternatives", *javas())),
            "box",
            "fake-proc",
            "run",
            "sys/fs/cgroup",
            "var",
        ]
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
            cgroup = self._open[name] = self._cgroup(name, mould)
            bundle.mkdir(mode=0o755)
            told = self._config(command, mould, interior, name, number)
            (bundle / "config.json").write_text(json.dumps(told))
        except OSError as error:
            await self._ended(name)
            raise SandboxError(f"sandbox:{self.name}", f"no place can be made: {error}") from error
        joined = cgroup is not None and self._gvisor  # runc moves its container by itself
        config = {
            "parent": os.getpid(),
            "cgroup_procs": [str(path) for path in cgroup.join_paths] if cgroup and joined else [],
            "oom_score_adj": 500,
            "argv": argv,
        }

        async def end() -> None:
            await self._ended(name)

        try:
            return await ProcessLine.start(
                [sys.executable, "-I", "-S", launch.__file__, json.dumps(config)], end
            )
        except BaseException:  # called off, too
            await asyncio.shield(end())
            raise

    def _below(self) -> str | None:
        """Where our cgroups are below each hierarchy; `None` if that is not one place, which runc needs."""
        if self._places.mode == "v2":
            return str(self._places.folders["unified"].relative_to(_CGROUPS)).strip("/.")
        below = {
            str(folder.relative_to(_CGROUPS / name)).strip("/.")
            for name, folder in self._places.folders.items()
            if folder.is_relative_to(_CGROUPS / name)
        }
        return below.pop() if len(below) == 1 else None

    def _parents(self) -> list[Path]:
        """Where cgroups of ours may be: runc makes one in every hierarchy."""
        below = self._below()
        every = self._places.mode == "v1" and not self._gvisor and below is not None
        all_of = [one / str(below) for one in _CGROUPS.iterdir()] if every else []
        return list(dict.fromkeys([*self._places.folders.values(), *filter(Path.is_dir, all_of)]))

    def _state(self, interior: Interior) -> list[str]:
        return ["--root", str(interior.folder / "state"), *self._options]

    def _cgroup(self, name: str, mould: Mould) -> cgroups.Cgroup | None:
        """The cgroup of a container, and of everything that gVisor is."""
        if not self._limited:
            return None
        beside = _THREADS + (_THREADS_EACH - 1) * mould.processes if self._gvisor else _PROCESSES
        return cgroups.make(
            self._places,
            name,
            memory_bytes=mould.memory_bytes + _BESIDE,
            processes=mould.processes + beside,
        )

    def _config(
        self, command: Sequence[str], mould: Mould, interior: Interior, name: str, number: int
    ) -> dict[str, Any]:
        inner = 0 if self._gvisor else USER
        spaces = ["pid", "ipc", "uts", "mount", "network"] + ["user"] * (not self._gvisor)
        linux: dict[str, Any] = {
            "namespaces": [{"type": kind} for kind in spaces],
            "maskedPaths": [],
            "readonlyPaths": [],
        }
        if not self._gvisor:
            block = (os.getpid() * 61 + number) % _BLOCKS  # a process is not its neighbour with one more
            ids = [{"containerID": 0, "hostID": FIRST_USER + USERS + block * _USERS, "size": _USERS}]
            linux |= {"uidMappings": ids, "gidMappings": ids}
            linux["cgroupsPath"] = f"/{'/'.join(filter(None, (self._below(), name)))}"  # else it is another's
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
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
        more = [f"/etc/{name}" for name in ("ld.so.cache", "alternatives", *javas())]
        places += [(name, name) for name in more if Path(name).exists()]
        if self._gvisor:
            return [(*place, "ro") for place in places]
        devices = [(f"/dev/{name}", f"/dev/{name}", "rw") for name in _DEVICES]
        return [(*place, "ro") for place in [*places, (str(interior.folder / "dev"), "/dev")]] + devices

    def _counters(self, name: str) -> list[tuple[str, str, str]]:
        """Where the runner reads what the machine has given, and whether memory ran out."""
        if not self._limited:
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
        if cgroup is not None:
            cgroup.kill(within_s=0.0)
        if cgroup is None or not self._gvisor:  # what gVisor leaves is a folder of ours
            await ran([self._path, *self._state(self._interior), "delete", "--force", name], _ENDS_S)
        if cgroup is not None:
            await asyncio.to_thread(cgroup.remove)
        shutil.rmtree(self._interior.folder / name, ignore_errors=True)

    async def close(self) -> None:
        """End whatever is left."""
        await asyncio.gather(*(self._ended(name) for name in list(self._open)))
        if self._interior is not None:
            shutil.rmtree(self._interior.folder, ignore_errors=True)
            self._interior = None


def _memory(place: str, options: list[str]) -> dict[str, Any]:
    return {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}
