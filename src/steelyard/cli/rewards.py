"""`steelyard rewards`: what there is, and all about one."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rich.table import Table

from steelyard.cli.words import console, plain
from steelyard.rewards import BUILTIN, builtin
from steelyard.rewards.lengths import length
from steelyard.rewards.recipe_file import SHAPES, read_recipe
from steelyard.rewards.registry import Builtin, known

_YOURS = (
    "Your own: --reward package.module:function or path/to/file.py:function; its parameters name what it "
    "reads (completion, prompt, rollout, a column; or completions, for lists), it returns a number."
)
_COUNTED = """What a length counts; say one of them:
  unit = "words" or "characters"
  tokenizer = "./tokenizer.json", or the folder that holds it: its tokens (steelyard[tokens])
  column = "completion_tokens" or "completion_ids": the row's own count, a number or a list
unit = "tokens" may stand beside the last two."""


class _ShapePage(NamedTuple):
    """What a shape does, and a recipe with it."""

    summary: str
    settings: Mapping[str, Any]


_SHAPE_PAGES: Final = {
    "length_penalty": _ShapePage(
        "multiplies what is above 0 with a factor that falls with the length",
        {"unit": "words", "target": 200, "limit": 400, "least": 0.5},
    ),
    "cosine": _ShapePage(
        "replaces what one part pays: right is worth more when short, wrong not less when long",
        {"part": "answer", "unit": "words", "max_length": 400},
    ),
}


def listing() -> None:
    """Print a table of the rewards of ours."""
    table = Table("reward", "judges", "values", "variants", box=None, pad_edge=False, header_style="bold")
    for one in BUILTIN.values():
        table.add_row(one.name, plain(one.summary), plain(one.values), plain(one.variants) or "-")
    shapes = Table("shape", "does", box=None, pad_edge=False, header_style="bold")
    for kind in SHAPES:
        shapes.add_row(kind, plain(_SHAPE_PAGES[kind].summary))
    words = console()
    words.print(table)
    words.print(
        "\nShapes bend the sum of a recipe's parts: [[shape]] in its file.", style="dim", markup=False
    )
    words.print(shapes)
    words.print(
        "\nsteelyard rewards NAME says which columns and settings it reads, with an example.", style="dim"
    )
    words.print(_YOURS, style="dim")


def one(name: str) -> None:
    """Print all about one reward or shape: its settings, its values, an example that runs."""
    if name in SHAPES:
        _shape(name)
        return
    word, _, variant = name.partition(":")
    found = known(word)
    if variant:
        builtin(name, **found.example_settings)  # refuses a variant that there is not
    words = console()
    words.print(f"[bold]{found.name}[/]: {plain(found.summary)}\nvalues: {plain(found.values)}")
    if found.variants:
        words.print(f"variants: {plain(found.variants)}")
    _print_page(found.make, _commands(found))


def _shape(kind: str) -> None:
    page, make = _SHAPE_PAGES[kind], SHAPES[kind]
    console().print(f"[bold]{kind}[/], a shape: {plain(page.summary)}")
    entry = f"[[shape]]\nkind = {json.dumps(kind)}\nsettings = {_table(page.settings)}"
    recipe = f'[[part]]\nreward = "answer"\n\n{entry}'
    (shape,) = read_recipe(recipe).shapes
    commands = _shell(kind, BUILTIN["answer"].example, recipe)
    _print_page(make, commands, more=_body(inspect.getdoc(type(shape)) or ""))


def _print_page(make: Callable[..., object], commands: str, *, more: str = "") -> None:
    words = console()
    words.print(f"settings: {plain(_settings(make))}\n")
    words.print(plain(_unmarked(inspect.getdoc(make) or "")), soft_wrap=True)
    if more:
        words.print(f"\n{plain(more)}", soft_wrap=True)
    if inspect.signature(length).parameters.keys() - {"where"} <= inspect.signature(make).parameters.keys():
        words.print(f"\n{plain(_COUNTED)}", soft_wrap=True)
    words.print("\nFor a shell, as it stands:")
    words.print(plain(commands), soft_wrap=True)


def _body(text: str) -> str:
    """A docstring's paragraphs between its first line and its sections."""
    return text.partition("\n\n")[2].partition("Parameters\n---")[0].strip()


def _commands(found: Builtin) -> str:
    """Commands that score the reward's example row."""
    if not found.example_settings:
        return _shell(found.name, found.example, None)
    part = f"[[part]]\nreward = {json.dumps(found.name)}\nsettings = {_table(found.example_settings)}"
    return _shell(found.name, found.example, part)


def _shell(name: str, row: Mapping[str, Any], recipe: str | None) -> str:
    """Commands whose files are named after what they show, so that those of two pages can share a folder."""
    lines = [f"cat > {name}.jsonl <<'END'", json.dumps(row, ensure_ascii=False), "END"]
    asked = f"--reward {name}"
    if recipe is not None:
        lines += [f"cat > {name}.toml <<'END'", recipe, "END"]
        asked = f"--recipe {name}.toml"
    return "\n".join([*lines, f"steelyard score {name}.jsonl {asked} --out {name}-scored.jsonl"])


def _table(settings: Mapping[str, Any]) -> str:
    """Settings as TOML writes them on one line; numbers, text and lists read alike in JSON."""
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in settings.items()) + " }"


def _settings(make: object) -> str:
    """A factory's keyword settings with their defaults."""
    parameters = inspect.signature(make).parameters.values()  # type: ignore[arg-type]
    told = [p.name if p.default is p.empty else f"{p.name} = {p.default!r}" for p in parameters]
    return ", ".join(told) or "none"


def _unmarked(text: str) -> str:
    """Numpydoc without its underlines: section names stand alone."""
    return re.sub(r"^(\w[\w ]*)\n-{3,}$", r"\1:", text, flags=re.MULTILINE)
