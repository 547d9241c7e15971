"""Measured peaks as plans: rows of `points.csv`, and of what `steelyard fit --verify` writes.

A row says what was run in words. Here they become a plan; what a row leaves open is what its source does
when it is told nothing, written out in `SOURCES`. No number is taken from a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import cast, get_args

from steelyard.errors import RefusedError
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import AttentionKernel, Checkpointing, Head, Lora, Plan, Precision, StepKernel
from steelyard.memory.shapes import ModelShape
from steelyard.memory.values import GIB, Card

ATTENTION_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")

SOURCES: Mapping[str, tuple[str, ...] | None] = {"vramcalc": ATTENTION_TARGETS}
"""Matrices with adapters where a row does not say: vramcalc's harness (bench.py) names the four of attention;
prime-rl and others adapt every linear layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: what was run, what was seen, and of which of the two kinds."""

    plan: Plan
    measured: float
    kind: str
    source: str
    said: str


def read_point(row: Mapping[str, str], shape_of: Callable[[str], ModelShape], *, place: str) -> Point:
    """A row of a table of measurements.

    Parameters
    ----------
    row
        By column: model, task, lora_rank, gpus, seq, micro_batch, checkpointing, attention, dtype, optimizer,
        loss_head, peak_gib, kind, source.
    shape_of
        Shape of a model by its name.
    place
        File and line, for messages.

    Raises
    ------
    RefusedError
        A column is absent, or holds what it must not.
    """
    kind = row.get("kind", "")
    if kind not in ("max_memory_allocated", "max_memory_reserved"):
        raise RefusedError(
            f"kind is {kind!r}, and must be max_memory_allocated or max_memory_reserved",
            where=place,
            remedy="say which of the two was measured: they are different things",
        )
    absent = [column for column in ("model", "task", "seq", "peak_gib") if not row.get(column)]
    if absent:
        raise RefusedError(
            f"{absent[0]} is {row.get(absent[0])!r}, and must be said", where=place, remedy="fill it in"
        )
    plan = _plan(row, shape_of(row["model"]), place)
    said = f"{row['model']} {row['task']} {plan.tokens:,} {row.get('attention', '')} {plan.checkpointing}"
    return Point(
        plan=plan,
        measured=_number(row, "peak_gib", place) * GIB,
        kind=kind,
        source=row.get("source", ""),
        said=said,
    )


def predicted(point: Point, card: Card) -> float:
    """What the estimate says of the same figure, in bytes."""
    phase = estimate(point.plan, card).peak
    return phase.allocated if point.kind == "max_memory_allocated" else phase.reserved


def _plan(row: Mapping[str, str], shape: ModelShape, place: str) -> Plan:
    words = row["task"].split()
    training = words[0] != "inference"
    precision, kernel = _dtype(row.get("dtype", ""), words)
    rank = _whole(row, "lora_rank", place) if row.get("lora_rank") else None
    head, chunk = _head(row.get("loss_head", ""), place)
    plan = Plan(
        model=shape,
        task="sft" if training else "inference",
        prompt=0,
        completion=_whole(row, "seq", place),
        micro_batch=_whole(row, "micro_batch", place),
        gpus=_whole(row, "gpus", place),
        sharding="zero3" if precision == "sharded" else "none",
        precision=precision,
        step_kernel=kernel,
        checkpointing=_checkpointing(row.get("checkpointing") or "none", place),
        attention=_kernel(row.get("attention", ""), place),
        head=head,
        chunk=chunk,
        engine=None,
    )
    if rank is None:
        return plan
    name = row.get("source", "").split()[0] if row.get("source") else ""
    sets = re.search(r"(\d+) adapter sets", row.get("optimizer", ""))
    lora = Lora(rank=rank, targets=SOURCES.get(name), sets=int(sets[1]) if sets else 1)
    return replace(plan, lora=lora)


def _dtype(said: str, words: list[str]) -> tuple[Precision, StepKernel]:
    """Precision, and how the optimizer steps: FSDP2's tensors one by one, others all at once."""
    if "FSDP" in said:
        return "sharded", "single"
    if "autocast" in said or "amp" in words:
        return "autocast", "foreach"
    return "bf16", "foreach"


def _head(said: str, place: str) -> tuple[Head, int]:
    """The head, and tokens of a chunk."""
    chunk = re.search(r"chunked over tokens \((\d+)\)", said)
    if chunk:
        return "chunked", int(chunk[1])
    if said not in ("", "naive", "selective", "fused"):
        raise RefusedError(
            f"loss_head is {said!r}, and must be naive, selective, fused, or chunked over tokens (N)",
            where=place,
            remedy="name the head",
        )
    return cast("Head", said or "naive"), 1


def _checkpointing(said: str, place: str) -> Checkpointing:
    if said not in get_args(Checkpointing):
        raise RefusedError(
            f"checkpointing is {said!r}, and must be empty, recompute or offload",
            where=place,
            remedy="say what is kept of a layer",
        )
    return cast("Checkpointing", said)


def _kernel(said: str, place: str) -> AttentionKernel:
    if said.startswith("flash"):
        return "flash"
    if said not in ("sdpa", "eager"):
        raise RefusedError(
            f"attention is {said!r}, and must be sdpa, eager or flash...",
            where=place,
            remedy="name the kernel",
        )
    return cast("AttentionKernel", said)


def _number(row: Mapping[str, str], column: str, place: str) -> float:
    try:
        number = float(row[column])
    except (KeyError, TypeError, ValueError):
        number = 0.0
    if not 0 < number < inf:
        raise RefusedError(
            f"{column} is {row.get(column)!r}, and must be a number above 0", where=place, remedy="fill it in"
        )
    return number


def _whole(row: Mapping[str, str], column: str, place: str) -> int:
    number = _number(row, column, place)
    if not number.is_integer():
        raise RefusedError(
            f"{column} is {row[column]!r}, and must be a whole number", where=place, remedy="mend it"
        )
    return int(number)
