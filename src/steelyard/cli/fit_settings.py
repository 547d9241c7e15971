"""The settings file of a run: TRL's or verl's, YAML or JSON, told apart by what stands in it.

Files that it names (`deepspeed`, `fsdp_config`, `accelerate_config`) are read, too, for the readers below
(`steelyard.memory.trl_settings`, `verl_settings`) open none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steelyard.errors import RefusedError
from steelyard.memory.settings import shown
from steelyard.report.words import one_line

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
    if given.file is not None:
        _refuse_another_kind(found, given.file)
    verl = any(_is_verl(name) for name in (*found, *(change.lstrip("+") for change in changes)))
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


def _is_verl(name: str) -> bool:
    return name == _VERL or name.startswith(f"{_VERL}.")


def _read_verl(found: dict[str, Any], changes: list[str], model: ModelShape, given: FitOptions) -> Read:
    from steelyard.memory import verl_settings

    return verl_settings.read(found | _overrides(changes), model, gpus=given.gpus)


def _overrides(changes: Sequence[str]) -> dict[str, object]:
    """`--set` as verl's command line has it."""
    from steelyard.memory import verl_settings

    try:
        return verl_settings.overrides(changes)
    except RefusedError as error:
        raise RefusedError(error.reason, where="--set", remedy=error.remedy) from None


def _read_trl(found: dict[str, Any], changes: list[str], model: ModelShape, given: FitOptions) -> Read:
    from steelyard.memory import trl_settings

    found = _changed(found, changes)
    for key in _NAMED:
        value = found.get(key)
        if given.file is not None and isinstance(value, str):
            found[key] = _named(given.file, key, value)
    return trl_settings.read(found, model, gpus=given.gpus, prompt=given.prompt)


def _model(found: dict[str, Any], changes: Sequence[str], *, verl: bool) -> str | None:
    """The model that the settings name."""
    if verl:
        from steelyard.memory.verl_words import flattened, resolved

        value = resolved(flattened(found | _overrides(changes))).get(f"{_VERL}.model.path")
    else:
        value = _changed(found, changes).get("model_name_or_path")
    return value if isinstance(value, str) else None


def _changed(found: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Settings with `--set` over them; the tables that aliases share are parted first."""
    found = {name: _parted(value) for name, value in found.items()}
    for change in changes:
        _change(found, change)
    return found


def _parted(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {name: _parted(one) for name, one in value.items()} if isinstance(value, dict) else value


def _change(found: dict[str, Any], change: str) -> None:
    """Let `a.b=c` hold, with `c` as YAML has it."""
    from steelyard.cli.fit_files import yaml_of

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
    into[keys[-1]] = yaml_of(said, where=f"--set {one_line(change, 80)}", remedy="put it into quotes")


def _named(path: Path, key: str, named: str) -> dict[str, Any] | str:
    """What a file holds that a settings file names: from where the command runs, or from beside it.

    TRL has profiles of accelerate's under names of its own, which are no files.
    """
    from steelyard.cli.fit_files import kind_of
    from steelyard.memory.trl_launch import SHIPPED

    places = dict.fromkeys((Path(named), path.parent / named))
    found = next((one for one in places if kind_of(one) == "file"), None)
    if found is not None:
        return _document(found)
    shipped = SHIPPED if key == "accelerate_config" else ()
    if named in shipped:
        return named
    looked = " and ".join(one_line(str(one.absolute()), 160) for one in places)
    or_one = f", or one of {', '.join(shipped)}" if shipped else ""
    raise RefusedError(
        f"{key} is {shown(named)}, and there is no such file: looked for {looked}",
        where=f"--from {path}",
        remedy=f"name one that is there, as in --set {key}=PATH{or_one}",
    )


def _refuse_another_kind(found: dict[str, Any], path: Path) -> None:
    """Refuse files that belong to a run, and are not its settings, with the place where they go."""
    for names, what, remedy in (
        (
            ("model_type", "architectures"),
            "a model's config.json",
            "give it as --model, and the run's settings as --from",
        ),
        (("zero_optimization",), "DeepSpeed's settings", "name it in the run's file, as deepspeed: PATH"),
        (
            ("distributed_type", "compute_environment"),
            "accelerate's settings",
            "name it in the run's file, as accelerate_config: PATH",
        ),
    ):
        if seen := next((name for name in names if name in found), None):
            raise RefusedError(
                f"it holds {what} (it has {seen}), not those of a run", where=f"--from {path}", remedy=remedy
            )


def _document(path: Path) -> dict[str, Any]:
    """A file of YAML, which JSON is, too."""
    from steelyard.cli.fit_files import MOST_YAML, read_up_to, yaml_of

    where = f"--from {path}"
    raw = read_up_to(path, MOST_YAML, where=where, remedy="name a YAML or JSON file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"it is no UTF-8 ({error})", where=where, remedy="write it as UTF-8") from error
    found = yaml_of(text, where=where, remedy="mend it there")
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise RefusedError(
            f"it holds a {type(found).__name__}, no settings by name",
            where=where,
            remedy="name a TRL GRPOConfig, or a verl configuration",
        )
    return found
