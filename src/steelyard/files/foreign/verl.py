"""verl: `trainer.rollout_data_dir/{global_step}.jsonl`, and `validation_data_dir` of the same shape.

Every line has `input`, `output`, `gts`, `score`, `step`; behind them what the reward returned beside its
score, if it did so for every completion (`acc`, `timeout`, `error`, ours), and `request_id` in the older
trainer. The newer one (v1) leaves these out and writes `uid` = `{sample}_{rollout}_{output}`.

- A group is a sample of a step: by `uid`, else by the text of `input`, since lines stand in any order.
- `score` is the sum over tokens: the total, whatever it was made of. verl knows no missing score.
- Timings are logged per stage, to a dashboard, not here: service times exist where ours were returned.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.files.foreign import table
from steelyard.files.foreign.lines import ValueFaultError, flag, number, records, seen
from steelyard.files.foreign.read import (
    CENSORED,
    CODE,
    ERRORS,
    MARKS,
    SERVICE,
    TIMEOUTS,
    VERDICT,
    Faults,
    Options,
    Read,
    beneath,
)

FIELDS = frozenset({"input", "output", "score", "step"})


def read_verl(path: Path, options: Options) -> Read:
    """Read a file, or all of a folder.

    Raises
    ------
    RefusedError
        At the first line that cannot be read, unless such lines are skipped.
    """
    faults = Faults(options.skip)
    gathered = table.Gathered()
    extras: set[str] = set()
    several: set[Hashable] = set()
    for file, line, record in records(
        [path] if path.is_file() else beneath(path, "*.jsonl", "*.jsonl.gz"), faults
    ):
        try:
            _add(gathered, record, several)
        except ValueFaultError as error:
            faults.bad(f"{file}:{line}", str(error), "check what wrote it")
            continue
        extras.update(record.keys() - FIELDS)
    columns = gathered.columns()
    about = table.About(
        source=f"verl rollouts {path.name}",
        labels=list(gathered.labels),
        causes=list(gathered.causes),
        limit_s=options.limit_s,
        says=[f"A group is a sample of a step, by {'uid' if 'uid' in extras else 'the text of its input'}."],
    )
    _say(about, columns, extras, len(several), options.group_size)
    return table.read(columns, about, faults)


def _add(gathered: table.Gathered, record: dict[str, Any], several: set[Hashable]) -> None:
    absent = FIELDS - record.keys()
    if absent:
        raise ValueFaultError(f"no {min(absent)!r} in this row; it has {', '.join(sorted(record))}")
    step = record["step"]
    if type(step) is not int:
        raise ValueFaultError(f"'step' must be an integer, this is {seen(step)}")
    group: Hashable = hash(str(record["input"]))
    uid = record.get("uid")
    if isinstance(uid, str):
        sample, *rest = uid.rsplit("_", 2)
        group = sample if len(rest) == 2 else uid
        if len(rest) == 2 and rest[1] != "0":
            several.add((step, sample, rest[0]))
    said = record.get(VERDICT)
    verdict = None if said is None else table.VERDICTS.get(said, -1)
    if verdict == -1:
        raise ValueFaultError(f"{VERDICT!r} must be {', '.join(table.VERDICTS)}, this is {seen(said)}")
    gathered.add(
        step=step,
        group=group,
        value=number(record, "score"),
        verdict=verdict,
        service_s=number(record, SERVICE),
        timeout=flag(record, (*TIMEOUTS, CENSORED)),
        error=flag(record, ERRORS),
        cause=str(record.get(CODE) or "wall") if flag(record, (CENSORED,)) else "",
    )


def _say(
    about: table.About, columns: table.Columns, extras: set[str], several: int, group_size: int | None
) -> None:
    timed = bool(np.isfinite(columns.service_s).any())
    flags = sorted(extras & MARKS)
    about.says.append("The score is the total that was trained on.")
    if timed:
        about.says.append(f"Service times are ours ({SERVICE}).")
    else:
        about.lacks.append(
            f"verl records no time of the reward: return {SERVICE!r} beside the score to have it here."
        )
    if flags:
        about.says.append(f"Failures are marked by the reward itself ({', '.join(flags)}).")
    else:
        about.unmarked = f"return 'timeout' and 'error', or {VERDICT!r}, beside the score"
        if "uid" in extras:
            about.unmarked += (
                " (the v1 trainer leaves them out of its files: record the loop, docs/recording.md)"
            )
    about.lacks.append("Generation and training times are on verl's dashboard, not in this file.")
    if several:
        about.lacks.append(f"{several:,} rollouts have more than one output, each a row with its score.")
    sizes = (
        np.bincount(np.unique(columns.group, return_inverse=True)[1])
        if len(columns.group)
        else np.zeros(0, int)
    )
    usual = int(np.median(sizes)) if len(sizes) else 0
    odd = int((sizes != (group_size or usual)).sum())
    if odd:
        about.lacks.append(
            f"{odd:,} of {len(sizes):,} groups do not have {group_size or usual} rows: samples with the same "
            "text count as one, and filtered rows are absent."
        )
