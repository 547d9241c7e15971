"""The scored file's rows, written from the ledger in input order.

This is a door: here, and nowhere inside, an unscored row's value is null.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from steelyard.files import Survey
from steelyard.ledger import Ledger, Run
from steelyard.outcome import Abstained, Attempt, Scored, Verdict
from steelyard.rewards import Recipe, weighted_sum

_CLOCKS = ("queued_s", "service_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "blocked_s")
_WRITE = 1_024  # rows joined for one write


def scored_lines(ledger: Ledger, run: Run, recipe: Recipe, survey: Survey, scheme: str) -> Iterator[bytes]:
    """Every rollout of a finished run as one line of the scored file, in input order."""
    advantages = _advantages(ledger, run, survey, scheme)
    names = {place: name for name, place in run.parts.items()}
    clocks = _OwnClocks(ledger, run)
    combined = _Combined(ledger, run, recipe)
    for (ordinal, group, place, name), verdicts in zip(
        ledger.heads(run), _by_rollout(ledger, run), strict=True
    ):
        parts = {names[part]: verdict for part, verdict in verdicts}
        total = combined.next(parts)
        said = _said(total)
        fields = {
            "id": name,
            "group": survey.group_ids[group],
            "index": place,
            **said,
            # the one part of a plain recipe is its total
            "parts": {part: said if verdict is total else _said(verdict) for part, verdict in parts.items()},
            "advantage": advantages[ordinal],
            "integrity": total.integrity if isinstance(total, Scored) else None,
            "clocks": clocks.of(ordinal),
        }
        try:
            yield orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        except TypeError:  # a lone surrogate in an id or a reason
            yield json.dumps(fields, ensure_ascii=True).encode() + b"\n"


def _by_rollout(ledger: Ledger, run: Run) -> Iterator[Sequence[tuple[int, Verdict]]]:
    """(part, verdict) pairs, rollout after rollout."""
    scores = ledger.scores(run)
    if len(run.parts) == 1:
        return ([(part, verdict)] for _, part, verdict, _ in scores)
    return ([(part, verdict) for _, part, verdict, _ in some] for _, some in groupby(scores, itemgetter(0)))


class _Combined:
    """Totals of rollouts, asked for in input order."""

    def __init__(self, ledger: Ledger, run: Run, recipe: Recipe) -> None:
        self._recipe = recipe
        # only a combination of the user's own looks at the rollout
        self._rollouts = None if recipe.combine is None else (e.rollout(run) for e in ledger.entered(run))

    def next(self, parts: Mapping[str, Verdict]) -> Verdict:
        if self._rollouts is None:
            return weighted_sum(self._recipe.parts, parts)
        return self._recipe.total(next(self._rollouts), parts)


def in_chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines, so that a compressor or a file sees a few large pieces."""
    some: list[bytes] = []
    for line in lines:
        some.append(line)
        if len(some) == _WRITE:
            yield b"".join(some)
            some.clear()
    yield b"".join(some)


def _said(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Scored):
        return {"verdict": "scored", "value": verdict.value, "code": verdict.code, "reason": verdict.reason}
    if isinstance(verdict, Abstained):
        return {"verdict": "abstained", "value": None, "code": None, "reason": verdict.reason}
    reason = f"{verdict.boundary}: {verdict.cause}"
    return {"verdict": "unscored", "value": None, "code": None, "reason": reason}


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
    for name in _CLOCKS:
        measured = [value for a in attempts if (value := getattr(a.clocks, name)) is not None]
        summed[name] = sum(measured) if measured else None
    return {**summed, "censored": any(a.clocks.censored for a in attempts)}


def _advantages(ledger: Ledger, run: Run, survey: Survey, scheme: str) -> array[float]:
    """One advantage per rollout, by ordinal."""
    found = array("d", bytes(8 * survey.rollouts))
    for departure in ledger.departures(run, scheme):
        start = survey.starts[departure.group]
        for place, value in enumerate(departure.advantages):
            found[survey.members[start + place]] = value
    return found
