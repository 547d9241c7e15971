"""`steelyard rewards`: what there is, and all about one."""

from __future__ import annotations

import inspect
import json
import re

from rich.table import Table

from steelyard.cli.words import console, plain
from steelyard.rewards import BUILTIN
from steelyard.rewards.registry import Builtin, known

_YOURS = (
    "Your own: --reward package.module:function or path/to/file.py:function; its parameters name what it "
    "reads (completion, prompt, rollout, a column; or completions, for lists), it returns a number."
)


def listing() -> None:
    """Print a table of the rewards of ours."""
    table = Table("reward", "judges", "values", "variants", box=None, pad_edge=False, header_style="bold")
    for one in BUILTIN.values():
        table.add_row(one.name, plain(one.summary), plain(one.values), plain(one.variants) or "-")
    words = console()
    words.print(table)
    words.print(
        "\nsteelyard rewards NAME says which columns and settings it reads, with an example.", style="dim"
    )
    words.print(_YOURS, style="dim")


def one(name: str) -> None:
    """Print all about one reward: its settings, its values, an example that runs."""
    found = known(name.partition(":")[0])
    words = console()
    words.print(f"[bold]{found.name}[/]: {plain(found.summary)}\nvalues: {plain(found.values)}")
    if found.variants:
        words.print(f"variants: {plain(found.variants)}")
    words.print(f"settings: {plain(_settings(found.make))}\n")
    words.print(plain(_unmarked(inspect.getdoc(found.make) or "")))
    words.print("\nFor a shell, as it stands:")
    words.print(plain(_commands(found)), soft_wrap=True)


def _commands(found: Builtin) -> str:
    """Commands that score the reward's example row."""
    row = json.dumps(found.example, ensure_ascii=False)
    lines = ["cat > row.jsonl <<'END'", row, "END"]
    asked = f"--reward {found.name}"
    if found.example_settings:
        settings = ", ".join(
            f"{name} = {json.dumps(value)}" for name, value in found.example_settings.items()
        )
        lines += ["cat > recipe.toml <<'END'", "[[part]]", f'reward = "{found.name}"']
        lines += [f"settings = {{ {settings} }}", "END"]
        asked = "--recipe recipe.toml"
    return "\n".join([*lines, f"steelyard score row.jsonl {asked} --out scored.jsonl"])


def _settings(make: object) -> str:
    """A factory's keyword settings with their defaults."""
    parameters = inspect.signature(make).parameters.values()  # type: ignore[arg-type]
    told = [p.name if p.default is p.empty else f"{p.name} = {p.default!r}" for p in parameters]
    return ", ".join(told) or "none"


def _unmarked(text: str) -> str:
    """Numpydoc without its underlines: section names stand alone."""
    return re.sub(r"^(\w[\w ]*)\n-{3,}$", r"\1:", text, flags=re.MULTILINE)
