"""`symbolic.equal` in a process that can be ended: for whoever calls `judge_math` as a function.

A comparison that hangs holds the interpreter's lock, so neither a thread nor an alarm ends it; a process
is ended by its kernel. The reward `math` needs none of this under the runtime, which runs all of it in
such processes. Here one serves all threads of the caller, one comparison after the other; it starts at
the first that is needed, and ends with the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from steelyard.blame import OWN_LIMITS
from steelyard.errors import SandboxError, SuspectError
from steelyard.outcome import Room, Scored
from steelyard.rewards import symbolic
from steelyard.workers import BlockingPool, Cut, NotStarted, WorkerPool

ROOM: Final = Room(cpu_s=1.0, memory_bytes=512 << 20)
"""What one comparison may use: a thousand times what an ordinary one takes."""

WALL_S: Final = 10.0
"""The backstop of a comparison whose process gets no CPU."""


def equal_apart(said: str, gold: str) -> bool | Scored:
    """Compare two answers in a process of its own; one that exhausts a limit is the floor, with its code.

    Raises
    ------
    SandboxError
        If no process can be started.
    SuspectError
        If it was lost, or got no CPU: nothing is known of the answer.
    """
    outcome = _POOL.once((said, gold))
    failure = outcome.failure
    if failure is None:
        value = outcome.value
        return value if isinstance(value, Scored) else bool(value)
    if isinstance(failure, Cut) and failure.limit in OWN_LIMITS:
        return Scored(0.0, failure.limit, f"comparing it with the gold was {failure}")
    if isinstance(failure, NotStarted):
        raise SandboxError("workers:math", failure.cause)
    raise SuspectError(str(failure), clocks=outcome.clocks)


def close() -> None:
    """End the process now; the next comparison starts another."""
    _POOL.close()


def prepared(_given: object) -> Callable[[tuple[str, str]], bool | Scored]:
    """In the process: import what a comparison needs, before any clock runs."""
    symbolic.warm()
    return _compare


def _compare(pair: tuple[str, str]) -> bool | Scored:
    return symbolic.equal(*pair)


_POOL = BlockingPool(
    lambda: WorkerPool(
        f"{__name__}:prepared",
        given=(),
        size=1,
        cpu_s=ROOM.cpu_s,
        wall_s=WALL_S,
        memory_bytes=ROOM.memory_bytes,
        confined=True,
    )
)
