"""Places in which calls are served: warm ones, and more of them."""

from __future__ import annotations

import numpy as np

from steelyard.clock import in_words
from steelyard.pricing.observed import Floats, Ints
from steelyard.pricing.remedies.ground import LOOKED_AT, Ground, refused
from steelyard.pricing.simulate import evenly, served
from steelyard.pricing.values import Remedy
from steelyard.pricing.waits import latest


def pool(ground: Ground) -> Remedy:
    """A pool of warm places: nothing is spawned while somebody waits."""
    title, spawn = "keep a warm pool", ground.observed.calls.spawn_s
    if np.isnan(spawn).all():
        return refused("pool", title, "spawn was not measured: judge in a boundary that reports its clocks")
    measured = np.isfinite(spawn)
    spared = np.where(measured, np.minimum(np.nan_to_num(spawn), ground.service_s), 0.0)
    seats, price = ground.seats, ground.sandboxes_per_hour
    return ground.remedy(
        "pool",
        title,
        ground.waits.less(spared),
        costs=f"{'places' if seats is None else f'{seats:,} places'} held all the time"
        + ("" if price is None else f", ${price:,.2f} per hour"),
        rests_on=f"the measured spawn of {int(measured.sum()):,} of {len(spawn):,} calls "
        f"({in_words(float(np.nanmean(spawn)))} in the mean), taken off each",
    )


def workers(ground: Ground) -> Remedy:
    """Twice the places: calls wait less for their turn, and are served as long as before."""
    title, told, now = "serve twice as many calls at once", ground.waits, ground.seats
    if now is None:
        return refused(
            "workers", title, "when calls began is not known, nor how many places there are: pass --places N"
        )
    known = np.flatnonzero(told.timed if ground.places is None else ~np.isnan(told.wait_s))
    if not len(known):
        return refused("workers", title, "no call has a service time")
    kept = known[evenly(ground.sizes[known], LOOKED_AT)]
    price = ground.sandboxes_per_hour
    return ground.remedy(
        "workers",
        f"{title}: {2 * now:,} instead of {now:,}",
        _shorter(ground, kept, now),
        costs=f"{now:,} more places" + ("" if price is None else f", up to ${price:,.2f} per hour more"),
        rests_on=f"measured service times of {len(kept):,} of {len(ground.sizes):,} steps, served again in "
        "the order in which they were ready"
        + ("" if told.timed.all() else " (all at once, if nobody saw that)"),
    )


def _shorter(ground: Ground, kept: Ints, places: int) -> Floats:
    """Per step: by how much it ends earlier with twice the places; `nan` of a step that is not `kept`."""
    calls, told = ground.observed.calls, ground.waits
    timed = told.timed[calls.step] & np.isfinite(calls.service_s)
    since = np.where(timed, np.nan_to_num(calls.queued_s) - calls.began_s, -np.inf)
    ready = -latest(since, told.chain, len(told.step))
    ready = np.where(np.isfinite(ready), ready.round(6), 0.0)  # rounding must not decide who is first
    order = np.argsort(told.step, kind="stable")
    first, last = (np.searchsorted(told.step[order], kept, side) for side in ("left", "right"))
    saving = np.full(len(ground.sizes), np.nan)
    for step, begin, end in zip(kept, first, last, strict=True):
        mine = order[begin:end]
        before, after = (served(ready[mine], told.length_s[mine], n).max() for n in (places, 2 * places))
        saving[step] = max(0.0, before - after)
    return saving
