"""`steelyard show`: what a ledger holds, for a person; `row` shows a single rollout."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.padding import Padding
from rich.table import Table

from steelyard.blame import excused
from steelyard.cli.record import find, group_name, member, runs_of, told, verdicts_of, word
from steelyard.cli.row import text_of
from steelyard.cli.total import totals
from steelyard.cli.words import console, plain
from steelyard.ledger import Ledger
from steelyard.outcome import Scored, Unscored, Verdict

_UNCODED = {"scored": "without remark"}  # full marks, or a number that says all
_PROMPT = 600  # characters of a group's prompt


def runs(ledger: Ledger) -> None:
    """Print the runs of a ledger."""
    table = Table(
        "run",
        "began",
        "file",
        "rewards",
        "entered",
        "verdicts",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for run in runs_of(ledger):
        entered = sum(1 for _ in ledger.heads(run))
        verdicts = Counter(word(verdict) for _, _, verdict, _ in ledger.scores(run))
        table.add_row(
            str(run.number),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began_unix)),
            plain(str(run.spec.get("name", ""))),
            ", ".join(run.parts),
            f"{entered:,} of {run.spec.get('rollouts', entered):,}",
            ", ".join(f"{count:,} {word}" for word, count in verdicts.items()),
        )
    words = console()
    words.print(table)
    words.print("next: --group ID, --row ID, --why, --verify", style="dim")


def group(ledger: Ledger, name: str) -> None:
    """Print the rollouts of one group, a line for each."""
    run = runs_of(ledger)[-1]
    first = member(ledger, run, name) or find(ledger, run, name)
    members = list(ledger.entered(run, group=first.group))
    made = totals(ledger, run, members, verdicts_of(ledger, run, members))
    advantages = {d.scheme: d.advantages for d in ledger.departed_group(run, first.group)}
    known = all(one.total is not None for one in made.values())
    ends = {place: one.total if known else one.sum for place, one in made.items()}
    # one part that is the total stands there once
    parts = [
        name
        for name in run.parts
        if len(run.parts) > 1 or any(ends[place] != one.parts.get(name) for place, one in made.items())
    ]
    heads = ["row", "verdict", "total" if known else "sum", *parts]
    heads += [*(f"advantage ({scheme})" for scheme in advantages), "code"]
    rows, reasons = [], []
    for one in members:
        end = ends[one.ordinal]
        value, code, reason = ("", "", "") if end is None else told(end)
        cells = [_cell(made[one.ordinal].parts.get(part), code) for part in parts]
        numbers = [f"{values[one.place]:+.4f}" for values in advantages.values()]
        rows.append([str(one.id), "" if end is None else word(end), value, *cells, *numbers, code])
        reasons.append(reason)
    words = console()
    words.print(plain(text_of(members[0].rollout(run).prompt)[:_PROMPT]))
    codes = Counter(row[-1] or _UNCODED.get(row[1], row[1] or "not judged yet") for row in rows)
    size = f"{len(rows)} rollout{'' if len(rows) == 1 else 's'}"
    counts = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    words.print(plain(f"group {group_name(ledger, run, first)}, {size}: {counts}"))
    words.print()
    _lines(heads, rows, "reason", reasons)


def failed(ledger: Ledger) -> None:
    """Print the rollouts that could not be judged, or were judged by how they failed, and why."""
    run = runs_of(ledger)[-1]
    names = {place: name for name, place in run.parts.items()}
    ids = {ordinal: name for ordinal, _, _, name in ledger.heads(run)}
    rows, reasons = [], []
    for ordinal, part, verdict, _ in ledger.scores(run):
        _, code, why = told(verdict)
        if isinstance(verdict, Unscored) or excused(code):
            rows.append([str(ids[ordinal]), names[part], f"{word(verdict)} {code}".strip()])
            reasons.append(why)
    if rows:
        _lines(["row", "part", "verdict"], rows, "why", reasons)
    else:
        console().print("every rollout was judged")


def faults(ledger: Ledger) -> int:
    """Print what is wrong with a ledger; return the exit code."""
    found = ledger.verify()
    words = console()
    for fault in found:
        words.print(plain(fault))
    words.print("the record is sound" if not found else f"{len(found)} faults")
    return 1 if found else 0


def _cell(verdict: Verdict | None, code: str) -> str:
    """What a part said, in a table: its value, and its code where the row does not have it anyway."""
    if isinstance(verdict, Scored):
        own = "" if verdict.code in {None, code} else f" {plain(verdict.code or '')}"
        return f"{verdict.value:.4g}{own}"
    return "unscored" if isinstance(verdict, Unscored) else "-"


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]], last: str, texts: Sequence[str]) -> None:
    """Print a table with a text to each row: under it in a terminal, and behind it where lines are read."""
    words = console()
    widths = [max(map(cell_len, cells)) for cells in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True))

    below = words.is_terminal
    words.print(f"[bold]{plain(line(heads) + ('' if below else f'  {last}')).rstrip()}[/]", soft_wrap=True)
    for cells, text in zip(rows, texts, strict=True):
        told = plain(line(cells) + ("" if below else f"  {' '.join(text.split())}"))
        words.print(told.rstrip(), soft_wrap=True)
        if below and text:
            words.print(Padding(plain(text), (0, 0, 0, 4)))
