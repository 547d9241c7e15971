"""`steelyard rewards`: what there is."""

from __future__ import annotations

from rich.table import Table

from steelyard.cli.words import console, plain
from steelyard.rewards import BUILTIN


def listing() -> None:
    """Print a table of the rewards of ours."""
    table = Table(
        "reward", "judges", "values", "columns", "variants", box=None, pad_edge=False, header_style="bold"
    )
    for one in BUILTIN.values():
        columns = ", ".join(one.make("").columns) or "-"
        table.add_row(one.name, plain(one.summary), one.values, columns, plain(one.variants) or "-")
    words = console()
    words.print(table)
    words.print(
        "\nYour own: --reward package.module:function or path/to/file.py:function; its parameters "
        "name what it reads (completion, prompt, rollout, or a column), it returns a number.",
        style="dim",
    )
