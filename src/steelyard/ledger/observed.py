"""A run of a ledger in columns, as pricing reads it.

What the record does not hold is not made up: an attempt that an older version wrote has no start, a file
that was scored without a column `step` is one step, and how long generation and training took stands in
spans, if a loop recorded them (`measure` joins them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
)

_AT_ONCE: Final = 65_536  # rows that stand in Python's memory at a time


def observed(ledger: Ledger, run: Run) -> Observed:
    """Read one run: 2 us for an attempt, 2 us for a verdict.

    Parameters
    ----------
    ledger, run
        The record, and which of its runs.

    Raises
    ------
    RefusedError
        If the run has no attempt that was timed.
    """
    causes = _Words()
    table = _attempts(ledger, run, causes)
    if not len(table["attempt"]):
        raise RefusedError(
            f"run {run.number} has no attempt with a service time",
            where=str(ledger.path),
            remedy="price a ledger in which something was judged, or use numbers alone: "
            "steelyard price --busy 25 --timeout 30 --median 2 --rate 0.01 --batch 128 --group 8",
        )
    groups = _groups(ledger, run)
    labels, step_of = _steps(ledger, run, groups)
    row_step = step_of[groups] if len(groups) else np.zeros(0, np.int64)
    value, verdict, passed = _verdicts(ledger, run, len(groups), int(table["attempt"].max()) + 1)
    asked = table["first"]
    began = table["began_s"].copy()
    began[_patched(row_step[asked], table["session"], len(labels))[row_step[asked]]] = np.nan
    calls = Calls(
        step=row_step[asked],
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
        passed=passed[table["attempt"]],
    )
    stepped = labels != [""]
    return Observed(
        f"{ledger.path.name}, run {run.number}",
        calls,
        Rows(row_step, groups, value, verdict, np.zeros(len(groups), np.bool_)),
        _no_phases(labels, _machines(ledger, run, row_step[asked], table["session"], len(labels))),
        list(run.parts),
        causes.known,
        stepped=stepped,
        says=["service time, queue and end of every attempt", "every verdict, by part"],
        lacks=_lacks(run, stepped=stepped),
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
    "attempt": "attempt",
    "part": "part",
    "first": "first",
    "members": "members",
    "service_s": "service_s",
    "censored": "censored",
    "cause": "coalesce(cut_by, nullif(ended, 'finished'))",
    "queued_s": "queued_s",
    "spawn_s": "spawn_s",
    "cpu_s": "cpu_s",
    "grp": f"coalesce(grp, {MISSING})",
    "session": f"coalesce(session, {MISSING})",
    "began_s": "began_s",
}


def _attempts(ledger: Ledger, run: Run, causes: _Words) -> dict[str, Any]:
    """Read the attempts that were timed, in columns; no audits, which nobody waits for."""
    words = dict(_COLUMNS)
    if not ledger.has_instants:
        words |= {"grp": str(MISSING), "session": str(MISSING), "began_s": "NULL"}
    rows = ledger.query(
        f"SELECT {', '.join(words.values())} FROM attempts "
        "WHERE run = ? AND try >= 0 AND service_s IS NOT NULL ORDER BY attempt",
        run.number,
    )
    parts: dict[str, list[Any]] = {name: [] for name in words}
    while some := rows.fetchmany(_AT_ONCE):
        for name, column in zip(words, zip(*some, strict=True), strict=True):
            if name == "cause":
                numbers: Sequence[Any] = [causes.number(word) for word in column]
            else:
                numbers = column
            parts[name].append(np.array(numbers, np.float64 if name.endswith("_s") else np.int64))
    return {
        name: np.concatenate(arrays) if arrays else np.zeros(0, np.int64) for name, arrays in parts.items()
    }


def _groups(ledger: Ledger, run: Run) -> Ints:
    """The group of every rollout, by ordinal."""
    first = first_place(run.number)
    rows = ledger.query(
        "SELECT place - ?1, grp FROM rollouts WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
        first,
        first_place(run.number + 1) - 1,
    )
    ordinals, groups = _pairs(rows)
    found = np.full(int(ordinals[-1]) + 1 if len(ordinals) else 0, MISSING, np.int64)
    found[ordinals] = groups
    return found


def _pairs(rows: Iterable[tuple[int, int]]) -> tuple[Ints, Ints]:
    flat = np.fromiter((number for row in rows for number in row), np.int64)
    return flat[::2], flat[1::2]


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
    if len(rows) < len(np.unique(groups)):
        words.number("not told")
    for group, step in rows:
        step_of[group] = words.number(step)
    return words.known, step_of


def _verdicts(ledger: Ledger, run: Run, rollouts: int, attempts: int) -> tuple[Floats, Ints, Bools]:
    """Total and verdict of every rollout, and by attempt whether what it judged is right.

    That is: scored without a code, and better than the part's lowest where its values differ.
    """
    weights: Mapping[str, float] = run.spec.get("weights", {})
    weight = np.array([float(weights.get(name, 1.0)) for name in run.parts])
    value, scored = np.zeros(rollouts), np.zeros(rollouts, np.int64)
    lost, abstained = np.zeros(rollouts, np.bool_), np.zeros(rollouts, np.int64)
    best = np.full(attempts, -np.inf)
    of = np.zeros(attempts, np.int64)
    lowest, highest = np.full(len(weight), np.inf), np.full(len(weight), -np.inf)
    rows = ledger.query(
        "SELECT ordinal, part, verdict, value, code IS NULL, coalesce(attempt, -1) FROM scores "
        "WHERE place BETWEEN ? AND ?",
        first_place(run.number),
        first_place(run.number + 1) - 1,
    )
    while some := rows.fetchmany(_AT_ONCE):
        table = np.array(some, np.float64)
        ordinal, part, kind, attempt = (table[:, place].astype(np.int64) for place in (0, 1, 2, 5))
        full = table[:, 4] > 0
        judged = kind == SCORED
        np.add.at(value, ordinal[judged], table[judged, 3] * weight[part[judged]])
        np.add.at(scored, ordinal[judged], 1)
        np.add.at(abstained, ordinal[kind == ABSTAINED], 1)
        lost[ordinal[(kind != SCORED) & (kind != ABSTAINED)]] = True
        np.minimum.at(lowest, part[judged], table[judged, 3])
        np.maximum.at(highest, part[judged], table[judged, 3])
        right = judged & full & (attempt >= 0) & (attempt < attempts)
        best[attempt[right]], of[attempt[right]] = table[right, 3], part[right]
    verdict = np.where(lost | (scored + abstained == 0), UNSCORED, np.where(scored > 0, SCORED, ABSTAINED))
    value[verdict != SCORED] = np.nan
    bar = np.where(lowest < highest, lowest, -np.inf)
    return value, verdict, best > bar[of]


def _patched(step: Ints, session: Ints, count: int) -> Bools:
    """Which steps several sessions worked on: between two of them, clocks say nothing."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, step, session)
    np.maximum.at(high, step, session)
    return high > low


def _machines(ledger: Ledger, run: Run, step: Ints, session: Ints, count: int) -> Ints:
    """By step, a number for the machine that judged it first."""
    words = _Words()
    machine = {one.number: words.number(one.machine) for one in sessions(ledger) if one.run == run.number}
    numbers = np.array([machine.get(one, MISSING) for one in range(max(machine, default=0) + 1)], np.int64)
    found = np.full(count, MISSING, np.int64)
    known = session >= 0
    found[step[known]] = numbers[session[known]]
    return found


def _no_phases(labels: Sequence[str], machine: Ints) -> Steps:
    count = len(labels)
    return Steps(labels, blank(count), blank(count), blank(count), blank(count), machine)


def _lacks(run: Run, *, stepped: bool) -> list[str]:
    found = ["how long generation and training took: record them (docs/recording.md), or say --busy"]
    if not stepped:
        found.append(
            "which training step a rollout belongs to, so the run is one burst: give rows a column `step`"
        )
    if run.spec.get("shapes") or run.spec.get("combine", "weighted sum") != "weighted sum":
        found.append("what the recipe makes of the weighted sum of its parts: totals here are that sum")
    return found
