"""What generates, and what it leaves on the trainer's GPUs when it does not."""

from __future__ import annotations

from dataclasses import replace

from steelyard.memory import states
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.values import GIB, Card, Resident

VLLM = "vLLM, gpu_memory_utilization: weights, a profiled forward pass, and all the rest for the cache"
SLEEP = "docs/memory.md, Engine: asleep it leaves 1 to 3 GiB (context, graphs, communicators); the middle"
GRAPHS = "vLLM, CUDA graphs: recorded after it has measured its share; 0.3 to 1 GiB are told of; a choice"
PUSH = "TRL, generation/vllm_generation.py: one tensor after another; verl packs buckets of 2 GiB"
GATHER = (
    "TRL, ds3_gather_for_generation, and gather_if_zero3 around merge_adapter; deepspeed GatheredParameters"
)
GENERATE = "transformers generate: keys and values of every sequence, and a layer's copied as it grows"

CONTEXT_BYTES = 0.5e9
"""CUDA's context and kernels of one process; device-wide, in no figure of torch."""
ASLEEP = 2.0 * GIB
GRAPH_BYTES = 0.5 * GIB


def generation(plan: Plan, card: Card) -> tuple[str, list[Resident]]:
    """When the phase is at its worst, and what lies there."""
    found = _idle(plan)
    one = plan.engine
    if one is None or one.mode == "none":
        return "last token of a batch", [*states.weights(plan), *found, *_generate(plan), *_whole(plan)]
    found += [*states.weights(plan)] if plan.offload_weights == "none" else []
    if one.mode == "server":
        return "waiting for the server", found
    return "cache in use", [*found, *awake(plan, one, card)]


def awake(plan: Plan, one: Engine, card: Card) -> list[Resident]:
    """Weights, a forward pass, and the cache, which gets all the rest of the engine's share."""
    count = plan.model.parameters
    weights = one.weight_bytes * count / one.tensor_parallel
    work = working(plan, one)
    least = needs(plan, one)
    cache = max(least, room(plan, one, card))
    over = f" / {one.tensor_parallel} GPUs" if one.tensor_parallel > 1 else ""
    said = f"{one.share:g} of {card.bytes / GIB:.1f} GiB, less weights and a forward pass"
    if cache == least:
        context = max(plan.tokens, one.context or 0)
        values = plan.model.cached(context, gpus=one.tensor_parallel)
        said = f"{one.cache_bytes:g} B x {values:,}: one sequence of {context:,} tokens, beyond its share"
    passes = f"{one.batched_tokens:,} tokens, {one.sequences:,} sequences"
    taken = [
        _resident("engine's weights", weights, f"{one.weight_bytes:g} B x {count:,}{over}"),
        _resident("engine's forward pass", work, passes),
        _resident("KV cache", cache, said),
    ]
    found = [replace(each, kind="share") for each in taken]
    if one.graphs:
        found.append(_resident("CUDA graphs", GRAPH_BYTES, "beside its share", GRAPHS))
    return [*found, *_context(one)]


def working(plan: Plan, one: Engine) -> float:
    """Bytes of the forward pass that vLLM profiles: an MLP of its tokens, logits of its sequences."""
    layer = max(plan.model.layers, key=lambda each: each.mlp.width)
    mlp = layer.mlp
    wide = (mlp.active * mlp.width if mlp.experts else mlp.width) + mlp.shared
    tokens = one.batched_tokens * (4 * plan.model.hidden + 6 * wide / one.tensor_parallel)
    logits = one.sequences * plan.model.vocabulary * (2 + 4 + 4)
    return tokens + logits


def asleep(plan: Plan, card: Card) -> list[Resident]:
    """What the engine has while the trainer works."""
    one = plan.engine
    if one is None or one.mode != "colocate":
        return []
    if not one.sleep:
        return awake(plan, one, card)
    found = [_resident("engine asleep", ASLEEP, "context, graphs, communicators", SLEEP)]
    if one.sleep == 1 and card.unified:
        weights = one.weight_bytes * plan.model.parameters / one.tensor_parallel
        found.append(_resident("engine's weights", weights, "on the host, which is here"))
    return found


