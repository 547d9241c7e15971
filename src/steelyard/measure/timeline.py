"""From spans to seconds per step: what the accelerator worked, what the reward took, and what was waited for.

Time is added up as a union: what happens twice at once counts once. For each step

- `generation_s`, `training_s`: some lane was in that phase; `busy_s`: in either.
- `reward_s`: some lane was in the phase `reward`, or some call of a reward was under way.
- `exposed_s`: the part of it in which no lane was generating or training, not even for another step. Behind
  one barrier this is t(last reward) - t(accelerator free); where groups are trained on as they arrive, it
  is the sum of all such waits, and what training hides is not in it.
- `other_s`: what is left of `wall_s`, with the work and the rewards of any step taken off.

What a step did not record is not known, and never zero: a step without any generation has `nan` there, and
so in `busy_s`, unless no step of the run has that half: then `busy_s` is the other one. A step in which
nothing was to be generated or trained records an empty phase.

The **wall** of a step goes from the first lane's start of it (`steps.step()`) to the last lane's end. A
step of which no `step` was recorded goes from its first span to its last; if a half of its work is
missing, too, nobody knows how long it was. Where steps overlap, each has what the run went on from the
end before its own to its own: walls add up to the time of the run.

A step whose `step` was **broken off** on some lane (an exception left it, the recorder was closed in it) is
left out: it is shorter than it would have been. Its work still covers the rewards of others.

**Work** that began in a step and outlived it on every lane (a generator that nobody closed) ends with it.

None of it means anything if spans are missing, so a timeline is refused unless they account for the time.
At most 5 % of the steps may have a hole: they are left out, and told.
The phases of each lane must cover 99 % of each of its steps that were finished. This is asked of lanes that
record steps, generation or training; one that only serves rewards may wait for work. Calls cover nothing:
they run beside a lane, and what the lane did meanwhile would not be known.

Times are of one clock: of one machine, between two starts of it (`steelyard.clock.Span`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from steelyard.clock import Seconds, Span
from steelyard.errors import RefusedError
from steelyard.measure import intervals
from steelyard.measure.calltimes import CallTimes, Tally
from steelyard.measure.intervals import Covered, Intervals, joined, summed, union
from steelyard.measure.table import (
    ACCELERATOR,
    GENERATION,
    NOT_PHASES,
    QUEUED,
    REWARD,
    STEP,
    TRAINING,
    Table,
    hulls,
)
from steelyard.pricing.observed import MISSING, Bools, Floats, Ints, Steps, blank

SLACK_S: Final = 0.02
"""What a busy machine may take between two phases of a step; of steps that take seconds it is below 1 %."""

COVERAGE: Final = 0.99
"""Share of a step that a lane's phases must cover: an unexplained 1 % is below what a price resolves."""

FEW: Final = 0.05
"""Share of the steps that may have holes."""


class Hole(NamedTuple):
    """Time in a step of which a lane says nothing.

    Parameters
    ----------
    step, lane
        Where.
    start, end
        Seconds since the lane's step began.
    after, before
        The phases on its two sides.
    covered
        Share of the lane's step that its phases cover.
    """

    step: int
    lane: str
    start: Seconds
    end: Seconds
    after: str
    before: str
    covered: float

    @property
    def seconds(self) -> Seconds:
        """How long."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps in columns of shape `(s,)`, by number; `nan` (of counts: `MISSING`) where nothing was recorded.

    Parameters
    ----------
    step
        Numbers of the steps.
    start, end
        When each began and ended, on the clock of the spans.
    wall_s, generation_s, training_s, busy_s, reward_s, exposed_s, other_s
        See the module.
    calls, in_flight
        Calls of rewards, and the most under way at once.
    service_s, queued_s
        Summed over calls: from start to end, and from ready to start.
    """

    step: Ints
    start: Floats
    end: Floats
    wall_s: Floats
    generation_s: Floats
    training_s: Floats
    busy_s: Floats
    reward_s: Floats
    exposed_s: Floats
    other_s: Floats
    calls: Ints
    in_flight: Ints
    service_s: Floats
    queued_s: Floats

    def __len__(self) -> int:
        return len(self.step)

    @property
    def tail_ratio(self) -> Floats:
        """Exposed reward time over all reward time; `nan` where there was none."""
        some = self.reward_s > 0
        return np.where(some, self.exposed_s / np.where(some, self.reward_s, 1.0), np.nan)

    def where(self, chosen: Bools) -> Timeline:
        """The steps that are chosen."""
        return Timeline(*(getattr(self, name)[chosen] for name in self.__slots__))

    def steps(self) -> Steps:
        """As pricing reads it; which machine is not known."""
        return Steps(
            labels=[str(number) for number in self.step.tolist()],
            generation_s=self.generation_s,
            training_s=self.training_s,
            exposed_s=self.exposed_s,
            wall_s=self.wall_s,
            machine=np.full(len(self), MISSING),
            reward_s=self.reward_s,
        )


