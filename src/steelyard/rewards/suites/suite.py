"""What a compiled suite is: plain values, picklable, made once for a group and read for each candidate.

An *expression* is what an assert says, over calls of the candidate's functions whose values are not known
yet: `Literal`, `Result` (what call n returned), `After` (an argument of call n after the call), `Apply` (a
pure operation on these, see `operations`), `Both` and `Either` (`and`, `or`: the right side is evaluated
only where Python would).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias
from typing import Literal as Word

Kind = Word["table", "judge", "stdio", "cooperative"]


class Fault(NamedTuple):
    """Why a row's tests cannot judge anything, in words for whoever wrote the row."""

    reason: str


class Literal(NamedTuple):
    """A value that the suite states."""

    value: Any


class Result(NamedTuple):
    """What a call returned."""

    call: int


class After(NamedTuple):
    """A positional argument of a call, as it is after the call."""

    call: int
    position: int


class Apply(NamedTuple):
    """An operation by its name, on expressions."""

    operation: str
    operands: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()


class Both(NamedTuple):
    """Python's `and`."""

    parts: tuple[Any, ...]


class Either(NamedTuple):
    """Python's `or`."""

    parts: tuple[Any, ...]


Expression: TypeAlias = Literal | Result | After | Apply | Both | Either


class Call(NamedTuple):
    """One call of a candidate's function.

    Parameters
    ----------
    function
        Its name in the candidate's module.
    arguments, keywords
        Plain values.
    in_place
        Whether a check looks at the arguments after the call.
    """

    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    in_place: bool = False


class Check(NamedTuple):
    """One check of a suite.

    Parameters
    ----------
    line
        Where it stands in the tests; 0 where they are no text.
    text
        What stands there.
    expression
        Must be true.
    raises
        The exceptions one of which the call must raise instead of returning.
    """

    line: int
    text: str
    expression: Expression
    raises: tuple[str, ...] = ()


class Table(NamedTuple):
    """A suite without code: calls to make in this order, and checks of what came back."""

    calls: tuple[Call, ...]
    checks: tuple[Check, ...]


class Pair(NamedTuple):
    """A standard input and the standard output that it must bring about."""

    stdin: str
    stdout: str


class Suite(NamedTuple):
    """Tests, compiled.

    Parameters
    ----------
    kind
        How they are run: as a call `table`, by a `judge` process, as `stdio`, or `cooperative`.
    digest
        Names tests, entry point and settings.
    planned
        Checks that a candidate must pass: of a table or of pairs all there are; of a judge or a cooperative
        suite the asserts in its text, for the number that are reached only a run tells.
    table
        The calls and checks, if it is one.
    pairs
        Inputs and outputs, if it is `stdio`.
    source
        The tests' Python, if it is `judge` or `cooperative`.
    entry_point
        The function that `check(candidate)` is given; empty where there is none.
    names
        The names that the tests use of the candidate: they tell its code from an example of its use.
    why_not_table
        What in the tests needs a Python process.
    """

    kind: Kind
    digest: str
    planned: int
    table: Table | None = None
    pairs: tuple[Pair, ...] = ()
    source: bytes = b""
    entry_point: str = ""
    names: tuple[str, ...] = ()
    why_not_table: str = ""
