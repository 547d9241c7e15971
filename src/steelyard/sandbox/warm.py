"""A boundary of warm slots: programs run in slots that a house makes, before judges that it keeps.

All that boundaries have in common which fork guests in warm interpreters. What differs between them is the
house: how a slot is made, what must hold in it, how its use is counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from steelyard.clock import Clock, SystemClock
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import MIB, Execution, Limits
from steelyard.sandbox.boundary import Checks, Opinion, Program
from steelyard.sandbox.forkserver import SLOTS_EACH, Slots
from steelyard.sandbox.guest import frames
from steelyard.sandbox.judges import ANSWER_S, Judge, Judges, opinion_of
from steelyard.sandbox.pool import Making, Mould, made
from steelyard.sandbox.slot import Given, Guest, Slot
from steelyard.sandbox.watch import Usage

JUDGES: Final = Mould(
    memory_bytes=2_048 * MIB,
    processes=512,
    file_bytes=64 * MIB,
    files=4_096,
    output_bytes=32 * MIB,
    preload="judge",
)
"""What all judges of a slot may use together."""


TRIES: Final = 3
"""How often a program is started that does not begin."""

GONE_S: Final = 1.0
"""How long a candidate that hung up on its judge may take to end; hanging up is no answer."""

_T = TypeVar("_T")
_NUMPY: Final = re.compile(rb"^[ \t]*(?:import|from)[ \t]+numpy\b", re.MULTILINE)


class House(Protocol):
    """Makes the slots of a boundary."""

    @property
    def cores(self) -> int:
        """Cores that its slots may use."""

    @property
    def proven(self) -> Mapping[str, str]:
        """What the last slot proved from inside."""

    def slot(self, mould: Mould, on_gone: Callable[[Slot], None]) -> Slot:
        """Start a slot; it is not ready yet.

        Raises
        ------
        SandboxError
            If it cannot be started.
        """

    async def prove(self, slot: Slot) -> None:
        """Wait until a slot is ready, and make sure that it holds.

        Raises
        ------
        SandboxError
            If it does not start, or does not hold.
        """

    def usage(self, slot: Slot) -> Usage:
        """What the next guest of a slot uses."""

    def adapt(self, error: SandboxError) -> bool:
        """Whether another slot may start, made in another way, where this one did not."""

    def facts(self) -> Mapping[str, str]:
        """What is known of the machine's side."""

    def refusal(self, error: SandboxError) -> RefusedError:
        """Say why the boundary does not hold, and the way out."""

    def close(self) -> None:
        """Remove what was made."""


