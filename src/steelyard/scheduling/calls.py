"""One call of a reward: where it runs, when its clocks start, how it is cut.

The deadline starts when the call starts; waiting for a place is another clock. It goes *into* the
reward, whose boundary or judge cuts there and knows why; the cut made here comes `GRACE_S` later
and is a backstop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from steelyard.clock import Clock, Clocks, Seconds
from steelyard.errors import InfraError, RewardError, SuspectError, describe
from steelyard.outcome import LARGEST, Called, Context, End, Failure, Reward, Scored, Takes, as_judgement
from steelyard.rollout import Rollout

GRACE_S: Final = 2.0
"""How long after the deadline the backstop waits, so that a boundary's own evidence arrives first."""

_UNWIND_S: Final = 1.0  # how long a cancelled reward may take to let go


class Caller(Protocol):
    """Runs one reward, wherever it runs."""

    async def call(self, rollouts: Sequence[Rollout], *, fresh: bool = False) -> list[Called]:
        """Judge rollouts: as many calls as have clocks of their own, together all rollouts, in order.

        `fresh` asks for a fresh process, where there are processes.
        """

    async def close(self) -> None:
        """Stop whatever runs; under two seconds, nothing left."""


class InlineCaller:
    """Calls a reward of ours in this process: cheap, its cost bounded by its input."""

    def __init__(self, reward: Reward, clock: Clock) -> None:
        self._reward = reward
        self._clock = clock
        self._context = Context()

    async def call(self, rollouts: Sequence[Rollout], *, fresh: bool = False) -> list[Called]:  # noqa: ARG002
        """Judge rollouts; there is no fresher process than this one."""
        return self.now(rollouts)

    def now(self, rollouts: Sequence[Rollout]) -> list[Called]:
        """Judge rollouts at once; if the whole call fails, one by one, so that only the culprit pays."""
        started = self._clock.now()
        said: Sequence[Scored | Failure]
        try:
            said = self._judge(rollouts)
        except Exception as error:  # noqa: BLE001 - whatever it raises is data about one rollout
            if len(rollouts) > 1:
                return [called for rollout in rollouts for called in self.now([rollout])]
            said = [Failure(End.RAISED, _cause(error))]
        return [Called(rollouts, said, Clocks(service_s=self._clock.now() - started))]

    def _judge(self, rollouts: Sequence[Rollout]) -> list[Scored]:
        if self._reward.takes is Takes.ROLLOUT:
            return checked([self._reward(rollout, self._context) for rollout in rollouts], rollouts)
        return checked(self._reward(rollouts, self._context), rollouts)

    async def close(self) -> None:
        """Nothing runs between calls."""


class AsyncCaller:
    """Awaits a reward in the event loop.

    Parameters
    ----------
    reward
        The reward; a coroutine function, or a value whose `__call__` is one.
    clock
        Time.
    places
        How many calls may be under way at once; shared by all who use the same resource.
    deadline_s
        Wall seconds that one call may take, from its start.
    """

    def __init__(self, reward: Reward, clock: Clock, places: asyncio.Semaphore, deadline_s: Seconds) -> None:
        self._reward = reward
        self._clock = clock
        self._places = places
        self._deadline_s = deadline_s

    async def call(self, rollouts: Sequence[Rollout], *, fresh: bool = False) -> list[Called]:  # noqa: ARG002
        """Judge one rollout, or a batch or group, in one call."""
        ready = self._clock.now()
        async with self._places:
            started = self._clock.now()
            reported: list[Clocks] = []
            context = Context(deadline_s=self._deadline_s, report=reported.append)
            said = await self._bounded(rollouts, context)
            measured = reported[-1] if reported else Clocks()
            clocks = replace(
                measured,
                queued_s=started - ready,
                service_s=self._clock.now() - started,
                censored=measured.censored or any(isinstance(s, Failure) and s.end is End.CUT for s in said),
            )
        return [Called(rollouts, said, clocks)]

    async def close(self) -> None:
        """Nothing of its own to stop: the scheduler cancels its calls."""

    async def _bounded(self, rollouts: Sequence[Rollout], context: Context) -> list[Scored | Failure]:
        work = asyncio.ensure_future(self._judge(rollouts, context))
        expired = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(self._deadline_s + GRACE_S, expired.cancel)
        try:
            await asyncio.wait({work, expired}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            cause = f"no answer after {self._deadline_s:g} s"
            return [Failure(End.CUT, cause, limit="wall")] * len(rollouts)
        finally:
            timer.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=_UNWIND_S)

    async def _judge(self, rollouts: Sequence[Rollout], context: Context) -> list[Scored | Failure]:
        one = self._reward.takes is Takes.ROLLOUT
        try:
            said = await self._reward(rollouts[0] if one else list(rollouts), context)
            return list(checked([said] if one else said, rollouts))
        except InfraError as error:
            failure = Failure(End.NEVER_STARTED, error.cause, boundary=error.boundary)
        except SuspectError as error:
            end = End.CUT if error.cause == "wall" else End.LOST
            failure = Failure(end, error.cause, limit=error.cause if end is End.CUT else None)
        except Exception as error:  # noqa: BLE001 - whatever it raises is data about its rollouts
            failure = Failure(End.RAISED, _cause(error))
        return [failure] * len(rollouts)


def checked(said: object, rollouts: Sequence[Rollout]) -> list[Scored]:
    """Take what a call returned as one judgement for each rollout.

    Raises
    ------
    ValueError
        If there are not as many, or one is no judgement; the message names its place.
    """
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise ValueError(f"returned {type(said).__name__}, not one value for each rollout")  # noqa: TRY004
    values = list(said)
    if len(values) != len(rollouts):
        raise ValueError(f"returned {len(values)} values for {len(rollouts)} rollouts")
    return [
        value if type(value) is Scored and abs(value.value) <= LARGEST else as_judgement(value)
        for value in values
    ]


def _cause(error: Exception) -> str:
    """Return the words for what a reward raised, or for what it returned and should not have."""
    if isinstance(error, RewardError):
        return error.cause
    return str(error) if type(error) is ValueError and str(error).startswith("returned ") else describe(error)
