"""What is written down of a run: attempts, scores, and the groups that have left with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from steelyard.blame import excused
from steelyard.errors import RunStoppedError
from steelyard.outcome import Attempt, Called, End, Failure, Reward, Score, Scored
from steelyard.rollout import Group, Rollout


class Left(NamedTuple):
    """A group that is complete: by part its scores, and by id every attempt that this run made at them."""

    group: Group
    scores: Mapping[str, Sequence[Score]]
    attempts: Mapping[int, Attempt]


class Batch(NamedTuple):
    """What happened since the last batch: attempts that ended, scores, and groups that are complete."""

    attempts: list[Attempt]
    scores: list[Score]
    groups: list[Left]


def attempt_of(number: int, part: str, called: Called, attempted: int) -> Attempt:
    """A call as an attempt to be written down; an audit, which is no try at a verdict, is number `AUDIT`."""
    failure = None
    if Failure in {*map(type, called.said)}:  # nearly never, and this is asked of every call
        failure = next(said for said in called.said if isinstance(said, Failure))
    evidence = called.evidence
    limit = (evidence or {}).get("limit") if failure is None else failure.limit
    if failure is not None:
        told = {"cause": failure.cause, "boundary": failure.boundary, **failure.evidence}
        evidence = {**(evidence or {}), **told}
    ended = failure.end if failure is not None else End.FINISHED if limit is None else End.CUT
    first, members = called.rollouts[0].ordinal, len(called.rollouts)
    return Attempt(number, part, attempted, first, members, called.clocks, ended, limit, evidence)


def judged(score: Score | None) -> bool:
    """Whether a recorded score came of an attempt that was answered."""
    return (
        score is not None
        and score.attempt is not None
        and isinstance(score.verdict, Scored)
        and not excused(score.verdict.code)
    )


def below_floor(reward: Reward, rollout: Rollout, value: float) -> RunStoppedError:
    """Return the error of a reward whose failures would be worth more than what it says of some rollouts."""
    return RunStoppedError(
        f"reward {reward.name!r} returned {value:g} on {rollout.where}, which is below its floor "
        f"{reward.floor:g}: completions that make it fail would be paid more than this one"
        "\n  next: state the lowest value that it can ever return, as in @steelyard.reward(floor=-1), in a "
        "recipe, floor = -1, or beside a list of a trainer's, reward([...], floors=[-1]), and score again "
        "(with --new-run: a changed reward is another one)"
    )
