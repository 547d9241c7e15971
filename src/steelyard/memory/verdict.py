"""The verdict of an estimate on a card."""

from __future__ import annotations

from steelyard.memory import engine
from steelyard.memory.values import GIB, Card, Estimate, Verdict


def judge(found: Estimate, card: Card) -> tuple[Verdict, str]:
    """The verdict, and what decides it."""
    one = found.plan.engine
    if one is not None and engine.held(found.plan, card) == 0:
        return "does not fit", (
            f"the engine's {one.share:.0%} of a card do not hold its weights and one sequence of "
            f"{max(found.plan.tokens, one.context or 0):,} tokens: it does not start"
        )
    peak, size = found.peak, card.bytes / GIB
    said = f"{peak.bytes / GIB:.1f} GiB ({found.low / GIB:.1f} to {found.high / GIB:.1f}) of {size:.1f}"
    where = f"{said} in {peak.name}: {peak.moment}"
    if found.high <= card.bytes:
        return "fits", where
    if peak.bytes <= card.bytes:
        return "tight", where
    return "does not fit", where
