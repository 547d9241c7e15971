"""What a limit is used up by: the watch's rules, with counters and a clock of our own."""

import os

import pytest

from steelyard.execution import Limits
from steelyard.sandbox.watch import (
    DROWSY_TIMES,
    KILLED_S,
    SETUP_S,
    SLOW_S,
    STARVED_TIMES,
    TICK_S,
    Watchdog,
    Watched,
)
from steelyard.testing import FakeClock

LIMITS = Limits(cpu_s=2.0, idle_s=1.0, wall_s=30.0, output_bytes=1_000)


class Using:
    """A guest's use, as a test says it is."""

    def __init__(self):
        self.used_s, self.is_active, self.is_starved, self.is_runnable = 0.0, False, False, False

    def cpu_s(self):
        return self.used_s

    def active(self):
        return self.is_active

    def runnable(self):
        return self.is_runnable

    def near_the_wall(self):
        self.looked_near_the_wall = True

    def starved(self):
        return self.is_starved


class Guest:
    """As much of a guest as is watched."""

    def __init__(self, clock, started=0.0):
        self.clock, self.slot = clock, self
        self.asked, self.started, self.killed = clock.now(), started, None
        self.outputs, self.cuts, self.failed = [], [], None
        self.closed = self.heard = 0

    def kill(self, limit=None):
        self.cuts.append(limit)
        self.killed = self.clock.now()

    def close(self):
        self.closed += 1

    def listen(self):
        self.heard += 1


def watch(limits=LIMITS, *, waiting=lambda: False, started=0.0):
    clock, using = FakeClock(), Using()
    return clock, using, Watched(Guest(clock, started), limits, using, waiting)


def first_limit(watched, using, clock, *, until_s, each=lambda _now: None):
    """Look every tick until a limit is used up; say which and when."""
    while clock.now() < until_s:
        each(clock.now())
        limit = watched.look(clock.now())
        if limit is not None:
            return limit, round(clock.now(), 1)
        clock.tick(TICK_S)
    return None


def test_cpu_seconds_are_the_verdict_however_little_time_went_by():
    _clock, using, watched = watch()
    using.used_s = 1.99
    assert watched.look(0.1) is None
    using.used_s = 2.0
    assert watched.look(0.12) == "cpu"


def test_whoever_neither_runs_nor_moves_a_byte_for_the_idle_time_is_idle():
    clock, using, watched = watch()
    assert first_limit(watched, using, clock, until_s=5.0) == ("idle", 1.0)


def test_one_sign_of_life_begins_the_idle_time_anew():
    clock, using, watched = watch()

    def live(now):
        using.is_active = now < 0.8

    assert first_limit(watched, using, clock, until_s=5.0, each=live) == ("idle", 1.8)


def test_progress_is_a_sign_of_life_though_no_task_is_runnable_at_the_look():
    clock, using, watched = watch()

    def compute(now):
        using.used_s = now * 0.05  # a twentieth of a core

    assert first_limit(watched, using, clock, until_s=20.0, each=compute) is None


def test_a_loop_of_short_sleeps_is_idle_after_several_idle_times():
    clock, using, watched = watch()
    using.is_active = True  # it is awake at every look

    def nap(now):
        using.used_s = now * 0.005

    assert first_limit(watched, using, clock, until_s=20.0, each=nap) == ("idle", float(DROWSY_TIMES))


def test_who_computes_in_each_window_is_not_drowsy():
    clock, using, watched = watch()
    using.is_active = True

    def compute(now):
        using.used_s = now * 0.05

    assert first_limit(watched, using, clock, until_s=30.0, each=compute) is None


def test_who_could_run_at_every_look_and_gets_no_cpu_is_not_drowsy():
    clock, using, watched = watch()
    using.is_active, using.is_runnable = True, True  # a neighbour's crowd has all the cores
    assert first_limit(watched, using, clock, until_s=29.0) is None


def test_while_nobody_looked_nobody_slept():
    clock, using, watched = watch()
    using.is_active = True
    assert watched.look(0.0) is None
    using.is_active = False
    clock.tick(60.0)  # this process, or the machine, stood still
    limits = Limits(idle_s=1.0, wall_s=1_000.0)
    watched.limits = limits
    assert watched.look(clock.now()) is None
    assert first_limit(watched, using, clock, until_s=100.0) == ("idle", 61.0)


def test_whoever_waits_for_its_judge_is_not_idle_and_is_when_the_judge_waits_for_it():
    judging = [True]
    clock, using, watched = watch(waiting=lambda: judging[0])
    assert first_limit(watched, using, clock, until_s=8.0) is None
    judging[0] = False
    assert first_limit(watched, using, clock, until_s=20.0) == ("idle", 9.0)


def test_the_wall_stands_still_while_its_judge_computes():
    judging = [True]
    clock, using, watched = watch(Limits(cpu_s=1.0, wall_s=1.0), waiting=lambda: judging[0])
    using.is_active = True
    assert first_limit(watched, using, clock, until_s=4.0) is None
    judging[0] = False
    assert first_limit(watched, using, clock, until_s=20.0) == ("wall", 5.0)


