"""Was a candidate starved? A thread of ours, outside every slot's cgroup, feels how late the CPU comes.

It sleeps and wakes; what it waits for a CPU in between is booked by the kernel (`schedstat`), so that
neither the interpreter's lock nor Python's own slowness counts. Where the kernel books nothing, its own
lateness has to do. It wakes a hundred times a second, and only while somebody asks.

`starved` is the incentive law's fourth paragraph: a candidate's own crowd never excuses it, and neither does
its own waiting. Without a cgroup there is no entitlement to measure against: nobody is starved then.
"""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Final, Self

from steelyard.blame import STARVED_DELAY_SHARE, STARVED_GOT_SHARE
from steelyard.clock import Seconds

PERIOD_S: Final = 0.01


class Sentinel:
    """Feels the delay while it is open; several may be open at once.

    Examples
    --------
    >>> with Sentinel() as sentinel:
    ...     time.sleep(0.05)
    ...     0.0 <= sentinel.delay_s() < 60.0
    True
    """

    def __init__(self, period_s: Seconds = PERIOD_S) -> None:
        self._period_s = period_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._late_s = 0.0
        self._began: Seconds | None = None

    def __enter__(self) -> Self:
        self._late_s = 0.0
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, name="steelyard-sentinel", daemon=True)
        self._thread.start()
        self._began = _booked(self._thread.native_id)
        return self

    def __exit__(self, *_: object) -> None:
        delay_s = self.delay_s()
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = self._began = None
        self._late_s = delay_s

    def delay_s(self) -> Seconds:
        """Seconds that it has waited for a CPU since it was opened."""
        now = _booked(self._thread.native_id) if self._thread is not None else None
        return self._late_s if now is None or self._began is None else now - self._began

    def _watch(self) -> None:
        while True:
            due = time.monotonic() + self._period_s
            if self._over.wait(self._period_s):
                return
            self._late_s += max(0.0, time.monotonic() - due)


def _booked(thread: int | None) -> Seconds | None:
    """What the kernel has booked as a thread's waiting for a CPU."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def starved(
    entitled_cores: float,
    cpu_got_s: Seconds,
    wall_s: Seconds,
    runnable: int,
    sentinel_delay_s: Seconds,
    *,
    cores: int | None = None,
) -> bool:
    """Whether the machine, and not the candidate, is why a candidate got so little CPU.

    Parameters
    ----------
    entitled_cores
        The cores that its cgroup may count on: its share of those that there are.
    cpu_got_s, wall_s
        What its cgroup got, and in how long.
    runnable
        Its tasks that could run: with more of them than cores it stands in its own way.
    sentinel_delay_s
        What the sentinel waited for a CPU in that time.
    cores
        Cores that there are; without it, those that it is entitled to.

    Examples
    --------
    >>> starved(1.0, cpu_got_s=0.1, wall_s=2.0, runnable=1, sentinel_delay_s=0.9)
    True
    >>> starved(1.0, cpu_got_s=0.1, wall_s=2.0, runnable=8, sentinel_delay_s=0.9)  # its own crowd
    False
    >>> starved(1.0, cpu_got_s=0.1, wall_s=2.0, runnable=1, sentinel_delay_s=0.01)  # it slept
    False
    """
    if wall_s <= 0.0 or runnable <= 0:
        return False
    if runnable > (cores if cores is not None else max(1, math.ceil(entitled_cores))):
        return False
    could_s = min(entitled_cores, runnable) * wall_s
    return cpu_got_s < STARVED_GOT_SHARE * could_s and sentinel_delay_s > STARVED_DELAY_SHARE * wall_s
