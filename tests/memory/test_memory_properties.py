"""More of anything that costs memory never lowers an estimate; sharing it among more GPUs never raises it."""

from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.memory import cards
from steelyard.memory import plan as plans
from steelyard.memory.catalogue import names, shape_of
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import Engine, Lora, Plan

CARD = cards.card("H100 80GB")
SHAPES = [
    shape_of(name)
    for name in (
        "Qwen3-0.6B",
        "Llama-3.1-8B",
        "gemma-2-2b",
        "gemma-3-4b",
        "phi-2",
        "DeepSeek-V2-Lite",
        "Qwen3-30B-A3B",
    )
]
CHOICES = {
    "precision": plans.Precision,
    "optimizer": plans.Optimizer,
    "step_kernel": plans.StepKernel,
    "checkpointing": plans.Checkpointing,
    "attention": plans.AttentionKernel,
    "head": plans.Head,
    "head_tokens": plans.HeadTokens,
    "sharding": plans.Sharding,
    "offload_optimizer": plans.Offload,
    "offload_weights": plans.Offload,
    "offload_reference": plans.Offload,
    "task": plans.Task,
}
LORAS = st.none() | st.builds(Lora, rank=st.integers(1, 256), sets=st.integers(1, 4), quantized=st.booleans())
ENGINES = st.none() | st.builds(
    Engine,
    mode=st.sampled_from(get_args(plans.EngineMode)),
    utilization=st.floats(0.05, 0.95),
    sleep=st.sampled_from([0, 1, 2]),
    tensor_parallel=st.sampled_from([1, 2, 4]),
    sequences=st.integers(1, 1024),
    graphs=st.booleans(),
    bucket_bytes=st.none() | st.floats(0, 4e9),
    batched_tokens=st.integers(1, 32768),
    own_process=st.booleans(),
    weight_bytes=st.sampled_from([0.5, 1.0, 2.0]),
    cache_bytes=st.sampled_from([1.0, 2.0]),
)
PLANS = st.builds(
    Plan,
    model=st.sampled_from(SHAPES),
    prompt=st.integers(0, 4096),
    completion=st.integers(1, 8192),
    micro_batch=st.integers(1, 64),
    micro_tokens=st.none() | st.integers(1, 65536),
    generations=st.integers(1, 16),
    prompts=st.integers(1, 64),
    lora=LORAS,
    fused_kernels=st.booleans(),
    chunk=st.integers(1, 8192),
    chunk_vocabulary=st.none() | st.integers(1, 300_000),
    reference=st.booleans(),
    gpus=st.sampled_from([4, 8, 16]),
    tensor_parallel=st.sampled_from([1, 2]),
    sequence_parallel=st.sampled_from([1, 2]),
    engine=ENGINES,
    **{name: st.sampled_from(get_args(kind)) for name, kind in CHOICES.items()},
)
quickly = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def peak(plan):
    return estimate(plan, CARD).peak.bytes


