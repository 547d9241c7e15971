"""What it does to training when failures are given the number 0: runs of the tiny model of `examples/grpo`.

    python bench/laundering.py [--quick] [--seeds 10] [--steps 45]     minutes; --quick: two seeds, few steps

Each seed makes a model, shows it completions, and trains it once without failures and, for each share of
failures, twice: failures **unscored** (no vote, advantage 0), and **laundered** (the reward `tests` is 0, as
if the program were wrong). Who is struck is drawn from the seed and the rollout's number, so both runs of a
pair lose the same rollouts, whatever they say. The score is that of all rollouts as an unfailing sandbox
gives it. Then, at steps on the way of the failure-free run: the gradient of one batch with all verdicts, with
some unscored, and with the same ones laundered.

Programs run behind bubblewrap; what was run once with the same tests is remembered (the verdict depends on
nothing else), for a tiny model writes the same programs again and again. Everything else is the library's:
scorer, advantages, step. Intervals: 95 %, resampling seeds, 10,000 times; differences are of pairs.
"""

# ruff: noqa: S311 - chance here is simulated
from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "grpo"))

import tiny
import torch
from rich.console import Console
from rich.table import Table
from trouble import Troubled

from steelyard import Context, Part, Recipe, Rollout, Scored, builtin
from steelyard.errors import RefusedError
from steelyard.integrations.grpo import Grpo, Settings
from steelyard.integrations.scorer import Scorer
from steelyard.runtime import refuse_unattested

SHARES = (0.05, 0.2)
PROMPTS, SIZE, LONGEST, RATE, FORMAT = 8, 8, 28, 2e-3, 0.2
SETTINGS = {"group_size": SIZE, "max_new_tokens": LONGEST, "groups_per_pass": PROMPTS}
LAST = 10  # steps whose mean is what a run comes to
GOAL = 0.7  # share of programs that pass, mean of `LAST` steps
DRAWS = 2  # of failures, for one batch
EVERY = 15  # steps between gradients that are compared


