"""Spans as a Chrome trace, which Perfetto and the viewers of profilers open.

The format is Google's "Trace Event Format": complete events (`ph: X`) with `ts` and `dur` in microseconds,
here since the first span. A lane is a thread of its process: `rank 0/reward` of `rank 0`. Events of one
thread must nest, so what overlaps otherwise goes to a further thread, `rank 0 (2)`; calls have threads of
their own, as many as are under way at once. What is written is forgotten: memory holds threads, no spans.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import IO, Any, Final

from steelyard.clock import Seconds, Span
from steelyard.errors import RefusedError

CALLS: Final = ("call", "queued")
"""What need not nest, and so gets threads of its own."""

_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def write_trace(spans: Iterable[Span], file: IO[str]) -> int:
    """Write a trace, span by span; return how many spans there were.

    Parameters
    ----------
    spans
        In the order of their starts.
    file
        Open for text.

    Raises
    ------
    RefusedError
        If a span starts before its predecessor, or ends before it starts.

    Examples
    --------
    >>> import io
    >>> file = io.StringIO()
    >>> write_trace([Span(0, "rank 0", "generation", 100.0, 112.5)], file)
    1
    >>> [event["dur"] for event in json.loads(file.getvalue())["traceEvents"] if event["ph"] == "X"]
    [12500000.0]
    """
    threads = _Threads()
    written = 0
    between = "\n"
    file.write('{"displayTimeUnit":"ms","traceEvents":[')
    for span, zero in _in_order(spans):
        for event in threads.events(span, zero):
            file.write(between + _json(event))
            between = ",\n"
        written += 1
    file.write("\n]}\n")
    return written


def _in_order(spans: Iterable[Span]) -> Iterator[tuple[Span, Seconds]]:
    """Each span, with the start of the first; of those that start together the longest first."""
    zero, before = None, -math.inf
    for start, together in groupby(spans, attrgetter("start")):
        zero = start if zero is None else zero
        for span in sorted(together, key=lambda span: (-span.end, span.phase != "step")):
            if not before <= start <= span.end < math.inf:
                raise RefusedError(
                    f"{span.phase!r} goes from {start!r} to {span.end!r}, after one that began at {before!r}",
                    where=f"step {span.step} of {span.lane!r}",
                    remedy="sort them first: sorted(spans, key=lambda span: span.start)",
                )
            yield span, zero
        before = start


class _Threads:
    """Which thread of the trace each span is drawn on."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._nested: dict[str, list[tuple[int, list[int]]]] = {}
        self._beside: dict[str, _Beside] = {}
        self._count = 0
        self._fresh: list[dict[str, Any]] = []

    def events(self, span: Span, zero: Seconds) -> Iterator[dict[str, Any]]:
        """The span's event, behind those that name a process or a thread that was not there before."""
        start, end = _nanoseconds(span.start - zero), _nanoseconds(span.end - zero)
        apart = span.phase in CALLS
        thread = self._apart(span.lane, start, end) if apart else self._nesting(span.lane, start, end)
        yield from self._fresh
        self._fresh.clear()
        told = {
            "group": span.group,
            "member": span.member,
            "cut_by": span.cut_by,
            "value": _plain(span.value),
        }
        yield {
            "ph": "X",
            "name": span.phase,
            "cat": "call" if apart else "phase",
            "pid": self._process(span.lane),
            "tid": thread,
            "ts": start / 1_000,
            "dur": (end - start) / 1_000,
            "args": {"step": span.step} | {word: value for word, value in told.items() if value is not None},
        }

    def _nesting(self, lane: str, start: int, end: int) -> int:
        threads = self._nested.setdefault(lane, [])
        for thread, ends in threads:  # of a lane whose phases nest, one
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return thread
        threads.append((self._thread(lane, "", len(threads)), [end]))
        return threads[-1][0]

    def _apart(self, lane: str, start: int, end: int) -> int:
        beside = self._beside.setdefault(lane, _Beside())
        while beside.busy and beside.busy[0][0] <= start:
            heapq.heappush(beside.free, heapq.heappop(beside.busy)[1])
        free = beside.free
        thread = heapq.heappop(free) if free else self._thread(lane, " calls", len(beside.busy))
        heapq.heappush(beside.busy, (end, thread))
        return thread

    def _process(self, lane: str) -> int:
        name = lane.partition("/")[0]
        if name not in self._processes:
            number = self._processes[name] = len(self._processes) + 1
            self._fresh.append(_metadata("process_name", number, 0, name=name))
            self._fresh.append(_metadata("process_sort_index", number, 0, sort_index=number))
        return self._processes[name]

    def _thread(self, lane: str, what: str, others: int) -> int:
        process = self._process(lane)
        self._count += 1
        name = f"{lane}{what} ({others + 1})" if others else f"{lane}{what}"
        self._fresh.append(_metadata("thread_name", process, self._count, name=name))
        self._fresh.append(_metadata("thread_sort_index", process, self._count, sort_index=self._count))
        return self._count


class _Beside:
    """Threads of a lane's calls: those under way, by their ends, and those that are free."""

    def __init__(self) -> None:
        self.busy: list[tuple[int, int]] = []
        self.free: list[int] = []


def _metadata(what: str, process: int, thread: int, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}


def _nanoseconds(seconds: Seconds) -> int:
    """Whole ones: rounding ends, not lengths, keeps what nests nested."""
    return round(seconds * 1e9)


def _plain(value: float | None) -> float | str | None:
    """JSON has no word for what is not finite."""
    return value if value is None or math.isfinite(value) else str(value)
