"""What the planner says of the anchors of memory.md (`bench/anchors.py`): sides, not tight values."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.memory import engine, lints
from steelyard.memory.cards import card
from steelyard.memory.estimate import estimate
from steelyard.memory.head import two_copies
from steelyard.memory.plan import Lora
from steelyard.memory.values import GIB

BENCH = Path(__file__).parents[2] / "bench" / "anchors.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_anchors", BENCH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class TestSmallModelsOn24GB:
    def test_a_3b_model_fits_the_roomiest_with_sleep_and_8_bits_and_checkpointing_together(self, bench):
        assert any("3B" in name for name in bench.fitting())
        assert "Qwen3-4B" not in bench.fitting()

    def test_none_fits_the_tightest(self, bench):
        found = bench.fitting(on=bench.TIGHTEST)
        assert found
        assert not any("3B" in name for name in found)

    @pytest.mark.parametrize("without", ["sleep", "8 bits", "checkpointing", "all"])
    def test_no_3b_model_fits_without_one_of_the_three(self, bench, without):
        found = bench.fitting(without=without)
        assert found
        assert not any("3B" in name for name in found)
        assert set(found) < set(bench.fitting())

    def test_weights_in_fp32_as_trl_loads_them_end_far_below_3b(self, bench):
        found = bench.fitting(fp32=True)
        assert "Llama-3.2-1B" in found
        assert not any("3B" in name for name in found)

    def test_the_engines_share_is_the_least_that_holds_eight_sequences(self, bench):
        where = card("24GB")
        plan = bench.shared_out(bench.usual("Qwen2.5-3B"), where)
        less = replace(plan, engine=replace(plan.engine, utilization=plan.engine.utilization - 0.05))
        assert engine.held(plan, where) >= 8 > engine.held(less, where)


class TestLargeModels:
    @pytest.mark.parametrize(("model", "home"), [("Qwen2.5-32B", "H200"), ("Llama-3.1-70B", "B200")])
    def test_all_weights_fit_eight_such_cards_and_not_one(self, bench, model, home):
        where, plans = card(home), bench.large_plans(model)
        assert bench.peak(plans["full, FSDP over 8"], where) < where.bytes
        assert bench.peak(plans["full in bf16, 8-bit AdamW, one GPU"], where) > where.bytes

    @pytest.mark.parametrize(("model", "home"), [("Qwen2.5-32B", "H200"), ("Llama-3.1-70B", "B200")])
    def test_adapters_fit_one_such_card_if_the_engine_is_elsewhere_or_in_4_bits(self, bench, model, home):
        where, plans = card(home), bench.large_plans(model)
        for what in ("LoRA 32, one GPU, engine on others", "QLoRA 32, one GPU, 4-bit engine"):
            assert bench.peak(plans[what], where) < where.bytes

    def test_adapters_of_70b_do_not_fit_one_b200_with_a_bf16_engine_beside_them(self, bench):
        where = card("B200")
        assert (
            bench.peak(bench.large_plans("Llama-3.1-70B")["LoRA 32, one GPU, colocated"], where) > where.bytes
        )

    def test_70b_needs_b200s_for_all_weights_unless_moments_are_in_8_bits(self, bench):
        where, plans = card("H200"), bench.large_plans("Llama-3.1-70B")
        assert bench.peak(plans["full, FSDP over 8"], where) > where.bytes
        assert bench.peak(plans["full, FSDP over 8, 8-bit AdamW"], where) < where.bytes


def test_a_colocated_engine_is_resident_in_every_phase_and_a_server_in_none(bench):
    where = card("H100 80GB")
    for mode, plan in bench.modes().items():
        for phase in estimate(plan, where).phases:
            held = sum(resident.bytes for resident in phase.residents if resident.owner == "engine")
            assert (held == 0) == (mode == "server"), (mode, phase.name)


def test_sleep_gives_the_training_phase_most_of_the_engines_share_back(bench):
    where, plans = card("H100 80GB"), bench.modes()

    def training(mode):
        (found,) = (phase for phase in estimate(plans[mode], where).phases if phase.name == "training")
        return found.bytes

    awake, asleep, server = (
        training(mode) for mode in ("colocated, awake", "colocated, sleep level 2", "server")
    )
    assert awake - asleep > 0.8 * (awake - server)
    assert asleep > server


class TestChunkedLoss:
    def test_it_buys_about_seven_times_the_context_of_a_model_of_one_to_four_billion(self, bench):
        for model in ("Qwen2.5-1.5B", "Qwen3-1.7B", "Qwen3-4B"):
            assert 5 <= bench.gain(model, None) <= 10

    def test_the_larger_the_model_the_less_it_buys(self, bench):
        adapters = Lora(rank=16)
        full = [bench.gain(model, None) for model in ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B")]
        lora = [bench.gain(model, adapters) for model in ("Qwen3-4B", "Qwen3-8B", "Qwen3-32B")]
        assert full == sorted(full, reverse=True)
        assert lora == sorted(lora, reverse=True)
        assert full[0] > 10
        assert lora[-1] < 3

    def test_without_checkpointing_it_buys_little(self, bench):
        assert bench.gain("Qwen3-0.6B", None, checkpointing="none") < 3

    def test_against_a_selective_head_it_buys_less_than_against_a_naive_one(self, bench):
        for model in ("Qwen3-0.6B", "Qwen3-4B"):
            assert 1 < bench.gain(model, None, "selective") < bench.gain(model, None)


def test_a_dgx_spark_spends_its_step_on_decoding_and_more_memory_would_not_help(bench):
    for model in bench.SPARK:
        used, generation, more = bench.bound(model)
        assert used < 1
        assert generation > 0.5
        assert more < 0.25


def test_two_fp32_copies_of_the_studys_logits_are_2_90_gib():
    assert round(two_copies(4, 640, 151_936) / GIB, 2) == 2.90


def test_expandable_segments_stop_a_run_whose_engine_sleeps(bench):
    asleep = replace(bench.usual("Qwen3-0.6B"), expandable_segments=True)
    awake = replace(asleep, engine=replace(asleep.engine, sleep=0))
    codes = [{lint.code for lint in lints.lints(plan) if lint.severity == "stop"} for plan in (asleep, awake)]
    assert "expandable_segments" in codes[0]
    assert "expandable_segments" not in codes[1]


def test_every_anchor_is_printed_with_a_verdict(bench, capsys):
    bench.main()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) > 50
    assert all(line.endswith(("| confirmed |", "| refuted |")) for line in lines)
