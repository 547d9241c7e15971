"""Calls of synchronous rewards in worker processes: where rewards, workers and scheduling meet.

A process that is cut or dies says nothing about the verdict: what happened goes back as a failure, and the
scheduler finds out whose it was.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Final

from steelyard.clock import Clock, Seconds
from steelyard.errors import RunStoppedError, printable
from steelyard.outcome import Called, End, Failure, Said, Takes, as_judgement, as_judgements
from steelyard.rewards.serving import Served, serve
from steelyard.rollout import Rollout
from steelyard.scheduling.calls import CANARY_S, ask_canary
from steelyard.workers import Cut, Died, NotStarted, Outcome, Raised, WorkerPool
from steelyard.workers import Failure as Ended

CPU_S: Final = 10.0
"""CPU seconds that a user's synchronous reward may take for one rollout, unless said otherwise."""

MESSAGE_S: Final = 0.05
"""What the calls in one message may take together: their verdicts come when all are there."""

LARGEST: Final = 1_024
"""Rollouts in one message, at most."""

WALL_TIMES: Final = 10
"""The wall backstop of a worker, as a multiple of its CPU limit: a loaded machine is not a slow reward."""


class WorkerCaller:
    """Calls a synchronous reward in worker processes.

    A reward of one rollout has clocks and limits for each; one of several has them for the call, and
    the limits of one rollout as often as there are rollouts, of wall time no more than `most_s`: whoever
    hangs in a large batch is then found in time.
    """

    def __init__(
        self, reward: Served, size: int, cpu_s: Seconds | None, clock: Clock, most_s: Seconds | None = None
    ) -> None:
        self._reward = reward
        self._clock = clock
        self.room = 1  # until it is known how long a call takes
        room = reward.room
        cpu_s = (cpu_s or CPU_S) if room is None else room.cpu_s
        self._pool = WorkerPool(
            f"{serve.__module__}:{serve.__qualname__}",
            given=(reward.spec, getattr(reward, "source", "")),
            size=size,
            cpu_s=cpu_s,
            wall_s=cpu_s * WALL_TIMES,
            memory_bytes=None if room is None else room.memory_bytes,
            confined=room is not None,
            most_s=most_s,
            clock=clock,
        )

    async def call(self, rollouts: Sequence[Rollout], *, fresh: bool = False) -> list[Called]:
        """Judge rollouts as one message; in a fresh process each, if asked."""
        pack = self._reward.pack
        if self._reward.takes is not Takes.ROLLOUT:
            if not fresh:
                return await self.several([rollouts])
            item = (len(rollouts), pack(rollouts))
            outcome = await self._pool.once(item, times=len(rollouts), fresh=True)
            return [Called(rollouts, self._said_of_all(rollouts, outcome), outcome.clocks)]
        items = [(1, pack(rollout)) for rollout in rollouts]
        if fresh:
            outcomes = [await self._pool.once(item, fresh=True) for item in items]
        else:
            outcomes = await self._pool.call(items)
        return [
            Called([rollout], [self._said(rollout, outcome)], outcome.clocks)
            for rollout, outcome in zip(rollouts, outcomes, strict=True)
        ]

    async def several(self, calls: Sequence[Sequence[Rollout]]) -> list[Called]:
        """Judge several batches or groups of one size by one message."""
        items = [(len(rollouts), self._reward.pack(rollouts)) for rollouts in calls]
        outcomes = await self._pool.call(items, times=len(calls[0]))
        longest_s = max(outcome.service_s or 0.0 for outcome in outcomes) / len(calls[0])
        self.room = int(min(MESSAGE_S / max(longest_s, 1e-9), LARGEST))
        return [
            Called(rollouts, self._said_of_all(rollouts, outcome), outcome.clocks)
            for rollouts, outcome in zip(calls, outcomes, strict=True)
        ]

    def _said(self, rollout: Rollout, outcome: Outcome) -> Said:
        failure = outcome.failure
        if failure is None:
            try:
                return as_judgement(outcome.value)
            except ValueError as error:
                failure = Raised("ValueError", str(error))
        return self._failure(failure, [rollout])

    def _said_of_all(self, rollouts: Sequence[Rollout], outcome: Outcome) -> Sequence[Said]:
        if outcome.failure is None:
            return as_judgements(outcome.value, len(rollouts))
        return [self._failure(outcome.failure, rollouts)] * len(rollouts)

    def _failure(self, failure: Ended, rollouts: Sequence[Rollout]) -> Failure:
        if isinstance(failure, NotStarted) and failure.refused:
            raise RunStoppedError(f"reward {self._reward.name!r}: {failure.cause}")
        if isinstance(failure, NotStarted) and not (self._pool.was_ready or failure.unsendable):
            raise RunStoppedError(
                f"reward {self._reward.name!r}: no process can be made ready to judge ({failure})"
                "\n  next: mend what a fresh interpreter cannot import, and run again"
            )
        cause = printable(str(failure))
        match failure:
            case Cut(limit=limit):
                return Failure(End.CUT, cause, limit=limit)
            case Died():
                return Failure(End.LOST, cause)
            case NotStarted() if all(map(_can_be_sent, rollouts)):
                return Failure(End.NEVER_STARTED, cause, boundary=f"reward:{self._reward.name}")
        return Failure(End.RAISED, cause.removeprefix("ValueError: ") if _is_ours(failure) else cause)

    async def canary(self) -> bool | None:
        """Ask the reward's own canary."""
        return await ask_canary(self._reward, self._clock, CANARY_S)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()


def _is_ours(failure: object) -> bool:
    """Whether it was not the reward that raised, but what it returned was refused."""
    return isinstance(failure, Raised) and failure.message.startswith("returned ")


def _can_be_sent(rollout: Rollout) -> bool:
    """Whether what the policy wrote can be pickled: messages nested a thousand deep cannot."""
    try:
        pickle.dumps((rollout.completion, rollout.files, rollout.state))
    except Exception:  # noqa: BLE001 - whatever keeps it from being sent
        return False
    return True
