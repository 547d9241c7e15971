"""The anchors of shared/design/memory.md, confirmed or refuted by the planner: `python bench/anchors.py`.

Each line is a claim, the settings under which it was asked, the planner's number, and what that says of the
claim. The anchors are words of one line, and most leave the settings out: a claim that holds under some
settings only is refuted under the others, on lines of their own.

Unless a line says otherwise: GRPO of TRL 1.16, prompts of 512 and completions of 1,024 tokens, one sequence
in a micro-batch, checkpointing, fused head, SDPA, a colocated engine at sleep level 2 with the least share of
the card (in twentieths) that holds 8 sequences, on the smallest card of a class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steelyard.memory import engine, lints
from steelyard.memory.cards import card
from steelyard.memory.catalogue import shape_of
from steelyard.memory.estimate import estimate
from steelyard.memory.fit import judge
from steelyard.memory.head import two_copies
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.roofline import decode
from steelyard.memory.steps import step_time
from steelyard.memory.values import GIB, Card

SMALL = (
    "Qwen2.5-0.5B",
    "Qwen3-0.6B",
    "Llama-3.2-1B",
    "Qwen2.5-1.5B",
    "Qwen3-1.7B",
    "gemma-2-2b",
    "SmolLM3-3B",
    "Qwen2.5-3B",
    "Llama-3.2-3B",
    "Qwen3-4B",
)
LONG = (
    ("Qwen3-0.6B", None),
    ("Qwen2.5-1.5B", None),
    ("Qwen3-1.7B", None),
    ("Qwen3-4B", None),
    ("Qwen3-4B", Lora(rank=16)),
    ("Qwen3-8B", Lora(rank=16)),
    ("Qwen3-14B", Lora(rank=16)),
    ("Qwen3-32B", Lora(rank=16)),
)
SPARK = ("Qwen3-0.6B", "Qwen3-4B", "Qwen3-8B")
SEQUENCES, CONTEXT = 128, 4096
MOST = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A claim and what the planner says of it."""

    anchor: str
    settings: str
    number: str
    confirmed: bool


def usual(model: str) -> Plan:
    """What the docstring says."""
    one = Engine(sleep=2, sequences=64, batched_tokens=4096, context=1536)
    return Plan(
        model=shape_of(model),
        prompt=512,
        completion=1024,
        micro_batch=1,
        precision="bf16",
        optimizer="adamw_8bit",
        checkpointing="recompute",
        attention="sdpa",
        head="fused",
        head_tokens="completion",
        engine=one,
    )


def shared_out(plan: Plan, where: Card, *, sequences: int = 8) -> Plan:
    """With the least share of the card for the engine that holds so many sequences."""
    one = plan.engine or Engine()
    for twentieth in range(1, 20):
        plan = replace(plan, engine=replace(one, utilization=twentieth / 20))
        if (engine.held(plan, where) or 0) >= sequences:
            break
    return plan


def peak(plan: Plan, where: Card) -> float:
    """Bytes, the engine's share reckoned out."""
    colocated = plan.engine is not None and plan.engine.mode == "colocate"
    return estimate(shared_out(plan, where) if colocated else plan, where).peak.bytes


def said(plan: Plan, where: Card) -> str:
    """A peak of a card, and the verdict with its band."""
    colocated = plan.engine is not None and plan.engine.mode == "colocate"
    plan = shared_out(plan, where) if colocated else plan
    found = estimate(plan, where)
    verdict = judge(found, where)[0]
    return f"{found.peak.bytes / GIB:.1f} of {where.bytes / GIB:.1f} GiB in {found.peak.name}, {verdict}"


# --- small models on a 24 GB card


def together(model: str, *, without: str = "", fp32: bool = False) -> Plan:
    """Sleep, 8-bit AdamW and checkpointing; without one of them, or without all."""
    plan = usual(model)
    one = plan.engine or Engine()
    left_out = {"sleep", "8 bits", "checkpointing"} if without == "all" else {without}
    return replace(
        plan,
        precision="autocast" if fp32 else "bf16",
        engine=replace(one, sleep=0) if "sleep" in left_out else one,
        optimizer="adamw" if "8 bits" in left_out else "adamw_8bit",
        checkpointing="none" if "checkpointing" in left_out else "recompute",
    )


ROOMIEST, TIGHTEST = "RTX 3090", "L4"
"""Of the 24 GB class: the one shows 23.7 GiB, the other 22.0."""


def fitting(*, without: str = "", fp32: bool = False, on: str = ROOMIEST) -> list[str]:
    """Which of SMALL fit a card of the 24 GB class."""
    where = card(on)
    plans = {name: together(name, without=without, fp32=fp32) for name in SMALL}
    return [name for name, plan in plans.items() if peak(plan, where) <= where.bytes]


