"""Residents of each phase put together, each phase at its worst moment.

A training pass has five moments that can be the worst: the end of the forward pass, the backward pass of
the head, of a layer, of the embedding, and the optimizer's step. Which it is depends on the batch; all are
reckoned, the largest is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from steelyard.memory import activations, engine, states
from steelyard.memory.activations import CHECKPOINTING, COUNTED, resident
from steelyard.memory.head import embedding_gradient, head
from steelyard.memory.plan import Optimizer, Plan
from steelyard.memory.shapes import Layer
from steelyard.memory.values import Card, Confidence, Estimate, Phase, PhaseName, Resident

GATHERED = "FSDP2: bf16 copies of a layer in use and of the next; the ends' until the backward pass ends"
AUTOCAST = "torch.autocast: a cast of each fp32 matrix, kept for the backward pass"
CONTEXT = "docs/memory.md, Accuracy: 0.3 to 0.75 GB of a process are told of; a choice"
ALLOCATOR = "torch's caching allocator: holes between blocks"

FRAGMENTATION = 0.01
"""Share of what a pass makes, states apart, that the allocator has reserved and cannot use, beside blocks
whose size is known. A choice: docs/memory.md, Accuracy, says what shares of 0 and 3 % would do."""


def estimate(plan: Plan, card: Card) -> Estimate:
    """The memory of a plan on a card.

    Parameters
    ----------
    plan
        What is to run.
    card
        Where: an engine takes a share of it.

    Returns
    -------
    Estimate
        Phases, of which the worst is the peak, in bytes of the fullest GPU.

    Raises
    ------
    RefusedError
        Adapters on matrices that the model has not.
    """
    plan = at_home(plan, card)
    phases = []
    if plan.task == "inference":
        phases.append(_phase("generation", "forward pass", forward(plan)))
    else:
        if plan.task == "grpo":
            phases.append(_phase("generation", *engine.generation(plan, card)))
        phases.append(training(plan, card))
        if plan.task == "grpo" and plan.engine is not None and plan.engine.mode != "none":
            phases.append(_phase("sync", "weights on their way", engine.sync(plan, card)))
    below, above, confidence, why = doubt(plan, card)
    return Estimate(plan=plan, phases=tuple(phases), below=below, above=above, confidence=confidence, why=why)


def training(plan: Plan, card: Card) -> Phase:
    """The trainer's phase at its worst moment."""
    beside = engine.asleep(plan, card) if plan.task == "grpo" else []
    return max(
        (_phase("training", moment, [*found, *beside], hole) for moment, found, hole in moments(plan)),
        key=lambda phase: phase.bytes,
    )


def moments(plan: Plan) -> list[tuple[str, list[Resident], float]]:
    """What lives in the trainer at each moment that can be its worst, and the bytes of holes."""
    kept = _states(plan)
    end, ends = head(plan), _ends(plan)
    through, casts = _through(plan), _casts(plan)
    turn = [*_turn(plan), *end.after]
    hole = _reduced(plan)
    return [
        ("end of the forward pass", [*kept, *ends, *through, *casts, *end.forward], hole),
        (
            "backward of the head",
            [*kept, *ends, *through, *_saved_casts(plan), *end.backward],
            end.hole + hole,
        ),
        (
            "backward of a layer",
            [*kept, *_gathered_ends(plan), *_mask(plan), *turn, *_saved_casts(plan)],
            hole,
        ),
        (
            "backward of the embedding",
            [*kept, *_gathered_ends(plan), *_mask(plan), *end.after, *embedding_gradient(plan)],
            hole,
        ),
        ("optimizer step", [*_states(plan, steps=True), *states.step_temporaries(plan)], 0.0),
    ]


def forward(plan: Plan) -> list[Resident]:
    """A forward pass alone, with a cache of keys and values: at its widest layer, or at its head."""
    tokens, shape = plan.step_tokens, plan.model
    each, values = 4 if plan.precision == "fp32" else 2, shape.cached(plan.tokens)
    said = f"{each} B x {plan.micro_batch} sequences x {values:,}: {plan.tokens:,} tokens each"
    cache = resident("KV cache", float(each * plan.micro_batch * values), said)
    widest = max(activations.of_layer(plan, layer).forward for layer in shape.layers)
    layer = resident(
        "activations", widest, f"{widest / max(tokens, 1):,.0f} B x {tokens:,} tokens of one layer"
    )
    widest_moment = max([*head(plan).forward], [layer], key=lambda found: sum(map(_size, found)))
    return [*states.weights(plan), cache, *widest_moment, *_mask(plan)]


