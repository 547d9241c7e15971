"""What a run that was killed left behind is removed by the next one: its cgroups and its folders.

`kill -9` of a host leaves no process (all are asked to die with it, and are ended with their namespace) but
cgroups and temporary folders. They carry their owner's name (`processes.Owner`); those of an owner that has
certainly ended go, those of the living, or of another process namespace, are never touched.

Whoever may write to the folder for temporary files can give a folder any name and put anything into it, and
what is listed in a cgroup is killed. So only folders that our own user made are believed, and a cgroup is
what lies in a file system of cgroups.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from steelyard.sandbox.cgroups import Places, remove
from steelyard.sandbox.processes import owner

PLACES = "cgroups"
"""The file in an owner's folder that lists where it makes cgroups."""

_MAGIC: Final = frozenset({0x27E0EB, 0x63677270})  # of file systems of cgroups, version 1 and 2


def sweep(places: Places, folder: Path | None = None) -> list[Path]:
    """Remove what dead owners of our own user left; return what is gone.

    Parameters
    ----------
    places
        Where cgroups are made; what still runs in those of the dead is killed first.
    folder
        Where temporary folders are made; the system's, if none is said.
    """
    swept = []
    for place in dict.fromkeys(places.folders.values()):
        swept += _swept(place)
    for left in _of_the_dead(Path(tempfile.gettempdir()) if folder is None else folder):
        for place in _places_of(left):  # its owner may have lived in another cgroup than we
            swept += _swept(place)
        shutil.rmtree(left, ignore_errors=True)
        if not left.exists():
            swept.append(left)
    return swept


def _swept(place: Path) -> list[Path]:
    """Remove the cgroups that the dead left in a place."""
    return [left for left in _of_the_dead(place) if holds_cgroups(left) and remove((left,), within_s=0.2)]


def holds_cgroups(folder: Path) -> bool:
    """Whether a folder is of the kernel's own making: a cgroup, and no folder that looks like one."""
    told = ctypes.create_string_buffer(512)  # a `struct statfs` is 120 bytes; a long, its type, comes first
    if ctypes.CDLL(None).statfs(os.fsencode(folder), told) != 0:
        return False
    return ctypes.c_long.from_buffer(told).value in _MAGIC


def _places_of(folder: Path) -> list[Path]:
    try:
        return [Path(line) for line in (folder / PLACES).read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return []


def _of_the_dead(folder: Path) -> list[Path]:
    try:
        named = [(left, owner(left.name)) for left in folder.glob("steelyard-*")]
        return sorted(left for left, by in named if by is not None and by.is_dead() and _ours(left))
    except OSError:
        return []


def _ours(folder: Path) -> bool:
    """Whether our own user made it, and it is a folder and no link to one."""
    try:
        seen = folder.lstat()
    except OSError:  # somebody else has swept it
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
