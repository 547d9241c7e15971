"""A recipe as one word of a command: `recipe.toml`, or rewards by name, `gsm8k,format`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.outcome import Part
from steelyard.rewards.recipe import Recipe
from steelyard.rewards.recipe_file import load_recipe
from steelyard.rewards.registry import find, runs_code


def recipe_of(text: str, *, places: Mapping[str, Any] | None = None) -> Recipe:
    """Find what was asked for.

    Parameters
    ----------
    text
        The path of a `.toml` file, or names as for `find`, comma-separated.
    places
        Settings of rewards that run code, where nothing else says them: `boundary`, `cpu_s`, `wall_s`.

    Raises
    ------
    RefusedError
        If there is no such recipe or reward.

    Examples
    --------
    >>> recipe_of("gsm8k, format").names
    ('gsm8k', 'format')
    """
    file = recipe_file_of(text)
    if file is not None:
        return load_recipe(file, places=places)
    names = [name.strip() for name in text.split(",") if name.strip()]
    return Recipe(tuple(Part(find(name, **((places or {}) if runs_code(name) else {}))) for name in names))


def recipe_file_of(text: str) -> Path | None:
    """Return the file of the recipe, if it has one of its own."""
    return Path(text) if text.endswith(".toml") else None
