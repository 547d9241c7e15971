"""Levers: changes of a plan, what each buys at the peak, and what it costs.

They are written from the cheapest to the dearest, by what they do to a run: first what changes no result
and next to no speed, then what costs speed, then what changes what is trained, last what needs other
machines or cuts answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from steelyard.memory import engine
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.values import GIB, Card, Estimate, Lever
from steelyard.memory.verdict import judge

WORTH = 0.01 * GIB
"""A lever that buys less is not named."""


class Change(NamedTuple):
    """A lever that was not tried yet."""

    name: str
    option: str
    cost: str
    plan: Plan


def levers(found: Estimate, card: Card) -> tuple[Lever, ...]:
    """What buys memory at the peak, the largest first."""
    better = [lever for lever in _levers(found, card) if lever.saves > WORTH]
    return tuple(sorted(better, key=lambda lever: lever.saves, reverse=True))


def together(found: Estimate, card: Card) -> tuple[Lever, ...]:
    """The cheapest levers that make a plan fit together.

    Levers are pulled from the cheapest on until the estimate is within the card; then each that is not
    needed is let go, the dearest first. `changes` has them by what they cost.
    """
    if judge(found, card)[0] != "does not fit":
        return ()
    pulled: list[str] = []
    now = found
    while judge(now, card)[0] == "does not fit":
        free = [lever for lever in _levers(now, card) if lever.saves > WORTH and _alone(lever, pulled)]
        if not free:
            return ()
        pulled.append(free[0].name)
        now = estimate(free[0].plan, card)
    for name in reversed(pulled[:]):
        fewer = [other for other in pulled if other != name]
        chain = _pull(found, card, fewer)
        if chain and chain[-1].verdict != "does not fit":
            pulled = fewer
    return tuple(_pull(found, card, pulled))


def _pull(found: Estimate, card: Card, names: list[str]) -> list[Lever]:
    """These levers one after the other; none if one of them changes nothing any more."""
    chain: list[Lever] = []
    for name in names:
        lever = next((one for one in _levers(found, card) if one.name == name), None)
        if lever is None:
            return []
        chain.append(lever)
        found = estimate(lever.plan, card)
    return chain


def _alone(lever: Lever, pulled: list[str]) -> bool:
    """It leaves GPUs and answers as they are, and was not pulled yet."""
    return lever.name not in pulled and not any(
        word in lever.option for word in ("--gpus", "--engine server", "--completion")
    )


def _levers(found: Estimate, card: Card) -> list[Lever]:
    """Every lever with what it does here, the cheapest first; none that keeps the engine from starting."""
    starts = engine.held(found.plan, card) != 0
    every = []
    for change in changes(found.plan):
        if starts and engine.held(change.plan, card) == 0:
            continue
        if card.unified and change.option == "--checkpointing offload":
            continue  # layer inputs would go to a host that is here
        then = estimate(change.plan, card)
        left = then.peak.bytes
        every.append(
            Lever(
                name=change.name,
                option=change.option,
                saves=found.peak.bytes - left,
                left=left,
                verdict=judge(then, card)[0],
                cost=change.cost,
                plan=change.plan,
            )
        )
    return every


def changes(plan: Plan) -> list[Change]:
    """Every change that a plan leaves, the cheapest first."""
    if plan.task == "inference":
        return []
    one = plan.engine if plan.task == "grpo" and plan.engine and plan.engine.mode == "colocate" else None
    return [
        *_free(plan, one),
        *_slower(plan, one),
        *_other_training(plan),
        *_elsewhere(plan, one),
    ]


def _free(plan: Plan, one: Engine | None) -> Iterator[Change]:
    """What changes no result, and next to no speed."""
    if one is not None and one.sleep == 0:
        cost = "some seconds a step to sleep, wake, and push weights"
        changed = replace(plan, engine=replace(one, sleep=2))
        yield Change("engine sleeps while training", "--sleep 2", cost, changed)
    if plan.head in ("naive", "selective"):
        cost = "none to speak of; needs a trainer with a chunked loss (TRL >= 1.16, Liger, Unsloth)"
        yield Change("never hold whole logits", "--head fused", cost, replace(plan, head="fused"))
    if plan.lora is not None and plan.precision in ("autocast", "fp32") and not plan.lora.quantized:
        cost = "none to speak of: adapters stay in fp32"
        yield Change("frozen weights in bf16", "--precision bf16", cost, replace(plan, precision="bf16"))
    if plan.shards > 1 and plan.sharding in ("none", "zero1"):
        yield Change(
            "share gradients (ZeRO-2)",
            "--sharding zero2",
            "none to speak of",
            replace(plan, sharding="zero2"),
        )
    if plan.attention != "flash":
        cost = "the flash-attn package"
        yield Change("flash attention", "--attention flash", cost, replace(plan, attention="flash"))
    if not plan.fused_kernels:
        cost = "Liger's kernels: other rounding, none slower"
        yield Change("fused kernels", "--kernels fused", cost, replace(plan, fused_kernels=True))


def _slower(plan: Plan, one: Engine | None) -> Iterator[Change]:
    """What costs speed."""
    if plan.checkpointing == "none":
        cost = "a second forward pass of every layer: about a third more compute"
        changed = replace(plan, checkpointing="recompute")
        yield Change("recompute activations", "--checkpointing recompute", cost, changed)
    if plan.micro_tokens is None and plan.micro_batch > 1:
        half = plan.micro_batch // 2
        cost = "twice as many passes, each less efficient"
        changed = replace(plan, micro_batch=half)
        yield Change("halve the micro-batch", f"--micro-batch {half}", cost, changed)
    if plan.micro_tokens is not None and plan.micro_tokens > plan.tokens:
        half = max(plan.tokens, plan.micro_tokens // 2)
        changed = replace(plan, micro_tokens=half)
        yield Change("halve a pass's tokens", f"--micro-tokens {half}", "twice as many passes", changed)
    if one is not None and one.share > 0.15:
        half_share = round(one.share / 2, 3)
        cost = "fewer sequences at a time: slower rollouts"
        changed = replace(plan, engine=replace(one, utilization=half_share))
        yield Change("halve the engine's share", f"--utilization {half_share}", cost, changed)
    if one is not None and one.weight_bytes > 1:
        cost = "rollouts by rounded weights: the trainer must correct for it"
        changed = replace(plan, engine=replace(one, weight_bytes=1.0))
        yield Change("engine's weights in fp8", "--engine-weights fp8", cost, changed)
    if plan.shards > 1 and plan.sharding != "zero3":
        cost = "every layer's weights cross the network in every pass"
        changed = replace(plan, sharding="zero3")
        yield Change("share weights (ZeRO-3, FSDP)", "--sharding zero3", cost, changed)
    if plan.checkpointing != "offload":
        cost = "layer inputs cross the bus twice; host memory for them"
        changed = replace(plan, checkpointing="offload")
        yield Change("offload layer inputs", "--checkpointing offload", cost, changed)
    if plan.offload_optimizer != "host":
        cost = "the step runs at the speed of the bus, or of the host; host memory"
        changed = replace(plan, offload_optimizer="host")
        yield Change("optimizer on the host", "--offload-optimizer host", cost, changed)


def _other_training(plan: Plan) -> Iterator[Change]:
    """What changes what is trained, or how exactly."""
    if plan.optimizer == "adamw":
        cost = "bitsandbytes; moments in 8 bits, seldom seen in a curve"
        changed = replace(plan, optimizer="adamw_8bit")
        yield Change("8-bit AdamW", "--optimizer adamw_8bit", cost, changed)
    if plan.reference and plan.lora is None:
        cost = "no KL penalty: beta 0"
        yield Change("no reference model", "--no-reference", cost, replace(plan, reference=False))
    if plan.lora is None:
        cost = "adapters learn less than all weights where much is to be learnt"
        yield Change("LoRA of rank 16", "--lora 16", cost, replace(plan, lora=Lora(rank=16)))
        if plan.precision in ("autocast", "master", "fp32"):
            cost = "weights rounded to bf16 at each step: small updates get lost"
            yield Change("all in bf16", "--precision bf16", cost, replace(plan, precision="bf16"))
    if plan.lora is None or not plan.lora.quantized:
        cost = "as LoRA, and a base in 4 bits: slower, and rounded"
        lora = replace(plan.lora or Lora(rank=16), quantized=True)
        yield Change("QLoRA", f"--lora {lora.rank} --qlora", cost, replace(plan, lora=lora))


def _elsewhere(plan: Plan, one: Engine | None) -> Iterator[Change]:
    """What needs other machines, or makes the run another one."""
    if plan.offload_weights != "host":
        cost = "weights cross the bus in every pass; host memory"
        changed = replace(plan, offload_weights="host")
        yield Change("weights on the host", "--offload-weights host", cost, changed)
    if plan.completion > 1:
        half = plan.completion // 2
        cost = "longer answers are cut"
        changed = replace(plan, completion=half)
        yield Change("halve the completion", f"--completion {half}", cost, changed)
    if one is not None:
        cost = "GPUs of its own, idle while training; weights cross the network"
        server = replace(one, mode="server", utilization=0.9)
        option = "--engine server --utilization 0.9"
        yield Change("engine on other GPUs", option, cost, replace(plan, engine=server))
    twice = 2 * plan.gpus
    cost = f"{twice} GPUs instead of {plan.gpus}, and a network between them"
    changed = replace(plan, gpus=twice, sharding="zero3")
    option = f"--gpus {twice} --sharding zero3"
    if plan.task == "grpo" and (prompts := whole_prompts(changed)) != plan.prompts:
        changed, option = replace(changed, prompts=prompts), f"{option} --prompts {prompts}"
    yield Change("twice the GPUs, sharing weights", option, cost, changed)


def whole_prompts(plan: Plan) -> int:
    """The plan's prompts, or the next more whose completions make whole micro-batches of every rank.

    Examples
    --------
    >>> from steelyard.memory.catalogue import shape_of
    >>> plan = Plan(model=shape_of("Qwen3-0.6B"), prompts=8, generations=8, micro_batch=8)
    >>> whole_prompts(plan), whole_prompts(replace(plan, gpus=16))
    (8, 16)
    >>> whole_prompts(replace(plan, micro_batch=6))
    9
    """
    if plan.micro_tokens is not None:
        return plan.prompts
    pass_of_all = plan.micro_batch * (plan.gpus // (plan.tensor_parallel * plan.sequence_parallel))
    unit = pass_of_all // gcd(pass_of_all, plan.generations)
    return -(-plan.prompts // unit) * unit
