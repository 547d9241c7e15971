"""The fake clock: time passes when a test says so."""

import asyncio

from steelyard.clock import SystemClock
from steelyard.testing import FakeClock


def test_a_fake_clock_stands_still_until_it_is_ticked():
    clock = FakeClock(unix=1000.0)
    assert (clock.now(), clock.unix()) == (0.0, 1000.0)
    clock.tick(2.5)
    assert (clock.now(), clock.unix()) == (2.5, 1002.5)


def test_calls_are_made_at_their_time_the_earliest_first_and_equal_ones_in_order():
    clock, made = FakeClock(), []
    for name, delay_s in (("late", 3.0), ("first", 1.0), ("second", 1.0)):
        clock.call_later(delay_s, lambda name=name: made.append((name, clock.now())))
    clock.tick(0.9)
    assert made == []
    clock.tick(5.0)
    assert made == [("first", 1.0), ("second", 1.0), ("late", 3.0)]
    assert clock.now() == 5.9


def test_a_call_made_by_a_call_is_made_in_the_same_tick_if_its_time_has_come():
    clock, made = FakeClock(), []
    clock.call_later(1.0, lambda: clock.call_later(1.0, lambda: made.append(clock.now())))
    clock.tick(2.0)
    assert made == [2.0]


def test_a_call_that_was_called_off_is_not_made():
    clock, made = FakeClock(), []
    timer = clock.call_later(1.0, lambda: made.append(1))
    timer.cancel()
    timer.cancel()
    clock.tick(2.0)
    assert made == []


def test_the_machines_clock_calls_in_the_event_loop_and_can_be_called_off():
    async def main():
        clock, loop = SystemClock(), asyncio.get_running_loop()
        made, never = loop.create_future(), loop.create_future()
        clock.call_later(0.0, lambda: never.set_result(None)).cancel()
        clock.call_later(0.0, lambda: made.set_result(clock.now()))
        before = clock.now()
        assert await made >= before
        assert not never.done()

    asyncio.run(main())
