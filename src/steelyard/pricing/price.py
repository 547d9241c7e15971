"""The price of a run: every estimate, with its interval, put together from what was observed.

Three figures stand beside each other for the barrier: what steps waited for, what they would if calls
were independent draws of the same times, and what they would if whole groups were. Where the first is far
from the second, the run says why in its doubts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from steelyard.clock import Seconds
from steelyard.durations import (
    Correlation,
    Interval,
    Survival,
    counted,
    intra_prompt,
    mean,
    quantile,
    ratio,
    survival,
)
from steelyard.durations import share as share_of
from steelyard.errors import RefusedError
from steelyard.pricing.barrier import expected_maximum, knee, step_hit
from steelyard.pricing.corruption import corruption
from steelyard.pricing.doubts import doubts, unseen_tail
from steelyard.pricing.given import KNEE, halves, within
from steelyard.pricing.money import Prices, bill
from steelyard.pricing.observed import MISSING, UNSCORED, Bools, Calls, Floats, Ints, Observed, blank
from steelyard.pricing.predicted import drawn_anew, groups_drawn_anew
from steelyard.pricing.remedies.ground import Ground, basis
from steelyard.pricing.remedies.votes import unscored
from steelyard.pricing.values import Cause, Curve, Estimate, Price, Quantile, Remedy, StepLine, Suspicion
from steelyard.pricing.waits import numbered, or_zero, total
from steelyard.pricing.whatif import lower_timeout, remedies_on, shave_tail

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
STEPS_DRAWN: Final = 400
OTHER: Final = 0.01
"""Share of a step's wall that is told apart when it is neither busy nor waiting."""
_POINTS: Final = 300


def price_observed(
    observed: Observed,
    *,
    busy_s: Seconds | None = None,
    generation_s: Seconds | None = None,
    training_s: Seconds | None = None,
    prices: Prices | None = None,
    places: int | None = None,
    suspicions: Sequence[Suspicion] = (),
    timeout_s: Seconds | None = None,
    rate: float | None = None,
) -> Price:
    """Price a run.

    Parameters
    ----------
    observed
        The run.
    busy_s, generation_s, training_s
        Busy seconds of a step, where the run did not measure them; two of the three give the third.
    prices
        Dollars per hour.
    places
        How many calls can be served at once, where the run does not show it.
    suspicions
        What its reader found.
    timeout_s, rate
        What if calls were cut there, or so many were: two more remedies.

    Raises
    ------
    RefusedError
        A number that cannot be; a run in which there is nothing to price.
    """
    if not (len(observed.calls) or len(observed.rows) or np.isfinite(observed.steps.exposed_s).any()):
        raise RefusedError(
            "there is neither a reward nor a rollout in it, so there is nothing to price",
            where=observed.source,
            remedy="record the phase `reward`, or the calls of rewards (docs/recording.md)",
        )
    observed, beside = _apart(observed)
    ground = Ground(
        observed,
        **_told(observed, busy_s, generation_s, training_s),
        dollars_per_hour=None if prices is None else prices.waiting,
        sandbox_dollars_per_hour=None if prices is None else prices.sandbox or None,
        places=places,
    )
    if prices is not None and prices.sandbox and not prices.sandboxes:
        prices = prices._replace(sandboxes=ground.seats or ground.batch)
    asked = [
        *([] if timeout_s is None else [lower_timeout(ground, timeout_s)]),
        *([] if rate is None else [shave_tail(ground, rate)]),
    ]
    return _Pricing(ground, prices, asked, beside).price(suspicions)


def _told(
    observed: Observed, busy_s: Seconds | None, generation_s: Seconds | None, training_s: Seconds | None
) -> dict[str, Seconds | None]:
    """Busy seconds as they were told, for a run that has not measured them; two of three give the third."""
    told = {"busy_told_s": busy_s, "generation_s": generation_s, "training_s": training_s}
    if sum(value is not None for value in told.values()) > 1:
        told = dict(zip(told, halves(busy_s, generation_s, training_s), strict=True))
    measured = {"--generation": observed.steps.generation_s, "--training": observed.steps.training_s}
    measured["--busy"] = observed.steps.busy_s
    given = {"--busy": busy_s, "--generation": generation_s, "--training": training_s}
    for option, value in given.items():
        within(option, value, np.inf, "seconds")
        if value is not None and np.isfinite(measured[option]).all():
            raise RefusedError("every step has it measured", where=option, remedy="leave it out")
    return told


