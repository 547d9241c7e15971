"""Whether what a candidate returned is what the tests say, decided where no candidate can reach.

Outcomes are values that were decoded from data, so comparing them runs no code of the candidate's: on exact
built-in values an expression means what it means in Python (`1 == 1.0 == True`, `(1,) != [1]`, NaN equals
nothing), and a value that did not come back by value (`Opaque`) equals nothing. Whatever goes wrong in
evaluating a check is the check's failure. Nothing costs more than its operands' size (`operations`).

Standard output is compared by its words: `same_output`.
"""

from __future__ import annotations

import builtins
import importlib
import json
import re
import sys
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeAlias

from steelyard.errors import printable
from steelyard.rewards.suites.bounds import Traits, comparable, traits_of
from steelyard.rewards.suites.operations import OPERATIONS
from steelyard.rewards.suites.suite import (
    After,
    Apply,
    Both,
    Check,
    Either,
    Expression,
    Literal,
    Result,
    Table,
)
from steelyard.sandbox.guest import showing


class Value(NamedTuple):
    """A call returned.

    Parameters
    ----------
    value
        What it returned.
    after
        Its positional arguments after the call, where a check looks at them.
    """

    value: Any
    after: Sequence[Any] = ()


class Raised(NamedTuple):
    """A call raised.

    Parameters
    ----------
    type
        The exception's name.
    message
        What it said.
    line
        The candidate's line that raised it.
    bases
        The names of its built-in bases, where the other side tells them.
    """

    type: str
    message: str = ""
    line: int | None = None
    bases: Sequence[str] = ()


Outcome: TypeAlias = Value | Raised
Seen: TypeAlias = dict[Result | After, Traits]


class Checked(NamedTuple):
    """What came of a check.

    Parameters
    ----------
    passed
        Whether it holds.
    line, text
        Where it stands in the tests, and what stands there.
    code
        Why it does not: `wrong_answer` or `exception`; `None` if it holds.
    reason
        What came back instead, for a person; empty if it holds.
    """

    passed: bool
    line: int
    text: str
    code: str | None = None
    reason: str = ""


class _RaisedError(Exception):
    def __init__(self, outcome: Raised) -> None:
        super().__init__()
        self.outcome = outcome


class _NeverCalledError(Exception):
    pass


def judge(table: Table, outcomes: Sequence[Outcome]) -> list[Checked]:
    """Judge each check of a table.

    Parameters
    ----------
    table
        The calls and checks.
    outcomes
        What came of the calls, in their order; fewer where the candidate was ended.

    Examples
    --------
    >>> check = Check(1, "assert f(2) == 4", Apply("==", (Result(0), Literal(4))))
    >>> judge(Table((), (check,)), [Value(5)])[0].reason
    'f(2) == 4: 5 came back'
    """
    seen: Seen = {}
    made: dict[int, Any] = {}
    return [judge_check(check, outcomes, seen, made) for check in table.checks]


def judge_check(
    check: Check, outcomes: Sequence[Outcome], seen: Seen, made: dict[int, Any] | None = None
) -> Checked:
    """Judge one check of a table, on outcomes as for `judge`.

    Parameters
    ----------
    check, outcomes
        The check, and what came of the calls.
    seen
        What checks before this one have found out about the values; empty at first.
    made
        What they have made of them; empty at first.
    """
    try:
        if check.raises:
            return _raising(check, outcomes)
        if "numpy" in sys.modules or not _with_stated(check.expression):
            _comparable(check.expression, outcomes, seen)
        if evaluate(check.expression, outcomes, made):
            return Checked(True, check.line, check.text)
        code, reason = "wrong_answer", _came_back(check.expression, outcomes)
    except _RaisedError as error:
        code, reason = "exception", _said(error.outcome)
    except _NeverCalledError:
        code, reason = "exception", "the candidate ended before this call"
    except Exception as error:  # noqa: BLE001 - values of any shape meet operations of any kind
        code, reason = "wrong_answer", f"{_came_back(check.expression, outcomes)}; {_why(error)}"
    return Checked(False, check.line, check.text, code, f"{check.text.removeprefix('assert ')}: {reason}")


def _comparable(expression: Expression, outcomes: Sequence[Outcome], seen: Seen) -> None:
    """Refuse values that do not compare in linear time; each is looked through once, however many checks."""
    read = set(leaves(expression))
    for leaf in read - seen.keys():
        if leaf.call < len(outcomes) and isinstance(outcomes[leaf.call], Value):
            seen[leaf] = traits_of(evaluate(leaf, outcomes))
    comparable(seen[leaf] for leaf in read & seen.keys())