def at_home(plan: Plan, card: Card) -> Plan:
    """The plan as it is where host and GPU share their memory: nothing gets away."""
    if not card.unified:
        return plan
    paged = {"paged_adamw": "adamw", "paged_adamw_8bit": "adamw_8bit"}
    return replace(
        plan,
        offload_optimizer="none",
        offload_weights="none",
        offload_reference="none",
        checkpointing="recompute" if plan.checkpointing == "offload" else plan.checkpointing,
        optimizer=cast("Optimizer", paged.get(plan.optimizer, plan.optimizer)),
    )


def doubt(plan: Plan, card: Card) -> tuple[float, float, Confidence, str]:
    """The band around an estimate, downwards and upwards, how far to trust it, and why."""
    if plan.model.routed:
        # 1 / (1 - 0.38): what closed forms missed, they missed from below.
        return 0.05, 0.6, "low", "a mixture of experts: closed forms are known to miss 11 to 38 % of those"
    odd = [layer for layer in plan.model.layers if layer.norm == "layer" or not layer.mlp.gated]
    reasons = []
    if not card.cuda:
        reasons.append("nothing was measured without CUDA")
    if odd:
        reasons.append(f"{plan.model.family} is built in another way than the models that were measured")
    if plan.lora is not None and plan.lora.quantized:
        reasons.append("no public measurement of 4-bit weights is among those checked")
    if plan.gpus > 1:
        reasons.append("the measurements are of one GPU")
    away = {plan.offload_optimizer, plan.offload_weights, plan.offload_reference} - {"none"}
    if plan.precision in ("master", "fp32") or plan.optimizer != "adamw" or plan.fused_kernels or away:
        reasons.append("measured were bf16, autocast and FSDP, AdamW, plain kernels, and all on the GPU")
    if plan.task != "inference" and plan.head in ("selective", "fused"):
        reasons.append(f"no measurement is of a {plan.head} head")
    if plan.task == "grpo" and plan.engine is not None and plan.engine.mode == "colocate":
        reasons.append("what an engine leaves behind differs by its version: 1 to 3 GiB")
    if reasons:
        return 0.1, 0.1, "medium", "; ".join(reasons)
    return 0.06, 0.06, "high", "a dense model, as those that were measured (docs/memory.md, Accuracy)"


def _states(plan: Plan, *, steps: bool = False) -> list[Resident]:
    """What the trainer has on its GPU while it works, or while the optimizer steps."""
    found = [] if plan.offload_weights == "host" else [*states.weights(plan), *states.gradients(plan)]
    if plan.offload_optimizer in ("none", "idle") or (steps and plan.offload_optimizer == "step"):
        found += states.optimizer(plan)
    if plan.offload_reference == "none":
        found += states.reference(plan)
    return found


def _size(one: Resident) -> float:
    return one.bytes


def _gathers(plan: Plan) -> bool:
    """Whole layers are put together from their shards, or brought from the host."""
    sharded = plan.precision == "sharded" or (plan.sharding == "zero3" and plan.shards > 1)
    return sharded or plan.offload_weights == "host"


def _ends(plan: Plan) -> list[Resident]:
    """Embedding and head, where they are gathered, and whatever the last norm keeps."""
    tokens = plan.step_tokens
    size = activations.ends(plan)
    found = [resident("last norm", size, f"{size / max(tokens, 1):,.0f} B x {tokens:,} tokens")]
    return [*found, *_gathered_ends(plan), *_mask(plan)]


def _gathered_ends(plan: Plan) -> list[Resident]:
    """Embedding and head, whole."""
    shape = plan.model
    if _gathers(plan):
        count = shape.embedding * (1 if shape.tied else 2)
        return [resident("gathered ends", 2.0 * count / plan.tensor_parallel, f"2 B x {count:,}", GATHERED)]
    return []


def _mask(plan: Plan) -> list[Resident]:
    """Which token sees which."""
    size = activations.mask(plan)
    said = f"{plan.micro_batch} sequences x {plan.tokens:,} x {plan.tokens:,} tokens"
    return [resident("attention mask", size, said)] if size else []


