"""A reward of several rollouts that judges some of them only: the group abstains, or the completion pays.

`None` is what trainers' functions return for "not to be scored". If it hung on the completion, a policy
could learn to be left out; so it stands only where it is said of a whole group.
"""

import asyncio
from contextlib import aclosing

import pytest
from doubles import Double, groups_of, judged, scheduler_of

from steelyard.outcome import Abstained, Scored, Takes, Unscored


def by_words(first, again=None):
    """An awaited reward whose answers are by completion; from the second call on, by `again`."""
    calls = []

    async def judge(given, _context):
        await asyncio.sleep(0)
        calls.append([rollout.completion for rollout in given])
        table = first if len(calls) == 1 or again is None else again
        return [table.get(rollout.completion, 1.0) for rollout in given]

    return judge, calls


def by_columns(words=None, *, crashes_on=()):
    """An awaited reward that leaves out whom the columns say, and whom `words` names."""
    calls = []

    async def judge(given, _context):
        await asyncio.sleep(0)
        calls.append([rollout.completion for rollout in given])
        if any(rollout.completion in crashes_on for rollout in given):
            raise ValueError("on this content")
        values = [(words or {}).get(rollout.completion, 1.0) for rollout in given]
        return [
            None if rollout.columns.get("gold") == "unreadable" else value
            for rollout, value in zip(given, values, strict=True)
        ]

    return judge, calls


def first_unreadable(number, _index):
    return {"gold": "unreadable" if number == 0 else "4"}


def told(outcome):
    return {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}


BOTH = pytest.mark.parametrize("takes", [Takes.GROUP, Takes.BATCH])


@BOTH
def test_a_whole_group_that_is_left_out_by_its_columns_abstains_and_its_neighbour_is_judged(takes):
    judge, _ = by_columns()
    left = told(judged(groups_of(2, 2, columns=first_unreadable), Double(judge, takes=takes)))
    assert all(isinstance(verdict, Abstained) for verdict in left[0])
    assert left[1] == [Scored(1.0)] * 2


@BOTH
def test_a_whole_group_whose_completions_have_it_left_out_pays_the_floor(takes):
    judge, _ = by_columns({"a0": None, "a1": None})
    left = told(judged(groups_of(2, 2), Double(judge, takes=takes)))
    assert [verdict.code for verdict in left[0]] == ["reward_error"] * 2
    assert left[1] == [Scored(1.0)] * 2


def test_a_batch_that_one_completion_makes_fail_leaves_another_group_its_abstention():
    judge, _ = by_columns(crashes_on=["b1"])
    left = told(judged(groups_of(2, 3, columns=first_unreadable), Double(judge, takes=Takes.BATCH)))
    assert all(isinstance(verdict, Abstained) for verdict in left[0])
    assert [verdict.code for verdict in left[1]] == [None, "reward_error", None]


def test_a_member_that_has_its_siblings_left_out_pays_in_their_place():
    async def judge(given, _context):
        await asyncio.sleep(0)
        bad = any(rollout.completion == "b1" for rollout in given)
        return [None if bad and rollout.completion != "b1" else 1.0 for rollout in given]

    left = told(judged(groups_of(2, 4), Double(judge, takes=Takes.GROUP)))
    assert [(verdict.value, verdict.code) for verdict in left[1]] == [
        (1.0, None), (0.0, "reward_error"), (1.0, None), (1.0, None),
    ]  # fmt: skip


def test_where_no_single_member_is_to_blame_the_whole_group_pays_and_nobody_gains():
    async def judge(given, _context):
        await asyncio.sleep(0)
        bad = sum(rollout.completion in {"b0", "b1"} for rollout in given)
        return [None if bad and rollout.completion in {"b2", "b3"} else 1.0 for rollout in given]

    left = told(judged(groups_of(2, 4), Double(judge, takes=Takes.GROUP)))
    assert [verdict.code for verdict in left[1]] == ["reward_error"] * 4


def test_of_a_group_that_was_partly_judged_nothing_is_recorded_before_all_of_it_is():
    """A run that is killed in between asks about the whole group again, for one may depend on all."""

    async def main():
        asked, scores = [], []
        again = asyncio.Event()

        async def judge(given, _context):
            asked.append([rollout.completion for rollout in given])
            if len(asked) == 2:
                again.set()
                await asyncio.Event().wait()
            return [None if rollout.completion == "a1" else 1.0 for rollout in given]

        scheduler = scheduler_of(Double(judge, takes=Takes.GROUP))
        async with aclosing(scheduler.run([groups_of(3)])) as batches:
            step = asyncio.ensure_future(anext(batches))
            await again.wait()
            await asyncio.sleep(0)
            if step.done():
                scores += step.result().scores
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        return scores

    assert asyncio.run(main()) == []


def test_members_that_are_left_out_alone_are_asked_about_with_their_group_and_then_pay_the_floor():
    judge, calls = by_words({"b0": None})
    outcome = judged(groups_of(2, 3), Double(judge, takes=Takes.GROUP, floor=-1.0))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    first, *others = left[1]
    assert (first.value, first.code) == (-1.0, "reward_error")
    assert "returned None, though not for the whole group" in first.reason
    assert others == [Scored(1.0)] * 2
    assert calls.count(["b0", "b1", "b2"]) == 2  # once, and once more


def test_a_member_that_is_judged_the_second_time_keeps_that_verdict():
    judge, _ = by_words({"a1": None}, again={"a1": 0.25})
    outcome = judged(groups_of(2), Double(judge, takes=Takes.GROUP))
    ((_, parts),) = outcome.left
    assert [s.verdict for s in parts["double"]] == [Scored(1.0), Scored(0.25)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high"])
def test_a_value_that_is_no_reward_fails_its_own_rollout_alone(value):
    judge, _ = by_words({"b1": value})
    outcome = judged(groups_of(2, 3), Double(judge, takes=Takes.GROUP))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    assert [verdict.code for verdict in left[1]] == [None, "reward_error", None]
    assert "returned" in left[1][1].reason


def test_where_the_canary_fails_too_the_member_is_unscored():
    judge, _ = by_words({"a1": None})

    async def down():
        return False

    outcome = judged(groups_of(2), Double(judge, takes=Takes.GROUP, canary=down))
    ((_, parts),) = outcome.left
    assert isinstance(parts["double"][1].verdict, Unscored)


def test_a_group_that_abstained_is_no_canary():
    judge, _ = by_columns({"c0": None})
    left = told(judged(groups_of(2, 2, 2, columns=first_unreadable), Double(judge, takes=Takes.GROUP)))
    assert left[2][0].code == "reward_error"  # its canary is the second group, which is judged
