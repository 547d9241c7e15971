"""`steelyard show`: what a ledger holds, for a person."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from textwrap import indent

from rich.table import Table

from steelyard.blame import excused
from steelyard.cli.total import told as total_told
from steelyard.cli.total import totals
from steelyard.cli.words import console, plain
from steelyard.errors import RefusedError
from steelyard.ledger import Entered, Ledger, Run
from steelyard.ledger.rows import CLOCKS
from steelyard.outcome import Abstained, Attempt, Scored, Unscored, Verdict
from steelyard.rewards.lengths import tool_calls
from steelyard.rollout import Message, Text, canonical_json, follow, parse_json, paths_among
from steelyard.scoring import ledger_of

_TEXT = 4_000  # characters of a text that are shown
_CALL = 1_000
_ENTRY = 300
_ENTRIES, _LINES = 20, 3  # files of a rollout or entries of its state, and lines of each file


def opened(path: Path) -> Ledger:
    """Open a ledger for reading; the scored file beside it will do."""
    beside = ledger_of(path) if path.name else path
    return Ledger(beside if path.suffix != ".ledger" and beside.exists() else path, write=False)


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
    for run in _runs(ledger):
        entered = sum(1 for _ in ledger.heads(run))
        verdicts = Counter(_word(verdict) for _, _, verdict, _ in ledger.scores(run))
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
    run = _runs(ledger)[-1]
    first = _member(ledger, run, name) or _find(ledger, run, name)
    members = list(ledger.entered(run, group=first.group))
    made = totals(ledger, run, members, _verdicts(ledger, run, members))
    advantages = {d.scheme: d.advantages for d in ledger.departed_group(run, first.group)}
    known = all(one.total is not None for one in made.values())
    ends = {place: one.total if known else one.sum for place, one in made.items()}
    # one part that is the total stands there once
    parts = [
        name
        for name in run.parts
        if len(run.parts) > 1 or any(ends[place] != one.parts.get(name) for place, one in made.items())
    ]
    heads = ["row", "verdict", "total" if known else "sum", *map(plain, parts)]
    heads += [*(f"advantage ({scheme})" for scheme in advantages), "code", "reason"]
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for one in members:
        end = ends[one.ordinal]
        value, code, reason = ("", "", "") if end is None else _told(end)
        cells = [_cell(made[one.ordinal].parts.get(part), code) for part in parts]
        numbers = [f"{values[one.place]:+.4f}" for values in advantages.values()]
        word = "" if end is None else _word(end)
        table.add_row(plain(str(one.id)), word, value, *cells, *numbers, code, plain(reason))
    words = console()
    words.print(plain(_text(members[0].rollout(run).prompt)[:600]))
    words.print()
    words.print(table)


def row(ledger: Ledger, name: str) -> None:
    """Print one rollout: its texts, what an agent left, verdicts, the total, attempts and clocks."""
    run = _runs(ledger)[-1]
    one = _find(ledger, run, name)
    rollout = one.rollout(run)
    words = console()
    for title, text in (("prompt", rollout.prompt), ("completion", rollout.completion)):
        words.print(f"[bold]{title}[/]")
        words.print(plain(_text(text)[:_TEXT]))
    if rollout.files is not None:
        words.print("[bold]files[/]")
        words.print(plain(_files(rollout.files)))
    if rollout.state is not None:
        words.print("[bold]state[/]")
        words.print(plain(_state(rollout.state)))
    words.print("[bold]columns[/]")
    for column, value in rollout.columns.items():
        words.print(f"  {plain(column)}: {plain(repr(value)[:300])}")
    advantages = {d.scheme: d.advantages[one.place] for d in ledger.departed_group(run, one.group)}
    told = ", ".join(f"{value:+.4f} ({scheme})" for scheme, value in advantages.items()) or "none yet"
    words.print(f"[bold]group[/] {one.group}, index {one.place}; advantage {told}")
    made = totals(ledger, run, [one], _verdicts(ledger, run, [one]))[one.ordinal]
    words.print("[bold]verdicts[/]")
    for part, verdict in made.parts.items():
        value, code, reason = _told(verdict)
        ran = f" ({verdict.integrity})" if isinstance(verdict, Scored) and verdict.integrity else ""
        words.print(f"  {plain(part)}: {_word(verdict)} {value} {code} {plain(reason)}".rstrip() + ran)
    if made.sum is not None or made.total is not None:
        words.print(f"[bold]total[/] {plain(total_told(run, made))}")
    words.print("[bold]attempts[/]")
    for attempt in ledger.attempts(run, ordinal=one.ordinal):
        words.print(plain(_attempt(attempt)))


def failed(ledger: Ledger) -> None:
    """Print the rollouts that could not be judged, or were judged by how they failed, and why."""
    run = _runs(ledger)[-1]
    table = Table("row", "part", "verdict", "why", box=None, pad_edge=False, header_style="bold")
    names = {place: name for name, place in run.parts.items()}
    ids = {ordinal: name for ordinal, _, _, name in ledger.heads(run)}
    for ordinal, part, verdict, _ in ledger.scores(run):
        _, code, why = _told(verdict)
        if isinstance(verdict, Unscored) or excused(code):
            table.add_row(
                plain(str(ids[ordinal])), names[part], f"{_word(verdict)} {code}".strip(), plain(why)
            )
    console().print(table if table.row_count else "every rollout was judged")


def faults(ledger: Ledger) -> int:
    """Print what is wrong with a ledger; return the exit code."""
    found = ledger.verify()
    words = console()
    for fault in found:
        words.print(plain(fault))
    words.print("the record is sound" if not found else f"{len(found)} faults")
    return 1 if found else 0


def _runs(ledger: Ledger) -> list[Run]:
    found = ledger.runs()
    if not found:
        raise RefusedError("the ledger holds no run", where=str(ledger.path), remedy="score a file first")
    return found


def _find(ledger: Ledger, run: Run, name: str) -> Entered:
    found = ledger.find(run, name) or _member(ledger, run, name)
    if found is None:
        some = ", ".join(str(head[3]) for head, _ in zip(ledger.heads(run), range(5), strict=False))
        raise RefusedError(
            f"there is no row or group {name!r}",
            where=str(ledger.path),
            remedy=f"ids are such as {some}; a group is named by its column or by its first row",
        )
    return found


def _member(ledger: Ledger, run: Run, name: str) -> Entered | None:
    """The first row of the group that a `group` column names."""
    firsts = (one for one in ledger.entered(run) if one.place == 0)
    return next((one for one in firsts if _group_name(run, one) == name), None)


def _group_name(run: Run, one: Entered) -> str | None:
    record = parse_json(one.content)
    field = run.spec.get("columns", {}).get("group", "group")
    follow(record, paths_among([field]))
    value = record.get(field)
    return None if value is None else str(value)


def _verdicts(ledger: Ledger, run: Run, members: list[Entered]) -> Mapping[int, dict[str, Verdict]]:
    names = {place: name for name, place in run.parts.items()}
    said: dict[int, dict[str, Verdict]] = {one.ordinal: {} for one in members}
    for (ordinal, part), (verdict, _) in sorted(ledger.recorded(run, list(said)).items()):
        said[ordinal][names[part]] = verdict
    return said


def _text(text: Text) -> str:
    if isinstance(text, str):
        return text
    return "\n".join(line for message in text for line in _message(message))


def _message(message: Message) -> list[str]:
    """A message's text, and a line for each tool it calls."""
    role, content, calls = message.get("role"), message.get("content"), tool_calls(message)
    said = content if isinstance(content, str) else _short(content, _TEXT)
    lines = [f"{role}: {said}"] if content or not calls else []
    return lines + [f"{role} calls {_call(call)}" for call in calls]


