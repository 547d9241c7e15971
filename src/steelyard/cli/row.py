"""`steelyard show --row`: one rollout, what was said of it, and what that was made from.

`document` is all of it, for tools; `show_row` prints it for a person. The texts come first and the verdict
after them, with the check that failed and each attempt: in a terminal what decided it stands at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from textwrap import fill, indent
from typing import Any, Final

from steelyard.blame import OWN_LIMITS, excused
from steelyard.cli.record import find, group_name, runs_of, told, verdicts_of, word
from steelyard.cli.total import Total, totals
from steelyard.cli.total import told as total_told
from steelyard.cli.words import console, plain
from steelyard.execution import MIB
from steelyard.ledger import Ledger
from steelyard.ledger.rows import CLOCKS
from steelyard.outcome import Abstained, Attempt, End, Scored, Verdict
from steelyard.rewards.lengths import tool_calls
from steelyard.rollout import Message, Text, canonical_json
from steelyard.scheduling.audits import AUDIT

_TEXT: Final = 4_000  # characters of a text that are shown
_CALL: Final = 1_000
_ENTRY: Final = 300
_ENTRIES: Final = 20  # files of a rollout or entries of its state
_LINES: Final = 3  # lines of each file
_BLOCK: Final = 20  # lines of a value
_ENDS: Final = {
    End.LOST: "was lost after it had begun",
    End.NEVER_STARTED: "never began",
    End.RAISED: "failed in the reward",
}
_CHECK: Final = {
    "input": "input",
    "calls": "call",
    "expected": "expected",
    "got": "got",
    "parts": "differs",
    "ended": "ended",
}
_SEEN: Final = {
    "status": "{}",
    "memory_kills": "{} of its processes ended for want of memory",
    "refused_processes": "{} processes refused",
    "foreign": "{} processes ended or refused by a limit that is not its own",
    "canary": "canary after it: {}",
}


class Row:
    """One rollout as the record has it.

    Parameters
    ----------
    ledger, name
        Its last run, and the row's id.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.run = runs_of(ledger)[-1]
        self.entered = one = find(ledger, self.run, name)
        self.rollout = one.rollout(self.run)
        self.group = group_name(ledger, self.run, one)
        code = self.run.spec.get("code", {})
        self.boundaries = {part: str(said["boundary"]) for part, said in code.items()}
        self.advantages = {
            gone.scheme: gone.advantages[one.place] for gone in ledger.departed_group(self.run, one.group)
        }
        said = verdicts_of(ledger, self.run, [one])
        self.made: Total = totals(ledger, self.run, [one], said)[one.ordinal]
        self.attempts = list(ledger.attempts(self.run, ordinal=one.ordinal))

    def document(self) -> dict[str, Any]:
        """Everything, for a tool: its keys stay (`docs/scoring.md`)."""
        rollout, total = self.rollout, self.made.total or self.made.sum
        return {
            "id": self.entered.id,
            "group": self.group,
            "index": self.entered.place,
            "prompt": rollout.prompt,
            "completion": rollout.completion,
            "columns": rollout.columns,
            "files": rollout.files,
            "state": rollout.state,
            "advantages": self.advantages,
            "total": None if total is None else _verdict(total),
            "verdicts": {part: _verdict(verdict) for part, verdict in self.made.parts.items()},
            "boundaries": self.boundaries,
            "attempts": [_recorded(attempt) for attempt in self.attempts],
        }


def show_row(ledger: Ledger, name: str, *, as_json: bool = False) -> None:
    """Print one rollout: its texts, what an agent left, verdicts, what failed, attempts and clocks."""
    row = Row(ledger, name)
    if as_json:
        sys.stdout.write(json.dumps(row.document(), indent=2, default=str) + "\n")
        return
    rollout = row.rollout
    texts = {"prompt": text_of(rollout.prompt)[:_TEXT], "completion": text_of(rollout.completion)[:_TEXT]}
    if rollout.files is not None:
        texts["files"] = _files(rollout.files)
    if rollout.state is not None:
        texts["state"] = _state(rollout.state)
    texts["columns"] = "\n".join(_column(name, value) for name, value in rollout.columns.items())
    for title, text in texts.items():
        _say(title, text)
    advantage = ", ".join(f"{value:+.4f} ({scheme})" for scheme, value in row.advantages.items())
    place = f"{row.group}, index {row.entered.place}; advantage {advantage or 'none yet'}"
    _say("group", place, same_line=True)
    _tell("verdicts", "\n".join(_judged(row, part, verdict) for part, verdict in row.made.parts.items()))
    if row.boundaries:
        _say("boundary", ", ".join(dict.fromkeys(row.boundaries.values())), same_line=True)
    if row.made.sum is not None or row.made.total is not None:
        _say("total", total_told(row.run, row.made), same_line=True)
    for attempt in row.attempts[-1:]:
        if check := (attempt.evidence or {}).get("check"):
            _tell("the check that failed", _check(check))
    told = (_attempt(attempt, row.made.parts.get(attempt.part)) for attempt in row.attempts)
    _tell("attempts", "\n".join(told) or "  none: no call was needed")


