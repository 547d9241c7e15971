"""Places in which calls are served: warm ones, and more of them."""

from __future__ import annotations

import numpy as np

from steelyard.clock import in_words
from steelyard.pricing.remedies.ground import Ground, refused
from steelyard.pricing.values import Remedy


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
        ground.saved(spared),
        costs=f"{'places' if seats is None else f'{seats:,} places'} held all the time"
        + ("" if price is None else f", ${price:,.2f} per hour"),
        rests_on=f"the measured spawn of {int(measured.sum()):,} of {len(spawn):,} calls "
        f"({in_words(float(np.nanmean(spawn)))} in the mean), taken off each{ground.served_words}",
    )


def workers(ground: Ground) -> Remedy:
    """Twice the places: calls wait less for their turn, and are served as long as before."""
    title, told, now = "serve twice as many calls at once", ground.waits, ground.seats
    if now is None:
        return refused(
            "workers", title, "when calls began is not known, nor how many places there are: pass --places N"
        )
    kept = ground.served_again
    if not len(kept):
        return refused("workers", title, "no call has a service time")
    before, after = (ground.ends_s(told.length_s, places) for places in (now, 2 * now))
    price = ground.sandboxes_per_hour
    return ground.remedy(
        "workers",
        f"{title}: {2 * now:,} instead of {now:,}",
        np.maximum(before - after, 0.0),
        costs=f"{now:,} more places" + ("" if price is None else f", up to ${price:,.2f} per hour more"),
        rests_on=f"measured service times of {len(kept):,} of {len(ground.sizes):,} steps, served again in "
        "the order in which they began"
        + ("" if told.timed.all() else " (all at once, if nobody saw that)")
        + ground.asked_words,
    )
