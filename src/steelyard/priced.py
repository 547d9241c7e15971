"""The price of a file, whatever wrote it: ledgers with or without spans, and other people's rollouts.

| file | becomes |
|---|---|
| a ledger, or the scored file beside one | its run, with the steps that were recorded while it was scored |
| a ledger without a run | the recorded loop, whose calls are its rewards |
| anything else | what `files.foreign` recognises |
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict, Unpack

import orjson

from steelyard.clock import Seconds, Span
from steelyard.errors import RefusedError
from steelyard.files.foreign import Read, read_foreign
from steelyard.files.parquet import MAGIC, arrow
from steelyard.ledger import Ledger, Run
from steelyard.ledger.observed import observed
from steelyard.ledger.spans import clocks_of, recorders_of, sessions, spans
from steelyard.measure.joined import joined, latest, left_out, of_spans, without_clock
from steelyard.measure.which import without_evaluations
from steelyard.pricing.money import Prices
from steelyard.pricing.observed import Observed
from steelyard.pricing.price import price_observed
from steelyard.pricing.suspicious import marked, of_observed
from steelyard.pricing.values import Price
from steelyard.scoring import ledger_of

_SQLITE: Final = b"SQLite format 3\0"
_GZIP: Final = b"\x1f\x8b"
_OURS: Final = frozenset({"verdict", "parts"})
"""Columns of the files that `score` writes, and nobody else."""
_LONGEST: Final = 1 << 26
_RECORD: Final = "record the loop (docs/recording.md)"


class Reading(TypedDict, total=False):
    """What a file does not say of itself; each may be left out.

    Parameters
    ----------
    run
        Ledgers: the number of a run, else the last one.
    phases
        Ledgers: phases that have other words: `{"rollout": "generation"}`.
    limit_s
        Where rewards were cut.
    group_size, rewards, weights, split, skip
        Other people's files: as in `files.foreign.Options`.
    """

    run: int | None
    phases: Mapping[str, str]
    limit_s: Seconds | None
    group_size: int | None
    rewards: Sequence[str]
    weights: Sequence[float]
    split: str
    skip: bool


_LEDGERS: Final = ("run", "phases")
_OTHERS: Final = ("group_size", "rewards", "weights", "split", "skip")


def price_file(
    path: str | Path,
    *,
    busy_s: Seconds | None = None,
    generation_s: Seconds | None = None,
    training_s: Seconds | None = None,
    prices: Prices | None = None,
    places: int | None = None,
    timeout_s: Seconds | None = None,
    rate: float | None = None,
    **reading: Unpack[Reading],
) -> Price:
    """Say what the rewards in a file cost a training step, as `steelyard price` does.

    Parameters
    ----------
    path
        A ledger, the scored file beside it, a recorded loop; or rollouts of TRL, verl or verifiers.
    busy_s, generation_s, training_s, prices, places, timeout_s, rate
        As in `pricing.price_observed`.
    reading
        As in `Reading`.

    Raises
    ------
    RefusedError
        If nobody reads the file, there is nothing to price in it, or a number cannot be.

    Examples
    --------
    >>> import json, tempfile
    >>> row = {"input": "6 * 3?", "output": "18", "gts": "18", "score": 1.0, "step": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/1.jsonl").write_text(json.dumps(row))
    ...     price = price_file(folder)
    >>> price.batch, price.wait
    (1.0, None)
    """
    found = read_run(path, **reading)
    return price_observed(
        found.observed,
        busy_s=busy_s,
        generation_s=generation_s,
        training_s=training_s,
        prices=prices,
        places=places,
        suspicions=found.suspicions,
        timeout_s=timeout_s,
        rate=rate,
    )


def read_run(path: str | Path, **reading: Unpack[Reading]) -> Read:
    """Read a run as pricing reads it.

    Parameters
    ----------
    path, reading
        As in `price_file`.

    Raises
    ------
    RefusedError
        If there is no such file, nobody reads it, or `reading` says what means nothing for it.
    """
    file = Path(path)
    ledger = _ledger(file)
    for name in _LEDGERS if ledger is None else _OTHERS:
        if reading.get(name):
            says = "it is for ledgers" if ledger is None else "a ledger says it"
            raise RefusedError(says, where=name, remedy="leave it out")
    if ledger is None:
        return read_foreign(
            file,
            group_size=reading.get("group_size"),
            rewards=reading.get("rewards", ()),
            weights=reading.get("weights", ()),
            limit_s=reading.get("limit_s"),
            split=reading.get("split") or "train",
            skip=reading.get("skip", False),
        )
    with Ledger(ledger, write=False) as record:
        found = _of_ledger(record, reading.get("run"), reading.get("phases", {}))
    limit_s = reading.get("limit_s")
    found = found if limit_s is None else marked(found, limit_s)
    return Read(found, of_observed(found))


def recorded_spans(path: str | Path, *, run: int | None = None) -> list[Span]:
    """What was recorded of a run, in the order of starts: what `measure.trace.write_trace` takes.

    Raises
    ------
    RefusedError
        If there is no such ledger or run, or nothing was recorded of it.
    """
    ledger = _ledger(Path(path))
    if ledger is None:
        raise RefusedError("it is no ledger, so nothing was recorded in it", where=str(path), remedy=_RECORD)
    with Ledger(ledger, write=False) as record:
        mine, _, _ = _recorded(record, _chosen(record, run))
    _refuse_no_spans(ledger, mine, str(path))
    return sorted(mine, key=lambda span: span.start)


def _of_ledger(ledger: Ledger, number: int | None, phases: Mapping[str, str]) -> Observed:
    run = _chosen(ledger, number)
    mine, writers, notes = _recorded(ledger, run)
    if phases:
        _refuse_no_spans(ledger.path, mine, "phases")
    if run is None:
        found = of_spans(mine, source=ledger.path.name, phases=phases)
    else:
        found = without_evaluations(observed(ledger, run))
        if mine:
            machines = clocks_of(ledger, run, writers)
            found = without_clock(found, machines) if machines else found
            found = joined(found, mine, phases=phases)
    return replace(found, lacks=[*found.lacks, *notes])


def _chosen(ledger: Ledger, number: int | None) -> Run | None:
    """The run of that number, else the last one; none of a recorded loop."""
    runs = ledger.runs()
    if number is not None:
        found = next((run for run in runs if run.number == number), None)
        if found is None:
            there = ", ".join(str(run.number) for run in runs) or "none"
            raise RefusedError(
                f"there is no run {number}", where=str(ledger.path), remedy=f"there are {there}"
            )
        return found
    if not runs and next(iter(spans(ledger)), None) is None:
        raise RefusedError(
            "the ledger holds neither a run nor a recorded step",
            where=str(ledger.path),
            remedy="score a file first, or record a training loop (docs/recording.md)",
        )
    return runs[-1] if runs else None


def _recorded(ledger: Ledger, run: Run | None) -> tuple[list[Span], set[int], list[str]]:
    """What was recorded of a run (of a loop without one, all), by which sessions; what was left out."""
    found = list(spans(ledger))
    if run is not None and len(ledger.runs()) > 1:
        own = recorders_of(ledger, run)
        found = [(session, span) for session, span in found if session in own]
    writers = {session for session, _ in found}
    clocks = {(one.machine, one.boot) for one in sessions(ledger) if one.number in writers}
    if len(clocks) > 1:
        machines = ", ".join(sorted({machine for machine, _ in clocks}))
        raise RefusedError(
            f"its spans were recorded by {len(clocks)} clocks ({machines}), which cannot be compared",
            where=str(ledger.path),
            remedy="record each machine, and each start of it, in a ledger of its own",
        )
    mine = latest(found)
    return mine, writers, left_out(found, mine)


def _refuse_no_spans(ledger: Path, mine: Sequence[Span], where: str) -> None:
    if not mine:
        raise RefusedError(f"{ledger.name} has no recorded span of this run", where=where, remedy=_RECORD)


def _ledger(path: Path) -> Path | None:
    """The ledger that it is, or that lies beside a scored file; none of what others wrote."""
    if not path.exists():
        raise RefusedError("there is no such file", where=str(path), remedy="check the path")
    if path.is_dir():
        return None
    if not path.is_file():
        raise RefusedError(
            "it is neither a file nor a folder", where=str(path), remedy="write what it gives to a file first"
        )
    with path.open("rb") as file:
        begin = file.read(len(_SQLITE))
    if begin == _SQLITE:
        return path
    beside = ledger_of(path)
    return beside if beside.exists() and _columns(path, begin) >= _OURS else None


def _columns(path: Path, begin: bytes) -> set[str]:
    """What the columns of a table, or the fields of the first row of a file, are called."""
    if begin.startswith(MAGIC):
        parquet = arrow(str(path))[1]
        try:
            return set(parquet.read_schema(path).names)
        except (OSError, ValueError):  # the reader of it says so
            return set()
    try:
        with gzip.open(path) if begin.startswith(_GZIP) else path.open("rb") as file:
            row = orjson.loads(file.readline(_LONGEST))
    except (OSError, EOFError, ValueError, zlib.error):
        return set()
    return set(row) if isinstance(row, dict) else set()
