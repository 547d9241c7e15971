"""A price from numbers alone: what a step costs, for whoever has a few numbers and no record.

Busy time, the median of rewards, their timeout and its rate, batch and group: the closed forms of `barrier`
and `corruption` make a whole `Price` of them. It has no interval, for nothing was measured, and each of its
estimates says so. What the numbers cannot tell is left out, or refused with its bounds; `Price.notes` lists
what was assumed. `whatif` computes the same remedies on a run that was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from steelyard.clock import Seconds
from steelyard.pricing.barrier import (
    expected_on_arrival,
    expected_wait,
    hedged_rate,
    idle_of_hit_step,
    idle_share,
    seconds_per_completion,
    stalled_on_arrival,
    step_hit,
)
from steelyard.pricing.corruption import corrupted_groups, votes
from steelyard.pricing.given import HALF, KNEE, Numbers, halves, percent
from steelyard.pricing.money import HOUR_S, Prices, bill, pool, scaled
from steelyard.pricing.values import Curve, Estimate, Price, Remedy

BASIS: Final = "from numbers alone: nothing was measured"

RHOS: Final = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Correlations at which a price from numbers says how many steps would be hit."""

_LEAST_S: Final = 2.0
_TIMES: Final = 3.0
"""The timeout that is tried: three times the median, at least 2 s, as deadlines from a reference solution are
(docs/deadlines.md)."""


def price_numbers(
    *,
    timeout_s: Seconds,
    median_s: Seconds,
    rate: float,
    batch: int,
    group: int,
    busy_s: Seconds | None = None,
    generation_s: Seconds | None = None,
    training_s: Seconds | None = None,
    rho: float = 0.0,
    pass_rate: float | None = None,
    attempts: int = 1,
    infrastructure: float | None = None,
    spawn_s: Seconds | None = None,
    knee_at: float = KNEE,
    prices: Prices | None = None,
) -> Price:
    """Everything that numbers alone can say of what a reward costs a step.

    Parameters
    ----------
    timeout_s, median_s, rate, batch, group, busy_s, generation_s, training_s, rho, pass_rate, attempts, \
    infrastructure, spawn_s, knee_at, prices
        As in `given.Numbers`; of busy time, generation and training two give the third.

    Raises
    ------
    RefusedError
        A number that cannot be, by its option of `steelyard price`.

    Examples
    --------
    >>> price = price_numbers(busy_s=24.51, timeout_s=30, median_s=2, rate=0.01, batch=128, group=8)
    >>> print(f"{price.step.value:.1f} s, {price.idle.value:.1%} idle, {price.hit.value:.0%} of steps hit")
    46.8 s, 47.6% idle, 72% of steps hit
    >>> for remedy in price.remedies[:2]:
    ...     print(f"{remedy.saves.value:.1f} s: {remedy.title}")
    17.4 s: lower the timeout from 30 s to 6 s
    8.3 s: double the batch to 256 (per 128 completions)
    """
    busy, generation, training = halves(busy_s, generation_s, training_s)
    return _price(
        Numbers(
            busy, generation, training, timeout_s, median_s, rate, batch, group, rho,
            pass_rate, attempts, infrastructure, spawn_s, knee_at, prices,
        )
    )  # fmt: skip


def _price(at: Numbers) -> Price:
    step = _estimate(at.busy_s + at.wait_s())
    idle = _estimate(idle_share(at.wait_s(), at.busy_s), "share")
    alone = expected_wait(at.median_s, at.barrier_s, step_hit(at.rate, at.batch))
    return Price(
        source="numbers alone",
        basis=BASIS,
        batch=at.batch,
        group=at.group,
        measured=False,
        busy=_estimate(at.busy_s),
        wait=_estimate(at.wait_s()),
        step=step,
        idle=idle,
        idle_hit=_estimate(idle_of_hit_step(at.busy_s, at.barrier_s), "share"),
        limit_s=at.timeout_s,
        rate=_estimate(at.rate, "share"),
        hit=_estimate(at.hit(), "share"),
        independent=_estimate(alone),
        correlated=_estimate(at.wait_s()) if at.rho else None,
        correlation=_estimate(at.rho, "correlation") if at.rho else None,
        knee=_estimate(at.knee(), "share"),
        knee_curve=_knee_curve(at),
        group_hit=_estimate(at.group_hit(), "share"),
        corrupted=_estimate(at.corrupted(), "share"),
        thin=_estimate(votes(at.rate, at.group, rho=at.rho).thin, "share"),
        money={} if at.prices is None else bill(at.prices, step=step, idle=idle, batch=at.batch),
        remedies=sorted(_remedies(at), key=_rank),
        notes=list(_notes(at)),
    )


