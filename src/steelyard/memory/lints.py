"""What is wrong with a plan before a byte is counted: traps that cost a start, a night or gigabytes.

Each lint is a function of what was asked; `CODES` lists them. `stop` is what cannot run, or does not do what
its setting says; `warn` runs, at a price that is named. A lint that needs a card, or an estimate, is silent
without one. Whether a plan fits is not asked here: `fit` says that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from steelyard.memory.engine import needs, room, working
from steelyard.memory.head import head
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.values import GIB, Card, Estimate

Severity = Literal["stop", "warn"]

WORTH: Final = GIB
"""Logits that cost less than this beyond the selective head are not worth a warning: it is about what a
process's context and holes vary by."""


@dataclass(frozen=True, slots=True)
class Lint:
    """A doubt about a plan.

    Attributes
    ----------
    code
        Its name in `CODES`.
    what
        What was seen, with its numbers.
    why
        What comes of it, and where that is known from.
    remedy
        What to change.
    severity
        `stop` or `warn`.
    """

    code: str
    what: str
    why: str
    remedy: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class _Asked:
    plan: Plan
    card: Card | None
    estimate: Estimate | None
    expandable: bool

    @property
    def colocated(self) -> Engine | None:
        """The engine, where it shares the trainer's GPUs."""
        engine = self.plan.engine
        return engine if engine is not None and engine.mode == "colocate" else None


def lints(
    plan: Plan,
    *,
    card: Card | None = None,
    estimate: Estimate | None = None,
    allocator: str | None = None,
) -> tuple[Lint, ...]:
    """Look for traps.

    Parameters
    ----------
    plan
        What is to run.
    card
        Where: what depends on its size is asked only with one.
    estimate
        Of this plan; `awake_engine` needs it.
    allocator
        PYTORCH_CUDA_ALLOC_CONF, where the caller knows it.

    Returns
    -------
    tuple[Lint, ...]
        Stops first, each in the order of `CODES`.

    Examples
    --------
    >>> from steelyard.memory.plan import Engine
    >>> from steelyard.memory.shapes import Attention, Layer, Mlp, ModelShape
    >>> heads = Attention(heads=2, kv_heads=2, head_dim=32, value_dim=32, cache_dim=128)
    >>> layer = Layer(count=2, attention=heads, mlp=Mlp(width=128), linears=(), vectors=128)
    >>> tiny = ModelShape(
    ...     name="tiny", family="qwen3", hidden=64, vocabulary=512, layers=(layer,), tied=True, vectors=64
    ... )
    >>> asleep = Plan(model=tiny, engine=Engine(sleep=2))
    >>> [lint.code for lint in lints(asleep, allocator="expandable_segments:True")]
    ['expandable_segments']
    """
    expandable = plan.expandable_segments or "expandable_segments:true" in (allocator or "").lower().replace(
        " ", ""
    )
    asked = _Asked(plan, card, estimate, expandable)
    found = [lint for check in _CHECKS for lint in [check(asked)] if lint is not None]
    return tuple(sorted(found, key=lambda lint: lint.severity == "warn"))


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"


def _expandable_segments(asked: _Asked) -> Lint | None:
    engine = asked.colocated
    if engine is None or not engine.sleep or not asked.expandable:
        return None
    return Lint(
        "expandable_segments",
        f"expandable_segments:True with an engine that sleeps at level {engine.sleep}",
        "sleep keeps the engine's memory in a pool of its own, which expandable segments pass by: it freed 0 "
        "of 63.15 GiB (vllm-project/vllm#11743); since #14189 vLLM asserts and does not start",
        "take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF, or let the engine stay awake",
        "stop",
    )


def _one_sequence(asked: _Asked) -> Lint | None:
    engine = asked.plan.engine
    if engine is None or engine.mode == "none" or asked.plan.task != "grpo" or asked.card is None:
        return None
    plan, card = asked.plan, asked.card
    if room(plan, engine, card) >= needs(plan, engine):
        return None
    weights = engine.weight_bytes * plan.model.parameters / engine.tensor_parallel
    work, cache = working(plan, engine), needs(plan, engine)
    least = (weights + work + cache) / card.bytes
    context = max(plan.tokens, engine.context or 0)
    raised = f"raise the utilization above {least:.2f}, " if least < 1 else ""
    return Lint(
        "one_sequence",
        f"{engine.share:g} of {card.name} is {_gib(engine.share * card.bytes)}; weights take "
        f"{_gib(weights)}, a forward pass {_gib(work)}, the cache of one sequence of {context:,} tokens "
        f"{_gib(cache)}",
        "vLLM starts only with room for its weights and one sequence of max_model_len (vllm/v1/core/"
        "kv_cache_utils.py, check_enough_kv_cache_memory)",
        f"{raised}lower max_model_len, or share the engine among more GPUs",
        "stop",
    )


