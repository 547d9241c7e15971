"""Guests that are told apart by user, for places where a server can make no namespaces but is root.

Each guest becomes a user that nobody else is, in folders that it alone may enter. When it is gone, everything
that still runs as that user is ended, and everything that the user owns in a folder where anybody may write
is removed. The container around the server is what keeps guests from the machine.

Where the server may (gVisor lets root), guests get a process namespace of their own besides: then what they
started dies with them, and they are PID 1 as elsewhere.

What namespaces give and users do not: other processes of the container can be seen, and folders that anybody
may write (`/tmp`, `/dev/shm`) are bounded by what the container gives, file by file by the guest's limit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from . import syscalls

FOLDERS = ("work", "tmp", "shm", "home")
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")  # noqa: S108 - where anybody may write, in most images
_PROCESSES = 0x20000000 | 0x08000000 | 0x04000000  # namespaces: pid, ipc, uts
_SUBREAPER = 36
_OTHERS_WRITE = 0o002


class Users:
    """The users of a server's guests.

    Parameters
    ----------
    settings
        `first` and `count`, of user ids; `box`, the folder in which guests have theirs; `each`, whether
        several live at one time, so that each needs a folder of its own in it.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._first, self._count = settings["first"], settings["count"]
        self._box, self._each = settings["box"], settings["each"]
        self.uid = self._first
        self.namespaces = _PROCESSES if _can(_PROCESSES) else 0
        self._shared = [
            folder
            for folder in dict.fromkeys(map(os.path.realpath, SHARED))
            if os.path.isdir(folder) and os.stat(folder).st_mode & _OTHERS_WRITE
        ]
        if not self.namespaces:  # orphans come here, and with them what they used
            syscalls.call(syscalls.number("prctl"), _SUBREAPER, 1, 0, 0, 0)

    def folder(self, uid: int) -> str:
        """Where a user's folders are."""
        return f"{self._box}/{uid}" if self._each else self._box

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders in which the guest of now may write."""
        own = self.folder(self.uid)
        return (*(f"{own}/{name}" for name in FOLDERS), *self._shared)

    def next(self, number: int) -> int:
        """Make the folders of the next guest; return its user. In the server."""
        uid: int = self._first + number % self._count
        self.uid = uid
        own = self.folder(uid)
        os.makedirs(own, 0o711, exist_ok=True)
        for name in FOLDERS:
            os.mkdir(f"{own}/{name}", 0o700)
            os.chown(f"{own}/{name}", uid, uid)
        return uid

    def become(self) -> None:
        """Become that user, in its folders. In the guest."""
        own = self.folder(self.uid)
        os.environ["HOME"], os.environ["TMPDIR"] = f"{own}/home", f"{own}/tmp"  # noqa: S108 - its own
        os.setgroups(())
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.chdir(f"{own}/work")

    def end(self, uid: int) -> float:
        """End what still runs as a user that is gone; CPU seconds of what ended."""
        return 0.0 if self.namespaces else self._ended(uid)

    def clear(self, uid: int) -> None:
        """Remove what it left."""
        own = self.folder(uid)
        for name in FOLDERS:
            _removed(f"{own}/{name}")
        for folder in self._shared:
            with os.scandir(folder) as entries:
                left = [entry.path for entry in entries if _owned(entry, uid)]
            for path in left:
                _removed(path)

    def _ended(self, uid: int) -> float:
        killer = os.fork()
        if killer == 0:
            with suppress(OSError):
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.kill(-1, signal.SIGKILL)  # all that it may signal, but itself
            os._exit(0)
        os.waitpid(killer, 0)
        cpu_s = 0.0
        while not self._each:  # the only guest is gone: whoever is a child of ours now was one of its own
            try:
                _pid, _status, use = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu_s += use.ru_utime + use.ru_stime
        return cpu_s


def _owned(entry: os.DirEntry[str], uid: int) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_uid == uid
    except FileNotFoundError:
        return False


def _removed(path: str) -> None:
    """Remove a file, or a folder of whatever depth: what it holds is brought up first, level by level."""
    if not os.path.isdir(path) or os.path.islink(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    aside, number = f"{path}.{os.urandom(8).hex()}", 0  # a name that nobody has taken
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_folder in found:
            if is_folder:
                number += 1
                waiting.append(f"{aside}.{number}")
                os.rename(inner, waiting[-1])
            else:
                os.unlink(inner)
        os.rmdir(folder)


def _can(flags: int) -> bool:
    """Whether a process can be made with new namespaces of these kinds."""
    import ctypes

    null = ctypes.c_void_p()
    try:
        pid = syscalls.call(syscalls.number("clone"), flags | signal.SIGCHLD, null, null, null, null)
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
