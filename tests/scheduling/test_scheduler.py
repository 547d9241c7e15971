"""The order of things: chunks, tasks, messages, gates, columns, the window, the end."""

import asyncio
from contextlib import aclosing
from itertools import count

import pytest
from doubles import Double, Outcome, Scripted, by_completion, groups_of, judge, judged, scheduler_of, settled

from steelyard.errors import RunStoppedError
from steelyard.outcome import Abstained, How, Part, Score, Scored, Takes, Unscored
from steelyard.testing import FakeClock


def ones(given, _context):
    return [1.0] * len(given)


async def one(_rollout, _context):
    return 1.0


def leave_out(name):
    """Never reached: a reward that must not be asked."""

    async def refuse(rollout, _context):
        raise AssertionError(f"{name} was asked about {rollout.completion}")

    return refuse


# --- how each kind is called


def test_inline_rewards_judge_a_chunk_in_one_call_that_is_one_attempt_with_one_set_of_clocks():
    clock = FakeClock()

    def judge_batch(given, _context):
        clock.tick(0.25)
        return [float(len(rollout.completion)) for rollout in given]

    reward = Double(judge_batch, how=How.INLINE, takes=Takes.BATCH)
    outcome = judged(groups_of(4, 4, 4), reward, clock=clock)
    (attempt,) = outcome.attempts
    assert (attempt.members, attempt.first, attempt.clocks.service_s) == (12, 0, 0.25)
    assert not attempt.clocks.censored
    assert len(reward.asked) == 1
    assert {score.attempt for score in outcome.scores} == {attempt.id}


def test_inline_rewards_of_one_rollout_are_one_attempt_for_a_chunk_too():
    reward = Double(lambda _rollout, _context: 1.0, how=How.INLINE)
    outcome = judged(groups_of(3, 3), reward)
    assert len(outcome.attempts) == 1
    assert len(reward.asked) == 6


def test_inline_rewards_of_a_group_are_given_one_group_at_a_time():
    reward = Double(lambda given, _context: range(len(given)), how=How.INLINE, takes=Takes.GROUP)
    outcome = judged(groups_of(2, 3), reward)
    assert reward.asked == [["a0", "a1"], ["b0", "b1", "b2"]]
    assert outcome.values() == {"a0": 0, "a1": 1, "b0": 0, "b1": 1, "b2": 2}


def test_awaited_rewards_run_a_task_for_each_rollout_all_at_once():
    async def main():
        started, go = [], asyncio.Event()

        async def wait(rollout, _context):
            started.append(rollout.completion)
            await go.wait()
            return 1.0

        task = asyncio.create_task(judge(scheduler_of(Double(wait)), groups_of(3, 3)))
        await settled(lambda: len(started) == 6)
        go.set()
        outcome = await task
        assert [attempt.members for attempt in outcome.attempts] == [1] * 6

    asyncio.run(main())


def test_synchronous_rewards_go_to_workers_in_messages_of_64():
    caller = Scripted(by_completion())
    rows = groups_of(*[50] * 20, completions=map(str, range(1000)))
    outcome = judged(rows, Double(one, how=How.WORKER), callers={"double": caller}, processes=2)
    assert [len(message) for message in caller.messages] == [64] * 15 + [40]
    assert len(outcome.attempts) == 1000
    assert caller.fresh == []


@pytest.mark.parametrize(("rows", "sizes"), [(64, [8] * 8), (10, [2] * 5), (3, [1] * 3)])
def test_few_rollouts_are_spread_over_all_processes(rows, sizes):
    caller = Scripted(by_completion())
    judged(groups_of(rows), Double(one, how=How.WORKER), callers={"double": caller}, processes=2)
    assert [len(message) for message in caller.messages] == sizes


def test_a_batch_reward_is_asked_in_batches_of_whole_groups_with_64_rollouts_or_more():
    async def judge_batch(given, _context):
        return ones(given, None)

    reward = Double(judge_batch, takes=Takes.BATCH)
    outcome = judged(groups_of(60, 10, 6), reward)
    assert [len(batch) for batch in reward.asked] == [70, 6]
    assert [attempt.members for attempt in outcome.attempts] == [70, 6]


