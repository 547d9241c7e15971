"""What a trainer waits for beyond its reward function: L0's call against the bare function's.

    python bench/trl_overhead.py [CALLS]        default 25 a row, after warm-up

A function of `completions` looks for an answer at the end of texts of about 400 characters. It is called as
TRL calls it: bare, and through `steelyard.integrations.trl.reward` (lists in, floats out, with TRL's two log
hooks), without a ledger and under both durabilities. Between two calls there is a pause, as a trainer
generates and updates: with `durability="step"` that is when the background thread writes, and its CPU time
is printed beside. Whole calls are timed, in the calling thread, on the wall; the middle one is told. The
bound is 2 ms and 10 us for each completion, without a ledger and under `step`; under `full` every verdict
waits for the disk, which is shown and not judged.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from steelyard.integrations.trl import reward

CALLS, WARM = 25, 5
SIZES = (128, 2_048)
GROUP = 8
BOUND_S, BOUND_EACH_S = 2e-3, 10e-6
PAUSE_S = 0.3


def exact(completions, answer, **_):
    """Whether each completion ends with its answer."""
    return [1.0 if said.endswith(right) else 0.0 for said, right in zip(completions, answer, strict=True)]


def batch(size: int, number: int) -> dict[str, list]:
    """What TRL hands over: new texts in each call."""
    prompts = [f"prompt {number}.{row // GROUP}" for row in range(size)]
    right = [f"#### {number}.{row // GROUP}" for row in range(size)]
    said = [f"{'so it is, ' * 39}{text}{'' if row % 3 else '!'}" for row, text in enumerate(right)]
    return {"prompts": prompts, "completions": said, "answer": right}


def logged(*_: object) -> None:
    """Take what TRL would log."""


def writer_s() -> float:
    """CPU seconds of the thread that writes behind, so far."""
    thread = next((one for one in threading.enumerate() if one.name == "steelyard-ledger"), None)
    if thread is None or thread.ident is None:
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def measured(function: Callable, size: int, calls: int, **more: object) -> tuple[float, float]:
    """Seconds of the middle call, and CPU seconds of the writer after each; calls that start processes
    are not told."""
    times, before = [], 0.0
    for number in range(WARM + calls):
        if number == WARM:
            before = writer_s()
        rows = batch(size, number)
        began = time.perf_counter()
        values = function(**rows, **more)
        times.append(time.perf_counter() - began)
        if values != exact(**rows):
            raise SystemExit(f"it returned {values[:9]}..., which the bare function does not")
        time.sleep(PAUSE_S)
    return statistics.median(times[WARM:]), (writer_s() - before) / calls


def main(calls: int) -> int:
    table = Table(
        "completions", "record", "call", "overhead", "us each", "allowed", "", "written after",
        title=f"steelyard.integrations.trl.reward, {calls} calls a row, the middle one",
    )  # fmt: skip
    broken = 0
    for size in SIZES:
        bare_s, _ = measured(exact, size, calls)
        bound_s = BOUND_S + BOUND_EACH_S * size
        table.add_row(f"{size:,}", "the bare function", f"{bare_s * 1e3:.2f} ms", "", "", "", "", "")
        for durability in (None, "step", "full"):
            with tempfile.TemporaryDirectory() as folder:
                record = (
                    {} if durability is None else {"ledger": f"{folder}/x.ledger", "durability": durability}
                )
                with reward([exact], **record) as scoring:
                    call_s, writer = measured(scoring, size, calls, log_extra=logged, log_metric=logged)
            over_s = call_s - bare_s
            fails = over_s > bound_s and durability != "full"
            broken += fails
            table.add_row(
                f"{size:,}",
                "no ledger" if durability is None else f"durability={durability}",
                f"{call_s * 1e3:.2f} ms",
                f"{over_s * 1e3:.2f} ms",
                f"{over_s / size * 1e6:.1f}",
                f"{bound_s * 1e3:.2f} ms",
                "" if durability == "full" else "FAIL" if fails else "pass",
                f"{writer * 1e3:.1f} ms of CPU" if durability == "step" else "",
            )
    Console(width=110).print(table)
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CALLS))
