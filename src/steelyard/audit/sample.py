"""A sample of a file: its first rows looked over, some of their groups chosen evenly.

The survey is that of `score`, over the first `ROWS` rows at most; a bad row is named, and the others are
gone on with. Nothing is drawn by chance: the same file gives the same sample. Groups stand in an
order of which any beginning is spread over the file, so that one cut by time still samples the whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.files import FileSource, LineSource, Survey, groups, is_once, read_once, survey
from steelyard.files.absent import absent
from steelyard.rewards import Recipe
from steelyard.rollout import Group

ROWS: Final = 100_000
"""Rows that are looked over: about a second."""

BYTES: Final = 256 << 20
"""Of them at most, where rows are large."""

LINTED: Final = 4_096
"""Groups whose columns are looked at by the rewards: a gold may take a millisecond."""

GROUPS: Final = 64
ROLLOUTS: Final = 1_024
"""Groups, and about how many rollouts, are asked about at most."""


class Sample(NamedTuple):
    """What was chosen.

    Parameters
    ----------
    groups
        With good columns.
    found
        The survey.
    whole
        Whether it went over every row.
    bad
        Faults by kind that a person must mend, and the first of them.
    """

    groups: list[Group]
    found: Survey
    whole: bool
    bad: str


class _Head:
    """The first rows of a source."""

    def __init__(self, source: LineSource) -> None:
        self.name = source.name
        self.whole = True
        self._source = source

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(place, line) of the first rows."""
        size = 0
        for number, (place, line) in enumerate(self._source.lines()):
            if number == ROWS or size > BYTES:
                self.whole = False
                return
            size += len(line)
            yield place, line

    def at(self, place: int) -> bytes:
        """The line at a place."""
        return self._source.at(place)

    def changed(self) -> bool:
        """Whether it was written to."""
        return self._source.changed()

    def close(self) -> None:
        """Let go of it."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the survey asks of the recipe: columns, and a look at the first groups' values."""

    recipe: Recipe
    left: list[int]

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a row cannot be judged."""
        return self.recipe.needed

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that any part reads."""
        return self.recipe.read

    @property
    def counts(self) -> bool:
        """Whether rows of a group are looked at one by one."""
        return self.recipe.counts

    def lint(self, columns: Mapping[str, Any]) -> tuple[str, str] | None:
        """Lint as the recipe does, as long as that is quick."""
        self.left[0] -= 1
        return self.recipe.lint(columns) if self.left[0] >= 0 else None


def sample(file: str, recipe: Recipe, columns: Mapping[str, str]) -> Sample:
    """Look a file over, and choose.

    Raises
    ------
    RefusedError
        If it cannot be read, what the recipe reads is in no row, or no row is good.
    """
    with _opened(file) as source:
        head = _Head(source)
        found = survey(head, _Asked(recipe, [LINTED]), columns)
        lacking = absent(found, recipe)
        if lacking is not None:
            raise RefusedError(
                lacking.reason,
                where=found.name,
                remedy=f"say which field to take with --column {lacking.columns[0]}=FIELD",
            )
        chosen = list(groups(head, _chosen(found))) if found.rollouts else []
        good = [group for group in chosen if _good(group, recipe)]
        if not good:
            raise RefusedError(
                f"no row can be judged{': ' + _told(found) if found.faults else ''}",
                where=found.name,
                remedy="mend the rows, or name their columns with --column NAME=FIELD",
            )
        return Sample(_spread(good), found, head.whole, _told(found))


@contextmanager
def _opened(file: str) -> Iterator[LineSource]:
    """Open a file; what can be read only once is spooled, as far as it is looked over."""
    if not is_once(file):
        source = FileSource(Path(file))
        try:
            yield source
        finally:
            source.close()
        return
    with NamedTemporaryFile(prefix="steelyard-check-") as spool:
        size = 0
        for line in islice(read_once(file), ROWS + 1):
            spool.write(line)
            size += len(line)
            if size > BYTES:
                break
        spool.flush()
        source = FileSource(Path(spool.name))
        source.name = "standard input" if file == "-" else Path(file).name
        try:
            yield source
        finally:
            source.close()


def _chosen(found: Survey) -> Survey:
    """Keep some groups of a survey, evenly over the file."""
    count = len(found.group_ids)
    each = max(1.0, found.rollouts / count)
    wanted = min(count, GROUPS, max(4, int(ROLLOUTS / each)))
    members, starts = array("I"), array("I", [0])
    ids = []
    for step in range(wanted):
        group = (2 * step + 1) * count // (2 * wanted)
        first, end = found.starts[group], found.starts[group + 1]
        members.extend(found.members[first : min(end, first + ROLLOUTS // 4)])
        starts.append(len(members))
        ids.append(found.group_ids[group])
    return replace(found, members=members, starts=starts, group_ids=ids)


def _good(group: Group, recipe: Recipe) -> bool:
    return all(
        all(rollout.columns.get(name) is not None for name in recipe.needed)
        and recipe.lint(rollout.columns) is None
        for rollout in group.rollouts
    )


def _spread(groups: list[Group]) -> list[Group]:
    """Order groups so that each beginning is spread over all: by their places' binary digits, reversed."""
    digits = max(1, (len(groups) - 1).bit_length())
    order = sorted(range(len(groups)), key=lambda at: int(f"{at:0{digits}b}"[::-1], 2))
    return [groups[at] for at in order]


def _told(found: Survey) -> str:
    """Bad rows by kind, and the first of them."""
    if not found.faults:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.fault_counts.most_common())
    first = found.faults[0]
    return f"{kinds}; {found.name}:{first.line}: {first}"
