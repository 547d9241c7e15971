"""What a model is made of: linear layers, vectors, heads, and how often.

A shape is what memory needs to know of a model and no more. `families` reads one from a Hugging Face
`config.json`; `catalogue` holds public ones by name. Weights are counted as the checkpoint stores them: a
tied head once, buffers (rotary tables) not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reads = Literal["attention norm", "mlp norm", "attention", "activation", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A matrix of a layer.

    Attributes
    ----------
    name
        What LoRA's targets call it.
    inputs, outputs
        Its widths.
    reads
        Whose output it multiplies: of the norm before attention or before the MLP, of attention, of the MLP's
        activation, or of something narrower that only it reads (MLA's compressed vectors).
    bias
        A vector is added.
    copies
        How many there are of it in a layer: one for each expert.
    """

    name: str
    inputs: int
    outputs: int
    reads: Reads
    bias: bool = False
    copies: int = 1

    @property
    def parameters(self) -> int:
        """Weights and biases of all copies."""
        return self.copies * (self.inputs + self.bias) * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Heads of one layer.

    Attributes
    ----------
    heads, kv_heads
        Query heads, and the heads of keys and values (fewer: GQA; one: MQA).
    head_dim, value_dim
        Width of a query or key, and of a value.
    cache_dim
        Values that the KV cache keeps of one token in this layer: `kv_heads * (head_dim + value_dim)`, or,
        with latent attention (DeepSeek MLA), the compressed vector and the rotary key.
    window
        Tokens that a sliding window sees; None sees all.
    qk_norm
        Queries and keys are normalised (Qwen3, Gemma 3).
    capped
        Scores go through a tanh (Gemma 2).
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    cache_dim: int
    window: int | None = None
    qk_norm: bool = False
    capped: bool = False

    def cached(self, gpus: int = 1) -> int:
        """Values of a token in the cache of one of so many GPUs.

        Heads are shared out, and copied where they are too few; a latent vector lies whole on each.
        """
        if self.cache_dim != self.kv_heads * (self.head_dim + self.value_dim):
            return self.cache_dim
        return -(-self.kv_heads // gpus) * (self.head_dim + self.value_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """What follows attention.

    Attributes
    ----------
    width
        Intermediate size: of the dense layer, or of one expert.
    gated
        Gate and up projection (SwiGLU, GeGLU); else one matrix up.
    experts, active, shared
        Routed experts, how many of them see a token, and the width of what always does, 0 if nothing: a dense
        layer has no experts.
    steps
        Tensors of its width that the activation keeps for its backward pass.
    """

    width: int
    gated: bool = True
    experts: int = 0
    active: int = 0
    shared: int = 0
    steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """`count` equal layers: their matrices, and `vectors`, the parameters that are in none (norms, sinks).

    `norms` is how many norms of the hidden width one has: 2, or 4 where blocks are normalised on both
    sides; `norm` which: RMSNorm, LayerNorm, or Gemma's RMSNorm, which multiplies by its weight in fp32.
    """

    count: int
    attention: Attention
    mlp: Mlp
    linears: tuple[Linear, ...]
    vectors: int
    norms: int = 2
    norm: Literal["rms", "rms_fp32", "layer"] = "rms"

    @property
    def parameters(self) -> int:
        """Of one of the equal layers."""
        return sum(linear.parameters for linear in self.linears) + self.vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A language model, as far as memory is concerned.

    Attributes
    ----------
    name
        What it was read from.
    family
        `model_type` of its `config.json`.
    hidden, vocabulary
        Width of the residual stream; rows of the embedding.
    layers
        Runs of equal layers, from the bottom.
    tied
        The head is the embedding, and is counted and kept once.
    vectors
        Parameters outside of the layers that are neither embedding nor head: the last norm, a head's bias.
    positions
        Longest context that it was made for, in tokens.
    capped
        Logits go through a tanh (Gemma 2).
    left_out
        What its checkpoint has and this has not, in sentences: a vision tower, scales of quantized weights.
    """

    name: str
    family: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied: bool
    vectors: int
    positions: int | None = None
    capped: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """Layers."""
        return sum(layer.count for layer in self.layers)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, which are those of the head, too."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them, exact to the checkpoint."""
        ends = self.embedding * (1 if self.tied else 2) + self.vectors
        return ends + sum(layer.count * layer.parameters for layer in self.layers)

    @property
    def routed(self) -> bool:
        """It is a mixture of experts."""
        return any(layer.mlp.experts for layer in self.layers)

    @property
    def active(self) -> int:
        """Parameters that one token meets: of the routed experts, the active ones."""
        idle = 0
        for layer in self.layers:
            if layer.mlp.experts:
                expert = sum(linear.parameters for linear in layer.linears if linear.copies > 1)
                idle += layer.count * expert * (layer.mlp.experts - layer.mlp.active) // layer.mlp.experts
        return self.parameters - idle

    @property
    def cache_dim(self) -> int:
        """Values that the KV cache keeps of one token, over all layers, where no window cuts it."""
        return sum(layer.count * layer.attention.cache_dim for layer in self.layers)

    def cached(self, tokens: int, *, gpus: int = 1) -> int:
        """Values that the KV cache keeps of one sequence of so many tokens, on one of so many GPUs.

        A window keeps what it sees.
        """
        return sum(
            layer.count * layer.attention.cached(gpus) * min(tokens, layer.attention.window or tokens)
            for layer in self.layers
        )
