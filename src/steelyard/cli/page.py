"""`steelyard score --report PAGE`: a scored run as a page, from its summary and its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from steelyard.cli.record import told
from steelyard.ledger import Ledger, Run
from steelyard.ledger.observed import observed
from steelyard.ledger.worst import Seen, failing, slowest
from steelyard.outcome import End
from steelyard.pricing.observed import Bools, Floats, Ints
from steelyard.pricing.price import price_observed
from steelyard.report.page import write_page
from steelyard.report.scored import CallLine, GroupRewards, ScoredRun, histogram_of
from steelyard.scoring import Summary

GROUPS: Final = 200
CALLS: Final = 30


def write(path: Path, summary: Summary, ledger: Path, *, advantage: str) -> None:
    """Write the page of a run that was just scored.

    Raises
    ------
    RefusedError
        If the extra `report` is not installed, or the page cannot be written.
    """
    with Ledger(ledger, write=False) as record:
        run = next(one for one in record.runs() if one.number == summary.run)
        scored = _scored(record, run, summary, advantage)
        timed = any(one.attempts for one in summary.times)
        price = price_observed(observed(record, run)) if timed else None
        write_page(path, price, scored, title=f"{scored.source}, scored")


def _scored(record: Ledger, run: Run, summary: Summary, advantage: str) -> ScoredRun:
    values = np.asarray(summary.rewards.values, float)
    starts = np.asarray(summary.rewards.starts)
    has = np.isfinite(values)
    count = np.add.reduceat(has, starts[:-1])
    mean = np.add.reduceat(np.where(has, values, 0.0), starts[:-1]) / np.maximum(count, 1)
    low = np.minimum.reduceat(np.where(has, values, np.inf), starts[:-1])
    high = np.maximum.reduceat(np.where(has, values, -np.inf), starts[:-1])
    equal = (count > 0) & (low == high)
    best, worst = values[has].max(initial=-np.inf), values[has].min(initial=np.inf)
    right, wrong = equal & (low == best) & (best > worst), equal & (low == worst) & (best > worst)
    failed, unfinished = failing(record, run, CALLS)
    ids = summary.rewards.ids
    scored = summary.verdicts["scored"]
    return ScoredRun(
        source=str(run.spec.get("name", record.path.name)),
        verdicts={word: summary.verdicts[word] for word in ("scored", "abstained", "unscored")},
        groups=len(ids),
        by_group=list(_groups(summary, values, starts, np.where(count > 0, mean, np.inf), equal)),
        mean=summary.value_sum / scored if scored else None,
        all_right=int(right.sum()),
        all_wrong=int(wrong.sum()),
        all_equal=int((equal & ~right & ~wrong).sum()),
        codes=dict(summary.codes) | dict(summary.whys),
        histogram=histogram_of(values[has]),
        slowest=_lines(slowest(record, run, CALLS), ids),
        failing=_lines(unfinished, ids),
        failed=failed,
        advantage=advantage,
    )


def _groups(
    summary: Summary, values: Floats, starts: Ints, mean: Floats, equal: Bools
) -> Iterator[GroupRewards]:
    """The groups by their mean; of many an even selection."""
    order = np.argsort(mean, kind="stable")
    drawn = order[np.unique(np.linspace(0, len(order) - 1, GROUPS).astype(int))] if len(order) else order
    for group in drawn.tolist():
        members = values[starts[group] : starts[group + 1]].tolist()
        told = [value if np.isfinite(value) else None for value in members]
        average = float(mean[group]) if np.isfinite(mean[group]) else None
        yield GroupRewards(str(summary.rewards.ids[group]), len(told), told, average, bool(equal[group]))


def _lines(seen: Sequence[Seen], ids: Sequence[str | int]) -> list[CallLine]:
    """Calls as lines of a table."""
    found = []
    for attempt, name, group, verdict in seen:
        alone = attempt.members == 1
        _, code, reason = told(verdict) if alone and verdict is not None else ("", "", "")
        found.append(
            CallLine(
                str(name) if alone else f"{attempt.members:,} rollouts from {name} on",
                str(ids[group]),
                attempt.part,
                attempt.limit or (code if attempt.end is End.FINISHED else attempt.end.value),
                attempt.clocks.service_s,
                reason,
            )
        )
    return found
