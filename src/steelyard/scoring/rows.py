"""The scored file's rows, written from the ledger in input order.

This is a door: here, and nowhere inside, an unscored row's value is null.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import orjson

from steelyard.errors import RunStoppedError
from steelyard.files import Columns, Survey
from steelyard.ledger import Ledger, Run
from steelyard.ledger.rows import CLOCKS, SCORED, UNSCORED, columns_of, verdict_of
from steelyard.outcome import Attempt
from steelyard.rewards import Recipe, weighted_sum
from steelyard.rollout import follow, parse_json, paths_among

OUT_COLUMNS = (
    "id", "group", "index", "verdict", "value", "code", "reason", "parts", "advantage", "integrity", "clocks",
)  # fmt: skip
_WRITE = 1_024  # rows joined for one write


def scored_rows(
    ledger: Ledger, run: Run, recipe: Recipe, survey: Survey, scheme: str, *, keep: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Every rollout of a finished run as one row of the scored file, in input order."""
    advantages = _advantages(ledger, run, survey, scheme)
    clocks = _OwnClocks(ledger, run)
    group_ids = survey.group_ids
    kept = _kept(ledger, run, keep) if keep else None
    told = _plain(ledger, run) if recipe.plain else _combined(ledger, run, recipe)
    rows = 0
    for ordinal, group, place, name, said, parts, integrity in told:
        rows += 1
        fields = {
            "id": name,
            "group": group_ids[group],
            "index": place,
            **said,
            "parts": parts,
            "advantage": advantages[ordinal],
            "integrity": integrity,
            "clocks": clocks.of(ordinal),
        }
        if kept is not None:
            fields.update(next(kept))
        yield fields
    if rows != survey.rollouts:
        raise RunStoppedError(
            f"{ledger.path}: {rows} of {survey.rollouts} rollouts have a verdict"
            "\n  next: steelyard show LEDGER --verify says what is wrong with the record"
        )


def as_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Write rows as lines of JSON."""
    for row in rows:
        try:
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        except TypeError:  # a lone surrogate in a group's name
            yield json.dumps(row, ensure_ascii=True).encode() + b"\n"


def columns_out(ledger: Ledger, run: Run, survey: Survey, keep: Sequence[str]) -> Columns:
    """Name the scored file's columns with their types, where it has types.

    Only names depend on the input: ids and groups are integers if all of them are, else text, and kept
    fields are what every row can be.
    """
    said: Columns = {"verdict": str, "value": float, "code": str, "reason": str}
    columns: dict[str, type | Columns] = {
        "id": int if survey.id_types <= {int} else str,
        "group": int if all(type(name) is int for name in survey.group_ids) else str,
        "index": int,
        **said,
        "parts": dict.fromkeys(run.parts, said),
        "advantage": float,
        "integrity": str,
        "clocks": {**dict.fromkeys(CLOCKS, float), "censored": bool},
    }
    kinds: dict[str, set[type]] = {field: set() for field in keep}
    for row in _kept(ledger, run, keep) if keep else ():
        for field, value in row.items():
            kinds[field].add(_kind(value))
    columns.update((field, _common(found - {type(None)})) for field, found in kinds.items())
    return columns


def _kind(value: object) -> type:
    """A value's type, and `str` for what only text can hold."""
    if type(value) is int and abs(value) >= 2**63:
        return str
    return type(value) if isinstance(value, bool | int | float | None) else str


def _common(found: set[type]) -> type:
    if found == {int, float}:
        return float
    return found.pop() if len(found) == 1 else str


def _kept(ledger: Ledger, run: Run, keep: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The input's own fields, rollout after rollout."""
    paths = paths_among(keep)
    for entered in ledger.entered(run):
        record = parse_json(entered.content)
        follow(record, paths)
        yield {field: record.get(field) for field in keep}


_Told: TypeAlias = tuple[int, int, int, str | int, dict[str, Any], dict[str, dict[str, Any]], str | None]


def _plain(ledger: Ledger, run: Run) -> Iterator[_Told]:
    """Rollouts whose one part is their total: as they were written down, no value made of them."""
    (name,) = run.parts
    for ordinal, group, place, rollout, _, kind, value, code, reason, integrity in ledger.told(run):
        said = words(kind, value, code, reason)
        yield ordinal, group, place, rollout, said, {name: said}, integrity


def _combined(ledger: Ledger, run: Run, recipe: Recipe) -> Iterator[_Told]:
    """Rollouts whose total is combined from their parts."""
    names = {place: name for name, place in run.parts.items()}
    # only a combination of the user's own and shapes look at the rollout
    plain = recipe.combine is None and not recipe.shapes
    rollouts = None if plain else (entered.rollout(run) for entered in ledger.entered(run))
    for (ordinal, group, place, rollout), rows in groupby(ledger.told(run), itemgetter(0, 1, 2, 3)):
        said = {names[part]: verdict for _, _, _, _, part, *verdict in rows}
        verdicts = {name: verdict_of(*verdict) for name, verdict in said.items()}
        if rollouts is None:
            total = weighted_sum(recipe.parts, verdicts)
        else:
            total = recipe.total(next(rollouts), verdicts)
        kind, value, code, reason, integrity = columns_of(total)
        parts = {name: words(*verdict[:4]) for name, verdict in said.items()}
        yield ordinal, group, place, rollout, words(kind, value, code, reason), parts, integrity


def words(kind: int, value: float | None, code: str | None, reason: str | None) -> dict[str, Any]:
    """A verdict as the scored file says it."""
    if kind == UNSCORED:
        return {"verdict": "unscored", "value": None, "code": None, "reason": f"{code}: {reason}"}
    verdict = "scored" if kind == SCORED else "abstained"
    return {"verdict": verdict, "value": value, "code": code, "reason": reason}


def in_chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines, so that a compressor or a file sees a few large pieces."""
    some: list[bytes] = []
    for line in lines:
        some.append(line)
        if len(some) == _WRITE:
            yield b"".join(some)
            some.clear()
    yield b"".join(some)


class _OwnClocks:
    """Clocks of attempts that served one rollout alone; asked for in input order.

    A call that judged a whole chunk has one duration, not one for each rollout: those rows' clocks
    were not measured. A rollout with several attempts or parts has their sums.
    """

    def __init__(self, ledger: Ledger, run: Run) -> None:
        self._by_rollout = groupby(ledger.own_attempts(run), attrgetter("first"))
        self._next = next(self._by_rollout, None)

    def of(self, ordinal: int) -> dict[str, Any] | None:
        if self._next is None or self._next[0] != ordinal:
            return None
        summed = _sum(list(self._next[1]))
        self._next = next(self._by_rollout, None)
        return summed


def _sum(attempts: Sequence[Attempt]) -> dict[str, Any]:
    summed: dict[str, Any] = {}
    for name in CLOCKS:
        measured = [value for a in attempts if (value := getattr(a.clocks, name)) is not None]
        summed[name] = sum(measured) if measured else None
    return {**summed, "censored": any(a.clocks.censored for a in attempts)}


def _advantages(ledger: Ledger, run: Run, survey: Survey, scheme: str) -> array[float]:
    """One advantage per rollout, by ordinal."""
    found = array("d", bytes(8 * survey.rollouts))
    members, starts = survey.members, survey.starts
    for group, _, advantages in ledger.departures(run, scheme):
        rows = members[starts[group] : starts[group + 1]]
        if rows[-1] - rows[0] == len(rows) - 1:  # they stand together
            found[rows[0] : rows[-1] + 1] = array("d", advantages)
        else:
            for row, advantage in zip(rows, advantages, strict=True):
                found[row] = advantage
    return found
