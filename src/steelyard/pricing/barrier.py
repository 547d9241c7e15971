"""The barrier in closed form: what the slowest of `N` verdicts costs a step, from a handful of numbers.

A step is busy for `B` seconds (generation plus training) and then waits for its slowest reward. Most
rewards take a median `m`; a share `p` of them, the rate, runs into the timeout `T`. With that two-point
tail one timeout anywhere makes the whole step wait `T`:

    E[step] = B + m + (T - m) * P(step hit),   P(step hit) = 1 - (1 - p)^N

For any other distribution `F` of service times cut at `T` the mean wait is the mean of a maximum of `N`,
`integral_0^T (1 - F(t)^N) dt` (David and Nagaraja, "Order Statistics", 3rd ed., 3.1), which
`expected_maximum` gives without sampling.

All of this takes rewards for independent. Slow tests belong to the prompt, so timeouts come together:
`rho` is their correlation within a group of `G` (beta-binomial, `durations.correlation`), groups remain
independent, and P(step hit) falls. Contention shared by a step biases the other way, and nothing here
knows about it: `F(t)^N` of times pooled over many steps then predicts too much (`simulate` draws whole
steps instead). Busy time is taken for constant, unless a function says that it scales with the batch.

Times are in seconds. Functions of one number take an array, too, unless they say otherwise. Nothing is
checked here beyond what would make a wrong number: `numbers` refuses bad input by its option.
"""

from __future__ import annotations

from typing import TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from steelyard.clock import Seconds
from steelyard.durations.correlation import none_hit
from steelyard.errors import RefusedError
from steelyard.pricing.observed import Floats

Real = TypeVar("Real", float, Floats)


@overload
def step_hit(rate: float, batch: float, *, group: int = 1, rho: float = 0.0) -> float: ...
@overload
def step_hit(rate: Floats, batch: float, *, group: int = 1, rho: float = 0.0) -> Floats: ...
def step_hit(rate: float | Floats, batch: float, *, group: int = 1, rho: float = 0.0) -> float | Floats:
    """P(a step contains a timeout): `1 - (1-p)^N`, or with correlation `1 - P(group has none)^(N/G)`.

    Parameters
    ----------
    rate
        Share of rewards that reach the timeout.
    batch, group
        Completions per step and per prompt; of a batch that is no multiple the last group counts in part.
    rho
        Correlation of timeouts within a group; at 1 a group is hit as a whole.

    Examples
    --------
    >>> round(step_hit(0.01, 128), 3)
    0.724
    >>> round(step_hit(0.01, 128, group=8, rho=0.3), 3)
    0.465
    """
    chance: Floats = 1 - none_hit(rate, rho, group) ** (batch / group)
    return chance if isinstance(rate, np.ndarray) else float(chance)


def expected_wait(median_s: Seconds, timeout_s: Seconds, hit: Real) -> Real:
    """Mean wait of a step by the two-point tail: `m + (T - m) * P(step hit)`.

    Examples
    --------
    >>> round(24.51 + expected_wait(2, 30, step_hit(0.01, 128)), 1)
    46.8
    """
    return median_s + (timeout_s - median_s) * hit


def knee(share: float, batch: float, *, group: int = 1, rho: float = 0.0) -> float:
    """The rate at which a given share of steps is hit: above it, shaving the tail buys next to nothing.

    Parameters
    ----------
    share
        Of steps, between 0 and 1; the inverse of `step_hit`.

    Notes
    -----
    `1 - (1 - share)^(1/N)`. With correlation it is solved for by Brent's method.

    Examples
    --------
    >>> f"{knee(0.92, 128):.2%} {knee(0.92, 8):.1%}"
    '1.95% 27.1%'
    """
    if rho == 0:
        return float(1 - (1 - share) ** (1 / batch))
    from scipy.optimize import brentq  # noqa: PLC0415 - half a second, and rarely needed

    def beyond(rate: float) -> float:
        return step_hit(float(rate), batch, group=group, rho=rho) - share

    return float(brentq(beyond, 0, 1, xtol=1e-15))