def timeline(
    spans: Iterable[Span],
    *,
    calls: CallTimes | None = None,
    phases: Mapping[str, str] | None = None,
    coverage: float | None = COVERAGE,
    unfinished: bool = False,
) -> Timeline:
    """What each step took.

    Parameters
    ----------
    spans
        In any order.
    calls
        Calls that are not among the spans.
    phases
        What the run calls its phases, where it has words of its own: `{"rollout": "generation"}`.
    coverage
        Share of each step that the phases of each lane must cover; `None` takes whatever there is.
    unfinished
        Whether steps that were broken off are told, too, as far as they went.

    Raises
    ------
    RefusedError
        If there is no span, one ends before it starts, a step was recorded twice, every step was broken off,
        a phase of `phases` is in no span, or time is missing in more than a few steps.

    Examples
    --------
    >>> from steelyard.clock import Span
    >>> one = [Span(0, "rank 0", "generation", 0, 12), Span(0, "rank 0", "reward", 12, 42)]
    >>> found = timeline([*one, Span(0, "rank 0", "training", 42, 54)])
    >>> found.exposed_s.tolist(), found.wall_s.tolist(), found.tail_ratio.tolist()
    ([30.0], [54.0], [1.0])
    """
    found = watched(spans, calls=calls, phases=phases, coverage=coverage)
    return found.line if unfinished else found.line.where(found.whole)


class Watched(NamedTuple):
    """A timeline of every step, and which of them cannot be used.

    Parameters
    ----------
    line
        All steps, as far as they went.
    broken
        Numbers of the steps that some lane did not finish.
    holes
        The time that is missing in others.
    words
        Phases that have no meaning.
    """

    line: Timeline
    broken: set[int]
    holes: list[Hole]
    words: list[str]

    @property
    def out(self) -> set[int]:
        """Numbers of the steps to be left out."""
        return self.broken | {hole.step for hole in self.holes}

    @property
    def whole(self) -> Bools:
        """Which steps of the timeline are left.

        Raises
        ------
        RefusedError
            If none is.
        """
        kept: Bools = ~np.isin(self.line.step, np.array(sorted(self.out), np.int64))
        if not kept.any():
            raise RefusedError(
                f"no step of {len(self.line)} was finished: each was left by an exception, or its recorder "
                "was closed",
                where="timeline",
                remedy="record at least one step to its end",
            )
        return kept


def watched(
    spans: Iterable[Span],
    *,
    calls: CallTimes | None = None,
    phases: Mapping[str, str] | None = None,
    coverage: float | None = COVERAGE,
) -> Watched:
    """What each step took, whether it can be used or not; arguments and errors as of `timeline`."""
    table = Table(spans, phases or {})
    found = [] if coverage is None else _holes(table, coverage)
    finished = len(np.unique(table.step)) - len(table.broken)
    if coverage is not None and len({hole.step for hole in found}) > FEW * finished:
        _refuse_holes(found, coverage)
    line = _measured(table, Tally(table.calls(), *([] if calls is None else [calls])))
    return Watched(line, set(table.broken.tolist()), found, table.meaningless)


