"""In which form the gold earns most: in total, and in each part that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from steelyard.audit.observed import TOLERANCE, Answer, Kind, PartFacts, Place, value
from steelyard.outcome import Scored


def best_forms(
    names: Sequence[str], rows: Sequence[int], earned: Mapping[Place, Answer], parts: Sequence[PartFacts]
) -> tuple[str | None, dict[str, str]]:
    """Choose among forms, given in their order of preference.

    A part's best form is one in which the gold is full marks (where the reward says so), else one in
    which the gold earns more than a wrong answer, and of those the one in which it earns most. In total
    it is one in which as many parts as possible pay the gold more than a wrong answer, and of those the
    one in which it earns most.

    Returns
    -------
    The form in total, `None` where nothing was judged, and by part.
    """
    by_part: dict[str, str] = {}
    for part in parts:
        told = [form for form in names if _mean(form, rows, earned, part.name) is not None]
        if part.reads_gold and told:
            by_part[part.name] = max(told, key=partial(_rank, rows=rows, earned=earned, part=part))

    def rank(form: str) -> tuple[int, float, float]:
        tells = sum(_gap(form, rows, earned, name) > TOLERANCE for name in by_part)
        return tells, _mean(form, rows, earned, "") or 0.0, _gap(form, rows, earned, "")

    told = [form for form in names if _mean(form, rows, earned, "") is not None]
    return (max(told, key=rank) if told else None), by_part


def _rank(
    form: str, rows: Sequence[int], earned: Mapping[Place, Answer], part: PartFacts
) -> tuple[bool, bool, float, float]:
    said = [earned[place].of(part.name) for row in rows if (place := (row, Kind.GOLD, form)) in earned]
    full = part.ours and bool(said) and all(isinstance(one, Scored) and one.code is None for one in said)
    gap = _gap(form, rows, earned, part.name)
    return full, gap > TOLERANCE, _mean(form, rows, earned, part.name) or 0.0, gap


def _mean(form: str, rows: Sequence[int], earned: Mapping[Place, Answer], part: str) -> float | None:
    found = _values(Kind.GOLD, form, rows, earned, part)
    return fmean(found.values()) if found else None


def _gap(form: str, rows: Sequence[int], earned: Mapping[Place, Answer], part: str) -> float:
    gold = _values(Kind.GOLD, form, rows, earned, part)
    wrong = _values(Kind.WRONG, form, rows, earned, part)
    gaps = [gold[row] - wrong[row] for row in gold if row in wrong]
    return fmean(gaps) if gaps else 0.0


def _values(
    kind: Kind, form: str, rows: Sequence[int], earned: Mapping[Place, Answer], part: str
) -> dict[int, float]:
    answers = ((row, earned.get((row, kind, form))) for row in rows)
    numbers = ((row, value(answer.of(part))) for row, answer in answers if answer is not None)
    return {row: number for row, number in numbers if number is not None}
