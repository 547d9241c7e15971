"""The numbers that a price without a record is computed from, each refused by its option if it cannot be.

`knee_at` is no option of `steelyard price`, so it is refused by its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.pricing.barrier import expected_wait, knee, step_hit
from steelyard.pricing.corruption import corrupted_groups
from steelyard.pricing.money import Prices

KNEE: Final = 0.92
"""The share of hit steps at which the tail's knee is put: a timeout rate of 2 % at 128 completions."""

HALF: Final = 0.5
"""The share of hit steps of a rate worth asking for: half of the steps are spared then."""

AGREE: Final = 0.01
"""Busy time and the sum of its halves may differ by this share: they come from different logs."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was given of a step.

    Parameters
    ----------
    busy_s, generation_s, training_s
        Generation plus training, and its halves where they are known: `groups` needs them. `halves` makes
        the third of any two.
    timeout_s, attempts
        Where a reward is cut, and how often one that was cut is tried in all.
    median_s
        What a reward takes that is not cut.
    rate
        Share of rewards that are cut, on every attempt.
    batch, group
        Completions per step and per prompt.
    rho
        Correlation of timeouts within a group.
    pass_rate
        Share of the cut ones that would have passed; `None` gives the upper bound of corrupted groups.
    infrastructure
        Share of the cut ones whose slowness is the attempt's; without it `hedge` has bounds only.
    spawn_s
        The part of the median that starting a sandbox takes; without it there is no `pool`.
    knee_at
        The share of hit steps at which the knee is put.
    prices
        Dollars per hour; without them no money. A pool without a size has one sandbox per completion.

    Raises
    ------
    RefusedError
        A number that cannot be.
    """

    busy_s: Seconds
    generation_s: Seconds | None
    training_s: Seconds | None
    timeout_s: Seconds
    median_s: Seconds
    rate: float
    batch: int
    group: int
    rho: float
    pass_rate: float | None
    attempts: int
    infrastructure: float | None
    spawn_s: Seconds | None
    knee_at: float
    prices: Prices | None

    def __post_init__(self) -> None:
        for option, value, high, what in (
            ("--median", self.median_s, np.inf, "seconds"),
            ("--timeout", self.timeout_s, np.inf, "seconds"),
            ("--rate", self.rate, 1, "a share of rewards, 0.01 for 1 %"),
            ("--rho", self.rho, 1, "a correlation, 0 for none"),
            ("--pass-rate", self.pass_rate, 1, "a share of rollouts"),
            ("--infrastructure", self.infrastructure, 1, "a share of the rewards that are cut"),
            ("--spawn", self.spawn_s, np.inf, "seconds"),
            ("knee_at", self.knee_at, 1, "a share of steps"),
        ):
            within(option, value, high, what)
        for option, count in (
            ("--batch", self.batch),
            ("--group", self.group),
            ("--attempts", self.attempts),
        ):
            if not (1 <= count < np.inf and count == int(count)):
                raise RefusedError(
                    f"must be a whole number from 1 on, is {count:g}", where=option, remedy="give a count"
                )
        if self.timeout_s < self.median_s:
            raise RefusedError(
                f"is {self.timeout_s:g} s, below the median of {self.median_s:g} s: most would be cut",
                where="--timeout",
                remedy="give the timeout that is set, and as --median that of the rewards that finish",
            )
        if (self.spawn_s or 0.0) > self.median_s:
            raise RefusedError(
                f"is {self.spawn_s:g} s, more than the median of {self.median_s:g} s, which it is a part of",
                where="--spawn",
                remedy="give what starting a sandbox takes of a median reward",
            )
        if not self.busy_s + self.median_s > 0:
            raise RefusedError(
                "is 0 s, and rewards take no time either: there is no step to price",
                where="--busy",
                remedy="give seconds of generation plus training",
            )
        if self.batch % self.group:
            raise RefusedError(
                f"is {self.batch}, no multiple of the group of {self.group}",
                where="--batch",
                remedy="give completions per step: prompts times --group",
            )

    @property
    def barrier_s(self) -> Seconds:
        """What a hit step waits: retries multiply the constant (15 s tried 4 times is a 60 s barrier)."""
        return self.timeout_s * self.attempts

    def hit(self, rate: float | None = None) -> float:
        """P(a step contains a timeout), also at another rate."""
        taken = self.rate if rate is None else rate
        return step_hit(taken, self.batch, group=self.group, rho=self.rho)

    def wait_s(self, rate: float | None = None, barrier_s: Seconds | None = None) -> Seconds:
        """Mean wait of a step, also at another rate or constant."""
        constant = self.barrier_s if barrier_s is None else barrier_s
        return expected_wait(self.median_s, constant, self.hit(rate))

    def group_hit(self) -> float:
        """Share of groups with a timeout."""
        return step_hit(self.rate, self.group, group=self.group, rho=self.rho)

    def corrupted(self) -> float:
        """Share of groups with a corrupted advantage where failures are scored; at most, if no pass rate."""
        passes = 1.0 if self.pass_rate is None else self.pass_rate
        return corrupted_groups(self.rate, self.group, pass_rate=passes, rho=self.rho)

    def knee(self, share: float | None = None) -> float:
        """The rate at which a share of steps is hit."""
        return knee(self.knee_at if share is None else share, self.batch, group=self.group, rho=self.rho)


