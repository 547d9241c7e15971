"""Columns that a recipe reads and no row of a file has: not bad rows, but a wrong word for a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from steelyard.files.survey import Survey


class Reads(Protocol):
    """What of a recipe must stand in some row."""

    @property
    def needed(self) -> Sequence[str]:
        """Columns without which a row cannot be judged."""

    @property
    def fields(self) -> Sequence[str]:
        """What is read of a rollout beside its columns, `files` or `state`."""


class Absent(NamedTuple):
    """What no row has.

    Parameters
    ----------
    columns
        By our names.
    reason
        It in words, with the fields that are there.
    """

    columns: tuple[str, ...]
    reason: str


def absent(found: Survey, asked: Reads) -> Absent | None:
    """Find what stands in no row, all of it at once; `None` if there is nothing, or no row at all.

    Parameters
    ----------
    found
        What was looked over.
    asked
        The recipe.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> recipe = SimpleNamespace(needed=["answer"], fields=[])
    >>> found = Survey("rows.jsonl", {"answer": "gold"}, fields={"prompt", "completion", "solution"})
    >>> absent(found, recipe).reason
    "the column 'gold' is in no row; there are completion, prompt, solution"
    """
    if not found.fields:
        return None
    names = found.names
    grouped = names.get("group", "group") in found.fields
    read = dict.fromkeys(["completion", *([] if grouped else ["prompt"]), *asked.needed, *asked.fields])
    lacking = {ours: field for ours in read if (field := names.get(ours, ours)) not in found.fields}
    if not lacking:
        return None
    what = f"column{'s' if len(lacking) > 1 else ''} {', '.join(map(repr, lacking.values()))}"
    there = ", ".join(sorted(found.fields))
    return Absent(
        tuple(lacking),
        f"the {what} {'are' if len(lacking) > 1 else 'is'} in no row; there are {there}",
    )
