"""What a layer keeps of its tokens until its backward pass, and what that pass makes on the way.

Counted operator by operator, as autograd keeps it; `steelyard fit --verify` counts the real model's
operators. Bytes of one token, for h hidden, H and K heads of queries and keys, widths d of a key and e of
a value, and F of the MLP:

| part | keeps |
|---|---|
| RMSNorm | its input in fp32, 4h; where its weight is trained, the normalised input: 2h, or 4h in fp32 |
| linear | its input, 2 x inputs, where it is trained or has an adapter: once for all that read the same |
| attention, `flash` | queries, keys, values, output, 2(Hd + Kd + Ke + He), and 4H of log-sums |
| attention, `sdpa` | the same with keys and values repeated for every query head, and its output copied |
| attention, `eager` | queries, repeated keys and values, and 6 bytes for each head and token that is seen |
| gated MLP | gate, its activation, up, 2F each; their product, 2F, as the input of the last matrix |

In fp32 (`precision`) values take 4 bytes where the table says 2, and nothing is cast.
`torch.autocast` keeps a cast of its own for every matrix that reads fp32, and so do adapters in fp32 over
a base in bf16, in fp32. Fused kernels (Liger) keep a norm's input as it comes and make the activation anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.memory.plan import Plan
from steelyard.memory.shapes import Layer, Linear, Reads
from steelyard.memory.states import adapted
from steelyard.memory.values import Resident

COUNTED = "counted by operator: docs/memory.md, Activations; `steelyard fit --verify` counts the real model"
CHECKPOINTING = "Chen et al. 2016, arXiv:1604.06174: the input of each layer; one layer at a time anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes of one layer and pass: kept until its backward, above that within it, and of a mere forward."""

    kept: float
    backward: float
    forward: float


def of_layer(plan: Plan, layer: Layer) -> Kept:
    """What one of these layers keeps of the tokens of one pass."""
    tokens, shape = plan.step_tokens, plan.model
    hidden, residual = shape.hidden, _residual(plan)
    attention, scores = _attention(plan, layer)
    mlp, turn = _mlp(plan, layer)
    norms = layer.norms * _norm(plan, layer, hidden)
    first, then = _reads(plan, layer)
    kept = norms + attention + mlp + first + then
    # The last matrix, then the product, come first: gradients of the product and of both its factors live
    # while the product itself is gone. Attention's turn comes when what follows it has been freed.
    freed = mlp + then + layer.norms // 2 * _norm(plan, layer, hidden)
    above = (residual + (8 if _apart(plan) else 0)) * hidden + max(turn, scores - freed)
    forward = 4 * residual * hidden + max(3 * _width(plan, layer), _inference(plan, layer))
    return Kept(kept=kept * tokens, backward=above * tokens, forward=forward * tokens)


def mask(plan: Plan) -> float:
    """Bytes of what says which token sees which, where a kernel needs it in full: of windows, of scores."""
    windows = any((layer.attention.window or plan.tokens) < plan.tokens for layer in plan.model.layers)
    each = {"flash": 0, "sdpa": 1 + _each(plan) if windows else 0, "eager": _each(plan)}[plan.attention]
    return float(each * plan.micro_batch * plan.tokens**2)


def inputs(plan: Plan) -> float:
    """Bytes of the inputs of all layers, which checkpointing keeps."""
    return float(_residual(plan) * plan.model.hidden * plan.model.depth * plan.step_tokens)


def ends(plan: Plan) -> float:
    """Bytes that the last norm keeps, and the head of its input."""
    layer, hidden = plan.model.layers[-1], plan.model.hidden
    trained = plan.lora is None
    return float((_norm(plan, layer, hidden) + (_each(plan) * hidden if trained else 0)) * plan.step_tokens)


def casts(plan: Plan, *, layer: Layer | None = None) -> float:
    """Bytes of the bf16 copies that autocast makes of fp32 matrices: of all, or of one layer."""
    if plan.precision != "autocast" or (plan.lora is not None and plan.lora.quantized):
        return 0.0
    if layer is not None:
        return 2.0 * sum(linear.parameters for linear in layer.linears) / plan.tensor_parallel
    return head_cast(plan) + sum(one.count * casts(plan, layer=one) for one in plan.model.layers)


def head_cast(plan: Plan) -> float:
    """Of those, the head's."""
    if plan.precision != "autocast" or (plan.lora is not None and plan.lora.quantized):
        return 0.0  # beside 4 bits, what is not quantized is in bf16
    return 2.0 * plan.model.embedding / plan.tensor_parallel


def resident(name: str, size: float, formula: str, source: str = COUNTED) -> Resident:
    """A resident of the trainer."""
    return Resident(name=name, owner="trainer", bytes=size, formula=formula, source=source)


def _residual(plan: Plan) -> int:
    """Bytes of a value of the residual stream: autocast leaves it in fp32."""
    return 4 if plan.precision in ("autocast", "fp32") else 2


def _each(plan: Plan) -> int:
    """Bytes of a value that a matrix reads or gives."""
    return 4 if plan.precision == "fp32" else 2


def _norm(plan: Plan, layer: Layer, width: float, *, narrow: bool = False) -> float:
    """What a norm of this width keeps of a token, its output apart; a narrow one is always given bf16."""
    if layer.norm == "layer" or plan.fused_kernels:
        return (_each(plan) if narrow else _residual(plan)) * width
    normalised = 4 if layer.norm == "rms_fp32" else _each(plan) if narrow else _residual(plan)
    return (4 + (normalised if plan.lora is None else 0)) * width


