"""Where `steelyard fit` finds a model's config.json: a path, the catalogue, the local Hugging Face cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from steelyard.cli.fit_files import MOST_JSON, kind_of, read_up_to
from steelyard.errors import RefusedError
from steelyard.report.words import one_line

if TYPE_CHECKING:
    from steelyard.memory.shapes import ModelShape


class Model(NamedTuple):
    """A model that was found: its shape, and the config.json that it was read from."""

    shape: ModelShape
    config: dict[str, Any] | None


def found_model(name: str) -> Model:
    """A model that somebody named.

    Parameters
    ----------
    name
        A config.json, or a folder that holds one; else a name or size class of the catalogue; else one of the
        local Hugging Face cache, which is not asked of a network.

    Raises
    ------
    RefusedError
        There is no such model, its file cannot be read, or it is of a family that nobody described.
    """
    path = _expanded(name)
    kind = kind_of(path) if name.strip() else "nothing"
    if kind == "other":
        raise RefusedError(
            "it is neither a file nor a folder",
            where=f"--model {name}",
            remedy="name a config.json, or a folder that holds one",
        )
    if kind != "nothing":
        return _read(path / "config.json" if kind == "folder" else path, name)
    try:
        return _catalogued(name)
    except RefusedError:
        if (cached := _cached(name)) is not None:
            return _read(cached, name)
        raise


def _catalogued(name: str) -> Model:
    """One of the catalogue, or the one that a size class stands for: its shape's name has it in brackets."""
    from steelyard.memory.catalogue import config_of, names, shape_of

    shape = shape_of(name)
    own = {known.rsplit("/", 1)[-1]: known for known in reversed(names())}
    known = next(
        (full for last, full in own.items() if shape.name == last or shape.name.endswith(f" class ({last})")),
        None,
    )
    return Model(shape, None if known is None else config_of(known))


def _read(path: Path, name: str) -> Model:
    from steelyard.memory.families import read_config

    config = _document(path)
    return Model(read_config(config, name=_title(path, name)), config)


def _title(path: Path, name: str) -> str:
    """What to call it: the folder's name, where a file or folder was named."""
    if kind_of(_expanded(name)) == "nothing":
        return name
    return one_line(path.resolve().parent.name if path.name == "config.json" else path.stem, 80)


def _document(path: Path) -> dict[str, Any]:
    import orjson

    raw = read_up_to(
        path,
        MOST_JSON,
        where=f"--model {path}",
        remedy="name a config.json, or a folder that holds one",
    )
    try:
        found = orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise RefusedError(
            f"it is no JSON ({error})", where=f"--model {path}", remedy="name a model's config.json"
        ) from error
    if not isinstance(found, dict):
        raise RefusedError(
            f"it holds a {type(found).__name__}, no object",
            where=f"--model {path}",
            remedy="name a model's config.json",
        )
    return found


def _cached(name: str) -> Path | None:
    """The config.json of a model in the local cache.

    The layout: https://huggingface.co/docs/huggingface_hub/guides/manage-cache; `refs/main` names the
    snapshot that `from_pretrained` takes.
    """
    folder = _cache() / f"models--{name.replace('/', '--')}"
    if kind_of(folder) != "folder":
        return None
    main = folder / "refs" / "main"
    named = main.read_text(encoding="utf-8", errors="replace").strip() if main.is_file() else ""
    snapshots = [folder / "snapshots" / named] if named.isalnum() else []
    snapshots += sorted((folder / "snapshots").glob("*"), key=lambda one: -one.stat().st_mtime)
    return next((path for one in snapshots if (path := one / "config.json").is_file()), None)


def _cache() -> Path:
    """Where models lie, as huggingface_hub has it (`constants.py`)."""
    if told := os.environ.get("HF_HUB_CACHE"):
        return _expanded(told)
    home = os.environ.get("HF_HOME")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return _expanded(home) / "hub"


def _expanded(name: str) -> Path:
    """With `~` for a home, where there is such a user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)