def test_an_attempt_starts_as_soon_as_its_rollout_exists_and_waits_for_no_other_chunk():
    async def main():
        started, go = [], asyncio.Event()

        async def wait(rollout, _context):
            started.append(rollout.completion)
            await go.wait()
            return 1.0

        def chunks():
            yield groups_of(2)
            yield groups_of(2, completions=["second", "chunk"], start=2)

        task = asyncio.create_task(judge(scheduler_of(Double(wait)), None, chunks=chunks()))
        await settled(lambda: len(started) == 4)
        go.set()
        assert len((await task).left) == 2

    asyncio.run(main())


# --- leaving


def test_groups_leave_in_the_order_of_completion_so_a_slow_one_holds_nobody():
    async def main():
        slow = asyncio.Event()

        async def wait(rollout, _context):
            if rollout.completion == "a1":
                await slow.wait()
            return 1.0

        outcome = Outcome()
        task = asyncio.create_task(judge(scheduler_of(Double(wait)), groups_of(2, 2, 2), outcome=outcome))
        await settled(lambda: len(outcome.left) == 2)
        assert outcome.order() == [1, 2]
        slow.set()
        await task
        assert outcome.order() == [1, 2, 0]

    asyncio.run(main())


def test_scores_of_an_unfinished_group_are_handed_out_for_the_record_before_it_leaves():
    async def main():
        slow = asyncio.Event()

        async def wait(rollout, _context):
            if rollout.completion == "a1":
                await slow.wait()
            return 1.0

        outcome = Outcome()
        task = asyncio.create_task(judge(scheduler_of(Double(wait)), groups_of(3), outcome=outcome))
        await settled(lambda: len(outcome.scores) == 2)
        assert outcome.left == []
        slow.set()
        await task
        assert [score.ordinal for score in outcome.scores] == [0, 2, 1]

    asyncio.run(main())


def test_results_stand_in_input_order_whatever_finishes_first():
    async def main():
        go = {name: asyncio.Event() for name in ("a0", "a1", "a2")}

        async def wait(rollout, _context):
            await go[rollout.completion].wait()
            return float(rollout.key[1])

        task = asyncio.create_task(judge(scheduler_of(Double(wait)), groups_of(3)))
        for name in ("a2", "a0", "a1"):
            go[name].set()
            await asyncio.sleep(0)
        ((_, parts),) = (await task).left
        assert [float(score) for score in parts["double"]] == [0.0, 1.0, 2.0]
        assert [score.key for score in parts["double"]] == [(0, 0), (0, 1), (0, 2)]

    asyncio.run(main())


def test_equal_completions_are_two_rows_and_two_calls():
    reward = Double(one)
    outcome = judged(groups_of(2, 2, completions=["same"] * 4), reward)
    assert reward.asked == ["same"] * 4
    assert [score.ordinal for score in outcome.scores] == [0, 1, 2, 3]


def test_an_empty_group_and_no_group_at_all_leave_too():
    assert judged(groups_of(0, 1), Double(one)).order() == [0, 1]
    assert judged([], Double(one)).left == []


def test_attempts_are_numbered_from_the_first_free_id():
    outcome = judged(groups_of(3), Double(one), ids=count(100))
    assert [attempt.id for attempt in outcome.attempts] == [100, 101, 102]


# --- resources and the window


def test_parts_with_the_same_resource_share_its_places_and_never_exceed_them():
    async def main():
        running, most, go = 0, 0, asyncio.Semaphore(0)

        async def work(_rollout, _context):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await go.acquire()
            running -= 1
            return 1.0

        first, second = (Double(work, name=name, resource="judge") for name in ("first", "second"))
        task = asyncio.create_task(judge(scheduler_of(first, second, places=3), groups_of(10)))
        await settled(lambda: running == 3)
        for _ in range(20):
            go.release()
            await asyncio.sleep(0)
        await task
        assert most == 3
        assert len(first.asked) == len(second.asked) == 10

    asyncio.run(main())


