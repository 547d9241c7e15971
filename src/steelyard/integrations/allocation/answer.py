"""An answer: what the model is, what its step takes, compared with the plan's estimate."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from steelyard.errors import RefusedError, describe
from steelyard.integrations.allocation import gpu, meta, points, tracked
from steelyard.integrations.allocation.asked import PROTOCOL, Asked, alone, not_run
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import Plan
from steelyard.memory.values import Card, Phase


def answered(asked: Asked, counting: gpu.Meter | None) -> dict[str, Any]:
    """Check a plan; `steelyard.integrations.allocation` has the answer's form.

    Parameters
    ----------
    asked
        What was asked.
    counting
        Of the GPU that may be used; None: there is none.

    Raises
    ------
    RefusedError
        The model cannot be built, or the file of points cannot be written.
    """
    if asked.points is not None:
        points.append(asked.points, ())  # before the minutes of a step: is it one that can be written?
    plan, changes = alone(asked.plan)
    try:
        model = meta.compared(asked, plan)
    except Exception as error:
        raise RefusedError(
            f"transformers {version('transformers')} cannot build it: {describe(error)}",
            where=f"config of {plan.model.name}",
            remedy="check the file, or install a transformers that knows this model",
        ) from error
    planned = _planned(plan, asked.card)
    found = _gpu(asked, plan, planned, counting)
    return {
        "protocol": PROTOCOL,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "model": model,
        "changes": list(changes),
        "tracked": _tracked(asked, plan, planned),
        "gpu": found,
        "stored": _stored(asked, plan, found),
    }


def _planned(plan: Plan, card: Card) -> Phase:
    """The phase of the estimate that the step belongs to; an inference's is its only one."""
    phases = estimate(plan, card).phases
    return next((phase for phase in phases if phase.name == "training"), phases[0])


def _tracked(asked: Asked, plan: Plan, planned: Phase) -> dict[str, Any]:
    answer: dict[str, Any] = {"label": tracked.LABEL, "allocated": None, "phase": None, "residents": None}
    if (why := not_run(plan, bitsandbytes=False)) is not None:
        return {**answer, "outcome": "not run", "reason": why}
    try:
        found = tracked.track(asked.config, plan)
    except Exception as error:  # noqa: BLE001 - a model's own code: what it asks of fake tensors is its matter
        return {**answer, "outcome": "failed", "reason": describe(error)}
    return {
        **answer,
        "outcome": "measured",
        "reason": None,
        "allocated": _against(planned.allocated, found.bytes),
        "phase": found.phase,
        "residents": dict(found.residents),
    }


def _gpu(asked: Asked, plan: Plan, planned: Phase, counting: gpu.Meter | None) -> dict[str, Any]:
    answer: dict[str, Any] = dict.fromkeys(("device", "allocated", "reserved", "context", "phase"))
    why = not_run(plan, bitsandbytes=find_spec("bitsandbytes") is not None)
    if counting is None or not asked.gpu or why is not None:
        none = "no GPU is here" if counting is None else "no GPU was to be used"
        return {**answer, "outcome": "not run", "reason": why if asked.gpu and counting else none}
    answer["device"] = counting.name
    try:
        found = gpu.measure(asked.config, plan, counting)
    except Exception as error:  # noqa: BLE001 - a model's own code, and CUDA's
        return {**answer, "outcome": "failed", "reason": describe(error)}
    return {
        **answer,
        "outcome": "measured" if found.phase is None else "out of memory",
        "reason": found.reason,
        "allocated": _against(planned.allocated, found.allocated, whole=found.phase is None),
        "reserved": _against(planned.reserved, found.reserved, whole=found.phase is None),
        "context": found.beyond,
        "phase": found.phase,
    }


def _stored(asked: Asked, plan: Plan, found: dict[str, Any]) -> dict[str, Any] | None:
    """Keep what was measured; a step that ran out of memory has no peak."""
    if asked.points is None or found["outcome"] != "measured":
        return None
    rows = points.rows_of(
        plan,
        device=found["device"],
        allocated=found["allocated"]["measured"],
        reserved=found["reserved"]["measured"],
        source=f"steelyard fit --verify, torch {version('torch')}, transformers {version('transformers')}",
        note=_note(plan),
    )
    points.append(asked.points, rows)
    return {"file": str(asked.points), "rows": len(rows)}


def _note(plan: Plan) -> str:
    """What no column says."""
    said = ["random weights", "gradients accumulate"]
    if plan.head_tokens != "all" and plan.task != "inference":
        said.append(f"logits of {plan.logit_tokens:,} of {plan.step_tokens:,} tokens")
    if plan.lora is not None and plan.lora.targets is not None:
        said.append(f"adapters on {' '.join(plan.lora.targets)}")
    return "; ".join(said)


def _against(planned: float, measured: int, *, whole: bool = True) -> dict[str, Any]:
    """What memory ran out at is no peak, and no estimate is wrong by it."""
    error = planned / measured - 1 if measured and whole else None
    return {"planned": round(planned), "measured": measured, "error": error}
