"""What will be asked, from the recipe and the sample alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from steelyard.audit.forms import Form, Gold, forms_of, gold_column, gold_of, own_form
from steelyard.audit.observed import PartFacts
from steelyard.audit.specimens import Row, rows_of
from steelyard.outcome import How, Part, Takes
from steelyard.rewards import FunctionReward, Recipe
from steelyard.rollout import Group

AWAITED_GROUPS: Final = 4
"""Groups of a recipe that awaits calls: they may cost money."""


class Plan(NamedTuple):
    """What will be asked.

    Parameters
    ----------
    groups
        The file's groups.
    rows
        What specimens are made from.
    parts
        The parts, as the findings need them.
    forms
        In which a gold may stand, in their order of preference, by name; none without a gold.
    writes
        The forms that the parts name as their own.
    grouped
        Whether a specimen is judged among the others of its group.
    not_run
        What cannot be asked, and why.
    """

    groups: Sequence[Group]
    rows: Sequence[Row]
    parts: Sequence[PartFacts]
    forms: Mapping[str, Form]
    writes: Sequence[Form]
    grouped: bool
    not_run: list[tuple[str, str]]


def plan_of(recipe: Recipe, groups: Sequence[Group]) -> Plan:
    """Decide what to ask of a recipe on the groups of a sample."""
    parts, not_run = recipe.parts, []
    if any(part.reward.how is How.ASYNC for part in parts) and len(groups) > AWAITED_GROUPS:
        why = f"the recipe awaits calls, which may cost: {AWAITED_GROUPS} of {len(groups)} were asked about"
        not_run.append(("most groups", why))
        groups = groups[:AWAITED_GROUPS]
    column, readers = gold_column(parts, {name for group in groups for name in group.rollouts[0].columns})
    plain = [group for group in groups if not _confirmed(group)]
    golds: dict[int, Gold] = {}
    if not plain:
        why = "the rows carry files or a state, for which no text of a completion can stand"
        not_run.append(("specimens", why))
    elif column is None:
        why = "no part reads a column of golds (answer, solution, ground_truth, ...)"
        not_run.append(("gold, wrong answers, several answers", why))
    else:
        found = ((place, gold_of(group.rollouts[0].columns, column)) for place, group in enumerate(plain))
        golds = {place: gold for place, gold in found if gold is not None}
    if any(part.reward.takes is Takes.GROUP for part in parts):
        not_run.append(
            ("neighbours", "a part judges whole groups: it may depend on them, not on their order")
        )
    return Plan(
        groups,
        rows_of(plain, golds),
        [_facts(part, column, readers) for part in parts],
        {form.name: form for form in forms_of(parts, readers)} if golds else {},
        [form for part in parts if (form := own_form(part)) is not None],
        any(part.reward.takes is Takes.GROUP for part in parts),
        not_run,
    )


def _facts(part: Part, column: str | None, readers: Mapping[str, bool]) -> PartFacts:
    reward = part.reward
    more, named = False, True
    if isinstance(reward, FunctionReward):
        names = {parameter.name for parameter in reward.arguments.given}
        named = column in names
        more = reward.arguments.more or not names.isdisjoint({"rollout", "rollouts", "files", "state"})
    return PartFacts(
        reward.name,
        part.weight,
        reward.floor,
        ours=not isinstance(reward, FunctionReward),
        reads_gold=reward.name in readers,
        perhaps=not readers.get(reward.name, True),
        named=named,
        reads_columns=bool(reward.columns) or reward.name in readers or more,
        gate=part.only_if is not None,
        by_chance=reward.depends_on in {"randomness", "time"},
        grouped=reward.depends_on == "group",
        batched=reward.takes is Takes.BATCH,
    )


def _confirmed(group: Group) -> bool:
    """Whether an environment confirmed something of its rollouts."""
    return any(rollout.files is not None or rollout.state is not None for rollout in group.rollouts)
