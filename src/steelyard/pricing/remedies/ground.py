"""The ground that remedies stand on: a run, how its steps waited, and what a second of a step is worth.

A saving is a difference within each step: its wait, told from its own calls, less its wait with the remedy
applied to the same calls. Whatever the calls of a step share (contention, a prompt that hangs) is on both
sides, so the mean over steps has an interval whose unit is the step. Where a recorder saw the wait itself, no
step saves more than that: what generation covers costs nothing, and sparing it saves nothing.

Calls wait for one another where there are fewer places than calls: in a loop over completions, which is one
place, or in a pool. A second less in any of them is then passed on to all that follow, so such a step is
*served again*, with the remedy and without it, in the order in which its calls began, each as soon as it
could be asked for and a place is free (list scheduling, Graham 1966):

| what is known of a call | it could be asked for |
|---|---|
| its queue | when it was ready |
| when it began | then, or once nothing covers the step's rewards any more, whatever is sooner |

So a call is taken to have waited its turn from the step's first start on, or from where generation ended that
went on beside it. Of a long run an even selection of steps is served again (`LOOKED_AT`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from steelyard.clock import Seconds, in_words
from steelyard.durations import MIN_STEPS, Interval, mean
from steelyard.errors import RefusedError
from steelyard.pricing.money import HOUR_S, scaled
from steelyard.pricing.observed import Bools, Floats, Ints, Observed
from steelyard.pricing.simulate import evenly, in_flight, served
from steelyard.pricing.values import Estimate, Remedy
from steelyard.pricing.waits import Waits, latest, numbered, or_zero, total, waits

LOOKED_AT: Final = 200_000
"""Calls of a long run that are looked at one by one: those of evenly chosen steps, about half a second."""

NEVER_STARTED: Final = "never_started"
LOST: Final = "lost"
"""Causes that can be the attempt's, and not the completion's; a candidate may be what kills its process."""

QUEUED_S: Final = 1e-3
"""A call that waited longer for its turn was in a queue."""

SPREAD: Final = 0.05
"""Of the limit: calls that were cut further apart were not cut at one constant."""


@dataclass(frozen=True)
class Ground:
    """A run and what is known beside it.

    Parameters
    ----------
    observed
        The run.
    busy_told_s, generation_s, training_s
        Busy seconds of a step, all and by halves, for steps in which they were not measured.
    dollars_per_hour, sandbox_dollars_per_hour
        What the accelerators cost, all together; what one sandbox does.
    places
        How many calls can be served at once, where the run does not show it.

    Raises
    ------
    RefusedError
        Less than one place.
    """

    observed: Observed
    busy_told_s: Seconds | None = None
    generation_s: Seconds | None = None
    training_s: Seconds | None = None
    dollars_per_hour: float | None = None
    sandbox_dollars_per_hour: float | None = None
    places: int | None = None

    def __post_init__(self) -> None:
        """Refuse a number of places that cannot be."""
        if self.places is not None and self.places < 1:
            raise RefusedError(
                f"must be 1 or more, is {self.places}", where="--places", remedy="leave it out if not known"
            )

    @cached_property
    def waits(self) -> Waits:
        """How the steps waited, as told from their calls."""
        return waits(self.observed)

    @cached_property
    def wait_s(self) -> Floats:
        """Per step: the wait that a recorder saw, else the one told from calls."""
        seen = self.observed.steps.exposed_s
        return np.where(np.isnan(seen), self.waits.wait_s, seen)

    @cached_property
    def covered_s(self) -> Floats:
        """Per step: how much of the time told from calls other work covered; 0 where no recorder saw it."""
        seen = self.observed.steps.exposed_s
        return np.where(np.isnan(seen), 0.0, np.maximum(self.waits.wait_s - seen, 0.0))

    @cached_property
    def service_s(self) -> Floats:
        """Per call: its service time; 0 of one that has none."""
        return or_zero(self.observed.calls.service_s)

    @cached_property
    def sizes(self) -> Ints:
        """Per step: its calls."""
        return np.bincount(self.observed.calls.step, minlength=len(self.observed.steps))

    @cached_property
    def chains(self) -> float:
        """Chains of a step, in the median: how many its barrier waits for."""
        return _median_size(self.waits.step)

    @cached_property
    def batch(self) -> float:
        """Completions of a step, in the median: its rollouts; chains, where the run tells of no rollout."""
        return _median_size(self.observed.rows.step) or self.chains

    @cached_property
    def limit_s(self) -> Seconds | None:
        """Where calls are cut: as the source says, else the median of those that were: one may hang on."""
        if self.observed.limit_s is not None:
            return self.observed.limit_s
        cut = self.service_s[self.hit]
        return float(np.median(cut)) if len(cut) else None

    @cached_property
    def seen_to_s(self) -> Seconds | None:
        """Beyond it nothing was seen: the limit as the source says, else the longest call that was cut."""
        if self.observed.limit_s is not None or not self.hit.any():
            return self.observed.limit_s
        return float(self.service_s[self.hit].max())

    @property
    def limit_words(self) -> str:
        """The limit for people: `30 s`; `about 60 ms` where nobody told it and cuts are spread."""
        limit = self.limit_s or 0.0
        cut = self.service_s[self.hit] if self.observed.limit_s is None else np.zeros(0)
        spread = len(cut) and float(np.ptp(cut)) > SPREAD * limit
        return f"about {in_words(limit)}" if spread else in_words(limit)

    @cached_property
    def hit(self) -> Bools:
        """Per call: whether a limit of time cut it."""
        return self.observed.timed_out & (self.service_s > 0)

    def ended_by(self, cause: str) -> Bools:
        """Per call: whether that ended it."""
        named = [number for number, one in enumerate(self.observed.causes) if one == cause]
        return np.isin(self.observed.calls.cause, named)

    @property
    def rate(self) -> float:
        """Share of calls that were cut."""
        return float(self.hit.mean()) if len(self.hit) else 0.0

    @cached_property
    def body_s(self) -> Floats:
        """Per step: how long a call takes that is neither cut nor lost; the median of that where all were.

        The longest of its calls that finished, for a step waits for its longest; where calls wait for one
        another the mean, for it waits for them all. `nan` everywhere if no call of the run finished.
        """
        calls, steps = self.observed.calls, len(self.observed.steps)
        broken = self.ended_by(LOST) | self.ended_by(NEVER_STARTED)
        kept = ~calls.censored & ~broken & ~np.isnan(calls.service_s)
        body, count = np.zeros(steps), total(kept, calls.step, steps)
        np.maximum.at(body, calls.step[kept], self.service_s[kept])
        some = count > 0
        if self.in_turn.any():
            mean_s = total(np.where(kept, self.service_s, 0.0), calls.step, steps) / np.maximum(count, 1)
            body = np.where(self.in_turn, mean_s, body)
        return np.where(some, body, np.median(body[some]) if some.any() else np.nan)

    @property
    def body_words(self) -> str:
        """The same in words."""
        return (
            "the mean of its step's calls that finished"
            if self.in_turn.any()
            else "its step's longest call that finished"
        )

    @cached_property
    def tries(self) -> tuple[Ints, int]:
        """Per call: the number of its rollout and part, whose attempts follow one another; and how many."""
        calls, parts = self.observed.calls, len(self.observed.parts)
        alone = -1 - np.arange(len(calls))  # of a rollout that nobody can tell, nobody knows another attempt
        return numbered(np.where(calls.row < 0, alone, calls.row * parts + calls.part))

    @cached_property
    def ready_s(self) -> Floats:
        """Per chain: when it was ready, on a clock of its step's own; 0 where nobody saw that."""
        calls, told = self.observed.calls, self.waits
        timed = told.timed[calls.step] & np.isfinite(calls.service_s)
        since = np.where(timed, np.nan_to_num(calls.queued_s) - calls.began_s, -np.inf)
        ready = -latest(since, told.chain, len(told.step))
        return np.where(np.isfinite(ready), ready.round(6), 0.0)  # rounding must not decide who is first

    @cached_property
    def began_s(self) -> Floats:
        """Per chain: when it began, from its step's first moment on; 0 where nobody saw that."""
        calls, told = self.observed.calls, self.waits
        timed = told.timed[calls.step] & np.isfinite(calls.service_s)
        began = -latest(np.where(timed, -calls.began_s, -np.inf), told.chain, len(told.step)).round(6)
        began -= self._first_s[told.step]
        return np.where(np.isfinite(began), began, 0.0)

    @cached_property
    def asked_s(self) -> Floats:
        """Per chain: when it could be asked for, from its step's first moment on; see the module."""
        calls, told = self.observed.calls, self.waits
        unseen = np.isnan(calls.queued_s) & np.isfinite(calls.service_s) & told.timed[calls.step]
        queued = total(unseen, told.chain, len(told.step)) == 0
        ready = self.ready_s - self._first_s[told.step]
        if not queued.all():
            np.minimum(ready, self.covered_s[told.step], out=ready, where=~queued)
        return ready

    @cached_property
    def _first_s(self) -> Floats:
        """Per step: when its first chain was ready."""
        return -latest(-self.ready_s, self.waits.step, len(self.sizes))

    @cached_property
    def in_turn(self) -> Bools:
        """Per step: whether its calls waited for one another: fewer places than chains, and a queue.

        Of places that were told, nobody need have seen the queue.
        """
        told, steps = self.waits, len(self.sizes)
        if not told.timed.any():
            return np.zeros(steps, bool)
        few = told.timed & (np.bincount(told.step, minlength=steps) > self.places_again)
        if self.places is not None or not few.any():
            return few
        return few & (np.nan_to_num(latest(self.began_s - self.asked_s, told.step, steps)) > QUEUED_S)

    @cached_property
    def places_again(self) -> int:
        """Places that a step is served again in: as told, and no fewer than were at work at once."""
        return max(self.places or 1, self.seen_in_flight or 1)

    @cached_property
    def looked_at(self) -> Bools:
        """Per step: whether it is looked at call by call: an even selection of those with a wait."""
        known = np.flatnonzero(~np.isnan(self.waits.wait_s))
        found = np.zeros(len(self.sizes), bool)
        found[known[evenly(self.sizes[known], LOOKED_AT)]] = True
        return found

    @cached_property
    def served_again(self) -> Ints:
        """Steps whose calls can be served again: of those looked at, the ones of which enough is known."""
        known = self.looked_at & self.waits.timed if self.places is None else self.looked_at
        return np.flatnonzero(known)

    @cached_property
    def lines(self) -> dict[int, Ints]:
        """The chains of each step that can be served again, in the order in which they began."""
        told, kept = self.waits, self.served_again
        take = np.zeros(len(self.sizes), bool)
        take[kept] = True
        mine = np.flatnonzero(take[told.step])
        mine = mine[np.lexsort((self.began_s[mine], told.step[mine]))]
        ends = np.flatnonzero(np.diff(told.step[mine])) + 1
        return dict(zip(kept.tolist(), np.split(mine, ends), strict=True)) if len(mine) else {}

    def end_s(self, line: Ints, length_s: Floats, places: int) -> Seconds:
        """When the last of these chains ends if they are served in this order, in so many places."""
        order = np.arange(len(line))
        return float(served(self.asked_s[line], length_s[line], places, order=order).max())

    def ends_s(self, length_s: Floats, places: int, steps: Ints | None = None) -> Floats:
        """When each step's last chain ends if chains of such lengths are served again, in so many places.

        Parameters
        ----------
        length_s
            Per chain, shape `(c,)`.
        places
            How many are served at once.
        steps
            Which of those that can be `served_again`; all if not told.

        Returns
        -------
        ndarray
            Shape `(s,)`, from each step's first moment on; `nan` of a step that is not served again.
        """
        ends = np.full(len(self.sizes), np.nan)
        for one in (self.served_again if steps is None else steps).tolist():
            ends[one] = self.end_s(self.lines[one], length_s, places)
        return ends

    @cached_property
    def again_s(self) -> Floats:
        """Per step: its wait if it is served again as it was; `nan` of a step that is not."""
        return self.ends_s(self.waits.length_s, self.places_again)

    def saved(self, spared_s: Floats, served_s: Floats | None = None) -> Floats:
        """Seconds by which each step waits less if every call is shorter by `spared_s`, shape `(n,)`.

        Parameters
        ----------
        spared_s
            Per call; negative where it gets longer.
        served_s
            Per call: how much of that is service, and no queue; all of it if not told. A queue is not spared
            where calls are served again: it is what comes out.

        Returns
        -------
        ndarray
            Shape `(s,)`; `nan` where nothing was measured, or the step was not looked at.
        """
        told, turn = self.waits, self.in_turn
        if not turn.any():
            return told.less(spared_s)
        found = np.zeros(len(turn)) if turn[self.looked_at].all() else told.less(spared_s)
        less = total(spared_s if served_s is None else served_s, told.chain, len(told.step))
        changed = np.zeros(len(self.sizes), bool)
        changed[told.step[less != 0]] = True
        again = np.flatnonzero(turn & self.looked_at & changed)
        found[turn] = 0.0
        if len(again):
            ends = self.ends_s(told.length_s - less, self.places_again, again)
            found[again] = self.again_s[again] - ends[again]
        return np.where(self.looked_at, found, np.nan)

    @cached_property
    def served_words(self) -> str:
        """What a saving rests on where calls waited for one another; nothing where none did."""
        turn, places = self.in_turn, self.places_again
        if not turn.any():
            return ""
        again = share(int((turn & self.looked_at).sum()), len(turn), "steps")
        seen = "told" if places == self.places else "as many as were in flight"
        return (
            f"; calls wait for one another, so {again} are served again in the order in which they began, in "
            f"{places:,} place{'s' * (places > 1)} ({seen}){self.asked_words}"
        )

    @cached_property
    def asked_words(self) -> str:
        """What it rests on that calls waited of which no queue was measured; nothing where none did."""
        calls = self.observed.calls
        turn = self.in_turn[calls.step] & np.isfinite(calls.service_s)
        return (
            "; no queue was measured: each is taken to be asked for at its step's first start, or when what "
            "covers it ends"
            if np.isnan(calls.queued_s[turn]).any()
            else ""
        )

    @property
    def seats(self) -> int | None:
        """How many calls can be served at once: as told, else the most in flight; `None` if unknown."""
        if self.places is not None or self.seen_in_flight is None:
            return self.places
        return max(self.seen_in_flight, 1)  # of calls that took no time, none was seen in flight

    @cached_property
    def seen_in_flight(self) -> int | None:
        """The most calls that were seen under way at once; `None` where nobody saw when calls began.

        Of a long run an even selection of its steps is looked at.
        """
        calls, timed = self.observed.calls, np.flatnonzero(self.waits.timed)
        if not len(timed):
            return None
        take = np.zeros(len(self.sizes), bool)
        take[timed[evenly(self.sizes[timed], LOOKED_AT)]] = True
        mine = np.flatnonzero(take[calls.step] & np.isfinite(calls.began_s + calls.service_s))
        mine = mine[np.argsort(calls.step[mine], kind="stable")]
        return max(
            in_flight(calls.began_s[one], calls.began_s[one] + calls.service_s[one])
            for one in np.split(mine, np.flatnonzero(np.diff(calls.step[mine])) + 1)
        )

    @property
    def sandboxes_per_hour(self) -> float | None:
        """Dollars per hour for all places; `None` where the price or their number is not known."""
        price = self.sandbox_dollars_per_hour
        return None if price is None or self.seats is None else price * self.seats

    @property
    def step_generation_s(self) -> Floats:
        """Per step: generation, as measured, else as told; `nan` where neither."""
        return _filled(self.observed.steps.generation_s, self.generation_s)

    @property
    def step_training_s(self) -> Floats:
        """Per step: training, as measured, else as told; `nan` where neither."""
        return _filled(self.observed.steps.training_s, self.training_s)

    @property
    def busy_s(self) -> Floats:
        """Per step: generation plus training."""
        return _filled(self.step_generation_s + self.step_training_s, self.busy_told_s)

    @cached_property
    def step_s(self) -> Floats:
        """Per step: the whole of it, as a recorder saw it, else busy time and wait."""
        wall = self.observed.steps.wall_s
        return np.where(np.isnan(wall), self.busy_s + self.wait_s, wall)

    def remedy(
        self, name: str, title: str, saving_s: Floats, *, costs: str, rests_on: str, capped: bool = True
    ) -> Remedy:
        """A remedy that saves `saving_s` of each step, shape `(s,)`; `nan` where a step tells nothing.

        `capped`: no step saves more than it waits.
        """
        if capped:
            saving_s = np.minimum(saving_s, self.wait_s)
        saves = self._estimate(saving_s)
        if saves is None:
            return refused(name, title, "no step has a wait that was measured: record when calls end")
        after = self._estimate(self.step_s - saving_s)
        dollars = self._dollars(saves)
        return Remedy(name, title, saves, after, costs, rests_on, dollars=dollars)

    def _estimate(self, per_step: Floats) -> Estimate | None:
        known = np.isfinite(per_step)
        if not known.any():
            return None
        found = mean(per_step[known])
        return Estimate(
            found.value, "s", found.low, found.high, basis(found, f"{int(self.sizes[known].sum()):,} calls")
        )

    def _dollars(self, saves: Estimate) -> Estimate | None:
        """Both bills run while a step waits."""
        rates = [rate for rate in (self.dollars_per_hour, self.sandboxes_per_hour) if rate is not None]
        return scaled(saves, 1_000 * sum(rates) / HOUR_S, "$ per 1,000 steps") if rates else None


