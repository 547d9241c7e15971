"""Parquet beside JSON Lines: the same made-up rollouts in and out as either, one process on one core.

    python bench/parquet.py [ROLLOUTS]        default 100,000

Prints completions per second of `score_file` with everything included, peak memory and the sizes of
the files; then what it costs to come back to a row, which every judging in groups must: through the
spool, as it is done, or by decoding once more, in order and scattered. The baselines are measured in
the same run: JSON Lines for the first table, `read_table(...).to_pylist()` for the second.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipe import write_rollouts

ROLLOUTS = 100_000
SCATTERED = 20  # rows looked up one by one
READ = ("rollouts.jsonl", "rollouts.parquet")
WRITTEN = ("jsonl", "parquet")


def as_parquet(path: str, out: str) -> None:
    """Write the rows of a file of JSON Lines again, as whoever has a table would."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Path(path).open() as file:
        table = pa.Table.from_pylist([json.loads(line) for line in file])
    pq.write_table(table, out)


def score(path: str, out: str) -> None:
    """Score a file, in a process of its own, and print what it cost as JSON."""
    from steelyard import Part, Recipe, builtin, score_file

    start = time.perf_counter()
    summary = score_file(path, Recipe((Part(builtin("gsm8k")),)), Path(out))
    taken_s = time.perf_counter() - start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps([summary.rollouts / taken_s, peak_mb]))


def in_a_process(word: str, path: Path, out: Path) -> str:
    """Run a part of this bench on its own; this process stays small, for a child's peak begins with it."""
    words = [sys.executable, __file__, word, path, out]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def rate_of(rows: int, work) -> float:
    """Rows per second of some work."""
    start = time.perf_counter()
    work()
    return rows / (time.perf_counter() - start)


def coming_back(path: Path, rows: int, folder: Path) -> dict[str, float]:
    """Rows per second of each way to see every row, or some rows, once more."""
    import pyarrow.parquet as pq

    from steelyard.files.parquet import parquet_lines
    from steelyard.ledger import Ledger

    rates = {"a plain loop, read_table(...).to_pylist()": rate_of(rows, pq.read_table(path).to_pylist)}
    rates["decoding once, to lines of JSON"] = rate_of(rows, lambda: sum(map(len, parquet_lines(path))))
    with Ledger(folder / "spool.ledger") as ledger:
        rates["decoding and spooling"] = rate_of(rows, lambda: ledger.spool(parquet_lines(path)))
        rates["reading the spool, in order"] = rate_of(rows, lambda: sum(map(len, ledger.spooled())))
        chance = random.Random(0)  # noqa: S311 - made-up places
        some = [chance.randrange(rows) for _ in range(SCATTERED)]
        rates["reading the spool, scattered"] = rate_of(
            SCATTERED, lambda: [next(ledger.spooled(start=row + 1)) for row in some]
        )
    with pq.ParquetFile(path) as table:
        size = table.metadata.row_group(0).num_rows
        rates[f"decoding a row group, scattered ({size:,} rows)"] = rate_of(
            SCATTERED,
            lambda: [table.read_row_group(row // size).slice(row % size, 1).to_pylist() for row in some],
        )
    return rates


def main(rollouts: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rollouts(folder / "rollouts.jsonl", rollouts)
        rows = rollouts // 8 * 8
        in_a_process("--as-parquet", folder / "rollouts.jsonl", folder / "rollouts.parquet")
        print(f"{rows:,} rollouts; everything included, one core")
        heads = f"{'completions/s':>14}{'against':>10}{'peak MB':>10}{'MB in':>8}{'out':>8}"
        print(f"{'read':<20}{'written':<12}{heads}")
        base = 0.0
        for read in READ:
            for written in WRITTEN:
                out = folder / f"{Path(read).suffix[1:]}.{written}"
                rate, peak_mb = json.loads(in_a_process("--score", folder / read, out))
                base = base or rate
                sizes = [(folder / read).stat().st_size / 1e6, out.stat().st_size / 1e6]
                print(
                    f"{read:<20}{written:<12}{rate:>14,.0f}{rate / base:>10.2f}{peak_mb:>10.0f}"
                    f"{sizes[0]:>8.1f}{sizes[1]:>8.1f}"
                )
        print()
        for way, rate in coming_back(folder / "rollouts.parquet", rows, folder).items():
            print(f"{way:<55}{rate:>14,.0f}  rows/s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--score"]:
        score(*sys.argv[2:])
    elif sys.argv[1:2] == ["--as-parquet"]:
        as_parquet(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROLLOUTS)
