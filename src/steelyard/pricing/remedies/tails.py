"""Fewer calls that reach the limit: by a lower rate of them, or by a second draw where the machinery is slow.

A lower rate `p'` leaves a rollout's hits as correlated within its prompt as they are (`rho`). Of steps that
are hit, with the chance `H`, then fewer are, with `H'`, both beta-binomial (`barrier.step_hit`); and a step
that is spared waits `D` less:

    saving = E[D] (1 - H' / H),   H = P(step hit; p, rho),   H' = P(step hit; p', rho)

`D` is a measured step's wait less its wait if no call of it were cut, so what the calls of a step share is in
it; a call that is spared is given the longest time of its step's calls that finished, so nothing is assumed
about it that its step did not show. `D`, `p` and `rho` come from the same steps, so the interval is the
jackknife's of the whole statistic over steps.

A hedge spares rollouts on their own, each with the chance `c`, and their step only when all `k` are spared:
`D c^k`.

Where calls wait for one another (`remedies.ground`), a step that is spared one hit of several waits less,
too, and neither formula holds. There the hits that are left are drawn, and the step is served again without
the others. Of rollouts with a hit the share `w = p' / p` is left; those of one prompt go or stay together
with the chance `a`, so that pairs of hits of one prompt become as rare as at the lower rate:

    w a + w^2 (1 - a) = P2(p') / P2(p),   P2(p) = p^2 + rho p (1 - p)
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard.durations import none_hit
from steelyard.pricing import barrier
from steelyard.pricing.given import HALF, KNEE
from steelyard.pricing.observed import MISSING, Bools, Floats, Ints
from steelyard.pricing.remedies.ground import (
    LOOKED_AT,
    LOST,
    NEVER_STARTED,
    Ground,
    percent,
    pseudo,
    refused,
    share,
)
from steelyard.pricing.simulate import in_flight_at
from steelyard.pricing.values import Remedy
from steelyard.pricing.waits import numbered, or_zero, total

DRAWN: Final = 16
"""How often the hits that are left are drawn: at most, and at least once; a long run is many draws itself."""


class _Hits(NamedTuple):
    """Calls that can be spared, in columns of shape `(h,)`."""

    at: Ints
    """Their numbers."""
    spared_s: Floats
    served_s: Floats
    """What is spared of each, and how much of that is service, as in `Ground.saved`."""
    unit: Ints
    """What is spared as a whole."""
    prompt: Ints

    def only(self, kept: Bools) -> _Hits:
        """Some of them."""
        at, spared, served, unit, prompt = self
        return _Hits(at[kept], spared[kept], served[kept], unit[kept], prompt[kept])


class _Sums(NamedTuple):
    """What the tail of a run is told from: of each step, shape `(s,)`, of all, or of all but each."""

    saved_s: Floats
    """`D`."""
    steps: Floats
    """1 of a step with a known `D`; the others are left out."""
    hit: Floats
    rollouts: Floats
    pairs: Floats
    """Pairs of hits of one prompt, in order."""
    companions: Floats
    """Rollouts of the prompt beside each hit."""
    across: Floats
    """Pairs of hits of two prompts."""
    strangers: Floats
    """Rollouts of other prompts beside each hit."""
    cut: Floats
    calls: Floats

    @property
    def rate(self) -> Floats:
        """Share of rollouts that were cut."""
        return _over(self.hit, self.rollouts)

    @property
    def rho(self) -> Floats:
        """Its correlation within a prompt: as `durations.intra_prompt`, 0 where no hit has a companion."""
        beside = _over(self.across, self.strangers)
        found = _over(_over(self.pairs, self.companions) - beside, 1 - beside)
        return np.clip(found, 0.0, 1.0)


class Tail:
    """The rollouts that were cut, and what it saves to have fewer of them.

    Parameters
    ----------
    ground
        The run; some call of it was cut.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        calls, told, steps = ground.observed.calls, ground.waits, len(ground.observed.steps)
        rollout, count = _of_known(told.told(calls.row))
        group, step, hit = np.full(count, MISSING), np.zeros(count, np.int64), np.zeros(count, bool)
        group[rollout], step[rollout] = told.told(calls.group), told.step
        hit[rollout[told.chain[ground.hit]]] = True
        prompt, prompts = _of_known(group)
        of = np.zeros(prompts, np.int64)
        of[prompt] = step
        hits, size = total(hit, prompt, prompts), np.bincount(prompt, minlength=prompts)
        in_step, of_step = total(hit, step, steps), np.bincount(step, minlength=steps)
        self.group = max(1, round(float(np.median(size))))
        self.rollouts = float(np.median(of_step[of_step > 0]))
        body = np.where(ground.hit, ground.body_s[calls.step], ground.service_s)
        spared = np.maximum(ground.service_s - body, 0.0)
        saved = np.minimum(ground.saved(spared), ground.wait_s)
        at = np.flatnonzero(spared)
        unit = rollout[told.chain[at]]
        self._hits = _Hits(at, spared[at], spared[at], unit, prompt[unit])
        self.known = np.isfinite(saved)
        columns = (
            saved,
            self.known,
            in_step,
            of_step,
            total(hits * (hits - 1), of, steps),
            total(hits * (size - 1), of, steps),
            in_step**2 - total(hits * hits, of, steps),
            in_step * of_step - total(hits * size, of, steps),
            total(ground.hit, calls.step, steps),
            ground.sizes,
        )
        self.of_step = _Sums(*(np.asarray(one, float)[self.known] for one in columns))
        self.whole = _Sums(*(one.sum() for one in self.of_step))

    def knee(self, share: float) -> float:
        """The rate of rollouts that are cut at which so many steps are hit."""
        return barrier.knee(share, self.rollouts, group=self.group, rho=float(self.whole.rho))

    def below(self) -> float:
        """The rate of cut calls at which half of the steps are hit: retries are calls, and no rollouts."""
        return self.ground.rate * self.knee(HALF) / float(self.whole.rate)

    def saving_s(self, to: float | None) -> Floats:
        """Per step: pseudo-values of the saving at another rate of cut calls, or at half of the present one.

        A rate that is told stays as it is where the present one is taken without one of the steps.
        """
        if self.ground.in_turn.any():
            return self._drawn_s(to)
        without = _Sums(*(all_ - one for all_, one in zip(self.whole, self.of_step, strict=True)))
        found = np.full(len(self.known), np.nan)
        found[self.known] = pseudo(float(self._saving(self.whole, to)), self._saving(without, to))
        return found

    def _drawn_s(self, to: float | None) -> Floats:
        """As `saving_s`, where calls wait for one another: the hits that are left are drawn."""
        p, rho = float(self.whole.rate), float(self.whole.rho)
        now = float(self.whole.cut / self.whole.calls)
        left = HALF if to is None else to / now
        pairs, fewer = (rate**2 + rho * rate * (1 - rate) for rate in (p, p * left))
        together = (fewer / pairs - left**2) / (left - left**2) if left > 0 else 0.0
        saving = _drawn(self.ground, self._hits, 1 - left, together)
        saving = np.minimum(saving, self.ground.wait_s)
        if to is not None:  # what is left stays as it is: a step with more hits than others has more to save
            more = (self.of_step.cut / now - self.of_step.calls) / self.of_step.calls.mean()
            saving[self.known] += np.nanmean(saving) * left / (1 - left) * more
        return saving

    def _saving(self, sums: _Sums, to: float | None) -> Floats:
        share = 0.5 if to is None else _over(to, _over(sums.cut, sums.calls))
        now, then = (
            1 - none_hit(np.minimum(rate, 1.0), sums.rho, self.group) ** (self.rollouts / self.group)
            for rate in (sums.rate, sums.rate * share)
        )
        return np.where(now > 0, _over(sums.saved_s, sums.steps) * (1 - _over(then, now)), 0.0)


