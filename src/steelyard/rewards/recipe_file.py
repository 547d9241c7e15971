"""A recipe written down: TOML to `Recipe`.

```toml
[[part]]
reward = "math"                 # one of ours, package.module:function, or path/to/file.py:function
weight = 1.0                    # default

[[part]]
reward = "format"
settings = { tags = ["think", "answer"] }
weight = 0.1
only_if = "math >= 1"           # asked only where an earlier part said enough

[[shape]]                       # bends the sum; several one after the other
kind = "length_penalty"
settings = { unit = "words", target = 300, limit = 600 }
```

`name` renames a part, `optional = true` lets rows lack its columns, `floor` is the lowest value of a
function of yours. Paths of functions, and settings that begin with `./` or `../`, start at the recipe's
folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.outcome import Part, Reward
from steelyard.rewards.gates import gate
from steelyard.rewards.own import FunctionReward
from steelyard.rewards.own import reward as of_function
from steelyard.rewards.recipe import Recipe
from steelyard.rewards.registry import find, is_ours, made, runs_code
from steelyard.rewards.shaping import Shape, cosine, length_penalty

SHAPES: Final[Mapping[str, Callable[..., Shape]]] = {"length_penalty": length_penalty, "cosine": cosine}
"""What a `[[shape]]` may be, by its kind."""

_PART: Final[Mapping[str, type | tuple[type, ...]]] = {
    "reward": str,
    "name": str,
    "weight": (int, float),
    "optional": bool,
    "only_if": str,
    "floor": (int, float),
    "settings": dict,
}
_SHAPE: Final[Mapping[str, type | tuple[type, ...]]] = {"kind": str, "settings": dict}
_NAME = re.compile(r"[^\s<>=!]+")
_KINDS = {str: "text", bool: "true or false", dict: "a table", (int, float): "a number"}


def load_recipe(path: str | Path, *, places: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe from a TOML file.

    Parameters
    ----------
    path
        The file.
    places
        Settings of rewards that run code, where the file does not say them: `boundary`, `cpu_s`, `wall_s`.

    Raises
    ------
    RefusedError
        If the file is absent or no recipe; the message names the entry.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RefusedError(
            "there is no such file", where=f"--recipe {path}", remedy="check the path"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"it cannot be read ({error})", where=f"--recipe {path}", remedy="name a TOML file in UTF-8"
        ) from error
    return read_recipe(text, name=path.name, folder=path.parent, places=places)


def read_recipe(
    text: str, *, name: str = "recipe", folder: str | Path = ".", places: Mapping[str, Any] | None = None
) -> Recipe:
    r"""Read a recipe from TOML text.

    Parameters
    ----------
    text
        The TOML.
    name
        The word for it in messages.
    folder
        Where relative paths in it start.
    places
        As for `load_recipe`.

    Raises
    ------
    RefusedError
        If it is no recipe; the message names the entry.

    Examples
    --------
    >>> read_recipe('[[part]]\nreward = "gsm8k:flexible"\n[[part]]\nreward = "format"\nweight = 0.1').weights
    {'gsm8k:flexible': 1.0, 'format': 0.1}
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RefusedError(f"not TOML ({error})", where=name, remedy="mend the line that it names") from error
    _refuse_unknown(said, {"part": list, "shape": list}, name)
    parts, shapes = (
        [
            _table(entry, f"{name}: {word} {number}")
            for number, entry in enumerate(said.get(word, []), start=1)
        ]
        for word in ("part", "shape")
    )
    if not parts:
        raise RefusedError("it has no part", where=name, remedy='write [[part]] and reward = "..." below it')
    place, provided = Path(folder), places or {}
    made_of = [
        _part(entry, f"{name}: part {number}", place, provided) for number, entry in enumerate(parts, start=1)
    ]
    by_name = {part.reward.name: part for part in made_of}
    bent_by = [
        _shape(entry, f"{name}: shape {number}", place, by_name)
        for number, entry in enumerate(shapes, start=1)
    ]
    return Recipe(tuple(made_of), shapes=tuple(bent_by))


