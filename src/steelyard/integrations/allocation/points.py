"""Where measured peaks are kept: a CSV file, a row for each kind of peak.

Its columns are those of the public measurements that the planner is checked with, and the plan as it was,
so that it can be checked with these, too (`steelyard.memory.points`). Allocated and reserved are two rows,
as they are two measurements. A file that is torn or has other columns is refused rather than mended; a row
is appended by one write, and synced.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from steelyard.errors import RefusedError
from steelyard.memory.plain import values_of
from steelyard.memory.plan import Plan
from steelyard.memory.values import GIB

COLUMNS: Final = (
    "model",
    "task",
    "lora_rank",
    "gpus",
    "seq",
    "micro_batch",
    "checkpointing",
    "attention",
    "device",
    "dtype",
    "optimizer",
    "loss_head",
    "peak_gib",
    "kind",
    "source",
    "note",
    "plan",
)
_TASKS: Final = {"grpo": "rl", "sft": "sft", "inference": "inference"}
_DTYPES: Final = {"bf16": "bf16 weights", "autocast": "fp32 weights, bf16 autocast", "fp32": "fp32 weights"}


def rows_of(
    plan: Plan, *, device: str, allocated: int, reserved: int, source: str, note: str
) -> list[dict[str, str]]:
    """Two rows of a measured step.

    Parameters
    ----------
    plan
        That was run.
    device
        The GPU's name.
    allocated, reserved
        Bytes at the peak of each.
    source, note
        Whose measurement it is, and what else is to be known of it.
    """
    trains = plan.task != "inference"
    row = {
        "model": plan.model.name,
        "task": _TASKS[plan.task],
        "lora_rank": str(plan.lora.rank) if plan.lora and trains else "",
        "gpus": str(plan.gpus),
        "seq": str(plan.tokens if plan.micro_tokens is None else plan.step_tokens),
        "micro_batch": str(plan.micro_batch if plan.micro_tokens is None else 1),
        "checkpointing": plan.checkpointing if trains and plan.checkpointing != "none" else "",
        "attention": plan.attention,
        "device": device,
        "dtype": _DTYPES[plan.precision],
        "optimizer": f"{plan.optimizer} ({plan.step_kernel})" if trains else "",
        "loss_head": _head(plan) if trains else "",
        "source": source,
        "note": note,
        "plan": json.dumps(values_of(plan)),
    }
    peaks = {"max_memory_allocated": allocated, "max_memory_reserved": reserved}
    return [{**row, "kind": kind, "peak_gib": f"{size / GIB:.4f}"} for kind, size in peaks.items()]


def _head(plan: Plan) -> str:
    return f"chunked over tokens ({plan.chunk})" if plan.head == "chunked" else plan.head


def append(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Append rows to a file of points, which is made if there is none.

    Raises
    ------
    RefusedError
        It cannot be read or written, ends within a row, or has other columns.
    """
    try:
        if file.exists() and not file.is_file():
            raise _refused(file, "it is no file", "name a CSV file, or none yet")  # a pipe would not end
        before = file.read_bytes() if file.exists() else b""
        if before:
            _refuse_foreign(file, before)
        text = io.StringIO(newline="")
        end = "\r\n" if b"\r\n" in before else "\n"
        writer = csv.DictWriter(text, COLUMNS, lineterminator=end)
        if not before:
            writer.writeheader()
        writer.writerows(rows)
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            data = text.getvalue().encode()
            if (written := os.write(number, data)) != len(data):
                raise OSError(f"only {written} of {len(data)} bytes were written")
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        raise RefusedError(
            f"it cannot be appended to: {error}", where=str(file), remedy="name a file that can be written"
        ) from error


def _refuse_foreign(file: Path, before: bytes) -> None:
    try:
        text = before.decode()
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refused(file, f"it is no CSV in UTF-8: {error}", "name another file") from error
    if tuple(lines[0]) != COLUMNS:
        raise _refused(
            file, f"its columns are {', '.join(lines[0])[:200]}", "name a file of points, or none yet"
        )
    if not text.endswith("\n"):
        raise _refused(file, "its last row is torn: no end of line", "remove that row")
    for number, row in enumerate(lines[1:], 2):
        if len(row) != len(COLUMNS):
            raise _refused(
                file, f"row {number} has {len(row)} fields, not {len(COLUMNS)}", "mend or remove it"
            )


def _refused(file: Path, reason: str, remedy: str) -> RefusedError:
    return RefusedError(reason, where=str(file), remedy=remedy)
