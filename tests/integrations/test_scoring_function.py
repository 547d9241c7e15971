"""The one reward function, called as TRL calls it; no trainer is needed."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from contextlib import closing
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import pytest

import user_rewards
from steelyard import (
    Context,
    InfraError,
    Part,
    Recipe,
    RefusedError,
    Rollout,
    RunStoppedError,
    Scored,
    builtin,
)
from steelyard import reward as as_reward
from steelyard.integrations.trl import Scoring, reward
from steelyard.integrations.trl.rows import Rows
from steelyard.outcome import How, Takes


class State:
    """TRL's `trainer_state`, as far as it is read."""

    global_step = 17


def called(scoring: Scoring, completions: list[Any], **columns: Any) -> tuple[list[float | None], dict, dict]:
    """What it returns, and what it logs."""
    extra: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    prompts = columns.pop("prompts", ["6 * 3?"] * len(completions))
    values = scoring(
        prompts=prompts,
        completions=completions,
        completion_ids=[[1, 2]] * len(completions),
        trainer_state=State(),
        log_extra=extra.__setitem__,
        log_metric=metrics.__setitem__,
        environments=None,
        **columns,
    )
    return values, extra, metrics


class Judge:
    """A judge that fails on what is called `lost`, and cannot be reached by its canary either."""

    name, identity, how, takes, floor, depends_on, columns = (
        "judge",
        "j",
        How.ASYNC,
        Takes.ROLLOUT,
        0.0,
        "content",
        (),
    )

    def lint(self, columns: Any) -> None:
        return None

    def applies(self, columns: Any) -> bool:
        return True

    async def canary(self) -> bool:
        return False

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:
        if "lost" in str(rollout.completion):
            raise InfraError("judge:mine", "503")
        return Scored(1.0)


def test_a_recipe_by_name_adds_up_and_tells_each_part():
    with reward("gsm8k,format:think+answer:any") as scoring:
        values, extra, metrics = called(
            scoring, ["#### 18", "<think>a</think><answer>b</answer> #### 17"], answer=["18"] * 2
        )
    assert values == [1.2, 1.2]
    assert extra["steelyard/verdict"] == ["scored", "scored"]
    assert extra["steelyard/part/gsm8k"] == [1.2, 0.2]
    assert extra["steelyard/part/format"] == [0.0, 1.0]
    assert len(set(extra["steelyard/row"])) == 2
    assert metrics["steelyard/mean/gsm8k"] == pytest.approx(0.7)
    assert metrics["steelyard/unscored"] == 0.0
    assert all(seconds > 0 for seconds in extra["steelyard/service_s"])


def test_a_part_that_cannot_be_judged_makes_the_row_none_whatever_the_others_say():
    recipe = Recipe((Part(Judge()), Part(builtin("format", tags=("a",), around="any"), weight=0.5)))
    with reward(recipe, stop=False) as scoring:
        values, extra, metrics = called(scoring, ["<a>1</a>", "<a>1</a>", "<a>1</a>", "<a>lost</a>"])
    assert values == [1.5, 1.5, 1.5, None]
    assert extra["steelyard/verdict"] == ["scored", "scored", "scored", "unscored"]
    assert extra["steelyard/code"] == [None, None, None, "judge:mine"]
    assert extra["steelyard/part/format"] == [1.0] * 4
    assert metrics["steelyard/unscored"] == 0.25


def test_the_same_names_are_logged_whatever_happened():
    with reward(Judge(), stop=False) as scoring:
        _, fine, mean = called(scoring, ["right"] * 4)
        values, lost, nothing = called(scoring, ["lost"] * 4)
    assert values == [None] * 4
    assert fine.keys() == lost.keys()
    assert mean.keys() == nothing.keys()
    assert mean["steelyard/mean/judge"] == 1.0
    assert isnan(nothing["steelyard/mean/judge"])


