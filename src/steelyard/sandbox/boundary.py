"""The protocol of an isolation boundary: model-written code goes in, facts come out.

A boundary runs *programs*. It knows no tests, no expected value and no verdict; it enforces limits, keeps
clocks, and leaves nothing running. Programs wait for a slot inside it; that is `queued_s` in their clocks.
What it raises is attributed: `RefusedError` when it does not hold on this machine, `SandboxError` when a
program never started; everything after a program's first instruction is an `Execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from steelyard.execution import Execution, Limits


class Program(NamedTuple):
    """What a candidate's process is given.

    Parameters
    ----------
    mode
        `table` (call its functions), `program` (run it as a script), `cooperative` (under pytest), `build`
        (compile it with a command) or `command` (run files by one): `guest/command.py`.
    source
        The candidate's source.
    frames
        What the mode needs besides: the calls of a table, the tests of a cooperative run, a command's files.
    stdin
        Standard input.
    header
        Settings of the mode.
    """

    mode: str
    source: bytes
    frames: tuple[bytes, ...] = ()
    stdin: bytes = b""
    header: Mapping[str, object] = {}

    @property
    def apart(self) -> bool:
        """Whether it reads standard input, and its two outputs are told apart and kept whole."""
        return self.mode in {"program", "command"}


class Checks(NamedTuple):
    """A suite that a judge process checks a candidate with.

    Parameters
    ----------
    digest
        Names the suite: its judge is kept for further candidates.
    source
        The tests.
    entry_point
        The function that `check(candidate)` is given; empty where there is none.
    header
        Settings: `share` (go on after a failed assert), `in_place`.
    """

    digest: str
    source: bytes
    entry_point: str = ""
    header: Mapping[str, object] = {}


class Opinion(NamedTuple):
    """What a judge process said of a candidate, or why it said nothing.

    Parameters
    ----------
    planned, passed
        Checks that the suite holds, and those that were executed and hold; `None` without an answer.
    code, reason
        Why not all passed: `wrong_answer`, `exception`, `load_error`, ...; `None` if all did.
    lost
        What happened to the judge, if it gave no answer.
    check
        What is known of the first check that failed, as texts and numbers.
    """

    planned: int | None = None
    passed: int | None = None
    code: str | None = None
    reason: str | None = None
    lost: str | None = None
    check: Mapping[str, object] = {}


class Boundary(Protocol):
    """A place where model-written code can do no harm."""

    @property
    def name(self) -> str:
        """The word for it on the command line and in records."""

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could."""

    async def attest(self, limits: Limits | None = None) -> Mapping[str, str]:
        """Prove from inside that it holds, also under these limits; return the facts.

        Raises
        ------
        RefusedError
            If it does not, with the fact, the value seen and the way out.
        """

    async def run(
        self,
        program: Program,
        limits: Limits,
        *,
        listen: Callable[[bytes], bool] | None = None,
        fresh: bool = False,
        urgent: bool = False,
    ) -> Execution:
        """Run a program in a slot.

        Parameters
        ----------
        program
            What to run.
        limits
            What it may use.
        listen
            Takes each frame that it sends as it comes; true = enough, and the program is ended.
        fresh
            Whether to run it in a slot that has never run anything.
        urgent
            Whether to run it at once, whoever waits.

        Raises
        ------
        SandboxError
            If it never started.
        """

    async def check(
        self, source: bytes, checks: Checks, limits: Limits, *, fresh: bool = False
    ) -> tuple[Execution, Opinion]:
        """Have a judge process in another slot check a candidate; as `run` else.

        Raises
        ------
        SandboxError
            If either never started.
        """

    async def close(self) -> None:
        """End everything, within two seconds."""