class Warm:
    """A boundary of warm slots.

    Parameters
    ----------
    name
        The word for it.
    house
        Makes the house, once in each event loop.
    preload
        Modules that slots import before any candidate comes, beside the usual ones: what is not imported
        there costs a candidate its own CPU seconds. NumPy need not be named.
    slots
        How many slots there may be; eight for each core if not given.
    judges
        How many slots of judges; one more than there are cores if not given.
    clock
        Time.

    Raises
    ------
    RefusedError
        When it is used: if the boundary does not hold on this machine.
    """

    def __init__(
        self,
        name: str,
        house: Callable[[], House],
        *,
        preload: tuple[str, ...] = (),
        slots: int | None = None,
        judges: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._house = house
        self._preload = tuple(preload)
        self._most = (slots, judges)
        self._clock = clock or SystemClock()
        self._open: _Open | None = None
        self._facts: Mapping[str, str] | None = None

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could: the boundary's rules, and what it preloads."""
        return f"{self.name}/1:{','.join(self._preload)}"

    def _preloaded(self, source: bytes) -> str:
        return preloaded(source, self._preload)

    def _opened(self) -> _Open:
        loop = asyncio.get_running_loop()
        if self._open is not None and self._open.loop is not loop:
            if self._open.loop.is_running():
                raise RefusedError(
                    "it is in use in another event loop",
                    where=f"boundary {self.name}",
                    remedy="make a boundary for each loop",
                )
            self._open.close()  # its loop has ended, and so did its slots
            self._open = None
        if self._open is None:
            self._open = _Open(self.name, loop, self._house(), self._clock, self._most)
        return self._open

    def score(self, source: bytes) -> float:
        """How many CPU seconds the slots of this source take for one of the standard machine."""
        return self._opened().slots.calibration.score(self._preloaded(source))

    async def attest(self, limits: Limits | None = None) -> Mapping[str, str]:
        """Prove from inside that it holds, also under these limits; return the facts.

        Raises
        ------
        RefusedError
            If it does not, with the fact, the value seen and the way out.
        """
        if self._facts is None:
            opened = self._opened()
            mould = Mould.of(limits or Limits(), self._preloaded(b""))
            try:
                slot = await opened.slots.pool.slot(mould)
            except SandboxError as error:
                refusal = opened.house.refusal(error)
                await self.close()
                raise refusal from error
            opened.slots.pool.keep(slot, mould)
            self._facts = {**opened.house.facts(), **opened.house.proven}
        return self._facts

    async def run(
        self,
        program: Program,
        limits: Limits,
        *,
        listen: Callable[[bytes], bool] | None = None,
        fresh: bool = False,
        urgent: bool = False,
        given_to: Callable[[Guest], None] = lambda _guest: None,
    ) -> Execution:
        """Run a program in a slot: see `steelyard.sandbox.boundary.Boundary`.

        `given_to` is told of the guest, for whoever wants to end it.
        """
        replies: list[bytes] = []

        def begun(guest: Guest) -> None:
            given_to(guest)

            def hear(frame: bytes) -> None:
                if listen is None:
                    replies.append(frame)
                elif listen(frame):
                    guest.kill()

            guest.hear = hear

        apart = program.apart
        given = Given(
            frames.pack(_header(program.mode, program.header), program.source, *program.frames),
            cpu_s=_backstop(limits),
            reply_bytes=limits.reply_bytes,
            stdin=program.stdin if apart else None,
            apart=apart,
        )
        opened = self._opened()
        execution = await opened.begun(
            lambda anew: opened.slots.run(
                given,
                limits,
                begun,
                kept_bytes=limits.output_bytes if apart else limits.kept_bytes,
                preload=self._preloaded(program.source),
                fresh=anew,
                urgent=urgent,
            ),
            fresh=fresh,
        )
        return replace(execution, replies=tuple(replies)) if replies else execution

    async def check(
        self, source: bytes, checks: Checks, limits: Limits, *, fresh: bool = False
    ) -> tuple[Execution, Opinion]:
        """Have a judge process check a candidate: see `steelyard.sandbox.boundary.Boundary`."""
        opened = self._opened()
        return await opened.begun(
            lambda anew: self._checked(opened, source, checks, limits, fresh=anew), fresh=fresh
        )

    async def _checked(
        self, opened: _Open, source: bytes, checks: Checks, limits: Limits, *, fresh: bool
    ) -> tuple[Execution, Opinion]:
        asked = self._clock.now()
        judge = await opened.judges.take(checks, fresh=fresh)
        waited_s = self._clock.now() - asked
        sound = False
        ends: list[socket.socket] = []
        try:
            ends += socket.socketpair()
            ours, theirs = ends
            given = Given(
                frames.pack(_header("serve", {}), source),
                cpu_s=_backstop(limits),
                reply_bytes=MIB,
                rpc=theirs.fileno(),
            )
            asking = _Asking(judge, ours, theirs, self._clock)
            execution = await opened.slots.run(
                given,
                limits,
                asking.begun,
                kept_bytes=limits.kept_bytes,
                preload=self._preloaded(source + checks.source),
                fresh=fresh,
                waiting=lambda: not judge.waits_for_candidate,
            )
            opinion = await asking.opinion()
            sound = opinion.lost is None
        finally:
            for end in ends:
                end.close()
            if sound:
                opened.judges.give(judge)
            else:
                opened.judges.drop(judge)
        clocks = execution.clocks
        queued_s = (clocks.queued_s or 0.0) + waited_s
        return replace(execution, clocks=replace(clocks, queued_s=queued_s)), opinion

    async def close(self) -> None:
        """End everything, within two seconds."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


class _Open:
    """What is open while a boundary is used in an event loop."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        house: House,
        clock: Clock,
        most: tuple[int | None, int | None],
    ) -> None:
        self.name = name
        self.loop = loop
        self.house = house
        self.making = making = Making(house.slot, house.prove, house.adapt)
        slots, judges = most
        slots = slots or house.cores * SLOTS_EACH
        self.slots = Slots(name, making, house.usage, clock, usual=2 * house.cores, most=slots)
        self.judges = Judges(self._judges, clock, most=judges)
        self._closed = False
        self._of_judges: set[Slot] = set()

    async def _judges(self) -> Slot:
        if self._closed:
            raise SandboxError(f"sandbox:{self.name}", "the boundary was closed")
        return await made(self.making, JUDGES, self._of_judges.discard, self._of_judges.add)

    async def begun(self, run: Callable[[bool], Awaitable[_T]], *, fresh: bool) -> _T:
        """Try again in a new slot what never began there: it had no first draw that it could have spoilt.

        Raises
        ------
        SandboxError
            If it never began, or all was closed.
        """
        for left in reversed(range(TRIES)):
            try:
                return await run(fresh)
            except SandboxError:
                if self._closed or not left:
                    raise
            except OSError as error:  # no descriptors, no memory on our side
                if self._closed or not left:
                    raise SandboxError(f"sandbox:{self.name}", f"nothing can be started: {error}") from error
            fresh = True
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """End all slots, and take the house down."""
        self._closed = True
        self.slots.close()
        self.judges.close()
        for slot in list(self._of_judges):
            slot.close()
        self.house.close()


