"""Does a plan fit a card, what would help most, and how far can it be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from steelyard.errors import RefusedError
from steelyard.memory import catalogue, engine
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.shapes import ModelShape
from steelyard.memory.values import GIB, Card, Estimate, Fit, Largest, Lever, Verdict

WORTH = 0.01 * GIB
"""A lever that buys less is not named."""
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
        largest=largest(plan, card),
    )


def judge(found: Estimate, card: Card) -> tuple[Verdict, str]:
    """The verdict, and what decides it."""
    held = engine.held(found.plan, card)
    one = found.plan.engine
    if held == 0 and one is not None and one.mode == "colocate":
        return "does not fit", (
            f"the engine's {one.utilization:.0%} of the card hold its weights and not one sequence of "
            f"{found.plan.tokens:,} tokens: it does not start"
        )
    peak, size = found.peak, card.bytes / GIB
    said = f"{peak.bytes / GIB:.1f} GiB ({found.low / GIB:.1f} to {found.high / GIB:.1f}) of {size:.1f}"
    where = f"{said} in {peak.name}: {peak.moment}"
    if found.high <= card.bytes:
        return "fits", where
    if found.low <= card.bytes:
        return "tight", where
    return "does not fit", where


def levers(found: Estimate, card: Card) -> tuple[Lever, ...]:
    """What buys memory at the peak, the largest first."""
    now = found.peak.bytes
    better = []
    for name, option, cost, plan in _changes(found.plan):
        saves = now - estimate(plan, card).peak.bytes
        if saves > WORTH:
            better.append(Lever(name=name, option=option, saves=saves, cost=cost, plan=plan))
    return tuple(sorted(better, key=lambda lever: lever.saves, reverse=True))


def largest(plan: Plan, card: Card) -> Largest:
    """How far the plan goes before its estimate is more than the card has."""

    def fits(changed: Plan) -> bool:
        return judge(estimate(changed, card), card)[0] != "does not fit" and (
            estimate(changed, card).peak.bytes <= card.bytes
        )

    def long(tokens: int) -> Plan:
        prompt = min(plan.prompt, tokens - 1)
        return replace(plan, prompt=prompt, completion=tokens - prompt)

    packed = plan.micro_tokens is not None
    return Largest(
        micro_batch=None if packed else _most(lambda n: fits(replace(plan, micro_batch=n))),
        micro_tokens=_most(lambda n: fits(replace(plan, micro_tokens=n, micro_batch=n))) if packed else None,
        context=_most(lambda n: fits(long(n))),
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


def _changes(plan: Plan) -> Iterator[tuple[str, str, str, Plan]]:
    """Every lever that a plan leaves: its name, option, cost, and the plan with it."""
    if plan.task == "inference":
        return
    yield from _passes(plan)
    yield from _kept(plan)
    yield from _shared(plan)
    if plan.task == "grpo" and plan.engine is not None:
        yield from _engines(plan, plan.engine)


def _passes(plan: Plan) -> Iterator[tuple[str, str, str, Plan]]:
    """What a pass makes."""
    if plan.checkpointing == "none":
        cost = "a second forward pass of every layer: about a third more compute"
        yield (
            "recompute activations",
            "--checkpointing recompute",
            cost,
            replace(plan, checkpointing="recompute"),
        )
    if plan.checkpointing != "offload":
        cost = "layer inputs cross the bus twice; host memory for them"
        yield "offload layer inputs", "--checkpointing offload", cost, replace(plan, checkpointing="offload")
    if plan.head in ("naive", "selective"):
        cost = "none to speak of; needs a trainer with a chunked loss (TRL >= 1.16, Liger, Unsloth)"
        yield "never hold whole logits", "--head fused", cost, replace(plan, head="fused")
    if plan.micro_tokens is None and plan.micro_batch > 1:
        half = plan.micro_batch // 2
        yield (
            "halve the micro-batch",
            f"--micro-batch {half}",
            "twice as many passes, each less efficient",
            replace(plan, micro_batch=half),
        )
    if plan.micro_tokens is not None and plan.micro_tokens > plan.tokens:
        half = max(plan.tokens, plan.micro_tokens // 2)
        yield (
            "halve a pass's tokens",
            f"--micro-tokens {half}",
            "twice as many passes",
            replace(plan, micro_tokens=half),
        )
    if plan.completion > 1:
        half = plan.completion // 2
        cost = "longer answers are cut"
        yield "halve the completion", f"--completion {half}", cost, replace(plan, completion=half)
    if plan.attention != "flash":
        yield (
            "flash attention",
            "--attention flash",
            "the flash-attn package",
            replace(plan, attention="flash"),
        )
    if not plan.fused_kernels:
        cost = "Liger's kernels: other rounding, none slower"
        yield "fused kernels", "--kernels fused", cost, replace(plan, fused_kernels=True)


def _kept(plan: Plan) -> Iterator[tuple[str, str, str, Plan]]:
    """What the trainer keeps."""
    if plan.optimizer == "adamw":
        cost = "bitsandbytes; moments in 8 bits, seldom seen in a curve"
        yield "8-bit AdamW", "--optimizer adamw_8bit", cost, replace(plan, optimizer="adamw_8bit")
    if plan.lora is None:
        cost = "adapters learn less than all weights where much is to be learnt"
        yield "LoRA of rank 16", "--lora 16", cost, replace(plan, lora=Lora(rank=16))
    if plan.lora is None or not plan.lora.quantized:
        cost = "as LoRA, and a base in 4 bits: slower, and rounded"
        lora = replace(plan.lora or Lora(rank=16), quantized=True)
        yield "QLoRA", f"--lora {lora.rank} --qlora", cost, replace(plan, lora=lora)
    if plan.precision in ("autocast", "master") and plan.lora is None:
        cost = "weights rounded to bf16 at each step: small updates get lost"
        yield "all in bf16", "--precision bf16", cost, replace(plan, precision="bf16")
    if plan.reference and plan.lora is None:
        yield "no reference model", "--no-reference", "no KL penalty: beta 0", replace(plan, reference=False)
    if plan.offload_optimizer != "host":
        cost = "the step runs at the speed of the bus, or of the host; host memory"
        changed = replace(plan, offload_optimizer="host")
        yield "optimizer on the host", "--offload-optimizer host", cost, changed
    if plan.offload_weights != "host":
        cost = "weights cross the bus in every pass; host memory"
        yield (
            "weights on the host",
            "--offload-weights host",
            cost,
            replace(plan, offload_weights="host"),
        )


def _shared(plan: Plan) -> Iterator[tuple[str, str, str, Plan]]:
    """What GPUs share."""
    stages = ("none", "zero1", "zero2", "zero3")
    if plan.shards > 1 and plan.sharding != "zero3":
        cost = "every layer's weights cross the network in every pass"
        yield "share weights (ZeRO-3, FSDP)", "--sharding zero3", cost, replace(plan, sharding="zero3")
        if stages.index(plan.sharding) < stages.index("zero2"):
            cost = "none to speak of"
            yield "share gradients (ZeRO-2)", "--sharding zero2", cost, replace(plan, sharding="zero2")
    twice = 2 * plan.gpus
    cost = f"{twice} GPUs instead of {plan.gpus}, and a network between them"
    changed = replace(plan, gpus=twice, sharding="zero3")
    yield "twice the GPUs, sharing weights", f"--gpus {twice} --sharding zero3", cost, changed


def _engines(plan: Plan, one: Engine) -> Iterator[tuple[str, str, str, Plan]]:
    """What the engine takes."""
    if one.mode != "colocate":
        return
    if one.sleep == 0:
        cost = "some seconds a step to sleep, wake, and push weights"
        changed = replace(plan, engine=replace(one, sleep=2))
        yield "engine sleeps while training", "--sleep 2", cost, changed
    cost = "GPUs of its own, idle while training; weights cross the network"
    yield "engine on other GPUs", "--engine server", cost, replace(plan, engine=replace(one, mode="server"))
    if one.utilization > 0.15:
        half = round(one.utilization / 2, 3)
        cost = "fewer sequences at a time: slower rollouts"
        changed = replace(plan, engine=replace(one, utilization=half))
        yield "halve the engine's share", f"--utilization {half}", cost, changed
