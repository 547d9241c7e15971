"""The scored file's rows, written from the ledger in input order.

This is a door: here, and nowhere inside, an unscored row's value is null.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import orjson

from steelyard.clock import Clocks
from steelyard.files import Survey
from steelyard.ledger import Ledger, Recorded, Run
from steelyard.outcome import Abstained, Attempt, Scored, Verdict
from steelyard.rewards import Recipe
from steelyard.rollout import Rollout

_CLOCKS = ("queued_s", "service_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "blocked_s")
_WRITE = 1_024  # rows joined for one write


class Row(NamedTuple):
    """One rollout of the scored file."""

    ordinal: int
    group: int
    place: int
    id: str | int
    total: Verdict
    parts: Mapping[str, Verdict]
    advantage: float
    clocks: Clocks | None


def rows(ledger: Ledger, run: Run, recipe: Recipe, survey: Survey, scheme: str) -> Iterator[Row]:
    """Every rollout of a finished run, in input order."""
    advantages = _advantages(ledger, run, survey, scheme)
    names = {place: name for name, place in run.parts.items()}
    clocks = _OwnClocks(ledger, run)
    rollouts = (one.rollout(run) for one in ledger.entered(run)) if recipe.combine is not None else None
    one_part = len(names) == 1 and rollouts is None and recipe.parts[0].weight == 1.0
    scores = ledger.scores(run)
    by_rollout: Iterator[Sequence[Recorded]] = (
        zip(scores, strict=True)
        if len(names) == 1
        else (list(some) for _, some in groupby(scores, itemgetter(0)))
    )
    for (ordinal, group, place, name), some in zip(ledger.heads(run), by_rollout, strict=True):
        parts = {names[part]: verdict for _, part, verdict, _ in some}
        if one_part:
            total = some[0][2]
        else:
            rollout = next(rollouts) if rollouts is not None else _NO_ROLLOUT
            total = recipe.total(rollout, parts)
        yield Row(ordinal, group, place, name, total, parts, advantages[ordinal], clocks.of(ordinal))


def as_json(row: Row, group_id: str | int) -> bytes:
    """One line of the scored file."""
    said = _said(row.total)
    # the one part of a plain recipe is its total
    parts = {name: said if verdict is row.total else _said(verdict) for name, verdict in row.parts.items()}
    fields = {
        "id": row.id,
        "group": group_id,
        "index": row.place,
        **said,
        "parts": parts,
        "advantage": row.advantage,
        "integrity": row.total.integrity if isinstance(row.total, Scored) else None,
        "clocks": None if row.clocks is None else _clocks(row.clocks),
    }
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a lone surrogate in an id or a reason
        return json.dumps(fields, ensure_ascii=True).encode() + b"\n"


def in_chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines, so that a compressor or a file sees a few large pieces."""
    some: list[bytes] = []
    for line in lines:
        some.append(line)
        if len(some) == _WRITE:
            yield b"".join(some)
            some.clear()
    yield b"".join(some)


_NO_ROLLOUT = Rollout("", "", "", {}, (0, 0), 0, "")


def _said(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Scored):
        return {"verdict": "scored", "value": verdict.value, "code": verdict.code, "reason": verdict.reason}
    if isinstance(verdict, Abstained):
        return {"verdict": "abstained", "value": None, "code": None, "reason": verdict.reason}
    reason = f"{verdict.boundary}: {verdict.cause}"
    return {"verdict": "unscored", "value": None, "code": None, "reason": reason}


def _clocks(clocks: Clocks) -> dict[str, Any]:
    return {**{name: getattr(clocks, name) for name in _CLOCKS}, "censored": clocks.censored}


class _OwnClocks:
    """Clocks of attempts that served one rollout alone; asked for in input order.

    A call that judged a whole chunk has one duration, not one for each rollout: those rows' clocks
    were not measured. A rollout with several attempts or parts has their sums.
    """

    def __init__(self, ledger: Ledger, run: Run) -> None:
        self._by_rollout = groupby(ledger.own_attempts(run), attrgetter("first"))
        self._next = next(self._by_rollout, None)

    def of(self, ordinal: int) -> Clocks | None:
        if self._next is None or self._next[0] != ordinal:
            return None
        summed = _sum(list(self._next[1]))
        self._next = next(self._by_rollout, None)
        return summed


def _sum(attempts: Sequence[Attempt]) -> Clocks:
    summed: dict[str, float | None] = {}
    for name in _CLOCKS:
        measured = [value for a in attempts if (value := getattr(a.clocks, name)) is not None]
        summed[name] = sum(measured) if measured else None
    return Clocks(**summed, censored=any(a.clocks.censored for a in attempts))


def _advantages(ledger: Ledger, run: Run, survey: Survey, scheme: str) -> array[float]:
    """One advantage per rollout, by ordinal."""
    found = array("d", bytes(8 * survey.rollouts))
    for departure in ledger.departures(run, scheme):
        start = survey.starts[departure.group]
        for place, value in enumerate(departure.advantages):
            found[survey.members[start + place]] = value
    return found
