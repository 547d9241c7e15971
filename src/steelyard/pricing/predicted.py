"""What steps would wait if what they wait for were drawn anew: calls on their own, or whole groups.

Both are means over the steps of `E[longest of n draws]`, `n` as many as the step had, from all that the run
had. Of single calls it is the independence prediction; of each group's longest it keeps what members of a
group have in common, and what their step has in common only as far as it shows within a group.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from steelyard.durations import Interval, mean
from steelyard.pricing.observed import MISSING, Floats, Ints
from steelyard.pricing.waits import numbered, total

_SIZES: Final = 16  # different batch sizes that are computed; more are rounded to so many of them


def drawn_anew(length_s: Floats, step: Ints, steps: int) -> Interval:
    """The mean longest of as many independent draws as each step has.

    Parameters
    ----------
    length_s, step
        What steps wait for, and for which step, shape `(n,)`.
    steps
        How many steps there are; those that wait for nothing are left out.

    Notes
    -----
    Over sorted times `E[longest of n] = sum t_i (F_i^n - F_(i-1)^n)` (Hutson and Ernst 2000). The influence
    of a time x on it is `-n integral_x F^(n-1)`, less its mean; summed over a step that is what the step adds
    to the error, and the interval is the t interval of those.
    """
    count = len(length_s)
    sizes = np.bincount(step, minlength=steps)
    seen = sizes > 0
    order = np.argsort(length_s)
    ordered = length_s[order]
    below = np.arange(1, count + 1) / count
    value, tail = 0.0, np.zeros(count)
    for size, weight in _weighted(sizes[seen]):
        powers = below ** (size - 1)
        tail[:-1] += weight * size * np.diff(ordered) * powers[:-1]
        powers *= below
        value += weight * float(ordered[0] * powers[0] + ordered[1:] @ np.diff(powers))
    del ordered, below
    tail = np.cumsum(tail[::-1])[::-1]
    influence = np.empty(count)
    influence[order] = tail.mean() - tail
    of_step = total(influence, step, steps)[seen] / count
    return mean(value + seen.sum() * of_step)._replace(value=value)


def groups_drawn_anew(length_s: Floats, step: Ints, group: Ints, steps: int) -> Interval:
    """The same of groups: each is as long as its longest member; who has no group is one by himself.

    Parameters
    ----------
    length_s, step, steps
        As in `drawn_anew`.
    group
        The group of each, shape `(n,)`; `MISSING` where not known.
    """
    alone = group == MISSING
    number, groups = numbered(group[~alone])
    longest, of = np.zeros(groups), np.zeros(groups, step.dtype)
    np.maximum.at(longest, number, length_s[~alone])
    of[number] = step[~alone]
    return drawn_anew(np.append(longest, length_s[alone]), np.append(of, step[alone]), steps)


def _weighted(sizes: Ints) -> list[tuple[int, float]]:
    """The different sizes, each with its share of the steps."""
    if len(np.unique(sizes)) > _SIZES:
        sizes = np.sort(sizes)[(np.arange(_SIZES) * 2 + 1) * len(sizes) // (2 * _SIZES)]
    known, times = np.unique(sizes, return_counts=True)
    return [(int(size), float(count)) for size, count in zip(known, times / times.sum(), strict=True)]
