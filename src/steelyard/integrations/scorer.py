"""A runtime in a thread of its own, for loops that are not asynchronous.

A trainer is synchronous: it generates, wants rewards, trains. `Scorer` keeps one `Runtime` open in the event
loop of a daemon thread, so that worker processes and warm slots live from step to step, and scoring goes on
while the trainer does something else: `submit` hands groups over and returns at once, the `Pending` that
comes back yields them scored, as they finish.

Nothing waits for ever. A batch has a deadline by the wall clock from when it was submitted, and a thread that
ends for whatever reason ends what waits for it. The deadline never makes a verdict (the wall clock is no
evidence against a completion): when it is over the run stops, with what was still under way.

Rewards run where the runtime runs them: functions in worker processes, programs behind a boundary. Nothing
of a policy runs in this thread.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - see _close_all
import logging
import os
import queue
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import RefusedError, RunStoppedError, describe
from steelyard.ledger import Ledger
from steelyard.outcome import ScoredGroup, is_resident
from steelyard.rewards import Recipe
from steelyard.rollout import Group
from steelyard.runtime import PLACES, Runtime

DEADLINE_S: Final = 900.0
"""Half of the time after which a process group gives up on a rank (by default 1,800 s)."""

_log = logging.getLogger("steelyard")
_CLOSE_S: Final = 20.0  # audits of learnt limits may take ten, slots and processes two
_CALLS: Final = (
    8  # a batch that hangs is asked for by group, then by member, each again: in half of its deadline
)
_TURNS_S: Final = 1.0
_NAMED: Final = 3  # unfinished groups in a message

Durability: TypeAlias = Literal["full", "step"]


class Scorer:
    """Scores the groups of a synchronous loop.

    Parameters
    ----------
    recipe
        What to ask.
    ledger, name
        The file where it is written down, if any, and what the run is called there. Each scorer begins a run.
    durability
        `full`: a verdict is recorded before it is handed on. `step`: a background thread writes, and a
        process that is killed may lose its last step; columns must not be changed in place before the next.
    advantage, timeout_s, workers, places, stop
        As in `Runtime`.
    deadline_s
        Wall seconds that a batch may take from when it is submitted; the run stops then.
    clock
        Time.

    Raises
    ------
    RefusedError
        If a reward cannot be run here, a boundary does not hold, or the ledger cannot be written.

    Examples
    --------
    >>> from steelyard import Part, Rollout, builtin
    >>> rows = [Rollout(i, "1 + 1?", f"#### {i}", {"answer": "2"}, (0, i), i, f"row {i}") for i in range(4)]
    >>> with Scorer(Recipe((Part(builtin("gsm8k")),))) as scorer:
    ...     pending = scorer.submit([Group("sum", 0, rows)])
    ...     [[float(total) for total in scored.totals] for scored in pending]
    [[0.2, 0.2, 1.2, 0.2]]
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        ledger: str | Path | None = None,
        name: str = "training",
        durability: Durability = "full",
        advantage: str = "grpo",
        timeout_s: Seconds | None = None,
        workers: int | None = None,
        places: int = PLACES,
        stop: bool = True,
        deadline_s: Seconds = DEADLINE_S,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < deadline_s < float("inf"):
            raise RefusedError(
                f"it must be positive and finite, not {deadline_s}",
                where="deadline_s",
                remedy="say how many seconds a batch may take",
            )
        if not isinstance(recipe, Recipe):
            raise RefusedError(
                f"{recipe!r:.60} is no recipe",
                where="Scorer",
                remedy="Recipe((Part(builtin('gsm8k')), Part(reward(function)))), or load_recipe(PATH)",
            )
        self.recipe = recipe
        self.advantage = advantage
        self.deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: set[Pending] = set()
        self._ended: BaseException | None = None
        self._untold: BaseException | None = None
        self._started = False
        self._stuck = False
        self._record = None if ledger is None else Ledger(ledger)
        try:
            run = None if self._record is None else self._begin(self._record, name, advantage)
            self._runtime = Runtime(
                recipe,
                ledger=self._record,
                run=run,
                durability=durability,
                advantage=advantage,
                timeout_s=timeout_s,
                workers=workers,
                places=places,
                stop=stop,
                most_s=deadline_s / _CALLS,
                clock=clock,
            )
        except BaseException:
            self._shut()
            raise
        self._start()

    def _start(self) -> None:
        """Start the thread, and wait until it is ready."""
        # without a factory it would become the loop of the thread that trains
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._leave = asyncio.Event()
        self.turned_s = self._clock.now()
        """When the event loop last turned."""
        ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._main, args=(ready,), name="steelyard-scorer", daemon=True
        )
        self._thread.start()
        refused = ready.get()
        if refused is not None:
            self._thread.join()
            raise refused
        _SCORERS.add(self)

    def _begin(self, record: Ledger, name: str, advantage: str) -> Any:  # noqa: ANN401 - the ledger's run
        recipe = self.recipe
        began = self._clock.unix()
        spec = {
            "name": name,
            "weights": recipe.weights,
            "combine": "weighted sum" if recipe.combine is None else "a function",
            "shapes": [shape.identity for shape in recipe.shapes],
            "advantage": advantage,
        }
        parts = {part.reward.name: part.reward.identity for part in recipe.parts}
        return record.begin(f"{name}, {recipe.identity}, {began:.6f}", spec, parts, new_run=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(RunStoppedError) if kind is not None else nullcontext():
            self.close()

    def submit(self, groups: Sequence[Group], *, step: int | str | None = None) -> Pending:
        """Begin to score; what comes of it is waited for with what is returned.

        Parameters
        ----------
        groups
            Complete groups, with keys and ordinals that count on through the run.
        step
            The training step they belong to; a name that begins with `evaluation` is none, for prices.

        Raises
        ------
        RunStoppedError
            If the scorer is closed, its thread has ended, or it belongs to the process that forked this one.
        """
        if os.getpid() != self._pid:
            raise RunStoppedError(
                "this scorer belongs to the process from which this one was forked"
                "\n  next: make one in each process"
            )
        pending = Pending(self, groups)
        with self._lock:
            if self._ended is not None:
                self._untold = None
                raise RunStoppedError(f"nothing is scored any more: {describe(self._ended)}") from self._ended
            self._open.add(pending)
        pending.task = asyncio.run_coroutine_threadsafe(self._score(pending, step), self._loop)
        return pending

    @property
    def ended(self) -> bool:
        """Whether nothing can be scored any more."""
        return self._ended is not None

    def close(self) -> None:
        """End worker processes, slots and the thread, and close the ledger; a second time changes nothing.

        Raises
        ------
        RunStoppedError
            If what was left to be written down could not be, and nobody was told yet.
        """
        if os.getpid() != self._pid:
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._leave.set)
        if self._stuck:
            return
        self._thread.join(_CLOSE_S)
        self._stuck = self._thread.is_alive()
        if self._stuck:
            _log.error(
                "steelyard: the scorer's thread has not ended in %g s; what it runs ends with this program",
                _CLOSE_S,
            )
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    # In the thread

    def _main(self, ready: queue.SimpleQueue[BaseException | None]) -> None:
        error = RunStoppedError("the scorer was closed")
        try:
            self._runner.run(self._serve(ready))
        except BaseException as failed:  # noqa: BLE001 - whoever waits hears of it
            error = RunStoppedError(f"the scorer's thread has ended ({describe(failed)})\n  next: run again")
            error.__cause__ = failed
            if self._started:
                self._untold = error
            ready.put(failed)
        finally:
            self._end(error)
            with suppress(BaseException):  # ends what runs, and with it the runtime
                self._runner.close()
            self._shut()

    async def _serve(self, ready: queue.SimpleQueue[BaseException | None]) -> None:
        async with self._runtime:
            for part in self.recipe.parts:
                if is_resident(part.reward):
                    await part.reward.attest()
            self._started = True
            ready.put(None)
            while not self._leave.is_set():
                self.turned_s = self._clock.now()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leave.wait(), _TURNS_S)
            with self._lock:
                self._ended = RunStoppedError("the scorer was closed")
                tasks = [pending.task for pending in self._open if pending.task is not None]
            for task in tasks:
                task.cancel()

    async def _score(self, pending: Pending, step: int | str | None) -> None:
        some: list[ScoredGroup] = []

        def hand_over() -> None:
            if some:
                pending.came_s = self._clock.now()
                pending.come.put([*some])
                some.clear()

        try:
            async with aclosing(self._runtime.score(pending.groups, step=step)) as scored:
                async for one in scored:
                    if not some:  # what leaves together is handed over together: a wake-up costs
                        self._loop.call_soon(hand_over)
                    some.append(one)
            hand_over()
            pending.come.put(None)
        except asyncio.CancelledError:
            pending.come.put(RunStoppedError("the scoring was called off"))
            raise
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            hand_over()
            pending.come.put(error)
        finally:
            with self._lock:
                self._open.discard(pending)

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._ended = self._ended or error
            waiting, self._open = self._open, set()
        for pending in waiting:
            pending.come.put(error)
            self._untold = None

    def _shut(self) -> None:
        if self._record is not None:
            self._record.close()


