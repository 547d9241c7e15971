"""What an estimate is: residents, phases, a peak with a band, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steelyard.memory.plan import Plan

GIB = 1024.0**3

Confidence = Literal["high", "medium", "low"]
Verdict = Literal["fits", "tight", "does not fit"]
PhaseName = Literal["generation", "training", "sync"]
Owner = Literal["trainer", "engine", "device"]
Kind = Literal["state", "passing", "hole", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Something that lies on one GPU during a phase.

    Attributes
    ----------
    name
        `weights`, `gradients`, `KV cache`, ...
    owner
        Whose it is: the trainer's, the engine's, or the device's (its context).
    kind
        `state`: lies where it lay before; `passing`: comes and goes within a step; `hole`: reserved by the
        allocator, and no tensor; `share`: taken because it was granted, whatever it is needed for.
    bytes
        On the fullest GPU.
    formula
        How it was reckoned, with the numbers in it: `2 B x 596,049,920 weights / 8 GPUs`.
    source
        Where the formula is from: a paper, a file of a library, a measurement with its document.
    """

    name: str
    owner: Owner
    bytes: float
    formula: str
    source: str
    kind: Kind = "passing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a step, at its worst moment.

    Attributes
    ----------
    name
        `generation`, `training` or `sync`.
    moment
        When in it the peak is: `backward of the head`, `optimizer step`, ...
    residents
        All that lies there then, largest first.
    """

    name: PhaseName
    moment: str
    residents: tuple[Resident, ...]

    @property
    def bytes(self) -> float:
        """Of the whole device: what the card must have."""
        return sum(resident.bytes for resident in self.residents)

    @property
    def uncertain(self) -> float:
        """Bytes that an estimate can be off by a share of: all but what an engine takes because it may."""
        return sum(resident.bytes for resident in self.residents if resident.kind != "share")

    @property
    def allocated(self) -> float:
        """The trainer's live tensors: its part of what `torch.cuda.max_memory_allocated` says."""
        return sum(r.bytes for r in self.residents if r.owner == "trainer" and r.kind != "hole")

    @property
    def reserved(self) -> float:
        """Those and the allocator's holes: the trainer's part of `torch.cuda.max_memory_reserved`."""
        return sum(r.bytes for r in self.residents if r.owner == "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The memory of a plan.

    Attributes
    ----------
    plan
        What was asked.
    phases
        In the order of a step.
    below, above
        Shares by which the peak may be off, downwards and upwards, an engine's share apart: 0.1 is 10 %.
    confidence
        How much was measured of models like this one: `high`, `medium`, `low`.
    why
        The reason of that confidence, in a sentence.
    """

    plan: Plan
    phases: tuple[Phase, ...]
    below: float
    above: float
    confidence: Confidence
    why: str

    @property
    def peak(self) -> Phase:
        """The worst phase."""
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def low(self) -> float:
        """Bytes of the peak, if it is off downwards; an engine's share is what it is."""
        return self.peak.bytes - self.below * self.peak.uncertain

    @property
    def high(self) -> float:
        """Bytes of the peak, if it is off upwards."""
        return self.peak.bytes + self.above * self.peak.uncertain


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU, or what serves as one.

    Attributes
    ----------
    name
        As vendors call it: `H100 80GB`.
    bytes
        Memory that a program can have, which is less than the label says.
    bandwidth, sustained
        Bytes per second: on paper, and what a long read reaches.
    flops
        Dense bf16 operations per second, on paper; None where no public figure exists.
    cuda
        It runs what is written for CUDA (or, AMD's, for ROCm): vLLM, bitsandbytes, Liger, flash-attn.
    unified
        Memory is shared with the host (DGX Spark, Apple): what lies "on the host" lies here, too.
    source
        Where the figures are from.
    """

    name: str
    bytes: float
    bandwidth: float
    sustained: float
    flops: float | None
    unified: bool = False
    cuda: bool = True
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change of the plan, what it buys at the peak, and what it costs.

    Attributes
    ----------
    name, option
        What is changed, and the options of `steelyard fit` that do so.
    saves, left
        Bytes that the peak is lower by, and what it then is.
    verdict
        Of the changed plan.
    cost
        What it costs otherwise, in a sentence.
    plan
        The changed plan.
    """

    name: str
    option: str
    saves: float
    left: float
    verdict: Verdict
    cost: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """How far the plan can be taken on this card, one thing at a time, all else as it is.

    Attributes
    ----------
    micro_batch
        Completions of one pass; where sequences are packed, None, and `micro_tokens` says it in tokens.
    context
        Tokens of a prompt and its completion.
    model
        Name of the largest dense model of the catalogue. All are None where nothing fits.
    """

    micro_batch: int | None
    micro_tokens: int | None
    context: int | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An estimate against a card.

    Attributes
    ----------
    verdict
        `fits`: even the upper end of the band does; `tight`: the estimate does, and not the whole band;
        `does not fit`: the estimate is above what the card has, or the engine does not start.
    why
        What decides it, in a sentence.
    levers
        Changes that buy something at the peak, the largest first.
    together
        Where it does not fit: the cheapest of them that do it together, each with what the ones before it
        leave; empty where it fits, and where nothing that leaves model and GPUs as they are suffices.
    held
        Sequences of full length that the engine's cache holds at a time; None without an engine.
    """

    estimate: Estimate
    card: Card
    verdict: Verdict
    why: str
    held: int | None
    levers: tuple[Lever, ...]
    together: tuple[Lever, ...]
    largest: Largest
