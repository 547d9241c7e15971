"""The numbers of the system calls that a guest may make, or that its confinement makes.

One entry is `name x86_64 aarch64`; a dash says that the architecture never had the call (aarch64 has
`openat` and no `open`). The table is the kernel's own (`asm/unistd_64.h`, `asm-generic/unistd.h`), which
never renumbers. It holds nothing that is only ever refused: what the filter does not allow needs no name.

`call` makes one by number, holding the GIL: the setup of a guest is a handful of calls that never block,
and neither glibc nor Python wraps most of them.
"""

from __future__ import annotations

import ctypes
import os

_TABLE = """
read 0 63; write 1 64; open 2 -; close 3 57; stat 4 -; fstat 5 80; lstat 6 -; poll 7 -; lseek 8 62;
mmap 9 222; mprotect 10 226; munmap 11 215; brk 12 214; rt_sigaction 13 134; rt_sigprocmask 14 135;
rt_sigreturn 15 139; ioctl 16 29; pread64 17 67; pwrite64 18 68; readv 19 65; writev 20 66;
access 21 -; pipe 22 -; select 23 -; sched_yield 24 124; mremap 25 216; msync 26 227;
madvise 28 233; dup 32 23; dup2 33 -; pause 34 -; nanosleep 35 101; getitimer 36 102; alarm 37 -;
setitimer 38 103; getpid 39 172; sendfile 40 71; socket 41 198; connect 42 203; accept 43 202;
sendto 44 206; recvfrom 45 207; sendmsg 46 211; recvmsg 47 212; shutdown 48 210; bind 49 200;
listen 50 201; getsockname 51 204; getpeername 52 205; socketpair 53 199; setsockopt 54 208;
getsockopt 55 209; clone 56 220; fork 57 -; vfork 58 -; execve 59 221; exit 60 93; wait4 61 260;
kill 62 129; uname 63 160; fcntl 72 25; flock 73 32; fsync 74 82; fdatasync 75 83; truncate 76 45;
ftruncate 77 46; getdents 78 -; getcwd 79 17; chdir 80 49; fchdir 81 50; rename 82 -; mkdir 83 -;
rmdir 84 -; creat 85 -; link 86 -; unlink 87 -; symlink 88 -; readlink 89 -; chmod 90 -;
fchmod 91 52; chown 92 -; fchown 93 55; lchown 94 -; umask 95 166; gettimeofday 96 169;
getrlimit 97 163; getrusage 98 165; sysinfo 99 179; times 100 153; getuid 102 174; getgid 104 176;
geteuid 107 175; getegid 108 177; setpgid 109 154; getppid 110 173; getpgrp 111 -; setsid 112 157;
getgroups 115 158; getresuid 118 148; getresgid 120 150; getpgid 121 155; getsid 124 156;
capget 125 90; capset 126 91; rt_sigpending 127 136; rt_sigtimedwait 128 137;
rt_sigqueueinfo 129 138; rt_sigsuspend 130 133; sigaltstack 131 132; utime 132 -; mknod 133 -;
personality 135 92; statfs 137 43; fstatfs 138 44; getpriority 140 141; setpriority 141 140;
sched_getparam 143 121; sched_getscheduler 145 120; sched_get_priority_max 146 125;
sched_get_priority_min 147 126; sched_rr_get_interval 148 127; prctl 157 167; arch_prctl 158 -;
setrlimit 160 164; sync 162 81; mount 165 40; gettid 186 178;
getxattr 191 8; lgetxattr 192 9; fgetxattr 193 10;
listxattr 194 11; llistxattr 195 12; flistxattr 196 13; tkill 200 130; time 201 -; futex 202 98;
sched_setaffinity 203 122; sched_getaffinity 204 123; epoll_create 213 -; getdents64 217 61;
set_tid_address 218 96; restart_syscall 219 128; fadvise64 221 223; timer_create 222 107;
timer_settime 223 110; timer_gettime 224 108; timer_getoverrun 225 109; timer_delete 226 111;
clock_gettime 228 113; clock_getres 229 114; clock_nanosleep 230 115; exit_group 231 94;
epoll_wait 232 -; epoll_ctl 233 21; tgkill 234 131; utimes 235 -; waitid 247 95;
openat 257 56;
mkdirat 258 34; mknodat 259 33; fchownat 260 54; futimesat 261 -; newfstatat 262 79;
unlinkat 263 35; renameat 264 38; linkat 265 37; symlinkat 266 36; readlinkat 267 78;
fchmodat 268 53; faccessat 269 48; pselect6 270 72; ppoll 271 73; set_robust_list 273 99;
sync_file_range 277 84; utimensat 280 88; epoll_pwait 281 22; signalfd 282 -;
timerfd_create 283 85; eventfd 284 -; fallocate 285 47; timerfd_settime 286 86;
timerfd_gettime 287 87; accept4 288 242; signalfd4 289 74; eventfd2 290 19; epoll_create1 291 20;
dup3 292 24; pipe2 293 59; preadv 295 69; pwritev 296 70;
rt_tgsigqueueinfo 297 240; recvmmsg 299 243; prlimit64 302 261; syncfs 306 267;
sendmmsg 307 269; getcpu 309 168;
renameat2 316 276; getrandom 318 278; execveat 322 281; membarrier 324 283;
copy_file_range 326 285; preadv2 327 286; pwritev2 328 287; statx 332 291; rseq 334 293;
pidfd_send_signal 424 424; pidfd_open 434 434; close_range 436 436; openat2 437 437;
faccessat2 439 439; epoll_pwait2 441 441; mount_setattr 442 442; landlock_create_ruleset 444 444;
landlock_add_rule 445 445; landlock_restrict_self 446 446; futex_waitv 449 449; fchmodat2 452 452
"""

ARCHITECTURES = ("x86_64", "aarch64")
_NUMBERS: dict[str, tuple[str, str]] = {
    name: (x86_64, aarch64) for name, x86_64, aarch64 in (entry.split() for entry in _TABLE.split(";"))
}


def number(name: str, machine: str | None = None) -> int | None:
    """Return the number of a call, or None where the architecture has no such call.

    Parameters
    ----------
    name
        The kernel's name of the call; it must be in the table.
    machine
        `x86_64` or `aarch64`; None is the machine that this runs on.

    Raises
    ------
    LookupError
        The table does not have the call or the architecture.

    Examples
    --------
    >>> number("openat", "x86_64"), number("openat", "aarch64"), number("open", "aarch64")
    (257, 56, None)

    """
    try:
        column = ARCHITECTURES.index(machine or os.uname().machine)
    except ValueError as error:
        raise LookupError(f"no system call numbers for {machine or os.uname().machine}") from error
    digits = _NUMBERS[name][column]
    return None if digits == "-" else int(digits)


_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long  # no argtypes: each converted argument costs as much as a kernel entry


def call(number: int | None, *arguments: int | ctypes.c_void_p) -> int:
    """Make a system call; an address is passed as the `c_void_p` that `pointer_to` returns.

    What is not passed holds chance: pass every argument that the call reads, zeros too.

    Raises
    ------
    OSError
        The kernel refused, or this architecture has no such call.

    """
    result: int = _syscall(-1 if number is None else number, *arguments)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def pointer_to(buffer: ctypes.Array[ctypes.c_char] | ctypes.c_void_p) -> ctypes.c_void_p:
    """Return the address of a buffer, which the caller keeps alive."""
    return ctypes.c_void_p(ctypes.addressof(buffer))
