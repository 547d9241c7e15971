"""What a candidate says of its calls, heard as it comes, and judged as soon as it can be.

Everything here is read from a process that the candidate owns: a message that is malformed, surplus or
early is its failure, and costs no more than its length. Nothing is read after the first such message, and
each of the others brings an outcome, so there are no more of them than calls, a beginning and an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from steelyard.errors import printable
from steelyard.rewards.evidence import error_in, failed_check, unanswered
from steelyard.rewards.suites import Checked, Outcome, Raised, Table, Value
from steelyard.rewards.suites.comparing import Seen, judge_check, leaves
from steelyard.sandbox import Opinion
from steelyard.sandbox.guest import codec

_NO_ANSWER: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def report_in(replies: Sequence[bytes], nonce: str) -> Opinion | None:
    """Read what a cooperative run reported; `None` if it reported nothing with this nonce.

    Examples
    --------
    >>> report_in([b'["report", {"nonce": "guessed", "collected": 1, "passed": 1}]'], "drawn") is None
    True
    """
    for frame in replies:
        try:
            kind, *told = codec.loads(frame)
            if kind == "load_error":
                return Opinion(0, 0, "load_error", f"{_words(told[0], 80)}: {_words(told[1], 200)}")
            report = told[0]
            if kind != "report" or report["nonce"] != nonce:
                continue
            planned, passed = report["collected"], report["passed"]
            if type(planned) is not int or type(passed) is not int or not 0 <= passed <= planned:
                continue
            code = None if report["all_passed"] is True and planned else "wrong_answer"
            return Opinion(planned, passed, code if planned else "no_verdict", _words(report["reason"], 300))
        except (ValueError, TypeError, KeyError, IndexError):
            continue
    return None


class TableHearing:
    """The outcomes of a table's calls, and what they are worth.

    Parameters
    ----------
    table
        The calls that are made, and what must come back.
    share
        Whether all checks count; else the first that does not hold is enough.
    """

    def __init__(self, table: Table, *, share: bool) -> None:
        self._table = table
        self._share = share
        self._outcomes: list[Outcome] = []
        self._seen: Seen = {}
        self._made: dict[int, Any] = {}
        self._next = 0
        self._needed: int | None = None  # calls that the next check needs, once it was looked at
        self._passed = 0
        self._first: Checked | None = None
        self._first_at: int | None = None  # its place among the checks
        self._unloaded: tuple[str, Any] | None = None  # why it is no module: what was raised, and the line
        self._loaded = False
        self._done = False
        self._failed: Exception | None = None
        self.fault: str | None = None
        """What was wrong with its messages."""

    def listen(self, frame: bytes) -> bool:
        """Take a frame; true if that is enough for a verdict, and then no more of them are read."""
        if not self._enough():
            try:
                self._take(codec.loads(frame))
            except _NO_ANSWER as error:
                self.fault = printable(f"it sent what is no answer: {error}"[:200])
            else:
                self._compare()
        return self._enough()

    def _enough(self) -> bool:
        if self.fault is not None or self._failed is not None:
            return True
        return self._first is not None and not self._share and not self._done

    def _compare(self) -> None:
        try:
            self._judge()
        except Exception as error:  # noqa: BLE001 - `said` raises it: it is no fault of a message
            self._failed = error

    def _take(self, said: Any) -> None:  # noqa: ANN401 - whatever a candidate sends
        kind = said[0]
        if self._done or (kind in {"loaded", "load_error"}) is self._loaded:
            raise ValueError("a message out of turn")
        if kind == "loaded":
            self._loaded = True
        elif kind == "load_error":
            _, name, message, line = said
            where = f" in line {_line(line)}" if line else ""
            words = f"{_words(name, 80)}{where}: {_words(message, 200)}"
            self._first = Checked(False, 0, "", "load_error", words)
            self._unloaded = (f"{_words(name, 80)}: {_words(message, 200)}", _line(line))
            self._loaded = self._done = True
        elif kind == "r":
            _, first, outcomes = said
            asked = len(self._table.calls) - len(self._outcomes)
            if first != len(self._outcomes) or not 0 < len(outcomes) <= asked:
                raise ValueError("outcomes that nobody asked for")
            self._outcomes += [_outcome(one) for one in outcomes]
        elif kind == "done" and len(self._outcomes) == len(self._table.calls):
            self._done = True
        else:
            raise ValueError("a message of no known kind")

    def _judge(self) -> None:
        """Judge the checks whose calls have all come back."""
        checks = self._table.checks
        while self._next < len(checks) and (self._share or self._first is None):
            check = checks[self._next]
            if self._needed is None:
                self._needed = 1 + max((leaf.call for leaf in leaves(check.expression)), default=-1)
            if not self._done and self._needed > len(self._outcomes):
                return
            self._next += 1
            self._needed = None
            checked = judge_check(check, self._outcomes, self._seen, self._made)
            if checked.passed:
                self._passed += 1
            elif self._first is None:
                self._first, self._first_at = checked, self._next - 1

    def evidence(self, source: bytes) -> dict[str, Any]:
        """What is known of the first check that does not hold, and of the first call without an answer."""
        told: dict[str, Any] = {}
        if self._unloaded is not None:
            told["check"] = {"error": error_in(source, *self._unloaded)}
        elif self._first_at is not None:
            told["check"] = failed_check(self._table, self._first_at, self._outcomes, source, self._made)
        if not self._done and not self._enough():
            told |= unanswered(self._table, len(self._outcomes))
        return told

    def said(self) -> tuple[int, Checked | None] | None:
        """How many checks hold, and the first that does not; `None` if that is not known.

        What comparing raised is raised here: whether it was the completion is left to the incentive law.
        """
        if self._failed is not None:
            raise self._failed
        if self.fault is not None:
            return None
        if self._done or (self._first is not None and not self._share):
            return self._passed, self._first
        return None


def _outcome(said: Any) -> Outcome:  # noqa: ANN401
    if said[0] == "v":
        _, value, *after = said
        if after:
            return Value(codec.from_tree(value), [codec.from_tree(one) for one in after[0]])
        return Value(codec.from_tree(value))
    _, name, message, line, *bases = said
    if said[0] != "x":
        raise ValueError("an outcome of no known kind")
    names = [_words(base, 80) for base in (bases[0] if bases else [])[:40]]
    return Raised(_words(name, 80), _words(message, 300), _line(line), names)


def _words(said: Any, most: int) -> str:  # noqa: ANN401
    """The beginning of a text, in one line."""
    if type(said) is not str:
        raise ValueError("words that are no text")
    return printable(" ".join(said[:most].split()))


def _line(said: Any) -> int | None:  # noqa: ANN401
    return said if type(said) is int and 0 < said < 1_000_000_000 else None