def _call(call: object) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else call
    if not isinstance(function, Mapping):
        return _short(function, _CALL)
    arguments = function.get("arguments", {})
    return f"{function.get('name')} {arguments if isinstance(arguments, str) else _short(arguments, _CALL)}"


def _files(files: object) -> str:
    """Names and sizes, and how each file begins."""
    if not isinstance(files, Mapping):
        return f"  {_short(files, _CALL)}"
    lines = []
    for path, text in islice(files.items(), _ENTRIES):
        written = text if isinstance(text, str) else _short(text, _CALL)
        lines.append(f"  {path} ({len(written):,} characters)")
        lines += [f"    {line[:200]}" for line in written[:_CALL].splitlines()[:_LINES]]
    more = len(files) - _ENTRIES
    return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines) or "  none"


def _state(state: object) -> str:
    if not isinstance(state, Mapping):
        return f"  {_short(state, _CALL)}"
    lines = [f"  {name}: {_short(value, _ENTRY)}" for name, value in islice(state.items(), _ENTRIES)]
    more = len(state) - _ENTRIES
    return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines) or "  {}"


def _short(value: object, length: int) -> str:
    text = "" if value is None else canonical_json(value).decode("utf-8", "replace")
    return text if len(text) <= length else text[: length - 1] + "…"


def _cell(verdict: Verdict | None, code: str) -> str:
    """What a part said, in a table: its value, and its code where the row does not have it anyway."""
    if isinstance(verdict, Scored):
        own = "" if verdict.code in {None, code} else f" {plain(verdict.code or '')}"
        return f"{verdict.value:.4g}{own}"
    return "unscored" if isinstance(verdict, Unscored) else "-"


def _word(verdict: Verdict) -> str:
    return type(verdict).__name__.lower()


def _told(verdict: Verdict) -> tuple[str, str, str]:
    if isinstance(verdict, Scored):
        return f"{verdict.value:.4g}", verdict.code or "", verdict.reason or ""
    if isinstance(verdict, Abstained):
        return "", "", verdict.reason
    return "", "", f"{verdict.boundary}: {verdict.cause}"


def _attempt(attempt: Attempt) -> str:
    clocks = ", ".join(
        f"{name[:-2].replace('_', ' ')} {value:.4f} s"
        for name in CLOCKS
        if (value := getattr(attempt.clocks, name)) is not None
    )
    shared = f" on {attempt.members} rollouts at once" if attempt.members > 1 else ""
    cut = f" by {attempt.limit}" if attempt.limit else ""
    evidence = dict(attempt.evidence or {})
    why = f"; {evidence.pop('cause')}" if "cause" in evidence else ""
    written = {name: str(evidence.pop(name)) for name in ("stdout", "stderr") if name in evidence}
    seen = "".join(f"\n    {name.replace('_', ' ')}: {value}" for name, value in evidence.items() if value)
    said = "".join(f"\n    {name}:\n{indent(text.rstrip(), ' ' * 6)}" for name, text in written.items())
    return (
        f"  {attempt.part} try {attempt.ordinal + 1}{shared}: {attempt.end}{cut}; {clocks}{why}{seen}{said}"
    )
