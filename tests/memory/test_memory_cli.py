"""`steelyard fit` as a user runs it: models, cards and settings found, options that mean what they say."""

import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest

from steelyard.cli import fit_verify
from steelyard.cli.fit_options import FitOptions
from steelyard.memory import plan as plans
from steelyard.memory.catalogue import config_of, names, shape_of
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.values import GIB, Largest

sys.path.append(str(Path(__file__).resolve().parents[1] / "path"))
from as_a_user import in_a_process, steelyard

SMALL = ("fit", "--model", "Qwen3-0.6B", "--card", "H100 80GB")
COLOCATED = (*SMALL, "--engine", "colocate")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No search for the largest, which is most of a fit's time; what runs in its own process has one."""
    nothing = Largest(micro_batch=None, micro_tokens=None, context=None, model=None)
    monkeypatch.setattr("steelyard.memory.fit.largest", lambda plan, card: nothing)


def as_json(*words):
    done = steelyard(*words, "--json")
    assert done.code in {0, 1}, done.err
    return json.loads(done.out)


def refused(*words):
    done = steelyard(*words)
    assert done.code == 2, done.out
    assert "\n  next: " in done.err
    return done.err


# --- verdicts and exit codes


def test_what_fits_exits_with_0_and_says_so_first():
    done = steelyard(*SMALL, "--engine", "none", "--micro-batch", 1)
    assert done.code == 0
    assert done.out.startswith("Qwen3-0.6B on 1 x H100 80GB fits:")


def test_what_does_not_fit_exits_with_1_so_that_nothing_is_launched_after_it():
    done = steelyard("fit", "--model", "70B", "--card", "24GB")
    assert done.code == 1
    assert "does not fit" in " ".join(done.out.split())


def test_what_a_lint_stops_exits_with_1_although_it_fits():
    words = (*COLOCATED, "--micro-batch", 1)
    assert steelyard(*words, "--sleep", 2).code == 0
    stopped = steelyard(*words, "--sleep", 2, "--expandable-segments")
    assert stopped.code == 1
    assert "fits:" in stopped.out
    assert "it will not run" in stopped.out


