"""How fast rollouts can come: decoding reads all weights and the whole cache for every token.

One step of decoding makes one token of each of `batch` sequences:

    bytes = weights read + batch * cached bytes of one sequence
    seconds = max(bytes / sustained bandwidth, batch * 2 * active parameters / operations per second)

so that the tokens per second of a batch are an upper bound, which no engine passes and most stay below
(`steps.DECODE_SHARE`). The convention, which gives the table of shared/design/memory.md within 0.2 %: every
parameter of the checkpoint is read once a step, an untied embedding too, in bf16; the cache holds exactly
`context` tokens of each sequence. In truth such an embedding is looked up, so that the bound of an 8B model
is up to 8 % too low.

Of a mixture of experts a step reads those that some token of the batch chose. Routing is taken for uniform
and independent, so that of E experts, k to a token, `E * (1 - (1 - k/E)^batch)` are read on average: real
routers prefer some, and read fewer.

Tensor parallelism divides weights, cache and operations; what GPUs say to each other is left out, so of
several GPUs this is too fast. A head of keys and values is not divided: beyond as many GPUs as there are such
heads each keeps a whole one, and latent attention (MLA) is kept whole by all (vLLM: `max(1,
total_num_kv_heads // tensor_parallel_size)`). Attention's own operations are left out of decoding: grouped
heads do a few per byte read where a card does a hundred; of MLA, which does hundreds, the bound is too high.

Sources: Williams, Waterman and Patterson 2009 (the roofline); Pope et al. 2022, "Efficiently Scaling
Transformer Inference" (weights and cache of a decoding step); Kaplan et al. 2020 (2 operations a parameter).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from steelyard.errors import RefusedError
from steelyard.memory.shapes import ModelShape
from steelyard.memory.values import Card

Bound = Literal["bandwidth", "compute"]

PREFILL_SHARE: Final = 0.5
"""Of paper operations that a prefill reaches: assumed. Training of dense models reaches 0.46 to 0.58
(`steps`), and a prefill is its forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """One decoding step of a batch, at a context.

    Attributes
    ----------
    tokens_per_s
        Of the whole batch, at most.
    bound
        What limits it.
    weight_bytes, cache_bytes
        What a step reads on one GPU.
    cache_share
        Of these bytes, the cache's.
    """

    tokens_per_s: float
    bound: Bound
    weight_bytes: float
    cache_bytes: float
    cache_share: float


def decode(
    shape: ModelShape,
    card: Card,
    *,
    batch: int = 1,
    context: int = 0,
    tensor_parallel: int = 1,
    weight_bytes: float = 2.0,
    cache_bytes: float = 2.0,
) -> Decode:
    """Tokens per second of a batch, at most.

    Parameters
    ----------
    shape, card
        What decodes, on what.
    batch
        Sequences at once.
    context
        Tokens that each of them has in the cache.
    tensor_parallel
        GPUs that share one copy.
    weight_bytes, cache_bytes
        Of one weight and one cached value: 2 for bf16, 1 for fp8.

    Raises
    ------
    RefusedError
        A number that cannot be; a card whose bandwidth is not known.

    Examples
    --------
    >>> from steelyard.memory.cards import card
    >>> from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
    >>> heads = Attention(heads=16, kv_heads=8, head_dim=128, value_dim=128, cache_dim=2048)
    >>> every = (Linear(name="all of a layer", inputs=1024, outputs=15360, reads="own"),)
    >>> layer = Layer(count=28, attention=heads, mlp=Mlp(width=3072), linears=every, vectors=2304)
    >>> sizes = {"hidden": 1024, "vocabulary": 151936, "tied": True, "vectors": 1024}
    >>> small = ModelShape(name="0.6B", family="", layers=(layer,), **sizes)
    >>> f"{decode(small, card('DGX Spark'), batch=128, context=512).tokens_per_s:.0f} tokens/s"
    '2719 tokens/s'
    """
    reads = _Reads(
        shape,
        card,
        batch=batch,
        tensor_parallel=tensor_parallel,
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
    )
    _refuse_below(0, context=context)
    cached = reads.cached_s(context) * card.sustained
    moved_s = (reads.weights + cached) / card.sustained
    return Decode(
        tokens_per_s=batch / max(moved_s, reads.compute_s),
        bound="compute" if reads.compute_s > moved_s else "bandwidth",
        weight_bytes=reads.weights,
        cache_bytes=cached,
        cache_share=cached / (reads.weights + cached),
    )


def decode_s(
    shape: ModelShape,
    card: Card,
    *,
    sequences: int,
    prompt: int,
    completion: int,
    at_once: int | None = None,
    tensor_parallel: int = 1,
    weight_bytes: float = 2.0,
    cache_bytes: float = 2.0,
) -> float:
    """Seconds to decode completions, all of them of full length, at least.

    Parameters
    ----------
    sequences
        Completions, on one copy of the model.
    prompt, completion
        Tokens of each: the cache grows from `prompt` to `prompt + completion`.
    at_once
        How many decode together; more come in waves, the next when the last has ended. None: all.
    shape, card, tensor_parallel, weight_bytes, cache_bytes
        As in `decode`.

    Raises
    ------
    RefusedError
        As `decode`.

    Notes
    -----
    The exact sum over steps: the cache grows by the same bytes each token until a window is full, so that
    each run of equal layers adds an arithmetic series.
    """
    _refuse_below(0, sequences=sequences, prompt=prompt, completion=completion)
    _refuse_below(1, at_once=1 if at_once is None else at_once)
    if not sequences:
        return 0.0
    together = min(sequences, at_once or sequences)
    waves, rest = divmod(sequences, together)
    total = 0.0
    for many, size in ((waves, together), (1, rest)):
        if size:
            reads = _Reads(
                shape,
                card,
                batch=size,
                tensor_parallel=tensor_parallel,
                weight_bytes=weight_bytes,
                cache_bytes=cache_bytes,
            )
            total += many * reads.grown_s(prompt, prompt + completion)
    return total


