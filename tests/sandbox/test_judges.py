"""Judges on this side: kept, handed on, replaced; one candidate at a time."""

import asyncio
import os
import signal
import socket

import pytest

from boundaries import JUDGED, RIGHT, SLEEPING, SMALL, WRONG, descriptors, in_a_loop, opened, row, until
from steelyard.errors import RewardError, SandboxError, SuspectError
from steelyard.execution import Ended, Limits
from steelyard.outcome import Context, Scored
from steelyard.rewards.code import tests as unit_tests
from steelyard.sandbox import judges as module
from steelyard.sandbox.boundary import Checks, Opinion
from steelyard.sandbox.judges import Judge, Judges, opinion_of
from steelyard.testing import FakeClock

PASSED = Scored(1.0, integrity="isolated")
SUITE = Checks("suite", JUDGED.encode())


class TestAnOpinion:
    def test_is_read_as_it_was_said(self):
        said = {"planned": 3, "passed": 1, "code": "wrong", "reason": "f(1)", "nonce": "n", "failed": []}
        assert opinion_of(said) == Opinion(3, 1, "wrong", "f(1)")

    @pytest.mark.parametrize(
        "hostile",
        [
            {},
            {"planned": 3},
            {"planned": True, "passed": True},
            {"planned": 1, "passed": 2},
            {"planned": 1, "passed": -1},
            {"planned": "1", "passed": "1"},
            {"planned": 1.0, "passed": 1.0},
            {"planned": 1, "passed": 1, "code": 7},
        ],
    )
    def test_that_is_none_is_an_error(self, hostile):
        with pytest.raises(SandboxError, match="a judge answered"):
            opinion_of(hostile)


class FakeJudge:
    """As much of a judge as is kept."""

    made = 0

    def __init__(self, slot, digest, checks):
        self.slot, self.digest, self.ended, self.since = slot, digest, 0, None
        self.gone = asyncio.get_running_loop().create_future()
        FakeJudge.made += 1

    @property
    def alive(self):
        return not self.gone.done()

    def die(self):
        if self.alive:
            self.gone.set_result(None)

    def end(self):
        self.ended += 1
        self.die()


class FakeSlot:
    gone, served, closed = False, 0, 0

    def close(self):
        self.closed += 1


async def steps():
    for _ in range(6):
        await asyncio.sleep(0)


