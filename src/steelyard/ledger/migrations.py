"""How the ledger's tables came to be: named steps, each applied once, in order.

A step is never edited after it has shipped; a change is a new step at the end. A ledger that names a
step unknown here was written by a newer steelyard and is refused.

Everything is only ever inserted, but in `spool`, the one waiting room: rows of an input that can be read only
once (standard input, gzip) stand there until their run is written out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from steelyard.errors import RefusedError

STEPS: tuple[tuple[str, str], ...] = (
    (
        "001_the_record",
        """
        CREATE TABLE runs (
            run INTEGER PRIMARY KEY,
            identity TEXT NOT NULL,
            started_unix REAL NOT NULL,
            spec TEXT NOT NULL           -- JSON: input digest, recipe, options that change verdicts
        );
        CREATE TABLE parts (
            run INTEGER NOT NULL, part INTEGER NOT NULL,
            name TEXT NOT NULL, identity TEXT NOT NULL,
            PRIMARY KEY (run, part)
        ) WITHOUT ROWID;
        -- place is (run, ordinal) in one integer, run << 40 | ordinal: a row then goes to the end of
        -- its table without a search, cheaper than under a key of two columns (bench/choices.py)
        CREATE TABLE rollouts (
            place INTEGER PRIMARY KEY,
            grp INTEGER NOT NULL, idx INTEGER NOT NULL, id NOT NULL,
            digest BLOB NOT NULL, content BLOB NOT NULL,
            run INTEGER AS (place >> 40), ordinal INTEGER AS (place & 0xffffffffff)
        );
        CREATE TABLE attempts (
            run INTEGER NOT NULL, attempt INTEGER NOT NULL,
            part INTEGER NOT NULL, try INTEGER NOT NULL,
            first INTEGER NOT NULL, members INTEGER NOT NULL,  -- first member's ordinal, their number
            ended TEXT NOT NULL, cut_by TEXT,
            queued_s REAL, service_s REAL, spawn_s REAL, wall_s REAL, reap_s REAL,
            cpu_s REAL, run_delay_s REAL, blocked_s REAL, censored INTEGER NOT NULL,
            evidence TEXT,
            PRIMARY KEY (run, attempt)
        ) WITHOUT ROWID;
        CREATE TABLE scores (
            place INTEGER NOT NULL, part INTEGER NOT NULL,
            verdict INTEGER NOT NULL,    -- 0 scored, 1 abstained, 2 unscored
            value REAL, code TEXT, reason TEXT, integrity TEXT, attempt INTEGER,
            run INTEGER AS (place >> 40), ordinal INTEGER AS (place & 0xffffffffff),
            PRIMARY KEY (place, part)
        ) WITHOUT ROWID;
        CREATE TABLE departures (
            run INTEGER NOT NULL, grp INTEGER NOT NULL, scheme TEXT NOT NULL,
            advantages BLOB NOT NULL,    -- doubles, one per rollout of the group, in input order
            PRIMARY KEY (run, grp, scheme)
        ) WITHOUT ROWID;
        CREATE TABLE spool (line INTEGER PRIMARY KEY, content BLOB NOT NULL);
        """,
    ),
    (
        "002_where_time_goes",
        """
        -- one process that writes: clocks of one machine and boot can be compared, others cannot
        CREATE TABLE sessions (
            session INTEGER PRIMARY KEY,
            run INTEGER,                 -- none for one that only records spans
            machine TEXT NOT NULL, boot TEXT NOT NULL,
            began_unix REAL NOT NULL, began_s REAL NOT NULL
        );
        CREATE TABLE steps (
            run INTEGER NOT NULL, grp INTEGER NOT NULL, step TEXT NOT NULL,
            PRIMARY KEY (run, grp)
        ) WITHOUT ROWID;
        ALTER TABLE attempts ADD COLUMN grp INTEGER;      -- none if it judged several groups
        ALTER TABLE attempts ADD COLUMN session INTEGER;
        ALTER TABLE attempts ADD COLUMN began_s REAL;     -- monotonic
        CREATE TABLE spans (
            session INTEGER NOT NULL, step INTEGER NOT NULL, lane TEXT NOT NULL, phase TEXT NOT NULL,
            start_s REAL NOT NULL, end_s REAL NOT NULL,
            grp INTEGER, member INTEGER, cut_by TEXT, value REAL
        );
        """,
    ),
)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Apply the steps that a ledger lacks.

    Raises
    ------
    RefusedError
        If the ledger knows a step that this version does not.
    """
    if len(refuse_newer(db, path)) == len(STEPS):
        return
    db.execute("BEGIN IMMEDIATE")  # several processes may find the same step missing: one takes it
    try:
        db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, position INTEGER NOT NULL)")
        applied = refuse_newer(db, path)
        for position, (name, script) in enumerate(STEPS):
            if name not in applied:
                for statement in _statements(script):
                    db.execute(statement)
                db.execute("INSERT INTO migrations VALUES (?, ?)", (name, position))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _applied(db: sqlite3.Connection) -> list[str]:
    there = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone()
    return [name for (name,) in db.execute("SELECT name FROM migrations ORDER BY position")] if there else []


def _statements(script: str) -> Iterator[str]:
    """Take a script apart; `executescript` would end the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def has_instants(db: sqlite3.Connection) -> bool:
    """Whether a ledger says when attempts began; older ones that nobody wrote to since do not."""
    return bool(db.execute("SELECT 1 FROM migrations WHERE name = '002_where_time_goes'").fetchone())


def refuse_newer(db: sqlite3.Connection, path: str) -> list[str]:
    """Return the steps that were applied; refuse a ledger that knows one unknown here."""
    applied = _applied(db)
    known = [name for name, _ in STEPS]
    unknown = [name for name in applied if name not in known]
    if unknown:
        raise RefusedError(
            f"the ledger was written by a newer steelyard (it knows the step {unknown[0]!r}, "
            f"this version's last is {known[-1]!r})",
            where=path,
            remedy="pip install --upgrade steelyard, or name another file with --ledger",
        )
    return applied
