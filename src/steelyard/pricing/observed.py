"""What was observed of a run: calls, rollouts and steps in columns, whatever file they came from.

A ledger, a recorded training loop and other people's rollout files all become this one value; pricing
reads nothing else. In a column `nan` means *not measured*, never zero, and no reader fills one in.

| table | one row is | read for |
|---|---|---|
| `Calls` | one attempt of one part of a recipe, on one or several rollouts | service times, barriers |
| `Rows` | one rollout | rewards, groups, corruption |
| `Steps` | one training step (where nothing says which, a whole run is one) | busy time, waits, intervals |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steelyard.clock import Seconds

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]

OF_SPACE: Final = frozenset({"memory", "processes", "threads", "files", "output"})
"""Limits that are no matter of time: a call that one of them cut did not time out. Any other one did."""

SCORED: Final = 0
ABSTAINED: Final = 1
UNSCORED: Final = 2
MISSING: Final = -1
"""In an index column: not known."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Attempts, in columns of shape `(n,)`.

    Parameters
    ----------
    step
        Index into the steps.
    group
        Number of the group, unique in the run; `MISSING` where one call judged several groups.
    row
        Number of the rollout that was judged, unique in the run; of several, the first one's.
    part
        Index into `Observed.parts`.
    service_s
        From start to end.
    censored
        Whether it was cut: the service time is then a lower bound.
    cause
        Index into `Observed.causes`: what cut or ended it; `MISSING` where it finished.
    queued_s
        From ready to started.
    began_s
        When it started, on a clock of its step's own: only differences within a step mean anything.
    spawn_s, cpu_s
        A boundary's clocks.
    passed
        Whether its verdict was above the floor of its part: a right answer, as far as anybody knows.
    """

    step: Ints
    group: Ints
    row: Ints
    part: Ints
    service_s: Floats
    censored: Bools
    cause: Ints
    queued_s: Floats
    began_s: Floats
    spawn_s: Floats
    cpu_s: Floats
    passed: Bools

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rollouts, in columns of shape `(m,)`; the numbers of groups are those of the calls.

    Parameters
    ----------
    step, group
        As in `Calls`.
    value
        The total reward; `nan` unless it was scored.
    verdict
        `SCORED`, `ABSTAINED` or `UNSCORED`.
    failed
        Whether it got its value through no judgement: a timeout or an error was written down as a number.
        Not in ledgers of ours: there an end that the candidate brought about is a judgement, and what the
        machinery failed on is unscored.
    row
        Number of the rollout, as in `Calls`; `None` where they are numbered as they stand.
    """

    step: Ints
    group: Ints
    value: Floats
    verdict: Ints
    failed: Bools
    row: Ints | None = None

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Steps:
    """Training steps, in columns of shape `(s,)`; `nan` where not measured.

    Parameters
    ----------
    labels
        What the run calls them.
    generation_s, training_s
        The busy time of the accelerator, in its two halves.
    exposed_s
        t(last reward) - t(accelerator free): what the step waited, as a recorder saw it.
    wall_s
        The whole step.
    reward_s
        Time in which some reward was at work, exposed or not.
    machine
        Index of the machine that scored it; `MISSING` where not known.
    """

    labels: Sequence[str]
    generation_s: Floats
    training_s: Floats
    exposed_s: Floats
    wall_s: Floats
    machine: Ints
    reward_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def busy_s(self) -> Floats:
        """Generation plus training."""
        return self.generation_s + self.training_s


@dataclass(frozen=True, slots=True)
class Observed:
    """A run as pricing reads it.

    Parameters
    ----------
    source
        Where it came from, for people.
    calls, rows, steps
        The three tables.
    parts
        Names of the rewards.
    causes
        Words for what ended a call: limits (`cpu`, `wall`, ...), `lost`, `never_started`, `raised`.
    stepped
        Whether the source says which step a rollout belongs to; else everything is one step.
    says, lacks
        What this kind of source can tell, and what it cannot, in sentences.
    limit_s
        The constant at which calls are cut, where the source says so.
    tells_failures
        Whether the source can tell a failure from a reward; else nothing is known of corrupted groups.
    """

    source: str
    calls: Calls
    rows: Rows
    steps: Steps
    parts: Sequence[str]
    causes: Sequence[str]
    stepped: bool
    says: Sequence[str] = ()
    lacks: Sequence[str] = ()
    limit_s: Seconds | None = None
    tells_failures: bool = True

    @property
    def seen_steps(self) -> int:
        """How many steps have a call; where no call was recorded, how many there are."""
        return len(np.unique(self.calls.step)) if len(self.calls) else len(self.steps)

    @property
    def timed_out(self) -> Bools:
        """Per call: whether a limit of time cut it; where no cause is told, whether anything did."""
        timely = np.array([*(cause not in OF_SPACE for cause in self.causes), True])
        return np.asarray(self.calls.censored & timely[self.calls.cause])


def blank(count: int) -> Floats:
    """A column of which nothing was measured: it takes no memory, and nothing can be written to it."""
    return np.broadcast_to(np.float64(np.nan), count)


def compact(numbers: Ints) -> Ints:
    """The same whole numbers in half as many bytes, where that holds them: a run has millions."""
    small = int(np.abs(numbers).max(initial=0)) < 1 << 30
    return numbers.astype(np.int32) if small else numbers
