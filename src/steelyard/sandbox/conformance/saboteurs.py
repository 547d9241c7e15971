"""Programs that would make their siblings fail: in a group with seven honest ones none changes a verdict.

In an all-correct group a member whose siblings fail goes from advantage 0 to +2.65, so what they do to
others is the point; whether they themselves pass is not. The last two of the file are a pair: what the
one leaves, the other must not find, wherever they run.
"""

from __future__ import annotations

from typing import Final

from steelyard.sandbox.conformance.specimen import Specimen, read

SABOTEURS: Final[list[Specimen]] = read("saboteurs.txt")
SABOTEURS[-1] = SABOTEURS[-1]._replace(after=SABOTEURS[-2])
