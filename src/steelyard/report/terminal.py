"""A price in a terminal: the answer first, then what to change, then what it was computed from.

Made for 80 columns, and readable in fewer. Nothing is printed of what was not measured, but for the notes,
which say how to measure it. Everything goes out as text, never as markup: causes and ids are a policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from steelyard.pricing.values import Price
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
    for sentence, style in (
        (words.answer(price), "bold"),
        (words.why(price), ""),
        (words.ground(price), "dim"),
    ):
        if sentence:
            console.print(Text(_folded(sentence, width), style=style), width=width)
    _print_doubt_count(console, price, width)
    _print_remedies(console, price, width)
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
    for title, notes in ((words.SAYS, price.says), (words.LACKS, price.notes)):
        _print_told(console, title, [("", words.plain(note), "") for note in notes], width)


def _folded(text: str, width: int) -> str:
    """A text in lines, none of which parts a number from its unit."""
    lines = wrap(words.together(text), width, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


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


def _print_remedies(console: Console, price: Price, width: int) -> None:
    if not price.remedies:
        return
    noticed, others = words.advice(price)
    ranges = " (95 % interval)" if any(map(words.range_of, noticed)) else ""
    _heading(console, f"What to change first: time saved per step{ranges}", width)
    if not noticed:
        console.print("  Nothing that can be computed here saves a part that one would notice.", width=width)
    for one in noticed:
        known = f" ({words.range_of(one)})" if words.range_of(one) else ""
        title = Text(words.saves(one), style="green").append(f"{known}: ", style="dim")
        title.append(words.one_line(one.title), style="bold not dim default")
        console.print(Padding(title, (0, 0, 0, 2)), width=width)
        details = _folded(" ".join(words.details(one)), width - 4)
        console.print(Padding(Text(details, style="dim"), (0, 0, 0, 4)), width=width)
    if others:
        _heading(console, words.OTHERS, width)
        table = _grid(width - 2, max(len(words.outcome(one)) for one in others), None)
        for one in others:
            table.add_row(Text(words.outcome(one), style="dim"), Text(words.reason(one)))
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
