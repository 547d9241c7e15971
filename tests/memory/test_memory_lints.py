from dataclasses import replace

import pytest

from steelyard.memory.cards import card
from steelyard.memory.catalogue import shape_of
from steelyard.memory.lints import CODES, lints
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.trl_settings import read
from steelyard.memory.values import GIB, Estimate, Phase, Resident

MODEL = shape_of("Qwen3-8B")
H100 = card("H100 80GB")
SPARK = card("DGX Spark")
MAC = card("M4 Max 128GB")
QUIET = Plan(model=MODEL, engine=Engine(utilization=0.5))
ASLEEP = replace(QUIET, engine=Engine(utilization=0.5, sleep=2))


def estimated(plan, trainer, *, device=1.0):
    residents = (
        Resident(name="weights", owner="trainer", bytes=trainer * GIB, formula="", source=""),
        Resident(name="context", owner="device", bytes=device * GIB, formula="", source=""),
        Resident(name="KV cache", owner="engine", bytes=30 * GIB, formula="", source=""),
    )
    phase = Phase(name="training", moment="backward", residents=residents)
    return Estimate(plan=plan, phases=(phase,), below=0.1, above=0.1, confidence="high", why="")


FIRES = {
    "expandable_segments": (replace(ASLEEP, expandable_segments=True), {}),
    "one_sequence": (QUIET, {"card": card("RTX 4090")}),
    "awake_engine": (QUIET, {"card": H100, "estimate": estimated(QUIET, 60)}),
    "tensor_parallel": (replace(QUIET, gpus=3, engine=Engine(tensor_parallel=3), prompts=3), {}),
    "micro_batches": (replace(QUIET, micro_batch=3), {}),
    "naive_head": (replace(QUIET, head="naive"), {}),
    "level_1": (replace(QUIET, engine=Engine(sleep=1)), {}),
    "lora_level_2": (replace(ASLEEP, lora=Lora()), {}),
    "qlora_copy": (replace(QUIET, lora=Lora(quantized=True)), {}),
    "paged": (replace(QUIET, optimizer="paged_adamw_8bit"), {}),
    "unified": (replace(QUIET, offload_optimizer="host"), {"card": SPARK}),
    "waves": (replace(QUIET, engine=Engine(sequences=32)), {}),
    "mixture": (replace(QUIET, model=shape_of("Qwen3-30B-A3B")), {}),
    "no_cuda": (QUIET, {"card": MAC}),
    "too_long": (replace(QUIET, completion=MODEL.positions), {}),
}
SILENT = {
    "expandable_segments": [
        (replace(QUIET, expandable_segments=True), {}),
        (ASLEEP, {"allocator": "expandable_segments:False"}),
        (replace(ASLEEP, engine=Engine(mode="server", sleep=2), expandable_segments=True), {}),
    ],
    "one_sequence": [
        (QUIET, {"card": H100}),
        (QUIET, {}),
        (replace(QUIET, engine=Engine(mode="server")), {"card": card("RTX 4090")}),
    ],
    "awake_engine": [
        (ASLEEP, {"card": H100, "estimate": estimated(ASLEEP, 60)}),
        (QUIET, {"card": H100, "estimate": estimated(QUIET, 30)}),
        (QUIET, {"card": H100}),
    ],
    "tensor_parallel": [
        (replace(QUIET, gpus=4, engine=Engine(tensor_parallel=4)), {}),
        (replace(QUIET, gpus=32, engine=Engine(tensor_parallel=16), prompts=32), {}),
    ],
    "micro_batches": [(QUIET, {}), (replace(QUIET, micro_batch=3, micro_tokens=4096), {})],
    "naive_head": [
        (replace(QUIET, head="fused"), {}),
        (replace(QUIET, head="naive", prompt=16, completion=16, micro_batch=1), {}),
        (replace(QUIET, head="naive", task="inference"), {}),
    ],
    "level_1": [(QUIET, {}), (ASLEEP, {})],
    "lora_level_2": [(ASLEEP, {}), (replace(QUIET, lora=Lora(), engine=Engine(sleep=1)), {})],
    "qlora_copy": [
        (replace(QUIET, lora=Lora(quantized=True), engine=Engine(weight_bytes=0.6)), {}),
        (replace(QUIET, lora=Lora()), {}),
    ],
    "paged": [(replace(QUIET, optimizer="adamw_8bit"), {})],
    "unified": [(QUIET, {"card": SPARK}), (replace(QUIET, offload_optimizer="host"), {"card": H100})],
    "waves": [(QUIET, {}), (replace(QUIET, engine=Engine(mode="none", sequences=8)), {})],
    "mixture": [(QUIET, {})],
    "no_cuda": [(QUIET, {"card": SPARK}), (QUIET, {"card": card("MI300X")}), (QUIET, {})],
    "too_long": [(QUIET, {}), (replace(QUIET, prompt=0, completion=MODEL.positions), {})],
}


def test_every_lint_has_a_case_that_fires_and_cases_that_do_not():
    assert tuple(FIRES) == CODES == tuple(SILENT)


