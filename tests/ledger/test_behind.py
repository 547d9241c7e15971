"""A ledger that is written behind the run: the same record, later; who is killed loses the last step."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from steelyard.errors import RefusedError, RunStoppedError
from steelyard.ledger import Ledger, behind
from steelyard.ledger.behind import Behind
from steelyard.outcome import Part, Score, Scored
from steelyard.rewards import Recipe, builtin, named
from steelyard.rollout import Group, Rollout
from steelyard.runtime import Runtime

KILLED = Path(__file__).with_name("trainer_to_kill.py")


def group_of(number, size=2, answer="2"):
    rows = range(number * size, (number + 1) * size)
    return Group(
        number,
        number,
        [
            Rollout(i, "1 + 1?", f"#### {i % 3}", {"answer": answer}, (number, i % size), i, f"row {i}")
            for i in rows
        ],
    )


def score_of(ordinal):
    return Score((0, 0), ordinal, "right", "right/1", Scored(1.0), None)


class Slow:
    """A ledger that writes when it is let, and may fail."""

    path = Path("slow.ledger")

    def __init__(self):
        self.written, self.threads, self.may = [], set(), threading.Event()
        self.error = None

    def _write(self, what):
        self.may.wait(30)
        if self.error is not None:
            raise self.error
        self.threads.add(threading.current_thread())
        self.written.append(what)

    def enter(self, _run, groups, *, steps):
        self._write([group.ordinal for group in groups])

    def leave(self, _run, *, attempts, scores, departures):
        self._write([score.ordinal for score in scores])


class FreshRun:
    number, resumed = 1, False


@contextmanager
def writing(**settings):
    slow = Slow()
    record = Behind(slow, **settings)
    try:
        yield slow, record
    finally:
        slow.may.set()
        with suppress(RunStoppedError):
            record.close()


def step(record, number):
    record.enter(FreshRun, [group_of(number)])
    record.leave(FreshRun, scores=[score_of(2 * number)])


def test_nobody_waits_for_what_is_queued_and_it_is_written_in_order_by_one_other_thread():
    with writing() as (slow, record):
        for number in range(3):
            step(record, number)
        assert slow.written == []
        slow.may.set()
        record.release()
        record.settle()
        assert slow.written == [[0], [0], [1], [2], [2], [4]]
        assert not record.behind
        assert len(slow.threads) == 1
        assert threading.current_thread() not in slow.threads


def test_what_is_not_released_is_written_when_it_is_old(monkeypatch):
    monkeypatch.setattr(behind, "OLD_S", 0.02)
    with writing() as (slow, record):
        slow.may.set()
        step(record, 0)
        while len(slow.written) < 2:
            pass


def test_what_is_not_released_is_written_when_it_is_much(monkeypatch):
    monkeypatch.setattr(behind, "OLD_S", 1e6)
    monkeypatch.setattr(behind, "MANY", 6)
    with writing() as (slow, record):
        slow.may.set()
        step(record, 0)
        step(record, 1)
        assert slow.written == []
        step(record, 2)
        while slow.written[:1] != [[0]]:
            pass


def test_when_very_much_is_queued_the_next_rollouts_wait(monkeypatch):
    monkeypatch.setattr(behind, "MANY", 2)
    monkeypatch.setattr(behind, "MOST", 4)
    with writing() as (slow, record):
        step(record, 0)
        step(record, 1)
        third = threading.Thread(target=step, args=(record, 2))
        third.start()
        third.join(0.1)
        assert third.is_alive()
        slow.may.set()
        third.join(30)
        assert not third.is_alive()


def test_closing_writes_everything_and_a_later_step_begins_anew():
    with writing() as (slow, record):
        slow.may.set()
        step(record, 0)
        record.close()
        assert slow.written == [[0], [0]]
        assert not any(thread.name == "steelyard-ledger" for thread in threading.enumerate())
        step(record, 1)
        record.close()
        assert slow.written == [[0], [0], [1], [2]]


def test_a_write_that_fails_stops_the_next_call_with_the_ledgers_words_and_says_what_is_lost():
    with writing() as (slow, record):
        slow.error = RunStoppedError("slow.ledger: the ledger could not be written (full)")
        slow.may.set()
        step(record, 0)
        record.release()
        with pytest.raises(RunStoppedError, match=r"slow\.ledger.*full.*\n.*lost: 2 rollouts") as stopped:
            record.settle()
        assert stopped.value.__cause__ is slow.error
        for call in (lambda: step(record, 1), record.settle, lambda: record.next_attempt(FreshRun)):
            with pytest.raises(RunStoppedError, match="full"):
                call()
        record.close()  # it was said before
        assert slow.written == []


def test_a_write_that_fails_is_told_at_the_latest_when_it_is_closed():
    with writing() as (slow, record):
        slow.error = RuntimeError("whatever")
        slow.may.set()
        step(record, 0)
        with pytest.raises(RunStoppedError, match="whatever"):
            record.close()


# --- with a runtime


RECIPE = Recipe((Part(builtin("gsm8k")), Part(named("user_rewards:in_batches"), weight=0.0)))


def train(path, steps, *, durability, recipe=RECIPE, resume=False, groups_each=4):
    """Score so many steps; return what was handed on."""

    async def main():
        with Ledger(path) as ledger:
            parts = {part.reward.name: part.reward.identity for part in recipe.parts}
            run = ledger.begin("run", {}, parts)
            assert run.resumed is resume
            told = []
            async with Runtime(recipe, ledger=ledger, run=run, workers=1, durability=durability) as runtime:
                for number in steps:
                    groups = [group_of(n) for n in range(number * groups_each, (number + 1) * groups_each)]
                    told += [
                        (one.group.ordinal, one.totals, one.advantages)
                        async for one in runtime.score(groups, step=number)
                    ]
            assert ledger.verify() == []
            return told

    return asyncio.run(main())


TABLES = {
    "rollouts": "place, grp, idx, id, digest, content",
    "scores": "place, part, verdict, value, code, reason, integrity",
    "departures": "run, grp, scheme, advantages",
    "steps": "run, grp, step",
    "attempts": "run, part, try, first, members, ended",
}


def contents(path):
    with Ledger(path, write=False) as ledger:
        return {
            table: sorted(ledger.query(f"SELECT {columns} FROM {table}").fetchall())  # noqa: S608
            for table, columns in TABLES.items()
        }


def test_the_record_is_the_same_under_both_durabilities(tmp_path):
    told = {
        durability: sorted(train(tmp_path / durability, range(3), durability=durability), key=str)
        for durability in ("full", "step")
    }
    assert told["full"] == told["step"]
    full, behind_it = contents(tmp_path / "full"), contents(tmp_path / "step")
    assert full == behind_it
    assert len(full["rollouts"]) == 24


def test_a_run_that_goes_on_asks_for_nothing_that_is_recorded(tmp_path):
    class Counted:
        def __init__(self, reward):
            self.reward, self.asked = reward, []

        def __getattr__(self, name):
            return getattr(self.reward, name)

        def __call__(self, given, context, /):
            self.asked += [rollout.ordinal for rollout in given]
            return self.reward(given, context)

    counted = Counted(builtin("gsm8k"))
    recipe = Recipe((Part(counted),))
    first = train(tmp_path / "x", range(2), durability="step", recipe=recipe)
    asked = len(counted.asked)
    again = train(tmp_path / "x", range(3), durability="step", recipe=recipe, resume=True)
    assert again[: len(first)] == first
    assert counted.asked[asked:] == list(range(16, 24))


def test_outside_of_a_with_everything_is_written_when_the_call_ends(tmp_path):
    async def main():
        recipe = Recipe((Part(builtin("gsm8k")),))
        with Ledger(tmp_path / "x") as ledger:
            run = ledger.begin("run", {}, {"gsm8k": "1"})
            runtime = Runtime(recipe, ledger=ledger, run=run, durability="step")
            async for _ in runtime.score([group_of(0)]):
                pass
            assert len(list(ledger.scores(run))) == 2

    asyncio.run(main())


def test_another_durability_is_refused():
    with pytest.raises(RefusedError, match=r"durability: there is no durability 'later'.*\n.*full, step"):
        Runtime(RECIPE, durability="later")


@pytest.mark.needs("tmpfs")
def test_a_full_disk_stops_the_run_with_the_reason_and_keeps_what_was_written(tmpfs):
    path = tmpfs(1 << 20) / "x.ledger"
    recipe = Recipe((Part(builtin("gsm8k")),))

    def big(number):
        group = group_of(number)
        return group._replace(rollouts=[r._replace(completion="x" * 50_000) for r in group.rollouts])

    async def main():
        steps = 0
        with Ledger(path) as ledger:
            run = ledger.begin("run", {}, {"gsm8k": "1"})
            try:
                async with Runtime(recipe, ledger=ledger, run=run, durability="step") as runtime:
                    for number in range(100):
                        async for _ in runtime.score([big(number)]):
                            pass
                        steps += 1
            finally:
                recorded = len(list(ledger.scores(run))) // 2
                assert ledger.verify() == []
                assert recorded >= steps - 1

    with pytest.raises(RunStoppedError, match=r"x\.ledger: the ledger could not be written.*full") as stopped:
        asyncio.run(main())
    assert "lost: 2 rollouts of the last step" in str(stopped.value)


@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_trainer_that_is_killed_loses_at_most_its_last_step_and_goes_on(tmp_path, after):
    path = tmp_path / "x.ledger"
    with subprocess.Popen(
        [sys.executable, KILLED, path], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as trainer:
        for line in trainer.stdout:
            done = int(line)
            if done == after:
                trainer.send_signal(signal.SIGKILL)
                break
        done = max([done, *map(int, trainer.stdout)])  # it went on until it died
    assert trainer.returncode == -signal.SIGKILL
    with Ledger(path) as ledger:
        assert ledger.verify() == []
        (run,) = ledger.runs()
        scored = {ordinal for ordinal, *_ in ledger.scores(run)}
    assert set(range(done * 8)) <= scored  # steps before the last that was handed on
    recipe = Recipe((Part(builtin("gsm8k")),))
    train(path, range(done + 2), durability="step", recipe=recipe, resume=True)
    assert len(contents(path)["scores"]) >= (done + 2) * 8