def test_the_allocator_s_setting_of_this_environment_is_seen(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = as_json(*COLOCATED, "--sleep", 2)
    assert found["fits"][0]["lints"][0]["code"] == "expandable_segments"


def test_several_cards_are_a_table_and_one_that_fits_is_enough():
    words = ("fit", "--model", "4B", "--engine", "none", "--micro-batch", 1)
    done = steelyard(*words, "--card", "24GB", "--card", "B200")
    assert done.code == 0
    assert re.search("B200 180GB +fits", done.out)
    assert re.search("24GB class +does not fit", done.out)
    assert "batch: the largest micro-batch" in done.out
    both = as_json(*words, "--card", "24GB", "--card", "B200")["fits"]
    assert [one["verdict"] for one in both] == ["does not fit", "fits"]
    assert steelyard(*words, "--card", "24GB").code == 1


CARDS = ("--card", "L40S", "--card", "H100")


def test_several_cards_have_a_price_each_in_their_order_or_one_for_all():
    words = ("fit", "--model", "0.6B", "--engine", "none", *CARDS)
    each = [one["step"] for one in as_json(*words, "--price", 2, "--price", 3)["fits"]]
    assert [one["dollars"] for one in each] == pytest.approx(
        [one["busy_s"] / 3600 * price for one, price in zip(each, (2, 3), strict=True)]
    )
    same = [one["step"] for one in as_json(*words, "--price", 2)["fits"]]
    assert [one["dollars"] for one in same] == pytest.approx([one["busy_s"] / 3600 * 2 for one in same])
    told = steelyard(*words, "--price", 2, "--price", 3).out
    cheapest = min(zip(each, ("L40S 48GB", "H100 80GB"), strict=True), key=lambda one: one[0]["dollars"])[1]
    assert f"The cheapest that fits: {cheapest}, $" in told
    assert "$ a step" in told
    assert "3 prices of 2 cards" in refused(*words, *["--price", 1] * 3)
    assert "2 prices of 1 card\n" in refused(*SMALL, *["--price", 1] * 2)
    assert "--price: it is more than" in refused(*SMALL, "--price", 1e13)


def test_several_cards_are_not_verified_on_the_one_that_is_here():
    assert "--verify: one machine is measured, and 2 cards" in refused(*SMALL, "--card", "L4", "--verify")


def test_words_that_are_no_option_s_are_refused_with_the_option_that_a_setting_needs():
    said = "actor_rollout_ref.rollout.n=4"
    assert f"next: say --set {said}\n" in refused(*SMALL, said, "data.x=1")
    assert "'huh' stands alone" in refused(*SMALL, "huh")


def test_a_plan_whose_engine_does_not_start_has_no_step_time():
    words = ("fit", "--model", "8B", "--card", "24GB", "--engine", "colocate", "--utilization", 0.3)
    (found,) = as_json(*words, "--price", 3)["fits"]
    assert (found["held"], found["decode"], found["step"]) == (0, [], None)
    assert "tokens/s" not in (told := steelyard(*words).out)
    assert "it does not start" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "colocate"), "by one copy of the engine, of 4 ("),
        (("--engine", "colocate", "--engine-tensor-parallel", 4), "by one copy of the engine ("),
        (("--engine", "server"), "by one copy of the engine ("),
        (("--engine", "none"), "by one copy of the model, of 4 ("),
    ],
)
def test_tokens_per_second_are_said_to_be_of_one_copy(words, said):
    assert said in steelyard(*SMALL, "--gpus", 4, *words).out


def test_no_torch_is_imported():
    code = (
        "import sys; from steelyard.cli.app import app; app(standalone_mode=False); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *SMALL, "--json"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr


# --- models


def config(**changes):
    return dict(config_of("Qwen/Qwen3-0.6B")) | changes


def test_a_model_is_a_file_a_folder_a_name_or_in_the_local_cache(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config()))
    cached = tmp_path / "hub" / "models--me--My-Model"
    for commit, width in (("old", 1), ("abc", 2)):
        (cached / "snapshots" / commit).mkdir(parents=True)
        told = json.dumps(config(num_hidden_layers=28 // width))
        (cached / "snapshots" / commit / "config.json").write_text(told)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("old\n")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = {}
    for name in (folder, folder / "config.json", "Qwen/Qwen3-0.6B", "qwen3-0.6b", "0.6B", "me/My-Model"):
        found[str(name)] = as_json("fit", "--model", name, "--card", "H100")["model"]
    assert {one["parameters"] for one in found.values()} == {shape_of("Qwen3-0.6B").parameters}
    assert found[str(folder)]["name"] == found[str(folder / "config.json")]["name"] == "mine"
    assert found["me/My-Model"]["name"] == "me/My-Model"


def test_the_cache_is_where_hf_home_says(tmp_path, monkeypatch):
    snapshot = tmp_path / "hub" / "models--me--other" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config(num_hidden_layers=2)))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert as_json("fit", "--model", "me/other", "--card", "H100")["model"]["parameters"] < 3e8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[1]", "it holds a list"),
        ('{"model_type": "abacus"}', "abacus"),
    ],
)
def test_a_config_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "config.json").write_text(text)
    assert said in refused("fit", "--model", tmp_path / "config.json", "--card", "H100")


def test_a_folder_without_a_config_is_refused(tmp_path):
    assert "cannot be read" in refused("fit", "--model", tmp_path, "--card", "H100")