def test_parts_with_resources_of_their_own_do_not_wait_for_each_other():
    async def main():
        started, go = [], asyncio.Event()

        async def wait(rollout, _context):
            started.append(rollout.completion)
            await go.wait()
            return 1.0

        parts = [Double(wait, name=name, resource=name) for name in ("first", "second")]
        task = asyncio.create_task(judge(scheduler_of(*parts, places=2), groups_of(4)))
        await settled(lambda: len(started) == 4)
        go.set()
        await task

    asyncio.run(main())


def test_an_endless_input_is_not_read_beyond_the_window_while_a_reward_is_blocked():
    async def main():
        read, go = 0, asyncio.Event()

        def endless():
            nonlocal read
            while True:
                read += 4
                yield groups_of(2, 2, start=read - 4)

        async def wait(_rollout, _context):
            await go.wait()
            return 1.0

        scheduler = scheduler_of(Double(wait, takes=Takes.ROLLOUT), window=16, places=1000)
        async with aclosing(scheduler.run(endless())) as batches:
            task = asyncio.create_task(anext(batches))
            for _ in range(200):
                await asyncio.sleep(0)
            assert read == 16
            go.set()
            await task

    asyncio.run(main())


def test_a_slow_consumer_is_not_read_ahead_of_beyond_the_window():
    async def main():
        read = 0

        def endless():
            nonlocal read
            while True:
                read += 4
                yield groups_of(4, start=read - 4)

        scheduler = scheduler_of(Double(ones, how=How.INLINE, takes=Takes.BATCH), window=16)
        async with aclosing(scheduler.run(endless())) as batches:
            await anext(batches)
            for _ in range(50):
                await asyncio.sleep(0)
            assert read <= 16

    asyncio.run(main())


def test_others_in_the_event_loop_live_while_inline_rewards_judge():
    async def main():
        lived = 0

        async def live():
            nonlocal lived
            while True:
                lived += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(live())
        scheduler = scheduler_of(Double(ones, how=How.INLINE, takes=Takes.BATCH))
        await judge(scheduler, None, chunks=(groups_of(4, start=4 * n) for n in range(20)))
        other.cancel()
        return lived

    assert asyncio.run(main()) >= 20


# --- gates


def gate(verdicts):
    return isinstance(verdicts["verifier"], Scored) and verdicts["verifier"].value > 0


def gated(verifier, paid):
    return Part(verifier), Part(paid, only_if=gate)


def test_a_gate_sees_the_verdicts_before_it_and_its_part_abstains_where_it_is_closed():
    async def verify(rollout, _context):
        return 1.0 if rollout.completion.endswith("0") else 0.0

    paid = Double(one, name="paid")
    outcome = judged(groups_of(2, 2), *gated(Double(verify, name="verifier"), paid))
    assert paid.asked == ["a0", "b0"]
    assert outcome.verdicts("paid") == {
        "a0": Scored(1.0),
        "a1": Abstained("the gate before it is closed"),
        "b0": Scored(1.0),
        "b1": Abstained("the gate before it is closed"),
    }


def test_a_gated_part_waits_for_its_own_group_only():
    async def main():
        slow = asyncio.Event()

        async def verify(rollout, _context):
            if rollout.completion == "a0":
                await slow.wait()
            return 1.0

        paid = Double(one, name="paid")
        scheduler = scheduler_of(*gated(Double(verify, name="verifier"), paid))
        task = asyncio.create_task(judge(scheduler, groups_of(2, 2)))
        await settled(lambda: len(paid.asked) == 2)
        assert paid.asked == ["b0", "b1"]
        slow.set()
        await task

    asyncio.run(main())


def test_the_second_gate_sees_what_the_first_gated_part_said():
    seen = []

    def after_paid(verdicts):
        seen.append(sorted(verdicts))
        return False

    verifier, paid, third = (Double(one, name=name) for name in ("verifier", "paid", "third"))
    outcome = judged(groups_of(1), Part(verifier), Part(paid, only_if=gate), Part(third, only_if=after_paid))
    assert seen[0][:2] == ["paid", "verifier"]
    assert outcome.verdicts("third")["a0"] == Abstained("the gate before it is closed")


