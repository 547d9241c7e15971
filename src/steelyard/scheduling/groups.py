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
from typing import Any, Final, NamedTuple

from steelyard.blame import excused
from steelyard.errors import RunStoppedError, describe
from steelyard.outcome import (
    Abstained,
    Attempt,
    Called,
    End,
    Failure,
    How,
    Part,
    Reward,
    Score,
    Scored,
    Takes,
    Unscored,
    Verdict,
)
from steelyard.rollout import Group, Rollout
from steelyard.scheduling.calls import Caller, InlineCaller
from steelyard.scheduling.cells import Cell, Open, by_group, whole_groups
from steelyard.scheduling.columns import by_columns
from steelyard.scheduling.suspects import LEFT_OUT, Witness, first_of_each, settle
from steelyard.scheduling.together import settle_group, settle_left_out

WINDOW: Final = 4_096
"""Rollouts under way at most: four chunks, so that a slow one does not stop the others."""

MESSAGE: Final = 64
"""Rollouts in one message to a worker process: the message's own cost is then below 1 us each."""

_ROUNDING: Final = 1e-9  # sums of parts may fall short of a floor by their last places


MESSAGES_EACH: Final = 4
"""Messages that each process should have of a chunk, so that none idles while another has work left."""


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


class Batch(NamedTuple):
    """What happened since the last batch: attempts that ended, scores, and groups that are complete."""

    attempts: list[Attempt]
    scores: list[Score]
    groups: list[tuple[Group, Mapping[str, Sequence[Score]]]]


