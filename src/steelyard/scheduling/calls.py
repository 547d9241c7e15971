"""One call of a reward: where it runs, when its clocks start, how it is cut.

The deadline starts when the call starts; waiting for a place is another clock. It goes *into* the
reward, whose boundary or judge cuts there and knows why; the cut made here comes `GRACE_S` later
and is a backstop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from steelyard.clock import Clock, Clocks, Seconds
from steelyard.errors import (
    InfraError,
    RewardError,
    RunStoppedError,
    SandboxError,
    SuspectError,
    describe,
    printable,
)
from steelyard.outcome import (
    Called,
    Context,
    End,
    Failure,
    Limiter,
    Reward,
    Said,
    Takes,
    as_judgement,
    as_judgements,
    is_resident,
)
from steelyard.rollout import Rollout

GRACE_S: Final = 2.0
"""How long after the deadline the backstop waits, so that a boundary's own evidence arrives first."""

CANARY_S: Final = 60.0
"""How long a canary may take that has no deadline of its own: longer is no answer."""

_UNWIND_S: Final = 1.0  # how long a cancelled reward may take to let go

_T = TypeVar("_T")


class Caller(Protocol):
    """Runs one reward, wherever it runs."""

    async def call(self, rollouts: Sequence[Rollout], *, fresh: bool = False) -> list[Called]:
        """Judge rollouts: as many calls as have clocks of their own, together all rollouts, in order.

        `fresh` asks for a fresh process, where there are processes.
        """

    async def canary(self) -> bool | None:
        """Whether the reward answers a row of known verdict; `None` if it has none of its own."""

    async def close(self) -> None:
        """Stop whatever runs; under two seconds, nothing left."""


@runtime_checkable
class Messenger(Caller, Protocol):
    """A caller whose calls are messages, which may hold several that have the same number of rollouts."""

    @property
    def room(self) -> int:
        """For how many rollouts a message is, so that its first verdict does not wait for long."""

    async def several(self, calls: Sequence[Sequence[Rollout]]) -> list[Called]:
        """Make several calls by one message; each has limits, clocks and an end of its own."""


class Timing(Protocol):
    """What is known of limits that are not fixed."""

    @property
    def limiter(self) -> Limiter:
        """Hands out limits."""

    def step(self, rollout: Rollout) -> int | str:
        """The training step of a rollout."""

    def ended(
        self, caller: AsyncCaller, part: str, rollout: Rollout, evidence: Mapping[str, Any] | None
    ) -> None:
        """Hear of an attempt that ended."""


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
        """Judge rollouts at once; if the whole call fails, one by one, so that only the culprit pays.

        The members of a group are judged together or not at all.
        """
        started = self._clock.now()
        said: Sequence[Said]
        try:
            said = self._judge(rollouts)
        except Exception as error:  # noqa: BLE001 - whatever it raises is data about one rollout
            if len(rollouts) > 1 and self._reward.takes is not Takes.GROUP:
                return [called for rollout in rollouts for called in self.now([rollout])]
            said = [Failure(End.RAISED, _cause(error))] * len(rollouts)
        return [Called(rollouts, said, Clocks(service_s=self._clock.now() - started, began_s=started))]

    def _judge(self, rollouts: Sequence[Rollout]) -> Sequence[Said]:
        if self._reward.takes is Takes.ROLLOUT:
            return [as_judgement(self._reward(rollout, self._context)) for rollout in rollouts]
        return as_judgements(self._reward(rollouts, self._context), len(rollouts))

    async def canary(self) -> bool | None:
        """Ask the reward's own canary."""
        return await ask_canary(self._reward, self._clock, CANARY_S)

    async def close(self) -> None:
        """Nothing runs between calls."""


