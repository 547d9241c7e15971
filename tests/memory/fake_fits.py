"""Fits to draw, made by hand: every field of the values that a report may meet, without the engine."""

from dataclasses import replace

from steelyard.memory.lints import Lint
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
from steelyard.memory.values import GIB, Card, Estimate, Fit, Largest, Lever, Phase, Resident
from steelyard.report.memory_words import FitReport
from steelyard.report.words import Row, Section

HOSTILE = "</script><img src=x onerror=\"console.error('run')\"><!--<script> & 'quoted' \x1b[31m\u202egnp"


def shape(name="Qwen3-8B"):
    layer = Layer(
        count=36,
        attention=Attention(heads=32, kv_heads=8, head_dim=128, value_dim=128, cache_dim=2048, qk_norm=True),
        mlp=Mlp(width=12288),
        linears=(
            Linear(name="q_proj", inputs=4096, outputs=4096, reads="attention norm"),
            Linear(name="down_proj", inputs=12288, outputs=4096, reads="activation", copies=3),
        ),
        vectors=8448,
    )
    return ModelShape(
        name=name, family="qwen3", hidden=4096, vocabulary=151936, layers=(layer,), tied=False, vectors=4096
    )


def resident(name, owner, size, formula="", source="PyTorch 2.6, torch/cuda/memory.py"):
    return Resident(
        name=name,
        owner=owner,
        bytes=size * GIB,
        formula=formula or f"2 B x {int(size * 1e9):,} values / 1 GPU",
        source=source,
    )


CARD = Card(name="H100 80GB", bytes=79.2 * GIB, bandwidth=3.35e12, sustained=2.9e12, flops=989e12)


def phases(growth=1.0):
    states = (
        resident("weights", "trainer", 15.26, "2 B x 8,190,735,360 weights", "PyTorch, bf16 is 2 bytes"),
        resident("gradients", "trainer", 15.26, "2 B x 8,190,735,360 weights", "PyTorch, bf16 is 2 bytes"),
        resident(
            "optimizer states",
            "trainer",
            30.51,
            "2 x 2 B x 8,190,735,360 weights (m and v)",
            "Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101",
        ),
    )
    device = (
        resident("CUDA context", "device", 0.5, "0.5 GiB x 1 process", "nvidia-smi of an empty process"),
    )
    holes = resident("fragmentation", "trainer", 1.1, "2 % of 55 GiB", "measured: reserved less allocated")
    cache = resident("KV cache", "engine", 8.1, "0.3 x 79.2 GiB less weights, peak and graphs", "vLLM 0.11")
    return (
        Phase(
            name="generation",
            moment="decoding",
            residents=(*states, resident("engine weights", "engine", 15.26), cache, *device),
        ),
        Phase(
            name="training",
            moment="backward of the head",
            residents=(
                *states,
                resident("activations", "trainer", 24.2 * growth),
                resident("logits", "trainer", 9.3 * growth, "14 B x 4 x 1,536 x 151,936"),
                holes,
                resident("sleeping engine", "engine", 1.6),
                *device,
            ),
        ),
        Phase(
            name="sync",
            moment="pushing the weights",
            residents=(
                *states,
                resident("engine weights", "engine", 15.26),
                resident("bucket", "engine", 0.004, "the largest tensor"),
                *device,
            ),
        ),
    )


def fit(verdict="does not fit", *, growth=1.0, band=0.1, name="Qwen3-8B", card=CARD, gpus=1):
    plan = Plan(model=shape(name), gpus=gpus, engine=Engine(sleep=2))
    estimate = Estimate(
        plan=plan,
        phases=phases(growth),
        below=band,
        above=band,
        confidence="high",
        why="25 peaks of dense models of two sizes were within 10 %.",
    )
    levers = (
        Lever(
            name="chunked log-probabilities",
            option="--head chunked",
            saves=9.1 * GIB,
            left=estimate.peak.bytes - 9.1 * GIB,
            verdict="does not fit",
            cost="a second pass over the head, about 2 % of a step",
            plan=replace(plan, head="chunked"),
        ),
        Lever(
            name="AdamW in 8 bits",
            option="--optimizer adamw_8bit",
            saves=22.9 * GIB,
            left=estimate.peak.bytes - 22.9 * GIB,
            verdict="fits",
            cost="states are rounded; on small models no loss was seen",
            plan=replace(plan, optimizer="adamw_8bit"),
        ),
        Lever(
            name="a lower share for vLLM",
            option="--utilization 0.2",
            saves=0.0,
            left=estimate.peak.bytes,
            verdict=verdict,
            cost="fewer sequences at once",
            plan=plan,
        ),
        Lever(
            name="single optimizer step",
            option="--step-kernel single",
            saves=-2.3 * GIB,
            left=estimate.peak.bytes + 2.3 * GIB,
            verdict="does not fit",
            cost="slower",
            plan=plan,
        ),
    )
    batch = None if verdict == "does not fit" else 12
    largest = Largest(micro_batch=batch, micro_tokens=None, context=4096, model="Qwen3-4B")
    return Fit(
        estimate=estimate,
        card=card,
        verdict=verdict,
        why="97.7 GiB of 79.2",
        held=23,
        levers=levers,
        together=levers[1:2] if verdict == "does not fit" else (),
        largest=largest,
    )


def report(text="", **changes):
    """All that can be said; `text` stands wherever a file's or a model's words may."""
    found = fit(**({"name": text} if text else {}), **changes)
    speed = Section(
        "decode",
        "How fast it decodes, at most",
        [Row("tokens/s", "909", "", text or "64 sequences of 1,024 tokens, 2.9 TB/s sustained")],
    )
    lint = Lint(
        "expandable_segments",
        text or "expandable_segments:True with an engine that sleeps",
        "it freed 0 of 63.15 GiB",
        "unset PYTORCH_CUDA_ALLOC_CONF",
        "stop",
    )
    return FitReport(found, (lint,), (speed,))
