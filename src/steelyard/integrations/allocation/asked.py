"""What was asked: a plan and a `config.json`, and which part of that plan one process can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.memory.families import read_config
from steelyard.memory.plain import plan_of
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.values import Card

PROTOCOL: Final = 1
"""Of the documents; a change of meaning counts up."""

_ALONE: Final[Mapping[str, Any]] = {
    "gpus": 1,
    "sharding": "none",
    "tensor_parallel": 1,
    "sequence_parallel": 1,
    "engine": None,
    "reference": False,
    "offload_reference": "none",
}
"""What a step of one process on one GPU has: other GPUs and other models are not its own."""
_UNTRACKED: Final = ("adamw_8bit", "paged_adamw", "paged_adamw_8bit", "adafactor", "muon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request.

    Attributes
    ----------
    plan
        With the shape that `config` has.
    card
        That it is estimated for.
    config
        The parsed `config.json`.
    points
        Where to keep what a GPU says.
    gpu
        Whether one may be used.
    """

    plan: Plan
    card: Card
    config: Mapping[str, Any]
    points: Path | None
    gpu: bool


def read_asked(document: object) -> Asked:
    """Read a request.

    Raises
    ------
    RefusedError
        It is of another protocol, or something in it cannot be.

    Examples
    --------
    >>> read_asked({"protocol": 0})
    Traceback (most recent call last):
    steelyard.errors.RefusedError: request: its protocol is 0, and this speaks 1
      next: install one version of steelyard for both sides
    """
    if not isinstance(document, Mapping):
        raise _refused(f"it is no object but {type(document).__name__}")
    if document.get("protocol") != PROTOCOL:
        raise RefusedError(
            f"its protocol is {document.get('protocol')!r}, and this speaks {PROTOCOL}",
            where="request",
            remedy="install one version of steelyard for both sides",
        )
    config, plan = document.get("config"), document.get("plan", {})
    if not isinstance(config, Mapping) or not isinstance(plan, Mapping):
        raise _refused("`config` and `plan` must be objects")
    device, points = document.get("device", "auto"), document.get("points")
    if device not in ("auto", "none") or not isinstance(points, str | None):
        raise _refused(f"device = {device!r} must be auto or none, and points = {points!r} a path or null")
    shape = read_config(config, name=str(document.get("name", config.get("model_type"))))
    return Asked(
        plan=plan_of(plan, shape, place="request"),
        card=_card(document.get("card")),
        config=config,
        points=None if points is None else Path(points),
        gpu=device == "auto",
    )


def alone(plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The part of a plan that one process on one GPU has, and how it differs, in words.

    Examples
    --------
    >>> from steelyard.memory.catalogue import shape_of
    >>> changed, said = alone(Plan(model=shape_of("Qwen3-0.6B"), gpus=8, sharding="zero3"))
    >>> changed.gpus, said
    (1, ('gpus: 8 -> 1', 'sharding: zero3 -> none', 'engine: colocate -> none'))
    """
    said = tuple(
        f"{name}: {_said(getattr(plan, name))} -> {_said(value)}"
        for name, value in _ALONE.items()
        if getattr(plan, name) != value
    )
    return replace(plan, **_ALONE), said


def not_run(plan: Plan, *, bitsandbytes: bool) -> str | None:
    """Why a plan's step cannot be run; None if it can.

    Parameters
    ----------
    plan
        Of one GPU.
    bitsandbytes
        Whether its optimizers are at hand, which need a GPU.
    """
    told = [
        (plan.precision in ("sharded", "master"), f"precision {plan.precision} needs FSDP or DeepSpeed"),
        (plan.lora is not None and plan.lora.quantized, "a base in 4 bits is not built"),
        (plan.lora is not None and plan.lora.sets > 1, "several sets of adapters are not built"),
        (plan.checkpointing == "offload", "offloaded activations are not run"),
        (
            plan.offload_weights == "host" or plan.offload_optimizer in ("step", "host"),
            "what lies on the host is not run",
        ),
        (plan.fused_kernels, "fused kernels (Liger) are not run"),
        (plan.optimizer in ("adafactor", "muon"), f"optimizer {plan.optimizer} is not run"),
        (
            plan.optimizer in _UNTRACKED and not bitsandbytes,
            f"optimizer {plan.optimizer} needs bitsandbytes and a GPU",
        ),
    ]
    whys = [why for applies, why in told if applies]
    return "; ".join(dict.fromkeys(whys)) or None


def _card(given: object) -> Card:
    try:
        return Card(**given)  # type: ignore[arg-type]  # what is no mapping is refused
    except TypeError as error:
        raise _refused(f"its card cannot be read: {error}") from error


def _said(value: object) -> str:
    if isinstance(value, Engine):
        return value.mode
    return "none" if value is None else str(value)


def _refused(reason: str) -> RefusedError:
    return RefusedError(
        reason, where="request", remedy="see the protocol in steelyard.integrations.allocation"
    )
