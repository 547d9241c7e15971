"""The confinement of a guest: a process that will run code nobody has read.

The fork server calls `prepare` once and `clone` per guest; the guest calls `enter` before it reads a byte of
its payload. What can be inherited is (no_new_privs, the longer filter, an out-of-memory score that the
server wears while it clones), and what can be made ready is made ready there. What a new user namespace
resets, or what belongs to one guest, is done in the guest:

| stage | why there |
|---|---|
| session | `kill(0)` reaches the process group, and the server's group is the server |
| identity | a new user namespace maps nobody; the guest keeps the uid of the server |
| files | nothing may be writable but one tmpfs of the guest's; `/proc` shows the server until it is covered |
| limits | limits of the server would be counted over all guests |
| landlock | a rule needs the guest's own tmpfs |
| capabilities | a new user namespace grants them all |
| filter | last, since it forbids what the stages before it do |

The order is what the kernel allows: `uid_map` needs `/proc`, the mounts need capabilities, and closing comes
after the last prepared descriptor was used. A guest is PID 1 of its namespace: every descendant dies with
it, and signals whose default would kill it do nothing unless they come from outside.

Where no namespaces can be made inside (in most containers, on gVisor of old) a server that is root makes each
guest a user of its own instead: `users` has the stages of that, and the same filter, limits and rules of
landlock come after them.

Not covered: memory, the number of processes over all guests and CPU over all descendants are the business
of the slot's cgroup. The limits set here are a backstop, counted per process; RLIMIT_NPROC counts per guest
from Linux 5.14 on, per uid of the machine before, and never for the machine's root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import filter as seccomp
from . import landlock, syscalls, users

BOX = "/box"
FOLDERS = ("work", "tmp", "shm", "home")
FAKE_PROC = "/fake-proc"

_NEW_NAMESPACES = 0x10000000 | 0x20000000 | 0x00020000 | 0x08000000 | 0x04000000  # user, pid, mount, ipc, uts
_NEW_NETWORK = 0x40000000
_CHILD_SETTID = 0x01000000
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 4096, 16384, 1 << 18
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NOSUID, _RECURSIVE = 1, 2, 0x8000
_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP = 1, 4, 22
_NO_NEW_PRIVS, _GET_TID_ADDRESS = 38, 40
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = int(signal.SIGKILL)  # an enumeration costs the guest pages
_LAST_DESCRIPTOR = 0x7FFFFFFF
_PENDING_SIGNALS = 1024  # all guests of a slot draw on what the server may have

_PRCTL, _CLONE, _CAPSET, _CLOSE_RANGE, _MOUNT_SETATTR = (
    syscalls.number(name) for name in ("prctl", "clone", "capset", "close_range", "mount_setattr")
)

_NULL = ctypes.c_void_p()
for _hook in (
    _before_fork := ctypes.pythonapi.PyOS_BeforeFork,
    _after_fork_parent := ctypes.pythonapi.PyOS_AfterFork_Parent,
    _after_fork_child := ctypes.pythonapi.PyOS_AfterFork_Child,
):
    _hook.argtypes, _hook.restype = [], None


class SetupError(Exception):
    """The confinement is not complete; the text is `stage: what the kernel said`. Run nothing."""


class Call:
    """A system call made ready: its texts and structures lie where the kernel will find them."""

    def __init__(self, what: str, name: str, *arguments: str | bytes | int | None) -> None:
        self._what = what
        self._number = syscalls.number(name)
        self._kept: list[ctypes.Array[ctypes.c_char]] = []
        self._arguments = [self._keep(argument) for argument in arguments]

    def _keep(self, argument: str | bytes | int | None) -> int | ctypes.c_void_p:
        if isinstance(argument, int):
            return argument
        if argument is None:
            return ctypes.c_void_p()
        content = argument.encode() + b"\0" if isinstance(argument, str) else argument
        self._kept.append(ctypes.create_string_buffer(content, len(content)))
        return syscalls.pointer_to(self._kept[-1])

    def make(self) -> None:
        """Make the call, or raise OSError that says which one failed."""
        try:
            syscalls.call(self._number, *self._arguments)
        except OSError as error:
            raise OSError(error.errno, f"{self._what}: {error.strerror}") from error


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> Call:
    return Call(f"mounting {target}", "mount", source, target, kind, flags, options)


def _all_read_only() -> Call:
    """Return the call after which all mounts are private and read-only, device nodes' attributes too.

    Bubblewrap cannot do the latter, and a guest that is the machine's root could change their modes. Before
    Linux 5.12 they are private only.
    """
    try:
        syscalls.call(_MOUNT_SETATTR, -1, _NULL, 0, _NULL, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:  # an outer sandbox may refuse what it does not know
            return _mount("none", "/", None, _REC | _PRIVATE)
    attributes = struct.pack("<4Q", _ATTRIBUTE_READ_ONLY | _ATTRIBUTE_NOSUID, 0, _PRIVATE, 0)
    return Call("read-only mounts", "mount_setattr", -1, "/", _RECURSIVE, attributes, len(attributes))


class Filter:
    """A BPF program where the kernel finds it: a `struct sock_fprog` that points to the instructions."""

    def __init__(self, program: bytes) -> None:
        self._program = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, ctypes.addressof(self._program))
        self._call = Call("installing it", "prctl", _SET_SECCOMP, _SECCOMP_MODE_FILTER, header)

    def install(self) -> None:
        """Bind this process and its children to the filter, for good."""
        self._call.make()


class Prepared:
    """What `prepare` made ready for every guest of this server."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        machine = os.uname().machine
        self.users = users.Users(settings["users"]) if settings.get("users") else None
        self.own_score = _read("/proc/self/oom_score_adj")
        self.score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        self.limits = _limits(settings)
        version = landlock.abi()
        self.landlock = landlock.Landlock(version) if version else None
        self.filters = [Filter(seccomp.compile_guest_filter(machine))]
        self.clone_flags = int(signal.SIGCHLD)
        self.thread_id = _find_thread_id()
        if self.thread_id.value:
            self.clone_flags |= _CHILD_SETTID
        long_filter = Filter(seccomp.compile_server_filter(machine))
        if self.users is not None:
            self.stages: tuple[tuple[str, Callable[[Prepared], None]], ...] = USERS_STAGES
            self.clone_flags |= self.users.namespaces
            self.filters.insert(0, long_filter)  # the server makes users and ends them: it stays without
            return
        if not _is_read_only(FAKE_PROC):
            raise SetupError(f"prepare: {FAKE_PROC} must lie on a read-only mount")
        self.stages = STAGES
        self.clone_flags |= _NEW_NAMESPACES
        if version < landlock.FIRST_TO_SCOPE:  # else guests would meet in abstract sockets
            self.clone_flags |= _NEW_NETWORK
        uid, gid = os.getuid(), os.getgid()
        self.identity = [
            ("/proc/self/gid_map", b"%d %d 1" % (gid, gid)),
            ("/proc/self/uid_map", b"%d %d 1" % (uid, uid)),
        ]
        if _read("/proc/self/setgroups") != b"deny":  # a new user namespace inherits it
            self.identity.insert(0, ("/proc/self/setgroups", b"deny"))
        size = f"size={settings['file_bytes']},nr_inodes={settings['files']},mode=700"
        self.mounts = (
            _all_read_only(),
            _mount("tmpfs", BOX, "tmpfs", _NOSUID | _NODEV, size),
            _mount(FAKE_PROC, "/proc", None, _BIND),
        )
        syscalls.call(_PRCTL, _NO_NEW_PRIVS, 1, 0, 0, 0)
        long_filter.install()


