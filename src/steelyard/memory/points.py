"""Measured peaks as plans: rows of `points.csv`, and of what `steelyard fit --verify` writes.

A row says what was run in words, which become a plan; one that `steelyard fit --verify` wrote has the plan.
What words leave open is for the caller to say (`LeftOpen`): what the harness does that made the rows. No
number is taken from a measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import cast, get_args

from steelyard.errors import RefusedError
from steelyard.memory.estimate import estimate
from steelyard.memory.plain import plan_of
from steelyard.memory.plan import (
    AttentionKernel,
    Checkpointing,
    Head,
    Lora,
    Optimizer,
    OptimizerOffload,
    Plan,
    Precision,
    StepKernel,
)
from steelyard.memory.shapes import ModelShape
from steelyard.memory.values import GIB, Card


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOpen:
    """What rows of a source do not say.

    Attributes
    ----------
    targets
        Matrices with adapters; None: every linear layer.
    momentum
        Its SGD has one.
    chunk_vocabulary
        Entries of the vocabulary that a chunked head takes at a time; None: all.
    """

    targets: tuple[str, ...] | None = None
    momentum: bool = False
    chunk_vocabulary: int | None = None


NOTHING: Mapping[str, LeftOpen] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: what was run, what was seen, and of which of the two kinds."""

    plan: Plan
    measured: float
    kind: str
    source: str
    said: str


def read_point(
    row: Mapping[str, str],
    shape_of: Callable[[str], ModelShape],
    *,
    place: str,
    left_open: Mapping[str, LeftOpen] = NOTHING,
) -> Point:
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
    left_open
        By the first word of a source, what its rows leave open.

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
    shape = shape_of(row["model"])
    if row.get("plan"):
        plan = plan_of(_values(row["plan"], place), shape, place=place)
    else:
        word = (row.get("source") or " ").split(" ")[0]
        plan = _plan(row, shape, place, left_open.get(word, LeftOpen()))
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


def _values(text: str, place: str) -> Mapping[str, object]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise RefusedError(
            f"plan is {text[:40]!r}, and no JSON object", where=place, remedy="leave the column empty"
        )
    return values


def _plan(row: Mapping[str, str], shape: ModelShape, place: str, open_: LeftOpen) -> Plan:
    words = row["task"].split()
    training = _training(words[0], place)
    _refuse_contradiction(row, words, place)
    precision, sharded = _dtype(row.get("dtype") or "", words, training=training, place=place)
    optimizer, kernel, offload = _optimizer(row, open_, training=training, place=place)
    head, chunk = _head(row.get("loss_head") or "", place)
    plan = Plan(
        model=shape,
        task="sft" if training else "inference",
        prompt=0,
        completion=_whole(row, "seq", place),
        micro_batch=_whole(row, "micro_batch", place),
        gpus=_whole(row, "gpus", place),
        tensor_parallel=_whole(row, "tp", place) if row.get("tp") else 1,
        sequence_parallel=_whole(row, "cp", place) if row.get("cp") else 1,
        sharding="zero3" if sharded else "none",
        precision=precision,
        optimizer=optimizer,
        step_kernel=kernel or ("single" if sharded else "foreach"),
        offload_optimizer=offload,
        checkpointing=_checkpointing(row.get("checkpointing") or "none", place),
        attention=_kernel(row.get("attention") or "", place),
        head=head,
        chunk=chunk,
        chunk_vocabulary=open_.chunk_vocabulary,
        engine=None,
    )
    if not row.get("lora_rank"):
        return plan
    sets = re.search(r"(\d+) adapter sets", row["optimizer"])
    rank = _whole(row, "lora_rank", place)
    return replace(plan, lora=Lora(rank=rank, targets=open_.targets, sets=int(sets[1]) if sets else 1))


def _training(said: str, place: str) -> bool:
    if said not in ("rl", "sft", "train", "inference"):
        raise RefusedError(
            f"task is {said!r}, and must begin with rl, sft, train or inference",
            where=place,
            remedy="say what was run",
        )
    return said != "inference"