def test_an_unknown_model_is_refused_with_its_neighbours():
    assert "Qwen3-8B" in refused("fit", "--model", "Qwen3-8.5B-Foo", "--card", "H100")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit",), "no model is named"),
        (("fit", "--model", "8B"), "no card is named"),
        (("fit", "--model", "8B", "--card", "H1000"), "H1000"),
        (("fit", "--model", "8B", "--card-bandwidth", 100), "say --card-gib"),
        ((*SMALL, "--set", "a.b=1"), "name it with --from"),
        ((*SMALL, "--points", "x.csv"), "say --verify"),
    ],
)
def test_what_is_lacking_is_named(words, said):
    assert said in refused(*words)


def test_a_card_can_be_its_numbers():
    words = ("fit", "--model", "0.6B", "--engine", "none", "--card-gib", 20)
    (bare,) = as_json(*words)["fits"]
    assert (bare["card"]["bytes"], bare["decode"], bare["step"]) == (20 * GIB, [], None)
    (told,) = as_json(*words, "--card-bandwidth", 1000, "--card-tflops", 100)["fits"]
    assert told["card"]["bandwidth"] == 1e12
    assert told["step"]["training_s"] > 0
    assert "not known" in steelyard(*words).out


def test_cards_and_models_are_listed():
    done = steelyard("fit", "--cards")
    assert done.code == 0
    assert "H100 80GB" in done.out
    both = as_json("fit", "--cards", "--models")
    assert {one["name"] for one in both["models"]} >= set(names())
    assert all(one["source"] and one["bytes"] > GIB for one in both["cards"])
    assert "70,553,706,496" in steelyard("fit", "--models").out


# --- options


OF_PLAN = {
    "task": (("--task", "sft"), "sft"),
    "prompt": (("--prompt", 0), 0),
    "completion": (("--completion", 77), 77),
    "micro_batch": (("--micro-batch", 3), 3),
    "micro_tokens": (("--micro-tokens", 5000), 5000),
    "generations": (("--generations", 4), 4),
    "prompts": (("--prompts", 5), 5),
    "precision": (("--precision", "master"), "master"),
    "optimizer": (("--optimizer", "adafactor"), "adafactor"),
    "gradient_bytes": (("--gradient-bytes", 4), 4),
    "step_kernel": (("--step-kernel", "foreach"), "foreach"),
    "lora": (("--lora", 8), {"rank": 8}),
    "checkpointing": (("--checkpointing", "none"), "none"),
    "attention": (("--attention", "eager"), "eager"),
    "fused_kernels": (("--kernels", "fused"), True),
    "head": (("--head", "naive"), "naive"),
    "head_tokens": (("--head-tokens", "completion"), "completion"),
    "chunk": (("--chunk", 7), 7),
    "chunk_vocabulary": (("--chunk-vocabulary", 8192), 8192),
    "reference": (("--reference",), True),
    "gpus": (("--gpus", 4), 4),
    "sharding": (("--sharding", "zero3"), "zero3"),
    "tensor_parallel": (("--tensor-parallel", 2, "--gpus", 2), 2),
    "sequence_parallel": (("--sequence-parallel", 2, "--gpus", 2), 2),
    "offload_optimizer": (("--offload-optimizer", "host"), "host"),
    "offload_weights": (("--offload-weights", "idle"), "idle"),
    "offload_reference": (("--offload-reference", "host"), "host"),
    "expandable_segments": (("--expandable-segments",), True),
    "engine": (("--engine", "server"), {"mode": "server"}),
}
OF_ENGINE = {
    "mode": (("--engine", "server"), "server"),
    "utilization": (("--utilization", 0.7), 0.7),
    "sleep": (("--sleep", 2), 2),
    "tensor_parallel": (("--engine-tensor-parallel", 2, "--gpus", 2), 2),
    "sequences": (("--sequences", 9), 9),
    "graphs": (("--eager",), False),
    "weight_bytes": (("--engine-weights", "fp8"), 1.0),
    "cache_bytes": (("--kv-cache", "fp8"), 1.0),
    "bucket_bytes": (("--bucket", 2), 2 * GIB),
    "context": (("--context", 9000), 9000),
    "batched_tokens": (("--batched-tokens", 2048), 2048),
    "own_process": (("--own-process",), True),
}
OF_LORA = {
    "rank": (("--lora", 8), 8),
    "targets": (("--lora", 8, "--lora-targets", "q_proj,v_proj"), ["q_proj", "v_proj"]),
    "quantized": (("--qlora",), True),
}
NOT_OPTIONS = {"sets", "nested", "rescored"}
"""Several sets of adapters are for servers of many, which nothing here trains; the others settings say."""


