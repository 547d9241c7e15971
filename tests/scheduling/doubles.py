"""Rewards and callers that do as they are told, and what came of a run."""

import asyncio
from contextlib import aclosing

from steelyard.clock import Clocks
from steelyard.outcome import Called, End, Failure, How, Part, Scored, Takes
from steelyard.rollout import Group, Rollout
from steelyard.scheduling import AsyncCaller, InlineCaller, PartPlan, Scheduler
from steelyard.testing import FakeClock


class Double:
    """A reward that judges by the function it was given and keeps what it was asked."""

    def __init__(
        self,
        judge,
        *,
        name="double",
        how=How.ASYNC,
        takes=Takes.ROLLOUT,
        floor=0.0,
        columns=(),
        canary=None,
        applies=None,
        lint=None,
        resource=None,
    ):
        self.judge, self.name, self.how, self.takes = judge, name, how, takes
        self.floor, self.columns, self.depends_on = floor, columns, "content"
        self.identity = f"{name}/1"
        self.resource = resource or f"reward:{name}"
        self.asked = []
        self._canary, self._applies, self._lint = canary, applies, lint

    def lint(self, columns):
        return self._lint(columns) if self._lint else None

    def applies(self, columns):
        return self._applies(columns) if self._applies else True

    async def canary(self):
        return await self._canary() if asyncio.iscoroutinefunction(self._canary) else self._canary

    def __call__(self, given, context, /):
        self.asked.append(given.completion if isinstance(given, Rollout) else [r.completion for r in given])
        return self.judge(given, context)


class Scripted:
    """A caller whose every call ends as `end(rollout, how often it was asked)` says."""

    def __init__(self, end, *, canary=None):
        self.end, self.messages, self.fresh, self.closed = end, [], [], 0
        self.times = {}
        self._canary = canary

    async def call(self, rollouts, *, fresh=False):
        (self.fresh if fresh else self.messages).append([r.completion for r in rollouts])
        await asyncio.sleep(0)
        called = []
        for rollout in rollouts:
            time = self.times[rollout.completion] = self.times.get(rollout.completion, 0) + 1
            said = self.end(rollout, time)
            service_s = 1.0
            if isinstance(said, tuple) and not isinstance(said, Failure):
                said, service_s = said
            called.append(Called([rollout], [said], Clocks(queued_s=0.0, service_s=service_s)))
        return called

    async def canary(self):
        return self._canary

    async def close(self):
        self.closed += 1


RAISED = Failure(End.RAISED, "ValueError: on this content")


def by_completion(**ends):
    """What a scripted caller says: by completion, 1.0 for those that are not named.

    A list is what is said the first time, the second time, ...; its last entry stays.
    """

    def end(rollout, time):
        said = ends.get(rollout.completion, Scored(1.0))
        return said[min(time, len(said)) - 1] if isinstance(said, list) else said

    return end


def groups_of(*sizes, columns=None, completions=None, start=0):
    """Groups of these sizes; completions are a0, a1, ..., b0, ... unless they are given."""
    said = iter(
        completions or [f"{chr(97 + g % 26)}{i}" for g, size in enumerate(sizes) for i in range(size)]
    )
    ordinal, made = start, []
    for number, size in enumerate(sizes):
        rollouts = []
        for index in range(size):
            row = columns(number, index) if callable(columns) else columns or {}
            rollouts.append(
                Rollout(
                    ordinal, "?", next(said), row, (number, index), ordinal, f"rollouts.jsonl:{ordinal + 1}"
                )
            )
            ordinal += 1
        made.append(Group(f"group {number}", number, rollouts))
    return made


class Outcome:
    """What a scheduler handed out."""

    def __init__(self):
        self.attempts, self.left, self.scores, self.batches = [], [], [], 0

    def take(self, batch):
        self.batches += 1
        self.attempts += batch.attempts
        self.scores += batch.scores
        self.left += [(one.group, one.scores) for one in batch.groups]

    def verdicts(self, part="double"):
        """By completion, from the groups that left."""
        return {
            rollout.completion: score.verdict
            for group, parts in self.left
            for rollout, score in zip(group.rollouts, parts[part], strict=True)
        }

    def values(self, part="double"):
        return {name: float(verdict) for name, verdict in self.verdicts(part).items()}

    def codes(self, part="double"):
        return {name: getattr(verdict, "code", None) for name, verdict in self.verdicts(part).items()}

    def order(self):
        return [group.ordinal for group, _ in self.left]


def plan_of(part, *, clock, places, deadline_s, caller=None):
    part = part if isinstance(part, Part) else Part(part)
    reward = part.reward
    if caller is None and reward.how is How.INLINE:
        caller = InlineCaller(reward, clock)
    elif caller is None:
        caller = AsyncCaller(
            reward, clock, places.setdefault(reward.resource, asyncio.Semaphore(places["n"])), deadline_s
        )
    return PartPlan(part, caller)


def scheduler_of(*parts, clock=None, places=64, deadline_s=60.0, callers=None, processes=1, **more):
    """A scheduler as the runtime makes one; `callers` by the part's name replaces the usual ones."""
    clock, shared = clock or FakeClock(), {"n": places}
    plans = []
    for part in parts:
        reward = part.reward if isinstance(part, Part) else part
        caller = (callers or {}).get(reward.name)
        plan = plan_of(part, clock=clock, places=shared, deadline_s=deadline_s, caller=caller)
        plans.append(plan._replace(processes=processes))
    return Scheduler(plans, **more)


async def judge(scheduler, groups, *, chunks=None, recorded=None, outcome=None):
    outcome = outcome or Outcome()
    more = () if recorded is None else (lambda _groups: recorded,)
    async with aclosing(scheduler.run(chunks if chunks is not None else [groups], *more)) as batches:
        async for batch in batches:
            outcome.take(batch)
    return outcome


def judged(groups, *parts, **settings):
    """Judge groups from beginning to end."""
    run = {name: settings.pop(name) for name in ("chunks", "recorded") if name in settings}

    async def main():
        async with asyncio.timeout(20):  # a hang fails here, with its name
            return await judge(scheduler_of(*parts, **settings), groups, **run)

    return asyncio.run(main())


async def settled(condition):
    """Let the loop go on until something holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")
