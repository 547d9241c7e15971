"""A line to a command of this machine, and its end.

What is killed is the whole process group of the command; what else keeps a container alive is for its site to
end. Standard error is kept in a file, its end only.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from steelyard.clock import Seconds
from steelyard.errors import SandboxError

_READ = 1 << 18
_SAID = 2_000


class ProcessLine:
    """A `steelyard.sandbox.site.Line` to a process that was started here.

    Parameters
    ----------
    process
        Started with pipes, in a session of its own.
    errors
        The file that its standard error goes to.
    end
        Ends what the process alone does not take along.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        errors: int,
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self._process = process
        self._errors = errors
        self._end = end

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        end: Callable[[], Awaitable[None]],
        folder: str | None = None,
    ) -> ProcessLine:
        """Start a command, in a folder of its own if one is said: some leave notes where they stand.

        Raises
        ------
        SandboxError
            If it cannot be started.
        """
        errors = os.memfd_create("steelyard", os.MFD_CLOEXEC)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=folder,
            )
        except OSError as error:
            os.close(errors)
            raise SandboxError("sandbox", f"{command[0]} cannot be started: {error}") from error
        except BaseException:
            os.close(errors)
            raise
        return cls(process, errors, end)

    async def send(self, data: bytes) -> None:
        """Write to its standard input: see `Line`."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise ConnectionError("its standard input is closed")
        stdin.write(data)
        await stdin.drain()

    async def receive(self) -> bytes:
        """Read some of its standard output: see `Line`."""
        stdout = self._process.stdout
        return b"" if stdout is None else await stdout.read(_READ)

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        if self._errors < 0:
            return ""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _SAID, max(0, size - _SAID)).decode(errors="replace").strip()
        return "; ".join([line.strip() for line in text.splitlines() if line.strip()][-3:])

    async def close(self) -> None:
        """End it: see `Line`."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._end()
            await asyncio.gather(self._drained(), self._process.wait())
        finally:
            if self._errors >= 0:
                os.close(self._errors)
                self._errors = -1

    async def _drained(self) -> None:
        """Read what nobody reads any more: a process is waited for until its pipes are read to their end."""
        with suppress(RuntimeError):  # whoever reads now reads it to its end
            while await self.receive():
                pass


async def ran(command: Sequence[str], within_s: Seconds) -> tuple[int | None, str]:
    """Run a short command to its end; its status and what it said, or `None` if it had to be killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return None, str(error)
    try:
        async with asyncio.timeout(within_s):
            said, _ = await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return None, f"no answer within {within_s:g} s"
    return process.returncode, said.decode(errors="replace").strip()
