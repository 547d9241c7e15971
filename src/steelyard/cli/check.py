"""`steelyard check`: what was found first, then the tables, then the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import orjson
from rich.console import Console
from rich.table import Table

from steelyard.audit import Level, Report, check_file
from steelyard.audit.tables import STEP
from steelyard.cli.words import console, plain
from steelyard.rewards import Recipe

FAULTY = 1
INTERRUPTED = 130

_EXAMPLE = 12  # characters of a specimen: less says nothing
_STYLES = {Level.FAULT: "bold red", Level.DOUBT: "bold yellow", Level.NOTE: "dim"}


def run(
    file: str,
    recipe: Recipe,
    columns: dict[str, str],
    *,
    skip_bad_rows: bool,
    timeout_s: float | None,
    workers: int | None,
    within_s: float,
    as_json: bool,
) -> int:
    """Inspect a recipe on a file; return the exit code."""
    try:
        report = check_file(
            file,
            recipe,
            columns=columns,
            skip_bad_rows=skip_bad_rows,
            timeout_s=timeout_s,
            workers=workers,
            within_s=within_s,
        )
    except KeyboardInterrupt:
        sys.stderr.write("steelyard: interrupted\n")
        return INTERRUPTED
    if as_json:
        document = orjson.dumps(report.document(), option=orjson.OPT_INDENT_2).decode()
        sys.stdout.write(document + "\n")
    else:
        show(console(), report)
    return FAULTY if report.faults else 0


def show(words: Console, report: Report) -> None:
    """Print what a person wants to know."""
    seen = report.spread
    whole = "" if report.whole else " (the beginning of the file)"
    words.print(
        f"[bold]{plain(' + '.join(report.parts))}[/] on {report.rollouts:,} rollouts in {report.groups:,} "
        f"groups{whole}; asked about {seen.rollouts:,} in {seen.groups:,}   [dim]{report.taken_s:.1f} s[/]"
    )
    _specimens(words, report)
    _own(words, report)
    _times(words, report)
    for what, why in report.not_run:
        words.print(f"[dim]not asked: {plain(what)}: {plain(why)}[/]")
    words.print()
    for found in report.findings:
        style = _STYLES[found.level]
        words.print(f"[{style}]{found.level}[/] [dim]{found.check}[/]: {plain(found.says)}")
    counts = {level: sum(found.level is level for found in report.findings) for level in Level}
    told = ", ".join(f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items())
    words.print(f"[bold]{told}[/]")


def _specimens(words: Console, report: Report) -> None:
    if not report.specimens:
        return
    lines = report.specimens
    kinds = ["completion", *(line.kind for line in lines)]
    earns = ["earns", *(_number(line.mean) for line in lines)]
    as_gold = [
        "as the gold",
        *("-" if one.as_gold is None else f"{one.as_gold} of {one.rows}" for one in lines),
    ]
    several = report.parts if len(report.parts) > 1 else ()
    parts = [[plain(name), *(_number(line.parts[name]) for line in lines)] for name in several]
    whole, rest = [kinds, earns, *parts, as_gold], []
    if _width(whole) > words.width:  # a number is never cut: the parts stand below
        whole, rest = [kinds, earns, as_gold], parts
    room = words.width - _width(whole)
    examples = [] if room < _EXAMPLE else [["such as", *(_cut(line.example, room) for line in lines)]]
    words.print(_table([*whole, *examples]))
    while rest:
        some = next((n for n in range(len(rest), 1, -1) if _width([kinds, *rest[:n]]) <= words.width), 1)
        words.print()
        words.print(_table([kinds, *rest[:some]]))
        rest = rest[some:]


def _table(columns: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head, *_ in columns:
        table.add_column(head, no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*cells)
    return table


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, cells)) + 2 for cells in columns)


def _cut(example: str, room: int) -> str:
    return plain(example if len(example) <= room else example[: room - 1] + "…")


def _own(words: Console, report: Report) -> None:
    seen = report.spread
    if not seen.rollouts:
        return
    bars = "  ".join(f"{plain(value)}: {count:,}" for value, count in seen.histogram)
    words.print(f"\nthe file's rollouts earn {bars or 'nothing'}")
    flat = f"{seen.all_right} all right, {seen.all_wrong} all wrong, {seen.all_alike} otherwise alike"
    words.print(f"groups without a gradient: {flat}, of {seen.groups}")
    for part, codes in seen.codes.items():
        if codes:
            told = ", ".join(f"{count / seen.rollouts:.0%} {code}" for code, count in codes.items())
            words.print(f"{plain(part)}: less than full marks in {plain(told)}")
    for part, count in seen.abstained.items():
        words.print(f"{plain(part)}: not asked in {count / seen.rollouts:.0%}")
    for why, count in seen.unscored.items():
        words.print(f"unscored: {count:,} ({plain(why)})")


def _times(words: Console, report: Report) -> None:
    if not report.times:
        return
    table = Table(
        "service time of", "median", "p99", f"a step of {STEP:,}", "at once", "20,000 words",
        box=None, pad_edge=False, header_style="dim",
    )  # fmt: skip
    for one in report.times:
        long = "-" if one.long_s is None else _seconds(one.long_s)
        table.add_row(
            plain(one.part),
            _seconds(one.p50_s),
            _seconds(one.p99_s),
            _seconds(one.step_s),
            str(one.at_once),
            long,
        )
    words.print()
    words.print(table)


def _seconds(seconds: float) -> str:
    return (
        f"{seconds:.3g} s"
        if seconds >= 1
        else f"{seconds * 1e3:.3g} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.3g} us"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
