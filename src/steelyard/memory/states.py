"""What a trainer keeps between steps: weights, gradients, optimizer states, copies, adapters.

Bytes of one parameter by precision (weights, gradient, AdamW's two moments, master copy):

| precision | weights | gradient | moments | master |
|---|---|---|---|---|
| bf16 | 2 | 2 | 2 + 2 | 0 |
| autocast | 4 | 4 | 4 + 4 | 0 |
| sharded | 4 | 4 | 4 + 4 | 0 |
| master | 2 | 2 | 4 + 4 | 4 |
| fp32 | 4 | 4 | 4 + 4 | 0 |

`master` is the 16 bytes of ZeRO (arXiv:1910.02054, section 3.1). Adapters are kept, trained and stepped in
fp32, whatever the base is in (PEFT's `autocast_adapter_dtype`). Gradients count as resident: they outlive
a micro-batch wherever gradients accumulate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from steelyard.errors import RefusedError
from steelyard.memory.plan import Lora, Plan, Precision
from steelyard.memory.shapes import Linear, ModelShape
from steelyard.memory.values import Resident

ZERO = "ZeRO, arXiv:1910.02054, section 3.1"
QLORA = "QLoRA, arXiv:2305.14314, section 3: NF4 in blocks of 64, each with an fp32 scale, or that in 8 bits"
LORA = "LoRA, arXiv:2106.09685, section 4.1: r (inputs + outputs) of each matrix; PEFT keeps them in fp32"
ADAM = "AdamW, arXiv:1711.05101: two moments"
ADAM_8BIT = (
    "bitsandbytes, optim/optimizer.py: a byte a moment, an fp32 scale for each block of 256; "
    "transformers, trainer.py: the embedding's in fp32 (register_module_override, optim_bits 32)"
)
ADAFACTOR = "Adafactor, arXiv:1804.04235, section 3: a row and a column of each matrix, in fp32"
MUON = "Muon, kellerjordan.github.io/posts/muon: one momentum of a matrix; AdamW for what is none"
DDP = "torch.nn.parallel.DistributedDataParallel: buckets beside gradients (gradient_as_bucket_view off)"
SGD = "torch.optim.SGD: one momentum; the foreach step adds it up in place"
FOREACH = "torch.optim.adamw: the square roots of all second moments at once"
SINGLE = "torch.optim.adamw: a square root and a quotient of one tensor"

NF4 = 0.5 + 4 / 64
"""Bytes of a weight: half a byte, and an fp32 scale for each block of 64."""
NESTED = 0.5 + (1 + 4 / 256) / 64
"""Bytes of a weight: half a byte, and for each block of 64 a byte that is itself scaled in blocks of 256."""
EIGHT = 2 * (1 + 4 / 256)
"""Bytes of both moments."""

_WEIGHT: dict[Precision, int] = {"bf16": 2, "autocast": 4, "sharded": 4, "master": 2, "fp32": 4}
_MOMENT: dict[Precision, int] = {"bf16": 2, "autocast": 4, "sharded": 4, "master": 4, "fp32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is trained: how many parameters, and the bytes of one's weight, moment and master copy.

    `matrices` of them are in matrices, whose rows and columns add up to `edges`; `largest` is the largest
    tensor; `embedded` are in the embedding.
    """

    count: int
    weight: int
    moment: int
    master: int
    matrices: int
    edges: int
    largest: int
    embedded: int


def adapted(shape: ModelShape, lora: Lora) -> tuple[tuple[int, Linear], ...]:
    """Matrices that get adapters, each with how many layers have it.

    Raises
    ------
    RefusedError
        A target is no matrix of this model.
    """
    if lora.targets is None:
        # What PEFT's "all-linear" finds: in transformers, experts and routers are bare tensors.
        return tuple(
            (layer.count, linear)
            for layer in shape.layers
            for linear in layer.linears
            if linear.copies == 1 and not (linear.reads == "mlp norm" and linear.outputs == layer.mlp.experts)
        )
    every = [(layer.count, linear) for layer in shape.layers for linear in layer.linears]
    known = {linear.name for _, linear in every}
    for target in lora.targets:
        if target not in known:
            raise RefusedError(
                f"{target!r} is no linear layer of {shape.name}, which has {', '.join(sorted(known))}",
                where="LoRA targets",
                remedy="name some of these, or none for all of them",
            )
    return tuple((count, linear) for count, linear in every if linear.name in lora.targets)


