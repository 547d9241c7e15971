"""How long each step waits for its rewards, told from its own calls.

The unit is a *chain*: calls that follow one another, so that any second less in one of them ends the chain
a second sooner. A chain is the attempts of one part on one rollout, for a retry begins when its predecessor
ended; where it is known when calls began, and all the calls of a rollout were apart (gated parts), it is
the whole rollout. A step waits for the latest end of its chains.

| known of a step | a chain ends | counted from |
|---|---|---|
| when each call began | at the end of its last call | the moment when the step's first call was ready |
| else | after its queues and service times, added up | all chains ready at once |

A remedy shortens calls; `Waits.less` says by how much each step would wait less, with everything else where
it was. Places that become free sooner are not handed on, so it is for steps in which no call waited for
another one; where they did, `remedies.ground` serves the step again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from steelyard.pricing.observed import Bools, Floats, Ints, Observed

_APART_S: Final = 1e-3
"""Clocks of two processes agree to about a millisecond."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Steps as they waited, and the chains they waited for.

    Parameters
    ----------
    wait_s
        Per step, shape `(s,)`: the wait; `nan` where no call of the step has a service time.
    slowest_s
        Per step: its longest chain, the wait without queues and with every call ready at once.
    queue_s
        Per step: the rest of the wait.
    timed
        Per step: whether it is known when each of its calls began.
    chain
        Per call, shape `(n,)`: the number of its chain.
    step, length_s, end_s
        Per chain, shape `(c,)`: its step, its service time, its end.
    """

    wait_s: Floats
    slowest_s: Floats
    queue_s: Floats
    timed: Bools
    chain: Ints
    step: Ints
    length_s: Floats
    end_s: Floats

    def told(self, column: Ints) -> Ints:
        """A column of calls, shape `(n,)`, as one of chains, shape `(c,)`: of each chain any call's."""
        if len(column) == len(self.step):  # as many chains as calls: each is its own
            return column if _sorted(self.chain) else column[np.argsort(self.chain)]
        found = np.empty(len(self.step), np.int64)
        found[self.chain] = column
        return found

    def less(self, spared_s: Floats) -> Floats:
        """Seconds by which each step waits less if every call is shorter by `spared_s`, shape `(n,)`.

        Negative seconds are calls that get longer.
        """
        ends = total(spared_s, self.chain, len(self.end_s))
        np.subtract(self.end_s, ends, out=ends)
        return self.wait_s - latest(ends, self.step, len(self.wait_s))


def waits(observed: Observed) -> Waits:
    """How long each step waits; see the module.

    Examples
    --------
    >>> from steelyard.pricing.observed import Calls, Rows, Steps, blank
    >>> import numpy as np
    >>> zeros, no = np.zeros(3, np.int64), blank(3)
    >>> calls = Calls(zeros, zeros, np.array([0, 0, 1]), zeros, np.array([15.0, 2.0, 4.0]),
    ...               np.array([True, False, False]), zeros, no, no, no, no, ~np.zeros(3, bool))
    >>> steps = Steps(["0"], blank(1), blank(1), blank(1), blank(1), np.zeros(1, np.int64))
    >>> rows = Rows(zeros[:2], zeros[:2], no[:2], zeros[:2], np.zeros(2, bool))
    >>> waits(Observed("by hand", calls, rows, steps, ["code"], ["wall"], stepped=True)).wait_s.tolist()
    [17.0]
    """
    calls, steps = observed.calls, len(observed.steps)
    known = ~np.isnan(calls.service_s)
    service, queued = or_zero(calls.service_s), or_zero(calls.queued_s)
    measured = total(known, calls.step, steps) > 0
    timed = measured & (total(known & np.isnan(calls.began_s), calls.step, steps) == 0)
    chain = _chains(observed, service, timed)
    count = int(chain.max(initial=-1)) + 1
    if count == len(calls) and _sorted(chain):  # each call is its own chain: no copies of five million
        of, length = calls.step, service
    else:
        of, length = np.zeros(count, np.int64), total(service, chain, count)
        of[chain] = calls.step
    end = length + total(queued, chain, count) if queued.any() else length
    if timed.any():
        sure = known & timed[calls.step]
        ready = -latest(np.where(sure, queued - calls.began_s, -np.inf), calls.step, steps)
        stop = latest(np.where(sure, calls.began_s + service, -np.inf), chain, count)
        end = np.where(timed[of], np.maximum(stop - ready[of], 0.0), end)
    wait = np.where(measured, latest(end, of, steps), np.nan)
    slowest = np.where(measured, latest(length, of, steps), np.nan)
    return Waits(wait, slowest, np.maximum(wait - slowest, 0.0), timed, chain, of, length, end)


def total(values: Floats | Bools, of: Ints, count: int) -> Floats:
    """The sum of each of `count` sets, `of` telling whose each value is."""
    return np.bincount(of, values, minlength=count).astype(np.float64, copy=False)


def latest(values: Floats, of: Ints, count: int) -> Floats:
    """The largest value of each of `count` sets, `of` telling whose each is; `nan` of an empty one."""
    order = slice(None) if _sorted(of) else np.argsort(of, kind="stable")
    values, of = values[order], of[order]
    found = np.full(count, np.nan)
    if len(of):
        first = np.flatnonzero(np.diff(of, prepend=of[0] - 1))
        found[of[first]] = np.maximum.reduceat(values, first)
    return found


def or_zero(column: Floats) -> Floats:
    """A column with 0 where nothing was measured: the same one if all was."""
    unknown = np.isnan(column)
    return np.where(unknown, 0.0, column) if unknown.any() else column


def numbered(keys: Ints) -> tuple[Ints, int]:
    """Keys as numbers from 0 on, and how many there are."""
    if _sorted(keys):  # so nearly every run is: a fifth of the time of a sort
        numbers = np.cumsum(np.diff(keys, prepend=keys[:1]) != 0, dtype=np.int64)
        return numbers, int(numbers[-1]) + 1 if len(keys) else 0
    found, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), len(found)


def _chains(observed: Observed, service: Floats, timed: Bools) -> Ints:
    """The chain of each call."""
    calls = observed.calls
    apart = calls.row < 0  # of a call that nobody can tell the rollout of, nobody knows what it follows
    row = np.where(apart, calls.row.max(initial=0) + 1 + np.arange(len(calls)), calls.row)
    rollout, rollouts = numbered(row)
    parts = max(len(observed.parts), 1)
    if parts == 1:
        return rollout
    one = np.zeros(rollouts, bool)
    if timed.any():
        sure = timed[calls.step] & ~np.isnan(calls.service_s)
        began = np.where(sure, calls.began_s, -np.inf)
        first = -latest(np.where(sure, -calls.began_s, -np.inf), rollout, rollouts)
        span = latest(began + service, rollout, rollouts) - first
        one = total(service, rollout, rollouts) <= span + _APART_S
    return numbered(np.where(one[rollout], rollout * parts, rollout * parts + calls.part))[0]


def _sorted(keys: Ints) -> bool:
    return bool(np.all(keys[1:] >= keys[:-1]))