def hits(rate: float, size: int, rho: float = 0.0) -> Floats:
    """P(k of `size` are hit), for k = 0 ... `size`: binomial, or beta-binomial with correlation `rho`.

    Notes
    -----
    Skellam 1948, J. R. Stat. Soc. B 10, 257. With `rho = 1 / (a + b + 1)` each product over the beta's
    `a + i` is one over `rate (1 - rho) + i rho`, which holds at 0, too. Over the `N/G` groups of a batch
    and with P(group hit) for `rate` it counts groups.

    Examples
    --------
    >>> hits(0.5, 2).round(3).tolist(), hits(0.5, 2, 1.0).tolist()
    ([0.25, 0.5, 0.25], [0.5, 0.0, 0.5])
    """
    if rho == 1:
        return np.array([1 - rate, *np.zeros(size - 1), rate])
    turns = np.arange(size, dtype=float)
    with np.errstate(divide="ignore"):  # the logarithm of a rate of 0 or 1
        hit = _log_products(rate * (1 - rho) + turns * rho)
        missed = _log_products((1 - rate) * (1 - rho) + turns * rho)
    orders = _log_products(turns + 1.0)
    every = _log_products(1 - rho + turns * rho)[-1]
    chances: Floats = np.exp(orders[-1] - orders - orders[::-1] + hit + missed[::-1] - every)
    return chances


def hedged_rate(rate: Real, infrastructure: float) -> Real:
    """The rate that is left if a second attempt is raced against each slow one: `(1-f) p + (f p)^2`.

    Parameters
    ----------
    rate
        Share of rewards that reach the timeout.
    infrastructure
        `f`, the share of these whose slowness is the attempt's (queue, spawn, transport), not the
        rollout's own. Independent attempts are assumed. Only re-runs of what was cut can tell.

    Examples
    --------
    >>> [f"{step_hit(hedged_rate(0.01, share), 128):.1%}" for share in (1.0, 0.1, 0.0)]
    ['1.3%', '68.6%', '72.4%']
    """
    return (1 - infrastructure) * rate + (infrastructure * rate) ** 2


def seconds_per_completion(
    busy_s: Seconds,
    median_s: Seconds,
    timeout_s: Seconds,
    rate: float,
    batch: float,
    *,
    to: float,
    group: int = 1,
    rho: float = 0.0,
) -> Seconds:
    """Seconds of a step per completion if the batch went from `batch` to `to`, busy time being linear in it.

    Decode is bandwidth-bound, so a smaller batch costs more still: of one this is a lower bound.

    Examples
    --------
    >>> small, now = (seconds_per_completion(24.51, 2, 30, 0.05, 128, to=to) for to in (8, 128))
    >>> round(small / now, 1)
    3.8
    """
    hit = step_hit(rate, to, group=group, rho=rho)
    return (busy_s * to / batch + expected_wait(median_s, timeout_s, hit)) / to


