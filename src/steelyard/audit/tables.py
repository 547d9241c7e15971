"""What was seen, as the tables of the report: what specimens earn, and how long judging takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean
from typing import Final

from steelyard.audit.observed import TOLERANCE, Kind, Observed, PartTimes, SpecimenLine
from steelyard.outcome import Attempt, How, Part

STEP: Final = 1_024
"""Rollouts of the step whose time is told."""

_SHOWN: Final = 60  # characters of a specimen


def specimen_lines(seen: Observed, texts: Mapping[tuple[Kind, str], str]) -> list[SpecimenLine]:
    """What each kind earned, in the form in which the gold earns most in total."""
    form = seen.form or ""
    gold = seen.values(Kind.GOLD, form)
    lines = []
    for kind in Kind:
        values = seen.values(kind, form)
        if not values:
            continue
        by_part = {part.name: list(seen.values(kind, form, part.name).values()) for part in seen.parts}
        as_gold = [row for row in values if row in gold and values[row] >= gold[row] - TOLERANCE]
        lines.append(
            SpecimenLine(
                kind,
                len(values),
                fmean(values.values()),
                {name: fmean(found) if found else None for name, found in by_part.items()},
                len(as_gold) if gold else None,
                _short(texts.get((kind, form), texts.get((kind, ""), ""))),
            )
        )
    return lines


def _short(text: str) -> str:
    line = repr(text[: 4 * _SHOWN])
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def part_times(
    parts: Sequence[Part],
    attempts: Iterable[Attempt],
    own: AbstractSet[int],
    long: AbstractSet[int],
    at_once: Mapping[How, int],
) -> list[PartTimes]:
    """How long each part takes for a rollout of the file: a call's time shared among those it judged."""
    times: dict[str, list[tuple[float, int]]] = {part.reward.name: [] for part in parts}
    longest: dict[str, float] = {}
    for attempt in attempts:
        service_s = attempt.clocks.service_s
        if service_s is None:
            continue
        if attempt.first in own:
            times[attempt.part].append((service_s / attempt.members, attempt.members))
        elif attempt.first in long and attempt.members == 1:
            longest[attempt.part] = max(longest.get(attempt.part, 0.0), service_s)
    found = []
    for part in parts:
        name, some = part.reward.name, sorted(times[part.reward.name])
        if not some:
            continue
        count = sum(members for _, members in some)
        mean = sum(each * members for each, members in some) / count
        places = at_once[part.reward.how]
        step_s = max(STEP * mean / places, _quantile(some, 1.0))
        found.append(
            PartTimes(
                name, count, _quantile(some, 0.5), _quantile(some, 0.99), step_s, places, longest.get(name)
            )
        )
    return found


def _quantile(times: Sequence[tuple[float, int]], share: float) -> float:
    """A quantile of sorted durations, each as often as it had members."""
    due = math.ceil(share * sum(members for _, members in times))
    for each, members in times:
        due -= members
        if due <= 0:
            return each
    return times[-1][0]
