"""What `steelyard price` can read: ledgers, with or without spans, and other people's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from steelyard.cli.record import opened
from steelyard.clock import Seconds, Span
from steelyard.errors import RefusedError
from steelyard.files.foreign import Read, read_foreign
from steelyard.ledger import Ledger, Run
from steelyard.ledger.observed import observed
from steelyard.ledger.spans import recorders_of, sessions
from steelyard.ledger.spans import spans as recorded
from steelyard.measure.joined import joined, latest, of_spans
from steelyard.measure.trace import write_trace
from steelyard.pricing.observed import Observed
from steelyard.scoring import ledger_of

_OPTIONS = {
    "group_size": "--group",
    "rewards": "--function",
    "weights": "--weight",
    "limit_s": "--limit",
    "split": "--split",
}
_SQLITE = b"SQLite format 3\0"


class Asked(NamedTuple):
    """What the options say about a source; see `steelyard price --help`."""

    run: int | None
    group: int | None
    limit_s: Seconds | None
    weights: Sequence[float]
    functions: Sequence[str]
    split: str
    phases: Mapping[str, str]
    skip: bool
    trace: Path | None


def read(path: Path, asked: Asked) -> Read:
    """Read a source, whatever it is.

    Raises
    ------
    RefusedError
        If there is none, nobody reads it, or an option means nothing for it.
    """
    if not path.exists():
        raise RefusedError("there is no such file", where=str(path), remedy="check the path")
    if _is_ledger(path):
        with opened(path) as ledger:
            return Read(_of_ledger(ledger, asked), [])
    for name in ("run", "phases", "trace"):
        if getattr(asked, name):
            raise RefusedError(
                "it is for ledgers", where=f"--{name.removesuffix('s')}", remedy="leave it out"
            )
    try:
        return read_foreign(
            path,
            group_size=asked.group,
            rewards=asked.functions,
            weights=asked.weights,
            limit_s=asked.limit_s,
            split=asked.split,
            skip=asked.skip,
        )
    except RefusedError as error:
        where = _OPTIONS.get(error.where, error.where)
        raise RefusedError(error.reason, where=where, remedy=error.remedy) from None


def _is_ledger(path: Path) -> bool:
    """Whether it is one, or the scored file that has one beside it."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        begin = file.read(len(_SQLITE))
    return begin == _SQLITE or (path.suffix != ".ledger" and ledger_of(path).exists())


def _of_ledger(ledger: Ledger, asked: Asked) -> Observed:
    for name in ("group", "weights", "functions", "skip"):
        if getattr(asked, name):
            raise RefusedError("a ledger says it", where=f"--{name.removesuffix('s')}", remedy="leave it out")
    runs = ledger.runs()
    spans = list(recorded(ledger))
    if not runs and not spans:
        raise RefusedError(
            "the ledger holds neither a run nor a recorded step",
            where=str(ledger.path),
            remedy="score a file first, or record a training loop (docs/recording.md)",
        )
    run = _chosen(ledger, runs, asked.run) if runs else None
    if run is not None and len(runs) > 1:
        own = recorders_of(ledger, run)
        spans = [(session, span) for session, span in spans if session in own]
    _refuse_two_clocks(ledger, {session for session, _ in spans})
    mine = latest(spans)
    if asked.trace is not None:
        _refuse_no_spans(ledger, mine, "--trace")
        with asked.trace.open("w", encoding="utf-8") as file:
            write_trace(sorted(mine, key=lambda span: span.start), file)
    if run is None:
        found = of_spans(mine, source=ledger.path.name, phases=asked.phases)
    else:
        found = observed(ledger, run)
        if mine:
            found = joined(found, mine, phases=asked.phases)
    return found if asked.limit_s is None else replace(found, limit_s=asked.limit_s)


def _chosen(ledger: Ledger, runs: Sequence[Run], number: int | None) -> Run:
    if number is None:
        return runs[-1]
    found = next((run for run in runs if run.number == number), None)
    if found is None:
        there = ", ".join(str(run.number) for run in runs)
        raise RefusedError(f"there is no run {number}", where=str(ledger.path), remedy=f"there are {there}")
    return found


def _refuse_two_clocks(ledger: Ledger, writers: set[int]) -> None:
    """Refuse spans of several machines, or of several starts of one: their clocks have no common zero."""
    clocks = {(one.machine, one.boot) for one in sessions(ledger) if one.number in writers}
    if len(clocks) > 1:
        machines = ", ".join(sorted({machine for machine, _ in clocks}))
        raise RefusedError(
            f"its spans were recorded by {len(clocks)} clocks ({machines}), which cannot be compared",
            where=str(ledger.path),
            remedy="record each machine, and each start of it, in a ledger of its own",
        )


def _refuse_no_spans(ledger: Ledger, spans: Sequence[Span], where: str) -> None:
    if not spans:
        raise RefusedError(
            f"{ledger.path.name} has no recorded span of this run",
            where=where,
            remedy="record the loop (docs/recording.md)",
        )
