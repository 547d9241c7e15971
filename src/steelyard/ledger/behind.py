"""A ledger that is written behind the run: rewards do not wait for the record.

A trainer stands still while a step is scored, and is busy elsewhere afterwards. So `Behind` only queues what
is to be written, and one thread of its own writes it, in the same order and the same transactions, when the
step has been handed on. The price: **a process that is killed may lose its last step**, the rewards of which
the trainer may have seen; of steps that are scored at once, those. It never loses more, for a step that
begins after another has ended waits until that is written, and never a part of a transaction, so the file
opens clean and the run goes on from there. Where less than `HOLD_S` lies between steps, nothing is gained.

Nothing is dropped silently: whatever keeps the thread from writing stops the run at its next call, and at
the latest when the record is closed, with the ledger's own words and how much is lost.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import RunStoppedError
from steelyard.ledger.log import Departure, Ledger
from steelyard.ledger.rows import first_place
from steelyard.ledger.runs import Run
from steelyard.outcome import Attempt, Score, Verdict
from steelyard.rollout import Group

HOLD_S: Final = 0.05
"""How long after a step is handed on its writing begins: what its caller makes of it comes first."""

OLD_S: Final = 1.0
"""What is queued for so long is written though its step still goes on."""

MANY: Final = 4_096
"""With so many rollouts queued, too."""

MOST: Final = 65_536
"""With so many rollouts queued, the next wait until there are fewer."""


class _Write(NamedTuple):
    make: Callable[[], None]
    rollouts: int
    at: Seconds


class Behind:
    """A ledger as a run uses it, written by a thread.

    What is queued must not be changed before it is written.

    Parameters
    ----------
    ledger
        Where it is written; only this may write it meanwhile.
    clock
        Time.

    Raises
    ------
    RunStoppedError
        By every method, once something could not be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/run.ledger") as ledger:
    ...     run = ledger.begin("an identity", {}, {})
    ...     behind = Behind(ledger)
    ...     behind.enter(run, [])
    ...     behind.release()  # the step is handed on
    ...     behind.close()
    """

    def __init__(self, ledger: Ledger, clock: Clock | None = None) -> None:
        self._ledger = ledger
        self._clock = clock or SystemClock()
        self._using = threading.Lock()  # the ledger itself
        self._turn = threading.Condition()  # what follows
        self._queue: deque[_Write] = deque()
        self._rollouts = 0
        self._asked = self._written = 0  # writes, since the beginning
        self._released = self._wanted = 0  # those up to which may be, and must be, written
        self._from: Seconds = 0.0
        self._failed: BaseException | None = None
        self._told = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._known: dict[int, tuple[int, int]] = {}

    # Writing

    def enter(self, run: Run, groups: Sequence[Group], *, steps: Mapping[int, str] = {}) -> None:
        """Queue rollouts, as in `Ledger.enter`; it waits only where very many are queued."""
        if run.resumed and run.number not in self._known:
            self._known[run.number] = self._held(run)
        rollouts = sum(len(group.rollouts) for group in groups)
        with self._turn:
            self._turn.wait_for(lambda: self._rollouts < MOST or self._failed is not None)
        self._add(partial(self._ledger.enter, run, groups, steps=steps), rollouts)

    def leave(
        self,
        run: Run,
        *,
        attempts: Sequence[Attempt] = (),
        scores: Sequence[Score] = (),
        departures: Sequence[Departure] = (),
    ) -> None:
        """Queue attempts, scores and departures, as in `Ledger.leave`."""
        if attempts or scores or departures:
            make = partial(self._ledger.leave, run, attempts=attempts, scores=scores, departures=departures)
            self._add(make, 0)

    def release(self) -> None:
        """Let what is queued be written: its step has been handed on."""
        with self._turn:
            self._released, self._from = self._asked, self._clock.now() + HOLD_S
            self._turn.notify_all()

    @property
    def behind(self) -> bool:
        """Whether anything that was released is still to be written."""
        return self._written < self._released and self._failed is None

    def settle(self) -> None:
        """Wait until what was released is written."""
        self._wait_for(self._released)

    def close(self) -> None:
        """Write everything and end the thread; who enters something later begins another.

        Raises
        ------
        RunStoppedError
            If something could not be written, unless that was said before.
        """
        thread = self._thread
        if thread is not None:
            with self._turn:
                self._closing = True
                self._turn.notify_all()
            thread.join()
            self._thread, self._closing = None, False
            atexit.unregister(self.close)
        if self._failed is not None and not self._told:
            raise self._stopped()

    # Reading

    def next_attempt(self, run: Run) -> int:
        """As `Ledger.next_attempt`."""
        self._wait_for(self._asked)
        with self._using:
            return self._ledger.next_attempt(run)

    def recorded(
        self, run: Run, ordinals: Sequence[int]
    ) -> dict[tuple[int, int], tuple[Verdict, int | None]]:
        """As `Ledger.recorded`; nobody waits for rollouts that no earlier process entered."""
        if run.number in self._known and min(ordinals, default=0) > self._known[run.number][0]:
            return {}
        self._wait_for(self._asked)
        with self._using:
            return self._ledger.recorded(run, ordinals)

    def departed(self, run: Run, scheme: str, groups: Sequence[int]) -> set[int]:
        """As `Ledger.departed`; nobody waits for groups beyond those that an earlier process let go."""
        if run.number in self._known and min(groups, default=0) > self._known[run.number][1]:
            return set()
        self._wait_for(self._asked)
        with self._using:
            return self._ledger.departed(run, scheme, groups)

    def attempts_where(self, run: Run, where: str, *values: int) -> Iterator[Attempt]:
        """As `Ledger.attempts_where`."""
        self._wait_for(self._asked)
        with self._using:
            return iter(list(self._ledger.attempts_where(run, where, *values)))

    def _held(self, run: Run) -> tuple[int, int]:
        """The last rollout and the last group that left, of what earlier processes wrote."""
        first = first_place(run.number)
        with self._using:
            (last,) = self._ledger.query(
                "SELECT max(place) FROM rollouts WHERE place BETWEEN ? AND ?",
                first,
                first_place(run.number + 1) - 1,
            ).fetchone()
            (group,) = self._ledger.query(
                "SELECT max(grp) FROM departures WHERE run = ?", run.number
            ).fetchone()
        return (-1 if last is None else last - first), (-1 if group is None else group)

    # The queue

    def _add(self, make: Callable[[], None], rollouts: int) -> None:
        with self._turn:
            if self._failed is not None:
                raise self._stopped()
            self._queue.append(_Write(make, rollouts, self._clock.now()))
            self._rollouts += rollouts
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="steelyard-ledger", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            if len(self._queue) == 1 or self._rollouts >= MANY:
                self._turn.notify_all()

    def _wait_for(self, count: int) -> None:
        with self._turn:
            if self._written < count:
                self._wanted = max(self._wanted, count)
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._written >= count or self._failed is not None)
            if self._failed is not None:
                raise self._stopped()

    def _stopped(self) -> RunStoppedError:
        self._told = True
        lost = f"{self._rollouts} rollouts of the last step" if self._rollouts else "the last verdicts"
        error = RunStoppedError(f'{self._failed}\n  lost: {lost}, not yet written (durability="step")')
        error.__cause__ = self._failed
        return error

    # The thread

    def _work(self) -> None:
        while True:
            with self._turn:
                while not (self._closing or self._due()):
                    self._turn.wait(self._left_s())
                if not self._queue:
                    return
                write = self._queue[0]
            try:
                with self._using:
                    write.make()
            except BaseException as error:  # noqa: BLE001 - whoever asks next hears of it
                with self._turn:
                    self._failed = error
                    self._turn.notify_all()
                return
            with self._turn:
                self._queue.popleft()
                self._rollouts -= write.rollouts
                self._written += 1
                self._turn.notify_all()

    def _due(self) -> bool:
        if not self._queue:
            return False
        left_s = self._left_s()
        return self._written < self._wanted or self._rollouts >= MANY or (left_s is not None and left_s <= 0)

    def _left_s(self) -> Seconds | None:
        """Seconds until the first of what is queued is due by the clock; `None` if nothing is queued."""
        if not self._queue:
            return None
        now, due = self._clock.now(), self._queue[0].at + OLD_S
        return (min(due, self._from) if self._written < self._released else due) - now
