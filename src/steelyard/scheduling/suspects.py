"""After a failure: once more in a fresh place, then the canary, then the law decides.

The law itself is `steelyard.blame`. A reward without a canary of its own is asked again about rollouts
that it judged before: the last one, then the quickest. Both must fail before the machinery is blamed,
for they are completions too: one that only just stayed within a limit may not stay there twice, and
must not excuse another. A reward that has not judged any rollout yet is waited for, and if it never
judges one, it is the reward that is broken, and the run stops with what it raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from steelyard.blame import SAME_ERROR_STOPS, Next, verdict_on
from steelyard.clock import Seconds
from steelyard.errors import RunStoppedError
from steelyard.outcome import Abstained, Called, End, Failure, Reward, Scored, Takes, Unscored
from steelyard.rollout import Rollout
from steelyard.scheduling.calls import Caller, keeps_time

LEFT_OUT: Final = Failure(
    End.RAISED,
    "returned None, though not for the whole group: what a completion brings about is no abstention",
)


class Witness:
    """What is known of a part's soundness: rollouts that it judged, and how it began.

    Parameters
    ----------
    reward
        The part's reward.
    caller
        How it is called.
    stalled
        Called when a suspect begins to wait for the first judged rollout.
    """

    def __init__(self, reward: Reward, caller: Caller, stalled: Callable[[], None]) -> None:
        self.reward = reward
        self.caller = caller
        self._stalled = stalled
        self._waiters = 0
        self._last: Sequence[Rollout] = ()
        self._quickest: Sequence[Rollout] = ()
        self._quickest_s: Seconds = float("inf")
        self._first = asyncio.Event()
        self._opening: set[int] = set()
        self._kinds: list[str] = []
        self._earliest = ("no answer", "a rollout")

    @property
    def row(self) -> Sequence[Rollout]:
        """What was judged in one call last; nothing, if nothing was."""
        return self._last

    @property
    def waiting(self) -> int:
        """How many suspects wait for a first judged rollout."""
        return 0 if self._first.is_set() else self._waiters

    def asked(self, ordinals: Iterable[int]) -> None:
        """Note first attempts (by their first rollout) in the order in which they are made."""
        if len(self._opening) < SAME_ERROR_STOPS and not self._first.is_set():
            self._opening.update(list(ordinals)[: SAME_ERROR_STOPS - len(self._opening)])

    def judged(self, rollouts: Sequence[Rollout], service_s: Seconds | None = None) -> None:
        """Note rollouts that the part judged in one call, and how long that took."""
        self._last = rollouts
        if service_s is not None and service_s < self._quickest_s:
            self._quickest, self._quickest_s = rollouts, service_s
        if not self._first.is_set():
            self._first.set()

    def failed(self, rollout: Rollout, failure: Failure) -> None:
        """Note a first attempt that failed.

        Raises
        ------
        RunStoppedError
            If the part's first attempts have all raised the same error.
        """
        if self._first.is_set() or keeps_time(self.reward):
            return  # a boundary has a canary: programs that all hang say nothing of it
        if not self._kinds:
            self._earliest = (failure.cause, rollout.where)
        if rollout.ordinal in self._opening or not self._kinds:
            self._kinds.append(failure.cause.partition(":")[0])
        if len(self._kinds) == SAME_ERROR_STOPS and len(set(self._kinds)) == 1:
            raise self._broken(f"its first {SAME_ERROR_STOPS} attempts all failed alike")

    def give_up(self) -> RunStoppedError:
        """Return the error of a part that judged nothing at all."""
        return self._broken("it judged no rollout at all")

    def _broken(self, how: str) -> RunStoppedError:
        cause, where = self._earliest
        group = "the group of " if self.reward.takes is Takes.GROUP else ""
        return RunStoppedError(
            f"reward {self.reward.name!r}: {how}; on {group}{where}: {cause}"
            f"\n  next: mend the reward (a rollout it cannot judge is its floor, {self.reward.floor:g}) "
            "and score again (with --new-run: a changed reward is another one)"
        )

    async def sound(self) -> bool:
        """Whether the part still answers a row of known verdict."""
        answered = await self.caller.canary()
        if answered is not None:
            return answered
        if not self._first.is_set():
            self._waiters += 1
            self._stalled()
            try:
                await self._first.wait()
            finally:
                self._waiters -= 1
        last, quickest = self._last, self._quickest
        return await self._answered(last) or (
            bool(quickest) and quickest is not last and await self._answered(quickest)
        )

    async def _answered(self, rollouts: Sequence[Rollout]) -> bool:
        answers = await self.caller.call(rollouts, fresh=True)
        return all(isinstance(said, Scored) for called in answers for said in called.said)


async def settle(
    rollouts: Sequence[Rollout], failure: Failure, witness: Witness, note: Callable[[Called], None]
) -> Sequence[Scored | Unscored]:
    """Find verdicts for rollouts whose first attempt failed.

    Parameters
    ----------
    rollouts
        One rollout, or all those that one call judges together (a group).
    failure
        How the first attempt failed.
    witness
        The part they are judged by.
    note
        Told of every further attempt.
    """
    reward = witness.reward
    failures = [failure]
    verdict = verdict_on(failures, reward=reward.name, floor=reward.floor)
    tries: list[Called] = []  # noted once it is known whether the canary was answered after them
    canary: bool | None = None
    try:
        if verdict is Next.TRY_AGAIN:
            again = await asked_again(rollouts, witness, tries.append)
            if not isinstance(again, Failure):
                return again
            failures.append(again)
            verdict = verdict_on(failures, reward=reward.name, floor=reward.floor)
        if verdict is Next.ASK_CANARY:
            last = failures[-1]
            if last.boundary and not witness.row:  # down from the first rollout on: nobody is to blame
                return [Unscored(last.boundary, last.cause)] * len(rollouts)
            canary = await witness.sound()
            verdict = verdict_on(failures, reward=reward.name, floor=reward.floor, canary=canary)
    finally:
        for called in tries:
            note(called if canary is None else _with_canary(called, canary))
    if isinstance(verdict, Next):  # pragma: no cover - the law always decides once the canary was asked
        raise TypeError(verdict)
    return [verdict] * len(rollouts)


def _with_canary(called: Called, answered: bool) -> Called:  # noqa: FBT001
    """A failed try, with what the canary said after it."""
    if not any(isinstance(said, Failure) for said in called.said):
        return called
    said = "answered" if answered else "failed"
    return called._replace(evidence={**(called.evidence or {}), "canary": said})


async def said_again(
    rollouts: Sequence[Rollout], witness: Witness, note: Callable[[Called], None]
) -> list[Scored | Failure]:
    """Ask once more, and write it down; who leaves a rollout out now has failed on it."""
    said: list[Scored | Failure] = []
    for called in await witness.caller.call(rollouts, fresh=True):
        note(called)
        said += [LEFT_OUT if isinstance(one, Abstained) else one for one in called.said]
        if all(isinstance(one, Scored) for one in called.said):
            witness.judged(called.rollouts, called.clocks.service_s)
    return said


async def asked_again(
    rollouts: Sequence[Rollout], witness: Witness, note: Callable[[Called], None]
) -> list[Scored] | Failure:
    """Ask once more; return the judgements, or the first failure."""
    judged: list[Scored] = []
    for said in await said_again(rollouts, witness, note):
        if isinstance(said, Failure):
            return said
        judged.append(said)
    return judged


def first_of_each(takes: Takes, rollouts: Sequence[Rollout]) -> Iterable[int]:
    """The ordinals of rollouts that begin an attempt: a group is one attempt."""
    return [rollout.ordinal for rollout in (rollouts[:1] if takes is Takes.GROUP else rollouts)]
