"""The runner: what a container runs, so that programs need no way to the host and back for each step.

It is a boundary of one slot (`warm`) behind standard input and output: it forks, confines and watches guests
as a host does, enforces their limits, and tells what became of them. When standard input ends, everything
ends. Its own descriptors are kept from guests, whose standard streams are files of theirs.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from steelyard.clock import SystemClock
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import Limits
from steelyard.sandbox import telling
from steelyard.sandbox.guest import frames
from steelyard.sandbox.inside import Inside
from steelyard.sandbox.slot import Guest
from steelyard.sandbox.warm import Warm


def main() -> None:
    """Serve until standard input ends; never returns."""
    asked, told = os.dup(0), os.dup(1)  # not inherited
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    asyncio.run(_serve(asked, told))
    os._exit(0)  # whatever is left dies with its first process


async def _serve(asked: int, told: int) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(asked, "rb"))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(told, "wb")
    )
    runner = _Runner(asyncio.StreamWriter(transport, protocol, None, loop))
    reader = frames.Reader(telling.LONGEST)
    try:
        while data := await stream.read(1 << 20):
            for frame in reader.feed(data):
                runner.take(*telling.read(frame))
    finally:
        await runner.close()


class _Runner:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._settings: Mapping[str, Any] = {}
        self._warm: Warm | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = False
        self._guest: Guest | None = None
        self._enough = False
        self._replies: list[bytes] = []

    def take(self, what: str, told: Mapping[str, Any], parts: list[bytes]) -> None:
        if what == "settings":
            self._settings = told
        elif what == "enough":
            self._enough = True
            if self._guest is not None:
                self._guest.kill()
        elif self._busy:
            raise ValueError(f"{what!r} before the last request was answered")
        else:
            self._guest, self._enough, self._busy = None, False, True
            task = asyncio.create_task(self._answer(what, told, parts))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(_end_with)

    async def _answer(self, what: str, told: Mapping[str, Any], parts: list[bytes]) -> None:
        do = {"attest": self._attest, "run": self._run, "check": self._check}[what]
        try:
            if self._warm is None:
                self._warm = _opened(self._settings)
            said = await do(self._warm, told, parts)
        except RefusedError as error:
            said = telling.message("refused", {"reason": error.reason, "remedy": error.remedy})
        except SandboxError as error:
            said = telling.message(
                "never", {"cause": error.cause, "clocks": telling.clocks_told(error.clocks)}
            )
        self._busy = False  # whoever has read the answer may ask again, though we still wait for the pipe
        self._writer.write(said)
        await self._writer.drain()

    async def _attest(self, warm: Warm, told: Mapping[str, Any], _parts: list[bytes]) -> bytes:
        return telling.message("facts", {"facts": dict(await warm.attest(Limits(**told["limits"])))})

    async def _run(self, warm: Warm, told: Mapping[str, Any], parts: list[bytes]) -> bytes:
        def listen(frame: bytes) -> bool:
            if not self._replies:
                loop.call_soon(self._reply)  # what has come by then goes together
            self._replies.append(frame)
            return self._enough  # which is for the host to say

        def given_to(guest: Guest) -> None:
            self._guest = guest

        loop = asyncio.get_running_loop()
        program = telling.program_read(told, parts)
        score = _scoring(warm, program.source, told)
        execution = await warm.run(program, Limits(**told["limits"]), listen=listen, given_to=given_to)
        self._reply()
        said, written = telling.execution_told(execution)
        return telling.message("ended", {**said, **score()}, *written)

    def _reply(self) -> None:
        if self._replies and not self._enough:
            self._writer.write(telling.message("reply", {}, *self._replies))
        self._replies.clear()

    async def _check(self, warm: Warm, told: Mapping[str, Any], parts: list[bytes]) -> bytes:
        source, checks = telling.checks_read(told, parts)
        score = _scoring(warm, source + checks.source, told)
        execution, opinion = await warm.check(source, checks, Limits(**told["limits"]))
        said, written = telling.execution_told(execution, opinion)
        return telling.message("ended", {**said, **score()}, *written)

    async def close(self) -> None:
        if self._warm is not None:
            await self._warm.close()


def _scoring(warm: Warm, source: bytes, told: Mapping[str, Any]) -> Callable[[], dict[str, float]]:
    """Ask for a calibration, if the host did; what it then is goes with the answer."""
    if not told.get("calibrate"):
        return dict
    warm.score(source)  # from now on slots spin
    return lambda: {"score": warm.score(source)}


def _opened(told: Mapping[str, Any]) -> Warm:
    clock = SystemClock()
    house = Inside(
        first_user=told["first_user"],
        packages=tuple(told["packages"]),
        counted=told["counted"],
        emulated=told["emulated"],
        root=told["root"],
        clock=clock,
    )
    preload = tuple(told["preload"])
    return Warm(told["name"], lambda: house, preload=preload, slots=1, judges=1, clock=clock)


def _end_with(task: asyncio.Task[None]) -> None:
    """A fault of ours is no answer: end, and say why to whoever reads standard error."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)
        os._exit(1)