def _why(error: Exception) -> str:
    """Say what went wrong; of a text that may hold the value only the beginning is looked at."""
    said = error.args[0] if error.args else ""
    words = " ".join(said[:300].split()) if isinstance(said, str) else ""
    return printable(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _with_stated(expression: Expression) -> bool:
    """Whether one result is compared with what the tests state, and nothing else is."""
    kinds = [type(operand) for operand in expression.operands] if isinstance(expression, Apply) else []
    return sorted(kinds, key=str) == [Literal, Result]


def _raising(check: Check, outcomes: Sequence[Outcome]) -> Checked:
    """Judge a call that must raise."""
    where = check.text.removesuffix(":")
    try:
        value = evaluate(check.expression, outcomes)
    except _RaisedError as error:
        raised = error.outcome
        if _is_one_of(raised, check.raises):
            return Checked(True, check.line, check.text)
        return Checked(False, check.line, check.text, "exception", f"{where}: {_said(raised)}")
    said = f"{where}: {shown(value)} came back, no {' or '.join(check.raises)}"
    return Checked(False, check.line, check.text, "wrong_answer", said)


def _is_one_of(raised: Raised, wanted: Sequence[str]) -> bool:
    """Whether an exception is one of the wanted ones, by Python's own tree of built-in exceptions.

    A class of the candidate's own is what its bases say; without them it is an `Exception` and nothing else.
    """
    names = {raised.type, *raised.bases}
    for name in tuple(names):
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            names.update(base.__name__ for base in kind.__mro__)
        elif name == raised.type and not raised.bases:
            names.update(("Exception", "BaseException"))
    return not names.isdisjoint(wanted)


def evaluate(expression: Expression, outcomes: Sequence[Outcome], made: dict[int, Any] | None = None) -> Any:  # noqa: ANN401
    """Evaluate an expression on what came of the calls.

    Parameters
    ----------
    expression, outcomes
        What is asked of what.
    made
        What operations made of these outcomes before, by their identity: what a name stands for in many
        checks is worked out once.

    Raises
    ------
    Exception
        Whatever an operation raises on these values, as it would in Python.
    """
    if type(expression) is Literal:
        return expression.value
    if type(expression) is Apply:
        if made is not None and id(expression) in made:
            return made[id(expression)]
        operands = [evaluate(operand, outcomes, made) for operand in expression.operands]
        keywords = {name: evaluate(value, outcomes, made) for name, value in expression.keywords}
        result = OPERATIONS[expression.operation](*operands, **keywords)
        if made is not None:
            made[id(expression)] = result
        return result
    if isinstance(expression, Both | Either):
        value = None
        for part in expression.parts:
            value = evaluate(part, outcomes, made)
            if bool(value) is isinstance(expression, Either):
                break
        return value
    assert isinstance(expression, Result | After)  # noqa: S101 - for the type checker: nothing else is left
    if expression.call >= len(outcomes):
        raise _NeverCalledError
    outcome = outcomes[expression.call]
    if isinstance(outcome, Raised):
        raise _RaisedError(outcome)
    return outcome.value if isinstance(expression, Result) else outcome.after[expression.position]


def _came_back(expression: Expression, outcomes: Sequence[Outcome]) -> str:
    """Say what the calls of a check returned."""
    said = []
    for part in islice(leaves(expression), 3):
        outcome = outcomes[part.call] if part.call < len(outcomes) else None
        if isinstance(outcome, Value) and isinstance(part, Result):
            said.append(f"{shown(outcome.value)} came back")
        elif isinstance(outcome, Value) and part.position < len(outcome.after):
            said.append(f"{shown(outcome.after[part.position])} was left in the argument")
    return ", ".join(said)


def leaves(expression: Expression) -> list[Any]:
    """Return the results and arguments that an expression reads."""
    if isinstance(expression, Result | After):
        return [expression]
    if isinstance(expression, Apply):
        inner = (*expression.operands, *(value for _, value in expression.keywords))
        return [leaf for part in inner for leaf in leaves(part)]
    if isinstance(expression, Both | Either):
        return [leaf for part in expression.parts for leaf in leaves(part)]
    return []


def _said(raised: Raised) -> str:
    where = f" in line {raised.line}" if raised.line else ""
    message = " ".join(raised.message[:300].split())[:200]
    return printable(f"{raised.type[:100]}{where}{': ' + message if message else ''}")


def shown(value: Any, most: int = 120) -> str:  # noqa: ANN401
    """Show a value in at most so many characters, as any file and terminal takes them."""
    return printable(showing.shown(value, most))


def encode_calls(table: Table) -> bytes:
    """Write the calls of a table as its process reads them: JSON, values tagged with their types."""

    def tagged(value: Any) -> Any:  # noqa: ANN401
        return json.loads(_codec().encode(value))

    calls = [
        [call.function, tagged(list(call.arguments)), tagged(call.keywords), call.in_place]
        for call in table.calls
    ]
    return json.dumps(calls, separators=(",", ":")).encode()


def _codec() -> Any:  # noqa: ANN401 - a module
    return importlib.import_module("steelyard.sandbox.guest.codec")


_WORD = re.compile(r"\S+")
_DECIMAL = re.compile(r"([+-]?)(\d{1,400})(?:\.(\d{0,400}))?", re.ASCII)


def same_output(expected: str, got: str) -> bool:
    r"""Whether two outputs are the same words in the same order.

    How words are spaced and broken into lines does not count, as in the checkers of programming contests
    and of APPS, whose golds carry the spacing of whatever wrote them. Words are compared as text; a number
    with a decimal point also equals the same number with other trailing zeros (`3.0`, `3`, `3.000`), which
    LiveCodeBench's checker allows too. Nothing is rounded, and case counts.

    Examples
    --------
    >>> same_output("1 2\nYES\n", "1 2  \r\nYES"), same_output("3.0", "3"), same_output("3.01", "3")
    (True, True, False)
    """
    if expected == got:
        return True
    for found, other in zip_longest(_WORD.finditer(expected), _WORD.finditer(got)):  # a word at a time
        if found is None or other is None or not _same_word(found[0], other[0]):
            return False
    return True


def _same_word(one: str, other: str) -> bool:
    return one == other or (("." in one or "." in other) and _plain(one) == _plain(other))


def _plain(word: str) -> str:
    """Write a decimal number without what does not change it; any other word as it is."""
    found = _DECIMAL.fullmatch(word)
    if not found:
        return word
    number = f"{found[2]}.{(found[3] or '').rstrip('0')}".removesuffix(".")
    return f"-{number}" if found[1] == "-" and number.strip("0.") else number
