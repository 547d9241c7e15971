"""The settings file of a run: TRL's or verl's, YAML or JSON, told apart by what stands in it.

Files that it names (`deepspeed`, `fsdp_config`, `accelerate_config`) are read, too, for the readers below
(`steelyard.memory.trl_settings`, `verl_settings`) open none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steelyard.errors import RefusedError

if TYPE_CHECKING:
    from steelyard.cli.fit_model import Model
    from steelyard.cli.fit_options import FitOptions
    from steelyard.memory.settings import Read
    from steelyard.memory.shapes import ModelShape

_NAMED: Final = ("deepspeed", "fsdp_config", "accelerate_config")
_VERL: Final = "actor_rollout_ref"
"""The part of a verl configuration that no other trainer has."""


def read_settings(given: FitOptions) -> tuple[Read, Model]:
    """Read a plan from a settings file, or from verl's settings alone, as its command line has them.

    Parameters
    ----------
    given
        The options: `--from` names the file, `--set` changes settings, `--model` goes before what they name.

    Raises
    ------
    RefusedError
        The file cannot be read, a setting cannot be understood, or no model is named.
    """
    from steelyard.cli.fit_model import found_model

    changes = given.changes or []
    found = {} if given.file is None else _document(given.file)
    verl = _VERL in found or any(change.lstrip("+").startswith(f"{_VERL}.") for change in changes)
    if given.file is None and not verl:
        raise RefusedError(
            "it changes a setting of a file, and none is named", where="--set", remedy="name it with --from"
        )
    name = given.model or _model(found, changes, verl=verl)
    if name is None:
        where = "--set" if given.file is None else f"--from {given.file}"
        raise RefusedError("no model is named", where=where, remedy="say --model, too: a path or a name")
    model = found_model(name)
    read = _read_verl if verl else _read_trl
    return read(found, changes, model.shape, given), model


def _read_verl(found: dict[str, Any], changes: list[str], model: ModelShape, given: FitOptions) -> Read:
    from steelyard.memory import verl_settings

    try:
        said = verl_settings.overrides(changes)
    except RefusedError as error:
        raise RefusedError(error.reason, where="--set", remedy=error.remedy) from None
    return verl_settings.read(found | said, model, gpus=given.gpus)


def _read_trl(found: dict[str, Any], changes: list[str], model: ModelShape, given: FitOptions) -> Read:
    from steelyard.memory import trl_settings

    for change in changes:
        _change(found, change)
    for key in _NAMED:
        value = found.get(key)
        if given.file is not None and isinstance(value, str):
            named = _beside(given.file, value)
            found[key] = value if named is None else _document(named)
    return trl_settings.read(found, model, gpus=given.gpus, prompt=given.prompt)


def _model(found: dict[str, Any], changes: Sequence[str], *, verl: bool) -> str | None:
    """The model that the settings name."""
    keys = (_VERL, "model", "path") if verl else ("model_name_or_path",)
    value: Any = found
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    for change in changes:
        name, _, said = change.lstrip("+").partition("=")
        value = said if name == ".".join(keys) else value
    return value if isinstance(value, str) else None


def _change(found: dict[str, Any], change: str) -> None:
    """Let `a.b=c` hold, with `c` as YAML has it."""
    import yaml

    name, equals, said = change.partition("=")
    keys = name.split(".")
    if not equals or not all(keys):
        raise RefusedError(
            f"{change!r} is not A.B=C",
            where="--set",
            remedy="as in --set per_device_train_batch_size=4",
        )
    into = found
    for key in keys[:-1]:
        into = into.setdefault(key, {})
        if not isinstance(into, dict):
            raise RefusedError(
                f"{key} is no table, so that nothing is below it",
                where=f"--set {change}",
                remedy="name a setting of the file",
            )
    try:
        into[keys[-1]] = yaml.safe_load(said)
    except yaml.YAMLError as error:
        raise RefusedError(
            f"{said!r} is no YAML", where=f"--set {change}", remedy="put it into quotes"
        ) from error


def _beside(path: Path, named: str) -> Path | None:
    """A file that a settings file names: from where the command runs, or from beside it."""
    return next((one for one in (Path(named), path.parent / named) if one.is_file()), None)


def _document(path: Path) -> dict[str, Any]:
    """A file of YAML, which JSON is, too."""
    import yaml

    where = f"--from {path}"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RefusedError(
            f"it cannot be read ({error.strerror})", where=where, remedy="name a YAML or JSON file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())
        raise RefusedError(f"it is no YAML ({told})", where=where, remedy="mend it there") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise RefusedError(
            f"it holds a {type(found).__name__}, no settings by name",
            where=where,
            remedy="name a TRL GRPOConfig, or a verl configuration",
        )
    return found
