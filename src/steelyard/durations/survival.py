"""How long calls take when some were cut: Kaplan and Meier's curve, its quantiles, two samples compared.

A cut call took at least as long as it was let: a right-censored time. Dropping it would make every quantile
too low, and taking the limit for its length would spoil those above. Where ends and cuts share a time the
ends come first, so that a call that was cut at the limit counts as at risk there.

The curve equals `scipy.stats.ecdf(...).sf`, the comparison `scipy.stats.logrank`; the tests hold both to
that. They are computed here because SciPy's take 1 GB for 5 million calls, overflow above 2 million
(`at_risk**2 * (at_risk - 1)` in 64 bits), and know no blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard.clock import Seconds
from steelyard.durations.columns import Floats, Ints, coded, flags, measured, same_length
from steelyard.errors import RefusedError

CONFIDENCE: Final = 0.95

ROUNDING: Final = 1e-9
"""The product of millions of factors is known to so many digits; a step of the curve is far larger."""


class Found(NamedTuple):
    """A quantile, or the bound that is all there is to know.

    Parameters
    ----------
    share
        Of the calls, that take at most so long.
    value
        Seconds; `None` where the curve never falls so far, because calls were cut.
    above
        Then the quantile is at least this: the longest time that was seen. Else `None`.
    """

    share: float
    value: Seconds | None
    above: Seconds | None

    @property
    def identified(self) -> bool:
        """Whether the calls say where it lies."""
        return self.value is not None


class Drawn(NamedTuple):
    """Some points of the curve, with its band and the times at which calls were cut, as columns.

    The band holds point by point, as if calls were independent: it shows how many calls a point rests on.
    Intervals that hold when calls share a step are in `intervals`.
    """

    x: Floats
    survival: Floats
    low: Floats
    high: Floats
    at_risk: Ints
    cuts: Floats


@dataclass(frozen=True, slots=True)
class Survival:
    """The share of calls that take longer than `x`, right after each time at which one ended.

    Parameters
    ----------
    x
        The different times at which calls ended, ascending; shape `(k,)`, as the next three.
    survival
        The curve.
    at_risk, ended
        Calls that took at least `x`; that ended at `x`.
    cuts
        The different times at which calls were cut, ascending; shape `(c,)`.
    count
        Calls in all.
    longest
        The longest time, ended or cut; 0 if there are no calls.
    """

    x: Floats
    survival: Floats
    at_risk: Ints
    ended: Ints
    cuts: Floats
    count: int
    longest: Seconds

    def at(self, times: ArrayLike) -> Floats:
        """The share that takes longer than some times; beyond the last cut it is not known: `nan`."""
        asked = np.asarray(times, float)
        curve = np.concatenate(([1.0], self.survival))[np.searchsorted(self.x, asked, side="right")]
        known = (asked <= self.longest) | (curve <= ROUNDING)
        return np.where(known, curve, np.nan)

    def quantile(self, share: float) -> Found:
        """The time that `share` of the calls stay within."""
        _share(share)
        place = int(np.searchsorted(-self.survival, -(1 - share + ROUNDING)))
        if place < len(self.x):
            return Found(share, float(self.x[place]), None)
        return Found(share, None, self.longest)

    def drawn(self, points: int = 500, *, confidence: float = CONFIDENCE) -> Drawn:
        """The curve with its band at no more than `points` of its points, the ends kept.

        Half of them lie evenly by survival, half by time, so that the tail is there as well.

        Notes
        -----
        The exponential Greenwood formula, as
        `scipy.stats.ecdf(...).sf.confidence_interval(method="log-log")`. Where that is not defined, because
        nothing survives, the band reaches from 0 to its last upper value.
        """
        kept = np.arange(len(self.x))
        if len(kept) > points:
            by_share = np.linspace(-self.survival[0], -self.survival[-1], points // 2)
            by_time = np.linspace(self.x[0], self.x[-1], points // 2)
            places = np.searchsorted(-self.survival, by_share), np.searchsorted(self.x, by_time)
            kept = np.unique(np.append(np.minimum(np.concatenate(places), len(kept) - 1), (0, len(kept) - 1)))
        left = self.at_risk - self.ended
        greenwood = np.cumsum(self.ended / self.at_risk / np.maximum(left, 1))[kept]
        low, high = _band(self.survival[kept], greenwood, confidence)
        cuts = self.cuts[np.linspace(0, max(0, len(self.cuts) - 1), min(points, len(self.cuts))).astype(int)]
        return Drawn(self.x[kept], self.survival[kept], low, high, self.at_risk[kept], cuts)


def survival(times: ArrayLike, censored: ArrayLike) -> Survival:
    """Kaplan and Meier's curve of right-censored times.

    Parameters
    ----------
    times
        Seconds, shape `(n,)`; of a cut call, how long it was let.
    censored
        Whether it was cut, shape `(n,)`.

    Returns
    -------
    Survival
        Without calls: a curve without points, of which no quantile is identified.

    Raises
    ------
    RefusedError
        For a time that is not finite or negative; for columns of different lengths.

    Notes
    -----
    Kaplan and Meier 1958.

    Examples
    --------
    >>> curve = survival([1.0, 2.0, 3.0, 30.0], [False, False, False, True])
    >>> curve.quantile(0.5).value, curve.quantile(0.9)
    (2.0, Found(share=0.9, value=None, above=30.0))
    """
    taken, cut = measured("times", times), flags("censored", censored)
    same_length(times=taken, censored=cut)
    over, let = np.sort(taken[~cut]), np.sort(taken[cut])
    first, x = _different(over)
    ended: Ints = np.diff(first, append=len(over)).astype(np.int64, copy=False)
    at_risk: Ints = len(over) - first + len(let) - np.searchsorted(let, x)
    curve = np.cumprod((at_risk - ended) / at_risk, dtype=np.float64)
    return Survival(x, curve, at_risk, ended, _different(let)[1], len(taken), float(taken.max(initial=0.0)))


def _different(ascending: Floats) -> tuple[Ints, Floats]:
    """Where each different value first stands, and the values."""
    fresh = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=fresh[1:])
    return np.flatnonzero(fresh), ascending[fresh]


def _band(curve: Floats, greenwood: Floats, confidence: float) -> tuple[Floats, Floats]:
    from scipy.special import ndtri  # noqa: PLC0415 - scipy is slow to import

    some = curve > 0
    log = np.log(curve, out=np.full(len(curve), -1.0), where=some)
    factor = np.exp(ndtri(0.5 + confidence / 2) * np.sqrt(greenwood) / -log)
    low, high = np.exp(log * factor), np.exp(log / factor)
    if not some.all():  # the last point only: no variance is left to estimate
        low[-1], high[-1] = 0.0, high[-2] if len(curve) > 1 else 1.0
    return low, high


class LogRank(NamedTuple):
    """Whether two samples take equally long.

    Parameters
    ----------
    statistic
        Standard normal where they do; positive where the second sample ends sooner than it should. 0 where
        no block has calls of both at risk together.
    pvalue
        Two-sided.
    observed, expected
        Ends in the second sample: seen, and to be expected if both were alike.
    blocks
        Blocks in which there was something to compare.
    """

    statistic: float
    pvalue: float
    observed: int
    expected: float
    blocks: int


def log_rank(
    times: ArrayLike, censored: ArrayLike, second: ArrayLike, *, block: ArrayLike | None = None
) -> LogRank:
    """Compare two samples of right-censored times within blocks.

    Parameters
    ----------
    times, censored
        As in `survival`, of both samples.
    second
        Whether a call is of the second sample, shape `(n,)`.
    block
        What calls are comparable within (a step, a machine), shape `(n,)`; without it all are.

    Raises
    ------
    RefusedError
        For a time that is not finite or negative; for columns of different lengths.

    Notes
    -----
    Mantel 1966: in every block, at every time at which a call ended, the ends of the second sample are
    compared with their hypergeometric expectation; differences and variances are summed over blocks. It is
    the square root of the stratified chi-square. With one block, `-scipy.stats.logrank(first,
    second).statistic`.
    """
    from scipy.special import ndtr  # noqa: PLC0415 - scipy is slow to import

    taken, cut, which = measured("times", times), flags("censored", censored), flags("second", second)
    within = np.zeros(len(taken), np.int64) if block is None else coded("block", block)[0]
    same_length(times=taken, censored=cut, second=which, block=within)
    order = np.lexsort((taken, within))
    taken, ends, which, within = taken[order], ~cut[order], which[order], within[order]
    fresh = np.flatnonzero((np.diff(within, prepend=-1) != 0) | (np.diff(taken, prepend=-1.0) != 0))
    if not len(fresh):
        return LogRank(0.0, 1.0, 0, 0.0, 0)
    last = np.searchsorted(within, within[fresh], side="right")  # where the block ends
    seconds = np.concatenate(([0], np.cumsum(which)))
    at_risk = (last - fresh).astype(float)
    of_second = (seconds[last] - seconds[fresh]).astype(float)
    ended = np.add.reduceat(ends.astype(float), fresh)
    share = of_second / at_risk
    spread = ended * share * (1 - share) * (at_risk - ended) / np.maximum(at_risk - 1, 1)
    observed, expected, variance = (
        int((ends & which).sum()),
        float((ended * share).sum()),
        float(spread.sum()),
    )
    statistic = (observed - expected) / variance**0.5 if variance > 0 else 0.0
    compared = len(np.unique(within[fresh][spread > 0]))
    return LogRank(statistic, float(2 * ndtr(-abs(statistic))), observed, expected, compared)


def _share(share: float) -> None:
    if not 0 < share < 1:
        raise RefusedError(
            f"needs a share between 0 and 1, got {share}", where="quantile", remedy="ask for 0.95"
        )
