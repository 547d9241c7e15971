"""Where slots are that this machine's kernel does not hold: a site starts a command, and is a line to it.

A site knows one vendor: how a container or a remote sandbox is made, how a command is started in it, and how
both are ended. It knows nothing of programs: what is said over a line is the business of `remote.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from steelyard.sandbox.pool import Mould


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
