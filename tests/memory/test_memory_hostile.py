"""What `steelyard fit` is given by others: files without end, numbers without sense, names that act."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from steelyard.cli import fit_verify
from steelyard.cli.fit_files import MOST_YAML
from steelyard.errors import RefusedError
from steelyard.integrations.allocation import points
from steelyard.memory import fit as fits
from steelyard.memory.cards import card
from steelyard.memory.catalogue import config_of, shape_of
from steelyard.memory.estimate import estimate
from steelyard.memory.lints import lints
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.values import Largest

sys.path.append(str(Path(__file__).resolve().parents[1] / "path"))
from as_a_user import steelyard

LARGEST = fits.largest
H100 = ("--card", "H100 80GB")
SMALL = ("fit", "--model", "Qwen3-0.6B", *H100)
VERL = ("--set", "actor_rollout_ref.rollout.n=8", "--set", "data.train_batch_size=256",
        "--set", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4")  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No search for the largest, which is most of a fit's time."""
    nothing = Largest(micro_batch=None, micro_tokens=None, context=None, model=None)
    monkeypatch.setattr("steelyard.memory.fit.largest", lambda plan, card: nothing)


def refused(*words):
    done = steelyard(*words)
    assert done.code == 2, done.out
    assert "Traceback" not in done.err
    assert "\n  next: " in done.err
    return done.err


def as_json(*words):
    done = steelyard(*words, "--json")
    assert done.code in {0, 1}, done.err
    return json.loads(done.out)


def settings(folder, text, *words, model=("--model", "Qwen3-0.6B")):
    path = folder / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ("fit", "--from", path, *model, *H100, *words)


def config(folder, name="model", raw=None, **changes):
    path = folder / name / "config.json"
    path.parent.mkdir()
    path.write_bytes(raw or json.dumps(config_of("Qwen/Qwen3-0.6B") | changes).encode())
    return path.parent


# --- settings files


def bomb(levels=9, wide=10):
    """A few lines that are 10 ** 9 values if their aliases are followed."""
    first = "a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(wide)) + "}\n"
    rest = (
        f"a{n}: &a{n} {{" + ", ".join(f"k{m}: *a{n - 1}" for m in range(wide)) + "}\n"
        for n in range(1, levels)
    )
    return first + "".join(rest)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (bomb(), "more than 100,000 values"),
        ("actor_rollout_ref: {model: {path: x}}\n" + bomb(), "more than 100,000 values"),
        ("a: &a [{x: 1}, {y: 1}]\nb: &b {<<: *a}\nmodel_init_kwargs: &k {a: *k}\n", "holds itself"),
        ("actor_rollout_ref: &r {model: *r}\n", "holds itself"),
        ("[" * 5000, "nested too deeply"),
        ("num_generations: " + "9" * 5000, "it is no YAML"),
        ("num_generations: 2001-99-99", "it is no YAML"),
        ("num_generations: !!timestamp soon", "it is no YAML"),
        ("num_generations: !!int x", "it is no YAML"),
        ("num_generations: !!python/object/apply:os.system [ls]", "it is no YAML"),
        ("use_vllm: true".encode("utf-16"), "it is no UTF-8"),
        ("num_generations: 8\nbeta: 0.0\nnum_generations: 4\n", "'num_generations' stands twice"),
        ("env: {A: 1, A: 2}\n", "'A' stands twice"),
        ("#" * (MOST_YAML + 1), "more than 262,144 bytes"),
        ("beta: .nan", "beta is nan"),
        ("beta: .inf", "beta is inf"),
        ("num_generations: " + "9" * 400, "num_generations is 999"),
        ("use_peft: true\nlora_target_modules: []", "lora_target_modules is []"),
        ("model_init_kwargs: '" + "[" * 100_000 + "'", "model_init_kwargs is '[[["),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_settings_file_that_cannot_be_is_refused_at_once(tmp_path, text, told):
    err = refused(*settings(tmp_path, text))
    assert told in err
    assert len(err) < 1500


