"""What failures do to advantages: groups corrupted where they are scored, thinner where they do not vote.

A reward that times out says nothing about its completion. Written down as the floor it moves its group's
mean, and with it the advantage of every sibling; the more its group was right, the more. Left out it
corrupts nothing, and costs votes. Both are priced here, from a rate in closed form and from what was
observed.

| of `G` members | share of groups |
|---|---|
| hit: a failure in it | `1 - (1-p)^G` (`barrier.step_hit` of one group): the upper bound of corrupted ones |
| corrupted, failures scored at the floor | one failed that would pass: `1 - (1-ps)^G`, pass rate `s` |
| dead: every member failed | no member differs from another, so nothing is learnt; not counted as corrupted |
| corrupted, failures not voting | 0 |

With correlation `rho` failures come together (beta-binomial): fewer groups are hit, more of them dead.
Would-be verdicts are taken for independent of failing; slow and wrong often go together, which lowers `ps`.

`corruption` reads observed rows and computes each advantage twice, with failures at their recorded value
and with failures left out, by the arithmetic of `steelyard.advantages` over whole columns. What a failed
member would have scored nobody observed. So a group counts as corrupted whenever an advantage in it moves,
which is an upper bound, and the member's own advantage is compared to 0, to learning nothing from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from steelyard.advantages import EPS, EPS_POPULATION, ROUNDING
from steelyard.errors import RefusedError
from steelyard.pricing.barrier import hits
from steelyard.pricing.observed import MISSING, SCORED, UNSCORED, Bools, Floats, Ints, Rows
from steelyard.pricing.waits import latest, numbered, total

SchemeName: TypeAlias = Literal["grpo", "grpo_population"]

_DIVISORS: Final = MappingProxyType({"grpo": (1, EPS), "grpo_population": (0, EPS_POPULATION)})
"""What the schemes that divide by a group's own standard deviation take off its votes, and add to it."""

_ROUNDING: Final = 1e-9
"""Advantages are of the order of 1; sums of a thousand rewards in another order differ by 1e-13."""

_NOTHING: Final = 1e-100
"""Rewards below it differ by nothing beside what the schemes add to a deviation."""


class Votes(NamedTuple):
    """What is left of groups whose failures do not vote.

    Parameters
    ----------
    mean
        Votes per group that are expected: `G (1-p)`, whatever the correlation.
    thin
        Share of groups with fewer than two votes: nothing can be learnt from them.
    short
        Share of groups with fewer than `max(3, ceil(G/2))`: what schemes that divide by the group's own
        standard deviation need (`steelyard.advantages`).
    """

    mean: float
    thin: float
    short: float


def corrupted_groups(rate: float, group: int, *, pass_rate: float = 1.0, rho: float = 0.0) -> float:
    """Share of groups with a corrupted advantage if failures are scored at the floor.

    Parameters
    ----------
    rate
        Share of members that fail.
    group
        Members.
    pass_rate
        Share of failed members that would have scored above the floor; 1 gives the upper bound.
    rho
        Correlation of failures within a group.

    Notes
    -----
    `sum_k P(k failed) (1 - (1-s)^k)` over k = 1 ... G-1. Without correlation that is `1 - (1-ps)^G` less
    the dead groups, `p^G (1 - (1-s)^G)`. It grows with `G`, and with `p` up to a half.

    Examples
    --------
    >>> f"{corrupted_groups(0.01, 8):.1%} {corrupted_groups(0.01, 8, pass_rate=0.5):.1%}"
    '7.7% 3.9%'
    >>> [f"{corrupted_groups(0.01, 8, rho=rho):.1%}" for rho in (0.3, 1.0)]  # partly hit groups
    ['3.8%', '0.0%']
    """
    failed = np.arange(1, group)
    return float(hits(rate, group, rho)[1:-1] @ (1 - (1 - pass_rate) ** failed))