def _reads(plan: Plan, layer: Layer) -> tuple[float, float]:
    """Inputs that matrices keep, up to attention and after it: one if they read the same, or a cast each."""
    chosen = [linear for linear in layer.linears if linear.copies == 1]  # experts gather what they read
    if plan.lora is not None:
        names = {linear.name for _, linear in adapted(plan.model, plan.lora)}
        chosen = [linear for linear in chosen if linear.name in names]
    size = 4 if _apart(plan) else _each(plan)
    kernel = plan.attention == "flash" and not _apart(plan)  # its output is kept already

    def alone(*reads: Reads) -> float:
        return size * sum(linear.inputs for linear in chosen if linear.reads in reads)

    first = [linear for linear in chosen if linear.reads == "attention norm"]
    second = [linear for linear in chosen if linear.reads == "mlp norm"]
    if layer.norms == 1:  # attention and MLP side by side read the same
        first, second = [*first, *second], []
    hidden, split = plan.model.hidden, plan.tensor_parallel
    late = (alone("activation") + (0 if kernel else alone("attention"))) / split
    return alone("own") + hidden * _normed(plan, len(first)), late + hidden * _normed(plan, len(second))


def _normed(plan: Plan, readers: int) -> int:
    """Bytes of a value of a norm's output that so many matrices read."""
    if not readers:
        return 0
    if _apart(plan):
        return 4 * readers
    return 2 * readers if plan.precision == "autocast" else _each(plan)


def _apart(plan: Plan) -> bool:
    """Adapters compute in fp32 over a base in bf16, and keep a cast of what they read."""
    return plan.lora is not None and plan.precision in ("bf16", "master")


def _attention(plan: Plan, layer: Layer) -> tuple[float, float]:
    """What attention keeps, its output's copy apart, and what its backward makes above the layer's."""
    one, split = layer.attention, plan.tensor_parallel
    heads, pairs = one.heads / split, max(1.0, one.kv_heads / split)
    key, value, size = one.head_dim, one.value_dim, _each(plan)
    normed = _norm(plan, layer, (heads + pairs) * key, narrow=True) if one.qk_norm else 0.0
    if plan.attention == "flash":
        return normed + size * (heads * (key + value) + pairs * (key + value)) + 4 * heads, 0.0
    kept = size * heads * (2 * key + value)
    if plan.attention == "sdpa":
        return normed + kept + size * heads * value + 4 * heads, 0.0
    seen = min(plan.tokens, one.window or plan.tokens) if plan.tokens else 0
    # Probabilities in fp32, and cast to what values are in, if they are not; a cap keeps its tanh.
    # Backward: their gradient and that of the scores in fp32, when the cast is gone.
    cast = 0 if size == 4 else size
    each = 4 + cast + (size if one.capped else 0)
    return normed + kept + each * heads * seen, (8 - cast) * heads * seen


def _inference(plan: Plan, layer: Layer) -> float:
    """What attention makes of a token in a mere forward pass."""
    one, split = layer.attention, plan.tensor_parallel
    heads = one.heads / split
    size = _each(plan)
    kept = size * heads * (2 * one.head_dim + one.value_dim)
    if plan.attention != "eager":
        return kept + size * heads * one.value_dim
    # Scores (and their tanh), a copy in fp32, if they are not, and the softmax in fp32.
    each = size * (2 if one.capped else 1) + (4 if size == 2 else 0) + 4
    return kept + each * heads * plan.tokens


def _width(plan: Plan, layer: Layer) -> float:
    """Bytes of what the MLP makes of a token at its widest, once: 2F or 4F, over the experts that see it."""
    mlp = layer.mlp
    routed = mlp.active * mlp.width if mlp.experts else mlp.width
    return float(_each(plan)) * (routed + mlp.shared) / plan.tensor_parallel


def _mlp(plan: Plan, layer: Layer) -> tuple[float, float]:
    """What the MLP keeps, its last matrix's input apart, and what its backward makes above the layer's."""
    mlp, wide = layer.mlp, _width(plan, layer)
    product = (
        wide
        if plan.lora is None or _adapts(plan, (one for one in layer.linears if one.reads == "activation"))
        else 0.0
    )
    if not mlp.gated:
        return mlp.steps * wide, (3 if mlp.steps > 1 else 2) * wide - product
    kept = (2 if plan.fused_kernels else 3) * wide
    if mlp.experts:
        # Tokens gathered for their experts, the product, what experts hand back for the router's gradient.
        kept += 2 * _each(plan) * mlp.active * plan.model.hidden + wide
    # The product has gone when its gradient becomes those of both factors; a fused kernel writes over them.
    turn = (2 if plan.fused_kernels else 3) * wide - product
    both = [
        linear for linear in layer.linears if linear.outputs == 2 * mlp.width and linear.reads == "mlp norm"
    ]
    if both and _apart(plan) and _adapts(plan, both):
        # Gate and up at once, made anew: the base's, the adapter's in fp32, and that scaled, while what is
        # kept in the end is not there yet.
        turn = max(turn, 2 * wide + 2 * 4 * wide - kept - (2 * product))
    return kept, turn


def _adapts(plan: Plan, matrices: Iterable[Linear]) -> bool:
    """Some of these matrices have adapters."""
    targets = plan.lora.targets if plan.lora else None
    return targets is None or any(linear.name in targets for linear in matrices)
