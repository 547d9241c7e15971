"""Pairs of input and output: a fresh process of the candidate's for each, and what it wrote compared here."""

from __future__ import annotations

import json

from steelyard.clock import Clocks
from steelyard.errors import SandboxError, SuspectError
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, Scored
from steelyard.rewards.evidence import failed_pair
from steelyard.rewards.facts import ISOLATED, Paying, tell
from steelyard.rewards.suites import Suite, same_output
from steelyard.rewards.toolchains import Built, seen
from steelyard.sandbox import Boundary


async def run_pairs(
    boundary: Boundary, built: Built, suite: Suite, *, limits: Limits, context: Context, paying: Paying
) -> Scored:
    """Run a program once for each input, until an output is wrong.

    Parameters
    ----------
    boundary, built, limits
        Where runs what, under which limits for each input.
    suite
        Holds the pairs.
    context
        The attempt's.
    paying
        What they are worth; for the share of them all are run.

    Raises
    ------
    SandboxError
        If it never began.
    SuspectError
        If contact with it was lost, or it ran into the wall.
    """
    passed, clocks, first = 0, built.clocks or Clocks(), None
    for number, pair in enumerate(suite.pairs, start=1):
        stdin = pair.stdin.encode("utf-8", "surrogatepass")
        try:
            execution = await boundary.run(built.program._replace(stdin=stdin), limits, fresh=context.fresh)
        except SandboxError as error:
            if number == 1 and built.clocks is None:
                raise
            words = f"input {number} never began: {error.cause}"  # though it ran before, and may be to blame
            evidence = {"integrity": ISOLATED, "words": words}
            raise SuspectError(words, clocks=clocks, evidence=evidence) from error
        if built.program.mode == "command":
            execution = seen(execution, limits)
        clocks = _added(clocks, execution.clocks)
        exited = execution.ended is Ended.EXIT
        fault = _output_fault(pair.stdout, execution) if exited else None
        if first is None or not exited:  # of several the first that failed stays
            check = failed_pair(number, len(suite.pairs), pair, execution) if fault or not exited else None
            tell(context, execution, clocks, limits=limits, more={"check": check} if check else None)
        else:
            context.report(clocks)
        if not exited:
            said = _last_line(execution) if execution.ended is Ended.SIGNAL else None
            return paying.ended(execution, said, where=f"input {number}: ")
        if fault is None:
            passed += 1
        else:
            first = first or (fault[0], f"input {number} of {len(suite.pairs)}: {fault[1]}")
            if not paying.share:
                break
    return paying.checks(passed, suite.planned, *(first or (None, None)))


def _output_fault(expected: str, execution: Execution) -> tuple[str, str] | None:
    """Say what is wrong with a run that ended by itself."""
    if execution.code:
        last = _last_line(execution)
        said = f"; {last}" if last else ""
        return "exception" if last else "exit", f"exit status {execution.code}{said}"
    if execution.stdout == expected.encode("utf-8", "surrogatepass"):
        return None
    got = execution.stdout.decode(errors="replace")
    if same_output(expected, got):
        return None
    return "wrong_answer", f"{_brief(got)} was written, and {_brief(expected)} expected"


def _last_line(execution: Execution) -> str | None:
    """The end of what it wrote to standard error."""
    last = execution.stderr[-4_000:].decode(errors="replace").strip().rpartition("\n")[2]
    return last[:200] or None


def _brief(text: str) -> str:
    return json.dumps(text if len(text) <= 100 else text[:100] + "...")


def _added(one: Clocks, other: Clocks) -> Clocks:
    """The clocks of several runs of one attempt."""

    def both(name: str) -> float | None:
        values = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        return sum(values) if values else None

    names = ("queued_s", "spawn_s", "wall_s", "reap_s", "cpu_s")
    return Clocks(**{name: both(name) for name in names}, censored=one.censored or other.censored)