def small() -> Iterator[Line]:
    for on in (ROOMIEST, TIGHTEST):
        where = card(on)
        for name in ("Qwen2.5-3B", "SmolLM3-3B", "Llama-3.2-3B", "Qwen3-4B"):
            plan = together(name)
            yield Line(
                anchor="up to about 3B on 24 GB: sleep, 8-bit AdamW, checkpointing",
                settings=f"{name}, weights in bf16: {where.name}",
                number=said(plan, where),
                confirmed=peak(plan, where) <= where.bytes,
            )
    found = fitting(fp32=True)
    yield Line(
        anchor="up to about 3B on 24 GB: sleep, 8-bit AdamW, checkpointing",
        settings="weights in fp32, TRL's default",
        number=f"{len(found)} of {len(SMALL)} models fit, up to {found[-1]}",
        confirmed=any("3B" in name for name in found),
    )
    for without in ("sleep", "8 bits", "checkpointing", "all"):
        found = fitting(without=without)
        yield Line(
            anchor="... and needs all three together",
            settings=f"without {without}, weights in bf16",
            number=f"{len(found)} of {len(SMALL)} models fit, up to {found[-1]}",
            confirmed=not any("3B" in name for name in found),
        )


# --- 32B and 70B


def sharded(model: str, gpus: int) -> Plan:
    """All weights trained, FSDP with fp32 states, the engine's tensor parallel over all."""
    plan = usual(model)
    one = replace(plan.engine or Engine(), tensor_parallel=gpus)
    return replace(plan, gpus=gpus, sharding="zero3", precision="sharded", optimizer="adamw", engine=one)


def served(plan: Plan) -> Plan:
    """With its engine on other GPUs."""
    return replace(plan, engine=replace(plan.engine or Engine(), mode="server"))


def large() -> Iterator[Line]:
    for model, home, below in (
        ("Qwen2.5-32B", "H200 141GB", "H100 80GB"),
        ("Llama-3.1-70B", "B200 180GB", "H200 141GB"),
    ):
        claim = f"about {model.rsplit('-', 1)[1]} on {home.split()[0]}-class"
        for what, plan in large_plans(model).items():
            yield Line(
                anchor=claim,
                settings=f"{model}, {what}: {home}",
                number=said(plan, card(home)),
                confirmed=peak(plan, card(home)) <= card(home).bytes,
            )
        for what in ("full, FSDP over 8", "full, FSDP over 8, 8-bit AdamW"):
            plan = large_plans(model)[what]
            yield Line(
                anchor="... and not one class below",
                settings=f"{model}, {what}: {below}",
                number=said(plan, card(below)),
                confirmed=peak(plan, card(below)) > card(below).bytes,
            )


def large_plans(model: str) -> dict[str, Plan]:
    """Ways to train a large model."""
    lora = replace(usual(model), lora=Lora(rank=32))
    four_bits = replace(lora.engine or Engine(), weight_bytes=0.6)
    return {
        "full, FSDP over 8": sharded(model, 8),
        "full, FSDP over 8, 8-bit AdamW": replace(sharded(model, 8), optimizer="adamw_8bit"),
        "full, FSDP over 4": sharded(model, 4),
        "full, FSDP over 4, 8-bit AdamW": replace(sharded(model, 4), optimizer="adamw_8bit"),
        "full in bf16, 8-bit AdamW, one GPU": usual(model),
        "LoRA 32, one GPU, colocated": lora,
        "LoRA 32, one GPU, engine on others": served(lora),
        "QLoRA 32, one GPU, 4-bit engine": replace(
            lora, lora=Lora(rank=32, quantized=True), engine=four_bits
        ),
    }


# --- colocate against server


def modes() -> dict[str, Plan]:
    """The same run with its engine in every mode."""
    plan = replace(usual("Qwen3-4B"), optimizer="adamw")
    one = Engine(sequences=64, context=1536, batched_tokens=4096)
    return {
        "colocated, awake": replace(plan, engine=one),
        "colocated, sleep level 1": replace(plan, engine=replace(one, sleep=1)),
        "colocated, sleep level 2": replace(plan, engine=replace(one, sleep=2)),
        "server": replace(plan, engine=replace(one, mode="server")),
    }


def engines() -> Iterator[Line]:
    where = card("H100 80GB")
    for mode, plan in modes().items():
        phases = estimate(plan, where).phases
        held = {each.name: sum(r.bytes for r in each.residents if r.owner == "engine") for each in phases}
        sizes = ", ".join(
            f"{phase.name} {phase.bytes / GIB:.1f} (engine {held[phase.name] / GIB:.1f})" for phase in phases
        )
        yield Line(
            anchor="colocate against server changes the residents",
            settings=f"Qwen3-4B, bf16, H100 80GB, engine's share 0.3: {mode}",
            number=f"{sizes} GiB",
            confirmed=(mode == "server") == (not any(held.values())),
        )