def _refuse_contradiction(row: Mapping[str, str], words: list[str], place: str) -> None:
    """A task in words may repeat what columns say, and must not say otherwise."""
    for word in words[1:]:
        spoken = _SPOKEN.fullmatch(word)
        if spoken is None:
            continue
        name, value = ("attention", word) if spoken["kernel"] else (spoken["name"], spoken["value"])
        column = {"b": "micro_batch", "s": "seq", "lora": "lora_rank"}.get(name.rstrip("="), name)
        there = (row.get(column) or "").removesuffix(".0")
        if there != value and not (column == "attention" and there.startswith(value)):
            raise RefusedError(
                f"task says {word!r}, and {column} is {there!r}", where=place, remedy="say the same in both"
            )
    for word, column, wrong in (("ckpt", "checkpointing", False), ("full", "lora_rank", True)):
        if word in words and bool(row.get(column)) is wrong:
            raise RefusedError(
                f"task says {word!r}, and {column} is {row.get(column)!r}",
                where=place,
                remedy="say the same in both",
            )


_SPOKEN = re.compile(r"(?P<kernel>sdpa|eager|flash)|(?P<name>b=|s=|lora)(?P<value>\d+)")


def _dtype(said: str, words: list[str], *, training: bool, place: str) -> tuple[Precision, bool]:
    """Precision, and whether FSDP shares it out. fp16 takes what bf16 takes."""
    spoken = {"bf16", "fp16", "fp32"}.intersection(words)
    if spoken and not any(word in said for word in spoken):
        raise RefusedError(
            f"task says {min(spoken)!r}, and dtype is {said!r}", where=place, remedy="say the same in both"
        )
    if "FSDP" in said and "fp32 master" in said:
        return "sharded", True
    if "FSDP" not in said and said.startswith("fp32 weights"):
        mixed = re.search(r"(bf16|fp16) autocast", said)
        word = "pure" if mixed else "amp"
        if word in words:
            raise RefusedError(
                f"task says {word!r}, and dtype is {said!r}", where=place, remedy="say the same in both"
            )
        return ("autocast" if mixed and training else "fp32"), False
    if "amp" not in words and said in ("bf16 weights", "fp16 weights"):
        return "bf16", False
    raise RefusedError(
        f"dtype is {said!r}, and must be bf16 weights, fp16 weights, fp32 weights, fp32 weights and bf16 "
        "autocast (in a task that says amp), or fp32 master and gradients with FSDP2",
        where=place,
        remedy="say in what weights are kept, and in what it is computed",
    )


def _optimizer(
    row: Mapping[str, str], open_: LeftOpen, *, training: bool, place: str
) -> tuple[Optimizer, StepKernel | None, OptimizerOffload]:
    """The optimizer, how it steps if that is said, and where its states lie."""
    said = row.get("optimizer") or ""
    name = re.split(r"[^\w-]", said.lower())[0]
    rest = said.lower()[len(name) :]
    eight = ("8bit" in said or "8-bit" in said) and "adamw" in name
    paged = "paged_" if "paged" in name or "paged" in rest else ""
    if eight:
        name = f"{paged}adamw_8bit"
    elif name == "sgd" and ("momentum" in rest or open_.momentum):
        name = "sgd_momentum"
    if not training and not said:
        name = "adamw"
    if name not in get_args(Optimizer):
        raise RefusedError(
            f"optimizer is {said!r}, and must begin with one of {', '.join(get_args(Optimizer))}",
            where=place,
            remedy="name it",
        )
    kernel = re.search(r"\b(fused|foreach|single)\b", rest)
    away = re.search(r"offloaded:\s*(\w+)", rest)
    if "offload" in rest and (not away or away[1] not in ("yes", "no")):
        raise RefusedError(
            f"optimizer is {said!r}, and must be offloaded: yes, or no", where=place, remedy="say which"
        )
    return (
        cast("Optimizer", name),
        cast("StepKernel", kernel[1]) if kernel else None,
        "step" if away and away[1] == "yes" else "none",
    )


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
