"""The parent's side of one worker process: start it, ask it, end it, and say what became of an item.

Three things join the two sides. *Talk*, a socket: pickled messages out, records back. *Life*, a
socket that the keeper holds (`child.py`): shut it and all of them die; its last bytes are the
worker's exit status. *Shared memory*: what the worker is at, and results not sent yet.

So whatever a process dies of, every item that finished has its result, one item has the blame or
none has, and the others were never started.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steelyard.clock import Clock, Seconds, Timer
from steelyard.errors import describe
from steelyard.workers import child
from steelyard.workers.ends import Cut, Died, Failure, NotStarted, Outcome, Raised

KEEPER_GRACE_S = 0.5
"""How long a keeper may take to end its worker before the parent does it over its head."""

KEPT_ENVIRONMENT = frozenset(
    ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
)
"""What a scrubbed process sees: no token, no proxy, no home."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker of a pool runs, and under which limits: see `WorkerPool`."""

    target: str
    given: bytes | None
    cpu_s: Seconds | None
    wall_s: Seconds | None
    memory_bytes: int | None
    confined: bool


class WorkerProcess:
    """One process that answers one message at a time.

    Parameters
    ----------
    clock
        Where time comes from.
    scrubbed
        Whether it sees only what an interpreter needs of the environment.
    on_gone
        Called once, in the event loop, when the process and its group have ended.
    """

    def __init__(
        self, clock: Clock, on_gone: Callable[[WorkerProcess], None], *, scrubbed: bool = False
    ) -> None:
        self._clock = clock
        self._on_gone = on_gone
        self._environment = {
            name: value for name, value in os.environ.items() if not scrubbed or name in KEPT_ENVIRONMENT
        }
        self._loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        self._gone_at: Seconds = 0.0
        self._orphaned = False
        self._shut = False
        self._asking = False
        self._serial = 0
        self._sent_at: Seconds = 0.0
        self._offset: Seconds | None = None
        self._wall_s: Seconds | None = None
        self._overdue: float | None = None
        self._timer: Timer | None = None
        self._last_resort: Timer | None = None
        self._last_words = b""
        self._start()

    def _start(self) -> None:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            talk, their_talk = socket.socketpair()
            ours.enter_context(talk)
            theirs.enter_context(their_talk)
            life, their_life = socket.socketpair()
            ours.enter_context(life)
            theirs.enter_context(their_life)
            descriptor = shared_file()
            theirs.callback(os.close, descriptor)
            self._shared = ours.enter_context(mmap.mmap(descriptor, child.SHARED_BYTES))
            passed = (their_talk.fileno(), their_life.fileno(), descriptor)
            self._process = subprocess.Popen(  # noqa: S603 (our own file, our own interpreter)
                [sys.executable, *interpreter_flags(), str(Path(child.__file__))]
                + [str(number) for number in (*passed, os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**self._environment, "PYTHONHASHSEED": "0"},
                pass_fds=passed,
                start_new_session=True,
            )
            ours.pop_all()
        self._page = memoryview(self._shared)[: child.CELLS * 8].cast("d")
        self._talk, self._life = talk, life
        talk.setblocking(False)
        life.setblocking(False)
        self._loop.add_reader(life.fileno(), self._hear)

    @property
    def usable(self) -> bool:
        """Whether another message may be sent."""
        return not (self._shut or self.gone.is_set())

    async def prepare(self, job: Job, *, within_s: Seconds) -> Failure | None:
        """Have the target imported; say why it could not be."""
        setup: child.Setup = (
            sys.path, job.target, job.given, job.cpu_s, job.memory_bytes, job.confined,
        )  # fmt: skip
        found = await self.ask([pickle.dumps(setup)], wall_s=within_s)
        outcome = found.get(0, Outcome(failure=NotStarted("it was ended from outside")))
        if outcome.failure is None and isinstance(outcome.value, float):
            # Learnt a little late, so an item's age is a little too low: never cut too early.
            self._offset = self._clock.now() - outcome.value
        else:
            self.cut()
        return outcome.failure

    async def ask(
        self,
        blobs: Sequence[bytes],
        *,
        wall_s: Seconds | None,
        queued_s: Seconds | None = None,
        times: int = 1,
    ) -> dict[int, Outcome]:
        """Run the items; where the process dies, those not in the answer were never started.

        `times` multiplies the CPU limit of each item, `wall_s` is the wall limit of each.

        Cancelled, it takes the process with it.
        """
        found: dict[int, Outcome] = {}
        self._serial += 1
        self._sent_at = self._clock.now()
        self._wall_s = wall_s
        self._overdue = None
        self._asking = True
        self._watch(wall_s)
        try:
            with contextlib.suppress(OSError):  # it died while we spoke: what it left is read below
                await self._loop.sock_sendall(self._talk, pickle.dumps((self._serial, times, blobs)))
                await self._listen(found, len(blobs), queued_s)
            if len(found) < len(blobs):
                await self.gone.wait()
                self._settle(found, queued_s)
        except BaseException:
            self.cut()
            raise
        finally:
            self._asking = False
            if self._timer is not None:
                self._timer.cancel()
            self._close_if_done()
        return found

    async def _listen(self, found: dict[int, Outcome], expected: int, queued_s: Seconds | None) -> None:
        unread = bytearray()
        while len(found) < expected:
            data = await self._loop.sock_recv(self._talk, 1 << 18)
            if not data:
                return
            unread += data
            del unread[: read_records(unread, found, queued_s, self._offset)]

    def _settle(self, found: dict[int, Outcome], queued_s: Seconds | None) -> None:
        """Read what the dead process left, and give the item that it died in its end."""
        if self._page[child.SERIAL] != self._serial:
            return
        used = int(self._page[child.USED])
        read_records(self._shared[child.FIRST_RECORD : used], found, queued_s, self._offset)
        index = int(self._page[child.INDEX])
        failure, cpu_s = self._end()
        if index < 0 or index in found or failure is None:
            return
        found[index] = Outcome(
            failure=failure,
            queued_s=queued_s,
            service_s=max(0.0, self._gone_at - self._started_at()),
            cpu_s=None if cpu_s is None else max(0.0, cpu_s - self._page[child.CPU]),
            began_s=self._started_at(),
        )

    def _end(self) -> tuple[Failure | None, Seconds | None]:
        """Why it ended, and its CPU time; no failure where the item in it was not the reason."""
        if len(self._last_words) != child.LAST_WORDS.size:
            # The keeper was killed, and not by us: whatever ran may have done it.
            return (Died(signal=signal.SIGKILL) if self._orphaned else None), None
        code, cpu_s = child.LAST_WORDS.unpack(self._last_words)
        if code == -signal.SIGPROF:
            return Cut("cpu"), cpu_s
        if code == -signal.SIGKILL and self._shut:
            # The overdue item may have finished between our look and the blow: the next one is innocent.
            guilty = self._overdue is not None and self._overdue == self._page[child.STARTED]
            return (Cut("wall") if guilty else None), cpu_s
        return (Died(signal=-code) if code < 0 else Died(code=code)), cpu_s

    def _started_at(self) -> Seconds:
        """When the current item started, by the parent's clock; until one has, when we asked."""
        if self._offset is None or self._page[child.SERIAL] != self._serial:
            return self._sent_at
        return self._page[child.STARTED] + self._offset

    def _watch(self, delay_s: Seconds | None) -> None:
        self._timer = None if delay_s is None else self._clock.call_later(delay_s, self._look)

    def _look(self) -> None:
        if self.gone.is_set() or self._wall_s is None:
            return
        started = self._page[child.STARTED]
        left_s = self._wall_s - (self._clock.now() - self._started_at())
        if left_s > 0:
            self._watch(left_s)
        else:
            self._overdue = started
            self.cut()

    def leave(self) -> None:
        """Ask an idle process to end by itself: its exit handlers run."""
        with contextlib.suppress(OSError):
            self._talk.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End it now, and its group. Returns at once: `gone` is set when it is."""
        if self.usable:
            self._shut = True
            self._life.shutdown(socket.SHUT_WR)
            self._last_resort = self._loop.call_later(KEEPER_GRACE_S, self.force)

    def force(self) -> None:
        """End it and its keeper from here: the keeper does not answer, or there is no time to ask."""
        if self.gone.is_set():
            return
        self._shut = True
        worker = int(self._page[child.PID])
        if worker > 1:
            child.end(worker)
        self._process.kill()

    def bury(self) -> None:
        """Wait for it without the event loop, for a caller who is being cancelled himself."""
        self.force()
        if not self.gone.is_set():
            self._mourn()

    def _hear(self) -> None:
        try:
            words = self._life.recv(64)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        self._last_words += words
        if not words:
            self._mourn()

    def _mourn(self) -> None:
        """The keeper has closed the lifeline: it is done, or was killed."""
        self._gone_at = self._clock.now()
        if len(self._last_words) != child.LAST_WORDS.size:
            self._orphaned = not self._shut
            self.force()
        self._process.kill()
        self._process.wait()
        self._loop.remove_reader(self._life.fileno())
        if self._last_resort is not None:
            self._last_resort.cancel()
        with contextlib.suppress(OSError):  # a descendant outside the group may hold the other end open
            self._talk.shutdown(socket.SHUT_RDWR)
        self.gone.set()
        self._close_if_done()
        self._on_gone(self)

    def _close_if_done(self) -> None:
        if self.gone.is_set() and not self._asking:
            self._talk.close()
            self._life.close()
            self._page.release()
            self._shared.close()


def read_records(
    data: bytes | bytearray,
    found: dict[int, Outcome],
    queued_s: Seconds | None,
    offset_s: Seconds | None,
) -> int:
    """Turn whole records into outcomes; return how many bytes they were. One seen before stands.

    `offset_s` is what the parent's clock is ahead of the child's.
    """
    at, size, whole = 0, child.HEADER.size, len(data)
    unpack = child.HEADER.unpack_from
    while whole - at >= size:
        index, kind, started, service_s, cpu, number, length = unpack(data, at)
        end = at + size + length
        if end > whole:
            break
        if index not in found:
            cpu_s = None if cpu == child.NOT_MEASURED else cpu
            began_s = None if offset_s is None else started + offset_s
            if kind == child.NUMBER:
                found[index] = Outcome(number, None, queued_s, service_s, cpu_s, began_s)
            else:
                value, failure = read_blob(kind, bytes(data[at + size : end]))
                found[index] = Outcome(value, failure, queued_s, service_s, cpu_s, began_s)
        at = end
    return at


def read_blob(kind: int, blob: bytes) -> tuple[object, Failure | None]:
    """Read what the function returned, or how it failed."""
    if kind == child.OUT_OF_MEMORY:
        return None, Cut("memory")
    try:
        value = pickle.loads(blob)  # noqa: S301 (from our own process, which runs trusted code)
    except Exception as error:  # noqa: BLE001 (a user's __setstate__, a class that is not here)
        return None, Raised(type(error).__name__, f"what it returned cannot be read here: {describe(error)}")
    return (None, Raised(*value)) if kind == child.RAISED else (value, None)


def interpreter_flags() -> list[str]:
    """Flags that change what the function's code means, and are not in the environment."""
    return ["-P", *(["-" + "O" * sys.flags.optimize] if sys.flags.optimize else [])]


def shared_file() -> int:
    """A descriptor of memory that two processes can map, with no name on any disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("steelyard-worker")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, child.SHARED_BYTES)
    return descriptor
