"""Groups under way, the members of one that a part is asked about, and how these make calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from steelyard.outcome import Attempt, Called, Score
from steelyard.rollout import Group, Rollout


class Open:
    """A group under way."""

    __slots__ = ("attempts", "group", "missing", "recorded", "scores", "stage")

    def __init__(self, group: Group, parts: Iterable[str], recorded: Mapping[tuple[int, str], Score]) -> None:
        self.group = group
        self.recorded = recorded
        self.scores: dict[str, list[Score | None]] = {name: [None] * len(group.rollouts) for name in parts}
        self.attempts: dict[int, Attempt] = {}
        self.missing = 0
        self.stage = 0


class Members(NamedTuple):
    """Rollouts of one group that are to be judged by one part."""

    open: Open
    places: Sequence[int]
    """Their indices in the group."""
    rollouts: Sequence[Rollout]

    def each(self) -> list[Members]:
        """Each alone."""
        return [
            Members(self.open, [place], [rollout])
            for place, rollout in zip(self.places, self.rollouts, strict=True)
        ]


def rollouts_of(asked: Sequence[Members]) -> Sequence[Rollout]:
    """The rollouts of a call, in order."""
    return asked[0].rollouts if len(asked) == 1 else list(chain.from_iterable(one.rollouts for one in asked))


def rollouts_in(asked: Iterable[Members]) -> int:
    """How many rollouts they are."""
    return sum(len(members.places) for members in asked)


def whole_groups(asked: Iterable[Members], size: int) -> Iterator[list[Members]]:
    """Whole groups, together at least `size` rollouts: what a call leaves out is judged by the group."""
    some: list[Members] = []
    rollouts = 0
    for members in asked:
        some.append(members)
        rollouts += len(members.places)
        if rollouts >= size:
            yield some
            some, rollouts = [], 0
    if some:
        yield some


def in_calls(asked: Sequence[Members], size: int) -> Iterator[list[Members]]:
    """Calls of `size` rollouts, the last of what is left: a group may be asked about in several."""
    whole, rest = divmod(rollouts_in(asked), size)
    return parted(asked, [size] * whole + [rest] * (rest > 0))


def parted(asked: Iterable[Members], sizes: Sequence[int]) -> Iterator[list[Members]]:
    """The same members, in order, as so many rollouts at a time."""
    if max(sizes, default=0) == 1:  # the only case with very many
        yield from ([one] for members in asked for one in members.each())
        return
    queue = iter(asked)
    rest: Members | None = None
    for size in sizes:
        some: list[Members] = []
        left = size
        while left:
            one, places, rollouts = rest or next(queue)
            rest = None
            if len(places) > left:
                rest = Members(one, places[left:], rollouts[left:])
                places, rollouts = places[:left], rollouts[:left]
            some.append(Members(one, places, rollouts))
            left -= len(places)
        yield some


def by_answer(asked: Iterable[Members], answers: Sequence[Called]) -> Iterator[tuple[Called, list[Members]]]:
    """Each answer, with the members whom it is about: together they are those that were asked about."""
    return zip(answers, parted(asked, [len(called.rollouts) for called in answers]), strict=True)


def in_messages(calls: Iterable[list[Members]], size: int) -> Iterator[list[list[Members]]]:
    """Calls with the same number of rollouts, together at least `size` rollouts where there are so many."""
    for rollouts, alike in groupby(calls, rollouts_in):
        queue = list(alike)
        many = max(1, -(-size // rollouts))
        yield from (queue[start : start + many] for start in range(0, len(queue), many))
