from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.memory.cards import card, plain
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.roofline import attention_flops, decode_s
from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
from steelyard.memory.steps import MFU, Share, StepTime, step_time
from steelyard.memory.values import GIB
from steelyard.planned import planned_price
from steelyard.pricing import Prices

MODEL = ModelShape(
    name="tiny",
    family="llama",
    hidden=256,
    vocabulary=1000,
    layers=(
        Layer(
            count=4,
            attention=Attention(heads=4, kv_heads=2, head_dim=64, value_dim=64, cache_dim=256),
            mlp=Mlp(width=512),
            linears=(Linear(name="up_proj", inputs=256, outputs=2048, reads="mlp norm"),),
            vectors=512,
        ),
    ),
    tied=True,
    vectors=256,
)
H100 = card("H100")
PLAN = Plan(model=MODEL, rescored=False)
CERTAIN = Share(1.0, 1.0, 1.0)
STEP = StepTime(generation_s=12.5, training_s=12.0, low=18.0, high=40.0, says=("as told",))


def sure(plan, where=H100, **more):
    return step_time(plan, where, mfu=CERTAIN, decode_share=CERTAIN, **more)


def units(plan, **more):
    per_token = MODEL.active + attention_flops(MODEL, plan.tokens) / 2
    tokens = plan.completions * plan.tokens
    return sure(plan, **more).training_s * H100.flops * plan.gpus / (per_token * tokens)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"checkpointing": "none"}, 6),
        ({"checkpointing": "recompute"}, 8),
        ({"reference": True}, 10),
        ({"lora": Lora()}, 6),
        ({"lora": Lora(), "checkpointing": "none"}, 4),
        ({"task": "sft"}, 8),
        ({"task": "inference"}, 2),
    ],
)
def test_training_costs_what_its_passes_cost(change, expected):
    assert units(replace(PLAN, **change)) == pytest.approx(expected)


def test_training_is_shared_by_all_gpus():
    one, four = (sure(replace(PLAN, gpus=gpus)).training_s for gpus in (1, 4))
    assert four == pytest.approx(one / 4)


def test_log_probabilities_made_anew_are_one_more_forward():
    assert units(replace(PLAN, rescored=True)) == pytest.approx(10)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"engine": None}, False),
        ({"engine": Engine(mode="none")}, False),
        ({"task": "sft"}, False),
    ],
)
def test_where_vllm_generates_a_step_scores_anew_unless_told_otherwise(change, expected):
    assert replace(PLAN, rescored=None, **change).rescores is expected


@pytest.mark.parametrize("task", ["sft", "inference"])
def test_what_does_not_generate_spends_nothing_on_it(task):
    assert step_time(replace(PLAN, task=task), H100).generation_s == 0


@given(st.integers(1, 64), st.integers(1, 16), st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 4))
def test_a_larger_step_never_takes_less_time(prompts, generations, prompt, completion, times):
    plan = Plan(model=MODEL, prompts=prompts, generations=generations, prompt=prompt, completion=completion)
    one = step_time(plan, H100).busy_s
    for name in ("prompts", "generations", "prompt", "completion"):
        larger = replace(plan, **{name: getattr(plan, name) * times})
        assert step_time(larger, H100).busy_s >= one * (1 - 1e-12)


def test_the_band_holds_the_estimate_and_its_ends_are_the_shares():
    step = step_time(PLAN, H100)
    assert step.low < step.busy_s < step.high
    assert any("assumption" in said for said in step.says)
    half = step_time(PLAN, H100, mfu=Share(MFU.value / 2, MFU.value / 2, MFU.value / 2))
    assert half.training_s == pytest.approx(2 * step.training_s)


def test_a_cache_that_holds_fewer_sequences_takes_longer():
    assert sure(PLAN, at_once=4).generation_s > sure(PLAN, at_once=64).generation_s


def test_a_server_generates_on_its_own_gpus_and_colocated_engines_on_the_trainers():
    plan = replace(PLAN, gpus=4)
    server = replace(plan, engine=Engine(mode="server"))
    assert sure(server).generation_s > sure(plan).generation_s
    assert sure(server, engine_gpus=4).generation_s == pytest.approx(sure(plan).generation_s)


def test_without_an_engine_the_model_reads_each_prompt_for_each_completion():
    none = sure(replace(PLAN, engine=None)).generation_s
    assert none == sure(replace(PLAN, engine=Engine(mode="none"))).generation_s
    assert none > sure(PLAN).generation_s


def test_generation_without_prompts_is_the_decoding_of_the_roofline():
    plan = replace(PLAN, prompt=0)
    alone = decode_s(MODEL, H100, sequences=64, prompt=0, completion=1024, at_once=256)
    assert sure(plan).generation_s == pytest.approx(alone)


def test_gpus_that_hold_no_whole_copy_are_refused():
    with pytest.raises(RefusedError, match="cannot be shared out by 4"):
        step_time(replace(PLAN, engine=Engine(tensor_parallel=4)), H100)


def test_a_card_without_known_operations_is_refused():
    with pytest.raises(RefusedError, match="no public figure"):
        step_time(PLAN, plain(GIB, bandwidth=1e12))


@pytest.mark.parametrize("wrong", [Share(0.5, 0.3, 0.6), Share(0, 0.3, 0.6), Share(0.1, 0.3, 1.1)])
def test_shares_that_do_not_rise_from_above_0_to_1_are_refused(wrong):
    with pytest.raises(RefusedError, match="mfu"):
        step_time(PLAN, H100, mfu=wrong)


def test_a_planned_step_is_generation_and_wait_and_training():
    price = planned_price(
        STEP, batch=128, group=8, median_s=2, timeout_s=30, rate=0.01, prices=Prices(3.95, accelerators=8)
    )
    assert price.busy.value == STEP.busy_s
    assert price.step.value == pytest.approx(STEP.busy_s + price.wait.value)
    assert price.idle.value == pytest.approx(price.wait.value / price.step.value)
    assert price.money["per_hour"].value == pytest.approx(8 * 3.95)
    arrival = next(remedy for remedy in price.remedies if remedy.name == "groups")
    assert arrival.saves.value > 0
    assert not price.measured
    assert "18 to 40 s" in price.busy.basis


def test_a_reward_that_nobody_told_is_not_counted_and_the_price_says_so():
    price = planned_price(STEP, batch=128, group=8)
    assert (price.wait, price.step, price.idle) == (None, None, None)
    assert price.busy.value == STEP.busy_s
    assert price.notes[0].startswith("The reward is not counted")
    assert "Busy time: as told." in price.notes


def test_a_median_alone_is_a_reward_that_is_never_cut():
    price = planned_price(STEP, batch=128, group=8, median_s=3)
    assert price.wait.value == pytest.approx(3)
    assert any("No reward is taken to be cut" in note for note in price.notes)


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ({"timeout_s": 30}, "median, rate"),
        ({"median_s": 2, "timeout_s": 30}, "rate"),
        ({"median_s": 2, "rate": 0.01}, "timeout"),
        ({"timeout_s": 30, "rate": 0.01}, "median"),
    ],
)
def test_half_a_reward_is_refused_with_what_is_missing(told, lacks):
    with pytest.raises(RefusedError, match=f"the {lacks} is not known"):
        planned_price(STEP, batch=128, group=8, **told)