def pseudo(value: float, without: Floats) -> Floats:
    """A smooth statistic's jackknife pseudo-values: they stand for its steps, and their mean is `value`.

    Their interval of a mean is the jackknife's of the statistic (Tukey 1958).

    Parameters
    ----------
    value
        Of all steps.
    without
        Of all steps but each, shape `(s,)`.
    """
    return np.asarray(value + (len(without) - 1) * (without.mean() - without))


def refused(name: str, title: str, why: str, *, costs: str = "", rests_on: str = "") -> Remedy:
    """A remedy of which no saving can be stated."""
    return Remedy(name, title, None, costs=costs, rests_on=rests_on, refused=why)


def basis(interval: Interval, of: str) -> str:
    """What an estimate rests on: `n = 40 steps (5,120 calls)`, and why there is no interval."""
    counted = f"n = {interval.steps:,} step{'s' * (interval.steps != 1)} ({of})"
    if interval.steps < MIN_STEPS:
        return f"{counted}; an interval needs {MIN_STEPS} steps"
    return f"{counted}; {interval.why}" if interval.why else counted


def share(count: int, of: int, what: str) -> str:
    """`3 of 2,560 passing calls (0.12 %)`."""
    return f"{count:,} of {of:,} {what} ({percent(count / of)})" if of else f"none of 0 {what}"


def percent(part: float, digits: int = 2) -> str:
    """`0.12 %`."""
    return f"{100 * part:.{digits}f} %"


def _median_size(step: Ints) -> float:
    """How often a step occurs, in the median of those that do; 0 of none."""
    sizes = np.bincount(step)
    return float(np.median(sizes[sizes > 0])) if len(step) else 0.0


def _filled(column: Floats, told: Seconds | None) -> Floats:
    return column if told is None else np.where(np.isnan(column), told, column)
