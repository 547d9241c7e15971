"""`steelyard doctor --conformance NAME`: a boundary held against the suite, and the table of it."""

from __future__ import annotations

import sys
from typing import Final, Self

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from steelyard.cli.boundaries import maker_of
from steelyard.cli.words import console, plain
from steelyard.sandbox.conformance import Report, hold
from steelyard.sandbox.conformance.report import HOLDS, NO_VERDICT

OK, NOT_OK = 0, 1

_HERE: Final = "--conformance"


def run(named: str, *, as_json: bool = False, markdown: bool = False) -> int:
    """Hold a boundary against the suite, print what came of it, and return the exit code.

    Parameters
    ----------
    named
        One of ours by its name, or `module:factory`.
    as_json, markdown
        One JSON document, or a table in Markdown, instead of a table for a terminal.
    """
    make = maker_of(named, where=_HERE)
    with _Bar(console(stderr=True)) as bar:
        report = hold(make, tell=bar.show)
    if as_json:
        sys.stdout.write(orjson.dumps(report.document(), option=orjson.OPT_INDENT_2).decode() + "\n")
    elif markdown:
        sys.stdout.write(report.markdown())
    else:
        _show(console(), report)
    return OK if report.verdict == HOLDS else NOT_OK


def _show(words: Console, report: Report) -> None:
    colour = {HOLDS: "green", NO_VERDICT: "yellow"}.get(report.verdict, "red")
    words.print(f"[bold {colour}]{plain(report.summary())}[/]", soft_wrap=True)
    rate = f", {report.per_s:,.0f} short programs a second" if report.per_s else ""
    words.print(
        f"[dim]{plain(report.identity.rstrip(':'))}, steelyard {report.version}, {report.date}, "
        f"{plain(report.machine)}{rate}, {report.taken_s:.0f} s[/]\n",
        soft_wrap=True,
    )
    table = Table("kind", "", box=None, pad_edge=False, header_style="bold")
    table.add_column("programs", justify="right")
    table.add_column("contained", justify="right")
    for row in (report.honest, *report.rows):
        shown = f"[bold red]{row.contained}[/]" if row.faults else str(row.contained)
        table.add_row(plain(row.kind), plain(row.words), str(row.total), shown)
    words.print(table)
    if report.faults:
        words.print("\n[bold]not as it must be[/]")
        for fault in report.faults:
            words.print(f"  [bold]{plain(fault.program)}[/]: {plain(fault.words)}", soft_wrap=True)
    if report.left_out:
        words.print(f"\nleft out, for what they import is not there: {plain(', '.join(report.left_out))}")


class _Bar:
    """How far it is, on a terminal; silence elsewhere."""

    def __init__(self, words: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=words,
            transient=True,
            disable=not words.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """Draw how far a stage is."""
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done)