def _table(entry: object, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise RefusedError(f"it is {entry!r}, no table", where=where, remedy="write [[part]] or [[shape]]")
    return entry


def _refuse_unknown(
    entry: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]], where: str
) -> None:
    for word, value in entry.items():
        if word not in known:
            near = get_close_matches(word, known, n=1)
            raise RefusedError(
                f"{word!r} means nothing here" + (f"; did you mean {near[0]!r}?" if near else ""),
                where=where,
                remedy=f"one of {', '.join(known)}",
            )
        kind = known[word]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = _KINDS.get(kind, "a list of tables: [[part]], [[shape]]")
            raise RefusedError(f"{word} = {value!r} is not {wanted}", where=where, remedy=f"write {wanted}")


def _part(entry: Mapping[str, Any], where: str, folder: Path, places: Mapping[str, Any]) -> Part:
    _refuse_unknown(entry, _PART, where)
    if "reward" not in entry:
        raise RefusedError("it names no reward", where=where, remedy='add reward = "..."')
    try:
        reward = _reward(entry, folder, places)
        only_if = gate(entry["only_if"]) if "only_if" in entry else None
    except RefusedError as error:
        raise RefusedError(error.reason, where=f"{where}: {error.where}", remedy=error.remedy) from error
    return Part(reward, float(entry.get("weight", 1.0)), entry.get("optional", False), only_if)


def _reward(entry: Mapping[str, Any], folder: Path, places: Mapping[str, Any]) -> Reward:
    name = entry["reward"]
    target, settings = _placed(name, folder), _rooted(entry.get("settings", {}), folder)
    if runs_code(name):
        settings = {**places, **settings}
    reward = find(target, **settings)
    if "floor" in entry:
        if not isinstance(reward, FunctionReward):
            raise RefusedError(
                "the floor of a reward of ours is its own", where=f"reward {name}", remedy="drop floor"
            )
        function = of_function(
            name=reward.name,
            floor=entry["floor"],
            fault=reward.fault,
            takes=None if reward.takes.value == "rollout" else reward.takes.value,  # type: ignore[arg-type]
        )(reward.function)
        reward = replace(function, target=reward.target, carried=reward.carried)
    if "name" in entry:
        if not _NAME.fullmatch(entry["name"]):
            raise RefusedError(
                f"{entry['name']!r} is no name that a gate could read",
                where=f"reward {name}",
                remedy="write a word without spaces and without < > = !",
            )
        renamed: Any = reward  # every reward that a name finds is a dataclass
        reward = replace(renamed, name=entry["name"])
    return reward


def _placed(name: str, folder: Path) -> str:
    """The name of a function in a file, its path from the recipe's folder."""
    file, colon, function = name.rpartition(":")
    if is_ours(name) or not file.endswith(".py"):
        return name
    return f"{folder / file}{colon}{function}"


def _rooted(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        name: str(folder / value) if isinstance(value, str) and value.startswith(("./", "../")) else value
        for name, value in settings.items()
    }


def _shape(entry: Mapping[str, Any], where: str, folder: Path, parts: Mapping[str, Part]) -> Shape:
    _refuse_unknown(entry, _SHAPE, where)
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in SHAPES:
        raise RefusedError(
            "it names no kind" if kind is None else f"there is no shape {kind!r}",
            where=where,
            remedy=f'kind = "..." is one of {", ".join(SHAPES)}',
        )
    settings = _rooted(entry.get("settings", {}), folder)
    if "part" in settings:  # a shape that reads one part is given it by its name
        if not isinstance(settings["part"], str) or settings["part"] not in parts:
            raise RefusedError(
                f"there is no part {settings['part']!r}", where=where, remedy=f"one of {', '.join(parts)}"
            )
        settings["part"] = parts[settings["part"]]
    shape: Shape = made(SHAPES[kind], settings, where=f"{where}: {kind}")
    return shape
