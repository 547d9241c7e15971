"""How often a nominal 95 % interval holds the truth: why the intervals of `durations` are what they are.

A step has 128 calls in groups of 8. Service times are lognormal (median 2 s, sigma 0.8), all calls of a step
are multiplied by one lognormal factor (sigma 0.6: contention), hangs come in groups (beta-binomial), and 30 s
cut everything. The truth is computed by quadrature, not simulated. First the methods side by side for 40
steps; those that the library has are marked with a star. Then the library's under other settings: fewer
steps, hangs, hangs that come in groups, no contention.

Behind each coverage stands its binomial standard error; behind that how often the truth lay below and above
the interval. Resampling is slow: it gets a share of the runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtrit

from steelyard.durations import between_steps, intra_prompt, mean, none_hit, quantile, ratio, share

MEDIAN_S, LIMIT_S, BUSY_S = 2.0, 30.0, 24.51
CALLS, GROUP, TOP = 128, 8, 0.95
RESAMPLES = 400

Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Model:
    """What is drawn, and what is true of it."""

    steps: int = 40
    sigma: float = 0.8
    contention: float = 0.6
    rate: float = 0.0
    rho: float = 0.0

    @property
    def label(self) -> str:
        hangs = f", {self.rate:.0%} hangs, rho {self.rho:g}" if self.rate else ""
        return f"{self.steps} steps, sigma {self.sigma:g}, contention {self.contention:g}{hangs}"

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Service times and cuts, shape `(steps, calls)`."""
        shape = (self.steps, CALLS // GROUP, GROUP)
        drawn = self.contention * rng.normal(size=(self.steps, 1, 1)) + self.sigma * rng.normal(size=shape)
        if self.rho:
            scale = (1 - self.rho) / self.rho
            chance = rng.beta(self.rate * scale, (1 - self.rate) * scale, (*shape[:2], 1))
        else:
            chance = np.full((1, 1, 1), self.rate)
        times = np.where(rng.random(shape) < chance, LIMIT_S, np.minimum(LIMIT_S, MEDIAN_S * np.exp(drawn)))
        times = times.reshape(self.steps, CALLS)
        return times, times >= LIMIT_S

    def below(self, time: float) -> float:
        """P(a call ends by then), before the limit."""
        return (1 - self.rate) * float(
            ndtr(math.log(time / MEDIAN_S) / math.hypot(self.sigma, self.contention))
        )

    @property
    def quantile(self) -> float:
        return brentq(lambda time: self.below(time) - TOP, 1e-3, LIMIT_S)

    @property
    def barrier(self) -> float:
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        grid = np.linspace(0, LIMIT_S, 6_001)[1:-1, None]
        ended = ndtr((np.log(grid / MEDIAN_S) - self.contention * nodes) / self.sigma) ** CALLS
        ended *= none_hit(self.rate, self.rho, GROUP) ** (CALLS / GROUP)
        inner = (1 - ended) @ (weights / weights.sum())
        return float((inner.sum() + (1 + inner[-1]) / 2) * LIMIT_S / 6_000)


def naive(times: np.ndarray, rng: np.random.Generator) -> Ends:
    """Calls drawn anew, as if they were independent."""
    pooled = times.ravel()
    picked = [np.quantile(pooled[rng.integers(0, pooled.size, pooled.size)], TOP) for _ in range(RESAMPLES)]
    return tuple(np.quantile(picked, (0.025, 0.975)))


def resampled(times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array(
        [np.quantile(times[rng.integers(0, len(times), len(times))], TOP) for _ in range(RESAMPLES)]
    )


def percentile(times: np.ndarray, rng: np.random.Generator) -> Ends:
    """Steps drawn anew, the plain percentiles."""
    return tuple(np.quantile(resampled(times, rng), (0.025, 0.975)))


def bca(times: np.ndarray, rng: np.random.Generator) -> Ends:
    """Steps drawn anew, bias-corrected and accelerated (Efron 1987)."""
    picked, here, left = resampled(times, rng), np.quantile(times, TOP), without(times)
    pulled = left.mean() - left
    speed = (pulled**3).sum() / (6 * (pulled**2).sum() ** 1.5)
    bias = ndtri(np.clip((picked < here).mean(), 0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))
    ends = bias + np.array([-1.96, 1.96])
    return tuple(np.quantile(picked, ndtr(bias + ends / (1 - speed * ends))))


def without(times: np.ndarray) -> np.ndarray:
    return np.array([np.quantile(np.delete(times, one, axis=0), TOP) for one in range(len(times))])


def jackknife(times: np.ndarray) -> Ends:
    """Of the logarithm, with t."""
    left, steps = np.log(without(times)), len(times)
    half = stdtrit(steps - 1, 0.975) * math.sqrt((steps - 1) * left.var())
    here = np.quantile(times, TOP)
    return here * math.exp(-half), here * math.exp(half)


def woodruff(times: np.ndarray) -> Ends:
    """With as many degrees of freedom as steps less one."""
    within = (times <= np.quantile(times, TOP, method="inverted_cdf")).mean(axis=1)
    half = stdtrit(len(times) - 1, 0.975) * within.std(ddof=1) / math.sqrt(len(times))
    ends = np.clip((TOP - half, TOP + half), 0, 1)
    return tuple(np.quantile(times, ends, method="inverted_cdf"))


class Tally:
    """Counts on which side of an interval the truth lay."""

    def __init__(self, truth: float) -> None:
        self.truth, self.runs, self.below, self.above = truth, 0, 0, 0

    def add(self, ends: Ends) -> None:
        low, high = ends
        self.runs += 1
        self.below += low is not None and self.truth < low
        self.above += high is not None and self.truth > high

    @property
    def covered(self) -> float:
        return 1 - (self.below + self.above) / self.runs

    def cells(self) -> Iterator[str]:
        error = math.sqrt(self.covered * (1 - self.covered) / self.runs)
        yield from (f"{self.runs:,}", f"{self.covered:.3f}", f"{error:.3f}")
        yield from (f"{self.below / self.runs:.3f}", f"{self.above / self.runs:.3f}")


def truths(model: Model) -> dict[str, float]:
    """What a model's numbers really are; those that it has none of, or does not fit, are left out."""
    barrier, cut = model.barrier, 1 - model.below(LIMIT_S)
    known = {
        "mean barrier": barrier,
        "0.95 quantile": model.quantile,
        "idle of the run": barrier / (BUSY_S + barrier),
    }
    if cut > 1e-6:
        known["share of calls cut"] = cut
    if model.contention and not model.rate:
        known["variance between steps"] = model.contention**2 / (model.contention**2 + model.sigma**2)
    if model.rate and not model.contention:
        known["intra-prompt correlation"] = model.rho
    return known


def chosen(model: Model, runs: int, seed: int) -> dict[str, Tally]:
    """The library's intervals of a model."""
    tallies = {name: Tally(truth) for name, truth in truths(model).items()}
    step = np.repeat(np.arange(model.steps), CALLS)
    sizes = np.full(model.steps * CALLS // GROUP, GROUP)
    rng = np.random.default_rng(seed)
    for _ in range(runs):
        times, cuts = model.draw(rng)
        waits, hits = times.max(axis=1), cuts.reshape(-1, GROUP).sum(axis=1)
        found = {
            "mean barrier": mean(waits),
            "0.95 quantile": quantile(times.ravel(), cuts.ravel(), step, TOP),
            "idle of the run": ratio(waits, waits + BUSY_S),
            "share of calls cut": share(cuts.sum(axis=1), np.full(model.steps, CALLS)),
            "variance between steps": between_steps(times.ravel(), step).share,
            "intra-prompt correlation": intra_prompt(hits, sizes, step[::GROUP]).rho,
        }
        for name, tally in tallies.items():
            if (one := found[name]) is not None:
                tally.add((one.low, one.high))
    return tallies


def rejected(model: Model, runs: int, seed: int) -> dict[str, Tally]:
    """Other intervals of the quantile, and how much of the runs each gets."""
    rng = np.random.default_rng(seed)
    methods: dict[str, tuple[Callable[[np.ndarray], Ends], int]] = {
        "Woodruff, n - 1 degrees of freedom": (woodruff, 1),
        "jackknife of the logarithm, t": (jackknife, 1),
        "bootstrap of steps, BCa": (lambda times: bca(times, rng), 5),
        "bootstrap of steps, percentile": (lambda times: percentile(times, rng), 5),
        "bootstrap of calls, percentile": (lambda times: naive(times, rng), 10),
    }
    tallies = {name: Tally(model.quantile) for name in methods}
    for run in range(runs):
        times, _ = model.draw(rng)
        for name, (method, every) in methods.items():
            if run % every == 0:
                tallies[name].add(method(times))
    return tallies


SETTINGS = (
    Model(),
    Model(steps=30),
    Model(rate=0.01),
    Model(rate=0.01, rho=0.3),
    Model(contention=0.0, sigma=0.3, rate=0.01, rho=0.3),
    Model(contention=0.0, sigma=0.3, rate=0.01),
    Model(contention=0.2, sigma=0.3),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    asked = parser.parse_args()
    console = Console(width=120)
    columns = ("runs", "covers", "+-", "truth below", "truth above")
    table = Table(
        "0.95 quantile of pooled service times", *columns, title=Model().label, title_justify="left"
    )
    first = chosen(SETTINGS[0], asked.runs, 1)
    table.add_row("* Woodruff, adjusted degrees of freedom", *first["0.95 quantile"].cells())
    for name, tally in rejected(Model(), asked.runs, 2).items():
        table.add_row(name, *tally.cells())
    console.print(table)
    table = Table("* the library's interval of", "truth", *columns, min_width=118)
    for place, model in enumerate(SETTINGS):
        table.add_section()
        table.add_row(f"[bold]{model.label}")
        for name, tally in (chosen(model, asked.runs, 10 + place) if place else first).items():
            table.add_row(name, f"{tally.truth:.4g}", *tally.cells())
    console.print(table)


if __name__ == "__main__":
    main()