def sync(plan: Plan, card: Card) -> list[Resident]:
    """The trainer's weights, the engine's, and what is on its way between them."""
    one = plan.engine or Engine()
    found = [*states.weights(plan), *_idle(plan)]
    largest = max(
        plan.model.embedding, *(each.parameters for layer in plan.model.layers for each in layer.linears)
    )
    each = 4 if plan.precision in ("sharded", "fp32") else 2  # FSDP gathers what its shards are in
    size = one.bucket_bytes if one.bucket_bytes is not None else float(each * largest)
    said = "a bucket" if one.bucket_bytes is not None else f"{each} B x {largest:,} of the largest tensor"
    found.append(Resident(name="on their way", owner="trainer", bytes=size, formula=said, source=PUSH))
    if plan.lora is not None:
        found += _whole(plan)
    if one.mode == "server":
        return found
    if not one.sleep:
        return [*found, *awake(plan, one, card)]
    weights = one.weight_bytes * plan.model.parameters / one.tensor_parallel
    said = f"{one.weight_bytes:g} B x {plan.model.parameters:,}: awake to take them"
    return [
        *found,
        _resident("engine's weights", weights, said),
        _resident("engine asleep", ASLEEP, "context, graphs, communicators", SLEEP),
    ]


def room(plan: Plan, one: Engine, card: Card) -> float:
    """Bytes that an engine's share leaves for its cache; below 0 if it cannot even hold the weights."""
    weights = one.weight_bytes * plan.model.parameters / one.tensor_parallel
    return one.share * card.bytes - weights - working(plan, one)


def needs(plan: Plan, one: Engine) -> float:
    """Bytes of cache without which vLLM does not start: one sequence of the longest that it was told of."""
    context = max(plan.tokens, one.context or 0)
    return one.cache_bytes * plan.model.cached(context, gpus=one.tensor_parallel)


def held(plan: Plan, card: Card) -> int | None:
    """Sequences of full length that one copy of the engine holds in its cache.

    None without an engine, 0 where it does not start.
    """
    one = plan.engine
    if plan.task != "grpo" or one is None or one.mode == "none":
        return None
    free = room(plan, one, card)
    if free < needs(plan, one):
        return 0
    each = one.cache_bytes * plan.model.cached(plan.tokens, gpus=one.tensor_parallel)
    return int(free // each) if each else one.sequences


def _idle(plan: Plan) -> list[Resident]:
    """What the trainer keeps while it does not train, its weights apart."""
    found = states.optimizer(plan) if plan.offload_optimizer == "none" else []
    return [*found, *(states.reference(plan) if plan.offload_reference == "none" else [])]


def _whole(plan: Plan) -> list[Resident]:
    """All weights put together on each GPU, as DeepSpeed's ZeRO-3 does it to generate, or to merge adapters.

    FSDP gathers a layer at a time.
    """
    if plan.sharding != "zero3" or plan.shards == 1 or plan.precision == "sharded":
        return []
    size = sum(
        one.bytes
        for one in states.weights(
            replace(plan, sharding="none", gpus=plan.tensor_parallel * plan.sequence_parallel)
        )
    )
    return [
        Resident(
            name="gathered weights",
            owner="trainer",
            bytes=size,
            formula="all of them, beside the shards",
            source=GATHER,
        )
    ]


def _generate(plan: Plan) -> list[Resident]:
    """The trainer's own model generates: a cache of everything that its GPU makes at once."""
    ranks = plan.gpus // plan.tensor_parallel
    sequences = -(-plan.completions // ranks)
    cached = plan.model.cached(plan.tokens)
    each = cached / plan.model.depth
    size = 2.0 * sequences * (cached + each) / plan.tensor_parallel
    logits = 10.0 * sequences * plan.model.vocabulary / plan.tensor_parallel
    return [
        Resident(
            name="KV cache",
            owner="trainer",
            bytes=size,
            formula=f"2 B x {sequences:,} sequences x {cached + each:,.0f}",
            source=GENERATE,
        ),
        Resident(
            name="logits",
            owner="trainer",
            bytes=logits,
            formula=f"10 B x {sequences:,} sequences x {plan.model.vocabulary:,}",
            source=GENERATE,
        ),
    ]


def _context(one: Engine) -> list[Resident]:
    said = "a process of its own"
    return [_resident("engine's context", CONTEXT_BYTES, said, SLEEP)] if one.own_process else []


def _resident(name: str, size: float, formula: str, source: str = VLLM) -> Resident:
    return Resident(name=name, owner="engine", bytes=size, formula=formula, source=source)
