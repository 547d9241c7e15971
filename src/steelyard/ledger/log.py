"""The ledger: what entered, what was tried, what was said; append-only, in one SQLite file.

A rollout is written down before it is judged (`enter`), and a verdict before it is handed on
(`leave`: attempts and scores in one transaction), so a run killed at any moment goes on where the
record ends. WAL with `synchronous=NORMAL` loses nothing to a killed process; a machine that loses
power may lose the last transactions, never the file.

The primary key is (run, ordinal) in one integer, so rows arrive at the end of their table; an index on
the content digest would be random and grow with the file (see `docs/design/003-the-ledger.md`).

One run at a time writes a ledger: a lock file beside it says so. Readers are never locked out.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import orjson
from filelock import FileLock, Timeout

from steelyard.clock import SystemClock
from steelyard.errors import RefusedError, RunStoppedError
from steelyard.ledger.migrations import has_instants
from steelyard.ledger.opening import open_database
from steelyard.ledger.rows import (
    ATTEMPT_COLUMNS,
    SCORE_COLUMNS,
    attempt_of,
    attempt_row,
    first_place,
    groups_of,
    insert,
    score_row,
    verdict_of,
)
from steelyard.ledger.runs import Run, begin_session, difference
from steelyard.ledger.verify import faults
from steelyard.outcome import Attempt, Score, Verdict
from steelyard.rollout import Group, Rollout, canonical_json, from_record, parse_json


class Entered(NamedTuple):
    """A rollout as it was written down."""

    ordinal: int
    group: int
    place: int
    """Its index in the group."""
    id: str | int
    content: bytes

    def rollout(self, run: Run) -> Rollout:
        """Read it again as the run read it."""
        read = from_record(
            parse_json(self.content),
            run.spec.get("columns", {}),
            key=(self.group, self.place),
            ordinal=self.ordinal,
            line=0,
            where=f"rollout {self.id}",
        )
        return read._replace(id=self.id)


Recorded: TypeAlias = tuple[int, int, Verdict, int | None]
"""A verdict as it was written down: the rollout's ordinal, the part's place, the verdict, the attempt."""


class Departure(NamedTuple):
    """A group that left, with one advantage per rollout under one scheme."""

    group: int
    scheme: str
    advantages: Sequence[float]


BESIDE = (".lock", "-wal", "-shm", "-journal")
"""What comes and goes beside a ledger, after its name."""


class Ledger:
    """The record of one or more runs.

    Parameters
    ----------
    path
        The SQLite file; made if absent.
    write
        Whether to take the writer's lock. Readers need none.

    Raises
    ------
    RefusedError
        If the file is no ledger, was written by a newer version, is being written by another run,
        or cannot be written.
    """

    def __init__(self, path: str | Path, *, write: bool = True) -> None:
        self.path = path = Path(path)
        # a link to a ledger is the same ledger: one lock, beside the file itself
        # and whichever thread closes it lets go of it
        self._lock = FileLock(f"{path.resolve()}.lock", thread_local=False) if write else None
        if not write and not path.exists():
            raise RefusedError("there is no such ledger", where=str(path), remedy="check the path")
        beside = [path, *(Path(f"{path}{suffix}") for suffix in BESIDE)]
        made = [one for one in beside if write and not one.exists()]
        if self._lock is not None:
            self._take_lock(self._lock)
        try:
            self._db = open_database(path, write=write)
            self._sessions: dict[int, int] = {}
            self.has_instants = has_instants(self._db)
        except BaseException:
            for one in made:  # while the lock is held, so nobody else made them
                one.unlink(missing_ok=True)
            if self._lock is not None:
                self._lock.release()
            raise

    def _take_lock(self, lock: FileLock) -> None:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RefusedError(
                "another run is writing this ledger",
                where=str(self.path),
                remedy="wait for it to end, or name another file with --ledger",
            ) from None
        except OSError as error:
            raise RefusedError(
                f"the ledger cannot be written ({error.strerror or error})",
                where=str(self.path),
                remedy="choose a folder that can be written with --ledger PATH",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let the next writer in."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def discard(self) -> None:
        """Close the file and remove it, while nobody else can have opened it to write."""
        self._db.close()
        for one in (self.path, *(Path(f"{self.path}{suffix}") for suffix in BESIDE)):
            with suppress(OSError):  # Windows keeps the lock's file while it is held
                one.unlink()
        self.close()

    # Runs

    def runs(self) -> list[Run]:
        """Every run of this ledger, oldest first."""
        rows = self._db.execute("SELECT run, identity, spec, started_unix FROM runs ORDER BY run").fetchall()
        return [
            Run(number, identity, orjson.loads(spec), self._parts(number), began, resumed=True)
            for number, identity, spec, began in rows
        ]

    def _parts(self, run: int) -> dict[str, int]:
        rows = self._db.execute("SELECT name, part FROM parts WHERE run = ? ORDER BY part", (run,))
        return {str(name): int(part) for name, part in rows}

    def begin(
        self, identity: str, spec: Mapping[str, Any], parts: Mapping[str, str], *, new_run: bool = False
    ) -> Run:
        """Continue the run of this identity, or begin it in an empty ledger.

        Parameters
        ----------
        identity
            Digest of the input, the recipe and the options that change verdicts.
        spec
            The same in words, kept as JSON.
        parts
            Name to identity of each part.
        new_run
            Begin afresh beside whatever the ledger holds.

        Raises
        ------
        RefusedError
            If the ledger holds another run and `new_run` is not said.
        """
        runs = self.runs()
        if not new_run:
            same = [run for run in runs if run.identity == identity]
            if same:
                return same[-1]
            if runs:
                raise RefusedError(
                    f"the ledger holds another run ({difference(runs[-1].spec, spec)})",
                    where=str(self.path),
                    remedy="--new-run starts afresh beside it, or name another file with --ledger",
                )
        began = SystemClock().unix()
        with self._transaction():
            number = len(runs) + 1
            row = (number, identity, began, canonical_json(spec).decode())
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", row)
            self._db.executemany(
                "INSERT INTO parts VALUES (?, ?, ?, ?)",
                [(number, place, name, parts[name]) for place, name in enumerate(parts)],
            )
        return Run(
            number, identity, spec, {name: place for place, name in enumerate(parts)}, began, resumed=False
        )

    # Writing

    def enter(self, run: Run, groups: Sequence[Group], *, steps: Mapping[int, str] = {}) -> None:
        """Write rollouts down before they are judged; those already written are left alone.

        Parameters
        ----------
        run, groups
            What they belong to; and whole groups.
        steps
            By a group's ordinal, what its training step is called, where that is known.

        Raises
        ------
        RunStoppedError
            If another rollout was written down under the same ordinal: its verdict is not this one's.
        """
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if run.resumed:
            present = self._present(run, [rollout.ordinal for rollout in rollouts])
            other = next((r for r in rollouts if present.get(r.ordinal, r.digest) != r.digest), None)
            if other is not None:
                raise RunStoppedError(
                    f"{other.where}: the run that is gone on with has another rollout under ordinal "
                    f"{other.ordinal}, whose verdict would be taken for this one's"
                    "\n  next: begin another run (new_run=True), or number rollouts on from the last ordinal"
                )
            rollouts = [rollout for rollout in rollouts if rollout.ordinal not in present]
        if not rollouts:
            return
        first = first_place(run.number)
        rows = [(first + r.ordinal, r.key[0], r.key[1], r.id, r.digest, r.record) for r in rollouts]
        with self._transaction():
            insert(self._db, "rollouts", rows)
            self._db.executemany(
                "INSERT OR IGNORE INTO steps VALUES (?, ?, ?)",
                [(run.number, group, step) for group, step in steps.items()],
            )

    def leave(
        self,
        run: Run,
        *,
        attempts: Sequence[Attempt] = (),
        scores: Sequence[Score] = (),
        departures: Sequence[Departure] = (),
    ) -> None:
        """Record how attempts ended, what was said, and which groups left: one transaction."""
        if not (attempts or scores or departures):
            return
        number, parts, first = run.number, run.parts, first_place(run.number)
        left = [(number, group, scheme, array("d", values).tobytes()) for group, scheme, values in departures]
        groups = groups_of(attempts, scores)
        with self._transaction():
            session = self._session(number) if attempts else None
            rows = [
                attempt_row(number, parts[one.part], one, groups.get(one.id), session) for one in attempts
            ]
            insert(self._db, "attempts", rows)
            insert(self._db, "scores", [score_row(first, parts, score) for score in scores])
            insert(self._db, "departures", left)

    def _session(self, run: int) -> int:
        if run not in self._sessions:
            self._sessions[run] = begin_session(self._db, run)
        return self._sessions[run]

    def spool(self, lines: Iterable[bytes]) -> None:
        """Keep the lines of an input that can be read only once; whatever stood there goes."""
        with self._transaction():
            self._db.execute("DELETE FROM spool")
            self._db.executemany("INSERT INTO spool VALUES (?, ?)", enumerate(lines, start=1))

    def spooled(self, *, start: int = 1) -> Iterator[bytes]:
        """The spooled lines from line number `start` on."""
        for (content,) in self._db.execute(
            "SELECT content FROM spool WHERE line >= ? ORDER BY line", (start,)
        ):
            yield content

    def forget_spool(self) -> None:
        """Empty the waiting room."""
        with self._transaction():
            self._db.execute("DELETE FROM spool")

    # Reading

    def recorded(
        self, run: Run, ordinals: Sequence[int]
    ) -> dict[tuple[int, int], tuple[Verdict, int | None]]:
        """What was already said about these rollouts: (ordinal, part) to verdict and attempt."""
        found: dict[tuple[int, int], tuple[Verdict, int | None]] = {}
        for clause, values in _ranges(_places(run, ordinals), column="place"):
            rows = self._db.execute(f"SELECT {SCORE_COLUMNS} FROM scores WHERE {clause}", values)
            for ordinal, part, *said, attempt in rows:
                found[ordinal, part] = (verdict_of(*said), attempt)
        return found

    def departed(self, run: Run, scheme: str, groups: Sequence[int]) -> set[int]:
        """Which of these groups have left under a scheme."""
        found: set[int] = set()
        for clause, values in _ranges(groups, column="grp"):
            rows = self._db.execute(
                f"SELECT grp FROM departures WHERE run = ? AND scheme = ? AND {clause}",
                (run.number, scheme, *values),
            )
            found.update(group for (group,) in rows)
        return found

    def _present(self, run: Run, ordinals: Sequence[int]) -> dict[int, bytes]:
        """By ordinal, the digests of rollouts that are written down."""
        found: dict[int, bytes] = {}
        for clause, values in _ranges(_places(run, ordinals), column="place"):
            found.update(self._db.execute(f"SELECT ordinal, digest FROM rollouts WHERE {clause}", values))
        return found

    def next_attempt(self, run: Run) -> int:
        """Return the first attempt id that is free."""
        query = "SELECT max(attempt) FROM attempts WHERE run = ?"
        (last,) = self._db.execute(query, (run.number,)).fetchone()
        return 0 if last is None else last + 1

    def heads(self, run: Run) -> Iterator[tuple[int, int, int, str | int]]:
        """(ordinal, group, index, id) of every rollout, in input order."""
        yield from self._db.execute(
            f"SELECT ordinal, grp, idx, id FROM rollouts WHERE {_OF_RUN} ORDER BY place", _span(run)
        )

    def entered(self, run: Run, *, group: int | None = None) -> Iterator[Entered]:
        """Rollouts with their content, in input order; of one group, if it is named."""
        where, values = (
            (_OF_RUN, _span(run)) if group is None else (f"{_OF_RUN} AND grp = ?", (*_span(run), group))
        )
        rows = self._db.execute(
            f"SELECT ordinal, grp, idx, id, content FROM rollouts WHERE {where} ORDER BY place", values
        )
        return map(Entered._make, rows)

    def find(self, run: Run, name: str) -> Entered | None:
        """Return the rollout whose id reads `name`; an id that is text wins over a number."""
        row = self._db.execute(
            f"SELECT ordinal, grp, idx, id, content FROM rollouts WHERE {_OF_RUN} AND CAST(id AS TEXT) = ? "
            "ORDER BY typeof(id) DESC LIMIT 1",
            (*_span(run), name),
        ).fetchone()
        return None if row is None else Entered._make(row)

    def told(self, run: Run) -> Iterator[tuple[Any, ...]]:
        """(ordinal, group, place, id, part, *verdict's columns), by rollout in input order, then by part."""
        return self._db.execute(
            "SELECT r.ordinal, grp, idx, id, part, verdict, value, code, reason, integrity "
            "FROM rollouts r JOIN scores s ON s.place = r.place "
            f"WHERE r.{_OF_RUN} ORDER BY r.place, part",
            _span(run),
        )

    def scores(self, run: Run) -> Iterator[Recorded]:
        """Every verdict, by rollout in input order, then by part."""
        for ordinal, part, *said, attempt in self._db.execute(
            f"SELECT {SCORE_COLUMNS} FROM scores WHERE {_OF_RUN} ORDER BY place, part", _span(run)
        ):
            yield ordinal, part, verdict_of(*said), attempt

    def departures(self, run: Run, scheme: str) -> Iterator[Departure]:
        """Groups that left under a scheme, by group."""
        for group, values in self._db.execute(
            "SELECT grp, advantages FROM departures WHERE run = ? AND scheme = ? ORDER BY grp",
            (run.number, scheme),
        ):
            yield Departure(group, scheme, array("d", values))

    def departed_group(self, run: Run, group: int) -> list[Departure]:
        """One group's departures, under every scheme that was asked for."""
        query = "SELECT scheme, advantages FROM departures WHERE run = ? AND grp = ?"
        rows = self._db.execute(query, (run.number, group))
        return [Departure(group, scheme, array("d", values)) for scheme, values in rows]

    def attempts(self, run: Run, *, ordinal: int | None = None) -> Iterator[Attempt]:
        """Attempts in the order of their ids; of one rollout, if it is named."""
        where = ""
        if ordinal is not None:
            where = (
                " AND (first = ?2 AND members = 1 OR attempt IN"
                " (SELECT attempt FROM scores WHERE place = (?1 << 40) + ?2))"
            )
        yield from self.attempts_where(
            run, f"{where} ORDER BY attempt", *([] if ordinal is None else [ordinal])
        )

    def own_attempts(self, run: Run) -> Iterator[Attempt]:
        """Attempts that served one rollout alone, by rollout in input order; no audits."""
        yield from self.attempts_where(run, " AND members = 1 AND try >= 0 ORDER BY first, attempt")

    def attempts_where(self, run: Run, where: str, *values: int) -> Iterator[Attempt]:
        """Attempts that a clause of SQL selects: for the other modules of this room."""
        names = {place: name for name, place in run.parts.items()}
        began = "began_s" if self.has_instants else "NULL"  # else an older version wrote it
        query = f"SELECT {ATTEMPT_COLUMNS}, {began} FROM attempts WHERE run = ?1{where}"
        for row in self._db.execute(query, (run.number, *values)):
            yield attempt_of(row, names)

    def service_times(self, run: Run, part: int) -> Iterator[tuple[float, bool]]:
        """(service seconds, whether it was cut) of a part's attempts, the shortest first."""
        for service_s, censored in self._db.execute(
            "SELECT service_s, censored FROM attempts "
            "WHERE run = ? AND part = ? AND try >= 0 AND service_s IS NOT NULL ORDER BY service_s",
            (run.number, part),
        ):
            yield service_s, bool(censored)

    def judged_rollouts(self, run: Run, part: int) -> int:
        """How many rollouts a part's attempts were made on, counted once per attempt."""
        query = "SELECT coalesce(sum(members), 0) FROM attempts WHERE run = ? AND part = ? AND try >= 0"
        (rollouts,) = self._db.execute(query, (run.number, part)).fetchone()
        return int(rollouts)

    def query(self, sql: str, *values: object) -> sqlite3.Cursor:
        """Read whatever the tables hold: for the other modules of this room."""
        return self._db.execute(sql, values)

    # Keeping faith

    def verify(self) -> list[str]:
        """Check the record against itself; every fault is a sentence, none is the empty list.

        What is checked: the file's structure, every rollout's content against its digest, scores
        without rollout or attempt, values that are no number, groups that left before all their
        members were judged.
        """
        return list(faults(self._db, {run.number: run.spec.get("columns", {}) for run in self.runs()}))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise RunStoppedError(
                f"{self.path}: a rollout or verdict was written down before under the same ordinal ({error})"
                "\n  next: give every rollout and group of a run an ordinal of its own, also in later steps"
            ) from error
        except sqlite3.OperationalError as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise RunStoppedError(
                f"{self.path}: the ledger could not be written ({error}); everything acknowledged is kept"
                "\n  next: free space (or lift what stops the writing) and run the same command again"
            ) from error


_OF_RUN = "place BETWEEN ? AND ?"


def _span(run: Run) -> tuple[int, int]:
    return first_place(run.number), first_place(run.number + 1) - 1


def _places(run: Run, ordinals: Sequence[int]) -> list[int]:
    first = first_place(run.number)
    return [first + ordinal for ordinal in ordinals]


def _ranges(numbers: Sequence[int], *, column: str) -> Iterator[tuple[str, Sequence[int]]]:
    """WHERE clauses that select exactly these numbers; consecutive ones cost one range."""
    numbers = sorted(set(numbers))
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        yield f"{column} BETWEEN ? AND ?", (numbers[0], numbers[-1])
        return
    for start in range(0, len(numbers), 1_000):  # far below SQLite's limit of 32,766 variables
        some = numbers[start : start + 1_000]
        yield f"{column} IN ({', '.join('?' * len(some))})", some
