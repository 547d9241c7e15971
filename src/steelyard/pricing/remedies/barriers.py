"""Other barriers: train on groups as they come in, or wait for other numbers of completions.

Scoring group by group saves nothing by itself: the step still ends with its last reward. What saves is work
that no longer waits for it: the backward of the groups that are in. A smaller batch is hit less often, and
fewer completions pay for each barrier; a larger one does the opposite. Both are told per as many completions
as a step has now. The size of a group changes no barrier of a batch.

Where calls wait for one another (`remedies.ground`), a batch of another size is served in the same places, so
half of the calls take about half as long: every other group of a step is served again on its own, and two
steps that follow one another are served again as one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from steelyard.clock import in_words
from steelyard.pricing.observed import MISSING, Floats, Ints
from steelyard.pricing.remedies.ground import Ground, percent, pseudo, refused, share
from steelyard.pricing.simulate import trained_on_arrival
from steelyard.pricing.values import Remedy
from steelyard.pricing.waits import latest, numbered, or_zero, total

_SAME_S: Final = 0.01
"""Seconds that clocks of a trainer and of its rewards may differ by."""


def groups(ground: Ground) -> Remedy:
    """Each group's forward and backward as soon as its last reward is in.

    Notes
    -----
    Counted from the end of generation, which covers what it can (`_generating`). What more of the time told
    from calls was covered, training covered: a loop that trains on arrival already ends there now, and saves
    nothing by it.
    """
    title, steps = "train on each group as it arrives", len(ground.observed.steps)
    training = ground.step_training_s
    if np.isnan(training).all():
        return refused("groups", title, "how long training takes is not known: pass --training SECONDS")
    generating = _generating(ground)
    arrival, step = arrivals(ground, generating)
    if not len(arrival):
        return refused("groups", title, "no call says which group it judged")
    count = np.bincount(step, minlength=steps)
    each = training / np.maximum(count, 1)
    ends = trained_on_arrival(arrival, each[step], step, steps)
    saving = np.maximum(ground.waits.wait_s - ground.covered_s + training - ends, 0.0)
    most = percent(1 - 1 / float(np.median(count[count > 0])), 0)
    overlapped = ground.covered_s - generating
    overlapping = int((overlapped > _SAME_S).sum())
    return ground.remedy(
        "groups",
        title,
        saving,
        costs=f"smaller micro-batches may be slower; at most {most} of training can be hidden, and of it no "
        "optimizer step and no weight sync",
        rests_on="measured arrivals of groups, each with the same part of training, on one accelerator in "
        "order of arrival; scoring by group saves nothing without training by group"
        + _overlap(ground, overlapping, float(np.nansum(overlapped))),
    )


def _generating(ground: Ground) -> Floats:
    """Per step: how much of the time told from calls generation covered.

    It goes on at most until the step's last rollout is ready, and no longer than it took. Of a step of which
    nobody saw when calls began, all that was covered and that it could have covered.
    """
    told, steps = ground.waits, len(ground.observed.steps)
    spread = latest(ground.ready_s, told.step, steps) + latest(-ground.ready_s, told.step, steps)
    generation = ground.step_generation_s
    could = np.fmin(np.where(told.timed, spread, np.inf), np.where(np.isnan(generation), np.inf, generation))
    return np.minimum(ground.covered_s, could)


def _overlap(ground: Ground, steps: int, seconds: float) -> str:
    """What is to be said of rewards that something else covered."""
    if steps:
        return (
            f"; in {share(steps, len(ground.sizes), 'steps')} more was covered than generation can "
            f"({in_words(seconds)} in all), so training overlaps rewards already: only the rest is saved"
        )
    covered = (ground.covered_s > _SAME_S) & ~ground.waits.timed
    return "; what was covered is taken to be covered by generation" if covered.any() else ""


def arrivals(ground: Ground, covered_s: Floats) -> tuple[Floats, Ints]:
    """When each group is in, in seconds after the accelerator is free, and its step.

    A call that judged nobody knows which groups holds up all groups of its step.

    Parameters
    ----------
    ground
        The run.
    covered_s
        Per step: until when the accelerator is not free, from when the first call is ready.
    """
    steps, told = len(ground.observed.steps), ground.waits
    of, end, at = told.told(ground.observed.calls.group), told.end_s, told.step
    known = of != MISSING
    held = np.zeros(steps)
    if not known.all():
        held = or_zero(latest(end[~known], at[~known], steps))
        of, end, at = of[known], end[known], at[known]
    group, count = numbered(of)
    step = np.zeros(count, np.int64)
    step[group] = at
    return np.maximum(np.maximum(latest(end, group, count), held[step]) - covered_s[step], 0.0), step


def half(ground: Ground) -> Remedy:
    """Two batches of half the size, one after the other, for each batch of now.

    Notes
    -----
    Every way to divide a step's `g` groups is taken at once: of `h` groups drawn from it the latest is the
    j-th latest of all (from 0) with the chance `C(g-1-j, h-1) / C(g, h)`. Where groups are not known, each
    chain is one.
    """
    title = f"halve the batch to {ground.batch / 2:g} (per {ground.batch:g} completions)"
    end, step = _barriers(ground)
    order = np.lexsort((-end, step))
    end, step = end[order], step[order]
    first = np.searchsorted(step, step)
    count = np.bincount(step, minlength=len(ground.sizes))
    if not (count > 1).any():
        return refused("batch", title, "every step judged a single group: it cannot be halved")
    chance = np.zeros(len(end))
    rank, size = np.arange(len(end)) - first, count[step]
    for among in np.unique(count[count > 1]).tolist():
        mine = size == among
        chance[mine] = (_latest_of(among, among // 2) + _latest_of(among, among - among // 2))[rank[mine]]
    halves = np.where(count > 1, total(chance * end, step, len(count)), np.nan)
    saving = np.maximum(ground.waits.wait_s - ground.covered_s, 0.0) - halves
    turn = ground.in_turn
    if turn.any():
        saving = np.where(ground.looked_at, np.where(turn, _halves_served(ground), saving), np.nan)
    how = "every other group apart" if turn.any() else "every way to halve a step's groups"
    return ground.remedy(
        "batch",
        title,
        saving,
        costs="a second barrier for as many completions; busy time, if half a batch needs more than half",
        rests_on=f"{how}; busy time linear in the batch, which flatters a half{ground.served_words}",
    )


def _halves_served(ground: Ground) -> Floats:
    """What each step whose calls wait for one another saves as two batches, every other group in each."""
    told, covered, saving = ground.waits, ground.covered_s, np.full(len(ground.sizes), np.nan)
    group, places = told.told(ground.observed.calls.group), ground.places_again
    group = np.where(group == MISSING, -1 - np.arange(len(group)), group)
    for step in np.flatnonzero(ground.in_turn & ground.looked_at).tolist():
        line = ground.lines[step]
        _, first, which = np.unique(group[line], return_index=True, return_inverse=True)
        if len(first) < 2:
            continue
        odd = (np.argsort(np.argsort(first)) % 2 == 1)[which]  # by which of a group began first
        ends = [ground.end_s(part, told.length_s, places) for part in (line[odd], line[~odd])]
        whole, one, other = np.maximum(np.array([ground.again_s[step], *ends]) - covered[step], 0.0)
        saving[step] = whole - one - other
    return saving


def double(ground: Ground) -> Remedy:
    """Batches of twice the size, from any two steps that were measured.

    Notes
    -----
    Two steps wait `max(a, b)` together instead of `a + b`: `min(a, b) / 2` less for each. Its mean over all
    pairs of steps is a U-statistic of degree two, whose pseudo-values stand for the steps (Arvesen 1969,
    Ann. Math. Stat. 40, 2076), so that the interval is the jackknife's.
    """
    title = f"double the batch to {2 * ground.batch:g} (per {ground.batch:g} completions)"
    turn = bool(ground.in_turn.any())
    known = np.flatnonzero(np.isfinite(ground.again_s if turn else ground.wait_s))
    count = len(known)
    if count < 3:
        return refused("batch", title, f"needs three steps with a measured wait, and there are {count}")
    saving = np.full(len(ground.wait_s), np.nan)
    saving[known] = _joined_served(ground, known) if turn else _joined(ground.wait_s[known])
    how = "each step joined with the next" if turn else "any two measured steps joined"
    return ground.remedy(
        "batch",
        title,
        saving,
        costs="half as many updates for as many completions; "
        + ("memory for twice as many" if turn else "places and memory for twice as many"),
        rests_on=f"{how}; busy time linear in the batch{ground.served_words}",
        capped=False,
    )


def _joined(waited: Floats) -> Floats:
    """What doubling saves, pseudo-values of all pairs of steps: `min(a, b) / 2`."""
    count = len(waited)
    order = np.argsort(waited, kind="stable")
    ranked = waited[order]
    below = np.cumsum(ranked) - ranked  # the least of it and of any shorter step, added up
    least = np.empty(count)
    least[order] = below + ranked * np.arange(count - 1, -1, -1)
    value = float(least.sum() / (count * (count - 1))) / 2
    without = (least.sum() - 2 * least) / ((count - 1) * (count - 2)) / 2
    return pseudo(value, without)


def _joined_served(ground: Ground, steps: Ints) -> Floats:
    """What doubling saves where calls wait for one another: values of which the mean and its interval are.

    Each step is joined with the next one, the last with the first. A step's value is that of the two pairs it
    is in, less the mean: twice its part in a pair, as in a jackknife. The neighbour's part is in it, too, so
    the interval is too wide rather than too narrow.
    """
    told, places, pairs = ground.waits, ground.places_again, np.zeros(len(steps))
    for number, (one, other) in enumerate(zip(steps.tolist(), np.roll(steps, -1).tolist(), strict=True)):
        line = np.concatenate([ground.lines[one], ground.lines[other]])
        line = line[np.argsort(ground.began_s[line], kind="stable")]
        covered = ground.covered_s[[one, other]]
        apart = np.maximum(ground.again_s[[one, other]] - covered, 0.0).sum()
        joined = max(ground.end_s(line, told.length_s, places) - float(covered.mean()), 0.0)
        pairs[number] = (apart - joined) / 2
    return np.asarray(pairs + np.roll(pairs, 1) - pairs.mean())


def _barriers(ground: Ground) -> tuple[Floats, Ints]:
    """When each group of each step is in, and its step; where groups are not known, each chain."""
    arrival, step = arrivals(ground, ground.covered_s)
    if len(arrival):
        return arrival, step
    told = ground.waits
    return np.maximum(told.end_s - ground.covered_s[told.step], 0.0), told.step


def _latest_of(groups: int, drawn: int) -> Floats:
    """P(the latest of `drawn` of the groups is the j-th latest of all), shape `(groups,)`."""
    j = np.arange(groups - 1)
    return drawn / groups * np.append(1.0, np.cumprod((groups - drawn - j) / (groups - 1 - j)))
