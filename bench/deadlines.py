"""What deadlines that learn save, and whom they kill, in simulation.

The limiter is the library's own. A program is right (80 %, CPU seconds lognormal with median 0.2 and sigma
0.8), right and slow (5 %, 3 to 8 s), wrong (10 %) or hangs (5 %); 30 s are declared. A step has 128 rollouts
in 16 groups of 8, a group for each test; tests are met once or five times. Beside it stands RollPacker's rule
as published (`min(max(2 s, 1.5 x longest correct run so far), 30 s)` for each test, known from its earlier
meetings) and as released (`min(max(2 x reference, 2 s), 30 s) + 10 s`, the reference a right run).

A training step waits at its barrier for the slowest rollout, a second for each CPU second: what a rule saves
is how much sooner that one ends, from the first step on. Beside it the CPU seconds of a rollout, audits among
them. The last rule is the
shortest deadline that kills at most 0.5 %, had somebody known it. Then the bound on its own and the whole
limiter on heavier tails, each against the truth that the simulation knows. Intervals: 95 % over the
repetitions.
"""

# ruff: noqa: S311 - chance here is simulated
from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from steelyard.outcome import Asked
from steelyard.scheduling.deadlines import Deadlines
from steelyard.scheduling.falsekills import Stratum, bound

DECLARED_S = 30.0
TESTS, GROUPS, SIZE = 1_280, 16, 8  # 80 steps to meet all tests once


class Program(NamedTuple):
    """CPU seconds that a program would take, and whether it is right."""

    cpu_s: float
    right: bool

    @property
    def would_pass(self) -> bool:
        return self.right and self.cpu_s <= DECLARED_S


def the_mix(rng: random.Random) -> Program:
    """The mix that all rules are compared on."""
    kind = rng.random()
    quick_s = rng.lognormvariate(math.log(0.2), 0.8)
    if kind < 0.80:
        return Program(quick_s, True)
    if kind < 0.85:
        return Program(rng.uniform(3.0, 8.0), True)
    return Program(quick_s if kind < 0.95 else math.inf, False)


class Rule(Protocol):
    """Says where a program is cut, and hears what became of a step."""

    def limit(self, step: int, test: int) -> float: ...
    def learn(self, step: int, test: int, program: Program, limit_s: float) -> None: ...
    def end(self) -> None: ...


class Ours:
    """The library's limiter, with audits after each step."""

    def __init__(self, word: str, references: list[float] | None = None) -> None:
        self.deadlines = Deadlines(word)
        self.audits_s = 0.0
        self._references = references
        self._cuts: list[tuple[Asked, Program]] = []
        self._told = 0

    def _asked(self, step: int, test: int) -> Asked:
        reference = None if self._references is None else self._references[test]
        return Asked("tests", "table", str(test), step, DECLARED_S, reference)

    def limit(self, step: int, test: int) -> float:
        return self.deadlines.limit(self._asked(step, test)).cpu_s

    def learn(self, step: int, test: int, program: Program, limit_s: float) -> None:
        asked = self._asked(step, test)
        cut = program.cpu_s > limit_s < DECLARED_S
        if cut:
            self._cuts.append((asked, program))
        passed = program.right and program.cpu_s <= limit_s
        self.deadlines.observe(
            asked, self.deadlines.limit(asked), min(program.cpu_s, limit_s), passed=passed, cut=cut
        )

    def end(self) -> None:
        for asked, program in self._cuts:
            self._told += 1
            deadline = self.deadlines.limit(asked)
            if self.deadlines.wanted(deadline, b"%d" % self._told):
                took_s = min(program.cpu_s, DECLARED_S)
                self.audits_s += took_s
                again = deadline._replace(cpu_s=DECLARED_S, proposed_s=deadline.cpu_s, audit=True)
                self.deadlines.audited(asked, again, took_s, passed=program.would_pass)
        self._cuts.clear()


class Fixed:
    """The declared limit."""

    def limit(self, _step: int, _test: int) -> float:
        return DECLARED_S

    def learn(self, _step: int, _test: int, _program: Program, _limit_s: float) -> None: ...
    def end(self) -> None: ...


class Published:
    """RollPacker's rule as published; the maximum of a step counts from the next meeting on."""

    def __init__(self) -> None:
        self._longest: dict[int, float] = {}
        self._seen: list[tuple[int, float]] = []

    def limit(self, _step: int, test: int) -> float:
        longest_s = self._longest.get(test)
        return DECLARED_S if longest_s is None else min(max(2.0, 1.5 * longest_s), DECLARED_S)

    def learn(self, _step: int, test: int, program: Program, limit_s: float) -> None:
        if program.right and program.cpu_s <= limit_s:
            self._seen.append((test, program.cpu_s))

    def end(self) -> None:
        for test, cpu_s in self._seen:
            self._longest[test] = max(cpu_s, self._longest.get(test, 0.0))
        self._seen.clear()


