"""Warm slots: programs wait for a turn, run in a slot that is warm, and leave it as they found it.

A slot serves a thousand programs, then another takes its place: with it go the address layout that they
shared, and whatever a kernel keeps. `pool` keeps the slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from steelyard.clock import Clock
from steelyard.execution import Execution, Limits
from steelyard.sandbox.calibration import Calibration
from steelyard.sandbox.ends import execution
from steelyard.sandbox.pool import Making, Mould, Pool, Turns
from steelyard.sandbox.slot import Given, Guest, Slot
from steelyard.sandbox.watch import Usage, Watchdog, Watched

SERVES: Final = 1_000
"""Programs after which a slot is replaced."""

SLOTS_EACH: Final = 8
"""Slots for each core, at most: what hangs must not hold up what does not."""


class Slots:
    """Slots that are warm, and programs that run in them.

    Parameters
    ----------
    boundary
        Whose slots they are.
    making
        How slots are made.
    usage
        What the guests of a slot use from now on.
    clock
        Time.
    usual
        How many programs run at once when all are quick.
    most
        How many slots there may be.
    """

    def __init__(
        self,
        boundary: str,
        making: Making[Slot],
        usage: Callable[[Slot], Usage],
        clock: Clock,
        *,
        usual: int,
        most: int,
    ) -> None:
        self._boundary = boundary
        self._usage = usage
        self._clock = clock
        self._turns = Turns(min(usual, most), most)
        self._watchdog = Watchdog(clock, self._turns.slow)
        self.calibration = Calibration(clock)
        self.pool = Pool(boundary, making, clock, most=most)

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
            slot = await self._slot(mould, fresh=fresh)
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

    async def _slot(self, mould: Mould, *, fresh: bool) -> Slot:
        slot = await self.pool.slot(mould, fresh=fresh)
        try:
            await self.calibration.refresh(slot, mould.preload)
        except BaseException:
            slot.close()
            raise
        return slot

    def _begin(self, slot: Slot, given: Given, limits: Limits, waiting: Callable[[], bool]) -> Watched:
        try:
            usage = self._usage(slot)  # before it begins: what is counted from now on is its own
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
            self.pool.keep(slot, mould)
        self._turns.give()

    def close(self) -> None:
        """End all slots, and what runs in them."""
        self._watchdog.close()
        self.pool.close()
