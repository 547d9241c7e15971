"""The same step on a GPU, and what CUDA's counters say of it. Never run on one where this was developed.

`max_memory_allocated` counts live tensors, `max_memory_reserved` what the allocator took for them, and the
driver what all processes took of the card, contexts included. They are three measurements. Running out of
memory is an outcome, with what was allocated when it happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from steelyard.errors import describe
from steelyard.integrations.allocation.training import prepared, run
from steelyard.memory.plan import Plan


class Meter(Protocol):
    """What counts a device's memory; a test brings its own."""

    name: str
    device: str

    def start(self) -> None:
        """Forget peaks, and give back what is unused."""

    def peaks(self) -> tuple[int, int]:
        """The most bytes allocated, and the most reserved, since."""

    def beyond(self) -> int:
        """Bytes that the driver counts and the allocator has not reserved: contexts, other processes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step took.

    `phase` is where memory ran out, None where it did not; `reason` what CUDA said then.
    """

    allocated: int
    reserved: int
    beyond: int
    phase: str | None = None
    reason: str | None = None


class CudaMeter:
    """The first GPU."""

    device = "cuda"

    def __init__(self) -> None:
        self.name = str(torch.cuda.get_device_name(0))

    def start(self) -> None:
        """Forget peaks, and give back what is unused."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def peaks(self) -> tuple[int, int]:
        """The most bytes allocated, and the most reserved, since."""
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()), int(torch.cuda.max_memory_reserved())

    def beyond(self) -> int:
        """Bytes that the driver counts and the allocator has not reserved."""
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved())


def meter() -> Meter | None:
    """That of the GPU here; None where there is none.

    Examples
    --------
    >>> meter() is None or meter().device
    True
    """
    return CudaMeter() if torch.cuda.is_available() else None


def measure(config: Mapping[str, Any], plan: Plan, counting: Meter) -> Measured:
    """Take a plan's step on a device.

    Parameters
    ----------
    config
        The parsed `config.json`.
    plan
        Of one GPU; `asked.not_run` says nothing against it.
    counting
        Counts that device's memory.
    """
    at = "build"

    def phase(name: str) -> None:
        nonlocal at
        at = name

    counting.start()
    try:
        trainee = prepared(config, plan, device=counting.device, attention=kernel(plan))
        counting.start()  # initialising weights makes copies that no training has
        run(trainee, plan, phase)
    except RuntimeError as error:
        if not _is_full(error):
            raise
        return Measured(*counting.peaks(), counting.beyond(), at, describe(error))
    return Measured(*counting.peaks(), counting.beyond())


def _is_full(error: RuntimeError) -> bool:
    """Memory ran out: of the allocator, or of a library that asks the driver itself, in its own words."""
    said = str(error)
    told = any(words in said for words in ("out of memory", "_ALLOC_FAILED"))
    return told or isinstance(error, torch.OutOfMemoryError)


def kernel(plan: Plan) -> str:
    """The attention that transformers is asked for: flash-attn's where it is installed, else torch's own."""
    if plan.attention == "flash":
        return "flash_attention_2" if find_spec("flash_attn") else "sdpa"
    return plan.attention