def _knee_curve(at: Numbers) -> Curve:
    rates = np.unique([*np.geomspace(1e-4, 0.5, 80), at.rate])
    hit = step_hit(rates, at.batch, group=at.group, rho=at.rho)
    steps = at.busy_s + expected_wait(at.median_s, at.barrier_s, hit)
    return Curve(rates.tolist(), steps.tolist(), marks=(at.rate,))


def _rank(remedy: Remedy) -> tuple[int, float]:
    """The largest saving first; then those that save no seconds; then those refused. As in `whatif`."""
    if remedy.saves is not None:
        return 0, -remedy.saves.value
    return (2, 0.0) if remedy.refused else (1, 0.0)


def _remedies(at: Numbers) -> Iterator[Remedy]:
    yield from _timeout(at)
    if at.rate > 0:
        yield from _tail(at)
        yield _hedge(at)
        yield _unscored(at)
    if at.batch > at.group:
        yield _groups(at)
        yield _batch(at, "shrink", at.group)
    yield _batch(at, "double", 2 * at.batch)
    if at.spawn_s:
        yield _pool(at, at.spawn_s)


def _timeout(at: Numbers) -> Iterator[Remedy]:
    if at.attempts > 1:
        yield _saving(
            at,
            "timeout",
            f"cut once at {at.timeout_s:g} s, not {at.attempts} times ({at.barrier_s:g} s)",
            at.wait_s(barrier_s=at.timeout_s),
            costs="what another attempt would have repaired stays cut",
            rests_on="what is cut once being cut every time",
        )
    lower = max(_LEAST_S, _TIMES * at.median_s)
    if lower < at.timeout_s:
        yield _saving(
            at,
            "timeout",
            f"lower the timeout from {at.timeout_s:g} s to {lower:g} s",
            at.wait_s(barrier_s=lower * at.attempts),
            costs=f"cuts what takes over {lower:g} s and would pass: measure service times to know how much",
            rests_on=f"{_TIMES:g} times the median, {_LEAST_S:g} s at least; no more being cut than now",
        )


def _tail(at: Numbers) -> Iterator[Remedy]:
    bend = at.knee()
    above = at.rate > bend
    costs = "what it takes to mend slow tests and hangs"
    if above:
        costs += f"; down to the knee, {percent(bend)}, saves only {at.wait_s() - at.wait_s(bend):.1f} s"
    for target in sorted({at.rate / 2, min(at.rate / 2, at.knee(HALF))}, reverse=True):
        yield _saving(
            at,
            "tail",
            f"bring the rate of cut calls from {percent(at.rate)} to {percent(target)}",
            at.wait_s(target),
            costs=costs,
            rests_on=f"{percent(at.hit())} of steps hit now, {percent(at.hit(target))} then",
        )


def _hedge(at: Numbers) -> Remedy:
    title = "hedge calls that do not start"
    costs = "a second place for each; never a candidate that started, nor a sampled verdict"
    best = hedged_rate(at.rate, 1.0)
    if at.infrastructure is None:
        return Remedy(
            "hedge",
            title,
            None,
            costs=costs,
            refused="what the slowness is due to is not known. If all is the infrastructure's, "
            f"{at.wait_s() - at.wait_s(best):.1f} s ({percent(at.hit())} of steps hit now, "
            f"{percent(at.hit(best))} then); if none is, 0 s. Run some of the cut ones again on a quiet "
            "slot: those that pass are the infrastructure's",
        )
    left = hedged_rate(at.rate, at.infrastructure)
    return _saving(
        at,
        "hedge",
        title,
        at.wait_s(left),
        costs=costs,
        rests_on=f"{percent(at.infrastructure)} of the slowness being the infrastructure's, attempts "
        f"independent: {percent(at.hit())} of steps hit now, {percent(at.hit(left))} then",
    )


def _unscored(at: Numbers) -> Remedy:
    left = votes(at.rate, at.group, rho=at.rho)
    most = "" if at.pass_rate is not None else "at most "
    return Remedy(
        "unscored",
        f"leave failures unscored: {most}{percent(at.corrupted())} of groups are corrupted now, then none",
        None,
        costs=f"{left.mean:.2f} votes per group instead of {at.group}; {percent(left.thin)} keep fewer than "
        f"two, {percent(left.short)} fewer than a division by their deviation needs",
        rests_on="rate and correlation; only where the cause is none that a completion can bring about",
    )


