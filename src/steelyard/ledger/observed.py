"""A run of a ledger in columns, as pricing reads it.

What the record does not hold is not made up: an attempt that an older version wrote has no start, a file
that was scored without a column `step` is one step, and how long generation and training took stands in
spans, if a loop recorded them (`measure` joins them).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from steelyard.errors import RefusedError
from steelyard.ledger.log import Ledger
from steelyard.ledger.rows import ABSTAINED, SCORED, first_place
from steelyard.ledger.runs import Run
from steelyard.ledger.spans import sessions
from steelyard.pricing.observed import (
    MISSING,
    UNSCORED,
    Bools,
    Calls,
    Floats,
    Ints,
    Observed,
    Rows,
    Steps,
    blank,
    compact,
)

UNJUDGED: Final = -1
_AT_ONCE: Final = 4_096  # rows at a time: they stay in the processor's cache


def observed(ledger: Ledger, run: Run) -> Observed:
    """Read one run: some microseconds for each attempt and each verdict.

    Parameters
    ----------
    ledger, run
        The record, and which of its runs.

    Raises
    ------
    RefusedError
        If the run has no attempt that was timed.
    """
    with _no_cycles():
        return _observed(ledger, run)


def _observed(ledger: Ledger, run: Run) -> Observed:
    causes = _Words()
    table = _attempts(ledger, run, causes)
    asked = table["first"]
    if not len(asked):
        raise RefusedError(
            f"run {run.number} has no attempt with a service time",
            where=str(ledger.path),
            remedy="price a ledger in which something was judged, or use numbers alone: "
            "steelyard price --busy 25 --timeout 30 --median 2 --rate 0.01 --batch 128 --group 8",
        )
    groups = _groups(ledger, run, table)
    labels, step_of = _steps(ledger, run, groups)
    row_step = step_of[groups]
    value, verdict, right = _verdicts(ledger, run, len(groups))
    step = row_step[asked]
    last = np.minimum(asked + table["members"], len(row_step)) - 1
    apart = (table["members"] == 1) | (step == row_step[last])
    if not apart.all():  # a chunk of cheap judgements: it says nothing of one step's wait
        table = {name: column[apart] for name, column in table.items()}
        asked, step = table["first"], step[apart]
    began, machine = _clocks(ledger, run, step, table, len(labels))
    calls = Calls(
        step=step,
        group=np.where(table["members"] == 1, groups[asked], table["grp"]),
        row=asked,
        part=table["part"],
        service_s=table["service_s"],
        censored=table["censored"] != 0,
        cause=table["cause"],
        queued_s=table["queued_s"],
        began_s=began,
        spawn_s=table["spawn_s"],
        cpu_s=table["cpu_s"],
        passed=right[table["part"], asked] & (table["cause"] == MISSING),
    )
    stepped = labels != [""]
    judged = verdict != UNJUDGED
    nothing = blank(len(labels))
    return Observed(
        f"{ledger.path.name}, run {run.number}",
        calls,
        Rows(
            row_step[judged],
            groups[judged],
            value[judged],
            verdict[judged],
            np.broadcast_to(np.False_, int(judged.sum())),
            compact(np.flatnonzero(judged)),
        ),
        Steps(labels, nothing, nothing, nothing, nothing, machine),
        list(run.parts),
        causes.known,
        stepped=stepped,
        says=["service time, queue and end of every attempt", "every verdict, by part"],
        lacks=_lacks(run, stepped=stepped, together=int((~apart).sum()), unjudged=int((~judged).sum())),
    )


class _Words:
    """Numbers words as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def known(self) -> list[str]:
        return list(self._numbers)

    def number(self, word: str | None) -> int:
        return MISSING if word is None else self._numbers.setdefault(word, len(self._numbers))


