"""Whose file it is, by what stands in it.

A name decides nothing: a Parquet file is TRL's by its columns, a file of JSON Lines is somebody's by the
fields of its first row. Of a folder, the files in the places where trainers put them are looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.files.foreign import batches, results, traces, verl
from steelyard.files.foreign.lines import parse, seen
from steelyard.files.foreign.read import OPTION, Options, Read, beneath
from steelyard.files.foreign.results import read_results
from steelyard.files.foreign.traces import read_traces
from steelyard.files.foreign.trl import read_trl
from steelyard.files.foreign.verl import read_verl
from steelyard.files.parquet import MAGIC, arrow
from steelyard.files.source import open_input, read_once


class Reader(NamedTuple):
    """Who reads a file.

    Parameters
    ----------
    name
        Whose format it is, for people.
    read
        Reads it.
    options
        Fields of `Options` that mean something to it, beside `limit_s` and `skip`.
    """

    name: str
    read: Callable[[Path, Options], Read]
    options: frozenset[str] = frozenset()


TRL: Final = Reader("TRL completions", read_trl, frozenset({"group_size", "rewards", "weights"}))
VERL: Final = Reader("verl rollouts", read_verl, frozenset({"group_size"}))
RESULTS: Final = Reader("verifiers results", read_results)
TRACES: Final = Reader("verifiers traces", read_traces, frozenset({"split"}))

READABLE: Final = (
    "completions_*.parquet of TRL, {step}.jsonl of verl, results.jsonl of verifiers up to 0.1.14, "
    "traces.jsonl of verifiers 0.4 and prime-rl, or a folder of one of them"
)


def recognise(path: Path) -> Reader:
    """Whose file, or folder of files, this is.

    Raises
    ------
    RefusedError
        If nothing here is read, with what was seen and what is readable.
    """
    if path.is_dir():
        return _of_folder(path)
    with open_input(path) as raw:
        begin = raw.read(len(MAGIC))
    return _of_table(path) if begin == MAGIC else _of_lines(path)


def read_foreign(
    path: Path,
    *,
    group_size: int | None = None,
    rewards: Iterable[str] = (),
    weights: Iterable[float] = (),
    limit_s: Seconds | None = None,
    split: str = "train",
    skip: bool = False,
) -> Read:
    """Read a file of another trainer, whichever it is.

    Parameters
    ----------
    path
        A file or a folder.
    group_size, rewards, weights, limit_s, split, skip
        What the file does not say; see `Options`.

    Raises
    ------
    RefusedError
        If nobody reads it, if an option means nothing for such a file, or at the first row that cannot be
        read.
    """
    options = Options(group_size, tuple(rewards), tuple(weights), limit_s, split, skip)
    for name in ("group_size", "limit_s"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise RefusedError(
                f"must be above 0, this is {value}", where=OPTION[name], remedy="leave it out, or correct it"
            )
    reader = recognise(path)
    for name in ("group_size", "rewards", "weights", "split"):
        if name not in reader.options and getattr(options, name) != getattr(Options(), name):
            raise RefusedError(f"means nothing for {reader.name}", where=OPTION[name], remedy="leave it out")
    return reader.read(path, options)


def _of_folder(path: Path) -> Reader:
    places: list[Path] = []
    for patterns in (
        ("completions_*.parquet", "completions/completions_*.parquet", "*.parquet"),
        ("results.jsonl",),
    ):
        places += beneath(path, *patterns)[:1]
    places += (traces.find_traces(path, "train") or traces.find_traces(path, "eval"))[:1]
    places += beneath(path, "*.jsonl", "*.jsonl.gz")[:1]
    refused: RefusedError | None = None
    for place in places:
        try:
            return recognise(place)
        except RefusedError as error:
            refused = refused or error
    if refused:
        raise refused
    there = ", ".join(sorted(one.name for one in path.iterdir())[:8]) or "nothing"
    raise RefusedError(
        f"no rollout file in this folder; there is {there}", where=str(path), remedy=f"name {READABLE}"
    )


def _of_table(path: Path) -> Reader:
    pa, pq = arrow(str(path))
    try:
        names = pq.read_schema(str(path)).names
    except (pa.ArrowException, OSError) as error:
        raise RefusedError(
            f"not a whole Parquet file ({error})", where=str(path), remedy="write or copy it again"
        ) from error
    if set(batches.FIELDS) <= set(names):
        return TRL
    raise RefusedError(
        f"Parquet with the columns {', '.join(names[:12])}: nobody's rollouts that are read here",
        where=str(path),
        remedy=f"name {READABLE}",
    )


def _of_lines(path: Path) -> Reader:
    what = "no line in it"
    for line in read_once(str(path)):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except ValueError:
            what = f"neither Parquet nor JSON Lines; it begins with {seen(line)}"
            break
        if not isinstance(row, dict):
            what = f"JSON Lines whose rows are no objects, such as {seen(line)}"
            break
        if row.keys() >= traces.FIELDS:
            return TRACES
        if row.keys() >= results.FIELDS and any(clock in row for clock in results.CLOCKS):
            return RESULTS
        if row.keys() >= verl.FIELDS:
            return VERL
        fields = ", ".join(list(row)[:12]) or "none"
        what = f"JSON Lines with the fields {fields}: nobody's rollouts that are read here"
        break
    raise RefusedError(what, where=str(path), remedy=f"name {READABLE}")
