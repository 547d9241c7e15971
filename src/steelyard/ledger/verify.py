"""The record checked against itself: every fault is a sentence."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from math import isfinite

from steelyard.rollout import from_record, parse_json

_CHECKS = (
    (
        (
            "SELECT run FROM rollouts UNION SELECT run FROM scores UNION SELECT run FROM attempts "
            "UNION SELECT run FROM departures EXCEPT SELECT run FROM runs LIMIT 20"
        ),
        "run {}: there are records of it, but no run",
    ),
    (
        "SELECT run, ordinal, verdict FROM scores WHERE verdict NOT IN (0, 1, 2) LIMIT 20",
        "run {}: rollout {} has the verdict {}, which is none of the three",
    ),
    (
        (
            "SELECT d.run, d.grp, d.scheme, length(d.advantages) / 8, size FROM departures d JOIN "
            "(SELECT run, grp, count(*) AS size FROM rollouts GROUP BY run, grp) USING (run, grp) "
            "WHERE length(d.advantages) != 8 * size LIMIT 20"
        ),
        "run {}: group {} left under {} with {} advantages for {} rollouts",
    ),
    (
        (
            "SELECT run, ordinal FROM scores s WHERE NOT EXISTS "
            "(SELECT 1 FROM rollouts r WHERE r.place = s.place) LIMIT 20"
        ),
        "run {}: a score for rollout {}, which never entered",
    ),
    (
        (
            "SELECT run, ordinal, attempt FROM scores s WHERE attempt IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM attempts a WHERE a.run = s.run AND a.attempt = s.attempt) LIMIT 20"
        ),
        "run {}: the score of rollout {} names attempt {}, which is not recorded",
    ),
    (
        (
            "SELECT run, ordinal, value FROM scores WHERE verdict = 0 AND "
            "(value IS NULL OR value != value OR abs(value) > 1.7976931348623157e308) LIMIT 20"
        ),
        "run {}: rollout {} is scored {}, which is no finite number",
    ),
    (
        (
            "SELECT r.run, r.grp, r.ordinal FROM rollouts r JOIN parts p ON p.run = r.run "
            "WHERE NOT EXISTS (SELECT 1 FROM scores s WHERE s.place = r.place AND s.part = p.part) "
            "AND EXISTS (SELECT 1 FROM departures d WHERE d.run = r.run AND d.grp = r.grp) LIMIT 20"
        ),
        "run {}: group {} left although rollout {} had not been judged by every part",
    ),
)


def faults(db: sqlite3.Connection, names: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """Yield what is wrong with a ledger.

    Parameters
    ----------
    db
        The ledger.
    names
        Column names by run: what a run's rollouts were read with.
    """
    for (line,) in db.execute("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield f"the file is damaged: {line}"
    for query, sentence in _CHECKS:
        for row in db.execute(query):
            yield sentence.format(*row)
    for run, group, scheme, values in db.execute("SELECT run, grp, scheme, advantages FROM departures"):
        if len(values) % 8 == 0 and not all(map(isfinite, array("d", values))):
            yield f"run {run}: group {group} left under {scheme} with an advantage that is no finite number"
    for run, renamed in names.items():
        for ordinal, digest, content in db.execute(
            "SELECT ordinal, digest, content FROM rollouts WHERE run = ?", (run,)
        ):
            if _digest(content, renamed) != digest:
                yield f"run {run}: the content of rollout {ordinal} does not match its digest"


def _digest(content: bytes, names: Mapping[str, str]) -> bytes | None:
    try:
        record = parse_json(content)
        return from_record(record, names, key=(0, 0), ordinal=0, line=0, where="").digest
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
