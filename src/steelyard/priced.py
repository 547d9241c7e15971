"""The price of a file, whatever wrote it: ledgers with or without spans, and other people's rollouts.

| file | becomes |
|---|---|
| a ledger, or the scored file beside one | its run, with the steps that were recorded while it was scored |
| a ledger without a run | the recorded loop, whose calls are its rewards |
| anything else | what `files.foreign` recognises |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict, Unpack

from steelyard.clock import Seconds, Span
from steelyard.errors import RefusedError
from steelyard.files.foreign import Read, read_foreign
from steelyard.ledger import Ledger, Run
from steelyard.ledger.observed import observed
from steelyard.ledger.spans import recorders_of, sessions, spans
from steelyard.measure.joined import joined, latest, of_spans
from steelyard.pricing.money import Prices
from steelyard.pricing.price import price_observed
from steelyard.pricing.values import Price
from steelyard.scoring import ledger_of

_SQLITE: Final = b"SQLite format 3\0"


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
_OTHERS: Final = ("group_size", "rewards", "weights", "skip")


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
    if not file.exists():
        raise RefusedError("there is no such file", where=str(path), remedy="check the path")
    ledger = _ledger(file)
    foreign = _OTHERS if ledger is not None else _LEDGERS
    for name in foreign:
        if reading.get(name):
            says = "a ledger says it" if ledger is not None else "it is for ledgers"
            raise RefusedError(says, where=name, remedy="leave it out")
    if ledger is None:
        return read_foreign(
            file,
            group_size=reading.get("group_size"),
            rewards=reading.get("rewards", ()),
            weights=reading.get("weights", ()),
            limit_s=reading.get("limit_s"),
            split=reading.get("split", "train"),
            skip=reading.get("skip", False),
        )
    with Ledger(ledger, write=False) as record:
        run = chosen(record, reading.get("run"))
        mine = recorded(record, run)
        phases = reading.get("phases", {})
        if run is None:
            found = of_spans(mine, source=ledger.name, phases=phases)
        else:
            found = observed(record, run)
            found = joined(found, mine, phases=phases) if mine else found
    limit_s = reading.get("limit_s")
    return Read(found if limit_s is None else replace(found, limit_s=limit_s), [])


def chosen(ledger: Ledger, number: int | None = None) -> Run | None:
    """The run of that number, else the last one; none of a recorded loop.

    Raises
    ------
    RefusedError
        If the ledger holds no such run, or nothing at all.
    """
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


def recorded(ledger: Ledger, run: Run | None) -> list[Span]:
    """What was recorded while a run was scored; of a loop without a run, all.

    Raises
    ------
    RefusedError
        If several machines recorded it, or several starts of one: their clocks have no common zero.
    """
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
    return latest(found)


def _ledger(file: Path) -> Path | None:
    """The ledger that it is, or that lies beside a scored file; none of what others wrote."""
    if file.is_dir():
        return None
    beside = ledger_of(file)
    if file.suffix != ".ledger" and beside.exists():
        return beside
    with file.open("rb") as begin:
        return file if begin.read(len(_SQLITE)) == _SQLITE else None
