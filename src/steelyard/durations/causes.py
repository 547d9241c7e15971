"""What cut calls: a count by what ended them, and what re-runs say about why.

Hedging and warm pools repair what the infrastructure did, a longer limit what is slow but right, a shorter
one what hangs. The clock that cut a call cannot tell these apart. Two re-runs of a sample of the cut calls
can: one at the same limit on a quiet slot, one at a long limit.

A call cut just above the limit may fall just below it the next time, with nobody to blame (regression to the
mean). How often chance alone moves a call across the limit is seen in a twin sample: calls that ended shortly
before it, run again at the same limit. What crosses no oftener than the twins is not put down to the
infrastructure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard.clock import Seconds
from steelyard.durations.columns import Bools, coded, flags, measured, same_length
from steelyard.durations.intervals import Interval, share
from steelyard.durations.survival import CONFIDENCE
from steelyard.errors import RefusedError


class Ended(NamedTuple):
    """Calls that one thing ended: how many, their share of all calls, their seconds together."""

    cause: str
    calls: int
    share: float
    seconds: Seconds


def counted(cause: ArrayLike, times: ArrayLike, words: Sequence[str]) -> list[Ended]:
    """Count calls by what ended them, the most first.

    Parameters
    ----------
    cause
        Index into `words`, or -1 for a call that finished; shape `(n,)`.
    times
        Seconds, shape `(n,)`.
    words
        What can end a call.

    Raises
    ------
    RefusedError
        For an index without a word, a time that is not finite.
    """
    index, taken = np.asarray(cause, np.int64), measured("times", times)
    same_length(cause=index, times=taken)
    if len(index) and not (index.min() >= -1 and index.max() < len(words)):
        raise RefusedError(
            f"has {index.min()} to {index.max()} for {len(words)} words",
            where="cause",
            remedy="name every cause",
        )
    calls = np.bincount(index + 1, minlength=len(words) + 1)[1:]
    seconds = np.bincount(index + 1, weights=taken, minlength=len(words) + 1)[1:]
    order = np.argsort(-calls, kind="stable")
    return [
        Ended(words[one], int(calls[one]), float(calls[one] / len(index)), float(seconds[one]))
        for one in order
        if calls[one]
    ]


class Split(NamedTuple):
    """Cut calls by why they were cut; the three shares sum to 1.

    Parameters
    ----------
    infrastructure
        Would have ended within the limit on a quiet slot, beyond what chance does.
    slow
        Would have passed, later.
    hang
        Neither.
    chance
        Of calls that ended shortly before the limit, the share that is cut when run again.
    """

    infrastructure: Interval
    slow: Interval
    hang: Interval
    chance: Interval


def split(
    quiet: ArrayLike,
    longer: ArrayLike,
    twin_cut: ArrayLike,
    *,
    step: ArrayLike | None = None,
    twin_step: ArrayLike | None = None,
) -> Split:
    """Split cut calls by cause, from their re-runs.

    Parameters
    ----------
    quiet
        Whether a cut call passed at the same limit on a quiet slot, shape `(n,)`.
    longer
        Whether it passed at the long limit, shape `(n,)`. What passed on the quiet slot counts as passing
        here.
    twin_cut
        Whether a call that had ended shortly before the limit was cut when run again, shape `(m,)`.
    step, twin_step
        The steps of both; then intervals rest on steps, else on calls.

    Raises
    ------
    RefusedError
        Without cut calls, without twins, or if every twin was cut.

    Notes
    -----
    With the shares s passing on the quiet slot, t of twins cut, h never passing: infrastructure is `(s - t)
    / (1 - t)` (Abbott 1925), at least 0; slow is what is left. Intervals are Wilson's (1927), or those of
    `share` over steps; of the ratio `(1 - s) / (1 - t)` and of its difference to h by the method of
    variance estimates recovery (Donner and Zou 2012), as if the three were independent.
    """
    passed, late, crossed = flags("quiet", quiet), flags("longer", longer), flags("twin_cut", twin_cut)
    same_length(quiet=passed, longer=late)
    if not len(passed) or not len(crossed) or crossed.all():
        raise RefusedError(
            f"{len(passed)} re-runs of cut calls, {len(crossed)} of twins, {int(crossed.sum())} of those cut",
            where="re-runs",
            remedy="run cut calls and calls that ended near the limit again, some of which pass",
        )
    still, chance = _part("quiet", ~passed, step), _part("twin_cut", crossed, twin_step)
    hang = _part("longer", ~(passed | late), step)
    left = _over(still, chance)
    slow = max(0.0, left.value - hang.value)
    ends: tuple[float | None, float | None] = (None, None)
    if left.low is not None and left.high is not None and hang.low is not None and hang.high is not None:
        down = math.hypot(left.value - left.low, hang.high - hang.value)
        up = math.hypot(left.high - left.value, hang.value - hang.low)
        ends = max(0.0, slow - down), min(1.0, slow + up)
    infrastructure = Interval(1 - left.value, _less(left.high), _less(left.low), left.steps, left.why)
    return Split(infrastructure, Interval(slow, *ends, left.steps, left.why or hang.why), hang, chance)


def _over(still: Interval, chance: Interval) -> Interval:
    """The share that is still cut over the share of twins that is not, at most 1 (Donner and Zou 2012, 9)."""
    a, b = still.value, 1 - chance.value
    value = min(1.0, a / b)
    if still.low is None or still.high is None or chance.low is None or chance.high is None:
        return Interval(value, None, None, still.steps, still.why or chance.why)

    def end(edge: float, other: float, sign: int) -> float:
        spare, whole = edge * (2 * a - edge), other * (2 * b - other)
        return (
            (a * b + sign * math.sqrt(max(0.0, (a * b) ** 2 - spare * whole))) / whole if whole > 0 else 1.0
        )

    low, high = end(still.low, 1 - chance.low, -1), end(still.high, 1 - chance.high, 1)
    return Interval(value, min(value, max(0.0, low)), max(value, min(1.0, high)), still.steps)


def _less(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _part(name: str, hits: Bools, step: ArrayLike | None) -> Interval:
    if step is None:
        from scipy.stats import binomtest  # noqa: PLC0415 - scipy.stats takes a second to import

        found = binomtest(int(hits.sum()), len(hits)).proportion_ci(CONFIDENCE, method="wilson")
        return Interval(float(hits.mean()), float(found.low), float(found.high), 0)
    codes, steps = coded("step", step)
    same_length(**{name: hits, "step": codes})
    return share(np.bincount(codes, weights=hits, minlength=steps), np.bincount(codes, minlength=steps))
