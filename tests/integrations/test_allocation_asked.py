"""A request is read or refused, and what one process cannot run is said before it tries."""

import subprocess
import sys
from dataclasses import asdict, fields, replace

import pytest

from steelyard.errors import RefusedError
from steelyard.integrations.allocation.asked import alone, not_run, read_asked
from steelyard.memory.catalogue import config_of, shape_of
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.values import Card

PLAN = Plan(model=shape_of("Qwen3-0.6B"))
CARD = Card(name="card", bytes=8e10, bandwidth=3e12, sustained=2e12, flops=None)


def request_of(of=PLAN, /, **changes):
    told = {field.name: getattr(of, field.name) for field in fields(of) if field.name != "model"}
    told |= {name: asdict(told[name]) for name in ("lora", "engine") if told[name] is not None}
    config = config_of("Qwen/Qwen3-0.6B")
    return {
        "protocol": 1,
        "name": PLAN.model.name,
        "config": config,
        "plan": told,
        "card": asdict(CARD),
    } | changes


@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, engine=None, lora=Lora(targets=("q_proj",))), replace(PLAN, task="sft")]
)
def test_a_plan_comes_through_as_it_was_sent(plan):
    asked = read_asked(request_of(plan))
    assert asked.plan == plan
    assert asked.card == CARD
    assert asked.gpu


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"protocol": 2}, "its protocol is 2"),
        ({"config": None}, "must be objects"),
        ({"plan": {"batch": 1}}, "has batch, which no plan has"),
        ({"plan": {"lora": {"rnak": 1}}}, "rnak"),
        ({"plan": {"lora": 16}}, "cannot be read"),
        ({"plan": {"micro_batch": "8"}}, "is not 1 or more"),
        ({"plan": {"micro_batch": 0}}, "is not 1 or more"),
        ({"card": None}, "its card cannot be read"),
        ({"device": "tpu"}, "must be auto or none"),
        ({"points": 1}, "a path or null"),
    ],
)
def test_what_cannot_be_is_refused(changes, says):
    with pytest.raises(RefusedError, match=says):
        read_asked(request_of(**changes))


def test_a_request_that_is_no_object_is_refused():
    with pytest.raises(RefusedError, match="no object but list"):
        read_asked([])


def test_other_gpus_and_models_are_left_out_and_named():
    plan = replace(
        PLAN, gpus=8, sharding="zero3", tensor_parallel=2, reference=True, engine=Engine(mode="server")
    )
    changed, said = alone(plan)
    assert changed == replace(plan, gpus=1, sharding="none", tensor_parallel=1, reference=False, engine=None)
    assert said == (
        "gpus: 8 -> 1",
        "sharding: zero3 -> none",
        "tensor_parallel: 2 -> 1",
        "engine: server -> none",
        "reference: True -> False",
    )


def test_a_plan_of_one_gpu_and_no_engine_is_not_changed():
    plan = replace(PLAN, engine=None)
    assert alone(plan) == (plan, ())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"precision": "sharded"}, "FSDP"),
        ({"precision": "master"}, "DeepSpeed"),
        ({"lora": Lora(quantized=True)}, "4 bits"),
        ({"lora": Lora(sets=2)}, "several sets"),
        ({"checkpointing": "offload"}, "offloaded activations"),
        ({"offload_optimizer": "host"}, "on the host"),
        ({"fused_kernels": True}, "Liger"),
        ({"optimizer": "muon"}, "optimizer muon is not run"),
        ({"optimizer": "adamw_8bit"}, "bitsandbytes"),
    ],
)
def test_what_is_not_run_has_its_reason(changes, says):
    assert says in not_run(replace(PLAN, **changes), bitsandbytes=False)


def test_an_optimizer_of_bitsandbytes_runs_where_that_is():
    assert not_run(replace(PLAN, optimizer="paged_adamw_8bit"), bitsandbytes=True) is None


def test_requests_and_points_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import steelyard.integrations.allocation.asked, steelyard.integrations.allocation.points"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
