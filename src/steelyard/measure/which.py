"""Which steps of a run are steps that training waits in: some are left out, some have no rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure.table import REWARD
from steelyard.pricing.observed import MISSING, Bools, Calls, Ints, Observed, Rows, Steps

EVALUATION: Final = "evaluation"
"""What the names of steps begin with for which no training waits."""

_Table = TypeVar("_Table", Calls, Rows)


def without_evaluations(whole: Observed) -> Observed:
    """The same run without what was scored to see how good the policy is; unless that is all there is."""
    kept = np.array([not str(label).startswith(EVALUATION) for label in whole.steps.labels], np.bool_)
    if kept.all() or not kept.any():
        return whole
    found, count = only(whole, kept), int((~kept).sum())
    says = f"{count:,} evaluation{'s' * (count > 1)} left out: no training waits for them"
    return replace(found, says=[*found.says, says])


def only(whole: Observed, kept: Bools) -> Observed:
    """The same run with the steps that are kept, and what is in them."""
    if kept.all():
        return whole
    if not kept.any():
        raise RefusedError(
            "none of its steps was finished: each was left by an exception, or its recorder was closed",
            where=whole.source,
            remedy="record at least one step to its end",
        )
    number = np.cumsum(kept) - 1

    def taken(table: _Table) -> _Table:
        chosen = np.flatnonzero(kept[table.step])
        found = replace(table, **_columns(table, chosen))
        return replace(found, step=number[found.step])

    steps, rows = whole.steps, whole.rows
    if rows.row is None:  # they were numbered as they stand, and stand elsewhere from now on
        rows = replace(rows, row=np.arange(len(rows)))
    labels = [label for label, keep in zip(steps.labels, kept, strict=True) if keep]
    return replace(
        whole,
        calls=taken(whole.calls),
        rows=taken(rows),
        steps=replace(steps, labels=labels, **_columns(steps, np.flatnonzero(kept))),
    )


def with_unrewarded(observed: Observed, spans: Sequence[Span], phases: Mapping[str, str]) -> Observed:
    """The same run with steps that by an empty phase had no reward to wait for: a generation serves many."""
    labels = list(observed.steps.labels)
    took: dict[int, float] = {}
    for span in spans:
        if phases.get(span.phase, span.phase) == REWARD:
            took[span.step] = max(took.get(span.step, 0.0), span.end - span.start)
    more = [str(step) for step, seconds in took.items() if seconds == 0 and str(step) not in labels]
    if not more or not all(label.isdecimal() for label in labels):
        return observed
    labels += more
    order = np.argsort([int(label) for label in labels], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))

    def padded(column: NDArray[Any]) -> NDArray[Any]:
        nothing = MISSING if column.dtype.kind == "i" else np.nan
        return np.append(column, np.full(len(more), nothing, column.dtype))[order]

    columns = _columns(observed.steps, np.arange(len(observed.steps)))
    steps = replace(observed.steps, labels=[labels[at] for at in order])
    wider: dict[str, Any] = {name: padded(column) for name, column in columns.items()}
    return replace(
        observed,
        steps=replace(steps, **wider),
        calls=replace(observed.calls, step=place[observed.calls.step]),
        rows=replace(observed.rows, step=place[observed.rows.step]),
    )


def _columns(table: Calls | Rows | Steps, chosen: Ints) -> dict[str, Any]:
    """Its columns, where it has them, with the chosen rows."""
    columns = {one.name: getattr(table, one.name) for one in fields(table)}
    return {name: column[chosen] for name, column in columns.items() if isinstance(column, np.ndarray)}
