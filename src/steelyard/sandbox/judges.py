"""Judge processes: each holds one suite and checks one candidate after another.

A suite is compiled once, when its judge starts, and its judge is kept for the next candidates of the same
prompt. Members of one group are served one after another: while one's code is alive, no other's is with the
same judge. A candidate that keeps its judge waiting holds up nobody for long: after `PATIENCE_S` another
judge of the same suite is started.

Tests come from a dataset, and are untrusted, too: judges live in slots of their own, confined as candidates
are, and in no slot where a candidate ever runs. What they cost is charged to nobody.
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

from steelyard.clock import Clock, Seconds
from steelyard.errors import SandboxError
from steelyard.sandbox.boundary import Checks, Opinion
from steelyard.sandbox.guest import frames
from steelyard.sandbox.slot import Given, Slot, memory_file

PATIENCE_S: Final = 0.1
"""How long a candidate may keep its judge while another waits for one of the same suite."""

CPU_S: Final = 10
"""CPU seconds that a suite's own code may take over one candidate."""

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
        self.digest = digest
        self.served = 0
        self.guest.hear = self._hear
        self.since: Seconds | None = None
        """When its candidate began; `None` while it has none."""
        self._clock = slot.clock
        self._nonce = ""
        self._unfit: str | None = None
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self.guest.gone.add_done_callback(self._gone)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.guest.gone.done()

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
    """

    def __init__(self, slot: Callable[[], Any], clock: Clock) -> None:
        self._make = slot
        self._clock = clock
        self._slot: Slot | None = None
        self._booting: asyncio.Lock = asyncio.Lock()
        self._retiring: set[Slot] = set()
        self._idle: OrderedDict[Judge, None] = OrderedDict()
        self._waiting: dict[str, deque[asyncio.Future[Judge | None]]] = {}
        self._busy: dict[str, list[Judge | None]] = {}  # None: one that is being started

    async def take(self, checks: Checks, *, fresh: bool = False) -> Judge:
        """Find the suite's judge, wait for it a little, or start one.

        Raises
        ------
        SandboxError
            If none can be started.
        """
        digest = checks.digest
        if fresh and self._slot is not None:  # after a failure, elsewhere
            self._retiring.add(self._slot)
            self._slot = None
        if not fresh:
            judge = self._free(digest)
            if judge is None and digest in self._busy:
                judge = await self._handed(digest)
            if judge is not None:
                return judge
        self._busy.setdefault(digest, []).append(None)
        try:
            judge = await self._started(checks)
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
        """Wait for the judge of another candidate, as long as one of them gets on."""
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
        """Whether every judge of a suite has had the same candidate for long."""
        before = self._clock.now() - PATIENCE_S
        return all(
            judge is not None and judge.since is not None and judge.since < before
            for judge in self._busy.get(digest, ())
        )

    async def _started(self, checks: Checks) -> Judge:
        async with self._booting:
            if self._slot is not None and (self._slot.gone or self._slot.served >= SERVES):
                self._retiring.add(self._slot)
                self._slot = None
            if self._slot is None:
                self._slot = await self._make()
            for slot in [slot for slot in self._retiring if not slot.guests]:
                self._retiring.discard(slot)
                slot.close()
            return Judge(self._slot, checks.digest, checks)

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
        if judge.alive:
            self._idle[judge] = None
            while len(self._idle) > KEPT:
                self._idle.popitem(last=False)[0].end()

    def drop(self, judge: Judge) -> None:
        """End a judge that cannot be trusted to serve another."""
        judge.end()
        self._left(judge.digest, judge)
        waiting = self._waiting.get(judge.digest)
        while waiting:  # whoever waited for it starts one
            mine = waiting.popleft()
            if not mine.done():
                mine.set_result(None)
                return

    def _left(self, digest: str, judge: Judge | None) -> None:
        self._busy[digest].remove(judge)
        if not self._busy[digest]:
            del self._busy[digest]

    def close(self) -> None:
        """End them all."""
        for slot in [*self._retiring, *([self._slot] if self._slot else ())]:
            slot.close()
        self._idle.clear()


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
    return Opinion(planned, passed, code, None if reason is None else str(reason)[:500])
