"""Where `steelyard fit` finds a model's config.json: a path, the catalogue, the local Hugging Face cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import RefusedError

if TYPE_CHECKING:
    from steelyard.memory.shapes import ModelShape


def found_model(name: str) -> ModelShape:
    """The shape of a model that somebody named.

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
    from steelyard.memory.catalogue import shape_of

    path = Path(name).expanduser()
    if path.is_dir() or path.is_file():
        return _read(path / "config.json" if path.is_dir() else path, name)
    try:
        return shape_of(name)
    except RefusedError:
        if (cached := _cached(name)) is not None:
            return _read(cached, name)
        raise


def _read(path: Path, name: str) -> ModelShape:
    from steelyard.memory.families import read_config

    return read_config(_document(path), name=_title(path, name))


def _title(path: Path, name: str) -> str:
    """What to call it: the folder's name, where a file or folder was named."""
    if not Path(name).expanduser().exists():
        return name
    return path.resolve().parent.name if path.name == "config.json" else path.stem


def _document(path: Path) -> dict[str, Any]:
    import orjson

    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RefusedError(
            f"it cannot be read ({error.strerror})",
            where=f"--model {path}",
            remedy="name a config.json, or a folder that holds one",
        ) from error
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
    main = folder / "refs" / "main"
    snapshots = [folder / "snapshots" / main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    snapshots += sorted((folder / "snapshots").glob("*"), key=lambda one: -one.stat().st_mtime)
    return next((path for one in snapshots if (path := one / "config.json").is_file()), None)


def _cache() -> Path:
    """Where models lie, as huggingface_hub has it (`constants.py`)."""
    if told := os.environ.get("HF_HUB_CACHE"):
        return Path(told).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"