_COLUMNS: Final[Mapping[str, str]] = {
    "first": "first",
    "part": "part",
    "members": "members",
    "service_s": "service_s",
    "censored": "censored",
    "cause": "coalesce(cut_by, nullif(ended, 'finished'))",
    "queued_s": "queued_s",
    "spawn_s": "spawn_s",
    "cpu_s": "cpu_s",
}
_LATER: Final[Mapping[str, str]] = {
    "grp": f"coalesce(grp, {MISSING})",
    "session": f"coalesce(session, {MISSING})",
    "began_s": "began_s",
}


def _attempts(ledger: Ledger, run: Run, causes: _Words) -> dict[str, Any]:
    """Read the attempts that were timed, in columns; no audits, which nobody waits for."""
    words = {**_COLUMNS, **(_LATER if ledger.has_instants else {})}
    parts: dict[str, list[Any]] = {name: [] for name in words}
    query = f"SELECT {', '.join(words.values())} FROM attempts WHERE run = ? AND try >= 0"
    for columns in _columns(ledger, f"{query} AND service_s IS NOT NULL ORDER BY attempt", run.number):
        for name, column in zip(words, columns, strict=True):
            if name.endswith("_s"):
                parts[name].append(None if set(column) == {None} else np.array(column, np.float64))
            else:
                numbers = [causes.number(word) for word in column] if name == "cause" else column
                parts[name].append(compact(np.array(numbers, np.int64)))
    sizes = [len(one) for one in parts["first"]]
    table = {name: _whole(some, sizes) for name, some in parts.items()}
    none = np.broadcast_to(np.int32(MISSING), sum(sizes))
    return {"grp": none, "session": none, "began_s": blank(sum(sizes))} | table


