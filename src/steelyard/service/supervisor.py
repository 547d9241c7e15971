"""The scoring processes of a front: started, taken over from, replaced, ended.

At any time one process is asked (`scorer`), or none where none could be loaded; older ones finish what
they began. The front learns of a process by its first line and by its end, never by its silence.

Whatever keeps a recipe from being loaded stands in /health and on stderr, and ends nothing here. What the
machine lacked is tried again after a pause that doubles: where nobody judges, or a change is watched for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from steelyard.clock import Clock, Seconds
from steelyard.errors import RefusedError, describe
from steelyard.service.settings import Settings
from steelyard.service.wire import BUFFER, Stamp, next_frame, stamp
from steelyard.workers.pool import START_S
from steelyard.workers.process import interpreter_flags

GRACE_S: Final = 2.0
"""What runs may take to finish when the server is told to end."""

LOOKS_S: Final = 0.25
"""Between two looks at the files; one that looks alike twice is no longer being written."""

STEADY_S: Final = 10.0
"""A scoring process that lived as long is replaced at once, another after a pause that doubles."""

LONGEST_PAUSE_S: Final = 30.0


class _NotStartedError(RefusedError):
    """No process could be started: it is the machine's fault, not the recipe's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"it could not be started ({describe(error)})",
            where="scoring process",
            remedy="let the machine give it what it lacks: processes, open files, memory",
        )


@dataclass(eq=False)
class Scorer:
    """A scoring process, as the front sees it."""

    process: asyncio.subprocess.Process
    control: socket.socket
    facts: dict[str, Any]
    since: Seconds
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection for one request, and have it taken.

        Raises
        ------
        OSError, IncompleteReadError
            If the process has ended and took nothing, or takes no more.
        """
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack, theirs:
            stack.callback(ours.close)
            socket.send_fds(self.control, [b"\0"], [theirs.fileno()])
            reader, writer = await asyncio.open_connection(sock=ours, limit=BUFFER)
            stack.pop_all()
        try:
            await next_frame(reader)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    def retire(self) -> None:
        """Let it finish what it began, and end."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)


