"""How far a number is known, when what was drawn is the step.

Calls of one step share its machine, its policy and often its prompts, so 5,120 calls in 40 steps are 40
observations. Where calls are drawn anew one by one, a nominal 95 % interval of the 0.95 quantile covers
the truth less than half of the time. Which method serves which number was chosen by coverage;
`bench/coverage.py` prints it.

| number | function | method |
|---|---|---|
| mean of a quantity of each step | `mean` | Student's t |
| ratio of sums over steps | `ratio` | jackknife over steps, t |
| anything smooth, from its values without each step | `over_steps` | jackknife over steps, t |
| share of calls, however rare | `share` | Clopper and Pearson, at the effective number of calls |
| quantile of pooled, censored times | `quantile` | Woodruff on Kaplan and Meier's curve, adjusted t |

Where few steps carry most of the variance, as with a tail, that variance is known less well than Student's t
assumes. The last two therefore take fewer degrees of freedom: those of a variance whose own variance is
`v^2 (2/(n-1) + k/n)`, `k` the excess kurtosis over steps (Satterthwaite 1946).

Below `MIN_STEPS` steps there is no interval, and `why` says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard.clock import Seconds
from steelyard.durations.columns import Floats, coded, flags, measured, same_length
from steelyard.durations.survival import CONFIDENCE, ROUNDING, Survival, survival
from steelyard.errors import RefusedError

MIN_STEPS: Final = 30
"""With fewer steps there is no interval; `bench/coverage.py` shows what those of 30 steps cover."""

TAIL: Final = 0.5 + CONFIDENCE / 2


class Interval(NamedTuple):
    """A number and its 95 % interval.

    Parameters
    ----------
    value
        The number itself.
    low, high
        The ends; `None` where there is no interval.
    steps
        How many steps it rests on.
    why
        Why an end is missing.
    """

    value: float
    low: float | None
    high: float | None
    steps: int
    why: str = ""


class Located(NamedTuple):
    """A quantile of service times and its 95 % interval.

    Parameters
    ----------
    share
        Of the calls, that take at most so long.
    value
        Seconds; `None` where it is not identified, because too many calls were cut.
    above
        Then the quantile is at least this; else `None`.
    low, high
        The ends. A missing `high` beside a `low`: how far up it may lie is not known.
    steps
        How many steps it rests on.
    why
        Why a value or an end is missing.
    """

    share: float
    value: Seconds | None
    above: Seconds | None
    low: Seconds | None
    high: Seconds | None
    steps: int
    why: str = ""


def mean(values: ArrayLike) -> Interval:
    """The mean of a quantity that each step has once, such as its barrier.

    Parameters
    ----------
    values
        One for each step, shape `(s,)`. For a saving: paired differences, step by step.

    Raises
    ------
    RefusedError
        If there is none, or one is not finite.

    Examples
    --------
    >>> mean([30.0, 2.0]).why
    '2 steps; an interval needs 30'
    """
    return ratio(values, np.ones(len(np.asarray(values))))


def ratio(above: ArrayLike, below: ArrayLike) -> Interval:
    """A ratio of sums over steps, such as total wait over total wall.

    Parameters
    ----------
    above, below
        Its two sums' parts, one for each step, shape `(s,)`.

    Raises
    ------
    RefusedError
        If the lower sum is 0, or a part is not finite.
    """
    top, bottom = measured("above", above, least=-np.inf), measured("below", below)
    same_length(above=top, below=bottom)
    total, whole = top.sum(), bottom.sum()
    if whole <= 0:
        raise RefusedError(
            f"sums to {whole:g} over {len(bottom)} steps",
            where="below",
            remedy="pass steps that have some of it",
        )
    value = float(total / whole)
    if len(top) < MIN_STEPS:
        return Interval(value, None, None, len(top), _few(len(top)))
    rest = whole - bottom
    if (rest <= ROUNDING * whole).any():
        return Interval(value, None, None, len(top), "one step holds all of it")
    return over_steps(value, (total - top) / rest)


def over_steps(
    value: float, without: ArrayLike, *, within: tuple[float, float] = (-np.inf, np.inf)
) -> Interval:
    """A smooth statistic, from what it would be without each single step.

    Parameters
    ----------
    value
        Of all steps.
    without
        Of all steps but the first, but the second, and so on: shape `(s,)`.
    within
        What the statistic cannot leave: the ends are cut there.

    Raises
    ------
    RefusedError
        If a value is not finite.

    Notes
    -----
    Tukey 1958: the jackknife's standard error, Student's t with `s - 1` degrees of freedom. For a mean it
    is the t interval. It is wrong for quantiles and maxima of pooled calls, which are not smooth.
    """
    left = measured("without", without, least=-np.inf)
    measured("value", [value], least=-np.inf)
    steps = len(left)
    if steps < MIN_STEPS:
        return Interval(value, None, None, steps, _few(steps))
    error = ((steps - 1) / steps * ((left - left.mean()) ** 2).sum()) ** 0.5
    half = _student(steps - 1) * error
    low, high = max(within[0], value - half), min(within[1], value + half)
    return Interval(value, float(min(low, value)), float(max(high, value)), steps)


def share(hits: ArrayLike, sizes: ArrayLike) -> Interval:
    """A share of calls, however rare: hit calls over all calls.

    Parameters
    ----------
    hits, sizes
        Hit calls and all calls of each step, shape `(s,)`.

    Raises
    ------
    RefusedError
        If there is no call, or a step has more hits than calls.

    Notes
    -----
    Korn and Graubard 1998: the exact interval of Clopper and Pearson 1934 for as many independent calls as
    would have the variance seen over steps, never more than there were. Where no call or every call was hit
    the steps show no variance, and only the steps count: none in `s` steps leaves up to `1 - 0.025^(1/s)`,
    for calls of one step may all be hit at once.
    """
    hit, size = measured("hits", hits), measured("sizes", sizes)
    same_length(hits=hit, sizes=size)
    if (hit > size).any():
        row = int((hit > size).argmax())
        raise RefusedError(
            f"row {row} has {hit[row]:g} of {size[row]:g}", where="hits", remedy="count hits among the calls"
        )
    hit, size = hit[size > 0], size[size > 0]
    if not len(size):
        raise RefusedError("no step has a call", where="sizes", remedy="pass steps with calls")
    value = float(hit.sum() / size.sum())
    if len(size) < MIN_STEPS:
        return Interval(value, None, None, len(size), _few(len(size)))
    return Interval(value, *clustered(hit, size), len(size))


def clustered(hit: Floats, size: Floats) -> tuple[float, float]:
    """The interval of `share`, for any number of clusters; each has calls."""
    value, clusters = hit.sum() / size.sum(), len(size)
    if hit.sum() <= 0 or hit.sum() >= size.sum() or clusters == 1:
        return exact(value, clusters)
    error, times = _spread((hit - value * size) / (size.sum() - size))  # what leaving a step out changes
    if error <= 0:
        return exact(value, size.sum())
    from scipy.special import ndtri  # noqa: PLC0415 - scipy is slow to import

    return exact(value, min(size.sum(), value * (1 - value) / error**2 * (ndtri(TAIL) / times) ** 2))


def exact(value: float, count: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share of `count` independent calls, not necessarily whole."""
    from scipy.special import betaincinv  # noqa: PLC0415 - scipy is slow to import

    hit, rest = value * count, (1 - value) * count
    low = float(betaincinv(hit, rest + 1, 1 - TAIL)) if value > 0 else 0.0
    high = float(betaincinv(hit + 1, rest, TAIL)) if value < 1 else 1.0
    return min(low, value), max(high, value)


