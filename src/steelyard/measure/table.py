"""Spans in columns, looked at once: are they spans at all, and what do their phases mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure.calltimes import CallTimes
from steelyard.measure.intervals import Intervals, union
from steelyard.pricing.observed import Bools, Floats, Ints

GENERATION, TRAINING, REWARD = "generation", "training", "reward"
STEP, CALL, QUEUED = "step", "call", "queued"

ACCELERATOR: Final = (GENERATION, TRAINING)
NOT_PHASES: Final = (STEP, CALL, QUEUED)


class Table:
    """Spans in columns, their lanes and phases as numbers."""

    def __init__(self, spans: Iterable[Span], phases: Mapping[str, str]) -> None:
        columns = list(zip(*spans, strict=True))
        if not columns:
            raise RefusedError(
                "no span was recorded",
                where="timeline",
                remedy='record the loop: steps = steelyard.record_steps("run.ledger")',
            )
        strange = sorted(set(phases.values()) - {*ACCELERATOR, REWARD})
        if strange:
            raise RefusedError(
                f"a phase cannot mean {strange[0]!r}",
                where="phases",
                remedy=f"say {GENERATION!r}, {TRAINING!r} or {REWARD!r}",
            )
        self.step: Ints = np.array(columns[0], np.int64)
        self.lanes = sorted(set(columns[1]))
        self.lane = _coded(columns[1], self.lanes)
        self.words = sorted(set(columns[2]))
        self.phase = _coded(columns[2], self.words)
        self.start: Floats = np.array(columns[3], float)
        self.end: Floats = np.array(columns[4], float)
        cut = np.array([by is not None for by in columns[7]], np.bool_)
        absent = [word for word in phases if word not in self.words]
        there = [word for word in self.words if word not in NOT_PHASES]
        if absent:
            raise RefusedError(
                f"no span has the phase {absent[0]!r}",
                where="phases",
                remedy=f"there are {', '.join(map(repr, there)) or 'none'}",
            )
        self.meaningless = [
            word for word in there if word not in phases and word not in {*ACCELERATOR, REWARD}
        ]
        self._meanings = [phases.get(word, word) for word in self.words]
        self.broken: Ints = np.unique(self.step[cut & self.means(STEP)])
        """Numbers of the steps that some lane did not finish."""
        self._check()
        self._clip()

    def means(self, *kinds: str) -> Bools:
        """Which spans are of one of these kinds."""
        chosen = np.array([meaning in kinds for meaning in self._meanings])
        return chosen[self.phase]

    def of(self, kind: str, numbers: Ints) -> Intervals:
        """When some lane was in such a phase, by step."""
        chosen = self.means(kind)
        key = np.searchsorted(numbers, self.step[chosen])
        return union(Intervals(key, self.start[chosen], self.end[chosen]))

    def calls(self) -> CallTimes:
        """The calls among the spans."""
        chosen = self.means(CALL)
        return CallTimes(self.step[chosen], self.start[chosen], self.end[chosen])

    def _check(self) -> None:
        wrong = ~(np.isfinite(self.start) & np.isfinite(self.end) & (self.start <= self.end))
        if wrong.any():
            one = int(np.flatnonzero(wrong)[0])
            raise RefusedError(
                f"{self.words[self.phase[one]]!r} goes from {self.start[one]!r} to {self.end[one]!r}",
                where=f"step {self.step[one]} of {self.lanes[self.lane[one]]!r}",
                remedy="leave it out, or give it the times at which it began and ended",
            )
        whole = self.means(STEP)
        places, times = np.unique(np.stack([self.step[whole], self.lane[whole]]), axis=1, return_counts=True)
        if (times > 1).any():
            step, lane = places[:, np.argmax(times)]
            raise RefusedError(
                f"recorded {times.max()} times",
                where=f"step {step} of {self.lanes[lane]!r}",
                remedy="give each run a ledger, and each of its processes a lane, of its own",
            )

    def _clip(self) -> None:
        """Let work end with the step in which it began."""
        whole = self.means(STEP)
        if whole.any():
            numbers, key = np.unique(self.step[whole], return_inverse=True)
            _, last = hulls(key, self.start[whole], self.end[whole], len(numbers))
            at = np.minimum(np.searchsorted(numbers, self.step), len(numbers) - 1)
            late = self.means(*ACCELERATOR) & (numbers[at] == self.step) & (self.start < last[at])
            self.end = np.where(late, np.minimum(self.end, last[at]), self.end)


def _coded(words: Sequence[str], known: Sequence[str]) -> Ints:
    number = {word: at for at, word in enumerate(known)}
    return np.fromiter(map(number.__getitem__, words), np.int64, len(words))


def hulls(key: Ints, start: Floats, end: Floats, keys: int) -> tuple[Floats, Floats]:
    """First start and last end of each key; infinite where there is none."""
    first, last = np.full(keys, np.inf), np.full(keys, -np.inf)
    np.minimum.at(first, key, start)
    np.maximum.at(last, key, end)
    return first, last
