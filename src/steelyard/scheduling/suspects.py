"""After a failure: once more in a fresh place, then the canary, then the law decides.

The law itself is `steelyard.blame`. A reward without a canary of its own is asked again about the
last rollout that it judged; one that has not judged any yet is waited for, and if it never judges
one, it is the reward that is broken, and the run stops with what it raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from steelyard.blame import SAME_ERROR_STOPS, Next, verdict_on
from steelyard.errors import RunStoppedError
from steelyard.outcome import Called, Failure, Reward, Scored, Unscored
from steelyard.rollout import Rollout
from steelyard.scheduling.calls import Caller


class Witness:
    """What is known of a part's soundness: the last rollout it judged, and how it began.

    Parameters
    ----------
    reward
        The part's reward.
    caller
        How it is called.
    """

    def __init__(self, reward: Reward, caller: Caller) -> None:
        self.reward = reward
        self.caller = caller
        self._waiters = 0
        self._judged: Sequence[Rollout] | None = None
        self._first = asyncio.Event()
        self._first_failures: list[tuple[str, str]] = []

    @property
    def waiting(self) -> int:
        """How many suspects wait for a first judged rollout."""
        return 0 if self._first.is_set() else self._waiters

    def judged(self, rollouts: Sequence[Rollout]) -> None:
        """Note rollouts that the part judged in one call."""
        self._judged = rollouts
        if not self._first.is_set():
            self._first.set()

    def failed(self, rollout: Rollout, failure: Failure) -> None:
        """Note a first attempt that failed.

        Raises
        ------
        RunStoppedError
            If the part's first attempts have all raised the same error.
        """
        if self._judged is not None or len(self._first_failures) >= SAME_ERROR_STOPS:
            return
        self._first_failures.append((failure.cause, rollout.where))
        kinds = {cause.partition(":")[0] for cause, _ in self._first_failures}
        if len(self._first_failures) == SAME_ERROR_STOPS and len(kinds) == 1:
            raise self._broken(f"its first {SAME_ERROR_STOPS} attempts all failed alike")

    def give_up(self) -> RunStoppedError:
        """Return the error of a part that judged nothing at all."""
        return self._broken("it judged no rollout at all")

    def _broken(self, how: str) -> RunStoppedError:
        cause, where = self._first_failures[0] if self._first_failures else ("no answer", "")
        return RunStoppedError(
            f"reward {self.reward.name!r}: {how}; on {where}: {cause}"
            f"\n  next: mend the reward (a rollout it cannot judge is its floor, {self.reward.floor:g}) "
            "and run the same command again"
        )

    async def sound(self) -> bool:
        """Whether the part still answers a row of known verdict."""
        answered = await self.reward.canary()
        if answered is not None:
            return answered
        if self._judged is None:
            self._waiters += 1
            try:
                await self._first.wait()
            finally:
                self._waiters -= 1
        rollouts = self._judged
        if rollouts is None:  # pragma: no cover - the event says there is one
            return False
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
    if verdict is Next.TRY_AGAIN:
        said: list[Scored | Failure] = []
        for called in await witness.caller.call(rollouts, fresh=True):
            note(called)
            said.extend(called.said)
        judged = [one for one in said if isinstance(one, Scored)]
        if len(judged) == len(rollouts):
            witness.judged(rollouts)
            return judged
        failures.append(next(one for one in said if isinstance(one, Failure)))
        verdict = verdict_on(failures, reward=reward.name, floor=reward.floor)
    if verdict is Next.ASK_CANARY:
        verdict = verdict_on(failures, reward=reward.name, floor=reward.floor, canary=await witness.sound())
    if isinstance(verdict, Next):  # pragma: no cover - the law always decides once the canary was asked
        raise TypeError(verdict)
    return [verdict] * len(rollouts)
