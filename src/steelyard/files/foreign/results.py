"""verifiers up to 0.1.14: `results.jsonl`, with `metadata.json` beside it.

A line is one rollout of an evaluation: `example_id`, `reward`, `error`, `timing`, `stop_condition`, ... The
last line may be torn, since rollouts are appended as they end.

- A group is an example; there are no training steps.
- `reward` is 0.0 where a reward function raised, which leaves no mark, and often where the rollout ended in
  an error, which does: `error` is an object then. `null` is a rollout that nobody scored.
- `timing.scoring` has start and end by the clock of the machine; 0.1.8 has `scoring_ms` alone, in the row.
  A rubric that judges whole groups writes the same times to all of a group: one call.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from steelyard.files.foreign import table
from steelyard.files.foreign.lines import ValueFaultError, flag, number, records, seen
from steelyard.files.foreign.read import Faults, Options, Read

FIELDS = frozenset({"example_id", "reward"})
CLOCKS = ("timing", "scoring_ms")


def read_results(path: Path, options: Options) -> Read:
    """Read a file, or the one of a folder.

    Raises
    ------
    RefusedError
        At the first line that cannot be read, unless such lines are skipped; the last one may be torn.
    """
    path = path / "results.jsonl" if path.is_dir() else path
    faults = Faults(options.skip)
    gathered = table.Gathered()
    for file, line, record in records([path], faults):
        try:
            _add(gathered, record)
        except ValueFaultError as error:
            faults.bad(f"{file}:{line}", str(error), "check what wrote it")
    columns = gathered.columns()
    about = table.About(
        source=f"verifiers results {path.parent.name}/{path.name}",
        labels=list(gathered.labels),
        part="scoring",
        stepped=False,
        together=True,
        limit_s=options.limit_s,
        says=["A group is an example.", "The reward is the total; an error is marked."],
    )
    _describe(path.with_name("metadata.json"), len(gathered), about)
    timed = int(np.isfinite(columns.service_s).sum())
    if timed:
        about.says.append("Service times are timing.scoring: all reward functions of a rollout together.")
    if timed < len(gathered):
        about.lacks.append(f"{len(gathered) - timed:,} of {len(gathered):,} rollouts have no scoring time.")
    about.lacks += [
        "A reward function that raised is written as 0.0, without a mark.",
        "No timeout is recorded, and no training step.",
    ]
    return table.read(columns, about, faults)


def _add(gathered: table.Gathered, record: dict[str, Any]) -> None:
    absent = FIELDS - record.keys()
    if absent:
        raise ValueFaultError(f"no {min(absent)!r} in this row; it has {', '.join(sorted(record)[:20])}")
    timing = record.get("timing", record)
    if not isinstance(timing, dict):
        raise ValueFaultError(f"'timing' must be an object, this is {seen(timing)}")
    example = record["example_id"]
    if not isinstance(example, int | str):
        raise ValueFaultError(f"'example_id' must be a number or text, this is {seen(example)}")
    began, ended = span(timing, "scoring")
    service = ended - began
    if math.isnan(service):
        milliseconds = number(timing, "scoring_ms")
        service = milliseconds / 1000 if milliseconds > 0 else table.NAN
    gathered.add(
        step="run",
        group=(type(example), example),
        value=number(record, "reward"),
        service_s=service,
        began_s=began,
        generated=span(timing, "generation"),
        error=flag(record, ("error",)),
    )


def span(timing: dict[str, Any], name: str) -> tuple[float, float]:
    """Start and end of a stage; (`nan`, `nan`) unless both were written down.

    Raises
    ------
    ValueFaultError
        If it ends before it starts.
    """
    found = timing.get(name)
    if not isinstance(found, dict):
        return table.NAN, table.NAN
    start, end = number(found, "start"), number(found, "end")
    if not (start > 0 and end > 0):  # 0.0 is what an unused span holds
        return table.NAN, table.NAN
    if end < start:
        raise ValueFaultError(f"'timing.{name}' ends {start - end:.3g} s before it starts")
    return start, end


def _describe(path: Path, rollouts: int, about: table.About) -> None:
    """What the run was, as `metadata.json` tells; it may be absent, or torn as any file of a killed run."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        about.lacks.append(f"There is no readable {path.name} beside the file: which run it was is unknown.")
        return
    if not isinstance(found, dict):
        return
    about.source += f" ({found.get('env_id', 'no env_id')}, {found.get('model', 'no model')})"
    examples, each = found.get("num_examples"), found.get("rollouts_per_example")
    if isinstance(examples, int) and isinstance(each, int) and 0 < examples * each != rollouts:
        about.lacks.append(f"{rollouts:,} of the {examples * each:,} rollouts of the run are in the file.")
