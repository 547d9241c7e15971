"""`steelyard score`: the progress bar, the summary, the exit code."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from steelyard.blame import UNSCORED_SHARE
from steelyard.cli.outputs import refuse_page
from steelyard.cli.words import console, plain
from steelyard.execution import FIXED
from steelyard.rewards import Recipe
from steelyard.scheduling.deadlines import Standing
from steelyard.scheduling.falsekills import ACCEPTED, ALL_AUDITED, LEAST_S, NEEDED
from steelyard.scoring import Options, Summary, ledger_of, score_file
from steelyard.scoring import Progress as HowFar
from steelyard.scoring.summary import QUANTILES

ABOVE_SHARE = 3
INTERRUPTED = 130


def run(
    file: str,
    recipe: Recipe,
    out: Path,
    ledger: Path | None,
    options: Options,
    *,
    max_unscored: float | None,
    quiet: bool,
    page: Path | None = None,
) -> int:
    """Score a file; return the exit code."""
    gc.set_threshold(50_000)  # the process ends with the command, and the pipe makes next to no cycles
    record = ledger or ledger_of(out)
    if page is not None:
        refuse_page(page, [Path(file), out, record])
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            bar = None if quiet else stack.enter_context(_Bar(console(stderr=True)))
            show = bar.show if bar else lambda _far: None
            summary = score_file(file, recipe, out, ledger=record, options=options, progress=show)
    except KeyboardInterrupt:
        sys.stderr.write("steelyard: interrupted; the same command goes on where it stopped\n")
        return INTERRUPTED
    taken_s = time.monotonic() - started
    if page is not None:
        from steelyard.cli.page import write

        write(page, summary, record, advantage=options.advantage)
    if not quiet:
        words = console()
        report(words, summary, options, taken_s)
        words.print(f"\nscored rows: [bold]{plain(str(out))}[/]   record: [bold]{plain(str(record))}[/]")
        if page is not None:
            words.print(f"report: [bold]{plain(str(page))}[/]")
        words.print(f"next: steelyard show {plain(str(record))} --group ID, or --row ID", style="dim")
    excess = summary.excess(max_unscored, UNSCORED_SHARE)
    if excess is None:
        return 0
    sys.stderr.write(f"steelyard: {excess}; do not train on this\n  next: steelyard show {record} --why\n")
    return ABOVE_SHARE


class _Bar:
    """Progress on a terminal; silence elsewhere."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[verdicts]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._stage = ""
        self._since = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, far: HowFar) -> None:
        """Draw how far a run is."""
        if self._task is None or far.stage != self._stage:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(far.stage, total=far.total, rate="", verdicts="")
            self._stage, self._since = far.stage, time.monotonic()
        rate = far.done / max(time.monotonic() - self._since, 1e-9)
        verdicts = "  ".join(f"{count:,} {word}" for word, count in far.verdicts.items())
        self._progress.update(
            self._task,
            completed=far.done,
            total=far.total,
            rate=f"{rate:,.0f}/s" if far.done else "",
            verdicts=verdicts,
        )


def report(console: Console, summary: Summary, options: Options, taken_s: float) -> None:
    """Print what a person wants to know."""
    scored = summary.verdicts["scored"]
    mean = f", mean reward {summary.value_sum / scored:.4g}" if scored else ""
    groups = sum(summary.sizes.values())
    console.print(
        f"[bold]{_count(summary.rollouts, 'rollout')}[/] in {_count(groups, 'group')}{mean}   "
        f"[dim]{taken_s:.2f} s, {summary.rollouts / taken_s:,.0f}/s[/]"
    )
    _verdicts(console, summary)
    _groups(console, summary, options)
    _service_times(console, summary)
    _deadlines(console, summary)
    _lengths(console, summary)
    for doubt in summary.doubts():
        console.print(f"\n[bold]doubt[/]: {plain(doubt)}")


