"""What a scored batch tells TRL's log: columns of values per completion, and numbers per batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any, Final, NamedTuple

from steelyard.blame import DOUBTS
from steelyard.clock import Seconds
from steelyard.files.foreign.read import CALL, CENSORED, CODE, ROW, SERVICE, VERDICT
from steelyard.outcome import Abstained, Score, Scored, ScoredGroup, Unscored, Verdict
from steelyard.rewards import Recipe

PART: Final = "steelyard/part/"
"""Before the name of a part, in the table of completions: its value, null where it did not judge."""

MEAN: Final = "steelyard/mean/"
"""Before the name of a part, among the metrics: its mean over the completions that it judged."""

_WORDS: Final = {Scored: "scored", Abstained: "abstained", Unscored: "unscored"}


def per_row(scored: Sequence[ScoredGroup], recipe: Recipe, *, run: str) -> dict[str, list[Any]]:
    """Columns of one value for each completion, in order.

    Parameters
    ----------
    scored
        Whole groups.
    recipe
        Names the parts.
    run
        Tells the rows of this process from those of others.
    """
    totals = [total for one in scored for total in one.totals]
    known: dict[int | None, _Clock] = {}  # one call judges many
    clocks = [clock for one in scored for clock in _clocks(one, known)]
    columns: dict[str, list[Any]] = {
        VERDICT: [_WORDS[type(total)] for total in totals],
        CODE: [total.code if type(total) is Scored else _code(total) for total in totals],
        SERVICE: [clock.seconds for clock in clocks],
        CENSORED: [clock.cut for clock in clocks],
        CALL: [None if clock.call is None else f"{run}/{clock.call}" for clock in clocks],
        ROW: [f"{run}/{rollout.ordinal}" for one in scored for rollout in one.group.rollouts],
    }
    for name in recipe.names:
        verdicts = (score.verdict for one in scored for score in one.parts[name])
        columns[PART + name] = [said.value if type(said) is Scored else None for said in verdicts]
    return columns


def per_batch(scored: Sequence[ScoredGroup], recipe: Recipe, *, exposed_s: Seconds) -> dict[str, float]:
    """Metrics: the same names whatever happened; `nan` where there is nothing to take a mean of.

    Parameters
    ----------
    scored
        Whole groups.
    recipe
        Names the parts.
    exposed_s
        How long the trainer waited for it.
    """
    totals = [total for one in scored for total in one.totals]
    clocks = [attempt.clocks for one in scored for attempt in one.attempts.values()]
    told = {
        "steelyard/unscored": _share(isinstance(total, Unscored) for total in totals),
        "steelyard/abstained": _share(isinstance(total, Abstained) for total in totals),
        "steelyard/reward_error": _share(type(total) is Scored and total.code in DOUBTS for total in totals),
        "steelyard/exposed_s": exposed_s,
        "steelyard/slowest_s": max((clock.service_s or 0.0 for clock in clocks), default=0.0),
        "steelyard/longest_queue_s": max((clock.queued_s or 0.0 for clock in clocks), default=0.0),
    }
    for name in recipe.names:
        verdicts = (score.verdict for one in scored for score in one.parts[name])
        values = [said.value for said in verdicts if type(said) is Scored]
        told[MEAN + name] = sum(values) / len(values) if values else nan
    return told


def failures(scored: Sequence[ScoredGroup]) -> str | None:
    """How many completions could not be judged, and why the first could not; nothing, if all could."""
    lost = [total for one in scored for total in one.totals if isinstance(total, Unscored)]
    if not lost:
        return None
    count = sum(len(one.totals) for one in scored)
    return (
        f"{len(lost)} of {count} completions could not be judged and train nothing; the first: "
        f"{lost[0].boundary}: {lost[0].cause}"
    )


def _share(which: Iterator[bool]) -> float:
    seen = list(which)
    return sum(seen) / len(seen) if seen else nan


def _code(total: Verdict) -> str | None:
    """What failed, if something did."""
    return total.boundary if isinstance(total, Unscored) else None


class _Clock(NamedTuple):
    """How long a rollout's longest part took, with repeated attempts; whether any was cut; its call."""

    seconds: Seconds | None = None
    cut: bool = False
    call: int | None = None


def _clocks(one: ScoredGroup, known: dict[int | None, _Clock]) -> list[_Clock]:
    if any(attempt.ordinal for attempt in one.attempts.values()):
        parts = [[_repeated(one, score) for score in scores] for scores in one.parts.values()]
    else:
        parts = []
        for scores in one.parts.values():
            known.update(
                (score.attempt, _single(one, score)) for score in scores if score.attempt not in known
            )
            parts.append([known[score.attempt] for score in scores])
    if len(parts) == 1:
        return parts[0]
    return [
        max(of, key=lambda clock: clock.seconds or 0.0)._replace(cut=any(clock.cut for clock in of))
        for of in zip(*parts, strict=True)
    ]


def _single(one: ScoredGroup, score: Score) -> _Clock:
    attempt = None if score.attempt is None else one.attempts.get(score.attempt)
    if attempt is None:
        return _Clock()
    return _Clock(attempt.clocks.service_s, attempt.clocks.censored, attempt.id)


def _repeated(one: ScoredGroup, score: Score) -> _Clock:
    clocks = [
        attempt.clocks
        for attempt in one.attempts.values()
        if attempt.id == score.attempt
        or (attempt.part == score.part and attempt.first == score.ordinal and attempt.members == 1)
    ]
    took = [clock.service_s for clock in clocks if clock.service_s is not None]
    return _Clock(sum(took) if took else None, any(clock.censored for clock in clocks), score.attempt)