def _whole(parts: list[Any], sizes: list[int]) -> Any:  # noqa: ANN401 - of floats or of whole numbers
    """Put a column's parts together; where nothing was measured, in no memory."""
    if all(part is None for part in parts):
        return blank(sum(sizes)) if parts else np.zeros(0, np.int32)
    whole = [blank(size) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    parts.clear()
    return np.concatenate(whole)


def _columns(ledger: Ledger, query: str, *values: object) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the columns of what a query finds, for so many rows at a time."""
    rows = ledger.query(query, *values)
    while some := rows.fetchmany(_AT_ONCE):
        yield list(zip(*some, strict=True))


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Let nobody look for cycles meanwhile: none are made, and it would take a quarter of the time."""
    watched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if watched:
            gc.enable()


def _groups(ledger: Ledger, run: Run, table: Mapping[str, Any]) -> Ints:
    """The group of every rollout, by ordinal: of attempts, if they tell it: rollouts take long to read."""
    first = first_place(run.number)
    last = "SELECT max(place) - ?1 FROM rollouts WHERE place BETWEEN ?1 AND ?2"
    (most,) = ledger.query(last, first, first_place(run.number + 1) - 1).fetchone()
    alone = table["members"] == 1
    told = np.full(most + 1, MISSING, np.int64)
    told[table["first"][alone]] = table["grp"][alone]
    if (told != MISSING).all():
        return compact(told)
    query = "SELECT place - ?1, grp FROM rollouts WHERE place BETWEEN ?1 AND ?2 ORDER BY place"
    found = [np.zeros((2, 0), np.int64)]
    found += [
        np.array(columns, np.int64)
        for columns in _columns(ledger, query, first, first_place(run.number + 1) - 1)
    ]
    ordinals, groups = np.concatenate(found, axis=1)
    by_ordinal = np.full(int(ordinals[-1]) + 1 if len(ordinals) else 0, MISSING, np.int64)
    by_ordinal[ordinals] = groups
    return compact(by_ordinal)


def _steps(ledger: Ledger, run: Run, groups: Ints) -> tuple[list[str], Ints]:
    """What steps are called, in the order in which they came, and by group the number of its step."""
    count = int(groups.max()) + 1 if len(groups) else 0
    step_of = np.zeros(count, np.int64)
    rows = (
        ledger.query("SELECT grp, step FROM steps WHERE run = ? ORDER BY grp", run.number).fetchall()
        if ledger.has_instants
        else []
    )
    if not rows:
        return [""], step_of
    words = _Words()
    if len(rows) < len(np.unique(groups[groups != MISSING])):  # ordinals may have gaps
        words.number("not told")
    for group, step in rows:
        step_of[group] = words.number(step)
    labels = words.known
    if all(label.isdecimal() for label in labels):  # numbered: whatever order the groups came in
        order = np.argsort([int(label) for label in labels], kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        labels, step_of = [labels[one] for one in order], place[step_of]
    return labels, compact(step_of)


def _verdicts(ledger: Ledger, run: Run, rollouts: int) -> tuple[Floats, Ints, Bools]:
    """Total and verdict of every rollout; and by part and rollout whether it was right.

    That is: scored without a code, and better than the part's lowest where its values differ.
    """
    weights: Mapping[str, float] = run.spec.get("weights", {})
    weight = np.array([float(weights.get(name, 1.0)) for name in run.parts])
    value, scored, abstained = np.zeros(rollouts), np.zeros(rollouts, np.bool_), np.zeros(rollouts, np.bool_)
    lost, best = np.zeros(rollouts, np.bool_), np.full((len(weight), rollouts), np.nan)
    lowest = np.full(len(weight), np.inf)
    differ = np.zeros(len(weight), np.bool_)
    first = first_place(run.number)
    query = "SELECT place - ?1, part, verdict, value, code IS NULL FROM scores WHERE place BETWEEN ?1 AND ?2"
    for columns in _columns(ledger, query, first, first_place(run.number + 1) - 1):
        ordinal, part, kind = (np.array(column, np.int64) for column in columns[:3])
        said, full = np.array(columns[3], np.float64), np.array(columns[4], np.bool_)
        judged = kind == SCORED
        np.add.at(value, ordinal[judged], said[judged] * weight[part[judged]])
        scored[ordinal[judged]] = True
        abstained[ordinal[kind == ABSTAINED]] = True
        lost[ordinal[(kind != SCORED) & (kind != ABSTAINED)]] = True
        before = lowest.copy()
        np.minimum.at(lowest, part[judged], said[judged])
        highest = np.where(np.isfinite(before), before, -np.inf)
        np.maximum.at(highest, part[judged], said[judged])
        differ |= lowest < highest
        full &= judged
        best[part[full], ordinal[full]] = said[full]
    bar = np.where(differ, lowest, -np.inf)[:, None]
    verdict = compact(np.select([lost, scored, abstained], [UNSCORED, SCORED, ABSTAINED], default=UNJUDGED))
    value[verdict != SCORED] = np.nan
    return value, verdict, best > bar


def _clocks(
    ledger: Ledger, run: Run, step: Ints, table: Mapping[str, Any], count: int
) -> tuple[Floats, Ints]:
    """When calls began, unless several sessions worked on their step; and the machine of each step."""
    session, began = table["session"], table["began_s"]
    writers = [one for one in sessions(ledger) if one.run == run.number]
    words = _Words()
    number = {one.number: words.number(one.machine) for one in writers}
    if len(writers) == 1:
        return began, np.zeros(count, np.int64)
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, step, session)
    np.maximum.at(high, step, session)
    machine = np.array([number.get(one, MISSING) for one in high.tolist()], np.int64)
    return np.where((high > low)[step], np.nan, began), machine


def _lacks(run: Run, *, stepped: bool, together: int, unjudged: int) -> list[str]:
    found = ["how long generation and training took: record them (docs/recording.md), or say --busy"]
    if not stepped:
        found.append(
            "which training step a rollout belongs to, so the run is one burst: give rows a column `step`"
        )
    if together:
        calls = f"{together:,} call{'s' * (together != 1)}"
        found.append(f"times of {calls} that judged rollouts of several steps at once")
    if unjudged:
        found.append(f"verdicts of {unjudged:,} rollouts: the run was stopped before they were judged")
    if run.spec.get("shapes") or run.spec.get("combine", "weighted sum") != "weighted sum":
        found.append("what the recipe makes of the weighted sum of its parts: totals here are that sum")
    return found
