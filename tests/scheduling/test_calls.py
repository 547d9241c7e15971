"""One call: when its clocks start, how it is cut, what it may return."""

import asyncio
from decimal import Decimal
from fractions import Fraction

import pytest
from doubles import Double, groups_of, judge, judged, scheduler_of, settled

from steelyard.clock import Clocks
from steelyard.outcome import Context, End, How, Scored, Takes, is_resident
from steelyard.scheduling import AsyncCaller, InlineCaller
from steelyard.scheduling.calls import ask_canary
from steelyard.testing import FakeClock


def run(main, *arguments):
    async def limited():
        async with asyncio.timeout(20):
            return await main(*arguments)

    return asyncio.run(limited())


def test_the_deadline_starts_when_the_attempt_starts_and_not_while_it_is_queued():
    async def main():
        clock, started, deadlines = FakeClock(), [], []

        async def hang(rollout, context):
            started.append(rollout.completion)
            deadlines.append(context.deadline_s)
            await asyncio.Event().wait()

        reward = Double(hang, canary=True)
        scheduler = scheduler_of(reward, clock=clock, places=1, deadline_s=10.0)
        task = asyncio.create_task(judge(scheduler, groups_of(2)))
        await settled(lambda: started == ["a0"])
        clock.tick(11.9)
        await asyncio.sleep(0)
        assert started == ["a0"]
        for attempts in range(2, 5):  # a0, a1, and each once more
            clock.tick(12.0)
            await settled(lambda n=attempts: len(started) == n)
            clock.tick(11.9)  # not yet
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(started) == attempts
        clock.tick(0.2)
        outcome = await task
        assert deadlines == [10.0] * 4
        assert set(outcome.codes().values()) == {"wall_reproduced"}
        assert all(attempt.clocks.service_s <= 23.9 for attempt in outcome.attempts)
        return outcome

    outcome = run(main)
    queued = {attempt.id: attempt.clocks.queued_s for attempt in outcome.attempts}
    assert min(queued.values()) == 0.0
    assert max(queued.values()) > 11.9


def test_the_backstop_is_at_the_deadline_plus_two_seconds_and_the_cut_attempt_is_censored():
    async def main():
        clock, started = FakeClock(), asyncio.Event()

        async def hang(rollout, _context):
            if rollout.completion == "a0" and not started.is_set():
                started.set()
                await asyncio.Event().wait()
            return 1.0

        task = asyncio.create_task(
            judge(scheduler_of(Double(hang), clock=clock, deadline_s=10.0), groups_of(1))
        )
        await started.wait()
        await asyncio.sleep(0)
        clock.tick(11.99)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        clock.tick(0.01)
        return await task

    cut, again = run(main).attempts
    assert (cut.end, cut.limit, cut.clocks.service_s, cut.clocks.censored) == (End.CUT, "wall", 12.0, True)
    assert (again.end, again.clocks.service_s, again.clocks.censored) == (End.FINISHED, 0.0, False)


def test_queued_and_service_are_two_clocks():
    async def main():
        clock, release = FakeClock(), [asyncio.Event(), asyncio.Event()]
        started = []

        async def work(rollout, _context):
            started.append(rollout.completion)
            await release[rollout.key[1]].wait()
            return 1.0

        task = asyncio.create_task(judge(scheduler_of(Double(work), clock=clock, places=1), groups_of(2)))
        await settled(lambda: started == ["a0"])
        clock.tick(3.0)
        release[0].set()
        await settled(lambda: len(started) == 2)
        clock.tick(0.5)
        release[1].set()
        return (await task).attempts

    first, second = run(main)
    assert (first.clocks.queued_s, first.clocks.service_s) == (0.0, 3.0)
    assert (second.clocks.queued_s, second.clocks.service_s) == (3.0, 0.5)


def test_the_wait_for_a_boundarys_slot_is_queueing_and_no_service():
    clock = FakeClock()

    async def ask(_rollout, context):
        clock.tick(3.0)
        context.report(Clocks(queued_s=2.0))
        return 1.0

    (attempt,) = judged(groups_of(1), Double(ask), clock=clock).attempts
    assert (attempt.clocks.queued_s, attempt.clocks.service_s) == (2.0, 1.0)


def test_a_boundarys_clocks_reach_the_attempt_also_when_the_rollout_was_scored():
    async def ask(_rollout, context):
        context.report(Clocks(spawn_s=0.1, wall_s=2.0, cpu_s=1.5, queued_s=99.0, censored=True))
        return 1.0

    (attempt,) = judged(groups_of(1), Double(ask)).attempts
    assert attempt.end is End.FINISHED
    assert (attempt.clocks.spawn_s, attempt.clocks.wall_s, attempt.clocks.cpu_s) == (0.1, 2.0, 1.5)
    assert (attempt.clocks.queued_s, attempt.clocks.service_s) == (0.0, 0.0)
    assert attempt.clocks.censored


