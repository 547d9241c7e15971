import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.memory.cards import card, plain
from steelyard.memory.roofline import attention_flops, decode, decode_s, prefill_s, weights_read
from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
from steelyard.memory.values import GIB

SPARK = card("spark")
QWEN3 = {
    "0.6B": (1024, 28, 16, 3072, True),
    "4B": (2560, 36, 32, 9728, True),
    "8B": (4096, 36, 32, 12288, False),
}
PARAMETERS = {"0.6B": 596_049_920, "4B": 4_022_468_096, "8B": 8_190_735_360}


def shape(hidden, depth, heads, width, tied, *, experts=0, active=0, window=None, kv_heads=8):
    head, copies = 128, max(experts, 1)
    sizes = {
        "q_proj": (hidden, heads * head),
        "k_proj": (hidden, kv_heads * head),
        "v_proj": (hidden, kv_heads * head),
        "o_proj": (heads * head, hidden),
    }
    linears = [Linear(name=name, inputs=i, outputs=o, reads="own") for name, (i, o) in sizes.items()]
    mlp = {"gate_proj": (hidden, width), "up_proj": (hidden, width), "down_proj": (width, hidden)}
    linears += [
        Linear(name=name, inputs=i, outputs=o, reads="own", copies=copies) for name, (i, o) in mlp.items()
    ]
    layer = Layer(
        count=depth,
        attention=Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head,
            value_dim=head,
            cache_dim=2 * kv_heads * head,
            window=window,
            qk_norm=True,
        ),
        mlp=Mlp(width=width, experts=experts, active=active),
        linears=tuple(linears),
        vectors=2 * hidden + 2 * head,
    )
    return ModelShape(
        name="typed in",
        family="qwen3",
        hidden=hidden,
        vocabulary=151_936,
        layers=(layer,),
        tied=tied,
        vectors=hidden,
    )


SMALL = shape(*QWEN3["0.6B"])
ROUTED = shape(512, 4, 8, 256, True, experts=32, active=4)
WINDOWED = shape(512, 4, 8, 1024, True, window=300)
MIXED = replace(SMALL, layers=(SMALL.layers[0], WINDOWED.layers[0]))
SHAPES = st.sampled_from([SMALL, ROUTED, WINDOWED, MIXED])
CARDS = st.sampled_from([SPARK, card("H100"), card("RTX 4090"), plain(GIB, bandwidth=1e12, flops=1e11)])
BATCHES = st.integers(1, 600)
CONTEXTS = st.integers(0, 50_000)


@pytest.mark.parametrize("size", QWEN3)
def test_the_shapes_typed_in_have_the_parameters_of_their_checkpoints(size):
    assert shape(*QWEN3[size]).parameters == PARAMETERS[size]


@pytest.mark.parametrize(
    ("size", "context", "tokens_per_s"),
    [
        ("0.6B", 512, 2719),
        ("4B", 512, 1338),
        ("8B", 512, 909),
        ("0.6B", 4096, 386),
        ("4B", 4096, 277),
        ("8B", 4096, 253),
    ],
)
def test_the_table_of_the_design_is_reproduced(size, context, tokens_per_s):
    at = decode(shape(*QWEN3[size]), SPARK, batch=128, context=context)
    assert at.tokens_per_s == pytest.approx(tokens_per_s, rel=0.03)
    assert at.bound == "bandwidth"


@pytest.mark.parametrize(("size", "share"), [("0.6B", 0.98), ("4B", 0.91), ("8B", 0.83)])
def test_the_cache_is_most_of_the_traffic_at_a_long_context(size, share):
    assert decode(shape(*QWEN3[size]), SPARK, batch=128, context=4096).cache_share == pytest.approx(
        share, abs=0.01
    )


@given(bytes_each=st.sampled_from([0.5, 1.0, 2.0]))
def test_one_stream_without_context_is_bandwidth_by_bytes_of_weights(bytes_each):
    one = decode(SMALL, SPARK, weight_bytes=bytes_each)
    assert one.tokens_per_s == pytest.approx(SPARK.sustained / (bytes_each * SMALL.parameters))
    assert one.cache_share == 0


@given(SHAPES, CARDS, BATCHES, CONTEXTS, st.integers(0, 5_000))
def test_more_context_never_raises_the_speed(model, where, batch, context, more):
    before = decode(model, where, batch=batch, context=context)
    after = decode(model, where, batch=batch, context=context + more)
    assert after.tokens_per_s <= before.tokens_per_s * (1 + 1e-12)


@given(SHAPES, CARDS, BATCHES, CONTEXTS, st.integers(0, 300))
def test_more_sequences_never_raise_the_speed_of_each(model, where, batch, context, more):
    before = decode(model, where, batch=batch, context=context).tokens_per_s / batch
    after = decode(model, where, batch=batch + more, context=context).tokens_per_s / (batch + more)
    assert after <= before * (1 + 1e-12)


