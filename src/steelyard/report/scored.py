"""What a page about a scored run is drawn from: plain values, filled from a ledger by whoever has one.

A run has any number of rollouts; a page has room for some two hundred groups and a few dozen calls. So the
totals count everything, and the lists may be a selection: `groups` says of how many `by_group` was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from steelyard.clock import Seconds

BINS = 30
"""Bars of a histogram that is made here."""


class CallLine(NamedTuple):
    """One call of a reward, as a row of a table.

    Parameters
    ----------
    id
        What the run calls the rollout.
    group
        What it calls its group.
    part
        The name of the reward.
    code
        The verdict's code, or what failed: `cpu`, `exception`, `sandbox:bubblewrap`; empty for full marks.
    seconds
        Service time; `None` where not measured.
    reason
        The same for a person.
    """

    id: str
    group: str
    part: str
    code: str
    seconds: Seconds | None
    reason: str


class GroupRewards(NamedTuple):
    """The rewards of one group.

    Parameters
    ----------
    id
        What the run calls it.
    size
        Rollouts of it.
    values
        One reward per member, `None` where there is none (unscored, abstained); shape `(size,)`.
    mean
        Over those that have one; `None` where none has.
    zero_variance
        Whether those that have one all got the same, so that nothing is learnt from the group.
    """

    id: str
    size: int
    values: Sequence[float | None]
    mean: float | None
    zero_variance: bool


class Histogram(NamedTuple):
    """Rewards in bins: `edges` of shape `(n + 1,)`, `counts` of shape `(n,)`; the last bin has both edges."""

    edges: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A scored run.

    Parameters
    ----------
    source
        What was scored, for people.
    verdicts
        Rollouts by verdict: `scored`, `abstained`, `unscored`.
    codes
        Scored rollouts without full marks, by code; unscored ones by boundary and cause, if wanted.
    groups
        How many there are.
    by_group
        Their rewards; of many groups a selection, about 200.
    mean
        Of all rewards; `None` where there is none.
    all_right, all_wrong, all_equal
        Groups in which everybody got the best reward of the run, everybody the worst, everybody the same
        in between: from these nothing is learnt.
    histogram
        Of all rewards; `None` makes it from `by_group`.
    slowest, failing
        The longest calls, the longest first; calls that did not get full marks because something failed.
    failed
        How many failing ones there are, where `failing` is a selection; `None` for exactly those.
    advantage
        The scheme of advantages, for people; empty where there is none.
    """

    source: str
    verdicts: Mapping[str, int]
    groups: int
    by_group: Sequence[GroupRewards]
    mean: float | None = None
    all_right: int = 0
    all_wrong: int = 0
    all_equal: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)
    histogram: Histogram | None = None
    slowest: Sequence[CallLine] = ()
    failing: Sequence[CallLine] = ()
    failed: int | None = None
    advantage: str = ""

    @property
    def rollouts(self) -> int:
        """How many rollouts there are."""
        return sum(self.verdicts.values())

    @property
    def zero_variance(self) -> int:
        """Groups from which nothing is learnt because all their rewards are equal."""
        return self.all_right + self.all_wrong + self.all_equal


def histogram_of(values: Sequence[float]) -> Histogram:
    """Put rewards into at most `BINS` bins of equal width; equal rewards get one bin.

    Where there are only a few different values (0 and 1, quarters), each gets a bar of its own.

    Examples
    --------
    >>> histogram_of([0.0, 1.0, 1.0]).counts
    [1, 2]
    """
    rewards = np.asarray(values, dtype=float)
    different = np.unique(rewards)
    if not len(different):
        return Histogram([], [])
    low, high = float(different[0]), float(different[-1])
    if high - low <= 1e-9 * max(1.0, abs(low), abs(high)):  # rounding is no spread
        return Histogram([low - 0.5, low + 0.5], [len(rewards)])
    gap = float(np.diff(different).min())
    if gap * (BINS - 1) < high - low:
        counts, edges = np.histogram(rewards, BINS)
    else:
        bins = round((high - low) / gap) + 1
        counts, edges = np.histogram(rewards, bins, (low - gap / 2, low - gap / 2 + bins * gap))
    return Histogram(edges.tolist(), counts.tolist())