def halves(
    busy_s: Seconds | None, generation_s: Seconds | None, training_s: Seconds | None
) -> tuple[Seconds, Seconds | None, Seconds | None]:
    """Busy time, generation and training: of the three, two give the third.

    Raises
    ------
    RefusedError
        Too few of them, or such that contradict one another.

    Examples
    --------
    >>> halves(None, 12.5, 12.0), halves(24.5, None, 12.0), halves(24.5, None, None)
    ((24.5, 12.5, 12.0), (24.5, 12.5, 12.0), (24.5, None, None))
    """
    for option, value in (("--busy", busy_s), ("--generation", generation_s), ("--training", training_s)):
        within(option, value, np.inf, "seconds")
    parts = [part for part in (generation_s, training_s) if part is not None]
    known = sum(parts)
    if busy_s is None:
        if len(parts) < 2:
            raise RefusedError(
                f"is not known: {f'one half of it is {known:g} s' if parts else 'nor are its halves'}",
                where="--busy",
                remedy="give --busy SECONDS, or --generation and --training",
            )
        return known, generation_s, training_s
    if known > busy_s * (1 + AGREE) or (len(parts) == 2 and known < busy_s * (1 - AGREE)):
        raise RefusedError(
            f"is {busy_s:g} s, and its halves {' and '.join(f'{part:g}' for part in parts)} s",
            where="--busy",
            remedy="give generation plus training, or leave it out and give both",
        )
    if len(parts) == 1:
        rest = max(busy_s - known, 0.0)
        return (busy_s, rest, training_s) if generation_s is None else (busy_s, generation_s, rest)
    return busy_s, generation_s, training_s


def within(option: str, value: float | None, high: float, what: str) -> None:
    """Refuse a number that is not finite, negative or above `high`.

    Raises
    ------
    RefusedError
        With the option, the value and what to give.
    """
    if value is not None and not (0 <= value <= high and value < np.inf):
        span = f"from 0 to {high:g}" if high < np.inf else "0 or more"
        raise RefusedError(f"must be {span}, is {value:g}", where=option, remedy=f"give {what}")


def percent(share: float) -> str:
    """A share for people, in three digits.

    Examples
    --------
    >>> percent(0.0195), percent(0.5), percent(0), percent(6e-9)
    ('1.95 %', '50 %', '0 %', 'under 0.001 %')
    """
    return "under 0.001 %" if 0 < share < 1e-5 else f"{100 * share:.3g} %"
