"""What leaves: verdicts, attempts, scores; and the signature that every reward has.

A verdict is one of three, and a failure is never a number:

| verdict | said when | in its group |
|---|---|---|
| `Scored` | the reward judged; and every end the candidate brought about, at the floor | votes |
| `Abstained` | the reward does not apply, by the row's columns alone | votes with its other parts |
| `Unscored` | the machinery failed, on evidence no completion can produce | does not vote, advantage 0 |

Rewards make `Scored` and `Abstained`; only the scheduler makes `Unscored`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias, TypeGuard

from steelyard.clock import Clocks, Seconds
from steelyard.errors import UnscoredValueError, describe, printable
from steelyard.rollout import Group, Key, Rollout


@dataclass(frozen=True, slots=True)
class Scored:
    """The reward judged.

    Parameters
    ----------
    value
        The reward: a finite number.
    code
        Why it is not full marks, as one word from `docs/verdicts.md`; `None` for full marks.
    reason
        The same for a person.
    integrity
        How far the judgement can be trusted where code ran: `isolated`, `cooperative`; else `None`.
    """

    value: float
    code: str | None = None
    reason: str | None = None
    integrity: str | None = None

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Abstained:
    """The reward does not apply to this row, by its columns alone."""

    reason: str

    def __float__(self) -> NoReturn:
        raise UnscoredValueError(
            f"an abstained rollout has no value ({self.reason}); leave it out of the sum"
        )


@dataclass(frozen=True, slots=True)
class Unscored:
    """The machinery failed: nothing is known about the completion."""

    boundary: str
    cause: str

    def __float__(self) -> NoReturn:
        raise UnscoredValueError(
            f"an unscored rollout has no value ({self.boundary}: {self.cause}); "
            "it does not vote and gets advantage 0"
        )


Verdict: TypeAlias = Scored | Abstained | Unscored


class End(StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    RAISED = "raised"  # the reward raised, or returned what no reward may
    CUT = "cut"  # by a limit, which `Attempt.limit` names
    LOST = "lost"  # contact lost after the first instruction
    NEVER_STARTED = "never_started"


class Failure(NamedTuple):
    """Why an attempt has no judgement: facts, no blame.

    Parameters
    ----------
    end
        How the attempt ended.
    cause
        What happened, in one line.
    limit
        The limit that cut it: `cpu`, `memory`, `wall`, ...
    boundary
        Whose machinery failed, on evidence that the completion cannot produce; else empty.
    evidence
        What else was seen, kept with the attempt.
    """

    end: End
    cause: str
    limit: str | None = None
    boundary: str = ""
    evidence: Mapping[str, Any] = {}


Said: TypeAlias = Scored | Abstained | Failure
"""What one call said of one rollout."""


class Called(NamedTuple):
    """One call of a reward as it came back: what was said of each rollout, in order, and the clocks."""

    rollouts: Sequence[Rollout]
    said: Sequence[Said]
    clocks: Clocks
    evidence: Mapping[str, Any] | None = None
    """What a verdict was made from, where there is more to tell than its reason."""


class Attempt(NamedTuple):
    """One call of one part on 1 to n rollouts, with its clocks, once.

    Parameters
    ----------
    id
        Unique in its run; given when it is recorded.
    part
        The part's name.
    ordinal
        0 for the first try at these rollouts, then 1, 2.
    first, members
        The first rollout's ordinal, and how many rollouts the call judged; which ones, their
        scores say.
    clocks
        What was measured.
    end
        How it ended.
    limit
        The limit that cut it, if one did.
    evidence
        What the verdict was made from, for whoever asks later.
    """

    id: int
    part: str
    ordinal: int
    first: int
    members: int
    clocks: Clocks
    end: End = End.FINISHED
    limit: str | None = None
    evidence: Mapping[str, Any] | None = None


class Score(NamedTuple):
    """A verdict with its provenance."""

    key: Key
    ordinal: int
    part: str
    identity: str
    verdict: Verdict
    attempt: int | None
    """The id of the attempt that decided it; `None` where no attempt was needed (a bad row)."""

    def __float__(self) -> float:
        return float(self.verdict)


class ScoredGroup(NamedTuple):
    """A group that has left: totals in input order, and every part's scores in the same order."""

    group: Group
    totals: Sequence[Verdict]
    parts: Mapping[str, Sequence[Score]]
    advantages: Sequence[float] | None = None
    """One per rollout; `None` under schemes that need the whole batch."""
    attempts: Mapping[int, Attempt] = {}
    """By id, the attempts that were made at its rollouts, retries included: `Score.attempt` names one."""


