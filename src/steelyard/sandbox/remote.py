"""Boundaries whose slots are containers or remote sandboxes: a runner in each, and a line to it.

A slot is a place of a `site` (a container, a sandbox far away) in which the runner was started; one candidate
runs there at a time, so that nobody shares memory or processes with a sibling that is alive. Many places are
open at once, since one that holds a hanging program is of no use to others.

Blame: what happens before a program has been sent is the machinery's (`SandboxError`). From then on a line
that is lost is `Ended.LOST`, a suspect, whether or not the program began: nobody can prove that it did not,
and what shares a machine with its runner can end it. The runner enforces the limits; this side waits a good
deal longer and then gives the place up.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any, Final

from steelyard.clock import Clock, Clocks, Seconds, SystemClock
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import Ended, Execution, Limits
from steelyard.sandbox import telling
from steelyard.sandbox.boot import FACTS, unproven
from steelyard.sandbox.boundary import Checks, Opinion, Program
from steelyard.sandbox.calibration import KEPT
from steelyard.sandbox.inside import root_seen
from steelyard.sandbox.parcel import command, parcel
from steelyard.sandbox.place import Place
from steelyard.sandbox.pool import Making, Mould, Pool, Turns
from steelyard.sandbox.processes import namespace
from steelyard.sandbox.site import Line, Site
from steelyard.sandbox.warm import TRIES, preloaded
from steelyard.sandbox.watch import SLOW_S

GRACE_S: Final = 90.0
"""Beyond the wall limit: set-up, a suite's own time, the way there and back."""

CLOSE_S: Final = 1.5
"""How long all lines together may take to close."""

_SLACK_BYTES: Final = 1 << 20
_NUMBERS: Final = count(1)
_USERS_EACH: Final = 256  # two servers of a hundred each
_LEAST_USER: Final = 1_000
_USERS_FIRST: Final = 20_000
_USERS_OF: Final = 170  # of containers that are told apart: ids stay below 65,536, which is what many map


