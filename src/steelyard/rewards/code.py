"""The reward `tests`: a completion's code against the unit tests of its row, behind an isolation boundary.

A suite is compiled once for its prompt (`suites`). Where its asserts are expressions over calls, the
candidate's process makes the calls and the values are compared here; pairs of input and output are a run
each; anything else is run by a judge process, which calls the candidate's functions in another process. So no
candidate's process ever holds a test, an expected value or the verdict's channel, and the result is
`isolated`. Tests that need the candidate in their own process are `cooperative`: only when asked for by
name, for whatever runs beside its tests can forge what they say.

All checks must have run and hold. What a candidate brings about (a limit, an exit, a signal, a broken
message) is the floor with a code; what could be the machine's doing is left to the incentive law.
"""

# ruff: noqa: PT028 - `tests` is a reward, and no test
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from secrets import token_hex
from typing import Any, Final, NamedTuple

from steelyard.blame import ending
from steelyard.clock import Clocks
from steelyard.errors import RefusedError, RewardError, RunStoppedError, SandboxError, SuspectError
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, How, Scored, Takes
from steelyard.rewards.hearing import TableHearing, report_in, told_code
from steelyard.rewards.suites import Fault, Suite, Table, compile_suite, encode_calls, same_output
from steelyard.rewards.suites.extract import Failure as NoSource
from steelyard.rewards.suites.extract import source_of
from steelyard.rollout import Rollout, Text, final_text
from steelyard.sandbox import Boundary, Checks, Opinion, Program, boundary_of

ISOLATED: Final = "isolated"
COOPERATIVE: Final = "cooperative"

_SHOWN: Final = 2_000  # bytes of output that are kept with an attempt

_CANARY: Final = b"def double(x):\n    return [x, x]\n"
_CANARY_TESTS: Final = (
    "from candidate import double\n\ndef test_double():\n    assert double(21) == [21, 21]\n"
)
_CANARY_CHECKS: Final = Checks("canary", _CANARY_TESTS.encode(), "", {"share": False, "in_place": False})
_CANARIES: Final = 2  # slots that must fail, one after the other


