"""Seconds as dollars: what a step costs, and which part of the bill is spent while the accelerator waits.

A bill has two halves: accelerators, and the sandboxes that rewards run in. Both are paid by the hour,
whatever they do. *Idle* is the accelerators' half while they wait for rewards; sandboxes are at work then.
No price is known here: they change by the week and by the contract, so each is an argument.

Everything is a multiple of an estimate (the step in seconds, the idle share), so intervals carry over.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.pricing.values import Estimate

HOUR_S: Final = 3600.0


class Prices(NamedTuple):
    """Dollars per hour.

    Parameters
    ----------
    accelerator
        One accelerator.
    accelerators
        How many wait together: all that a step holds.
    sandbox
        One sandbox, or slot of a machine that rewards run on.
    sandboxes
        How many are paid for.
    """

    accelerator: float
    accelerators: float = 1
    sandbox: float = 0.0
    sandboxes: float = 0

    @property
    def waiting(self) -> float:
        """$/h of what waits: the accelerators."""
        return self.accelerator * self.accelerators

    @property
    def per_hour(self) -> float:
        """$/h of everything."""
        return self.waiting + self.sandbox * self.sandboxes


class Pool(NamedTuple):
    """What a pool of warm sandboxes costs, and the most it gives.

    Parameters
    ----------
    per_hour
        $/h of the pool.
    times
        Over $/h of the accelerators it would protect.
    recovers
        The most it takes off a service time: the share that is spawning.
    gives_per_hour
        $/h of accelerators that it frees at most: `saves_s` of every step.
    """

    per_hour: float
    times: float
    recovers: float
    gives_per_hour: float


def bill(prices: Prices, *, step: Estimate, idle: Estimate, batch: float) -> dict[str, Estimate]:
    """What a step costs, by name.

    Parameters
    ----------
    prices
        Per hour.
    step
        Seconds per step.
    idle
        Share of wall time in which the accelerators wait, of a run.
    batch
        Completions per step.

    Returns
    -------
    dict
        `per_hour`, the whole bill ($/h); `per_step` ($); `per_1000`, for a thousand completions ($);
        `idle_share` of the bill; `idle_per_hour` ($/h) and `idle_per_day` ($/day).

    Raises
    ------
    RefusedError
        A price that is negative or no number, or a bill of nothing.

    Examples
    --------
    >>> step, idle = Estimate(46.77, "s"), Estimate(0.476, "share")
    >>> owed = bill(Prices(3.95), step=step, idle=idle, batch=128)
    >>> [f"{name} {estimate.value:.4g} {estimate.unit}" for name, estimate in owed.items()]
    ['per_hour 3.95 $/h', 'per_step 0.05132 $', 'per_1000 0.4009 $', 'idle_share 0.476 share',
     'idle_per_hour 1.88 $/h', 'idle_per_day 45.12 $/day']
    """
    for name, price in zip(Prices._fields, prices, strict=True):
        if not 0 <= price < float("inf"):
            raise RefusedError(
                f"must be 0 or more, is {price}", where=f"prices.{name}", remedy="give dollars per hour"
            )
    if not prices.per_hour > 0:
        raise RefusedError(
            "every price is 0, so there is no bill", where="prices", remedy="give dollars per hour, or none"
        )
    each = prices.per_hour / HOUR_S
    return {
        "per_hour": Estimate(prices.per_hour, "$/h", basis="the prices given"),
        "per_step": scaled(step, each, "$"),
        **({"per_1000": scaled(step, each * 1000 / batch, "$")} if batch else {}),
        "idle_share": scaled(idle, prices.waiting / prices.per_hour, "share"),
        "idle_per_hour": scaled(idle, prices.waiting, "$/h"),
        "idle_per_day": scaled(idle, prices.waiting * 24, "$/day"),
    }


def pool(prices: Prices, *, spawn_s: Seconds, service_s: Seconds, saves_s: Seconds, step_s: Seconds) -> Pool:
    """What a warm pool costs and gives at most.

    Parameters
    ----------
    prices
        Of the accelerators, and of a pool of `sandboxes`.
    spawn_s, service_s
        The part of a service time that a pool takes away, and all of it.
    saves_s, step_s
        What a step would wait less with a perfect pool (at most `spawn_s`: the slowest reward spawns
        once), and what it takes now.

    Examples
    --------
    >>> prices = Prices(3.95, sandbox=12.12 / 128, sandboxes=128)
    >>> warm = pool(prices, spawn_s=0.44, service_s=4.0, saves_s=0.44, step_s=28.5)
    >>> f"${warm.per_hour:.2f}/h {warm.times:.2f}x {warm.recovers:.0%} ${warm.gives_per_hour:.2f}/h"
    '$12.12/h 3.07x 11% $0.06/h'
    """
    owed = prices.sandbox * prices.sandboxes
    return Pool(owed, owed / prices.waiting, spawn_s / service_s, prices.waiting * saves_s / step_s)


def scaled(estimate: Estimate, by: float, unit: str) -> Estimate:
    """An estimate times a number that is known, with its interval."""
    low, high = (None if end is None else end * by for end in (estimate.low, estimate.high))
    return Estimate(estimate.value * by, unit, low, high, estimate.basis)