def test_a_device_is_not_read_without_end(tmp_path):
    assert "more than 262,144 bytes" in refused("fit", "--from", "/dev/zero", "--model", "8B", *H100)
    (tmp_path / "config.json").symlink_to("/dev/zero")
    assert "more than 16,777,216 bytes" in refused("fit", "--model", tmp_path, *H100)
    assert "neither a file nor a folder" in refused("fit", "--model", "/dev/zero", *H100)


def test_a_file_of_another_kind_is_refused_with_its_first_names_only(tmp_path):
    err = refused(*settings(tmp_path, "".join(f"strange_{n}: 1\n" for n in range(5000))))
    assert "and 4992 more" in err
    assert len(err) < 1500
    many = ", ".join(f"odd_{n}: 1" for n in range(5000))
    found = as_json(*settings(tmp_path, f"actor_rollout_ref: {{actor: {{{many}}}}}"), *VERL)
    assert any("4960 more names" in note for note in found["notes"])


def test_names_in_a_file_do_not_act_on_a_terminal(tmp_path):
    assert "\x1b" not in refused(*settings(tmp_path, '"\\e[31mred": 1\n'))
    told = steelyard(*settings(tmp_path, '{actor_rollout_ref: {actor: {"\\e[31mred": 1}}}'), *VERL)
    assert told.code == 0
    assert "\x1b" not in told.out


def test_tables_have_keys_of_any_kind(tmp_path):
    assert steelyard(*settings(tmp_path, "fsdp: true\nfsdp_config: {1: 2}\nnum_processes: 8\n")).code == 0
    assert "'xxx" in refused(*settings(tmp_path, f"deepspeed: {'x' * 5000}\n"))


def test_numbers_are_read_as_omegaconf_and_argparse_read_them(tmp_path):
    found = as_json(*settings(tmp_path, "beta: 1e-3\nlearning_rate: 1E-6\nbf16: true\r\n"))
    assert found["plan"]["reference"] is True
    assert as_json(*settings(tmp_path, "\ufeffuse_vllm: true\n"))["plan"]["engine"]["mode"] == "colocate"


