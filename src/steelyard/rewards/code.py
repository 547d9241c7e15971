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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from secrets import token_hex
from typing import Any, Final, NamedTuple

from steelyard.errors import RefusedError, RewardError, RunStoppedError, SandboxError
from steelyard.execution import FIXED, RULES, Limits
from steelyard.outcome import Asked, Context, How, Scored, Takes
from steelyard.rewards.evidence import judged_check
from steelyard.rewards.facts import COOPERATIVE, ISOLATED, Paying, suspect, tell
from steelyard.rewards.hearing import TableHearing, report_in
from steelyard.rewards.languages import Language, own_languages, recipes_of, spoken
from steelyard.rewards.limits import Judge, Limited, References, wrong_reference
from steelyard.rewards.pairs import run_pairs
from steelyard.rewards.suites import Fault, Suite, Table, compile_suite, encode_calls
from steelyard.rewards.suites.extract import Failure as NoSource
from steelyard.rewards.suites.extract import source_of
from steelyard.rewards.toolchains import Built, Proofs, build, unusable
from steelyard.rollout import Rollout, Text, final_text
from steelyard.sandbox import Boundary, Checks, Opinion, Program, boundary_of

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
    language: Language | None = None
    languages: tuple[Language, ...] = ()
    deadline: str = FIXED
    proofs: Proofs = field(default_factory=Proofs, compare=False, repr=False)
    references: References = field(default_factory=References, compare=False, repr=False)
    name: str = "tests"

    floor: float = 0.0
    columns: Sequence[str] = ("tests",)
    own_columns: Sequence[str] = ("entry_point", "completion_mode", "in_place", "language")
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
        recipes = recipes_of(self.language, self.languages)
        learnt = "" if self.deadline == FIXED else f":{self.deadline}/1"
        return f"tests/1:{'+'.join(words) or 'all'}:{self.boundary.identity}:{limits}{recipes}{learnt}"

    @property
    def also(self) -> Sequence[str]:
        """Columns that it reads where a row has them."""
        return self.own_columns if self.deadline == FIXED else (*self.own_columns, "reference")

    @property
    def resource(self) -> str:
        """What calls share: the boundary's slots."""
        return f"boundary:{self.boundary.name}"

    async def attest(self) -> None:
        """Have the boundary prove that it holds, and the toolchain that it works there.

        Raises
        ------
        RefusedError
            If it does not.
        """
        await self.boundary.attest()
        if self.language is not None:
            try:
                fault = await self.proofs.fault(self.boundary, self.language, self.limits)
            except SandboxError as error:
                fault = str(error)
            if fault is not None:
                raise unusable(self.language, fault)

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
        if self.deadline != FIXED and (wrong := wrong_reference(columns.get("reference"))) is not None:
            return wrong
        read = self._read(columns)
        return read.reason if isinstance(read, Fault) else None

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
        RunStoppedError
            If the toolchain of its row's language does not work in the boundary.
        """
        read = self._read(rollout.columns)
        if isinstance(read, Fault):
            raise RewardError(self.name, read.reason, row=rollout.where)
        suite, language = read
        if language is not None and (fault := await self.proofs.fault(self.boundary, language, self.limits)):
            raise RunStoppedError(str(unusable(language, fault)))
        if context.limiter is None or self.deadline == FIXED:
            return await self.judge_one(rollout, suite, language, context)
        kind = suite.kind if language is None else f"{suite.kind}:{language.name}"
        asked = Asked(self.name, kind, suite.digest, context.step, self.limits.cpu_s)

        def judging(rollout: Rollout) -> Judge:
            return lambda where, told: replace(self, boundary=where).judge_one(rollout, suite, language, told)

        reference, fault = rollout.columns.get("reference"), None
        if isinstance(reference, str):
            judge = judging(rollout._replace(completion=reference))
            reference, fault = await self.references.took(asked, reference, self.boundary, judge)
        attempt = Limited(asked._replace(reference_s=reference), self.boundary, reference_fault=fault)
        return await attempt.judged(judging(rollout), context.limiter, context)

    async def judge_one(
        self, rollout: Rollout, suite: Suite, language: Language | None, context: Context
    ) -> Scored:
        """Judge one rollout by what was read of its columns, within this reward's boundary and limits."""
        columns = rollout.columns
        source = source_of(
            final_text(rollout.completion),
            _prompt_text(rollout.prompt),
            columns.get("completion_mode") or "full",
            list(dict.fromkeys(filter(None, (suite.entry_point, *suite.names)))),
            marks=language.marks if language is not None else None,
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
            return await self._pairs(language, suite, code, context)
        if suite.kind == "judge":
            header = {"share": self.share, "in_place": self._in_place(columns)}
            checks = Checks(suite.digest, suite.source, suite.entry_point, header)
            return await self._judged(checks, code, context, rollout.where)
        return await self._together(suite, code, context)

    def _in_place(self, columns: Mapping[str, Any]) -> bool:
        """Whether checks see what a call did to its arguments: the column goes over the setting."""
        asked = columns.get("in_place")
        return self.in_place if asked is None else bool(asked)

    def _read(self, columns: Mapping[str, Any]) -> tuple[Suite, Language | None] | Fault:
        """A row's suite and language; `None` is Python, as it needs no recipe."""
        own = self.languages if self.language is None else (*self.languages, self.language)
        language = spoken(columns.get("language"), own, self.language)
        suite = self._compiled(columns)
        if isinstance(language, Fault):
            return language
        if isinstance(suite, Fault):
            return suite
        if language is not None and (suite.kind != "stdio" or columns.get("completion_mode") == "body"):
            return Fault(
                f"its language is {language.name}, of which only whole programs can be judged, by inputs and "
                "outputs: give it such tests, no completion_mode, or language python"
            )
        return suite, language

    def _compiled(self, columns: Mapping[str, Any]) -> Suite | Fault:
        return compile_suite(
            columns.get("tests"),
            columns.get("entry_point"),
            share=self.share,
            in_place=self._in_place(columns),
            cooperative=self.cooperative,
        )

    @property
    def _paying(self) -> Paying:
        return Paying(self.floor, self.share)

    # One way for each kind of suite

    async def _table(self, suite: Suite, code: bytes, context: Context, *, urgent: bool = False) -> Scored:
        hearing = TableHearing(_table_of(suite), share=self.share)
        header = {"share": self.share, "reply_bytes": self.limits.reply_bytes // 2}
        program = Program("table", code, (_calls(suite),), header=header)
        execution = await self.boundary.run(
            program, self.limits, listen=hearing.listen, fresh=context.fresh, urgent=urgent
        )
        tell(context, execution, limits=self.limits, more=hearing.evidence(code))
        passed, first = hearing.said() or (None, None)
        if passed is None or (passed < suite.planned and execution.limit is not None):
            return self._paying.ended(execution, hearing.fault)
        return self._paying.checks(passed, suite.planned, first and first.code, first and first.reason)

    async def _pairs(self, language: Language | None, suite: Suite, code: bytes, context: Context) -> Scored:
        given: dict[str, Any] = {"limits": self.limits, "context": context, "paying": self._paying}
        if language is None:
            return await run_pairs(self.boundary, Built(Program("program", code)), suite, **given)
        built = await build(self.boundary, language, code, **given)
        return built if isinstance(built, Scored) else await run_pairs(self.boundary, built, suite, **given)

    async def _judged(self, checks: Checks, code: bytes, context: Context, where: str) -> Scored:
        execution, opinion = await self.boundary.check(code, checks, self.limits, fresh=context.fresh)
        tell(context, execution, limits=self.limits, more=judged_check(opinion.check, code))
        if opinion.code == "gone" or (opinion.lost is not None and execution.limit not in {None, "protocol"}):
            return self._paying.ended(execution, "it ended before its tests did")
        if opinion.lost is not None:  # with its judge a candidate ends, too, and that is not its doing
            raise suspect(f"the judge was lost: {opinion.lost}", execution, ISOLATED)
        if opinion.code == "suite_error":
            raise RewardError(self.name, f"its tests fail by themselves: {opinion.reason}", row=where)
        if opinion.code is not None and execution.limit is not None:
            return self._paying.ended(execution, None)
        return self._opinion(opinion, ISOLATED)

    async def _together(self, suite: Suite, code: bytes, context: Context) -> Scored:
        """Run a suite beside the candidate: what it says can be forged, and the score says so."""
        nonce = token_hex(16)
        program = Program("cooperative", code, (suite.source,), header={"nonce": nonce, "share": self.share})
        execution = await self.boundary.run(program, self.limits, fresh=context.fresh)
        tell(context, execution, limits=self.limits)
        opinion = report_in(execution.replies, nonce)
        if opinion is None:
            return self._paying.ended(execution, "it ended before its tests did", integrity=COOPERATIVE)
        return self._opinion(opinion, COOPERATIVE)

    # From facts to verdicts

    def _opinion(self, opinion: Opinion, integrity: str) -> Scored:
        planned, passed = opinion.planned or 0, opinion.passed or 0
        if planned == 0 or (passed == planned and opinion.code is not None):
            return Scored(self.floor, opinion.code or "no_verdict", opinion.reason, integrity)
        code = "wrong_answer" if opinion.code == "wrong" else opinion.code
        return self._paying.checks(passed, planned, code, opinion.reason, integrity=integrity)


def tests(
    boundary: Boundary | str | None = None,
    *,
    share: bool = False,
    in_place: bool = False,
    cooperative: bool = False,
    language: str | Language = "python",
    languages: Mapping[str, Language | Mapping[str, Any]] | None = None,
    deadline: str = FIXED,
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
    language
        Of rows whose column `language` does not say it. Other than Python: programs that read standard input
        and write standard output, compiled once for each completion (`docs/languages.md`).
    languages
        Recipes of your own, by name: `file`, `run` and `hello`, `compile`, `makes`, ... as in `Language`.
    deadline
        Where its CPU limit comes from: `fixed`, as declared; below that `reference`, three times what the
        row's `reference` takes; or `adaptive`, what earlier steps showed as well (`docs/deadlines.md`).
    cpu_s, wall_s
        CPU seconds (2) and wall seconds (30) of an attempt; for pairs of each run.
    limits
        All limits at once.

    Raises
    ------
    RefusedError
        If no boundary was given, or there is none of that name; if there is no such language.
    """
    boundary = _place(boundary, cooperative=cooperative, deadline=deadline)
    given = _limited(limits or Limits(), cpu_s, wall_s)
    own = own_languages(languages or {}, "reward tests")
    meant = language if isinstance(language, Language) else spoken(language, own)
    if isinstance(meant, Fault):
        raise RefusedError(meant.reason, where="reward tests", remedy="or write a recipe: docs/languages.md")
    return UnitTests(boundary, given, share, in_place, cooperative, meant, own, deadline)


def _place(boundary: Boundary | str | None, *, cooperative: bool, deadline: str) -> Boundary:
    """Find the boundary, and refuse what cannot be meant."""
    if boundary is None:
        raise RefusedError(
            "it runs code that a model wrote, and no boundary to run it in was given",
            where="reward tests",
            remedy='--boundary bubblewrap on the command line, settings = { boundary = "bubblewrap" } in a '
            "recipe, builtin('tests', boundary='bubblewrap') or reward(..., boundary='bubblewrap') in Python",
        )
    if cooperative and find_spec("pytest") is None:
        raise RefusedError(
            "a cooperative suite runs under pytest, and pytest is not installed",
            where="reward tests:cooperative",
            remedy="pip install pytest beside steelyard",
        )
    if deadline not in RULES:
        raise RefusedError(
            f"there is no deadline {deadline!r}", where="reward tests", remedy=f"one of {', '.join(RULES)}"
        )
    return boundary_of(boundary)


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