class How(Enum):
    """How a reward is run."""

    INLINE = "inline"
    """Ours, cheap, its cost bounded by the size of its input: whole chunks in one call."""
    WORKER = "worker"
    """Synchronous Python that may hang or crash: in killable processes."""
    ASYNC = "async"
    """A boundary, a judge, the network: tasks in the event loop."""


class Room(NamedTuple):
    """What a worker process of a reward of ours may use.

    Parameters
    ----------
    cpu_s
        CPU seconds for one rollout.
    memory_bytes
        Beyond what the process holds when it is ready (Linux).
    """

    cpu_s: Seconds
    memory_bytes: int


class Takes(Enum):
    """What one call of a reward is given."""

    ROLLOUT = "rollout"
    BATCH = "batch"
    GROUP = "group"


LARGEST: Final = 1e100
"""The largest reward: squares of rewards, summed over a batch, stay finite."""


def as_judgement(value: object) -> Scored:
    """Take what a reward returned for one rollout as a judgement whose words can be written down.

    Parameters
    ----------
    value
        A number (anything with `__float__`: NumPy scalars, one-element tensors), or a `Scored`.

    Raises
    ------
    ValueError
        If it is no finite number. An abstention is not taken either: whether a reward applies is a
        function of the columns (`applies`), never of the completion, or a policy could learn to be
        left out.
    """
    if type(value) is float and abs(value) <= LARGEST:
        return Scored(value)
    if isinstance(value, Scored):
        number, code, reason, integrity = value.value, value.code, value.reason, value.integrity
        sound = type(value) is Scored and type(number) is float and abs(number) <= LARGEST
        if sound and _words(code) is code and _words(reason) is reason and _words(integrity) is integrity:
            return value
        return Scored(as_judgement(number).value, *map(_words, (code, reason, integrity)))
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        shown = repr(value)
        raise ValueError(f"returned {shown if len(shown) <= 80 else shown[:77] + '...'}, which is no number")
    if isinstance(value, Abstained | Unscored):
        raise ValueError(  # noqa: TRY004 - one kind of error for whatever a reward returns
            f"returned {value!r}; whether it applies must be decided by the columns (applies=)"
        )
    number = float(value)
    if not abs(number) <= LARGEST:  # NaN too
        raise ValueError(f"returned {number}; a reward is a finite number, at most {LARGEST:g}")
    return Scored(number)


def _words(words: object) -> str | None:
    if words is None or (type(words) is str and words.isascii()):
        return words
    if isinstance(words, str):
        return printable(str(words))
    raise ValueError(f"returned {type(words).__name__} for a code, reason or integrity, which is no text")


NOTHING: Final = Abstained("it returned None for the whole group")


def as_judgements(values: object, count: int) -> list[Said]:
    """Take what a reward returned for several rollouts: a judgement each, or why there is none.

    `None`, which trainers' functions return for "not to be scored", becomes `NOTHING`; whether it may
    stand the scheduler says, who sees the whole group.

    Parameters
    ----------
    values
        Anything that can be iterated; it may have no end.
    count
        How many rollouts were asked about.

    Raises
    ------
    ValueError
        If there are not as many.
    """
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise ValueError(f"returned {type(values).__name__}, not one value for each rollout")  # noqa: TRY004
    some = list(islice(values, count + 1))
    if len(some) != count:
        many = "more" if len(some) > count else str(len(some))
        raise ValueError(f"returned {many} values for {count} rollouts")
    same: dict[float | str, Scored] = {}  # most rewards take few values
    return [_said(value, same) for value in some]


def _said(value: object, same: dict[float | str, Scored]) -> Said:
    if type(value) is float and abs(value) <= LARGEST:
        key = value or str(value)  # 0.0 and -0.0 are the same key, and not the same number
        return same.get(key) or same.setdefault(key, Scored(value))
    if value is None or isinstance(value, Failure):
        return NOTHING if value is None else value
    try:
        return as_judgement(value)
    except Exception as error:  # noqa: BLE001 - a value's own __float__ may do anything
        return Failure(End.RAISED, printable(str(error)) if type(error) is ValueError else describe(error))


class Asked(NamedTuple):
    """What a CPU limit is asked for: an attempt at a suite (its kind and content digest) in a training step.

    No deadline is above what was declared; `reference_s` is what a reference solution took, if that is known.
    """

    part: str
    kind: str
    test: str
    step: int | str
    declared_s: Seconds
    reference_s: Seconds | None = None


