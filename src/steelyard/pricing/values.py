"""What a price is made of: estimates with their interval, remedies, doubts.

Everything here is a plain value; `report` draws it, `steelyard price --json` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from steelyard.clock import Seconds


class Estimate(NamedTuple):
    """A number, and how far it is known.

    Parameters
    ----------
    value
        The number, in `unit`.
    unit
        `s`, `share`, `$`, `$/h`, `calls`, ...
    low, high
        The 95 % interval; `None` where there is none.
    basis
        What it rests on: `n = 40 steps (5,120 calls)`, `from numbers alone`; where there is no interval,
        also why.
    """

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    basis: str = ""


class Remedy(NamedTuple):
    """Something to change, and what it would save on this run.

    Parameters
    ----------
    name
        One word: `timeout`, `adaptive`, `tail`, `groups`, `batch`, `pool`, `hedge`, `workers`, `unscored`.
    title
        What to do, with the numbers it was computed for: `lower the timeout from 30 s to 8 s`.
    saves
        Seconds per step; `None` where it saves no time, or nothing is known.
    after
        The step it would leave; `None` where busy time is not known.
    costs
        What it costs, or breaks, in a sentence; with a number where there is one.
    rests_on
        What the saving rests on: what was measured, what was assumed.
    refused
        Why no saving can be stated, with bounds if there are any; then `saves` is `None`.
    dollars
        What the saving is worth, in dollars per 1,000 steps; `None` where no price per hour is known.
    """

    name: str
    title: str
    saves: Estimate | None
    after: Estimate | None = None
    costs: str = ""
    rests_on: str = ""
    refused: str | None = None
    dollars: Estimate | None = None


class DoubtKind(Enum):
    """Why a price may be wrong; each has a remedy."""

    FEW_STEPS = "too few steps"
    ONE_BURST = "one burst"
    CORRELATED = "correlated completions"
    DRIFT = "generation drifts"
    CONTENTION = "contention"
    CENSORED_TAIL = "censored tail"
    MIXED_MACHINES = "mixed machines"
    RISING_UNSCORED = "rising unscored share"


class Doubt(NamedTuple):
    """One reason to distrust a price: which, by how much, what follows, and what to do about it."""

    kind: DoubtKind
    number: float
    says: str
    remedy: str


class Suspicion(NamedTuple):
    """Rewards that look like failures written down as numbers: `seen` of `of`, in a sentence."""

    kind: str
    seen: int
    of: int
    says: str


class Quantile(NamedTuple):
    """A quantile of service times; where calls were cut before it, only a lower bound is known."""

    share: float
    estimate: Estimate | None
    above_s: Seconds | None = None
    """The bound, where the quantile is not identified."""


class Curve(NamedTuple):
    """Points of a curve with its band; `marks` are x positions to point at (censored calls, here and now)."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    marks: Sequence[float] = ()


class Cause(NamedTuple):
    """Calls that ended otherwise than by finishing: what ended them, how many, and their summed seconds."""

    cause: str
    calls: int
    share: float
    seconds: Seconds


class StepLine(NamedTuple):
    """One step as it is drawn; `None` where not measured."""

    label: str
    generation_s: Seconds | None
    wait_s: Seconds
    training_s: Seconds | None
    queued_s: Seconds | None
    slowest_s: Seconds | None
    """The longest service time: what the wait would be without queues."""
    cut: int
    calls: int


@dataclass(frozen=True, slots=True)
class Price:
    """What a reward costs a training step.

    Parameters
    ----------
    source, basis
        What was priced; what it rests on (`n = 40 steps (5,120 calls)`).
    batch, group
        Completions per step and per group, in the median.
    measured
        Whether it was computed from observations; else from numbers alone.
    busy, wait, step
        Seconds per step: generation plus training, waiting for rewards, all of it.
    other
        Seconds of it that are neither, such as a weight sync; `None` where they are next to nothing.
    idle, idle_hit
        Share of wall time in which the accelerator waits: of the run (total wait over total wall), and of a
        step that contains a timeout.
    limit_s
        Where calls are cut.
    rate
        Share of calls that reach the limit.
    hit
        Share of steps with at least one such call.
    observed, independent, correlated
        The mean barrier in seconds: as observed; as it would be if calls were independent; if they are
        correlated within a prompt as measured.
    correlation
        Intra-prompt correlation of timeouts.
    knee
        The rate at which 92 % of steps are hit (or another share): above it, shaving the tail buys nothing.
    quantiles, survival
        Service times; Kaplan-Meier.
    knee_curve
        Expected step in seconds (y) by rate of timeouts (x).
    group_hit, corrupted, sign_changed, thin
        Share of groups with a failure; of those whose advantages a failure corrupted as this run voted (from
        numbers alone: as if it voted 0); rows whose advantage changes its sign by that; groups with
        fewer than two votes if failures do not vote.
    zeroed
        Share of groups that would be corrupted if what does not vote here were scored 0.
    exposed, tail_ratio, in_flight, queued
        Of a recorded run: reward time that no work covers, its share of all reward time, the most calls under
        way at once, seconds a call waits for its turn.
    money
        Dollars by name: `per_hour`, `per_step`, `idle_share`, ...
    by_step
        For drawing; of very long runs an even selection.
    causes, remedies, doubts, suspicions
        What ended calls; what to do, the largest saving first; why it may be wrong; zeros that look like
        failures.
    says, notes
        What the source tells; what was not measured and how to measure it.
    """

    source: str
    basis: str
    batch: float
    group: float
    measured: bool
    wait: Estimate | None = None
    busy: Estimate | None = None
    step: Estimate | None = None
    other: Estimate | None = None
    idle: Estimate | None = None
    idle_hit: Estimate | None = None
    limit_s: Seconds | None = None
    rate: Estimate | None = None
    hit: Estimate | None = None
    observed: Estimate | None = None
    independent: Estimate | None = None
    correlated: Estimate | None = None
    correlation: Estimate | None = None
    knee: Estimate | None = None
    quantiles: Sequence[Quantile] = ()
    survival: Curve | None = None
    knee_curve: Curve | None = None
    group_hit: Estimate | None = None
    corrupted: Estimate | None = None
    sign_changed: Estimate | None = None
    zeroed: Estimate | None = None
    thin: Estimate | None = None
    exposed: Estimate | None = None
    tail_ratio: Estimate | None = None
    in_flight: int | None = None
    queued: Estimate | None = None
    money: Mapping[str, Estimate] = field(default_factory=dict)
    by_step: Sequence[StepLine] = ()
    causes: Sequence[Cause] = ()
    remedies: Sequence[Remedy] = ()
    doubts: Sequence[Doubt] = ()
    suspicions: Sequence[Suspicion] = ()
    says: Sequence[str] = ()
    notes: Sequence[str] = ()
