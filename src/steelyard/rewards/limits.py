"""A CPU limit that is not fixed, around one attempt: asked for, held, noted, learnt from.

The boundary that the attempt sees holds every run to the deadline and keeps what the longest one took, in
calibrated CPU seconds: of pairs of input and output each is a run, and the deadline holds for each. Compiling
is not the candidate's program, and has the declared limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.errors import SandboxError, SuspectError
from steelyard.execution import Execution, Limits
from steelyard.outcome import Asked, Context, Deadline, Limiter, Scored
from steelyard.sandbox import Boundary, Checks, Opinion, Program

REMEMBERED: Final = 16_384
"""Reference solutions of which it is remembered what they took: those last asked for."""

FAILS: Final = "fails its own tests"
LOST: Final = "could not be judged in this step: it was lost, or starved"

Judge = Callable[[Boundary, Context], Awaitable[Scored]]
"""Judges a program in a boundary."""


class Metered:
    """A boundary as one attempt sees it.

    Parameters
    ----------
    boundary
        Where programs run. One that has no `score` counts plain CPU seconds.
    cpu_s
        The deadline, in calibrated CPU seconds.
    """

    def __init__(self, boundary: Boundary, cpu_s: Seconds) -> None:
        self._boundary = boundary
        self._cpu_s = cpu_s
        self.name = boundary.name
        self.identity = boundary.identity
        self.used_s: Seconds = 0.0
        """What the longest run took, calibrated."""
        self.held_s: Seconds | None = None
        """Where the last run would have been cut, in its own CPU seconds."""
        self.score = 1.0
        """The calibration score of the last run."""
        self.cut = False
        """Whether a run was cut below the declared limit."""

    async def attest(self, limits: Limits | None = None) -> Mapping[str, str]:
        """As of the boundary."""
        return await self._boundary.attest(limits)

    async def run(
        self,
        program: Program,
        limits: Limits,
        *,
        listen: Callable[[bytes], bool] | None = None,
        fresh: bool = False,
        urgent: bool = False,
    ) -> Execution:
        """Run a program; compiling is not counted."""
        if program.mode == "build":
            return await self._boundary.run(program, limits, listen=listen, fresh=fresh, urgent=urgent)
        held = self._held(program.source, limits)
        execution = await self._boundary.run(program, held, listen=listen, fresh=fresh, urgent=urgent)
        return self._seen(program.source, execution, held, limits)

    async def check(
        self, source: bytes, checks: Checks, limits: Limits, *, fresh: bool = False
    ) -> tuple[Execution, Opinion]:
        """Have a judge check a program."""
        held = self._held(source, limits)
        execution, opinion = await self._boundary.check(source, checks, held, fresh=fresh)
        return self._seen(source, execution, held, limits), opinion

    async def close(self) -> None:
        """Leave the boundary as it is: it outlives an attempt."""

    def _held(self, source: bytes, limits: Limits) -> Limits:
        self.score = self._scored(source)
        below = self._cpu_s < limits.cpu_s  # what is declared is counted in plain CPU seconds
        self.held_s = min(limits.cpu_s, self._cpu_s * self.score) if below else limits.cpu_s
        return replace(limits, cpu_s=self.held_s)

    def _scored(self, source: bytes) -> float:
        score = getattr(self._boundary, "score", None)
        return 1.0 if score is None else score(source)

    def _seen(self, source: bytes, execution: Execution, held: Limits, declared: Limits) -> Execution:
        self.score = self._scored(source)  # the first slot of its kind has been calibrated only now
        self.used_s = max(self.used_s, (execution.clocks.cpu_s or 0.0) / self.score)
        self.cut = execution.limit == "cpu" and held.cpu_s < declared.cpu_s
        return execution


class Limited:
    """One attempt of a part at a suite, within a limit that is not fixed.

    Parameters
    ----------
    asked
        What its limit is asked for.
    boundary
        Where it runs.
    reference_fault
        Why the reference solution that there is limits nothing.
    """

    def __init__(self, asked: Asked, boundary: Boundary, *, reference_fault: str | None = None) -> None:
        self._reference_fault = reference_fault
        self._asked = asked
        self._boundary = boundary

    async def judged(self, judge: Judge, limiter: Limiter, context: Context) -> Scored:
        """Judge within the deadline, note it, and let the limiter learn.

        Raises
        ------
        SandboxError, SuspectError
            As the judge does; the deadline is noted all the same.
        """
        deadline = limiter.limit(self._asked)
        metered = Metered(self._boundary, deadline.cpu_s)
        notes: list[Mapping[str, Any]] = []
        try:
            scored = await judge(metered, replace(context, note=notes.append))
        except (SandboxError, SuspectError):
            context.note(self._note(notes, metered, deadline))
            raise
        cut = metered.cut and scored.code == "cpu"
        passed = scored.code is None
        context.note(self._note(notes, metered, deadline, passed=passed, cut=cut))
        limiter.observe(self._asked, deadline, metered.used_s, passed=passed, cut=cut)
        return scored if not cut else self._cut(scored, metered, deadline)

    def _note(
        self,
        notes: list[Mapping[str, Any]],
        metered: Metered,
        deadline: Deadline,
        *,
        passed: bool | None = None,
        cut: bool = False,
    ) -> dict[str, Any]:
        """What the evidence says of a deadline: enough to see it, and to learn from it again."""
        asked = self._asked._asdict()
        del asked["part"]
        said = {**asked, **deadline._asdict(), "score": metered.score, "used_s": metered.used_s}
        seen: dict[str, Any] = dict(notes[-1]) if notes else {}
        seen["deadline"] = {**said, "passed": passed, "cut": cut}
        if self._reference_fault is not None:
            seen["deadline"]["reference"] = self._reference_fault
        if cut:
            seen["limit"] = "cpu_adaptive"
        if "allowed" in seen and metered.held_s is not None:
            seen["allowed"] = {**seen["allowed"], "cpu_s": metered.held_s}
        return seen

    def _cut(self, scored: Scored, metered: Metered, deadline: Deadline) -> Scored:
        words = (
            f"{scored.reason}; its deadline was {metered.held_s:.3g} CPU-s of {self._asked.declared_s:g}, "
            f"P(cut | would pass) < {deadline.bound:.2%} (95 %)"
        )
        return replace(scored, code="cpu_adaptive", reason=words)


@dataclass(slots=True)
class _Unbounded:
    """The limiter of a reference solution: the declared limit, and what it took."""

    took_s: Seconds | None = None

    def limit(self, asked: Asked) -> Deadline:
        return Deadline(asked.declared_s, asked.declared_s)

    def observe(
        self,
        asked: Asked,  # noqa: ARG002
        deadline: Deadline,  # noqa: ARG002
        cpu_s: Seconds,
        *,
        passed: bool,
        cut: bool,  # noqa: ARG002
    ) -> None:
        self.took_s = cpu_s if passed else None


class Took(NamedTuple):
    """What a reference solution took, calibrated, or why it limits nothing."""

    seconds: Seconds | None
    fault: str | None = None


class References:
    """What reference solutions took: each is run once for its suite, at the declared limit.

    One that was lost or starved limits nothing in that step, for all of a group have one limit; in a later
    one it is run again.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str, bytes], tuple[int | str, asyncio.Task[Took]]] = {}

    def __reduce__(self) -> tuple[type[References], tuple[()]]:
        """Another process runs them itself."""
        return References, ()

    async def took(self, asked: Asked, source: str, boundary: Boundary, judge: Judge) -> Took:
        """What a reference took.

        Raises
        ------
        SandboxError
            If it could not be run; it is run again for whoever asks next.
        """
        key = asked.kind, asked.test, blake2b(source.encode("utf-8", "surrogatepass")).digest()
        step, task = self._asked.pop(key, (asked.step, None))
        loop = asyncio.get_running_loop()
        if task is None or (
            _is_to_be_repeated(task, same_step=step == asked.step)
            if task.done()
            else task.get_loop() is not loop
        ):
            step, task = asked.step, loop.create_task(_took(asked, boundary, judge))
        self._asked[key] = step, task
        while len(self._asked) > REMEMBERED:
            del self._asked[next(iter(self._asked))]
        return await asyncio.shield(task)


def _is_to_be_repeated(task: asyncio.Task[Took], *, same_step: bool) -> bool:
    if task.cancelled() or task.exception() is not None:
        return True
    return task.result().fault == LOST and not same_step


async def _took(asked: Asked, boundary: Boundary, judge: Judge) -> Took:
    limiter = _Unbounded()
    try:
        await Limited(asked, boundary).judged(judge, limiter, Context())
    except SuspectError:
        return Took(None, LOST)
    return Took(limiter.took_s, FAILS if limiter.took_s is None else None)


def wrong_reference(reference: object) -> str | None:
    """Say what is wrong with a row's reference, or `None`."""
    if reference is None or (isinstance(reference, str) and reference.strip()):
        return None
    number = isinstance(reference, int | float) and not isinstance(reference, bool)
    if number and 0 < float(reference) < float("inf"):  # type: ignore[arg-type]
        return None
    return f"column 'reference' is {str(reference)[:40]!r}: CPU seconds above 0, or a solution's source"