def test_a_gate_is_not_asked_about_a_sum_that_is_missing_already():
    verifier = Double(one, name="verifier", lint=lambda _columns: "no gold")
    paid = Double(leave_out("paid"), name="paid")
    outcome = judged(
        groups_of(2), Part(verifier), Part(paid, only_if=lambda said: said["verifier"].value > 0)
    )
    assert {type(verdict) for verdict in outcome.verdicts("verifier").values()} == {Unscored}
    assert {type(verdict) for verdict in outcome.verdicts("paid").values()} == {Abstained}


def test_a_gate_that_raises_stops_the_run_naming_part_row_and_next_step():
    verifier = Double(one, name="verifier", applies=lambda _columns: False)
    paid = Double(one, name="paid")
    with pytest.raises(
        RunStoppedError, match=r"(?s)gate of 'paid'.*rollouts.jsonl:1.*next: let only_if take"
    ):
        judged(groups_of(1), Part(verifier), Part(paid, only_if=lambda said: said["verifier"].value > 0))


def test_a_recipe_of_gated_parts_only_is_judged_stage_by_stage():
    first, second = (Double(one, name=name) for name in ("first", "second"))
    outcome = judged(
        groups_of(2),
        Part(first, only_if=lambda _said: True),
        Part(second, only_if=lambda said: "first" in said),
    )
    assert outcome.values("second") == {"a0": 1.0, "a1": 1.0}


# --- columns decide before any completion is read


def test_an_optional_part_abstains_for_a_whole_group_that_lacks_its_column():
    style = Double(one, name="style", columns=("tone",))
    rows = groups_of(2, 2, columns=lambda group, _index: {"tone": "dry"} if group else {"tone": None})
    outcome = judged(rows, Part(style, optional=True))
    assert style.asked == ["b0", "b1"]
    assert (
        outcome.verdicts("style")["a0"]
        == outcome.verdicts("style")["a1"]
        == Abstained("column 'tone' is absent")
    )


def test_a_group_in_which_one_row_lacks_an_optional_column_abstains_as_a_whole():
    style = Double(leave_out("style"), name="style", columns=("tone",))
    rows = groups_of(3, columns=lambda _group, index: {"tone": "dry"} if index else {})
    assert {type(v) for v in judged(rows, Part(style, optional=True)).verdicts("style").values()} == {
        Abstained
    }


def test_bad_columns_take_the_whole_group_as_unscored_data_with_file_and_line():
    def lint(columns):
        return "gold is no number" if columns["answer"] == "x" else None

    reward = Double(one, columns=("answer",), lint=lint)
    rows = groups_of(3, 2, columns=lambda group, index: {"answer": "x" if (group, index) == (0, 1) else "1"})
    outcome = judged(rows, reward)
    assert reward.asked == ["b0", "b1"]
    expected = Unscored("data", "rollouts.jsonl:2: gold is no number")
    assert [outcome.verdicts()[name] for name in ("a0", "a1", "a2")] == [expected] * 3
    assert [score.attempt for score in outcome.scores if isinstance(score.verdict, Unscored)] == [None] * 3


def test_a_missing_column_of_a_required_part_is_unscored_data():
    outcome = judged(groups_of(2), Double(leave_out("it"), columns=("answer",)))
    assert outcome.verdicts()["a1"] == Unscored("data", "rollouts.jsonl:1: column 'answer' is missing")


def test_a_reward_that_does_not_apply_abstains_without_being_asked():
    outcome = judged(groups_of(2), Double(leave_out("it"), applies=lambda _columns: False))
    assert {type(verdict) for verdict in outcome.verdicts().values()} == {Abstained}


# --- what the record knows


def recorded(part, verdict, ordinal=0, attempt=7):
    return {(ordinal, part): Score((0, ordinal), ordinal, part, f"{part}/1", verdict, attempt)}