def _say(title: str, text: str, *, same_line: bool = False) -> None:
    """Print a text as it is under its title: a pipe gets its lines whole."""
    console().print(f"[bold]{title}[/]{' ' if same_line else chr(10)}{plain(text)}", soft_wrap=True)


def _tell(title: str, text: str) -> None:
    """Print words of ours under their title; in a terminal what is too long goes on below its beginning."""
    words = console()
    if words.is_terminal:
        text = "\n".join(fill(line, words.width, subsequent_indent=" " * 12) for line in text.split("\n"))
    _say(title, text)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Scored):
        fields = {name: getattr(verdict, name) for name in ("value", "code", "reason", "integrity")}
    elif isinstance(verdict, Abstained):
        fields = {"reason": verdict.reason}
    else:
        fields = {"boundary": verdict.boundary, "cause": verdict.cause}
    return {"verdict": word(verdict), **fields}


def _recorded(attempt: Attempt) -> dict[str, Any]:
    clocks = {name: getattr(attempt.clocks, name) for name in (*CLOCKS, "censored")}
    return {
        "part": attempt.part,
        "try": attempt.ordinal + 1,
        "rollouts": attempt.members,
        "end": attempt.end.value,
        "limit": attempt.limit,
        "clocks": clocks,
        "evidence": attempt.evidence or {},
    }


def _judged(row: Row, part: str, verdict: Verdict) -> str:
    """What a part said; of a row that was not really judged also why it was blamed, or not."""
    value, code, reason = told(verdict)
    ran = f" ({verdict.integrity})" if isinstance(verdict, Scored) and verdict.integrity else ""
    line = f"  {part}: {word(verdict)} {value} {code} {reason}".rstrip() + ran
    tries = [attempt for attempt in row.attempts if attempt.part == part]
    because = _because(verdict, tries)
    return f"{line}\n    because it {because}" if because else line


def _because(verdict: Verdict, tries: Sequence[Attempt]) -> str:
    """Why the incentive law decided as it did, from what the attempts left."""
    if isinstance(verdict, Abstained) or (isinstance(verdict, Scored) and not excused(verdict.code)):
        return ""
    if isinstance(verdict, Scored) and verdict.code in OWN_LIMITS:
        return "used up a limit of its own, which is final: it is not tried again"
    failed = [one for one in tries if one.end is not End.FINISHED]
    if not failed:
        return ""
    last = failed[-1].evidence or {}
    ends = list(dict.fromkeys(_ENDS.get(one.end, f"ran into the {one.limit} limit") for one in failed))
    times = ", then ".join(ends) + (f" {len(failed)} times" if len(failed) > len(ends) else "")
    fresh = ", at last in a slot that had run nothing before" if last.get("fresh") else ""
    canary = {
        "answered": "was answered: so it is to blame",
        "failed": "failed, too: so nothing is known of it",
    }
    after = f"; the canary after it {canary[last['canary']]}" if last.get("canary") in canary else ""
    return f"{times}{fresh}{after}"


def _check(check: Mapping[str, Any]) -> str:
    """The check that failed, with its inputs, and what came of it."""
    places = [f"number {check['number']} of {check['of']}"] if "number" in check else []
    places += [f"line {check['line']} of the tests"] if "line" in check else []
    lines = [f"  {', '.join(places)}"] if places else []
    if text := check.get("text"):
        lines.append(f"    {text}")
    for key, label in _CHECK.items():
        some = check.get(key, [])
        values = some if isinstance(some, list) else [some]
        # a call that stands in the check as it is needs no line of its own
        lines += [_field(label, one) for one in values if key != "calls" or one not in str(text)]
    if error := check.get("error"):
        lines.append(_field("raised", error["said"]))
        if "line" in error:
            lines.append(_field("", f"line {error['line']} of the program: {error.get('source', '')}"))
    return "\n".join(lines)


def _field(label: str, value: object) -> str:
    """A line, or a block of a few lines, under a label."""
    said = str(value).rstrip("\n").split("\n")
    said = said if len(said) <= _BLOCK else [*said[:_BLOCK], f"... and {len(said) - _BLOCK} lines more"]
    said = said if any(said) else ["(nothing)"]
    return "\n".join(f"  {label if at == 0 else '':<10}{line}".rstrip() for at, line in enumerate(said))


