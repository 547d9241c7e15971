"""What recording an event costs a training loop: entering and leaving one `with`, in nanoseconds.

An event is one phase or one call. Beside it stands a `with` that does nothing, in the same loop: what is
more is the recorder's. The spans are written at the end of each step, to a sink that forgets them, and
that is included; what a ledger takes to store them is not. With 4 threads the figure is wall time over all
events: one interpreter lock serves them one after the other. Least of several rounds.
"""

from __future__ import annotations

import sys
import threading
import time

from rich.console import Console
from rich.table import Table

from steelyard.measure import Steps

ROUNDS, EVENTS = 100, 4_000
LIMIT_NS = 2_000
"""What the recorder may take of an event."""


class Nothing:
    """A `with` that does nothing."""

    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def nothing(_steps, count):
    for _ in range(count):
        with Nothing():
            pass


def phases(steps, count):
    for _ in range(count):
        with steps.phase("reward"):
            pass


def calls(steps, count):
    for member in range(count):
        with steps.call(group=3, member=member) as call:
            call.value(1.0)


def once(work, threads):
    """Nanoseconds for each event, on so many threads."""
    with Steps(id, lane="rank 0") as steps:
        crew = [threading.Thread(target=work, args=(steps, EVENTS // threads)) for _ in range(threads)]
        started = time.perf_counter_ns()
        with steps.step():
            if threads == 1:
                work(steps, EVENTS)
            else:
                for one in crew:
                    one.start()
                for one in crew:
                    one.join()
        return (time.perf_counter_ns() - started) / EVENTS


def main():
    kinds = [(work, threads) for threads in (1, 4) for work in (nothing, phases, calls)]
    least = dict.fromkeys(kinds, float("inf"))
    for _ in range(ROUNDS):  # one after the other, so that what else the machine does meets them all
        for kind in kinds:
            least[kind] = min(least[kind], once(*kind))
    table = Table(title=f"one event, in ns ({EVENTS} in a step, least of {ROUNDS} rounds)")
    for column in ("event", "threads", "with it", "a `with` that does nothing", "the recorder's"):
        table.add_column(column, justify="left" if column == "event" else "right")
    for work, threads in kinds:
        if work is not nothing:
            cost, empty = least[work, threads], least[nothing, threads]
            table.add_row(
                work.__name__[:-1], f"{threads}", f"{cost:.0f}", f"{empty:.0f}", f"{cost - empty:.0f}"
            )
    Console(width=100).print(table)
    dearest = max(least[work, threads] - least[nothing, threads] for work, threads in kinds)
    print(f"the recorder takes at most {dearest:.0f} ns of an event; the limit is {LIMIT_NS} ns")
    return int(dearest >= LIMIT_NS)


if __name__ == "__main__":
    sys.exit(main())
