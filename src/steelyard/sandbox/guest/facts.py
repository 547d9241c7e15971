"""What a guest can see and do, told from the inside: the host compares it with what must hold.

A sandbox degrades silently: bubblewrap exits 0 where it could not unshare, a forgotten mount shows the host.
So one guest per boot of a slot runs this under the confinement that candidates get, and the host refuses to
work when a fact is not the required one. A value is a word or a number as text, or, where looking failed,
`error: ` and what the attempt raised: a fact that cannot be found is never the required one.

The guest is not trusted to judge: it only reports. Facts come before any candidate's code ran in the slot.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable

from . import landlock, syscalls

_GET_SECCOMP, _CAPBSET_READ, _GET_NO_NEW_PRIVS = 21, 23, 39
_GET_DUMPABLE = 3
_LAST_CAPABILITY = 63
_PROBED_DESCRIPTORS = 1024
_NEW_USER = 0x10000000
_PEEK = 1
_REFUSED = (errno.EPERM, errno.ENOSYS)
_GONE = (errno.ENOENT, errno.ENOTDIR)

_library = ctypes.PyDLL(None, use_errno=True)


def facts() -> dict[str, str]:
    """Return what holds for this process, by name; never raises.

    It tries what must be refused, so where it is not refused this process changes: call it in a guest.
    """
    found = {}
    for name, find in _FINDERS.items():
        try:
            found[name] = str(find())
        except Exception as error:
            found[name] = f"error: {type(error).__name__}: {error}"
    return found


def _prctl(option: int, argument: int = 0) -> int:
    return syscalls.call(syscalls.number("prctl"), option, argument, 0, 0, 0)


def _effective_capabilities() -> str:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    if _library.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    return f"{sets[0] | sets[3] << 32:x}"


def _bounding_capabilities() -> str:
    bits = 0
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            bits |= _prctl(_CAPBSET_READ, capability) << capability
        except OSError:
            break
    return f"{bits:x}"


def _descriptors() -> str:
    fcntl = _library.fcntl
    return " ".join(str(number) for number in range(_PROBED_DESCRIPTORS) if fcntl(number, 1) != -1)


def _attempt(action: Callable[[], object]) -> str:
    """Return `yes` when the action succeeds, `no` when it fails."""
    try:
        action()
    except OSError:
        return "no"
    return "yes"


def _is_there(path: str) -> str:
    """Return `no` only when nothing is there: what may not be looked at is there."""
    try:
        os.lstat(path)
    except OSError as error:
        return "no" if error.errno in _GONE else "yes"
    return "yes"


def _writable(folder: str) -> Callable[[], str]:
    name = f"{folder}/.steelyard-{os.getpid()}"

    def write() -> None:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(name)

    return lambda: _attempt(write)


def _box_writable() -> str:
    return _writable(os.getcwd())()


def _device_attributes() -> str:
    """Tell whether times and modes of the machine's own device nodes could be changed: the mount decides."""
    return "no" if os.statvfs("/dev/null").f_flag & os.ST_RDONLY else "yes"


def _network_socket() -> str:
    import _socket

    return _attempt(lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM).close())


def _network_devices() -> str:
    import _socket

    try:
        return " ".join(name for _, name in _socket.if_nameindex())
    except OSError:
        return ""


def _new_user_namespace() -> str:
    return "no" if _library.unshare(_NEW_USER) else "yes"


def _tracing() -> str:
    """Ask to read a process that nobody traces: refused by the filter, or found by the kernel not to be."""
    failed = _library.ptrace(_PEEK, os.getpid(), None, None) == -1
    return "no" if failed and ctypes.get_errno() in _REFUSED else "yes"


def _processes_in_proc() -> str:
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return "no"
    return "yes" if any(name.isdigit() or name == "self" for name in names) else "no"


_FINDERS: dict[str, Callable[[], object]] = {
    "uid": os.getuid,
    "gid": os.getgid,
    "groups": lambda: " ".join(map(str, os.getgroups())),
    "pid": os.getpid,
    "own_session": lambda: "yes" if os.getsid(0) == os.getpid() == os.getpgrp() else "no",
    "cap_eff": _effective_capabilities,
    "cap_bnd": _bounding_capabilities,
    "no_new_privs": lambda: _prctl(_GET_NO_NEW_PRIVS),
    "seccomp": lambda: _prctl(_GET_SECCOMP),
    "dumpable": lambda: _prctl(_GET_DUMPABLE),
    "descriptors": _descriptors,
    "etc_shadow": lambda: _is_there("/etc/shadow"),
    "shadow_readable": lambda: _attempt(lambda: os.close(os.open("/etc/shadow", os.O_RDONLY))),
    "etc_hostname": lambda: _is_there("/etc/hostname"),
    "root_home": lambda: _is_there("/root"),
    "homes": lambda: _is_there("/home"),
    "network_socket": _network_socket,
    "network_devices": _network_devices,
    "new_user_namespace": _new_user_namespace,
    "ptrace": _tracing,
    "root_writable": _writable("/"),
    "usr_writable": _writable("/usr"),
    "dev_writable": _writable("/dev"),
    "device_attributes_writable": _device_attributes,
    "proc_writable": _writable("/proc"),
    "box_writable": _box_writable,
    "proc_processes": _processes_in_proc,
    "landlock": landlock.abi,
    "prefix": lambda: sys.prefix,
    "version": lambda: " ".join(sys.version.split()),
    "machine": lambda: os.uname().machine,
}
