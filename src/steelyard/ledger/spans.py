"""Spans of a training loop in a ledger: written beside a run, by any number of processes.

Who records spans takes no writer's lock: a training loop records its phases while its runtime writes scores,
and every rank records its own. SQLite orders them; each writer waits for the others. Its waiting is not fair,
so a recorder that had to wait leaves the file alone for as long afterwards: however many there are, they
hold it half of the time.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from steelyard.clock import Span, SystemClock
from steelyard.errors import RefusedError, describe, printable
from steelyard.ledger.log import Ledger
from steelyard.ledger.opening import WAIT_S, open_database
from steelyard.ledger.runs import Run, begin_session

AGAIN_S: Final = 1.0
"""How long a recorder waits for a file that it could not write before: its training loop waits with it."""

_FREE_S: Final = 0.001
"""In less, a transaction begins for which nobody has to be waited."""

_log = logging.getLogger("steelyard")


class SpanLog:
    """Appends spans to a ledger, which is made if it is absent.

    Nothing stays open between two appends: a process that is forked off, or killed, leaves nothing behind.

    Parameters
    ----------
    path
        The ledger.

    Raises
    ------
    RefusedError
        If the file is no ledger, was written by a newer version, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a loop may change its folder
        self.refused = 0
        """Spans that were dropped because no ledger can hold them."""
        self._writer = (0, 0)  # process, session
        self._wait_s = WAIT_S
        open_database(self.path, write=True).close()

    def append(self, spans: Sequence[Span]) -> None:
        """Write spans down, in one transaction: all of them, or none where it raises.

        A span that no ledger can hold (a step that is no number) is left out, and the first one is told.

        Raises
        ------
        OSError
            If they cannot be written.
        """
        rows = [row for span in spans if (row := self._row(span)) is not None]
        if not rows:
            return
        process, session = self._writer
        clock = SystemClock()
        try:
            with closing(open_database(self.path, write=True, wait_s=self._wait_s)) as db:
                asked = clock.now()
                db.execute("BEGIN IMMEDIATE")
                waited = clock.now() - asked
                if process != os.getpid():
                    process, session = os.getpid(), begin_session(db, None)
                db.executemany(
                    "INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(session, *row) for row in rows],
                )
                db.execute("COMMIT")
        except (sqlite3.Error, RefusedError) as error:
            self._wait_s = AGAIN_S
            raise OSError(f"{self.path}: spans cannot be written ({error})") from error
        self._writer, self._wait_s = (process, session), WAIT_S
        if waited > _FREE_S:
            time.sleep(min(waited, AGAIN_S))

    def next_step(self, lane: str) -> int:
        """The step after the last one that a lane recorded here; 0 if it recorded none.

        Ranks that are started again may have ended at different steps: what counts is the last one of all
        that recorded beside the lane's last session, so that they count on together.
        """
        query = (
            "SELECT s.machine, s.boot, min(start_s), max(end_s), max(step),"
            " max(lane = ?1 OR instr(lane, ?2) = 1) FROM spans JOIN sessions s USING (session)"
            " GROUP BY session ORDER BY session"
        )
        with closing(open_database(self.path, write=False)) as db:
            found = db.execute(query, (lane, f"{lane}/")).fetchall()
        last = next((one for one in reversed(found) if one[5]), None)
        if last is None:
            return 0
        beside = [one[4] for one in found if one[:2] == last[:2] and one[2] <= last[3] and last[2] <= one[3]]
        return int(max(beside)) + 1

    def _row(self, span: Span) -> tuple[Any, ...] | None:
        """A span as the table holds it; none if it cannot."""
        step, lane, phase, start, end, group, member, cut_by, value = span
        try:
            return (
                _whole(step), _text(lane), _text(phase), _moment(start), _moment(end),
                None if group is None else _whole(group),
                None if member is None else _whole(member),
                None if cut_by is None else _text(cut_by),
                None if value is None else float(value),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - whatever a value of somebody's own class raises
            self.refused += 1
            if self.refused == 1:
                _log.warning(
                    "steelyard: a span cannot be written (%s): %r; it is left out, and so are others like it",
                    describe(error),
                    span,
                )
            return None


def _whole(given: object) -> int:
    number = int(operator.index(given))  # type: ignore[arg-type]  # raises, where it is no number
    if not -1 << 63 <= number < 1 << 63:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no text")
    return printable(given)


def _moment(given: float) -> float:
    seconds = float(given)
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no moment")
    return seconds


class Session(NamedTuple):
    """One process that wrote: where, and in which start of that machine."""

    number: int
    run: int | None
    machine: str
    boot: str


def sessions(ledger: Ledger) -> list[Session]:
    """Who wrote a ledger, in order; nobody is known of one that an older version wrote."""
    if not ledger.has_instants:
        return []
    rows = ledger.query("SELECT session, run, machine, boot FROM sessions ORDER BY session")
    return [Session(*row) for row in rows]


def recorders_of(ledger: Ledger, run: Run) -> set[int]:
    """Numbers of the sessions that recorded spans while a run was scored, by one clock with it.

    Raises
    ------
    RefusedError
        If no call of the run tells when it began, and the ledger holds spans.
    """
    clock = {one.number: (one.machine, one.boot) for one in sessions(ledger)}
    if not clock:
        return set()
    query = "SELECT session, min(start_s), max(end_s) FROM spans GROUP BY session"
    recorded = ledger.query(query).fetchall()
    query = (
        "SELECT session, min(began_s), max(began_s + coalesce(service_s, 0)) FROM attempts "
        "WHERE run = ? AND session IS NOT NULL GROUP BY session"
    )
    scored = ledger.query(query, run.number).fetchall()
    timed = [one for one in scored if one[1] is not None]
    if recorded and scored and not timed:
        raise RefusedError(
            f"no call of run {run.number} tells when it began, so which of the recorded steps are its own "
            "cannot be told",
            where=str(ledger.path),
            remedy="record each run in a ledger of its own",
        )
    return {
        recorder
        for recorder, start, end in recorded
        for session, first, last in timed
        if clock[recorder] == clock[session] and start <= last and first <= end
    }


def clocks_of(ledger: Ledger, run: Run, recorders: set[int]) -> list[str]:
    """The machines of a run and of those who recorded beside it, if they have more clocks than one."""
    clocks = {
        (one.machine, one.boot)
        for one in sessions(ledger)
        if one.run == run.number or one.number in recorders
    }
    return sorted({machine for machine, _ in clocks}) if len(clocks) > 1 else []


def spans(ledger: Ledger) -> Iterator[tuple[int, Span]]:
    """Yield every span with the number of its session, in the order in which they were written."""
    if ledger.has_instants:
        for session, *span in ledger.query("SELECT * FROM spans ORDER BY rowid"):
            yield session, Span(*span)
