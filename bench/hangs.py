"""What hanging candidates cost: 512 of which 4 % hang, half of them spinning and half sleeping.

Once with 0.5 CPU seconds each, once with the default; then 64 honest candidates that each use 0.15 CPU
seconds, alone and beside two busy loops per core. Printed are seconds in all, how the hanging ones ended,
and how many honest ones were cut, which must be none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager

from candidates import SIZE, made_up, mistaken, recipe_of, score, table_tests
from rich.console import Console
from rich.table import Table

from steelyard import Group, Runtime
from steelyard.sandbox.bubblewrap import Bubblewrap

COUNT, BUSY = 512, 64
HANGS = ("import time\n\ntime.sleep(1_000)\n", "while True:\n    pass\n")
WORK = """\
import time

ended = time.process_time() + 0.15
while time.process_time() < ended:
    sum(range(1_000))
"""


def with_hangs(groups: list[Group]) -> list[Group]:
    """Let every 25th candidate hang."""
    changed = []
    for group in groups:
        rollouts = []
        for rollout in group.rollouts:
            hangs, turn = rollout.ordinal % 25 == 7, rollout.ordinal // 25 % 2
            rollouts.append(
                rollout._replace(where=f"wrong: {'spins' if turn else 'sleeps'}", completion=HANGS[turn])
                if hangs
                else rollout
            )
        changed.append(group._replace(rollouts=rollouts))
    return changed


def busy(groups: list[Group]) -> list[Group]:
    """Let every candidate work for a while before it is asked."""
    return [
        group._replace(rollouts=[one._replace(completion=WORK + one.completion) for one in group.rollouts])
        for group in groups
    ]


@contextmanager
def hog():
    """Two busy loops per core."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def measure(groups: list[Group], cpu_s: float | None) -> tuple[float, Counter, int, int]:
    boundary = Bubblewrap()
    try:
        async with Runtime(recipe_of(boundary, cpu_s), advantage="rloo", stop=False) as runtime:
            await score(runtime, made_up(16 * SIZE, table_tests, seed=1))  # slots boot
            began = time.perf_counter()
            verdicts = await score(runtime, groups)
            wall_s = time.perf_counter() - began
    finally:
        await boundary.close()
    hanging = Counter(getattr(v, "code", "unscored") for r, v in verdicts if ":" in r.where)
    honest = [pair for pair in verdicts if ":" not in pair[0].where]
    cut = sum(getattr(v, "code", "unscored") not in (None, "wrong_answer") for _, v in honest)
    return wall_s, hanging, cut, sum(mistaken(*pair) for pair in honest)


def main() -> int:
    table = Table(
        "candidates", "CPU limit", "beside it", "seconds", "hanging ones", "honest cut", "wrong verdicts"
    )
    hanging, working = with_hangs(made_up(COUNT, table_tests)), busy(made_up(BUSY, table_tests))
    plans = (
        (f"{COUNT}, 4 % hang", hanging, 0.5, False),
        (f"{COUNT}, 4 % hang", hanging, None, False),
        (f"{COUNT}, 4 % hang", hanging, None, True),
        (f"{BUSY} of 0.15 CPU-s", working, None, False),
        (f"{BUSY} of 0.15 CPU-s", working, None, True),
    )
    for name, groups, cpu_s, beside in plans:
        with ExitStack() as stack:
            if beside:
                stack.enter_context(hog())
            wall_s, ends, cut, wrong = asyncio.run(measure(groups, cpu_s))
        said = ", ".join(f"{count} {code}" for code, count in ends.most_common()) or "-"
        limit = "default" if cpu_s is None else f"{cpu_s:g} s"
        table.add_row(
            name, limit, "a CPU hog" if beside else "nothing", f"{wall_s:.2f}", said, str(cut), str(wrong)
        )
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