def holes(
    spans: Iterable[Span], *, phases: Mapping[str, str] | None = None, coverage: float = COVERAGE
) -> list[Hole]:
    """The time that is missing on lanes whose phases cover less of a step than they must, in order.

    Raises
    ------
    RefusedError
        If there is no span, one ends before it starts, or a step was recorded twice.
    """
    return _holes(Table(spans, phases or {}), coverage)


def check_coverage(
    spans: Iterable[Span], *, phases: Mapping[str, str] | None = None, coverage: float = COVERAGE
) -> None:
    """Refuse spans that do not account for the time.

    Raises
    ------
    RefusedError
        Naming the longest hole, and what to do about it.
    """
    _refuse_holes(holes(spans, phases=phases, coverage=coverage), coverage)


def _measured(table: Table, tally: Tally) -> Timeline:
    """Every step, finished or not."""
    numbers = np.unique(np.concatenate([table.step, tally.steps]))
    generation, training = table.of(GENERATION, numbers), table.of(TRAINING, numbers)
    work = union(joined(generation, training))
    reward = union(joined(table.of(REWARD, numbers), tally.under_way(numbers)))
    count = len(numbers)
    whole = np.ones(count, np.bool_)
    for half in (generation, training):
        if len(half.key):
            whole &= _told(half, count)
    walls = _walls(numbers, table, tally, whole)
    return Timeline(
        step=numbers,
        start=walls.start,
        end=walls.end,
        wall_s=walls.wall_s,
        generation_s=_lengths(generation, count),
        training_s=_lengths(training, count),
        busy_s=np.where(whole, _lengths(work, count), np.nan),
        reward_s=_lengths(reward, count),
        exposed_s=_exposed(reward, work, count),
        other_s=_other(walls, union(_all(joined(work, reward)))),
        calls=tally.spread(tally.calls, numbers, 0).astype(np.int64),
        in_flight=tally.spread(tally.in_flight, numbers, 0 if len(tally.steps) else MISSING).astype(np.int64),
        service_s=tally.spread(tally.service_s, numbers, 0.0 if len(tally.steps) else np.nan),
        queued_s=_queued(numbers, table, tally),
    )


class _Walls(NamedTuple):
    """When each step began and ended, and its wall: the time of the run from `since` to its end."""

    start: Floats
    end: Floats
    since: Floats
    wall_s: Floats


def _walls(numbers: Ints, table: Table, tally: Tally, whole: Bools) -> _Walls:
    """How long each step was; `whole` are those that recorded all halves of their work."""
    key = np.concatenate([np.searchsorted(numbers, table.step), np.searchsorted(numbers, tally.steps)])
    start, end = np.concatenate([table.start, tally.start]), np.concatenate([table.end, tally.end])
    first, last = hulls(key, start, end, len(numbers))
    steps = np.flatnonzero(table.means(STEP))
    begun, ended = hulls(key[steps], start[steps], end[steps], len(numbers))
    told = np.isfinite(begun)
    start, end = np.where(told, begun, first), np.where(told, ended, last)
    known = np.flatnonzero(told | whole)
    since, wall = start.copy(), np.full(len(numbers), np.nan)
    wall[known] = (end - start)[known]
    order = known[np.lexsort((start[known], end[known]))]
    if (start[order[1:]] < end[order[:-1]]).any():  # some overlap
        run = union(_all(Intervals(order, start[order], end[order])))
        since[order] = np.concatenate([run.start[:1], end[order[:-1]]])
        wall[order] = Covered(run).within(since[order], end[order])
    return _Walls(start, end, since, wall)


def _other(walls: _Walls, known: Intervals) -> Floats:
    """What is left of the walls outside of what is known."""
    steps = np.flatnonzero(np.isfinite(walls.wall_s))
    run = Intervals(np.zeros_like(steps), walls.start[steps], walls.end[steps])
    with_it, alone = Covered(union(joined(run, known))), Covered(known)
    left = with_it.within(walls.since, walls.end) - alone.within(walls.since, walls.end)
    return np.where(np.isnan(walls.wall_s), np.nan, np.maximum(left, 0.0))


def _all(given: Intervals) -> Intervals:
    """The same, whatever their keys."""
    return given._replace(key=np.zeros_like(given.key))