def quantile(
    times: ArrayLike, censored: ArrayLike, step: ArrayLike, share: float, *, curve: Survival | None = None
) -> Located:
    """A quantile of service times, all steps pooled, those that were cut counted as cut.

    Parameters
    ----------
    times, censored
        As in `survival`, shape `(n,)`.
    step
        Which step a call belongs to: any labels, shape `(n,)`.
    share
        Such as 0.95.
    curve
        Of the same calls, if it is there already.

    Raises
    ------
    RefusedError
        For a time that is not finite or negative; for columns of different lengths.

    Notes
    -----
    Woodruff 1952: the interval of the curve at the quantile, read back through the curve. The variance
    there is that of the steps' summed influences on Kaplan and Meier's estimate (Williams 1995), which
    without cuts are each step's share of calls that took no longer.
    """
    taken, cut = measured("times", times), flags("censored", censored)
    codes, steps = coded("step", step)
    same_length(times=taken, censored=cut, step=codes)
    curve = survival(taken, cut) if curve is None else curve
    found = curve.quantile(share)
    if found.value is None:
        why = f"{int(cut.sum()):,} of {len(cut):,} calls were cut" if len(cut) else "no calls"
        return Located(share, None, found.above, None, None, steps, why)
    if steps < MIN_STEPS:
        return Located(share, found.value, None, None, None, steps, _few(steps))
    error, t = _spread(_influences(taken, cut, codes, curve, found.value))
    low = curve.quantile(share - t * error).value if share > t * error else float(taken.min())
    high = curve.quantile(share + t * error).value if share + t * error < 1 else None
    why = "" if high is not None else f"the upper end lies above {curve.longest:g} s, the longest time seen"
    return Located(share, found.value, None, low, high, steps, why)


