"""Calls of rewards by the million, counted by step.

They are looked at in blocks of whole steps, so that memory does not grow with the length of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from steelyard.errors import RefusedError
from steelyard.measure.intervals import EMPTY, Intervals, joined, most_at_once, union
from steelyard.pricing.observed import Floats, Ints

BLOCK: Final = 1 << 18
"""Calls that are looked at together: about 30 MB of temporaries."""


class CallTimes(NamedTuple):
    """Calls of rewards in columns of shape `(n,)`, where there are too many of them for spans.

    Parameters
    ----------
    step
        Number of the step, as in the spans.
    start, end
        As in `Span`.
    queued_s
        From ready to started; `nan` where not measured.
    """

    step: Ints
    start: Floats
    end: Floats
    queued_s: Floats | None = None


class Tally:
    """What the calls of each step add up to; all columns have the shape of `steps`.

    Parameters
    ----------
    several
        Calls from wherever they were recorded, in any order.

    Raises
    ------
    RefusedError
        If a call has no duration that could be, or the columns differ in length.
    """

    def __init__(self, *several: CallTimes) -> None:
        step, start, end, queued = _by_step([calls for calls in several if len(calls.step)])
        first = np.flatnonzero(np.diff(step, prepend=step[:1] - 1))
        self.steps: Ints = step[first]
        """Numbers of the steps that have calls."""
        self.calls: Ints = np.diff(first, append=len(step))
        self.in_flight: Ints = np.zeros(len(first), np.int64)
        """The most under way at once."""
        self.service_s: Floats = np.zeros(len(first))
        """Seconds from start to end, summed."""
        self.queued_s: Floats = np.zeros(len(first))
        """Seconds from ready to start, summed."""
        merged = [EMPTY]
        for steps, rows in _blocks(first, len(step)):
            key = np.repeat(np.arange(len(self.steps[steps])), self.calls[steps])
            block = Intervals(key, start[rows], end[rows])
            at = first[steps] - rows.start
            self.in_flight[steps] = most_at_once(block, len(at))
            self.service_s[steps] = np.add.reduceat(block.end - block.start, at)
            self.queued_s[steps] = np.nan if queued is None else np.add.reduceat(queued[rows], at)
            under_way = union(block)
            merged.append(under_way._replace(key=under_way.key + steps.start))
        self._merged = joined(*merged)
        begins = np.flatnonzero(np.diff(self._merged.key, prepend=-1))
        self.start: Floats = self._merged.start[begins]
        """When the first call of each step began."""
        self.end: Floats = np.maximum.reduceat(self._merged.end, begins) if len(begins) else np.empty(0)
        """When the last one ended."""

    def under_way(self, numbers: Ints) -> Intervals:
        """When some call was under way; keys are positions in `numbers`, which has all steps in order."""
        return self._merged._replace(key=np.searchsorted(numbers, self.steps)[self._merged.key])

    def spread(self, column: Ints | Floats, numbers: Ints, otherwise: float) -> Floats:
        """A column for `numbers`, with something else where a step has no calls."""
        wide = np.full(len(numbers), otherwise, float)
        wide[np.searchsorted(numbers, self.steps)] = column
        return wide


def _by_step(several: list[CallTimes]) -> tuple[Ints, Floats, Floats, Floats | None]:
    if not several:
        return np.empty(0, np.int64), np.empty(0), np.empty(0), None
    step, start, end = (
        np.asarray(columns[0]) if len(columns) == 1 else np.concatenate(columns)
        for columns in zip(*(calls[:3] for calls in several), strict=True)
    )
    queued = None
    if any(calls.queued_s is not None for calls in several):
        queued = np.concatenate(
            [np.full(len(c.step), np.nan) if c.queued_s is None else c.queued_s for c in several]
        )
    lengths = {len(column) for column in (step, start, end, *([] if queued is None else [queued]))}
    if len(lengths) > 1:
        raise RefusedError(
            f"columns of {sorted(lengths)} values", where="calls", remedy="give one value for each call"
        )
    wrong = ~(np.isfinite(start) & np.isfinite(end) & (start <= end))
    if wrong.any():
        one = int(np.flatnonzero(wrong)[0])
        raise RefusedError(
            f"it goes from {start[one]!r} to {end[one]!r}",
            where=f"a call of step {step[one]}",
            remedy="leave it out, or give it the times at which it began and ended",
        )
    if (np.diff(step) < 0).any():
        order = np.argsort(step, kind="stable")
        step, start, end = step[order], start[order], end[order]
        queued = None if queued is None else queued[order]
    return step, start, end, queued


def _blocks(first: Ints, count: int) -> Iterator[tuple[slice, slice]]:
    """Runs of whole steps with about `BLOCK` calls: which steps, and which calls."""
    at = 0
    while at < len(first):
        until = max(at + 1, int(np.searchsorted(first, first[at] + BLOCK, side="right")) - 1)
        if first[at] + BLOCK >= count:
            until = len(first)
        yield slice(at, until), slice(int(first[at]), int(first[until]) if until < len(first) else count)
        at = until
