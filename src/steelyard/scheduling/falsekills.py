"""The rule of a deadline, and what it may cost: pure functions of what earlier steps showed.

A deadline hides what it cuts, so what is known of right programs is a sample with known chances: one that
passed below the deadline was seen for certain, one above it only if its cut was audited, with the share `a`.
Passes are therefore weighted by 1 and 1/a (Horvitz and Thompson 1952), and hangs, which never pass, weigh
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from steelyard.clock import Seconds

LEAST_S: Final = 2.0
"""No deadline is shorter."""

REFERENCE_TIMES: Final = 3.0
"""A program may take this many times as long as the reference solution."""

QUANTILE: Final = 0.99
QUANTILE_TIMES: Final = 1.5
"""And this many times the 0.99 quantile of those that pass."""

CONFIDENCE: Final = 0.95
ACCEPTED: Final = 0.005
"""A learnt deadline is in force while P(cut | would pass) is below this with that confidence."""

NEEDED: Final = 30
"""A level with fewer passes says nothing."""

ALL_AUDITED: Final = 600
"""Every cut is audited until so many passes: without a false kill the bound is then 0.5 %."""

AUDITED: Final = 0.1
"""The share of cuts that is audited afterwards."""


def rule(
    declared_s: Seconds, *, reference_s: Seconds | None = None, quantile_s: Seconds | None = None
) -> Seconds:
    """The deadline: at least 2 s, 3 times the reference, 1.5 times the quantile; at most what was declared.

    Examples
    --------
    >>> rule(30.0, reference_s=0.1, quantile_s=4.0)
    6.0
    >>> rule(1.0, quantile_s=4.0)
    1.0
    """
    wanted = max(LEAST_S, REFERENCE_TIMES * (reference_s or 0.0), QUANTILE_TIMES * (quantile_s or 0.0))
    return min(declared_s, wanted)


def quantile(passes: Iterable[tuple[Seconds, float]]) -> Seconds:
    """The smallest of the values at or below which 0.99 of the weight lies.

    Parameters
    ----------
    passes
        (CPU seconds, weight) of runs that pass, one or more.

    Examples
    --------
    >>> quantile([(1.0, 1.0)] * 98 + [(5.0, 1.0)] * 2)
    5.0
    """
    ordered = sorted(passes)
    due = QUANTILE * math.fsum(weight for _, weight in ordered)
    seen = 0.0
    for value, weight in ordered:
        seen += weight
        if seen >= due * (1 - 1e-12):  # sums of weights round
            return value
    raise ValueError("there is no pass")


class Stratum(NamedTuple):
    """Runs that would pass, as far as they were seen under one share of audits.

    Parameters
    ----------
    share
        The chance with which a cut was audited.
    uncut
        Those that the deadline left alone.
    found
        Those that it cut, or would have, and that were seen to pass.
    """

    share: float
    uncut: int
    found: int


def bound(strata: Sequence[Stratum], confidence: float = CONFIDENCE) -> float:
    """The upper bound of P(cut | would pass).

    Of runs that would pass and are seen, one is a found kill with chance r = p a / (1 - p + p a). The number
    found is a sum of binomials; for a p above what was seen its lower tail is below that of the Poisson
    distribution with the same mean (Hoeffding 1956; Anderson and Samuels 1967), whose exact limit is
    Garwood's (1936). So p solves sum(n_i r_i(p)) = limit(found): Clopper and Pearson's interval (1934), a
    trifle wider, for runs of which a known share is seen.

    Examples
    --------
    >>> round(bound([Stratum(1.0, 600, 0)]), 5)
    0.00499
    >>> bound([Stratum(0.1, 600, 0)]) > 0.04
    True
    >>> bound([])
    1.0
    """
    limit = _garwood(sum(one.found for one in strata), confidence)
    if sum(one.uncut + one.found for one in strata) <= limit:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        mean = sum((one.uncut + one.found) * p * one.share / (1 - p + p * one.share) for one in strata)
        low, high = (p, high) if mean < limit else (low, p)
    return high


@lru_cache(maxsize=4_096)
def _garwood(found: int, confidence: float) -> float:
    """The largest mean of a Poisson variable under which so few are not yet too unlikely."""
    low, high = float(found), found + 10.0 + 5.0 * math.sqrt(found + 1.0)
    for _ in range(60):
        mean = (low + high) / 2
        few = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(found + 1))
        low, high = (mean, high) if few > 1 - confidence else (low, mean)
    return high
