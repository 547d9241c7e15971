"""Steps replayed or drawn from what was measured, where no closed form says it.

| function | what it keeps | what it takes for given |
|---|---|---|
| `bootstrap` | all that a step has in common: correlation, contention | steps are exchangeable |
| `draw` | measured times, of one step if told so; rate, correlation | prompts of a step are independent |
| `trained_on_arrival` | measured arrivals of groups | one accelerator, first in, first trained on |
| `served` | measured times, and when chains were ready | like places, served in the order told |

Chance comes in as a numpy `Generator`, so the same one gives the same numbers. Where work grows with the
number of calls and not with that of steps, `evenly` picks steps, and whoever calls it says how many.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import Final, NamedTuple

import numpy as np

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.pricing.observed import Bools, Floats, Ints
from steelyard.pricing.waits import latest

_AT_ONCE: Final = 2_000_000
"""Numbers drawn at a time: 16 MB."""


class Drawn(NamedTuple):
    """Simulated steps: how long each waits, shape `(steps,)`, and timeouts by group, `(steps, groups)`."""

    wait_s: Floats
    hits: Ints


def bootstrap(per_step: Floats, rng: np.random.Generator, *, steps: int, times: int = 2_000) -> Floats:
    """Means over runs of `steps` steps, each drawn whole from those observed; shape `(times,)`.

    Parameters
    ----------
    per_step
        One value per observed step, shape `(s,)`; `nan` is left out.

    Raises
    ------
    RefusedError
        Nothing was observed.

    Examples
    --------
    >>> means = bootstrap(np.array([2.0, 30.0]), np.random.default_rng(0), steps=50)
    >>> print(means.shape, round(float(means.mean())))
    (2000,) 16
    """
    seen = per_step[~np.isnan(per_step)]
    if not len(seen):
        raise RefusedError(
            "a bootstrap needs a step that was measured, and there is none",
            where="per_step",
            remedy="price a run with at least one timed call",
        )
    each = max(1, _AT_ONCE // max(steps, len(seen)))
    parts = [
        rng.choice(seen, (min(each, times - done), steps)).mean(axis=1) for done in range(0, times, each)
    ]
    return np.concatenate(parts)


def draw(
    times_s: Floats,
    rng: np.random.Generator,
    *,
    steps: int,
    batch: int,
    group: int,
    rate: float,
    timeout_s: Seconds,
    rho: float = 0.0,
    step: Ints | None = None,
) -> Drawn:
    """Simulate steps: a share `rate` of calls hangs until the timeout, the others take a measured time.

    Parameters
    ----------
    times_s
        Service times of calls that were not cut, shape `(n,)`.
    rng
        Where chance comes from.
    steps
        How many to simulate.
    batch, group
        Completions per step and per prompt; the batch is a multiple of the group.
    rate, rho
        Share of calls that hang, and its correlation within a prompt (beta-binomial).
    timeout_s
        Where they are cut; a measured time above it is cut, too.
    step
        Whose each measured time is, shape `(n,)`. Then a simulated step draws all its times from one
        observed step, and what the calls of a step share (contention) is kept. They are drawn with
        replacement, so the longest of them is missed by every third step of as many calls.

    Raises
    ------
    RefusedError
        No measured time, or a batch that is no multiple of the group.
    """
    if not len(times_s) or batch % group or not 0 <= rate <= 1 or not 0 <= rho <= 1:
        raise RefusedError(
            f"simulation needs measured times ({len(times_s)}), a batch ({batch}) that is a multiple of the "
            f"group ({group}), a rate ({rate}) and a correlation ({rho}) from 0 to 1",
            where="draw",
            remedy="give the numbers of a run that exists",
        )
    sets, first, size = _sets(times_s, step)
    groups, each = batch // group, max(1, _AT_ONCE // batch)
    wait, hits = np.empty(steps), np.empty((steps, groups), np.int64)
    for begin in range(0, steps, each):
        count = min(each, steps - begin)
        hang = rng.random((count, groups, group)) < _chances(rate, rho, (count, groups), rng)[..., None]
        source = rng.integers(len(first), size=count)[:, None]
        pick = first[source] + (rng.random((count, batch)) * size[source]).astype(np.int64)
        taken = np.where(hang.reshape(count, batch), timeout_s, np.minimum(sets[pick], timeout_s))
        wait[begin : begin + count] = taken.max(axis=1)
        hits[begin : begin + count] = hang.sum(axis=2)
    return Drawn(wait, hits)


def trained_on_arrival(arrivals_s: Floats, training_s: Floats, step: Ints, steps: int) -> Floats:
    """When each step's last group is trained on, if each group's backward starts as soon as it is in.

    Only forward and backward can be hidden, no optimizer step and no weight sync; and smaller micro-batches
    may be slower: put measured seconds here.

    Parameters
    ----------
    arrivals_s, training_s, step
        Per group, shape `(g,)`: when its last reward is in, how long it trains, its step.
    steps
        How many steps there are.

    Returns
    -------
    ndarray
        Shape `(steps,)`; `nan` of a step without groups.

    Notes
    -----
    One server, work-conserving, in order of arrival: `max_k (a_(k) + sum_{j >= k} t_(j))` over sorted
    arrivals (Lindley 1952, unrolled).

    Examples
    --------
    >>> arrivals = np.array([2.0] * 15 + [30.0])
    >>> trained_on_arrival(arrivals, np.full(16, 12.2 / 16), np.zeros(16, np.int64), 1).round(2).tolist()
    [30.76]
    """
    order = np.lexsort((arrivals_s, step))
    arrival, training, of = arrivals_s[order], training_s[order], step[order]
    after = np.cumsum(training[::-1])[::-1]  # all training from here on, later steps included
    beyond = np.append(after, 0.0)[np.searchsorted(of, of, side="right")]
    return latest(arrival + after - beyond, of, steps)


def served(ready_s: Floats, service_s: Floats, places: int, *, order: Ints | None = None) -> Floats:
    """When each chain of one step ends if `places` serve them, each by the first place that is free.

    Parameters
    ----------
    ready_s, service_s
        Per chain, shape `(c,)`.
    places
        How many are served at once; less than one place serves as one does.
    order
        The chains in the order in which they are served; first ready, first served, if not told.

    Examples
    --------
    >>> served(np.zeros(3), np.array([4.0, 1.0, 2.0]), 2).tolist()
    [4.0, 1.0, 3.0]
    """
    places = max(places, 1)
    if places >= len(ready_s):
        return ready_s + service_s
    order = np.argsort(ready_s, kind="stable") if order is None else order
    free = [-np.inf] * places
    heapify(free)
    ends = []
    for ready, service in zip(ready_s[order].tolist(), service_s[order].tolist(), strict=True):
        end = max(ready, free[0]) + service
        heapreplace(free, end)
        ends.append(end)
    found = np.empty(len(ends))
    found[order] = ends
    return found


def in_flight(began_s: Floats, ended_s: Floats) -> int:
    """The most calls of one step that were under way at once; one that ends as another begins makes room."""
    moments = np.concatenate([began_s, ended_s]).round(6)  # clocks agree to no more than a microsecond
    change = np.repeat([1, -1], len(began_s))
    return int(np.cumsum(change[np.lexsort((change, moments))]).max(initial=0))


def in_flight_at(moments: Floats, began_s: Floats, ended_s: Floats) -> Ints:
    """How many calls of one step were under way at each moment."""
    begun = np.searchsorted(np.sort(began_s), moments, side="right")
    return begun - np.searchsorted(np.sort(ended_s), moments, side="right")


def evenly(sizes: Ints, most: int) -> Bools:
    """Which steps to look at so that their sizes add up to about `most`: an even selection, at least one.

    Parameters
    ----------
    sizes
        Calls per step, shape `(s,)`.
    """
    chosen = np.ones(len(sizes), bool)
    total = int(sizes.sum())
    if total > most and len(sizes):
        keep = max(1, int(len(sizes) * most / total))
        chosen[:] = False
        chosen[np.linspace(0, len(sizes) - 1, keep).round().astype(np.int64)] = True
    return chosen


def _sets(times_s: Floats, step: Ints | None) -> tuple[Floats, Ints, Ints]:
    """Times sorted by step, and where each step's begin and how many there are."""
    if step is None:
        return times_s, np.zeros(1, np.int64), np.array([len(times_s)])
    _, first, size = np.unique(np.sort(step), return_index=True, return_counts=True)
    return times_s[np.argsort(step, kind="stable")], first.astype(np.int64), size.astype(np.int64)


def _chances(rate: float, rho: float, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """The rate of each prompt: beta-distributed, so that hits of one prompt correlate by `rho`."""
    if rho == 0 or rate in {0, 1}:
        return np.full(shape, rate)
    if rho == 1:
        return (rng.random(shape) < rate).astype(float)
    scale = (1 - rho) / rho
    return rng.beta(rate * scale, (1 - rate) * scale, shape)