def _influences(taken: Floats, cut: np.ndarray, codes: np.ndarray, curve: Survival, at: Seconds) -> Floats:
    """What each step adds to the error of the curve at a time: they sum to 0.

    Without cuts before it, `sum(t <= at) - n F` over the step; else the derivative of the product's
    logarithm.
    """
    place = int(np.searchsorted(curve.x, at, side="right")) - 1
    if curve.survival[place] <= 0 and place > 0:
        place -= 1  # where nothing survives there is no variance; the point before has some
    at = curve.x[place]
    within, steps = taken <= at, int(codes.max()) + 1
    if not (curve.cuts < at).any():
        weights = within & ~cut
        hit, size = np.bincount(codes[weights], minlength=steps), np.bincount(codes, minlength=steps)
        return np.asarray((hit - hit.sum() / size.sum() * size) / size.sum())
    left = np.maximum(curve.at_risk - curve.ended, 1)[: place + 1]
    hazard = np.concatenate(([0.0], np.cumsum(curve.ended[: place + 1] / curve.at_risk[: place + 1] / left)))
    order = np.argsort(taken)  # so that looking up walks through memory
    taken, codes, ended = taken[order], codes[order], (within & ~cut)[order]
    index = np.searchsorted(curve.x[: place + 1], taken, side="right")
    adds = -hazard[index]
    adds[ended] += 1 / left[index[ended] - 1]
    return np.asarray(curve.survival[place] * np.bincount(codes, weights=adds, minlength=steps))


def _spread(parts: Floats) -> tuple[float, float]:
    """The standard error of a sum over steps, and the quantile of t that goes with it."""
    count = len(parts)
    centred = parts - parts.mean()
    square = float((centred**2).mean())
    if count < 2 or square <= 0:
        return 0.0, _student(1)
    excess = max(0.0, float((centred**4).mean()) / square**2 - 3)
    error = count * (square / (count - 1)) ** 0.5  # n sum(z^2)/(n - 1): the jackknife's
    return error, _student(2 / (2 / (count - 1) + excess / count))


def _student(freedom: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 - scipy is slow to import

    return float(stdtrit(freedom, TAIL))


def _few(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}; an interval needs {MIN_STEPS}"
