"""Runs whose truth is known: service times, tails, correlation, contention and drift as asked for."""

from __future__ import annotations

import numpy as np

from steelyard.pricing.observed import (
    MISSING,
    SCORED,
    UNSCORED,
    Calls,
    Observed,
    Rows,
    Steps,
    blank,
    compact,
)


def planted(
    *,
    steps: int = 40,
    batch: int = 128,
    group: int = 8,
    median_s: float = 2.0,
    sigma: float = 0.3,
    timeout_s: float = 30.0,
    rate: float = 0.0,
    rho: float = 0.0,
    contention: float = 0.0,
    drift: float = 0.0,
    generation_s: float = 12.47,
    training_s: float = 12.04,
    pass_rate: float = 0.5,
    zeroed: bool = True,
    unscored_from: float = 0.0,
    unscored_to: float = 0.0,
    machines: int = 1,
    seed: int = 0,
) -> Observed:
    """Make a run.

    `rate` of the calls hang until `timeout_s`, with intra-prompt correlation `rho` (beta-binomial);
    the others take lognormal times around `median_s`, multiplied by one lognormal factor of spread
    `contention` for each step. `drift` is by how much generation grows over the run, as a share. Of the
    rows a share that goes from `unscored_from` to `unscored_to` is unscored; those that hang are, too,
    unless `zeroed`, when they are 0.
    """
    rng = np.random.default_rng(seed)
    n, groups = steps * batch, steps * batch // group
    step = compact(np.repeat(np.arange(steps), batch))
    of = compact(np.repeat(np.arange(groups), group))
    if rate <= 0:
        chance = np.zeros(groups)
    elif rho <= 0:
        chance = np.full(groups, rate)
    elif rho >= 1:
        chance = (rng.random(groups) < rate).astype(float)
    else:
        scale = (1 - rho) / rho
        chance = rng.beta(rate * scale, (1 - rate) * scale, groups)
    hangs = rng.random(n) < chance[of]
    factor = np.exp(rng.normal(0, contention, steps))[step] if contention else np.ones(n)
    drawn = median_s * np.exp(rng.normal(0, sigma, n)) * factor
    cut = hangs | (drawn >= timeout_s)
    service = np.where(cut, timeout_s, drawn)
    right = rng.random(n) < pass_rate
    lost = rng.random(n) < np.linspace(unscored_from, unscored_to, steps)[step]
    silent = lost | (cut if not zeroed else np.zeros(n, bool))
    value = np.where(silent, np.nan, np.where(cut | ~right, 0.0, 1.0))
    grows = np.linspace(1, 1 + drift, steps)
    noise = 1 + rng.normal(0, 0.002, steps)
    calls = Calls(
        step=step,
        group=of,
        row=compact(np.arange(n)),
        part=np.zeros(n, np.int32),
        service_s=service,
        censored=cut,
        cause=compact(np.where(cut, 0, MISSING)),
        queued_s=blank(n),
        began_s=blank(n),
        spawn_s=blank(n),
        cpu_s=blank(n),
        passed=right & ~cut & ~lost,
    )
    rows = Rows(step, of, value, compact(np.where(silent, UNSCORED, SCORED)), cut & ~silent)
    waits = np.maximum.reduceat(service, np.arange(0, n, batch))
    generation = generation_s * grows * noise
    table = Steps(
        labels=[str(one) for one in range(steps)],
        generation_s=generation,
        training_s=np.full(steps, training_s),
        exposed_s=waits,
        wall_s=generation + training_s + waits,
        machine=np.arange(steps) % machines,
    )
    return Observed("planted", calls, rows, table, ["planted"], ["wall"], stepped=True, limit_s=timeout_s)
