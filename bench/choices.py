"""What the ledger's and the reader's choices are worth, each beside what was refused, in one run.

    python bench/choices.py

Prints microseconds of CPU per rollout of about 650 bytes, and the ratio to the choice that was made.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import orjson

CHUNK = 1_024
ROLLOUTS = 40 * CHUNK
LINE = orjson.dumps({"id": "g1-1", "prompt": "p" * 250, "completion": "c" * 330, "answer": "18"})
TWO = "run INT, ordinal INT, grp INT, id, content BLOB, PRIMARY KEY (run, ordinal)) WITHOUT ROWID"
ONE = "place INTEGER PRIMARY KEY, grp INT, id, content BLOB)"


def appended(*, key: str = ONE, page: int = 16_384, at_once: int = 32, chunk: int = CHUNK) -> float:
    """Microseconds of CPU to append one rollout."""
    width = 5 if key is TWO else 4
    one = f"({', '.join('?' * width)})"
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "x", isolation_level=None)
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"CREATE TABLE rollouts ({key}")
        spent = time.process_time()
        for start in range(0, ROLLOUTS, chunk):
            rows = [(1, n, n // 8, f"g{n}", LINE)[5 - width :] for n in range(start, start + chunk)]
            db.execute("BEGIN")
            many = [tuple(chain(*rows[n : n + at_once])) for n in range(0, len(rows), at_once)]
            db.executemany(f"INSERT INTO rollouts VALUES {', '.join([one] * at_once)}", many)  # noqa: S608
            db.execute("COMMIT")
        spent = time.process_time() - spent
        db.close()
    return spent / ROLLOUTS * 1e6


def called(function: Callable[[], object], times: int = 50_000) -> float:
    """Microseconds of CPU for one call."""
    spent = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - spent) / times * 1e6


def table(title: str, rows: Sequence[tuple[str, Callable[[], float]]]) -> None:
    """Print a choice (the first row) and what was refused; the best of three."""
    print(title)
    chosen = 0.0
    for name, measure in rows:
        cost = min(measure() for _ in range(3))
        chosen = chosen or cost
        print(f"  {name:<44}{cost:>9.2f} us{cost / chosen:>8.2f}")


if __name__ == "__main__":
    table(
        "appending a rollout to the ledger",
        [
            ("one integer key, 16 KiB pages, 32 to an INSERT", appended),
            ("a key of two columns", lambda: appended(key=TWO)),
            ("pages of 4 KiB", lambda: appended(page=4_096)),
            ("one to an INSERT", lambda: appended(at_once=1)),
            ("a commit per rollout", lambda: appended(at_once=1, chunk=1)),
        ],
    )
    table(
        "reading a row",
        [
            ("orjson", lambda: called(lambda: orjson.loads(LINE))),
            ("json", lambda: called(lambda: json.loads(LINE))),
        ],
    )
    table(
        "hashing a row",
        [
            ("SHA-256 (the input's digest)", lambda: called(lambda: hashlib.sha256(LINE).digest())),
            (
                "blake2b-128 (a rollout's digest)",
                lambda: called(lambda: hashlib.blake2b(LINE, digest_size=16).digest()),
            ),
        ],
    )
