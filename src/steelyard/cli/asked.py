"""What a command asks of the rollouts: `--reward` and its few settings, or `--recipe`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.errors import RefusedError
from steelyard.outcome import Part, Reward
from steelyard.rewards import Recipe, find, load_recipe
from steelyard.rewards.registry import runs_code
from steelyard.sandbox import Boundary


def asked(
    names: list[str],
    file: Path | None,
    *,
    schema_draft: str | None,
    formats: bool,
    places: Mapping[str, Any],
) -> Recipe:
    """Make a recipe of what was said on the command line.

    Parameters
    ----------
    names, file
        Rewards by name, or a recipe's file.
    schema_draft, formats
        Settings of the reward `schema`.
    places
        Settings of rewards that run code, where they do not say it themselves: `boundary`, `cpu_s`, `wall_s`.

    Raises
    ------
    RefusedError
        If neither or both were said, or a setting of a reward that nobody asked.
    """
    if bool(names) is (file is not None):
        raise RefusedError(
            "both --reward and --recipe were given" if names else "no reward was named",
            where="--reward",
            remedy="--reward NAME (steelyard rewards lists ours), or --recipe FILE.toml",
        )
    settings: dict[str, Any] = {"formats": True} if formats else {}
    if schema_draft is not None:
        settings["draft"] = schema_draft
    schemas = [name for name in names if name.partition(":")[0] == "schema"]
    if settings and not schemas:
        raise RefusedError(
            "they are for --reward schema" if file is None else "a recipe says it itself",
            where="--schema-draft, --formats",
            remedy='settings = { draft = "...", formats = true } in the recipe\'s part'
            if file is not None
            else "ask for that reward, or drop them",
        )
    if file is not None:
        return load_recipe(file, places=places)
    return Recipe(tuple(Part(_found(name, settings if name in schemas else {}, places)) for name in names))


def overridden(recipe: Recipe, said: str, boundary: Boundary | str) -> str | None:
    """Say that a recipe names another boundary than the command line, and so runs there."""
    name, _, argument = said.partition(":")
    for part in recipe.parts:
        own = getattr(part.reward, "boundary", None)
        if own is None or own is boundary or (own.name == name and argument in own.identity):
            continue
        return (
            f"reward {part.reward.name} runs in {own.name}, which the recipe names itself; "
            f"--boundary {said} is for parts that name none"
        )
    return None


def _found(name: str, settings: Mapping[str, Any], places: Mapping[str, Any]) -> Reward:
    return find(name, **settings, **(places if runs_code(name) else {}))