class _Asking:
    """One candidate before one judge."""

    def __init__(self, judge: Judge, ours: socket.socket, theirs: socket.socket, clock: Clock) -> None:
        self._clock = clock
        self._judge = judge
        self._ours = ours
        self._theirs = theirs
        self._answer: asyncio.Future[dict[str, Any]] | None = None

    def begun(self, guest: Guest) -> None:
        """The candidate has its end of the socket: hand the other to the judge."""
        self._theirs.close()
        self._answer = self._judge.ask(self._ours)
        self._ours.close()
        self._answer.add_done_callback(lambda answer: self._answered(answer, guest))

    def _answered(self, answer: asyncio.Future[dict[str, Any]], guest: Guest) -> None:
        """End the candidate; one that is gone for its judge has a moment to end by itself, with a status."""
        gone = answer.exception() is None and answer.result().get("code") == "gone"
        if gone:
            self._clock.call_later(GONE_S, lambda: guest.kill("protocol"))
        else:
            guest.kill()

    async def opinion(self) -> Opinion:
        """Hear what the judge says; its candidate is gone, so it is not long in coming."""
        if self._answer is None:
            return Opinion(lost="it was never asked")
        await asyncio.wait({self._answer}, timeout=ANSWER_S)
        if not self._answer.done():
            return Opinion(lost=f"no answer {ANSWER_S:g} s after its candidate was gone")
        try:
            return opinion_of(self._answer.result())
        except (ConnectionError, SandboxError) as error:
            return Opinion(lost=str(error))


def _header(mode: str, settings: Mapping[str, object]) -> bytes:
    return json.dumps({"mode": mode, "module": "candidate", "seed": 0, **settings}).encode()


def _backstop(limits: Limits) -> int:
    """Whole CPU seconds for the kernel's own cut of one process, well above ours of all together."""
    return int(limits.cpu_s) + 2


def preloaded(source: bytes, named: tuple[str, ...]) -> str:
    """What the slot of this source has imported: what was asked for, and NumPy for whoever names it."""
    names = (*named, "numpy") if _NUMPY.search(source) else named
    return ",".join(dict.fromkeys(names))
