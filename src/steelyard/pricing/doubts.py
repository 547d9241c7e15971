"""Why a price may be wrong: each doubt with its number, what follows from it, and what to do about it.

A doubt is raised on evidence that a clean run shows less than once in a thousand, and only where it is large
enough to matter: both bounds stand beside each other below, so that forty good steps raise none.

| doubt | evidence | large enough |
|---|---|---|
| too few steps, one burst | fewer than 30 steps, one step | always |
| correlated completions | timeouts come together in prompts (`durations.intra_prompt`) | rho of 0.05 |
| drift of generation | its trend over steps | 2 % of it over the run |
| contention | steps differ as a whole (`durations.between_steps`) | 5 % of the variance |
| censored tail | the 0.99 quantile is not identified | always |
| mixed machines | more than one judged the run | always |
| rising unscored share | its trend over steps | a point over the run |
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from steelyard.clock import Seconds, in_words
from steelyard.durations import MIN_STEPS, Correlation, Survival, between_steps
from steelyard.pricing.observed import MISSING, UNSCORED, Floats, Observed
from steelyard.pricing.values import Doubt, DoubtKind

CHANCE: Final = 1e-3
"""How often a clean run may show the evidence."""

RHO: Final = 0.05
DRIFT: Final = 0.02
BETWEEN: Final = 0.05
RISE: Final = 0.01
_LEAST_TREND: Final = 8  # steps from which on a trend can be told from noise
_TAIL: Final = 0.99


class Unseen(NamedTuple):
    """A share of the calls of which only is known that they take longer than `beyond_s`."""

    share: float
    beyond_s: Seconds


def doubts(observed: Observed, unseen: Unseen | None, correlation: Correlation | None) -> list[Doubt]:
    """Every doubt that a run gives reason for.

    Parameters
    ----------
    observed
        The run.
    unseen
        The tail of its service times that is not known, if any.
    correlation
        Of its timeouts within prompts; `None` where groups are not known.
    """
    found = [
        _steps(observed),
        _correlated(correlation),
        _drift(observed),
        _contention(observed),
        None if unseen is None else _tail(unseen),
        _machines(observed),
        _unscored(observed),
    ]
    return [doubt for doubt in found if doubt is not None]


def _steps(observed: Observed) -> Doubt | None:
    steps = observed.seen_steps
    if steps > 1 and steps < MIN_STEPS:
        return Doubt(
            DoubtKind.FEW_STEPS,
            steps,
            f"{steps} steps were seen; below {MIN_STEPS} no interval can be trusted, so none is given",
            f"record {MIN_STEPS - steps} more steps",
        )
    if steps > 1:
        return None
    told = "nothing says which step a rollout belongs to" if not observed.stepped else "one step was seen"
    return Doubt(
        DoubtKind.ONE_BURST,
        steps,
        f"{told}: a burst is one observation, however many calls are in it",
        "price a run of several steps; rows tell theirs in a column `step`, a trainer in "
        "`runtime.score(groups, step=...)`",
    )


def _correlated(correlation: Correlation | None) -> Doubt | None:
    if correlation is None or correlation.rho is None:
        return None
    rho = correlation.rho.value
    if rho < RHO or correlation.pvalue >= CHANCE:
        return None
    return Doubt(
        DoubtKind.CORRELATED,
        rho,
        f"timeouts come together within prompts (correlation {rho:.2f}): fewer steps are hit than the rate "
        "says, and whole groups are lost",
        f"look at the {correlation.hit_groups:,} prompts that are hit: `steelyard show LEDGER --why`; a test "
        "that hangs for everybody is no signal",
    )


def _drift(observed: Observed) -> Doubt | None:
    generation = observed.steps.generation_s
    known = np.isfinite(generation)
    if known.sum() < _LEAST_TREND:
        return None
    change, chance = _trend(generation[known])
    share = float(change / generation[known].mean())
    if abs(share) < DRIFT or chance >= CHANCE:
        return None
    return Doubt(
        DoubtKind.DRIFT,
        share,
        f"generation takes {abs(share):.1%} {'more' if share > 0 else 'less'} at the end of the run than at "
        "its beginning: busy time and batch are not what they were",
        "price a shorter stretch of the run, or compare steps in blocks",
    )


def _contention(observed: Observed) -> Doubt | None:
    calls = observed.calls
    usable = ~calls.censored & np.isfinite(calls.service_s) & (calls.service_s > 0)
    known = usable & (calls.group != MISSING)  # hard prompts are no contention
    usable = known if known.any() else usable
    group = calls.group[usable] if known.any() else None
    step = calls.step[usable]
    units = usable.sum() if group is None else len(np.unique(group))
    if not 1 < len(np.unique(step)) < units:
        return None
    between = between_steps(calls.service_s[usable], step, group)
    between_share = float(between.share.value)
    if between_share < BETWEEN or between.pvalue >= CHANCE:
        return None
    return Doubt(
        DoubtKind.CONTENTION,
        between_share,
        f"steps are slow or fast as a whole: {between_share:.0%} of the spread of service times lies "
        "between steps, so the wait is shorter than independent calls would make it",
        "believe the observed barrier, not the independent one; give rewards cores of their own",
    )


def unseen_tail(curve: Survival) -> Unseen | None:
    """What a curve does not tell of its tail, if that reaches below the quantile that has to be known."""
    found = curve.quantile(_TAIL)
    if found.identified or not curve.count:
        return None
    return Unseen(float(curve.survival[-1]) if len(curve.survival) else 1.0, found.above or 0.0)


def _tail(unseen: Unseen) -> Doubt:
    return Doubt(
        DoubtKind.CENSORED_TAIL,
        unseen.share,
        f"{unseen.share:.1%} of the calls are cut, so nothing is known of service times beyond "
        f"{in_words(unseen.beyond_s)}: no longer timeout can be priced",
        "run a sample of the cut calls again with a longer limit, and price that",
    )


def _machines(observed: Observed) -> Doubt | None:
    machine = observed.steps.machine
    known = np.unique(machine[machine != MISSING])
    if len(known) < 2:
        return None
    step, service = observed.calls.step, observed.calls.service_s
    timed = np.isfinite(service)
    served = [service[timed & (machine[step] == one)] for one in known]
    medians = [float(np.median(one)) for one in served if len(one)]
    slower = max(medians) / min(medians) if len(medians) > 1 and min(medians) > 0 else None
    apart = (
        f"; the slowest one's median service time is {slower:.2f} times the fastest one's" if slower else ""
    )
    return Doubt(
        DoubtKind.MIXED_MACHINES,
        len(known),
        f"{len(known)} machines judged the run{apart}",
        "price each machine's steps alone",
    )


def _unscored(observed: Observed) -> Doubt | None:
    rows = observed.rows
    size = np.bincount(rows.step, minlength=len(observed.steps))
    lost = np.bincount(rows.step, rows.verdict == UNSCORED, minlength=len(observed.steps))
    share = lost[size > 0] / size[size > 0]
    if len(share) < _LEAST_TREND:
        return None
    change, chance = _trend(share)
    if change < RISE or chance >= CHANCE:
        return None
    return Doubt(
        DoubtKind.RISING_UNSCORED,
        change,
        f"the share of rollouts that could not be judged rises by {change:.1%} over the run: a policy may be "
        "learning what breaks its judge",
        "steelyard show LEDGER --why lists the reasons; stop before it reaches 5 %",
    )


def _trend(values: Floats) -> tuple[float, float]:
    """Rise over the run on a straight line, and how often noise alone would show it (the slope's t test)."""
    from scipy.special import stdtr  # noqa: PLC0415 - scipy is slow to import, scipy.stats slower

    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(place @ values / (place @ place))
    left = values - values.mean() - slope * place
    error = float(left @ left / (len(values) - 2) / (place @ place)) ** 0.5
    if error <= abs(slope) * 1e-12:  # no noise at all
        return slope * (len(values) - 1), 0.0 if slope else 1.0
    return slope * (len(values) - 1), float(2 * stdtr(len(values) - 2, -abs(slope) / error))
