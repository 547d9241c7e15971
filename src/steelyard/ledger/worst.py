"""The calls of a run that a person wants to see: the slowest, and those that did not finish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from steelyard.ledger.log import Ledger
from steelyard.ledger.rows import SCORE_COLUMNS, first_place, verdict_of
from steelyard.ledger.runs import Run
from steelyard.outcome import Attempt, End, Verdict

_UNFINISHED: Final = f" AND try >= 0 AND ended != '{End.FINISHED}'"


class Seen(NamedTuple):
    """An attempt, with the rollout that it judged (of several the first) and what was said of that."""

    attempt: Attempt
    id: str | int
    group: int
    verdict: Verdict | None


def slowest(ledger: Ledger, run: Run, most: int) -> list[Seen]:
    """The calls that took longest, the longest first."""
    order = " AND try >= 0 AND service_s IS NOT NULL ORDER BY service_s DESC, attempt LIMIT ?2"
    return list(_seen(ledger, run, ledger.attempts_where(run, order, most)))


def failing(ledger: Ledger, run: Run, most: int) -> tuple[int, list[Seen]]:
    """How many calls did not finish, and the first of them."""
    (count,) = ledger.query(
        f"SELECT count(*) FROM attempts WHERE run = ?{_UNFINISHED}", run.number
    ).fetchone()
    some = ledger.attempts_where(run, f"{_UNFINISHED} ORDER BY attempt LIMIT ?2", most)
    return int(count), list(_seen(ledger, run, some))


def _seen(ledger: Ledger, run: Run, attempts: Iterator[Attempt]) -> Iterator[Seen]:
    for attempt in list(attempts):
        place = first_place(run.number) + attempt.first
        name, group = ledger.query("SELECT id, grp FROM rollouts WHERE place = ?", place).fetchone()
        said = ledger.query(
            f"SELECT {SCORE_COLUMNS} FROM scores WHERE place = ? AND part = ?", place, run.parts[attempt.part]
        ).fetchone()
        yield Seen(attempt, name, group, None if said is None else verdict_of(*said[2:-1]))