@given(SHAPES, CARDS, BATCHES, CONTEXTS, st.floats(1, 10))
def test_more_bandwidth_never_lowers_the_speed(model, where, batch, context, times):
    faster = replace(where, sustained=where.sustained * times)
    before = decode(model, where, batch=batch, context=context).tokens_per_s
    assert decode(model, faster, batch=batch, context=context).tokens_per_s >= before * (1 - 1e-12)


@given(SHAPES, CARDS, BATCHES, CONTEXTS, st.sampled_from([2, 4, 8, 16]))
def test_more_gpus_never_lower_the_speed(model, where, batch, context, gpus):
    before = decode(model, where, batch=batch, context=context).tokens_per_s
    shared = decode(model, where, batch=batch, context=context, tensor_parallel=gpus).tokens_per_s
    assert before * (1 - 1e-12) <= shared <= gpus * before * (1 + 1e-12)


def test_a_head_of_the_cache_is_not_divided():
    eight, sixteen = (decode(SMALL, SPARK, context=100, tensor_parallel=gpus) for gpus in (8, 16))
    assert sixteen.weight_bytes == eight.weight_bytes / 2
    assert sixteen.cache_bytes == eight.cache_bytes


def test_latent_attention_is_kept_whole_by_every_gpu():
    layer = SMALL.layers[0]
    latent = replace(SMALL, layers=(replace(layer, attention=replace(layer.attention, cache_dim=576)),))
    one, eight = (decode(latent, SPARK, context=100, tensor_parallel=gpus) for gpus in (1, 8))
    assert eight.weight_bytes == one.weight_bytes / 8
    assert eight.cache_bytes == one.cache_bytes


def test_a_large_batch_of_little_context_is_bound_by_operations():
    slow = plain(GIB, bandwidth=1e12, flops=1e11)
    at = decode(SMALL, slow, batch=512, context=1)
    assert at.bound == "compute"
    assert at.tokens_per_s == pytest.approx(1e11 / (2 * SMALL.active))


def test_one_token_reads_the_active_experts_and_many_read_all():
    assert weights_read(ROUTED, 1) == pytest.approx(ROUTED.active)
    assert weights_read(ROUTED, 10_000) == pytest.approx(ROUTED.parameters)


def test_a_window_bounds_the_cache_that_is_read():
    full, more = (decode(WINDOWED, SPARK, context=tokens).cache_bytes for tokens in (300, 30_000))
    assert full == more


@given(
    SHAPES, CARDS, st.integers(1, 40), st.tuples(st.integers(0, 700), st.integers(0, 60)), st.integers(1, 50)
)
def test_decoding_a_batch_is_the_sum_of_its_steps(model, where, sequences, tokens_of_each, at_once):
    prompt, completion = tokens_of_each
    waves = [min(at_once, sequences - start) for start in range(0, sequences, at_once)]
    steps = math.fsum(
        size / decode(model, where, batch=size, context=tokens).tokens_per_s
        for size in waves
        for tokens in range(prompt, prompt + completion)
    )
    told = decode_s(model, where, sequences=sequences, prompt=prompt, completion=completion, at_once=at_once)
    assert told == pytest.approx(steps, rel=1e-9, abs=1e-15)


@given(SHAPES, st.integers(1, 500), st.integers(0, 2_000), st.integers(1, 2_000), st.integers(1, 500))
def test_waves_are_never_quicker_than_all_at_once(model, sequences, prompt, completion, at_once):
    sizes = {"sequences": sequences, "prompt": prompt, "completion": completion}
    waves = decode_s(model, SPARK, at_once=at_once, **sizes)
    assert waves >= decode_s(model, SPARK, **sizes) * (1 - 1e-12)


def test_a_prefill_is_twice_the_parameters_and_attention_on_top():
    h100 = card("H100")
    short = prefill_s(SMALL, h100, tokens=1000, share=1.0)
    assert short == pytest.approx(1000 * 2 * SMALL.active / h100.flops)
    assert prefill_s(SMALL, h100, tokens=1000, context=8000, share=1.0) > short
    assert attention_flops(WINDOWED, 600) == attention_flops(WINDOWED, 60_000)


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"context": -1}, {"tensor_parallel": 0}, {"weight_bytes": 0}, {"cache_bytes": -1}]
)
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(RefusedError, match=next(iter(wrong))):
        decode(SMALL, SPARK, **wrong)


@pytest.mark.parametrize("wrong", ["sequences", "prompt", "completion", "at_once"])
def test_a_batch_that_cannot_be_is_refused(wrong):
    with pytest.raises(RefusedError, match=wrong):
        decode_s(SMALL, SPARK, **{"sequences": 1, "prompt": 1, "completion": 1, wrong: -1})


def test_speed_is_refused_where_bandwidth_is_not_known():
    with pytest.raises(RefusedError, match="bandwidth of 20 GiB is not known"):
        decode(SMALL, plain(20 * GIB))


def test_a_prefill_is_refused_where_operations_are_not_known_and_decoding_is_not():
    mac = card("M4 Max 128GB")
    with pytest.raises(RefusedError, match="no public figure"):
        prefill_s(SMALL, mac, tokens=1)
    assert decode(SMALL, mac).bound == "bandwidth"
