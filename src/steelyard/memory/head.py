"""From hidden states to log-probabilities: the largest tensors of a step, where they are made whole.

Bytes of one logit (a token times an entry of the vocabulary) that live at once:

| head | forward | backward |
|---|---|---|
| naive | 10: bf16 logits, fp32 copy, fp32 log-softmax | 14: bf16 logits, fp32 log-softmax, two gradients |
| naive, sharded | 10 | 16: the model hands fp32 logits out, and they stay |
| naive, fp32 | 8: nothing is cast | 16 |
| selective | 4.25 | 4.25: bf16 logits and their gradient, a row at a time in fp32 |
| chunked | of `chunk` tokens x `chunk_vocabulary` entries: 18, bf16 and four fp32 | the same |
| fused | of a tile of 4,096 tokens x 32,768 entries: 2 | the same |

What is naive is what `torch.nn.functional.cross_entropy(logits.float(), labels)` keeps, as transformers'
causal models do it; a cap (Gemma 2) keeps 2 more, its tanh. A chunked or fused head whose weights are
trained sums up their gradient beside the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.memory.plan import Plan
from steelyard.memory.values import Resident

CROSS_ENTROPY = "transformers, loss/loss_utils.py, and torch's log_softmax and nll_loss backward"
BOUNDARY = "torch FSDP2, MixedPrecisionPolicy.output_dtype; accelerate, convert_outputs_to_fp32"
SUM = "torch, csrc/autograd/input_buffer.cpp: gradients of one tensor are summed up before they are kept"
SELECTIVE = "TRL, selective_log_softmax; flash-attn's cross entropy, written over its logits (verl)"
CHUNKED = "prime-rl, layers/lm_head.py; verl, _fused_linear_for_ppo_fwd: logits, and fp32 steps of a softmax"
FUSED = "TRL 1.16, kernels/chunked_logprob.py: tiles of 4,096 x 32,768, gradients in fp32"

FUSED_TILE = (4096, 32768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What lives while the head works, beside the layers' activations.

    `forward` and `backward` are its own moments; `after` stays until the backward pass ends; `hole` is
    freed, and of a size that nothing else asks for: reserved, not allocated.
    """

    forward: tuple[Resident, ...]
    backward: tuple[Resident, ...]
    after: tuple[Resident, ...]
    hole: float


TWO_COPIES = 8.0
"""Bytes of a logit in fp32 and of its log-softmax: what a naive head adds to the logits that it is given."""


def two_copies(batch: int, tokens: int, vocabulary: int) -> float:
    """Bytes of logits in fp32 and of their log-softmax.

    >>> round(two_copies(4, 640, 151_936) / 2**30, 2)
    2.9
    """
    return batch * tokens * vocabulary * TWO_COPIES


