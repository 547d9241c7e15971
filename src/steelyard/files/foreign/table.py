"""Rollouts gathered in columns, and the run that they make for pricing.

A reader appends one rollout after another (`Gathered.add`) or fills the columns at once (`Columns`); both
end in `observed`, which sorts by step and group, decides what is a failure written down as a number, finds
the timeout where times show one, and says so. No text of a rollout is kept: its group is a number, too.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np

from steelyard.clock import Seconds
from steelyard.files.foreign.read import Faults, Read
from steelyard.pricing.observed import (
    ABSTAINED,
    MISSING,
    SCORED,
    UNSCORED,
    Bools,
    Calls,
    Floats,
    Ints,
    Observed,
    Rows,
    Steps,
    blank,
)
from steelyard.pricing.suspicious import at_limit, find_limit, low, suspicious

NAN: Final = float("nan")
VERDICTS: Final[Mapping[str, int]] = {"scored": SCORED, "abstained": ABSTAINED, "unscored": UNSCORED}
ONE_STEP: Final = "The file does not say which step a rollout belongs to: everything is one step."
BLIND: Final = "Nothing tells a failure from a wrong answer, so nothing is known of corrupted groups"


@dataclass(frozen=True, slots=True)
class Columns:
    """Rollouts in columns of shape `(n,)`, in the order of the file.

    Parameters
    ----------
    step
        Index into the labels of the steps.
    group
        A number that the rollouts of a group share, and no others.
    value
        The total as the trainer used it; `nan` where there is none.
    verdict
        As in `Rows`.
    told
        Whether the file says the verdict (ours does), so that it need not be guessed.
    service_s, limit_s
        Of the reward; `nan` where the file has none.
    began_s
        When the reward began, and `generated_from_s`, `generated_to_s` when generation did and ended, all by
        one clock; `nan` where the file has none.
    timeout, error
        Whether the row says that its reward was cut, that it failed.
    cause
        Index into the causes, or `MISSING`.
    parts
        Each reward function's values.
    call
        A number that rollouts share which one call judged; empty where the file does not tell.
    """

    step: Ints
    group: Ints
    value: Floats
    verdict: Ints
    told: Bools
    service_s: Floats
    limit_s: Floats
    began_s: Floats
    generated_from_s: Floats
    generated_to_s: Floats
    timeout: Bools
    error: Bools
    cause: Ints
    parts: Mapping[str, Floats] = field(default_factory=dict)
    call: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def take(self, which: Ints) -> Columns:
        """Some rows, in another order."""
        several = {"parts", "call"}
        mine = {one.name: getattr(self, one.name)[which] for one in fields(self) if one.name not in several}
        parts = {name: part[which] for name, part in self.parts.items()}
        return Columns(**mine, parts=parts, call=self.call[which] if len(self.call) else self.call)


@dataclass(slots=True)
class Gathered:
    """Rollouts while they are read, one after another."""

    labels: dict[Hashable, int] = field(default_factory=dict)
    groups: dict[Hashable, int] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    parts: dict[str, array[float]] = field(default_factory=dict)
    _whole: array[int] = field(default_factory=lambda: array("q"))
    _real: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self._whole) // 7

    def add(
        self,
        *,
        step: Hashable,
        group: Hashable,
        value: float,
        verdict: int | None = None,
        service_s: float = NAN,
        limit_s: float = NAN,
        began_s: float = NAN,
        generated: tuple[float, float] = (NAN, NAN),
        timeout: bool = False,
        error: bool = False,
        cause: str = "",
        parts: Mapping[str, float] | None = None,
    ) -> None:
        """Append one; where no `verdict` is told it is unscored if it has no value."""
        at = self.labels.setdefault(step, len(self.labels))
        of = self.groups.setdefault((at, group), len(self.groups))
        why = self.causes.setdefault(cause, len(self.causes)) if cause else MISSING
        told = verdict is not None
        if verdict is None:
            verdict = UNSCORED if math.isnan(value) else SCORED
        for name, part in (parts or {}).items():
            column = self.parts.setdefault(name, array("d"))
            column.extend([NAN] * (len(self) - len(column)))  # of rows that do not have this part
            column.append(part)
        self._whole.extend((at, of, verdict, told, timeout, error, why))
        self._real.extend((value, service_s, limit_s, began_s, *generated))

    def columns(self) -> Columns:
        """All of them as arrays."""
        whole = np.asarray(self._whole, np.int64).reshape(-1, 7).T
        real = np.asarray(self._real, np.float64).reshape(-1, 6).T
        for column in self.parts.values():
            column.extend([NAN] * (len(self) - len(column)))
        return Columns(
            step=whole[0],
            group=whole[1],
            value=real[0],
            verdict=whole[2],
            told=whole[3].astype(bool),
            service_s=real[1],
            limit_s=real[2],
            began_s=real[3],
            generated_from_s=real[4],
            generated_to_s=real[5],
            timeout=whole[4].astype(bool),
            error=whole[5].astype(bool),
            cause=whole[6],
            parts={name: np.array(column) for name, column in self.parts.items()},
        )


@dataclass(slots=True)
class About:
    """What a reader knows of its file beside the columns.

    Parameters
    ----------
    source
        For people.
    labels
        Of the steps, by their index in the columns.
    part
        The name of the reward.
    causes
        Words for the indices in the columns.
    stepped
        Whether the file says which step a rollout belongs to.
    together
        Whether rows of a group with one and the same time were judged by one call.
    totals
        Whether it is known what rewards add up to; else all values are `nan`, and verdicts stay.
    unmarked
        Where the file marks no failures: what to do about it. Even so a row without a value is one, and a
        zero at a timeout.
    limit_s
        The timeout, where the user said it.
    says, lacks
        Sentences for people.
    """

    source: str
    labels: Sequence[Hashable]
    part: str = "reward"
    causes: Sequence[str] = ()
    stepped: bool = True
    together: bool = False
    totals: bool = True
    unmarked: str = ""
    limit_s: Seconds | None = None
    says: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)


def read(columns: Columns, about: About, faults: Faults) -> Read:
    """Make the run that pricing reads of rollouts, and look for zeros that are failures."""
    labels, columns = _in_order(columns, about.labels)
    limit, says = _limit(columns, about)
    silent = ~np.isfinite(columns.value)
    at = np.zeros(len(silent), bool) if limit is None else at_limit(columns.service_s, limit)
    # nothing came of it when its time was over: it was cut
    columns = replace(columns, timeout=columns.timeout | (at & silent))
    worst = low(columns.value)
    hidden = at & worst & ~columns.timeout
    number = (columns.verdict == UNSCORED) & ~silent  # ours said so, and a number was trained on all the same
    judged = columns.told & (columns.verdict == SCORED)  # ours said so: its end was the candidate's doing
    failed = number | hidden | (worst & ~judged & (columns.timeout | columns.error))
    verdict = np.where(silent, columns.verdict, SCORED)
    if about.totals:
        verdict[silent & (verdict == SCORED)] = UNSCORED
    clocked = bool(np.isfinite(columns.service_s).any())
    tells = not about.unmarked or (clocked and limit is not None) or bool(silent.any())
    lacks = [*about.lacks, *([] if about.stepped else [ONE_STEP]), *faults.lacks]
    if not tells:
        lacks.append(f"{BLIND}: {about.unmarked}.")
    causes = list(dict.fromkeys([*about.causes, "wall"]))
    cut = columns.timeout | hidden
    cause = np.where(cut & (columns.cause == MISSING), causes.index("wall"), columns.cause)
    limits = np.zeros(0) if limit is None else np.unique(np.asarray(limit)[np.isfinite(limit)])
    observed = Observed(
        source=about.source,
        calls=_calls(columns, cut, cause, together=about.together),
        rows=Rows(columns.step, columns.group, columns.value, verdict, failed),
        steps=_steps(columns, labels),
        parts=[about.part],
        causes=causes,
        stepped=about.stepped,
        says=[*about.says, *says],
        lacks=lacks,
        limit_s=float(limits[0]) if len(limits) == 1 else None,
        tells_failures=about.totals and tells,
    )
    suspicions = suspicious(
        columns.value,
        step=columns.step if about.stepped else None,
        group=columns.group,
        service_s=np.where(judged & columns.timeout, np.nan, columns.service_s) if clocked else None,
        limit_s=limit,
        timeout=columns.timeout & ~judged,
        error=(columns.error & ~judged) | number,
        parts=columns.parts,
    )
    return Read(observed, suspicions, faults.count)


def _in_order(columns: Columns, labels: Sequence[Hashable]) -> tuple[list[str], Columns]:
    """Sort steps by their labels, rows by step and group, and number groups from 0."""
    numbered = all(isinstance(label, int) for label in labels)
    by = sorted(range(len(labels)), key=lambda at: labels[at] if numbered else (str(labels[at]), at))  # type: ignore[arg-type, return-value]
    place = np.empty(len(labels), np.int64)
    place[by] = np.arange(len(labels))
    step = place[columns.step] if len(labels) else columns.step
    order = np.lexsort((columns.group, step))
    sorted_ = columns.take(order)
    step = step[order]
    fresh = np.ones(len(step), bool)
    fresh[1:] = (np.diff(sorted_.group) != 0) | (np.diff(step) != 0)
    return [str(labels[at]) for at in by], replace(sorted_, step=step, group=np.cumsum(fresh) - 1)


def _limit(columns: Columns, about: About) -> tuple[Floats | Seconds | None, list[str]]:
    """The timeout: as told, as recorded, or as times show it, which is said."""
    if about.limit_s is not None:
        return about.limit_s, []
    if np.isfinite(columns.limit_s).any():
        return columns.limit_s, []
    found = find_limit(columns.value, columns.service_s)
    if found is None:
        return None, []
    told = f"No timeout is recorded; times pile up at {found:.4g} s with nothing but zeros: taken for one."
    return found, [told]


def _calls(columns: Columns, cut: Bools, cause: Ints, *, together: bool) -> Calls:
    """One call a row; rows that name one call, or of a group with the same clock, were judged by one."""
    rows, of = np.arange(len(columns.step)), columns.group
    if len(columns.call):
        _, rows, which = np.unique(columns.call, return_index=True, return_inverse=True)
        last = np.zeros(len(rows), np.int64)
        np.maximum.at(last, which, columns.group)
        of = np.where(last == columns.group[rows], last, MISSING)  # rows are sorted by group
        order = np.argsort(rows)
        rows, of = rows[order], of[order]
    elif together:
        began, service, group = columns.began_s, columns.service_s, columns.group
        same = np.zeros(len(rows), bool)
        same[1:] = (group[1:] == group[:-1]) & (service[1:] == service[:-1])
        same[1:] &= (began[1:] == began[:-1]) | np.isnan(began[1:])
        rows = rows[~same]
        of = group[rows]
    n = len(rows)
    zero = blank(len(columns.step))
    if np.isfinite(columns.began_s).any():
        start = np.fmin(columns.generated_from_s, columns.began_s)
        first = np.full(int(columns.step.max(initial=0)) + 1, np.inf)
        np.fmin.at(first, columns.step, start)
        zero = first[columns.step]
    return Calls(
        step=columns.step[rows],
        group=of,
        row=rows,
        part=np.zeros(n, np.int64),
        service_s=columns.service_s[rows],
        censored=cut[rows],
        cause=cause[rows],
        queued_s=blank(n),
        began_s=(columns.began_s - zero)[rows],
        spawn_s=blank(n),
        cpu_s=blank(n),
        passed=(columns.value > 0)[rows],
    )


def _steps(columns: Columns, labels: Sequence[str]) -> Steps:
    """Steps; generation is the time in which at least one rollout of the step was being generated."""
    n = len(labels)
    generation = np.full(n, np.nan)
    known = np.flatnonzero(np.isfinite(columns.generated_from_s) & np.isfinite(columns.generated_to_s))
    edges = np.searchsorted(columns.step[known], np.arange(n + 1))
    for at in range(n):
        mine = known[edges[at] : edges[at + 1]]
        if not len(mine):
            continue
        mine = mine[np.argsort(columns.generated_from_s[mine])]
        start = columns.generated_from_s[mine]
        end = np.maximum.accumulate(columns.generated_to_s[mine])
        generation[at] = end[-1] - start[0] - np.maximum(start[1:] - end[:-1], 0).sum()
    return Steps(
        labels=labels,
        generation_s=generation,
        training_s=blank(n),
        exposed_s=blank(n),
        wall_s=blank(n),
        machine=np.full(n, MISSING),
    )
