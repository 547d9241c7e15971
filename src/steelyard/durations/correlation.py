"""Whether calls stand or fall together: within a prompt's group, within a step.

Two questions that a batch of independent calls would not raise. Slow tests belong to a prompt, so timeouts
come in groups (`intra_prompt`), and fewer steps contain one than independence says (`none_hit`). A busy
machine belongs to a step, so a step is slow as a whole (`between_steps`), and the mean barrier is lower
than independence says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard.durations.columns import Floats, Ints, coded, measured, same_length
from steelyard.durations.intervals import MIN_STEPS, TAIL, Interval, clustered, share
from steelyard.errors import RefusedError


def none_hit(rate: ArrayLike, rho: ArrayLike, size: ArrayLike) -> Floats:
    """P(no member of a group is hit): beta-binomial.

    Parameters
    ----------
    rate
        Share of calls that are hit, 0 to 1.
    rho
        Correlation of two calls of a group, 0 to 1.
    size
        Calls of a group. The three are broadcast.

    Raises
    ------
    RefusedError
        For a rate or a correlation outside 0 to 1, a negative size.

    Notes
    -----
    Skellam 1948; as a product, which holds at both ends: `prod_{j<n} ((1-p)(1-rho) + j rho) / (1 - rho + j
    rho)`. A step of N calls contains a hit with `1 - none_hit(p, rho, G)^(N/G)`.

    Examples
    --------
    >>> (1 - none_hit(0.01, [0, 0.1, 0.2, 0.3, 0.5, 1], 8) ** 16).round(3).tolist()
    [0.724, 0.616, 0.533, 0.465, 0.353, 0.149]
    """
    p, r, n = (np.asarray(one, float) for one in (rate, rho, size))
    for name, column, most in (("rate", p, 1.0), ("rho", r, 1.0), ("size", n, np.inf)):
        if not ((column >= 0) & (column <= most)).all():
            raise RefusedError(
                f"needs 0 to {most:g}, got {column}", where=name, remedy="pass a share, a count"
            )
    result = np.where(n > 0, 1 - p, 1.0) * np.ones(r.shape)
    for one in range(1, int(np.max(n, initial=0))):
        result = result * np.where(one < n, ((1 - p) * (1 - r) + one * r) / (1 - r + one * r), 1.0)
    return result


def all_hit(rate: ArrayLike, rho: ArrayLike, size: ArrayLike) -> Floats:
    """P(every member of a group is hit): as `none_hit`. Such a group is dead, not wrong.

    Examples
    --------
    >>> rho = [0, 0.3, 1]
    >>> (1 - none_hit(0.01, rho, 8) - all_hit(0.01, rho, 8)).round(3).tolist()  # partly hit
    [0.077, 0.038, 0.0]
    """
    return none_hit(1 - np.asarray(rate, float), rho, size)


class Correlation(NamedTuple):
    """How timeouts come in groups.

    Parameters
    ----------
    rate
        Share of calls that are hit.
    rho
        Correlation of two calls of a group beyond that of two calls of a step; 0 to 1.
    pvalue
        Of so many pairs of hits within groups, if the hits of each step fell on its calls at random.
    hits, groups, hit_groups
        Counts.
    """

    rate: Interval
    rho: Interval | None
    pvalue: float
    hits: int
    groups: int
    hit_groups: int


def intra_prompt(hits: ArrayLike, sizes: ArrayLike, step: ArrayLike) -> Correlation:
    """Rate and intra-prompt correlation of timeouts, or of any other hit.

    Parameters
    ----------
    hits, sizes
        Hit calls and all calls of each group, shape `(k,)`; sizes may differ.
    step
        The step of each group, shape `(k,)`.

    Returns
    -------
    Correlation
        `rho` is `None` where no hit has a companion in its group: without hits, or in groups of one.

    Raises
    ------
    RefusedError
        If there is no call, or a group has more hits than calls.

    Notes
    -----
    A moment estimator by pairs (Karlin, Cameron and Williams 1981; Ridout, Demétrio and Firth 1999): of a
    hit's companions in its own group the share `q` is hit, of those in other groups of its step the share
    `p`; `rho = (q - p) / (1 - p)`. Comparing within steps keeps a busy step from looking like a hard
    prompt. Where no step has two groups, `p` is taken over the run. The interval is that of `q`, as in
    `share`, with the steps that have hits as clusters. The test is conditional on each step's number of
    hits; few pairs that are nearly independent are Poisson.
    """
    hit, size = measured("hits", hits), measured("sizes", sizes)
    codes, steps = coded("step", step)
    same_length(hits=hit, sizes=size, step=codes)
    if (hit > size).any():
        row = int((hit > size).argmax())
        raise RefusedError(
            f"row {row} has {hit[row]:g} of {size[row]:g}", where="hits", remedy="count hits among the calls"
        )
    in_step, of_step = _sums(codes, steps, hit, size)
    rate = share(in_step, of_step)
    both, companions, pairs = _sums(codes, steps, hit * (hit - 1), hit * (size - 1), size * (size - 1))
    hit_groups = int((hit > 0).sum())
    if not companions.sum():
        return Correlation(rate, None, 1.0, int(hit.sum()), len(hit), hit_groups)
    cross, strangers = _others(hit, size, codes, in_step, of_step)
    beside = float(cross / strangers) if strangers else 0.0
    found = companions > 0
    within = float(both.sum() / companions.sum())
    low, high = None, None
    if rate.low is not None:
        low, high = (_rho(end, beside) for end in clustered(both[found], companions[found]))
    drawn = np.maximum(of_step * (of_step - 1), 1)
    expected = float((in_step * (in_step - 1) * pairs / drawn).sum()) / 2
    rho = Interval(_rho(within, beside), low, high, steps, rate.why)
    return Correlation(rate, rho, _poisson(both.sum() / 2, expected), int(hit.sum()), len(hit), hit_groups)


def _rho(within: float, beside: float) -> float:
    return min(1.0, max(0.0, (within - beside) / (1 - beside))) if beside < 1 else 0.0


def _others(hit: Floats, size: Floats, codes: Ints, in_step: Floats, of_step: Floats) -> tuple[float, float]:
    """Of all hits: companions in other groups that are hit, and those companions."""
    strangers = float((hit * (of_step[codes] - size)).sum())
    if strangers:
        return float((hit * (in_step[codes] - hit)).sum()), strangers
    return float((hit * (hit.sum() - hit)).sum()), float((hit * (size.sum() - size)).sum())


def _poisson(seen: float, expected: float) -> float:
    """P(at least so many)."""
    from scipy.special import pdtrc  # noqa: PLC0415 - scipy is slow to import

    return float(pdtrc(seen - 1, expected)) if seen >= 1 else 1.0


def _sums(codes: Ints, count: int, *columns: Floats) -> list[Floats]:
    return [np.bincount(codes, weights=column, minlength=count).astype(float) for column in columns]


class Between(NamedTuple):
    """How much of the spread of service times is between steps.

    Parameters
    ----------
    share
        Of the variance of their logarithms.
    statistic
        F: 1 where steps differ no more than their groups do.
    pvalue
        Of steps that differ so much by chance.
    """

    share: Interval
    statistic: float
    pvalue: float


def between_steps(times: ArrayLike, step: ArrayLike, group: ArrayLike | None = None) -> Between:
    """Share of the variance of log service times between steps: contention, drift, another policy.

    Parameters
    ----------
    times
        Seconds, shape `(n,)`; cut calls as long as they were let. Zeros count as the shortest that is not.
    step
        The step of each call: any labels, shape `(n,)`.
    group
        The group of each call, unique in the run, shape `(n,)`. With it a step is compared with its groups,
        so that hard prompts do not look like a busy machine; without it, with its calls.

    Raises
    ------
    RefusedError
        With fewer than two steps, or no more groups (calls) than steps.

    Notes
    -----
    Nested analysis of variance for unequal sizes; the variance components and their interval's inversion of
    F by Searle 1971, chapter 11. The interval lets the components within steps stand as they are.
    """
    from scipy.special import fdtrc, fdtri  # noqa: PLC0415 - scipy is slow to import

    taken = measured("times", times)
    codes, steps = coded("step", step)
    inner, groups = (np.arange(len(taken)), len(taken)) if group is None else coded("group", group)
    same_length(times=taken, step=codes, group=inner)
    if not 1 < steps < groups:
        raise RefusedError(
            f"{steps} steps with {groups} {'calls' if group is None else 'groups'} cannot be compared",
            where="step",
            remedy="pass two steps or more, with two groups or more",
        )
    shortest = taken.min(initial=np.inf, where=taken > 0)
    logs = np.log(np.maximum(taken, shortest if np.isfinite(shortest) else 1.0))
    mean_square, residual, per_step, inside = _components(logs - logs.mean(), codes, steps, inner, groups)
    freedom = (steps - 1, groups - steps)
    if residual <= 0:
        alike = mean_square <= 0
        value = Interval(0.0 if alike else 1.0, None, None, steps, "no spread within steps")
        return Between(value, 1.0 if alike else np.inf, 1.0 if alike else 0.0)
    statistic = mean_square / residual

    def part(over: float) -> float:
        between = max(0.0, (statistic / over - 1) * residual / per_step)
        return between / (between + inside)

    if steps < MIN_STEPS:
        value = Interval(part(1.0), None, None, steps, f"{steps} steps; an interval needs {MIN_STEPS}")
    else:
        low, high = part(float(fdtri(*freedom, TAIL))), part(float(fdtri(*freedom, 1 - TAIL)))
        value = Interval(part(1.0), low, high, steps)
    return Between(value, float(statistic), float(fdtrc(*freedom, statistic)))


def _components(
    logs: Floats, codes: Ints, steps: int, inner: Ints, groups: int
) -> tuple[float, float, float, float]:
    """Mean square between steps, what it would be without a difference, weight of one, variance within."""
    total, size = _sums(inner, groups, logs, np.ones(len(logs)))
    of = np.zeros(groups, np.int64)
    of[inner] = codes
    in_step, of_step = _sums(of, steps, total, size)
    calls = len(logs)
    by_group, by_step = float((total**2 / size).sum()), float((in_step**2 / of_step).sum())
    square = (by_step - in_step.sum() ** 2 / calls) / (steps - 1)
    among = (by_group - by_step) / (groups - steps)
    crowd, alone = float((size**2 / of_step[of]).sum()), float((size**2).sum()) / calls
    noise = max(0.0, float((logs**2).sum()) - by_group) / (calls - groups) if calls > groups else 0.0
    of_group = max(0.0, (among - noise) * (groups - steps) / (calls - crowd))
    residual = noise + (crowd - alone) / (steps - 1) * of_group
    per_step = (calls - float((of_step**2).sum()) / calls) / (steps - 1)
    return square, residual, per_step, noise + of_group