def prefill_s(
    shape: ModelShape,
    card: Card,
    *,
    tokens: int,
    context: int = 0,
    tensor_parallel: int = 1,
    share: float = PREFILL_SHARE,
) -> float:
    """Seconds to read prompts, which is bound by operations.

    Parameters
    ----------
    tokens
        Of all prompts together.
    context
        Of each prompt: what attention multiplies.
    share
        Of paper operations that is reached.
    shape, card, tensor_parallel
        As in `decode`.

    Raises
    ------
    RefusedError
        A card whose operations are not known; a share that cannot be.
    """
    flops = known_flops(card)
    if not 0 < share <= 1:
        raise RefusedError(f"share = {share} is no share", where="roofline", remedy="give 0.5 for 50 %")
    each = 2 * shape.active + attention_flops(shape, context)
    return tokens * each / (flops * share * tensor_parallel)


def known_flops(card: Card) -> float:
    """The card's operations per second.

    Raises
    ------
    RefusedError
        If nobody gave any.
    """
    if card.flops is None:
        raise RefusedError(
            f"no public figure of the bf16 operations of {card.name} is known here",
            where="card",
            remedy="give the card by its numbers (memory.cards.plain), with flops",
        )
    return card.flops


def attention_flops(shape: ModelShape, context: int) -> float:
    """Operations per token of a forward pass over `context` tokens, of queries with keys and with values.

    Notes
    -----
    `2 * heads * (head_dim + value_dim)` for each pair of tokens (Chowdhery et al. 2022, PaLM, appendix B),
    and a causal token sees half of them on average; a window, what it holds.
    """
    total = 0.0
    for layer in shape.layers:
        at = layer.attention
        seen = min(context / 2, at.window or context)
        total += layer.count * 2 * at.heads * (at.head_dim + at.value_dim) * seen
    return total


def weights_read(shape: ModelShape, batch: int) -> float:
    """Parameters that a step of so many tokens reads: all, but of the experts those that were chosen."""
    unread = 0.0
    for layer in shape.layers:
        if layer.mlp.experts:
            experts = sum(linear.parameters for linear in layer.linears if linear.copies > 1)
            missed = (1 - layer.mlp.active / layer.mlp.experts) ** batch
            unread += layer.count * experts * missed
    return shape.parameters - unread


def _refuse_below(least: int, **counts: int) -> None:
    for name, value in counts.items():
        if value < least:
            raise RefusedError(
                f"{name} = {value} is below {least}", where="roofline", remedy=f"give {least} or more"
            )


class _Reads:
    """What one step of a batch moves, on one GPU."""

    def __init__(
        self,
        shape: ModelShape,
        card: Card,
        *,
        batch: int,
        tensor_parallel: int,
        weight_bytes: float,
        cache_bytes: float,
    ) -> None:
        for name, value in (
            ("batch", batch),
            ("tensor_parallel", tensor_parallel),
            ("weight_bytes", weight_bytes),
            ("cache_bytes", cache_bytes),
        ):
            if not value > 0:
                raise RefusedError(f"{name} = {value} is not above 0", where="roofline", remedy="give more")
        if not card.sustained > 0:
            raise RefusedError(
                f"the bandwidth of {card.name} is not known",
                where="card",
                remedy="name a card, or give its bandwidth in bytes per second",
            )
        self.weights = weights_read(shape, batch) * weight_bytes / tensor_parallel
        self.weights_s = self.weights / card.sustained
        flops = card.flops and card.flops * tensor_parallel
        self.compute_s = batch * 2 * shape.active / flops if flops else 0.0
        self.layers = [
            (
                batch * layer.count * layer.attention.cached(tensor_parallel) * cache_bytes / card.sustained,
                layer.attention.window,
            )
            for layer in shape.layers
        ]

    def cached_s(self, tokens: int) -> float:
        """Seconds to read the cache of sequences of so many tokens."""
        return sum(each * min(tokens, window or tokens) for each, window in self.layers)

    def grown_s(self, start: int, stop: int) -> float:
        """Seconds of the steps at `start`, ..., `stop - 1` tokens."""
        low, high = start, stop
        while low < high:  # the cache only grows: up to somewhere operations bound it, and bandwidth beyond
            middle = (low + high) // 2
            if self.weights_s + self.cached_s(middle) < self.compute_s:
                low = middle + 1
            else:
                high = middle
        total = (low - start) * self.compute_s + (stop - low) * self.weights_s
        for each, window in self.layers:
            full = stop if window is None else min(max(window, low), stop)
            total += each * ((low + full - 1) * (full - low) / 2 + (window or 0) * (stop - full))
        return total
