"""The incentive law's thresholds, and who is blamed for a failed attempt: evidence in, verdict out.

No outcome that the text of a completion can bring about may be worth more to the policy than plain
failure. Being left out is worth advantage 0, which beats a wrong answer's negative one, so a
rollout is `Unscored` only on evidence that no completion can produce:

1. The failure came before the first instruction: `Unscored`.
2. A limit of its own was exhausted (CPU, memory, ...): the floor at once, never a second draw.
3. Anything else is suspect, the transport's failure (429, 5xx, TLS) included, for what is asked can
   bring it about: it is tried once more, in a fresh process where there is one. If it
   fails again while a canary (a row of known verdict) is answered, the completion did it: the
   floor. If the canary fails too, the machinery did: `Unscored`.

Time on the wall is never a verdict by itself: a starved machine looks the same as a slow program.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from steelyard.execution import Ended, Execution
from steelyard.outcome import End, Failure, Scored, Unscored, Verdict

UNSCORED_SHARE: Final = 0.05
"""A run stops (`score` exits with 3) above this share of unscored rollouts."""

REWARD_ERROR_SHARE: Final = 0.005
"""A run stops above this share of rollouts on which a reward failed for their content."""

SHARE_WINDOW: Final = 1_024
"""Shares are taken over this many of the last rollouts."""

SHARE_ACTS_FROM: Final = 256
"""Below this many rollouts a share is only a doubt."""

SAME_ERROR_STOPS: Final = 32
"""A part whose first attempts all raise the same error stops the run after this many."""

STARVED_GOT_SHARE: Final = 0.5
"""Whoever got at least this share of the CPU that it was entitled to was not starved."""

STARVED_DELAY_SHARE: Final = 0.1
"""The share of the time in which a sentinel, that hardly wants the CPU, has to have waited for it."""

OWN_LIMITS: Final = frozenset(
    {"cpu", "cpu_adaptive", "idle", "memory", "processes", "threads", "files", "output", "source"}
)
"""Limits that an attempt exhausts by itself; `wall` is not among them."""


DOUBTS: Final = frozenset({"reward_error", "judge_unreadable"})
"""Floors that say more about the reward than about the rollout: their share is watched."""


REPRODUCED: Final = DOUBTS | {"reproduced", "wall_reproduced"}
"""Codes of rollouts that were blamed because a failure came again."""


_EXHAUSTED: Final = (
    ("memory", re.compile(r"\bMemoryError\b|Errno 12\b")),
    ("threads", re.compile(r"can't start new thread")),
    ("processes", re.compile(r"\bBlockingIOError\b.*Errno 11\b")),
    ("files", re.compile(r"\[Errno (?:24|27|28|122)\]")),
)
"""Limits, and the words by which an exception tells of them."""


def excused(code: str | None) -> bool:
    """Whether a floor with this code came of failed attempts, so that the rollout was not really judged."""
    return code is not None and (
        code in OWN_LIMITS or code in DOUBTS or code == "reproduced" or code.endswith("_reproduced")
    )


def ending(execution: Execution) -> str | None:
    """The code of an end that the candidate brought about; `None` if it may have been somebody else.

    A limit of its own, an exit and a signal of its own are final. The wall, and contact that was lost after
    its first instruction, are suspect: whatever a machine can do to a program, a program can try to fake.

    Examples
    --------
    >>> ending(Execution(Ended.LIMIT, limit="cpu"))
    'cpu'
    >>> ending(Execution(Ended.LIMIT, limit="wall")) is None
    True
    """
    if execution.ended is Ended.LIMIT:
        return None if execution.limit == "wall" else execution.limit
    if execution.ended is Ended.LOST:
        return None
    if execution.evidence.get("refused_processes"):
        return "processes"
    if execution.evidence.get("memory_kills"):
        return "memory"
    return execution.ended.value if execution.ended in {Ended.EXIT, Ended.SIGNAL} else "no_verdict"


def told_code(code: str, reason: str) -> str:
    """The code of an exception: that of the limit which it tells of, if it tells of one.

    Examples
    --------
    >>> told_code("exception", "f(1): MemoryError in line 2"), told_code("exception", "f(1): KeyError: 1")
    ('memory', 'exception')
    """
    if code in {"exception", "load_error"}:
        return next((limit for limit, words in _EXHAUSTED if words.search(reason)), code)
    return code


class Next(Enum):
    """What is needed before a verdict is possible."""

    TRY_AGAIN = "try again"
    ASK_CANARY = "ask the canary"


def verdict_on(
    failures: Sequence[Failure], *, reward: str, floor: float, canary: bool | None = None
) -> Scored | Unscored | Next:
    """Decide what failed attempts at one rollout mean.

    Parameters
    ----------
    failures
        Every attempt so far, each failed, in order.
    reward
        The part's name.
    floor
        What a rollout gets that is to blame.
    canary
        Whether the canary was answered after the last attempt; `None` before it was asked.

    Examples
    --------
    >>> raised = Failure(End.RAISED, "ValueError: x")
    >>> verdict_on([raised], reward="tone", floor=0.0)
    <Next.TRY_AGAIN: 'try again'>
    >>> verdict_on([raised, raised], reward="tone", floor=0.0, canary=True).code
    'reward_error'
    """
    last = failures[-1]
    if last.boundary and last.end is End.NEVER_STARTED:
        return Unscored(last.boundary, last.cause)
    if last.end is End.CUT and last.limit in OWN_LIMITS:
        return Scored(floor, last.limit, last.cause)
    integrity = last.evidence.get("integrity")
    if len(failures) == 1:
        return Next.TRY_AGAIN
    if canary is None:
        return Next.ASK_CANARY
    if not canary:
        return Unscored(last.boundary or f"reward:{reward}", f"{last.cause}; its canary failed too")
    return Scored(floor, _code(last), last.cause, None if integrity is None else str(integrity))


def _code(last: Failure) -> str:
    if last.end is End.CUT:
        return f"{last.limit}_reproduced"
    return "reward_error" if last.end is End.RAISED or last.boundary else "reproduced"


class Shares:
    """The shares of rollouts that could not be judged, over the last `SHARE_WINDOW`.

    Parameters
    ----------
    unscored, errors
        The shares above which a run stops.
    acts_from
        Below this many rollouts a share is only a doubt.
    """

    def __init__(
        self,
        *,
        unscored: float = UNSCORED_SHARE,
        errors: float = REWARD_ERROR_SHARE,
        acts_from: int = SHARE_ACTS_FROM,
    ) -> None:
        self._limits = {"unscored": unscored, "reward_error": errors}
        self._acts_from = acts_from
        self._seen = 0
        self._places: dict[str, deque[int]] = {kind: deque() for kind in self._limits}

    def see(self, verdict: Verdict, parts: Iterable[Verdict] = ()) -> None:
        """Count one total, and whether one of its parts failed for the rollout's content."""
        if isinstance(verdict, Unscored):
            self._places["unscored"].append(self._seen)
        elif any(isinstance(one, Scored) and one.code in DOUBTS for one in (verdict, *parts)):
            self._places["reward_error"].append(self._seen)
        self._seen += 1

    def see_group(self, totals: Sequence[Verdict], parts: Sequence[Sequence[Verdict]]) -> None:
        """Count a group's totals, each with what its parts say of it: by part, as many verdicts."""
        if Unscored not in {*map(type, totals)} and not any(map(_doubtful, (totals, *parts))):
            self._seen += len(totals)
            return
        for place, total in enumerate(totals):
            self.see(total, [part[place] for part in parts])

    def excess(self) -> str | None:
        """Say which share is too large, or `None`."""
        seen = min(self._seen, SHARE_WINDOW)
        for kind, places in self._places.items():
            while places and places[0] < self._seen - SHARE_WINDOW:
                places.popleft()
            if seen >= self._acts_from and len(places) > self._limits[kind] * seen:
                words = "are unscored" if kind == "unscored" else "failed in a reward for their content"
                return f"{len(places)} of the last {seen} rollouts {words} (at most {self._limits[kind]:.1%})"
        return None


def _doubtful(verdicts: Sequence[Verdict]) -> bool:
    return not DOUBTS.isdisjoint([one.code for one in verdicts if type(one) is Scored])
