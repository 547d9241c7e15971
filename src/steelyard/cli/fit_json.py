"""A fit as one JSON document, whose keys `steelyard.cli.fit` lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steelyard.cli.fit_values import as_json
from steelyard.memory.plain import values_of

if TYPE_CHECKING:
    from steelyard.cli.fit_answer import Answer
    from steelyard.memory.values import Fit, Phase


def as_document(answers: Sequence[Answer]) -> str:
    """Write a plan on its cards.

    Parameters
    ----------
    answers
        Of one plan, for each card.
    """
    plan = answers[0].report.fit.estimate.plan
    return as_json(
        {
            "model": {
                "name": plan.model.name,
                "family": plan.model.family,
                "parameters": plan.model.parameters,
                "active": plan.model.active,
            },
            "plan": values_of(plan),
            "notes": answers[0].report.notes,
            "fits": [_answer(one) for one in answers],
        }
    )


def _answer(one: Answer) -> dict[str, Any]:
    return {
        **_fit(one.report.fit),
        "lints": one.report.lints,
        "decode": one.decode,
        "step": one.step,
        "verified": one.verified,
    }


def _fit(fit: Fit) -> dict[str, Any]:
    estimate, peak = fit.estimate, fit.estimate.peak
    return {
        "card": fit.card,
        "verdict": fit.verdict,
        "why": fit.why,
        "peak": {
            "phase": peak.name,
            "moment": peak.moment,
            "bytes": peak.bytes,
            "low": estimate.low,
            "high": estimate.high,
        },
        "below": estimate.below,
        "above": estimate.above,
        "confidence": estimate.confidence,
        "doubt": estimate.why,
        "phases": [_phase(phase) for phase in estimate.phases],
        "levers": [
            {"name": one.name, "option": one.option, "saves": one.saves, "cost": one.cost}
            for one in sorted(fit.levers, key=lambda one: -one.saves)
        ],
        "together": [one.option for one in fit.together],
        "largest": fit.largest,
        "held": fit.held,
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "moment": phase.moment,
        "bytes": phase.bytes,
        "allocated": phase.allocated,
        "reserved": phase.reserved,
        "residents": sorted(phase.residents, key=lambda one: -one.bytes),
    }
