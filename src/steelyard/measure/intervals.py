"""Arithmetic of intervals in time: unions, holes and overlaps, for many keys at once and without a loop.

A key is whatever must not be mixed: a step, a lane within a step. The intervals of all keys are laid end to
end on one line (`_Folded`), so that one running maximum serves all of them. Intervals are half open: one
that ends when the next begins does not overlap it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


class Intervals(NamedTuple):
    """Intervals in columns of shape `(n,)`; start and end in seconds."""

    key: Ints
    start: Floats
    end: Floats

    def lengths(self, keys: int) -> Floats:
        """Summed length for each of the keys `0 .. keys - 1`."""
        return summed(self.key, self.end - self.start, keys)

    def where(self, chosen: NDArray[np.bool_]) -> Intervals:
        """Those that are chosen."""
        return Intervals(self.key[chosen], self.start[chosen], self.end[chosen])

    def within(self, start: Floats, end: Floats) -> Intervals:
        """What of each lies between its key's `start` and `end`, both of shape `(keys,)`."""
        begins = np.maximum(self.start, start[self.key])
        ends = np.minimum(self.end, end[self.key])
        return Intervals(self.key, begins, ends).where(begins <= ends)


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0), np.empty(0))


def summed(key: Ints, values: Floats, keys: int) -> Floats:
    """The sum of the values of each of the keys `0 .. keys - 1`."""
    return np.bincount(key, values, minlength=keys).astype(float, copy=False)


def joined(*several: Intervals) -> Intervals:
    """All of them, one after the other."""
    return Intervals(*(np.concatenate(columns) for columns in zip(*several, strict=True)))


def union(given: Intervals) -> Intervals:
    """The fewest intervals that cover the same time, by key and start."""
    if not len(given.key):
        return given
    folded = _Folded(given)
    ordered, on_line = folded.ordered, folded.on_line
    reach = np.maximum.accumulate(on_line.end)
    fresh = np.concatenate([[True], on_line.start[1:] > reach[:-1]])
    begins = np.flatnonzero(fresh)
    return Intervals(ordered.key[begins], ordered.start[begins], np.maximum.reduceat(ordered.end, begins))


def holes(merged: Intervals) -> Intervals:
    """What lies between the intervals of a union, key by key."""
    after = np.flatnonzero(merged.key[1:] == merged.key[:-1])
    return Intervals(merged.key[after], merged.end[after], merged.start[after + 1])


def most_at_once(given: Intervals, keys: int) -> Ints:
    """The most intervals of each key that overlap in one moment."""
    most = np.zeros(keys, np.int64)
    if len(given.key):
        folded = _Folded(given)
        first, line = folded.first, folded.on_line
        begun = np.arange(1, len(line.start) + 1)
        ended = np.searchsorted(np.sort(line.end), line.start, side="right")
        most[folded.ordered.key[first]] = np.maximum.reduceat(begun - ended, first)
    return most


class Covered:
    """How much of the time up to a moment a union of one key covers."""

    def __init__(self, merged: Intervals) -> None:
        self._start, self._end = merged.start, merged.end
        self._before = np.concatenate([[0.0], np.cumsum(self._end - self._start)])

    def within(self, start: Floats, end: Floats) -> Floats:
        """Seconds covered between each start and end."""
        return self._until(end) - self._until(start)

    def _until(self, moment: Floats) -> Floats:
        if not len(self._start):
            return np.zeros_like(moment)
        begun = np.searchsorted(self._start, moment, side="right")
        last = np.maximum(begun - 1, 0)
        inside = np.clip(moment, self._start[last], self._end[last]) - self._start[last]
        return np.where(begun > 0, self._before[last] + inside, 0.0)


class _Folded:
    """Intervals in the order of key and start, and the same on one line where keys do not overlap."""

    def __init__(self, given: Intervals) -> None:
        order = np.lexsort((given.start, given.key))
        self.ordered = ordered = Intervals(given.key[order], given.start[order], given.end[order])
        self.first = np.flatnonzero(np.diff(ordered.key, prepend=ordered.key[0] - 1))
        begins = ordered.start[self.first]
        lengths = np.maximum.reduceat(ordered.end, self.first) - begins
        offsets = np.concatenate(
            [[0.0], np.cumsum(lengths + 1.0)[:-1]]
        )  # a second apart, so that no key reaches the next
        shift = np.repeat(offsets - begins, np.diff(self.first, append=len(ordered.key)))
        self.on_line = Intervals(ordered.key, ordered.start + shift, ordered.end + shift)
