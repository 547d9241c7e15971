"""A fit in a terminal: the answer, a bar for each phase, what to change, and what it was reckoned from.

Made for 80 columns, and readable in fewer, and without colour: each part of a bar begins with its letter,
which stands before its row in the tables below. Sources are numbered, and listed once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from steelyard.memory.values import Fit, Phase
from steelyard.report import memory_words as words
from steelyard.report.memory_words import FitReport
from steelyard.report.words import Section, plain

_WIDTH: Final = 80
_STYLES: Final = {"fits": "bold green", "tight": "bold yellow", "does not fit": "bold red"}
_COLOURS: Final = {
    "trainer": (
        "dodger_blue1",
        "dark_cyan",
        "medium_purple",
        "sky_blue1",
        "green3",
        "plum2",
        "blue",
        "cyan3",
        "hot_pink3",
        "dark_olive_green3",
        "slate_blue1",
        "sea_green2",
    ),
    "engine": ("dark_orange", "gold3", "orange_red1", "khaki3", "indian_red", "tan"),
    "device": ("grey62", "grey42", "grey78"),
}
"""A family of colours for each owner, in the order of its residents; then from the first again."""


def print_fit(console: Console, report: FitReport) -> None:
    """Print what is known of a plan on a card.

    Parameters
    ----------
    console
        Where to; wider ones are used up to 80 columns.
    report
        What to print.
    """
    fit, width = report.fit, min(_WIDTH, console.width)
    console.print(Text(words.headline(fit), style=_STYLES[words.colour_of(report)]), width=width)
    if stopped := words.stopped(report):
        console.print(Text(stopped, style="red"), width=width)
    for sentence, style in (
        (words.why(fit), ""),
        (words.doubt(fit), ""),
        (f"{words.ground(fit.estimate.plan)} {words.parameters(fit.estimate.plan)}.", "dim"),
    ):
        console.print(Text(sentence, style=style), width=width)
    console.print()
    known = words.signs(fit.estimate.phases)
    for line in bars(fit, known, width):
        console.print(line, width=width, no_wrap=True, overflow="crop")
    _print_lints(console, report, width)
    _print_levers(console, fit, width)
    _heading(console, "Largest here, all else as planned", width)
    _print_rows(console, words.largest(fit), width)
    for section in (*report.speed, *([report.checked] if report.checked else [])):
        _print_section(console, section, width)
    if report.notes:
        _heading(console, words.NOTES, width)
        for note in report.notes:
            _indented(console, Text(plain(note)), width)
    _print_phases(console, fit, known, width)


def print_comparison(console: Console, reports: Sequence[FitReport]) -> None:
    """Print a plan on several cards: a row for each.

    Parameters
    ----------
    console
        Where to.
    reports
        Of the same plan.
    """
    plan = reports[0].fit.estimate.plan
    width = min(_WIDTH, console.width)
    console.print(Text(plain(f"{plan.model.name}: {words.parameters(plan)}."), style="bold"), width=width)
    console.print(Text(words.ground(plan), style="dim"), width=width)
    console.print()
    heads, rows = words.compared(reports)
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        width=width,
        header_style="dim",
        show_edge=False,
        collapse_padding=True,
    )
    for place, head in enumerate(heads):
        numeric = place in {2, 4, 5, 6, 7}
        table.add_column(
            head,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=place > 0 and width == _WIDTH,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(table)
    if told := words.cheapest(reports):
        console.print(Text(told, style="bold"), width=width)
    console.print(Text(words.COMPARED, style="dim"), width=width)
    if not any(map(words.runs, reports)):
        for report in reports:
            if told := words.together(report.fit):
                console.print(Text(f"\n{plain(report.fit.card.name)}: {plain(told)}"), width=width)
    for report in reports:
        if stopped := words.stopped(report):
            named = f"\n{plain(report.fit.card.name)}: {stopped.replace(' (see below)', '')}"
            console.print(Text(named, style="red"), width=width)


def bars(fit: Fit, known: dict[str, str], width: int) -> list[Text]:
    """One bar for each phase on one scale, with the card's end as a line through all.

    Parameters
    ----------
    fit
        What to draw.
    known
        The sign of each resident.
    width
        Columns to draw in.
    """
    phases = fit.estimate.phases
    names = max(len(words.TITLES[one.name]) for one in phases) + 2
    sizes = max(len(words.gib(one.bytes)) for one in phases) + 6
    room = max(8, width - names - sizes)
    scale = max(fit.card.bytes, *(one.bytes for one in phases))
    end = round((room - 1) * fit.card.bytes / scale)
    style = colours(fit)
    told = []
    for phase in phases:
        line = Text(words.TITLES[phase.name].ljust(names))
        cells = _cells(phase, known, style, (room - 1) / scale)
        cells += [("·", "dim")] * (end - len(cells)) + [(" ", "")] * (room - 1 - max(end, len(cells)))
        cells.insert(end, ("│", "bold"))
        for colour, run in groupby(cells, key=lambda cell: cell[1]):
            line.append("".join(sign for sign, _ in run), style=colour)
        peak = "bold" if phase is fit.estimate.peak else ""
        told.append(line.append(f"{words.gib(phase.bytes)} GiB".rjust(sizes), style=peak))
    label = f"{words.gib(fit.card.bytes)} GiB: the card "
    told.append(Text(" " * max(0, names + end - len(label)) + label + "┘", style="dim"))
    return told


def _cells(phase: Phase, known: dict[str, str], style: dict[str, str], scale: float) -> list[tuple[str, str]]:
    """The columns of a bar: ends are rounded, not widths, so that the whole is as long as it should be."""
    cells: list[tuple[str, str]] = []
    total = 0.0
    for one in sorted(phase.residents, key=lambda one: list(known).index(one.name)):
        total += one.bytes
        wide = round(total * scale) - len(cells)
        if wide > 0:
            cells.append((known[one.name], f"bold {style[one.name]}"))
            cells += [("▬", style[one.name])] * (wide - 1)
    return cells


def colours(fit: Fit) -> dict[str, str]:
    """A colour for each resident, of its owner's family."""
    owner = words.owners(fit.estimate.phases)
    seen = dict.fromkeys(_COLOURS, 0)
    found = {}
    for name in words.signs(fit.estimate.phases):
        family = _COLOURS[owner[name]]
        found[name] = family[seen[owner[name]] % len(family)]
        seen[owner[name]] += 1
    return found


