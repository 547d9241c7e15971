"""Turns and slots: who runs when, and what a slot that does not come up says."""

import asyncio
import os
import sys

import pytest

from boundaries import RIGHT, in_a_loop, opened
from steelyard.clock import SystemClock
from steelyard.errors import SandboxError
from steelyard.execution import Ended, Limits
from steelyard.sandbox import forkserver
from steelyard.sandbox.boundary import Program
from steelyard.sandbox.pool import Mould, Turns
from steelyard.sandbox.slot import Slot, memory_file

PROGRAM = Program("program", b"print('here')")


async def steps(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


class TestTurns:
    def running(self, turns, *names, **how):
        """Start takers; return what they have got so far, in order, and their tasks."""
        got = []

        async def take(name):
            await turns.take(**how)
            got.append(name)

        return got, [asyncio.ensure_future(take(name)) for name in names]

    @in_a_loop
    async def test_first_come_first_served(self):
        turns = Turns(2, 8)
        got, tasks = self.running(turns, *"abcde")
        await steps()
        assert got == ["a", "b"]
        for expected in ("abc", "abcd", "abcde"):
            turns.give()
            await steps()
            assert got == list(expected)
        await asyncio.gather(*tasks)

    @in_a_loop
    async def test_nobody_overtakes_who_waits(self):
        turns = Turns(1, 8)
        await turns.take()
        got, tasks = self.running(turns, "early")
        await steps()
        turns.give()  # the turn is now early's, though it has not run yet
        late, more = self.running(turns, "late")
        await steps()
        assert (got, late) == (["early"], [])
        turns.give()
        await asyncio.gather(*tasks, *more)

    @in_a_loop
    async def test_slow_ones_let_others_run_up_to_the_most(self):
        turns = Turns(2, 4)
        got, tasks = self.running(turns, *"abcdef")
        await steps()
        turns.slow(1)
        await steps()
        assert got == ["a", "b", "c"]
        turns.slow(50)
        await steps()
        assert got == ["a", "b", "c", "d"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @in_a_loop
    async def test_when_the_slow_are_gone_it_is_as_before(self):
        turns = Turns(1, 4)
        got, tasks = self.running(turns, *"abc")
        turns.slow(2)
        await steps()
        assert got == ["a", "b", "c"]
        turns.slow(0)
        turns.give()
        later, more = self.running(turns, "d")
        await steps()
        assert later == []  # two still run where one may
        turns.give()
        turns.give()
        await asyncio.gather(*tasks, *more)
        assert later == ["d"]

    @in_a_loop
    async def test_who_gives_up_waiting_takes_no_turn_along(self):
        turns = Turns(1, 1)
        await turns.take()
        got, tasks = self.running(turns, *"abc")
        await steps()
        tasks[0].cancel()
        await steps()
        turns.give()
        await steps()
        assert got == ["b"]
        turns.give()
        await asyncio.gather(*tasks[1:])

    @in_a_loop
    async def test_who_is_cancelled_with_the_turn_already_given_passes_it_on(self):
        turns = Turns(1, 1)
        await turns.take()
        got, tasks = self.running(turns, *"ab")
        await steps()
        turns.give()
        tasks[0].cancel()  # before it has learnt that its turn has come
        await steps()
        assert got == ["b"]
        await asyncio.gather(*tasks, return_exceptions=True)

    @in_a_loop
    async def test_the_urgent_do_not_wait_and_count(self):
        turns = Turns(1, 1)
        await turns.take()
        await turns.take(at_once=True)
        got, tasks = self.running(turns, "a")
        turns.give()
        await steps()
        assert got == []
        turns.give()
        await asyncio.gather(*tasks)
        assert got == ["a"]


class TestASlotThatDoesNotComeUp:
    @in_a_loop
    async def test_says_what_its_command_said_last(self):
        gone = []
        command = [sys.executable, "-c", "import sys; sys.exit('no such namespace')"]
        slot = Slot(lambda _control: command, SystemClock(), gone.append)
        with pytest.raises(SandboxError, match="no such namespace"):
            await slot.ready()
        assert gone == [slot]
        with pytest.raises(SandboxError):
            await slot.facts()

    @in_a_loop
    async def test_is_an_error_where_there_is_no_such_command(self):
        with pytest.raises(SandboxError, match="cannot be started"):
            Slot(lambda _control: ["/no/such/bwrap"], SystemClock(), print)


def test_a_file_in_memory_holds_what_it_was_given_and_is_read_from_its_start():
    content = os.urandom(100_000)
    descriptor = memory_file(content)
    try:
        assert os.read(descriptor, 200_000) == content
    finally:
        os.close(descriptor)


@pytest.mark.needs("bubblewrap")
class TestSlots:
    @in_a_loop
    async def test_one_serves_again_and_again_and_leaves_after_its_time(self, monkeypatch):
        monkeypatch.setattr(forkserver, "SERVES", 4)
        async with opened() as boundary:
            made = set()
            for _ in range(9):
                execution = await boundary.run(PROGRAM, Limits())
                assert (execution.ended, execution.code, execution.stdout) == (Ended.EXIT, 0, b"here\n")
                made |= set(boundary._open.slots.pool._all)
            # its probe is the first of the four that each serves
            assert 3 <= len(made) <= 4
            assert len(boundary._open.slots.pool._all) <= 1

    @in_a_loop
    async def test_there_are_never_more_than_were_allowed(self):
        async with opened(slots=2) as boundary:
            sleeping = Program("program", b"import time; time.sleep(0.3)")
            ran = [asyncio.ensure_future(boundary.run(sleeping, Limits())) for _ in range(6)]
            most = 0
            while not all(task.done() for task in ran):
                await asyncio.sleep(0.02)
                most = max(most, len(boundary._open.slots.pool._all))
            assert most == 2
            assert {task.result().ended for task in ran} == {Ended.EXIT}

    @in_a_loop
    async def test_other_limits_need_other_slots_and_take_the_place_of_idle_ones(self):
        async with opened(slots=1) as boundary:
            for files in (64, 128, 256):
                limits = Limits(files=files)
                assert (await boundary.run(PROGRAM, limits)).code == 0
                assert set(boundary._open.slots.pool._all.values()) == {Mould.of(limits)}

    @in_a_loop
    async def test_a_fresh_one_has_never_served(self):
        async with opened() as boundary:
            await boundary.run(PROGRAM, Limits())
            before = set(boundary._open.slots.pool._all)
            await boundary.run(PROGRAM, Limits(), fresh=True)
            (new,) = set(boundary._open.slots.pool._all) - before
            assert new.served == 2  # its probe, and this

    @in_a_loop
    async def test_the_quick_are_not_held_up_by_those_that_hang(self):
        async with opened(slots=8) as boundary:
            hanging = [
                asyncio.ensure_future(
                    boundary.run(Program("program", b"import time; time.sleep(60)"), Limits(idle_s=20))
                )
                for _ in range(6)
            ]
            await asyncio.sleep(0.5)
            assert (await asyncio.wait_for(boundary.run(PROGRAM, Limits()), 20)).stdout == b"here\n"
            assert not any(task.done() for task in hanging)
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)

    @in_a_loop
    async def test_what_its_slot_prints_is_not_what_a_table_sends(self):
        async with opened() as boundary:
            heard = []
            program = Program("table", RIGHT.encode(), (b'[["f", [3], {"d": []}, false]]',))
            execution = await boundary.run(
                program, Limits(), listen=lambda frame: heard.append(frame) or False
            )
            assert execution.ended is Ended.EXIT
            assert heard == [b'["loaded"]', b'["r",0,[["v",9]]]', b'["done"]']
