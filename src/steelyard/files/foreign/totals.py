"""The total reward of TRL's completions: in no column, but advantages follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from steelyard.errors import RefusedError
from steelyard.files.foreign.batches import Batch
from steelyard.files.foreign.read import OPTION, Options
from steelyard.pricing.observed import Floats, blank

_EPSILON: Final = 1e-4  # what TRL adds to the standard deviation


class Named(NamedTuple):
    """The reward functions, and the total of each row of each batch; `nan` throughout where not `known`."""

    names: Sequence[str]
    totals: Sequence[Floats]
    known: bool = True


def total(found: Sequence[Batch], size: int, options: Options, says: list[str], lacks: list[str]) -> Named:
    """Find the reward functions and what they add up to.

    Parameters
    ----------
    found
        The batches, of whole groups.
    size
        Of a group.
    options
        What the user said of `rewards` and `weights`.
    says, lacks
        Are told what was found.

    Raises
    ------
    RefusedError
        If a named column is absent, or there are not as many weights as reward functions.
    """
    names = _named(found, options)
    if options.weights:
        names = names if options.rewards else names[: len(options.weights)]
        if len(names) != len(options.weights):
            raise RefusedError(
                f"{len(options.weights)} weights for {len(names)} reward functions ({', '.join(names)})",
                where=OPTION["weights"],
                remedy="give one --weight for each, in the order of the columns",
            )
        says.append(f"The total is {_formula(names, options.weights)}, as told.")
        return Named(names, [_sum(batch, names, options.weights) for batch in found])
    if len(names) == 1:
        says.append(f"There is one reward function, {names[0]!r}: it is the total.")
        return Named(names, [batch.real(names[0]) for batch in found])
    tried = [names] if options.rewards else [names[: at + 1] for at in range(len(names))]
    agree = [one for one in tried if _explains(found, size, one)]
    if len(agree) == 1:
        ones = [1.0] * len(agree[0])
        says.append(f"The total is {_formula(agree[0], ones)}: the advantages in the file follow from it.")
        return Named(agree[0], [_sum(batch, agree[0], ones) for batch in found])
    why = (
        "the advantages fit more than one of their sums"
        if agree
        else "the advantages fit no plain sum of them"
    )
    lacks.append(
        f"The total cannot be known: the reward columns are {', '.join(names) or 'none'}, and {why}. "
        "Say which are reward functions (--function) and their `reward_weights` (--weight); until then "
        "nothing is known of corrupted groups."
    )
    return Named(names, [blank(len(batch)) for batch in found], known=False)


def _named(found: Sequence[Batch], options: Options) -> list[str]:
    for batch in found:
        for name in options.rewards:
            if name not in batch.reals:
                raise RefusedError(
                    f"no column of numbers {name!r}; there are {', '.join(batch.floats)}",
                    where=batch.where,
                    remedy="name a column of a reward function with --function",
                )
    if options.rewards or not found:
        return list(options.rewards)
    return [name for name in found[0].floats if all(name in batch.floats for batch in found)]


def _formula(names: Sequence[str], weights: Sequence[float]) -> str:
    return " + ".join(
        name if weight == 1 else f"{weight:g} {name}" for name, weight in zip(names, weights, strict=True)
    )


def _sum(batch: Batch, names: Sequence[str], weights: Sequence[float]) -> Floats:
    """As TRL sums: of what is there; nothing of nothing."""
    parts = np.column_stack([batch.real(name) for name in names])
    added: Floats = np.nansum(parts * weights, axis=1)
    return np.where(np.isnan(parts).all(axis=1), np.nan, added)


def _explains(found: Sequence[Batch], size: int, names: Sequence[str]) -> bool:
    """Whether the advantages of every batch follow from the plain sum, by one of TRL's three scalings."""
    fits = np.ones(3, bool)
    informative = False
    for batch in found:
        advantage = batch.reals["advantage"]
        value = _sum(batch, names, [1.0] * len(names))
        centred = (value.reshape(-1, size) - _mean(value.reshape(-1, size))[:, None]).ravel()
        by_group = np.repeat(_std(value.reshape(-1, size)), size)
        by_batch = np.repeat(_std(value[None, :]), len(value))
        informative |= bool((np.abs(advantage) > 1e-3).any())
        for at, scale in enumerate((by_group + _EPSILON, by_batch + _EPSILON, np.ones(len(value)))):
            follows = np.nan_to_num(centred / scale)
            fits[at] &= bool(np.isclose(advantage, follows, rtol=1e-2, atol=1e-3).all())
    return informative and bool(fits.any())


def _mean(grouped: Floats) -> Floats:
    count = np.isfinite(grouped).sum(axis=1)
    mean: Floats = np.nansum(grouped, axis=1) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan)


def _std(grouped: Floats) -> Floats:
    """By the number of values less one; `nan` of fewer than two."""
    count = np.isfinite(grouped).sum(axis=1)
    squares = np.nansum((grouped - _mean(grouped)[:, None]) ** 2, axis=1)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)
