"""`steelyard check`: what was found first, then the tables, then the exit code."""

from __future__ import annotations

import sys

import orjson
from rich.console import Console
from rich.table import Table

from steelyard.audit import Level, Report, check_file
from steelyard.audit.tables import STEP
from steelyard.cli.words import console, plain
from steelyard.rewards import Recipe

FAULTY = 1
INTERRUPTED = 130

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
    several = report.parts if len(report.parts) > 1 else ()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("completion", "earns", *map(plain, several), "as the gold", "such as"):
        table.add_column(head, no_wrap=True)
    room = max(16, words.width - 52 - sum(max(len(name), 5) + 2 for name in several))
    for line in report.specimens:
        by_part = [_number(line.parts[name]) for name in several]
        as_gold = "-" if line.as_gold is None else f"{line.as_gold} of {line.rows}"
        example = line.example if len(line.example) <= room else line.example[: room - 1] + "…"
        table.add_row(line.kind, _number(line.mean), *by_part, as_gold, plain(example))
    words.print(table)


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
