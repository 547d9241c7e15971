"""A recorder for a training loop: who did what, from when to when, in one `Span` each.

```python
steps = Steps(sink, lane="rank 0")
for _ in range(1_000):
    with steps.step():
        with steps.phase("generation"): ...
        with steps.phase("reward"): ...
        with steps.phase("training"): ...
```

Time is monotonic, and one clock for all processes of a machine until it is started again. Each `with`
keeps its own start, so that threads and asyncio tasks may overlap as they like.

- **Step.** A span belongs to the step that is open when it begins; between two steps, to the one before.
  A loop whose steps overlap says `step=` itself. Steps that are not numbered count on, from the one after the
  last that the ledger holds of this lane: programs that run one after the other share a ledger.
- **Lane.** The thread that made the recorder has the recorder's lane, others `lane/name of the thread`.
- **Processes.** Each opens its own recorder, with a lane of its own. One that is forked off with the
  recorder in its hands forgets what its parent has yet to write and goes on as `lane/pid`.
- **Writing.** Spans wait in memory until their step ends. Between steps at most 1,024 wait, within
  one 65,536, in a forked process none: a process that is killed loses no more than that. They are written at
  the end of the program, too, and so is what was still open: as far as it went, cut by `closed`.
- **A step that an exception leaves** is cut by `broken`: it is not as long as it would have been.
- **A sink that fails** does not end the training: it is told once, the spans are kept, at most 262,144
  of them, and offered again with the next ones. How many were lost is told at the end. A sink takes all
  of a batch or, raising, nothing of it.

What a recorder costs: `python bench/recorder.py`.
"""

# ruff: noqa: SLF001 - the classes of this module are one recorder

from __future__ import annotations

import asyncio
import atexit
import logging
import operator
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isnan
from multiprocessing import util
from threading import get_ident
from types import TracebackType
from typing import Final, Self, TypeAlias

from steelyard.clock import Clock, Seconds, Span
from steelyard.errors import RefusedError, describe

Sink = Callable[[Sequence[Span]], None]
"""Where spans go, many at a time: `steelyard.record_steps` writes to a ledger; a list's `extend` will do."""

IN_STEP: Final = 65_536
BETWEEN: Final = 1_024
KEPT: Final = 262_144
"""About 64 MB of spans."""

CUTS: Final = {
    TimeoutError: "timeout",
    subprocess.TimeoutExpired: "timeout",
    asyncio.CancelledError: "cancelled",
}
"""Exceptions that cut what they leave: its duration is a lower bound."""

RESERVED: Final = frozenset({"step", "call", "queued"})

_Raw: TypeAlias = tuple[int, str, str, Seconds, Seconds, int | None, int | None, str | None, float | None]
"""A `Span` before it is one: the collector of garbage stops looking at plain tuples, never at named ones."""

_named: Callable[[_Raw], Span] = partial(tuple.__new__, Span)
"""What `Span._make` does, three times as fast."""

_log = logging.getLogger("steelyard")


