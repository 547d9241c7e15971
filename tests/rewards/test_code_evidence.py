"""What an attempt at a candidate's code leaves behind: the check that failed, and why somebody was blamed."""

import json

import pytest

from boundaries import LOST, FakeBoundary, answering, group_of, in_a_loop
from boundaries import verdicts as judged
from steelyard.clock import Clocks
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, Scored, Unscored
from steelyard.rewards.code import tests as unit_tests
from steelyard.rewards.evidence import failed_check, failed_pair, judged_check
from steelyard.rewards.facts import Paying
from steelyard.rewards.hearing import TableHearing
from steelyard.rewards.suites import Raised, Value, compile_suite
from steelyard.rewards.suites.suite import Pair
from steelyard.runtime import Runtime
from steelyard.sandbox import Opinion

SOURCE = b"def f(x):\n    return {}[x]\n"


def failed(tests, *outcomes, at=0):
    table = compile_suite(tests).table
    return failed_check(table, at, outcomes, SOURCE, {})


@pytest.mark.parametrize(
    ("tests", "came", "expected", "got"),
    [
        ("assert f(2) == 4", 5, "4", "5"),
        ("assert [1] == f(2)", [2], "[1]", "[2]"),
        ("assert f(2) != 5", 5, "it != 5", "5"),
        ("assert f(2) < 3", 7, "it < 3", "7"),
        ("assert 3 < f(2)", 1, "3 < it", "1"),
        ("assert f(2) in [1, 2]", 7, "it in [1, 2]", "7"),
        ("assert f(2)", 0, "a true value", "0"),
        ("assert not f(2)", 1, "a false value", "1"),
        ("assert f(2) is None", 0, "None", "0"),
        ("import pytest\nassert f(2) == pytest.approx(0.5)", 0.75, "about 0.5", "0.75"),
        ("assert abs(f(2) - 9) < 1e-6", 8, "it < 1e-06", "1"),
        ("assert f(2) == 4 and f(2) > 5", 4, "it > 5", "4"),
    ],
)
def test_a_check_says_what_it_expected_and_what_it_got(tests, came, expected, got):
    told = failed(tests, *[Value(came)] * 2)
    assert (told["expected"], told["got"]) == (expected, got)
    assert told["calls"][0] == "f(2)"


def test_a_check_has_its_number_its_line_and_its_inputs():
    tests = "CASES = [(1, 1), (2, 4)]\nfor x, y in CASES:\n    assert f(x) == y\n"
    told = failed(tests, Value(1), Value(3), at=1)
    assert (told["number"], told["of"], told["line"]) == (2, 2, 3)
    assert told["text"] == "assert f(x) == y"
    assert told["calls"] == ["f(2)"]


def test_two_containers_say_where_they_part():
    told = failed("assert f(2) == [1, {'a': 2}]", Value([1, {"a": 3}]))
    assert told["parts"] == "at [1]['a']: 2 expected, 3 came back"


def test_an_exception_has_the_candidates_line():
    told = failed("assert f(2) == 4", Raised("KeyError", "2", 2))
    assert told["error"] == {"said": "KeyError: 2", "line": 2, "source": "return {}[x]"}
    assert "got" not in told


def test_a_line_that_the_source_does_not_have_is_shown_without_its_text():
    told = failed("assert f(2) == 4", Raised("KeyError", "2", 999))
    assert told["error"] == {"said": "KeyError: 2", "line": 999}


def test_whatever_is_long_is_cut():
    told = failed("assert f(2) == 'a'", Value("é\ud800" * 100_000))
    assert len(json.dumps(told)) < 20_000
    told = failed_pair(
        1, 2, Pair("1" * 100_000, "2" * 100_000), Execution(Ended.EXIT, 0, stdout=b"3" * 90_000)
    )
    assert len(json.dumps(told)) < 5_000


def test_a_pair_says_in_which_line_the_outputs_differ():
    told = failed_pair(2, 3, Pair("7\n", "0\n1.0\n3\n"), Execution(Ended.EXIT, 0, stdout=b"0\n1\n2\n"))
    assert told == {
        "number": 2, "of": 3, "input": "7\n", "expected": "0\n1.0\n3\n", "got": "0\n1\n2\n",
        "parts": "in line 3: '3' expected, '2' came back",
    }  # fmt: skip


