"""A function of a user's whose exceptions are verdicts, so that they cost no time.

A run answers an exception with a fresh process, to learn whether the machinery did it. An inspection asks
a function about completions that are made to trip it, and each such answer would take as long as a thousand
others. So whatever it raises is caught where it runs: the floor, with the code that the law would give.
As there, of several rollouts only those pay that fail alone; where none does, all of them.

What a process does not survive, and what is awaited, goes the way of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from steelyard.errors import describe
from steelyard.outcome import Context, End, Failure, Said, Scored, Takes, as_judgements
from steelyard.rewards import FunctionReward
from steelyard.rewards.carrying import Carried
from steelyard.rewards.own import again


@dataclass(frozen=True, slots=True)
class Caught(FunctionReward):
    """The function, with what it raises as its floor."""

    @property
    def spec(self) -> Any:  # noqa: ANN401 - a worker process takes any value that is a reward
        """What a process makes it from: itself."""
        return self

    def __reduce__(self) -> tuple[Callable[..., FunctionReward], tuple[str | Carried, float]]:
        return _found_again, (self.carried or self.target, self.floor)

    def judge(self, packed: Any, context: Context, /) -> Any:  # noqa: ANN401 - what a reward returns
        """Call the function; what it raises is said of the rollouts that made it raise."""
        if self.takes is Takes.ROLLOUT:
            return self._floored(self._said(packed, 1, context))[0]
        count = next(len(values) for values in packed.values() if values is not None)
        said = self._said(packed, count, context)
        if count == 1 or not any(isinstance(one, Failure) for one in said):
            return self._floored(said)
        alone = [self._said(_part(packed, [place]), 1, context)[0] for place in range(count)]
        sound = [place for place, one in enumerate(alone) if not isinstance(one, Failure)]
        rest = self._said(_part(packed, sound), len(sound), context) if 0 < len(sound) < count else said
        if not any(isinstance(one, Failure) for one in rest):
            for place, one in zip(sound, rest, strict=True):
                alone[place] = one
            said = alone
        return self._floored(said)

    def _said(self, packed: Any, count: int, context: Context) -> list[Said]:  # noqa: ANN401 - as in `judge`
        try:
            found = self.arguments.call(self.function, packed, context)
            return as_judgements([found] if self.takes is Takes.ROLLOUT else found, count)
        except Exception as error:  # noqa: BLE001 - whatever it raises is data about its rollouts
            return [Failure(End.RAISED, describe(error))] * count

    def _floored(self, said: Sequence[Said]) -> list[object]:
        """One rollout's `None` is no number: `as_judgements` takes it for an abstention."""
        left_out = (
            None if self.takes is not Takes.ROLLOUT else self._failed("returned None, which is no number")
        )
        return [
            self._failed(one.cause)
            if isinstance(one, Failure)
            else one
            if isinstance(one, Scored)
            else left_out
            for one in said
        ]

    def _failed(self, cause: str) -> Scored:
        return Scored(self.floor, "reward_error", cause)


def caught(reward: FunctionReward, floor: float) -> Caught:
    """Make of a function one that never raises, with another floor."""
    given = {field.name: getattr(reward, field.name) for field in fields(reward)}
    return Caught(**{**given, "floor": floor})


def _found_again(spec: str | Carried, floor: float) -> FunctionReward:
    return caught(again(spec), floor)


def _part(packed: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    return {
        name: values if values is None else [values[place] for place in places]
        for name, values in packed.items()
    }
