"""What an inspection saw, as values: the input of the findings, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from steelyard.outcome import Scored, Verdict

TOLERANCE: Final = 1e-9
"""What two rewards may differ by and be one: sums of parts in another order."""


HOLE: Final = "…"
"""Stands for the answer in the name of a form."""


class Level(StrEnum):
    """How much a finding asks for."""

    FAULT = "fault"
    DOUBT = "doubt"
    NOTE = "note"


class Finding(NamedTuple):
    """One sentence that a person can act on."""

    level: Level
    check: str
    says: str


class Kind(StrEnum):
    """What a specimen is."""

    GOLD = "gold"
    WRONG = "wrong"
    WRONG_TOO = "another wrong"
    NEAR = "the gold less one"
    EXTENDED = "the gold and more"
    PLAIN = "gold without format"
    REPEATED = "gold three times"
    LONG = "gold after 20,000 words"
    UNCLOSED = "gold, thinking unclosed"
    GOLD_FIRST = "gold, then a wrong one"
    GOLD_LAST = "a wrong one, then gold"
    GOLD_OR = "gold or a wrong one"
    OR_GOLD = "a wrong one or gold"
    LISTED = "all answers listed"
    LISTED_INSIDE = "all answers in a format"
    LISTED_EACH = "each answer formatted"
    BARE = "format without an answer"
    EMPTY = "empty"
    BLANK = "white space"
    ECHO = "the prompt"
    THINKING = "unclosed thinking"
    SHRUG = "I do not know."
    FORMED = "the format around any text"


NOTHING: Final = (Kind.EMPTY, Kind.BLANK, Kind.THINKING, Kind.SHRUG, Kind.BARE)
"""Specimens that say nothing."""


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What the findings need to know of a part.

    Parameters
    ----------
    name, weight, floor
        As in the recipe.
    ours
        Whether it is a reward of ours: code `None` is then full marks, by contract.
    reads_gold
        Whether it reads the column that holds the gold.
    perhaps
        Whether it only may read it: it is given every column, or names it and never uses it.
    named
        Whether it names that column.
    reads_columns
        Whether it reads anything but the completion.
    gate
        Whether it stands behind a gate.
    by_chance
        Whether it says itself that chance or time decide.
    grouped
        Whether it says itself that its group decides.
    batched
        Whether one call judges a batch.
    """

    name: str
    weight: float = 1.0
    floor: float = 0.0
    ours: bool = False
    reads_gold: bool = True
    perhaps: bool = False
    named: bool = True
    reads_columns: bool = True
    gate: bool = False
    by_chance: bool = False
    grouped: bool = False
    batched: bool = False


class Answer(NamedTuple):
    """What a recipe said of one completion: the total, and each part."""

    total: Verdict
    parts: Mapping[str, Verdict]

    def of(self, part: str) -> Verdict:
        """Return a part's verdict; the total's for the empty name."""
        return self.parts[part] if part else self.total


def value(verdict: Verdict | None) -> float | None:
    """Return the number, where there is one."""
    return verdict.value if isinstance(verdict, Scored) else None


class RowFacts(NamedTuple):
    """A row that specimens were made from."""

    where: str
    gold: str = ""


class Told(NamedTuple):
    """A rollout of the file, and what was said of it."""

    where: str
    answer: Answer


class Ended(NamedTuple):
    """What one part said of one completion."""

    where: str
    part: str
    verdict: Verdict
    own: bool = True
    """Whether it is a rollout of the file, no specimen."""
    long: bool = False


class Repeat(NamedTuple):
    """A rollout that was asked about twice: how the second time differed, and what was said both times."""

    way: str
    """`again`, `fresh`, `reversed` or `alone`."""
    where: str
    part: str
    before: Verdict
    after: Verdict


