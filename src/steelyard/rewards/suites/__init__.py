"""Tests of code, compiled once for a group, and what candidates returned compared with them.

`compiling` turns the column `tests` into a `Suite` or a `Fault`; `extract` finds the candidate's source in
a completion; `comparing` judges what came back. `suite` has the values, `reading` and `walking` the way from
Python to a table of calls, `pairs` the tests that are data, `operations` what both sides compute with.
Nothing here runs a line of a row or of a completion.
"""

from steelyard.rewards.suites.comparing import (
    Checked,
    Outcome,
    Raised,
    Value,
    encode_calls,
    judge,
    same_output,
)
from steelyard.rewards.suites.compiling import compile_suite
from steelyard.rewards.suites.extract import Failure, Source, source_of
from steelyard.rewards.suites.suite import Call, Check, Fault, Pair, Suite, Table

__all__ = [
    "Call",
    "Check",
    "Checked",
    "Failure",
    "Fault",
    "Outcome",
    "Pair",
    "Raised",
    "Source",
    "Suite",
    "Table",
    "Value",
    "compile_suite",
    "encode_calls",
    "judge",
    "same_output",
    "source_of",
]