def _apart(observed: Observed) -> tuple[Observed, list[str]]:
    """Leave starts and queues out where steps were judged side by side, and nobody saw what each waited.

    A file is scored as fast as it goes: calls of a later step are ready long before they are asked, which
    no step would wait for.
    """
    calls, steps = observed.calls, len(observed.steps)
    timed = np.flatnonzero(np.isfinite(calls.began_s + calls.service_s))
    if steps < 2 or not len(timed) or np.isfinite(observed.steps.exposed_s).any():
        return observed, []
    first, last = np.full(steps, np.inf), np.full(steps, -np.inf)
    np.minimum.at(first, calls.step[timed], calls.began_s[timed] - or_zero(calls.queued_s[timed]))
    np.maximum.at(last, calls.step[timed], calls.began_s[timed] + calls.service_s[timed])
    order = np.argsort(first)
    if (first[order][1:] >= np.maximum.accumulate(last[order])[:-1]).all():
        return observed, []
    nothing = blank(len(calls))
    apart = replace(observed, calls=replace(calls, began_s=nothing, queued_s=nothing))
    return apart, ["what a step waited: steps were judged side by side, so only service times are told"]


@dataclass(frozen=True)
class _Pricing:
    ground: Ground
    prices: Prices | None
    asked: Sequence[Remedy]
    beside: Sequence[str]

    @property
    def _calls(self) -> Calls:
        return self.ground.observed.calls

    def price(self, suspicions: Sequence[Suspicion]) -> Price:
        ground, observed = self.ground, self.ground.observed
        told: dict[str, Any] = {}
        busy = np.isfinite(ground.busy_s).all()
        lacks = [*observed.lacks, *self.beside]
        notes = [note for note in lacks if not (busy and "--busy" in note)]  # told meanwhile
        if np.isfinite(observed.calls.service_s).any():
            told = self._times()
        elif np.isfinite(observed.steps.exposed_s).any():
            told = self._waiting(np.zeros(len(observed.steps), np.bool_)) | self._recorded()
            told["by_step"] = self._lines(np.zeros(len(observed.steps)))
            told["doubts"] = doubts(observed, None, None)
        else:
            notes.insert(0, "No call has a service time, so no second is priced: only rewards and groups.")
            told["remedies"] = [unscored(ground)] if observed.tells_failures else []
        batch = ground.batch
        told |= self._corruption()
        if self.prices is not None and {"step", "idle"} <= told.keys():
            told["money"] = bill(self.prices, step=told["step"], idle=told["idle"], batch=batch)
        return Price(
            source=observed.source,
            basis=_counted(observed),
            batch=batch,
            group=self._group_size(),
            measured=True,
            suspicions=list(suspicions),
            says=list(observed.says),
            notes=notes,
            **told,
        )

    def _times(self) -> dict[str, Any]:
        """All that service times tell."""
        ground, observed = self.ground, self.ground.observed
        correlation = self._correlation()
        hits = total(observed.timed_out, self._calls.step, len(observed.steps))
        seen = ground.sizes > 0
        told: dict[str, Any] = {
            "limit_s": ground.limit_s,
            "rate": self._said(share_of(hits[seen], ground.sizes[seen]), "share"),
            "hit": self._said(share_of((hits > 0)[seen].astype(float), np.ones(int(seen.sum()))), "share"),
            "by_step": self._lines(hits),
        }
        told |= self._distribution()
        told["doubts"] = doubts(observed, told.pop("unseen"), correlation)
        told |= self._barriers(correlation)  # before the remedies, which keep what they have computed
        told["remedies"] = remedies_on(ground, self.asked)
        return told | self._waiting(hits > 0) | self._recorded()

    def _distribution(self) -> dict[str, Any]:
        """How long calls take, and what ended them."""
        observed, calls = self.ground.observed, self._calls
        timed = np.isfinite(calls.service_s)
        times, cut = calls.service_s[timed], calls.censored[timed]  # by whatever: it would have taken longer
        curve = survival(times, cut)
        return {
            "quantiles": [_quantile(times, cut, calls.step[timed], one, curve) for one in QUANTILES],
            "survival": _drawn(curve),
            "causes": [Cause(*one) for one in counted(calls.cause[timed], times, observed.causes)],
            "unseen": unseen_tail(curve),
        }

    def _waiting(self, hit: Bools) -> dict[str, Estimate]:
        """Busy time, wait, and the share of wall time that is wait."""
        wait, busy = self.ground.wait_s, self.ground.busy_s
        known = np.isfinite(wait)
        told = {"wait": self._said(mean(wait[known]), "s")}
        if np.isfinite(busy).any():
            told["busy"] = self._said(mean(busy[np.isfinite(busy)]), "s")
        step = self.ground.step_s
        both = known & np.isfinite(step)
        if both.any():
            told["step"] = self._said(mean(step[both]), "s")
            other = (step - busy - wait)[both & np.isfinite(busy)]
            if other.sum() > OTHER * step[both].sum():
                told["other"] = self._said(mean(other), "s")
            told["idle"] = self._said(ratio(wait[both], step[both]), "share")
            if (both & hit).any():
                some = both & hit
                told["idle_hit"] = self._said(ratio(wait[some], step[some]), "share")
        return told

    def _barriers(self, correlation: Correlation | None) -> dict[str, Any]:
        """Observed, and as it would be were calls or groups drawn anew; where shaving the tail pays."""
        ground = self.ground
        waits, steps = ground.waits, len(ground.waits.slowest_s)
        slowest, length = waits.slowest_s, waits.length_s
        told: dict[str, Any] = {
            "observed": self._said(mean(slowest[np.isfinite(slowest)]), "s"),
            "independent": self._said(drawn_anew(length, waits.step, steps), "s"),
        }
        group = self._of_chains(ground.observed.calls.group)
        if (group != MISSING).any():
            told["correlated"] = self._said(groups_drawn_anew(length, waits.step, group, steps), "s")
        cut = self._cut_chains()
        if not cut.any() or cut.all():
            return told
        rho = 0.0
        if correlation is not None and correlation.rho is not None:
            told["correlation"] = self._said(correlation.rho, "correlation")
            rho = correlation.rho.value
        batch = max(1, round(ground.chains))
        members = max(1, round(self._group_size() * ground.chains / max(ground.batch, 1)))
        rate, limit = float(cut.mean()), float(length[cut].mean())  # some limits are of CPU time
        body = expected_maximum(length[~cut], max(1.0, batch * (1 - rate)))
        bend = knee(KNEE, batch, group=members, rho=rho)
        told["knee"] = Estimate(bend, "share", basis=f"{KNEE:.0%} of steps hit")
        busy = ground.busy_s[np.isfinite(ground.busy_s)]
        floor = float(busy.mean()) if len(busy) else 0.0
        rates = np.unique([*np.geomspace(1e-4, 0.5, 80), rate])
        wait = body + max(limit - body, 0.0) * step_hit(rates, batch, group=members, rho=rho)
        told["knee_curve"] = Curve(rates.tolist(), (floor + wait).tolist(), marks=(rate,))
        return told

    def _of_chains(self, column: Ints) -> Ints:
        """A column of calls by chain: all calls of one have the same."""
        found = np.full(len(self.ground.waits.length_s), MISSING, column.dtype)
        found[self.ground.waits.chain] = column
        return found

    def _cut_chains(self) -> Bools:
        """Which chains have a call that timed out."""
        cut = np.zeros(len(self.ground.waits.length_s), np.bool_)
        cut[self.ground.waits.chain[self.ground.hit]] = True
        return cut

    def _recorded(self) -> dict[str, Any]:
        """What a recorder and queues tell."""
        ground, steps, calls = self.ground, self.ground.observed.steps, self.ground.observed.calls
        told: dict[str, Any] = {}
        exposed = np.isfinite(steps.exposed_s)
        if exposed.any():
            told["exposed"] = self._said(mean(steps.exposed_s[exposed]), "s")
            reward = ground.waits.wait_s if steps.reward_s is None else steps.reward_s
            both = exposed & np.isfinite(reward)
            if both.any() and reward[both].sum() > 0:
                told["tail_ratio"] = self._said(ratio(steps.exposed_s[both], reward[both]), "share")
        if ground.waits.timed.any():
            told["in_flight"] = ground.seen_in_flight
        queued = np.isfinite(calls.queued_s)
        if queued.any():
            count = len(steps)
            asked = total(queued, calls.step, count)
            spent = total(np.where(queued, calls.queued_s, 0.0), calls.step, count)
            told["queued"] = self._said(ratio(spent[asked > 0], asked[asked > 0]), "s")
        return told

    def _corruption(self) -> dict[str, Any]:
        rows = self.ground.observed.rows
        if not self.ground.observed.tells_failures:
            return {}
        found = corruption(rows, len(self.ground.observed.steps))
        some = found.groups > 0
        if not some.any():
            return {}
        of = found.groups[some]
        told = {
            name: self._said(share_of(count[some], of), "share", f"{int(of.sum()):,} groups")
            for name, count in (
                ("group_hit", found.hit),
                ("corrupted", found.corrupted),
                ("thin", found.thin),
            )
        }
        if (rows.verdict == UNSCORED).any():
            lowest = rows.value.min(initial=0.0, where=np.isfinite(rows.value))
            scored = corruption(rows, len(self.ground.observed.steps), floor=float(lowest))
            told["zeroed"] = self._said(
                share_of(scored.corrupted[some], of), "share", f"{int(of.sum()):,} groups"
            )
        signs = share_of(found.changed[some], found.rows[some])
        told["sign_changed"] = self._said(signs, "share", f"{int(found.rows.sum()):,} rollouts")
        return told

    def _correlation(self) -> Correlation | None:
        """Of timeouts within prompts, for the part that times out most; tries of one rollout are one."""
        group, part = (self._of_chains(column) for column in (self._calls.group, self._calls.part))
        cut = self._cut_chains()
        most = int(np.bincount(part[cut]).argmax()) if cut.any() else 0
        known = np.flatnonzero((group != MISSING) & (part == most))
        if not len(known):
            return None
        number, groups = numbered(group[known])
        step = np.zeros(groups, np.int64)
        step[number] = self.ground.waits.step[known]
        size = np.bincount(number, minlength=groups)
        return intra_prompt(total(cut[known], number, groups), size, step)

    def _lines(self, hits: Floats) -> list[StepLine]:
        ground, steps = self.ground, self.ground.observed.steps
        wait, waits = ground.wait_s, ground.waits
        known = np.flatnonzero(np.isfinite(wait))
        drawn = (
            known[np.unique(np.linspace(0, len(known) - 1, STEPS_DRAWN).astype(int))] if len(known) else []
        )
        generation, training = ground.step_generation_s, ground.step_training_s
        return [
            StepLine(
                str(steps.labels[one]),
                _or_none(generation[one]),
                float(wait[one]),
                _or_none(training[one]),
                _or_none(waits.queue_s[one]),
                float(waits.slowest_s[one]) if np.isfinite(waits.slowest_s[one]) else float(wait[one]),
                int(hits[one]),
                int(ground.sizes[one]),
            )
            for one in drawn
        ]

    def _group_size(self) -> float:
        group = self.ground.observed.rows.group
        if not len(group):
            group = self.ground.observed.calls.group
        _, sizes = np.unique(group[group != MISSING], return_counts=True)
        return _median(sizes)

    def _said(self, interval: Interval, unit: str, calls: str = "") -> Estimate:
        return Estimate(interval.value, unit, interval.low, interval.high, self._basis(interval, calls))

    def _basis(self, interval: Interval, of: str = "") -> str:
        return basis(interval, of or f"{len(self._calls):,} calls")