def tail(ground: Ground, rate: float | None = None, *, of: Tail | None = None) -> Remedy:
    """A lower rate of calls that are cut, whatever brings that about; half of the present one if not told."""
    now = ground.rate
    to = now / 2 if rate is None else rate
    title = f"bring the rate of cut calls from {percent(now)} to {percent(to)}"
    if now == 0:
        return refused("tail", title, "no call was cut: there is no tail to shave")
    if np.isnan(ground.body_s).all():
        return refused("tail", title, "no call finished: nobody knows how long one takes")
    if not to < now:
        return refused("tail", title, f"the present rate, {percent(now)}, is no higher")
    of = Tail(ground) if of is None else of
    return ground.remedy(
        "tail",
        title,
        of.saving_s(rate),
        costs="mending what hangs"
        + (
            ""
            if ground.in_turn.any()
            else f"; above the knee ({percent(of.knee(KNEE))} of rollouts) it buys next to nothing"
        ),
        rests_on="fewer rollouts that are cut, correlated within a prompt as they are now "
        f"({float(of.whole.rho):.2f}); each that is spared takes as long as {ground.body_words}"
        + ground.served_words,
        capped=False,
    )


def tails(ground: Ground) -> list[Remedy]:
    """The rates worth asking for: half of the present one, and the one at which half of the steps are hit."""
    if ground.rate == 0 or np.isnan(ground.body_s).all():
        return [tail(ground)]
    found = Tail(ground)
    below = found.below()
    some = (None, below) if below < 0.8 * ground.rate / 2 else (None,)
    return [tail(ground, rate, of=found) for rate in some]


