"""Public models by name, and what a size class stands for.

`catalogue.json` holds of each model's `config.json` what memory needs, under the names that the file uses;
`like` takes another model's and changes some. Instruct, chat and base variants share a shape, so a name may
leave them out, and the organisation, and its capitals. A name that is not there is refused: a shape that
nearly fits is what this planner exists to prevent.

A size class (`8B`) is the shape of a public dense model of that size, which the shape's name says.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.memory.families import read_config
from steelyard.memory.shapes import ModelShape

_TRAINED_ON: Final = frozenset({"base", "chat", "hf", "instruct", "it", "pt", "meta", "thinking", "2507"})
"""Words of a model's name that say how it was trained on or packed, and nothing of its shape."""

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?b", re.ASCII | re.IGNORECASE)


def names() -> tuple[str, ...]:
    """Every public model here, as ORGANISATION/NAME, in the catalogue's order.

    Examples
    --------
    >>> "Qwen/Qwen3-4B" in names()
    True
    """
    return tuple(_catalogue()["models"])


def size_classes() -> tuple[str, ...]:
    """Every size class, from the smallest.

    Examples
    --------
    >>> size_classes()[:3]
    ('0.5B', '0.6B', '1B')
    """
    return tuple(_catalogue()["classes"])


def config_of(name: str) -> dict[str, object]:
    """What the catalogue holds of a model's `config.json`; `name` is one of `names`.

    Raises
    ------
    KeyError
        It is none of them.
    """
    entry: Mapping[str, object] = _catalogue()["models"][name]
    if "like" not in entry:
        return dict(entry)
    changed = {key: value for key, value in entry.items() if key != "like"}
    return config_of(str(entry["like"])) | changed


def shape_of(name: str) -> ModelShape:
    """Shape of a public model, or of a size class.

    Parameters
    ----------
    name
        `Qwen/Qwen3-4B`, `qwen3-4b`, `Llama-3.2-1B-Instruct`, `8B`.

    Raises
    ------
    RefusedError
        It is not here; the message has the names that come near.

    Examples
    --------
    >>> shape_of("llama-3.2-1b-instruct").parameters
    1235814400
    >>> shape_of("8B").name
    '8B class (Qwen3-8B)'
    """
    asked = name.strip()
    if size := _SIZE.fullmatch(asked):
        return _class(f"{float(size[1]):g}B", asked)
    by_name = _by_name()
    found = by_name.get(_short(asked)) or by_name.get(_plain(asked))
    if found is None:
        raise _unknown(asked, [_last(known) for known in names()], what="model")
    return read_config(config_of(found), name=_last(found))


def _class(size: str, asked: str) -> ModelShape:
    model = _catalogue()["classes"].get(size)
    if model is None:
        near = sorted(size_classes(), key=lambda known: abs(float(known[:-1]) - float(size[:-1])))[:3]
        raise _unknown(asked, near, what="size class")
    return replace(shape_of(model), name=f"{size} class ({_last(model)})")


def _unknown(asked: str, known: list[str], *, what: str) -> RefusedError:
    """Names that come near, compared without what a name may leave out."""
    near = known
    if what == "model":
        plain = {_plain(name): name for name in reversed(known)}
        near = [plain[match] for match in difflib.get_close_matches(_plain(asked), plain, n=3, cutoff=0.5)]
    hint = f"; near are {', '.join(near)}" if near else ""
    return RefusedError(
        f"{what} {asked!r} is not in the catalogue{hint}",
        where="model",
        remedy="give one of those, a size class "
        f"({', '.join(size_classes())}), or the path of its config.json (`hf download ORG/NAME config.json`)",
    )


@cache
def _catalogue() -> Any:  # noqa: ANN401 - JSON, whose form a test holds
    return json.loads(files("steelyard.memory").joinpath("catalogue.json").read_text("utf-8"))


@cache
def _by_name() -> Mapping[str, str]:
    """Names as they may be asked for; where two models share one, the first that is not `like` another."""
    models = _catalogue()["models"]
    own = sorted(models, key=lambda name: "like" in models[name])
    plain = {_plain(name): name for name in reversed(own)}
    return plain | {_short(name): name for name in reversed(own)}


def _last(name: str) -> str:
    """Without the organisation."""
    return name.rsplit("/", 1)[-1]


def _short(name: str) -> str:
    return _last(name).casefold().replace("_", "-")


def _plain(name: str) -> str:
    return "-".join(word for word in _short(name).split("-") if word not in _TRAINED_ON)