class Steps:
    """Records what a training loop does.

    Parameters
    ----------
    sink
        Takes the spans.
    lane
        The name of this process among those that train together: `rank 0`.
    clock
        For tests; the machine's monotonic clock if none is given.
    first
        The number of the first step, unless it is given one.

    Raises
    ------
    RefusedError
        If the lane is no text.

    Examples
    --------
    >>> spans = []
    >>> with Steps(spans.extend, lane="rank 0") as steps:
    ...     with steps.step():
    ...         with steps.phase("generation"):
    ...             pass
    ...         with steps.call(group=3, member=1) as call:
    ...             call.value(1.0)
    >>> [(span.step, span.lane, span.phase, span.value) for span in spans]
    [(0, 'rank 0', 'generation', None), (0, 'rank 0', 'call', 1.0), (0, 'rank 0', 'step', None)]
    """

    def __init__(self, sink: Sink, *, lane: str = "main", clock: Clock | None = None, first: int = 0) -> None:
        if not isinstance(lane, str):
            raise _strange("lane", lane, "text")
        self.now: Callable[[], Seconds] = time.monotonic if clock is None else clock.now
        """The recorder's clock, for `span` and `ready`."""
        self.lost = 0
        """Spans that were dropped because the sink kept failing."""
        self._sink = sink
        self._number: int | None = None
        self._before = first - 1
        self._running = False
        self._told = False
        self._closed = False
        self._waits = (BETWEEN, IN_STEP)
        self._limit = BETWEEN
        self._buffer: list[_Raw] = []
        self._open: dict[Recorded, None] = {}
        self._lock = threading.Lock()
        self._own(lane)
        _RECORDERS.add(self)
        atexit.register(self.close)  # before whatever the sink registered, which is older
        util.register_after_fork(self, Steps._guard)
        self._guard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, number: int | None = None) -> StepScope:
        """One training step, to be used in a `with`; without a number it counts on.

        Raises
        ------
        RefusedError
            If the number is none; on entry, if a step of this recorder is open.
        """
        return StepScope(self, None if number is None else _whole("step", number))

    def phase(self, name: str, *, step: int | None = None, lane: str | None = None) -> Recorded:
        """Something that takes time in a step, to be used in a `with`.

        `generation`, `reward` and `training` have a meaning; any other word is the loop's own.

        Raises
        ------
        RefusedError
            If the name is no text or has another meaning, `step` no number or `lane` no text; on entry, if no
            step was ever opened and none is given.
        """
        if name.__class__ is not str or name in RESERVED:
            name = _named_by_user(name)
        if step is not None or lane is not None:
            step, lane = _placed(step, lane)
        return Recorded(self, name, step, lane)

    def call(
        self,
        group: int | None = None,
        member: int | None = None,
        *,
        ready: Seconds | None = None,
        step: int | None = None,
        lane: str | None = None,
    ) -> Recorded:
        """One call of a reward, to be used in a `with`; calls may overlap.

        What leaves it as `TimeoutError`, `asyncio.CancelledError` or `subprocess.TimeoutExpired` cut it.

        Parameters
        ----------
        group, member
            Which rollout it judges.
        ready
            When it could have started (`steps.now()`): what it waited is recorded as `queued`.
        step, lane
            Where they are not those of this moment.

        Raises
        ------
        RefusedError
            If `group`, `member` or `step` is no whole number, or `lane` no text; on entry, if no step was
            ever opened and none is given.
        """
        if group.__class__ is not int and group is not None:
            group = _whole("group", group)
        if member.__class__ is not int and member is not None:
            member = _whole("member", member)
        if step is not None or lane is not None:
            step, lane = _placed(step, lane)
        return Recorded(self, "call", step, lane, group, member, ready)

    def span(
        self,
        phase: str,
        start: Seconds,
        end: Seconds,
        *,
        step: int | None = None,
        lane: str | None = None,
        group: int | None = None,
        member: int | None = None,
        cut_by: str | None = None,
        value: float | None = None,
    ) -> None:
        """Add what was measured elsewhere, on the clock of `now`; `phase` may be any word of `Span`.

        Raises
        ------
        RefusedError
            If it ends before it starts, or no step was ever opened and none is given.
        """
        if not -inf < start <= end < inf:
            raise RefusedError(
                f"{phase!r} goes from {start!r} to {end!r}",
                where="steps.span",
                remedy="take both times from steps.now(), the earlier one first",
            )
        number = self._current() if step is None else step
        where = lane or (self._lane if get_ident() == self._owner else self._others.name)
        self._buffer.append((number, where, phase, start, end, group, member, cut_by, value))
        if len(self._buffer) >= self._limit:
            self._full()

    def flush(self) -> None:
        """Write what has ended; a sink that fails is told, never raised."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Record what is open as far as it went, and write everything; a second time changes nothing.

        What ends later, in threads that are still running, is written at once.
        """
        if self._closed:
            return
        self._closed = True
        for recorded in tuple(self._open):
            recorded._cut = recorded._cut or "closed"
            recorded.__exit__(None, None, None)
        self._running, self._waits, self._limit = False, (1, 1), 1
        for _ in range(100):  # threads may go on for ever, and write their own
            self.flush()
            if self._limit > 1 or not self._buffer:
                break
        atexit.unregister(self.close)
        self._finalizer.cancel()
        if self._limit > 1:  # the sink failed
            self.lost += len(self._buffer)
            self._buffer.clear()
            self._limit = 1
        if self.lost:
            _log.error("steelyard: %d spans of %r are lost: they could not be written", self.lost, self._lane)

    def _current(self) -> int:
        if self._number is None:
            raise RefusedError(
                "no step is open",
                where="steps",
                remedy="open one around it (with steps.step(): ...), or say which it belongs to (step=17)",
            )
        return self._number

    def _full(self) -> None:
        while len(self._buffer) >= self._limit:
            if not self._lock.acquire(blocking=False):
                return  # somebody is writing, and looks again
            try:
                self._write()
            finally:
                self._lock.release()

    def _write(self) -> None:
        batch = self._buffer[:]
        if not batch:
            return
        del self._buffer[: len(batch)]  # what was appended meanwhile stays
        try:
            self._sink(list(map(_named, batch)))
        except BaseException as error:
            self._keep(batch)
            if not isinstance(error, Exception):
                raise
            if not self._told:
                self._told = True
                _log.warning(
                    "steelyard: spans of %r cannot be written (%s); the training goes on, and "
                    "up to %d spans wait in memory for the sink to recover",
                    self._lane,
                    describe(error),
                    KEPT,
                )
        else:
            self._limit = self._waits[self._running]

    def _keep(self, batch: list[_Raw]) -> None:
        self._buffer[:0] = batch
        excess = max(len(self._buffer) - KEPT, 0)
        del self._buffer[:excess]
        self.lost += excess
        self._limit = len(self._buffer) + IN_STEP

    def _guard(self) -> None:
        """Close at the end of a process of `multiprocessing`, too, which runs no `atexit`."""
        self._finalizer = util.Finalize(None, self.close, exitpriority=0)

    def _forked(self) -> None:
        """In a child: what waits and what is open is the parent's to write."""
        self._lock = threading.Lock()
        self._buffer.clear()
        self._open.clear()
        self._running, self._waits, self._limit = False, (1, 1), 1
        self._own(f"{self._lane}/{os.getpid()}")

    def _own(self, lane: str) -> None:
        """The lane of this thread; others name theirs by it."""
        self._lane = lane
        self._owner = get_ident()
        self._others = _Lanes(lane)


