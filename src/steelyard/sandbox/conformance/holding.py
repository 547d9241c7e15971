"""A boundary held against the suite, from the first honest program to the last trace.

Honest programs come first: under all of them there is no verdict, and nothing else is run. Then come those
that only look at whether the host can be seen: where it can, what follows would be let loose on the machine
itself, and is not run. Then all others, several at once, and after each an honest one through the same
boundary, which tells whether the slot was harmed. Beside a saboteur honest ones run as well. At last the
boundary is closed, and what is left on the host is looked for.

A boundary cannot hang the suite: each answer has its deadline, who does not let go is left alone, and all
runs in a thread of its own, so that a boundary which blocks its loop is named, too.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import re
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final, NamedTuple

from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import RefusedError, SteelyardError, describe, printable
from steelyard.execution import Limits
from steelyard.sandbox.boundary import Boundary
from steelyard.sandbox.conformance.asking import HUNG, Asking, Came, within
from steelyard.sandbox.conformance.cheating import CHEATING, ON_A_JUDGE
from steelyard.sandbox.conformance.honest import HONEST, PLAIN
from steelyard.sandbox.conformance.host import Host
from steelyard.sandbox.conformance.hostile import HOSTILE, REACHES, SLOW
from steelyard.sandbox.conformance.report import Fault, Report, Row
from steelyard.sandbox.conformance.saboteurs import SABOTEURS
from steelyard.sandbox.conformance.specimen import KINDS, PASS, SNIPPET, STDIN, TASK, Specimen, Suite, under

CLOSES_S: Final = 2.0
"""A boundary ends everything within this time."""

_ATTESTS_S: Final = 120.0
_LATER_S: Final = 2.5  # after so long a child that writes later has written
_DIES_S: Final = 1.0  # what was killed may be seen dying for so long
_BEAT_S: Final = 0.2
_HANGS: Final = 3  # then the rest is not run
_BESIDE: Final = 4
_SHORT: Final = 200
_SHORT_S: Final = 2.0
_MOST_LANES: Final = 8  # each may hold 512 MB
_AMPLE_CPU_S: Final = 10.0
_HONEST_CPU_S: Final = 30.0  # their speed is not the point, nor that of the boundary
_HONEST_WALLS: Final = 3
_QUICK_CPU_S: Final = 0.5
_FILLING: Final = frozenset({"memory", "disk"})
_SOONER: Final = frozenset({"cpu", "wall_reproduced"})
"""Limits that whoever fills something up may reach first, where an emulated kernel takes long to give it."""
_NUMPY: Final = re.compile(r"^\s*(?:import|from) numpy\b", re.MULTILINE)
_TRACED: Final = frozenset({"leaving", "others", "sabotage"})

_REMEDY: Final = "it is an object as steelyard.sandbox.Boundary describes it (docs/conformance.md)"
_STDIN_RIGHT: Final = "print(*[int(x) ** 2 for x in open(0).read().split()])\n"

_LEFT: Final[list[asyncio.AbstractEventLoop]] = []

Told = Callable[[str, int, int], None]


class Programs(NamedTuple):
    """What a boundary is held against.

    Parameters
    ----------
    honest
        Each must pass before anything is said.
    others
        Each must end as it may.
    """

    honest: Sequence[Specimen]
    others: Sequence[Specimen]


PROGRAMS: Final = Programs(
    [*HONEST, *under(HONEST, "check")],
    [*HOSTILE, *under(REACHES, "free"), *CHEATING, *ON_A_JUDGE, *SABOTEURS, *under(SABOTEURS, "free")],
)
"""All programs, by a table of calls, by a judge and as scripts."""


def hold(
    make: Callable[[], Boundary],
    *,
    programs: Programs = PROGRAMS,
    lanes: int | None = None,
    wall_s: Seconds = 20.0,
    grace_s: Seconds = 30.0,
    tell: Told = lambda _stage, _done, _total: None,
) -> Report:
    """Hold a boundary against the suite.

    Parameters
    ----------
    make
        Makes the boundary; it is closed at the end.
    programs
        What it is held against.
    lanes
        How many programs run at once; two for each core and at most eight if not given.
    wall_s
        The wall limit of each program.
    grace_s
        What the boundary may take beyond it: to start a slot, to wait for one, to clean up.
    tell
        Told the stage, and how many of its programs are done.

    Raises
    ------
    RefusedError
        If the boundary does not hold by its own word.
    """
    at_once = lanes or min(_MOST_LANES, 2 * (os.cpu_count() or 1))
    limits = replace(Limits(), wall_s=wall_s)
    holding = _Holding(make, programs, lanes=at_once, limits=limits, grace_s=grace_s, tell=tell)
    thread = threading.Thread(target=holding.run, name="conformance", daemon=True)
    with holding.host:
        try:
            thread.start()
            while not holding.done.wait(_BEAT_S) and not holding.blocked():
                pass
        except BaseException:
            holding.stop()
            holding.done.wait(_LATER_S + 2 * CLOSES_S)
            raise
        finally:
            holding.host.sweep()
    return holding.report()


class _Holding:
    """One boundary before the suite."""

    def __init__(
        self,
        make: Callable[[], Boundary],
        programs: Programs,
        *,
        lanes: int,
        limits: Limits,
        grace_s: Seconds,
        tell: Told,
    ) -> None:
        self.host = Host()
        self.done = threading.Event()
        self._make = make
        self._programs = programs
        self._lanes = lanes
        self._limits = limits
        self._grace_s = grace_s
        self._tell = tell
        self._clock: Clock = SystemClock()
        self._began = self._beat = self._clock.now()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._error: BaseException | None = None
        self._name = self._identity = ""
        self._facts: dict[str, str] = {}
        self._running: set[str] = set()
        self._hung = 0
        self._ran: list[Specimen] = []
        self._faults: dict[int, list[Fault]] = defaultdict(list)
        self._own: list[Fault] = []
        self._honest_ran: list[Specimen] = []
        self._left_out: list[str] = []
        self._unrun = (0, "")
        self._per_s: float | None = None

    # The thread, and whoever waits for it

    def run(self) -> None:
        """Hold the boundary, in this thread."""
        loop = self._loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            self._task = loop.create_task(self._hold())
            if self._stopped:
                self._task.cancel()
            loop.run_until_complete(self._task)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self._error = error
        finally:
            if asyncio.all_tasks(loop):  # the boundary did not let go of them: they stay as they are
                _LEFT.append(loop)
            else:
                loop.close()
            self.done.set()

    def blocked(self) -> bool:
        """Whether the boundary blocks its event loop, and for longer than any answer may take."""
        allowed_s = self._grace_s + 4 * self._limits.wall_s
        if self._clock.now() - self._beat <= allowed_s:
            return False
        names = ", ".join(sorted(self._running)) or "it was made, asked for its facts or closed"
        self._own.append(Fault(self._name, f"it blocked its event loop for {allowed_s:g} s, during: {names}"))
        self.stop()  # once it lets go
        return True

    def stop(self) -> None:
        """Call it off: the boundary is closed."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._task.cancel)

    def report(self) -> Report:
        """What it came to.

        Raises
        ------
        RefusedError
            If the boundary does not hold by its own word.
        """
        if self._error is not None:
            raise self._error
        honest = [fault for at in range(len(self._programs.honest)) for fault in self._faults[at]]
        rows = []
        for kind, words in KINDS.items():
            numbers = [at for at, one in self._numbered(self._ran) if one.kind == kind]
            faults = [fault for at in numbers for fault in self._faults[at]]
            if numbers:
                contained = sum(not self._faults[at] for at in numbers)
                rows.append(Row(kind, words, len(numbers), contained, faults))
        failed = sum(bool(self._faults[at]) for at in range(len(self._programs.honest)))
        total = len(self._honest_ran)
        return Report(
            self._name,
            self._identity,
            self._facts,
            version("steelyard"),
            datetime.now(UTC).date().isoformat(),
            f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}",
            Row("honest", KINDS["honest"], total, total - failed, honest),
            rows,
            self._own,
            self._unrun,
            self._left_out,
            self._per_s,
            self._clock.now() - self._began,
        )

    def _numbered(self, some: Sequence[Specimen]) -> list[tuple[int, Specimen]]:
        """Specimens with their numbers: what they leave behind has it in its name."""
        chosen = {id(one) for one in some}
        return [
            (at, one)
            for at, one in enumerate([*self._programs.honest, *self._programs.others])
            if id(one) in chosen
        ]

    # From the first honest program to the last trace

    async def _hold(self) -> None:
        boundary = made_by(self._make)  # before the beats: where it is refused, nothing is under way
        self._name, self._identity = boundary.name, boundary.identity
        beating = asyncio.ensure_future(self._beats())
        try:
            await self._attested(boundary)
            await self._all(Asking(boundary, self._grace_s))
        finally:
            await self._closed(boundary)
            beating.cancel()
            await asyncio.wait({beating})
        self._traced()

    async def _beats(self) -> None:
        while True:
            self._beat = self._clock.now()
            await asyncio.sleep(_BEAT_S)

    async def _attested(self, boundary: Boundary) -> None:
        self._tell("attesting", 0, 1)
        try:
            self._facts = dict(await within(min(_ATTESTS_S, 4 * self._grace_s), boundary.attest()))
        except RefusedError:
            raise
        except Exception as error:
            words = "it took too long" if isinstance(error, TimeoutError) else describe(error)
            raise RefusedError(
                f"it proves nothing ({words})",
                where=f"boundary {self._name}",
                remedy="its attest() returns facts, or raises RefusedError with the way out",
            ) from error

    async def _all(self, asking: Asking) -> None:
        honest = await self._without_numpy(asking)
        await self._lanes_of("honest", self._numbered(honest), asking, self._honest)
        if any(self._faults.values()) or self._hung:
            self._skip(self._programs.others, "honest programs fail")
            return
        await self._measure(asking)
        looking = [one for one in self._programs.others if one.kind == "separation"]
        others = [one for one in self._programs.others if one.kind != "separation"]
        await self._lanes_of("separation", self._numbered(looking), asking, self._other)
        if any(self._faults.values()):
            self._skip(others, "the host can be seen: what follows would be let loose on it")
            return
        others.sort(key=lambda one: one.name not in SLOW)
        slow = sum(one.name in SLOW for one in others)
        mixed = self._numbered(others[slow:])
        random.Random(0).shuffle(mixed)  # noqa: S311 - an order, no secret
        await self._lanes_of("hostile", self._numbered(others[:slow]) + mixed, asking, self._other)

    async def _without_numpy(self, asking: Asking) -> list[Specimen]:
        """The honest programs, without those that need NumPy where it is not there."""
        theirs = [one for one in self._programs.honest if _NUMPY.search(one.completion)]
        if theirs:
            probe = await asking.came(SNIPPET, f"import numpy\n\n{PLAIN}".encode(), self._ample())
            if probe.code == "load_error" and "numpy" in probe.words:
                self._left_out = [one.name for one in theirs]
                return [one for one in self._programs.honest if one not in theirs]
        return list(self._programs.honest)

    async def _measure(self, asking: Asking) -> None:
        """How many short programs it runs a second, several at once."""
        done, since = 0, self._clock.now()

        async def lane() -> None:
            nonlocal done
            while done < _SHORT and self._clock.now() < since + _SHORT_S:
                await asking.came(SNIPPET, PLAIN.encode(), self._ample())
                done += 1

        await asyncio.gather(*(lane() for _ in range(self._lanes)))
        self._per_s = done / max(self._clock.now() - since, 1e-9)

    async def _lanes_of(
        self,
        stage: str,
        numbered: Sequence[tuple[int, Specimen]],
        asking: Asking,
        trial: Callable[[int, Specimen, Asking], Awaitable[None]],
    ) -> None:
        left, total = deque(numbered), len(numbered)
        done = 0

        async def lane() -> None:
            nonlocal done
            while left and self._hung < _HANGS:
                number, one = left.popleft()
                self._running.add(one.name)
                await trial(number, one, asking)
                self._running.discard(one.name)
                done += 1
                self._tell(stage, done, total)

        await asyncio.gather(*(lane() for _ in range(self._lanes)))
        if left:
            self._skip([one for _, one in left], f"it hung {self._hung} times")

    def _skip(self, some: Sequence[Specimen], why: str) -> None:
        if some:
            self._unrun = (self._unrun[0] + len(some), self._unrun[1] or why)

    # One program

    def _ample(self) -> Limits:
        return replace(self._limits, cpu_s=_AMPLE_CPU_S)

    async def _came(self, asking: Asking, suite: Suite, source: bytes, limits: Limits) -> Came:
        came = await asking.came(suite, source, limits)
        self._hung += came.code == HUNG
        return came

    async def _honest(self, number: int, one: Specimen, asking: Asking) -> None:
        limits = replace(self._limits, cpu_s=_HONEST_CPU_S, wall_s=_HONEST_WALLS * self._limits.wall_s)
        came = await self._came(asking, one.suite, self.host.source(one.completion, number), limits)
        self._honest_ran.append(one)
        if came.code not in one.comes:
            self._faults[number].append(Fault(one.name, f"{came}; it is right, and must pass"))

    async def _other(self, number: int, one: Specimen, asking: Asking) -> None:
        """A program, honest ones beside it if it is a saboteur, and an honest one after it."""
        limits = replace(self._limits, cpu_s=_QUICK_CPU_S if "cpu" in one.comes else _AMPLE_CPU_S)
        faults = self._faults[number]
        self._ran.append(one)
        if one.after is not None:
            before = self.host.source(one.after.completion, number)
            await self._came(asking, one.after.suite, before, limits)
        source = self.host.source(one.completion, number)
        under_way = asyncio.ensure_future(self._came(asking, one.suite, source, limits))
        suite, right = _honest_like(one)
        for _ in range(_BESIDE if one.kind == "sabotage" else 0):
            beside = await self._came(asking, suite, right, self._ample())
            if beside.code != PASS:
                faults.append(Fault(one.name, f"an honest program beside it: {beside}"))
            if under_way.done():
                break
        came = await under_way
        slow = one.kind in _FILLING and self._facts.get("emulated") == "yes"
        ends = one.comes | (_SOONER if slow else set())
        if came.code not in ends:
            faults.append(Fault(one.name, f"{came}; it may end with {', '.join(sorted(ends))}"))
        after = await self._came(asking, suite, right, self._ample())
        if after.code != PASS:
            faults.append(Fault(one.name, f"the honest program after it: {after}"))
        if one.kind in _TRACED and (left := await self._still_there(number)):
            faults.append(Fault(one.name, f"after its end there was {left}"))

    # What is left

    async def _still_there(self, number: int) -> str | None:
        """A trace of this program that does not go within a moment."""

        def own() -> list[str]:
            return [what for what, numbers in self.host.traces().items() if number in numbers]

        return next(iter(await self._gone(own, _DIES_S)), None)

    async def _gone(self, look: Callable[[], list[str]], within_s: Seconds) -> list[str]:
        """What is still there after so long; what was killed takes a moment to die."""
        give_up = self._clock.now() + within_s
        while (left := look()) and self._clock.now() < give_up:  # noqa: ASYNC110 - nobody tells when it is gone
            await asyncio.sleep(0.05)
        return left

    async def _closed(self, boundary: Boundary) -> None:
        """Close it, and see that nothing of it runs on."""
        if any(one.kind == "leaving" for one in self._ran):
            await asyncio.sleep(_LATER_S)
        since = self._clock.now()
        try:
            await within(self._grace_s, boundary.close())
        except TimeoutError:
            self._own.append(Fault(self._name, f"close() did not return within {self._grace_s:g} s"))
        except Exception as error:  # noqa: BLE001 - whatever it raises, it may not
            self._own.append(Fault(self._name, f"close() raised {printable(describe(error))}"))
        taken_s = self._clock.now() - since
        if taken_s > CLOSES_S:
            self._own.append(
                Fault(self._name, f"close() took {taken_s:.1f} s, at most {CLOSES_S:g} are allowed")
            )
        left = await self._gone(self.host.running, CLOSES_S)
        self._own += [Fault(self._name, f"it left a process running: {said}") for said in left]

    def _traced(self) -> None:
        names = [one.name for one in (*self._programs.honest, *self._programs.others)]
        for what, numbers in self.host.traces().items():
            for number in numbers & set(range(len(names))):
                self._faults[number].append(Fault(names[number], f"on the host it left {what}"))


def made_by(make: Callable[[], Boundary], *, where: str = "conformance") -> Boundary:
    """Make a boundary, and see that it has what one has.

    Raises
    ------
    RefusedError
        If it cannot be made, or is none.
    """
    try:
        boundary = make()
        name, _ = boundary.name, boundary.identity
    except SteelyardError:
        raise
    except Exception as error:
        raise RefusedError(f"it cannot be made ({describe(error)})", where=where, remedy=_REMEDY) from error
    lacking = [word for word in ("attest", "run", "check", "close") if not hasattr(boundary, word)]
    if lacking:
        raise RefusedError(f"it has no {', '.join(lacking)}", where=f"boundary {name}", remedy=_REMEDY)
    return boundary


def _honest_like(one: Specimen) -> tuple[Suite, bytes]:
    """An honest program that is run as this one is: by a table, a judge, or as a script."""
    if one.suite is STDIN:
        return STDIN, _STDIN_RIGHT.encode()
    return (one.suite if one.suite.prompt == TASK else SNIPPET), PLAIN.encode()
