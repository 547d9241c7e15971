"""What TRL hands a reward function, as rollouts in groups; and what it takes back.

TRL calls a reward function once per generation batch and process, with lists: a prompt, a completion and one
value of each column of the dataset for every completion. Which rows are a group it does not say: the
completions of a prompt follow each other, so a run of equal prompts is one, if the columns that rewards read
by name are equal, too. Where `group_size` is told, as many rows of a prompt are one, whatever their columns.

Only the columns that the recipe reads are taken along, unless a function of it takes whatever there is
(`**kwargs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.rewards import FunctionReward, Recipe
from steelyard.rollout import OF_THE_COMPLETION, Group, Rollout, Text, canonical_json, parse_json

IDS: Final = "completion_ids"
FROM_TRL: Final = frozenset({"trainer_state", "log_extra", "log_metric", "environments"})
"""Keywords that are no columns."""


class Rows:
    """Numbers rollouts and groups on through a run.

    Parameters
    ----------
    recipe
        What will be asked: it says which columns are read.
    rank
        Of this process, for messages.
    recorded
        Whether the rollouts are written down, so that their columns must be JSON.
    """

    def __init__(self, recipe: Recipe, *, rank: int, recorded: bool) -> None:
        self._recipe = recipe
        self._rank = rank
        self._recorded = recorded
        self._groups = 0
        self._rollouts = 0
        more = any(
            isinstance(part.reward, FunctionReward) and part.reward.arguments.more for part in recipe.parts
        )
        asked = {*recipe.read, *recipe.needed, *OF_THE_COMPLETION}
        self._reads = None if more else asked
        self._shared = asked - OF_THE_COMPLETION
        self._ids = more or recipe.counts or IDS in asked & {*_also(recipe)}
        self._looked = False

    def groups(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Sequence[Any]],
        *,
        step: int | str | None,
        group_size: int | None,
    ) -> list[Group]:
        """Make groups of what TRL hands over, in its order.

        Parameters
        ----------
        prompts, completions
            Texts or lists of messages, shape `(B,)`.
        ids
            The tokens of each completion.
        columns
            The dataset's, one value for each completion.
        step
            The training step, for messages.
        group_size
            Completions of a prompt, where blocks shall be divided by it.

        Raises
        ------
        RefusedError
            If lists differ in length, a column that the recipe needs is absent, or one cannot be written
            down.
        """
        read = self._read(prompts, completions, ids, columns)
        where = f"step {step}" if isinstance(step, int) else step or "batch"
        if self._rank:
            where = f"rank {self._rank}, {where}"
        shared = [values for name, values in read.items() if name in self._shared]
        per_row = not OF_THE_COMPLETION.isdisjoint(read)
        groups: list[Group] = []
        for first, last in _blocks(prompts, shared, group_size):
            group, start = self._groups, self._rollouts - first
            of_all = {name: values[first] for name, values in read.items()}
            apart = per_row or not all(_alike(values, first, last) for values in shared)
            rollouts = [
                Rollout(
                    start + row,
                    prompts[row],
                    completions[row],
                    {name: values[row] for name, values in read.items()} if apart else of_all,
                    (group, row - first),
                    start + row,
                    f"{where}, row {row}",
                )
                for row in range(first, last)
            ]
            groups.append(Group(group, group, rollouts))
            self._groups += 1
            self._rollouts += last - first
        return groups

    def _read(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Sequence[Any]],
    ) -> dict[str, Sequence[Any]]:
        """The columns that are taken along."""
        reads = self._reads
        read = {name: _plain(values) for name, values in columns.items() if reads is None or name in reads}
        if ids is not None and self._ids:
            read[IDS] = ids
        for name, values in {"completions": completions, **read}.items():
            if len(values) != len(prompts):
                raise RefusedError(
                    f"{len(values)} values for {len(prompts)} prompts",
                    where=f"TRL's {name}",
                    remedy="hand over one for each completion",
                )
        if not self._looked:
            self._look(read, columns)
        return read

    def _look(self, read: Mapping[str, Sequence[Any]], columns: Iterable[str]) -> None:
        """Refuse, at the first batch, what can never be judged or written down."""
        absent = [name for name in self._recipe.needed if name not in read]
        if absent:
            raise RefusedError(
                f"the dataset has no column {absent[0]!r}, which the reward needs; it has "
                f"{', '.join(sorted(columns)) or 'no columns but the prompt'}",
                where="train_dataset",
                remedy=f"rename a column (dataset.rename_column(..., {absent[0]!r})), and keep it: "
                "GRPOConfig(remove_unused_columns=False)",
            )
        for name, values in read.items() if self._recorded else ():
            try:
                parse_json(canonical_json(list(values)))
            except (TypeError, ValueError) as error:
                raise RefusedError(
                    f"{name!r} holds what no ledger can keep ({error}), as {values[0]!r:.80}",
                    where="train_dataset",
                    remedy="drop the column or store it as text, name what the function reads instead of "
                    "**kwargs, or score without a ledger",
                ) from None
        self._looked = True


def _also(recipe: Recipe) -> Iterator[str]:
    for part in recipe.parts:
        yield from part.reward.columns
        yield from getattr(part.reward, "also", ())


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    """Python's own numbers and lists of what a data set keeps as arrays."""
    if not any(hasattr(value, "tolist") for value in values[:1]):
        return values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def _blocks(
    prompts: Sequence[Text], others: Sequence[Sequence[Any]], size: int | None
) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of each group: of `size` rows with one prompt, or of each run of equal rows."""
    rows = len(prompts)
    if size and rows % size == 0:
        starts = range(0, rows, size)
        if all(_alike(prompts, start, start + size) for start in starts):
            yield from ((start, start + size) for start in starts)
            return
    first = 0
    for row, same in enumerate(zip(*map(_as_before, (prompts, *others)), strict=True), 1):
        if not all(same):
            yield first, row
            first = row
    if rows:
        yield first, rows


def _as_before(values: Sequence[Any]) -> list[bool]:
    """Of each value but the first, whether it is the one before; nan is itself."""
    return [
        one is other or one == other or (one != one and other != other)  # noqa: PLR0124
        for one, other in pairwise(values)
    ]


def _alike(values: Sequence[Any], first: int, last: int) -> bool:
    """Whether a group has one value."""
    one = values[first]
    return all(other is one or other == one for other in values[first:last])
