"""Whether anything grows: many candidates, a tenth of them hostile, and what is held while they are judged.

    python bench/soak.py [CANDIDATES]        default 20,000

Counted along the way: processes below this one, its descriptors, the memory of all of them, mounts and
cgroups. Printed is the slope of each over the last three quarters, per 1,000 candidates, with its 95 %
interval (from the means of 12 blocks, since neighbours resemble each other): zero has to be inside.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

from candidates import SIZE, made_up, mistaken, recipe_of, table_tests
from rich.console import Console
from rich.table import Table

from steelyard import Group, Runtime, Scored
from steelyard.sandbox.bubblewrap import Bubblewrap
from steelyard.sandbox.conformance.cheating import CHEATING
from steelyard.sandbox.conformance.hostile import HOSTILE, SLOW
from steelyard.sandbox.conformance.saboteurs import SABOTEURS
from steelyard.sandbox.conformance.specimen import PASS, SNIPPET

CANDIDATES, EVERY, BLOCKS = 20_000, 200, 12
T_95 = 2.228
"""Student's t for 12 blocks and two parameters."""


def specimens() -> Iterator:
    """Hostile, cheating and sabotaging programs, by turns and for ever."""
    all_kinds = [*HOSTILE, *CHEATING, *SABOTEURS]
    usable = [one for one in all_kinds if one.suite is SNIPPET and one.name not in SLOW]
    return cycle(one for one in usable if len(one.completion) < 100_000)


def groups_of(count: int) -> Iterator[Group]:
    """Groups of made-up candidates, and among them groups with hostile ones and honest siblings."""
    hostile = specimens()
    ordinal = 0
    honest = cycle(made_up(64 * SIZE, table_tests))
    right = "def squares(xs):\n    return [x * x for x in xs]\n"
    while ordinal * SIZE < count:
        group = next(honest)
        mixed = ordinal % 5 == 0  # half of every fifth group: a tenth of all
        rollouts = []
        for index, rollout in enumerate(group.rollouts):
            place = ordinal * SIZE + index
            given = rollout._replace(key=(ordinal, index), ordinal=place, id=place)
            if mixed:
                one = next(hostile) if index < SIZE // 2 else None
                where = f"right-{place}" if one is None else f"hostile: {one.name}"
                given = given._replace(
                    completion=right if one is None else one.completion,
                    columns={"tests": SNIPPET.tests},
                    prompt=SNIPPET.prompt,
                    where=where,
                )
            rollouts.append(given)
        yield Group(str(ordinal), ordinal, rollouts)
        ordinal += 1


def descendants() -> list[int]:
    """The processes below this one."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (process / "stat").read_text().rpartition(") ")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(process.name))
    found, open_ = [], [os.getpid()]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found


def memory_mb(pids: list[int]) -> float:
    """Memory of processes, shared pages divided among those that share them."""
    kib = 0
    for pid in pids:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def cgroups() -> int:
    """The cgroups that this process made, in every hierarchy."""
    count, own = 0, f"-{os.getpid()}-"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, where = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / (names.removeprefix("name=") or "unified") / where.lstrip("/")
        root = root if root.is_dir() else Path("/sys/fs/cgroup") / where.lstrip("/")
        with suppress(OSError):
            count += sum(own in name for _, folders, _ in os.walk(root) for name in folders)
    return count


def held() -> dict[str, float]:
    """What there is now."""
    below = descendants()
    spaces = set()
    for pid in below:
        with suppress(OSError):
            spaces.add(Path(f"/proc/{pid}/ns/mnt").readlink())
    return {
        "processes": len(below),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "memory of this process, MB": memory_mb([os.getpid()]),
        "memory of those below, MB": memory_mb(below),
        "mounts of the host": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "mount namespaces": len(spaces),
        "cgroups": cgroups(),
        "temporary files": sum(f"-{os.getpid()}-" in path.name for path in Path("/tmp").iterdir()),  # noqa: S108
    }


def slope(values: list[float], each: float) -> tuple[float, float]:
    """The slope per 1,000 candidates, and the half width of its interval."""
    size = max(1, len(values) // BLOCKS)
    means = [statistics.fmean(values[at : at + size]) for at in range(0, size * BLOCKS, size)]
    xs = [(at + 0.5) * size * each / 1_000 for at in range(BLOCKS)]
    fit = statistics.linear_regression(xs, means)
    rest = sum((y - fit.slope * x - fit.intercept) ** 2 for x, y in zip(xs, means, strict=True))
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    return fit.slope, T_95 * (rest / (BLOCKS - 2) / spread) ** 0.5


async def soak(count: int) -> tuple[list[dict[str, float]], Counter, list[str]]:
    boundary = Bubblewrap()
    seen: list[dict[str, float]] = []
    ends: Counter = Counter()
    wrong: list[str] = []
    kinds = {one.name: one for one in (*HOSTILE, *CHEATING, *SABOTEURS)}
    done, every = 0, min(EVERY, max(SIZE, count // (8 * BLOCKS)))
    try:
        async with Runtime(recipe_of(boundary, 0.5), advantage="rloo", stop=False) as runtime:
            async for scored in runtime.score(groups_of(count)):
                for rollout, verdict in zip(scored.group.rollouts, scored.totals, strict=True):
                    if rollout.where.startswith("hostile"):
                        end = (verdict.code or PASS) if isinstance(verdict, Scored) else "unscored"
                        ends[end] += 1
                        one = kinds[rollout.where.removeprefix("hostile: ")]
                        if end not in one.comes | {"cpu"}:  # half a second is less than some were given
                            wrong.append(f"{one.name}: {end}")
                    elif mistaken(rollout, verdict):
                        wrong.append(f"{rollout.where}: {verdict}")
                done += len(scored.totals)
                if done >= len(seen) * every:
                    seen.append(held())
    finally:
        await boundary.close()
    return seen, ends, wrong


def main(count: int) -> int:
    began = time.perf_counter()
    seen, ends, wrong = asyncio.run(soak(count))
    wall_s = time.perf_counter() - began
    last = seen[len(seen) // 4 :]
    if len(last) < BLOCKS:
        print(f"bench/soak: {count} candidates are too few for a slope")
        return 1
    table = Table(
        "held", "median", "highest", "slope per 1,000", "zero within", title=f"{count:,} in {wall_s:.0f} s"
    )
    grows = False
    for name in last[0]:
        values = [one[name] for one in last]
        rise, half = slope(values, count / len(seen))
        inside = "yes" if abs(rise) <= half + 1e-9 else "NO"
        grows = grows or (inside == "NO" and rise > 0)
        table.add_row(
            name,
            f"{statistics.median(values):.1f}",
            f"{max(values):.1f}",
            f"{rise:+.3f} ± {half:.3f}",
            inside,
        )
    console = Console(width=110)
    console.print(table)
    after = held()
    console.print(f"afterwards: {after['processes']} processes below, {after['cgroups']} cgroups")
    console.print("hostile ones: " + ", ".join(f"{count} {end}" for end, count in ends.most_common()))
    for text, times in Counter(wrong).most_common(20):
        console.print(f"unexpected, {times} times: {text}")
    return int(grows or bool(wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CANDIDATES))