def votes(rate: float, group: int, *, rho: float = 0.0) -> Votes:
    """What is left of groups if failures do not vote: the price of corrupting nothing.

    Examples
    --------
    >>> left = votes(0.01, 8)
    >>> round(left.mean, 2), f"{left.thin:.1e}"
    (7.92, '7.9e-14')
    >>> f"{votes(0.01, 8, rho=0.3).thin:.2%}"
    '0.07%'
    """
    chances = hits(rate, group, rho)
    left = group - np.arange(group + 1)
    needed = max(3, (group + 1) // 2)
    return Votes(group * (1 - rate), float(chances[left < 2].sum()), float(chances[left < needed].sum()))


def advantages(
    value: Floats, voting: Bools, group: Ints, *, scheme: SchemeName = "grpo_population"
) -> Floats:
    """`steelyard.advantages.grpo` or `grpo_population` over whole columns.

    Parameters
    ----------
    value
        Rewards, shape `(m,)`; read where `voting`, and finite there.
    voting
        Who votes, shape `(m,)`; the others get 0.
    group
        Whose row it is, shape `(m,)`: any numbers, in any order.
    scheme
        `grpo` (sample standard deviation + 1e-4) or `grpo_population` (population, + 1e-8).

    Returns
    -------
    ndarray
        Advantages, shape `(m,)`; 0 in groups with fewer than `max(3, ceil(G/2))` votes or no spread.

    Raises
    ------
    RefusedError
        Another scheme.

    Examples
    --------
    >>> ones, nobody = np.ones(8), np.zeros(8, np.int64)
    >>> advantages(np.array([1.0] * 7 + [0.0]), ones > 0, nobody).round(3).tolist()
    [0.378, 0.378, 0.378, 0.378, 0.378, 0.378, 0.378, -2.646]
    """
    if scheme not in _DIVISORS:
        raise RefusedError(
            f"is {scheme!r}, and only {', '.join(_DIVISORS)} are computed over columns",
            where="scheme",
            remedy="take one of these: what a failure does to a group differs little between schemes",
        )
    less, eps = _DIVISORS[scheme]
    number, groups = numbered(group)
    needed = np.maximum(3, (np.bincount(number, minlength=groups) + 1) // 2)
    of, reward = number[voting], value[voting]
    cast = np.bincount(of, minlength=groups)
    # Scaled, then counted from the least, so that no square overflows and equal rewards differ by nothing.
    scale = latest(np.abs(reward), of, groups)
    scale[~(scale > _NOTHING)] = 1.0
    reward = reward / scale[of]
    norm = np.sqrt(total(reward**2, of, groups))
    reward = reward + latest(-reward, of, groups)[of]
    reward -= (total(reward, of, groups) / np.maximum(cast, 1))[of]
    spread = np.sqrt(total(reward**2, of, groups))
    signal = (cast >= needed) & (spread > ROUNDING * norm)
    divisor = spread / np.sqrt(np.maximum(cast - less, 1)) + eps / scale
    found = np.zeros(len(value))
    found[voting] = np.where(signal[of], reward / divisor[of], 0.0)
    return found


@dataclass(frozen=True, slots=True)
class Corruption:
    """What failures did to the groups of a run; counts per step, shape `(s,)`, for intervals over steps.

    Parameters
    ----------
    groups, rows
        Groups and rows whose group is known.
    hit
        Groups with a failure: a row that is unscored, or that got its value through no judgement.
    dead
        Groups in which every member failed.
    corrupted
        Groups in which failures at their value change an advantage; where all are dead at one value, none.
    changed
        Rows whose advantage changes its sign by that; 0 is a sign of its own: what nothing should be
        learnt from is pushed, or what something should be learnt from is not.
    reversed
        Those of them that are pushed the opposite way.
    voting, thin
        Votes that are left if failures do not vote, and groups with fewer than two.
    largest
        The largest change of an advantage in the run.
    """

    groups: Ints
    rows: Ints
    hit: Ints
    dead: Ints
    corrupted: Ints
    changed: Ints
    reversed: Ints
    voting: Ints
    thin: Ints
    largest: float


def corruption(
    rows: Rows, steps: int, *, scheme: SchemeName = "grpo_population", floor: float | None = None
) -> Corruption:
    """Compare advantages with failures at their value to those with failures left out.

    Parameters
    ----------
    rows
        Of `steps` steps; groups may lie in any order.
    scheme
        How advantages are made.
    floor
        What unscored rows would have been given, to price what leaving them out avoids; by default they
        are left out as they were, and only failures with a recorded value count.

    Returns
    -------
    Corruption
        Counts per step. Rows whose group is not known are left out; a group counts for one of its steps.

    Raises
    ------
    RefusedError
        A row that is scored with a value that is no number.

    Examples
    --------
    >>> one = np.zeros(8, np.int64)
    >>> crash = np.arange(8) == 7
    >>> rows = Rows(one, one, np.where(crash, 0.0, 1.0), one, crash)  # all correct, one crash scored 0
    >>> found = corruption(rows, 1)
    >>> int(found.corrupted.sum()), int(found.changed.sum()), round(found.largest, 3)
    (1, 8, 2.646)
    """
    known = np.flatnonzero(rows.group != MISSING)
    known = known[np.argsort(rows.group[known], kind="stable")]  # a pass where they lie together
    lost = (rows.verdict[known] == UNSCORED) | rows.failed[known]
    sound = (rows.verdict[known] == SCORED) & ~lost
    number, groups = numbered(rows.group[known])
    step = np.zeros(groups, np.int64)
    step[number] = rows.step[known]
    size, failed, left = (total(one, number, groups) for one in (np.ones(len(known)), lost, sound))

    take = (failed > 0)[number]  # nothing changes elsewhere
    mine, value = number[take], _recorded(rows.value[known[take]], sound[take], floor)
    before, after = _twice(value, sound[take], lost[take], mine, scheme)
    change, was, becomes = np.abs(after - before), np.sign(before), np.sign(after)
    counts = {
        "groups": np.ones(groups),
        "rows": size,
        "hit": failed > 0,
        "dead": failed == size,
        "corrupted": total(change > 0, mine, groups) > 0,
        "changed": total(was != becomes, mine, groups),
        "reversed": total(was * becomes < 0, mine, groups),
        "voting": left,
        "thin": left < 2,
    }
    per_step = {name: total(count, step, steps).astype(np.int64) for name, count in counts.items()}
    return Corruption(largest=float(change.max(initial=0.0)), **per_step)


def _recorded(value: Floats, sound: Bools, floor: float | None) -> Floats:
    """Values, with the floor where none was recorded, if there is one."""
    there = np.isfinite(value)
    if (wrong := sound & ~there).any():
        raise RefusedError(
            f"{wrong.sum()} rows are scored with a value that is no number, such as {value[wrong][0]}",
            where="rows.value",
            remedy="a row without a value is UNSCORED or ABSTAINED: correct what read them",
        )
    return np.where(there, value, np.nan if floor is None else floor)


def _twice(
    value: Floats, sound: Bools, lost: Bools, group: Ints, scheme: SchemeName
) -> tuple[Floats, Floats]:
    """Advantages with failures left out, and with failures at their value; what is rounding is made equal."""
    before = advantages(value, sound, group, scheme=scheme)
    after = advantages(value, sound | (lost & np.isfinite(value)), group, scheme=scheme)
    before[np.abs(before) < _ROUNDING] = 0.0
    after[np.abs(after) < _ROUNDING] = 0.0
    same = np.abs(after - before) < _ROUNDING
    after[same] = before[same]
    return before, after
