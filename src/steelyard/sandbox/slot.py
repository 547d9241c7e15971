"""One slot: a fork server behind a boundary, and the guests that it runs.

A slot is made by a command that ends in `python guest/server.py` (`bubblewrap.py` writes the command). This
side starts guests in it, hears what they send, and ends them. It enforces no limit (`watch.py` does) and
keeps no queue (`forkserver.py` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from steelyard.clock import Clock, Seconds
from steelyard.errors import SandboxError
from steelyard.sandbox.guest import control, frames

BOOT_S: Final = 30.0
"""A slot that is not ready by then is not coming; an idle machine takes a fifth of a second."""

_READ: Final = 1 << 18
_READS: Final = 8  # at most at one time; what a socket holds of a guest that is gone is less


class Given(NamedTuple):
    """What a guest is started with.

    Parameters
    ----------
    payload
        Read by the guest once it is confined.
    cpu_s
        Whole CPU seconds after which the kernel ends its process, if nobody did before.
    reply_bytes
        How much it may send.
    stdin
        Its standard input.
    apart
        Whether standard error is kept apart from standard output.
    packets
        Whether its channel carries packets and descriptors (a judge's), not a stream.
    rpc, phase
        Descriptors of ours that it gets a copy of.
    """

    payload: bytes
    cpu_s: int
    reply_bytes: int
    stdin: bytes | None = None
    apart: bool = False
    packets: bool = False
    rpc: int | None = None
    phase: int | None = None


class Guest:
    """A process in a slot, from asking for it to its end."""

    def __init__(
        self, slot: Slot, number: int, channel: socket.socket, outputs: list[int], reply_bytes: int
    ) -> None:
        self.slot = slot
        self.number = number
        self.channel = channel
        self.outputs = outputs
        """Files that hold what it wrote."""
        self.asked = slot.clock.now()
        self.started: Seconds | None = None
        self.ended: Seconds | None = None
        self.killed: Seconds | None = None
        self.cut: str | None = None
        """The limit that it used up."""
        self.failed: str | None = None
        """Why it never started."""
        self.status: int | None = None
        """Its wait status; `None` if contact was lost."""
        self.cpu_s: Seconds = 0.0
        """What was waited for of it: killed descendants are not in it."""
        self.peak_bytes: int | None = None
        """The most memory that one process of it held."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hear: Callable[[bytes], None] = lambda _frame: None
        """Takes each frame that it sends after its first instruction."""
        self._listening = False
        self._packets = channel.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_SEQPACKET
        self._reader = frames.Reader(reply_bytes)
        self._left = reply_bytes

    def listen(self) -> None:
        """Hear what it sends as it comes. Whoever is gone soon is heard at its end, for a wake-up less."""
        if not self._listening and not self.gone.done():
            self._listening = True
            asyncio.get_running_loop().add_reader(self.channel.fileno(), self.read)

    def _deaf(self) -> None:
        if self._listening:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self.channel.fileno())

    def read(self) -> None:
        """Take what has arrived on its channel; not all of it if it is much, for others wait, too."""
        for _ in range(_READS):
            try:
                data = self.channel.recv(_READ)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            self._left -= len(data)
            try:
                for frame in filter(None, (data,)) if self._packets else self._reader.feed(data):
                    self._take(frame)
                if self._left < 0:
                    raise ValueError("it sends without end")  # noqa: TRY301 - as for a frame too long
            except ValueError:
                self.kill("protocol")
                data = b""
            if not data:
                self._deaf()
                return

    def _take(self, frame: bytes) -> None:
        if self._packets or self.started is not None:
            self.hear(frame)
        elif frame.startswith(b'["started"'):
            self.started = min(float(json.loads(frame)[1]), self.slot.clock.now())
        elif frame.startswith(b'["setup"'):
            self.failed = str(json.loads(frame)[1])
        elif frame.startswith(b'["facts"'):
            self.hear(frame)
        else:
            raise ValueError("it spoke before its first instruction")

    def kill(self, limit: str | None = None) -> None:
        """End it and everything it started.

        Parameters
        ----------
        limit
            The limit that it used up; `None` if it has said enough.
        """
        if self.killed is None and not self.gone.done():
            self.cut = limit
            self.killed = self.slot.clock.now()
            self.slot.ask(control.KILL, self.number)

    def end(self, status: int | None, cpu_s: Seconds = 0.0) -> None:
        """Note that it is gone; `None` if nobody knows how."""
        if self.gone.done():
            return
        try:
            self.read()  # what it sent before it ended
        finally:
            self._deaf()
            self.channel.close()
            self.status, self.cpu_s, self.ended = status, cpu_s, self.slot.clock.now()
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it whoever waited
                self.gone.set_result(None)

    def close(self) -> None:
        """Give back what holds its output."""
        while self.outputs:
            os.close(self.outputs.pop())