def trained(plan: Plan) -> Kind:
    """What gets gradients: everything, or adapters; nothing where nothing is trained."""
    shape = plan.model
    if plan.task == "inference":
        return Kind(count=0, weight=0, moment=0, master=0, matrices=0, edges=0, largest=0, embedded=0)
    if plan.lora is not None:
        rank, sets = plan.lora.rank, plan.lora.sets
        pairs = [(n * m.copies * sets, rank * (m.inputs + m.outputs)) for n, m in adapted(shape, plan.lora)]
        count = sum(n * pair for n, pair in pairs)
        edges = sum(n * (pair // rank + 2 * rank) for n, pair in pairs)
        largest = max(pair for _, pair in pairs)
        return Kind(
            count=count,
            weight=4,
            moment=4,
            master=0,
            matrices=count,
            edges=edges,
            largest=largest,
            embedded=0,
        )
    every = [(layer.count, linear) for layer in shape.layers for linear in layer.linears]
    return Kind(
        count=shape.parameters,
        weight=_WEIGHT[plan.precision],
        moment=_MOMENT[plan.precision],
        master=4 if plan.precision == "master" else 0,
        matrices=sum(n * m.copies * m.inputs * m.outputs for n, m in every),
        edges=sum(n * m.copies * (m.inputs + m.outputs) for n, m in every)
        + (1 if shape.tied else 2) * (shape.vocabulary + shape.hidden),
        largest=max(shape.embedding, *(m.parameters for _, m in every)),
        embedded=shape.embedding,
    )


def weights(plan: Plan) -> list[Resident]:
    """The model, and its adapters."""
    shape = plan.model
    size = _WEIGHT[plan.precision]
    cut, over = _cut(plan, "zero3")
    if plan.lora is None or plan.task == "inference":
        return [_resident("weights", size * shape.parameters / cut, f"{size} B x {shape.parameters:,}{over}")]
    kind = trained(plan)
    if plan.lora.quantized:
        flat = sum(n.count * m.copies * m.inputs * m.outputs for n in shape.layers for m in n.linears)
        rest = shape.parameters - flat
        each = NESTED if plan.lora.nested else NF4
        base = each * flat + 2 * rest
        said = f"({each:.3f} B x {flat:,} in 4 bits + 2 B x {rest:,}){over}"
        found = [_resident("weights", base / cut, said, QLORA)]
    else:
        found = [
            _resident("weights", size * shape.parameters / cut, f"{size} B x {shape.parameters:,}{over}")
        ]
    return [*found, _resident("adapters", 4 * kind.count / cut, f"4 B x {kind.count:,}{over}", LORA)]


def gradients(plan: Plan) -> list[Resident]:
    """Of what is trained, and DDP's second copy of them."""
    kind = trained(plan)
    if not kind.count:
        return []
    cut, over = _cut(plan, "zero2")
    each = kind.weight if plan.gradient_bytes is None or plan.lora else plan.gradient_bytes
    found = [_resident("gradients", each * kind.count / cut, f"{each} B x {kind.count:,}{over}")]
    if plan.sharding == "none" and plan.shards > 1:
        said = f"{each} B x {kind.count:,}"
        size = each * kind.count / plan.tensor_parallel
        found.append(_resident("gradient buckets", size, said, DDP))
    return found


def optimizer(plan: Plan) -> list[Resident]:
    """Its states, and the master copy; what lies on the host is not listed."""
    kind = trained(plan)
    cut, over = _cut(plan, "zero1")
    if not kind.count:
        return []
    two = 2 * kind.moment
    rest = kind.count - kind.matrices
    size, said, source = {
        "adamw": (two * kind.count, f"{two} B x {kind.count:,}", ADAM),
        "paged_adamw": (0.0, "", ADAM),
        "adamw_8bit": (
            EIGHT * (kind.count - kind.embedded) + 8 * kind.embedded,
            f"{EIGHT:.3f} B x {kind.count - kind.embedded:,} + 8 B x {kind.embedded:,} of the embedding",
            ADAM_8BIT,
        ),
        "paged_adamw_8bit": (0.0, "", ADAM_8BIT),
        "adafactor": (
            4 * (kind.edges + rest),
            f"4 B x {kind.edges + rest:,} rows, columns and vectors",
            ADAFACTOR,
        ),
        "muon": (
            kind.moment * kind.matrices + two * rest,
            f"{kind.moment} B x {kind.matrices:,} of matrices + {two} B x {rest:,}",
            MUON,
        ),
        "sgd": (0.0, "", ""),
        "sgd_momentum": (kind.moment * kind.count, f"{kind.moment} B x {kind.count:,}", SGD),
    }[plan.optimizer]
    found = [_resident("optimizer states", size / cut, said + over, source)] if size else []
    if kind.master:
        found.append(_resident("master weights", 4 * kind.count / cut, f"4 B x {kind.count:,}{over}"))
    return found


def step_temporaries(plan: Plan) -> list[Resident]:
    """What the optimizer makes while it steps."""
    kind = trained(plan)
    cut, over = _cut(plan, "zero1")
    size = 4 if kind.master else kind.moment
    if not kind.count or plan.step_kernel == "fused" or plan.optimizer not in ("adamw", "muon"):
        return []
    if plan.offload_optimizer == "host":  # the host steps
        return []
    if plan.step_kernel == "foreach":
        said = f"{size} B x {kind.count:,}{over}"
        return [
            replace(_resident("step temporaries", size * kind.count / cut, said, FOREACH), kind="passing")
        ]
    said = f"2 x {size} B x {kind.largest:,} of the largest tensor{over}"
    return [
        replace(_resident("step temporaries", 2 * size * kind.largest / cut, said, SINGLE), kind="passing")
    ]


def reference(plan: Plan) -> list[Resident]:
    """The second model that a KL penalty needs; adapters are switched off instead."""
    if not plan.reference or plan.lora is not None or plan.task != "grpo":
        return []
    size = _WEIGHT[plan.precision]
    cut, over = _cut(plan, "zero3")
    count = plan.model.parameters
    return [_resident("reference model", size * count / cut, f"{size} B x {count:,}{over}", ZERO)]


def _cut(plan: Plan, stage: str) -> tuple[int, str]:
    """By how many GPUs something is shared that is shared from this stage on."""
    stages = ("none", "zero1", "zero2", "zero3")
    over = plan.shards if stages.index(plan.sharding) >= stages.index(stage) else 1
    cut = over * plan.tensor_parallel
    return cut, f" / {cut} GPUs" if cut > 1 else ""


def _resident(name: str, size: float, formula: str, source: str = ZERO) -> Resident:
    return Resident(name=name, owner="trainer", bytes=size, formula=formula, source=source, kind="state")