@pytest.mark.parametrize(
    ("kind", "table"), [(Plan, OF_PLAN), (Engine, OF_ENGINE), (Lora, OF_LORA)], ids=lambda one: ""
)
def test_every_field_of_a_plan_has_an_option(kind, table):
    assert {one.name for one in fields(kind)} - {"model"} - NOT_OPTIONS == set(table)


@pytest.mark.parametrize("name", OF_PLAN)
def test_an_option_of_the_plan_sets_its_field(name):
    words, value = OF_PLAN[name]
    found = as_json(*SMALL, *words)["plan"][name]
    assert found == value if not isinstance(value, dict) else found.items() >= value.items()


@pytest.mark.parametrize("name", OF_ENGINE)
def test_an_option_of_the_engine_sets_its_field(name):
    words, value = OF_ENGINE[name]
    assert as_json(*SMALL, *words)["plan"]["engine"][name] == value


@pytest.mark.parametrize("name", OF_LORA)
def test_an_option_of_adapters_sets_its_field(name):
    words, value = OF_LORA[name]
    assert as_json(*SMALL, *words)["plan"]["lora"][name] == value


def test_nothing_said_is_the_plan_s_default():
    found = as_json(*SMALL)["plan"]
    default = Plan(model=shape_of("Qwen3-0.6B"))
    told = {
        one.name: getattr(default, one.name) for one in fields(default) if one.name not in {"model", "engine"}
    }
    assert found.items() >= told.items()
    assert found["engine"] == {one.name: getattr(Engine(), one.name) for one in fields(Engine)}


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("task", plans.Task),
        ("precision", plans.Precision),
        ("optimizer", plans.Optimizer),
        ("step_kernel", plans.StepKernel),
        ("checkpointing", plans.Checkpointing),
        ("attention", plans.AttentionKernel),
        ("head", plans.Head),
        ("head_tokens", plans.HeadTokens),
        ("sharding", plans.Sharding),
        ("offload_optimizer", plans.Offload),
        ("engine", plans.EngineMode),
    ],
)
def test_the_help_of_an_option_names_all_its_words_and_another_is_refused_by_its_name(option, kind):
    from typing import get_type_hints

    told = get_type_hints(FitOptions, include_extras=True)[option].__metadata__[0]
    for word in get_args(kind):
        assert word in f"{told.help} {told.metavar}"
    flag = f"--{option.replace('_', '-')}"
    assert refused(*SMALL, flag, "abacus").startswith(f"steelyard: {flag}: ")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--kernels", "abacus"), "--kernels"),
        (("--kv-cache", "fp4"), "--kv-cache"),
        (("--lora-targets", "q_proj"), "--lora-targets"),
        (("--engine", "server", "--sleep", 2), "--sleep"),
        (("--engine", "none", "--utilization", 0.3), "--utilization"),
        (("--task", "sft", "--sequences", 9), "--sequences"),
        (("--gpus", 3, "--tensor-parallel", 2), "steelyard fit"),
        (("--reward-timeout", 30), "rewards"),
        (("--reference", "--no-reference"), "--no-reference"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(words, where):
    assert refused(*SMALL, *words).startswith(f"steelyard: {where}: ")


def test_a_number_that_cannot_be_is_refused_by_its_option():
    done = steelyard(*SMALL, "--micro-batch", 0)
    assert done.code == 2
    assert "--micro-batch" in done.err


# --- settings of trainers

TRL = """
model_name_or_path: Qwen/Qwen3-0.6B
dtype: bfloat16
per_device_train_batch_size: 4
num_generations: 4
max_completion_length: 300
use_vllm: true
vllm_enable_sleep_mode: true
learning_rate: 1e-6
"""
VERL = """
actor_rollout_ref:
  model: {path: Qwen/Qwen3-0.6B}
  actor: {ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 4}
  rollout: {n: 8, gpu_memory_utilization: 0.4}
algorithm: {adv_estimator: grpo}
data: {train_batch_size: 128, max_prompt_length: 256, max_response_length: 700}
trainer: {n_gpus_per_node: 8}
"""


@pytest.fixture
def settings(tmp_path):
    def write(text, name="settings.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return ("fit", "--card", "H100", "--from", path)

    return write


def test_trl_s_settings_are_read_as_yaml_and_as_json(settings):
    import yaml

    words = settings(TRL)
    found = as_json(*words)
    assert found["model"]["name"] == "Qwen3-0.6B"
    assert found["plan"]["completion"] == 300
    assert found["plan"]["engine"]["sleep"] == 2
    told = json.dumps(yaml.safe_load(TRL))
    assert as_json(*settings(told, "settings.json")) == found
    assert found["notes"]
    assert found["notes"][0].split()[0] in steelyard(*words).out


def test_verl_s_settings_are_read_nested_and_as_its_command_line(settings):
    found = as_json(*settings(VERL))["plan"]
    assert (found["prompt"], found["completion"], found["gpus"]) == (256, 700, 8)
    assert found["engine"]["utilization"] == 0.4
    line = (
        "actor_rollout_ref.model.path=Qwen/Qwen3-0.6B",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "data.max_response_length=700",
        "trainer.n_gpus_per_node=2",
    )
    words = [word for said in line for word in ("--set", said)]
    alone = as_json("fit", "--card", "H100", *words)["plan"]
    assert (alone["completion"], alone["gpus"]) == (700, 2)


def test_set_changes_a_setting_and_options_go_before_it(settings):
    words = settings(TRL)
    assert as_json(*words, "--set", "max_completion_length=200")["plan"]["completion"] == 200
    both = as_json(*words, "--set", "max_completion_length=200", "--completion", 100, "--sleep", 0)
    assert both["plan"]["completion"] == 100
    assert both["plan"]["engine"]["sleep"] == 0
    verl = settings(VERL, "verl.yaml")
    assert as_json(*verl, "--set", "data.max_response_length=100")["plan"]["completion"] == 100
    assert as_json(*verl, "--gpus", 4)["plan"]["gpus"] == 4


def test_the_model_said_goes_before_the_one_of_the_file(settings):
    words = settings(TRL)
    assert as_json(*words, "--model", "1.7B")["model"]["parameters"] == shape_of("1.7B").parameters
    changed = as_json(*words, "--set", "model_name_or_path=Qwen/Qwen3-4B")
    assert changed["model"]["parameters"] == shape_of("Qwen3-4B").parameters


def test_a_file_that_the_settings_name_is_read_from_beside_them(settings, tmp_path):
    (tmp_path / "zero.json").write_text(
        json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    )
    found = as_json(*settings(TRL + "deepspeed: zero.json\n"), "--gpus", 2)
    assert found["plan"]["sharding"] == "zero2"


def test_of_two_settings_files_none_is_dropped(settings):
    assert "--from: 2 files are named" in refused(*settings(TRL), *settings(TRL, "b.yaml")[3:])


@pytest.mark.parametrize("key", ["deepspeed", "fsdp_config", "accelerate_config"])
def test_a_file_that_the_settings_name_and_is_not_there_is_refused_with_where_it_was_looked_for(
    settings, tmp_path, key
):
    err = refused(*settings(TRL + f"{key}: absent.json\n"))
    assert f"{key} is 'absent.json', and there is no such file" in err
    assert f"looked for {Path.cwd() / 'absent.json'} and {tmp_path / 'absent.json'}" in err
    assert ("zero3" in err) is (key == "accelerate_config")


def test_a_profile_of_trl_is_no_file(settings):
    assert as_json(*settings(TRL + "accelerate_config: zero3\n"))["plan"]["sharding"] == "zero3"


@pytest.mark.parametrize(
    ("told", "kind", "option"),
    [
        (config_of("Qwen/Qwen3-0.6B"), "a model's config.json", "--model"),
        ({"zero_optimization": {"stage": 3}}, "DeepSpeed's settings", "deepspeed: PATH"),
        (
            {"distributed_type": "FSDP", "num_processes": 8},
            "accelerate's settings",
            "accelerate_config: PATH",
        ),
    ],
)
@pytest.mark.parametrize("model", [(), ("--model", "0.6B")])
def test_a_file_of_another_kind_is_named_with_where_it_goes(settings, told, kind, option, model):
    err = refused(*settings(json.dumps(dict(told)), "other.json"), *model)
    assert f"it holds {kind}" in err
    assert option in err.partition("next: ")[2]


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (TRL, "vllm_tensor_parallel_size=2"),
        (VERL.replace("n_gpus_per_node: 8", "n_gpus_per_node: 1"), "trainer.nnodes=1"),
    ],
)
def test_gpus_that_were_forgotten_are_the_next_step(settings, text, change):
    err = refused(*settings(text), "--set", change)
    assert "2 does not divide the 1 of the trainer's GPUs" in err
    assert "--gpus 2 or a multiple" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "it is no YAML"),
        ("- 1\n", "it holds a list"),
        ("dtype: bfloat16\n", "no model is named"),
        (TRL + "num_generation: 3\n", "num_generations"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, text, said):
    assert said in refused(*settings(text))


