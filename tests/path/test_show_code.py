"""`steelyard show` on rows of code: the check that failed, its inputs, and why a row was blamed."""

import json

import pytest
from as_a_user import steelyard, write

from boundaries import CANARY_ANSWERS, JUDGED, LOST, SNIPPET, SPINNING, WALL, WRONG, FakeBoundary
from steelyard.cli.row import _attempt as shown_attempt
from steelyard.clock import Clocks
from steelyard.outcome import Attempt, Scored

PAIRS = [{"input": "2\n", "output": "4\n5\n"}]
RAISING = "def f(x):\n    nothing = {}\n    return nothing[x]\n"
CODES = {
    "wrong": (WRONG, SNIPPET),
    "raising": (RAISING, SNIPPET),
    "spinning": (SPINNING, SNIPPET),
    "judged": (WRONG, JUDGED),
    "piped": ("print(4)\nprint('\\x1b[31m[b]6[/]')", PAIRS),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows of code that were scored once, for all that is shown of them."""
    folder = tmp_path_factory.mktemp("shown")
    rows = [
        {
            "id": name,
            "group": "g" if tests is SNIPPET else name,
            "prompt": "?",
            "completion": code,
            "tests": tests,
        }
        for name, (code, tests) in CODES.items()
    ]
    write(folder / "rows.jsonl", rows)
    done = steelyard(
        "score", "rows.jsonl", "-r", "tests", "--cpu", "0.3", "--out", "o.jsonl", "-q", cwd=folder
    )
    assert done.code == 0, done.err
    return folder


def shown(folder, name, *words):
    done = steelyard("show", "o.jsonl", "--row", name, *words, cwd=folder)
    assert done.code == 0, done.err
    return done.out


def lines_of(text):
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.needs("bubblewrap")
class TestARow:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("wrong", ["number 1 of 2, line 4 of the tests", "assert f(2) == 4", "expected 4", "got 2"]),
            ("raising", ["raised KeyError: 2", "line 3 of the program: return nothing[x]"]),
            ("spinning", ["waited to be loaded, or for call 1 of 2 or a later one: f(2)"]),
            ("spinning", ["tests try 1: cut by cpu"]),
            ("judged", ["assert y == x * x", "call f(2)", "expected 4", "got 2"]),
            ("piped", ["input 2", "differs in line 2: '5' expected, '\\x1b[31m[b]6[/]' came back"]),
        ],
    )  # fmt: skip
    def test_says_what_failed_with_its_inputs(self, folder, name, said):
        lines = lines_of(shown(folder, name))
        for words in said:
            assert words in lines

    def test_says_why_a_limit_is_final_and_how_much_of_it_was_used(self, folder):
        text = shown(folder, "spinning")
        assert "used up a limit of its own, which is final" in text
        assert " of 0.3 s of cpu, " in text
        assert " of 512 MiB" in text

    def test_acts_on_no_terminal(self, folder):
        assert "\x1b" not in shown(folder, "piped")

    @pytest.mark.parametrize("name", CODES)
    def test_is_a_document_for_tools(self, folder, name):
        said = json.loads(shown(folder, name, "--json"))
        assert (said["id"], said["completion"]) == (name, CODES[name][0])
        assert said["verdicts"]["tests"]["value"] == 0.0
        assert said["verdicts"]["tests"]["integrity"] == "isolated"
        [attempt] = said["attempts"]
        assert attempt["clocks"]["cpu_s"] > 0.0
        assert ("check" in attempt["evidence"]) is (name != "spinning")

    def test_alone_is_a_document(self, folder):
        done = steelyard("show", "o.jsonl", "--json", cwd=folder)
        assert done.code == 2
        assert "--row ID --json" in done.err


@pytest.mark.needs("bubblewrap")
class TestAGroup:
    def test_in_a_pipe_has_a_line_for_each_row_with_its_reason(self, folder):
        lines = steelyard("show", "o.jsonl", "--group", "g", cwd=folder).out.splitlines()
        assert "group g, 3 rollouts: 1 wrong_answer, 1 exception, 1 cpu" in lines
        line = next(line for line in lines if line.startswith("wrong "))
        assert line.endswith("f(2) == 4: 2 came back")

    def test_in_a_terminal_has_each_reason_under_its_row(self, folder, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        lines = steelyard("show", "o.jsonl", "--group", "g", cwd=folder).out.splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("wrong "))
        assert lines[at].endswith("wrong_answer")
        assert lines[at + 1].strip() == "f(2) == 4: 2 came back"
        assert lines[at + 1].startswith("    ")


@pytest.mark.parametrize(("end", "code", "words"), [
    (LOST, "reproduced", "was lost after it had begun"),
    (WALL, "wall_reproduced", "ran into the wall limit"),
])  # fmt: skip
def test_a_suspect_says_how_it_failed_twice_and_that_the_canary_was_answered(
    tmp_path, monkeypatch, end, code, words
):
    boundary = FakeBoundary(lambda source, _times: CANARY_ANSWERS if "double" in source else end)
    monkeypatch.setattr("steelyard.rewards.code.boundary_of", lambda _named: boundary)
    write(tmp_path / "rows.jsonl", [{"prompt": "?", "completion": WRONG, "tests": SNIPPET, "id": "lost"}])
    assert steelyard("score", "rows.jsonl", "-r", "tests", "--out", "o.jsonl", "-q", cwd=tmp_path).code == 0
    text = shown(tmp_path, "lost")
    assert f"tests: scored 0 {code}" in text
    assert f"because it {words} 2 times, at last in a slot that had run nothing before; " in text
    assert "; the canary after it was answered: so it is to blame" in text
    attempts = text.partition("\nattempts\n")[2]
    assert "tests try 2 in a fresh slot: " in attempts
    assert attempts.count("canary after it: answered") == 1
    assert code in steelyard("show", "o.jsonl", "--why", cwd=tmp_path).out


def test_what_a_compiler_said_of_a_program_is_its_own():
    attempt = Attempt(0, "tests", 0, 0, 1, Clocks(), evidence={"stdout": "main.cpp:1: no"})
    assert "    compiler\n      main.cpp:1: no" in shown_attempt(attempt, Scored(0.0, "load_error"))
    assert "    stdout\n" in shown_attempt(attempt, Scored(0.0, "wrong_answer"))


def test_the_seconds_of_a_deadline_are_told_with_how_slow_the_machine_was():
    deadline = {
        "audit": False, "level": "kind", "cpu_s": 2.0, "proposed_s": 2.0, "declared_s": 10.0, "step": 0,
        "used_s": 1.0, "score": 1.25, "bound": 0.004,
    }  # fmt: skip
    attempt = Attempt(0, "tests", 0, 0, 1, Clocks(), evidence={"deadline": deadline})
    assert "2 s of CPU at slowness 1, " in shown_attempt(attempt, None)
    assert "1 s used at slowness 1.25" in shown_attempt(attempt, None)


@pytest.mark.parametrize("name", ["0", "first"])
def test_a_group_without_a_name_is_shown_by_the_name_of_its_first_row(tmp_path, name):
    write(tmp_path / "rows.jsonl", [{"id": "first", "prompt": "?", "completion": "4", "answer": "4"}])
    assert steelyard("score", "rows.jsonl", "-r", "gsm8k", "--out", "o.jsonl", "-q", cwd=tmp_path).code == 0
    assert "group first, index 0" in shown(tmp_path, "first")
    assert json.loads(shown(tmp_path, "first", "--json"))["group"] == "first"
    done = steelyard("show", "o.jsonl", "--group", name, cwd=tmp_path)
    assert done.code == (0 if name == "first" else 2)
    if name == "first":
        assert "group first, 1 rollout: 1 " in done.out
