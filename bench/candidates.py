"""Candidates per second, and CPU per candidate, of the reward `tests`, against pytest behind bubblewrap.

    python bench/candidates.py [CANDIDATES]        default 512, in groups of 8

Made-up candidates like those of HumanEval, with 2 to 6 asserts, half of them right. The baseline is the
common recipe, run in the same minute: `bwrap` and `python -m pytest -q -p no:cacheprovider` for each, at
the number of workers at which it is fastest, without other plugins; below 8/s on 2 cores the comparison is
void. Ours are measured through the runtime, warm: by call table (literal asserts) and by a judge that asks
(free assert code), the median of three rounds. Every verdict is compared with what is known of the
candidate. CPU is that of all processes together, from a cgroup of the bench's own where one can be made.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from steelyard import Group, Part, Recipe, Rollout, Runtime, Scored, builtin
from steelyard.sandbox.bubblewrap import Bubblewrap

CANDIDATES, SIZE, ROUNDS = 512, 8, 3
BASELINE, WORKERS, VOID = 64, (1, 2, 3, 4), 8.0


# --- made-up candidates


class Task(NamedTuple):
    """A function to write: a right body, a wrong one, and inputs."""

    name: str
    doc: str
    right: str
    wrong: str
    given: Callable[[random.Random], tuple]
    parameters: str = "xs"


def numbers(chance: random.Random) -> list[int]:
    return [chance.randint(-50, 50) for _ in range(chance.randint(2, 9))]


def words(chance: random.Random) -> str:
    return " ".join("".join(chance.choices("aeioubcdlrst", k=chance.randint(2, 7))) for _ in range(4))


TASKS = (
    Task(
        "running_max",
        "Return the list of rolling maxima of a list of whole numbers.",
        "out = []\nfor x in xs:\n    out.append(x if not out else max(x, out[-1]))\nreturn out",
        "return [max(xs)] * len(xs)",
        lambda chance: (numbers(chance),),
    ),
    Task(
        "count_vowels",
        "Return how many vowels a text has; y counts at the end of the text.",
        "count = sum(1 for c in xs.lower() if c in 'aeiou')\nif xs.lower().endswith('y'):\n    count += 1\n"
        "return count",
        "return len(xs.split())",
        lambda chance: (words(chance),),
    ),
    Task(
        "pairs_to",
        "Return how many pairs of places hold numbers whose sum is n.",
        "seen, pairs = {}, 0\nfor x in xs:\n    pairs += seen.get(n - x, 0)\n"
        "    seen[x] = seen.get(x, 0) + 1\nreturn pairs",
        "return sum(n - x in xs for x in xs) // 2 + len(xs)",
        lambda chance: (numbers(chance), chance.randint(-9, 9)),
        "xs, n",
    ),
    Task(
        "squeeze",
        "Return a text with runs of equal letters replaced by the letter and the run's length.",
        "import itertools\n\nreturn ''.join(f'{c}{len(list(run))}' for c, run in itertools.groupby(xs))",
        "return ''.join(c + str(xs.count(c)) for c in dict.fromkeys(xs)) + '!'",
        lambda chance: ("".join(c * chance.randint(1, 4) for c in chance.choices("abcd", k=5)),),
    ),
    Task(
        "is_prime",
        "Return whether a whole number is prime.",
        "if xs < 2:\n    return False\nfor d in range(2, int(xs**0.5) + 1):\n"
        "    if xs % d == 0:\n        return False\nreturn True",
        "return not (xs >= 2 and all(xs % d for d in range(2, xs)))",
        lambda chance: (chance.randint(0, 200),),
    ),
    Task(
        "by_length",
        "Return the words of a text, the shortest first, equally long ones by alphabet.",
        "def key(word):\n    return len(word), word\n\nreturn sorted(xs.split(), key=key)",
        "return [*sorted(xs.split(), key=len, reverse=True), '']",
        lambda chance: (words(chance),),
    ),
    Task(
        "split_at",
        "Return a dict of the numbers below and not below n.",
        "low = [x for x in xs if x < n]\nreturn {'below': low, 'rest': [x for x in xs if x >= n]}",
        "return {'below': sorted(xs), 'rest': [n]}",
        lambda chance: (numbers(chance), chance.randint(-20, 20)),
        "xs, n",
    ),
    Task(
        "mean_and_spread",
        "Return the mean of numbers and the mean distance from it, as a tuple.",
        "mean = sum(xs) / len(xs)\nreturn mean, sum(abs(x - mean) for x in xs) / len(xs)",
        "return sum(xs) / len(xs), -1.0",
        lambda chance: (numbers(chance),),
    ),
)


def source(task: Task, body: str, number: int) -> str:
    """A candidate as models write them: an import, a docstring, a comment of its own."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    return (
        f"from typing import Any, List, Optional\n\n\ndef {task.name}({task.parameters}):\n"
        f'    """{task.doc}\n\n    Attempt {number}.\n    """\n    # go through the input once\n{lines}'
    )


