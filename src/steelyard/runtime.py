"""The path of a completion: write down, judge, write down, hand on.

`Runtime.score` takes groups and yields them scored, in the order in which they finish. With a ledger
nothing is judged before its rollout is recorded, and nothing is handed on before its score is; what
the ledger already knows of the run is not asked for again.

This is where scheduling, workers and the ledger meet; none of them knows the others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import count
from types import TracebackType
from typing import Final, Literal, Self, cast

from steelyard.advantages import SCHEMES
from steelyard.blame import Shares
from steelyard.calling import WorkerCaller
from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import RefusedError, TooManyUnscoredError
from steelyard.execution import FIXED
from steelyard.ledger import Departure, Ledger, Run
from steelyard.ledger.behind import Behind
from steelyard.outcome import (
    Attempt,
    How,
    Part,
    Score,
    ScoredGroup,
    is_resident,
    is_sharing,
)
from steelyard.rewards import FunctionReward, Recipe
from steelyard.rewards.own import refuse_unreachable
from steelyard.rewards.serving import Served, refuse_in_worker
from steelyard.rollout import Group, Rollout
from steelyard.scheduling import AsyncCaller, Batch, Caller, InlineCaller, PartPlan, Scheduler
from steelyard.scheduling.audits import CLOSE_S, Audits
from steelyard.scheduling.deadlines import Deadlines, Standing
from steelyard.scheduling.written import Left

CHUNK: Final = 1_024
"""Rollouts that are entered, and judged by rewards of ours, at a time: below 20 ms of work."""

AWAIT_S: Final = 60.0
"""Wall seconds that an awaited reward may take for one rollout, unless said otherwise."""

PLACES: Final = 64
"""Awaited calls under way at once for each resource, unless said otherwise."""


class Runtime:
    """Scores groups by a recipe.

    A training loop keeps it open (`async with`). Otherwise each call of `score` starts worker processes of
    its own; where a CPU limit is learnt, it also waits up to 10 s for audits at its end, and ends the
    boundary.

    Parameters
    ----------
    recipe
        What to ask.
    ledger, run
        Where to write it down, and under which run; neither for a trial without a record.
    advantage
        The scheme, by its name on the command line.
    timeout_s
        Seconds per attempt: of CPU for synchronous rewards of users (with ten times as much wall
        time as backstop), of wall time for awaited ones. Rewards of ours are bounded by the size of
        what they read, or by a room of their own.
    workers
        Processes for synchronous rewards; one for each core that this process may use.
    places
        Awaited calls under way at once, for each resource.
    stop
        Whether to stop when more than the stated shares of rollouts cannot be judged.
    limiter
        Where the CPU limits of rewards come from that ask for such (`docs/deadlines.md`); one of each of
        their own if not given.
    durability
        `full`: nothing is judged before its rollout is recorded, and nothing handed on before its score is.
        `step`: a background thread writes once a call of `score` has ended, so that a trainer does not wait
        for it. A process that is killed may lose the last step, or those that were under way at once, never
        more. What a rollout holds must not be changed in place before the next step: it is written as it
        is then.
    most_s
        Wall seconds of one call of a synchronous reward that judges several rollouts, at most.
    by_chunk
        Whether every 1,024 rollouts, or rows of one `step`, are a training step; else one call is one.
    clock
        Time.

    Raises
    ------
    RefusedError
        If a reward cannot be run here.

    Examples
    --------
    >>> from steelyard.rewards import builtin
    >>> rollouts = [
    ...     Rollout(i, "1 + 1?", f"#### {i}", {"answer": "2"}, (0, i), i, f"row {i}") for i in range(4)
    ... ]
    >>> async def main() -> None:
    ...     runtime = Runtime(Recipe((Part(builtin("gsm8k")),)), advantage="rloo")
    ...     async for scored in runtime.score([Group("sum", 0, rollouts)]):
    ...         print([float(total) for total in scored.totals])
    >>> asyncio.run(main())
    [0.2, 0.2, 1.2, 0.2]
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        ledger: Ledger | None = None,
        run: Run | None = None,
        advantage: str = "grpo",
        timeout_s: Seconds | None = None,
        workers: int | None = None,
        places: int = PLACES,
        stop: bool = True,
        limiter: Deadlines | None = None,
        durability: Literal["full", "step"] = "full",
        most_s: Seconds | None = None,
        by_chunk: bool = False,
        clock: Clock | None = None,
    ) -> None:
        refuse_in_worker("Runtime")
        if (ledger is None) is not (run is None):
            raise RefusedError("a ledger needs a run", where="Runtime", remedy="pass both, or neither")
        numbers = {"timeout_s": timeout_s, "workers": workers, "places": places, "most_s": most_s}
        refuse_settings(advantage, durability, numbers)
        refuse_scheme(recipe, advantage)
        self.recipe = recipe
        self._behind = Behind(ledger, clock) if durability == "step" and ledger is not None else None
        self._ledger: Ledger | Behind | None = self._behind or ledger
        self._run = run
        self._scheme = SCHEMES[advantage]
        self._timeout_s = timeout_s
        self._workers = workers or len(_cores())
        self._places = places
        self._most_s = most_s
        self._shares = Shares() if stop else None
        self._clock = clock or SystemClock()
        self._canaries: Mapping[str, Sequence[Rollout]] = {}
        self._callers: dict[str, Caller] | None = None
        self._by_chunk = by_chunk
        self._calls = 0
        self._ids: Iterator[int] | None = None
        words = {part.reward.name: getattr(part.reward, "deadline", FIXED) for part in recipe.parts}
        self._audits = {
            name: Audits(limiter or Deadlines(word)) for name, word in words.items() if word != FIXED
        }
        if run is not None and run.resumed and ledger is not None:
            for name, audits in self._audits.items():
                audits.replay(one for one in ledger.attempts(run) if one.part == name)
        for part in recipe.parts:
            if part.reward.how is How.WORKER and isinstance(part.reward, FunctionReward):
                refuse_unreachable(part.reward)

    async def __aenter__(self) -> Self:
        """Keep worker processes between calls of `score`: a training loop starts them once."""
        self._callers = {}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Finish audits, and end the processes, whatever happens meanwhile."""
        callers, self._callers = self._callers or {}, None
        async with AsyncExitStack() as closing:
            for caller in callers.values():
                closing.push_async_callback(caller.close)
            if self._behind is not None:
                closing.callback(self._behind.close)
            for audits in self._audits.values():
                closing.push_async_callback(audits.close, 0.0)
            for audits in self._audits.values():
                await audits.close(CLOSE_S if kind is None else 0.0)
            if self._ledger is not None and self._run is not None and kind is None:
                self._ledger.leave(self._run, attempts=self._audited())

    async def score(
        self, groups: Iterable[Group], *, step: int | str | None = None
    ) -> AsyncGenerator[ScoredGroup]:
        """Judge groups; yield each when its last rollout is judged.

        Parameters
        ----------
        groups
            Complete groups with ordinals of their own; taken as there is room. Who leaves the loop early
            closes it with `contextlib.aclosing`, so that what runs is ended there and then.
        step
            What the training step is called that they belong to: a recorder's word for it. If not said, it is
            the rows' column `step`; without one a call of `score` is a step of its own.

        Raises
        ------
        RefusedError
            If a boundary does not hold on this machine.
        TooManyUnscoredError
            If more than the stated share cannot be judged (and `stop` is on).
        RunStoppedError
            If a reward judges nothing at all, or the ledger cannot be written.
        """
        if self._audits and self._callers is None:  # audits outlive their groups, and need their boundary
            async with self, aclosing(self.score(groups, step=step)) as scored_groups:
                async for one in scored_groups:
                    yield one
            return
        for part in self.recipe.parts:
            if is_resident(part.reward):
                await part.reward.attest()
        if self._behind is not None and self._behind.behind:
            await asyncio.to_thread(self._behind.settle)
        scheduler = Scheduler(
            self._plans(), ids=self._free(), canaries=self._canaries, close=self._callers is None
        )
        try:
            async with aclosing(scheduler.run(self._entered(groups, step), self._recorded)) as batches:
                async for batch in batches:
                    scored = [self._scored(one) for one in self._with_earlier(batch.groups)]
                    batch.attempts.extend(self._audited())
                    self._record(batch, scored)
                    for one in scored:
                        yield one
                        self._watch(one)
                    self._canaries = {**self._canaries, **scheduler.canaries()}
        finally:
            if self._behind is not None:
                self._behind.release() if self._callers is not None else self._behind.close()

    # The ledger's side

    def _entered(self, groups: Iterable[Group], step: int | str | None) -> Iterator[Sequence[Group]]:
        self._calls += 1
        call: int | str = f"call {self._calls}"
        for number, chunk in enumerate(_chunks(groups)):
            if number == 0 and self._ledger is not None:
                call = chunk[0].ordinal  # a run that goes on calls it the same
            for audits in self._audits.values():
                for group in chunk:
                    audits.begin(group, self._step(group, chunk) if self._by_chunk else call)
            if self._ledger is not None and self._run is not None:
                otherwise = None if self._by_chunk else f"from group {call}"  # a file is no step of training
                told = ((group.ordinal, _said(group, step, otherwise)) for group in chunk)
                steps = {group: word for group, word in told if word is not None}
                self._ledger.enter(self._run, chunk, steps=steps)
            yield chunk

    @staticmethod
    def _step(group: Group, chunk: Sequence[Group]) -> int | str:
        said = group.rollouts[0].columns.get("step")
        return chunk[0].ordinal if said is None else f"step {said}"

    def _free(self) -> Iterator[int]:
        """Ids for attempts, on through all calls."""
        if self._ids is None:
            ledger, run = self._ledger, self._run
            self._ids = count(0 if ledger is None or run is None else ledger.next_attempt(run))
        return self._ids

    def _audited(self) -> list[Attempt]:
        return [attempt for audits in self._audits.values() for attempt in audits.take(self._free())]

    def standings(self) -> list[Standing]:
        """Where learnt CPU limits stand, and what they cost."""
        limiters = {id(audits.limiter): audits.limiter for audits in self._audits.values()}
        return [one for limiter in limiters.values() for one in limiter.standings()]

    def _recorded(self, chunk: Sequence[Group]) -> Mapping[tuple[int, str], Score]:
        run = self._run
        if self._ledger is None or run is None or not run.resumed:
            return {}
        for name, audits in self._audits.items():
            for group in chunk:
                audits.resume(cast("AsyncCaller", (self._callers or {})[name]), name, group)
        rollouts = {rollout.ordinal: rollout for group in chunk for rollout in group.rollouts}
        parts = {run.parts[part.reward.name]: part.reward for part in self.recipe.parts}
        return {
            (ordinal, parts[place].name): Score(
                rollouts[ordinal].key, ordinal, parts[place].name, parts[place].identity, verdict, attempt
            )
            for (ordinal, place), (verdict, attempt) in self._ledger.recorded(run, list(rollouts)).items()
        }

    def _record(self, batch: Batch, scored: Sequence[ScoredGroup]) -> None:
        for audits in self._audits.values():
            for one in scored:
                audits.left(one.group)
        if self._ledger is None or self._run is None:
            return
        departures = [
            Departure(one.group.ordinal, self._scheme.name, one.advantages)
            for one in scored
            if one.advantages is not None
        ]
        if self._run.resumed:
            gone = self._ledger.departed(self._run, self._scheme.name, [one.group for one in departures])
            departures = [one for one in departures if one.group not in gone]
        self._ledger.leave(self._run, attempts=batch.attempts, scores=batch.scores, departures=departures)

    # The scheduler's side

    def _plans(self) -> list[PartPlan]:
        places: dict[str, asyncio.Semaphore] = {}
        callers = {} if self._callers is None else self._callers
        for part in self.recipe.parts:
            if part.reward.name not in callers:
                callers[part.reward.name] = self._caller(part, places)
        return [PartPlan(part, callers[part.reward.name], self._workers) for part in self.recipe.parts]

    def _caller(self, part: Part, places: dict[str, asyncio.Semaphore]) -> Caller:
        reward = part.reward
        if reward.how is How.INLINE:
            return InlineCaller(reward, self._clock)
        if reward.how is How.ASYNC:
            resource = reward.resource if is_sharing(reward) else f"reward:{reward.name}"
            free = places.setdefault(resource, asyncio.Semaphore(self._places))
            timing = self._audits.get(reward.name)
            return AsyncCaller(reward, self._clock, free, self._timeout_s or AWAIT_S, timing)
        if not all(hasattr(reward, word) for word in ("spec", "room", "pack", "judge")):
            raise RefusedError(
                "no worker process can be told what to run",
                where=f"reward {reward.name!r}",
                remedy="make it with steelyard.reward, or make its call asynchronous",
            )
        return WorkerCaller(cast("Served", reward), self._workers, self._timeout_s, self._clock, self._most_s)

    def _with_earlier(self, groups: Sequence[Left]) -> Sequence[Left]:
        """Add the attempts that groups' scores name and that an earlier run of the same record made."""
        run = self._run
        if self._ledger is None or run is None or not run.resumed:
            return groups
        named = [
            {score.attempt for scores in one.scores.values() for score in scores} - {None, *one.attempts}
            for one in groups
        ]
        ids = [attempt for some in named for attempt in some if attempt is not None]
        if not ids:
            return groups
        made = self._ledger.attempts_where(run, " AND attempt BETWEEN ?2 AND ?3", min(ids), max(ids))
        found = {one.id: one for one in made}
        return [
            one._replace(attempts={**one.attempts, **{key: found[key] for key in some if key in found}})
            for one, some in zip(groups, named, strict=True)
        ]

    def _scored(self, left: Left) -> ScoredGroup:
        group, parts, attempts = left
        names = self.recipe.names
        if self.recipe.plain:
            totals = [score.verdict for score in parts[names[0]]]
        else:
            totals = [
                self.recipe.total(rollout, {name: parts[name][place].verdict for name in names})
                for place, rollout in enumerate(group.rollouts)
            ]
        by_group = self._scheme.by_group
        advantages = None if by_group is None else by_group(totals).values
        return ScoredGroup(group, totals, parts, advantages, attempts)

    def _watch(self, scored: ScoredGroup) -> None:
        if self._shares is None:
            return
        plain = self.recipe.plain  # then the totals are what its one part says
        parts = [[score.verdict for score in scores] for scores in scored.parts.values() if not plain]
        self._shares.see_group(scored.totals, parts)
        excess = self._shares.excess()
        if excess is not None:
            raise TooManyUnscoredError(
                f"{excess}\n  next: steelyard show LEDGER --why lists the reasons; what was recorded is kept"
            )