MORE = {
    "prompt": lambda plan, n: replace(plan, prompt=plan.prompt + n),
    "completion": lambda plan, n: replace(plan, completion=plan.completion + n),
    "micro-batch": lambda plan, n: replace(plan, micro_batch=plan.micro_batch + n),
    "packed tokens": lambda plan, n: plan.micro_tokens and replace(plan, micro_tokens=plan.micro_tokens + n),
    "prompts": lambda plan, n: replace(plan, prompts=plan.prompts + n),
    "generations": lambda plan, n: replace(plan, generations=plan.generations + n),
    "chunk": lambda plan, n: replace(plan, chunk=plan.chunk + n),
    "entries of a chunk": lambda plan, n: (
        plan.chunk_vocabulary and replace(plan, chunk_vocabulary=plan.chunk_vocabulary + n)
    ),
    "a reference model": lambda plan, _: replace(plan, reference=True),
    "activations kept": lambda plan, _: replace(plan, checkpointing="none"),
    "layer inputs kept": lambda plan, _: (
        plan.checkpointing == "offload" and replace(plan, checkpointing="recompute")
    ),
    "logits of all tokens": lambda plan, _: replace(plan, head_tokens="all"),
    "an optimizer at home": lambda plan, _: replace(plan, offload_optimizer="none"),
    "weights at home": lambda plan, _: replace(plan, offload_weights="none"),
    "a reference at home": lambda plan, _: replace(plan, offload_reference="none"),
    "AdamW of full width": lambda plan, _: replace(plan, optimizer="adamw"),
    "a rank": lambda plan, n: plan.lora and replace(plan, lora=replace(plan.lora, rank=plan.lora.rank + n)),
    "an adapter": lambda plan, n: (
        plan.lora and replace(plan, lora=replace(plan.lora, sets=plan.lora.sets + n))
    ),
    "a base in 16 bits": lambda plan, _: (
        plan.lora and replace(plan, lora=replace(plan.lora, quantized=False))
    ),
    "gradients in fp32": lambda plan, _: replace(plan, gradient_bytes=4),
    "an engine awake": lambda plan, _: plan.engine and replace(plan, engine=replace(plan.engine, sleep=0)),
    "an engine's share": lambda plan, n: (
        plan.engine
        and replace(
            plan, engine=replace(plan.engine, utilization=min(1.0, plan.engine.utilization + n / 10_000))
        )
    ),
    "an engine's context": lambda plan, n: (
        plan.engine and replace(plan, engine=replace(plan.engine, context=(plan.engine.context or 0) + n))
    ),
    "an engine's process": lambda plan, _: (
        plan.engine and replace(plan, engine=replace(plan.engine, own_process=True))
    ),
    "a bucket": lambda plan, n: (
        plan.engine
        and plan.engine.bucket_bytes is not None
        and replace(plan, engine=replace(plan.engine, bucket_bytes=plan.engine.bucket_bytes + 1e6 * n))
    ),
    "graphs": lambda plan, _: plan.engine and replace(plan, engine=replace(plan.engine, graphs=True)),
}


@pytest.mark.parametrize("what", MORE)
@quickly
@given(plan=PLANS, n=st.integers(1, 4096))
def test_more_of_anything_that_costs_memory_never_lowers_the_estimate(what, plan, n):
    more = MORE[what](plan, n)
    if more:
        assert peak(more) >= peak(plan) * (1 - 1e-12)


@quickly
@given(
    plan=PLANS,
    name=st.sampled_from(["layers", "vocabulary", "MLP", "keys and values"]),
    n=st.integers(1, 8),
)
def test_a_larger_model_never_lowers_the_estimate(plan, name, n):
    assert peak(replace(plan, model=larger(plan.model, name, n))) >= peak(plan) * (1 - 1e-12)


def larger(shape, name, n):
    first, *rest = shape.layers
    if name == "vocabulary":
        return replace(shape, vocabulary=shape.vocabulary + 1000 * n)
    if name == "layers":
        first = replace(first, count=first.count + n)
    if name == "MLP":
        first = replace(first, mlp=replace(first.mlp, width=first.mlp.width + 128 * n))
    if name == "keys and values":
        first = replace(
            first, attention=replace(first.attention, cache_dim=first.attention.cache_dim + 64 * n)
        )
    return replace(shape, layers=(first, *rest))


@pytest.mark.parametrize("what", ["shards", "tensor_parallel", "sequence_parallel", "the engine's"])
@quickly
@given(plan=PLANS, factor=st.sampled_from([2, 4]))
def test_more_gpus_never_raise_the_estimate_of_what_they_share(what, plan, factor):
    assume(plan.sharding != "none")  # DDP shares nothing, and adds buckets
    more = replace(plan, gpus=plan.gpus * factor)
    if what == "the engine's":
        assume(plan.engine)
        engine = replace(plan.engine, tensor_parallel=plan.engine.tensor_parallel * factor)
        more = replace(plan, engine=engine)
    elif what != "shards":
        more = replace(more, **{what: getattr(plan, what) * factor})
    assert peak(more) <= peak(plan) * (1 + 1e-12)


@quickly
@given(plan=PLANS)
def test_sharing_states_never_raises_the_estimate(plan):
    assume(plan.shards > 1)
    found = [peak(replace(plan, sharding=stage)) for stage in ("none", "zero1", "zero2")]
    assert found == sorted(found, reverse=True)


@quickly
@given(plan=PLANS)
def test_sharing_weights_raises_it_by_no_more_than_what_is_gathered(plan):
    """Layers that are used are whole on every GPU, beside their shards: of a few, that can be more."""
    assume(plan.shards > 1)
    two, three = (estimate(replace(plan, sharding=stage), CARD) for stage in ("zero2", "zero3"))
    gathered = max(
        sum(one.bytes for one in phase.residents if one.name.startswith("gathered")) for phase in three.phases
    )
    assert three.peak.bytes <= (two.peak.bytes + gathered) * 1.02