def _quantile(
    times: Floats, cut: Bools, step: np.ndarray[Any, Any], share: float, curve: Survival
) -> Quantile:
    found = quantile(times, cut, step, share, curve=curve)
    if found.value is None:
        return Quantile(share, None, found.above)
    told = f"n = {found.steps:,} steps ({len(times):,} calls)" + (f"; {found.why}" if found.why else "")
    return Quantile(share, Estimate(found.value, "s", found.low, found.high, told))


def _drawn(curve: Survival) -> Curve:
    drawn = curve.drawn(_POINTS)
    columns: Mapping[str, Floats] = {
        "x": drawn.x, "y": drawn.survival, "low": drawn.low, "high": drawn.high, "marks": drawn.cuts,
    }  # fmt: skip
    return Curve(**{name: column.tolist() for name, column in columns.items()})


def _counted(observed: Observed) -> str:
    steps = observed.seen_steps
    sizes = {"call": len(observed.calls), "rollout": len(observed.rows)}
    counted = ", ".join(f"{size:,} {word}{'s' * (size != 1)}" for word, size in sizes.items() if size)
    return f"n = {steps:,} step{'s' * (steps != 1)}" + (f" ({counted})" if counted else "")


def _median(sizes: np.ndarray[Any, Any]) -> float:
    some = sizes[sizes > 0]
    return float(np.median(some)) if len(some) else 0.0


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
