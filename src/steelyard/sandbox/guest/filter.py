"""The seccomp filter of a guest: an allow list of system calls, compiled to classic BPF.

What is not listed fails with an error that an honest program can catch, and kills nobody: EPERM below
number 424, ENOSYS from 424 on. The split is where x86_64 and aarch64 began to share their numbers (Linux
5.1): every C library still carries a fallback for a kernel without those calls, and takes it on ENOSYS
only. `clone3`, whose flags lie in memory where no filter sees them, becomes `clone` in this way. A foreign
architecture and the x32 ABI kill the process: both number the calls otherwise, and no honest program here
speaks them.

There are two filters, and the stricter answer counts. The server's is the long one, installed once and
inherited: it allows what guests may do and what their confinement does (`CONFINING`). A guest's own is
short, and takes the latter away. The split halves what a guest pays, since the kernel checks and translates
a filter when it is installed, and runs it over every number to cache what is always allowed.

The long program is a balanced binary search over number ranges, about eight jumps for any call. Only calls
whose arguments are looked at (`CHECKED`) run it again.

Not covered: what an argument points to (paths, socket addresses), which BPF cannot read. Landlock and the
namespaces bound those.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from . import syscalls

ALLOWED = """
read write open close stat fstat lstat poll lseek mprotect munmap brk rt_sigaction rt_sigprocmask
rt_sigreturn pread64 pwrite64 readv writev access pipe select sched_yield mremap msync madvise dup dup2
pause nanosleep getitimer alarm setitimer getpid sendfile connect accept sendto recvfrom sendmsg recvmsg
shutdown bind listen getsockname getpeername getsockopt fork vfork execve exit wait4 kill uname
truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod
fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo times getuid getgid geteuid
getegid setpgid getppid getpgrp setsid getgroups getresuid getresgid getpgid getsid capget rt_sigpending
rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod statfs fstatfs getpriority
sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
arch_prctl setrlimit gettid getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr tkill time futex
sched_setaffinity sched_getaffinity epoll_create getdents64 set_tid_address restart_syscall timer_create
timer_settime timer_gettime timer_getoverrun timer_delete clock_gettime clock_getres clock_nanosleep
exit_group epoll_wait epoll_ctl tgkill utimes waitid openat
mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat
faccessat pselect6 ppoll set_robust_list utimensat epoll_pwait signalfd timerfd_create eventfd fallocate
timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 preadv
pwritev rt_tgsigqueueinfo recvmmsg prlimit64 sendmmsg getcpu renameat2 getrandom execveat membarrier
copy_file_range preadv2 pwritev2 statx rseq pidfd_send_signal pidfd_open close_range openat2 faccessat2
epoll_pwait2 landlock_create_ruleset futex_waitv fchmodat2
""".split()

PRETEND = 0x00050000  # SECCOMP_RET_ERRNO without an error
KILL, ALLOW = 0x80000000, 0x7FFF0000  # SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW
EPERM, ENOSYS = 0x00050001, 0x00050026  # SECCOMP_RET_ERRNO | errno

ACTIONS = (("allow", ALLOW), ("pretend", PRETEND), ("eperm", EPERM), ("enosys", ENOSYS), ("kill", KILL))

FIRST_SHARED = 424
X32_BIT = 0x40000000
AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

AF_UNIX = 1
NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
MAP_HUGETLB = 0x40000  # takes from the machine's pool, which no memory cgroup counts
ASK_PERSONALITY = 0xFFFFFFFF
SIGN = 1 << 31
HARMLESS_PRCTL = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39)
"""PDEATHSIG, GET_DUMPABLE, NAME, GET_SECCOMP, CAPBSET_READ, TIMERSLACK, CHILD_SUBREAPER, NO_NEW_PRIVS."""
HARMLESS_IOCTL = (
    *(0x5401, 0x5402, 0x5403, 0x5404, 0x802C542A),  # TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETS2
    *(0x540F, 0x5410, 0x5413, 0x5414),  # TIOCGPGRP, TIOCSPGRP, TIOCGWINSZ, TIOCSWINSZ
    *(0x541B, 0x5421, 0x5450, 0x5451, 0x5452),  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC
)
PRETENDED_FCNTL = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW: as flock
LEASES_AND_NOTICES = (1024, 1025, 1026)  # F_SETLEASE, F_GETLEASE, F_NOTIFY: what others do with a file
SOCKET_PROGRAMS = (26, 50, 51, 52)  # SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF

PRETENDED = ("fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "fadvise64", "flock")
"""Calls that say 0 and do nothing: on a tmpfs there is nothing to do, and on the machine's own files, which
a guest can open to read, they would make its disk work or forget, or hold a lock that others wait for."""

CONFINING = ("mount", "mount_setattr", "capset", "landlock_add_rule", "landlock_restrict_self")
"""Calls that a guest makes to confine itself, and never after."""
CHECKED_LATER = ("clone", "prctl")
"""Calls of `CHECKED` that the server and the confinement make with other arguments."""

CHECKED: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "clone": (0, "none of the bits", (NAMESPACE_FLAGS,)),
    "mmap": (3, "none of the bits", (MAP_HUGETLB,)),
    "socket": (0, "one of", (AF_UNIX,)),
    "socketpair": (0, "one of", (AF_UNIX,)),
    "setsockopt": (2, "none of", SOCKET_PROGRAMS),
    "prctl": (0, "one of", HARMLESS_PRCTL),
    "ioctl": (1, "one of", HARMLESS_IOCTL),
    "fcntl": (1, "none of", LEASES_AND_NOTICES),
    "personality": (0, "one of", (ASK_PERSONALITY,)),
    "setpriority": (2, "none of the bits", (SIGN,)),  # a kernel of its own may grant what Linux refuses
}
"""Calls allowed for some values of one argument: which argument, how it is compared, with what."""

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_FARTHEST_JUMP = 255

Instruction = tuple[int, "str | None", "str | None", int]
"""Code, label to jump to when true, label when false (None: the next instruction), operand."""


def _ranges(machine: str) -> list[tuple[int, str]]:
    """Return what the server's filter does: `(first number, label)` in order, each up to the next first.

    A label is `allow`, `pretend`, `eperm`, `enosys`, `kill` or the name of a call in `CHECKED`.
    """
    names = dict.fromkeys((*ALLOWED, *CONFINING, *CHECKED_LATER), "allow")
    names |= dict.fromkeys(PRETENDED, "pretend")
    names |= {name: name for name in CHECKED if name not in CHECKED_LATER}
    numbers = {name: syscalls.number(name, machine) for name in names}
    known = {number: names[name] for name, number in numbers.items() if number is not None}
    edges = sorted({0, FIRST_SHARED, X32_BIT, *known, *(number + 1 for number in known)})
    found: list[tuple[int, str]] = []
    for edge in edges:
        label = known.get(edge) or _unknown(edge)
        if not found or found[-1][1] != label:
            found.append((edge, label))
    return found


def _unknown(number: int) -> str:
    if number >= X32_BIT:
        return "kill"
    return "eperm" if number < FIRST_SHARED else "enosys"


def compile_server_filter(machine: str) -> bytes:
    """Return the long filter as an array of `struct sock_filter`.

    Parameters
    ----------
    machine
        `x86_64` or `aarch64`, as `os.uname().machine` says it.

    Raises
    ------
    LookupError
        There is no filter for this architecture.

    """
    if machine not in AUDIT_ARCHITECTURE:
        raise LookupError(f"no system call filter for {machine}")
    program: list[Instruction] = [
        (_LOAD, None, None, _AT_ARCHITECTURE),
        (_JUMP_EQUAL, None, "kill", AUDIT_ARCHITECTURE[machine]),
        (_LOAD, None, None, _AT_NUMBER),
    ]
    labels: dict[str, int] = {}
    _search(_ranges(machine), program, labels)
    return _finish(program, labels, [name for name in CHECKED if name not in CHECKED_LATER])


def compile_guest_filter(machine: str) -> bytes:
    """Return the short filter, which only means something after the server's.

    Parameters
    ----------
    machine
        As for `compile_server_filter`, which refuses what is unknown.

    """
    program: list[Instruction] = [(_LOAD, None, None, _AT_NUMBER)]
    for names, label in ((CONFINING, "eperm"), (CHECKED_LATER, None)):
        for name in names:
            number = syscalls.number(name, machine)
            if number is not None:
                program.append((_JUMP_EQUAL, label or name, None, number))
    program.append((_RETURN, None, None, ALLOW))
    return _finish(program, {}, CHECKED_LATER)


def _finish(program: list[Instruction], labels: dict[str, int], checked: Iterable[str]) -> bytes:
    """Append the checks of arguments and the actions, and return the program with its jumps counted."""
    for name in checked:
        argument, comparison, values = CHECKED[name]
        labels[name] = len(program)
        at = _AT_ARGUMENTS + 8 * argument  # the low half, which is all that the kernel reads of an int
        program.append((_LOAD, None, None, at))
        if name == "fcntl":
            program += [(_JUMP_EQUAL, "pretend", None, value) for value in PRETENDED_FCNTL]
        if comparison == "one of":
            program += [(_JUMP_EQUAL, "allow", None, value) for value in values[:-1]]
            program.append((_JUMP_EQUAL, "allow", "eperm", values[-1]))
        else:
            jump = _JUMP_BITS if comparison == "none of the bits" else _JUMP_EQUAL
            program += [(jump, "eperm", None, value) for value in values[:-1]]
            program.append((jump, "eperm", "allow", values[-1]))
    for label, action in ACTIONS:
        labels[label] = len(program)
        program.append((_RETURN, None, None, action))
    return b"".join(_assemble(index, instruction, labels) for index, instruction in enumerate(program))


def _search(found: list[tuple[int, str]], program: list[Instruction], labels: dict[str, int]) -> str:
    """Append a binary search over the ranges, and return the label where it begins."""
    if len(found) == 1:
        return found[0][1]
    middle = len(found) // 2
    here = f"from {found[0][0]} below {found[-1][0]}"
    labels[here] = len(program)
    program.append((0, None, None, 0))  # its two targets are known when both halves stand
    below = _search(found[:middle], program, labels)
    above = _search(found[middle:], program, labels)
    program[labels[here]] = (_JUMP_GREATER_EQUAL, above, below, found[middle][0])
    return here


def _assemble(index: int, instruction: Instruction, labels: dict[str, int]) -> bytes:
    code, true, false, operand = instruction
    jumps = [0 if label is None else labels[label] - index - 1 for label in (true, false)]
    if max(jumps) > _FARTHEST_JUMP:
        raise AssertionError(f"the filter is too long: a jump of {max(jumps)} at {index}")
    return struct.pack("<HBBI", code, *jumps, operand)