def hedge(ground: Ground) -> Remedy:
    """A second attempt beside one that has not started: repairs queue, spawn and transport, nothing else."""
    calls, title = ground.observed.calls, "hedge calls that do not start"
    lost, never = (ground.ended_by(cause) for cause in (LOST, NEVER_STARTED))
    hits = ground.hit | lost | never
    if not hits.any():
        return refused("hedge", title, "no call was cut or lost: there is nothing to repair")
    if np.isnan(ground.body_s).all():
        return refused("hedge", title, "no call finished: nobody knows how long a second attempt takes")
    spawning = ground.hit & (or_zero(calls.spawn_s) > ground.service_s / 2)
    queueing = ground.hit & ~spawning & (or_zero(calls.queued_s) > ground.service_s)
    idle = _places_free(ground, queueing)
    infra = never | _finished_later(ground, lost) | spawning | idle
    rate, late = float(hits.mean()), percent(float(infra.mean()))
    full = int((queueing & ~idle).sum())
    return ground.remedy(
        "hedge",
        title,
        _spared(ground, infra, ground.waits.chain, 1 - rate),
        costs=f"a second place for each call that is late to start: {late} more calls",
        rests_on=f"{share(int(infra.sum()), int(hits.sum()), 'calls that were cut or lost')} owe it to the "
        "machinery: never started, lost and finished when tried again, longer in spawn than at work, or "
        f"longer in a queue though places were free; of second attempts {percent(rate)} are late, too; a "
        "candidate that started is never drawn again"
        + (
            f"; {full:,} more were longer in a queue for places: more places cure that, no hedge"
            if full
            else ""
        )
        + ground.served_words,
    )


def _finished_later(ground: Ground, lost: Bools) -> Bools:
    """Per call: whether it was lost, and a later attempt of the same part on the same rollout finished."""
    if not lost.any():
        return lost
    calls = ground.observed.calls
    finished = ~calls.censored & (calls.cause == MISSING) & np.isfinite(calls.service_s)
    tries, count = ground.tries
    last = np.full(count, -1)
    last[tries[finished]] = np.flatnonzero(finished)  # of several, the last one stands
    return lost & (np.arange(len(calls)) < last[tries])


def _places_free(ground: Ground, queueing: Bools) -> Bools:
    """Per call: whether it waited for its turn while there were places; False where nobody saw that."""
    calls, free = ground.observed.calls, np.zeros(len(queueing), bool)
    at = np.flatnonzero(queueing & ground.waits.timed[calls.step])
    if ground.seats is None or not len(at):
        return free
    kept = np.flatnonzero(np.isin(calls.step, calls.step[at]) & np.isfinite(calls.began_s + calls.service_s))
    kept = kept[np.argsort(calls.step[kept], kind="stable")]
    for one in np.split(kept, np.flatnonzero(np.diff(calls.step[kept])) + 1):
        mine = one[queueing[one]]
        began, ended = calls.began_s[one], calls.began_s[one] + calls.service_s[one]
        middle = calls.began_s[mine] - calls.queued_s[mine] / 2
        free[mine] = in_flight_at(middle, began, ended) < ground.seats
    return free


def _spared(ground: Ground, cut: Bools, unit: Ints, chance: float) -> Floats:
    """What each step saves in the mean if each unit with a cut call is spared, queue and all, by chance."""
    steps, at = len(ground.observed.steps), np.flatnonzero(cut)
    of = ground.observed.calls.step[at]
    late = ground.service_s[at] + or_zero(ground.observed.calls.queued_s[at])
    less = np.maximum(late - ground.body_s[of], 0.0)
    if ground.in_turn.any():
        service = np.maximum(ground.service_s[at] - ground.body_s[of], 0.0)
        return _drawn(ground, _Hits(at, less, service, unit[at], at), chance)
    spared = np.zeros(len(cut))
    spared[at] = less
    pairs, count = numbered(unit[at])
    step = np.zeros(count, np.int64)
    step[pairs] = of
    return np.asarray(ground.waits.less(spared) * chance ** np.bincount(step, minlength=steps))


def _drawn(ground: Ground, hits: _Hits, chance: float, together: float = 0.0) -> Floats:
    """What each step saves in the mean if units are spared by chance, drawn anew up to `DRAWN` times.

    `together`: the chance that all units of a prompt share one draw.
    """
    calls = ground.observed.calls
    hits = hits.only(ground.looked_at[calls.step[hits.at]])
    rng = np.random.default_rng(0)  # the same run has the same price
    (unit, units), (prompt, prompts) = numbered(hits.unit), numbered(hits.prompt)
    again = int(ground.sizes[np.unique(calls.step[hits.at])].sum())
    times = int(np.clip(LOOKED_AT // max(again, 1), 1, DRAWN))
    found, spared, served = np.zeros(len(ground.sizes)), np.zeros(len(calls)), np.zeros(len(calls))
    for _ in range(times):
        alone, common, shared = rng.random(units), rng.random(prompts), rng.random(prompts) < together
        gone = np.where(shared[prompt], common[prompt], alone[unit]) < chance
        spared[hits.at], served[hits.at] = hits.spared_s * gone, hits.served_s * gone
        found += ground.saved(spared, served)
    return found / times


def _of_known(keys: Ints) -> tuple[Ints, int]:
    """Keys as numbers from 0 on, each unknown one its own, and how many there are."""
    return numbered(np.where(keys == MISSING, -1 - np.arange(len(keys)), keys))


def _over(above: ArrayLike, below: ArrayLike) -> Floats:
    """A ratio; 0 where there is nothing below."""
    return np.divide(
        above, below, out=np.zeros(np.broadcast(above, below).shape), where=np.asarray(below) != 0
    )