def _said(group: Group, step: int | str | None, otherwise: str | None) -> str | None:
    """Return what the training step of a group is called."""
    said = group.rollouts[0].columns.get("step") if step is None else step
    return otherwise if said is None else str(said)


def refuse_settings(advantage: str, durability: str, numbers: Mapping[str, float | None]) -> None:
    """Refuse what cannot be, by its name.

    Raises
    ------
    RefusedError
        If there is no such scheme or durability, or a number is not positive and finite.
    """
    if advantage not in SCHEMES:
        raise RefusedError(
            f"there is no scheme {advantage!r}", where="advantage", remedy=f"one of {', '.join(SCHEMES)}"
        )
    if durability not in ("full", "step"):
        raise RefusedError(
            f"there is no durability {durability!r}", where="durability", remedy="one of full, step"
        )
    for name, number in numbers.items():
        if number is not None and not 0 < number < float("inf"):
            raise RefusedError(
                f"it must be positive and finite, not {number}", where=name, remedy=f"change {name}"
            )


def refuse_scheme(recipe: Recipe, advantage: str) -> None:
    """Refuse a scheme that would not see what a recipe makes of the sum of its parts.

    Raises
    ------
    RefusedError
        If it sums the parts itself, and the recipe shapes or combines them.
    """
    if SCHEMES[advantage].reads_parts and (recipe.shapes or recipe.combine is not None):
        raise RefusedError(
            f"{advantage} normalises each part by itself, so the recipe's "
            f"{'shapes' if recipe.shapes else 'combine'} would have no effect",
            where="advantage",
            remedy="take another scheme, or leave them out",
        )


def refuse_unattested(recipe: Recipe) -> None:
    """Have the boundaries of a recipe prove that they hold, before anything is read or judged.

    Raises
    ------
    RefusedError
        If one does not.
    """
    proving = [part.reward for part in recipe.parts if is_resident(part.reward)]

    async def prove() -> None:
        for reward in proving:
            try:
                await reward.attest()
            finally:
                await reward.close()

    if proving:
        asyncio.run(prove())


def _chunks(groups: Iterable[Group]) -> Iterator[list[Group]]:
    chunk: list[Group] = []
    rollouts = 0
    for group in groups:
        chunk.append(group)
        rollouts += len(group.rollouts)
        if rollouts >= CHUNK:
            yield chunk
            chunk, rollouts = [], 0
    if chunk:
        yield chunk


def _cores() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)
