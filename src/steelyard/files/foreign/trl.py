"""TRL: `output_dir/completions/completions_{step:05d}.parquet`, written where `log_completions=True`.

Columns in this order: `step`, `prompt`, `completion`, one of floats for each reward function (null for None),
those of `log_extra`, `advantage`. What a file does not say is derived, checked, or left open:

- **Groups** have no id: they are consecutive blocks of equal prompts (`batches.group_size`).
- **The total** is in no column. One function is the total; of several, a sum with weights of 1 is taken if
  the advantages in the file follow from it (`totals.total`), else weights must be told.
- **None** may be an abstention or a failure: without our `steelyard/verdict` it counts as unscored. TRL sums
  what is there, so a None beside a number counts as 0 in the total.
- **The same batch again**: a file holds the last batch before a log. Where one batch trains several steps, or
  an evaluation is smaller than a batch, rows stand in two files; they are counted once.
- **Stale rows**: a `log_extra` column that was not logged in a batch still has the values of an earlier one.
  A column of measured times that repeats beside other completions is such a column, and is not believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import RefusedError
from steelyard.files.foreign import batches, table, totals
from steelyard.files.foreign.batches import Batch
from steelyard.files.foreign.read import (
    CENSORED,
    CODE,
    ERRORS,
    MARKS,
    OWN,
    SERVICE,
    TIMEOUTS,
    VERDICT,
    Faults,
    Options,
    Read,
    beneath,
)
from steelyard.pricing.observed import MISSING, SCORED, UNSCORED, blank


def read_trl(path: Path, options: Options) -> Read:
    """Read a file, or all of a folder.

    Raises
    ------
    RefusedError
        If a file is not whole or has not these columns (unless such files are skipped), if blocks of prompts
        do not fit the size of groups, or weights do not fit the reward functions.
    """
    below = ("completions_*.parquet", "completions/completions_*.parquet", "*.parquet")
    files = [path] if path.is_file() else beneath(path, *below)
    faults = Faults(options.skip)
    words: dict[str, int] = {}
    found: list[Batch] = []
    for file in files:
        try:
            found += batches.read_batches(file, words)
        except RefusedError as error:
            faults.bad(error.where, error.reason, error.remedy)
    found.sort(key=lambda batch: batch.step)
    about = table.About(source=f"TRL completions {path.name}", labels=[], limit_s=options.limit_s)
    stale = batches.believe(found)
    size, fitting = batches.group_size(found, options.group_size, faults, about.lacks)
    fresh, again = batches.once(fitting, size)
    named = totals.total(fresh, size, options, about.says, about.lacks)
    about.labels = sorted({batch.step for batch in fresh})
    about.causes = list(words)
    about.part = named.names[0] if len(named.names) == 1 else "reward"
    about.totals = named.known
    columns = _columns(fresh, size, named, about)
    _say(about, fresh, again, stale, none=bool((columns.verdict == UNSCORED).any()))
    return table.read(columns, about, faults)


_NO_CALLS = np.zeros(0, np.int64)


def _columns(found: Sequence[Batch], size: int, named: totals.Named, about: table.About) -> table.Columns:
    steps = {step: at for at, step in enumerate(about.labels)}
    lengths = [len(batch) for batch in found]
    n = sum(lengths)

    def joined(of: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
        return np.concatenate(of, dtype=kind) if of else np.zeros(0, kind)

    parts = {name: joined([batch.real(name) for batch in found], float) for name in named.names}
    judged = np.zeros(n, bool)
    for part in parts.values():
        judged |= np.isfinite(part)
    said = joined([batch.verdict for batch in found], int)
    censored = joined([batch.flag([CENSORED]) for batch in found], bool)
    return table.Columns(
        step=np.repeat(np.array([steps[batch.step] for batch in found], int), lengths),
        group=np.arange(n) // size,
        value=joined(named.totals, float),
        verdict=np.where(said != MISSING, said, np.where(judged, SCORED, UNSCORED)),
        told=said != MISSING,
        service_s=joined([batch.real(SERVICE) for batch in found], float),
        limit_s=blank(n),
        began_s=blank(n),
        generated_from_s=blank(n),
        generated_to_s=blank(n),
        timeout=censored | joined([batch.flag(TIMEOUTS) for batch in found], bool),
        error=joined([batch.flag(ERRORS) for batch in found], bool),
        cause=np.where(censored, joined([batch.code for batch in found], int), MISSING),
        call=joined([batch.call for batch in found], int)
        if all(len(batch.call) for batch in found)
        else _NO_CALLS,
        parts=parts,
    )


def _say(
    about: table.About, found: Sequence[Batch], again: int, stale: dict[str, int], *, none: bool
) -> None:
    has = {name for batch in found for name in batch.has}
    own = [name for name in OWN if name in has]
    if not has & MARKS:
        about.unmarked = f"log {VERDICT!r} with log_extra, or return None for what could not be judged"
    if SERVICE in own:
        about.says.append(f"Service times are ours ({SERVICE}).")
    else:
        about.lacks.append(
            f"TRL records no time of the reward: log {SERVICE!r} with log_extra to have it here."
        )
    if none and VERDICT not in own:
        about.lacks.append(
            "A None may be an abstention or a failure; the file does not tell, so it counts as unscored."
        )
    missing = [name for name in (CODE, CENSORED) if name not in own]
    if SERVICE in own and missing:
        about.lacks.append(f"{' and '.join(missing)} were not logged: what was cut is not marked.")
    if again:
        about.says.append(f"{again:,} rows stand in more than one file and are counted once.")
    for name, files in sorted(stale.items()):
        about.lacks.append(
            f"{name!r} was not logged in {files:,} batches: the files repeat earlier values, not believed."
        )
    labels = [batch.step for batch in found]
    if len(labels) > 1 and max(labels) - min(labels) >= len(set(labels)):
        about.lacks.append(
            f"There are files of {len(set(labels)):,} steps between {min(labels)} and {max(labels)}: "
            "TRL writes the last batch before a log, not all of them."
        )
    about.lacks += [
        "An evaluation at a logged step overwrites that step's file with its own rows, unmarked.",
        "Generation and training times are in TRL's logs, not in these files.",
    ]
