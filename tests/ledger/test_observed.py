"""A run of a ledger as pricing reads it: nothing made up, nothing lost."""

import asyncio
import contextlib
import gzip
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from steelyard import Group, Part, Recipe, Rollout, Runtime, record_steps, reward
from steelyard.clock import Clocks, Span
from steelyard.errors import RefusedError
from steelyard.ledger import Ledger
from steelyard.ledger import spans as spans_of_ledger
from steelyard.ledger.observed import observed
from steelyard.ledger.spans import SpanLog, recorders_of, sessions, spans
from steelyard.outcome import Attempt, End, Score, Scored, Unscored
from steelyard.priced import read_run, recorded_spans
from steelyard.pricing.observed import ABSTAINED, MISSING, SCORED, UNSCORED
from user_rewards import decorated


def groups_of(count, size=4, first=0):
    return [
        Group(
            f"g{group}",
            group,
            [
                Rollout(o, "p", "x" * (o % 3), {}, (group, i), o, f"row {o}")
                for i in range(size)
                for o in [group * size + i]
            ],
        )
        for group in range(first, first + count)
    ]


@reward
async def length(completion: str) -> float:
    await asyncio.sleep(0.001)
    return float(len(completion))


def run_steps(path, steps, *, named=True, reward_=length):
    async def main():
        with Ledger(path) as ledger:
            run = ledger.begin("one", {}, {reward_.name: reward_.identity})
            async with Runtime(Recipe((Part(reward_),)), ledger=ledger, run=run) as runtime:
                for step in steps:
                    groups = groups_of(2, first=2 * step)
                    async for _ in runtime.score(groups, **({"step": step} if named else {})):
                        pass
            return observed(ledger, run)

    return asyncio.run(main())