def _exposed(reward: Intervals, work: Intervals, keys: int) -> Floats:
    """Seconds of a step's rewards in which no lane worked, for whatever step."""
    if not len(work.key):
        return blank(keys)
    lengths = reward.end - reward.start
    hidden = Covered(union(_all(work))).within(reward.start, reward.end)
    waited = summed(reward.key, np.clip(lengths - hidden, 0.0, lengths), keys)
    return np.where(_told(reward, keys), waited, np.nan)


def _queued(numbers: Ints, table: Table, tally: Tally) -> Floats:
    """Seconds that calls waited for their turn."""
    given = tally.spread(tally.queued_s, numbers, 0.0)
    chosen = table.means(QUEUED)
    if not chosen.any():
        return given if len(tally.steps) else blank(len(numbers))
    waited = (table.end - table.start)[chosen]
    by_step = summed(np.searchsorted(numbers, table.step[chosen]), waited, len(numbers))
    return np.where(np.isnan(given), 0.0, given) + by_step


def _told(given: Intervals, keys: int) -> Bools:
    """Which keys have any."""
    return np.bincount(given.key, minlength=keys) > 0


def _lengths(given: Intervals, keys: int) -> Floats:
    """Seconds of each key; `nan` where nothing was recorded."""
    return np.where(_told(given, keys), given.lengths(keys), np.nan)


def _holes(table: Table, coverage: float) -> list[Hole]:
    pairs, key = np.unique(table.step * len(table.lanes) + table.lane, return_inverse=True)
    is_step, is_phase = table.means(STEP), ~table.means(*NOT_PHASES)
    first, last = hulls(key[is_phase], table.start[is_phase], table.end[is_phase], len(pairs))
    first[key[is_step]], last[key[is_step]] = table.start[is_step], table.end[is_step]
    asked = np.zeros(len(pairs), bool)
    asked[key[is_step | table.means(*ACCELERATOR)]] = True
    asked &= ~np.isin(pairs // len(table.lanes), table.broken)
    looked = is_phase & asked[key]
    told = Intervals(key[looked], table.start[looked], table.end[looked]).within(first, last)
    edges = np.flatnonzero(asked)
    merged = union(
        joined(told, *(Intervals(edges, moment, moment) for moment in (first[edges], last[edges])))
    )
    whole = np.where(asked, last - first, 0.0)
    covered = np.divide(merged.lengths(len(pairs)), whole, out=np.ones(len(pairs)), where=whole > 0)
    missing = intervals.holes(merged)
    lacking = (covered < coverage - 1e-9) & (whole * (1 - covered) > SLACK_S)  # 1e-9: 99 of 100 s is enough
    missing = missing.where(lacking[missing.key])
    if not len(missing.key):
        return []
    names = [(table.words[at], one) for one, at in enumerate(table.phase.tolist()) if looked[one]]
    names.sort()
    before = {(key[one], table.end[one]): word for word, one in names}
    after = {(key[one], table.start[one]): word for word, one in names}
    return [
        Hole(
            int(pairs[pair] // len(table.lanes)),
            table.lanes[pairs[pair] % len(table.lanes)],
            float(start - first[pair]),
            float(end - first[pair]),
            before.get((pair, start), "its start"),
            after.get((pair, end), "its end"),
            float(covered[pair]),
        )
        for pair, start, end in zip(*missing, strict=True)
    ]


def _refuse_holes(found: Sequence[Hole], coverage: float) -> None:
    if not found:
        return
    longest = max(found, key=lambda hole: hole.seconds)
    places = len({(hole.step, hole.lane) for hole in found})
    others = f"; {places - 1} more steps of lanes have holes" if places > 1 else ""
    raise RefusedError(
        f"no phase for {longest.seconds:.3f} s, from {longest.start:.3f} to {longest.end:.3f} s "
        f"after its start, between {longest.after} and {longest.before}: "
        f"phases cover {longest.covered:.2%} of it, and must cover {coverage:.0%}{others}",
        where=f"step {longest.step} of {longest.lane!r}",
        remedy='wrap what happens there: with steps.phase("sync"): ..., or any other word',
    )
