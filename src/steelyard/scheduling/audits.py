"""Audits: what a deadline cut is run again at the declared limit, beside the path, for the record alone.

An audit never holds up a group, changes no score, and waits for nobody: a few run at a time, a bounded number
waits, and what is left when the runtime closes has a moment and is then dropped, and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from steelyard.clock import Seconds
from steelyard.outcome import Asked, Attempt, Called, Deadline, Failure, Limiter
from steelyard.rollout import Group, Rollout
from steelyard.scheduling.deadlines import Deadlines, noted
from steelyard.scheduling.written import attempt_of

AUDIT: Final = -1
"""An audit's number among the attempts at its rollout: it is no try at a verdict."""

AT_ONCE: Final = 2
"""Audits under way at a time."""

WAITING: Final = 1_024
"""Audits that wait, at most."""

CLOSE_S: Final = 10.0
"""How long a runtime that closes waits for the audits that are left."""


class Again(Protocol):
    """What runs an attempt again."""

    async def call(
        self, rollouts: Sequence[Rollout], *, fresh: bool = False, limiter: Limiter | None = None
    ) -> list[Called]:
        """Judge rollouts within another limiter's limits."""


class _Due(NamedTuple):
    caller: Again
    rollout: Rollout
    asked: Asked
    deadline: Deadline


class _Declared(NamedTuple):
    """The limiter of one audit: the declared limit; what it showed goes to the one that had cut."""

    limiter: Deadlines
    deadline: Deadline

    def limit(self, asked: Asked) -> Deadline:
        cut = self.deadline
        return cut._replace(cpu_s=asked.declared_s, proposed_s=cut.cpu_s, audit=True)

    def observe(
        self,
        asked: Asked,
        deadline: Deadline,
        cpu_s: Seconds,
        *,
        passed: bool,
        cut: bool,  # noqa: ARG002 - it was not: that is its point
    ) -> None:
        self.limiter.audited(asked, deadline, cpu_s, passed=passed)


class Audits:
    """The limiter of a run, the steps of its groups, and the audits that are due.

    Parameters
    ----------
    limiter
        Hands out deadlines.
    """

    def __init__(self, limiter: Deadlines) -> None:
        self.limiter = limiter
        self.missed: dict[tuple[int, str], tuple[Asked, Deadline]] = {}
        """Audits that were due when an earlier run of the same record ended, by ordinal and part."""
        self._steps: dict[int, int | str] = {}  # by the rollout under way itself
        self._due: deque[_Due] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._done: list[tuple[str, Called]] = []

    def begin(self, group: Group, step: int | str) -> None:
        """Note which step a group belongs to: members of one never have two deadlines."""
        self._steps.update((id(rollout), step) for rollout in group.rollouts)

    def left(self, group: Group) -> None:
        """Forget a group that has left."""
        for rollout in group.rollouts:
            self._steps.pop(id(rollout), None)

    def step(self, rollout: Rollout) -> int | str:
        """The step of a rollout that is judged."""
        return self._steps.get(id(rollout), 0)

    def ended(self, caller: Again, part: str, rollout: Rollout, evidence: Mapping[str, Any] | None) -> None:
        """Hear of an attempt that ended; if its deadline cut it, it may be audited."""
        said = (evidence or {}).get("deadline")
        if said is not None and said["cut"]:
            self.cut(caller, rollout, *noted(part, said))

    def cut(self, caller: Again, rollout: Rollout, asked: Asked, deadline: Deadline) -> None:
        """Audit an attempt that was cut, if it is one of those that are."""
        if not self.limiter.wanted(deadline, rollout.digest):
            return
        if len(self._due) >= WAITING:
            self.limiter.dropped(asked, deadline)
            return
        self._due.append(_Due(caller, rollout, asked, deadline))
        self._go()

    def _go(self) -> None:
        while self._due and len(self._running) < AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._audit(self._due.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # what stops the run is met again where scores come from
            self._go()

    async def _audit(self, due: _Due) -> None:
        judged = False
        try:
            limiter = _Declared(self.limiter, due.deadline)
            (called,) = await due.caller.call([due.rollout], limiter=limiter)
            judged = not isinstance(called.said[0], Failure)
            self._done.append((due.asked.part, called))
        finally:
            if not judged:
                self.limiter.dropped(due.asked, due.deadline)

    def take(self, ids: Iterator[int]) -> list[Attempt]:
        """What has ended since it was asked last, to be written down under these ids."""
        done, self._done = self._done, []
        return [attempt_of(next(ids), part, called, AUDIT) for part, called in done]

    def replay(self, attempts: Iterable[Attempt]) -> None:
        """Learn again from a record, whose attempts note their deadlines."""
        for attempt in attempts:
            said = (attempt.evidence or {}).get("deadline")
            if said is None:
                continue
            self.limiter.replay(attempt.part, said)
            if said["audit"]:
                self.missed.pop((attempt.first, attempt.part), None)
            elif said["cut"]:
                self.missed[attempt.first, attempt.part] = noted(attempt.part, said)

    def resume(self, caller: Again, part: str, group: Group) -> None:
        """Audit what was due of a group that an earlier run had judged."""
        for rollout in group.rollouts if self.missed else ():
            due = self.missed.pop((rollout.ordinal, part), None)
            if due is not None:
                self.cut(caller, rollout, *due)

    async def close(self, within_s: Seconds = CLOSE_S) -> None:
        """Finish what is under way or due, or drop it when the time is up."""
        deadline = asyncio.get_running_loop().time() + within_s
        while self._running and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # whoever ended lets the next one begin
        for due in self._due:
            self.limiter.dropped(due.asked, due.deadline)
        self._due.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
