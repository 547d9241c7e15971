"""Zeros that look like failures written down as numbers.

A trainer has no word for "could not be judged": a timeout, a dead sandbox, an exception all become the
reward of a wrong answer. What gives them away stands beside the number:

| kind | what is counted | silent on clean data because |
|---|---|---|
| `timeout` | zeros whose service time reaches the limit | a limit that nobody told must show itself |
| `flagged`, `error` | zeros with a timeout flag, with an error | nobody sets them for a wrong answer |
| `step` | zeros of steps in which no group got anything, after steps in which groups did | see below |
| `part` | totals of which one part is missing, though it judged others of the same group | one that does \
not apply is missing in the whole group |

A limit shows itself (`find_limit`) where service times pile up: more of them within a hundredth of one
value than just below it (of rounded times, than within a hundredth of any other), next to nothing above it,
and all of them zeros although the others are not.

A step is suspected where all of its groups are zeros and that has less than 1 chance in 10,000 for the run,
at the share of such groups in the steps before it: a hard prompt is no outage, nor is the start of training.

Everything is an array of shape `(n,)`, one row per rollout; what is absent is not looked for.

Runs of ledgers and recorded loops (`of_observed`) say of most calls what cut them, but not where a reward
caught its own timeout and returned a number: that one is a pile, too. Once the limit is told, `marked` counts
such calls as cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from steelyard.clock import Seconds
from steelyard.pricing.observed import ABSTAINED, MISSING, Bools, Floats, Ints, Observed, Rows
from steelyard.pricing.values import Suspicion
from steelyard.pricing.waits import latest

_HAIR: Final = 0.01  # of a limit: how far above it killing and reaping end
_FEWEST: Final = 5  # that make a pile
_CHANCE: Final = 1e-6  # that the zeros of a pile are zeros by chance
_OUTAGE: Final = 1e-4  # that a whole step of zeros comes about in a run
_BEFORE: Final = 5  # steps looked back to


def suspicious(
    value: Floats,
    *,
    step: Ints | None = None,
    group: Ints | None = None,
    service_s: Floats | None = None,
    limit_s: Floats | Seconds | None = None,
    timeout: Bools | None = None,
    error: Bools | None = None,
    parts: Mapping[str, Floats] | None = None,
) -> list[Suspicion]:
    """Count the zeros that look like failures, of each kind that there is.

    Parameters
    ----------
    value
        Total rewards; `nan` where there is none, which is no zero.
    step, group
        Index of the step, number of the group (unique in the run).
    service_s
        How long the reward took; `nan` where not measured.
    limit_s
        The timeout, one for all or one for each; if `None`, it is looked for.
    timeout, error
        Whether the row says that its reward was cut, that it failed.
    parts
        Each reward function's values by its name; `nan` where it gave none.

    Examples
    --------
    >>> value = np.array([1.0, 0.0, 0.0, 0.5])
    >>> one, = suspicious(value, service_s=np.array([2.0, 3.0, 30.02, 30.0]), limit_s=30.0)
    >>> one.says
    '1 of these 2 zeros sits at the timeout (30 s).'
    """
    zero = value == 0
    found: list[Suspicion] = []
    if service_s is not None:
        known = find_limit(value, service_s) if limit_s is None else limit_s
        if known is not None:
            at = zero & at_limit(service_s, known)
            limits = np.unique(np.broadcast_to(known, value.shape)[at])
            told = f" ({limits[0]:.4g} s)" if len(limits) == 1 else ""
            found += _counted("timeout", at, zero, f"at the timeout{told}", "sit")
    if timeout is not None:
        found += _counted("flagged", zero & timeout, zero, "a timeout flag", "have")
    if error is not None:
        found += _counted("error", zero & error, zero, "an error", "have")
    if step is not None and group is not None:
        found += _outages(zero, step, group)
    if parts and group is not None:
        found += _missing(value, group, parts)
    return found


def of_observed(observed: Observed) -> list[Suspicion]:
    """Count zeros that look like failures in a run that tells what cut its calls: those it does not tell.

    A call that is marked as cut, and a value that is marked as a failure, are no secret. Where no reward is 0
    or less, the lowest one stands for zero.

    Parameters
    ----------
    observed
        The run; a rollout is compared by its longest call.

    Examples
    --------
    >>> from steelyard.pricing.observed import Calls, Steps, blank
    >>> n, rng = 1000, np.random.default_rng(0)
    >>> at, none, no = np.arange(n), np.zeros(n, np.int64), np.zeros(n, bool)
    >>> value, times = (rng.random(n) < 0.5).astype(float), rng.lognormal(0.7, 0.3, n)
    >>> value[::25], times[::25] = 0.0, 30.0  # the reward caught its own timeout
    >>> calls = Calls(none, at // 8, at, none, times, no, none - 1, *[blank(n)] * 4, value > 0)
    >>> steps = Steps(["0"], blank(1), blank(1), blank(1), blank(1), np.zeros(1, np.int64))
    >>> run = Observed("by hand", calls, Rows(none, at // 8, value, none, no), steps, ["code"], [],
    ...                stepped=True)
    >>> one, = of_observed(run)
    >>> one.says
    '40 of these 550 zeros sit at the timeout (30 s): price it with --limit 30 to count them as cut.'
    >>> of_observed(marked(run, 30.0))
    []
    """
    rows = observed.rows
    worst = low(rows.value)
    value = np.where(rows.failed | np.isnan(rows.value), np.nan, np.where(worst, 0.0, 1.0))
    service = _longest(observed)
    limit = find_limit(value, service) if observed.limit_s is None else observed.limit_s
    grouped = observed.stepped and bool((rows.group != MISSING).all())
    found = suspicious(
        value,
        step=rows.step if grouped else None,
        group=rows.group if grouped else None,
        service_s=None if limit is None else service,
        limit_s=limit,
    )
    called = "lowest rewards" if rows.value[worst].any() else "zeros"
    advice = "" if limit is None else f": price it with --limit {_short(limit)} to count them as cut."
    told = [one.says.replace("zeros", called) for one in found]
    return [
        one._replace(says=says.removesuffix(".") + advice if one.kind == "timeout" else says)
        for one, says in zip(found, told, strict=True)
    ]


def marked(observed: Observed, limit_s: Seconds) -> Observed:
    """A run whose calls are cut at a limit, as it should have told.

    Calls that reach the limit and are not marked as cut count as cut by `timeout`, unless something better
    than the lowest reward, or an abstention, came of them; the rewards of their rollouts are failures.

    Parameters
    ----------
    observed
        The run.
    limit_s
        Where its rewards were cut.
    """
    calls, rows = observed.calls, observed.rows
    number = _numbers(rows)
    spared = np.zeros(int(max(calls.row.max(initial=-1), number.max(initial=-1))) + 1, np.bool_)
    better = np.isfinite(rows.value) & ~low(rows.value)
    spared[number[better | (rows.verdict == ABSTAINED)]] = True
    cut = at_limit(calls.service_s, limit_s) & ~calls.censored & ~spared[calls.row]
    causes = list(dict.fromkeys([*observed.causes, "timeout"]))
    hit = np.zeros(len(spared), np.bool_)
    hit[calls.row[cut]] = True
    return replace(
        observed,
        calls=replace(
            calls,
            censored=calls.censored | cut,
            cause=np.where(cut, calls.cause.dtype.type(causes.index("timeout")), calls.cause),
            passed=calls.passed & ~cut,
        ),
        rows=replace(rows, failed=rows.failed | (hit[number] & np.isfinite(rows.value))),
        causes=causes,
        limit_s=limit_s,
    )


def low(value: Floats) -> Bools:
    """Which rewards may be a failure's: those of 0 and less, or the lowest ones.

    The lowest ones alone where none is 0 or less, or none is more; if all are the same, they are low unless
    above 0.

    Examples
    --------
    >>> [low(np.array(one)).tolist() for one in ([-1.0, 0, 1], [-1.0, 0, np.nan], [0.2, 1.2], [1.0, 1])]
    [[True, True, False], [True, False, False], [True, False], [False, False]]
    """
    known = value[np.isfinite(value)]
    lowest, highest = known.min(initial=np.inf), known.max(initial=-np.inf)
    bar = 0.0 if lowest >= highest else lowest if highest <= 0 else max(lowest, 0.0)
    return np.asarray(value <= bar)


def _numbers(rows: Rows) -> Ints:
    return np.arange(len(rows)) if rows.row is None else rows.row


def _longest(observed: Observed) -> Floats:
    """The longest call of each rollout; `nan` where none was measured, or one is marked as cut."""
    calls, number = observed.calls, _numbers(observed.rows)
    count = int(max(calls.row.max(initial=-1), number.max(initial=-1))) + 1
    told = np.where(calls.censored, np.inf, np.where(np.isnan(calls.service_s), -np.inf, calls.service_s))
    longest = latest(told, calls.row, count)[number]
    return np.where(np.isfinite(longest), longest, np.nan)


def _short(limit_s: Floats | Seconds) -> str:
    """A limit in as few digits as say it: no call that sits at it may be lost by them."""
    exact = float(limit_s)
    for digits in range(1, 9):
        said = f"{exact:.{digits}g}"
        if bool(at_limit(np.array(exact), float(said))) and float(said) >= exact * (1 - 1e-3):
            return f"{float(said):g}" if digits < 7 else said
    return repr(exact)


def at_limit(service_s: Floats, limit_s: Floats | Seconds) -> Bools:
    """Which calls reach a limit; a clock may stop a ten-thousandth early, `nan` never reaches it."""
    reached: Bools = service_s >= np.asarray(limit_s) * (1 - 1e-4)
    return reached


def find_limit(value: Floats, service_s: Floats) -> Seconds | None:
    """The timeout, as service times show it; `None` if they show none.

    Parameters
    ----------
    value
        Total rewards, shape `(n,)`.
    service_s
        Service times, shape `(n,)`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> times, value = rng.lognormal(0.7, 0.3, 1000), (rng.random(1000) < 0.5).astype(float)
    >>> find_limit(value, times) is None
    True
    >>> times[::50], value[::50] = 30.0, 0.0
    >>> find_limit(value, times)
    30.0
    """
    measured = np.isfinite(service_s) & np.isfinite(value) & (service_s > 0)
    times, zeros = np.sort(service_s[measured]), service_s[measured & (value == 0)]
    n = len(times)
    if n < 4 * _FEWEST:
        return None
    # the window of a hundredth that holds the most, among those with next to nothing above
    end = np.searchsorted(times, times * (1 + _HAIR), side="right")
    held = end - np.arange(n)
    first = int(np.argmax(np.where(n - end <= held // 10, held, 0)))
    count, below = int(held[first]), first
    at = int((zeros >= times[first]).sum())
    if count < _FEWEST or below < count or at < n - first:  # a right answer is none that was cut
        return None
    others = (len(zeros) - at + 1) / (below + 2)
    if count <= _beside(times[:first], held[:first], times[first]) + _FEWEST or others**count > _CHANCE:
        return None
    # natural times just below the pile are further apart than those in it
    middle, last = first + count // 2, first + count - 1
    apart = 20 * float(times[last] - times[middle]) / max(last - middle, 1)
    wide = np.flatnonzero(np.diff(times[first : middle + 1]) > apart)
    return float(times[first + (int(wide[-1]) + 1 if len(wide) else 0)])


def _beside(below: Floats, held: Ints, pile: Seconds) -> int:
    """How many times a pile must outnumber: those just below it, or any lower pile of rounded times.

    Times in whole seconds are piles all of them, unless one is further away than any two others are.
    """
    between = np.diff(below)
    if (between == 0).mean() > 0.5 and pile - below[-1] <= 3 * between.max():
        return int(held.max())
    return len(below) - int(np.searchsorted(below, pile * (1 - 3 * _HAIR)))


def _counted(kind: str, seen: Bools, zero: Bools, what: str, verb: str) -> list[Suspicion]:
    n, of = int(seen.sum()), int(zero.sum())
    if not n:
        return []
    one = {"sit": "sits", "have": "has"}[verb]
    told = f"{n:,} of these {of:,} zeros" if of > 1 else "the only zero"
    return [Suspicion(kind, n, of, f"{told} {one if n == 1 else verb} {what}.")]


def _outages(zero: Bools, step: Ints, group: Ints) -> list[Suspicion]:
    """Steps of nothing but zeros, after steps that were not."""
    groups, of = np.unique(group, return_inverse=True)
    whole = np.ones(len(groups), bool)
    np.logical_and.at(whole, of, zero)
    its = np.zeros(len(groups), np.int64)
    its[of] = step
    steps = int(its.max(initial=-1)) + 1
    there, nothing = np.bincount(its, minlength=steps), np.bincount(its, weights=whole, minlength=steps)
    suspected = []
    before: list[int] = []
    for at in range(steps):
        if not there[at]:
            continue
        if nothing[at] < there[at]:
            before = [*before, at][-_BEFORE:]
        elif before:
            share = (nothing[before].sum() + 1) / (there[before].sum() + 2)
            if share ** there[at] * steps < _OUTAGE:
                suspected.append(at)
    if not suspected:
        return []
    seen = int(np.isin(step, suspected).sum())
    where = "1 step" if len(suspected) == 1 else f"{len(suspected):,} steps"
    told = (
        f"{seen:,} of these {int(zero.sum()):,} zeros make up {where} in which no group got anything, "
        "unlike the steps before: an outage, or a collapse."
    )
    return [Suspicion("step", seen, int(zero.sum()), told)]


def _missing(value: Floats, group: Ints, parts: Mapping[str, Floats]) -> list[Suspicion]:
    """Parts that judged some of a group and not others, whose total is a sum of the other parts."""
    groups, of = np.unique(group, return_inverse=True)
    some = np.any([np.isfinite(part) for part in parts.values()], axis=0)
    total = np.isfinite(value) & some
    found = []
    for name, part in parts.items():
        judged = np.zeros(len(groups), bool)
        judged[of[np.isfinite(part)]] = True
        seen = int((total & np.isnan(part) & judged[of]).sum())
        if seen:
            told = (
                f"{seen:,} of {int(total.sum()):,} totals are numbers although {name!r} gave none "
                "and judged others of their group: its failure counts as 0."
            )
            found.append(Suspicion("part", seen, int(total.sum()), told))
    return found
