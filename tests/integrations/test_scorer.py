"""A runtime in a thread of its own scores while its owner does something else, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from steelyard import (
    Group,
    Part,
    Recipe,
    RefusedError,
    Rollout,
    RunStoppedError,
    builtin,
    record_steps,
    reward,
)
from steelyard.integrations.scorer import Scorer
from steelyard.priced import read_run

RIGHT = Recipe((Part(builtin("gsm8k")),))


def groups_of(*texts: list[str], first: int = 0) -> list[Group]:
    groups = []
    for number, completions in enumerate(texts, start=first):
        rollouts = [
            Rollout(
                f"{number}-{index}",
                "6 * 3?",
                text,
                {"answer": "18"},
                (number, index),
                number * 8 + index,
                f"group {number}, row {index}",
            )
            for index, text in enumerate(completions)
        ]
        groups.append(Group(number, number, rollouts))
    return groups


async def asleep(completion: str) -> float:
    seconds = float(completion)
    await asyncio.sleep(seconds)
    return seconds


SLEEPING = Recipe((Part(reward(asleep)),))


def test_groups_come_in_order_of_arrival_and_the_result_in_order_of_submission():
    with Scorer(SLEEPING) as scorer:
        pending = scorer.submit(groups_of(["0.3"], ["0.0"], ["0.15"]))
        assert [one.group.ordinal for one in pending] == [1, 2, 0]
        assert [one.group.ordinal for one in pending.result()] == [0, 1, 2]
        assert [one.group.ordinal for one in pending] == [1, 2, 0]  # it may be asked again


def test_scoring_goes_on_while_its_owner_does_something_else():
    with Scorer(SLEEPING) as scorer:
        pending = scorer.submit(groups_of(["0.05"]))
        until = time.monotonic() + 10
        while pending.come.empty() and time.monotonic() < until:
            time.sleep(0.01)  # the owner's own work
        assert not pending.come.empty()


def test_a_deadline_stops_the_run_and_names_what_is_not_done_but_judges_nobody():
    with Scorer(SLEEPING, deadline_s=0.3) as scorer:
        pending = scorer.submit(groups_of(["0.0"], ["60"], ["60"], ["60"], ["60"]))
        with pytest.raises(RunStoppedError, match=r"4 of 5 groups .* 0\.3 s .*group 1, row 0; .* and 1 more"):
            pending.result()
        with pytest.raises(RunStoppedError, match="4 of 5 groups"):  # it stays so
            list(pending)
        assert [one.group.ordinal for one in scorer.submit(groups_of(["0.0"], first=9))] == [9]


def test_whoever_waits_hears_that_the_scorer_was_closed():
    scorer = Scorer(SLEEPING)
    pending = scorer.submit(groups_of(["60"]))
    closing = threading.Timer(0.2, scorer.close)
    closing.start()
    with pytest.raises(RunStoppedError, match=r"called off|closed"):
        pending.result()
    closing.join()
    with pytest.raises(RunStoppedError, match="closed"):
        scorer.submit(groups_of(["0.0"], first=5))
    scorer.close()  # a second time changes nothing


def test_a_thread_that_dies_ends_what_waits_for_it():
    scorer = Scorer(SLEEPING)
    pending = scorer.submit(groups_of(["60"]))

    def die() -> None:
        raise SystemExit("somebody's callback")

    scorer._loop.call_soon_threadsafe(die)
    with pytest.raises(RunStoppedError, match=r"thread has ended .*SystemExit"):
        pending.result()
    with pytest.raises(RunStoppedError, match="nothing is scored any more"):
        scorer.submit(groups_of(["0.0"], first=5))
    scorer.close()


def test_what_stops_the_runtime_is_raised_where_it_is_waited_for():
    failing = Recipe((Part(reward(never)),))
    with Scorer(failing) as scorer, pytest.raises(RunStoppedError, match="no number here"):
        scorer.submit(groups_of(["a"] * 8)).result()
    with Scorer(RIGHT) as scorer:
        assert [float(total) for total in scorer.submit(groups_of(["#### 18"])).result()[0].totals] == [1.2]


async def never(completion: str) -> float:
    raise ValueError("no number here")


def test_every_scorer_begins_a_run_and_records_it(tmp_path: Path):
    for _ in range(2):
        with Scorer(RIGHT, ledger=tmp_path / "run.ledger", name="mine") as scorer:
            scorer.submit(groups_of(["#### 18", "no"]), step=7).result()
    with closing(sqlite3.connect(tmp_path / "run.ledger")) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM scores").fetchone() == (4,)
        assert db.execute("SELECT DISTINCT step FROM steps").fetchall() == [("7",)]


def test_a_refusal_is_raised_where_the_scorer_is_made_and_lets_the_ledger_go(tmp_path: Path):
    with pytest.raises(RefusedError, match="deadline_s"):
        Scorer(RIGHT, deadline_s=0)
    with pytest.raises(RefusedError, match="there is no scheme"):
        Scorer(RIGHT, ledger=tmp_path / "run.ledger", advantage="ppo")
    Scorer(RIGHT, ledger=tmp_path / "run.ledger").close()


def test_a_child_of_fork_is_told_to_make_its_own():
    with Scorer(RIGHT) as scorer:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                scorer.submit(groups_of(["#### 18"]))
            except RunStoppedError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        assert b"forked" in os.read(read, 1_000)
        os.close(read)
        assert scorer.submit(groups_of(["#### 18"])).result()


PROGRAM = """
    import sys
    from steelyard import Group, Part, Recipe, Rollout, reward
    from steelyard.integrations.scorer import Scorer

    def one(completion):
        return 1.0

    if __name__ == "__main__":
        scorer = Scorer(Recipe((Part(reward(one)),)), ledger=sys.argv[1])
        rows = [Rollout(0, "p", "c", {}, (0, 0), 0, "row 0")]
        print([float(t) for t in scorer.submit([Group(0, 0, rows)]).result()[0].totals], flush=True)
        ENDING