class Pending:
    """Groups that are being scored.

    Iterate over it for `ScoredGroup`s in the order in which they finish, or ask for the `result` in the
    order in which they were submitted. Both may be done again, and meanwhile by one thread only.

    Raises
    ------
    TooManyUnscoredError, RunStoppedError, RefusedError
        While it is waited for: what stopped the scoring; after the deadline, what was still under way.
    """

    def __init__(self, scorer: Scorer, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.come: queue.SimpleQueue[list[ScoredGroup] | BaseException | None] = queue.SimpleQueue()
        self.task: Any = None
        self.came_s: Seconds | None = None
        """When groups last came, whoever looked; monotonic."""
        self._scorer = scorer
        self._clock = scorer._clock  # noqa: SLF001 - they are one
        self._limit_s = scorer.deadline_s
        self._until = self._clock.now() + scorer.deadline_s
        self._scored: list[ScoredGroup] = []
        self._over: BaseException | bool = False

    def __iter__(self) -> Iterator[ScoredGroup]:
        place = 0
        while True:
            while place < len(self._scored):
                yield self._scored[place]
                place += 1
            if isinstance(self._over, BaseException):
                raise self._over
            if self._over:
                return
            self._take()

    def result(self) -> list[ScoredGroup]:
        """Wait for all; they come in the order in which they were submitted."""
        scored: Mapping[int, ScoredGroup] = {one.group.ordinal: one for one in self}
        return [scored[group.ordinal] for group in self.groups]

    def cancel(self) -> None:
        """Call it off; what runs is ended."""
        self.task.cancel()

    def _take(self) -> None:
        try:
            come = self.come.get(timeout=max(self._until - self._clock.now(), 0.0))
        except queue.Empty:
            self.cancel()
            come = self._late()
        if isinstance(come, list):
            self._scored += come
        else:
            self._over = True if come is None else come

    def _late(self) -> RunStoppedError:
        left = {group.ordinal: group for group in self.groups}
        for one in self._scored:
            left.pop(one.group.ordinal, None)
        names = [group.rollouts[0].where for group in left.values()]
        parts = ", ".join(self._scorer.recipe.names)
        still_s = self._clock.now() - self._scorer.turned_s
        held = (
            f"; its event loop has not turned for {still_s:.0f} s: an async function holds it up "
            "(time.sleep, a client that is not asynchronous)"
            if still_s > 5 * _TURNS_S
            else ""
        )
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return RunStoppedError(
            f"{len(left)} of {len(self.groups)} groups are not scored {self._limit_s:g} s after they were "
            f"submitted (deadline_s): {'; '.join(names[:_NAMED])}{more}{held}; each is asked for "
            f"{parts}; what was recorded is kept"
            "\n  next: make functions that wait async, for timeout_s cuts only those by the wall clock; "
            "look at the record (steelyard price LEDGER); a larger deadline_s must stay below the time after "
            "which the process group gives up"
        )


_SCORERS: weakref.WeakSet[Scorer] = weakref.WeakSet()


def _close_all() -> None:
    """End what is left at the end of the program, while executors, which end containers, still serve.

    They are shut by a hook of `threading`, before any of `atexit`; of two such hooks the later one runs
    first.
    """
    for scorer in tuple(_SCORERS):
        try:
            scorer.close()
        except RunStoppedError as error:
            _log.error("steelyard: %s", error)


getattr(threading, "_register_atexit", atexit.register)(_close_all)