def test_the_wall_stands_still_before_the_first_look_too():
    judging = [True]
    clock, using, watched = watch(Limits(cpu_s=1.0, wall_s=1.0), waiting=lambda: judging[0])
    using.is_active = True
    clock.tick(3.0)
    assert watched.look(clock.now()) is None
    judging[0] = False
    clock.tick(0.9)
    assert watched.look(clock.now()) is None


def test_the_wall_is_reached_though_it_works_and_a_starved_guest_gets_more_of_it():
    _clock, using, watched = watch()
    using.is_active, using.is_runnable = True, True
    assert watched.look(29.9) is None
    assert watched.look(30.0) == "wall"
    using.is_starved = True
    assert watched.look(30.1) is None
    assert watched.look(30.0 * STARVED_TIMES - 0.1) is None
    assert watched.look(30.0 * STARVED_TIMES) == "wall"


def test_output_is_what_all_its_streams_hold_together():
    _clock, using, watched = watch()
    using.is_active = True
    watched.guest.outputs = [os.memfd_create("out"), os.memfd_create("err")]
    try:
        for output in watched.guest.outputs:
            os.ftruncate(output, 500)
        assert watched.look(0.1) is None
        os.ftruncate(watched.guest.outputs[1], 501)
        assert watched.look(0.2) == "output"
    finally:
        for output in watched.guest.outputs:
            os.close(output)


def test_a_guest_that_has_not_begun_is_charged_nothing_and_given_up_in_the_end():
    _clock, using, watched = watch(started=None)
    using.used_s = 100.0
    assert watched.look(SETUP_S) is None
    assert watched.look(SETUP_S + 0.1) == "setup"


class TestTheWatchdog:
    @pytest.fixture
    def dog(self):
        clock, told = FakeClock(), []
        return clock, told, Watchdog(clock, told.append)

    def watched(self, clock, using=None, limits=LIMITS):
        return Watched(Guest(clock, clock.now()), limits, using or Using())

    def test_it_looks_only_while_there_is_somebody_to_look_at(self, dog):
        clock, told, watchdog = dog
        one = self.watched(clock)
        watchdog.add(one)
        clock.tick(TICK_S * 3.5)
        assert len(told) == 3
        watchdog.remove(one.guest)
        clock.tick(1.0)
        assert len(told) == 4  # one last look finds nobody, and is the last

    def test_it_counts_as_slow_whom_it_has_watched_for_a_while(self, dog):
        clock, told, watchdog = dog
        for _ in range(3):
            watchdog.add(self.watched(clock))
        clock.tick(SLOW_S)
        assert told[-1] == 0
        clock.tick(SLOW_S)
        assert told[-1] == 3

    def test_it_ends_a_guest_at_its_limit_and_no_other(self, dog):
        clock, _told, watchdog = dog
        spinning, quiet = Using(), Using()
        spinning.used_s, quiet.is_active = 9.0, True
        ended, spared = self.watched(clock, spinning), self.watched(clock, quiet)
        watchdog.add(ended)
        watchdog.add(spared)
        clock.tick(SLOW_S * 2)
        assert ended.guest.cuts == ["cpu"]
        assert spared.guest.cuts == []

    def test_one_that_outlives_its_end_takes_its_slot_along(self, dog):
        clock, _told, watchdog = dog
        one = self.watched(clock)
        watchdog.add(one)
        one.guest.kill("cpu")
        clock.tick(KILLED_S)
        assert one.guest.closed == 0
        clock.tick(TICK_S * 2)
        assert one.guest.closed > 0

    def test_one_that_was_never_confined_is_said_to_have_failed(self, dog):
        clock, _told, watchdog = dog
        one = self.watched(clock)
        one.guest.started = None
        watchdog.add(one)
        clock.tick(SETUP_S + 1.0)
        assert one.guest.cuts == ["setup"]
        assert "not confined" in one.guest.failed

    @pytest.mark.parametrize("error", [OSError("no such cgroup"), ValueError("no number"), KeyError("user")])
    @pytest.mark.parametrize("closes", [True, False])
    def test_one_that_cannot_be_looked_at_loses_its_slot_and_the_others_are_watched_on(
        self, dog, error, closes
    ):
        clock, _, watchdog = dog

        class Gone(Using):
            def cpu_s(self):
                raise error

        spinning = Using()
        lost, ended = self.watched(clock, Gone()), self.watched(clock, spinning)
        if not closes:

            def close():
                lost.guest.closed += 1
                raise error

            lost.guest.close = close
        watchdog.add(lost)
        watchdog.add(ended)
        clock.tick(SLOW_S * 2)
        assert lost.guest.closed
        spinning.used_s = 9.0
        clock.tick(SLOW_S)
        assert ended.guest.cuts == ["cpu"]

    def test_an_error_of_who_is_told_stops_it_not(self, dog):
        clock, _, _ = dog
        told = []

        def slow(count):
            told.append(count)
            raise ValueError(count)

        watchdog = Watchdog(clock, slow)
        watchdog.add(self.watched(clock))
        for _ in range(3):
            with pytest.raises(ValueError, match="0"):
                clock.tick(TICK_S * 1.01)
        assert len(told) == 3

    def test_a_closed_one_looks_at_nobody(self, dog):
        clock, told, watchdog = dog
        watchdog.add(self.watched(clock))
        watchdog.close()
        clock.tick(5.0)
        assert told == []