def head(plan: Plan) -> Head:
    """What a plan's head keeps."""
    tokens, shape = plan.logit_tokens, plan.model
    value = _value(plan)
    cap = value if shape.capped else 0.0
    vocabulary = -(-shape.vocabulary // plan.tensor_parallel)
    if plan.task == "inference":
        logits = _logits(tokens, vocabulary, value + cap, f"{value:g} B a logit", CROSS_ENTROPY)
        return Head(forward=(logits, _hidden(plan, tokens)), backward=(), after=(), hole=0.0)
    if plan.head in ("chunked", "fused"):
        return _tiled(plan, tokens, vocabulary)
    after = _gradient(plan, vocabulary, _width(plan), CROSS_ENTROPY)
    if plan.head == "selective":
        said = "logits, gradient, a row in fp32"
        logits = _logits(tokens, vocabulary, 2 * value + 0.25 + cap, said, SELECTIVE)
        backward = _backward(plan, logits, 0.0)
        return Head(forward=(logits,), backward=backward, after=after, hole=0.0)
    sharded = plan.precision == "sharded"
    held = 4.0 if sharded or plan.precision == "fp32" else 2.0
    said = "fp32" if held == 4 else "bf16"
    source = BOUNDARY if sharded else CROSS_ENTROPY
    largest = _logits(
        tokens, vocabulary, held + 12.0 + cap, f"{said}, log-softmax, two gradients in fp32", source
    )
    fresh = TWO_COPIES if plan.precision == "fp32" else TWO_COPIES + value
    forward = _logits(tokens, vocabulary, fresh + cap, f"{value:g} B a logit, fp32, log-softmax", source)
    return Head(
        forward=(forward,),
        backward=_backward(plan, largest, held),
        after=(*after, _logits(tokens, vocabulary, held, "what the model handed out", source)),
        hole=2.0 * tokens * vocabulary if sharded else 0.0,
    )


def _backward(plan: Plan, largest: Resident, held: float) -> tuple[Resident, ...]:
    """The head's backward at its widest: at its loss, or, of few tokens, when its weights get their gradient.

    Whoever holds logits (`held`) still does; their gradient is in what the head computes in. Autocast casts
    that of the weights to fp32, when the cast of the weights, and the gradient of the logits, have gone.
    """
    if plan.lora is not None:
        return (largest,)
    tokens, value = plan.logit_tokens, _value(plan)
    vocabulary = -(-plan.model.vocabulary // plan.tensor_parallel)
    widths = [(held + value, value)]
    if plan.precision == "autocast":
        widths.append((held, value + 4 - 2))
    moments: list[tuple[Resident, ...]] = [(largest,)]
    for logits, width in widths:
        left = _logits(tokens, vocabulary, logits, "held, and their gradient", largest.source)
        made = _weights(plan, vocabulary, int(width), "as it is made", largest.source)
        moments.append((left, made))
    return max(moments, key=lambda found: sum(one.bytes for one in found))


def embedding_gradient(plan: Plan) -> tuple[Resident, ...]:
    """What the last of a backward pass makes: the embedding's gradient, as long as the vocabulary.

    A tied head's waits for it, and their sum is a third tensor.
    """
    if plan.lora is not None:
        return ()
    each, count = _width(plan) * (2 if plan.model.tied else 1), plan.model.embedding
    return (
        Resident(
            name="gradient of the embedding",
            owner="trainer",
            bytes=float(each * count / plan.tensor_parallel),
            formula=f"{each} B x {count:,}"
            + (": its own, and its sum with the head's" if plan.model.tied else ""),
            source=SUM,
        ),
    )


def _tiled(plan: Plan, tokens: int, vocabulary: int) -> Head:
    """A head that never holds all logits, but the gradient of its weights."""
    hidden = plan.model.hidden
    fused = plan.head == "fused"
    rows, columns, size = (
        (*FUSED_TILE, 2.0) if fused else (plan.chunk, plan.chunk_vocabulary or vocabulary, 18.0)
    )
    source = FUSED if fused else CHUNKED
    tile = _logits(min(tokens, rows), min(vocabulary, columns), size, "of one tile", source)
    weight, value = _width(plan), int(_value(plan))
    each = weight + (4 if fused else value)
    states = Resident(
        name="hidden states of the head",
        owner="trainer",
        bytes=float(each * tokens * hidden),
        formula=f"{each} B x {tokens:,} tokens x {hidden:,}: kept, and their gradient",
        source=source,
    )
    if plan.lora is not None:
        return Head(forward=(tile, states), backward=(tile, states), after=(), hole=0.0)
    # In fp32 while it is summed up, then cast to what the weights are in, if they are not.
    width = 4 + (2 if weight == 2 else 0) if fused else value
    summed = _weights(plan, vocabulary, width, "summed up", source)
    after = _gradient(plan, vocabulary, weight if fused else value, source)
    return Head(forward=(tile, states), backward=(tile, states, summed), after=after, hole=0.0)


def _gradient(plan: Plan, vocabulary: int, width: int, source: str) -> tuple[Resident, ...]:
    """The head's gradient, until the embedding's is there, too.

    Autograd adds a tied pair up before it hands it on, and FSDP keeps what it has gathered to the end.
    """
    if plan.lora is not None or not (plan.model.tied or plan.precision == "sharded"):
        return ()
    return (_weights(plan, vocabulary, width, "waits for the embedding's", source),)


def _width(plan: Plan) -> int:
    """Bytes of a value of the ends' gradient."""
    return 4 if plan.precision in ("autocast", "fp32") else 2


def _value(plan: Plan) -> float:
    """Bytes of a value that the head reads or gives."""
    return 4.0 if plan.precision == "fp32" else 2.0


def _hidden(plan: Plan, tokens: int) -> Resident:
    """What the head of a mere forward pass reads."""
    size, hidden = _value(plan), plan.model.hidden
    return Resident(
        name="hidden states of the head",
        owner="trainer",
        bytes=size * tokens * hidden,
        formula=f"{size:g} B x {tokens:,} tokens x {hidden:,}: what the last norm gave",
        source=CROSS_ENTROPY,
    )


def _weights(plan: Plan, vocabulary: int, width: int, what: str, source: str) -> Resident:
    hidden = plan.model.hidden
    return Resident(
        name="gradient of the head",
        owner="trainer",
        bytes=float(width * vocabulary * hidden),
        formula=f"{width} B x {vocabulary:,} x {hidden:,}: {what}",
        source=source,
    )


def _logits(tokens: int, vocabulary: int, size: float, what: str, source: str) -> Resident:
    return Resident(
        name="logits",
        owner="trainer",
        bytes=size * tokens * vocabulary,
        formula=f"{size:g} B x {tokens:,} tokens x {vocabulary:,}: {what}",
        source=source,
    )