def _reduced(plan: Plan) -> float:
    """Bytes of the ends' gradient in fp32, on its way to its shards.

    It is wanted in one piece. Beyond what a pass has freed in one, which is whole logits in fp32 or nothing
    near, it gets a segment of its own, which stays.
    """
    if plan.precision != "sharded" or plan.lora is not None or plan.task == "inference":
        return 0.0
    shape = plan.model
    size = 4.0 * shape.embedding * (1 if shape.tied else 2) / plan.tensor_parallel
    freed = 4.0 * plan.logit_tokens * shape.vocabulary / plan.tensor_parallel if plan.head == "naive" else 0.0
    return max(0.0, size - freed)


def _through(plan: Plan) -> list[Resident]:
    """What all layers keep for the backward pass."""
    tokens = plan.step_tokens
    if plan.checkpointing == "none":
        size = sum(layer.count * activations.of_layer(plan, layer).kept for layer in plan.model.layers)
        each, depth = size / max(tokens, 1) / plan.model.depth, plan.model.depth
        said = f"{each:,.0f} B x {tokens:,} tokens x {depth} layers"
        return [resident("activations", size, said, COUNTED)]
    size, depth = activations.inputs(plan), plan.model.depth
    each = size / max(tokens, 1) / depth
    if plan.checkpointing == "offload":
        size, depth = each * tokens, 1
    said = f"{each:,.0f} B x {tokens:,} tokens x {depth} layers"
    return [resident("layer inputs", size, said, CHECKPOINTING)]


def _turn(plan: Plan) -> list[Resident]:
    """What lives while a layer's backward pass runs: of that which needs most."""
    each = [_turn_of(plan, layer) for layer in plan.model.layers]
    return [*_through(plan), *max(each, key=lambda found: sum(map(_size, found)))]


def _turn_of(plan: Plan, layer: Layer) -> list[Resident]:
    """The same of one of these layers, what all layers keep apart."""
    tokens, most = plan.step_tokens, activations.of_layer(plan, layer)
    name, size = "backward of a layer", most.backward
    if plan.checkpointing != "none":
        name, size = "a layer anew, and its backward", most.kept + most.backward
    found = [resident(name, size, f"{size / max(tokens, 1):,.0f} B x {tokens:,} tokens")]
    if _gathers(plan):
        count = layer.parameters
        each = 4 + (6 if plan.lora is None else 0)
        said = f"{each} B x {count:,}: bf16 of this layer and the next" + (
            ", its gradient in bf16 and fp32" if plan.lora is None else ""
        )
        found.append(resident("gathered layers", each * count / plan.tensor_parallel, said, GATHERED))
    if plan.checkpointing != "none" and plan.precision == "autocast":
        size = activations.casts(plan, layer=layer)
        found.append(resident("casts of a layer", size, f"2 B x {size / 2:,.0f}", AUTOCAST))
    return found


def _casts(plan: Plan) -> list[Resident]:
    """Autocast's copies at the end of the forward pass: of what is trained, it caches all."""
    if plan.checkpointing != "none" and plan.lora is not None:
        return _saved_casts(plan)
    size = activations.casts(plan)
    return [resident("casts", size, f"2 B x {size / 2:,.0f}", AUTOCAST)] if size else []


def _saved_casts(plan: Plan) -> list[Resident]:
    """Those that the backward pass still needs: with checkpointing, the head's."""
    size = activations.casts(plan) if plan.checkpointing == "none" else activations.head_cast(plan)
    return [resident("casts", size, f"2 B x {size / 2:,.0f}", AUTOCAST)] if size else []


def _phase(name: PhaseName, moment: str, found: list[Resident], hole: float = 0.0) -> Phase:
    """All that lies there, largest first, with the device's own."""
    passing = sum(r.bytes for r in found if r.owner == "trainer" and r.kind == "passing")
    size = FRAGMENTATION * passing + hole
    said = f"{FRAGMENTATION:.0%} of {passing / 2**30:.2f} GiB that comes and goes"
    if hole:
        said += f", and {hole / 2**30:.2f} GiB of blocks of a size that is not asked for again"
    context = Resident(
        name="CUDA context",
        owner="device",
        bytes=engine.CONTEXT_BYTES,
        formula="of one process",
        source=CONTEXT,
    )
    holes = replace(resident("fragmentation", size, said, ALLOCATOR), kind="hole")
    every = [*found, holes, context]
    ordered = sorted((one for one in every if one.bytes > 0), key=_size, reverse=True)
    return Phase(name=name, moment=moment, residents=tuple(ordered))
