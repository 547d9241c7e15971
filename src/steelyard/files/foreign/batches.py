"""Batches of completions in TRL's Parquet: read a few rows at a time, compared by hashes, no text kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from steelyard.errors import RefusedError, describe
from steelyard.files.foreign.read import CALL, CENSORED, CODE, ERRORS, ROW, SERVICE, TIMEOUTS, VERDICT, Faults
from steelyard.files.foreign.table import VERDICTS
from steelyard.files.parquet import arrow
from steelyard.pricing.observed import MISSING, Bools, Floats, Ints, blank

FIELDS: Final = ("step", "prompt", "completion", "advantage")
_ROWS: Final = 4_096  # of a file at once
_FLAGS: Final = (*TIMEOUTS, *ERRORS)


@dataclass(slots=True)
class Batch:
    """Consecutive rows of one step, in columns of shape `(n,)`.

    Parameters
    ----------
    where
        File and first row.
    step
        As the file calls it.
    prompt, completion
        Hashes of both.
    reals
        Columns of floats by name; those of reward functions come first (`floats` lists them in order).
    flags
        What people log to say that a reward was cut or failed, and ours.
    verdict
        Ours; `MISSING` where there is none.
    code
        Index into the words of the run; `MISSING` where there is none.
    row, call
        Hashes of our numbers of rows, and of calls; empty where there are none.
    """

    where: str
    step: int
    prompt: Ints
    completion: Ints
    reals: dict[str, Floats]
    flags: dict[str, Bools]
    verdict: Ints
    code: Ints
    row: Ints
    call: Ints
    floats: Sequence[str] = ()
    has: frozenset[str] = field(default_factory=frozenset)

    def __len__(self) -> int:
        return len(self.prompt)

    def real(self, name: str) -> Floats:
        """A column of floats; `nan` where this file has none of that name."""
        return self.reals.get(name, blank(len(self)))

    def flag(self, names: Sequence[str]) -> Bools:
        """Whether any of these is set."""
        found = np.zeros(len(self), bool)
        for name in names:
            if name in self.flags:
                found |= self.flags[name]
        return found

    def part(self, which: slice) -> Batch:
        """Some rows."""
        return replace(
            self,
            prompt=self.prompt[which],
            completion=self.completion[which],
            reals={name: real[which] for name, real in self.reals.items()},
            flags={name: flag[which] for name, flag in self.flags.items()},
            verdict=self.verdict[which],
            code=self.code[which],
            row=self.row[which],
            call=self.call[which],
        )


def read_batches(path: Path, words: dict[str, int]) -> Iterator[Batch]:
    """The batches of a file; `words` gathers the codes of the run.

    Raises
    ------
    RefusedError
        If the file is not whole, or has not TRL's columns.
    """
    pa, pq = arrow(str(path))
    try:
        with pq.ParquetFile(str(path), pre_buffer=False, buffer_size=1 << 20) as file:
            names = _columns(pa, file.schema_arrow, path)
            floats = _rewards(pa, file.schema_arrow)
            pieces = [
                _piece(pa, piece, words)
                for piece in file.iter_batches(_ROWS, columns=names, use_threads=False)
            ]
    except (pa.ArrowException, OSError) as error:
        raise RefusedError(
            f"not a whole Parquet file ({describe(error)})",
            where=str(path),
            remedy="its writer was cut, or the copy was: write or copy it again",
        ) from error
    yield from _by_step(pieces, path, floats, frozenset(names))


def _columns(pa: Any, schema: Any, path: Path) -> list[str]:  # noqa: ANN401 - pyarrow has no types
    absent = [name for name in FIELDS if name not in schema.names]
    if absent:
        raise RefusedError(
            f"no column {absent[0]!r}; there are {', '.join(schema.names)}",
            where=str(path),
            remedy="TRL writes such files with log_completions=True",
        )
    if not pa.types.is_integer(schema.field("step").type):
        raise RefusedError(
            f"column 'step' must be integers, it is {schema.field('step').type}",
            where=str(path),
            remedy="check what wrote it",
        )
    asked = {*FIELDS, *_FLAGS, VERDICT, CODE, CENSORED, ROW, CALL}
    return [one.name for one in schema if one.name in asked or pa.types.is_floating(one.type)]


def _rewards(pa: Any, schema: Any) -> list[str]:  # noqa: ANN401
    """Columns that may be reward functions: the floats that follow the completion."""
    found = []
    for one in list(schema)[schema.names.index("completion") + 1 :]:
        if one.name == "advantage" or one.name.startswith("steelyard/") or not pa.types.is_floating(one.type):
            break
        found.append(one.name)
    return found


def _piece(pa: Any, piece: Any, words: dict[str, int]) -> dict[str, NDArray[Any]]:  # noqa: ANN401
    found: dict[str, NDArray[Any]] = {}
    for name, column in zip(piece.schema.names, piece.columns, strict=True):
        if name in ("prompt", "completion", ROW, CALL):
            found[name] = np.fromiter(map(_hash, column.to_pylist()), np.int64, len(column))
        elif name == VERDICT:
            found[name] = np.array([VERDICTS.get(one, MISSING) for one in column.to_pylist()], np.int64)
        elif name == CODE:
            found[name] = np.array(
                [
                    MISSING if one is None else words.setdefault(str(one), len(words))
                    for one in column.to_pylist()
                ],
                np.int64,
            )
        elif name in _FLAGS or name == CENSORED:
            found[name] = _flag(pa, column)
        else:
            found[name] = column.cast(pa.int64() if name == "step" else pa.float64()).to_numpy(False)
    return found


def _flag(pa: Any, column: Any) -> Bools:  # noqa: ANN401
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        marks: Bools = np.nan_to_num(column.cast(pa.float64()).to_numpy(False)) > 0
        return marks
    return np.array(
        [bool(one) and one not in ("False", "false", "0", "None") for one in column.to_pylist()], bool
    )


def _hash(value: object) -> int:
    return hash(value if isinstance(value, str | int) else orjson.dumps(value, default=str))


def _by_step(
    pieces: Sequence[dict[str, NDArray[Any]]], path: Path, floats: Sequence[str], has: frozenset[str]
) -> Iterator[Batch]:
    if not pieces:
        return
    whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    n = len(whole["step"])
    for name in (*floats, "advantage"):
        wrong = np.flatnonzero(np.isinf(whole[name]))
        if len(wrong):
            raise RefusedError(
                f"column {name!r} must be finite or null, this is {whole[name][wrong[0]]}",
                where=f"{path}:{wrong[0] + 1}",
                remedy="a reward must be a finite number or None",
            )
    everything = Batch(
        where=f"{path}:1",
        step=0,
        prompt=whole["prompt"],
        completion=whole["completion"],
        reals={name: real for name, real in whole.items() if real.dtype == np.float64},
        flags={name: flag for name, flag in whole.items() if flag.dtype == np.bool_},
        verdict=whole.get(VERDICT, np.full(n, MISSING)),
        code=whole.get(CODE, np.full(n, MISSING)),
        row=whole.get(ROW, np.arange(0)),
        call=whole.get(CALL, np.arange(0)),
        floats=floats,
        has=has,
    )
    edges = [0, *(np.flatnonzero(np.diff(whole["step"])) + 1), n] if n else []
    for start, end in pairwise(edges):
        batch = everything.part(slice(start, end))
        batch.where, batch.step = f"{path}:{start + 1}", int(whole["step"][start])
        yield batch


def believe(found: Sequence[Batch]) -> dict[str, int]:
    """Take back columns that repeat those of the batch before beside other completions; how many by name.

    Ours are logged together, so they fall together: by the numbers of rows, else by the measured times.
    """
    stale: dict[str, int] = {}
    blanks = []
    for before, batch in pairwise(found):
        if len(before) != len(batch) or (before.completion == batch.completion).all():
            continue
        if len(batch.row) and len(before.row):
            ours = bool((batch.row == before.row).all())
        else:
            ours = _repeats(before.real(SERVICE), batch.real(SERVICE))
        names = [
            name
            for name in batch.flags
            if name != CENSORED
            and name in before.flags
            and _marks_repeat(before.flags[name], batch.flags[name])
        ]
        blanks.append((batch, ours, names))
    for batch, ours, names in blanks:  # only now: the next one is compared with what the file says
        if ours:
            batch.reals.pop(SERVICE, None)
            batch.flags.pop(CENSORED, None)
            batch.call = np.arange(0)
            batch.verdict, batch.code = np.full(len(batch), MISSING), np.full(len(batch), MISSING)
        for name in names:
            batch.flags.pop(name)
        for name in [*names, *(["steelyard/*"] if ours else [])]:
            stale[name] = stale.get(name, 0) + 1
    return stale


def _repeats(before: Floats, now: Floats) -> bool:
    """Measured times, two different ones at least, that are the same to the last bit."""
    measured = now[np.isfinite(now)]
    return len(np.unique(measured)) > 1 and np.array_equal(before, now, equal_nan=True)


def _marks_repeat(before: Bools, now: Bools) -> bool:
    """Marks at the same rows; one alone may fall on the same row by chance."""
    return int(now.sum()) > 1 and not now.all() and bool((before == now).all())


def group_size(
    found: Sequence[Batch], given: int | None, faults: Faults, lacks: list[str]
) -> tuple[int, list[Batch]]:
    """Completions of one prompt, and the batches that consist of such blocks.

    Parameters
    ----------
    found
        The batches.
    given
        The size, if the user said it; each block of equal prompts must then be a multiple of it.
    lacks
        Is told where blocks leave the size open.

    Raises
    ------
    RefusedError
        If blocks have no common size, or not the one given.
    """
    lengths = [_blocks(batch.prompt) for batch in found]
    every = np.concatenate(lengths) if lengths else np.zeros(0, int)
    size = given or int(np.gcd.reduce(every)) if len(every) else given or 1
    if given is None and size == 1 and every.max(initial=1) > 1:
        odd = next(at for at, its in enumerate(lengths) if np.gcd.reduce(its) == 1)
        raise RefusedError(
            f"blocks of equal prompts have lengths such as {', '.join(map(str, np.unique(every)[:5]))}: "
            "no size of groups divides them",
            where=found[odd].where,
            remedy="say the size (num_generations) with --group",
        )
    fitting = []
    for batch, its in zip(found, lengths, strict=True):
        wrong = np.flatnonzero(its % size)
        if len(wrong):
            faults.bad(
                batch.where,
                f"a block of {its[wrong[0]]} equal prompts is no multiple of the group size {size}",
                "check --group (num_generations); rows that were filtered or sorted cannot be grouped",
            )
        else:
            fitting.append(batch)
    if given is None:
        lacks += filter(None, [_open(fitting, every, size)])
    return size, fitting


def _blocks(prompt: Ints) -> Ints:
    edges = np.flatnonzero(np.diff(prompt)) + 1
    return np.diff([0, *edges, len(prompt)])


def _open(found: Sequence[Batch], every: Ints, size: int) -> str:
    """In which way blocks leave the size of groups open; empty if in none."""
    certain = "(--group says it for certain)."
    if size == 1:
        return "No two neighbours share a prompt: every completion is a group of its own."
    if long := int((every > size).sum()):
        return (
            f"{long:,} blocks of equal prompts are longer than {size}: taken as neighbouring groups of one "
            f"prompt {certain}"
        )
    for finer in (d for d in range(2, size) if size % d == 0):
        blocks = [batch.reals["advantage"].reshape(-1, finer) for batch in found]
        telling = sum(int((np.abs(one).max(axis=1) > 1e-3).sum()) for one in blocks)
        if telling >= 4 and all((np.abs(one.sum(axis=1)) < 1e-3 * finer).all() for one in blocks):
            return (
                f"Groups may be of {finer} rather than {size}: advantages add up to 0 in blocks of {finer}, "
                f"too {certain}"
            )
    if all(len(_blocks(batch.prompt)) == 1 for batch in found):
        return f"Every batch has one prompt: it is taken as one group of {size} {certain}"
    return ""


def once(found: Sequence[Batch], size: int) -> tuple[list[Batch], int]:
    """Leave out rows that the file before ended with; the rest, and how many were left out."""
    kept, again = [], 0
    for at, batch in enumerate(found):
        shared = _overlap(found[at - 1], batch, size) if at else 0
        again += shared
        if shared < len(batch):
            kept.append(batch.part(slice(shared, None)))
    return kept, again


def _overlap(before: Batch, now: Batch, size: int) -> int:
    """How many rows at the beginning of a batch are the last ones of the batch before: whole groups."""
    for shared in range(min(len(before), len(now)) // size * size, 0, -size):
        if all(
            (getattr(before, name)[-shared:] == getattr(now, name)[:shared]).all()
            for name in ("prompt", "completion")
        ):
            return shared
    return 0
