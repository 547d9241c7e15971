"""Measured peaks as plans: rows of `points.csv`, and of what `steelyard fit --verify` writes.

A row says what was run in words. Here they become a plan; what a row leaves open is what its source does when it
is told nothing, written out in `SOURCES`. No number is taken from a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

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
    """One measurement: what was run, what was seen, and of which kind: `max_memory_allocated` or `_reserved`."""

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
    rank = int(_number(row, "lora_rank", place)) if row.get("lora_rank") else None
    head, chunk = _head(row.get("loss_head", ""))
    plan = Plan(
        model=shape,
        task="sft" if training else "inference",
        prompt=0,
        completion=int(_number(row, "seq", place)),
        micro_batch=int(_number(row, "micro_batch", place)),
        gpus=int(_number(row, "gpus", place)),
        sharding="zero3" if precision == "sharded" else "none",
        precision=precision,
        step_kernel=kernel,
        checkpointing=cast("Checkpointing", row.get("checkpointing") or "none"),
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


def _head(said: str) -> tuple[Head, int]:
    """The head, and tokens of a chunk."""
    chunk = re.search(r"chunked over tokens \((\d+)\)", said)
    if chunk:
        return "chunked", int(chunk[1])
    return ("fused" if said == "fused" else "selective" if said == "selective" else "naive"), 1


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
    except (KeyError, ValueError) as error:
        raise RefusedError(
            f"{column} is {row.get(column)!r}, and must be a number", where=place, remedy="fill it in"
        ) from error
    return number
