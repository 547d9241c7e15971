"""The attempts that a group's scores came of leave with the group."""

import asyncio
import gc

from steelyard.ledger import Ledger
from steelyard.outcome import Attempt, Part
from steelyard.rewards import Recipe, builtin, named
from steelyard.runtime import Runtime
from test_runtime import groups_of, scored


def test_each_group_has_the_attempts_that_its_scores_name_and_no_others():
    groups = groups_of(["a"] * 2, ["b", "raise"], ["c"] * 2, columns={"answer": "1"})
    left = scored(groups, builtin("gsm8k"), named("user_rewards:raises"))
    assert len(left) == 3
    for one in left:
        mine = {rollout.ordinal for rollout in one.group.rollouts}
        named_ids = {score.attempt for scores in one.parts.values() for score in scores}
        assert named_ids <= one.attempts.keys()
        assert all(attempt.id == key for key, attempt in one.attempts.items())
        own = [attempt for attempt in one.attempts.values() if attempt.part == "raises"]
        assert {attempt.first for attempt in own} == mine


def test_retries_are_among_them():
    (one,) = scored(groups_of(["a", "raise"]), named("user_rewards:raises"))
    tries = sorted(attempt.ordinal for attempt in one.attempts.values() if attempt.first == 1)
    assert tries == [0, 1]
    (last,) = (score.attempt for score in one.parts["raises"][1:])
    assert one.attempts[last].ordinal == 1


def test_a_batch_that_failed_is_an_attempt_of_each_of_its_groups(tmp_path):
    (tmp_path / "together.py").write_text(
        "import steelyard\n"
        "@steelyard.reward(takes='batch')\n"
        "def together(completions):\n"
        "    return [1 / (said != 'crash') for said in completions]\n"
    )
    groups = groups_of(["4", "crash"], ["4", "4"])
    left = {one.group.ordinal: one for one in scored(groups, named(f"{tmp_path / 'together.py'}:together"))}
    members = [sorted(attempt.members for attempt in left[n].attempts.values()) for n in (0, 1)]
    assert members[1] == [2, 4]
    assert members[0][-2:] == [2, 4]
    assert len(members[0]) > 2
    assert [float(total) for total in left[1].totals] == [1.0, 1.0]


def test_an_attempt_at_a_whole_chunk_is_one_and_the_same_in_all_of_its_groups():
    left = scored(groups_of(*[["#### 1", "#### 2"]] * 100, columns={"answer": "1"}), builtin("gsm8k"))
    assert len({id(attempt) for one in left for attempt in one.attempts.values()}) == 1


def test_nothing_is_kept_of_groups_that_have_left():
    def alive():
        gc.collect()
        return sum(type(one) is Attempt for one in gc.get_objects())

    async def main():
        before, after = alive(), []
        async with Runtime(Recipe((Part(builtin("gsm8k")),))) as runtime:
            for step in range(3):
                groups = groups_of(*[["#### 1", "#### 2"]] * 4, columns={"answer": "1"}, start=8 * step)
                assert [one.attempts.keys() async for one in runtime.score(groups)] == [{step}] * 4
                after.append(alive() - before)
        return after

    assert asyncio.run(main()) == [0, 0, 0]


def test_a_run_that_goes_on_finds_the_attempts_of_the_earlier_one(tmp_path):
    groups = groups_of(*[["#### 1", "#### 2"]] * 4, columns={"answer": "1"})
    recipe = Recipe((Part(builtin("gsm8k")), Part(named("user_rewards:raises"))))

    async def main():
        with Ledger(tmp_path / "x.ledger") as ledger:
            run = ledger.begin("run", {}, {part.reward.name: "1" for part in recipe.parts})
            runtime = Runtime(recipe, ledger=ledger, run=run, workers=1)
            return {one.group.ordinal: one async for one in runtime.score(groups)}

    first, again = asyncio.run(main()), asyncio.run(main())
    for number, one in first.items():
        assert {key: attempt.clocks for key, attempt in one.attempts.items()} == {
            key: attempt.clocks for key, attempt in again[number].attempts.items()
        }
