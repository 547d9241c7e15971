"""Tests that are data: inputs and outputs, as LiveCodeBench, APPS and TACO publish them.

Two forms: `[{"input": ..., "output": ...}]`, and `{"inputs": [...], "outputs": [...]}`, either also as JSON
text. Without `fn_name` they are standard input and standard output; a list of lines is joined. With `fn_name`
(or `"testtype": "functional"` and an entry point) they are calls: an input is a list of arguments, or text
with one JSON value a line; an output is a value, or JSON text of one. JSON knows no tuples, so a tuple that
comes back equals the list that was written. APPS and TACO write each output of a call in a list of one; there
a bare value and the list both count, as in APPS's own checker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.rewards.suites.bounds import sendable
from steelyard.rewards.suites.suite import (
    Apply,
    Call,
    Check,
    Either,
    Expression,
    Fault,
    Literal,
    Pair,
    Result,
    Table,
)

_FORMS = 'write [{"input": "...", "output": "..."}] or {"inputs": [...], "outputs": [...]}'


def read_pairs(
    tests: Mapping[str, Any] | Sequence[Any], entry_point: str
) -> tuple[Pair, ...] | Table | Fault:
    """Read tests that are data.

    Examples
    --------
    >>> read_pairs([{"input": "1 2", "output": "3"}], "")
    (Pair(stdin='1 2', stdout='3'),)
    >>> read_pairs({"inputs": ["1"], "outputs": []}, "").reason
    "column 'tests' has 1 inputs and 0 outputs: give each input its output"
    """
    columns = _columns(tests)
    if isinstance(columns, Fault):
        return columns
    inputs, outputs, function = columns
    if (
        function is None
        and entry_point
        and any(isinstance(given, list) for given in inputs)
        and not any(map(_is_lines, inputs))
    ):
        function = entry_point  # lists of arguments, and the row says whose
    if len(inputs) != len(outputs):
        said = f"has {len(inputs)} inputs and {len(outputs)} outputs: give each input its output"
        return Fault(f"column 'tests' {said}")
    if not inputs:
        return Fault(
            "column 'tests' holds no test: give the row at least one input with its output, or drop it"
        )
    if function is None:
        return _stdio(inputs, outputs)
    name = function or entry_point
    if not name.isidentifier():
        return Fault("column 'tests' calls a function without a name: give 'fn_name' or column 'entry_point'")
    return _calls(name, inputs, outputs)


def _columns(tests: Mapping[str, Any] | Sequence[Any]) -> tuple[list[Any], list[Any], str | None] | Fault:
    """Return inputs, outputs and the function: `None` for standard input, empty for the entry point."""
    if isinstance(tests, Mapping):
        inputs, outputs = tests.get("inputs"), tests.get("outputs")
        function = tests.get("fn_name")
        if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
            return Fault(f"column 'tests' is an object without the lists 'inputs' and 'outputs': {_FORMS}")
        if function is not None and not isinstance(function, str):
            return Fault(f"column 'tests' has a 'fn_name' that is {type(function).__name__}, not text")
        return list(inputs), list(outputs), function or None
    if not all(isinstance(test, Mapping) and "input" in test and "output" in test for test in tests):
        return Fault(f"column 'tests' is a list with an entry that has no 'input' and 'output': {_FORMS}")
    kinds = {test.get("testtype", "stdin") for test in tests}
    if kinds > {"functional"} or (kinds and not kinds <= {"functional", "stdin"}):
        return Fault(f"column 'tests' mixes or does not know the test types {sorted(map(str, kinds))}")
    function = "" if kinds == {"functional"} else None
    return [test["input"] for test in tests], [test["output"] for test in tests], function


def _stdio(inputs: list[Any], outputs: list[Any]) -> tuple[Pair, ...] | Fault:
    pairs = []
    for at, (given, wanted) in enumerate(zip(inputs, outputs, strict=True)):
        stdin, stdout = _lines(given), _lines(wanted)
        if stdin is None or stdout is None:
            name, value = ("input", given) if stdin is None else ("output", wanted)
            return Fault(
                f"column 'tests' has an {name} (number {at + 1}) that is {type(value).__name__}: write text, "
                "or a list of lines; for calls of a function add 'fn_name'"
            )
        pairs.append(Pair(stdin, stdout))
    return tuple(pairs)


def _is_lines(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    )


def _lines(value: Any) -> str | None:  # noqa: ANN401 - whatever a row holds
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return None


def _calls(name: str, inputs: list[Any], outputs: list[Any]) -> Table | Fault:
    calls, checks = [], []
    for at, (given, wanted) in enumerate(zip(inputs, outputs, strict=True)):
        try:
            arguments = [json.loads(line) for line in given.split("\n")] if isinstance(given, str) else given
            value = json.loads(wanted) if isinstance(wanted, str) and isinstance(given, str) else wanted
        except (ValueError, RecursionError):
            form = "one JSON value a line, its output one value"
            return Fault(f"column 'tests', number {at + 1}: an input of {name} is {form}")
        if not isinstance(arguments, list | tuple):
            return Fault(f"column 'tests', number {at + 1}: an input of {name} is a list of its arguments")
        equal: Expression = Apply("json", (Result(at), Literal(value)))
        if not isinstance(given, str) and isinstance(value, list) and len(value) == 1:
            equal = Either((Apply("json", (Result(at), Literal(value[0]))), equal))
        calls.append(Call(name, tuple(arguments), {}))
        checks.append(Check(0, f"{name}(input {at + 1}) == output {at + 1}", equal))
    why, _ = sendable(call.arguments for call in calls)
    return Fault(f"column 'tests' holds {why}") if why else Table(tuple(calls), tuple(checks))