def test_what_nobody_measured_is_none_and_not_zero():
    async def ask(_rollout, _context):
        return 1.0

    (attempt,) = judged(groups_of(1), Double(ask)).attempts
    clocks = attempt.clocks
    assert [clocks.spawn_s, clocks.wall_s, clocks.reap_s, clocks.cpu_s, clocks.run_delay_s] == [None] * 5


def test_each_call_has_a_context_of_its_own():
    async def main():
        both = asyncio.Event()
        contexts = []

        async def ask(rollout, context):
            contexts.append(context)
            context.report(Clocks(cpu_s=float(rollout.key[1])))
            if len(contexts) == 2:
                both.set()
            await both.wait()
            return 1.0

        return (await judge(scheduler_of(Double(ask)), groups_of(2))).attempts

    assert {attempt.first: attempt.clocks.cpu_s for attempt in run(main)} == {0: 0.0, 1: 1.0}


class Like:
    """A number of somebody else's library."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value


NUMBERS = [
    True,
    False,
    1,
    Fraction(1, 4),
    Decimal("0.5"),
    Like(0.75),
    Scored(0.5, "wrong", "because"),
    Scored(1),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: repr(number).partition(" at 0x")[0])
def test_numbers_of_every_kind_are_taken(number):
    async def ask(_rollout, _context):
        return number

    (verdict,) = judged(groups_of(1), Double(ask)).verdicts().values()
    assert verdict.value == float(getattr(number, "value", number))
    assert type(verdict.value) is float
    assert verdict.code == getattr(number, "code", None)


def wrong_batches():
    yield "ab"
    yield {"a": 1.0, "b": 2.0}
    yield {1.0, 2.0}
    yield [1.0]
    yield [1.0, 2.0, 3.0]
    yield 1.0
    yield None
    yield iter(lambda: 1.0, None)  # without end


@pytest.mark.parametrize("said", list(wrong_batches()), ids=lambda said: type(said).__name__)
def test_a_batch_that_does_not_answer_each_rollout_in_order_is_a_failed_call(said):
    async def ask(_given, _context):
        return said

    async def main():
        caller = AsyncCaller(Double(ask, takes=Takes.BATCH), FakeClock(), asyncio.Semaphore(1), 10.0)
        (called,) = await caller.call(groups_of(2)[0].rollouts)
        return called

    called = run(main)
    assert [failure.end for failure in called.said] == [End.RAISED] * 2
    assert called.said[0].cause.startswith("returned ")
    assert len(called.said[0].cause) < 200


def test_a_generator_of_as_many_judgements_is_taken():
    caller = InlineCaller(
        Double(lambda given, _c: (1.0 for _ in given), how=How.INLINE, takes=Takes.BATCH), FakeClock()
    )
    (called,) = caller.now(groups_of(3)[0].rollouts)
    assert called.said == [Scored(1.0)] * 3


def test_a_reward_that_is_not_awaitable_after_all_is_a_failed_call():
    async def main():
        caller = AsyncCaller(Double(lambda _rollout, _context: 1.0), FakeClock(), asyncio.Semaphore(1), 10.0)
        (called,) = await caller.call(groups_of(1)[0].rollouts)
        return called.said[0]

    assert "await" in run(main).cause


class Keeping(Double):
    """A reward that holds its calls to limits of its own."""

    keeps_time = True

    async def attest(self):
        pass

    async def close(self):
        self.closed = True


@pytest.mark.parametrize(("kind", "answered"), [(Double, False), (Keeping, True)])
def test_a_canary_is_cut_in_time_unless_its_reward_keeps_time_itself(kind, answered):
    async def main():
        clock, turn = FakeClock(), asyncio.Event()

        async def canary():
            await turn.wait()
            return True

        asked = asyncio.create_task(ask_canary(kind(None, canary=canary), clock, 60.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.tick(60.0)
        for _ in range(10):
            await asyncio.sleep(0)
        turn.set()
        return await asked

    assert run(main) is answered


def test_what_a_resident_keeps_is_ended_with_its_caller_and_others_have_nothing_to_end():
    async def main(reward):
        await AsyncCaller(reward, FakeClock(), asyncio.Semaphore(1), 1.0).close()
        return getattr(reward, "closed", None)

    assert run(main, Keeping(None))
    assert run(main, Double(None)) is None
    assert is_resident(Keeping(None))
    assert not is_resident(Double(None))


def test_the_default_context_takes_clocks_and_forgets_them():
    assert Context().report(Clocks(cpu_s=1.0)) is None
