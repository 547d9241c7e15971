"""What it costs to have a completion judged in a worker process: transport, by way of asking.

A function that does nothing judges completions of 400 characters with a gold. What remains is packing,
sending, unpacking, clocks, limits and the way back. `one call` judges 64 rollouts in one call (a
function of `completions`); `each` calls the function for every rollout, with a CPU limit and clocks of
its own. Times are the parent's wall time per completion, the least of several rounds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from steelyard.workers import WorkerPool

ROUNDS, MESSAGES, SIZE = 7, 200, 64
HERE = Path(__file__).resolve()


def judge(item: tuple[int, object]) -> object:
    """One rollout or many: full marks."""
    count, _ = item
    return 1.0 if count == 1 else [1.0] * count


def least(times: list[float]) -> float:
    return min(times) / (MESSAGES * SIZE) * 1e6


async def rounds(ask) -> float:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - started)
    return least(times)


async def main() -> None:
    texts = [f"{n}" + "x" * 400 for n in range(SIZE)]
    each = [(1, [text, "4"]) for text in texts]
    whole = (SIZE, {"completions": texts, "answer": ["4"] * SIZE})

    async def here() -> None:
        for _ in range(MESSAGES):
            for item in each:
                judge(item)

    table = Table("completions judged", "us each", title="transport to a worker process and back")
    table.add_row("here, in a loop (baseline)", f"{await rounds(here):.2f}")
    async with WorkerPool(f"{HERE}:judge", size=1, cpu_s=10.0, wall_s=100.0) as pool:

        async def by_message() -> None:
            for _ in range(MESSAGES):
                await pool.call(each)

        async def by_call() -> None:
            for _ in range(MESSAGES):
                await pool.once(whole, times=SIZE)

        table.add_row("one call of 64", f"{await rounds(by_call):.2f}")
        table.add_row("each, 64 in a message", f"{await rounds(by_message):.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
