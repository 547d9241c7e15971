"""A pool of persistent, killable processes that run one trusted synchronous function.

For users' rewards and for maths: Python that nobody wrote to do harm, but that may hang, hold the
interpreter's lock for an hour, eat the memory or take its process down. **It is not an isolation
boundary**: the function sees the files, the network and the environment that the trainer sees.
Model-written code runs behind a boundary (`steelyard.sandbox`), never here.

What holds:

- An item that hangs, crashes or exits ends alone. Items before it keep their results, items behind
  it are sent to a fresh process. No item that ended is run again.
- CPU seconds are counted by the kernel, per item. The wall limit counts from the item's own start,
  never from submission; it is the backstop for what sleeps.
- Messages are served in the order of asking; the rest of a message that lost its process asks again
  at the end of the queue.
- `close` takes under two seconds and leaves no process, descriptor or task; if this process is
  killed, its workers and their process groups die within a second.

What does not: a descendant that leaves the process group (`setsid`) is not followed; a thread left
running by an item ends its process (the next item gets a fresh one) only if it is busy; the memory
limit needs `/proc` (Linux). Windows has neither the timer nor process groups: the pool is refused
there.

`ends.py` says how a call ends, `process.py` is the parent's side of one process, `child.py` is what
runs inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import InfraError, RefusedError, describe
from steelyard.workers.ends import NotStarted, Outcome, Raised
from steelyard.workers.process import Job, WorkerProcess

START_S = 120.0
"""Importing the target may mean importing a large library over a slow network disk."""

FRUITLESS = 3
"""Processes in a row that may end before the first item of a message, before it is given up."""

LEAVE_S = 0.5
"""What exit handlers may take when the pool is closed, before the process is killed."""


class _NoWorkerError(Exception):
    """A process could not be made ready; the text says why, and whether the target refused to be."""

    def __init__(self, cause: str, *, refused: bool = False) -> None:
        super().__init__(cause)
        self.refused = refused


class WorkerPool:
    """Persistent processes that run `target` on items, many per message.

    Parameters
    ----------
    target
        `package.module:function`, or `path/to/file.py:function`; imported in each process.
    size
        How many processes run at once.
    cpu_s
        CPU seconds per item; `None` for no limit.
    wall_s
        Wall seconds per item; `None` for no limit.
    given
        What `target` is called with, once in each process, to make the function; pickled. Without it the
        target is the function.
    memory_bytes
        What a process may take beyond what it holds after the import (Linux).
    confined
        For code of ours that reads what a policy wrote: the environment is scrubbed, and Python in the
        process gets no network, no other process, and writes no file.
    start_s
        Seconds for starting and importing.
    most_s
        Wall seconds for an item whose limits are multiplied, at most.
    clock
        Where time comes from.

    Raises
    ------
    RefusedError
        Where a limit is not positive, or the system has no POSIX processes.

    Examples
    --------
    >>> async def lengths() -> list[object]:
    ...     async with WorkerPool("builtins:len", size=1, cpu_s=1.0, wall_s=10.0) as pool:
    ...         return [outcome.value for outcome in await pool.call(["a", "bc"])]
    >>> asyncio.run(lengths())
    [1, 2]
    """

    def __init__(
        self,
        target: str,
        *,
        given: object = None,
        size: int,
        cpu_s: Seconds | None,
        wall_s: Seconds | None,
        memory_bytes: int | None = None,
        confined: bool = False,
        start_s: Seconds = START_S,
        most_s: Seconds | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._where = f"workers for {target!r}"
        if os.name != "posix" or not sys.executable:
            raise RefusedError(
                f"killable processes need POSIX and an interpreter's path, this is {os.name!r} "
                f"with {sys.executable!r}",
                where=self._where,
                remedy="run under Linux, macOS or WSL, or make the reward asynchronous",
            )
        for name, limit in {
            "size": size,
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "memory_bytes": memory_bytes,
        }.items():
            if limit is not None and not limit > 0:
                raise RefusedError(
                    f"{name} must be positive, not {limit}", where=self._where, remedy=f"raise {name}"
                )
        packed = None if given is None else pickle.dumps(given)
        self._job = Job(target, packed, cpu_s, wall_s, memory_bytes, confined)
        self._start_s = start_s
        self._most_s = most_s
        self._size = size
        self._clock = clock or SystemClock()
        self._seats = asyncio.Semaphore(size)
        self._idle: list[WorkerProcess] = []
        self._alive: set[WorkerProcess] = set()
        self._closed = False
        self.was_ready = False

    async def start(self) -> None:
        """Start the processes and import the target in each.

        Raises
        ------
        RefusedError
            If the target cannot be imported.
        """
        starts = [asyncio.ensure_future(self._spawn()) for _ in range(self._size)]
        try:
            self._idle += await asyncio.gather(*starts)
        except BaseException as error:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.close()
            if isinstance(error, _NoWorkerError):
                raise RefusedError(
                    f"cannot be made ready: {error}",
                    where=self._where,
                    remedy="give package.module:function or path/to/file.py:function, which a fresh "
                    f"interpreter can import in {Path.cwd()} (not one defined in a notebook or a function)",
                ) from None
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def call(self, items: Sequence[object], *, times: int = 1) -> list[Outcome]:
        """Run the function on each item, as one message; outcomes come in the items' order.

        Parameters
        ----------
        items
            What the function is given, one after another.
        times
            What the limits of each are multiplied with: the number of rollouts in it.

        Raises
        ------
        InfraError
            If the pool is not open.
        """
        outcomes: dict[int, Outcome] = {}
        waiting: dict[int, bytes] = {}
        for place, item in enumerate(items):
            try:
                waiting[place] = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001 (whatever a user's __reduce__ raises)
                outcomes[place] = Outcome(failure=_unsendable(error))
        await self._run(waiting, outcomes, times=times)
        return [outcomes[place] for place in range(len(items))]

    async def once(self, item: object, *, times: int = 1, fresh: bool = False) -> Outcome:
        """Run the function on one item, such as a whole batch.

        Parameters
        ----------
        item
            What the function is given.
        times
            What its limits are multiplied with: the number of rollouts in it.
        fresh
            Whether to run it in a process that ran nothing before, and is gone afterwards.
        """
        try:
            blob = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 (as in call)
            return Outcome(failure=_unsendable(error))
        outcomes: dict[int, Outcome] = {}
        await self._run({0: blob}, outcomes, times=times, fresh=fresh)
        return outcomes[0]

    async def _run(
        self,
        waiting: dict[int, bytes],
        outcomes: dict[int, Outcome],
        *,
        times: int = 1,
        fresh: bool = False,
    ) -> None:
        """Send what waits to one process after another, until each item has its outcome."""
        fruitless, cause, queued_s, refused = 0, "", 0.0, False
        while waiting and fruitless < FRUITLESS:
            asked_at = self._clock.now()
            async with self._seats:
                try:
                    worker = await self._worker(fresh=fresh)
                except _NoWorkerError as error:
                    fruitless, cause, refused = fruitless + 1, str(error), error.refused
                    if refused:
                        break
                    continue
                queued_s += self._clock.now() - asked_at
                try:
                    wall_s = self._wall_s(times)
                    found = await worker.ask(
                        list(waiting.values()), wall_s=wall_s, queued_s=queued_s, times=times
                    )
                finally:
                    await self._give_back(worker, fresh=fresh)
            places = list(waiting)
            for index, outcome in found.items():
                outcomes[places[index]] = outcome
                del waiting[places[index]]
            fruitless, cause = (
                (0, "") if found else (fruitless + 1, "its process ended before the first item")
            )
        for place in waiting:
            times_said = "" if refused else f", {fruitless} times"
            failure = NotStarted(f"{cause}{times_said}", refused=refused)
            outcomes[place] = Outcome(failure=failure, queued_s=queued_s)

    def _wall_s(self, times: int) -> Seconds | None:
        """What an item of so many rollouts may take; the limit of one is nobody's to shorten."""
        one = self._job.wall_s
        if one is None:
            return None
        return one * times if self._most_s is None else min(one * times, max(one, self._most_s))

    async def _worker(self, *, fresh: bool) -> WorkerProcess:
        if self._closed:
            raise InfraError(self._where, "the pool is closed")
        while self._idle and not fresh:
            worker = self._idle.pop()
            if worker.usable:
                return worker
        return await self._spawn()

    async def _give_back(self, worker: WorkerProcess, *, fresh: bool) -> None:
        if fresh:
            worker.cut()
            await worker.gone.wait()
        elif worker.usable and not self._closed:
            self._idle.append(worker)

    async def _spawn(self) -> WorkerProcess:
        try:
            worker = WorkerProcess(self._clock, self._forget, scrubbed=self._job.confined)
        except OSError as error:
            raise _NoWorkerError(f"no process can be started: {describe(error)}") from None
        self._alive.add(worker)
        failure = await worker.prepare(self._job, within_s=self._start_s)
        if isinstance(failure, Raised) and failure.type == RefusedError.__name__:
            raise _NoWorkerError(failure.message, refused=True)
        if failure is not None:
            raise _NoWorkerError(f"importing it within {self._start_s:g} s failed: {failure}")
        self.was_ready = True
        return worker

    def _forget(self, worker: WorkerProcess) -> None:
        self._alive.discard(worker)
        with contextlib.suppress(ValueError):
            self._idle.remove(worker)

    async def close(self) -> None:
        """End every process, in under two seconds; calls in flight raise `InfraError`.

        Idle processes are asked first, so that their exit handlers run; busy ones are killed.
        """
        self._closed = True
        for worker in self._alive:
            if worker in self._idle:
                worker.leave()
            else:
                worker.cut()
        self._idle.clear()
        try:
            await self._all_gone(LEAVE_S)
            for worker in self._alive:
                worker.cut()
            await self._all_gone(1.0)
        finally:
            for worker in list(self._alive):  # the caller is being cancelled, or a keeper was stopped
                worker.bury()

    async def _all_gone(self, within_s: Seconds) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for worker in list(self._alive):
                    await worker.gone.wait()


def _unsendable(error: Exception) -> NotStarted:
    return NotStarted(
        f"it cannot be pickled for a worker process ({describe(error)}); "
        "keep plain values (str, numbers, lists, dicts) in the columns that a reward reads",
        unsendable=True,
    )