class Released(Fixed):
    """RollPacker's rule as released."""

    def __init__(self, references: list[float]) -> None:
        self._references = references

    def limit(self, _step: int, test: int) -> float:
        return min(max(2.0 * self._references[test], 2.0), DECLARED_S) + 10.0


class Known(Fixed):
    """The shortest deadline that kills at most 0.5 % of what would pass, if somebody knew it."""

    def limit(self, _step: int, _test: int) -> float:
        return 8.0 - 5.0 * 0.005 * 0.85 / 0.05  # the slow ones are uniform from 3 to 8 s


class Result(NamedTuple):
    """What a rule saved and cost."""

    step: float
    """Seconds that a step waits less than under the declared limit."""
    cpu: float
    """CPU seconds of a rollout, audits among them."""
    audits: float
    """Of these the ones of audits, which are off the path."""
    killed: float
    """The share of programs that would pass and were cut."""


def steps_of(meetings: list[int]) -> Iterator[list[int]]:
    """Tests of each step: all are met once, then those that are met again, and so on."""
    for meeting in range(max(meetings)):
        tests = [test for test, times in enumerate(meetings) if times > meeting]
        for start in range(0, len(tests), GROUPS):
            yield tests[start : start + GROUPS]


def simulate(
    rng: random.Random, rule: Rule, meetings: list[int], draw: Callable[[random.Random], Program]
) -> Result:
    """Run every step under a rule."""
    saved = used = killed = passing = rollouts = steps = 0.0
    for step, tests in enumerate(steps_of(meetings)):
        declared_s = waited_s = 0.0
        for test in tests:
            limit_s = rule.limit(step, test)
            for program in [draw(rng) for _ in range(SIZE)]:
                took_s = min(program.cpu_s, limit_s)
                used += took_s
                waited_s, declared_s = max(waited_s, took_s), max(declared_s, min(program.cpu_s, DECLARED_S))
                passing += program.would_pass
                killed += program.would_pass and program.cpu_s > limit_s
                rule.learn(step, test, program, limit_s)
            rollouts += SIZE
        saved += declared_s - waited_s
        rule.end()
        steps += 1
    audits = rule.audits_s if isinstance(rule, Ours) else 0.0
    return Result(saved / steps, (used + audits) / rollouts, audits / rollouts, killed / passing)