def _awake_engine(asked: _Asked) -> Lint | None:
    engine = asked.colocated
    if engine is None or engine.sleep or asked.card is None or asked.estimate is None:
        return None
    budget = engine.share * asked.card.bytes
    trainer = max(
        sum(resident.bytes for resident in phase.residents if resident.owner != "engine")
        for phase in asked.estimate.phases
    )
    if budget + trainer <= asked.card.bytes or trainer > asked.card.bytes:
        return None  # of a trainer that has no room even alone the verdict tells
    left = 1 - trainer / asked.card.bytes
    weights = engine.weight_bytes * asked.plan.model.parameters / engine.tensor_parallel
    lower = f", or lower its utilization to {int(left * 100) / 100:.2f}"
    return Lint(
        "awake_engine",
        f"the engine keeps {_gib(budget)} ({engine.share:g} of {asked.card.name}) while the trainer "
        f"needs {_gib(trainer)} of {_gib(asked.card.bytes)}",
        "without sleep the engine's weights and cache stay through the backward pass",
        f"turn its sleep mode on{lower if left * asked.card.bytes > weights else ''}",
        "stop",
    )


def _tensor_parallel(asked: _Asked) -> Lint | None:
    engine = asked.plan.engine
    sizes = [("the trainer", asked.plan.tensor_parallel)]
    if engine is not None and engine.mode != "none":
        sizes.append(("the engine", engine.tensor_parallel))
    if asked.colocated is not None and asked.plan.gpus % asked.colocated.tensor_parallel:
        return Lint(
            "tensor_parallel",
            f"{asked.plan.gpus} GPUs cannot be given to engines of {asked.colocated.tensor_parallel} each",
            "every engine has as many GPUs as it has parts of a matrix (TRL and verl refuse others)",
            "make the engine's tensor_parallel a divisor of the GPUs",
            "stop",
        )
    for owner, size in sizes:
        for layer in asked.plan.model.layers:
            heads, kv_heads = layer.attention.heads, layer.attention.kv_heads
            if heads % size or (kv_heads % size and size % kv_heads):
                return Lint(
                    "tensor_parallel",
                    f"{owner} shares {heads} heads and {kv_heads} KV heads among {size} GPUs",
                    "heads must come out even (vllm/config/model.py, verify_with_parallel_config)",
                    "choose a divisor of the heads",
                    "stop",
                )
    return None


def _micro_batches(asked: _Asked) -> Lint | None:
    plan = asked.plan
    if plan.task != "grpo" or plan.micro_tokens is not None:
        return None
    ranks = plan.gpus // (plan.tensor_parallel * plan.sequence_parallel)
    if plan.completions % (ranks * plan.micro_batch) == 0:
        return None
    return Lint(
        "micro_batches",
        f"{plan.completions} completions do not divide by {ranks} ranks x micro-batch {plan.micro_batch}",
        "trainers refuse it or train on a smaller last batch",
        f"make prompts x generations a multiple of {ranks * plan.micro_batch}",
        "stop",
    )