@pytest.mark.parametrize("change", ["num_generations", "=3", "dtype.x=3", "seed=[1"])
def test_a_change_that_is_none_is_refused(settings, change):
    assert "--set" in refused(*settings(TRL), "--set", change)


def test_a_settings_file_that_is_not_there_is_refused(tmp_path):
    assert "cannot be read" in refused("fit", "--card", "H100", "--from", tmp_path / "none.yaml")


# --- what comes out


KEYS = {
    "card",
    "verdict",
    "peak",
    "below",
    "above",
    "confidence",
    "why",
    "doubt",
    "held",
    "phases",
    "levers",
    "together",
    "largest",
    "lints",
    "decode",
    "step",
    "verified",
}


def test_json_has_the_keys_that_are_documented_and_adds_up():
    found = as_json(*COLOCATED, "--sleep", 2, "--reward-median", 2, "--price", 3)
    assert set(found) == {"model", "plan", "notes", "fits"}
    (one,) = found["fits"]
    assert set(one) == KEYS
    assert all(f"`{key}`" in sys.modules["steelyard.cli.fit"].__doc__ for key in KEYS | set(found))
    assert one["peak"]["bytes"] == max(phase["bytes"] for phase in one["phases"])
    for phase in one["phases"]:
        assert phase["bytes"] == pytest.approx(sum(r["bytes"] for r in phase["residents"]))
        assert all(r["formula"] and r["source"] and r["owner"] for r in phase["residents"])
    saved = [lever["saves"] for lever in one["levers"]]
    assert saved == sorted(saved, reverse=True)
    step = one["step"]
    assert step["step_s"] == pytest.approx(step["generation_s"] + step["training_s"] + step["wait_s"])
    assert step["dollars"] == pytest.approx(step["step_s"] / 3600 * 3)