class Scheduler:
    """Judges groups by parts.

    Parameters
    ----------
    plans
        The parts in their order, each with its caller.
    first_attempt
        The first free attempt id.
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
        first_attempt: int = 0,
        window: int = WINDOW,
        canaries: Mapping[str, Sequence[Rollout]] | None = None,
        close: bool = True,
    ) -> None:
        self._plans = plans
        self._close = close
        ungated = [plan for plan in plans if plan.part.only_if is None]
        gated = [[plan] for plan in plans if plan.part.only_if is not None]
        self._stages = [ungated, *gated] if ungated else gated
        self.ids = count(first_attempt)
        """Attempt ids that are free."""
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
            asked: list[tuple[PartPlan, list[Cell]]] = []
            for plan in self._stages[stage]:
                cells = [cell for one in opened for cell in self._cells(one, plan.part)]
                asked.append((plan, cells))
            for one in opened:
                one.stage += 1
            opened = [one for one in opened if one.missing == 0]  # nothing to ask: on to the next stage
            for plan, cells in asked:
                if cells:
                    self._submit(plan, cells)

    def _cells(self, one: Open, part: Part) -> list[Cell]:
        """Find the rollouts of a group that the part must be asked about; the others get their score here."""
        rollouts = one.group.rollouts
        settled = by_columns(part, rollouts)
        if settled is None and part.only_if is None and not one.recorded:
            one.missing += len(rollouts)
            return [Cell(one, place, rollout) for place, rollout in enumerate(rollouts)]
        name = part.reward.name
        cells = []
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
                one.missing += 1
                cells.append(Cell(one, place, rollout))
        return cells

    def _vouch(self, part: Part, one: Open, index: int) -> None:
        """Let what was judged before the run was interrupted serve as a canary."""
        name, rollouts = part.reward.name, one.group.rollouts
        if part.reward.takes is Takes.GROUP:
            if index == len(rollouts) - 1 and all(_judged(score) for score in one.scores[name]):
                self._witnesses[name].judged(rollouts)
        elif _judged(one.scores[name][index]):
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

    def _submit(self, plan: PartPlan, cells: list[Cell]) -> None:
        reward = plan.part.reward
        inline = plan.caller if isinstance(plan.caller, InlineCaller) else None
        if reward.takes is Takes.GROUP:
            calls = list(by_group(cells))
        elif reward.takes is Takes.BATCH and not inline:
            calls = list(whole_groups(cells, MESSAGE))
        else:
            alone = reward.how is How.ASYNC and reward.takes is Takes.ROLLOUT
            share = (
                -(-len(cells) // (MESSAGES_EACH * plan.processes)) if reward.how is How.WORKER else MESSAGE
            )
            size = len(cells) if inline else 1 if alone else min(share, MESSAGE)
            calls = [cells[start : start + size] for start in range(0, len(cells), size)]
        for some in calls:
            self._witnesses[reward.name].asked(first_of_each(reward.takes, [cell.rollout for cell in some]))
            if inline:
                self._judge_now(plan, inline, some)
            else:
                self._spawn(self._call(plan, some))

    def _judge_now(self, plan: PartPlan, inline: InlineCaller, cells: list[Cell]) -> None:
        for called in inline.now([cell.rollout for cell in cells]):
            some, cells = cells[: len(called.rollouts)], cells[len(called.rollouts) :]
            self._ended(plan, called, some, attempted=0)

    async def _call(self, plan: PartPlan, cells: list[Cell], *, attempted: int = 0) -> None:
        for called in await plan.caller.call([cell.rollout for cell in cells]):
            some, cells = cells[: len(called.rollouts)], cells[len(called.rollouts) :]
            alone = plan.part.reward.takes is not Takes.BATCH or len(some) == 1
            if alone or not all(isinstance(said, Failure) for said in called.said):
                self._ended(plan, called, some, attempted=attempted)
                continue
            # a batch that failed whole says nothing about its members: its groups are asked for, then each
            self._note(plan.part, called, attempted)
            groups = list(by_group(some))
            for fewer in groups if len(groups) > 1 else [[cell] for cell in some]:
                self._spawn(self._call(plan, fewer, attempted=attempted + 1))

    def _ended(self, plan: PartPlan, called: Called, cells: list[Cell], *, attempted: int) -> None:
        part = plan.part
        attempt = self._note(part, called, attempted)
        witness = self._witnesses[part.reward.name]
        together = part.reward.takes is Takes.GROUP
        if together and not all(type(said) is Scored for said in called.said):
            for cell, said in zip(cells, called.said, strict=True):
                if type(said) is Failure and not said.boundary:
                    witness.failed(cell.rollout, said)
            # nothing of it is written down before all of it is: a run that goes on asks about the whole
            work = partial(settle_group, called.rollouts, called.said, witness)
            self._spawn(self._settled(part, cells, work, attempt, attempted + 1))
            return
        last, failed = self._take(part, called, cells, attempt)
        if last is not None:
            witness.judged(called.rollouts if together else [last], called.clocks.service_s)
        for cell, failure in failed:
            if not failure.boundary:
                witness.failed(cell.rollout, failure)
        for cell, failure in failed:
            ask = partial(settle, [cell.rollout], failure, witness)
            self._spawn(self._settled(part, [cell], ask, attempt, attempted + 1))

    def _take(
        self, part: Part, called: Called, cells: list[Cell], attempt: int
    ) -> tuple[Rollout | None, list[tuple[Cell, Failure]]]:
        """Write down what was judged; return the last rollout that was, and what failed."""
        name, identity, lowest = part.reward.name, part.reward.identity, part.reward.floor - _ROUNDING
        failed: list[tuple[Cell, Failure]] = []
        nothing: list[Cell] = []
        last = None
        for cell, said in zip(cells, called.said, strict=True):
            one, place, rollout = cell
            if type(said) is Scored:
                if said.value < lowest:
                    raise _below_floor(part.reward, rollout, said.value)
                # `_say` and `_arrived` without the calls: this loop runs once for every rollout
                score = Score(rollout.key, rollout.ordinal, name, identity, said, attempt)
                one.scores[name][place] = score
                self._batch.scores.append(score)
                one.missing -= 1
                if one.missing == 0:
                    self._advance([one])
                last = rollout
            elif type(said) is Failure:
                failed.append((cell, said))
            else:
                nothing.append(cell)
        return last, failed + self._left_out(part, nothing, attempt)

    def _left_out(self, part: Part, nothing: list[Cell], attempt: int) -> list[tuple[Cell, Failure]]:
        """Settle groups that a batch's call left out whole; of others, return the members as failed."""
        failed: list[tuple[Cell, Failure]] = []
        for cells in by_group(nothing):
            if len(cells) < len(cells[0].open.group.rollouts):
                failed += [(cell, LEFT_OUT) for cell in cells]
                continue
            rollouts = [cell.rollout for cell in cells]
            work = partial(settle_left_out, rollouts, self._witnesses[part.reward.name])
            self._spawn(self._settled(part, cells, work, attempt, 1))
        return failed

    async def _settled(
        self,
        part: Part,
        cells: list[Cell],
        work: Callable[[Callable[[Called], None]], Awaitable[Sequence[Verdict]]],
        last: int,
        attempted: int,
    ) -> None:
        """Find verdicts, and write them down under the last attempt that was made for them."""

        def note(called: Called) -> None:
            nonlocal last
            last = self._note(part, called, attempted)

        verdicts = await work(note)
        for cell, verdict in zip(cells, verdicts, strict=True):
            self._say(cell.open, cell.place, part, verdict, last)
        for cell in cells:
            self._arrived(cell.open)

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

    def _note(self, part: Part, called: Called, attempted: int) -> int:
        """Write an attempt down; return its id."""
        attempt = attempt_of(next(self.ids), part.reward.name, called, attempted)
        self._batch.attempts.append(attempt)
        return attempt.id

    def _say(self, one: Open, index: int, part: Part, verdict: Verdict, attempt: int | None) -> None:
        reward = part.reward
        rollout = one.group.rollouts[index]
        if type(verdict) is Scored and verdict.value < reward.floor - _ROUNDING:
            raise _below_floor(reward, rollout, verdict.value)
        score = Score(rollout.key, rollout.ordinal, reward.name, reward.identity, verdict, attempt)
        one.scores[reward.name][index] = score
        self._batch.scores.append(score)

    def _arrived(self, one: Open) -> None:
        one.missing -= 1
        if one.missing == 0:
            self._advance([one])

    def _leave(self, one: Open) -> None:
        scores = {name: [s for s in some if s is not None] for name, some in one.scores.items()}
        self._batch.groups.append((one.group, scores))
        self._under_way -= len(one.group.rollouts)