def _attempt(attempt: Attempt, verdict: Verdict | None) -> str:
    """An attempt: its end, its clocks, what it used of what it was allowed, what it wrote."""
    evidence = attempt.evidence or {}
    shared = f" on {attempt.members} rollouts at once" if attempt.members > 1 else ""
    shared += " in a fresh slot" if evidence.get("fresh") else ""
    cut = f" by {attempt.limit}" if attempt.limit else ""
    why = f"; {evidence['cause']}" if "cause" in evidence else ""
    clocks = ", ".join(
        f"{name[:-2].replace('_', ' ')} {value:.4f} s"
        for name in CLOCKS
        if (value := getattr(attempt.clocks, name)) is not None
    )
    which = "audit" if attempt.ordinal == AUDIT else f"try {attempt.ordinal + 1}"
    lines = [f"  {attempt.part} {which}{shared}: {attempt.end}{cut}{why}"]
    lines += [_field("  clocks", clocks)] if clocks else []
    if used := _used(attempt, evidence):
        lines.append(_field("  used", used))
    if deadline := evidence.get("deadline"):
        lines.append(_field("  within", _deadline(deadline)))
    if one := evidence.get("unanswered"):
        # that it was loaded is told with the first answers
        first = "to be loaded, or " if one.get("number") == 1 else ""
        place = f"call {one['number']} of {one['of']} or a later one: " if "number" in one else ""
        lines.append(_field("  waited", f"{first}for {place}{one['call']}"))
    seen = [words.format(evidence[name]) for name, words in _SEEN.items() if evidence.get(name)]
    lines += [_field("  seen", ", ".join(seen))] if seen else []
    compared = evidence.get("check", {}).get("got")
    # of a program that cannot be loaded there is a check, unless it was a compiler that refused it
    built = isinstance(verdict, Scored) and verdict.code == "load_error" and "check" not in evidence
    for name in ("stdout", "stderr"):
        if (text := str(evidence.get(name, ""))) and text != compared:
            lines.append(f"    {'compiler' if built else name}\n{indent(text.rstrip(), ' ' * 6)}")
    return "\n".join(lines)


def _deadline(said: Mapping[str, Any]) -> str:
    """A CPU limit that was learnt: where it cut, from what, and how often that kills what would pass."""
    if said["audit"]:
        return f"none: run again, for it was cut at {said['proposed_s']:.3g} s"
    learnt = "as declared" if said["level"] == "declared" else f"from {said['level']}"
    rule = "" if said["cpu_s"] == said["proposed_s"] else f", not yet at {said['proposed_s']:.3g} s"
    failed = f"; its reference {said['reference']}" if "reference" in said else ""
    step = said["step"] if isinstance(said["step"], str) else f"step from group {said['step']:,} on"
    return (
        f"{said['cpu_s']:.3g} s of CPU at slowness 1, {learnt}{rule}, of {said['declared_s']:g} s; "
        f"{step}; {said['used_s']:.3g} s used at slowness {said['score']:.3g}; "
        f"P(cut | would pass) < {said['bound']:.2%} (95 %){failed}"
    )


def _used(attempt: Attempt, evidence: Mapping[str, Any]) -> str:
    """How much of each limit, where that is known."""
    allowed, peak = evidence.get("allowed", {}), evidence.get("peak_bytes")
    used = {"cpu_s": attempt.clocks.cpu_s, "wall_s": attempt.clocks.wall_s, "memory_bytes": peak}
    said = []
    for name, value in used.items():
        if value is not None and (name in allowed or name == "memory_bytes"):
            scale, unit = (MIB, "MiB") if name.endswith("bytes") else (1, f"s of {name[:-2]}")
            most = f" of {allowed[name] / scale:g}" if name in allowed else ""
            said.append(f"{value / scale:.2f}{most} {unit}")
    others = {name: value for name, value in allowed.items() if name not in used}
    said += [f"all of {name.replace('_', ' ')} {value:,}" for name, value in others.items()]
    return ", ".join(said)


def _column(name: str, value: object) -> str:
    """A column; a text of several lines as a block."""
    if not isinstance(value, str) or "\n" not in value:
        return f"  {name}: {repr(value)[:_ENTRY]}"
    lines = value[:_TEXT].rstrip("\n").split("\n")
    more = [f"... and {len(lines) - 2 * _BLOCK} lines more"] if len(lines) > 2 * _BLOCK else []
    return f"  {name}:\n" + indent("\n".join([*lines[: 2 * _BLOCK], *more]), "    ")


def text_of(text: Text) -> str:
    """A prompt or completion as one text."""
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
