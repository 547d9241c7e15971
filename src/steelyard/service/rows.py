"""What is posted becomes groups, what was scored becomes rows: pure, no loop, no socket.

Posted rows are looked over as a file's are (`steelyard.files.survey`), so that they group alike and have
the same faults. A row that is no rollout refuses the post. A row whose columns are bad does not: its
group is unscored, with the reason, for a trainer that has run for days must not end over one gold.
This is a door: here an unscored row's value is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steelyard.files import groups, survey
from steelyard.files.absent import absent
from steelyard.ledger.rows import columns_of
from steelyard.outcome import Scored, ScoredGroup, Verdict
from steelyard.rewards import Recipe
from steelyard.rollout import Group, parse_json
from steelyard.scoring.rows import words
from steelyard.service.documents import BadPostError

_SHAPE = (
    'post {"rollouts": [{"prompt": ..., "completion": ...}]} or {"groups": [{"id": ..., "rollouts": [...]}]}'
)


class _Posted:
    """Rows as a survey reads them; a place is a row's number, from 0."""

    name = "row"

    def __init__(self, rows: Iterable[object]) -> None:
        # not orjson, to which NaN is null
        self._lines = [json.dumps(row).encode() for row in rows]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(place, line) from the first to the last."""
        return enumerate(self._lines)

    def at(self, place: int) -> bytes:
        """The line at a place."""
        return self._lines[place]

    def changed(self) -> bool:
        """Nobody writes to what was posted."""
        return False

    def close(self) -> None:
        """Nothing to let go of."""


def groups_of(body: bytes, recipe: Recipe, columns: Mapping[str, str]) -> list[Group]:
    """Read what was posted.

    Parameters
    ----------
    body
        JSON.
    recipe
        What will be asked of it.
    columns
        Our column names to the rows', where they differ.

    Raises
    ------
    BadPostError
        If it is no rollouts: 400; if what the recipe reads of each is in none of them: 422.

    Examples
    --------
    >>> from steelyard.outcome import Part
    >>> from steelyard.rewards import builtin
    >>> body = b'{"rollouts": [{"prompt": "1 + 1?", "completion": "#### 2", "answer": 2}]}'
    >>> [group.rollouts[0].completion for group in groups_of(body, Recipe((Part(builtin("gsm8k")),)), {})]
    ['#### 2']
    """
    source = _Posted(_rows_in(body, columns.get("group", "group")))
    found = survey(source, recipe, columns)
    if found.skipped:
        first = found.faults[0]
        raise BadPostError(
            f"{first.kind}: {first}; no rollouts: {found.skipped} of {found.skipped + found.rollouts} rows",
            where=f"{source.name} {first.line}",
            remedy="mend them, and post again: nothing was judged",
            rows=[
                {"row": f.line, "kind": f.kind, "column": f.column, "value": f.value, "next": f.remedy}
                for f in found.faults
            ],
        )
    lacking = absent(found, recipe)
    if lacking is not None:
        raise BadPostError(
            lacking.reason,
            where="rows",
            remedy=f"post it with every row, or serve with --column {lacking.columns[0]}=FIELD",
            status=422,
        )
    return list(groups(source, found))


def _rows_in(body: bytes, group_field: str) -> list[object]:
    try:
        said = parse_json(body)
    except ValueError as error:
        raise BadPostError(f"not JSON ({error})", where="body", remedy=_SHAPE) from None
    if not isinstance(said, dict) or list(said) not in (["groups"], ["rollouts"]):
        seen = f"an object with {', '.join(said) or 'nothing'}" if isinstance(said, dict) else "no object"
        raise BadPostError(f"it is {seen}", where="body", remedy=_SHAPE)
    (word, given), *_ = said.items()
    if not isinstance(given, list):
        raise BadPostError(f"{type(given).__name__}, not a list", where=word, remedy=_SHAPE)
    if word == "rollouts":
        return given
    rows: list[object] = []
    seen_ids: set[str] = set()
    for number, group in enumerate(given, start=1):
        where = f"group {number}"
        if not isinstance(group, dict) or not isinstance(group.get("rollouts"), list):
            raise BadPostError("it has no list of rollouts", where=where, remedy=_SHAPE)
        name = group.get("id", number)
        if repr(name) in seen_ids:
            raise BadPostError(
                f"an earlier group has the id {name!r}",
                where=where,
                remedy="give each group an id of its own",
            )
        seen_ids.add(repr(name))
        rows += [{**row, group_field: name} if isinstance(row, dict) else row for row in group["rollouts"]]
    return rows


def rows_of(scored: ScoredGroup) -> list[dict[str, Any]]:
    """A group's rollouts as rows of the scored file.

    Their clocks are null: what leaves the runtime without a ledger has none.
    """
    return [
        {
            "id": rollout.id,
            "group": scored.group.id,
            "index": place,
            **_said(total),
            "parts": {name: _said(scores[place].verdict) for name, scores in scored.parts.items()},
            "advantage": None if scored.advantages is None else scored.advantages[place],
            "integrity": total.integrity if isinstance(total, Scored) else None,
            "clocks": None,
        }
        for place, (rollout, total) in enumerate(zip(scored.group.rollouts, scored.totals, strict=True))
    ]


def _said(verdict: Verdict) -> dict[str, Any]:
    return words(*columns_of(verdict)[:4])
