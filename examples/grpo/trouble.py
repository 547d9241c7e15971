"""What goes wrong in life, put around a reward: some rollouts take long, and some are never judged.

Who is struck is drawn from a seed and a rollout's number, never from what it says: two runs of one seed meet
the same trouble, whatever their policies write.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from typing import Any

from steelyard import Context, Rollout, Scored
from steelyard.errors import SandboxError


@dataclass
class Troubled:
    """A reward that hands on everything of another, and has trouble on top.

    Parameters
    ----------
    inner
        The reward that judges: `tests`.
    seed
        Of who is struck.
    failing
        The share of rollouts for which no sandbox can be had.
    laundered
        Whether such a failure is given the number 0, as if the program were wrong. Steelyard never does that:
        it leaves the rollout unscored.
    median_s, spread
        How long a rollout waits besides: log-normal, its median and the standard deviation of its logarithm.
    longest_s
        No wait is longer.
    """

    inner: Any
    seed: int
    failing: float = 0.05
    laundered: bool = False
    median_s: float = 0.0
    spread: float = 1.0
    longest_s: float = 2.0
    truth: dict[int, float] = field(default_factory=dict)
    """What each rollout would have been given, by its number: for the plots alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def identity(self) -> str:
        """Another reward for every kind of trouble."""
        became = "0" if self.laundered else "unscored"
        waits = f"{self.median_s:g} s, spread {self.spread:g}"
        return f"{self.inner.identity}, trouble {self.seed}: {self.failing:.1%} {became}, waits {waits}"

    def struck(self, ordinal: int) -> tuple[bool, float]:
        """Whether this rollout's judging fails, and the seconds that it takes besides."""
        chance = random.Random(f"{self.seed}, {ordinal}")
        fails = chance.random() < self.failing
        wait_s = self.median_s * math.exp(chance.gauss(0.0, self.spread))
        return fails, min(wait_s, self.longest_s)

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:
        """Judge, unless it is struck."""
        fails, wait_s = self.struck(rollout.ordinal)
        scored = await self.inner(rollout, context)
        self.truth[rollout.ordinal] = scored.value
        await asyncio.sleep(wait_s)
        if not fails:
            return scored
        if self.laundered:
            return Scored(self.inner.floor, "wrong_answer", "the sandbox could not be started")
        raise SandboxError("sandbox:injected", "the sandbox could not be started")
