"""Containers that a command starts: Docker, Podman, or whatever runs a command in a container.

A place is `COMMAND python3 ...`: the command is a prefix such as `docker run --rm -i IMAGE`, and must hand
standard input and output through. The image needs a Python of 3.11 or newer, and nothing of ours: the runner
comes over standard input. The container's command must be root (without most of root's rights: see `ROOT`),
for the runner makes each candidate a user of its own; anybody else would need user namespaces inside, which
Docker and Podman forbid.

Covers what the container does: the file system is the image's, of which a candidate can write nothing that
lasts, the network is none, processes and users are the container's own; and what the runner does in it: a
user of no rights for each candidate, a list of system calls, landlock where the kernel has it, limits of each
process, CPU and idle time, nothing left behind by one candidate for the next.

Does not cover: faults of the machine's kernel; side channels; the time of day; other processes of the
container can be seen, though not touched; the runner shares the container's memory with its candidate, so a
lost line is suspect. With a prefix of your own the options are yours to choose: what its network is, and what
it may use as a whole, nobody checks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from steelyard.errors import RefusedError
from steelyard.execution import MIB
from steelyard.sandbox.machine import run as asked
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.process import ProcessLine, ran
from steelyard.sandbox.processes import ourselves
from steelyard.sandbox.site import Line, Traits

ROOT: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""The rights that root needs inside: to make users, and to end and clear what they leave."""

BOOT_S: Final = 300.0
"""How long a container may take to start: its image may have to be fetched."""

_REMEDY: Final = "see what the command says by itself, with python3 --version behind it"
_BESIDE: Final = 1_024 * MIB
"""Memory of a container beside its candidate's: the runner, two fork servers, a judge with its tests."""
_PROCESSES: Final = 64
_ENDS_S: Final = 1.5
_NUMBERS: Final = count(1)


def container_command(program: str, image: str, options: Sequence[str] = ()) -> list[str]:
    """The prefix that starts a container which holds, with Docker or Podman.

    Parameters
    ----------
    program
        `docker` or `podman`, or their path.
    image
        An image with Python.
    options
        Further options of `run`.

    Examples
    --------
    >>> container_command("podman", "python:3.12-slim")[:4]
    ['podman', 'run', '--rm', '--interactive']
    """
    rights = [word for right in ROOT for word in ("--cap-add", right)]
    memory = [word for place in ("/run", "/tmp", "/box") for word in ("--tmpfs", f"{place}:{_tmpfs(place)}")]  # noqa: S108
    return [
        program, "run", "--rm", "--interactive", "--name", "{name}", "--network", "none", "--user", "0",
        *memory, "--cap-drop", "ALL", *rights, "--security-opt", "no-new-privileges",
        "--memory", "{memory_bytes}", "--memory-swap", "{memory_bytes}", "--pids-limit", "{processes}",
        *options, image,
    ]  # fmt: skip


def _tmpfs(place: str) -> str:
    mode = {"/run": "755", "/box": "711"}.get(place, "1777")
    return f"rw,exec,nosuid,nodev,mode={mode},size={{file_bytes}}"


def default_image() -> str:
    """The image of this Python's version."""
    return f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"


class CommandSite:
    """Makes places with a command.

    Parameters
    ----------
    command
        The prefix. `{name}`, `{memory_bytes}`, `{processes}` and `{file_bytes}` in it are replaced: by a name
        that no other container has, and by what the container as a whole may use.
    name
        The boundary's name.
    end
        The command that ends the container of that name, whatever its client did; `PROGRAM rm --force {name}`
        if the prefix is one of Docker's or Podman's that names it.
    traits
        What its places are like. Memory is counted as a whole if the prefix says `{memory_bytes}`.
    remedy
        What to do if none can be made.

    Raises
    ------
    RefusedError
        If the program is not there.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "container",
        end: Sequence[str] | None = None,
        traits: Traits | None = None,
        remedy: str = "",
    ) -> None:
        if not command or shutil.which(command[0]) is None:
            program = command[0] if command else "no program"
            raise RefusedError(
                f"there is no {program}",
                where=f"boundary {name}",
                remedy=f"install {program}, or name another command",
            )
        self.name = name
        self._command = list(command)
        if end is None and any("{name}" in word for word in command):
            at_once = ["--time", "0"] if Path(command[0]).name == "podman" else []  # Docker does not wait
            end = [command[0], "rm", "--force", *at_once, "{name}"]
        self._end = list(end or ())
        counted = any("{memory_bytes}" in word for word in command)
        traits = traits or Traits(boot_s=BOOT_S)
        self.traits = traits._replace(counted=counted, remedy=remedy or traits.remedy or _REMEDY)
        self._open: set[str] = set()
        self._folder: str | None = None

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could."""
        return f"{self.name}/1:{' '.join(self._command)}"

    def facts(self) -> Mapping[str, str]:
        """What is known of the outside."""
        _status, said = asked(self._command[0], "--version")
        first = next(iter(said.splitlines()), "?")
        return {"program": f"{first}, {shutil.which(self._command[0])}", "command": " ".join(self._command)}

    async def open(self, command: Sequence[str], mould: Mould) -> Line:
        """Start a container: see `steelyard.sandbox.site.Site`."""
        name = f"{ourselves().named(os.getpid())}-{next(_NUMBERS)}"
        words = {
            "name": name,
            "memory_bytes": str(mould.memory_bytes + _BESIDE),
            "processes": str(mould.processes + _PROCESSES),
            "file_bytes": str(mould.file_bytes + 16 * MIB),
        }
        self._open.add(name)
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix=ourselves().named(""))

        async def end() -> None:
            await self._ended(name)

        argv = [*_filled(self._command, words), *command]
        try:
            return await ProcessLine.start(
                argv, end, self._folder
            )  # conmon notes there that memory was short
        except BaseException:  # called off, too
            await asyncio.shield(end())
            raise

    async def _ended(self, name: str) -> None:
        """End a container; one that could not be ended is tried again at the site's end."""
        if name in self._open:
            status, _said = await ran(_filled(self._end, {"name": name}), _ENDS_S) if self._end else (0, "")
            if status == 0:
                self._open.discard(name)

    async def close(self) -> None:
        """End whatever is left."""
        await asyncio.gather(*(self._ended(name) for name in self._open))
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _filled(command: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Replace the words in braces; braces of other kinds stay as they are."""
    filled = []
    for given in command:
        word = given
        for name, value in words.items():
            word = word.replace(f"{{{name}}}", value)
        filled.append(word)
    return filled
