"""Completions whose worth is known, made for a row: in the gold's form, without any, saying nothing.

A specimen takes the place of the first rollout of its row's group. A reward that judges groups sees it
among the others, for every kind the same ones; any other sees it alone. Where the file's completions are
conversations, so are the specimens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import count, cycle, islice
from typing import Final, NamedTuple

from steelyard.audit.forms import PLAIN, THOUGHT, Form, Gold, extended, listing, nearest, wrong_answers
from steelyard.audit.observed import Kind
from steelyard.rewards.arguments import question
from steelyard.rollout import Group, Rollout

LONG: Final = 20_000
"""Words before the gold in the long specimen."""

_FILLER: Final = [
    "so",
    "then",
    "we",
    "go",
    "on",
    "and",
    "look",
    "again",
    "at",
    "what",
    "was",
    "said",
    "before",
]
_SIBLINGS: Final = 8
_ONE_ANSWER: Final = 200  # characters; what is longer, or of several lines, may stand beside others (code)


class Row(NamedTuple):
    """A row that specimens are made from: the first of a group, its gold, wrong answers and a listing."""

    place: int
    group: Group
    gold: Gold | None = None
    wrong: tuple[Gold, Gold] | None = None
    listed: Sequence[Gold] = ()

    @property
    def where(self) -> str:
        """Where it stands in the file."""
        return self.group.rollouts[0].where


class Specimen(NamedTuple):
    """A completion that was made, where it belongs, and the group in which it is judged."""

    row: int
    kind: Kind
    form: str
    text: str
    group: Group


class Numbering:
    """Gives groups and rollouts places of their own in the inspection's run."""

    def __init__(self) -> None:
        self._groups, self._rollouts = count(), count()

    def group(self, rollouts: Sequence[Rollout]) -> Group:
        """Make a group of rollouts, wherever they came from."""
        ordinal = next(self._groups)
        return Group(
            ordinal,
            ordinal,
            [
                one._replace(key=(ordinal, index), ordinal=next(self._rollouts))
                for index, one in enumerate(rollouts)
            ],
        )

    def around(self, row: Row, text: str, *, grouped: bool) -> Group:
        """Make the group in which a specimen is judged."""
        first, *siblings = row.group.rollouts
        said = text if isinstance(first.completion, str) else [{"role": "assistant", "content": text}]
        specimen = first._replace(completion=said, raw=None)
        return self.group([specimen, *siblings[: _SIBLINGS - 1]] if grouped else [specimen])


def rows_of(groups: Sequence[Group], golds: Mapping[int, Gold]) -> list[Row]:
    """Make rows of groups; `golds` by the group's place."""
    every = list(golds.values())
    rows = []
    for place, group in enumerate(groups):
        gold = golds.get(place)
        if gold is None:
            rows.append(Row(place, group))
            continue
        others = every[place + 1 :] + every[:place]
        wrong = wrong_answers(gold, others)
        rows.append(Row(place, group, gold, wrong, listing(gold, wrong, others)))
    return rows


def stated(row: Row, form: Form) -> Iterator[tuple[Kind, str]]:
    """The gold and two wrong answers, in a form."""
    if row.gold is None or row.wrong is None:
        return
    yield Kind.GOLD, form.of(row.gold)
    yield Kind.WRONG, form.of(row.wrong[0])
    yield Kind.WRONG_TOO, form.of(row.wrong[1])


def made(row: Row, form: Form) -> Iterator[tuple[Kind, str]]:
    """What a policy may write instead of committing to the gold, in a form."""
    if row.gold is None or row.wrong is None:
        return
    right = form.of(row.gold)
    for kind, near in ((Kind.NEAR, nearest(row.gold)), (Kind.EXTENDED, extended(row.gold))):
        if near is not None:
            yield kind, form.of(near)
    if form.name != PLAIN.name:
        yield Kind.PLAIN, PLAIN.of(row.gold)
        yield Kind.BARE, form.write("")
    if all(_exclusive(one.text) for one in row.listed):
        yield from _several(row, form)
    yield Kind.REPEATED, "\n".join([right] * 3)
    if "</think" not in right:
        yield Kind.UNCLOSED, f"<think>\n{THOUGHT}\n{right}"
    yield Kind.LONG, f"{filler()}\n{right}"


def _exclusive(text: str) -> bool:
    """Whether giving an answer means not to give another: two functions in one answer exclude nothing."""
    return len(text) <= _ONE_ANSWER and "\n" not in text


def _several(row: Row, form: Form) -> Iterator[tuple[Kind, str]]:
    """Several answers where one was asked for."""
    if row.gold is None or row.wrong is None:
        return
    right, wrong = form.of(row.gold), form.of(row.wrong[0])
    every = ", ".join(one.text for one in row.listed)
    if form.name != PLAIN.name and not form.raw:
        yield Kind.LISTED_INSIDE, form.write(every)
    yield Kind.LISTED, "It is one of these: " + every
    yield Kind.LISTED_EACH, "\n".join(map(form.of, row.listed))
    yield Kind.GOLD_FIRST, f"{right}\n{wrong}"
    yield Kind.GOLD_LAST, f"{wrong}\n{right}"
    if not form.raw:
        pair = (row.gold.text, row.wrong[0].text)
        yield Kind.GOLD_OR, form.write(" or ".join(pair))
        yield Kind.OR_GOLD, form.write(" or ".join(reversed(pair)))


def formless(row: Row, writes: Sequence[Form]) -> Iterator[tuple[Kind, str]]:
    """What needs no gold; where there is none, also the parts' formats (`writes`) around any text."""
    yield Kind.EMPTY, ""
    yield Kind.BLANK, " \n\t \n"
    yield Kind.THINKING, f"<think>\n{THOUGHT}"
    yield Kind.SHRUG, "I do not know."
    if asked := question(row.group.rollouts[0].prompt):
        yield Kind.ECHO, asked
    if row.gold is None:
        yield Kind.LONG, filler()
        if writes:
            yield Kind.FORMED, reduce(lambda text, form: form.write(text), writes, "Here it is.")


def filler() -> str:
    """20,000 words that say nothing."""
    return " ".join(islice(cycle(_FILLER), LONG))
