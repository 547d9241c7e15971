import asyncio
import gc
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from recorded_run import read

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure import Steps, recorder
from steelyard.testing import FakeClock

SCRIPT = Path(__file__).with_name("recorded_run.py")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def spans():
    return []


@pytest.fixture
def steps(spans, clock):
    with Steps(spans.extend, lane="rank 0", clock=clock) as steps:
        yield steps


def run(path, how):
    return subprocess.run(
        [sys.executable, SCRIPT, path, how], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_step_is_written_when_it_ends_with_every_phase_and_call_in_it(steps, spans, clock):
    with steps.step() as number:
        assert number == 0
        with steps.phase("generation"):
            clock.tick(12)
        with steps.phase("reward"):
            clock.tick(1)
            with steps.call(group=3, member=1) as call:
                clock.tick(2)
                call.value(1)
            with steps.call(3, 2) as call:
                clock.tick(27)
                call.cut("timeout")
        assert not spans
        with steps.phase("training"):
            clock.tick(12)
    assert spans == [
        Span(0, "rank 0", "generation", 0, 12),
        Span(0, "rank 0", "call", 13, 15, 3, 1, value=1.0),
        Span(0, "rank 0", "call", 15, 42, 3, 2, cut_by="timeout"),
        Span(0, "rank 0", "reward", 12, 42),
        Span(0, "rank 0", "training", 42, 54),
        Span(0, "rank 0", "step", 0, 54),
    ]
    assert all(type(span) is Span for span in spans)


def test_steps_count_on_from_the_last_number(steps, spans):
    for number in (None, 17, None):
        with steps.step(number):
            pass
    assert [span.step for span in spans] == [0, 17, 18]


def test_a_phase_between_two_steps_belongs_to_the_one_before(steps, spans):
    with steps.step(4):
        pass
    with steps.phase("checkpoint"):
        pass
    steps.flush()
    assert [(span.step, span.phase) for span in spans] == [(4, "step"), (4, "checkpoint")]


def test_a_loop_whose_steps_overlap_says_which_one_it_means(steps, spans):
    with steps.step(5), steps.call(step=4), steps.phase("reward", step=3, lane="scorer"):
        pass
    assert [(span.step, span.lane, span.phase) for span in spans] == [
        (3, "scorer", "reward"),
        (4, "rank 0", "call"),
        (5, "rank 0", "step"),
    ]


def test_a_step_within_a_step_is_refused(steps):
    with steps.step(3), pytest.raises(RefusedError, match="step 3 is still open"), steps.step():
        pass
    with steps.step() as number:
        assert number == 4


@pytest.mark.parametrize("make", [lambda steps: steps.phase("reward"), lambda steps: steps.call()])
def test_what_begins_before_any_step_is_refused_with_the_way_out(steps, make):
    with pytest.raises(RefusedError, match=r"no step is open[\s\S]*step=17"), make(steps):
        pass


@pytest.mark.parametrize("word", ["step", "call", "queued"])
def test_a_phase_cannot_take_a_word_that_means_something_else(steps, word):
    with pytest.raises(RefusedError, match=word):
        steps.phase(word)


def test_a_phase_that_raises_is_recorded_and_its_exception_flies_on(steps, spans, clock):
    def judge():
        with steps.step(), steps.phase("reward"), steps.call(0, 1):
            clock.tick(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        judge()
    assert [(span.phase, span.end, span.cut_by, span.value) for span in spans] == [
        ("call", 3, None, None),
        ("reward", 3, None, None),
        ("step", 3, "broken", None),
    ]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (TimeoutError(), "timeout"),
        (subprocess.TimeoutExpired("pytest", 30), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (ValueError(), None),
    ],
)
def test_a_call_is_cut_by_an_exception_that_says_so(steps, spans, error, word):
    with steps.step(), pytest.raises(type(error)), steps.call():
        raise error
    assert spans[0].cut_by == word


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, TimeoutError])
def test_a_step_that_an_exception_leaves_is_broken_and_the_next_one_is_whole(steps, spans, error):
    with pytest.raises(error), steps.step():
        raise error
    with steps.step():
        pass
    assert [(span.step, span.cut_by) for span in spans] == [(0, "broken"), (1, None)]


