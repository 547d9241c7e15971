"""How verdicts and attempts stand in the ledger's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from steelyard.clock import Clocks
from steelyard.outcome import Abstained, Attempt, End, Score, Scored, Unscored, Verdict
from steelyard.rollout import canonical_json

CLOCKS = ("queued_s", "service_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "blocked_s")
ATTEMPT_COLUMNS = (
    f"attempt, part, try, first, members, ended, cut_by, {', '.join(CLOCKS)}, censored, evidence"
)
SCORE_COLUMNS = "ordinal, part, verdict, value, code, reason, integrity, attempt"

_SCORED, _ABSTAINED, _UNSCORED = 0, 1, 2


def verdict_of(
    kind: int, value: float | None, code: str | None, reason: str | None, integrity: str | None
) -> Verdict:
    """Turn a row's columns back into a verdict."""
    if kind == _SCORED:
        return Scored(float(value or 0.0), code, reason, integrity)
    if kind == _ABSTAINED:
        return Abstained(reason or "")
    return Unscored(code or "", reason or "")


def score_row(run: int, parts: Mapping[str, int], score: Score) -> tuple[object, ...]:
    """Turn a score into a row of the table."""
    verdict = score.verdict
    said: tuple[object, ...]
    if isinstance(verdict, Scored):
        said = (_SCORED, verdict.value, verdict.code, verdict.reason, verdict.integrity)
    elif isinstance(verdict, Abstained):
        said = (_ABSTAINED, None, None, verdict.reason, None)
    else:
        said = (_UNSCORED, None, verdict.boundary, verdict.cause, None)
    return (run, score.ordinal, parts[score.part], *said, score.attempt)


def attempt_row(run: int, part: int, attempt: Attempt) -> tuple[object, ...]:
    """Turn an attempt into a row of the table."""
    clocks = attempt.clocks
    return (
        run,
        attempt.id,
        part,
        attempt.ordinal,
        attempt.first,
        attempt.members,
        attempt.end,
        attempt.limit,
        *(getattr(clocks, name) for name in CLOCKS),
        int(clocks.censored),
        None if attempt.evidence is None else canonical_json(attempt.evidence).decode(),
    )


def attempt_of(row: Sequence[Any], names: Mapping[int, str]) -> Attempt:
    """Turn a row of `ATTEMPT_COLUMNS` back into an attempt."""
    attempt, part, tried, first, members, ended, cut_by, *clocks, censored, evidence = row
    return Attempt(
        attempt,
        names[part],
        tried,
        first,
        members,
        Clocks(**dict(zip(CLOCKS, clocks, strict=True)), censored=bool(censored)),
        End(ended),
        cut_by,
        None if evidence is None else orjson.loads(evidence),
    )