def test_every_lever_s_option_makes_the_lever_s_plan():
    from steelyard.cli.fit_model import found_model
    from steelyard.cli.fit_plan import changed
    from steelyard.memory.cards import card
    from steelyard.memory.fit import fit

    planned = Plan(
        model=found_model("Qwen3-8B").shape, gpus=2, engine=Engine(sleep=0), reference=True, head="naive"
    )
    kinds = FitOptions._field_defaults
    for lever in fit(planned, card("H100")).levers:
        words = lever.option.split()
        given = {}
        while words:
            name = words.pop(0).removeprefix("--").replace("-", "_")
            assert name in kinds, lever.option
            given[name] = True if not words or words[0].startswith("--") else words.pop(0)
        typed = {name: type_of(name)(value) if value is not True else True for name, value in given.items()}
        assert changed(planned, FitOptions(**typed)) == replace(lever.plan), lever.name


def type_of(name):
    """What typer makes of an option's word."""
    from typing import get_type_hints

    kind = get_type_hints(FitOptions)[name]
    return next((one for one in (int, float) if one in get_args(kind)), str)


def test_dollars_count_the_gpus_of_a_server_too():
    alone = as_json(*SMALL, "--engine", "none", "--price", 3)["fits"][0]["step"]
    assert alone["dollars"] == pytest.approx((alone["generation_s"] + alone["training_s"]) / 3600 * 3)
    served = as_json(*SMALL, "--engine", "server", "--price", 3)["fits"][0]["step"]
    assert served["dollars"] == pytest.approx((served["generation_s"] + served["training_s"]) / 3600 * 6)


