"""A reward of several rollouts that judges some of them only: the group abstains, or the completion pays.

`None` is what trainers' functions return for "not to be scored". If it hung on the completion, a policy
could learn to be left out; so it stands only where it is said of a whole group.
"""

import asyncio

import pytest
from doubles import Double, groups_of, judged

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


@pytest.mark.parametrize("takes", [Takes.GROUP, Takes.BATCH])
def test_a_whole_group_that_is_left_out_abstains_and_its_neighbour_is_judged(takes):
    judge, calls = by_words({"a0": None, "a1": None})
    outcome = judged(groups_of(2, 2), Double(judge, takes=takes))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    assert all(isinstance(verdict, Abstained) for verdict in left[0])
    assert left[1] == [Scored(1.0)] * 2
    assert len(calls) == (2 if takes is Takes.GROUP else 1)


def test_members_that_are_left_out_alone_are_asked_about_with_their_group_and_then_pay_the_floor():
    judge, calls = by_words({"b0": None})
    outcome = judged(groups_of(2, 3), Double(judge, takes=Takes.GROUP, floor=-1.0))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    first, *others = left[1]
    assert (first.value, first.code) == (-1.0, "reward_error")
    assert "returned None, though not for the whole group" in first.reason
    assert others == [Scored(1.0)] * 2
    assert calls.count(["b0", "b1", "b2"]) == 2  # once, and once more: never a part of the group


def test_a_member_that_is_judged_the_second_time_keeps_that_verdict():
    judge, _ = by_words({"a1": None}, again={"a1": 0.25})
    outcome = judged(groups_of(2), Double(judge, takes=Takes.GROUP))
    ((_, parts),) = outcome.left
    assert [s.verdict for s in parts["double"]] == [Scored(1.0), Scored(0.25)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high"])
def test_a_value_that_is_no_reward_fails_its_own_rollout_alone(value):
    judge, calls = by_words({"b1": value})
    outcome = judged(groups_of(2, 3), Double(judge, takes=Takes.GROUP))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    assert [verdict.code for verdict in left[1]] == [None, "reward_error", None]
    assert "returned" in left[1][1].reason
    assert [len(call) for call in calls].count(1) == 0  # whoever is known needs no search


def test_where_the_canary_fails_too_the_member_is_unscored():
    judge, _ = by_words({"a1": None})

    async def down():
        return False

    outcome = judged(groups_of(2), Double(judge, takes=Takes.GROUP, canary=down))
    ((_, parts),) = outcome.left
    assert isinstance(parts["double"][1].verdict, Unscored)


def test_a_group_that_abstained_is_no_canary():
    judge, _ = by_words({"a0": None, "a1": None, "c0": None})
    outcome = judged(groups_of(2, 2, 2), Double(judge, takes=Takes.GROUP))
    left = {group.ordinal: [s.verdict for s in parts["double"]] for group, parts in outcome.left}
    assert left[2][0].code == "reward_error"  # its canary is the second group, which is judged