class AsyncCaller:
    """Awaits a reward in the event loop.

    Parameters
    ----------
    reward
        The reward; a coroutine function, or a value whose `__call__` is one. One that `keeps_time` is not cut
        here: its boundary does that, and reports how long a call waited for a slot.
    clock
        Time.
    places
        How many calls may be under way at once; shared by all who use the same resource.
    deadline_s
        Wall seconds that one call may take, from its start.
    timing
        Where CPU limits come from, if they are not fixed.
    """

    def __init__(
        self,
        reward: Reward,
        clock: Clock,
        places: asyncio.Semaphore,
        deadline_s: Seconds,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing
        self._reward = reward
        self._clock = clock
        self._places = places
        self._deadline_s = deadline_s

    async def call(
        self, rollouts: Sequence[Rollout], *, fresh: bool = False, limiter: Limiter | None = None
    ) -> list[Called]:
        """Judge one rollout, or a batch or group, in one call; by the limits of another limiter, if given."""
        timing, first = self._timing, rollouts[0]
        within_limits = limiter if limiter is not None or timing is None else timing.limiter
        ready = self._clock.now()
        async with self._places:
            started = self._clock.now()
            reported: list[Clocks] = []
            noted: list[Mapping[str, Any]] = []
            context = Context(
                deadline_s=self._deadline_s,
                limiter=within_limits,
                step=0 if timing is None else timing.step(first),
                report=reported.append,
                fresh=fresh,
                note=noted.append,
            )
            said = await self._bounded(rollouts, context)
            measured = reported[-1] if reported else Clocks()
            took_s = self._clock.now() - started
            inside_s = min(measured.queued_s or 0.0, took_s)  # it waited for a slot of its boundary
            clocks = replace(
                measured,
                queued_s=started - ready + inside_s,
                service_s=took_s - inside_s,
                began_s=started + inside_s,
                censored=measured.censored or any(isinstance(s, Failure) and s.end is End.CUT for s in said),
            )
        evidence = noted[-1] if noted else None
        if timing is not None and limiter is None:
            timing.ended(self, self._reward.name, first, evidence)
        return [Called(rollouts, said, clocks, evidence)]

    async def canary(self) -> bool | None:
        """Ask the reward's own canary."""
        return await ask_canary(self._reward, self._clock, self._deadline_s + GRACE_S)

    async def close(self) -> None:
        """End what the reward keeps running between calls; the scheduler cancels the calls themselves."""
        if is_resident(self._reward):
            await self._reward.close()

    async def _bounded(self, rollouts: Sequence[Rollout], context: Context) -> Sequence[Said]:
        if keeps_time(self._reward):
            return await self._judge(rollouts, context)
        work = await within(self._judge(rollouts, context), self._clock, self._deadline_s + GRACE_S)
        if work is None:
            cause = f"no answer after {self._deadline_s:g} s"
            return [Failure(End.CUT, cause, limit="wall")] * len(rollouts)
        if work.cancelled():  # nobody of ours did: whoever let it happen inside the reward is not excused
            return [Failure(End.RAISED, "CancelledError: the reward cancelled itself")] * len(rollouts)
        return work.result()

    async def _judge(self, rollouts: Sequence[Rollout], context: Context) -> Sequence[Said]:
        one = self._reward.takes is Takes.ROLLOUT
        try:
            said = await self._reward(rollouts[0] if one else list(rollouts), context)
            return [as_judgement(said)] if one else as_judgements(said, len(rollouts))
        except InfraError as error:
            if error.clocks is not None:
                context.report(error.clocks)
            # a sandbox fails before the candidate runs; a service was sent what it fails on
            end = End.NEVER_STARTED if isinstance(error, SandboxError) else End.LOST
            failure = Failure(end, printable(error.cause), boundary=error.boundary)
        except SuspectError as error:
            if error.clocks is not None:
                context.report(error.clocks)
            end = End.CUT if error.cause == "wall" else End.LOST
            cut = error.cause if end is End.CUT else None
            words = printable(str(error.evidence.get("words", error.cause)))
            failure = Failure(end, words, limit=cut, evidence=error.evidence)
        except (asyncio.CancelledError, KeyboardInterrupt, RunStoppedError):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it raises, exit() too, is data about its rollouts
            failure = Failure(End.RAISED, _cause(error))
        return [failure] * len(rollouts)


async def within(work: Coroutine[Any, Any, _T], clock: Clock, limit_s: Seconds) -> asyncio.Task[_T] | None:
    """Run a coroutine to its end, or cut it; return it done, or `None` if it was cut.

    One that swallows its cancellation is left behind after a second: it holds up nobody.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    expired = loop.create_future()
    timer = clock.call_later(limit_s, expired.cancel)
    try:
        await asyncio.wait({task, expired}, return_when=asyncio.FIRST_COMPLETED)
        return task if task.done() else None
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_UNWIND_S)


async def ask_canary(reward: Reward, clock: Clock, limit_s: Seconds) -> bool | None:
    """Ask a reward's own canary; one that raises or does not answer in time has failed.

    One of a reward that keeps its time is not cut: it may have to wait for its turn, which says nothing.
    """
    if keeps_time(reward):
        return await _canary(reward)
    asked = await within(_canary(reward), clock, limit_s)
    return False if asked is None or asked.cancelled() else asked.result()


def keeps_time(reward: Reward) -> bool:
    """Whether a reward holds its calls to limits of its own."""
    return is_resident(reward) and reward.keeps_time


async def _canary(reward: Reward) -> bool | None:
    try:
        return await reward.canary()
    except RunStoppedError:
        raise
    except Exception:  # noqa: BLE001 - a canary that raises was not answered
        return False


def _cause(error: BaseException) -> str:
    """Return the words for what a reward raised, or for what it returned and should not have."""
    if isinstance(error, RewardError):
        return printable(error.cause)
    if type(error) is ValueError and str(error).startswith("returned "):
        return printable(str(error))
    return describe(error)
