"""Groups under way, their rollouts as one part is asked about them, and how these make calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from steelyard.outcome import Score
from steelyard.rollout import Group, Rollout


class Open:
    """A group under way."""

    __slots__ = ("group", "missing", "recorded", "scores", "stage")

    def __init__(self, group: Group, parts: Iterable[str], recorded: Mapping[tuple[int, str], Score]) -> None:
        self.group = group
        self.recorded = recorded
        self.scores: dict[str, list[Score | None]] = {name: [None] * len(group.rollouts) for name in parts}
        self.missing = 0
        self.stage = 0


class Cell(NamedTuple):
    """One rollout to be judged by one part."""

    open: Open
    place: int
    """Its index in the group."""
    rollout: Rollout


def by_group(cells: list[Cell]) -> Iterator[list[Cell]]:
    """A call for each group."""
    return whole_groups(cells, 1)


def whole_groups(cells: list[Cell], size: int) -> Iterator[list[Cell]]:
    """Whole groups, together at least `size` rollouts: what a call leaves out is judged by the group."""
    some: list[Cell] = []
    for cell in cells:
        if len(some) >= size and some[-1].open is not cell.open:
            yield some
            some = []
        some.append(cell)
    if some:
        yield some
