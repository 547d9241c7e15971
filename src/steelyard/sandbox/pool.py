"""Slots that are kept warm, and who may use one: first come, first served.

There are more slots than cores, since a program that hangs or sleeps holds its slot but needs no core: as
many programs run at once as there are cores, and one more for each that has been running for a while, up to
the number of slots. What a burst of slow programs needed is ended when nobody has needed it for a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from steelyard.clock import Clock, Seconds
from steelyard.errors import SandboxError
from steelyard.execution import Limits

SPARE_S: Final = 10.0
"""How long a slot is kept that nobody needs."""


class Kept(Protocol):
    """What a pool must know of a slot."""

    gone: bool

    def close(self) -> None:
        """End it, and all that runs in it."""


S = TypeVar("S", bound=Kept)


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


class Making(NamedTuple, Generic[S]):
    """How slots are made.

    Parameters
    ----------
    slot
        Makes one that is not ready yet.
    prove
        Waits until it is, and makes sure that it holds.
    adapt
        Whether, after a slot that did not start, another is made in another way.
    """

    slot: Callable[[Mould, Callable[[S], None]], S]
    prove: Callable[[S], Awaitable[object]]
    adapt: Callable[[SandboxError], bool]


async def made(
    making: Making[S],
    mould: Mould,
    on_gone: Callable[[S], None],
    begun: Callable[[S], None] = lambda _slot: None,
) -> S:
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


class Pool(Generic[S]):
    """Slots by mould: those in use, and those that wait.

    Parameters
    ----------
    boundary
        Whose slots they are.
    making
        How slots are made.
    clock
        Time.
    most
        How many there may be.
    """

    def __init__(self, boundary: str, making: Making[S], clock: Clock, *, most: int) -> None:
        self._boundary = boundary
        self._making = making
        self._clock = clock
        self._most = most
        self._idle: dict[Mould, list[S]] = {}
        self._all: dict[S, Mould] = {}
        self._since: dict[S, Seconds] = {}  # when a slot became idle
        self._closed = False

    async def slot(self, mould: Mould, *, fresh: bool = False) -> S:
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

    def keep(self, slot: S, mould: Mould) -> None:
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

    def _gone(self, slot: S) -> None:
        mould = self._all.pop(slot, None)
        self._since.pop(slot, None)
        if mould is not None and slot in self._idle.get(mould, ()):
            self._idle[mould].remove(slot)

    def close(self) -> None:
        """End all slots, and what runs in them."""
        self._closed = True
        for slot in list(self._all):
            slot.close()
        self._idle.clear()