# --- chunked loss


def longest(model: str, lora: Lora | None, head: str, **changes: object) -> int:
    """Tokens of the longest single sequence that an H100 trains on, 0 if none."""
    where = card("H100 80GB")
    plan = Plan(
        model=shape_of(model),
        task="sft",
        prompt=0,
        completion=1,
        micro_batch=1,
        precision="bf16",
        lora=lora,
        checkpointing="recompute",
        attention="flash",
        engine=None,
    )
    plan = replace(plan, head=head, **changes)

    def fits(tokens: int) -> bool:
        return estimate(replace(plan, completion=tokens), where).peak.bytes <= where.bytes

    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def gain(model: str, lora: Lora | None, against: str = "naive", **changes: object) -> float:
    """How many times the context a chunked head buys."""
    return longest(model, lora, "chunked", **changes) / longest(model, lora, against, **changes)


def chunked() -> Iterator[Line]:
    """About 7 is taken for 5 to 10."""
    for model, lora in LONG:
        what = f"{model}, {'LoRA 16' if lora else 'full'}, bf16, H100 80GB, flash"
        for checkpointing in ("recompute", "offload", "none"):
            naive, selective, ours = (
                longest(model, lora, head, checkpointing=checkpointing)
                for head in ("naive", "selective", "chunked")
            )
            yield Line(
                anchor="chunked loss buys about 7x context",
                settings=f"{what}, checkpointing {checkpointing}",
                number=f"{naive:,} naive, {selective:,} selective, {ours:,} chunked tokens: "
                f"{ours / naive:.1f}x of naive, {ours / selective:.1f}x of selective",
                confirmed=5 <= ours / naive <= 10,
            )


# --- DGX Spark


def spark(model: str) -> Plan:
    """128 completions of 4,096 tokens, half of the box for the engine."""
    one = Engine(sequences=SEQUENCES, utilization=0.5, context=512 + CONTEXT, batched_tokens=4096)
    return replace(usual(model), completion=CONTEXT, prompts=16, generations=8, engine=one)


def bound(model: str) -> tuple[float, float, float]:
    """Share of the box that is used, of a step that is generation; what twice the sequences buy of speed."""
    where, plan = card("DGX Spark"), spark(model)
    used = estimate(plan, where).peak.bytes / where.bytes
    took = step_time(plan, where, at_once=engine.held(plan, where))
    once, twice = (
        decode(plan.model, where, batch=batch, context=CONTEXT).tokens_per_s
        for batch in (SEQUENCES, 2 * SEQUENCES)
    )
    return used, took.generation_s / took.busy_s, twice / once - 1


def box() -> Iterator[Line]:
    where, other = card("DGX Spark"), card("H100 80GB")
    for model in SPARK:
        plan = spark(model)
        used, generation, more = bound(model)
        took = step_time(plan, where, at_once=engine.held(plan, where)).busy_s
        there = step_time(plan, other, at_once=engine.held(plan, other)).busy_s
        yield Line(
            anchor="DGX Spark is limited by decode before memory",
            settings=f"{model}, {SEQUENCES} completions of {CONTEXT:,} tokens, bf16, engine's share 0.5",
            number=f"memory {used:.0%}; generation {generation:.0%} of a step of {took:,.0f} s (H100: "
            f"{there:,.0f} s); twice the sequences: {more:+.0%} tokens/s",
            confirmed=used <= 1 and generation > 0.5 and more < 0.25,
        )


# --- the rest


def rest() -> Iterator[Line]:
    asleep = replace(usual("Qwen3-0.6B"), expandable_segments=True)
    found = [one for one in lints.lints(asleep) if one.code == "expandable_segments"]
    yield Line(
        anchor="expandable_segments:True makes sleep free nothing",
        settings="any plan with it and sleep",
        number="; ".join(f"lint, {one.severity}: {one.why}" for one in found) or "no lint",
        confirmed=bool(found) and found[0].severity == "stop",
    )
    size = two_copies(4, 640, 151_936)
    yield Line(
        anchor="two fp32 copies of logits",
        settings="4 x 640 x 151,936 x 8 B",
        number=f"{size / GIB:.2f} GiB",
        confirmed=round(size / GIB, 2) == 2.90,
    )


def main() -> None:
    print("| anchor | settings | number | |\n|---|---|---|---|")
    for part in (small, large, engines, chunked, box, rest):
        for line in part():
            verdict = "confirmed" if line.confirmed else "refuted"
            print(f"| {line.anchor} | {line.settings} | {line.number} | {verdict} |")


if __name__ == "__main__":
    main()
