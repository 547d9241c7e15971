"""The order of things: work starts when a rollout exists, and a group leaves with its last verdict.

Groups come in chunks. Rewards of ours judge a chunk in one call; synchronous rewards of users go to
processes, many rollouts a message; boundaries and judges are awaited, a task each. Parts without a
gate start at once; a gated part starts when the parts before it have spoken. Groups leave in the
order in which they finish: that line is the barrier which `pricing` models.

What goes on in one chunk never waits for another; how many rollouts may be under way is bounded, so
that a fast reader does not fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, cast

from steelyard.errors import RunStoppedError, describe
from steelyard.outcome import (
    Abstained,
    Called,
    Failure,
    How,
    Part,
    Score,
    Scored,
    Takes,
    Unscored,
    Verdict,
)
from steelyard.rollout import Group, Rollout
from steelyard.scheduling.calls import Caller, InlineCaller, Messenger
from steelyard.scheduling.cells import (
    Members,
    Open,
    by_answer,
    in_calls,
    in_messages,
    rollouts_in,
    rollouts_of,
    whole_groups,
)
from steelyard.scheduling.columns import by_columns
from steelyard.scheduling.suspects import LEFT_OUT, Witness, first_of_each, settle
from steelyard.scheduling.together import settle_group, settle_left_out
from steelyard.scheduling.written import Batch, Left, attempt_of, below_floor, judged

WINDOW: Final = 4_096
"""Rollouts under way at most: four chunks, so that a slow one does not stop the others."""

MESSAGE: Final = 64
"""Rollouts in one message to a worker process: the message's own cost is then below 1 us each."""

_ROUNDING: Final = 1e-9  # sums of parts may fall short of a floor by their last places


MESSAGES_EACH: Final = 4
"""Messages that each process should have of a chunk, so that none idles while another has work left."""

QUICK_EACH: Final = 2
"""The same where several calls share a message and are known to be quick: the wait for the last is short."""


class PartPlan(NamedTuple):
    """A part, and how its reward is called.

    Parameters
    ----------
    part
        The part.
    caller
        Calls its reward.
    processes
        How many messages are served at once, where a call is a message to a process; few rollouts are
        then spread over all of them.
    """

    part: Part
    caller: Caller
    processes: int = 1


