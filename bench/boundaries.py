"""Each boundary that holds here: candidates per second, CPU per candidate, how long a slot takes to start.

    python bench/boundaries.py [CANDIDATES] [NAME ...]      default 200, and every boundary that holds here

The same made-up candidates for all, by call table and before a judge, through the runtime, as
`bench/candidates.py` makes them; the median of three rounds after one that warms up. CPU is all that the
machine spent meanwhile, from /proc/stat, since containers are nobody's children: run it on a quiet machine.
Bubblewrap is the baseline, measured in the same run.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

from candidates import judge_tests, made_up, mistaken, recipe_of, score, table_tests
from rich.console import Console
from rich.table import Table

from steelyard import Group, Runtime
from steelyard.errors import RefusedError
from steelyard.sandbox import boundary_of

NAMES = ("bubblewrap", "runc", "gvisor", "podman", "docker")
ROUNDS, CANDIDATES = 3, 200


def machine_cpu_s() -> float:
    """CPU seconds that the machine has spent on anything."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, _steal = fields
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


async def started_s(name: str) -> float:
    """Seconds until a boundary that was just made has proven itself in one slot."""
    began = time.perf_counter()
    boundary = boundary_of(name, slots=1)
    try:
        await boundary.attest()
        return time.perf_counter() - began
    finally:
        await boundary.close()


async def measured(name: str, groups: list[Group]) -> tuple[float, float]:
    """Candidates per second, and CPU milliseconds each."""
    boundary = boundary_of(name)
    rates, costs = [], []
    try:
        async with Runtime(recipe_of(boundary), advantage="rloo") as runtime:
            for round_ in range(ROUNDS + 1):
                before_s, began = machine_cpu_s(), time.perf_counter()
                told = await score(runtime, groups)
                took_s = time.perf_counter() - began
                if any(mistaken(*one) for one in told):
                    raise SystemExit(f"{name}: a verdict is not what is known of its candidate")
                if round_:  # the first starts slots
                    rates.append(len(told) / took_s)
                    costs.append((machine_cpu_s() - before_s) / len(told) * 1e3)
    finally:
        await boundary.close()
    return statistics.median(rates), statistics.median(costs)


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    names = [word for word in sys.argv[1:] if not word.isdigit()] or NAMES
    count = (numbers or [CANDIDATES])[0]
    table = Table(
        "boundary", "start s", "by table /s", "CPU ms", "by judge /s", "CPU ms", "of bubblewrap's rate"
    )
    base = 0.0
    for name in names:
        try:
            start_s = asyncio.run(started_s(name))
        except RefusedError as error:
            table.add_row(name, "-", "-", "-", "-", "-", f"does not hold here: {error.reason[:60]}")
            continue
        rate, cost = asyncio.run(measured(name, made_up(count, table_tests)))
        judged, judge_cost = asyncio.run(measured(name, made_up(count, judge_tests)))
        base = base or rate
        table.add_row(
            name,
            f"{start_s:.2f}",
            f"{rate:.0f}",
            f"{cost:.1f}",
            f"{judged:.0f}",
            f"{judge_cost:.1f}",
            f"{rate / base:.0%}",
        )
    Console(width=110).print(table)
    print("\nModal is not measured: its stand-in is no Modal (tests/sandbox/test_modal_boundary.py).")


if __name__ == "__main__":
    main()
