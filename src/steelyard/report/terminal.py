"""A price in a terminal: the answer first, then what to change, then what it was computed from.

Made for 80 columns, and readable in fewer. Nothing is printed of what was not measured, but for the notes,
which say how to measure it. Everything goes out as text, never as markup: causes and ids are a policy's.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from steelyard.pricing.values import Price, Remedy
from steelyard.report import words
from steelyard.report.words import Row, Section

_WIDTH = 80


def print_price(console: Console, price: Price) -> None:
    """Print a price.

    Parameters
    ----------
    console
        Where to; wider ones are used up to 80 columns.
    price
        What to print.
    """
    width = min(_WIDTH, console.width)
    if answer := words.answer(price):
        console.print(Text(answer, style="bold"), width=width)
    console.print(Text(f"{words.plain(price.source)}. {words.basis(price)}", style="dim"), width=width)
    _print_doubt_count(console, price, width)
    _print_remedies(console, price.remedies, width)
    for section in words.sections(price):
        _print_section(console, section, width)
    _print_told(
        console,
        "Rewards that look like failures written down as numbers",
        [("", words.plain(one.says), "") for one in price.suspicions],
        width,
    )
    _print_told(
        console,
        "Doubts: why these numbers may be wrong",
        [(one.kind.value, words.plain(one.says), words.plain(f"Do: {one.remedy}")) for one in price.doubts],
        width,
    )
    _print_told(console, "Not measured", [("", words.plain(note), "") for note in price.notes], width)


def _print_doubt_count(console: Console, price: Price, width: int) -> None:
    if price.doubts:
        kinds = ", ".join(one.kind.value for one in price.doubts)
        console.print(Text(f"To be doubted ({kinds}): see below.", style="yellow"), width=width)


def _heading(console: Console, title: str, width: int) -> None:
    console.print()
    console.print(Text(title, style="bold"), width=width)


def _grid(width: int, *columns: int | None) -> Table:
    """A table without lines whose columns have these widths; the one without takes what is left."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.width = width
    for column in columns:
        table.add_column(width=column, ratio=None if column else 1, overflow="fold")
    return table


def _print_remedies(console: Console, remedies: Sequence[Remedy], width: int) -> None:
    if not remedies:
        return
    _heading(console, "What to change first (seconds saved per step, 95 % interval)", width)
    table = _grid(width - 2, 16, None)
    for one in remedies:
        known = words.interval(one.saves) if one.saves is not None else ""
        number = Text(
            words.saves(one), style="green" if one.saves is not None and one.saves.value > 0 else "dim"
        )
        table.add_row(
            number.append(f"\n{known}", style="dim") if known else number,
            Text(words.plain(one.title), style="bold").append(
                "".join(f"\n{sentence}" for sentence in words.details(one)), style="not bold"
            ),
        )
    console.print(Padding(table, (0, 0, 0, 2)), width=width)


def _print_section(console: Console, section: Section, width: int) -> None:
    _heading(console, section.title, width)
    names = min(24, max(len(row.name) for row in section.rows))
    values = max(len(row.value) for row in section.rows)
    intervals = max(len(row.interval) for row in section.rows)
    columns = [names, values, *([intervals] if intervals else []), None]
    table = _grid(width - 2, *columns)
    for row in section.rows:
        table.add_row(*_cells(row, with_interval=bool(intervals)))
    console.print(Padding(table, (0, 0, 0, 2)), width=width)


def _cells(row: Row, *, with_interval: bool) -> list[Text]:
    known = [Text(row.interval, style="dim")] if with_interval else []
    return [
        Text(row.name),
        Text(row.value, style="bold", justify="right"),
        *known,
        Text(row.means, style="dim"),
    ]


def _print_told(console: Console, title: str, told: Sequence[tuple[str, str, str]], width: int) -> None:
    """Print sentences under a heading: a word before each, and a second sentence below, if there are any."""
    if not told:
        return
    _heading(console, title, width)
    for head, says, then in told:
        line = Text(f"{head}: " if head else "", style="yellow").append(says, style="not bold default")
        console.print(Padding(line.append(f"\n{then}" if then else ""), (0, 0, 0, 2)), width=width)