@pytest.mark.parametrize("code", CODES)
def test_a_lint_fires_on_its_trap_with_a_reason_and_a_remedy(code):
    plan, rest = FIRES[code]
    found = {lint.code: lint for lint in lints(plan, **rest)}
    assert code in found
    assert all((found[code].what, found[code].why, found[code].remedy))


@pytest.mark.parametrize(
    ("code", "at"),
    [(code, at) for code in CODES for at in range(len(SILENT[code]))],
    ids=str,
)
def test_a_lint_is_silent_beside_its_trap(code, at):
    plan, rest = SILENT[code][at]
    assert code not in {lint.code for lint in lints(plan, **rest)}


def test_a_sound_plan_has_no_lints():
    assert lints(QUIET, card=H100, estimate=estimated(QUIET, 20)) == ()
    assert lints(ASLEEP, card=H100, estimate=estimated(ASLEEP, 70)) == ()


def test_stops_come_before_warnings():
    plan = replace(
        ASLEEP, lora=Lora(quantized=True), micro_batch=3, optimizer="paged_adamw", expandable_segments=True
    )
    severities = [lint.severity for lint in lints(plan)]
    assert severities == sorted(severities)
    assert {"stop", "warn"} == set(severities)


def test_the_allocator_s_setting_may_come_from_the_environment():
    found = lints(ASLEEP, allocator="max_split_size_mb:64,expandable_segments:True")
    assert [lint.code for lint in found] == ["expandable_segments"]
    assert "63.15 GiB" in found[0].why


def test_whole_logits_are_told_in_gib():
    plan = replace(QUIET, head="naive", prompt=0, completion=640, micro_batch=4, generations=4)
    (found,) = lints(plan)
    assert f"{14 * 4 * 640 * MODEL.vocabulary / GIB:.2f} GiB" in found.what


def test_one_sequence_counts_the_engine_s_context_and_its_share_of_the_heads():
    a100 = card("A100 40GB")
    long = Engine(utilization=0.45, context=MODEL.positions)
    assert [lint.code for lint in lints(replace(QUIET, engine=long), card=a100)] == ["one_sequence"]
    assert not lints(replace(QUIET, engine=replace(long, context=1536)), card=a100)
    shared = replace(long, utilization=0.2, tensor_parallel=4)
    assert not lints(replace(QUIET, engine=shared, gpus=4, prompts=4), card=a100)
    server = replace(long, mode="server")
    assert [lint.code for lint in lints(replace(QUIET, engine=server), card=a100)] == ["one_sequence"]
    assert not lints(replace(QUIET, engine=replace(server, utilization=None)), card=a100)
    assert not lints(replace(QUIET, task="sft", engine=long), card=a100)


def test_the_awake_engine_leaves_room_for_the_process_s_context_too():
    trainer = H100.bytes / GIB * 0.5 - 0.5
    told = lints(QUIET, card=H100, estimate=estimated(QUIET, trainer, device=1.0))
    assert [lint.code for lint in told] == ["awake_engine"]
    assert not lints(QUIET, card=H100, estimate=estimated(QUIET, trainer, device=0.25))


def test_gpus_that_cannot_be_given_to_engines_are_told_apart_from_heads_that_cannot_be_shared():
    odd = replace(QUIET, gpus=3, prompts=3, engine=Engine(tensor_parallel=2))
    assert "cannot be given to engines of 2" in lints(odd)[0].what
    split = replace(QUIET, gpus=3, prompts=3, tensor_parallel=3)
    assert "the trainer shares 32 heads" in lints(split)[0].what


def test_the_awake_engine_is_told_what_utilization_would_leave_room():
    (found,) = lints(QUIET, card=H100, estimate=estimated(QUIET, 60))
    lower = float(found.remedy.rsplit(" ", 1)[1])
    roomy = replace(QUIET, engine=Engine(utilization=lower))
    again = {lint.code for lint in lints(roomy, card=H100, estimate=estimated(roomy, 60))}
    assert "awake_engine" not in again
    assert 0 < lower < 0.5


def test_trl_s_own_settings_fall_into_the_traps_they_are_known_for():
    settings = {
        "dtype": "bfloat16",
        "use_vllm": True,
        "vllm_enable_sleep_mode": True,
        "use_peft": True,
        "optim": "paged_adamw_8bit",
        "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    }
    codes = [lint.code for lint in lints(read(settings, MODEL).plan, card=card("RTX 4090"))]
    assert codes == ["expandable_segments", "one_sequence", "lora_level_2", "paged"]


def test_without_cuda_what_needs_it_stops_and_a_plain_plan_is_warned():
    alone = replace(QUIET, engine=None, checkpointing="recompute", optimizer="adamw", lora=None)
    (found,) = [lint for lint in lints(alone, card=MAC) if lint.code == "no_cuda"]
    assert found.severity == "warn"
    (found,) = [
        lint for lint in lints(replace(alone, optimizer="adamw_8bit"), card=MAC) if lint.code == "no_cuda"
    ]
    assert (found.severity, "bitsandbytes" in found.what) == ("stop", True)
