"""From what a boundary saw to a verdict: the words, the codes, and who is suspect.

An end that the candidate brought about is the floor with a code; one that could be the machine's doing is
raised as suspect, for the incentive law to try again.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from steelyard.blame import ending, told_code
from steelyard.clock import Clocks
from steelyard.errors import SuspectError
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, Scored

ISOLATED: Final = "isolated"
COOPERATIVE: Final = "cooperative"

_SHOWN: Final = 2_000  # bytes of output that are kept with an attempt
_LIMITS: Final = {
    "idle": "idle_s",
    "processes": "processes",
    "threads": "processes",
    "files": "file_bytes",
    "output": "output_bytes",
}


class Paying(NamedTuple):
    """What checks that hold are worth.

    Parameters
    ----------
    floor
        What a candidate gets that was cut or died, or failed a check.
    share
        Whether the share of checks that hold is paid.
    """

    floor: float
    share: bool

    def checks(
        self, passed: int, planned: int, code: str | None, reason: str | None, *, integrity: str = ISOLATED
    ) -> Scored:
        """Pay for checks: 1 if all hold."""
        if passed == planned > 0:
            return Scored(1.0, None, None, integrity)
        value = passed / planned if self.share and planned else self.floor
        words = f"{passed} of {planned} checks hold; {reason}" if self.share else reason
        return Scored(value, told_code(code or "no_verdict", reason or ""), words, integrity)

    def ended(
        self, execution: Execution, fault: str | None, *, where: str = "", integrity: str = ISOLATED
    ) -> Scored:
        """Judge a candidate that ended before its checks were through.

        Raises
        ------
        SuspectError
            If that may not be its own doing.
        """
        code = ending(execution)
        if code is None:
            raise suspect("wall" if execution.limit == "wall" else None, execution, integrity)
        words = where + (_words(execution) if fault is None else f"{fault} ({_words(execution)})")
        if fault is None and execution.ended is Ended.EXIT and execution.limit is None:
            words = f"{where}it ended by itself (status {execution.code}) before its tests did"
        if code == "no_verdict" and fault is not None:
            code = "protocol"
        return Scored(self.floor, code, words, integrity)


def tell(
    context: Context,
    execution: Execution,
    clocks: Clocks | None = None,
    *,
    limits: Limits | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Hand on the clocks, and what there is to see of a candidate's end and of the check that failed.

    Parameters
    ----------
    context, execution
        The attempt's, and what became of the candidate.
    clocks
        Those of several executions together.
    limits
        What it was allowed.
    more
        What is known besides (`evidence`).
    """
    context.report(clocks or execution.clocks)
    seen: dict[str, Any] = {"ended": execution.ended.value, **execution.evidence, **(more or {})}
    for name in ("code", "limit", "peak_bytes"):
        if (value := getattr(execution, name)) is not None:
            seen[name] = value
    for name in ("stdout", "stderr"):
        if text := getattr(execution, name)[-_SHOWN:]:
            seen[name] = text.decode(errors="replace")
    as_it_should = {"ended": "exit", "code": 0, "peak_bytes": execution.peak_bytes}
    if more or (execution.ended is not Ended.ENOUGH and seen != as_it_should):
        if limits is not None:
            names = ("cpu_s", "wall_s", "memory_bytes", *filter(None, [_LIMITS.get(execution.limit or "")]))
            seen["allowed"] = {name: getattr(limits, name) for name in names}
        context.note(seen | ({"fresh": True} if context.fresh else {}))


def suspect(cause: str | None, execution: Execution, integrity: str) -> SuspectError:
    """Make the error of an attempt that nobody can be blamed for yet; without a cause, contact was lost."""
    words = cause if cause not in {None, "wall"} else _words(execution)
    evidence = {**execution.evidence, "integrity": integrity, "words": words}
    cause = cause or f"contact was lost ({words})"
    return SuspectError(cause, clocks=execution.clocks, evidence=evidence)


def _words(execution: Execution) -> str:
    if execution.limit == "protocol":
        return "it sent what is no answer"
    if execution.limit is not None:
        cpu_s, wall_s = execution.clocks.cpu_s or 0.0, execution.clocks.wall_s or 0.0
        return f"its limit for {execution.limit} was used up ({cpu_s:.2f} CPU-s, {wall_s:.2f} s)"
    what = {
        Ended.EXIT: f"exit status {execution.code}",
        Ended.SIGNAL: _signal(execution.code),
        Ended.LOST: "nobody knows how it ended",
        Ended.ENOUGH: "it was ended",
    }
    return what.get(execution.ended, execution.ended.value)


def _signal(number: int | None) -> str:
    """A signal by its name, where it has one."""
    names = {one.value: one.name for one in signal.Signals}
    return names.get(number or 0, f"signal {number}")