def test_decoding_is_bound_by_what_the_cache_holds_at_once():
    words = (
        "fit",
        "--model",
        "8B",
        "--card",
        "H100",
        "--engine",
        "colocate",
        "--prompts",
        64,
        "--completion",
        16000,
    )
    small, large = (
        as_json(*words, "--utilization", share)["fits"][0]["decode"][0]["sequences"] for share in (0.3, 0.9)
    )
    assert 1 <= small < large


@pytest.mark.needs("report")
def test_a_page_is_written_beside_the_answer(tmp_path):
    done = steelyard(*COLOCATED, "--report", tmp_path / "fit.html")
    assert f"report: {tmp_path / 'fit.html'}" in "".join(done.out.split("\n"))
    assert "Will it fit: Qwen3-0.6B on 1 x H100 80GB" in (tmp_path / "fit.html").read_text()


@pytest.mark.needs("report")
def test_a_page_over_the_settings_is_refused(settings):
    words = settings(TRL)
    assert "another file of this command" in refused(*words, "--report", words[-1])


def test_a_word_of_a_model_s_file_is_no_markup_and_no_control(tmp_path):
    folder = tmp_path / "[red]x\x1b[31m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config()))
    done = steelyard("fit", "--model", folder, "--card", "H100")
    assert "\x1b" not in done.out
    assert "[red]x\\x1b[31m" in done.out


# --- the check by real allocation

ANSWER = {
    "protocol": 1,
    "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
    "model": {
        "agrees": True,
        "counts": [{"what": "parameters", "planned": 7, "built": 7, "unit": "parameters"}],
        "logits": [1, 2, 3],
        "differences": [],
    },
    "changes": ["gpus: 8 -> 1"],
    "tracked": {
        "outcome": "measured",
        "reason": None,
        "label": "tracked without a GPU",
        "allocated": {"planned": 10 * GIB, "measured": 9.8 * GIB, "error": 0.0204},
        "phase": "backward",
        "residents": {},
    },
    "gpu": {
        "outcome": "measured",
        "reason": None,
        "device": "NVIDIA H200",
        "allocated": {"planned": 10 * GIB, "measured": 9.9 * GIB, "error": 0.0101},
        "reserved": {"planned": 11 * GIB, "measured": 11.5 * GIB, "error": -0.0435},
        "context": 0.5 * GIB,
        "phase": None,
    },
    "stored": {"file": "/x/points.csv", "rows": 2},
}


