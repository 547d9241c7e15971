"""Rows of code, a boundary that does as it is told, and the whole path from rows to verdicts."""

import asyncio
import functools
import time
from contextlib import asynccontextmanager
from pathlib import Path

from steelyard.clock import Clocks
from steelyard.errors import SandboxError
from steelyard.execution import MIB, Ended, Execution, Limits
from steelyard.outcome import Part
from steelyard.rewards import Recipe
from steelyard.rewards.code import tests as unit_tests
from steelyard.rollout import Group, Rollout
from steelyard.runtime import Runtime
from steelyard.sandbox.boundary import Opinion
from steelyard.sandbox.bubblewrap import Bubblewrap

SNIPPET = "from candidate import f\n\ndef test_f():\n    assert f(2) == 4\n    assert f(3) == 9\n"
"""Suite of `f(x) = x * x`, as a call table."""

JUDGED = """
import random
from candidate import f

def test_f():
    for x in [2, random.Random(1).randint(3, 9)]:
        y = f(x)
        assert y == x * x
"""
"""The same, as a suite that needs a judge."""

RIGHT = "def f(x):\n    return x * x\n"
WRONG = "def f(x):\n    return x\n"
SLEEPING = "import time\ndef f(x):\n    time.sleep(60)\n"
SPINNING = "def f(x):\n    while True:\n        pass\n"

SMALL = Limits(
    cpu_s=1.0,
    idle_s=0.4,
    wall_s=20.0,
    memory_bytes=128 * MIB,
    processes=16,
    file_bytes=4 * MIB,
    files=64,
    output_bytes=6 * MIB,
)


def in_a_loop(test):
    """Run a test that is a coroutine; one that hangs fails with its name."""

    @functools.wraps(test)
    def run(*given, **fixtures):
        async def main():
            async with asyncio.timeout(90):
                await test(*given, **fixtures)

        asyncio.run(main())

    return run


async def until(what, seconds=30.0):
    """Wait until something is true, and return it."""
    give_up = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)
    return found


def row(code, tests=SNIPPET, prompt="?", ordinal=0, **columns):
    return Rollout(
        ordinal, prompt, code, {"tests": tests, **columns}, (0, ordinal), ordinal, f"r:{ordinal + 1}"
    )


def group_of(*codes, tests=SNIPPET, **columns):
    rows = [row(code, tests, ordinal=number, **columns) for number, code in enumerate(codes)]
    return Group("g", 0, rows)


async def scored(reward, *groups, **settings):
    """The groups as they leave the whole path."""
    runtime = Runtime(Recipe((Part(reward),)), workers=1, **settings)
    return [one async for one in runtime.score(groups)]


def verdicts(codes, *, tests=SNIPPET, boundary=None, limits=SMALL, columns=None, settings=None, **more):
    """What becomes of codes, in their order, in one group, from beginning to end."""

    async def main():
        async with asyncio.timeout(90):
            reward = unit_tests(boundary or Bubblewrap(slots=8), limits=limits, **more)
            groups = await scored(
                reward, group_of(*codes, tests=tests, **(columns or {})), **(settings or {})
            )
            return list(groups[0].totals)

    return asyncio.run(main())


@asynccontextmanager
async def opened(**settings):
    """A boundary that is closed again."""
    boundary = Bubblewrap(**{"slots": 4, **settings})
    try:
        async with asyncio.timeout(90):
            yield boundary
    finally:
        await boundary.close()


def descriptors():
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


ALL_HOLD = (Execution(Ended.ENOUGH, clocks=Clocks(wall_s=0.1)), Opinion(2, 2))
JUDGE_LOST = (
    Execution(Ended.SIGNAL, 9, clocks=Clocks(wall_s=0.1), evidence={"status": "Killed"}),
    Opinion(lost="it ended with wait status 9"),
)


class FakeBoundary:
    """A boundary whose every run ends as `end(source, how often before)` says, and every check as `judge`."""

    name, identity = "fake", "fake/1"

    def __init__(self, end, judge=lambda _source, _times: ALL_HOLD):
        self.end, self.runs, self.closed, self.attested = end, [], 0, 0
        self.judge, self.checked = judge, []

    async def attest(self):
        self.attested += 1
        return {}

    async def run(self, program, limits, *, listen=None, fresh=False, urgent=False):
        await asyncio.sleep(0)
        times = sum(source == program.source for source, *_ in self.runs)
        self.runs.append((program.source, fresh, urgent, dict(program.header)))
        said = self.end(program.source.decode(), times)
        if isinstance(said, Exception):
            raise said
        for frame in said.replies if listen is not None else ():
            if listen(frame):
                break
        return said

    async def check(self, source, checks, limits, *, fresh=False):
        await asyncio.sleep(0)
        times = sum(source == before for before, *_ in self.checked)
        self.checked.append((source, fresh, checks))
        said = self.judge(source.decode(), times)
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self):
        self.closed += 1


LOST = Execution(Ended.LOST, clocks=Clocks(wall_s=0.1), evidence={"status": "contact was lost"})
WALL = Execution(Ended.LIMIT, limit="wall", clocks=Clocks(wall_s=9.0, censored=True))
NEVER = SandboxError("sandbox:fake", "no slot starts")


def answering(*values):
    """An execution that sent these values."""
    outcomes = ",".join(f'["v",{value}]' for value in values)
    return Execution(
        Ended.EXIT,
        0,
        replies=(b'["loaded"]', f'["r",0,[{outcomes}]]'.encode(), b'["done"]'),
        clocks=Clocks(wall_s=0.1),
    )


CANARY_ANSWERS = answering("[21,21]")