@dataclass(frozen=True, slots=True)
class UnitTests:
    """The reward `tests`; `tests` makes it."""

    boundary: Boundary
    limits: Limits
    share: bool = False
    in_place: bool = False
    cooperative: bool = False
    name: str = "tests"

    floor: float = 0.0
    columns: Sequence[str] = ("tests",)
    also: Sequence[str] = ("entry_point", "completion_mode", "in_place")
    fields: Sequence[str] = ()
    how: How = How.ASYNC
    takes: Takes = Takes.ROLLOUT
    depends_on: str = "content"
    keeps_time: bool = True

    @property
    def identity(self) -> str:
        """Rules, settings, boundary and limits."""
        words = [
            word
            for word, on in {
                "share": self.share,
                "in_place": self.in_place,
                "cooperative": self.cooperative,
            }.items()
            if on
        ]
        limits = ",".join(str(getattr(self.limits, name)) for name in self.limits.__slots__)
        return f"tests/1:{'+'.join(words) or 'all'}:{self.boundary.identity}:{limits}"

    @property
    def resource(self) -> str:
        """What calls share: the boundary's slots."""
        return f"boundary:{self.boundary.name}"

    async def attest(self) -> None:
        """Have the boundary prove that it holds.

        Raises
        ------
        RefusedError
            If it does not.
        """
        await self.boundary.attest()

    async def close(self) -> None:
        """End the boundary's slots."""
        await self.boundary.close()

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's tests, or `None`."""
        in_place = columns.get("in_place")
        if in_place not in {None, True, False}:
            return f"column 'in_place' is {in_place!r}: write true or false"
        mode = columns.get("completion_mode")
        if mode not in {None, "full", "body"}:
            return f"column 'completion_mode' is {mode!r}: write full or body"
        compiled = self._compiled(columns)
        return compiled.reason if isinstance(compiled, Fault) else None

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """It applies to every row."""
        return True

    async def canary(self) -> bool:
        """Run an honest program in a new slot, by a call table and before a new judge.

        Raises
        ------
        RunStoppedError
            If two new slots one after the other cannot run it: what harmed them has outlived its slot.
        """
        for judged in (False, True):
            causes: list[str] = []
            while (cause := await self._unsound(judged=judged)) is not None:
                causes.append(cause)
                if len(causes) == _CANARIES:
                    raise RunStoppedError(
                        f"reward {self.name!r}: after a candidate was lost, two new slots of "
                        f"{self.boundary.name} failed an honest program ({'; '.join(causes)}): either the "
                        "machine is out of order, or something has left its slot"
                        "\n  next: look at the machine (steelyard doctor), then run the same command again"
                    )
        return True

    async def _unsound(self, *, judged: bool) -> str | None:
        """Say why the honest program failed, if it did."""
        suite = compile_suite(_CANARY_TESTS)
        if isinstance(suite, Fault):
            raise TypeError(suite.reason)
        context = Context(fresh=True)
        try:
            if judged:
                scored = await self._judged(_CANARY_CHECKS, _CANARY, context, "the canary")
            else:
                scored = await self._table(suite, _CANARY, context, urgent=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the canary was not answered
            return str(error)
        return None if scored.value == 1.0 else scored.reason or str(scored.code)

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:
        """Judge one rollout.

        Raises
        ------
        SandboxError
            If the candidate never began.
        SuspectError
            If contact with it was lost, or it ran into the wall.
        RewardError
            If its tests failed without it.
        """
        columns = rollout.columns
        suite = self._compiled(columns)
        if isinstance(suite, Fault):
            raise RewardError(self.name, suite.reason, row=rollout.where)
        source = source_of(
            final_text(rollout.completion),
            _prompt_text(rollout.prompt),
            columns.get("completion_mode") or "full",
            list(dict.fromkeys(filter(None, (suite.entry_point, *suite.names)))),
        )
        if isinstance(source, NoSource):
            return Scored(self.floor, source.code, source.reason)
        code = source.text.encode("utf-8", "surrogatepass")
        if len(code) > self.limits.source_bytes:
            words = f"{len(code):,} bytes of source, at most {self.limits.source_bytes:,} are run"
            return Scored(self.floor, "source", words)
        if suite.kind == "table":
            return await self._table(suite, code, context)
        if suite.kind == "stdio":
            return await self._pairs(suite, code, context)
        if suite.kind == "judge":
            header = {"share": self.share, "in_place": self._in_place(columns)}
            checks = Checks(suite.digest, suite.source, suite.entry_point, header)
            return await self._judged(checks, code, context, rollout.where)
        return await self._together(suite, code, context)

    def _in_place(self, columns: Mapping[str, Any]) -> bool:
        """Whether checks see what a call did to its arguments: the column goes over the setting."""
        asked = columns.get("in_place")
        return self.in_place if asked is None else bool(asked)

    def _compiled(self, columns: Mapping[str, Any]) -> Suite | Fault:
        return compile_suite(
            columns.get("tests"),
            columns.get("entry_point"),
            share=self.share,
            in_place=self._in_place(columns),
            cooperative=self.cooperative,
        )

    # One way for each kind of suite

    async def _table(self, suite: Suite, code: bytes, context: Context, *, urgent: bool = False) -> Scored:
        hearing = TableHearing(_table_of(suite), share=self.share)
        header = {"share": self.share, "reply_bytes": self.limits.reply_bytes // 2}
        program = Program("table", code, (_calls(suite),), header=header)
        execution = await self.boundary.run(
            program, self.limits, listen=hearing.listen, fresh=context.fresh, urgent=urgent
        )
        _tell(context, execution)
        passed, first = hearing.said() or (None, None)
        if passed is None or (passed < suite.planned and execution.limit is not None):
            return self._ended(execution, hearing.fault)
        return self._scored(passed, suite.planned, first and first.code, first and first.reason)

    async def _pairs(self, suite: Suite, code: bytes, context: Context) -> Scored:
        passed, clocks, first = 0, Clocks(), None
        for number, pair in enumerate(suite.pairs, start=1):
            program = Program("program", code, stdin=pair.stdin.encode("utf-8", "surrogatepass"))
            try:
                execution = await self.boundary.run(program, self.limits, fresh=context.fresh)
            except SandboxError as error:
                if number == 1:
                    raise
                words = (
                    f"input {number} never began: {error.cause}"  # though it ran before, and may be to blame
                )
                evidence = {"integrity": ISOLATED, "words": words}
                raise SuspectError(words, clocks=clocks, evidence=evidence) from error
            clocks = _added(clocks, execution.clocks)
            _tell(context, execution, clocks)
            if execution.ended is not Ended.EXIT:
                return self._ended(execution, None, where=f"input {number}: ")
            fault = _output_fault(pair.stdout, execution)
            if fault is None:
                passed += 1
            else:
                first = first or (fault[0], f"input {number} of {len(suite.pairs)}: {fault[1]}")
                if not self.share:
                    break
        return self._scored(passed, suite.planned, *(first or (None, None)))

    async def _judged(self, checks: Checks, code: bytes, context: Context, where: str) -> Scored:
        execution, opinion = await self.boundary.check(code, checks, self.limits, fresh=context.fresh)
        _tell(context, execution)
        if opinion.code == "gone" or (opinion.lost is not None and execution.limit not in {None, "protocol"}):
            return self._ended(execution, "it ended before its tests did")
        if opinion.lost is not None:  # with its judge a candidate ends, too, and that is not its doing
            raise _suspect(f"the judge was lost: {opinion.lost}", execution, ISOLATED)
        if opinion.code == "suite_error":
            raise RewardError(self.name, f"its tests fail by themselves: {opinion.reason}", row=where)
        if opinion.code is not None and execution.limit is not None:
            return self._ended(execution, None)
        return self._opinion(opinion, ISOLATED)

    async def _together(self, suite: Suite, code: bytes, context: Context) -> Scored:
        """Run a suite beside the candidate: what it says can be forged, and the score says so."""
        nonce = token_hex(16)
        program = Program("cooperative", code, (suite.source,), header={"nonce": nonce, "share": self.share})
        execution = await self.boundary.run(program, self.limits, fresh=context.fresh)
        _tell(context, execution)
        opinion = report_in(execution.replies, nonce)
        if opinion is None:
            return self._ended(execution, "it ended before its tests did", integrity=COOPERATIVE)
        return self._opinion(opinion, COOPERATIVE)

    # From facts to verdicts

    def _opinion(self, opinion: Opinion, integrity: str) -> Scored:
        planned, passed = opinion.planned or 0, opinion.passed or 0
        if planned == 0 or (passed == planned and opinion.code is not None):
            return Scored(self.floor, opinion.code or "no_verdict", opinion.reason, integrity)
        code = "wrong_answer" if opinion.code == "wrong" else opinion.code
        return self._scored(passed, planned, code, opinion.reason, integrity=integrity)

    def _scored(
        self, passed: int, planned: int, code: str | None, reason: str | None, *, integrity: str = ISOLATED
    ) -> Scored:
        if passed == planned > 0:
            return Scored(1.0, None, None, integrity)
        value = passed / planned if self.share and planned else self.floor
        words = f"{passed} of {planned} checks hold; {reason}" if self.share else reason
        return Scored(value, told_code(code or "no_verdict", reason or ""), words, integrity)

    def _ended(
        self, execution: Execution, fault: str | None, *, where: str = "", integrity: str = ISOLATED
    ) -> Scored:
        """Judge a candidate that ended before its checks were through."""
        code = ending(execution)
        if code is None:
            raise _suspect("wall" if execution.limit == "wall" else None, execution, integrity)
        words = where + (_words(execution) if fault is None else f"{fault} ({_words(execution)})")
        if code == "no_verdict" and fault is not None:
            code = "protocol"
        return Scored(self.floor, code, words, integrity)


def tests(
    boundary: Boundary | str | None = None,
    *,
    share: bool = False,
    in_place: bool = False,
    cooperative: bool = False,
    cpu_s: float | None = None,
    wall_s: float | None = None,
    limits: Limits | None = None,
) -> UnitTests:
    """Make the reward `tests`: a completion's code against the unit tests in the column `tests`.

    `tests` is Python (a pytest snippet that imports `candidate`, plain asserts, or a `check(candidate)` with
    the column `entry_point`), or pairs of standard input and output. Code in fences is found. With
    `completion_mode` `body` the completion goes on where the prompt ends. 1 if all checks hold, 0 else; with
    `share` the share of them, the floor for a program that was cut or died.

    Parameters
    ----------
    boundary
        Where code runs: `bubblewrap`, or a boundary that was made. There is no default, and no way without.
    share
        Pay the share of checks that hold.
    in_place
        Let checks see what a call did to its arguments: for problems that are solved in place. A call that
        stands alone, as in `sort(xs); assert xs == [1, 2]`, is always seen. Also a column, for single rows.
    cooperative
        Run suites that cannot be isolated under pytest in the candidate's own process, where a candidate can
        forge what they say; the scores say `cooperative`.
    cpu_s, wall_s
        CPU seconds (2) and wall seconds (30) of an attempt; for pairs of each run.
    limits
        All limits at once.

    Raises
    ------
    RefusedError
        If no boundary was given, or there is none of that name.
    """
    if boundary is None:
        raise RefusedError(
            "it runs code that a model wrote, and no boundary to run it in was given",
            where="reward tests",
            remedy='--boundary bubblewrap on the command line, settings = { boundary = "bubblewrap" } in a '
            "recipe, builtin('tests', boundary='bubblewrap') in Python",
        )
    if cooperative and find_spec("pytest") is None:
        raise RefusedError(
            "a cooperative suite runs under pytest, and pytest is not installed",
            where="reward tests:cooperative",
            remedy="pip install pytest beside steelyard",
        )
    given = _limited(limits or Limits(), cpu_s, wall_s)
    return UnitTests(boundary_of(boundary), given, share, in_place, cooperative)


def _limited(limits: Limits, cpu_s: float | None, wall_s: float | None) -> Limits:
    for name, value in {"cpu_s": cpu_s, "wall_s": wall_s}.items():
        if value is not None and not 0 < value < float("inf"):
            raise RefusedError(f"{name} is {value}", where="reward tests", remedy="a number above 0")
    cpu_s = limits.cpu_s if cpu_s is None else cpu_s
    wall_s = limits.wall_s if wall_s is None else wall_s
    return replace(limits, cpu_s=cpu_s, wall_s=max(cpu_s, wall_s))


def _table_of(suite: Suite) -> Table:
    if suite.table is None:
        raise TypeError(suite.kind)
    return suite.table


class _ByDigest(NamedTuple):
    """A suite that is told from others by its digest alone."""

    digest: str
    suite: Suite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _calls(suite: Suite) -> bytes:
    return _encoded(_ByDigest(suite.digest, suite))


@lru_cache(maxsize=600)
def _encoded(given: _ByDigest) -> bytes:
    return encode_calls(_table_of(given.suite))


def _prompt_text(prompt: Text) -> str:
    """The text that a completion goes on from: of a conversation what was said last."""
    if isinstance(prompt, str) or not prompt or not isinstance(prompt[-1], Mapping):
        return final_text(prompt)
    content = prompt[-1].get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _output_fault(expected: str, execution: Execution) -> tuple[str, str] | None:
    """Say what is wrong with a run that ended by itself."""
    if execution.code:
        last = execution.stderr[-4_000:].decode(errors="replace").strip().rpartition("\n")[2]
        said = f"; {last[:200]}" if last else ""
        return "exception" if last else "exit", f"exit status {execution.code}{said}"
    if execution.stdout == expected.encode("utf-8", "surrogatepass"):
        return None
    got = execution.stdout.decode(errors="replace")
    if same_output(expected, got):
        return None
    return "wrong_answer", f"{_brief(got)} was written, and {_brief(expected)} expected"


def _tell(context: Context, execution: Execution, clocks: Clocks | None = None) -> None:
    """Hand on the clocks, and what there is to see of a candidate's end."""
    context.report(clocks or execution.clocks)
    seen: dict[str, Any] = {"ended": execution.ended.value, **execution.evidence}
    for name in ("code", "limit", "peak_bytes"):
        if (value := getattr(execution, name)) is not None:
            seen[name] = value
    for name in ("stdout", "stderr"):
        if text := getattr(execution, name)[-_SHOWN:]:
            seen[name] = text.decode(errors="replace")
    if execution.ended is not Ended.ENOUGH and seen != {
        "ended": "exit",
        "code": 0,
        "peak_bytes": execution.peak_bytes,
    }:
        context.note(seen)


def _brief(text: str) -> str:
    return json.dumps(text if len(text) <= 100 else text[:100] + "...")


def _added(one: Clocks, other: Clocks) -> Clocks:
    """The clocks of several runs of one attempt."""

    def both(name: str) -> float | None:
        values = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        return sum(values) if values else None

    names = ("queued_s", "spawn_s", "wall_s", "reap_s", "cpu_s")
    return Clocks(**{name: both(name) for name in names}, censored=one.censored or other.censored)


def _suspect(cause: str | None, execution: Execution, integrity: str) -> SuspectError:
    """Make the error of an attempt that nobody can be blamed for yet; without a cause, contact was lost."""
    words = cause if cause not in {None, "wall"} else _words(execution)
    evidence = {**execution.evidence, "integrity": integrity, "words": words}
    cause = cause or f"contact was lost ({words})"
    return SuspectError(cause, clocks=execution.clocks, evidence=evidence)


def _words(execution: Execution) -> str:
    if execution.limit == "protocol":
        return "it sent what is no answer"
    if execution.limit is not None:
        cpu_s, wall_s = execution.clocks.cpu_s or 0.0, execution.clocks.wall_s or 0.0
        return f"its limit for {execution.limit} was used up ({cpu_s:.2f} CPU-s, {wall_s:.2f} s)"
    what = {
        Ended.EXIT: f"exit status {execution.code}",
        Ended.SIGNAL: f"signal {execution.code}",
        Ended.LOST: "nobody knows how it ended",
        Ended.ENOUGH: "it was ended",
    }
    return what.get(execution.ended, execution.ended.value)
