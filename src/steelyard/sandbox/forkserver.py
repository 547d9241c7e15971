"""Warm slots: programs wait for a turn, run in a slot that is warm, and leave it as they found it.

There are more slots than cores, since a program that hangs or sleeps holds its slot but needs no core: as
many programs run at once as there are cores, and one more for each that has been running for a while, up to
the number of slots. A slot serves a thousand programs, then another takes its place: with it go the address
layout that they shared, and whatever a kernel keeps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from steelyard.clock import Clock, Seconds
from steelyard.errors import SandboxError
from steelyard.execution import Execution, Limits
from steelyard.sandbox.ends import execution
from steelyard.sandbox.slot import Given, Guest, Slot
from steelyard.sandbox.watch import Usage, Watchdog, Watched

SERVES: Final = 1_000
"""Programs after which a slot is replaced."""

SLOTS_EACH: Final = 8
"""Slots for each core, at most: what hangs must not hold up what does not."""


SPARE_S: Final = 10.0
"""How long a slot is kept that nobody needs."""


class Mould(NamedTuple):
    """What is fixed for a slot when it starts: programs that need another one need another slot."""

    memory_bytes: int
    processes: int
    file_bytes: int
    files: int
    output_bytes: int
    preload: str = ""

    @classmethod
    def of(cls, limits: Limits, preload: str = "") -> Mould:
        """The mould of these limits."""
        return cls(
            limits.memory_bytes,
            limits.processes,
            limits.file_bytes,
            limits.files,
            limits.output_bytes,
            preload,
        )


class Making(NamedTuple):
    """How slots are made and measured.

    Parameters
    ----------
    slot
        Makes one that is not ready yet.
    prove
        Waits until it is, and makes sure that it holds.
    usage
        What the guests of a slot use from now on.
    adapt
        Whether, after a slot that did not start, another is made in another way.
    """

    slot: Callable[[Mould, Callable[[Slot], None]], Slot]
    prove: Callable[[Slot], Awaitable[object]]
    usage: Callable[[Slot], Usage]
    adapt: Callable[[SandboxError], bool]


async def made(
    making: Making,
    mould: Mould,
    on_gone: Callable[[Slot], None],
    begun: Callable[[Slot], None] = lambda _slot: None,
) -> Slot:
    """Make a slot that is ready and holds.

    Parameters
    ----------
    making, mould
        How, and for what.
    on_gone, begun
        Told of its end, and of its beginning, when it is not ready yet.

    Raises
    ------
    SandboxError
        If it does not start, or does not hold.
    """
    adapted = False
    while True:
        try:
            slot = making.slot(mould, on_gone)
        except OSError as error:  # no descriptors, no processes, no memory on our side
            raise SandboxError("sandbox", f"a slot cannot be made: {error}") from error
        begun(slot)
        try:
            await making.prove(slot)
        except SandboxError as error:
            slot.close()
            if adapted or not making.adapt(error):
                raise
            adapted = True
        except BaseException:
            slot.close()
            raise
        else:
            return slot


class Turns:
    """Who may run: first come, first served.

    Parameters
    ----------
    usual
        How many at once.
    most
        How many when some of them are slow.
    """

    def __init__(self, usual: int, most: int) -> None:
        self._usual = usual
        self._most = most
        self._allowed = usual
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, *, at_once: bool = False) -> None:
        """Wait for a turn, or take one though it is nobody's."""
        if at_once or (self._running < self._allowed and not self._waiting):
            self._running += 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.give()
            else:
                with suppress(ValueError):
                    self._waiting.remove(mine)
            raise

    def give(self) -> None:
        """End a turn."""
        self._running -= 1
        self._wake()

    def slow(self, count: int) -> None:
        """Let others run beside this many that are slow."""
        self._allowed = min(self._usual + count, self._most)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._running < self._allowed:
            mine = self._waiting.popleft()
            if not mine.done():
                self._running += 1
                mine.set_result(None)


