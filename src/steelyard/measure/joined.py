"""Spans as pricing reads them: a loop that was recorded, alone or beside what a runtime wrote down.

A loop that records its own rewards (`steps.call(...)`) is a run by itself. Beside a run of the runtime, spans
bring what the ledger lacks: generation, training, and what a step waited. The two find each other by what
a step is called (`runtime.score(groups, step=17)` in `steps.step(17)`), or, where no name is told, by when
the attempts began.

A step that was broken off, or has a hole, is left out, with its calls and its rollouts, and said to be.

Ranks that number their groups each for itself are told from ranks that share one numbering: where two of
them judge the same member of the same group of a step at the same time, it is not the same. A rank is
a process that records steps, generation or training; one that only serves rewards numbers nothing.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from steelyard.clock import Seconds, Span, in_words
from steelyard.errors import RefusedError
from steelyard.measure.calltimes import CallTimes
from steelyard.measure.intervals import Intervals, union
from steelyard.measure.table import ACCELERATOR, CALL, GENERATION, QUEUED, REWARD, STEP, TRAINING
from steelyard.measure.timeline import COVERAGE, Hole, Timeline, Watched, watched
from steelyard.measure.which import only, with_unrewarded
from steelyard.pricing.observed import (
    MISSING,
    SCORED,
    UNSCORED,
    Bools,
    Calls,
    Floats,
    Ints,
    Observed,
    Rows,
    Steps,
    blank,
)

SAYS: Final = "generation, training and the wait of every step, as a recorder saw them"
BETWEEN: Final = "between steps"
"""What attempts belong to that began in none."""

_APART_S: Final = 1e-6
"""What sums of times may differ by."""


def of_spans(
    spans: Sequence[Span],
    *,
    source: str,
    phases: Mapping[str, str] | None = None,
    coverage: float | None = COVERAGE,
) -> Observed:
    """A recorded loop whose rewards are its own.

    Parameters
    ----------
    spans
        What was recorded, on one machine.
    source
        Where it came from, for people.
    phases, coverage
        As in `timeline`.

    Raises
    ------
    RefusedError
        As `timeline`.
    """
    seen = watched(spans, phases=phases, coverage=coverage)
    line, out = seen.line.where(seen.whole), seen.out
    made = [span for span in spans if span.phase == CALL and span.step not in out]
    value = np.array([np.nan if span.value is None else span.value for span in made], float)
    causes = sorted({span.cut_by for span in made if span.cut_by is not None})
    own = _own_numbers(made, _ranks(spans, phases or {}))
    calls = _calls(made, value, np.searchsorted(line.step, [span.step for span in made]), causes, own)
    rows = _rows(calls, value)
    lacks = [*_lacks(line.steps(), seen, len(seen.broken)), *_voteless(rows)]
    if not made:
        lacks.insert(0, "how long single calls take: record them with steps.call(group=..., member=...)")
    return Observed(
        source,
        replace(calls, queued_s=_queued(spans, made)),
        rows,
        line.steps(),
        ["reward"],
        causes,
        stepped=True,
        says=[SAYS, *(["service time and end of every call"] if made else [])],
        lacks=lacks,
    )


def _voteless(rows: Rows) -> list[str]:
    """What is made of calls without a reward, in a sentence."""
    count = int((rows.verdict == UNSCORED).sum())
    if not count:
        return []
    several = "calls have" if count > 1 else "call has"
    gave = "them" if count > 1 else "it"
    return [
        f"{count:,} {several} no reward: taken as not voting; if your loop gave {gave} 0, say call.value(0.0)"
    ]


def _ranks(spans: Sequence[Span], phases: Mapping[str, str]) -> set[str]:
    """The processes that train or generate, and do not only serve rewards."""
    lanes = {span.lane for span in spans if phases.get(span.phase, span.phase) in {STEP, *ACCELERATOR}}
    return {_process(lane) for lane in lanes}


def _process(lane: str) -> str:
    """A lane without its thread."""
    return lane.partition("/")[0]


def _own_numbers(made: Sequence[Span], ranks: Container[str]) -> Container[str]:
    """The processes that number groups each for itself: all ranks, or none."""
    judged = [span for span in made if span.member is not None and _process(span.lane) in ranks]
    lane = _numbered([_process(span.lane) for span in judged])
    count = int(lane.max(initial=0)) + 1
    if count == 1:
        return ()
    key = _numbered([(span.step, span.group, span.member) for span in judged]).astype(np.int64)
    start = np.array([span.start for span in judged], float)
    end = np.array([span.end for span in judged], float)
    together = union(Intervals(key, start, end)).lengths(int(key.max()) + 1)
    apart = union(Intervals(key * count + lane, start, end))
    twice = apart._replace(key=apart.key // count).lengths(len(together)) - together
    return ranks if (twice > _APART_S).any() else ()


def _calls(
    made: Sequence[Span], value: Floats, step: Ints, causes: Sequence[str], own: Container[str]
) -> Calls:
    """Calls as they were recorded, their queues apart; processes of `own` have groups of their own."""
    by = [lane if (lane := _process(span.lane)) in own else "" for span in made]
    names = [
        MISSING if span.group is None else (span.step, lane, span.group)
        for span, lane in zip(made, by, strict=True)
    ]
    rows = [
        at if name == MISSING or span.member is None else (name, span.member)
        for at, (span, name) in enumerate(zip(made, names, strict=True))
    ]
    number: dict[str | None, int] = {word: at for at, word in enumerate(causes)}
    cut = np.array([span.cut_by is not None for span in made], np.bool_)
    start = np.array([span.start for span in made], float)
    lowest = value.min(initial=np.inf, where=np.isfinite(value))
    nothing = blank(len(made))
    return Calls(
        step=step.astype(np.int64),
        group=_numbered(names),
        row=_numbered(rows),
        part=np.zeros(len(made), np.int64),
        service_s=np.array([span.end for span in made], float) - start,
        censored=cut,
        cause=np.array([number.get(span.cut_by, MISSING) for span in made], np.int64),
        queued_s=nothing,
        began_s=start,
        spawn_s=nothing,
        cpu_s=nothing,
        passed=~cut & (value > lowest),
    )


def joined(
    observed: Observed,
    spans: Sequence[Span],
    *,
    phases: Mapping[str, str] | None = None,
    coverage: float | None = COVERAGE,
) -> Observed:
    """A run with what a recorder saw of its steps.

    Parameters
    ----------
    observed
        The run; where its steps are not those of the spans by name, its calls must tell when they began, on
        the clock of the spans.
    spans, phases, coverage
        As in `of_spans`.

    Raises
    ------
    RefusedError
        As `timeline`; if run and spans have no step in common.
    """
    observed = with_unrewarded(observed, spans, phases or {})
    numbers = np.unique(np.array([span.step for span in spans], np.int64))
    known = {str(number): at for at, number in enumerate(numbers.tolist())}
    place: Ints = np.array([known.get(str(label), MISSING) for label in observed.steps.labels])
    if (place == MISSING).all():
        observed, place = _by_time(observed, watched(spans, phases=phases, coverage=coverage).line)
    calls = observed.calls
    timed = np.isfinite(calls.began_s + calls.service_s)
    told = np.flatnonzero((place[calls.step] != MISSING) & timed)
    times = CallTimes(
        numbers[place[calls.step[told]]],
        calls.began_s[told],
        calls.began_s[told] + calls.service_s[told],
        calls.queued_s[told],
    )
    beside = times if len(told) else None
    told_of = watched(spans, phases=phases, coverage=coverage, calls=beside)
    seen = told_of.line
    found = place != MISSING
    hidden = np.zeros(len(place), np.bool_)
    hidden[calls.step[~timed]] = True
    hidden &= ~_any_of(_rewarded(spans, phases or {}), numbers, place)
    steps = replace(
        observed.steps,
        generation_s=_taken(seen.generation_s, place),
        training_s=_taken(seen.training_s, place),
        exposed_s=np.where(hidden, np.nan, _taken(seen.exposed_s, place)),
        wall_s=_taken(seen.wall_s, place),
        reward_s=np.where(hidden, np.nan, _taken(seen.reward_s, place)),
    )
    lacks = [one for one in observed.lacks if "generation and training" not in one]
    if not found.all():
        lacks.append(f"phases of {int((~found).sum()):,} of {len(place):,} steps: they were not recorded")
    whole = replace(observed, steps=steps, stepped=True, says=[*observed.says, SAYS])
    out = _any_of(told_of.out, numbers, place)
    whole = only(whole, ~out)
    broken = int(_any_of(told_of.broken, numbers, place).sum())
    return replace(whole, lacks=[*lacks, *_lacks(whole.steps, told_of, broken, found[~out])])


def _rewarded(spans: Sequence[Span], phases: Mapping[str, str]) -> set[int]:
    """Numbers of the steps that have a phase of rewards."""
    return {span.step for span in spans if phases.get(span.phase, span.phase) == REWARD}


def _any_of(chosen: set[int], numbers: Ints, place: Ints) -> Bools:
    """Which places are those of chosen numbers."""
    found: Bools = np.isin(numbers, np.array(sorted(chosen), np.int64))[place] & (place != MISSING)
    return found


def _taken(column: Floats, place: Ints) -> Floats:
    """A column by place; `nan` where a step has none."""
    return np.where(place != MISSING, column[place], np.nan)


def _lacks(steps: Steps, seen: Watched, broken: int, recorded: Bools | None = None) -> list[str]:
    """What was not recorded of the steps that were, in sentences."""
    if recorded is None:
        recorded = np.ones(len(steps), np.bool_)
    count = int(recorded.sum())
    halves = {GENERATION: steps.generation_s, TRAINING: steps.training_s}
    without = {word: int(np.isnan(column[recorded]).sum()) for word, column in halves.items()}
    found = [
        f"{word} of {some:,} of {count:,} steps: they recorded none"
        for word, some in without.items()
        if 0 < some < count
    ]
    never = [word for word, some in without.items() if some == count]
    if never:
        which, some = "which phase it is", "NAME"
        if seen.words:
            which = f"what the {_named('phase', seen.words)} mean{'s' * (len(seen.words) == 1)}"
            some = seen.words[0]
        found.append(
            f"how long {' and '.join(never)} took: no step recorded it; say {which} "
            f"(--phase {some}={never[0]}), or say --busy"
        )
    waits = int(np.isnan(steps.exposed_s[recorded]).sum())
    if waits and len(never) < len(halves):
        found.append(
            f"what {waits:,} of {count:,} steps waited beside work: they have no phase `reward`, and "
            "not every call of theirs tells when it began"
        )
    if broken:
        several = "steps that were" if broken > 1 else "step that was"
        found.append(f"{broken:,} {several} broken off before the end: left out, with all calls")
    return [*found, *_of_holes(seen.holes)]


def _named(what: str, words: Sequence[str]) -> str:
    some = ", ".join(map(repr, words[:5])) + (", ..." if len(words) > 5 else "")
    return f"{what}{'s' * (len(words) > 1)} {some}"


def _of_holes(holes: Sequence[Hole]) -> list[str]:
    """Which time is missing where a few steps have holes, in a sentence."""
    if not holes:
        return []
    longest = max(holes, key=lambda hole: hole.seconds)
    count = len({hole.step for hole in holes})
    told = (
        f"{count:,} step{'s' * (count > 1)} in which time is missing: left out, with all calls; the longest "
        f"hole is {in_words(longest.seconds)} of step {longest.step} of {longest.lane!r}, between "
        f"{longest.after} and {longest.before}"
    )
    return [told]


def latest(spans: Sequence[tuple[int, Span]]) -> list[Span]:
    """Of several runs of a process, which follow each other, what the last one to do a step recorded.

    A run that is resumed at step 50, or begun again at step 0, does again what came then: the steps of
    earlier ones are dropped from there on, whatever thread recorded them. Sessions of one process that
    overlap are of one run: it was forked, or has two recorders.

    Parameters
    ----------
    spans
        Each with the number of its session: who wrote it. Of one clock.
    """
    hulls: dict[tuple[str, int], tuple[Seconds, Seconds, int]] = {}
    for session, span in spans:
        key = (_process(span.lane), session)
        start, end, step = hulls.get(key, (span.start, span.end, span.step))
        hulls[key] = (min(start, span.start), max(end, span.end), min(step, span.step))
    until = _until(hulls)
    return [span for session, span in spans if span.step < until[_process(span.lane), session]]


def _until(hulls: Mapping[tuple[str, int], tuple[Seconds, Seconds, int]]) -> dict[tuple[str, int], float]:
    """By process and session, the first step that a later run of the process did again."""
    found: dict[tuple[str, int], float] = {}
    again: dict[str, float] = {}
    begun: dict[str, tuple[Seconds, float]] = {}
    for key, (start, end, step) in sorted(hulls.items(), key=lambda one: -one[1][1]):  # the last to end first
        process = key[0]
        since, first = begun.get(process, (inf, inf))
        if end <= since:  # a run before the one that was looked at
            again[process] = min(again.get(process, inf), first)
            since, first = inf, inf
        begun[process] = (min(since, start), min(first, step))
        found[key] = again.get(process, inf)
    return found


def left_out(spans: Sequence[tuple[int, Span]], kept: Sequence[Span]) -> list[str]:
    """What `latest` did not keep, in a sentence."""
    count = len(spans) - len(kept)
    several = "spans are" if count > 1 else "span is"
    return [f"{count:,} {several} left out: later sessions did their steps again"] if count else []


def without_clock(observed: Observed, machines: Sequence[str]) -> Observed:
    """A run whose calls began by another clock than that of the spans, for `joined`: when is not known."""
    calls = replace(observed.calls, began_s=blank(len(observed.calls)))
    told = (
        "when calls began, beside the recorded phases: they have the clocks of different machines, or of "
        f"several starts of one ({', '.join(machines)})"
    )
    return replace(observed, calls=calls, lacks=[*observed.lacks, told])


def _by_time(observed: Observed, line: Timeline) -> tuple[Observed, Ints]:
    """Give every call the step that it began in, and every rollout that of its calls."""
    calls, rows = observed.calls, observed.rows
    order = np.argsort(line.start)
    at = np.searchsorted(line.start[order], calls.began_s, side="right") - 1
    step = np.where(at >= 0, order[np.maximum(at, 0)], MISSING)
    within = (step != MISSING) & (calls.began_s <= line.end[step])
    if not within.any():
        raise RefusedError(
            f"none of its {len(observed.steps)} steps was recorded, neither by name nor by time",
            where=observed.source,
            remedy="tell the runtime the recorder's number: runtime.score(groups, step=17) in steps.step(17)",
        )
    outside = len(line)
    step = np.where(within, step, outside)
    row_step = np.full(max(int(calls.row.max(initial=-1)) + 1, len(rows)), outside, np.int64)
    row_step[calls.row] = step
    if (rows.group != MISSING).any():  # a group is of one step, also where one call judged many rollouts
        of_group = np.full(int(rows.group.max()) + 1, outside, np.int64)
        judged = calls.group != MISSING
        of_group[calls.group[judged]] = step[judged]
        row_step = np.where(rows.group != MISSING, of_group[rows.group], outside)
    labels = [*map(str, line.step.tolist()), BETWEEN]
    place = np.append(np.arange(outside), MISSING)
    if within.all() and not (row_step[: len(rows)] == outside).any():
        labels, place = labels[:-1], place[:-1]
    nothing = blank(len(labels))
    steps = Steps(labels, nothing, nothing, nothing, nothing, np.full(len(labels), MISSING))
    found = replace(
        observed,
        calls=replace(calls, step=step),
        rows=replace(rows, step=row_step[: len(rows)]),
        steps=steps,
    )
    return found, place


def _queued(spans: Sequence[Span], calls: Sequence[Span]) -> Floats:
    """How long each call waited for its turn, where that was recorded."""
    waited = {
        (span.step, span.lane, span.group, span.member, span.end): span.end - span.start
        for span in spans
        if span.phase == QUEUED
    }
    keys = ((span.step, span.lane, span.group, span.member, span.start) for span in calls)
    return np.array([waited.get(key, np.nan) for key in keys], float)


def _rows(calls: Calls, value: Floats) -> Rows:
    """The rollouts, if their rewards were told: the last call of each counts."""
    if not np.isfinite(value).any():
        nothing = np.zeros(0, np.int64)
        return Rows(nothing, nothing, blank(0), nothing, np.zeros(0, np.bool_))
    last = np.full(int(calls.row.max()) + 1, MISSING, np.int64)
    last[calls.row] = np.arange(len(calls))
    last = last[last != MISSING]
    told = np.isfinite(value[last])
    verdict = np.where(told, SCORED, UNSCORED)
    return Rows(calls.step[last], calls.group[last], value[last], verdict, told & calls.censored[last])


def _numbered(keys: Sequence[Hashable]) -> Ints:
    """A number for every different key; `MISSING` stays."""
    numbers: dict[Hashable, int] = {}
    return np.array(
        [MISSING if key == MISSING else numbers.setdefault(key, len(numbers)) for key in keys], np.int64
    )
