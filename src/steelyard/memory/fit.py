"""Whether a plan fits a card, what helps, and the largest batch, context and model that fit there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from steelyard.errors import RefusedError
from steelyard.memory import catalogue, engine
from steelyard.memory.estimate import estimate
from steelyard.memory.levers import levers, together
from steelyard.memory.plan import Plan
from steelyard.memory.shapes import ModelShape
from steelyard.memory.values import Card, Fit, Largest
from steelyard.memory.verdict import judge

MOST = 2**24
"""Where a search for the largest ends: more tokens or sequences than any pass has."""


def fit(plan: Plan, card: Card) -> Fit:
    """A plan's estimate against a card, with levers and limits.

    Parameters
    ----------
    plan
        What is to run.
    card
        Where.

    Raises
    ------
    RefusedError
        Adapters on matrices that the model has not.
    """
    found = estimate(plan, card)
    verdict, why = judge(found, card)
    return Fit(
        estimate=found,
        card=card,
        verdict=verdict,
        why=why,
        held=engine.held(plan, card),
        levers=levers(found, card),
        together=together(found, card),
        largest=largest(plan, card),
    )


def largest(plan: Plan, card: Card) -> Largest:
    """How far the plan goes before its estimate is more than the card has."""

    def fits(changed: Plan) -> bool:
        return judge(estimate(changed, card), card)[0] != "does not fit"

    def long(tokens: int) -> Plan:
        prompt = min(plan.prompt, tokens - 1)
        longer = replace(plan, prompt=prompt, completion=tokens - prompt)
        return replace(longer, micro_tokens=max(tokens, plan.micro_tokens)) if plan.micro_tokens else longer

    packed = plan.micro_tokens is not None  # a pass then holds whole sequences: the longest, at least
    return Largest(
        micro_batch=None if packed else _most(lambda n: fits(replace(plan, micro_batch=n))),
        micro_tokens=_most(lambda n: fits(replace(plan, micro_tokens=max(n, plan.tokens), micro_batch=n)))
        if packed
        else None,
        context=_most(lambda n: n <= (plan.model.positions or n) and fits(long(n))),
        model=_model(plan, fits),
    )


def _model(plan: Plan, fits: Callable[[Plan], bool]) -> str | None:
    """The largest dense model of the catalogue that fits, of those that are built as today's are."""
    for name, shape in _dense():
        try:
            if fits(replace(plan, model=shape)):
                return name
        except RefusedError:  # its matrices go by other names than those that get adapters
            continue
    return None


@cache
def _dense() -> tuple[tuple[str, ModelShape], ...]:
    """Models to try, the largest first: no mixtures of experts, and none that are built as of old."""
    shapes = [(name, catalogue.shape_of(name)) for name in catalogue.names()]
    dense = [
        (name, shape)
        for name, shape in shapes
        if not shape.routed and all(layer.norm != "layer" for layer in shape.layers)
    ]
    return tuple(sorted(dense, key=lambda pair: -pair[1].parameters))


def _most(fits: Callable[[int], bool]) -> int | None:
    """The largest whole number that fits, where less always fits, too."""
    if not fits(1):
        return None
    low = 1
    while low < MOST and fits(2 * low):
        low *= 2
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