class Remote:
    """A boundary of places.

    Parameters
    ----------
    site
        Makes the places.
    slots, usual
        How many places there may be, and how many programs run at once when all are quick.
    preload
        Modules that are imported before any candidate comes, beside the usual ones. NumPy need not be named.
    clock
        Time.

    Raises
    ------
    RefusedError
        When it is used: if the boundary does not hold.
    """

    def __init__(
        self,
        site: Site,
        *,
        slots: int | None = None,
        usual: int | None = None,
        preload: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        self.site = site
        self._most = slots or 4 * cores
        self._usual = min(usual or 2 * cores, self._most)
        self._preload = tuple(preload)
        self._clock = clock or SystemClock()
        self._open: _Open | None = None
        self._facts: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The word for it on the command line and in records."""
        return self.site.name

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could: the boundary's rules, its places, and what it preloads."""
        return f"{self.site.identity}:{','.join(self._preload)}"

    def _opened(self) -> _Open:
        loop = asyncio.get_running_loop()
        if self._open is not None and self._open.loop is not loop:
            if self._open.loop.is_running():
                raise RefusedError(
                    "it is in use in another event loop",
                    where=f"boundary {self.name}",
                    remedy="make a boundary for each loop",
                )
            self._open = None  # its loop has ended, and with it every line: runners end with their input
        if self._open is None:
            self._open = _Open(self, loop)
        return self._open

    async def attest(self, limits: Limits | None = None) -> Mapping[str, str]:
        """Prove from inside that it holds, also under these limits; return the facts.

        Raises
        ------
        RefusedError
            If it does not, with the fact, the value seen and the way out.
        """
        if self._facts is None:
            opened = self._opened()
            mould = Mould.of(limits or Limits(), ",".join(self._preload))
            try:
                place = await opened.pool.slot(mould)
            except SandboxError as error:
                await self.close()
                raise RefusedError(
                    f"it does not hold: {error.cause}",
                    where=f"boundary {self.name}",
                    remedy=self.site.traits.remedy or "report it, with what the place said",
                ) from error
            except BaseException:
                await self.close()
                raise
            opened.keep(place, mould)
            self._facts = {**self.site.facts(), **opened.proven}
        return self._facts

    async def run(
        self,
        program: Program,
        limits: Limits,
        *,
        listen: Callable[[bytes], bool] | None = None,
        fresh: bool = False,
        urgent: bool = False,
    ) -> Execution:
        """Run a program in a place: see `steelyard.sandbox.boundary.Boundary`."""
        replies: list[bytes] = []

        def hear(frame: bytes) -> bool:
            if listen is not None:
                return listen(frame)
            replies.append(frame)
            return False

        opened = self._opened()
        told, parts = telling.program_told(program)
        named = preloaded(program.source, self._preload)
        ask = _Ask("run", {**told, "calibrate": opened.calibrating}, parts, limits, named, hear)
        execution, _opinion = await opened.ask(ask, fresh=fresh, urgent=urgent)
        return replace(execution, replies=tuple(replies)) if replies else execution

    async def check(
        self, source: bytes, checks: Checks, limits: Limits, *, fresh: bool = False
    ) -> tuple[Execution, Opinion]:
        """Have a judge process check a candidate: see `steelyard.sandbox.boundary.Boundary`."""
        opened = self._opened()
        told, parts = telling.checks_told(source, checks)
        named = preloaded(source + checks.source, self._preload)
        told |= {"calibrate": opened.calibrating}
        ask = _Ask("check", told, parts, limits, named, lambda _frame: False)
        execution, opinion = await opened.ask(ask, fresh=fresh, urgent=False)
        if execution.ended is Ended.LOST and opinion == Opinion():
            opinion = Opinion(lost="its place was lost")
        return execution, opinion

    def score(self, source: bytes) -> float:
        """What a CPU second of this source's places is worth, as `steelyard.sandbox.calibration` has it."""
        opened = self._opened()
        opened.calibrating = True
        scores = opened.scores.get(preloaded(source, self._preload))
        return median(scores) if scores else 1.0

    async def close(self) -> None:
        """End everything, within two seconds."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    def settings(self, number: int) -> bytes:
        """What a runner is told first."""
        traits = self.site.traits
        block = (os.getpid() * 61 + number) % _USERS_OF  # a process is not its neighbour with one place more
        first = traits.first_user or _USERS_FIRST + block * _USERS_EACH
        return parcel() + telling.message(
            "settings",
            {
                "name": self.name,
                "first_user": first,
                "packages": list(traits.packages),
                "counted": traits.counted,
                "emulated": traits.emulated,
                "root": root_seen(),
                "preload": list(self._preload),
            },
        )

    async def line(self, mould: Mould) -> Line:
        """Have the site make a place."""
        return await self.site.open(command(self.site.traits.python), mould)

    def limits(self) -> tuple[int, int]:
        """Programs at once when all are quick, and places at most."""
        return self._usual, self._most

    @property
    def clock(self) -> Clock:
        """Time."""
        return self._clock


class _Ask:
    """One request: what is sent, and who hears what comes back."""

    def __init__(  # noqa: PLR0917 - one maker
        self,
        what: str,
        told: Mapping[str, Any],
        parts: tuple[bytes, ...],
        limits: Limits,
        preload: str,
        hear: Callable[[bytes], bool],
    ) -> None:
        self.message = telling.message(what, {**told, "limits": telling.limits_told(limits)}, *parts)
        self.limits = limits
        self.mould = Mould.of(limits, preload)
        self.hear = hear


class _Open:
    """What is open while a boundary is used in an event loop."""

    def __init__(self, remote: Remote, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.proven: Mapping[str, str] = {}
        self.calibrating = False
        self.scores: dict[str, deque[float]] = {}  # the last of each kind of place, by what it has imported
        self._remote = remote
        self._clock = remote.clock
        usual, most = remote.limits()
        self._turns = Turns(usual, most)
        self._slow = 0
        self._closing: set[asyncio.Future[None]] = set()
        self._closed = False
        self.pool: Pool[Place] = Pool(
            remote.name, Making(self._place, self._prove, lambda _error: False), self._clock, most=most
        )
        self._moulds: dict[Place, Mould] = {}

    # Places

    def _place(self, mould: Mould, on_gone: Callable[[Place], None]) -> Place:
        def gone(place: Place) -> None:
            self._moulds.pop(place, None)
            if place.closing is not None:
                self._closing.add(place.closing)
                place.closing.add_done_callback(self._closing.discard)
            on_gone(place)

        place = Place(lambda: self._remote.line(mould), gone)
        self._moulds[place] = mould
        return place

    async def _prove(self, place: Place) -> None:
        name = f"sandbox:{self._remote.name}"
        mould, boot_s = self._moulds[place], self._remote.site.traits.boot_s
        limits = Limits(
            memory_bytes=mould.memory_bytes,
            processes=mould.processes,
            file_bytes=mould.file_bytes,
            files=mould.files,
            output_bytes=mould.output_bytes,
        )
        asked = {"limits": telling.limits_told(limits), "preload": mould.preload}
        try:
            hello = self._remote.settings(next(_NUMBERS)) + telling.message("attest", asked)
            await place.opened()
            async with asyncio.timeout(boot_s):
                await place.send(hello)
                what, told, _parts = await place.hear()
        except TimeoutError as error:
            raise SandboxError(name, f"a place proved nothing within {boot_s:g} s") from error
        except OSError as error:  # no descriptors, no memory on our side, or the line
            raise SandboxError(name, f"a place was lost at its start: {error}") from error
        if what == "refused":
            raise RefusedError(told["reason"], where=f"boundary {self._remote.name}", remedy=told["remedy"])
        if what != "facts":
            raise SandboxError(name, f"a place said {what!r} at its start: {told}")
        facts = told["facts"]
        if (fault := _shared(facts) or _fault(facts)) is not None:
            raise SandboxError(name, fault)
        self.proven = {**facts, "emulated": "yes" if self._remote.site.traits.emulated else "no"}

    def keep(self, place: Place, mould: Mould) -> None:
        """Take back a place that nobody uses any more."""
        place.busy = False
        if not place.gone:
            self.pool.keep(place, mould)

    # Programs

    async def ask(self, ask: _Ask, *, fresh: bool, urgent: bool) -> tuple[Execution, Opinion]:
        """Run a request in a place; one that never began is tried again in a new one.

        Raises
        ------
        SandboxError
            If it never began.
        """
        asked = self._clock.now()
        await self._turns.take(at_once=urgent)
        slow = False

        def slows() -> None:
            nonlocal slow
            slow = True
            self._slows(1)

        timer = self._clock.call_later(SLOW_S, slows)
        try:
            for left in reversed(range(TRIES)):
                try:
                    return await self._once(ask, asked, fresh=fresh)
                except SandboxError:
                    if self._closed or not left:
                        raise
                    fresh = True
            raise AssertionError("the last try returns or raises")
        finally:
            timer.cancel()
            self._slows(-slow)
            self._turns.give()

    def _slows(self, more: int) -> None:
        self._slow += more
        self._turns.slow(self._slow)

    async def _once(self, ask: _Ask, asked: Seconds, *, fresh: bool) -> tuple[Execution, Opinion]:
        try:
            place = await self.pool.slot(ask.mould, fresh=fresh)
        except RefusedError as error:  # it held when the run began: nothing that a program did
            raise SandboxError(f"sandbox:{self._remote.name}", str(error)) from error
        place.busy = True
        began = self._clock.now()
        sound = False
        try:
            what, told, parts = await self._answer(place, ask)
            if what == "ended":
                if (score := told.pop("score", None)) is not None:
                    kept = self.scores.setdefault(ask.mould.preload, deque(maxlen=KEPT))
                    kept.append(float(score))
                execution, opinion = telling.execution_read(told, parts)
                sound = execution.ended is not Ended.LOST and opinion.lost is None
                clocks = _clocks(execution.clocks, began - asked, self._clock.now() - began)
                return replace(execution, clocks=clocks), opinion
            if what == "never":
                raise SandboxError(
                    f"sandbox:{self._remote.name}", told["cause"], clocks=telling.clocks_read(told["clocks"])
                )
            return _lost(f"its runner said {what!r}", began - asked, self._clock.now() - began)
        except (ConnectionError, KeyError, TypeError, ValueError) as error:
            return _lost(str(error) or repr(error), began - asked, self._clock.now() - began)
        finally:
            if sound:
                self.keep(place, ask.mould)
            else:
                place.close()

    async def _answer(self, place: Place, ask: _Ask) -> tuple[str, dict[str, Any], list[bytes]]:
        """Send a request and hear its end; too long a silence is a lost line, and so is a flood."""
        left, enough, replied = ask.limits.reply_bytes + _SLACK_BYTES, False, False
        try:
            async with asyncio.timeout(ask.limits.wall_s + GRACE_S):
                await place.send(ask.message)
                while True:
                    what, told, parts = await place.hear()
                    if what == "never" and replied:
                        raise ConnectionError("what has answered cannot never have begun")
                    if what != "reply":
                        return what, told, parts
                    replied = True
                    left -= sum(map(len, parts))
                    if left < 0:
                        raise ConnectionError("it sends without end")
                    if not enough and any(ask.hear(part) for part in parts):
                        enough = True
                        await place.send(telling.message("enough"))
        except TimeoutError as error:
            raise ConnectionError("nothing was heard of it for longer than any limit") from error

    async def close(self) -> None:
        """End all places, under one deadline, and what the site has left."""
        self._closed = True
        self.pool.close()
        try:
            if self._closing:
                await asyncio.wait(self._closing, timeout=CLOSE_S)
        finally:
            await self._remote.site.close()


def _shared(facts: Mapping[str, str]) -> str | None:
    """Say which of our own namespaces a place is in, if it is in one: then nothing was started around it."""
    for kind in ("pid", "net"):
        seen = facts.get(f"{kind}_namespace")
        if seen is None or ((ours := namespace(kind)) is not None and seen == ours):
            return f"its {kind} namespace is {seen or 'unknown'}, and must be one of its own"
    return None


def _fault(facts: Mapping[str, str]) -> str | None:
    """Say which fact of a place is not as it must be."""
    if facts.get("confined_by") == "namespaces":
        return unproven(facts, {**FACTS, "pid": "1", "proc_processes": "no", "etc_shadow": "no"})
    if facts.get("confined_by") != "users" or not facts.get("uid", "").isdigit():
        return f"its guests are confined by {facts.get('confined_by', 'nothing')!r}"
    if int(facts["uid"]) < _LEAST_USER:
        return f"its guests are user {facts['uid']}, and must be one of their own"
    return unproven(facts, FACTS)


def _clocks(inside: Clocks, queued_s: Seconds, took_s: Seconds) -> Clocks:
    """A program's clocks, with the way to its place and back among what its start took."""
    ran_s = (inside.wall_s or 0.0) + (inside.reap_s or 0.0)
    return replace(inside, queued_s=queued_s, spawn_s=max(took_s - ran_s, 0.0))


def _lost(cause: str, queued_s: Seconds, took_s: Seconds) -> tuple[Execution, Opinion]:
    clocks = Clocks(queued_s=queued_s, wall_s=took_s)
    return Execution(Ended.LOST, clocks=clocks, evidence={"status": cause[:500]}), Opinion(lost=cause[:500])