class Remembered:
    """A reward that is asked once about the same completion and columns."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.known: dict[tuple[str, str], Scored] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:
        key = str(rollout.completion), str(rollout.columns["tests"])
        if key not in self.known:
            self.known[key] = await self.inner(rollout, context)
        return self.known[key]


class Arm(NamedTuple):
    """What is done with failures, and how many there are."""

    share: float
    laundered: bool = False


class Curve(NamedTuple):
    """One run: per step the share of programs that pass."""

    seed: int
    arm: Arm
    passed: list[float]


class Apart(NamedTuple):
    """A gradient beside the one with all verdicts."""

    seed: int
    arm: Arm
    step: int
    passed: float
    cosine: float
    error: float


class Caught:
    """In the place of an optimizer: keeps the gradient, and moves nothing."""

    def __init__(self, model: Any) -> None:
        self.param_groups = [{"params": list(model.parameters())}]
        self.gradient = torch.zeros(sum(one.numel() for one in model.parameters()))

    def zero_grad(self) -> None:
        for one in self.param_groups[0]["params"]:
            one.grad = None

    def step(self) -> None:
        self.gradient = torch.cat([one.grad.flatten() for one in self.param_groups[0]["params"]])


class Judged:
    """A scorer under whatever trouble it is told, one after the other."""

    def __init__(self) -> None:
        self.tests = Remembered(builtin("tests", boundary="bubblewrap", cpu_s=0.5))
        self.troubled = Troubled(self.tests, 0)
        format_ = Part(builtin("format:think+answer"), weight=FORMAT)
        self.scorer = Scorer(Recipe((Part(self.troubled), format_)), stop=False)

    def step(self, grpo: Grpo, asked: Sequence[tiny.Task], seed: int, arm: Arm) -> float:
        """Do a step; return the share of its programs that pass."""
        self.troubled.truth.clear()
        self.troubled.seed, self.troubled.failing, self.troubled.laundered = seed, *arm
        grpo.step([one.prompt for one in asked], [{"tests": one.tests} for one in asked])
        return fmean(self.troubled.truth.values())


def gradients(
    model: Any, tokenizer: Any, judged: Judged, asked: Sequence[tiny.Task], *, seed: int, step: int
) -> Iterator[Apart]:
    """The gradient of one batch, with all its verdicts and without some."""
    number = seed * 1_000 + step
    caught = Caught(model)

    def ask(arm: Arm, draw: int) -> tuple[Any, float]:
        settings = Settings(**SETTINGS, max_grad_norm=None)
        caught.gradient = torch.zeros_like(caught.gradient)
        grpo = Grpo(model, tokenizer, caught, judged.scorer, settings=settings, seed=number)
        passed = judged.step(grpo, asked, 10 * number + draw, arm)
        return caught.gradient, passed

    whole, passed = ask(Arm(0.0), 0)
    if not whole.norm():
        return
    for arm in arms()[1:]:
        for draw in range(DRAWS):
            other, _ = ask(arm, draw)
            cosine = torch.nn.functional.cosine_similarity(other, whole, dim=0)
            error = (other - whole).norm() / whole.norm()
            yield Apart(seed, arm, step, passed, float(cosine), float(error))


def one_seed(seed: int, steps: int) -> tuple[list[Curve], list[Apart], int]:
    """Everything of one seed, in a process of its own."""
    torch.set_num_threads(1)
    tokenizer = tiny.tokenizer_of(seed)
    start = tiny.model_of(tokenizer, seed)
    tiny.warm(start, tokenizer, seed)
    judged = Judged()
    curves, found = list[Curve](), list[Apart]()
    with judged.scorer:
        for arm in arms():
            model, tasks, curve = deepcopy(start), tiny.prompts(PROMPTS, seed), Curve(seed, arm, [])
            optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
            settings = Settings(**SETTINGS)
            grpo = Grpo(model, tokenizer, optimizer, judged.scorer, settings=settings, seed=seed)
            for step in range(steps + 1):
                asked = next(tasks)
                if arm.share == 0 and (step % EVERY == 0 or step == steps):
                    found += gradients(model, tokenizer, judged, asked, seed=seed, step=step)
                if step < steps:
                    curve.passed.append(judged.step(grpo, asked, seed, arm))
            curves.append(curve)
    return curves, found, len(judged.tests.known)


def arms() -> list[Arm]:
    return [Arm(0.0), *(Arm(share, laundered) for share in SHARES for laundered in (False, True))]


# --- tables


def interval(values: Sequence[float]) -> str:
    """A mean and its 95 % interval, by resampling."""
    chance = random.Random(0)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(10_000))
    return f"{fmean(values):6.3f}  ({means[250]:.3f} to {means[9749]:.3f})"


def until(passed: Sequence[float], goal: float) -> int:
    """Steps until the mean of the last few reaches a goal; all steps if it never does."""
    for end in range(LAST, len(passed) + 1):
        if fmean(passed[end - LAST : end]) >= goal:
            return end
    return len(passed)


def show_curves(console: Console, curves: Sequence[Curve]) -> None:
    by = {(one.seed, one.arm): one.passed for one in curves}
    seeds = sorted({one.seed for one in curves})
    measures: dict[str, Callable[[Sequence[float]], float]] = {
        f"pass, last {LAST} steps": lambda passed: fmean(passed[-LAST:]),
        "pass, all steps": fmean,
        f"steps until {100 * GOAL:.0f} % pass": lambda passed: float(until(passed, GOAL)),
    }
    for title, measure in measures.items():
        table = Table(title=f"{title}, {len(seeds)} seeds", title_justify="left")
        for head in ("failures", "unscored", "laundered", "laundered less unscored", "of the pairs, worse"):
            table.add_column(head)
        clean = [measure(by[seed, Arm(0.0)]) for seed in seeds]
        table.add_row("none", interval(clean), "", "", "")
        for share in SHARES:
            kept, lost = (
                [measure(by[seed, Arm(share, laundered)]) for seed in seeds] for laundered in (False, True)
            )
            differences = [b - a for a, b in zip(kept, lost, strict=True)]
            worse = sum(one > 0 if title.startswith("steps") else one < 0 for one in differences)
            table.add_row(
                f"{100 * share:.0f} %",
                interval(kept),
                interval(lost),
                interval(differences),
                f"{worse} of {len(seeds)}",
            )
        console.print(table)


def show_gradients(console: Console, found: Sequence[Apart]) -> None:
    seeds = sorted({one.seed for one in found})
    for title, value in (("error", "|g - g0| / |g0|"), ("cosine", "cosine of g and g0")):
        table = Table(title=f"{value}, g0 with all verdicts of the same batch", title_justify="left")
        for head in ("failures", "step", "pass", "unscored", "laundered"):
            table.add_column(head)
        for share in SHARES:
            for step in sorted({one.step for one in found}):
                row = [one for one in found if one.step == step and one.arm.share == share]
                cells = []
                for laundered in (False, True):
                    of_seed = [
                        [
                            getattr(one, title)
                            for one in row
                            if one.seed == seed and one.arm.laundered is laundered
                        ]
                        for seed in seeds
                    ]
                    cells.append(interval([fmean(some) for some in of_seed if some]))
                passed = f"{100 * fmean(one.passed for one in row):.0f} %"
                table.add_row(f"{100 * share:.0f} %", str(step), passed, *cells)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds, few steps: whether it runs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=45)
    options = parser.parse_args()
    seeds, steps = (2, 15) if options.quick else (options.seeds, options.steps)
    console = Console(width=130)
    try:
        refuse_unattested(Recipe((Part(builtin("tests", boundary="bubblewrap")),)))
    except RefusedError as error:
        sys.exit(str(error))
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    began = time.monotonic()
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(min(cores, seeds), mp_context=get_context("spawn")) as pool:
        parts = []
        for part in pool.map(one_seed, range(seeds), [steps] * seeds):
            parts.append(part)
            print(f"seed {len(parts)} of {seeds} after {time.monotonic() - began:.0f} s", file=sys.stderr)
    show_curves(console, [curve for curves, _, _ in parts for curve in curves])
    show_gradients(console, [one for _, found, _ in parts for one in found])
    programs = sum(known for _, _, known in parts)
    console.print(
        f"{steps} steps of {PROMPTS} x {SIZE}; {programs:,} programs run; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
