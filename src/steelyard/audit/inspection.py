"""The edge: look a file over, ask the recipe while there is time, put what was seen together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from steelyard.audit.answers import answer_findings, untold
from steelyard.audit.conduct import conduct_findings
from steelyard.audit.judging import Asking, floorless
from steelyard.audit.observed import Finding, Level, Observed, Report
from steelyard.audit.plan import plan_of
from steelyard.audit.sample import Sample, sample
from steelyard.audit.spread import spread_findings, spread_of
from steelyard.audit.steps import Steps
from steelyard.audit.tables import part_times, specimen_lines
from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.ledger import Ledger, Run
from steelyard.outcome import How
from steelyard.rewards import Recipe
from steelyard.rewards.serving import refuse_in_worker
from steelyard.runtime import PLACES, Runtime

WITHIN_S: Final = 8.0
"""Seconds of reading and asking: with the start of the command below ten."""

CPU_S: Final = 2.0
AWAIT_S: Final = 10.0
"""Seconds for one rollout: of CPU for a synchronous reward, of the wall where a part is awaited."""

_ORDER: Final = {Level.FAULT: 0, Level.DOUBT: 1, Level.NOTE: 2}


def check_file(
    file: str | Path,
    recipe: Recipe,
    *,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
    timeout_s: Seconds | None = None,
    workers: int | None = None,
    within_s: Seconds = WITHIN_S,
) -> Report:
    """Inspect what a recipe pays for on a file of rollouts, before anything is trained with it.

    Parameters
    ----------
    file
        JSON Lines, plain or `.gz`, or Parquet; `-` is standard input. Of a long one the beginning is
        looked over, and of that a sample of groups is asked about.
    recipe
        What to inspect.
    columns
        Our column names to the file's, where they differ.
    skip_bad_rows
        Whether bad rows are a note; else they are a fault, as `score` refuses them. Good ones are asked
        about either way.
    timeout_s
        Seconds for one rollout, as in `Runtime`; 2 if not given, 10 where a part is awaited.
    workers
        Processes for synchronous rewards.
    within_s
        Seconds after which nothing more is asked; what did not come back is said.

    Raises
    ------
    RefusedError
        If the file, a column or the recipe cannot be used.
    """
    refuse_in_worker("check_file")
    clock = SystemClock()
    began = clock.now()
    awaits = any(part.reward.how is How.ASYNC for part in recipe.parts)
    way = _Way(recipe, timeout_s or (AWAIT_S if awaits else CPU_S), workers, clock)
    chosen = sample(str(file), recipe, columns or {})
    steps = Steps(plan_of(recipe, chosen.groups), clock, began + within_s, within_s)
    with TemporaryDirectory(prefix="steelyard-check-") as folder, Ledger(Path(folder) / "ledger") as ledger:
        run = ledger.begin("check", {}, {part.reward.name: part.reward.identity for part in recipe.parts})
        asyncio.run(_look(steps, way, ledger, run))
        attempts = list(ledger.attempts(run))
    at_once = {How.INLINE: 1, How.WORKER: workers or _cores(), How.ASYNC: PLACES}
    times = part_times(recipe.parts, attempts, steps.own, steps.long, at_once)
    report = _report(chosen, steps, steps.observed(attempts), skip_bad_rows=skip_bad_rows)
    return replace(report, times=times, taken_s=clock.now() - began)


class _Way(NamedTuple):
    """How a recipe is run."""

    recipe: Recipe
    timeout_s: Seconds
    workers: int | None
    clock: Clock

    def runtime(self, ledger: Ledger | None = None, run: Run | None = None) -> Runtime:
        """Make a runtime, with processes of its own."""
        return Runtime(
            floorless(self.recipe),
            ledger=ledger,
            run=run,
            timeout_s=self.timeout_s,
            workers=self.workers,
            stop=False,
            clock=self.clock,
        )


async def _look(steps: Steps, way: _Way, ledger: Ledger, run: Run) -> None:
    async with way.runtime(ledger, run) as first:
        asking = Asking(way.recipe, first, way.clock)
        if not await steps.first(asking):
            return
        await steps.look(asking)
        await steps.again(asking, fresh=False)
        async with way.runtime() as second:
            await steps.again(Asking(way.recipe, second, way.clock), fresh=True)
        await steps.look_last(asking)


def _report(chosen: Sample, steps: Steps, seen: Observed, *, skip_bad_rows: bool) -> Report:
    spread = spread_of(seen)
    findings = [
        *_bad_rows(chosen, skip=skip_bad_rows),
        *conduct_findings(seen),
        *answer_findings(seen),
        *spread_findings(seen, spread),
    ]
    return Report(
        file=chosen.found.name,
        parts=[part.name for part in seen.parts],
        rollouts=chosen.found.rollouts,
        groups=len(chosen.found.group_ids),
        whole=chosen.whole,
        form=seen.form,
        specimens=specimen_lines(seen, steps.texts),
        spread=spread,
        findings=sorted(findings, key=lambda found: _ORDER[found.level]),
        not_run=[*steps.plan.not_run, *untold(seen), *steps.not_run],
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bad_rows(chosen: Sample, *, skip: bool) -> list[Finding]:
    if not chosen.bad:
        return []
    says = f"bad rows, which score refuses: {chosen.bad}; mend them, or leave them out with --bad-rows skip"
    return [Finding(Level.NOTE if skip else Level.FAULT, "rows", says)]