class Slot:
    """One warm place.

    Parameters
    ----------
    command
        The command for a control socket of this number.
    clock
        Time.
    on_gone
        Called once, when it has ended, whatever it ended of.
    environment
        The command's; none if not given.

    Raises
    ------
    SandboxError
        If the command cannot be started.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        clock: Clock,
        on_gone: Callable[[Slot], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = clock
        self.served = 0
        self.guests: dict[int, Guest] = {}
        self.gone = False
        self.may_kill_itself = False
        """Whether a guest could have sent itself SIGKILL: not where it is the first of its own namespace."""
        self.spun: Seconds | None = None
        self._spin: asyncio.Future[Seconds] | None = None
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the slot
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._control.setblocking(False)
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    env=dict(environment or {}),
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            self._stderr.close()
            raise SandboxError("sandbox", f"a slot cannot be started: {error}") from error
        self._loop.add_reader(self._control.fileno(), self._hear)

    @property
    def pid(self) -> int:
        """The first process of the slot, as this side sees it."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it can run guests.

        Raises
        ------
        SandboxError
            If it ended instead, with what it said.
        """
        if not await self._within(self._ready):
            raise SandboxError("sandbox", f"a slot was not ready after {BOOT_S:g} s")
        self._ready.result()

    async def facts(self) -> Mapping[str, str]:
        """Ask a guest what it can see and do.

        Raises
        ------
        SandboxError
            If it cannot be asked.
        """
        told: list[bytes] = []
        guest = self.start(Given(b"", cpu_s=10, reply_bytes=1 << 20), kind=control.PROBE)
        guest.hear = told.append
        try:
            await self._within(guest.gone)
        finally:
            guest.close()
        if not told:
            raise SandboxError("sandbox", guest.failed or f"its probe ended without a word: {self.said()}")
        facts: Mapping[str, str] = json.loads(told[0])[1]
        return facts

    async def spin(self) -> Seconds:
        """CPU seconds that a fixed piece of work takes in its interpreter.

        Raises
        ------
        SandboxError
            If it ends meanwhile, or does not answer.
        """
        self._spin = spin = self._loop.create_future()
        self.ask(control.SPIN, 0)
        if self.gone or not await self._within(spin):
            raise SandboxError("sandbox", "a slot ended while it was calibrated")
        spin_s: Seconds = spin.result()
        return spin_s

    async def _within(self, future: asyncio.Future[Any]) -> bool:
        done, _ = await asyncio.wait({future}, timeout=BOOT_S)
        if not done:
            self.close()
        return bool(done)

    def start(self, given: Given, *, kind: int = control.START) -> Guest:
        """Start a guest.

        Raises
        ------
        SandboxError
            If the slot has ended, or this process has no descriptors left.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            try:
                guest, sent, which = self._made(given, ours, theirs)
                asked = control.ASK.pack(kind, guest.number, given.cpu_s, which)
                socket.send_fds(self._control, [asked], sent)
            except OSError as error:
                raise SandboxError("sandbox", f"a guest cannot be started: {error}") from error
            ours.pop_all()
        self.guests[guest.number] = guest
        if given.packets:
            guest.listen()
        return guest

    def _made(
        self, given: Given, ours: contextlib.ExitStack, theirs: contextlib.ExitStack
    ) -> tuple[Guest, list[int], int]:
        """Make a guest's descriptors: ours stay open, theirs are sent and closed."""
        channel, other = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET if given.packets else socket.SOCK_STREAM
        )
        ours.enter_context(channel)
        theirs.enter_context(other)
        channel.setblocking(False)
        outputs = [memory_file() for _ in range(2 if given.apart else 1)]
        for descriptor in outputs:
            ours.callback(os.close, descriptor)
        sent = [memory_file(given.payload), other.fileno(), *outputs]
        theirs.callback(os.close, sent[0])
        which = control.PAYLOAD | control.CHANNEL | control.OUTPUT | (control.ERRORS if given.apart else 0)
        if given.stdin is not None:
            sent.append(memory_file(given.stdin))
            theirs.callback(os.close, sent[-1])
            which |= control.INPUT
        for bit, descriptor_of in ((control.RPC, given.rpc), (control.PHASE, given.phase)):
            if descriptor_of is not None:
                sent.append(descriptor_of)
                which |= bit
        self.served += 1
        return Guest(self, self.served, channel, outputs, given.reply_bytes), sent, which

    def ask(self, kind: int, number: int) -> None:
        """Send a word without descriptors; a slot that cannot take it is ended."""
        try:
            self._control.send(control.ASK.pack(kind, number, 0, 0))
        except OSError:
            self.close()

    def _hear(self) -> None:
        try:
            message = self._control.recv(256)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            message = b""
        if not message:
            self.close()
        elif message[0] == control.READY:
            if not self._ready.done():
                self._ready.set_result(None)
        else:
            kind, number, status, user_s, system_s, peak = control.TELL.unpack(message)
            if kind == control.SPUN:
                if self._spin is not None and not self._spin.done():
                    self._spin.set_result(user_s)
                return
            guest = self.guests.pop(number)
            if kind == control.NOT_STARTED:
                guest.failed = f"no process could be made: {os.strerror(status)}"
            guest.peak_bytes = peak
            guest.end(status, user_s + system_s)

    def said(self) -> str:
        """What the slot's own processes wrote to standard error, its last line first of all."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._stderr.seek(0)
            lines = self._stderr.read().decode(errors="replace").strip().splitlines()
            if lines and lines[-1].startswith('{"stage"'):  # the launcher's own words
                told = json.loads(lines[-1])
                return f"{told['stage']}: {told['error']}" + (
                    f" ({told['remedy']})" if told["remedy"] else ""
                )
            return "; ".join(reversed(lines[-3:])) or "it said nothing"
        return "it said nothing"

    def close(self) -> None:
        """End it and everything in it: its first process takes the others along."""
        if self.gone:
            return
        self.gone = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        if not self._ready.done():
            self._ready.set_exception(SandboxError("sandbox", f"a slot ended at its start: {self.said()}"))
            self._ready.exception()  # whoever waits is told; if nobody does, so be it
        if self._spin is not None and not self._spin.done():
            self._spin.set_exception(SandboxError("sandbox", f"a slot ended: {self.said()}"))
            self._spin.exception()
        self._stderr.close()
        for guest in list(self.guests.values()):
            guest.end(None)
            if self._loop.is_closed():  # nobody else will
                guest.close()
        self.guests.clear()
        self._on_gone(self)


def memory_file(content: bytes = b"") -> int:
    """A file in memory that holds this; whoever gets the descriptor reads from its start."""
    descriptor = os.memfd_create("steelyard", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)  # on gVisor others could open it by way of /proc
        rest = memoryview(content)
        while rest:
            rest = rest[os.pwrite(descriptor, rest, len(content) - len(rest)) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
