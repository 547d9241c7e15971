"""Shorter limits: a lower constant, and a deadline learnt from earlier steps.

A call that took longer than a shorter limit would have been cut there, so its time is known: truncation is
identified; calls that a still shorter limit cut keep that one. Beyond the constant at which calls were cut
nothing was seen: no saving and no cost of a longer limit is computed, only bounds. What a cut does to
rewards is no matter of seconds: each remedy says how many calls that passed it would cut. A retry after the
new cut is not modelled.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from steelyard.clock import Seconds, in_words
from steelyard.pricing.observed import Bools, Floats
from steelyard.pricing.remedies.ground import QUEUED_S, Ground, refused, share
from steelyard.pricing.values import Remedy
from steelyard.pricing.waits import latest, or_zero, total

ACCEPTED: Final = 0.005
"""A shorter limit may cut less than this share of the calls that pass (`scheduling.falsekills.ACCEPTED`)."""

ROUND: Final = tuple(m * 10.0**e for e in range(-2, 5) for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
"""Limits that people would write down."""

LEAST_S: Final = 2.0
QUANTILE: Final = 0.99
QUANTILE_TIMES: Final = 1.5
NEEDED: Final = 30
WINDOW: Final = 4_096
"""The rule of a deadline as `scheduling` applies it (`falsekills.rule`, `deadlines.WINDOW`): a test holds
them equal."""


def candidate(ground: Ground) -> Seconds | None:
    """The shortest round limit that cuts less than 0.5 % of each part's passing calls; `None` if none passes.

    Where no call is known to pass, of those that finished.
    """
    calls, good = ground.observed.calls, _good(ground) & np.isfinite(ground.observed.calls.service_s)
    needed = 0.0
    for part in range(len(ground.observed.parts)):
        times = ground.service_s[good & (calls.part == part)]
        if len(times):
            last = len(times) - int(np.ceil(ACCEPTED * len(times)))  # all after it may be cut
            needed = max(needed, float(np.partition(times, last)[last]))
    return next((one for one in ROUND if one >= needed), None) if needed else None


def timeout(ground: Ground, timeout_s: Seconds | None = None) -> Remedy:
    """Another constant; without one, the shortest round one that spares calls that pass.

    A longer one is refused, with bounds.
    """
    limit = ground.limit_s
    now = "set a timeout" if limit is None else f"lower the timeout from {ground.limit_words}"
    if timeout_s is None:
        timeout_s = candidate(ground)
        if timeout_s is None or (limit is not None and timeout_s >= limit):
            return refused("timeout", now, _none(ground))
    if ground.seen_to_s is not None and timeout_s >= ground.seen_to_s:
        return _longer(ground, ground.seen_to_s, timeout_s)
    if limit is not None and timeout_s >= limit:  # some were cut there, and some later
        now = f"change the timeout from {ground.limit_words}"
    good, who = _good(ground), _who(ground)
    newly = int((good & (ground.service_s > timeout_s)).sum())
    return ground.remedy(
        "timeout",
        f"{now} to {in_words(timeout_s)}" if limit is not None else f"{now} of {in_words(timeout_s)}",
        ground.saved(np.maximum(ground.service_s - timeout_s, 0.0)),
        costs=f"cuts {share(newly, int(good.sum()), who)}",
        rests_on="each measured call, cut at the new constant; nothing is cut there and then tried again"
        + _shorter(ground, timeout_s)
        + ground.served_words,
    )


def _none(ground: Ground) -> str:
    """Why no constant can be proposed."""
    good = _good(ground) & np.isfinite(ground.observed.calls.service_s)
    if not good.any():
        return "no call finished, so nobody knows how long a right one takes"
    if not ground.service_s[good].any():
        return f"the {int(good.sum()):,} {_who(ground)} took 0 s: their clock tells nothing"
    return f"no lower round constant cuts less than {ACCEPTED:.1%} of the {_who(ground)}"


def _shorter(ground: Ground, timeout_s: Seconds) -> str:
    """What is to be said of calls that a still shorter limit cut: they keep it."""
    cut = ground.hit & (ground.service_s < timeout_s)
    if not cut.any():
        return ""
    ends = dict.fromkeys(in_words(float(pick(ground.service_s[cut]))) for pick in (np.min, np.max))
    more = -ground.saved(np.where(cut, ground.service_s - timeout_s, 0.0))
    return (
        f"; {share(int(cut.sum()), int(ground.hit.sum()), 'calls that were cut')} were cut sooner, after "
        f"{' to '.join(ends)}, and keep that limit: what they would take with the new one is not identified "
        f"(up to {in_words(float(np.nanmean(more)))} a step)"
    )


def adaptive(ground: Ground) -> Remedy:
    """A deadline for each part, learnt from earlier steps and frozen for a step."""
    calls = ground.observed.calls
    rule = f"max({LEAST_S:g} s, {QUANTILE_TIMES:g} x its {QUANTILE:g} quantile)"
    title = f"adapt the deadline to what passes: {rule}"
    cut, spared, sooner = np.zeros(len(calls), bool), np.zeros(len(calls)), 0
    learnt, by_cpu = np.zeros(0), False
    for part in range(len(ground.observed.parts)):
        mine = calls.part == part
        cpu = bool(np.isfinite(calls.cpu_s[mine & calls.passed]).any())
        taken = or_zero(calls.cpu_s) if cpu else ground.service_s
        deadline = _deadlines(ground, mine, taken)
        over = mine & (taken > deadline[calls.step])
        kept = deadline[calls.step[over]] / taken[over]  # CPU time is taken to be spent evenly
        cut |= over
        sooner += int(
            (mine & ground.hit & (taken < deadline[calls.step]) & np.isfinite(deadline[calls.step])).sum()
        )
        spared[over] = ground.service_s[over] * (1 - kept)
        by_cpu |= cpu
        learnt = np.append(learnt, deadline[np.isfinite(deadline)])
    if not len(learnt):
        return refused(
            "adaptive", title, f"no step has {NEEDED} passing calls of a part in the steps before it"
        )
    limit = ground.limit_s
    if limit is not None and limit <= LEAST_S and not cut.any():
        why = f"calls are cut at {ground.limit_words}, and no deadline of it is below {in_words(LEAST_S)}"
        return refused("adaptive", title, f"{why}: it can save nothing")
    newly, passing = int((cut & calls.passed).sum()), int(calls.passed.sum())
    return ground.remedy(
        "adaptive",
        title,
        ground.saved(spared),
        costs=f"cuts {share(newly, passing, 'passing calls')}",
        rests_on=f"deadlines of {in_words(learnt.min())} to {in_words(learnt.max())}, each from earlier "
        "steps only, in "
        + ("CPU seconds, taken to be spent evenly over a call" if by_cpu else "seconds of service time")
        + _kept(ground, sooner)
        + ground.served_words,
    )


def _kept(ground: Ground, sooner: int) -> str:
    """What is to be said of calls that were cut before their deadline."""
    who = share(sooner, int(ground.hit.sum()), "calls that were cut")
    return f"; {who} were so before their deadline, and keep that limit" if sooner else ""


def _deadlines(ground: Ground, mine: Bools, taken: Floats) -> Floats:
    """Each step's deadline for a part; infinite where too few passes came before."""
    calls, steps = ground.observed.calls, len(ground.observed.steps)
    passes = np.flatnonzero(mine & calls.passed & (taken > 0))
    passes = passes[np.argsort(calls.step[passes], kind="stable")]
    values = taken[passes]
    deadline = np.full(steps, np.inf)
    for step, known in enumerate(np.searchsorted(calls.step[passes], np.arange(steps))):
        if known >= NEEDED:
            seen = values[max(0, known - WINDOW) : known]
            at = int(np.ceil(QUANTILE * len(seen))) - 1
            deadline[step] = max(LEAST_S, QUANTILE_TIMES * np.partition(seen, at)[at])
    return deadline