def expected(task: Task, cases: list[tuple]) -> list[object]:
    space: dict[str, Callable] = {}
    exec(source(task, task.right, 0), space)  # noqa: S102 - our own text
    return [space[task.name](*case) for case in cases]


def table_tests(task: Task, cases: list[tuple]) -> str:
    """Literal asserts: a table of calls."""
    lines = "".join(
        f"    assert {task.name}({', '.join(map(repr, case))}) == {value!r}\n"
        for case, value in zip(cases, expected(task, cases), strict=True)
    )
    return f"from candidate import {task.name}\n\ndef test_{task.name}():\n{lines}"


def judge_tests(task: Task, cases: list[tuple]) -> str:
    """Free assert code with the same checks: what is called depends on what came before."""
    lines = "".join(
        f"    value = {task.name}({', '.join(map(repr, case))})\n"
        f"    seen.append(repr(value))\n    assert value == {value!r} and len(seen) == {number}\n"
        for number, (case, value) in enumerate(zip(cases, expected(task, cases), strict=True), 1)
    )
    return f"from candidate import {task.name}\n\ndef test_{task.name}():\n    seen = []\n{lines}"


def made_up(count: int, tests: Callable[[Task, list[tuple]], str], seed: int = 0) -> list[Group]:
    """Groups of candidates; a rollout's `where` says what it must get."""
    chance = random.Random(seed)  # noqa: S311 - made-up programs
    groups = []
    for ordinal in range(count // SIZE):
        task = TASKS[ordinal % len(TASKS)]
        cases = [task.given(chance) for _ in range(chance.randint(2, 6))]
        columns = {"tests": tests(task, cases)}
        rollouts = []
        for index in range(SIZE):
            right = chance.random() < 0.5
            text = source(task, task.right if right else task.wrong, ordinal * SIZE + index)
            place = ordinal * SIZE + index
            name = f"{'right' if right else 'wrong'}-{place}"
            rollouts.append(Rollout(name, task.doc, text, columns, (ordinal, index), place, name))
        groups.append(Group(str(ordinal), ordinal, rollouts))
    return groups


# --- what it costs


@contextmanager
def cpu_meter() -> Iterator[Callable[[], float]]:
    """CPU seconds of this process and all that descend from it, killed ones too where a cgroup tells."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((where for _, names, where in lines if "cpuacct" in names.split(",")), None)
    unified = (
        Path("/sys/fs/cgroup") / next((w for n, _, w in lines if n == "0"), "/").lstrip("/") / "cpu.stat"
    )
    if own is not None:
        parent = Path("/sys/fs/cgroup/cpuacct") / own.lstrip("/")
        folder = parent / f"steelyard-bench-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            pass
        else:
            try:
                yield lambda: int((folder / "cpuacct.usage").read_text()) / 1e9
            finally:
                (parent / "cgroup.procs").write_text(str(os.getpid()))
                with_patience(folder.rmdir)
            return
    if unified.exists():
        yield lambda: int(unified.read_text().split()[1]) / 1e6
        return
    yield rusage_s


def rusage_s() -> float:
    """The same without what was killed and never waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def with_patience(remove: Callable[[], None]) -> None:
    """Remove a cgroup whose last processes may be ending, and what our slots have left in it."""
    for _ in range(50):
        try:
            remove()
        except OSError:
            time.sleep(0.05)
        else:
            return


class Cost(NamedTuple):
    """What a number of candidates cost."""

    wall_s: float
    cpu_s: float
    count: int
    wrong: int

    @property
    def rate(self) -> float:
        return self.count / self.wall_s

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.count * 1e3


# --- the baseline: pytest behind bubblewrap


def pytest_of(folder: Path, rollout: Rollout) -> bool:
    """Run one candidate by the common recipe; return whether it passed."""
    place = folder / str(rollout.ordinal)
    place.mkdir()
    (place / "candidate.py").write_text(rollout.completion)
    (place / "test_candidate.py").write_text(rollout.columns["tests"])
    done = subprocess.run(
        [
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),  # noqa: S108
            *("--bind", place, "/tmp/box", "--chdir", "/tmp/box", "--unshare-all", "--die-with-parent"),  # noqa: S108
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        ],
        capture_output=True,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    shutil.rmtree(place)
    return done.returncode == 0


def baseline(rollouts: list[Rollout], workers: int, meter: Callable[[], float]) -> Cost:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        began, cpu_s = time.perf_counter(), meter()
        passed = list(pool.map(lambda one: pytest_of(Path(folder), one), rollouts))
        wall_s = time.perf_counter() - began
    wrong = sum(got != one.where.startswith("right") for got, one in zip(passed, rollouts, strict=True))
    return Cost(wall_s, meter() - cpu_s, len(rollouts), wrong)


# --- ours


def recipe_of(boundary: Bubblewrap, cpu_s: float | None = None) -> Recipe:
    settings = {} if cpu_s is None else {"cpu_s": cpu_s}
    return Recipe((Part(builtin("tests", boundary=boundary, **settings)),))


async def score(runtime: Runtime, groups: list[Group]) -> list[tuple[Rollout, object]]:
    """Score groups; return each rollout with its verdict."""
    return [
        pair
        async for scored in runtime.score(groups)
        for pair in zip(scored.group.rollouts, scored.totals, strict=True)
    ]


def mistaken(rollout: Rollout, verdict: object) -> bool:
    """Whether a verdict is not what is known of a candidate."""
    right = isinstance(verdict, Scored) and verdict.value == 1.0
    return not isinstance(verdict, Scored) or right != rollout.where.startswith("right")


async def ours(groups: list[Group], meter: Callable[[], float]) -> Cost:
    boundary = Bubblewrap()
    costs = []
    try:
        async with Runtime(recipe_of(boundary), advantage="rloo") as runtime:
            await score(runtime, groups[:16])  # slots boot
            for _ in range(ROUNDS):
                began, cpu_s = time.perf_counter(), meter()
                told = await score(runtime, groups)
                wall_s = time.perf_counter() - began
                costs.append(Cost(wall_s, meter() - cpu_s, len(told), sum(mistaken(*one) for one in told)))
    finally:
        await boundary.close()
    middle = statistics.median(cost.wall_s for cost in costs)
    chosen = next(cost for cost in costs if cost.wall_s == middle)
    return chosen._replace(
        cpu_s=statistics.median(cost.cpu_s for cost in costs), wrong=max(cost.wrong for cost in costs)
    )


def main(count: int) -> int:
    table = Table(
        "mode", "candidates/s", "times", "CPU ms each", "wrong verdicts", title=f"{count} candidates"
    )
    plain = made_up(count, table_tests)
    with cpu_meter() as meter:
        if shutil.which("bwrap") is None or find_spec("pytest") is None:
            base, note = None, "no baseline: it needs bwrap and pytest"
        else:
            some = [one for group in plain for one in group.rollouts][:BASELINE]
            costs = {workers: baseline(some, workers, meter) for workers in WORKERS}
            best = max(costs, key=lambda workers: costs[workers].rate)
            base = costs[best]
            rates = ", ".join(f"{workers}: {cost.rate:.1f}/s" for workers, cost in costs.items())
            note = f"baseline by workers: {rates}" + (
                "; BELOW 8/s: this comparison is void" if base.rate < VOID else ""
            )
            table.add_row(f"bwrap + pytest, {best} workers", *told(base, base))
        for name, tests in (("call table", table_tests), ("a judge that asks", judge_tests)):
            cost = asyncio.run(ours(made_up(count, tests), meter))
            table.add_row(f"tests, {name}", *told(cost, base))
    console = Console(width=110)
    console.print(table)
    console.print(note)
    return 0


def told(cost: Cost, base: Cost | None) -> list[str]:
    times = "-" if base is None else f"{cost.rate / base.rate:.1f}"
    return [f"{cost.rate:.1f}", times, f"{cost.cpu_ms:.2f}", f"{cost.wrong} of {cost.count}"]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CANDIDATES))