def expected_maximum(
    times_s: ArrayLike, batch: float, *, weights: ArrayLike | None = None, timeout_s: Seconds = np.inf
) -> Seconds:
    """Mean of the longest of `batch` independent draws: `integral_0^T (1 - F(t)^N) dt`, exactly.

    Parameters
    ----------
    times_s
        Service times, shape `(n,)`, in any order: the distribution `F`.
    batch
        How many are drawn. The maxima of groups, with `N/G` here, give the barrier of correlated groups.
    weights
        How often each time counts, shape `(n,)`; 1 by default. Probabilities do, too.
    timeout_s
        Times above it count as it: what a lower timeout would leave. Never what a higher one would.

    Raises
    ------
    RefusedError
        No times, or one that is not a number: it was not measured.

    Notes
    -----
    Over sorted times `F` is a staircase, so the integral is `sum t_i (F_i^N - F_(i-1)^N)`: the L-statistic
    that is the ideal bootstrap estimate of a maximum (Hutson and Ernst 2000, J. R. Stat. Soc. B 62, 89).

    Examples
    --------
    >>> expected_maximum([1.0, 3.0], 1), expected_maximum([1.0, 3.0], 2)
    (2.0, 2.5)
    >>> round(expected_maximum([2.0, 30.0], 128, weights=[0.99, 0.01]), 2)  # two points
    22.26
    """
    times = np.asarray(times_s, float)
    if not times.size or np.isnan(times).any():
        missing = int(np.isnan(times).sum())
        raise RefusedError(
            f"a barrier needs service times, and {missing} of {times.size} were not measured",
            where="times_s",
            remedy="leave out what is nan, and record at least one call",
        )
    if weights is None:
        ordered, below = np.sort(times), np.arange(1, times.size + 1) / times.size
    else:
        order = np.argsort(times)
        ordered, below = times[order], np.cumsum(np.asarray(weights, float)[order])
        below /= below[-1]
    share = np.diff(below**batch, prepend=0.0)
    return float(np.minimum(ordered, timeout_s) @ share)


def idle_share(wait_s: ArrayLike, busy_s: ArrayLike) -> float:
    """Idle over a run: total wait over total wall. A ratio of sums, never a mean of ratios.

    Parameters
    ----------
    wait_s, busy_s
        Per step, shape `(s,)`, or the expected ones.

    Examples
    --------
    >>> round(idle_share([2.0, 30.0], [24.51, 24.51]), 3)
    0.395
    """
    waited = float(np.sum(wait_s))
    return waited / (waited + float(np.sum(busy_s)))


def idle_of_hit_step(busy_s: Seconds, timeout_s: Seconds) -> float:
    """Idle of a step that contains a timeout, `T / (B + T)`: the most a run can approach, not its idle.

    Examples
    --------
    >>> round(idle_of_hit_step(24.51, 30), 3)
    0.55
    """
    return timeout_s / (busy_s + timeout_s)


def stalled_on_arrival(
    generation_s: Seconds, training_s: Seconds, median_s: Seconds, timeout_s: Seconds, groups: int
) -> Seconds:
    """A step in which one group waits for the timeout, each group's backward running when it is in.

    The training of the other groups hides under the wait: `T_train * (groups-1) / groups`, if the wait
    is as long. See `simulate.trained_on_arrival` for any arrivals, and for what may be hidden at all.

    Examples
    --------
    >>> round(stalled_on_arrival(12.47, 12.20, 2, 30, 16), 1)  # 54.7 without
    43.2
    """
    return generation_s + max(median_s + training_s, timeout_s + training_s / groups)


def expected_on_arrival(
    training_s: Seconds, median_s: Seconds, timeout_s: Seconds, hit: float, groups: int
) -> Seconds:
    """Mean seconds from the end of generation to the end of a step with backward on arrival, two-point tail.

    Parameters
    ----------
    hit
        P(group hit): `step_hit(rate, group, group=group, rho=rho)`.

    Notes
    -----
    With k of the groups late, the last is trained on at `max(m + training, T + k training / groups)`; k is
    binomial.

    Examples
    --------
    >>> waiting = 12.2 + expected_wait(2, 30, step_hit(0.01, 128))
    >>> f"{waiting:.1f} {expected_on_arrival(12.2, 2, 30, step_hit(0.01, 8), 16):.1f}"
    '34.5 26.6'
    """
    late = np.arange(groups + 1)
    ends = np.maximum(median_s + training_s, timeout_s + late * training_s / groups)
    ends[0] = median_s + training_s
    return float(hits(hit, groups) @ ends)


def _log_products(factors: ArrayLike) -> Floats:
    """Logarithms of the products of the first 0, 1, ... factors."""
    return np.concatenate([[0.0], np.cumsum(np.log(factors))])
