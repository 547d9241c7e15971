"""Fewer calls that reach the limit: by a lower rate of them, or by a second draw where the machinery is slow.

A step in which `k` rollouts (or prompts) were hit waits `T`, and without them it would wait `m`. If each is
spared with the chance `c`, on its own, the step is spared only when all are:

    E[wait] = m + (T - m) (1 - c^k)

This is the two-point law of `barrier`, given the hits that were seen. A call that is spared is given the
longest time of its step's calls that finished, so nothing is assumed about it that its step did not show.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from steelyard.durations import intra_prompt
from steelyard.pricing import barrier
from steelyard.pricing.observed import MISSING, Bools, Floats, Ints
from steelyard.pricing.remedies.ground import Ground, percent, refused, share
from steelyard.pricing.values import Remedy
from steelyard.pricing.waits import numbered, or_zero, total

KNEE: Final = 0.92
"""Above the rate at which this share of steps is hit, shaving buys nothing (2 % at 128 completions)."""

HALF: Final = 0.5
"""A target below the knee is the rate at which this share of steps is hit."""

TOGETHER: Final = 0.5
"""From this correlation on, a prompt's hits are taken to come and go together."""

MACHINERY: Final = frozenset({"lost", "never_started"})
"""Causes that are the attempt's, and not the completion's."""


def targets(ground: Ground) -> list[float]:
    """Rates worth asking for: half of the present one, and the one at which half of the steps are hit."""
    half, chains = ground.rate / 2, len(np.unique(ground.waits.chain[ground.hit]))
    if not chains:
        return [half]
    share = chains / len(ground.waits.step)  # of rollouts: retries are calls, and no rollouts
    below = ground.rate * barrier.knee(HALF, ground.batch) / share
    return [half, below] if below < 0.8 * half else [half]


def tail(ground: Ground, rate: float) -> Remedy:
    """A lower rate of calls that are cut, whatever brings that about."""
    now = ground.rate
    title = f"bring the rate of cut calls from {percent(now)} to {percent(rate)}"
    if now == 0:
        return refused("tail", title, "no call was cut: there is no tail to shave")
    if np.isnan(ground.body_s).all():
        return refused("tail", title, "no call finished: nobody knows how long one takes")
    if not rate < now:
        return refused("tail", title, f"the present rate, {percent(now)}, is no higher")
    together, knee = _together(ground), percent(barrier.knee(KNEE, ground.batch))
    unit = ground.observed.calls.group if together else ground.waits.chain
    return ground.remedy(
        "tail",
        title,
        _spared(ground, ground.hit, unit, 1 - rate / now),
        costs=f"mending what hangs; above the knee ({knee} if calls are independent) it buys next to nothing",
        rests_on=f"each {'prompt' if together else 'rollout'} that was cut is spared by chance, on its own; "
        "then each of its calls takes as long as its step's longest that finished"
        + ("; the calls of a prompt were cut together" if together else ""),
    )


def hedge(ground: Ground) -> Remedy:
    """A second attempt beside one that has not started: repairs queue, spawn and transport, nothing else."""
    calls, title = ground.observed.calls, "hedge calls that do not start"
    named = [number for number, cause in enumerate(ground.observed.causes) if cause in MACHINERY]
    ended = np.isin(calls.cause, named)
    hits = ground.hit | ended
    if not hits.any():
        return refused("hedge", title, "no call was cut or lost: there is nothing to repair")
    if np.isnan(ground.body_s).all():
        return refused("hedge", title, "no call finished: nobody knows how long a second attempt takes")
    at = np.flatnonzero(ground.hit)
    service = ground.service_s[at]
    slow = (or_zero(calls.spawn_s[at]) > service / 2) | (or_zero(calls.queued_s[at]) > service)
    infra = ended.copy()
    infra[at[slow]] = True
    rate, late = float(hits.mean()), percent(float(infra.mean()))
    return ground.remedy(
        "hedge",
        title,
        _spared(ground, infra, ground.waits.chain, 1 - rate, queue=True),
        costs=f"a second place for each call that is late to start: {late} more calls",
        rests_on=f"{share(int(infra.sum()), int(hits.sum()), 'calls that were cut or lost')} owe it to the "
        "machinery: lost, never started, or longer in queue or spawn than at work; of second attempts "
        f"{percent(rate)} are late, too; a candidate that started is never drawn again",
    )


def _spared(ground: Ground, cut: Bools, unit: Ints, chance: float, *, queue: bool = False) -> Floats:
    """What each step saves in the mean if each unit with a cut call is spared with this chance.

    `queue`: its time in a queue is spared, too.
    """
    steps, at = len(ground.observed.steps), np.flatnonzero(cut)
    of = ground.observed.calls.step[at]
    late = ground.service_s[at] + (or_zero(ground.observed.calls.queued_s[at]) if queue else 0.0)
    spared = np.zeros(len(cut))
    spared[at] = np.maximum(late - ground.body_s[of], 0.0)
    pairs, count = numbered(unit[at])
    step = np.zeros(count, np.int64)
    step[pairs] = of
    return np.asarray(ground.waits.less(spared) * chance ** np.bincount(step, minlength=steps))


def _together(ground: Ground) -> bool:
    """Whether the calls of a prompt are cut together: an intra-prompt correlation of a half or more."""
    told = ground.waits
    of, hit = told.told(ground.observed.calls.group), np.zeros(len(told.step), bool)
    hit[told.chain[ground.hit]] = True
    known = of != MISSING
    if not (hit & known).any():
        return False
    group, count = numbered(of[known])
    step = np.zeros(count, np.int64)
    step[group] = told.step[known]
    rho = intra_prompt(total(hit[known], group, count), np.bincount(group), step).rho
    return rho is not None and rho.value >= TOGETHER