def _longer(ground: Ground, limit: Seconds, timeout_s: Seconds) -> Remedy:
    """What a longer constant would change is not identified; bounds are."""
    title = f"raise the timeout from {ground.limit_words} to {in_words(timeout_s)}"
    if not ground.hit.any():
        return ground.remedy(
            "timeout",
            title,
            np.zeros(len(ground.observed.steps)),
            costs="nothing: no call was cut",
            rests_on="every call finished below the present constant",
        )
    least, most, how = bounds(ground, timeout_s)
    known = np.isfinite(most)
    low, high = float(least[known].mean()), float(most[known].mean())
    grows = "change by -" + in_words(-low) if low < 0 else "grow by 0"
    return refused(
        "timeout",
        title,
        f"not identified: nothing was seen beyond {in_words(limit)}; the wait would {grows} to "
        f"{in_words(high)} a step in the mean (by up to {in_words(float(most[known].max()))} in one of the "
        f"{int((most[known] > 0).sum())} steps with a call that was cut)",
        rests_on="calls that were cut end anywhere from the present constant to the new one" + how,
    )


def bounds(ground: Ground, timeout_s: Seconds) -> tuple[Floats, Floats, str]:
    """Per step: by how much the wait grows at least and at most, and what that takes for given.

    At most every call that was cut goes on to the new constant. At least each passes where it was cut, and
    what was tried after it is not tried. Where calls queued they are served again, for a call that holds its
    place longer keeps others waiting: in a fixed order, no call that gets longer ends a step sooner.
    """
    told, calls = ground.waits, ground.observed.calls
    longer = np.where(ground.hit, np.maximum(timeout_s - ground.service_s, 0.0), 0.0)
    later = _tried_after(ground)
    dropped = np.where(later, ground.service_s, 0.0)
    how = "; or pass where they were cut, and are not tried again" if later.any() else ""
    queue = or_zero(calls.queued_s)
    queues = ground.places is not None or (queue > QUEUED_S).any() or ground.in_turn.any()
    if ground.seats is None or not (len(ground.served_again) and queues):
        unseen = ground.seats is None and not np.isfinite(calls.queued_s).all()
        how += "; where nobody waits for a place" if unseen else ""
        return -told.less(np.where(later, ground.service_s + queue, 0.0)), -told.less(-longer), how
    places, count = ground.seats, len(told.step)
    now, high, low = (
        ground.ends_s(told.length_s + total(change, told.chain, count), places)
        for change in (0 * longer, longer, -dropped)
    )
    kept = f"{len(ground.served_again):,} of {len(ground.sizes):,} steps"
    return low - now, high - now, f"{how}; {kept} served again in {places:,} places"


def _tried_after(ground: Ground) -> Bools:
    """Per call: whether it is an attempt that followed one that was cut."""
    (tries, count), number = ground.tries, np.arange(len(ground.hit))
    if count == len(number):
        return np.zeros(count, bool)
    first = -latest(np.where(ground.hit, -number, -np.inf), tries, count)
    return number > first[tries]


def _good(ground: Ground) -> Bools:
    """Calls that must not be cut: those that pass, where any is known to."""
    calls = ground.observed.calls
    return calls.passed if calls.passed.any() else ~calls.censored & (ground.service_s > 0)


def _who(ground: Ground) -> str:
    known = ground.observed.calls.passed.any()
    return "passing calls" if known else "calls that finished (none is known to pass)"