def _heading(console: Console, title: str, width: int) -> None:
    console.print()
    console.print(Text(title, style="bold"), width=width)


def _indented(console: Console, text: Text, width: int, by: int = 2) -> None:
    console.print(Padding(text, (0, 0, 0, by)), width=width)


def _print_lints(console: Console, report: FitReport, width: int) -> None:
    if not report.lints:
        return
    _heading(console, "To beware of", width)
    for one in report.lints:
        style = "red" if one.severity == "stop" else "yellow"
        line = Text(f"{one.severity}, {plain(one.code)}: ", style=style)
        line.append(words.lint_says(one), style="not bold default")
        _indented(console, line.append(f"\nDo: {plain(one.remedy)}."), width)


def _print_levers(console: Console, fit: Fit, width: int) -> None:
    noticed, others = words.levers(fit)
    if fit.levers:
        _heading(console, "What to change first: GiB bought at the peak", width)
    if fit.levers and not noticed:
        _indented(console, Text(words.NO_LEVER), width)
    if told := words.together(fit):
        _indented(console, Text(plain(told), style="bold"), width)
    for one in noticed:
        head = Text(f"{words.gib(one.saves)} GiB: ", style="green")
        head.append(plain(one.name), style="bold default").append(f"   {plain(one.option)}", style="cyan")
        _indented(console, head, width)
        told = f"{words.leaves(fit, one)}. Costs: {plain(one.cost)}"
        _indented(console, Text("\n".join(wrap(told, width - 4)), style="dim"), width, 4)
    if others:
        _heading(console, words.OTHERS, width)
        _print_rows(console, [(one.name, words.outcome(one), one.option) for one in others], width)


def _print_rows(console: Console, rows: Sequence[Sequence[str]], width: int) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.width = width - 2
    table.add_column(max_width=30, overflow="fold")
    table.add_column(max_width=30, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for name, value, means in rows:
        table.add_row(Text(plain(name)), Text(plain(value), style="bold"), Text(plain(means), style="dim"))
    console.print(Padding(table, (0, 0, 0, 2)), width=width)


def _print_section(console: Console, section: Section, width: int) -> None:
    _heading(console, plain(section.title), width)
    rows = [
        (row.name, f"{row.value} ({row.interval})" if row.interval else row.value, row.means)
        for row in section.rows
    ]
    _print_rows(console, rows, width)


def _print_phases(console: Console, fit: Fit, known: dict[str, str], width: int) -> None:
    """Print each phase's residents, and then where their formulas are from."""
    style = colours(fit)
    sources: dict[str, int] = {}
    for phase in fit.estimate.phases:
        _heading(console, words.phase_title(phase), width)
        _indented(console, Text(words.process_says(phase), style="dim"), width)
        table = Table(box=None, padding=(0, 2, 0, 0), width=width - 2, header_style="dim", show_edge=False)
        for head, justify in (("", "left"), ("resident", "left"), ("GiB", "right")):
            table.add_column(head, justify=justify, max_width=18, overflow="fold")  # type: ignore[arg-type]
        table.add_column("formula", ratio=1, overflow="fold")
        table.add_column("source", justify="right")
        table.add_column("owner")
        for name, line in zip(words.largest_first(phase), words.lines(phase, known), strict=True):
            place = sources.setdefault(line.source, len(sources) + 1)
            table.add_row(
                Text(line.sign, style=f"bold {style[name.name]}"),
                Text(line.name),
                Text(line.gib, style="bold"),
                Text(line.formula, style="dim"),
                Text(f"[{place}]"),
                Text(line.owner, style="dim"),
            )
        console.print(Padding(table, (0, 0, 0, 2)), width=width)
    _heading(console, "Sources of the formulas", width)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for source, place in sources.items():
        grid.add_row(Text(f"[{place}]"), Text(source, style="dim", overflow="fold"))
    console.print(Padding(grid, (0, 0, 0, 2)), width=width)
