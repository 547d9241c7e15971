"""The BPF of a guest, interpreted over all numbers and compared with what the lists say."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.sandbox.guest import syscalls
from steelyard.sandbox.guest.filter import (
    ALLOW,
    ALLOWED,
    AUDIT_ARCHITECTURE,
    CHECKED,
    CONFINING,
    ENOSYS,
    EPERM,
    KILL,
    PRETEND,
    PRETENDED,
    PRETENDED_FCNTL,
    compile_guest_filter,
    compile_server_filter,
)

MACHINES = syscalls.ARCHITECTURES
PROGRAMS = {machine: (compile_server_filter(machine), compile_guest_filter(machine)) for machine in MACHINES}
FORBIDDEN = {  # x86_64, aarch64
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "clock_settime": (227, 112),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vmsplice": (278, 75),
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "pidfd_getfd": (438, 438),
    "seccomp": (317, 277),
    "clone3": (435, 435),
    "capset": (126, 91),
    "setuid": (105, 146),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "mincore": (27, 232),
}


def interpret(program: bytes, machine: str, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Run classic BPF as the kernel does, on one `struct seccomp_data`."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, AUDIT_ARCHITECTURE[machine], 0, *padded)
    accumulator = at = 0
    while True:
        code, true, false, operand = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += true if accumulator == operand else false
            case 0x35:
                at += true if accumulator >= operand else false
            case 0x45:
                at += true if accumulator & operand else false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"code {code:#x}")


def answer(machine: str, number: int, *arguments: int) -> int:
    """Return the strictest answer of both filters: the kernel takes the lowest action, read as signed."""
    answers = [interpret(program, machine, number, arguments) for program in PROGRAMS[machine]]
    return min(answers, key=lambda action: action - (1 << 32) if action >> 31 else action)


def numbers(names: Iterable[str], machine: str) -> set[int]:
    return {number for name in names if (number := syscalls.number(name, machine)) is not None}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_gets_what_the_lists_say(machine):
    expected = dict.fromkeys(range(424), EPERM) | dict.fromkeys(range(424, 1200), ENOSYS)
    for names, action in ((ALLOWED, ALLOW), (PRETENDED, PRETEND), (CONFINING, EPERM)):
        expected |= dict.fromkeys(numbers(names, machine), action)
    for number in expected.keys() - numbers(CHECKED, machine):
        assert answer(machine, number) == expected[number], number


@given(number=st.integers(1200, 2**32 - 1), machine=st.sampled_from(MACHINES))
def test_numbers_nobody_gave_out_are_unknown_and_those_of_x32_kill(number, machine):
    assert answer(machine, number) == (KILL if number >= 0x40000000 else ENOSYS)


@given(number=st.integers(0, 2**32 - 1), machine=st.sampled_from(MACHINES))
def test_another_architecture_kills_whatever_it_calls(number, machine):
    (other,) = set(MACHINES) - {machine}
    assert interpret(PROGRAMS[machine][0], other, number) == KILL


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_helps_an_attacker_is_refused(machine, name):
    number = FORBIDDEN[name][MACHINES.index(machine)]
    assert answer(machine, number) in {EPERM, ENOSYS}


@pytest.mark.parametrize("machine", MACHINES)
@given(value=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 60)), data=st.data())
def test_an_argument_decides_by_its_low_half(machine, value, data):
    name = data.draw(st.sampled_from(sorted(CHECKED)))
    argument, comparison, values = CHECKED[name]
    value = data.draw(st.sampled_from([value, *values, values[0] | 1 << 40]))
    low = value & 0xFFFFFFFF
    allowed = {
        "one of": low in values,
        "none of": low not in values,
        "none of the bits": not low & values[0],
    }[comparison]
    arguments = [0] * argument + [value]
    expected = ALLOW if allowed else EPERM
    if name == "fcntl" and low in PRETENDED_FCNTL:
        expected = PRETEND
    assert answer(machine, syscalls.number(name, machine), *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_locks_are_pretended_and_leases_and_notices_refused(machine):
    number = syscalls.number("fcntl", machine)
    assert answer(machine, syscalls.number("flock", machine), 3, fcntl.LOCK_EX) == PRETEND
    for command in (fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW):
        assert answer(machine, number, 3, command) == PRETEND
    for command in (fcntl.F_SETLEASE, fcntl.F_GETLEASE, fcntl.F_NOTIFY):
        assert answer(machine, number, 3, command) == EPERM
    for command in (fcntl.F_DUPFD_CLOEXEC, fcntl.F_SETFL, fcntl.F_GETLK, fcntl.F_SETPIPE_SZ):
        assert answer(machine, number, 3, command) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_the_server_may_still_confine_a_guest(machine):
    server, _guest = PROGRAMS[machine]
    for name in (*CONFINING, "clone", "prctl"):
        assert interpret(server, machine, syscalls.number(name, machine), (0x7E000011,)) == ALLOW


def test_the_two_architectures_share_their_numbers_from_424_on():
    names = {name for name in (*ALLOWED, *CONFINING) if (syscalls.number(name, "x86_64") or 0) >= 424}
    assert names
    for name in names:
        assert syscalls.number(name, "x86_64") == syscalls.number(name, "aarch64")


@pytest.mark.parametrize("machine", MACHINES)
def test_no_two_calls_have_one_number(machine):
    names = {*ALLOWED, *PRETENDED, *CONFINING, *CHECKED}
    existing = {name for name in names if syscalls.number(name, machine) is not None}
    assert len(existing) == len(numbers(existing, machine))


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(LookupError, match="riscv64"):
        compile_server_filter("riscv64")