def test_a_right_output_says_that_the_status_is_what_failed():
    told = failed_pair(1, 1, Pair("", "5\n"), Execution(Ended.EXIT, 3, stdout=b"5\n"))
    assert told == {
        "number": 1, "of": 1, "input": "", "ended": "its output is right, but it ended with status 3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        (Execution(Ended.EXIT, 0), "it ended by itself (status 0) before its tests did"),
        (Execution(Ended.SIGNAL, 11), "SIGSEGV"),
        (Execution(Ended.SIGNAL, 99), "signal 99"),
    ],
)
def test_an_end_before_the_tests_is_told_in_words(execution, words):
    assert Paying(0.0, share=False).ended(execution, None).reason == words


def test_of_a_judge_only_what_is_known_is_read():
    said = {
        "number": 1,
        "of": 2,
        "line": "x",
        "text": 7,
        "got": "1",
        "call": "f(2)",
        "error": "E: m",
        "more": "?",
    }
    assert judged_check(said, SOURCE) == {
        "check": {"number": 1, "of": 2, "got": "1", "calls": ["f(2)"], "error": {"said": "E: m"}}
    }
    assert judged_check({}, SOURCE) == {}


class Watched(FakeBoundary):
    """A boundary that keeps all that candidates were given."""

    def __init__(self, *given):
        super().__init__(*given)
        self.given = []

    async def run(self, program, limits, **settings):
        self.given.append(repr(program))
        return await super().run(program, limits, **settings)


async def noted(boundary, tests, code="def f(x): return x"):
    seen = []
    reward = unit_tests(boundary)
    rollout = group_of(code, tests=tests).rollouts[0]
    scored = await reward(rollout, Context(note=seen.append))
    assert scored.value == 0.0
    return seen[-1]


@in_a_loop
async def test_nothing_that_is_kept_of_a_check_was_ever_given_to_the_candidate():
    boundary = Watched(lambda _source, _times: answering("4"))
    kept = await noted(boundary, "assert f(2) == 73911")
    assert kept["check"]["expected"] == "73911"
    wrote = Execution(Ended.EXIT, 0, stdout=b"1")
    piped = Watched(lambda _source, _times: wrote)
    kept = await noted(piped, [{"input": "7", "output": "73911"}])
    assert kept["check"]["expected"] == "73911"
    assert "73911" not in "".join([*boundary.given, *piped.given])
    assert "f" in boundary.given[0]
    check = {"number": 1, "of": 1, "expected": "73911"}
    by_judge = Watched(
        None, lambda _source, _times: (Execution(Ended.ENOUGH), Opinion(1, 0, "wrong", "x", check=check))
    )
    kept = await noted(by_judge, "import random\nassert f(random.random()) == 73911")
    assert kept["check"]["expected"] == "73911"
    assert by_judge.given == []


@in_a_loop
async def test_a_candidate_that_was_cut_has_the_call_it_did_not_answer_and_what_it_was_allowed():
    cut = Execution(
        Ended.LIMIT, limit="cpu", replies=(b'["loaded"]', b'["r",0,[["v",4]]]'), clocks=Clocks(cpu_s=2.0)
    )
    kept = await noted(FakeBoundary(lambda _source, _times: cut), "assert f(2) == 4\nassert f(3) == 9")
    assert kept["unanswered"] == {"number": 2, "of": 2, "call": "f(3)"}
    assert kept["allowed"] == {"cpu_s": 2.0, "wall_s": 30.0, "memory_bytes": Limits().memory_bytes}


@pytest.mark.parametrize("answered", [True, False])
def test_the_last_try_of_a_suspect_says_whether_the_canary_was_answered(answered, monkeypatch):
    attempts = []
    record = Runtime._record

    def recorded(self, batch, *more):
        attempts.extend(batch.attempts)
        record(self, batch, *more)

    monkeypatch.setattr(Runtime, "_record", recorded)
    monkeypatch.setattr("steelyard.rewards.code.UnitTests.canary", lambda _self: _answer(answered))
    said = judged(["a"], boundary=FakeBoundary(lambda _source, _times: LOST))
    assert isinstance(said[0], Scored if answered else Unscored)
    first, last = attempts
    assert "canary" not in first.evidence
    assert last.evidence["canary"] == ("answered" if answered else "failed")
    assert last.evidence["fresh"] is True


async def _answer(answered):
    return answered


def test_a_reason_that_begins_with_a_block_has_one_colon():
    told = TableHearing(
        compile_suite("import pytest\nwith pytest.raises(TypeError):\n    f('x')").table, share=False
    )
    told.listen(b'["loaded"]')
    told.listen(b'["r",0,[["v",1]]]')
    assert told.said()[1].reason == "with pytest.raises(TypeError): 1 came back, no TypeError"