@pytest.mark.parametrize(
    ("advantage", "lost", "voting"),
    [("grpo", 1, 3), ("grpo", 2, 0), ("dr_grpo", 2, 2), ("dr_grpo", 3, 0), ("grpo", 0, 4)],
)
def test_a_group_that_a_failure_left_too_few_votes_is_none(advantage: str, lost: int, voting: int):
    with reward(Judge(), stop=False, advantage=advantage) as scoring:
        values, *_ = called(scoring, ["lost"] * lost + ["right"] * (4 - lost))
    assert sum(value is not None for value in values) == voting


def test_a_group_of_one_or_two_that_is_whole_keeps_its_numbers():
    with reward(Judge()) as scoring:
        assert called(scoring, ["a", "b", "c"], prompts=["p", "q", "q"])[0] == [1.0] * 3


def test_functions_as_trl_takes_them_with_weights():
    def ignored(completions: list[str], **_more: Any) -> list[float]:
        return [0.0] * len(completions)

    with reward([user_rewards.lengths, partial(user_rewards.scaled, by=2.0)], weights=[1.0, 0.5]) as scoring:
        values, extra, _ = called(scoring, ["abc", "a"])
    assert values == [3 + 0.5 * 6, 1 + 0.5 * 2]
    assert extra["steelyard/part/lengths"] == [3.0, 1.0]
    twice = [partial(user_rewards.scaled, by=1.0), partial(user_rewards.scaled, by=-1.0)]
    with reward(twice, floors=[0.0, -100.0]) as scoring:
        values, extra, _ = called(scoring, ["abc"])
    assert values == [0.0]
    assert extra["steelyard/part/scaled"] == [3.0]
    assert extra["steelyard/part/scaled_2"] == [-3.0]
    with pytest.raises(RefusedError, match="worker process"):
        called(reward([ignored]), ["a"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: reward(user_rewards.lengths, weights=[1.0]), "go with a list"),
        (lambda: reward("gsm8k", weights=[1.0]), "go with a list"),
        (lambda: reward([user_rewards.lengths], weights=[1.0, 2.0]), "2 weights for 1 functions"),
        (lambda: reward([3]), "no reward function"),
        (lambda: reward("gsm8k", advantage="ppo"), "there is no scheme"),
        (lambda: reward("gsm8k", group_size=0), "group_size"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, says):
    with pytest.raises(RefusedError, match=says):
        given()


def test_a_missing_column_is_refused_at_the_first_batch_with_the_next_step():
    with (
        reward("gsm8k") as scoring,
        pytest.raises(RefusedError, match=r"(?s)no column 'answer'.*it has solution.*rename_column"),
    ):
        called(scoring, ["#### 18"], solution=["18"])


def test_a_column_that_no_ledger_can_keep_is_refused(tmp_path: Path):
    scoring = reward([user_rewards.lengths], ledger=tmp_path / "run.ledger")
    with scoring, pytest.raises(RefusedError, match="'image' holds what no ledger can keep"):
        called(scoring, ["a"], image=[object()])


def test_it_travels_pickled_and_begins_where_it_arrives(tmp_path: Path):
    scoring = reward("gsm8k", name="mine", ledger=tmp_path / "run.ledger")
    called(scoring, ["#### 18"], answer=["18"])
    scoring.close()
    with pickle.loads(pickle.dumps(scoring)) as copy:  # noqa: S301 - ours
        assert copy.__name__ == "mine"
        assert called(copy, ["#### 18"], answer=["18"])[0] == [1.2]
    with closing(sqlite3.connect(tmp_path / "run.ledger")) as db:
        assert db.execute("SELECT count(*) FROM scores").fetchone() == (2,)


def test_a_trainer_without_logs_is_served_too():
    with reward("gsm8k") as scoring:
        assert scoring(prompts=["p"], completions=["#### 18"], answer=["18"]) == [1.2]


def test_what_was_begun_is_taken_only_by_the_call_with_the_same_rows():
    with reward("gsm8k") as scoring:
        scoring.begin(["p"], ["#### 18"], None, {"answer": ["18"]}, step=1)
        assert scoring(prompts=["p"], completions=["#### 18"], answer=["18"]) == [1.2]
        scoring.begin(["p"], ["#### 18"], None, {"answer": ["18"]}, step=2)
        assert scoring(prompts=["p"], completions=["#### 17"], answer=["18"]) == [0.2]


def test_other_ranks_write_ledgers_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    scoring = reward("gsm8k", ledger=tmp_path / "run.ledger")
    assert scoring.ledger == tmp_path / "run.ledger"
    monkeypatch.setenv("RANK", "3")
    assert scoring.ledger == tmp_path / "run.rank3.ledger"


def test_a_batch_that_is_late_stops_the_run():
    async def slow(completion: str) -> float:
        await asyncio.sleep(60)
        return 1.0

    with reward(slow, deadline_s=0.3) as scoring, pytest.raises(RunStoppedError, match=r"0\.3 s after"):
        called(scoring, ["a"])


def numbers(scored: list) -> list[list[int]]:
    return [[rollout.ordinal for rollout in group.rollouts] for group in scored]


def test_blocks_of_equal_rows_are_groups_and_numbers_count_on():
    rows = Rows(Recipe((Part(builtin("gsm8k")),)), rank=1, recorded=False)

    def made(prompts: list[str], answers: list[str], size: int | None = None) -> list:
        return rows.groups(prompts, ["c"] * len(prompts), None, {"answer": answers}, step=3, group_size=size)

    first = made(["a", "a", "b", "b"], ["1", "1", "2", "2"])
    assert numbers(first) == [[0, 1], [2, 3]]
    assert first[1].rollouts[1].key == (1, 1)
    assert first[1].rollouts[1].where == "rank 1, step 3, row 3"
    assert numbers(made(["a", "a", "a", "a"], ["1", "1", "2", "2"])) == [[4, 5], [6, 7]]  # other answers
    assert numbers(made(["a"] * 4, ["1"] * 4)) == [[8, 9, 10, 11]]
    assert numbers(made(["a"] * 4, ["1"] * 4, size=2)) == [[12, 13], [14, 15]]
    assert numbers(made(["a"] * 3, ["1"] * 3, size=2)) == [[16, 17, 18]]  # an evaluation of another size
    told = made(["a"] * 2, ["1", "2"], size=2)  # columns of a rollout_func differ within a group
    assert numbers(told) == [[19, 20]]
    assert [rollout.columns["answer"] for rollout in told[0].rollouts] == ["1", "2"]


def test_only_what_is_read_is_taken_along():
    rows = Rows(Recipe((Part(builtin("gsm8k")),)), rank=0, recorded=True)
    [group] = rows.groups(
        ["p"], ["c"], [[1]], {"answer": ["1"], "image": [object()]}, step=None, group_size=None
    )
    assert group.rollouts[0].columns == {"answer": "1"}
    with pytest.raises(RefusedError, match="2 values for 1 prompts"):
        rows.groups(["p"], ["c"], None, {"answer": ["1", "2"]}, step=None, group_size=None)


def test_columns_that_a_data_set_keeps_as_arrays_are_plain_for_rewards():
    numpy = pytest.importorskip("numpy")
    with reward("gsm8k") as scoring:
        values, *_ = called(
            scoring, ["#### 18", "#### 17"], answer=list(numpy.array([18, 18])), beside=[numpy.ones(2)] * 2
        )
    assert values == [1.2, 0.2]
    with reward([user_rewards.lengths]) as scoring:  # takes whatever columns there are
        assert called(scoring, ["a", "b"], beside=[numpy.array([1.0, numpy.nan])] * 2)[0] == [1.0, 1.0]


def test_rewards_by_name_stand_in_lists_too():
    with reward(
        ["gsm8k", user_rewards.lengths, as_reward(user_rewards.right)], floors=[None, 0.0, None]
    ) as scoring:
        assert called(scoring, ["#### 18"], answer=["18"])[0] == [1.2 + 7.0 + 0.0]
    assert scoring.recipe.names == ("gsm8k", "lengths", "right")


def test_a_call_that_judged_many_counts_once(tmp_path: Path):
    with reward([user_rewards.lengths], ledger=tmp_path / "run.ledger") as scoring:
        _, extra, _ = called(scoring, ["a"] * 8)
    assert len(set(extra["steelyard/row"])) == 8
    assert len(set(extra["steelyard/call"])) == 1
