"""Ask a recipe about groups for as long as there is time.

The runtime does the asking, with a ledger that lasts as long as the inspection: it has the clocks. Groups
go in rounds, small ones first, so that a reward that hangs on everything has answered a few before time is
over; each round is as large as what was measured lets hope for.

Functions of users' are asked with a floor that nothing can lie below: who did not state the floor would
else have the run stopped by the first value below it. In what is kept the stated floor stands again. What
they raise is caught where they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from steelyard.audit.caught import caught
from steelyard.audit.observed import Answer
from steelyard.clock import Clock, Seconds
from steelyard.errors import RunStoppedError
from steelyard.outcome import LARGEST, How, Part, Scored, ScoredGroup, Verdict
from steelyard.rewards import FunctionReward, Recipe
from steelyard.rewards.own import refuse_unreachable
from steelyard.rollout import Group, Rollout
from steelyard.runtime import Runtime

_FIRST: Final = 8  # rollouts of the first round


def floorless(recipe: Recipe) -> Recipe:
    """Make a recipe that no value below a floor stops, and no exception."""
    keep = recipe.combine is not None  # it would be given those floors
    return replace(recipe, parts=tuple(_floorless(part, keep=keep) for part in recipe.parts))


def _floorless(part: Part, *, keep: bool) -> Part:
    reward = part.reward
    if not isinstance(reward, FunctionReward):
        return part
    floor = reward.floor if keep else -LARGEST
    if reward.how is not How.WORKER:
        return part._replace(reward=replace(reward, floor=floor))
    refuse_unreachable(reward)
    return part._replace(reward=caught(reward, floor))


@dataclass(slots=True)
class Asking:
    """Asks one runtime, and keeps what it said.

    Parameters
    ----------
    recipe
        The recipe, with its floors.
    runtime
        Runs it without; entered: its processes serve every round.
    clock
        Time.
    answers
        By group: what was said of its rollouts, in order.
    stopped
        Why the runtime stopped, each time it did.
    late
        Groups that had not come back when time was over.
    """

    recipe: Recipe
    runtime: Runtime
    clock: Clock
    answers: dict[int, list[Answer]] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    late: list[Group] = field(default_factory=list)
    _best: float = 0.0  # rollouts a second, in the quickest round

    async def ask(self, groups: Sequence[Group], until: Seconds) -> None:
        """Ask about groups in their order, until a moment."""
        rest, rate = list(groups), self._best
        while rest:
            left_s = until - self.clock.now()
            some = list(_first(rest, int(rate * left_s / 3) if rate else _FIRST))
            del rest[: len(some)]
            hoped_s = _rollouts(some) / rate if rate else 0.0
            if hoped_s >= left_s:
                return
            began = self.clock.now()
            if not await self._round(some, left_s):
                if 2 * hoped_s < left_s:  # else it may only have been slow
                    self.late += [one for one in some if one.ordinal not in self.answers]
                return
            rate = _rollouts(some) / max(self.clock.now() - began, 1e-6)
            self._best = max(self._best, rate)

    def forget_rate(self) -> None:
        """Measure anew: so far processes had to start."""
        self._best = 0.0

    async def _round(self, some: Sequence[Group], left_s: Seconds) -> bool:
        try:
            async with asyncio.timeout(left_s), aclosing(self.runtime.score(some)) as scored:
                async for one in scored:
                    self.answers[one.group.ordinal] = list(self._answers(one))
        except TimeoutError:
            return False
        except RunStoppedError as error:
            self.stopped.append(self._with_floors(str(error)))
            return True
        return True

    def _with_floors(self, said: str) -> str:
        """A message with the floors that were stated."""
        for part in self.recipe.parts:
            if f"reward {part.reward.name!r}" in said:
                said = said.replace(f"{-LARGEST:g}", f"{part.reward.floor:g}")
        return said

    def _answers(self, one: ScoredGroup) -> Iterator[Answer]:
        for place, rollout in enumerate(one.group.rollouts):
            parts = {name: scores[place].verdict for name, scores in one.parts.items()}
            yield self._answer(rollout, one.totals[place], parts)

    def _answer(self, rollout: Rollout, total: Verdict, parts: Mapping[str, Verdict]) -> Answer:
        floors = {part.reward.name: part.reward.floor for part in self.recipe.parts}
        mended = {name: _with_floor(verdict, floors[name]) for name, verdict in parts.items()}
        return Answer(total if mended == parts else self.recipe.total(rollout, mended), mended)


def _with_floor(verdict: Verdict, floor: float) -> Verdict:
    if isinstance(verdict, Scored) and verdict.value <= -LARGEST < floor:
        return replace(verdict, value=floor)
    return verdict


def _rollouts(groups: Sequence[Group]) -> int:
    return sum(len(group.rollouts) for group in groups)


def _first(groups: Sequence[Group], size: int) -> Iterator[Group]:
    """The first groups that together have so many rollouts, at least one group."""
    taken = 0
    for group in groups:
        if taken and taken + len(group.rollouts) > size:
            return
        taken += len(group.rollouts)
        yield group
