"""How one program is run in a boundary, and the code of what came of it.

The boundary is asked by its protocol alone: a table of calls, whose values are compared here; a judge
process; or a run for each pair of input and output. What came is said in the codes of `docs/verdicts.md`, by
the same law: what a program brought about is final, what may have been the machine is tried once more in a
fresh slot, and blamed if it comes again. Whether the boundary was sound meanwhile tells the honest program
after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

from steelyard.blame import ending, told_code
from steelyard.clock import Seconds
from steelyard.errors import SandboxError, describe, printable
from steelyard.execution import Ended, Execution, Limits
from steelyard.sandbox.boundary import Boundary, Checks, Opinion, Program
from steelyard.sandbox.conformance.specimen import PASS, Suite
from steelyard.sandbox.guest import codec

HUNG: Final = "hung"
BROKE: Final = "boundary_error"
NEVER: Final = "never_started"
SUITE: Final = "suite_error"
"""Ends that no program may bring about, beside the codes of verdicts: they are the boundary's own."""

WALL_GROWS: Final = 4
"""A boundary may give a starved program up to so many times its wall limit."""

_LET_GO_S: Final = 2.0
_NO_ANSWER: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

_T = TypeVar("_T")


class Came(NamedTuple):
    """What came of a program.

    Parameters
    ----------
    code
        `pass`, a code of a verdict, or one of the boundary's own ends.
    words
        What was seen.
    suspect
        Whether it may have been the machine's doing: then it is tried once more.
    """

    code: str
    words: str = ""
    suspect: bool = False

    def __str__(self) -> str:
        return f"{self.code} ({self.words})" if self.words else self.code


