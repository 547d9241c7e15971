"""What a CPU second is worth: a fixed piece of work, timed inside the slots by its own CPU clock.

The same program takes more CPU seconds on a slower machine, and on any machine whose cores share their
caches and pipelines with others just then. So each slot does the same piece of pure Python when it is first
used and again from time to time, between two guests and beside whatever runs elsewhere. The score is the
median of the last ones, by the modules that the slot has imported: a slot is bound to no core, so one that
was slow a moment ago says little of its next guest alone.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, Protocol

from steelyard.clock import Clock, Seconds

STANDARD_S: Final = 0.004
"""What the piece of work takes where the score is 1."""

EVERY_S: Final = 10.0
"""How long a slot's spin is believed."""

KEPT: Final = 15
"""Spins that the score is the median of."""


class Spinning(Protocol):
    """A slot that can be asked for a spin."""

    spun: Seconds | None
    """When it was asked last."""

    async def spin(self) -> Seconds:
        """CPU seconds that the fixed piece of work took."""


class Calibration:
    """Scores of a boundary's slots: above 1 is slower. Nothing is spun until somebody asks for one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked = False
        self._spins: dict[str, deque[Seconds]] = {}

    def score(self, preload: str) -> float:
        """The score of slots that have imported these modules; 1 before the first of them has spun."""
        self._asked = True
        spins = self._spins.get(preload)
        return median(spins) / STANDARD_S if spins else 1.0

    async def refresh(self, slot: Spinning, preload: str) -> None:
        """Spin in a slot that is about to be used, if that is due.

        Raises
        ------
        SandboxError
            If the slot ends meanwhile.
        """
        now = self._clock.now()
        if not self._asked or (slot.spun is not None and now - slot.spun < EVERY_S):
            return
        slot.spun = now
        spin_s = await slot.spin()
        self._spins.setdefault(preload, deque(maxlen=KEPT)).append(spin_s)
