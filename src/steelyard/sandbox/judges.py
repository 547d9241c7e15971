"""Judge processes: each holds one suite and checks one candidate after another.

A suite is compiled once, when its judge starts, and its judge is kept for the next candidates of the same
prompt. Members of one group are served one after another: while one's code is alive, no other's is with the
same judge. A candidate that keeps its judge waiting holds up nobody for long: after `PATIENCE_S` another
judge of the same suite is started, in another slot, so that nothing that the two bring about meets.

Tests come from a dataset, and are untrusted, too: judges live in slots of their own, confined as candidates
are, and in no slot where a candidate ever runs. What they cost is charged to nobody; a suite that computes
or sleeps without end loses its judge, and the incentive law decides.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import secrets
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from steelyard.clock import Clock, Seconds, Timer
from steelyard.errors import SandboxError
from steelyard.sandbox.boundary import Checks, Opinion
from steelyard.sandbox.guest import frames
from steelyard.sandbox.slot import Given, Slot, memory_file

PATIENCE_S: Final = 0.1
"""How long a candidate may keep its judge while another waits for one of the same suite."""

CPU_S: Final = 10
"""CPU seconds that a suite's own code may take over one candidate."""

WALL_S: Final = 30.0
"""Wall seconds that it may take over one candidate, beside those in which it waits for it."""

LOOK_S: Final = 0.25
"""Between two looks at what a judge that was asked is doing."""

ANSWER_S: Final = 2.0
"""How long a judge may take to say that its candidate is gone."""

KEPT: Final = 48
"""Judges that are kept although nobody needs them at the moment."""

SERVES: Final = 500
"""Judges that a slot starts before another takes its place."""


_SAYS: Final = 64 << 20  # what a judge may say in its life: a thousand answers of the longest kind