"""


@pytest.mark.parametrize(
    "ending", ["", "raise ValueError('mine')", "sys.exit(3)", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_program_that_ends_without_closing_leaves_nothing_behind(tmp_path: Path, ending: str):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM).replace("ENDING", ending))
    ledger = tmp_path / "run.ledger"
    done = subprocess.run(
        [sys.executable, "program.py", str(ledger)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[1.0]\n", done.stderr
    assert ("mine" in done.stderr) == ("mine" in ending)
    with closing(sqlite3.connect(ledger)) as db:  # and conftest looks for processes
        assert db.execute("SELECT count(*) FROM scores").fetchone() == (1,)


def test_what_was_scored_in_an_evaluation_is_no_step_of_training(tmp_path: Path):
    path = tmp_path / "run.ledger"
    with Scorer(RIGHT, ledger=path) as scorer, record_steps(path) as steps:
        for number in range(2):
            with steps.step(number):
                with steps.phase("generation"):
                    pass
                with steps.phase("reward"):
                    scorer.submit(groups_of(["#### 18", "no"], first=2 * number), step=number).result()
                with steps.phase("training"):
                    pass
            seen = groups_of(["no"], first=2 * number + 1)
            scorer.submit(seen, step=f"evaluation at step {number}").result()
    read = read_run(path).observed
    assert list(read.steps.labels) == ["0", "1"]
    assert len(read.rows) == 4
    assert "2 evaluations left out: no training waits for them" in read.says


def test_the_event_loop_of_whoever_trains_is_left_alone():
    async def mine() -> int:
        return 1

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with Scorer(RIGHT) as scorer:
            assert asyncio.get_event_loop() is loop
            assert loop.run_until_complete(mine()) == 1
            assert scorer.submit(groups_of(["#### 18"])).result()
        assert loop.run_until_complete(mine()) == 1
    finally:
        asyncio.set_event_loop(None)
        loop.close()
