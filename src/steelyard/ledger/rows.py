"""How verdicts and attempts stand in the ledger's tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from steelyard.clock import Clocks
from steelyard.outcome import Abstained, Attempt, End, Score, Scored, Unscored, Verdict
from steelyard.rollout import canonical_json

CLOCKS = ("queued_s", "service_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "blocked_s")
ATTEMPT_COLUMNS = (
    f"attempt, part, try, first, members, ended, cut_by, {', '.join(CLOCKS)}, censored, evidence"
)
SCORE_COLUMNS = "ordinal, part, verdict, value, code, reason, integrity, attempt"

SCORED, ABSTAINED, UNSCORED = 0, 1, 2

_AT_ONCE = 32  # rows of one INSERT: at most 21 x 32 parameters, far below SQLite's limit of 32,766


def verdict_of(
    kind: int, value: float | None, code: str | None, reason: str | None, integrity: str | None
) -> Verdict:
    """Turn a row's columns back into a verdict."""
    if kind == SCORED:
        return Scored(float(value or 0.0), code, reason, integrity)
    if kind == ABSTAINED:
        return Abstained(reason or "")
    return Unscored(code or "", reason or "")


def columns_of(verdict: Verdict) -> tuple[int, float | None, str | None, str | None, str | None]:
    """Turn a verdict into its columns: kind, value, code, reason, integrity."""
    if isinstance(verdict, Scored):
        return SCORED, verdict.value, verdict.code, verdict.reason, verdict.integrity
    if isinstance(verdict, Abstained):
        return ABSTAINED, None, None, verdict.reason, None
    return UNSCORED, None, verdict.boundary, verdict.cause, None


def first_place(run: int) -> int:
    """Return the place of a run's first rollout; the others follow by their ordinals."""
    return run << 40


def score_row(first: int, parts: Mapping[str, int], score: Score) -> tuple[object, ...]:
    """Turn a score into a row of the table; `first` is its run's first place."""
    _, ordinal, name, _, said, attempt = score
    if type(said) is Scored:  # nearly every row: no second tuple for it
        return (
            first + ordinal,
            parts[name],
            SCORED,
            said.value,
            said.code,
            said.reason,
            said.integrity,
            attempt,
        )
    return (first + ordinal, parts[name], *columns_of(said), attempt)


def insert(db: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]]) -> None:
    """Insert rows; many to a statement, for statements cost (bench/choices.py)."""
    if not rows:
        return
    one = f"({', '.join('?' * len(rows[0]))})"
    whole = len(rows) - len(rows) % _AT_ONCE
    db.executemany(
        f"INSERT INTO {table} VALUES {', '.join([one] * _AT_ONCE)}",
        [tuple(chain.from_iterable(rows[at : at + _AT_ONCE])) for at in range(0, whole, _AT_ONCE)],
    )
    db.executemany(f"INSERT INTO {table} VALUES {one}", rows[whole:])


def attempt_row(
    run: int, part: int, attempt: Attempt, group: int | None, session: int | None
) -> tuple[object, ...]:
    """Turn an attempt into a row of the table."""
    clocks = attempt.clocks
    return (
        run,
        attempt.id,
        part,
        attempt.ordinal,
        attempt.first,
        attempt.members,
        attempt.end,
        attempt.limit,
        *(getattr(clocks, name) for name in CLOCKS),
        int(clocks.censored),
        None if attempt.evidence is None else canonical_json(attempt.evidence).decode(),
        group,
        session,
        clocks.began_s,
    )


def groups_of(attempts: Sequence[Attempt], scores: Sequence[Score]) -> dict[int, int | None]:
    """By attempt, the group that it judged; `None` where it judged several."""
    found: dict[int, int | None] = {}
    alone = {one.first: one.id for one in attempts if one.members == 1}
    for score in scores:
        group = score.key[0]
        for attempt in {score.attempt, alone.get(score.ordinal)}:
            if attempt is not None and found.setdefault(attempt, group) != group:
                found[attempt] = None
    return found


def attempt_of(row: Sequence[Any], names: Mapping[int, str]) -> Attempt:
    """Turn a row of `ATTEMPT_COLUMNS` and when it began back into an attempt."""
    attempt, part, tried, first, members, ended, cut_by, *clocks, censored, evidence, began_s = row
    return Attempt(
        attempt,
        names[part],
        tried,
        first,
        members,
        Clocks(**dict(zip(CLOCKS, clocks, strict=True)), censored=bool(censored), began_s=began_s),
        End(ended),
        cut_by,
        None if evidence is None else orjson.loads(evidence),
    )