def test_set_changes_one_table_though_an_alias_shares_it(tmp_path):
    text = "env: &e {PYTORCH_CUDA_ALLOC_CONF: x}\nmodel_init_kwargs: *e\n"
    change = ("--set", "model_init_kwargs.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    assert as_json(*settings(tmp_path, text, *change))["plan"]["expandable_segments"] is False


def test_the_model_of_a_file_may_be_dotted_quoted_or_referred_to(tmp_path):
    dotted = settings(tmp_path, "actor_rollout_ref.model.path: Qwen/Qwen3-0.6B\n", *VERL, model=())
    assert as_json(*dotted)["model"]["name"] == "Qwen3-0.6B"
    quoted = ("--set", "actor_rollout_ref.model.path='Qwen/Qwen3-0.6B'")
    assert as_json("fit", *H100, *VERL, *quoted)["model"]["name"] == "Qwen3-0.6B"
    named = ("--set", 'model_name_or_path="Qwen/Qwen3-0.6B"')
    assert as_json(*settings(tmp_path, "use_vllm: true\n", *named, model=()))["model"]["name"] == "Qwen3-0.6B"


@pytest.mark.parametrize(
    "change",
    [
        "trainer.nnodes=" + "9" * 5000,
        "trainer.nnodes=" + "[" * 3000 + "]" * 3000,
        "actor_rollout_ref.rollout.temperature=1e400",
        "actor_rollout_ref.model.target_modules=[]",
    ],
    ids=lambda one: one[:60],
)
def test_words_of_hydra_that_cannot_be_are_refused(change):
    err = refused(*SMALL, *VERL, "--set", change, "--set", "actor_rollout_ref.model.lora_rank=8")
    assert len(err) < 1500


def test_open_r1_s_recipes_are_read(tmp_path):
    text = (
        "dtype: bfloat16\nsystem_prompt: You are\ndataset_prompt_column: problem\nuse_vllm: true\n"
        "num_generations: 16\nper_device_train_batch_size: 16\nreward_funcs: [accuracy, tag_count]\n"
        "cosine_max_len: 1000\nrepetition_n_grams: 3\nmax_completion_length: 2048\n"
    )
    assert as_json(*settings(tmp_path, text))["plan"]["micro_batch"] == 16
    assert "no fields of TRL" in refused(*settings(tmp_path, text + "num_generation: 8\n"))


# --- models


@pytest.mark.parametrize(
    "name", ["~nobody-of-that-name/x", "x" * 5000, "9" * 400 + "b", "a\0b", "", " ", "*"]
)
def test_a_name_that_is_no_path_is_a_name_that_is_not_known(name):
    assert "not in the catalogue" in refused("fit", "--model", name, *H100)


def test_homes_that_are_not_there_are_no_crash(monkeypatch):
    monkeypatch.setenv("HF_HOME", "~nobody-of-that-name/cache")
    assert "not in the catalogue" in refused("fit", "--model", "Nobody/nothing", *H100)


def test_a_cache_names_a_snapshot_of_its_own_only(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    config(tmp_path, "elsewhere")
    refs = tmp_path / "models--Nobody--nothing" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_bytes(b"../../elsewhere")
    assert "not in the catalogue" in refused("fit", "--model", "Nobody/nothing", *H100)
    (refs / "main").write_bytes(b"\xff\xfe")
    assert "not in the catalogue" in refused("fit", "--model", "Nobody/nothing", *H100)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_type": "A" * 100_000}, "model_type = 'AAA"),
        ({"model_type": ["llama"] * 10_000}, "model_type = ['llama'"),
        ({"text_config": "B" * 100_000}, "text_config = 'BBB"),
        ({"hidden_size": 10**15}, "hidden_size = 1000000000000000 must be"),
        ({"vocab_size": True}, "vocab_size = True must be"),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_config_that_cannot_be_is_refused_in_a_few_lines(tmp_path, changes, told):
    err = refused("fit", "--model", config(tmp_path, **changes), *H100)
    assert told in err
    assert len(err) < 1500


def test_a_list_of_layers_longer_than_any_model_is_not_gone_through_layer_by_layer(tmp_path):
    wide = config_of("Qwen/Qwen3-30B-A3B") | {"mlp_only_layers": list(range(300_000))}
    err = refused("fit", "--model", config(tmp_path, raw=json.dumps(wide).encode()), *H100)
    assert "mlp_only_layers" in err


def test_a_config_with_a_byte_order_mark_is_one(tmp_path):
    raw = b"\xef\xbb\xbf" + json.dumps(config_of("Qwen/Qwen3-0.6B")).encode()
    assert steelyard("fit", "--model", config(tmp_path, raw=raw), *H100).code == 0


def test_what_a_checkpoint_has_beyond_the_shape_is_told(tmp_path):
    model = config(
        tmp_path, vision_config={"depth": 2}, quantization_config={"quant_method": "\x1b[31m" + "q" * 999}
    )
    notes = as_json("fit", "--model", model, *H100)["notes"]
    assert any("weights for vision are not counted" in note for note in notes)
    assert any("the checkpoint is quantized" in note and len(note) < 300 for note in notes)
    told = steelyard("fit", "--model", model, *H100).out
    assert "weights for vision" in told
    assert "\x1b" not in told


def test_a_folder_s_name_is_one_line(tmp_path):
    model = config(tmp_path, "fits: 0 GiB\nof 80 GiB." + "x" * 100)
    assert steelyard("fit", "--model", model, *H100).out.startswith("fits: 0 GiB of 80 GiB.xxx")


# --- numbers of the command line


@pytest.mark.parametrize(
    "words",
    [
        ("--micro-batch", "9" * 400),
        ("--generations", 10**30),
        ("--micro-tokens", "9" * 400),
        ("--gpus", 10**30),
        ("--bucket", "inf"),
        ("--price", "inf"),
        ("--reward-median", "inf"),
        ("--card-gib", "inf"),
        ("--lora", 8, "--lora-targets", ","),
        ("--micro-tokens", 100),
    ],
)
def test_a_number_that_no_run_has_is_refused_by_its_option(words):
    assert words[-2] in refused(*SMALL, *words)


def test_nobody_who_says_no_prompts_is_told_that_they_do_not_divide():
    for words, prompts in ((("--gpus", 16), 16), (("--micro-batch", 6), 9), ((), 8)):
        found = as_json(*SMALL, *words)
        assert found["plan"]["prompts"] == prompts
        assert "micro_batches" not in [one["code"] for one in found["fits"][0]["lints"]]
    said = as_json(*SMALL, "--gpus", 16, "--prompts", 8)
    assert "micro_batches" in [one["code"] for one in said["fits"][0]["lints"]]


def test_a_page_does_not_replace_what_the_command_reads_or_writes(tmp_path):
    pytest.importorskip("altair")
    model = config(tmp_path)
    for page in (model / "config.json", tmp_path / "points.csv"):
        words = ("--verify", "--points", tmp_path / "points.csv", "--report", page)
        assert "another file of this command" in refused("fit", "--model", model, *H100, *words)
    assert json.loads((model / "config.json").read_bytes())["hidden_size"] == 1024


# --- verdicts, levers, limits that agree


def test_twice_the_gpus_is_a_plan_that_runs():
    plan = Plan(model=shape_of("Qwen3-8B"), gpus=8, prompts=8)
    with mock.patch("steelyard.memory.levers.WORTH", -1e18):
        (found,) = [
            one for one in fits.levers(estimate(plan, card("H100")), card("H100")) if "--gpus" in one.option
        ]
    assert found.option == "--gpus 16 --sharding zero3 --prompts 16"
    assert not [one for one in lints(found.plan) if one.severity == "stop"]


def test_nothing_is_offloaded_to_a_host_that_is_here():
    plan = Plan(model=shape_of("Qwen3-4B"), checkpointing="none", engine=None)
    for name, offered in (("DGX Spark", False), ("B200", True)):
        options = [one.option for one in fits.levers(estimate(plan, card(name)), card(name))]
        assert ("--checkpointing offload" in options) is offered
        assert "--checkpointing recompute" in options


def test_the_awake_engine_stops_only_what_has_no_room():
    small = Plan(model=shape_of("Qwen3-0.6B"))
    seen = {}
    for percent in range(5, 100, 5):
        plan = replace(small, engine=Engine(utilization=percent / 100))
        found = fits.fit(plan, card("RTX 4090"))
        told = [
            one.severity
            for one in lints(plan, card=found.card, estimate=found.estimate)
            if one.code == "awake_engine"
        ]
        seen.setdefault(found.verdict, set()).update(told)
    assert "stop" not in seen["fits"] | seen["tight"]
    assert "stop" in seen["does not fit"]


def test_the_awake_engine_is_no_matter_where_the_trainer_has_no_room_alone():
    plan = Plan(model=shape_of("Qwen3-8B"))
    found = fits.fit(plan, card("H100"))
    assert found.verdict == "does not fit"
    assert not [
        one for one in lints(plan, card=found.card, estimate=found.estimate) if one.code == "awake_engine"
    ]


def test_a_utilization_that_holds_no_weights_is_no_remedy():
    plan = Plan(model=shape_of("Qwen3-1.7B"), engine=Engine(utilization=0.3))
    told = {}
    for gib in range(24, 48):
        on = replace(card("RTX 4090"), bytes=gib * 2**30)
        found = estimate(plan, on)
        told |= {
            one.remedy: (on, one)
            for one in lints(plan, card=on, estimate=found)
            if one.code == "awake_engine"
        }
    assert told
    for remedy, (on, _) in told.items():
        if "lower its utilization" in remedy:
            share = float(remedy.rsplit(" ", 1)[1])
            assert share * on.bytes > 2 * plan.model.parameters * 0.9


def test_the_longest_context_of_packed_passes_fits_into_one():
    plan = Plan(model=shape_of("Qwen3-8B"), micro_tokens=16384, micro_batch=64, engine=None, precision="bf16")
    on = card("H100")
    longest = LARGEST(plan, on).context
    assert longest > plan.tokens
    for tokens, fit in ((longest, True), (longest + 1, False)):
        one = replace(plan, completion=tokens - plan.prompt, micro_tokens=max(tokens, 16384))
        assert (estimate(one, on).peak.bytes <= on.bytes) is fit


def test_the_largest_pass_holds_a_whole_sequence():
    plan = Plan(model=shape_of("Qwen3-8B"), micro_tokens=2048, engine=None, precision="bf16", optimizer="sgd")
    none = replace(card("H100"), bytes=estimate(plan, card("H100")).peak.bytes - 2**30)
    for on in (card("H100"), none):
        found = LARGEST(plan, on).micro_tokens
        assert found is None or found >= plan.tokens
    assert found is None


# --- the process that checks


def test_torch_that_is_absent_is_said_with_what_installs_it(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\nusual = PathFinder.find_spec\n"
        "def found(name, path=None, target=None):\n"
        "    return None if name.split('.')[0] == 'torch' else usual(name, path, target)\n"
        "PathFinder.find_spec = staticmethod(found)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    err = refused(*SMALL, "--verify")
    assert "torch" in err.partition("cannot be imported")[0]
    assert "next: pip install 'steelyard[torch]'" in err


def waiting(folder):
    """Let a child of --verify write its number down, and wait."""
    (folder / "sitecustomize.py").write_text(
        "import os, pathlib, sys, time\n"
        "if 'steelyard.integrations.allocation' in sys.orig_argv:\n"
        "    import ctypes, steelyard.integrations.allocation.__main__ as child\n"
        "    child._end_with_parent()\n"
        f"    pathlib.Path({str(folder / 'child')!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    return {"PYTHONPATH": str(folder)}


def test_a_check_that_hangs_is_ended(monkeypatch, tmp_path):
    for name, value in waiting(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fit_verify, "_LONGEST_S", 0.5)
    err = refused(*SMALL, "--verify")
    assert "no answer after 0.5 s" in err


@pytest.mark.skipif(sys.platform != "linux", reason="needs a signal at a parent's death")
def test_the_check_ends_with_the_command(tmp_path):
    words = [sys.executable, "-m", "steelyard", *map(str, SMALL), "--verify"]
    with subprocess.Popen(words, env=os.environ | waiting(tmp_path), stdout=subprocess.DEVNULL) as command:
        child = tmp_path / "child"
        wait_for(lambda: child.exists() and child.read_text())
        number = int(child.read_text())
        command.send_signal(signal.SIGKILL)
        wait_for(lambda: not alive(number))


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(come):
    end = time.monotonic() + 20
    while not come():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_ends_command_and_check(tmp_path):
    words = [sys.executable, "-m", "steelyard", *map(str, SMALL), "--verify"]
    with subprocess.Popen(
        words,
        env=os.environ | waiting(tmp_path),
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as command:
        child = tmp_path / "child"
        wait_for(lambda: child.exists() and child.read_text())
        command.send_signal(signal.SIGINT)
        assert command.wait() == 130
        wait_for(lambda: not alive(int(child.read_text())))


def test_points_are_kept_in_files_only(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full"), tmp_path):
        with pytest.raises(RefusedError, match="it is no file"):
            points.append(path, ())


@pytest.mark.parametrize(
    "said", ["expandable_segments:True", "expandable_segments: True", "a:1,expandable_segments : true"]
)
def test_the_allocator_s_setting_is_read_with_spaces_as_torch_reads_it(said):
    asleep = Plan(model=shape_of("Qwen3-0.6B"), engine=Engine(sleep=2))
    assert "expandable_segments" in [one.code for one in lints(asleep, allocator=said)]
