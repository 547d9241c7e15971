"""Spans as pricing reads them: a loop that was recorded, alone or beside what a runtime wrote down.

A loop that records its own rewards (`steps.call(...)`) is a run by itself. Beside a run of the runtime, spans
bring what the ledger lacks: generation, training, and what a step waited. The two find each other by what
a step is called (`runtime.score(groups, step=17)` in `steps.step(17)`), or, where no name is told, by when
the attempts began.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure.calltimes import CallTimes
from steelyard.measure.timeline import CALL, COVERAGE, QUEUED, Timeline, timeline
from steelyard.pricing.observed import (
    MISSING,
    SCORED,
    UNSCORED,
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
    line = timeline(spans, phases=phases, coverage=coverage)
    made = [span for span in spans if span.phase == CALL]
    value = np.array([np.nan if span.value is None else span.value for span in made], float)
    causes = sorted({span.cut_by for span in made if span.cut_by is not None})
    calls = _calls(made, value, np.searchsorted(line.step, [span.step for span in made]), causes)
    lacks = "how long single calls take: record them with steps.call(group=..., member=...)"
    return Observed(
        source,
        replace(calls, queued_s=_queued(spans, made)),
        _rows(calls, value),
        _steps(line),
        ["reward"],
        causes,
        stepped=True,
        says=[SAYS, *(["service time and end of every call"] if made else [])],
        lacks=[] if made else [lacks],
    )


def _calls(made: Sequence[Span], value: Floats, step: Ints, causes: Sequence[str]) -> Calls:
    """Calls as they were recorded, their queues apart."""
    names = [MISSING if span.group is None else (span.step, span.group) for span in made]
    rows = [
        at if span.group is None or span.member is None else (span.step, span.group, span.member)
        for at, span in enumerate(made)
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
    numbers = np.unique(np.array([span.step for span in spans], np.int64))
    known = {str(number): at for at, number in enumerate(numbers.tolist())}
    place: Ints = np.array([known.get(str(label), MISSING) for label in observed.steps.labels])
    if (place == MISSING).all():
        observed, place = _by_time(observed, timeline(spans, phases=phases, coverage=coverage))
    calls = observed.calls
    told = np.flatnonzero((place[calls.step] != MISSING) & np.isfinite(calls.began_s + calls.service_s))
    times = CallTimes(
        numbers[place[calls.step[told]]],
        calls.began_s[told],
        calls.began_s[told] + calls.service_s[told],
        calls.queued_s[told],
    )
    seen = _steps(timeline(spans, phases=phases, coverage=coverage, calls=times if len(told) else None))
    found = place != MISSING

    def taken(column: Floats | None) -> Floats:
        filled = np.full(len(place), np.nan)
        if column is not None:
            filled[found] = column[place[found]]
        return filled

    steps = replace(
        observed.steps,
        generation_s=taken(seen.generation_s),
        training_s=taken(seen.training_s),
        exposed_s=taken(seen.exposed_s),
        wall_s=taken(seen.wall_s),
        reward_s=taken(seen.reward_s),
    )
    lacks = [one for one in observed.lacks if "generation and training" not in one]
    if not found.all():
        lacks.append(f"phases of {int((~found).sum()):,} of {len(place):,} steps: they were not recorded")
    return replace(observed, steps=steps, stepped=True, says=[*observed.says, SAYS], lacks=lacks)


def latest(spans: Sequence[tuple[int, Span]]) -> list[Span]:
    """Of each step and lane, what the last session recorded: a run that goes on does its last step again."""
    last: dict[tuple[int, str], int] = {}
    for session, span in spans:
        key = (span.step, span.lane)
        last[key] = max(session, last.get(key, session))
    return [span for session, span in spans if last[span.step, span.lane] == session]


def _by_time(observed: Observed, line: Timeline) -> tuple[Observed, Ints]:
    """Give every call the step that it began in, and every rollout that of its calls."""
    calls, rows = observed.calls, observed.rows
    order = np.argsort(line.start)
    at = np.searchsorted(line.start[order], calls.began_s, side="right") - 1
    step = np.where(at >= 0, order[np.maximum(at, 0)], MISSING)
    within = (step != MISSING) & (calls.began_s <= (line.start + line.wall_s)[step])
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


def _steps(line: Timeline) -> Steps:
    return replace(line.steps(), reward_s=line.reward_s)


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
