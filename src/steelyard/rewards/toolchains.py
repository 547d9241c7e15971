"""Compile a candidate once, behind the boundary and under limits of its own; carry what was made to each run.

A compiler reads hostile text: it runs where candidates run, and what it uses up, the candidate did. What it
made are bytes that this side only hands on. Before that, each toolchain has compiled and run its `hello`
under the same limits: one that is absent or broken refuses the run, or stops it, and is nobody's floor.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from steelyard.blame import ending
from steelyard.clock import Clocks
from steelyard.errors import RefusedError, SandboxError, SuspectError
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, Scored
from steelyard.rewards.facts import ISOLATED, Paying, tell
from steelyard.rewards.languages import HELLO, Language
from steelyard.sandbox import Boundary, Program

_TRIES: Final = 2
_ERROR: Final = re.compile(rb"^.*(?:\b[Ee]rror\b|undefined reference).*$", re.MULTILINE)
_LIMITS: Final = {int(signal.SIGXFSZ): "files", int(signal.SIGXCPU): "cpu"}


class Built(NamedTuple):
    """A program that can be run, and what compiling it took."""

    program: Program
    clocks: Clocks | None = None


async def build(
    boundary: Boundary, language: Language, source: bytes, *, limits: Limits, context: Context, paying: Paying
) -> Built | Scored:
    """Compile a source, if its language is compiled.

    Parameters
    ----------
    boundary, language, source
        Where, how and what.
    limits
        Those of its runs: what is made must fit there.
    context, paying
        The attempt's.

    Raises
    ------
    SandboxError
        If the compiler never began.
    SuspectError
        If contact with it was lost, or it ran into the wall.
    """
    if not language.compile:
        return Built(_runs(language, (language.file.encode(), source), limits))
    most = min(language.limits.reply_bytes, limits.file_bytes) // 2
    header = {**_header(language, language.compile, language.limits), "file": language.file}
    program = Program("build", source, header={**header, "makes": language.makes, "most": most})
    execution = await boundary.run(program, language.limits, fresh=context.fresh)
    tell(context, execution, limits=language.limits)
    if execution.ended is not Ended.EXIT or ending(execution) not in {"exit", None}:
        return paying.ended(execution, None, where="compiling: ")
    if execution.code:
        return Scored(paying.floor, "load_error", _first_error(execution), ISOLATED)
    what, *made = execution.replies or (b"",)
    if what == b"large" and made:
        words = f"{int(made[0]):,} bytes were compiled of it, at most {most:,} are run"
        return Scored(paying.floor, "files", words, ISOLATED)
    if what != b"made" or not made or len(made) % 2:
        words = f"nothing that is called {language.makes} was compiled of it"
        return Scored(paying.floor, "load_error", words, ISOLATED)
    return Built(_runs(language, made, limits), execution.clocks)


def seen(execution: Execution, limits: Limits) -> Execution:
    """What became of a command: its guest tells of the signal that ended it, and leaves with a status."""
    last = execution.replies[-1] if execution.replies else b""
    if execution.ended is not Ended.EXIT or not last.startswith(b'["signal",'):
        return execution
    number = int(last[10:-1])
    limit = _LIMITS.get(number)
    if number == signal.SIGKILL and execution.evidence.get("memory_kills"):
        limit = "memory"
    elif number == signal.SIGKILL and (execution.clocks.cpu_s or 0.0) >= limits.cpu_s:
        limit = "cpu"
    if limit is not None:
        return replace(execution, ended=Ended.LIMIT, code=None, limit=limit)
    return replace(execution, ended=Ended.SIGNAL, code=number)


def unusable(language: Language, fault: str) -> RefusedError:
    """Make the error of a toolchain that does not work where candidates run."""
    return RefusedError(
        f"programs in it cannot be judged: {fault}",
        where=f"reward tests, language {language.name}",
        remedy="install its toolchain below /usr, which candidates see, or write a recipe of your own with "
        "the paths and limits that it needs (docs/languages.md)",
    )


class Proofs:
    """Which toolchains have shown that they work in a boundary."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    def __reduce__(self) -> tuple[type[Proofs], tuple[()]]:
        """What was shown here says nothing in another process."""
        return Proofs, ()

    async def fault(self, boundary: Boundary, language: Language, limits: Limits) -> str | None:
        """Say why programs in a language cannot be run, or `None`; asked once.

        Raises
        ------
        SandboxError
            If the boundary could not start its `hello`, for another reason than its absence.
        """
        asked = self._asked.get(language.name)
        loop = asyncio.get_running_loop()
        if (
            asked is None
            or (asked.done() and (asked.cancelled() or asked.exception()))
            or (not asked.done() and asked.get_loop() is not loop)
        ):
            asked = self._asked[language.name] = loop.create_task(_fault(boundary, language, limits))
        return await asyncio.shield(asked)


async def _fault(boundary: Boundary, language: Language, limits: Limits) -> str | None:
    fault = ""
    for attempt in range(_TRIES):
        context = Context(fresh=attempt > 0)
        try:
            fault = await _hello(boundary, language, limits, context)
        except SandboxError as error:
            if "FileNotFoundError" not in error.cause:
                raise
            return error.cause.removeprefix("FileNotFoundError: ")
        except SuspectError as error:
            fault = str(error)
        if not fault:
            return None
    return fault


async def _hello(boundary: Boundary, language: Language, limits: Limits, context: Context) -> str:
    """Compile and run the language's own program; say what is wrong with what came of it."""
    built = await build(
        boundary,
        language,
        language.hello.encode(),
        limits=limits,
        context=context,
        paying=Paying(0.0, share=False),
    )
    if isinstance(built, Scored):
        return f"its hello does not compile: {built.reason}"
    execution = seen(await boundary.run(built.program, limits, fresh=context.fresh, urgent=True), limits)
    if execution.ended is Ended.EXIT and execution.code == 0 and execution.stdout == HELLO.encode():
        return ""
    said = (execution.stderr or execution.stdout)[-300:].decode(errors="replace").strip()
    how = execution.limit or f"{execution.ended.value} {execution.code}"
    return f"its hello does not run ({how}): {said or 'it wrote nothing'}"


def _header(language: Language, command: Sequence[str], limits: Limits) -> dict[str, object]:
    memory = str(limits.memory_bytes >> 20)
    words = [word.replace("{memory_mib}", memory) for word in command]
    return {"command": words, "environment": dict(language.environment)}


def _runs(language: Language, files: Sequence[bytes], limits: Limits) -> Program:
    return Program("command", b"", tuple(files), header=_header(language, language.run, limits))


def _first_error(execution: Execution) -> str:
    said = execution.stdout
    found = _ERROR.search(said)
    line = found[0] if found else next(filter(None, map(bytes.strip, said.split(b"\n"))), b"")
    words = line.decode(errors="replace").strip()[:300]
    return words or f"the compiler ended with exit status {execution.code}, and said nothing"
