"""Programs that would use up, break or leave the place they run in: each is contained, its limit named.

Those of reaches.txt only reach for what is not theirs and are right otherwise: where the reach succeeds
they raise `Escaped`. What any of them tries to leave behind has MARK in its name, so that a test can look
for it on the host.
"""

from programs.specimen import MARK, SECRET, Specimen, read

RIGHT = "\ndef squares(xs):\n    return [x * x for x in xs]\n"
BEFORE = f"""\
import ctypes, os, platform, signal, socket, subprocess, sys, time

class Escaped(BaseException):
    pass

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
MARK, SECRET = {MARK!r}, {SECRET!r}

def reach():
"""

REACHES: list[Specimen] = read("reaches.txt", before=BEFORE, indent="    ", after="\nreach()\n" + RIGHT)
HOSTILE: list[Specimen] = [
    *read("hostile.txt"),
    Specimen("a source of 4 MB", RIGHT + "#" * (4 << 20) + "\n", frozenset({"source"})),
    *REACHES,
]
SLOW = frozenset({"naps for ever"})
"""Ends only with the wall, thrice, unless something else notices it."""
