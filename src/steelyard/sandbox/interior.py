"""What a slot shows of this machine: the system's and Python's folders, a small /etc, and a still /proc.

Shared by whoever makes slots on this machine's own file system. Everything that is made for it lies in one
folder of ours.
"""

from __future__ import annotations

import py_compile
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from steelyard.sandbox import guest
from steelyard.sandbox.machine import Tree, runtime_tree

USER: Final = 1_000
"""Who a candidate is inside."""

ETC: Final[Mapping[str, str]] = {
    "passwd": f"user:x:{USER}:{USER}:user:/box/home:/bin/sh\n",
    "group": f"user:x:{USER}:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost\n",
}
_TAKEN: Final = ("/tmp", "/dev", "/proc", "/box", "/etc", "/fake-proc", "/steelyard")  # noqa: S108
SYSTEM: Final = ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
GUEST: Final = "/steelyard/guest"


class Interior:
    """Furnishes a folder, and knows where things are inside.

    Parameters
    ----------
    folder
        Where to put what is shown.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trees = [tree for tree in runtime_tree() if str(tree.target) != "/usr"]
        self.shown = [_shown(tree, number) for number, tree in enumerate(self.trees)]
        self.python = self.inside(str(Path(sys.executable).resolve()))
        packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        self.packages = [self.inside(package) for package in packages]

    def furnish(self) -> None:
        """Write what slots are shown of /etc and /proc, and the guest's own modules."""
        shutil.copytree(
            Path(guest.__file__).parent, self.folder / "guest", ignore=shutil.ignore_patterns("__pycache__")
        )
        for module in (self.folder / "guest").glob("*.py"):
            py_compile.compile(str(module), dfile=f"{GUEST}/{module.name}", doraise=True)
        for name, text in ETC.items():
            written(self.folder / "etc" / name, text)
        for name in ("cpuinfo", "meminfo", "version", "loadavg", "uptime", "stat"):
            real = Path("/proc") / name
            written(self.folder / "proc" / name, real.read_text(errors="replace") if real.exists() else "")

    def inside(self, path: str) -> str:
        """Where a path of this Python is inside."""
        for tree, shown in zip(self.trees, self.shown, strict=True):
            for outside in (tree.target, tree.source):
                if Path(path).is_relative_to(outside):
                    return str(shown / Path(path).relative_to(outside))
        return path


def _shown(tree: Tree, number: int) -> Path:
    """Where a tree is inside: at its own place, except where a guest has something else."""
    hidden = any(tree.target.is_relative_to(place) for place in _TAKEN)
    return Path(f"/steelyard/tree{number}") if hidden else tree.target


def javas() -> list[str]:
    """Where below /etc Debian keeps the settings of a JVM."""
    return [folder.name for folder in Path("/etc").glob("java-*")]


def written(path: Path, text: str) -> None:
    """Write a file, and its folder where there is none."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