@pytest.fixture
def child(monkeypatch):
    """A stand-in for the process that has torch."""
    asked = []

    def answer(stdout, code=0, stderr=b""):
        def run(command, *, input, **settings):  # noqa: A002 - as subprocess names it
            asked.append(json.loads(input))
            return subprocess.CompletedProcess(command, code, stdout, stderr)

        monkeypatch.setattr(fit_verify, "run", run)
        return asked

    return answer


def test_verify_says_what_was_planned_and_what_was_built_and_measured(child, tmp_path):
    asked = child(json.dumps(ANSWER).encode())
    done = steelyard(*COLOCATED, "--verify", "--points", tmp_path / "p.csv")
    text = " ".join(done.out.split())
    assert "Checked by building it (torch 2.13.0, transformers 5.24.0)" in text
    assert "parameters 7 parameters, as planned" in text
    assert "step, tracked: allocated 9.80 GiB planned 10.0 GiB (+2.0 %); tracked" in text
    assert "step on the GPU: reserved 11.5 GiB planned 11.0 GiB (-4.3 %); NVIDIA" in text
    assert "for gpus: 8 -> 1" in text
    assert "2 rows /x/points.csv" in text
    (request,) = asked
    assert request["plan"] == as_json(*COLOCATED)["plan"]
    assert request["config"]["model_type"] == "qwen3"
    assert request["points"] == str(tmp_path / "p.csv")
    assert done.code == 0


def test_verify_that_built_another_model_exits_with_1_and_says_where(child):
    wrong = {
        "agrees": False,
        "counts": [{"what": "parameters", "planned": 7, "built": 8, "unit": "parameters"}],
        "differences": [{"module": "q_proj", "planned": 3, "built": 4}],
    }
    child(json.dumps(ANSWER | {"model": ANSWER["model"] | wrong}).encode())
    done = steelyard(*COLOCATED, "--verify")
    assert done.code == 1
    assert "of them q_proj 4 parameters; PLANNED WERE 3" in " ".join(done.out.split())


def test_verify_without_a_gpu_says_why_nothing_was_measured(child):
    idle = {"outcome": "not run", "reason": "no GPU is here", "device": None, "phase": None}
    none = ANSWER | {"gpu": idle | {"allocated": None, "reserved": None, "context": None}, "stored": None}
    child(json.dumps(none).encode())
    assert "step on the GPU not run no GPU is here" in " ".join(steelyard(*COLOCATED, "--verify").out.split())
    assert as_json(*COLOCATED, "--verify")["fits"][0]["verified"] == none


@pytest.mark.parametrize(
    ("stdout", "code", "stderr", "said"),
    [
        (
            json.dumps(
                {"protocol": 1, "refused": {"reason": "it is odd", "where": "config", "remedy": "mend it"}}
            ).encode(),
            2,
            b"",
            "config: it is odd\n  next: mend it",
        ),
        (b"", -9, b"first\nlast words\n", "killed by signal 9"),
        (b"", -9, b"first\nlast words\n", "last words"),
        (b"no json", 1, b"", "status 1"),
        (b"[]", 0, b"", "the check died"),
    ],
)
def test_a_check_that_refuses_or_dies_is_told(child, stdout, code, stderr, said):
    child(stdout, code, stderr)
    assert said in refused(*COLOCATED, "--verify")


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_verify_builds_a_small_model_for_real(tmp_path):
    small = config(num_hidden_layers=2, hidden_size=64, intermediate_size=128, vocab_size=512)
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(small))
    done = in_a_process(
        "fit",
        "--model",
        tmp_path,
        "--card",
        "24GB",
        "--engine",
        "none",
        "--completion",
        64,
        "--verify",
        "--json",
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)["fits"][0]["verified"]
    assert found["model"]["agrees"]