Place = tuple[int, Kind, str]
"""A specimen: its row, its kind, its form (empty where there is none)."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that was seen.

    Parameters
    ----------
    parts
        The recipe's parts.
    rows
        The rows that specimens were made from.
    form
        The form in which the gold earns most in total; `None` where there is no gold.
    forms
        By part that reads the gold: the form in which the gold earns most there.
    earned
        What specimens earned.
    refused
        By (row, part): the gold earned less than full marks there in every form that was tried.
    groups
        The file's own groups.
    repeats
        What was asked twice.
    asked
        How many rollouts of the file there were to ask about.
    broken
        Attempts that failed, where there was no time for a verdict: as if they had been final.
    stopped
        Why the runtime stopped, if it did.
    late
        What had not come back when time was over, the first of it.
    within_s
        The time there was.
    """

    parts: Sequence[PartFacts]
    rows: Sequence[RowFacts] = ()
    form: str | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    earned: Mapping[Place, Answer] = field(default_factory=dict)
    refused: Mapping[tuple[int, str], Verdict] = field(default_factory=dict)
    groups: Sequence[Sequence[Told]] = ()
    repeats: Sequence[Repeat] = ()
    asked: int = 0
    broken: Sequence[Ended] = ()
    stopped: Sequence[str] = ()
    late: Sequence[str] = ()
    within_s: float = 0.0

    def values(self, kind: Kind, form: str, part: str = "") -> dict[int, float]:
        """By row, what specimens of a kind earned in a part, or in total."""
        found = {}
        for row in range(len(self.rows)):
            answer = self.earned.get((row, kind, form)) or self.earned.get((row, kind, ""))
            number = value(answer.of(part)) if answer else None
            if number is not None:
                found[row] = number
        return found

    def own(self, part: str = "") -> list[float]:
        """What the file's rollouts earned in a part, or in total."""
        numbers = (value(told.answer.of(part)) for group in self.groups for told in group)
        return [number for number in numbers if number is not None]


class SpecimenLine(NamedTuple):
    """What specimens of one kind earned, over the rows."""

    kind: str
    rows: int
    mean: float
    parts: Mapping[str, float | None]
    as_gold: int | None
    """Rows on which it earned as much as the gold; `None` without a gold."""
    example: str


class PartTimes(NamedTuple):
    """How long a part takes for one of the file's rollouts, and for a step of them."""

    part: str
    rollouts: int
    p50_s: float
    p99_s: float
    step_s: float
    at_once: int
    long_s: float | None
    """For the specimen of 20,000 words."""


class Spread(NamedTuple):
    """How the file's rollouts fared."""

    rollouts: int
    groups: int
    all_right: int
    all_wrong: int
    all_alike: int
    """Groups without a gradient: nothing but full marks, nothing but failures, and other equal rewards."""
    histogram: Sequence[tuple[str, int]]
    codes: Mapping[str, Mapping[str, int]]
    """By part, floors and other less than full marks by code."""
    unscored: Mapping[str, int]
    abstained: Mapping[str, int]
    """By part."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an inspection found."""

    file: str
    parts: Sequence[str]
    rollouts: int
    groups: int
    whole: bool
    """Whether the whole file was looked over, not only its beginning."""
    form: str | None
    specimens: Sequence[SpecimenLine]
    spread: Spread
    findings: Sequence[Finding]
    not_run: Sequence[tuple[str, str]]
    """What was not asked, and why."""
    times: Sequence[PartTimes] = ()
    taken_s: float = 0.0

    @property
    def faults(self) -> int:
        """How many findings are faults."""
        return sum(found.level is Level.FAULT for found in self.findings)

    def document(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        said = asdict(self)
        for name, kind in (("findings", Finding), ("specimens", SpecimenLine), ("times", PartTimes)):
            said[name] = [dict(zip(kind._fields, one, strict=True)) for one in getattr(self, name)]
        said["spread"] = self.spread._asdict()
        return {**said, "faults": self.faults}


def figure(found: float) -> str:
    """Write a reward for a person."""
    return f"{found:.4g}"


def places(rows: Sequence[str], what: str, of: int | None = None) -> str:
    """Say how many places there are, and the first."""
    count = f"{len(rows)} of {of}" if of is not None else str(len(rows))
    return f"{count} {what} (first {rows[0]})"


def written(form: str) -> str:
    """Say in which form an answer was written."""
    if form == HOLE:
        return "written bare"
    return f"written as {form!r}" if HOLE in form else f"written as {form}"
