"""What a trainer's user gives as rewards, as one recipe: names, functions as they are, a list of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from steelyard.errors import RefusedError
from steelyard.outcome import Part, Reward
from steelyard.rewards import Recipe
from steelyard.rewards import reward as as_reward
from steelyard.rewards.arguments import arguments
from steelyard.rewards.asked import recipe_of
from steelyard.rewards.carrying import name_of
from steelyard.rewards.registry import find, runs_code

Asked: TypeAlias = (
    "Recipe | str | Path | Reward | Callable[..., Any] | Sequence[Reward | Callable[..., Any] | str]"
)


def recipe_of_asked(
    asked: Asked,
    weights: Sequence[float] | None,
    floors: Sequence[float | None] | None,
    boundary: str | None,
) -> Recipe:
    """Make one recipe of what was asked; parameters and errors as in `reward`."""
    places = None if boundary is None else {"boundary": boundary}
    if not isinstance(asked, Sequence) or isinstance(asked, str):
        if weights is not None or floors is not None:
            raise RefusedError(
                "weights and floors go with a list of functions",
                where="reward",
                remedy="give them in the recipe: Part(reward, weight=...), reward(floor=...)",
            )
        if isinstance(asked, str | Path):
            return recipe_of(str(asked), places=places)
        if not isinstance(asked, Recipe):
            asked = [asked]
        elif boundary is None:
            return asked
    if boundary is not None and not any(isinstance(one, str) for one in _listed(asked)):
        raise RefusedError(
            "a boundary goes with rewards by name",
            where="boundary",
            remedy="give it to the reward: builtin('tests', boundary=...)",
        )
    listed = _listed(asked)
    for what, values in {"weights": weights, "floors": floors}.items():
        if values is not None and len(values) != len(listed):
            raise RefusedError(
                f"{len(values)} {what} for {len(listed)} functions", where=what, remedy="give one for each"
            )
    if not listed:
        raise RefusedError("the list is empty", where="reward", remedy="give at least one function or name")
    lowest = floors or [None] * len(listed)
    made = [
        _as_reward(one, floor, before, places)
        for (one, before), floor in zip(_counted(listed), lowest, strict=True)
    ]
    return Recipe(tuple(map(Part, made, weights or [1.0] * len(made))))


def _listed(asked: Any) -> Sequence[Any]:  # noqa: ANN401 - a recipe has no place in a list
    return asked if isinstance(asked, Sequence) else []


def _counted(asked: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Each, and how many of its name came before: one function with other settings is another reward."""
    seen: Counter[str] = Counter()
    for one in asked:
        name = one if isinstance(one, str) else name_of(one)
        yield one, seen[name]
        seen[name] += 1


def _as_reward(one: Any, floor: float | None, before: int, places: Mapping[str, Any] | None) -> Reward:  # noqa: ANN401
    """Make a reward of what stands in a list."""
    if isinstance(one, str) and runs_code(one) and places is None:
        raise RefusedError(
            f"{one!r} runs code that a model wrote, and no boundary to run it in was given",
            where="reward",
            remedy="reward(..., boundary='bubblewrap')",
        )
    named = find(one, **((places or {}) if runs_code(one) else {})) if isinstance(one, str) else one
    if all(hasattr(named, word) for word in ("identity", "how", "takes", "floor")):
        if floor is not None and floor != named.floor:
            raise RefusedError(
                f"{named.name!r} is a reward already, whose floor is {named.floor:g} and not {floor:g}",
                where="floors",
                remedy="say None there, or make it with reward(floor=...)",
            )
        return cast("Reward", named)
    if hasattr(one, "forward"):
        raise RefusedError(
            f"{type(one).__name__} is a model, which no worker process should hold",
            where="reward",
            remedy="score with it in a function of your own (async def f(prompts, completions, **columns))",
        )
    if not callable(one):
        raise RefusedError(
            f"{one!r} is no reward function", where="reward", remedy="give a function, or a reward's name"
        )
    name = f"{name_of(one)}_{before + 1}" if before else None
    # TRL, too, calls it once for a batch
    many = arguments(one, f"reward {name_of(one)!r}").many
    return as_reward(name=name, takes="batch" if many else None, floor=floor or 0.0)(one)