def _naive_head(asked: _Asked) -> Lint | None:
    plan = asked.plan
    if plan.head != "naive" or plan.task == "inference":
        return None
    logits = plan.logit_tokens * -(-plan.model.vocabulary // plan.tensor_parallel)
    naive, less = (head(replace(plan, head=one)).backward[0].bytes for one in ("naive", "selective"))
    if naive - less < WORTH:
        return None
    return Lint(
        "naive_head",
        f"log_softmax over whole logits: {plan.logit_tokens:,} tokens x {plan.model.vocabulary:,} entries "
        f"of the vocabulary take {_gib(naive)}",
        f"{naive / logits:g} bytes a logit in the backward pass; choosing before casting takes "
        f"{less / logits:g}, which is {_gib(less)}, and a fused head next to nothing",
        "use a fused or chunked head (TRL 1.16 has no other; verl: use_fused_kernels), or smaller batches",
        "warn",
    )


def _level_1(asked: _Asked) -> Lint | None:
    engine = asked.colocated
    if engine is None or engine.sleep != 1:
        return None
    weights = engine.weight_bytes * asked.plan.model.parameters / engine.tensor_parallel
    return Lint(
        "level_1",
        f"sleep level 1 puts {_gib(weights)} of weights per GPU on the host, "
        f"{_gib(weights * asked.plan.gpus)} for {asked.plan.gpus}",
        "the copy is pinned host memory for as long as the trainer works (vllm/device_allocator/cumem.py)",
        "have that much host memory free, or sleep at level 2 and push the weights again",
        "warn",
    )


def _lora_level_2(asked: _Asked) -> Lint | None:
    engine = asked.colocated
    if engine is None or engine.sleep != 2 or asked.plan.lora is None:
        return None
    weights = engine.weight_bytes * asked.plan.model.parameters
    return Lint(
        "lora_level_2",
        f"LoRA with sleep level 2: {_gib(weights)} of weights that never changed are pushed again each step",
        "level 2 throws the engine's weights away; adapters alone would do (verl takes level 1 for LoRA, TRL "
        "merges and pushes all)",
        "let the engine stay awake or sleep at level 1, where the trainer can",
        "warn",
    )


def _qlora_copy(asked: _Asked) -> Lint | None:
    engine, lora = asked.colocated, asked.plan.lora
    if engine is None or lora is None or not lora.quantized or engine.weight_bytes < 2:
        return None
    weights = engine.weight_bytes * asked.plan.model.parameters / engine.tensor_parallel
    return Lint(
        "qlora_copy",
        f"the trainer's base lies in 4 bits, and the engine loads another of {_gib(weights)} that does not",
        "the engine's copy takes what quantization saved",
        "let the engine quantize as it loads (TRL does, with bitsandbytes), or put it on a server",
        "warn",
    )


def _paged(asked: _Asked) -> Lint | None:
    if not asked.plan.optimizer.startswith("paged"):
        return None
    return Lint(
        "paged",
        f"{asked.plan.optimizer} moves its states to the host when the GPU is full",
        "an update then waits for the bus, and host memory must be there (bitsandbytes, paged optimizers); "
        "the states still count wherever there is room",
        "take an 8-bit optimizer that stays on the GPU, if it fits",
        "warn",
    )


def _unified(asked: _Asked) -> Lint | None:
    card, plan = asked.card, asked.plan
    if card is None or not card.unified:
        return None
    moved = [
        what
        for what, place in (
            ("optimizer", plan.offload_optimizer),
            ("weights", plan.offload_weights),
            ("reference", plan.offload_reference if plan.reference else "none"),
            ("activations", "host" if plan.checkpointing == "offload" else "none"),
            ("optimizer", "host" if plan.optimizer.startswith("paged") else "none"),
            ("engine's weights", "host" if asked.colocated and asked.colocated.sleep == 1 else "none"),
        )
        if place != "none"
    ]
    if not moved:
        return None
    return Lint(
        "unified",
        f"{' and '.join(dict.fromkeys(moved))} on the host of {card.name}, whose GPU shares that memory",
        "what lies on the host lies in the same memory: nothing is bought, and copies cost time",
        "turn the offload off; sleep at level 2 instead of 1",
        "warn",
    )


def _waves(asked: _Asked) -> Lint | None:
    engine, plan = asked.colocated, asked.plan
    if engine is None:
        return None
    mine = -(-plan.completions * engine.tensor_parallel // plan.gpus)
    if engine.sequences >= mine:
        return None
    return Lint(
        "waves",
        f"an engine decodes {engine.sequences} of its {mine} completions at once",
        f"the rest waits: {-(-mine // engine.sequences)} waves or so, the last as long as its longest answer",
        f"raise max_num_seqs to {mine}, if its cache has room",
        "warn",
    )


def _mixture(asked: _Asked) -> Lint | None:
    if not asked.plan.model.routed:
        return None
    return Lint(
        "mixture",
        f"{asked.plan.model.name} is a mixture of experts",
        "what experts a token meets decides activations, and kernels differ: closed forms miss by 11 to 38 %",
        "take the estimate for a guess, and measure with `steelyard fit --verify`",
        "warn",
    )


def _no_cuda(asked: _Asked) -> Lint | None:
    card, plan = asked.card, asked.plan
    if card is None or card.cuda:
        return None
    wanted = [
        what
        for what, wants in (
            ("vLLM", asked.colocated is not None),
            ("bitsandbytes", "8bit" in plan.optimizer or bool(plan.lora and plan.lora.quantized)),
            ("Liger", plan.fused_kernels),
            ("flash-attn", plan.attention == "flash"),
            ("several GPUs", plan.gpus > 1),
        )
        if wants
    ]
    return Lint(
        "no_cuda",
        f"{card.name} has no CUDA{', and the plan wants ' + ', '.join(wanted) if wanted else ''}",
        "trainers and engines reckoned with here are written for CUDA; nothing was measured without",
        "let the trainer's model generate (`--engine none`), or take another trainer (MLX)",
        "stop" if wanted else "warn",
    )


def _too_long(asked: _Asked) -> Lint | None:
    plan = asked.plan
    most = plan.model.positions
    if most is None or plan.tokens <= most:
        return None
    return Lint(
        "too_long",
        f"{plan.tokens:,} tokens, and {plan.model.name} was made for {most:,}",
        "vLLM refuses a max_model_len beyond max_position_embeddings, unless rope scaling is set",
        f"keep prompt and completion within {most:,}, or take a config.json with rope scaling",
        "warn",
    )


_CHECKS: Final[tuple[Callable[[_Asked], Lint | None], ...]] = (
    _expandable_segments,
    _one_sequence,
    _awake_engine,
    _tensor_parallel,
    _micro_batches,
    _naive_head,
    _level_1,
    _lora_level_2,
    _qlora_copy,
    _paged,
    _unified,
    _waves,
    _mixture,
    _no_cuda,
    _too_long,
)

CODES: Final = tuple(check.__name__.removeprefix("_") for check in _CHECKS)
"""Names of the lints, in the order in which they are asked."""