class Deadline(NamedTuple):
    """A CPU limit that is the same throughout a step.

    Parameters
    ----------
    cpu_s
        Where an attempt is cut.
    proposed_s
        What the rule says, though it may not be in force.
    level
        What it was learnt from: `test`, `kind`, `reference`, or nothing (`declared`).
    bound
        The 95 % upper bound of P(cut | would pass) at this level.
    share
        The share of cuts that is audited: run again at the declared limit.
    audit
        Whether this is such a run; what was cut at is then in `proposed_s`.
    """

    cpu_s: Seconds
    proposed_s: Seconds
    level: str = "declared"
    bound: float = 1.0
    share: float = 1.0
    audit: bool = False


class Limiter(Protocol):
    """Where CPU limits come from that are not fixed: a reference, or what earlier steps showed."""

    def limit(self, asked: Asked) -> Deadline:
        """The limit of an attempt, in calibrated CPU seconds."""

    def observe(self, asked: Asked, deadline: Deadline, cpu_s: Seconds, *, passed: bool, cut: bool) -> None:
        """Learn from an attempt that ended: what it took, and whether the deadline cut it."""


@dataclass(slots=True)
class Context:
    """What a reward may know about the attempt it serves.

    Parameters
    ----------
    deadline_s
        Seconds this attempt may take; the boundary or judge cuts there and reports, the scheduler's
        own cut comes later and is a backstop.
    limiter, step
        Where limits come from, if they are not fixed, and the training step they are asked for.
    report
        Takes the boundary's clocks: they reach the attempt also when the verdict is `Scored`.
    fresh
        Whether it must run where nothing ran before: it is a second attempt.
    note
        Takes what the verdict was made from, kept with the attempt.
    """

    deadline_s: Seconds | None = None
    limiter: Limiter | None = None
    step: int | str = 0
    report: Callable[[Clocks], None] = lambda _clocks: None
    fresh: bool = False
    note: Callable[[Mapping[str, Any]], None] = lambda _evidence: None


class Reward(Protocol):
    """A question about one completion, a batch of them, or a group.

    Rewards are values with a `__call__`; nothing is subclassed. `steelyard.reward` turns a function
    into one.
    """

    @property
    def name(self) -> str:
        """The word for it on the command line, in records and in metrics."""

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could: it names the rules and the settings."""

    @property
    def how(self) -> How:
        """How it is run."""

    @property
    def takes(self) -> Takes:
        """What one call is given."""

    @property
    def floor(self) -> float:
        """Its lowest value: what an unreadable, cut or crashed completion gets."""

    @property
    def depends_on(self) -> str:
        """What else the verdict depends on: `content` (default), `group`, `randomness`, `time`."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns it reads; a run without one of them in any row is refused."""

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, or `None`: pure, fast, before anything is judged."""

    def applies(self, columns: Mapping[str, Any]) -> bool:
        """Whether the reward applies to this row, decided before its completion is read."""

    async def canary(self) -> bool | None:
        """Judge a row of known verdict: whether the machinery is sound; `None` if there is none."""

    def __call__(self, given: Any, context: Context, /) -> Any | Awaitable[Any]:  # noqa: ANN401
        """Judge: a rollout to one judgement; a batch or a group to as many, in order."""


class Sharing(Protocol):
    """What an awaited reward has besides that is not alone with what it asks."""

    @property
    def resource(self) -> str:
        """Names what it asks: rewards with the same one share the places for calls under way."""


class Resident(Sharing, Protocol):
    """What a reward has besides whose calls go to something that lives from one to the next: a boundary."""

    @property
    def keeps_time(self) -> bool:
        """Whether it holds its calls, its canary's too, to limits of its own: nobody else cuts them."""

    async def attest(self) -> None:
        """Prove, before a run begins, that what it needs is there and holds.

        Raises
        ------
        RefusedError
            If it does not.
        """

    async def close(self) -> None:
        """End what it keeps; a later call begins anew."""


def is_sharing(reward: object) -> TypeGuard[Sharing]:
    """Whether a reward names what it asks; one that wraps another and hands its attributes on does, too."""
    return hasattr(reward, "resource")


def is_resident(reward: object) -> TypeGuard[Resident]:
    """Whether a reward's calls go to something that lives from one to the next."""
    return all(hasattr(reward, name) for name in ("keeps_time", "attest", "close"))


class Part(NamedTuple):
    """One reward of a recipe.

    Parameters
    ----------
    reward
        The reward.
    weight
        What its value is multiplied with in the sum.
    optional
        Whether a row may lack its columns; it then abstains there.
    only_if
        A gate: called with the verdicts of earlier parts; where false, this part is not asked and
        abstains.
    """

    reward: Reward
    weight: float = 1.0
    optional: bool = False
    only_if: Callable[[Mapping[str, Verdict]], bool] | None = None