class TestWhoIsServedWhen:
    @pytest.fixture
    def kept(self, monkeypatch):
        monkeypatch.setattr(module, "Judge", FakeJudge)
        FakeJudge.made = 0
        clock = FakeClock()

        async def slot():
            await asyncio.sleep(0)
            return FakeSlot()

        return clock, Judges(slot, clock, most=3)

    @in_a_loop
    async def test_a_judge_is_kept_for_the_next_candidate_of_its_suite_and_no_other(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        judges.give(judge)
        assert await judges.take(SUITE) is judge
        assert await judges.take(Checks("another", b"")) is not judge

    @in_a_loop
    async def test_a_second_candidate_waits_for_the_judge_of_the_first(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        second = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        assert not second.done()
        judges.give(judge)
        assert await second is judge
        assert FakeJudge.made == 1

    @in_a_loop
    async def test_but_not_for_long_where_that_one_does_not_get_on(self, kept):
        clock, judges = kept
        judge = await judges.take(SUITE)
        second = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        clock.tick(module.PATIENCE_S * 5)
        await steps()
        assert not second.done()  # the first has not begun: it waits for its turn
        judge.since = clock.now()
        clock.tick(module.PATIENCE_S * 2.5)
        assert await second is not judge
        judges.give(judge)  # nobody waits any more: it is kept
        assert await judges.take(SUITE) is judge

    @in_a_loop
    async def test_who_is_handed_a_judge_at_the_end_of_its_patience_keeps_it(self, kept):
        clock, judges = kept
        judge = await judges.take(SUITE)
        judge.since = clock.now() - 10
        second = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        judges.give(judge)
        judge.since = clock.now() - 10
        clock.tick(module.PATIENCE_S)  # before it has heard
        assert await second is judge

    @in_a_loop
    async def test_nothing_is_remembered_of_suites_that_nobody_waits_for(self, kept):
        _clock, judges = kept
        for number in range(20):
            checks = Checks(str(number), b"")
            judge = await judges.take(checks)
            waiting = [asyncio.ensure_future(judges.take(checks)) for _ in range(3)]
            await steps()
            waiting[0].cancel()
            for mine in waiting[1:]:
                judges.give(judge)
                assert await mine is judge
            judges.give(judge)
            await asyncio.gather(*waiting, return_exceptions=True)
        assert (judges._waiting, judges._busy) == ({}, {})

    @in_a_loop
    async def test_a_second_attempt_has_a_judge_that_never_served(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        judges.give(judge)
        assert await judges.take(SUITE, fresh=True) is not judge

    @in_a_loop
    async def test_one_that_cannot_be_trusted_serves_nobody_else(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        second = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        judges.drop(judge)
        new = await second
        assert judge.ended
        assert new is not judge
        judges.give(new)
        assert await judges.take(SUITE) is new

    @in_a_loop
    async def test_one_that_died_while_it_was_kept_is_not_taken(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        judges.give(judge)
        judge.die()
        assert await judges.take(SUITE) is not judge

    @in_a_loop
    @pytest.mark.parametrize("back", [Judges.give, Judges.drop])
    async def test_a_dead_one_is_not_handed_to_who_waits_and_who_waits_need_not_wait_longer(self, kept, back):
        _, judges = kept
        judge = await judges.take(SUITE)
        waiting = [asyncio.ensure_future(judges.take(SUITE)) for _ in range(3)]
        await steps()
        judge.die()
        back(judges, judge)
        new = await waiting[0]
        assert new is not judge
        for mine in waiting[1:]:
            judges.give(new)
            assert await mine is new

    @in_a_loop
    async def test_where_another_cannot_be_started_the_next_who_waits_tries(self, kept, monkeypatch):
        _, judges = kept
        judge = await judges.take(SUITE)
        waiting = [asyncio.ensure_future(judges.take(SUITE)) for _ in range(3)]
        await steps()
        fails = [SandboxError("sandbox", "no descriptors")]

        def made(*given):
            if fails:
                raise fails.pop()
            return FakeJudge(*given)

        monkeypatch.setattr(module, "Judge", made)
        judges.drop(judge)
        with pytest.raises(SandboxError, match="no descriptors"):
            await waiting[0]
        new = await waiting[1]
        judges.give(new)
        assert await waiting[2] is new

    @in_a_loop
    async def test_two_of_one_suite_live_in_two_slots_and_of_two_suites_in_one(self, kept):
        clock, judges = kept
        first, another = await judges.take(SUITE), await judges.take(Checks("another", b""))
        assert first.slot is another.slot
        first.since = clock.now()
        second = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        clock.tick(module.PATIENCE_S * 2.5)
        assert (await second).slot is not first.slot

    @in_a_loop
    async def test_there_are_so_many_slots_and_who_finds_none_waits_for_a_judge(self, kept):
        clock, judges = kept
        taken = [await judges.take(SUITE)]
        for _ in range(2):
            taken[-1].since = clock.now()
            mine = asyncio.ensure_future(judges.take(SUITE))
            await steps()
            clock.tick(module.PATIENCE_S * 2.5)
            taken.append(await mine)
        assert len({judge.slot for judge in taken}) == 3
        taken[-1].since = clock.now()
        mine = asyncio.ensure_future(judges.take(SUITE))
        await steps()
        clock.tick(module.PATIENCE_S * 50)
        await steps()
        assert not mine.done()
        judges.give(taken[1])
        assert await mine is taken[1]

    @in_a_loop
    async def test_a_second_attempt_has_a_slot_that_never_served_and_the_oldest_goes(self, kept):
        _, judges = kept
        made = [await judges.take(Checks(str(number), b""), fresh=True) for number in range(4)]
        slots = [judge.slot for judge in made]
        assert len(set(slots)) == 4
        assert [slot.closed for slot in slots] == [0] * 4  # somebody's judge still serves in the oldest
        judges.give(made[0])
        await steps()
        assert made[0].ended
        assert [bool(slot.closed) for slot in slots] == [True, False, False, False]

    @in_a_loop
    async def test_where_a_judge_was_lost_no_other_begins(self, kept):
        _, judges = kept
        judge, neighbour = await judges.take(SUITE), await judges.take(Checks("another", b""))
        judge.die()
        judges.drop(judge)
        assert (await judges.take(SUITE)).slot is not judge.slot
        assert not judge.slot.closed
        judges.give(neighbour)
        await steps()
        assert judge.slot.closed

    @in_a_loop
    async def test_one_that_died_is_not_counted_among_the_kept(self, kept, monkeypatch):
        _, judges = kept
        monkeypatch.setattr(module, "KEPT", 2)
        made = [await judges.take(Checks(str(number), b"")) for number in range(3)]
        judges.give(made[1])
        judges.give(made[0])
        made[0].die()
        await steps()
        judges.give(made[2])
        assert [judge.ended for judge in made] == [0, 0, 0]

    @in_a_loop
    async def test_who_waits_when_all_is_closed_is_told_and_a_slot_in_the_making_is_ended(self, monkeypatch):
        monkeypatch.setattr(module, "Judge", FakeJudge)
        made, go = [], asyncio.Event()

        async def slot():
            await go.wait()
            made.append(FakeSlot())
            return made[-1]

        judges = Judges(slot, FakeClock())
        starting = [asyncio.ensure_future(judges.take(SUITE)) for _ in range(3)]
        await steps()
        judges.close()
        go.set()
        told = await asyncio.gather(*starting, return_exceptions=True)
        assert [type(one) for one in told] == [SandboxError] * 3
        assert [one.closed for one in made] == [1]

    @in_a_loop
    async def test_who_waits_for_a_judge_when_all_is_closed_is_told_at_once(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        waiting = [asyncio.ensure_future(judges.take(SUITE)) for _ in range(2)]
        await steps()
        judges.close()
        await steps()
        assert [type(one.exception()) for one in waiting] == [SandboxError] * 2
        assert judge.slot.closed

    @in_a_loop
    async def test_who_is_cancelled_with_the_judge_already_handed_passes_it_on(self, kept):
        _, judges = kept
        judge = await judges.take(SUITE)
        waiting = [asyncio.ensure_future(judges.take(SUITE)) for _ in range(2)]
        await steps()
        judges.give(judge)
        waiting[0].cancel()
        assert await waiting[1] is judge
        judges.give(judge)
        assert judges._busy == {}
        assert await judges.take(SUITE) is judge

    @in_a_loop
    async def test_a_slot_that_does_not_come_up_holds_up_nobody_later(self, monkeypatch):
        monkeypatch.setattr(module, "Judge", FakeJudge)
        fails = [True]

        async def slot():
            if fails:
                raise SandboxError("sandbox", "no slot")
            return FakeSlot()

        judges = Judges(slot, FakeClock())
        for _ in range(2):
            with pytest.raises(SandboxError):
                await judges.take(SUITE)
        assert judges._busy == {}
        fails.clear()
        assert await judges.take(SUITE)

    @in_a_loop
    async def test_only_so_many_are_kept_and_the_oldest_go(self, kept, monkeypatch):
        _, judges = kept
        monkeypatch.setattr(module, "KEPT", 2)
        made = [await judges.take(Checks(str(number), b"")) for number in range(4)]
        for judge in made:
            judges.give(judge)
        assert [judge.ended for judge in made] == [1, 1, 0, 0]


class Started:
    """A slot that starts one guest, and the guest."""

    def __init__(self):
        self.clock, self.slot, self.started = FakeClock(), self, 0.0
        self.channel, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.gone = asyncio.get_running_loop().create_future()
        self.status, self.failed, self.killed = None, None, 0

    def start(self, _given):
        return self

    def kill(self):
        self.killed += 1

    def close(self):
        self.channel.close()
        self.theirs.close()


class TestAWallOfItsOwn:
    @in_a_loop
    async def test_ends_a_judge_that_neither_answers_nor_waits_for_its_candidate(self):
        slot = Started()
        judge = Judge(slot, "digest", SUITE)
        with slot.theirs.dup() as candidate:
            answer = judge.ask(candidate)
        slot.clock.tick(module.WALL_S - 1.0)
        assert not answer.done()
        judge._page[0] = 1  # as it does while it waits for its candidate
        slot.clock.tick(module.WALL_S * 10)
        assert (answer.done(), slot.killed) == (False, 0)
        judge._page[0] = 0
        slot.clock.tick(2.0)
        assert slot.killed == 1
        with pytest.raises(ConnectionError, match="of its own"):
            await answer
        slot.gone.set_result(None)
        await steps()

    @in_a_loop
    async def test_is_counted_for_each_candidate_anew_and_not_between_them(self):
        slot = Started()
        judge = Judge(slot, "digest", SUITE)
        for _ in range(5):
            with slot.theirs.dup() as candidate:
                answer = judge.ask(candidate)
            slot.clock.tick(module.WALL_S * 0.9)
            slot.hear(b'{"nonce": "%s"}' % judge._nonce.encode())
            await answer
            await steps()
            slot.clock.tick(module.WALL_S * 3)
        assert slot.killed == 0
        slot.gone.set_result(None)
        await steps()


@pytest.mark.needs("bubblewrap")
class TestForReal:
    @in_a_loop
    async def test_one_judge_serves_a_group_one_member_after_another(self):
        async with opened(slots=4) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            assert await reward(row(RIGHT, JUDGED), Context()) == PASSED
            (judge,) = boundary._open.judges._idle
            for code, value in ((WRONG, 0.0), (RIGHT, 1.0), ("import os\nos._exit(0)", 0.0), (RIGHT, 1.0)):
                assert (await reward(row(code, JUDGED), Context())).value == value
            assert judge.alive
            assert judge.served == 5

    @in_a_loop
    async def test_a_member_that_hangs_holds_up_no_other(self):
        async with opened(slots=4) as boundary:
            reward = unit_tests(boundary, limits=Limits(idle_s=30.0))
            await reward(row(RIGHT, JUDGED), Context())
            hanging = asyncio.ensure_future(reward(row(SLEEPING, JUDGED), Context()))
            ((busy,),) = await until(lambda: list(boundary._open.judges._busy.values()))
            await until(lambda: busy is not None and busy.since is not None and busy.waits_for_candidate)
            async with asyncio.timeout(20):
                assert await reward(row(RIGHT, JUDGED), Context()) == PASSED
            assert not hanging.done()
            (other,) = boundary._open.judges._idle
            assert other.slot is not busy.slot
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)

    @in_a_loop
    async def test_a_slow_suite_costs_a_right_program_nothing(self):
        tests = (
            "import time\nfrom candidate import f\n\ndef test_f():\n    y = f(2)\n    time.sleep(2.5)\n"
            "    assert y == 4\n    assert f(3) == 9\n"
        )
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=Limits(cpu_s=1.0, wall_s=1.0))
            assert await reward(row(RIGHT, tests), Context()) == PASSED

    @in_a_loop
    async def test_tests_that_fail_by_themselves_are_said_to_and_blame_nobody_else(self):
        tests = (
            "import random\nrandom.Random(1).no_such_thing()\nfrom candidate import f\n\nassert f(2) == 4\n"
        )
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            for code in (RIGHT, WRONG):
                with pytest.raises(RewardError, match="its tests fail by themselves"):
                    await reward(row(code, tests), Context())
            assert await reward(row(RIGHT, JUDGED), Context()) == PASSED

    @in_a_loop
    async def test_tests_that_end_their_judge_are_no_pass_and_the_next_suite_is_judged(self):
        tests = JUDGED + "\nimport os\n\ndef test_end():\n    os._exit(0)\n"
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            with pytest.raises(SuspectError, match="the judge was lost"):
                await reward(row(RIGHT, tests), Context())
            assert await reward(row(RIGHT, JUDGED), Context()) == PASSED

    @in_a_loop
    async def test_a_kept_judge_that_is_killed_is_missed_by_nobody(self):
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            assert await reward(row(RIGHT, JUDGED), Context()) == PASSED
            (judge,) = boundary._open.judges._idle
            os.kill(judge.slot.pid, signal.SIGKILL)
            await judge.gone
            assert await reward(row(RIGHT, JUDGED), Context()) == PASSED
            (slot,) = boundary._open.judges._slots
            assert slot is not judge.slot

    @in_a_loop
    async def test_slots_of_judges_are_replaced_too(self, monkeypatch):
        monkeypatch.setattr(module, "SERVES", 3)
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            slots = []
            for number in range(6):
                tests = JUDGED + f"\nassert f({number}) == {number * number}\n"
                assert await reward(row(RIGHT, tests), Context()) == PASSED
                (slot,) = boundary._open.judges._slots
                slots.append(slot)
            assert len(set(slots)) >= 2
            await until(lambda: {slot for slot in slots if not slot.gone} == {slots[-1]})
            assert boundary._open.judges._retiring == set()

    @in_a_loop
    async def test_no_judge_is_where_a_candidate_runs(self):
        async with opened(slots=2) as boundary:
            execution, opinion = await boundary.check(RIGHT.encode(), SUITE, SMALL)
            assert (execution.ended, opinion.code, opinion.lost) == (Ended.ENOUGH, None, None)
            assert opinion.passed == opinion.planned > 0
            (slot,) = boundary._open.judges._slots
            assert slot not in boundary._open.slots.pool._all

    @in_a_loop
    async def test_descriptors_do_not_grow_with_judges(self, monkeypatch):
        monkeypatch.setattr(module, "KEPT", 3)
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            held = []
            for number in range(16):
                await reward(row(RIGHT, JUDGED + f"\nassert f({number}) == {number**2}\n"), Context())
                held.append(descriptors())
            assert max(held[8:]) <= max(held[:8])