def interval(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """The mean of the repetitions, with its 95 % interval."""
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{scale * statistics.fmean(values):.{digits}f} ± {scale * half:.{digits}f}"


WORKLOADS = {
    "met once": [1] * TESTS,
    "met five times": [5] * TESTS,
    "half of them once, half five times": [1, 5] * (TESTS // 2),
}


def compared(seed: int, name: str, meetings: list[int]) -> dict[str, tuple[Result, Rule]]:
    """One repetition of one workload: every rule meets the same programs."""
    references = random.Random(f"{seed} reference")
    took = [references.lognormvariate(math.log(0.2), 0.8) for _ in meetings]
    rules: dict[str, Rule] = {
        "declared limit": Fixed(),
        "adaptive": Ours("adaptive"),
        "reference": Ours("reference", took),
        "RollPacker, published": Published(),
        "RollPacker, released": Released(took),
        f"known beforehand, {Known().limit(0, 0):.1f} s": Known(),
    }
    return {
        word: (simulate(random.Random(f"{seed} {name}"), rule, meetings, the_mix), rule)
        for word, rule in rules.items()
    }


def comparison(console: Console, repetitions: int) -> None:
    """The table of rules."""
    for name, meetings in WORKLOADS.items():
        runs = [compared(seed, name, meetings) for seed in range(repetitions)]
        rollouts = SIZE * sum(meetings)
        steps = sum(1 for _ in steps_of(meetings))
        table = Table(
            "rule", "a step waits less by, s", "CPU s a rollout", "of it audits",
            "killed, % of what would pass", "bound stated, %", box=None,
            title=f"tests {name} ({repetitions} repetitions of {steps:,} steps, {rollouts:,} rollouts)",
        )  # fmt: skip
        for word in runs[0]:
            results = [run[word][0] for run in runs]
            rule = runs[0][word][1]
            said = "-"
            if isinstance(rule, Ours):
                bounds = [
                    max(one.bound for one in run[word][1].deadlines.standings() if one.in_force)
                    for run in runs
                ]
                said = f"{100 * statistics.fmean(bounds):.2f}"
            table.add_row(
                word,
                interval([one.step for one in results]),
                interval([one.cpu for one in results]),
                interval([one.audits for one in results]),
                interval([one.killed for one in results], 100),
                said,
            )
        console.print(table)
        console.print(f"adaptive: {stands([run['adaptive'][1] for run in runs], steps)}\n")


def stands(rules: list[Rule], steps: int) -> str:
    """Since when deadlines of a kind are in force, and where they are in the end."""
    ours = [rule for rule in rules if isinstance(rule, Ours)]
    first = [next(at for at in range(steps) if rule.limit(at, -1) < DECLARED_S) for rule in ours]
    last = [rule.limit(steps, -1) for rule in ours]
    return f"declared limit in the first {interval(first, 1, 1)} steps, in the end {interval(last)} s"


def coverage(console: Console, repetitions: int) -> None:
    """How often the bound is above the truth, with so many passes seen wholly and so many by audits."""
    table = Table("P(cut | would pass)", "600 wholly", "and 6,000 by 10 %", "12,000 by 10 %", box=None,
                  title=f"the 95 % bound is at or above the truth, of {repetitions:,} draws")  # fmt: skip
    rng = random.Random("coverage")
    for truth in (0.001, 0.003, 0.005, 0.01):
        row = []
        for strata in ([(1.0, 600)], [(1.0, 600), (0.1, 6_000)], [(0.1, 12_000)]):
            held = sum(bound([drawn(rng, share, n, truth) for share, n in strata]) >= truth
                       for _ in range(repetitions))  # fmt: skip
            row.append(f"{100 * held / repetitions:.1f} %")
        table.add_row(f"{100 * truth:.1f} %", *row)
    console.print(table)
    console.print()


def drawn(rng: random.Random, share: float, passes: int, truth: float) -> Stratum:
    """What is seen of so many programs that would pass."""
    killed = binomial(rng, passes, truth)
    return Stratum(share, passes - killed, binomial(rng, killed, share))


def binomial(rng: random.Random, n: int, p: float) -> int:
    """One draw; waiting times between rare ones."""
    if p >= 1.0:
        return n
    count, at = 0, 0
    while True:
        at += int(math.log(1.0 - rng.random()) / math.log1p(-p)) + 1
        if at > n:
            return count
        count += 1


TAIL_STEPS = 160
TAILS = {"sigma 0.8": (0.8, 0.8), "sigma 1.5": (0.3, 1.5), "sigma 2": (0.1, 2.0)}


def tails(console: Console, repetitions: int) -> None:
    """The whole limiter where right programs have heavier tails than the mix."""
    table = Table("right: lognormal", "steps in force %", "killed %", "truth %", "bound %", "bound held %",
                  box=None,
                  title=f"heavier tails, {TAIL_STEPS} steps ({repetitions} repetitions)")  # fmt: skip
    for name, (median_s, sigma) in TAILS.items():
        told = [tail(seed, median_s, sigma) for seed in range(repetitions)]
        truths, bounds = [one[2] for one in told], [one[3] for one in told]
        held = statistics.fmean(truth <= upper for truth, upper in zip(truths, bounds, strict=True))
        table.add_row(
            f"median {median_s:g} s, {name}",
            f"{100 * statistics.fmean(one[0] for one in told):.0f}",
            interval([one[1] for one in told], 100),
            f"{100 * statistics.fmean(truths):.2f}",
            f"{100 * statistics.fmean(bounds):.2f}",
            f"{100 * held:.0f}",
        )
    console.print(table)


def tail(seed: int, median_s: float, sigma: float) -> tuple[float, float, float, float]:
    """(share of steps in force, killed, the true rate of the deadlines that the bound is of, the bound)."""

    def draw(rng: random.Random) -> Program:
        right = rng.random() < 0.85
        return Program(rng.lognormvariate(math.log(median_s), sigma) if right else math.inf, right)

    rule = Ours("adaptive")
    result = simulate(random.Random(seed), rule, [1] * (TAIL_STEPS * GROUPS), draw)
    in_force = statistics.fmean(rule.limit(step, -1) < DECLARED_S for step in range(TAIL_STEPS))
    (one,) = [one for one in rule.deadlines.standings() if one.level == "kind"]
    normal = statistics.NormalDist(math.log(median_s), sigma)
    would = normal.cdf(math.log(DECLARED_S))
    proposed = [
        rule.deadlines.limit(Asked("tests", "table", "-1", step, DECLARED_S)) for step in range(1, TAIL_STEPS)
    ]
    truth = statistics.fmean(1 - normal.cdf(math.log(said.proposed_s)) / would for said in proposed)
    return in_force, result.killed, truth, one.bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--only", choices=("comparison", "coverage", "tails"))
    asked = parser.parse_args()
    console = Console(width=130)
    if asked.only in {None, "comparison"}:
        comparison(console, asked.repetitions)
    if asked.only in {None, "coverage"}:
        coverage(console, 100 * asked.repetitions)
    if asked.only in {None, "tails"}:
        tails(console, asked.repetitions)


if __name__ == "__main__":
    main()
