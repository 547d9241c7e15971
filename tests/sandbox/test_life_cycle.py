"""Nothing is left: not by a kill, not by an interrupt, not by a cancelled attempt, not by many candidates."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from boundaries import (
    JUDGED,
    RIGHT,
    SLEEPING,
    SNIPPET,
    SPINNING,
    WRONG,
    descriptors,
    group_of,
    in_a_loop,
    opened,
    row,
    scored,
    until,
)
from steelyard.execution import Limits
from steelyard.outcome import Context, Scored
from steelyard.rewards.code import tests as unit_tests
from steelyard.sandbox.boundary import Program
from steelyard.sandbox.bubblewrap import Bubblewrap
from steelyard.sandbox.cgroups import detect
from steelyard.sandbox.processes import tree

pytestmark = pytest.mark.needs("bubblewrap")

PATIENT = Limits(idle_s=60.0)
SOON_S = 20.0
"""By then what is ended is gone on the busiest machine; to wait for what hangs here would take 60 s."""
HANGING = Program("program", b"import time\nprint(1, flush=True)\ntime.sleep(60)\n")


def made_by(pid):
    """Folders and cgroups that carry a process's name."""
    places = [Path(tempfile.gettempdir()), *dict.fromkeys(detect().folders.values())]
    return [path for place in places for path in place.glob(f"steelyard-*-{pid}-*")]


def mounts():
    return len(Path("/proc/self/mounts").read_text().splitlines())


