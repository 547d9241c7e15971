"""What a row's columns decide before its completion is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.outcome import Abstained, Part, Unscored, Verdict
from steelyard.rollout import Rollout


def by_columns(part: Part, rollouts: Sequence[Rollout]) -> Verdict | None:
    """What a group's columns alone decide; `None` if its completions must be read.

    The columns that a recipe reads are the same for a whole group, so one bad row takes the group.
    """
    reward = part.reward
    seen: Mapping[str, Any] | None = None
    for rollout in rollouts:
        columns = rollout.columns
        if columns is seen or columns == seen:
            continue
        seen = columns
        absent = next((name for name in reward.columns if columns.get(name) is None), None)
        if absent is not None:
            if part.optional:
                return Abstained(f"column {absent!r} is absent")
            return Unscored("data", f"{rollout.where}: column {absent!r} is missing")
        if not reward.applies(columns):
            return Abstained("does not apply to these columns")
        wrong = reward.lint(columns)
        if wrong is not None:
            return Unscored("data", f"{rollout.where}: {wrong}")
    return None