def attempt_of(number: int, part: str, called: Called, attempted: int) -> Attempt:
    """A call as an attempt to be written down; an audit, which is no try at a verdict, is number `AUDIT`."""
    failure = next((said for said in called.said if isinstance(said, Failure)), None)
    evidence = called.evidence
    limit = (evidence or {}).get("limit") if failure is None else failure.limit
    if failure is not None:
        told = {"cause": failure.cause, "boundary": failure.boundary, **failure.evidence}
        evidence = {**(evidence or {}), **told}
    ended = failure.end if failure is not None else End.FINISHED if limit is None else End.CUT
    first, members = called.rollouts[0].ordinal, len(called.rollouts)
    return Attempt(number, part, attempted, first, members, called.clocks, ended, limit, evidence)


def _judged(score: Score | None) -> bool:
    """Whether a recorded score came of an attempt that was answered."""
    return (
        score is not None
        and score.attempt is not None
        and isinstance(score.verdict, Scored)
        and not excused(score.verdict.code)
    )


def _below_floor(reward: Reward, rollout: Rollout, value: float) -> RunStoppedError:
    """Return the error of a reward whose failures would be worth more than what it says of some rollouts."""
    return RunStoppedError(
        f"reward {reward.name!r} returned {value:g} on {rollout.where}, which is below its floor "
        f"{reward.floor:g}: completions that make it fail would be paid more than this one"
        "\n  next: state the lowest value that it can ever return, as in @steelyard.reward(floor=-1) or in a "
        "recipe, floor = -1, and score again (with --new-run: a changed reward is another one)"
    )
