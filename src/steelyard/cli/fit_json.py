"""A fit as one JSON document, whose keys `steelyard.cli.fit` lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from steelyard.errors import printable

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
            "plan": {one.name: getattr(plan, one.name) for one in fields(plan) if one.name != "model"},
            "notes": answers[0].report.notes,
            "fits": [_answer(one) for one in answers],
        }
    )


def as_json(value: Any) -> str:  # noqa: ANN401 - whatever a fit holds
    """Write values by their fields' names; what is not finite is null, as what is not known."""
    import orjson

    return orjson.dumps(_plain(value), option=orjson.OPT_INDENT_2).decode()


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
        "peak": {
            "phase": peak.name,
            "moment": peak.moment,
            "bytes": peak.bytes,
            "low": estimate.low,
            "high": estimate.high,
        },
        "band": estimate.band,
        "confidence": estimate.confidence,
        "why": estimate.why,
        "phases": [_phase(phase) for phase in estimate.phases],
        "levers": [
            {"name": one.name, "option": one.option, "saves": one.saves, "cost": one.cost}
            for one in sorted(fit.levers, key=lambda one: -one.saves)
        ],
        "largest": fit.largest,
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


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a fit holds
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