def test_a_recorded_score_is_not_asked_for_again_nor_recorded_again():
    reward = Double(one)
    outcome = judged(groups_of(2), reward, recorded=recorded("double", Scored(0.5)))
    assert reward.asked == ["a1"]
    assert [score.ordinal for score in outcome.scores] == [1]
    assert outcome.values() == {"a0": 0.5, "a1": 1.0}


def test_a_recorded_unscored_or_abstained_stands_too():
    known = recorded("double", Unscored("judge:x", "down")) | recorded("double", Abstained("column"), 1)
    outcome = judged(groups_of(2), Double(leave_out("it")), recorded=known)
    assert list(outcome.verdicts().values()) == [Unscored("judge:x", "down"), Abstained("column")]
    assert outcome.scores == outcome.attempts == []


def test_a_recorded_score_of_a_gated_part_is_not_asked_for_again_and_the_gate_sees_recorded_verdicts():
    seen = []

    def look(verdicts):
        seen.append(verdicts["verifier"])
        return True

    paid = Double(one, name="paid")
    known = (
        recorded("verifier", Scored(0.25))
        | recorded("verifier", Scored(0.75), 1)
        | recorded("paid", Scored(0.5), 1)
    )
    outcome = judged(
        groups_of(2),
        Part(Double(leave_out("verifier"), name="verifier")),
        Part(paid, only_if=look),
        recorded=known,
    )
    assert seen == [Scored(0.25)]
    assert paid.asked == ["a0"]
    assert outcome.values("paid") == {"a0": 1.0, "a1": 0.5}


# --- the end


def test_closing_early_cancels_every_call_and_closes_every_caller():
    async def main():
        undone, caller = 0, Scripted(by_completion())

        async def hang(rollout, _context):
            nonlocal undone
            if rollout.completion == "a0":
                return 1.0
            try:
                await asyncio.Event().wait()
            finally:
                undone += 1

        before = asyncio.all_tasks()
        parts = [Double(hang), Double(one, name="sync", how=How.WORKER)]
        async with aclosing(scheduler_of(*parts, callers={"sync": caller}).run([groups_of(1, 5)])) as batches:
            async for batch in batches:
                if batch.groups:
                    break
        assert undone == 5
        assert caller.closed == 1
        assert asyncio.all_tasks() == before

    asyncio.run(main())


def test_cancelling_the_run_cancels_every_call_and_closes_every_caller():
    async def main():
        started, caller = [], Scripted(by_completion())

        async def hang(rollout, _context):
            started.append(rollout.completion)
            await asyncio.Event().wait()

        before = asyncio.all_tasks()
        parts = [Double(hang), Double(one, name="sync", how=How.WORKER)]
        task = asyncio.create_task(judge(scheduler_of(*parts, callers={"sync": caller}), groups_of(3)))
        await settled(lambda: len(started) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert caller.closed == 1
        assert asyncio.all_tasks() == before

    asyncio.run(main())


def test_every_caller_is_closed_also_where_one_cannot_be():
    class Unclosable(Scripted):
        async def close(self):
            raise OSError("no")

    caller = Scripted(by_completion())
    parts = [Double(one, name=name, how=How.WORKER) for name in ("bad", "good")]
    with pytest.raises(OSError, match="no"):
        judged(groups_of(1), *parts, callers={"bad": Unclosable(by_completion()), "good": caller})
    assert caller.closed == 1


def test_an_input_that_fails_stops_the_run_and_what_was_under_way():
    def chunks():
        yield groups_of(1)
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        judged(None, Double(one), chunks=chunks())


def test_an_error_in_our_own_machinery_reaches_the_caller_and_does_not_hang():
    class Broken(Scripted):
        async def call(self, rollouts, *, fresh=False):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        judged(groups_of(2), Double(one, how=How.WORKER), callers={"double": Broken(None)})


def test_a_call_that_somebody_cancels_from_outside_stops_the_run_instead_of_losing_a_row():
    class Cancelled(Scripted):
        async def call(self, rollouts, *, fresh=False):
            raise asyncio.CancelledError

    with pytest.raises(RunStoppedError, match="cancelled from outside"):
        judged(groups_of(2), Double(one, how=How.WORKER), callers={"double": Cancelled(None)})