class Slots:
    """Slots that are warm, and programs that run in them.

    Parameters
    ----------
    boundary
        Whose slots they are.
    making
        How slots are made.
    clock
        Time.
    usual
        How many programs run at once when all are quick.
    most
        How many slots there may be.
    """

    def __init__(self, boundary: str, making: Making, clock: Clock, *, usual: int, most: int) -> None:
        self._boundary = boundary
        self._making = making
        self._clock = clock
        self._most = most
        self._turns = Turns(min(usual, most), most)
        self._watchdog = Watchdog(clock, self._turns.slow)
        self._idle: dict[Mould, list[Slot]] = {}
        self._all: dict[Slot, Mould] = {}
        self._since: dict[Slot, Seconds] = {}  # when a slot became idle
        self._closed = False

    async def run(
        self,
        given: Given,
        limits: Limits,
        begun: Callable[[Guest], None],
        *,
        kept_bytes: int,
        preload: str = "",
        fresh: bool = False,
        urgent: bool = False,
        waiting: Callable[[], bool] = lambda: False,
    ) -> Execution:
        """Run a guest to its end.

        Parameters
        ----------
        given, limits
            What it gets, and what it may use.
        begun
            Told of the guest as soon as there is one.
        kept_bytes
            How much of its output is kept.
        preload
            Modules that the slot has imported, separated by commas.
        fresh
            Whether its slot must be a new one.
        urgent
            Whether it does not wait for its turn.
        waiting
            Whether it waits for us at the moment, so that it is not idle.

        Raises
        ------
        SandboxError
            If it never began.
        """
        asked = self._clock.now()
        mould = Mould.of(limits, preload)
        await self._turns.take(at_once=urgent)
        try:
            slot = await self.slot(mould, fresh=fresh)
            queued_s = self._clock.now() - asked
            watched = self._begin(slot, given, limits, waiting)
        except BaseException:
            self._turns.give()
            raise
        await self._end(watched, mould, begun)
        try:
            return execution(watched, self._boundary, queued_s, kept_bytes=kept_bytes)
        finally:
            self._release(watched, mould)

    def _begin(self, slot: Slot, given: Given, limits: Limits, waiting: Callable[[], bool]) -> Watched:
        try:
            usage = self._making.usage(slot)  # before it begins: what is counted from now on is its own
            return Watched(slot.start(given), limits, usage, waiting)
        except BaseException:
            slot.close()
            raise

    async def _end(self, watched: Watched, mould: Mould, begun: Callable[[Guest], None]) -> None:
        """Wait for a guest's end; whoever is called off ends it, and its slot is free when it is gone."""
        self._watchdog.add(watched)
        try:
            begun(watched.guest)
            await asyncio.shield(watched.guest.gone)
        except BaseException:
            watched.guest.kill()
            watched.guest.gone.add_done_callback(lambda _gone: self._release(watched, mould))
            raise

    def _release(self, watched: Watched, mould: Mould) -> None:
        guest = watched.guest
        self._watchdog.remove(guest)
        guest.close()
        slot = guest.slot
        usage = watched.usage
        foreign = bool(guest.status) and "foreign" in usage.counted()
        odd = guest.status is None or guest.failed is not None or foreign or usage.memory_kills() > 0
        usage.close()
        if odd or slot.served >= SERVES:
            slot.close()
        elif not slot.gone:
            self.keep(slot, mould)
        self._turns.give()

    async def slot(self, mould: Mould, *, fresh: bool = False) -> Slot:
        """Find a slot that is free, or make one.

        Raises
        ------
        SandboxError
            If none can be made, or all were closed meanwhile.
        """
        if self._closed:
            raise SandboxError(f"sandbox:{self._boundary}", "the boundary was closed")
        free = self._idle.get(mould)
        if free and not fresh:
            return free.pop()
        if len(self._all) >= self._most:
            spare = next((slots for slots in self._idle.values() if slots), None)
            if spare is not None:
                spare.pop(0).close()
        return await made(self._making, mould, self._gone, lambda slot: self._all.update({slot: mould}))

    def keep(self, slot: Slot, mould: Mould) -> None:
        """Take back a slot that nobody uses any more; the last one back is the first to be used again.

        What a burst of slow programs needed and nobody has needed since is ended, one at a time.
        """
        now = self._clock.now()
        self._since[slot] = now
        idle = self._idle.setdefault(mould, [])
        idle.append(slot)
        longest = min((one for some in self._idle.values() for one in some), key=self._since.__getitem__)
        if longest is not slot and now - self._since[longest] > SPARE_S:
            longest.close()

    def _gone(self, slot: Slot) -> None:
        mould = self._all.pop(slot, None)
        self._since.pop(slot, None)
        if mould is not None and slot in self._idle.get(mould, ()):
            self._idle[mould].remove(slot)

    def close(self) -> None:
        """End all slots, and what runs in them."""
        self._closed = True
        self._watchdog.close()
        for slot in list(self._all):
            slot.close()
        self._idle.clear()