def runs(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


def within(seconds, what):
    give_up = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < give_up:
        time.sleep(0.02)
    return found


def guests(boundary):
    """How many candidates are past their first instruction."""
    slots = boundary._open.slots.pool._all if boundary._open else ()
    return sum(guest.started is not None for slot in slots for guest in slot.guests.values())


class TestARunThatIsEnded:
    @pytest.fixture
    def running(self, tmp_path):
        """`steelyard score`, in the middle of twelve candidates that hang."""
        rows = [
            {"id": n, "prompt": f"? {n % 2}", "completion": (SLEEPING, SPINNING)[n // 2 % 2], "tests": tests}
            for n, tests in enumerate([SNIPPET, JUDGED] * 6)
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        (tmp_path / "own.py").write_text(
            "from steelyard.execution import Limits\n"
            "import steelyard.rewards.code as code\n"
            "code.Limits = lambda: Limits(cpu_s=60.0, idle_s=60.0, wall_s=60.0)\n"
            "from steelyard.cli import main\nmain()\n"
        )
        words = ["score", "rows.jsonl", "--reward", "tests", "--out", "out.jsonl"]
        process = subprocess.Popen(
            [sys.executable, "own.py", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            # of each slot bwrap, its first process and the server; the rest are candidates and judges
            begun = within(40, lambda: process.poll() is not None or len(tree(process.pid)) >= 1 + 4 * 4)
            assert begun, "no candidate ever ran"
            assert process.poll() is None, process.stdout.read()
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    def test_leaves_no_process_and_what_else_it_leaves_the_next_start_sweeps(self, running, number):
        before, family = mounts(), [pid for pid in tree(running.pid) if pid != running.pid]
        assert made_by(running.pid)
        running.send_signal(number)
        running.wait(SOON_S)
        assert within(SOON_S, lambda: not any(runs(pid) for pid in family))
        if number == signal.SIGINT:
            assert made_by(running.pid) == []

        async def start():
            async with opened(slots=1) as boundary:
                await boundary.attest()

        asyncio.run(start())
        assert made_by(running.pid) == []
        assert mounts() <= before
        assert made_by(os.getpid()) == []


class TestClosing:
    @in_a_loop
    async def test_waits_for_none_of_sixteen_candidates_that_hang(self):
        boundary = Bubblewrap(slots=16)
        tasks = [asyncio.ensure_future(boundary.run(HANGING, PATIENT)) for _ in range(16)]
        try:
            await until(lambda: guests(boundary) == 16, 60)
            family = {pid for slot in boundary._open.slots.pool._all for pid in tree(slot.pid)}
            assert len(family) >= 16 * 3
        finally:
            async with asyncio.timeout(SOON_S):
                await boundary.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert within(SOON_S, lambda: not any(runs(pid) for pid in family))
        assert {one.ended.value for one in ended} == {"lost"}
        assert made_by(os.getpid()) == []

    @in_a_loop
    async def test_a_second_time_changes_nothing_and_it_opens_again(self):
        boundary = Bubblewrap(slots=1)
        for _ in range(2):
            assert (await boundary.run(Program("program", b"print(1)"), Limits())).stdout == b"1\n"
            await boundary.close()
            await boundary.close()


class TestCancelling:
    @in_a_loop
    async def test_one_attempt_harms_no_other_and_frees_its_turn(self):
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=PATIENT)
            hanging = [
                asyncio.ensure_future(reward(row(SLEEPING, tests), Context())) for tests in (SNIPPET, JUDGED)
            ]
            await until(lambda: guests(boundary) == 2)
            waiting = asyncio.ensure_future(reward(row(RIGHT), Context()))
            await until(lambda: len(boundary._open.slots._turns._waiting) == 1)
            assert not waiting.done()  # both slots hang
            hanging[0].cancel()
            assert await waiting == Scored(1.0, integrity="isolated")
            assert not hanging[1].done()
            hanging[1].cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            again = await asyncio.gather(
                *(reward(row(RIGHT, tests), Context()) for tests in (SNIPPET, JUDGED) * 3)
            )
            assert again == [Scored(1.0, integrity="isolated")] * 6

    @in_a_loop
    async def test_at_any_moment_gives_nothing_away(self):
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=PATIENT)
            await reward(row(RIGHT), Context())
            await reward(row(RIGHT, JUDGED), Context())
            for turn in range(24):
                task = asyncio.ensure_future(reward(row(RIGHT, (SNIPPET, JUDGED)[turn % 2]), Context()))
                await asyncio.sleep(0.0006 * turn)  # wherever it is by then: every moment must do
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(30):
                both = await asyncio.gather(
                    reward(row(RIGHT), Context()), reward(row(RIGHT, JUDGED), Context())
                )
            assert both == [Scored(1.0, integrity="isolated")] * 2
            await until(lambda: guests(boundary) == 0)
            turns = boundary._open.slots._turns
            await until(lambda: turns._running == 0)


class TestManyCandidates:
    @in_a_loop
    async def test_leave_no_descriptor_no_process_and_no_mount(self):
        every = [
            (RIGHT, SNIPPET),
            (WRONG, SNIPPET),
            ("import os\nos._exit(0)", SNIPPET),
            ("import os\ndef f(x):\n    while True: os.fork()\n", SNIPPET),
            (RIGHT, JUDGED),
            (WRONG, JUDGED),
            ("import os\nos._exit(0)", JUDGED),
            ("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\n" + RIGHT, SNIPPET),
        ]

        def held(boundary):
            made = boundary._open.slots.pool._all
            return descriptors(), sum(len(tree(slot.pid)) for slot in made), mounts()

        async def judge(reward, times):
            for _ in range(times):
                for tests in (SNIPPET, JUDGED):
                    codes = [code for code, kind in every if kind is tests]
                    (group,) = await scored(Kept(reward), group_of(*codes, tests=tests))
                    assert [v.value for v in group.totals][:2] == [1.0, 0.0]

        class Kept:
            """The reward, whose boundary the end of a run leaves open."""

            def __init__(self, reward):
                self._reward = reward

            def __getattr__(self, name):
                return getattr(self._reward, name)

            async def __call__(self, rollout, context):
                return await self._reward(rollout, context)

            async def close(self):
                pass

        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary)
            await judge(reward, 8)
            before = held(boundary)
            await judge(reward, 30)  # 240 candidates
            after = held(boundary)
        assert after[0] <= before[0] + 2, (before, after)
        assert after[1] <= before[1] + 2, (before, after)
        assert after[2] == before[2], (before, after)
        assert made_by(os.getpid()) == []
