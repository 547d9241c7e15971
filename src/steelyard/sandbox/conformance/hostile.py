"""Programs that would use up, break or leave the place they run in: each is contained, its limit named.

Those of reaches.txt only reach for what is not theirs and are right otherwise: where the reach succeeds
they raise `Escaped`. What any of them tries to leave behind has MARK in its name, so that whoever runs them
can look for it on the host.
"""

from __future__ import annotations

from typing import Final

from steelyard.sandbox.conformance.honest import PLAIN
from steelyard.sandbox.conformance.specimen import BAIT, MARK, SECRET, Specimen, read

_BEFORE: Final = f"""\
import ctypes, os, platform, signal, socket, subprocess, sys, time

class Escaped(BaseException):
    pass

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
MARK, SECRET = {MARK!r}, {SECRET!r}
{BAIT}

def reach():
"""

REACHES: Final[list[Specimen]] = read(
    "reaches.txt", before=_BEFORE, indent="    ", after=f"\nreach()\n\n{PLAIN}"
)
HOSTILE: Final[list[Specimen]] = [*read("hostile.txt"), *REACHES]
SLOW: Final = frozenset({"naps for ever"})
"""Ends only with the wall, and again with the wall, unless something else notices it."""