def test_what_the_reward_says_of_its_cut_stands(steps, spans):
    def judge():
        with steps.call() as call:
            call.cut("cpu")
            raise TimeoutError

    with steps.step(), pytest.raises(TimeoutError):
        judge()
    assert spans[0].cut_by == "cpu"


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_call_without_a_reward_has_no_number(steps, spans, value):
    with steps.step(), steps.call() as call:
        call.value(value)
    assert spans[0].value is None


def test_what_a_call_waited_for_its_turn_is_apart_from_its_service(steps, spans, clock):
    with steps.step():
        ready = steps.now()
        clock.tick(5)
        with steps.call(1, 2, ready=ready):
            clock.tick(2)
    assert sorted(spans)[:2] == [
        Span(0, "rank 0", "call", 5, 7, 1, 2),
        Span(0, "rank 0", "queued", 0, 5, 1, 2),
    ]


def test_what_was_measured_elsewhere_is_added(steps, spans):
    steps.span("generation", 1.0, 2.0, step=7, lane="rank 3")
    steps.flush()
    assert spans == [Span(7, "rank 3", "generation", 1.0, 2.0)]


@pytest.mark.parametrize("times", [(2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_a_span_that_cannot_be_is_refused(steps, times):
    with pytest.raises(RefusedError, match="generation"):
        steps.span("generation", *times, step=0)


def test_threads_record_on_lanes_of_their_own_and_nothing_is_lost(spans):
    with Steps(spans.extend, lane="rank 0") as steps:

        def judge(member):
            with steps.call(group=member // 8, member=member % 8) as call:
                call.value(member)

        with steps.step(), steps.phase("reward"), ThreadPoolExecutor(4, "judge") as pool:
            list(pool.map(judge, range(4_000)))
    calls = [span for span in spans if span.phase == "call"]
    assert sorted(span.value for span in calls) == list(range(4_000))
    assert all(span.value == span.group * 8 + span.member for span in calls)
    assert {span.lane for span in calls} <= {f"rank 0/judge_{worker}" for worker in range(4)}
    assert {span.lane for span in spans if span.phase != "call"} == {"rank 0"}


def test_concurrent_tasks_each_keep_their_own_start(spans):
    clock = FakeClock()

    async def judge(steps, member, gate):
        with steps.call(group=0, member=member) as call:
            await gate.wait()
            call.value(member)

    async def score(steps):
        gates = [asyncio.Event() for _ in range(3)]
        tasks = []
        for member, gate in enumerate(gates):
            tasks.append(asyncio.create_task(judge(steps, member, gate)))
            await asyncio.sleep(0)
            clock.tick(1)
        for member in (1, 2, 0):  # they end in another order
            gates[member].set()
            await tasks[member]
            clock.tick(10)

    with Steps(spans.extend, clock=clock) as steps, steps.step():
        asyncio.run(score(steps))
    assert [(span.member, span.start, span.end) for span in spans[:3]] == [(1, 1, 3), (2, 2, 13), (0, 0, 23)]


def test_a_call_that_is_timed_out_by_its_loop_is_a_cut_one(spans):
    async def slow(steps):
        with steps.call():
            await asyncio.Event().wait()

    async def impatient(steps):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow(steps), 0.01)

    with Steps(spans.extend) as steps, steps.step():
        asyncio.run(impatient(steps))
    assert spans[0].cut_by == "cancelled"


def test_what_is_open_at_the_close_is_recorded_as_far_as_it_went_and_once(spans, clock):
    steps = Steps(spans.extend, clock=clock)
    with steps.step():
        with steps.phase("reward"):
            clock.tick(4)
            steps.close()
            clock.tick(1)
        assert sorted(spans) == [
            Span(0, "main", "reward", 0, 4, cut_by="closed"),
            Span(0, "main", "step", 0, 4, cut_by="closed"),
        ]
    steps.close()
    assert len(spans) == 2


def test_what_ends_after_the_close_is_still_written(spans, clock):
    steps = Steps(spans.extend, clock=clock)
    with steps.step():
        pass
    steps.close()
    with steps.phase("checkpoint"):
        pass
    assert spans[-1].phase == "checkpoint"


def test_a_long_wait_between_steps_is_written_in_parts(steps, spans, monkeypatch):
    for member in range(recorder.BETWEEN):
        assert not spans
        steps.span("call", 0, 1, step=0, member=member)
    assert [span.member for span in spans] == list(range(recorder.BETWEEN))


class Sink(list):
    """A sink that fails as long as it is told to."""

    failing = True
    asked = 0

    def __call__(self, spans):
        self.asked += 1
        if self.failing:
            raise OSError("no space left on device")
        self.extend(spans)


def test_a_sink_that_fails_is_told_once_and_loses_nothing_when_it_recovers(clock, caplog):
    sink = Sink()
    with Steps(sink, clock=clock) as steps:
        for _ in range(3):
            with steps.step(), steps.phase("reward"):
                pass
        assert sink.asked == 3
        sink.failing = False
        with steps.step(), steps.phase("reward"):
            pass
    assert [(span.step, span.phase) for span in sink] == [
        (step, word) for step in range(4) for word in ("reward", "step")
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "no space left on device" in caplog.text


def test_a_sink_that_never_recovers_costs_bounded_memory_and_the_loss_is_told(clock, caplog, monkeypatch):
    monkeypatch.setattr(recorder, "KEPT", 10)
    sink = Sink()
    with Steps(sink, lane="rank 0", clock=clock) as steps:
        for _ in range(20):
            with steps.step(), steps.phase("reward"):
                pass
        assert len(steps._buffer) == 10
        assert steps.lost == 30
    assert steps.lost == 40
    assert "40 spans of 'rank 0' are lost" in caplog.messages[-1]


def test_a_sink_that_fails_is_not_asked_again_for_every_event(clock):
    sink = Sink()
    steps = Steps(sink, clock=clock)
    for _ in range(3 * recorder.BETWEEN):
        steps.span("call", 0, 1, step=0)
    assert sink.asked == 1
    steps.close()


def test_an_interrupt_in_a_sink_flies_on_and_loses_nothing(clock):
    sink, interrupted = [], True

    def interruptible(spans):
        if interrupted:
            raise KeyboardInterrupt
        sink.extend(spans)

    with Steps(interruptible, clock=clock) as steps:
        with pytest.raises(KeyboardInterrupt), steps.step():
            pass
        interrupted = False
    assert [span.phase for span in sink] == ["step"]


def test_a_sink_that_records_does_not_wait_for_itself(clock):
    got = []

    def curious(spans):
        got.extend(spans)
        if len(got) < 2 * recorder.BETWEEN:
            for _ in range(recorder.BETWEEN):
                steps.span("ledger", 0, 1, step=0)

    steps = Steps(curious, clock=clock)
    steps.span("generation", 0, 1, step=0)
    steps.close()
    assert "generation" in {span.phase for span in got}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_record_into_one_file_on_one_clock(tmp_path, method):
    path = tmp_path / "spans.jsonl"
    done = run(path, method)
    assert done.returncode == 0, done.stderr
    spans = read(path)
    assert len(spans) == len(set(spans)) == 14
    for lane in ("rank 0", "rank 1"):
        own = [span for span in spans if span.lane == lane]
        assert [(span.step, span.phase) for span in own] == [
            *((step, word) for step in range(3) for word in ("generation", "step")),
            (2, "farewell"),
        ]
        assert all(a.end <= b.end for a, b in pairwise(own))


def test_a_fork_writes_its_own_spans_and_none_of_its_parents(tmp_path):
    path = tmp_path / "spans.jsonl"
    done = run(path, "inherited")
    assert done.returncode == 0, done.stderr
    child = path.with_suffix(".child").read_text()
    assert [(span.lane, span.phase) for span in read(path)] == [
        (f"rank 0/{child}", "call"),
        ("rank 0", "generation"),
        ("rank 0", "reward"),
        ("rank 0", "step"),
    ]


@pytest.mark.parametrize(
    ("how", "status", "phases"),
    [
        ("killed", -9, ["generation", "step"]),
        ("unclosed", 0, ["generation", "step", "step", "reward"]),
        ("raised", 1, ["generation", "step", "reward", "step"]),
    ],
)
def test_a_program_that_ends_anyhow_leaves_the_steps_it_finished(tmp_path, how, status, phases):
    path = tmp_path / "spans.jsonl"
    done = run(path, how)
    assert done.returncode == status, done.stderr
    spans = read(path)
    assert [span.phase for span in spans] == phases
    cuts = {"killed": [], "unclosed": ["closed", "closed"], "raised": [None, "broken"]}
    assert [span.cut_by for span in spans if span.step == 1] == cuts[how]


def test_a_closed_recorder_is_let_go(clock):
    steps = Steps(id, clock=clock)
    steps.close()
    before = len(recorder._RECORDERS)
    del steps
    gc.collect()
    assert len(recorder._RECORDERS) < before


def test_recorders_of_two_loops_in_one_process_do_not_meet(clock):
    first, second = [], []
    a, b = Steps(first.extend, clock=clock), Steps(second.extend, clock=clock)
    with a, b, a.step(1), b.step(2), b.phase("reward"):
        pass
    assert [span.step for span in first] == [1]
    assert [span.step for span in second] == [2, 2]


def test_a_thread_of_an_open_call_is_closed_by_another(spans):
    entered, leave = threading.Event(), threading.Event()
    steps = Steps(spans.extend, lane="rank 0")

    def judge():
        with steps.call(group=1, member=1):
            entered.set()
            leave.wait(10)

    with steps.step():
        pass
    thread = threading.Thread(target=judge, name="judge")
    thread.start()
    entered.wait(10)
    steps.close()
    leave.set()
    thread.join()
    assert [(span.lane, span.cut_by) for span in spans if span.phase == "call"] == [
        ("rank 0/judge", "closed")
    ]


def test_steps_count_on_from_where_the_recorder_was_told_to_begin(spans, clock):
    with Steps(spans.extend, clock=clock, first=60) as steps:
        for number in (None, 70, None):
            with steps.step(number):
                pass
    assert [span.step for span in spans] == [60, 70, 71]


@pytest.mark.parametrize(
    "make",
    [
        lambda steps: steps.phase(None),
        lambda steps: steps.phase("x", lane=b"ab"),
        lambda steps: steps.phase("x", step="seven"),
        lambda steps: steps.call(group="abc"),
        lambda steps: steps.call(group=1, member=[1]),
        lambda steps: steps.call(step=1.5),
        lambda steps: steps.step("seven"),
        lambda steps: steps.step(2**70),
        lambda steps: Steps(id, lane=None),
    ],
)
def test_what_no_ledger_can_hold_is_refused_where_it_is_said(steps, make):
    with pytest.raises(RefusedError, match=r"is no (text|whole number)"):
        make(steps)


def test_numbers_of_numpy_become_ours(steps, spans):
    with steps.step(np.int64(3)), steps.call(np.int64(5), np.uint8(6), step=np.int32(4)) as call:
        call.value(np.float32(1))
    told, _ = sorted(spans, key=lambda span: span.phase)
    assert (told.step, told.group, told.member, told.value) == (4, 5, 6, 1.0)
    assert all(type(one) is int for span in spans for one in (span.step, span.group or 0, span.member or 0))


def test_what_ends_while_the_close_writes_is_written_too(clock):
    got, late = [], []

    def slow(spans):
        got.extend(spans)
        if late:
            thread = threading.Thread(target=late.pop())
            thread.start()
            thread.join()

    steps = Steps(slow, clock=clock)
    steps.span("generation", 0, 1, step=0)
    late.append(lambda: steps.span("reward", 0, 1, step=0))
    steps.close()
    assert [span.phase for span in got] == ["generation", "reward"]
    late.append(lambda: steps.span("weights", 0, 1, step=0))
    steps.span("training", 0, 1, step=0)
    assert [span.phase for span in got] == ["generation", "reward", "training", "weights"]
    assert steps.lost == 0