def _verdicts(console: Console, summary: Summary) -> None:
    table = Table("verdict", "rollouts", "why", box=None, pad_edge=False, header_style="dim")
    total = max(summary.rollouts, 1)
    scored = summary.verdicts["scored"]
    codes = ", ".join(f"{count:,} {code}" for code, count in _by_count(summary.codes))
    table.add_row("scored", f"{scored:,} ({scored / total:.1%})", codes or "-")
    if ran := summary.integrities.total():
        told = ", ".join(f"{count / ran:.1%} {word}" for word, count in summary.integrities.most_common())
        where = ", ".join(dict.fromkeys(str(one["boundary"]) for one in summary.code.values()))
        table.add_row("", f"{ran:,}", plain(f"of them ran code{where and ' in ' + where}: {told}"))
    if summary.verdicts["abstained"]:
        table.add_row("abstained", f"{summary.verdicts['abstained']:,}", "does not apply, by the columns")
    for place, (why, count) in enumerate(summary.whys.most_common(5)):
        table.add_row("" if place else "unscored", f"{count:,} ({count / total:.1%})", plain(why))
    if summary.skipped:
        table.add_row("skipped", f"{summary.skipped:,}", f"no rollouts: {plain(_kinds(summary.bad_lines))}")
    if summary.bad_columns:
        groups = sum(summary.bad_columns.values())
        told = f"with bad columns, so unscored: {plain(_kinds(summary.bad_columns))}"
        table.add_row("", _count(groups, "group"), told)
    console.print(table)


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent first; equal ones by name, whichever came first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _groups(console: Console, summary: Summary, options: Options) -> None:
    groups = sum(summary.sizes.values())
    sizes = ", ".join(
        f"{_count(count, 'group')} of {size}"
        for size, count in sorted(summary.sizes.items(), reverse=True)[:6]
    )
    unequal = " (unequal sizes: each is normalised within itself)" if len(summary.sizes) > 1 else ""
    console.print(
        f"\ngroups: {sizes}{unequal}; without a gradient under {options.advantage}: "
        f"{summary.no_spread:,} all alike, {summary.too_few_votes:,} with too few votes"
    )
    title = "rewards by group" if len(summary.groups) == groups else "the groups with the lowest mean"
    table = Table(
        "group", "size", "votes", "mean", "lowest", "highest", box=None, pad_edge=False, header_style="dim"
    )
    for line in summary.groups:
        numbers = [_number(value) for value in (line.mean, line.lowest, line.highest)]
        table.add_row(plain(_cut(str(line.id), 40)), str(line.size), str(line.votes), *numbers)
    console.print(f"[dim]{title}[/]")
    console.print(table)


def _service_times(console: Console, summary: Summary) -> None:
    table = Table(
        "service time of", "calls", "rollouts each", *[_quantile(q) for q in QUANTILES], "cut",
        box=None, pad_edge=False, header_style="dim",
    )  # fmt: skip
    for times in summary.times:
        # a cut attempt's duration is a lower bound of what it would have taken
        told = [f"{'> ' if cut else ''}{_seconds(seconds)}" for seconds, cut in times.quantiles]
        if times.attempts:
            each = f"{times.rollouts_each:,.0f}" if times.rollouts_each > 1 else "1"
            table.add_row(times.part, f"{times.attempts:,}", each, *told, f"{times.cut:,}")
    if table.row_count:
        console.print()
        console.print(table)


def _deadlines(console: Console, summary: Summary) -> None:
    idle = _idle(summary)
    shown = [one for one in summary.deadlines if one.part not in idle]
    if shown or idle or summary.failing_references:
        console.print()
    for one in shown:
        at = "each test its own" if one.cpu_s is None else f"{one.cpu_s:.3g} s"
        console.print(
            f"CPU deadline of {plain(f'{one.part} {one.kind}')}, learnt from {one.level}: {at}"
            f"{_force(one)}; P(cut | would pass) < {one.bound:.2%} "
            f"(95 %, {one.passes:,} passes); {one.cuts:,} cut; of {one.audited:,} that were run again "
            f"{one.killed:,} pass; {one.dropped:,} due and not run"
        )

    for words in idle.values():
        console.print(plain(words))
    if failing := summary.failing_references:
        console.print(
            f"{_count(failing, 'test')} with a reference that fails its own tests: it limits nothing"
        )


def _force(one: Standing) -> str:
    if one.in_force:
        return ""
    if one.passes < ALL_AUDITED:
        return f", not in force yet: {one.passes:,} of about {ALL_AUDITED:,} passes"
    return f", not in force: the bound must be below {ACCEPTED:.1%}"


def _idle(summary: Summary) -> dict[str, str]:
    """Parts whose `--deadline` did nothing, and why."""
    found: dict[str, str] = {}
    learnt = {one.part for one in summary.deadlines}
    for part, one in summary.code.items():
        word, declared_s = one["deadline"], one["cpu_s"]
        why = None
        if word != FIXED and declared_s <= LEAST_S:
            why = f"can never act: none is below {LEAST_S:g} s, and the declared limit is {declared_s:g} s"
        elif word == "reference" and not summary.has_references:
            why = "did nothing: no row has a column `reference` (--column reference=FIELD names it)"
        elif word == "adaptive" and part not in learnt:
            why = (
                f"did nothing yet: it needs {NEEDED} passes in earlier steps, and about {ALL_AUDITED} more "
                "to be in force"
            )
        if why is not None:
            found[part] = f"CPU deadline of {part}: `{word}` {why}"
    return found


def _lengths(console: Console, summary: Summary) -> None:
    if not summary.verdicts["unscored"]:
        return
    shares = "  ".join(
        f"≤{longest:,}: {missing / count:.1%}" for longest, count, missing in summary.length_deciles
    )
    console.print(f"\nunscored by completion length (characters, deciles): {shares}")


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _quantile(share: float) -> str:
    return "longest" if share == 1.0 else "median" if share == 0.5 else f"p{share * 100:g}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
