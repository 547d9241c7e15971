"""What a run that was killed left behind is removed by the next one: its cgroups and its folders.

`kill -9` of a host leaves no process (all are asked to die with it, and are ended with their namespace) but
cgroups and temporary folders. They carry their owner's name (`processes.Owner`); those of an owner that has
certainly ended go, those of the living, or of another process namespace, are never touched.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from steelyard.sandbox.cgroups import Places, remove
from steelyard.sandbox.processes import owner

PLACES = "cgroups"
"""The file in an owner's folder that lists where it makes cgroups."""


def sweep(places: Places, folder: Path | None = None) -> list[Path]:
    """Remove what dead owners left; return what is gone.

    Parameters
    ----------
    places
        Where cgroups are made; what still runs in those of the dead is killed first.
    folder
        Where temporary folders are made; the system's, if none is said.
    """
    swept = []
    for one in dict.fromkeys(places.folders.values()):
        swept += [left for left in _of_the_dead(one) if remove((left,), within_s=0.2)]
    for left in _of_the_dead(Path(tempfile.gettempdir()) if folder is None else folder):
        for place in _places_of(left):  # its owner may have lived in another cgroup than we
            swept += [one for one in _of_the_dead(place) if remove((one,), within_s=0.2)]
        shutil.rmtree(left, ignore_errors=True)  # of another user's we can remove nothing
        if not left.exists():
            swept.append(left)
    return swept


def _places_of(folder: Path) -> list[Path]:
    try:
        return [Path(line) for line in (folder / PLACES).read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return []


def _of_the_dead(folder: Path) -> list[Path]:
    try:
        named = [(left, owner(left.name)) for left in folder.glob("steelyard-*")]
        return sorted(
            left
            for left, by in named
            if by is not None and by.is_dead() and left.is_dir() and not left.is_symlink()
        )
    except OSError:
        return []
