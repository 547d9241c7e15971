"""The price of a step that is only planned: generation and training by the roofline, rewards by what is told.

`memory` says how long a step keeps its accelerators busy, `pricing` what a reward costs it, and neither knows
the other: they meet here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.memory.steps import StepTime
from steelyard.pricing.money import Prices
from steelyard.pricing.numbers import price_numbers
from steelyard.pricing.values import Estimate, Price

_UNCOUNTED: Final = (
    "The reward is not counted: nothing is known of it. Give its median, and its timeout and rate."
)
_UNCUT: Final = "No reward is taken to be cut: give its timeout and rate."


def planned_price(
    step: StepTime,
    *,
    batch: int,
    group: int,
    median_s: Seconds | None = None,
    timeout_s: Seconds | None = None,
    rate: float | None = None,
    prices: Prices | None = None,
) -> Price:
    """Say what a planned step takes, and how much of it the accelerators would wait for rewards.

    Parameters
    ----------
    step
        Of `memory.steps.step_time`.
    batch, group
        Completions of a step, and of one prompt.
    median_s
        What a reward takes. Without it the reward is not counted: `wait`, `step` and `idle` are None.
    timeout_s, rate
        Where rewards are cut, and the share of them that is: both or neither. Without them no reward is cut.
    prices
        Dollars per hour.

    Raises
    ------
    RefusedError
        Numbers that cannot be, or of which one says nothing without another.

    Notes
    -----
    `step` = generation + exposed wait + training. What rewards on arrival would save is the remedy `groups`.

    Examples
    --------
    >>> step = StepTime(generation_s=12.5, training_s=12.0, low=18.0, high=40.0, says=())
    >>> price = planned_price(step, batch=128, group=8, median_s=2, timeout_s=30, rate=0.01)
    >>> f"{price.step.value:.1f} s, {price.idle.value:.1%} idle"
    '46.8 s, 47.6% idle'
    >>> planned_price(step, batch=128, group=8).notes[0]
    'The reward is not counted: nothing is known of it. Give its median, and its timeout and rate.'
    """
    _refuse_half(median_s, timeout_s, rate)
    basis = f"planned: {step.low:.3g} to {step.high:.3g} s by the shares assumed"
    busy = Estimate(step.busy_s, "s", basis=basis)
    said = [f"Busy time: {says}." for says in step.says]
    if median_s is None:
        return Price("the plan", basis, batch, group, measured=False, busy=busy, notes=[_UNCOUNTED, *said])
    price = price_numbers(
        generation_s=step.generation_s, training_s=step.training_s, batch=batch, group=group, prices=prices,
        median_s=median_s, timeout_s=median_s if timeout_s is None else timeout_s, rate=rate or 0.0,
    )  # fmt: skip
    notes = [*price.notes, *([_UNCUT] if timeout_s is None else []), *said]
    return replace(price, source="the plan", basis=basis, busy=busy, notes=notes)


def _refuse_half(median_s: Seconds | None, timeout_s: Seconds | None, rate: float | None) -> None:
    told = {"median": median_s, "timeout": timeout_s, "rate": rate}
    lacks = [name for name, value in told.items() if value is None]
    if lacks not in ([], ["timeout", "rate"], [*told]):
        raise RefusedError(
            f"of the rewards the {', '.join(lacks)} is not known, and the rest says nothing without it",
            where="rewards",
            remedy="give median, timeout and rate; or the median alone; or none",
        )
