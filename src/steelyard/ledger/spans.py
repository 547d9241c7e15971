"""Spans of a training loop in a ledger: written beside a run, by any number of processes.

Who records spans takes no writer's lock: a training loop records its phases while its runtime writes scores,
and every rank records its own. SQLite orders them; each writer waits for the others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.ledger.log import Ledger
from steelyard.ledger.opening import open_database
from steelyard.ledger.runs import Run, begin_session

WAIT_S: Final = 30.0
"""How long a writer of spans waits for another writer of the file."""


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
        self.path = path
        self._writer = (0, 0)  # process, session
        open_database(path, write=True, wait_s=WAIT_S).close()

    def append(self, spans: Sequence[Span]) -> None:
        """Write spans down, in one transaction: all of them, or none where it raises.

        Raises
        ------
        OSError
            If they cannot be written.
        """
        process, session = self._writer
        try:
            with closing(open_database(self.path, write=True, wait_s=WAIT_S)) as db:
                db.execute("BEGIN IMMEDIATE")
                if process != os.getpid():
                    process, session = os.getpid(), begin_session(db, None)
                db.executemany(
                    "INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(session, *span) for span in spans],
                )
                db.execute("COMMIT")
        except (sqlite3.Error, RefusedError) as error:
            raise OSError(f"{self.path}: spans cannot be written ({error})") from error
        self._writer = process, session


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


def spans(ledger: Ledger) -> Iterator[tuple[int, Span]]:
    """Yield every span with the number of its session, in the order in which they were written."""
    if ledger.has_instants:
        for session, *span in ledger.query("SELECT * FROM spans ORDER BY rowid"):
            yield session, Span(*span)