@dataclass(frozen=True, slots=True)
class Asking:
    """A boundary, and how long it may take to answer.

    Parameters
    ----------
    boundary
        Who is asked.
    grace_s
        What it may take beyond what the wall limit allows.
    """

    boundary: Boundary
    grace_s: Seconds

    def within_s(self, limits: Limits) -> Seconds:
        """How long an answer may take; whoever takes longer hangs."""
        return WALL_GROWS * limits.wall_s + self.grace_s

    async def came(self, suite: Suite, source: bytes, limits: Limits) -> Came:
        """Run a program by its suite, and say what came of it, whatever the boundary does."""
        first = await self._once(suite, source, limits, fresh=False)
        if not first.suspect:
            return first
        again = await self._once(suite, source, limits, fresh=True)
        if not again.suspect:
            return again
        code = f"{again.code}_reproduced" if again.code == "wall" else "reproduced"
        return Came(code, again.words)

    async def _once(self, suite: Suite, source: bytes, limits: Limits, *, fresh: bool) -> Came:
        runs = 1 if suite.calls or isinstance(suite.tests, str) else len(suite.tests)
        if suite.calls:
            asked = self._table(suite, source, limits, fresh=fresh)
        elif isinstance(suite.tests, str):
            asked = self._judged(suite, source, limits, fresh=fresh)
        else:
            asked = self._pairs(suite, source, limits, fresh=fresh)
        try:
            return await within(runs * self.within_s(limits), asked)
        except TimeoutError:
            return Came(HUNG, f"no answer within {runs * self.within_s(limits):g} s")
        except SandboxError as error:
            return Came(NEVER, error.cause)
        except Exception as error:  # noqa: BLE001 - whatever it is, a boundary may not raise it
            return Came(BROKE, printable(describe(error)))

    async def _table(self, suite: Suite, source: bytes, limits: Limits, *, fresh: bool) -> Came:
        replies = _Replies([call.wanted for call in suite.calls])
        calls = codec.dumps(
            [
                [call.function, [codec.to_tree(value) for value in call.arguments], codec.to_tree({}), False]
                for call in suite.calls
            ]
        )
        program = Program(
            "table", source, (calls,), header={"share": False, "reply_bytes": limits.reply_bytes // 2}
        )
        execution = await self.boundary.run(program, limits, listen=replies.listen, fresh=fresh)
        said = replies.came
        if said is None or said.code == "protocol" or (said.code != PASS and execution.limit is not None):
            return _ended(execution, "" if said is None else said.words)
        return said

    async def _judged(self, suite: Suite, source: bytes, limits: Limits, *, fresh: bool) -> Came:
        tests = suite.tests.encode()
        digest = blake2b(tests + (suite.entry_point or "").encode(), digest_size=16).hexdigest()
        checks = Checks(digest, tests, suite.entry_point or "", {"share": False, "in_place": suite.in_place})
        execution, opinion = await self.boundary.check(source, checks, limits, fresh=fresh)
        if opinion.code == "gone" or (opinion.lost is not None and execution.limit not in {None, "protocol"}):
            return _ended(execution, "it ended before its tests did")
        if opinion.lost is not None:
            return Came("lost", f"the judge was lost: {opinion.lost}", suspect=True)
        if opinion.code == SUITE:
            return Came(SUITE, str(opinion.reason))
        if opinion.code is not None and execution.limit is not None:
            return _ended(execution)
        return _judged(opinion)

    async def _pairs(self, suite: Suite, source: bytes, limits: Limits, *, fresh: bool) -> Came:
        for pair in suite.tests:
            program = Program("program", source, stdin=pair["input"].encode())
            execution = await self.boundary.run(program, limits, fresh=fresh)
            if execution.ended is not Ended.EXIT:
                return _ended(execution)
            if execution.code:
                last = execution.stderr[-4_000:].decode(errors="replace").strip().rpartition("\n")[2]
                return Came("exception" if last else "exit", printable(last[:200]))
            if execution.stdout.split() != pair["output"].encode().split():
                return Came("wrong_answer", printable(repr(execution.stdout[:100])))
        return Came(PASS)


async def within(seconds: Seconds, asked: Awaitable[_T]) -> _T:
    """Wait for an answer; who gives none is called off, and left alone if that does not end it.

    Raises
    ------
    TimeoutError
        If there is none in time.
    """
    task = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    await asyncio.wait({task}, timeout=_LET_GO_S)
    if task.done() and not task.cancelled():
        task.exception()  # seen, so that nobody complains that it was not
    raise TimeoutError


def _ended(execution: Execution, words: str = "") -> Came:
    """What came of a program that ended before it had answered."""
    code = ending(execution)
    clocks, status = execution.clocks, "" if execution.code is None else f" {execution.code}"
    how = f"{execution.ended.value}{status}" if execution.limit is None else ""
    spent = f"{clocks.cpu_s or 0:.1f} CPU-s, {clocks.wall_s or 0:.1f} s"
    seen = "; ".join(filter(None, (words, how, spent)))
    if code is None:
        return Came("wall" if execution.limit == "wall" else "lost", seen, suspect=True)
    return Came("protocol" if code == "no_verdict" and words else code, seen)


def _judged(opinion: Opinion) -> Came:
    planned, passed = opinion.planned or 0, opinion.passed or 0
    if planned and planned == passed and opinion.code is None:
        return Came(PASS)
    code = "wrong_answer" if opinion.code == "wrong" else opinion.code or "no_verdict"
    return Came(told_code(code, opinion.reason or ""), printable(str(opinion.reason or "")[:200]))


class _Replies:
    """What a candidate says of its calls, heard as it comes: the first that is wrong is enough."""

    def __init__(self, wanted: Sequence[object]) -> None:
        self._wanted = wanted
        self._next = 0
        self._loaded = False
        self.came: Came | None = None

    def listen(self, frame: bytes) -> bool:
        """Take a frame; true if that is enough."""
        if self.came is None or self.came.code == PASS:
            try:
                self._take(codec.loads(frame))
            except _NO_ANSWER as error:
                self.came = Came("protocol", printable(f"it sent what is no answer: {error}"[:200]))
        return self.came is not None and self.came.code != PASS

    def _take(self, said: Any) -> None:  # noqa: ANN401 - whatever a candidate sends
        kind = said[0]
        if self.came is not None or (kind in {"loaded", "load_error"}) is self._loaded:
            raise ValueError("a message out of turn")
        self._loaded = True
        if kind == "load_error":
            words = f"{said[1]}: {said[2]}"[:200]
            self.came = Came(told_code("load_error", words), printable(words))
        elif kind == "r" and said[1] == self._next and 0 < len(said[2]) <= len(self._wanted) - self._next:
            for outcome in said[2]:
                self._outcome(outcome)
        elif kind == "done" and self._next == len(self._wanted):
            self.came = Came(PASS)
        elif kind != "loaded":
            raise ValueError("a message that nobody asked for")

    def _outcome(self, said: Any) -> None:  # noqa: ANN401
        if said[0] == "v":
            value, wanted = codec.from_tree(said[1]), self._wanted[self._next]
            wrong = None if type(value) is type(wanted) and value == wanted else Came("wrong_answer")
        elif said[0] == "x":
            words = f"{said[1]}: {said[2]}"[:200]
            wrong = Came(told_code("exception", words), printable(words))
        else:
            raise ValueError("an outcome of no known kind")
        self.came = self.came or wrong
        self._next += 1
