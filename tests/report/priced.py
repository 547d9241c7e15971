"""Prices and scored runs to draw: from planted runs, and full of everything that a page may have to show."""

from __future__ import annotations

import numpy as np

from planted import planted
from steelyard.pricing.values import (
    Cause,
    Curve,
    Doubt,
    DoubtKind,
    Estimate,
    Price,
    Quantile,
    Remedy,
    StepLine,
    Suspicion,
)
from steelyard.report.scored import CallLine, GroupRewards, ScoredRun

HOSTILE = "</script><img src=x onerror=\"console.error('run')\"><!--<script> & 'quoted' \x1b[31m\u202egnp"


def survival(service: np.ndarray, cut: np.ndarray) -> Curve:
    """Kaplan-Meier with Greenwood's band, at a hundred places."""
    order = np.lexsort((cut, service))
    t, dead = service[order], ~cut[order]
    at_risk = np.arange(len(t), 0, -1)
    s = np.cumprod(1 - dead / at_risk)
    var = s**2 * np.cumsum(dead / (at_risk * np.maximum(at_risk - dead, 1)))
    ends = np.flatnonzero(np.diff(t, append=np.inf))  # one point to each different time
    keep = ends[np.unique(np.linspace(0, len(ends) - 1, 100).astype(int))]
    half = 1.96 * 4 * np.sqrt(var[keep])
    return Curve(
        [0.0, *t[keep].tolist()],
        [1.0, *s[keep].tolist()],
        [1.0, *np.clip(s[keep] - half, 0, 1).tolist()],
        [1.0, *np.clip(s[keep] + half, 0, 1).tolist()],
        np.unique(service[cut]).tolist(),
    )


def priced(*, steps: int = 40, rate: float = 0.01, text: str = "") -> Price:
    """A price with everything in it; `text` goes wherever a run's own words go."""
    run = planted(steps=steps, rate=rate, rho=0.2, contention=0.3, generation_s=12.47, training_s=12.04)
    calls, table = run.calls, run.steps
    cut = np.bincount(calls.step[calls.censored], minlength=steps)
    busy, wait = float(table.busy_s.mean()), float(table.exposed_s.mean())
    basis = f"n = {steps} steps ({len(calls):,} calls)"
    p = np.geomspace(1e-4, 0.1, 60)
    hit = 1 - (1 - p) ** 128
    by_step = [
        StepLine(
            f"{label}{text}",
            float(g),
            float(w),
            float(t),
            None,
            float(w),
            int(k),
            128,
        )
        for label, g, w, t, k in zip(
            table.labels, table.generation_s, table.exposed_s, table.training_s, cut, strict=True
        )
    ]

    def s(value: float, spread: float | None = None) -> Estimate:
        low, high = (None, None) if spread is None else (value - spread, value + spread)
        return Estimate(value, "s", low, high, basis)

    def share(value: float, spread: float | None = None) -> Estimate:
        return s(value, spread)._replace(unit="share")

    return Price(
        source=f"runs/code-rl.ledger{text}",
        basis=basis,
        batch=128,
        group=8,
        measured=True,
        wait=s(wait, 2.6),
        busy=s(busy, 0.05),
        step=s(busy + wait, 2.6),
        idle=share(wait / (busy + wait), 0.03),
        idle_hit=share(30 / (busy + 30), 0.001),
        limit_s=30.0,
        rate=share(float(calls.censored.mean()), 0.003),
        hit=share(float((cut > 0).mean()), 0.1),
        observed=s(wait, 2.6),
        independent=s(wait + 3.9, 1.2),
        correlated=s(wait + 0.4, 1.4),
        correlation=Estimate(0.21, "", 0.12, 0.31, basis),
        knee=share(0.0195),
        quantiles=[
            Quantile(0.5, s(2.04, 0.11)),
            Quantile(0.9, s(3.2, 0.2)),
            Quantile(0.95, s(3.9, 0.35)),
            Quantile(0.995, None, 30.0),
        ],
        survival=survival(calls.service_s, calls.censored),
        knee_curve=Curve(p.tolist(), (busy + 2 + 28 * hit).tolist(), marks=[float(calls.censored.mean())]),
        group_hit=share(0.051, 0.02),
        corrupted=share(0.036, 0.015),
        sign_changed=share(0.0063, 0.003),
        thin=share(0.004),
        exposed=s(wait, 2.6),
        tail_ratio=share(0.93, 0.02),
        in_flight=64,
        queued=s(0.42, 0.1),
        money={
            "per_hour": Estimate(5.21, "$/h"),
            "per_step": Estimate(0.0621, "$"),
            "idle_share": share(0.46, 0.03),
        },
        by_step=by_step,
        causes=[Cause(f"wall{text}", int(cut.sum()), float(calls.censored.mean()), 30.0 * int(cut.sum()))],
        remedies=remedies(basis, text),
        doubts=[
            Doubt(
                DoubtKind.CORRELATED,
                0.21,
                f"Timeouts of one prompt come together (correlation 0.21), so fewer steps are hit than "
                f"chance would have it: what assumes independent calls is 3.9 s too high.{text}",
                "read the simulated numbers, which keep the correlation",
            ),
            Doubt(
                DoubtKind.CENSORED_TAIL,
                0.99,
                "1 % of the calls were cut at 30 s: nobody knows how long they would have taken.",
                "run a sample of the cut calls again, with a limit of 120 s",
            ),
        ],
        suspicions=[
            Suspicion("zero at the timeout", 37, 412, f"37 of these 412 zeros sit at the timeout.{text}")
        ],
        says=[f"A ledger tells service times, verdicts and what ended each call.{text}"],
        notes=[
            f"Queues were not measured: `queued_s` is in no call.{text}",
            "Dollars of sandboxes were not given: `--sandbox-hour 0.05` adds them.",
        ],
    )


