"""The exception tree, and the one place where a failure is attributed to a boundary.

```
SteelyardError
├── RefusedError         the configuration cannot work; said before anything is judged
├── InfraError           the machinery failed: before the first instruction, or on transport evidence
│   ├── SandboxError
│   └── JudgeError
├── SuspectError         contact lost after the first instruction: the incentive law decides
├── RewardError          a user's reward raised, or returned what no reward may return
├── RunStoppedError      a run that began and cannot go on; what was recorded is kept
│   └── TooManyUnscoredError
└── UnscoredValueError   somebody asked a verdict without a value for its number
```

A failure of a single rollout is data (`steelyard.outcome.Unscored`), not an exception that reaches
the caller. A message says what must hold, the value seen, and the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from steelyard.clock import Clocks


class SteelyardError(Exception):
    """The root of everything this library raises on purpose."""


class RefusedError(SteelyardError):
    """The run does not begin.

    Parameters
    ----------
    reason
        What must hold and does not, with the value seen.
    where
        The place: an option, a file and line, a column.
    remedy
        The next step, as something a person can type or change.
    """

    def __init__(self, reason: str, *, where: str, remedy: str) -> None:
        super().__init__(f"{where}: {reason}\n  next: {remedy}")
        self.reason = reason
        self.where = where
        self.remedy = remedy


class InfraError(SteelyardError):
    """The machinery failed, and the completion cannot have caused it.

    Parameters
    ----------
    boundary
        Whose failure it is: `sandbox:bubblewrap`, `judge:NAME`, `reward:NAME`.
    cause
        What happened, in one line.
    clocks
        What was measured until then.
    """

    def __init__(self, boundary: str, cause: str, *, clocks: Clocks | None = None) -> None:
        super().__init__(f"{boundary}: {cause}")
        self.boundary = boundary
        self.cause = cause
        self.clocks = clocks


class SandboxError(InfraError):
    """A boundary failed before the candidate's first instruction."""


class JudgeError(InfraError):
    """A judge could not be asked: transport, quota, outage."""


class SuspectError(SteelyardError):
    """Contact was lost after the first instruction: a candidate may have done it.

    Parameters
    ----------
    cause
        Which loss: `wall`, `lost`, `died`.
    clocks
        What was measured until then.
    evidence
        What the scheduler needs to decide, kept with the attempt.
    """

    def __init__(
        self, cause: str, *, clocks: Clocks | None = None, evidence: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.clocks = clocks
        self.evidence = dict(evidence or {})


class RewardError(SteelyardError):
    """A reward raised, or returned something that is no verdict.

    Parameters
    ----------
    reward
        The reward's name.
    cause
        The exception or the wrong value, in one line.
    row
        Where the rollout came from, such as `rollouts.jsonl:7`.
    """

    def __init__(self, reward: str, cause: str, *, row: str = "") -> None:
        super().__init__(f"reward {reward!r}{f' on {row}' if row else ''}: {cause}")
        self.reward = reward
        self.cause = cause
        self.row = row


class RunStoppedError(SteelyardError):
    """A run that had begun cannot go on; everything acknowledged is in the ledger."""


class TooManyUnscoredError(RunStoppedError):
    """More rollouts than the stated share could not be judged, so the step must not be trained on."""


class UnscoredValueError(SteelyardError, TypeError):
    """`float()` of a verdict that has no value."""


@contextmanager
def attributed(boundary: str) -> Iterator[None]:
    """Attribute whatever flies past to `boundary`; the nearest attribution stands.

    Our own errors pass untouched, for they were attributed nearer to the fault; so do
    cancellation and interrupts, which are nobody's fault.

    Raises
    ------
    InfraError
        In place of any foreign exception.

    Examples
    --------
    >>> try:
    ...     with attributed("judge:tone"):
    ...         raise ConnectionResetError("peer closed")
    ... except InfraError as error:
    ...     print(error)
    judge:tone: ConnectionResetError: peer closed
    """
    try:
        yield
    except SteelyardError:
        raise
    except Exception as error:
        raise InfraError(boundary, describe(error)) from error


def describe(error: BaseException) -> str:
    """One line about an exception, its type first; long texts are cut at 300 characters."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a user's __str__
        text = "(its message cannot be read)"
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return printable(line if len(line) <= 300 else line[:297] + "...")


def printable(text: str) -> str:
    r"""Text that any file and terminal takes: a lone surrogate is spelled out, as in `\ud800`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