class Judge:
    """A process that holds a suite."""

    def __init__(self, slot: Slot, digest: str, checks: Checks) -> None:
        page = memory_file(bytes(mmap.PAGESIZE))
        try:
            self._page = mmap.mmap(page, mmap.PAGESIZE)
            header = {
                "mode": "judge",
                "entry_point": checks.entry_point,
                "cpu_s": CPU_S,
                **checks.header,
            }
            payload = frames.pack(json.dumps(header).encode(), checks.source)
            self.guest = slot.start(
                Given(payload, cpu_s=1_000_000, reply_bytes=_SAYS, packets=True, phase=page)
            )
        finally:
            os.close(page)
        self.slot = slot
        self.digest = digest
        self.served = 0
        self.guest.hear = self._hear
        self.since: Seconds | None = None
        """When its candidate began; `None` while it has none."""
        self._clock = slot.clock
        self._nonce = ""
        self._unfit: str | None = None
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._own_s: Seconds = 0.0
        self._timer: Timer | None = None
        self.guest.gone.add_done_callback(self._gone)

    @property
    def gone(self) -> asyncio.Future[None]:
        """Done when it has ended."""
        return self.guest.gone

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.gone.done()

    @property
    def waits_for_candidate(self) -> bool:
        """Whether it waits for what the candidate will say."""
        return self.alive and self._page[0] == 1

    def ask(self, candidate: socket.socket) -> asyncio.Future[dict[str, Any]]:
        """Hand it a candidate's socket; its answer comes, or `ConnectionError` if it ends first."""
        self.served += 1
        self.since = self._clock.now()
        self._nonce = secrets.token_hex(16)
        self._answer = asyncio.get_running_loop().create_future()
        self._own_s = 0.0
        self._timer = self._clock.call_later(LOOK_S, self._look)
        self._answer.add_done_callback(self._looked)
        if not self.alive:
            self._gone(None)
            return self._answer
        self._page[0] = 0
        message = json.dumps({"nonce": self._nonce, "seed": 0}).encode()
        try:
            socket.send_fds(self.guest.channel, [message], [candidate.fileno()])
        except OSError as error:
            self._lost(f"it cannot be asked: {error}")
        return self._answer

    def _look(self) -> None:
        self._own_s += 0.0 if self.waits_for_candidate else LOOK_S
        if self._own_s > WALL_S:
            self._lost(f"it took {WALL_S:g} s of its own over one candidate")
            self.end()
        else:
            self._timer = self._clock.call_later(LOOK_S, self._look)

    def _looked(self, _answer: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hear(self, frame: bytes) -> None:
        try:
            said = json.loads(frame)
            answer, ready = self._answer, said.get("ready")
        except (ValueError, AttributeError, RecursionError):
            self.end()  # tests speak where only their judge should: it can be asked no more
            return
        if answer is not None and not answer.done() and said.get("nonce") == self._nonce:
            answer.set_result(said)
        elif ready is False:
            self._unfit = str(said.get("reason"))[:300]
        elif ready is not True:
            self.end()

    def _gone(self, _gone: object) -> None:
        status = self.guest.status
        if self._unfit is not None and self._answer is not None and not self._answer.done():
            answer = {"planned": 0, "passed": 0, "code": "suite_error", "reason": self._unfit}
            self._answer.set_result(answer)
        self._lost(self.guest.failed or f"it ended with wait status {status}")
        self.guest.close()
        self._page.close()

    def _lost(self, cause: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(cause))
            self._answer.exception()

    def end(self) -> None:
        """End it."""
        self.guest.kill()


class Judges:
    """Judges by suite.

    Parameters
    ----------
    slot
        Makes a slot for judges that is ready and proven.
    clock
        Time.
    most
        Slots that take judges at one time, and so judges of one suite; one more than there are cores if not
        given.
    """

    def __init__(self, slot: Callable[[], Any], clock: Clock, *, most: int | None = None) -> None:
        self._make = slot
        self._clock = clock
        self._most = most or len(os.sched_getaffinity(0)) + 1
        self._booting: asyncio.Lock = asyncio.Lock()
        self._slots: list[Slot] = []
        self._retiring: set[Slot] = set()
        self._living: set[Judge] = set()
        self._idle: OrderedDict[Judge, None] = OrderedDict()
        self._waiting: dict[str, deque[asyncio.Future[Judge | None]]] = {}
        self._busy: dict[str, list[Judge | None]] = {}  # None: one that is being started
        self._closed = False

    async def take(self, checks: Checks, *, fresh: bool = False) -> Judge:
        """Find the suite's judge, wait for it a little, or start one.

        Parameters
        ----------
        checks
            The suite.
        fresh
            Whether it must be a new one, in a new slot.

        Raises
        ------
        SandboxError
            If none can be started.
        """
        digest = checks.digest
        judge = None if fresh else self._free(digest)
        while judge is None and not fresh and digest in self._busy and not self._closed:
            judge = await self._handed(digest) or self._free(digest)
            if judge is None and self._held_up(digest):
                break
        if judge is not None:
            return judge
        self._busy.setdefault(digest, []).append(None)
        try:
            judge = await self._started(checks, fresh=fresh)
        except BaseException:
            self._left(digest, None)
            raise
        self._busy[digest].remove(None)
        self._busy[digest].append(judge)
        return judge

    def _free(self, digest: str) -> Judge | None:
        for judge in self._idle:
            if judge.digest == digest and judge.alive:
                del self._idle[judge]
                self._busy.setdefault(digest, []).append(judge)
                return judge
        return None

    async def _handed(self, digest: str) -> Judge | None:
        """Wait for the judge of another candidate, as long as one of them gets on; `None`: look again."""
        mine: asyncio.Future[Judge | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(digest, deque()).append(mine)

        timer = self._clock.call_later(PATIENCE_S, lambda: look())  # noqa: PLW0108 - it is bound below

        def look() -> None:
            nonlocal timer
            if mine.done():  # and whoever waits has not heard of it yet
                return
            if self._held_up(digest):
                mine.set_result(None)
            else:
                timer = self._clock.call_later(PATIENCE_S, look)

        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and (judge := mine.result()) is not None:
                self.give(judge)
            raise
        finally:
            timer.cancel()
            if mine in (waiting := self._waiting.get(digest, deque())):
                waiting.remove(mine)
            if not waiting:
                self._waiting.pop(digest, None)

    def _held_up(self, digest: str) -> bool:
        """Whether every judge of a suite has had its candidate for long, and there is room for another."""
        before, busy = self._clock.now() - PATIENCE_S, self._busy.get(digest, ())
        return len(busy) < self._most and all(
            judge is not None and judge.since is not None and judge.since < before for judge in busy
        )

    async def _started(self, checks: Checks, *, fresh: bool) -> Judge:
        async with self._booting:
            slot = None if fresh else self._place(checks.digest)
            if slot is None:
                slot = await self._new()
            judge = Judge(slot, checks.digest, checks)
        self._living.add(judge)
        judge.gone.add_done_callback(lambda _gone: self._forget(judge))
        return judge

    def _place(self, digest: str) -> Slot | None:
        """Find a slot where no judge of this suite lives: members of a group share none."""
        for slot in [slot for slot in self._slots if slot.gone or slot.served >= SERVES]:
            self._retire(slot)
        taken = {judge.slot for judge in self._living if judge.digest == digest}
        return next((slot for slot in self._slots if slot not in taken), None)

    async def _new(self) -> Slot:
        self._refuse_closed()
        slot: Slot = await self._make()
        try:
            self._refuse_closed()  # meanwhile
        except SandboxError:
            slot.close()
            raise
        while len(self._slots) >= self._most:
            self._retire(self._slots[0])
        self._slots.append(slot)
        return slot

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SandboxError("sandbox", "its boundary was closed")

    def _retire(self, slot: Slot) -> None:
        """Let a slot take no further judge, and end it when the last one there has served."""
        if slot in self._slots:
            self._slots.remove(slot)
            self._retiring.add(slot)
            for judge in [judge for judge in self._idle if judge.slot is slot]:
                del self._idle[judge]
                judge.end()
        if not any(judge.slot is slot for judge in self._living):
            self._retiring.discard(slot)
            slot.close()

    def _forget(self, judge: Judge) -> None:
        self._living.discard(judge)
        self._idle.pop(judge, None)
        if judge.slot in self._retiring:
            self._retire(judge.slot)

    def give(self, judge: Judge) -> None:
        """Hand a judge on, or keep it."""
        judge.since = None
        waiting = self._waiting.get(judge.digest)
        while judge.alive and waiting:
            mine = waiting.popleft()
            if not mine.done():
                mine.set_result(judge)
                return
        self._left(judge.digest, judge)
        if not judge.alive:
            return
        if judge.slot not in self._slots:
            judge.end()
            return
        self._idle[judge] = None
        while len(self._idle) > KEPT:
            self._idle.popitem(last=False)[0].end()

    def drop(self, judge: Judge) -> None:
        """End a judge that cannot be trusted to serve another; where one ended by itself, no other begins."""
        if not judge.alive:
            self._retire(judge.slot)
        judge.end()
        self._left(judge.digest, judge)

    def _left(self, digest: str, judge: Judge | None) -> None:
        self._busy[digest].remove(judge)
        if not self._busy[digest]:
            del self._busy[digest]
            self._wake(digest)

    def _wake(self, digest: str) -> None:
        """Have all who wait look again: there is nobody left who would hand them a judge."""
        for mine in self._waiting.get(digest, ()):
            if not mine.done():
                mine.set_result(None)

    def close(self) -> None:
        """End them all."""
        self._closed = True
        for slot in [*self._retiring, *self._slots]:
            slot.close()
        self._slots.clear()
        self._retiring.clear()
        self._idle.clear()
        for digest in self._waiting:
            self._wake(digest)


def opinion_of(said: dict[str, Any]) -> Opinion:
    """Read a judge's answer.

    Raises
    ------
    SandboxError
        If it is none.
    """
    planned, passed, code, reason = (said.get(word) for word in ("planned", "passed", "code", "reason"))
    sound = type(planned) is int and type(passed) is int and 0 <= passed <= planned
    if not sound or not (code is None or type(code) is str):
        raise SandboxError("sandbox", f"a judge answered {said!r:.200}")
    check = said.get("check")
    reason = None if reason is None else str(reason)[:500]
    return Opinion(planned, passed, code, reason, check=check if isinstance(check, dict) else {})