def _groups(at: Numbers) -> Remedy:
    title = "train on each group as it arrives"
    if at.generation_s is None or at.training_s is None:
        return Remedy(
            "groups",
            title,
            None,
            refused="only training hides under a wait, and its time is not known: pass --training SECONDS",
        )
    groups = at.batch // at.group
    after = expected_on_arrival(at.training_s, at.median_s, at.barrier_s, at.group_hit(), groups)
    stalled = stalled_on_arrival(at.generation_s, at.training_s, at.median_s, at.barrier_s, groups)
    return _saving(
        at,
        "groups",
        title,
        after - at.training_s,
        costs=f"at most {at.training_s * (groups - 1) / groups:.1f} s of training can be hidden, and no "
        "optimizer step or weight sync; smaller micro-batches may be slower",
        rests_on=f"the same part of training for each group; a step with one late group goes from "
        f"{at.busy_s + at.barrier_s:.1f} s to {stalled:.1f} s",
    )


def _batch(at: Numbers, verb: str, to: int) -> Remedy:
    now, then = (
        seconds_per_completion(
            at.busy_s, at.median_s, at.barrier_s, at.rate, at.batch, to=size, group=at.group, rho=at.rho
        )
        for size in (at.batch, to)
    )
    hit = step_hit(at.rate, to, group=at.group, rho=at.rho)
    smaller = to < at.batch
    return _saving(
        at,
        "batch",
        f"{verb} the batch to {to} (per {at.batch} completions)",
        then * at.batch - at.busy_s,
        costs=f"{percent(hit)} of steps are hit, and each completion takes {then / now:.2g} times as long; "
        + ("break the barrier into groups, not the batch" if smaller else "fewer updates, memory for them"),
        rests_on="busy time linear in the batch, which "
        + ("flatters small batches" if smaller else "is least true where decoding has room for more"),
    )


def _pool(at: Numbers, spawn_s: Seconds) -> Remedy:
    saves = spawn_s * (1 - at.hit())
    costs = "a place for each call, held all the time"
    if at.prices is not None and at.prices.waiting > 0:
        held = at.prices if at.prices.sandboxes else at.prices._replace(sandboxes=at.batch)
        step_s = at.busy_s + at.wait_s()
        warm = pool(held, spawn_s=spawn_s, service_s=at.median_s, saves_s=saves, step_s=step_s)
        costs = (
            f"{held.sandboxes:g} places at ${warm.per_hour:.2f}/h, {warm.times:.3g} times the accelerators "
            f"they protect, to free ${warm.gives_per_hour:.2f}/h of these"
        )
    return _saving(
        at,
        "pool",
        "keep a warm pool",
        at.wait_s() - saves,
        costs=costs,
        rests_on=f"a perfect pool: {percent(spawn_s / at.median_s)} off a call of {at.median_s:g} s, "
        "nothing off a step that waits for a timeout",
    )


def _notes(at: Numbers) -> Iterator[str]:
    yield (
        f"Every reward that is not cut is taken to need the median, {at.median_s:g} s. The slowest of "
        f"{at.batch} needs more: record service times to know how much."
    )
    if at.rho == 0 and at.group > 1 and at.rate > 0:
        table = ", ".join(
            f"{percent(step_hit(at.rate, at.batch, group=at.group, rho=rho))} at {rho:g}" for rho in RHOS
        )
        yield (
            "Timeouts are taken for independent. If they come together within prompts, fewer steps are hit: "
            f"by correlation {table}. Record groups to know yours."
        )
    if at.rate > 0:
        yield "Contention that the rewards of a step share is in no formula: the wait is then told too long."
    if at.pass_rate is None and at.rate > 0:
        half = corrupted_groups(at.rate, at.group, pass_rate=0.5, rho=at.rho)
        yield (
            "Corrupted groups are an upper bound, as if all that was cut would have passed. If half of it "
            f"would: {percent(half)}."
        )


def _saving(at: Numbers, name: str, title: str, wait_s: Seconds, *, costs: str, rests_on: str) -> Remedy:
    """A remedy that leaves a wait of `wait_s`."""
    saves, after = _estimate(at.wait_s() - wait_s), _estimate(at.busy_s + wait_s)
    return Remedy(name, title, saves, after, costs, rests_on, dollars=_dollars(at, saves))


def _dollars(at: Numbers, saves: Estimate) -> Estimate | None:
    if at.prices is None:
        return None
    return scaled(saves, 1_000 * at.prices.per_hour / HOUR_S, "$ per 1,000 steps")


def _estimate(value: float, unit: str = "s") -> Estimate:
    return Estimate(value, unit, basis=BASIS)