class Scheduler:
    """Judges groups by parts.

    Parameters
    ----------
    plans
        The parts in their order, each with its caller.
    ids
        Attempt ids that are free; from 0 if not given.
    window
        How many rollouts may be under way.
    close
        Whether to close the callers when the run ends.
    canaries
        By part, what an earlier run judged in one call: the reward did work once.
    """

    def __init__(
        self,
        plans: Sequence[PartPlan],
        *,
        ids: Iterator[int] | None = None,
        window: int = WINDOW,
        canaries: Mapping[str, Sequence[Rollout]] | None = None,
        close: bool = True,
    ) -> None:
        self._plans = plans
        self._close = close
        ungated = [plan for plan in plans if plan.part.only_if is None]
        gated = [[plan] for plan in plans if plan.part.only_if is not None]
        self._stages = [ungated, *gated] if ungated else gated
        self._ids = count() if ids is None else ids
        self._window = window
        self._under_way = 0
        self._batch = Batch([], [], [])
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._failed: BaseException | None = None
        self._stopping = False
        self._witnesses = {
            plan.part.reward.name: Witness(plan.part.reward, plan.caller, self._wake.set) for plan in plans
        }

        for name, rollouts in (canaries or {}).items():
            self._witnesses[name].judged(rollouts)

    def canaries(self) -> dict[str, Sequence[Rollout]]:
        """By part, what it judged in one call last: for the next run."""
        return {name: witness.row for name, witness in self._witnesses.items() if witness.row}

    async def run(
        self,
        chunks: Iterable[Sequence[Group]],
        recorded: Callable[[Sequence[Group]], Mapping[tuple[int, str], Score]] = lambda _groups: {},
    ) -> AsyncGenerator[Batch]:
        """Judge chunks of groups; batches come as soon as anything is finished.

        Parameters
        ----------
        chunks
            Groups; a chunk is taken when there is room for it.
        recorded
            Scores that a chunk already has, by (ordinal, part); they are not asked for again.

        Raises
        ------
        RunStoppedError
            If a part cannot judge anything.
        """
        waiting: Iterator[Sequence[Group]] | None = iter(chunks)
        try:
            while True:
                if waiting is not None and self._under_way < self._window:
                    chunk = next(waiting, None)
                    if chunk is None:
                        waiting = None
                    else:
                        self._start(chunk, recorded(chunk))
                elif self._under_way == 0:
                    break
                elif self._waiting() == len(self._tasks):
                    raise self._stuck()
                else:
                    await self._wake.wait()
                await asyncio.sleep(0)  # lets started calls begin, ended ones report, and others live
                self._wake.clear()
                if self._failed is not None:
                    raise self._failed
                if any(self._batch):
                    batch, self._batch = self._batch, Batch([], [], [])
                    yield batch
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """Cancel what runs and close what ran it."""
        self._stopping = True
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            closed = await asyncio.gather(
                *(plan.caller.close() for plan in self._plans if self._close), return_exceptions=True
            )
        for error in closed:
            if error is not None:
                raise error

    def _waiting(self) -> int:
        return sum(witness.waiting for witness in self._witnesses.values())

    def _stuck(self) -> RunStoppedError:
        """Return the error of a run in which nothing moves any more."""
        for witness in self._witnesses.values():
            if witness.waiting:
                return witness.give_up()
        return RunStoppedError(  # pragma: no cover - every rollout under way has a task
            f"{self._under_way} rollouts were lost on the way; what was recorded is kept"
            "\n  next: run the same command again, and please report it"
        )

    # Starting

    def _start(self, chunk: Sequence[Group], recorded: Mapping[tuple[int, str], Score]) -> None:
        self._under_way += sum(len(group.rollouts) for group in chunk)
        self._advance([Open(group, self._witnesses, recorded) for group in chunk])

    def _advance(self, opened: list[Open]) -> None:
        """Start the next stage of groups that have finished the one before, or let them leave."""
        while opened:
            stage = opened[0].stage
            if stage == len(self._stages):
                for one in opened:
                    self._leave(one)
                return
            asked: list[tuple[PartPlan, list[Members]]] = []
            for plan in self._stages[stage]:
                found = [self._members(one, plan.part) for one in opened]
                asked.append((plan, [members for members in found if members.places]))
            for one in opened:
                one.stage += 1
            opened = [one for one in opened if one.missing == 0]  # nothing to ask: on to the next stage
            for plan, some in asked:
                if some:
                    self._submit(plan, some)

    def _members(self, one: Open, part: Part) -> Members:
        """Find the rollouts of a group that the part must be asked about; the others get their score here."""
        rollouts = one.group.rollouts
        settled = by_columns(part, rollouts)
        if settled is None and part.only_if is None and not one.recorded:
            one.missing += len(rollouts)
            return Members(one, range(len(rollouts)), rollouts)
        name = part.reward.name
        places = []
        for place, rollout in enumerate(rollouts):
            known = one.recorded.get((rollout.ordinal, name))
            if known is not None:
                one.scores[name][place] = known
                self._vouch(part, one, place)
                continue
            verdict = settled or self._gate(one, part, place)
            if verdict is not None:
                self._say(one, place, part, verdict, None)
            else:
                places.append(place)
        one.missing += len(places)
        return Members(one, places, [rollouts[place] for place in places])

    def _vouch(self, part: Part, one: Open, index: int) -> None:
        """Let what was judged before the run was interrupted serve as a canary."""
        name, rollouts = part.reward.name, one.group.rollouts
        if part.reward.takes is Takes.GROUP:
            if index == len(rollouts) - 1 and all(judged(score) for score in one.scores[name]):
                self._witnesses[name].judged(rollouts)
        elif judged(one.scores[name][index]):
            self._witnesses[name].judged(rollouts[index : index + 1])

    def _gate(self, one: Open, part: Part, index: int) -> Abstained | None:
        if part.only_if is None:
            return None
        said = {
            name: score.verdict for name, scores in one.scores.items() if (score := scores[index]) is not None
        }
        if any(isinstance(verdict, Unscored) for verdict in said.values()):
            return Abstained("a part before it is unscored, and so is the sum")
        try:
            opens = bool(part.only_if(said))
        except Exception as error:
            raise RunStoppedError(
                f"the gate of {part.reward.name!r} failed on {one.group.rollouts[index].where}: "
                f"{describe(error)}; it was given {said}"
                "\n  next: let only_if take whatever the parts before it say (an abstention has no value), "
                "and run again"
            ) from error
        return None if opens else Abstained("the gate before it is closed")

    # Calling

    def _submit(self, plan: PartPlan, asked: list[Members]) -> None:
        reward, witness = plan.part.reward, self._witnesses[plan.part.reward.name]
        inline = plan.caller if isinstance(plan.caller, InlineCaller) else None
        calls = self._calls(plan, asked, whole=inline is not None)
        for call in calls:
            witness.asked(first_of_each(reward.takes, rollouts_of(call)))
            if inline:
                self._judge_now(plan, inline, call)
        if inline:
            return
        if isinstance(plan.caller, Messenger) and reward.takes is not Takes.ROLLOUT:
            for message in in_messages(calls, min(self._share(plan, asked, QUICK_EACH), plan.caller.room)):
                self._spawn(self._several(plan, plan.caller, message))
        else:
            for call in calls:
                self._spawn(self._call(plan, call))

    def _calls(self, plan: PartPlan, asked: list[Members], *, whole: bool) -> list[list[Members]]:
        reward = plan.part.reward
        if reward.takes is Takes.GROUP:
            return [[members] for members in asked]
        if whole:
            return [asked]
        if reward.takes is Takes.BATCH:
            return list(whole_groups(asked, MESSAGE))
        alone = reward.how is How.ASYNC
        return list(in_calls(asked, 1 if alone else min(self._share(plan, asked, MESSAGES_EACH), MESSAGE)))

    @staticmethod
    def _share(plan: PartPlan, asked: list[Members], each: int) -> int:
        """How many rollouts a message may hold at most: few are spread over all processes."""
        return -(-rollouts_in(asked) // (each * plan.processes))

    def _judge_now(self, plan: PartPlan, inline: InlineCaller, asked: list[Members]) -> None:
        answers = inline.now(rollouts_of(asked))
        for called, some in by_answer(asked, answers):
            self._ended(plan, called, some, attempted=0)

    async def _call(self, plan: PartPlan, asked: list[Members], *, attempted: int = 0) -> None:
        self._answered(plan, await plan.caller.call(rollouts_of(asked)), asked, attempted)

    async def _several(self, plan: PartPlan, caller: Messenger, calls: list[list[Members]]) -> None:
        asked = [members for call in calls for members in call]
        self._answered(plan, await caller.several([rollouts_of(call) for call in calls]), asked, 0)

    def _answered(self, plan: PartPlan, answers: list[Called], asked: list[Members], attempted: int) -> None:
        for called, some in by_answer(asked, answers):
            alone = plan.part.reward.takes is not Takes.BATCH or len(called.rollouts) == 1
            if alone or not all(isinstance(said, Failure) for said in called.said):
                self._ended(plan, called, some, attempted=attempted)
                continue
            # a batch that failed whole says nothing about its members: its groups are asked for, then each
            self._note(plan.part, called, some, attempted)
            for fewer in some if len(some) > 1 else some[0].each():
                self._spawn(self._call(plan, [fewer], attempted=attempted + 1))

    def _ended(self, plan: PartPlan, called: Called, asked: list[Members], *, attempted: int) -> None:
        part = plan.part
        attempt = self._note(part, called, asked, attempted)
        witness = self._witnesses[part.reward.name]
        together = part.reward.takes is Takes.GROUP
        if together and not all(type(said) is Scored for said in called.said):
            for rollout, said in zip(called.rollouts, called.said, strict=True):
                if type(said) is Failure and not said.boundary:
                    witness.failed(rollout, said)
            # nothing of it is written down before all of it is: a run that goes on asks about the whole
            work = partial(settle_group, called.rollouts, called.said, witness)
            self._spawn(self._settled(part, asked, work, attempt, attempted + 1))
            return
        last, failed = self._take(part, called, asked, attempt)
        if last is not None:
            witness.judged(called.rollouts if together else [last], called.clocks.service_s)
        for one, failure in failed:
            if not failure.boundary:
                witness.failed(one.rollouts[0], failure)
        for one, failure in failed:
            ask = partial(settle, one.rollouts, failure, witness)
            self._spawn(self._settled(part, [one], ask, attempt, attempted + 1))

    def _take(
        self, part: Part, called: Called, asked: list[Members], attempt: int
    ) -> tuple[Rollout | None, list[tuple[Members, Failure]]]:
        """Write down what was judged; return the last rollout that was, and what failed, each alone."""
        failed: list[tuple[Members, Failure]] = []
        nothing: list[Members] = []
        last, start = None, 0
        for members in asked:
            said = called.said[start : start + len(members.places)]
            start += len(said)
            if {*map(type, said)} == {Scored}:
                self._judged(part, members, cast("Sequence[Scored]", said), attempt)
                last = members.rollouts[-1]
                continue
            each = list(zip(members.each(), said, strict=True))
            for one, verdict in each:
                if isinstance(verdict, Scored):
                    self._judged(part, one, [verdict], attempt)
                    last = one.rollouts[0]
            failed += [(one, failure) for one, failure in each if isinstance(failure, Failure)]
            left_out = [one.places[0] for one, verdict in each if isinstance(verdict, Abstained)]
            if left_out:
                rollouts = [members.open.group.rollouts[place] for place in left_out]
                nothing.append(Members(members.open, left_out, rollouts))
        return last, failed + self._left_out(part, nothing, attempt)

    def _judged(self, part: Part, members: Members, verdicts: Sequence[Scored], attempt: int) -> None:
        """Write down what a part said of members of a group: this runs once for every rollout."""
        one, places, rollouts = members
        name, identity, lowest = part.reward.name, part.reward.identity, part.reward.floor - _ROUNDING
        scores = [
            Score(rollout.key, rollout.ordinal, name, identity, said, attempt)
            for rollout, said in zip(rollouts, verdicts, strict=True)
            if said.value >= lowest
        ]
        if len(scores) < len(rollouts):
            low = next(place for place, said in enumerate(verdicts) if said.value < lowest)
            raise below_floor(part.reward, rollouts[low], verdicts[low].value)
        if len(places) == len(one.group.rollouts):
            one.scores[name] = [*scores]
        else:
            for place, score in zip(places, scores, strict=True):
                one.scores[name][place] = score
        self._batch.scores.extend(scores)
        self._arrived(one, len(scores))

    def _left_out(self, part: Part, nothing: list[Members], attempt: int) -> list[tuple[Members, Failure]]:
        """Settle groups that a batch's call left out whole; of others, return the members as failed."""
        failed: list[tuple[Members, Failure]] = []
        for members in nothing:
            if len(members.places) < len(members.open.group.rollouts):
                failed += [(one, LEFT_OUT) for one in members.each()]
                continue
            work = partial(settle_left_out, members.rollouts, self._witnesses[part.reward.name])
            self._spawn(self._settled(part, [members], work, attempt, 1))
        return failed

    async def _settled(
        self,
        part: Part,
        asked: list[Members],
        work: Callable[[Callable[[Called], None]], Awaitable[Sequence[Verdict]]],
        last: int,
        attempted: int,
    ) -> None:
        """Find verdicts, and write them down under the last attempt that was made for them."""

        def note(called: Called) -> None:
            nonlocal last
            last = self._note(part, called, asked, attempted)

        verdicts = iter(await work(note))
        for one, places, _ in asked:
            for place in places:
                self._say(one, place, part, next(verdicts), last)
        for one, places, _ in asked:
            self._arrived(one, len(places))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if self._failed is not None or self._stopping:
            return
        if task.cancelled():
            self._failed = RunStoppedError(
                "a call was cancelled from outside, and with it a rollout; what was recorded is kept"
                "\n  next: run the same command again"
            )
        else:
            self._failed = error

    # Ending

    def _note(self, part: Part, called: Called, asked: list[Members], attempted: int) -> int:
        """Write an attempt down, also for the groups that it was made for; return its id."""
        attempt = attempt_of(next(self._ids), part.reward.name, called, attempted)
        self._batch.attempts.append(attempt)
        for members in asked:
            members.open.attempts[attempt.id] = attempt
        return attempt.id

    def _say(self, one: Open, index: int, part: Part, verdict: Verdict, attempt: int | None) -> None:
        reward = part.reward
        rollout = one.group.rollouts[index]
        if type(verdict) is Scored and verdict.value < reward.floor - _ROUNDING:
            raise below_floor(reward, rollout, verdict.value)
        score = Score(rollout.key, rollout.ordinal, reward.name, reward.identity, verdict, attempt)
        one.scores[reward.name][index] = score
        self._batch.scores.append(score)

    def _arrived(self, one: Open, count: int) -> None:
        one.missing -= count
        if one.missing == 0:
            self._advance([one])

    def _leave(self, one: Open) -> None:
        scores = cast("Mapping[str, Sequence[Score]]", one.scores)  # none is missing any more
        self._batch.groups.append(Left(one.group, scores, one.attempts))
        self._under_way -= len(one.group.rollouts)