class Recorded:
    """Something under way in a `with`: a phase, or one call of a reward; each serves one `with`."""

    __slots__ = (
        "_cut",
        "_group",
        "_lane",
        "_member",
        "_name",
        "_number",
        "_ready",
        "_start",
        "_step",
        "_steps",
        "_value",
        "_where",
    )

    def __init__(  # noqa: PLR0917 - by position: naming them costs every event 100 ns
        self,
        steps: Steps,
        name: str,
        step: int | None = None,
        lane: str | None = None,
        group: int | None = None,
        member: int | None = None,
        ready: Seconds | None = None,
    ) -> None:
        self._steps = steps
        self._name = name
        self._step = step
        self._lane = lane
        self._group = group
        self._member = member
        self._ready = ready
        self._cut: str | None = None
        self._value: float | None = None

    def cut(self, by: str) -> None:
        """It did not finish: `by` cut it (`timeout`), so that its duration is a lower bound."""
        self._cut = by

    def value(self, value: float | None) -> None:
        """The reward; `None` or `nan` where there is none."""
        if value is not None:
            number = float(value)
            value = None if isnan(number) else number
        self._value = value

    def __enter__(self) -> Self:
        steps, number = self._steps, self._step
        if number is None:
            number = steps._number
            if number is None:
                number = steps._current()
        self._number = number
        self._where = self._lane or (steps._lane if get_ident() == steps._owner else steps._others.name)
        steps._open[self] = None
        self._start = steps.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        steps = self._steps
        now = steps.now()
        if steps._open.pop(self, self) is not None:
            return  # it was closed, or belongs to the process from which this one was forked
        if kind is not None and self._cut is None:
            self._cut = next((word for cut, word in CUTS.items() if issubclass(kind, cut)), None)
        buffer, start = steps._buffer, self._start
        group, member = self._group, self._member
        buffer.append(
            (self._number, self._where, self._name, start, now, group, member, self._cut, self._value)
        )
        if self._ready is not None:
            ready = min(self._ready, start)
            buffer.append((self._number, self._where, "queued", ready, start, group, member, None, None))
        if len(buffer) >= steps._limit:
            steps._full()


class StepScope:
    """One training step in a `with`."""

    __slots__ = ("_number", "_recorded", "_steps")

    def __init__(self, steps: Steps, number: int | None) -> None:
        self._steps = steps
        self._number = number
        self._recorded = Recorded(steps, "step")

    def __enter__(self) -> int:
        steps = self._steps
        if steps._running:
            raise RefusedError(
                f"step {steps._number} is still open",
                where="steps.step",
                remedy="let it end first; where steps overlap, say which one a phase or call is of (step=17)",
            )
        before = steps._before if steps._number is None else steps._number
        steps._number = before + 1 if self._number is None else self._number
        steps._running = True
        steps._limit = max(steps._limit, steps._waits[True])
        self._recorded.__enter__()
        return steps._number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._recorded.cut("broken")
        self._recorded.__exit__(kind, error, trace)
        self._steps._running = False
        self._steps.flush()


class _Lanes(threading.local):
    """Each thread asks for its name once, then remembers."""

    def __init__(self, lane: str) -> None:
        self.name = f"{lane}/{threading.current_thread().name}"


def _strange(what: str, given: object, must: str) -> RefusedError:
    return RefusedError(f"{what}={given!r} is no {must}", where="steps", remedy=f"give a {must} as {what}")


def _whole(what: str, given: object) -> int:
    """A number that a ledger can hold; NumPy's become ours."""
    try:
        number = int(operator.index(given))  # type: ignore[arg-type]  # it is what is asked here
    except TypeError:
        raise _strange(what, given, "whole number") from None
    if not -1 << 63 <= number < 1 << 63:
        raise _strange(what, given, "whole number of 64 bits")
    return number


def _placed(step: int | None, lane: str | None) -> tuple[int | None, str | None]:
    if lane is not None and not isinstance(lane, str):
        raise _strange("lane", lane, "text")
    return None if step is None else _whole("step", step), lane


def _named_by_user(name: object) -> str:
    if not isinstance(name, str):
        raise _strange("phase", name, "text")
    if name in RESERVED:
        raise RefusedError(
            f"a phase cannot be called {name!r}", where="steps.phase", remedy="choose another word"
        )
    return name


_RECORDERS: weakref.WeakSet[Steps] = weakref.WeakSet()


def _after_fork() -> None:
    for steps in tuple(_RECORDERS):
        steps._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
