"""Rewards by the names they have on the command line."""

import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steelyard.cli.app import app
from steelyard.errors import RefusedError
from steelyard.outcome import How, Takes
from steelyard.rewards import BUILTIN, FunctionReward, builtin, find
from steelyard.rewards.recipe_file import SHAPES
from steelyard.rewards.registry import runs_code


@pytest.mark.parametrize("name", list(BUILTIN))
def test_every_builtin_is_made_by_its_name_and_is_cheap_to_run_or_in_a_room(name):
    made = find(name, **BUILTIN[name].example_settings)
    assert made.name == name
    ways = {(How.INLINE, Takes.BATCH), (How.WORKER, Takes.ROLLOUT), (How.ASYNC, Takes.ROLLOUT)}
    assert (made.how, made.takes) in ways
    assert (getattr(made, "room", None) is not None) is (made.how is How.WORKER)
    assert hasattr(made, "attest") is (made.how is How.ASYNC)  # it runs behind a boundary, or not at all
    assert BUILTIN[name].summary
    sent = pickle.dumps(made)
    assert pickle.loads(sent).identity == made.identity  # noqa: S301 - our own


def page(name):
    told = CliRunner().invoke(app, ["rewards", name])
    assert told.exit_code == 0, told.output
    return told.output


def run_page(name, folder):
    """Paste a page's commands into a shell; return the row that they score."""
    commands = page(name).partition("For a shell, as it stands:\n")[2]
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=folder, env=os.environ | {"PATH": here},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / f"{name}-scored.jsonl").read_text())


@pytest.mark.parametrize("name", [*BUILTIN, *SHAPES])
def test_every_page_names_its_settings_and_its_example_runs_and_earns_full_marks(name, tmp_path):
    row = run_page(name, tmp_path)
    assert (row["verdict"], row["code"]) == ("scored", None), row
    told = page(name)
    for setting in inspect.signature(SHAPES[name] if name in SHAPES else BUILTIN[name].make).parameters:
        assert setting in told


def test_examples_of_two_pages_run_in_one_folder(tmp_path):
    for name in ("overlong", "answer"):
        run_page(name, tmp_path)


def test_a_page_whose_lengths_must_be_counted_says_how():
    for name in ("overlong", "length_penalty", "cosine"):
        told = page(name)
        for words in ('unit = "words" or "characters"', "tokenizer.json", '"completion_tokens"'):
            assert words in told, name
    assert "completion_tokens" not in page("answer")


def test_a_shape_is_listed_and_its_page_says_its_traps():
    told = CliRunner().invoke(app, ["rewards"]).output
    for kind in SHAPES:
        assert f"\n{kind} " in told
    assert "pays for padding" in page("cosine")


@pytest.mark.parametrize("name", ["math:nosuch", "overlong:x", "format:a b"])
def test_a_page_of_a_variant_that_there_is_not_is_refused(name):
    with pytest.raises(RefusedError, match="it has no variant"):
        CliRunner().invoke(app, ["rewards", name], catch_exceptions=False)
    page("gsm8k:flexible")


def test_the_names_that_others_rely_on_are_there():
    assert {"answer", "choice", "format", "gsm8k"} <= set(BUILTIN)


@pytest.mark.parametrize(
    "name", ["gsm8k:flexible", "format:think+answer", "format:think+answer:any", "format::any"]
)
def test_variants_are_named_after_a_colon_and_have_identities_of_their_own(name):
    plain = find(name.partition(":")[0])
    assert find(name).identity != plain.identity
    assert find(name).name.partition(":")[0] == plain.name


def test_variants_listed_for_people_can_be_made():
    for one in BUILTIN.values():
        for variant in filter(None, one.variants.split(" (")[0].split(", ")):
            boundary = {"boundary": "bubblewrap"} if runs_code(one.name) else {}
            assert builtin(variant, **boundary).name.partition(":")[0] == one.name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"flexibel": True}, "there is no setting 'flexibel'; did you mean 'flexible'"),
        ({"max_length": 3}, "there is no setting 'max_length'"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(settings, says):
    with pytest.raises(RefusedError, match=rf"(?s){says}.*settings are flexible"):
        find("gsm8k", **settings)


def test_a_reward_that_cannot_be_made_without_a_setting_says_so():
    with pytest.raises(RefusedError, match=r"settings max_length, buffer must be given"):
        find("overlong")


@pytest.mark.parametrize("name", ["gsm8k:strictest", "answer:x", "choice:x", "format:a b", "format:a:b"])
def test_an_unknown_variant_is_refused_with_what_to_use(name):
    with pytest.raises(RefusedError, match=r"(?s)it has no variant.*next: (use|name)"):
        find(name)


def test_an_unknown_name_is_refused_with_the_nearest_and_all():
    with pytest.raises(
        RefusedError, match=r"(?s)no reward 'gsm8'; did you mean 'gsm8k'.*answer, choice.*format.*gsm8k"
    ):
        find("gsm8")
    with pytest.raises(RefusedError, match=r"(?s)no reward 'zzz'\n?.*path/to/file.py:function"):
        find("zzz")


def test_a_file_without_a_function_is_refused_with_how_to_name_one():
    with pytest.raises(RefusedError, match=r"path/to/file.py:function"):
        find("rewards.py")
    with pytest.raises(RefusedError, match=r"path/to/file.py:function"):
        find("rewards.py:")


def test_a_users_file_may_have_the_name_of_a_builtin(tmp_path):
    file = tmp_path / "answer.py"
    file.write_text("def judge(completion):\n    return 1.0\n")
    assert isinstance(find(f"{file}:judge"), FunctionReward)
