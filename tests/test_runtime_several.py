"""Functions of several rollouts, as trainers' users have them, in real processes and in the loop."""

import asyncio

import pytest

from steelyard.outcome import Abstained, Part, Scored
from steelyard.rewards import Recipe, named
from steelyard.runtime import Runtime
from test_runtime import groups_of, scored


def totals(groups, target, **settings):
    return {one.group.ordinal: one.totals for one in scored(groups, named(target), **settings)}


def test_a_trl_function_judges_as_it_is():
    said = [{"role": "assistant", "content": "4"}]
    by_group = totals(groups_of(["4", said, "5"], columns={"answer": "4"}), "user_rewards:trl_accuracy")
    assert by_group == {0: [Scored(1.0), Scored(1.0), Scored(0.0)]}


def test_none_for_a_whole_group_abstains_and_for_some_of_it_is_the_floor():
    groups = groups_of(["4", "5"], columns={"answer": "unreadable"})
    groups += groups_of(["4", "unreadable"], ["4"], start=2, columns={"answer": "4"})
    by_group = totals(groups, "user_rewards:trl_accuracy")
    assert all(isinstance(verdict, Abstained) for verdict in by_group[0])
    assert [verdict.code for verdict in by_group[2]] == [None, "reward_error"]


@pytest.mark.parametrize(("text", "code"), [("crash", "reward_error"), ("spin", "cpu")])
def test_a_member_on_which_it_fails_pays_alone(text, code):
    groups = groups_of(["4", text, "5"], ["4", "4"], columns={"answer": "4"})
    by_group = totals(groups, "user_rewards:trl_accuracy", timeout_s=0.2)
    assert [verdict.code for verdict in by_group[0]] == [None, code, None]
    assert by_group[1] == [Scored(1.0)] * 2


def test_groups_in_one_message_have_limits_and_clocks_of_their_own():
    once, step = groups_of(["4", "4"], columns={"answer": "4"}), {"answer": "4"}
    bad = [["4", "4"], ["spin", "4"], ["4", "crash"], ["4", "4"]]
    reward = named("user_rewards:trl_accuracy")

    async def main():
        async with Runtime(Recipe((Part(reward),)), workers=1, timeout_s=0.3) as runtime:
            async for _ in runtime.score(once):  # now it is known to be quick, and messages are shared
                pass
            groups = groups_of(*bad * 4, start=8, columns=step)
            return [one async for one in runtime.score(groups)]

    left = sorted(asyncio.run(main()), key=lambda one: one.group.ordinal)
    codes = [[verdict.code for verdict in one.totals] for one in left]
    assert codes == [[None, None], ["cpu", None], [None, "reward_error"], [None, None]] * 4
    for one in left:
        first = min(one.attempts.values(), key=lambda attempt: attempt.id)
        assert first.members == 2
        assert first.clocks.service_s is not None


def test_an_awaited_trl_function_is_given_every_other_column_too():
    groups = groups_of(["a", "b"], columns={"answer": "4", "level": 2})
    assert totals(groups, "user_rewards:trl_waits") == {0: [Scored(4.0)] * 2}


def test_a_batch_has_whole_groups():
    by_group = totals(groups_of(["a"] * 50, ["b"] * 50, ["c"] * 2), "user_rewards:in_batches")
    assert [float(verdicts[0]) for _, verdicts in sorted(by_group.items())] == [100.0, 100.0, 2.0]


def test_a_steps_function_that_waits_and_one_that_computes_give_the_same(tmp_path):
    async def both(completions):
        await asyncio.sleep(0)
        return [float(len(c)) for c in completions]

    (tmp_path / "length.py").write_text(
        "def length(completions):\n    return [float(len(c)) for c in completions]\n"
    )
    groups = groups_of(["a", "bb"], ["ccc"])
    from steelyard.rewards import reward

    awaited = {one.group.ordinal: one.totals for one in scored(groups, reward(both))}
    assert awaited == totals(groups, f"{tmp_path / 'length.py'}:length")