def remedies(basis: str, text: str) -> list[Remedy]:
    def s(value: float, spread: float) -> Estimate:
        return Estimate(value, "s", value - spread, value + spread, basis)

    return [
        Remedy(
            "timeout",
            f"lower the timeout from 30 s to 8 s{text}",
            s(13.1, 1.9),
            s(32.9, 1.1),
            "0.2 % of the calls that pass today would be cut",
            "the measured service times, which are known up to 30 s",
            dollars=Estimate(14.37, "$ per 1,000 steps", 12.3, 16.5),
        ),
        Remedy(
            "tail",
            "bring timeouts from 1 % down to 0.2 %",
            s(9.4, 2.7),
            s(36.6, 2.2),
            "finding out why they hang",
            "calls drawn again from whole steps, so that their correlation is kept",
        ),
        Remedy(
            "groups",
            "train on each group of 8 as soon as it is scored",
            s(8.2, 1.1),
            s(37.8, 1.9),
            "a backward pass per group, which may be slower than one for all",
            "measured arrival times; a training time of 0.75 s per group is assumed",
        ),
        Remedy(
            "unscored", "do not score failures as 0", None, None, "4 groups in 1,000 have fewer than 2 votes"
        ),
        Remedy(
            "pool",
            "keep a warm pool of 128 sandboxes",
            s(0.02, 0.3),
            None,
            "$12.12 an hour, 3.07 x the accelerator that it protects",
            "a start of 0.18 s saved per call",
        ),
        Remedy(
            "batch",
            "halve the batch to 64",
            s(-5.76, 1.7),
            s(51.8, 3.0),
            "a second barrier for as many completions",
            "busy time linear in the batch",
        ),
        Remedy("workers", "serve twice as many calls at once", Estimate(0.0, "s", 0.0, 0.0, basis)),
        Remedy(
            "hedge",
            "start a second attempt of slow calls",
            None,
            refused="why calls are slow is not known; between 0 and 14.9 s. Run the cut calls again: "
            "`steelyard score --rerun-cut`",
        ),
    ]


def bare() -> Price:
    """A price of which hardly anything is known."""
    wait = Estimate(21.5, "s", basis="from numbers alone")
    return Price("numbers", "from numbers alone", 128, 8, measured=False, wait=wait)


def sparse() -> Price:
    """A price of rewards alone, of two steps, without a timeout and without a cut call."""
    return Price(
        "rewards",
        "n = 2 steps (16 calls)",
        8,
        4,
        measured=True,
        wait=Estimate(2.0, "s"),
        observed=Estimate(2.0, "s"),
        survival=Curve([0.5, 1.0, 2.0], [0.5, 0.25, 0.0]),
        knee_curve=Curve([0.0, 1e-4, 1e-2], [2.0, 2.1, 4.0], marks=[0.0]),
        by_step=[StepLine(label, None, 2.0, None, None, 2.0, 0, 8) for label in ("a", "a")],
    )


def scored(*, groups: int = 120, text: str = "", graded: bool = True, seed: int = 3) -> ScoredRun:
    """A scored run with groups of 8, some all right, some all wrong, some with unscored members."""
    rng = np.random.default_rng(seed)
    lines = []
    for index, skill in enumerate(rng.beta(0.7, 0.9, groups)):
        right = rng.random(8) < skill
        rewards = np.where(right, 1.0, rng.choice([0.0, 0.25, 0.5], 8, p=[0.8, 0.1, 0.1]) if graded else 0.0)
        silent = rng.random(8) < 0.02
        values = [None if quiet else float(v) for v, quiet in zip(rewards, silent, strict=True)]
        known = [v for v in values if v is not None]
        lines.append(
            GroupRewards(f"prompt-{index}{text}", 8, values, sum(known) / len(known), len(set(known)) == 1)
        )
    values = [v for line in lines for v in line.values]
    silent = sum(v is None for v in values)
    flat = [line.mean for line in lines if line.zero_variance]
    return ScoredRun(
        source=f"rollouts.jsonl{text}",
        verdicts={"scored": len(values) - silent, "unscored": silent, "abstained": 0},
        groups=groups,
        by_group=lines,
        mean=sum(v for v in values if v is not None) / (len(values) - silent),
        all_right=flat.count(1.0),
        all_wrong=flat.count(0.0),
        all_equal=len(flat) - flat.count(1.0) - flat.count(0.0),
        codes={"wrong_answer": 301, "exception": 77, f"cpu{text}": 21, "load_error": 9},
        slowest=[
            CallLine(f"row-{n}{text}", f"prompt-{n // 8}", "code", "cpu" if n < 3 else "", 30.0 / (n + 1), "")
            for n in range(12)
        ],
        failing=[
            CallLine(
                f"row-{7 * n}",
                f"prompt-{n}{text}",
                "code",
                "cpu",
                10.0,
                f"test_{n}: used up its 10 s of CPU in `while True` at a line that nobody would write by "
                f"hand{text}",
            )
            for n in range(12)
        ],
        failed=21,
        advantage="grpo",
    )
