"""The pool for callers without an event loop: from any thread, beside a running loop, in a worker.

A rule that has a hard part (a comparison that may hang) can then be called like any function, wherever
it is called from. Its processes live in a loop of their own, in a thread of their own, from the first
call to the end of this process; a process that is forked from this one starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable

from steelyard.workers.ends import Outcome
from steelyard.workers.pool import WorkerPool


class BlockingPool:
    """Makes a pool at the first call, and waits for it.

    Parameters
    ----------
    make
        Makes the pool; called in the loop's thread.

    Examples
    --------
    >>> pool = BlockingPool(lambda: WorkerPool("builtins:len", size=1, cpu_s=1.0, wall_s=10.0))
    >>> pool.once("abc").value
    3
    >>> pool.close()
    """

    def __init__(self, make: Callable[[], WorkerPool]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: WorkerPool | None = None
        self._under_way: set[asyncio.Task[object]] = set()
        self._of_the_parent: list[object] = []
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def once(self, item: object) -> Outcome:
        """Run the function on one item, and wait for its end.

        Raises
        ------
        InfraError
            If the pool is closed meanwhile.
        """
        with self._lock:  # so that nobody is sent to a loop that is being closed
            asked = asyncio.run_coroutine_threadsafe(self._once(item), self._started())
        return asked.result()

    async def _once(self, item: object) -> Outcome:
        if self._pool is None:
            self._pool = self._make()
        task = asyncio.current_task()
        if task is not None:
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await self._pool.once(item)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), daemon=True)
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """End the processes and the thread; the next call starts others."""
        with self._lock:
            (loop, thread), self._loop, self._thread = (self._loop, self._thread), None, None
            if loop is None or thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._closed(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _closed(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        if self._under_way:  # those who wait are told before the loop stops under them
            await asyncio.wait(self._under_way)
        await asyncio.sleep(0)

    def _forget(self) -> None:
        """In a fork: the thread is not here, and the processes are the parent's."""
        self._lock = threading.Lock()
        self._of_the_parent.append(
            (self._loop, self._pool, self._under_way)
        )  # kept, or it would be closed for the parent
        self._loop = self._thread = self._pool = None
        self._under_way = set()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
