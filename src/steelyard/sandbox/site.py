"""Where slots are that this machine's kernel does not hold: a site starts a command, and is a line to it.

A site knows one vendor: how a container or a remote sandbox is made, how a command is started in it, and how
both are ended. It knows nothing of programs: what is said over a line is the business of `remote.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from steelyard.clock import Seconds
from steelyard.sandbox.pool import Mould


class Traits(NamedTuple):
    """What a site's places are like.

    Parameters
    ----------
    python
        The interpreter in them.
    packages
        Where candidates may import from, if not where that interpreter has its packages.
    counted
        Whether the kernel ends single processes when all in a place together use too much memory; else each
        process has a limit of its own.
    emulated
        Whether the kernel in a place is gVisor's, which counts CPU time in its own way.
    first_user
        From which number on candidates are users, where the runner is root; one for each place if not given.
    boot_s
        How long a place may take from its command's start to its proof.
    remedy
        What to do if none can be made.
    """

    python: str = "python3"
    packages: tuple[str, ...] = ()
    counted: bool = False
    emulated: bool = False
    first_user: int | None = None
    boot_s: Seconds = 60.0
    remedy: str = ""


class Line(Protocol):
    """Standard input and output of a command in a place of its own, and the place's end."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input.

        Raises
        ------
        ConnectionError
            If it cannot be reached any more.
        """

    async def receive(self) -> bytes:
        """Read some of what it wrote to its standard output; nothing when it has ended.

        Raises
        ------
        ConnectionError
            If it cannot be reached any more, though nobody knows whether it has ended.
        """

    def said(self) -> str:
        """The end of what it wrote to standard error, for whoever asks why it ended."""

    async def close(self) -> None:
        """End it, and its place: within two seconds, nothing left."""


class Site(Protocol):
    """Makes places, one for each slot."""

    @property
    def name(self) -> str:
        """The boundary's name on the command line and in records."""

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could: the kind of place, its image."""

    @property
    def traits(self) -> Traits:
        """What its places are like."""

    def facts(self) -> Mapping[str, str]:
        """What is known of the outside: program, version, image."""

    async def open(self, command: Sequence[str], mould: Mould) -> Line:
        """Make a place for these limits, and start a command in it.

        The command reads standard input; none of its arguments is long.

        Raises
        ------
        RefusedError
            If no place can be made until somebody changes something: a program, a right, a key.
        SandboxError
            If none can be made just now.
        """

    async def close(self) -> None:
        """End whatever is left: within two seconds."""