class Supervisor:
    """Keeps a scoring process at hand.

    Parameters
    ----------
    settings
        What is served.
    clock
        Time.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.scorer: Scorer | None = None
        self.reloaded = -1
        self.last: dict[str, Any] = {"at": None, "error": None}
        self._clock = clock
        self._alive: set[Scorer] = set()
        self._files: dict[str, Stamp] = {}
        self._begun = 0
        self._refused: RefusedError | None = None
        self._loading = asyncio.Lock()
        self._starting: asyncio.subprocess.Process | None = None
        self._pause_s: Seconds = 0.0
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def reload(self) -> Scorer:
        """Start a process that loads the recipe, and have it take over.

        Raises
        ------
        RefusedError
            If it cannot be loaded; whoever was asked until now still is.
        """
        asked = self._begun
        async with self._loading:
            if self._begun == asked:  # else it was loaded since we were asked
                self._begun += 1
                await self._load()
            if self._refused is not None:
                raise self._refused
            if self.scorer is None:
                raise RefusedError(
                    "it ended at once", where="scoring process", remedy="its words are on stderr"
                )
            return self.scorer

    async def _load(self) -> None:
        seen = {path: stamp(path) for path in self._files}
        try:
            process, control, facts = await self._started()
        except RefusedError as error:
            if not isinstance(error, _NotStartedError):  # else what has changed is still to be loaded
                self._files = seen
            self._note(error)
            return
        self._files = facts.pop("files")
        refused = facts.get("refused")
        if refused is not None:
            self._files = {**seen, **self._files}  # it may not have come to all that it would read
            control.close()
            await process.wait()
            self._note(RefusedError(**refused))
            return
        old, self.scorer = self.scorer, Scorer(process, control, facts, self._clock.unix())
        self.reloaded += 1
        self._note(None)
        self._alive.add(self.scorer)
        self.background(self._mourn(self.scorer))
        if old is not None:
            _say(f"reloaded: {facts['identity']} judges from now on, {old.facts['identity']} did")
            old.retire()
        if self._ending:
            self.scorer.retire()

    async def _started(self) -> tuple[asyncio.subprocess.Process, socket.socket, dict[str, Any]]:
        """Start a scoring process, and hear whether it is ready.

        Raises
        ------
        RefusedError
            If it cannot be started, or does not say.
        """
        try:
            process, ours = await self._spawned()
        except Exception as error:
            raise _NotStartedError(error) from error
        self._starting = process
        told, facts = b"", None
        try:
            with contextlib.suppress(TimeoutError, ValueError):
                async with asyncio.timeout(START_S):
                    while not told.endswith(b"\n") and (some := await _heard(ours)):
                        told += some
                facts = json.loads(told)
        finally:
            self._starting = None
            if facts is None:
                ours.close()
                _kill(process)
                code = await process.wait()
        if facts is not None:
            return process, ours, facts
        raise RefusedError(
            f"it was not ready within {START_S:g} s, or ended before ({_ended(code)})",
            where="scoring process",
            remedy="its words are on stderr",
        )

    async def _spawned(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """Start a process, with a socket to it."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack, theirs:
            stack.callback(ours.close)
            ours.setblocking(False)
            words = (theirs.fileno(), os.getpid(), self.settings.to_json(), self.reloaded + 1)
            process = await asyncio.create_subprocess_exec(
                sys.executable, *interpreter_flags(), "-m", "steelyard.service.scorer", *map(str, words),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's signals are for the front
            )  # fmt: skip
            stack.pop_all()
        return process, ours

    def _note(self, refused: RefusedError | None) -> None:
        self._refused = refused
        self.last = {"at": self._clock.unix(), "error": None if refused is None else str(refused)}
        if refused is not None and self.reloaded >= 0 and not self._ending:
            still = "nobody" if self.scorer is None else self.scorer.facts["identity"]
            _say(f"not reloaded, {still} still judges; {refused}")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Open a connection to the process at hand; `None` where none could be loaded.

        Where one has just ended, and before it took the request, its successor takes it.

        Raises
        ------
        OSError
            If it takes no more.
        """
        while True:
            if self.scorer is None:
                async with self._loading:  # its successor is being loaded
                    pass
            scorer = self.scorer
            if scorer is None:
                return None
            try:
                return await scorer.connect()  # nothing is awaited between the choice and the request's way
            except (ConnectionError, asyncio.IncompleteReadError):
                async with asyncio.timeout(GRACE_S):  # it has ended: soon that is known
                    await scorer.gone.wait()

    def background(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something beside; a refusal was said already."""

        async def quietly() -> None:
            with contextlib.suppress(RefusedError):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _mourn(self, scorer: Scorer) -> None:
        """Wait for a process's end, and replace it if it was not told to end."""
        code = await scorer.process.wait()
        scorer.control.close()
        self._alive.discard(scorer)
        scorer.gone.set()
        if self.scorer is not scorer or self._ending:
            return
        self.scorer = None
        _say(
            f"the scoring process ended by itself ({_ended(code)}) and is replaced; what it was asked is lost"
        )
        if self._clock.unix() - scorer.since >= STEADY_S:
            self._pause_s = 0.0
        while self.scorer is None:
            if self._pause_s:  # else the successor is loaded before anybody asks: see `connect`
                await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s or LOOKS_S, LONGEST_PAUSE_S)
            with contextlib.suppress(RefusedError):
                await self.reload()

    async def watch(self) -> None:
        """Reload whenever a file that was read, or was to be read, has changed and is left alone."""
        before: dict[str, Stamp] = {}
        pause_s = LOOKS_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s, tried_s = LOOKS_S, pause_s
            now = {path: stamp(path) for path in self._files}
            if now == before and now != self._files:
                try:
                    await self.reload()
                except _NotStartedError:
                    pause_s = min(2 * tried_s, LONGEST_PAUSE_S)
                except RefusedError:
                    pass
            before = now

    async def end(self) -> None:
        """Let what runs finish within the grace, then end it."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        if self._starting is not None:
            _kill(self._starting)
        for scorer in self._alive:
            scorer.retire()
        ends = [asyncio.ensure_future(scorer.process.wait()) for scorer in self._alive]
        if ends:
            await asyncio.wait(ends, timeout=GRACE_S)
            for scorer in self._alive:
                _kill(scorer.process)
            await asyncio.wait(ends)
        for scorer in self._alive:
            scorer.control.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # process.kill() may reap it, and lose its exit code


async def _heard(control: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(control, BUFFER)
    except OSError:
        return b""


def _ended(code: int) -> str:
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"exit code {code}"


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more, or the disk is full
        sys.stderr.write(f"steelyard: {words}\n")
        sys.stderr.flush()
