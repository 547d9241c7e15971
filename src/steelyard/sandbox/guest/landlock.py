"""Landlock: a second wall around a guest's files, should the mounts have a hole.

A guest may read and execute all that its mounts show, write beneath `/box`, and write to the few devices in
`/dev`, but make nothing there. Where the kernel can (ABI 4, Linux 6.7) it can use no TCP, and (ABI 6, Linux
6.12) reach no abstract UNIX socket and signal no process outside itself. Abstract sockets matter: their
names belong to the network namespace, which all guests of a slot share, and no file permission guards them.

A kernel without Landlock gets no second wall, which is no refusal: the mounts and the seccomp filter stand.
Below ABI 6 every guest gets a network namespace of its own instead, which costs about as much as all the
rest.
"""

from __future__ import annotations

import ctypes
import os
import struct

from . import syscalls

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1, 2, 4, 8
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
_RIGHTS_BY_ABI = (0, 13, 14, 15, 15, 16)  # how many of the rights, counted from EXECUTE, an ABI knows
_TCP = 3  # bind and connect
_SCOPES = 3  # abstract UNIX sockets and signals
FIRST_TO_SCOPE = 6
_GET_VERSION = 1
_RULE_PATH_BENEATH = 1
_DEVICES = "/dev"
_DESCRIPTOR, _AT_DESCRIPTOR = struct.Struct("<i"), 8  # in a rule


def abi() -> int:
    """Return the ABI version of the kernel's Landlock, 0 where it is missing or switched off."""
    try:
        return syscalls.call(syscalls.number("landlock_create_ruleset"), 0, 0, _GET_VERSION)
    except OSError:
        return 0


class Landlock:
    """What can be made ready before the guest exists: the attributes, and descriptors of the fixed paths.

    The ruleset itself is made in the guest. A ruleset is one kernel object however often it is inherited,
    and the rule for a guest's own `/box` would stay in it for all that come later.

    Parameters
    ----------
    version
        The ABI that the kernel has; at least 1.

    """

    def __init__(self, version: int) -> None:
        known = (1 << _RIGHTS_BY_ABI[min(version, len(_RIGHTS_BY_ABI) - 1)]) - 1
        attributes = struct.pack(
            "<QQQ", known, _TCP if version >= 4 else 0, _SCOPES if version >= FIRST_TO_SCOPE else 0
        )
        size = 24 if version >= FIRST_TO_SCOPE else 16 if version >= 4 else 8
        self._attributes = ctypes.create_string_buffer(attributes[:size], size)
        self._at, self._size = syscalls.pointer_to(self._attributes), size
        self._of_writable = _rule(-1, known)
        self._rules = [_rule(os.open("/", os.O_PATH | os.O_CLOEXEC), EXECUTE | READ_FILE | READ_DIRECTORY)]
        on_device = known & (WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE)
        self._rules.append(_rule(os.open(_DEVICES, os.O_PATH | os.O_CLOEXEC), on_device))
        self._rules.append(self._of_writable)
        self._rules_at = [syscalls.pointer_to(rule) for rule in self._rules]

    def restrict(self, *writable: str) -> None:
        """Confine this process, for good: it writes beneath these folders and to devices only."""
        ruleset = syscalls.call(_CREATE, self._at, self._size, 0)
        for rule in self._rules_at[:-1]:
            syscalls.call(_ADD, ruleset, _RULE_PATH_BENEATH, rule, 0)
        for name in writable:
            folder = os.open(name, os.O_PATH | os.O_CLOEXEC)
            _DESCRIPTOR.pack_into(self._of_writable, _AT_DESCRIPTOR, folder)
            syscalls.call(_ADD, ruleset, _RULE_PATH_BENEATH, self._rules_at[-1], 0)
            os.close(folder)
        syscalls.call(_RESTRICT, ruleset, 0)
        os.close(ruleset)


_CREATE, _ADD, _RESTRICT = (
    syscalls.number(f"landlock_{name}") for name in ("create_ruleset", "add_rule", "restrict_self")
)


def _rule(descriptor: int, rights: int) -> ctypes.Array[ctypes.c_char]:
    """Return a `struct landlock_path_beneath_attr`."""
    return ctypes.create_string_buffer(struct.pack("<Qi", rights, descriptor), 12)
