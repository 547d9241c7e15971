"""Becomes a slot: joins its cgroups, makes the runtime readable, stops being root, and is replaced by bwrap.

Started by its path, as `python -I -S launch.py CONFIG`, once for each slot; imports nothing of ours. `CONFIG`
is JSON:

| key | what is done |
|---|---|
| `parent` | the process that started it: when its starting *thread* ends, this dies, too |
| `cgroup_procs` | files to write itself into |
| `binds` | `[source, target]`: shown read-only at `target` (empty folder or file), to this process alone |
| `uid`, `gid` | who to become if root; `null`: stay |
| `rlimits` | `{"STACK": [soft, hard]}`; a limit is never raised above the hard one that is there |
| `oom_score_adj` | how willingly the kernel ends it when the machine has no memory left |
| `argv` | what replaces it, with the descriptors that were handed down |

A bind is needed where the runtime lies below a folder that others may not pass, as `/root`: the links are
made while this is still root. Whoever is not root skips binds and the change of user.

Root in a container has not every capability. Without CAP_SYS_ADMIN no bind can be made: without binds, all
the rest works. Without CAP_SETUID or CAP_SETGID, and where only uid 0 is mapped, nobody else can be become:
only `uid: null` works then, and the process limit of the kernel (RLIMIT_NPROC) does not count for root.
Where the user map lacks the asked id, its last other one is taken.

On a failure: one line of JSON on stderr, `{"stage": ..., "error": ..., "remedy": ...}`, and status 125.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

FAILED = 125

_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_KEPT = {
    os.ST_NOSUID: 0x2,
    os.ST_NODEV: 0x4,
    os.ST_NOEXEC: 0x8,
    os.ST_NOATIME: 0x400,
    os.ST_RELATIME: 1 << 21,
}
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class LaunchError(Exception):
    """A step that failed, and the way out."""

    def __init__(self, stage: str, error: object, remedy: str = "") -> None:
        super().__init__(f"{stage}: {error}")
        self.line = json.dumps({"stage": stage, "error": str(error), "remedy": remedy})


def main(config: dict[str, Any]) -> None:
    """Do what the configuration says; return only by raising.

    Raises
    ------
    LaunchError
        If a step failed.
    """
    join(config.get("cgroup_procs") or ())
    blame_for_memory(config.get("oom_score_adj"))
    if os.geteuid() == 0:
        bind(config.get("binds") or ())
        become(config.get("uid"), config.get("gid"))
    limit(config.get("rlimits") or {})
    die_with(config["parent"])
    replace(config["argv"])


def join(cgroup_procs: list[str] | tuple[str, ...]) -> None:
    """Move into each cgroup; 0 is the writer, in whichever process namespace it is."""
    for path in cgroup_procs:
        try:
            Path(path).write_text("0", encoding="ascii")
        except OSError as error:
            raise LaunchError("cgroup", f"{path}: {error}") from error


def blame_for_memory(score: int | None) -> None:
    """Offer itself to the kernel's memory killer, before the host is thought of; raising needs no right."""
    if score is not None:
        try:
            Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")
        except OSError as error:
            raise LaunchError("oom_score_adj", error) from error


def bind(binds: list[list[str]] | tuple[()]) -> None:
    """Show folders read-only at other places, to this process and its descendants alone."""
    if not binds:
        return
    capable = "run with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or with a Python that all may read"
    try:
        _check(_libc.unshare(_CLONE_NEWNS))
        mount(None, "/", _MS_REC | _MS_PRIVATE)
    except OSError as error:
        raise LaunchError("mounts", error, capable) from error
    for source, target in binds:
        try:
            mount(source, target, _MS_BIND | _MS_REC)
            there = os.statvfs(target).f_flag  # in a container these may not be taken off
            kept = sum(flag for word, flag in _KEPT.items() if there & word)
            mount(None, target, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)
        except OSError as error:
            raise LaunchError("bind", f"{source} at {target}: {error}", capable) from error


def mount(source: str | None, target: str, flags: int) -> None:
    """Call mount(2)."""
    given = None if source is None else os.fsencode(source)
    _check(_libc.mount(given, os.fsencode(target), None, ctypes.c_ulong(flags), None))


def become(uid: int | None, gid: int | None) -> None:
    """Give up being root for good."""
    if uid is None or gid is None:
        return
    try:
        others = [
            mapped(i, Path(f"/proc/self/{k}_map").read_text("ascii")) for i, k in ((uid, "uid"), (gid, "gid"))
        ]
    except OSError as error:
        raise LaunchError("uid", error) from error
    user, group = others
    if user is None or group is None:
        raise LaunchError(
            "uid",
            "this container maps no user but root",
            "start it with more ids (rootless podman: /etc/subuid and /etc/subgid), or as an ordinary user",
        )
    try:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError as error:
        capable = "run with CAP_SETUID and CAP_SETGID, or as an ordinary user"
        raise LaunchError("uid", f"cannot become {user}:{group}: {error}", capable) from error


def mapped(asked: int, id_map: str) -> int | None:
    r"""The asked id if there is one in this user namespace, else the last other than root's.

    Examples
    --------
    >>> mapped(65534, "0 0 4294967295")
    65534
    >>> mapped(65534, "0 1000 1\n1 100000 1000")
    1000
    >>> mapped(65534, "0 1000 1") is None
    True
    """
    ranges = [tuple(map(int, line.split())) for line in id_map.splitlines()]
    if any(first <= asked < first + count for first, _, count in ranges):
        return asked
    return max((first + count - 1 for first, _, count in ranges), default=0) or None


def limit(rlimits: dict[str, list[int]]) -> None:
    """Set resource limits for whatever comes after."""
    for name, (soft, hard) in rlimits.items():
        try:
            which = getattr(resource, f"RLIMIT_{name}")
            _, highest = resource.getrlimit(which)
            if highest != resource.RLIM_INFINITY:
                hard = highest if hard == resource.RLIM_INFINITY else min(hard, highest)  # noqa: PLW2901
            if hard != resource.RLIM_INFINITY:
                soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)  # noqa: PLW2901
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError, AttributeError) as error:
            raise LaunchError("rlimits", f"{name}: {error}") from error


def die_with(parent: int) -> None:
    """Ask to be killed at the parent's end; a change of user forgets the wish, so it comes after."""
    try:
        _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    except OSError as error:
        raise LaunchError("parent", error) from error
    if os.getppid() != parent:
        raise LaunchError("parent", f"process {parent} has ended")


def replace(argv: list[str]) -> None:
    """Become the program, with signals as a program expects them: Python had ignored some."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the boundary's own argument list
    except OSError as error:
        raise LaunchError("exec", f"{argv[0]}: {error}") from error


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except LaunchError as failed:
        sys.stderr.write(failed.line + "\n")
        sys.stderr.flush()
        os._exit(FAILED)