def prepare(settings: Mapping[str, Any]) -> Prepared:
    """Make ready, once in the fork server, what every guest needs, and bind the server to its own filter.

    Parameters
    ----------
    settings
        `file_bytes` and `files` bound the tmpfs, `file_size` a single file, `processes` and `descriptors`
        what their names say; `memory_bytes` bounds the address space: leave it out where a cgroup counts.
        With `users` (see `users.Users`) guests are told apart by user, and not by namespaces.

    Raises
    ------
    SetupError
        This machine cannot confine a guest at all.

    """
    try:
        return Prepared(settings)
    except (OSError, LookupError) as error:
        raise SetupError(f"prepare: {error}") from error


def _is_read_only(folder: str) -> bool:
    """Whether nothing can be made in a folder; gVisor does not say it of its mounts."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return True
    try:
        os.rmdir(f"{folder}/none")
    except OSError as error:
        return error.errno == errno.EROFS
    return False


def clone(prepared: Prepared) -> int:
    """Fork into new user, pid, mount, ipc and uts namespaces; return 0 in the guest, its pid in the server.

    Call it from the only thread. It is a raw call, so glibc's handlers of a fork do not run; Python's do.

    Raises
    ------
    SetupError
        The kernel refused, as it does where user namespaces are forbidden or used up.

    """
    pid = -1
    # x86_64 takes the thread id's address fourth, aarch64 fifth; neither reads the other place (no SETTLS)
    address = prepared.thread_id
    os.write(prepared.score, b"1000")
    _before_fork()
    try:
        pid = syscalls.call(_CLONE, prepared.clone_flags, _NULL, _NULL, address, address)
    except OSError as error:
        raise SetupError(f"clone: {error.strerror}") from error
    finally:
        (_after_fork_parent if pid else _after_fork_child)()
        if pid:
            os.write(prepared.score, prepared.own_score)
    return pid


def enter(prepared: Prepared, keep: Iterable[int], cpu_s: int) -> None:
    """Confine this process, the guest, for good.

    Parameters
    ----------
    prepared
        What `prepare` returned in the server.
    keep
        The descriptors that stay open, besides 0, 1 and 2.
    cpu_s
        CPU seconds of the process; one second more ends it, whatever it handles.

    Raises
    ------
    SetupError
        A stage failed. The process is half confined: it must end, and run nothing of the candidate's.

    """
    stage = ""
    try:
        for stage, step in prepared.stages:  # noqa: B007 - named when it fails
            step(prepared)
        stage = "descriptors"
        _close_all_but(keep)
        stage = "limits"
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        stage = "filter"
        for one in prepared.filters:
            one.install()
    except (OSError, ValueError) as error:
        raise SetupError(f"{stage}: {getattr(error, 'strerror', None) or error}") from error


def _session(prepared: Prepared) -> None:  # noqa: ARG001
    syscalls.call(_PRCTL, _PDEATHSIG, _SIGKILL)
    os.setsid()


def _identity(prepared: Prepared) -> None:
    for path, text in prepared.identity:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, text)
        os.close(descriptor)


def _files(prepared: Prepared) -> None:
    for mount in prepared.mounts:
        mount.make()
    os.chdir(BOX)
    for folder in FOLDERS:
        os.mkdir(folder, 0o700)
    os.chdir(FOLDERS[0])


def _set_limits(prepared: Prepared) -> None:
    for limit, value in prepared.limits:
        resource.setrlimit(limit, (value, value))


def _landlock(prepared: Prepared) -> None:
    if prepared.landlock is not None:
        prepared.landlock.restrict(*(prepared.users.writable if prepared.users is not None else (BOX,)))


def _user(prepared: Prepared) -> None:
    if prepared.users is not None:
        prepared.users.become()
    syscalls.call(_PRCTL, _PDEATHSIG, _SIGKILL)  # a change of user forgets the wish
    syscalls.call(_PRCTL, _NO_NEW_PRIVS, 1, 0, 0, 0)


def _drop_capabilities(_prepared: Prepared) -> None:
    # the bounding set stays: it matters to an exec that gives capabilities, and no_new_privs forbids those
    syscalls.call(_CAPSET, _CAPABILITY_HEADER, _NO_CAPABILITIES)
    syscalls.call(_PRCTL, _SET_DUMPABLE, 0)


STAGES = (
    ("session", _session),
    ("identity", _identity),
    ("files", _files),
    ("limits", _set_limits),
    ("landlock", _landlock),
    ("capabilities", _drop_capabilities),
)

USERS_STAGES = (
    ("session", _session),
    ("user", _user),
    ("limits", _set_limits),
    ("landlock", _landlock),
    ("capabilities", _drop_capabilities),
)

_capability_header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), 8)
_no_capabilities = ctypes.create_string_buffer(24)
_CAPABILITY_HEADER, _NO_CAPABILITIES = map(syscalls.pointer_to, (_capability_header, _no_capabilities))


def _close_all_but(keep: Iterable[int]) -> None:
    first = 3
    for kept in sorted(keep):
        if kept > first:
            _close_range(first, kept - 1)
        first = max(first, kept + 1)
    _close_range(first, _LAST_DESCRIPTOR)


def _close_range(first: int, last: int) -> None:
    try:
        syscalls.call(_CLOSE_RANGE, first, last, 0)
    except OSError:  # before Linux 5.9
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        os.closerange(first, min(last + 1, highest if highest > 0 else 1 << 20))


def _limits(settings: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return each limit with its value, none above the hard limit that the server itself has."""
    wanted = {
        resource.RLIMIT_CORE: 1,  # 0 does not stop a core_pattern that pipes into the host's helper; 1 does
        resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
        resource.RLIMIT_NPROC: settings["processes"],
        resource.RLIMIT_NOFILE: settings["descriptors"],
        resource.RLIMIT_FSIZE: settings["file_size"],
        resource.RLIMIT_AS: settings.get("memory_bytes"),
    }
    found = []
    for limit, value in wanted.items():
        if value is not None and not (limit == resource.RLIMIT_SIGPENDING and _is_fixed(limit)):
            hard = resource.getrlimit(limit)[1]
            found.append((limit, value if hard == resource.RLIM_INFINITY else min(value, hard)))
    return found


def _is_fixed(limit: int) -> bool:
    """Whether a limit cannot be set at all: gVisor has none for signals."""
    try:
        resource.setrlimit(limit, resource.getrlimit(limit))
    except ValueError:
        return True
    return False


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 100).strip()
    finally:
        os.close(descriptor)


def _find_thread_id() -> ctypes.c_void_p:
    """Return where glibc keeps the main thread's id, stale after a raw clone; null where the kernel hides it.

    Stale, it misleads error-checking locks and, before glibc 2.34, `raise`; the first fork mends it.
    """
    address = ctypes.c_void_p()
    try:
        syscalls.call(_PRCTL, _GET_TID_ADDRESS, syscalls.pointer_to(address))
    except OSError:  # a kernel without CONFIG_CHECKPOINT_RESTORE
        return ctypes.c_void_p()
    return address