@quickly
@given(plan=PLANS)
def test_every_resident_is_told_with_its_formula_and_source(plan):
    for phase in estimate(plan, CARD).phases:
        assert phase.residents
        for one in phase.residents:
            assert one.bytes > 0
            assert one.formula
            assert one.source


@quickly
@given(plan=PLANS)
def test_reserved_holds_what_is_allocated_and_the_device_holds_both(plan):
    for phase in estimate(plan, CARD).phases:
        assert 0 <= phase.allocated <= phase.reserved <= phase.bytes


@pytest.mark.parametrize("name", names())
def test_every_model_of_the_catalogue_has_an_estimate(name):
    for task in get_args(plans.Task):
        found = estimate(Plan(model=shape_of(name), task=task), CARD)
        assert found.low < found.peak.bytes < found.high
        assert found.why


def test_the_peak_is_the_worst_phase():
    found = estimate(Plan(model=SHAPES[0]), CARD)
    assert found.peak.bytes == max(phase.bytes for phase in found.phases)
    assert {phase.name for phase in found.phases} == {"generation", "training", "sync"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("micro_batch", 0),
        ("completion", -1),
        ("gpus", 0),
        ("precision", "fp8"),
        ("head", "none"),
        ("sharding", "fsdp"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_its_field_and_value(field, value):
    with pytest.raises(RefusedError) as told:
        Plan(model=SHAPES[0], **{field: value})
    assert field in str(told.value)
    assert repr(value) in str(told.value)


def test_gpus_that_cannot_be_shared_out_are_refused():
    with pytest.raises(RefusedError, match="4 GPUs cannot be shared out by 3"):
        Plan(model=SHAPES[0], gpus=4, tensor_parallel=3)


def test_adapters_of_matrices_that_a_model_has_not_are_refused_with_those_that_it_has():
    with pytest.raises(RefusedError, match="'c_attn' is no linear layer of") as told:
        estimate(Plan(model=SHAPES[0], lora=Lora(targets=("c_attn",))), CARD)
    assert "gate_proj" in str(told.value)


def test_every_field_of_a_plan_moves_some_estimate():
    """A setting that changes nothing anywhere would be decoration."""
    quiet = {field.name for field in fields(Plan)} - set(CHOICES) - {"model", "engine", "lora"}
    base = Plan(
        model=SHAPES[0],
        gpus=8,
        sharding="zero2",
        precision="bf16",
        head="chunked",
        engine=None,
        generations=16,
    )
    packed = replace(base, micro_tokens=8192)
    changed = {
        "prompt": replace(base, prompt=4096),
        "completion": replace(base, completion=4096),
        "micro_batch": replace(base, micro_batch=128),
        "micro_tokens": packed,
        "generations": replace(base, generations=512),
        "prompts": replace(base, prompts=512),
        "chunk": replace(base, chunk=1_000_000),
        "chunk_vocabulary": replace(base, chunk=1_000_000, chunk_vocabulary=50_000),
        "reference": replace(base, reference=True),
        "gpus": replace(base, gpus=16),
        "gradient_bytes": replace(base, gradient_bytes=4),
        "fused_kernels": replace(base, fused_kernels=True),
        "tensor_parallel": replace(base, tensor_parallel=2),
        "sequence_parallel": replace(base, sequence_parallel=2),
    }
    assert set(changed) | {"expandable_segments", "rescored"} == quiet  # of lints, and of steps
    for name, plan in changed.items():
        assert _told(plan) != _told(base), name


def _told(plan):
    return {
        phase.name: phase.bytes
        for phase in estimate(replace(plan, micro_batch=max(64, plan.micro_batch)), CARD).phases
    }


def test_beside_four_bits_nothing_is_cast():
    plan = Plan(model=SHAPES[0], precision="autocast", lora=Lora(quantized=True), engine=None)
    names = {one.name for phase in estimate(plan, CARD).phases for one in phase.residents}
    assert "weights" in names
    assert not any("cast" in name for name in names)


def test_a_cache_of_a_forward_pass_in_fp32_is_twice_as_large():
    plan = Plan(model=SHAPES[0], task="inference", precision="bf16")
    half, whole = (
        sum(one.bytes for one in estimate(each, CARD).peak.residents if one.name == "KV cache")
        for each in (plan, replace(plan, precision="fp32"))
    )
    assert whole == 2 * half > 0
