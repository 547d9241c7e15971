"""From options to a plan: what a settings file says, and what was said on the command line before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from steelyard.cli.fit_options import FitOptions
from steelyard.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steelyard.memory.plan import Engine, Lora, Plan

_SAME: Final = (
    "task",
    "prompt",
    "completion",
    "micro_batch",
    "micro_tokens",
    "generations",
    "prompts",
    "precision",
    "optimizer",
    "gradient_bytes",
    "step_kernel",
    "checkpointing",
    "attention",
    "head",
    "head_tokens",
    "chunk",
    "chunk_vocabulary",
    "reference",
    "gpus",
    "sharding",
    "tensor_parallel",
    "sequence_parallel",
    "offload_optimizer",
    "offload_weights",
    "offload_reference",
    "expandable_segments",
)
"""Options that are a plan's fields, under the same name."""
_BYTES: Final = {"bf16": 2.0, "fp8": 1.0}
_KERNELS: Final = {"plain": False, "fused": True}
_MODES: Final = {"colocate": "colocate", "server": "server", "none": "none"}
_ENGINE: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "engine": ("mode", str),
    "utilization": ("utilization", float),
    "sleep": ("sleep", int),
    "engine_tensor_parallel": ("tensor_parallel", int),
    "sequences": ("sequences", int),
    "context": ("context", int),
    "batched_tokens": ("batched_tokens", int),
    "own_process": ("own_process", bool),
    "eager": ("graphs", lambda eager: not eager),
    "engine_weights": ("weight_bytes", _BYTES.__getitem__),
    "kv_cache": ("cache_bytes", _BYTES.__getitem__),
    "bucket": ("bucket_bytes", lambda gib: gib * 1024**3),
}
"""Options of the engine: its field, and how the one becomes the other."""


def changed(plan: Plan, given: FitOptions) -> Plan:
    """The plan with what was said on the command line.

    Parameters
    ----------
    plan
        A settings file's, or one with nothing but its model.
    given
        The options.

    Raises
    ------
    RefusedError
        An option has a value that none may have, or goes with another that was not given.
    """
    _refuse_unknown(given)
    changes = _said(given, _SAME)
    if given.no_reference:
        if given.reference:
            raise RefusedError(
                "there is one, and there is none", where="--no-reference", remedy="say one of them"
            )
        changes["reference"] = False
    if given.kernels is not None:
        changes["fused_kernels"] = _KERNELS[given.kernels]
    with _named():
        made = replace(plan, **changes, lora=_lora(plan.lora, given), engine=_engine(plan, given))
    if made.micro_tokens is not None and made.micro_tokens < made.tokens:
        raise RefusedError(
            f"a pass of {made.micro_tokens:,} tokens holds no sequence of {made.tokens:,}",
            where="--micro-tokens",
            remedy=f"give {made.tokens:,} or more, or shorter --prompt and --completion",
        )
    return made


def refuse_endless(given: FitOptions) -> None:
    """Refuse numbers beyond any run's, which no float holds or no page shows.

    Raises
    ------
    RefusedError
        Naming the option.
    """
    from steelyard.memory.settings import MOST

    for name, value in given._asdict().items():
        several = value if isinstance(value, list) else [value]
        if any(isinstance(one, int | float) and one > MOST for one in several):
            raise RefusedError(
                f"it is more than {MOST:,}", where=_option(name), remedy="give what the run has"
            )


def divided(plan: Plan, given: FitOptions) -> Plan:
    """The plan with as many prompts as its GPUs can share out, where nobody said how many."""
    from steelyard.memory.levers import whole_prompts

    if plan.task != "grpo" or given.prompts is not None:
        return plan
    return replace(plan, prompts=whole_prompts(plan))


def _said(given: FitOptions, names: Iterable[str]) -> dict[str, Any]:
    """Options that were given; 0 is one, and a switch that was not turned is none."""
    values = {name: getattr(given, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _lora(lora: Lora | None, given: FitOptions) -> Lora | None:
    from steelyard.memory.plan import Lora

    changes: dict[str, Any] = {}
    if given.lora is not None:
        changes["rank"] = given.lora
    if given.lora_targets is not None:
        changes["targets"] = tuple(name.strip() for name in given.lora_targets.split(",") if name.strip())
        if not changes["targets"]:
            raise RefusedError(
                "it names no matrix", where="--lora-targets", remedy="leave it out: every linear layer"
            )
    if given.qlora:
        changes["quantized"] = True
    if not changes:
        return lora
    if lora is None and set(changes) == {"targets"}:
        raise RefusedError(
            "it names matrices of adapters, and there are none",
            where="--lora-targets",
            remedy="say --lora RANK, too",
        )
    return replace(lora or Lora(), **changes)


def _engine(plan: Plan, given: FitOptions) -> Engine | None:
    from steelyard.memory.plan import Engine

    said = _said(given, _ENGINE)
    task = given.task or plan.task
    if not said:
        return plan.engine if task == "grpo" else None
    if task != "grpo":
        raise RefusedError(
            f"nothing generates in a plan of {task}",
            where=_option(next(iter(said))),
            remedy="leave it out, or --task grpo",
        )
    if (mode := given.engine or (plan.engine and plan.engine.mode)) != "colocate":
        _refuse_idle(said, mode or "none")
    return replace(
        plan.engine or Engine(),
        **{_ENGINE[name][0]: _ENGINE[name][1](value) for name, value in said.items()},
    )


def _refuse_idle(said: dict[str, Any], mode: str) -> None:
    """Refuse options that only mean something for an engine on the trainer's GPUs."""
    needless = {"sleep"} if mode == "server" else set(_ENGINE) - {"engine"}
    for name in needless & set(said):
        raise RefusedError(
            f"the engine is {mode}, and has no such thing",
            where=_option(name),
            remedy="leave it out, or say --engine colocate",
        )


def _refuse_unknown(given: FitOptions) -> None:
    """Refuse words that are not among an option's own; a plan knows the others."""
    for name, known in (
        ("engine", _MODES),
        ("kernels", _KERNELS),
        ("engine_weights", _BYTES),
        ("kv_cache", _BYTES),
    ):
        value = getattr(given, name)
        if value is not None and value not in known:
            raise RefusedError(
                f"{value!r} is none of {', '.join(known)}", where=_option(name), remedy="choose one of them"
            )


@contextmanager
def _named() -> Iterator[None]:
    """Let a plan's refusals name the option: they begin with their field's name."""
    try:
        yield
    except RefusedError as error:
        if error.where != "plan":
            raise
        field = error.reason.split(" ", 1)[0]
        where = _option(field) if field in _SAME else "steelyard fit"
        raise RefusedError(error.reason, where=where, remedy=error.remedy) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
