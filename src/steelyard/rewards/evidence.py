"""What is known of a check that failed: kept with the attempt, for whoever asks why.

It is made on the host, or by a judge, after the candidate has answered, and goes to the record alone: nothing
of it is ever in a candidate's process. Every text is bounded, whatever the tests and the candidate hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from steelyard.errors import printable
from steelyard.execution import Ended, Execution
from steelyard.rewards.suites import Outcome, Raised, Table
from steelyard.rewards.suites.comparing import evaluate, leaves, same_output, shown
from steelyard.rewards.suites.suite import Apply, Both, Call, Check, Either, Expression, Literal, Pair
from steelyard.sandbox.guest import showing

_CALLS: Final = 3  # of a check
_CALL: Final = 300
_TEXT: Final = showing.LONG
_LINE: Final = 200
_WORD: Final = re.compile(r"\S+")
_TEXTS: Final = ("text", "expected", "got", "parts")
_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not", "approx"})


def failed_check(
    table: Table, at: int, outcomes: Sequence[Outcome], source: bytes, made: dict[int, Any]
) -> dict[str, Any]:
    """Say what is known of a table's check that does not hold.

    Parameters
    ----------
    table, at
        The check.
    outcomes, made
        What came of the calls, and what other checks made of them.
    source
        The candidate's.
    """
    check = table.checks[at]
    calls = list(dict.fromkeys(leaf.call for leaf in leaves(check.expression)))[:_CALLS]
    told = _placed(at, len(table.checks), check) | {"calls": [call_text(table.calls[call]) for call in calls]}
    raised = next(
        (outcomes[call] for call in calls if call < len(outcomes) and _is_raised(outcomes[call])), None
    )
    if isinstance(raised, Raised):
        told["error"] = error_in(source, f"{raised.type}: {raised.message}", raised.line)
    wanted = " or ".join(check.raises)
    try:
        if check.raises:
            return told | {
                "expected": f"raises {wanted}",
                "got": shown(evaluate(check.expression, outcomes), _TEXT),
            }
        sides = _sides(check.expression, outcomes, made)
        return told | {name: printable(text) for name, text in sides.items()}
    except Exception:  # noqa: BLE001 - a call raised, or an operation cannot be performed on what came back
        return told | ({"expected": f"raises {wanted}"} if wanted else {})


def unanswered(table: Table, answered: int) -> dict[str, Any]:
    """Say which call had no answer yet when a candidate ended."""
    if answered >= len(table.calls):
        return {}
    call = call_text(table.calls[answered])
    return {"unanswered": {"number": answered + 1, "of": len(table.calls), "call": call}}


def failed_pair(number: int, of: int, pair: Pair, execution: Execution) -> dict[str, Any]:
    """Say what is known of a run whose output is not what was expected."""
    got = execution.stdout.decode(errors="replace")
    texts = {"input": pair.stdin, "expected": pair.stdout, "got": got}
    told: dict[str, Any] = {"number": number, "of": of, **{name: _cut(text) for name, text in texts.items()}}
    if execution.code and execution.ended is Ended.EXIT and same_output(pair.stdout, got):
        del told["expected"], told["got"]
        return told | {"ended": f"its output is right, but it ended with status {execution.code}"}
    for words in () if execution.code else zip_longest(*map(_WORD.finditer, (pair.stdout, got))):
        expected, came = ("" if found is None else found[0] for found in words)
        if not same_output(expected, came):
            line = next(found.string.count("\n", 0, found.start()) + 1 for found in words if found)
            one, other = (repr(word[:_LINE]) if word else "nothing" for word in (expected, came))
            return told | {"parts": printable(f"in line {line}: {one} expected, {other} came back")}
    return told


def judged_check(said: Mapping[str, Any], source: bytes) -> dict[str, Any]:
    """Read what a judge told: texts and numbers under names that are known."""
    call = _cut(str(said.get("call", "")))
    if said.get("unanswered"):
        return {"unanswered": {"call": call}} if call else {}
    told = {name: said[name] for name in ("number", "of", "line") if type(said.get(name)) is int}
    told |= {name: _cut(str(said[name])) for name in _TEXTS if isinstance(said.get(name), str)}
    if call:
        told["calls"] = [call]
    if isinstance(error := said.get("error"), str):
        told["error"] = error_in(source, error, said.get("raised"))
    return {"check": told} if told else {}


def error_in(source: bytes, said: str, line: object) -> dict[str, Any]:
    """Say what was raised, and what stands in the candidate's line that raised it."""
    told: dict[str, Any] = {"said": _cut(" ".join(said[:_LINE].split()).removesuffix(":"))}
    if type(line) is int:
        told["line"] = line
        lines = source.decode(errors="replace").split("\n")
        if 0 < line <= len(lines) and (text := lines[line - 1].strip()):
            told["source"] = printable(text[:_LINE])
    return told


def call_text(call: Call) -> str:
    """Write a call as it would stand in a test.

    Examples
    --------
    >>> call_text(Call("f", ([1, 2],), {"k": "x"}))
    "f([1, 2], k='x')"
    """
    given = [shown(value, _CALL) for value in call.arguments]
    given += [f"{name}={shown(value, _CALL)}" for name, value in call.keywords.items()]
    text = f"{call.function}({', '.join(given)})"
    return text if len(text) <= _CALL else f"{text[: _CALL - 3]}..."


def _placed(at: int, of: int, check: Check) -> dict[str, Any]:
    line = {"line": check.line} if check.line else {}
    return {"number": at + 1, "of": of, **line, "text": printable(check.text[:_LINE])}


def _is_raised(outcome: Outcome) -> bool:
    return isinstance(outcome, Raised)


def _sides(expression: Expression, outcomes: Sequence[Outcome], made: dict[int, Any]) -> dict[str, str]:
    """What the part of a condition that decided it expected and got."""
    if isinstance(expression, Both | Either):
        parts, wanted = expression.parts, isinstance(expression, Either)
        deciding = (part for part in parts if bool(evaluate(part, outcomes, made)) is wanted)
        return _sides(next(deciding, parts[-1]), outcomes, made)
    if isinstance(expression, Apply):
        sign, operands = expression.operation, expression.operands
        if sign == "not":
            return showing.truth(evaluate(operands[0], outcomes, made), wanted=False)
        if sign in _COMPARISONS | {"json"}:
            left, right = (evaluate(operand, outcomes, made) for operand in operands[:2])
            mirrored = isinstance(operands[0], Literal) and not isinstance(operands[1], Literal)
            return showing.sides("==" if sign == "json" else sign, left, right, mirrored=mirrored)
    return showing.truth(evaluate(expression, outcomes, made), wanted=True)


def _cut(text: str) -> str:
    return printable(text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text):,} characters)")