def test_every_attempt_has_its_step_group_start_and_queue(tmp_path):
    found = run_steps(tmp_path / "x.ledger", range(3))
    assert found.stepped
    assert list(found.steps.labels) == ["0", "1", "2"]
    assert sorted(found.calls.step.tolist()) == [0] * 8 + [1] * 8 + [2] * 8
    assert (found.rows.step == found.rows.group // 2).all()
    assert (found.calls.group == found.calls.row // 4).all()
    assert np.isfinite(found.calls.began_s).all()
    assert (found.calls.queued_s >= 0).all()
    assert found.rows.value.tolist() == [float(o % 3) for o in range(24)]
    assert (found.calls.passed == (found.calls.row % 3 > 0)).all()  # above the lowest that was seen
    ends = found.calls.began_s + found.calls.service_s
    assert ends[found.calls.step == 0].max() <= found.calls.began_s[found.calls.step == 1].min()
    assert set(found.steps.machine.tolist()) == {0}


def test_a_call_of_score_is_a_step_where_nobody_names_it(tmp_path):
    found = run_steps(tmp_path / "x.ledger", range(3), named=False)
    assert len(found.steps) == 3
    assert (found.rows.step == found.rows.group // 2).all()


def test_a_worker_process_tells_when_its_items_began(tmp_path):
    found = run_steps(tmp_path / "x.ledger", range(1), reward_=decorated)
    order = np.argsort(found.calls.began_s)
    began, service = found.calls.began_s[order], found.calls.service_s[order]
    assert np.isfinite(began).all()
    assert (began + service)[-1] - began[0] < 60


PARTS = {"right": "right/1", "brief": "brief/1"}


def written(ledger, *, run=None, weights=None, steps=None):
    """Two groups of two: one all judged, one with a lost row; a chunk of the second part judged all four."""
    run = run or ledger.begin("one", {"weights": weights or {"right": 1.0, "brief": 0.5}}, PARTS)
    groups = groups_of(2, size=2)
    ledger.enter(run, groups, steps=steps or {0: "a", 1: "b"})
    rollouts = [one for group in groups for one in group.rollouts]
    attempts = [
        Attempt(o, "right", 0, o, 1, Clocks(service_s=1.0 + o, queued_s=0.5, began_s=10.0 + o))
        for o in range(3)
    ]
    attempts += [
        Attempt(3, "right", 0, 3, 1, Clocks(service_s=30.0, censored=True), End.CUT, "wall"),
        Attempt(4, "right", 1, 3, 1, Clocks(service_s=2.0), End.NEVER_STARTED),
        Attempt(5, "brief", 0, 0, 4, Clocks(service_s=0.001)),
        Attempt(6, "right", -1, 0, 1, Clocks(service_s=99.0)),  # an audit
        Attempt(7, "right", 0, 0, 1, Clocks()),  # not timed
    ]
    said = [Scored(1.0), Scored(0.0, "wrong"), Scored(1.0), Unscored("sandbox:bwrap", "spawn")]
    scores = [
        Score(one.key, one.ordinal, "right", "right/1", verdict, at)
        for one, verdict, at in zip(rollouts, said, [0, 1, 2, 4], strict=True)
    ]
    scores += [Score(one.key, one.ordinal, "brief", "brief/1", Scored(1.0), 5) for one in rollouts]
    ledger.leave(run, attempts=attempts, scores=scores)
    return run


def test_totals_ends_and_causes_come_out_of_the_record_audits_and_what_was_not_timed_do_not(tmp_path):
    with Ledger(tmp_path / "x.ledger") as ledger:
        found = observed(ledger, written(ledger, steps={0: "a", 1: "a"}))
    assert found.calls.service_s.tolist() == [1.0, 2.0, 3.0, 30.0, 2.0, 0.001]
    assert found.calls.group.tolist() == [0, 0, 1, 1, 1, MISSING]  # one call judged both groups
    assert [found.causes[one] if one != MISSING else "" for one in found.calls.cause] == [
        "", "", "", "wall", "never_started", "",
    ]  # fmt: skip
    assert found.timed_out.tolist() == [False, False, False, True, False, False]
    assert found.calls.passed.tolist() == [True, False, True, False, False, True]
    assert found.rows.verdict.tolist() == [SCORED, SCORED, SCORED, UNSCORED]
    assert np.array_equal(found.rows.value, [1.5, 0.5, 1.5, np.nan], equal_nan=True)
    assert list(found.steps.labels) == ["a"]
    assert not found.rows.failed.any()  # what was scored was judged
    assert np.isnan(found.calls.began_s[3])


def test_a_row_of_which_every_part_abstained_is_no_zero(tmp_path):
    from steelyard.outcome import Abstained

    with Ledger(tmp_path / "x.ledger") as ledger:
        run = ledger.begin("one", {}, {"right": "right/1"})
        (group,) = groups_of(1, size=1)
        ledger.enter(run, [group])
        ledger.leave(
            run,
            attempts=[Attempt(0, "right", 0, 0, 1, Clocks(service_s=1.0))],
            scores=[Score((0, 0), 0, "right", "right/1", Abstained("no"), 0)],
        )
        found = observed(ledger, run)
    assert found.rows.verdict.tolist() == [ABSTAINED]
    assert np.isnan(found.rows.value).all()
    assert not found.stepped
    assert any("one burst" in one for one in found.lacks)


def test_a_ledger_of_an_older_version_is_read_without_what_it_lacks(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        run = written(ledger)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for column in ("grp", "session", "began_s"):
            db.execute(f"ALTER TABLE attempts DROP COLUMN {column}")
        for table in ("steps", "spans", "sessions"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DELETE FROM migrations WHERE name LIKE '002%'")
    with Ledger(path, write=False) as ledger:
        found = observed(ledger, run)
        assert len(found.calls) == 6
        assert np.isnan(found.calls.began_s).all()
        assert not found.stepped
        assert list(spans(ledger)) == sessions(ledger) == []
        assert next(iter(ledger.attempts(run))).clocks.began_s is None
    with Ledger(path) as ledger:  # whoever writes brings it up to date
        assert ledger.has_instants
        assert next(iter(ledger.attempts(run))).clocks.service_s == 1.0


def test_a_step_that_two_sessions_worked_on_has_no_common_clock(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        run = written(ledger)
    with Ledger(path) as ledger:
        again = ledger.begin("one", run.spec, PARTS)
        ledger.leave(again, attempts=[Attempt(8, "right", 2, 3, 1, Clocks(service_s=1.0, began_s=500.0))])
        found = observed(ledger, again)
        assert len(sessions(ledger)) == 2
    assert np.isnan(found.calls.began_s[found.calls.step == 1]).all()
    assert np.isfinite(found.calls.began_s[found.calls.row == 0]).any()


def test_a_run_in_which_nothing_was_timed_is_refused(tmp_path):
    with Ledger(tmp_path / "x.ledger") as ledger:
        run = ledger.begin("one", {}, PARTS)
        with pytest.raises(RefusedError, match=r"no attempt with a service time\n.*--busy 25"):
            observed(ledger, run)


# --- spans


RECORD = """
import sys
from pathlib import Path
from steelyard.clock import Span
from steelyard.ledger.spans import SpanLog
log = SpanLog(Path(sys.argv[1]))
for step in range(20):
    log.append([Span(step, "rank " + sys.argv[2], "generation", step, step + 0.5)])
"""


def recording(path, number):
    return subprocess.Popen([sys.executable, "-c", RECORD, path, str(number)])


def a_run(ledger, path, name, *, at, hole=False, began=True):
    """A run of two steps that are recorded, ten seconds apart, from a moment on."""
    run = ledger.begin(name, {}, {"right": "right/1"}, new_run=True)
    groups = groups_of(2, size=2)
    ledger.enter(run, groups, steps={0: "0", 1: "1"})
    rollouts = [one for group in groups for one in group.rollouts]
    starts = [at + 10 * (one.ordinal // 2) + 4 for one in rollouts]
    ledger.leave(
        run,
        attempts=[
            Attempt(
                one.ordinal,
                "right",
                0,
                one.ordinal,
                1,
                Clocks(service_s=1.0, began_s=start if began else None),
            )
            for one, start in zip(rollouts, starts, strict=True)
        ],
        scores=[
            Score(one.key, one.ordinal, "right", "right/1", Scored(1.0), one.ordinal) for one in rollouts
        ],
    )
    log = SpanLog(path)
    for step in range(2):
        start = at + 10 * step
        phases = [("generation", 0, 4), ("reward", 4, 5), ("training", 7 if hole else 5, 9), ("step", 0, 9)]
        log.append([Span(step, "main", word, start + low, start + high) for word, low, high in phases])
    return run


def test_a_run_gets_the_steps_that_were_recorded_while_it_was_scored(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        runs = [a_run(ledger, path, "one", at=1_000.0), a_run(ledger, path, "two", at=2_000.0, hole=True)]
        recorders = [recorders_of(ledger, run) for run in runs]
        assert [len(one) for one in recorders] == [1, 1]
        assert recorders[0].isdisjoint(recorders[1])
    first = read_run(path, run=1).observed
    assert first.steps.training_s.tolist() == [4.0, 4.0]
    assert first.steps.exposed_s.tolist() == [1.0, 1.0]
    with pytest.raises(RefusedError, match="no phase for 2"):  # its own hole, and nobody else's
        read_run(path, run=2)


def test_a_run_beside_which_nothing_was_recorded_gets_no_steps_of_others(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        written(ledger)
        a_run(ledger, path, "two", at=2_000.0)
    assert np.isnan(read_run(path, run=1).observed.steps.generation_s).all()
    assert read_run(path, run=2).observed.steps.generation_s.tolist() == [4.0, 4.0]


def test_where_no_call_tells_its_start_two_runs_cannot_share_what_was_recorded(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        a_run(ledger, path, "one", at=1_000.0, began=False)
    assert read_run(path, run=None).observed.steps.generation_s.tolist() == [4.0, 4.0]  # whose else
    with Ledger(path) as ledger:
        a_run(ledger, path, "two", at=2_000.0)
    with pytest.raises(RefusedError, match=r"no call of run 1 tells when it began[\s\S]*of its own"):
        read_run(path, run=1)
    assert read_run(path, run=2).observed.steps.generation_s.tolist() == [4.0, 4.0]


def test_spans_of_another_clock_are_of_no_run(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        run = a_run(ledger, path, "one", at=1_000.0)
        a_run(ledger, path, "two", at=2_000.0)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET boot = 'another' WHERE run IS NULL")
    with Ledger(path, write=False) as ledger:
        assert recorders_of(ledger, run) == set()


def test_processes_write_spans_at_once_beside_a_run_that_is_written(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        writers = [recording(path, number) for number in range(3)]
        run = written(ledger)
        assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        found = list(spans(ledger))
        assert len(found) == 60
        assert len({session for session, _ in found}) == 3
        told = observed(ledger, run)
        assert len(told.calls) == 5  # the sixth judged rollouts of two steps: it is no step's
        assert any("1 call " in one for one in told.lacks)
        assert ledger.verify() == []


def test_many_processes_make_one_ledger_at_once(tmp_path):
    path = tmp_path / "new.ledger"
    writers = [recording(path, number) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    with Ledger(path, write=False) as ledger:
        assert len(list(spans(ledger))) == 80


def test_spans_that_cannot_be_written_are_told_and_none_is_half_written(tmp_path):
    path = tmp_path / "x.ledger"
    log = SpanLog(path)
    log.append([Span(0, "main", "generation", 0.0, 1.0)])
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TRIGGER no BEFORE INSERT ON spans WHEN NEW.step = 7 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(OSError, match="cannot be written"):
        log.append([Span(6, "main", "generation", 6.0, 7.0), Span(7, "main", "generation", 7.0, 8.0)])
    with Ledger(path, write=False) as ledger:
        assert [span.step for _, span in spans(ledger)] == [0]


def test_a_file_that_is_no_ledger_takes_no_spans(tmp_path):
    path = tmp_path / "x.ledger"
    path.write_text("not a database, and long enough to be looked at as one" * 40)
    with pytest.raises(RefusedError, match=r"x\.ledger"):
        SpanLog(path)


# --- several sessions, odd values, a file that is busy


def steps_of(path):
    with Ledger(path, write=False) as ledger:
        return [(span.lane, span.step) for _, span in spans(ledger) if span.phase == "step"]


def do(path, count, *, lane="main", first=None):
    with record_steps(path, lane=lane) as steps:
        for at in range(count):
            with steps.step(None if first is None else first + at), steps.phase("generation"):
                pass


def test_runs_that_are_recorded_one_after_the_other_count_on(tmp_path):
    path = tmp_path / "x.ledger"
    for count in (3, 2, 1):
        do(path, count)
    assert steps_of(path) == [("main", step) for step in range(6)]
    do(path, 1, first=17)
    do(path, 1)
    assert steps_of(path)[-2:] == [("main", 17), ("main", 18)]
    do(path, 1, lane="other")
    assert steps_of(path)[-1] == ("other", 0)


def test_ranks_of_one_run_count_alike_and_count_on_together_though_one_was_behind(tmp_path):
    path = tmp_path / "x.ledger"
    ranks = ["rank 0", "rank 1"]
    with contextlib.ExitStack() as stack:
        both = []
        for lane in ranks:  # the second opens when the first has done a step
            steps = stack.enter_context(record_steps(path, lane=lane))
            both.append(steps)
            with steps.step():
                pass
        with both[0].step():
            pass
        with both[1].phase("reward"):
            pass
    do(path, 1, lane="rank 0")
    do(path, 1, lane="rank 1")
    assert steps_of(path) == [("rank 0", 0), ("rank 1", 0), ("rank 0", 1), ("rank 0", 2), ("rank 1", 2)]


def written_down(path, numbers, *, at=0.0):
    """Steps of a session, a second each."""
    log = SpanLog(path)
    for second, number in enumerate(numbers):
        times = at + second, at + second + 1
        log.append([Span(number, "main", phase, *times) for phase in ("generation", "step")])


def test_what_a_resumed_run_did_again_is_left_out_and_said_to_be(tmp_path):
    path = tmp_path / "x.ledger"
    written_down(path, [0, 1, 2])
    written_down(path, [2, 3, 4], at=100.0)
    found = read_run(path, run=None).observed
    assert list(found.steps.labels) == ["0", "1", "2", "3", "4"]
    assert "2 spans are left out: later sessions did their steps again" in found.lacks


def test_spans_go_to_the_ledger_that_was_named_wherever_the_loop_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = SpanLog(Path("x.ledger"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.append([Span(0, "main", "step", 0.0, 1.0)])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert steps_of(tmp_path / "x.ledger") == [("main", 0)]


GOOD = Span(0, "main", "step", 0.0, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"member": [1]},
        {"group": 2**70},
        {"step": "seven"},
        {"step": None},
        {"phase": None},
        {"lane": b"ab"},
        {"end": float("nan")},
        {"value": "one"},
        {"cut_by": 3},
    ],
)
def test_a_span_that_no_ledger_can_hold_is_left_out_alone_and_told_once(tmp_path, caplog, change):
    log = SpanLog(tmp_path / "x.ledger")
    odd = GOOD._replace(**change)
    log.append([GOOD, odd, odd, GOOD._replace(step=1)])
    log.append([odd])
    assert steps_of(log.path) == [("main", 0), ("main", 1)]
    assert log.refused == 3
    (told,) = caplog.messages
    assert "a span cannot be written" in told


def test_numbers_and_words_of_others_are_written_as_ours(tmp_path):
    log = SpanLog(tmp_path / "x.ledger")
    one = np.float32(1)
    log.append([Span(np.int64(3), "main", "\ud800", one, np.float64(2), np.int64(4), np.uint8(5), None, one)])
    with Ledger(log.path, write=False) as ledger:
        assert [span for _, span in spans(ledger)] == [Span(3, "main", "\\ud800", 1.0, 2.0, 4, 5, None, 1.0)]


def test_a_locked_ledger_is_waited_for_once_and_then_shortly_until_it_can_be_written(tmp_path, monkeypatch):
    waits = []
    path = tmp_path / "x.ledger"
    opening = spans_of_ledger.open_database

    def noting(path, *, write, wait_s=30.0):
        waits.append(wait_s)
        return opening(path, write=write, wait_s=min(wait_s, 0.01))

    log = SpanLog(path)
    monkeypatch.setattr(spans_of_ledger, "open_database", noting)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(OSError, match="locked"):
                log.append([GOOD])
        other.execute("ROLLBACK")
    log.append([GOOD])
    log.append([GOOD])
    assert waits == [30.0, 1.0, 1.0, 30.0]


def test_a_recorder_that_had_to_wait_leaves_the_ledger_to_others_for_as_long(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(spans_of_ledger.time, "sleep", pauses.append)
    log = SpanLog(tmp_path / "x.ledger")
    with contextlib.closing(
        sqlite3.connect(log.path, isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        free = threading.Timer(0.2, other.execute, ["ROLLBACK"])
        free.start()
        log.append([GOOD])
        free.join()
    assert len(pauses) == 1
    assert 0.1 < pauses[0] <= 1.0


def test_whoever_writes_a_ledger_waits_half_a_minute_for_recorders(tmp_path):
    with Ledger(tmp_path / "x.ledger") as ledger:
        assert ledger.query("PRAGMA busy_timeout").fetchone() == (30_000,)


# --- what is read


def test_a_run_on_another_clock_is_joined_by_name_alone_and_says_so(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path) as ledger:
        a_run(ledger, path, "one", at=1_000.0)
    assert np.isfinite(read_run(path, run=None).observed.calls.began_s).all()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET boot = 'another' WHERE run IS NULL")
    found = read_run(path, run=None).observed
    assert np.isnan(found.calls.began_s).all()
    assert found.steps.training_s.tolist() == [4.0, 4.0]
    assert any("clocks of different machines" in one for one in found.lacks)


def test_what_is_neither_a_file_nor_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RefusedError, match="neither a file nor a folder"):
            read_run(path, run=None)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_ledger_beside_a_file_is_read_for_it_only_if_the_file_is_a_scored_one(tmp_path, suffix):
    path = tmp_path / f"rows.jsonl{suffix}"
    with Ledger(tmp_path / f"{path.name}.ledger") as ledger:
        a_run(ledger, ledger.path, "one", at=1_000.0)
    opened = gzip.open if suffix else open
    for row, ours in (
        (b'{"verdict": "scored", "parts": {}}', True),
        (b'{"prompt": "x"}', False),
        (b"", False),
    ):
        with opened(path, "wb") as file:
            file.write(row + b"\n")
        if ours:
            assert len(read_run(path, run=None).observed.steps) == 2
        else:
            with pytest.raises(RefusedError, match=path.name):
                read_run(path)


def test_spans_of_a_run_come_in_the_order_of_their_starts(tmp_path):
    path = tmp_path / "x.ledger"
    written_down(path, [1, 0])
    starts = [span.start for span in recorded_spans(path)]
    assert starts == sorted(starts)
    with Ledger(tmp_path / "y.ledger") as ledger:
        written(ledger)
    with pytest.raises(RefusedError, match="no recorded span"):
        recorded_spans(tmp_path / "y.ledger")


def test_a_phase_that_no_span_has_is_refused_by_its_name(tmp_path):
    written_down(tmp_path / "x.ledger", [0])
    with pytest.raises(RefusedError, match=r"^phases: no span has the phase 'generat'"):
        read_run(tmp_path / "x.ledger", phases={"generat": "generation"})
