"""Attention and what follows it, as matrices: the parts of which families are put together.

Each part says its heads or widths, its matrices, and the parameters that are in none of them. Matrices have
the names of the family's modules in transformers, the last word of the checkpoint's keys: `target_modules`
of PEFT goes by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from steelyard.memory.families.keys import Bias, Keys
from steelyard.memory.shapes import Attention, Linear, Mlp


@dataclass(frozen=True, slots=True)
class Attending:
    """Attention of a layer; `vectors` are its norms and sinks."""

    heads: Attention
    linears: tuple[Linear, ...]
    vectors: int = 0


@dataclass(frozen=True, slots=True)
class Feeding:
    """What follows attention; `vectors` are biases that no matrix has."""

    mlp: Mlp
    linears: tuple[Linear, ...]
    vectors: int = 0


QkNorm = Literal["no", "head", "head_biased", "whole"]
"""Queries and keys are normalised: every head by the same vector, that and a bias, or each by its own."""


def head_counts(keys: Keys, *, even: bool = False) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and their width; `even`: the hidden width over as many as heads.

    Raises
    ------
    RefusedError
        Heads that cannot be shared out, or no width and none that can be derived.
    """
    heads = keys.count("num_attention_heads")
    groups = heads if even else keys.optional("num_key_value_heads") or heads
    width = None if even else keys.optional("head_dim")
    if heads % groups:
        raise keys.refused("num_key_value_heads", groups, f"a divisor of the {heads} num_attention_heads")
    if width is None:
        hidden = keys.count("hidden_size")
        if hidden % heads:
            raise keys.refused(
                "num_attention_heads", heads, f"a divisor of hidden_size {hidden}, or say head_dim"
            )
        width = hidden // heads
    return heads, groups, width


def grouped(
    keys: Keys,
    *,
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    qkv_bias: Bias = False,
    out_bias: Bias = False,
    qk_norm: QkNorm = "no",
    normed: Bias = True,
    sinks: bool = False,
    even: bool = False,
) -> Attending:
    """Attention by head.

    Two `names`: queries, keys and values are one matrix. `normed` says whether `qk_norm` holds; `even`: each
    head has keys and values of its own, and no config says otherwise.
    """
    hidden = keys.count("hidden_size")
    heads, groups, width = head_counts(keys, even=even)
    bias = keys.flag(qkv_bias)
    *into, out = names
    wide = (heads, groups, groups) if len(into) == 3 else (heads + 2 * groups,)
    linears = tuple(
        Linear(name=name, inputs=hidden, outputs=n * width, reads="attention norm", bias=bias)
        for name, n in zip(into, wide, strict=True)
    )
    back = Linear(name=out, inputs=heads * width, outputs=hidden, reads="attention", bias=keys.flag(out_bias))
    kind = qk_norm if keys.flag(normed) else "no"
    norms = {"no": 0, "head": 2 * width, "head_biased": 4 * width, "whole": (heads + groups) * width}[kind]
    attention = Attention(
        heads=heads,
        kv_heads=groups,
        head_dim=width,
        value_dim=width,
        cache_dim=2 * groups * width,
        qk_norm=kind != "no",
    )
    return Attending(attention, (*linears, back), norms + (heads if sinks else 0))


def latent(keys: Keys) -> Attending:
    """Multi-head latent attention: the cache keeps a compressed vector and one rotary key (DeepSeek-V2, 2.1).

    `q_lora_rank` null: queries are not compressed (DeepSeek-V2-Lite).
    """
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    rank, rotary = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    nope, value = keys.count("qk_nope_head_dim"), keys.count("v_head_dim")
    compressed = keys.optional("q_lora_rank", said=True)
    bias = keys.flag("attention_bias")
    query = heads * (nope + rotary)
    if compressed is None:
        queries: tuple[Linear, ...] = (
            Linear(name="q_proj", inputs=hidden, outputs=query, reads="attention norm"),
        )
    else:
        queries = (
            Linear(name="q_a_proj", inputs=hidden, outputs=compressed, reads="attention norm", bias=bias),
            Linear(name="q_b_proj", inputs=compressed, outputs=query, reads="own"),
        )
    linears = (
        *queries,
        Linear(
            name="kv_a_proj_with_mqa",
            inputs=hidden,
            outputs=rank + rotary,
            reads="attention norm",
            bias=bias,
        ),
        Linear(name="kv_b_proj", inputs=rank, outputs=heads * (nope + value), reads="own"),
        Linear(name="o_proj", inputs=heads * value, outputs=hidden, reads="attention", bias=bias),
    )
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rotary,
        value_dim=value,
        cache_dim=rank + rotary,
    )
    return Attending(attention, linears, rank + (compressed or 0))


def matrices(
    hidden: int, width: int, *, names: tuple[str, ...], gated: bool, bias: bool = False, copies: int = 1
) -> tuple[Linear, ...]:
    """The way up and down; two names of a gated one: gate and up are one matrix."""
    *up, down = names
    wide = width * (2 if gated and len(up) == 1 else 1)
    return (
        *(
            Linear(name=name, inputs=hidden, outputs=wide, reads="mlp norm", bias=bias, copies=copies)
            for name in up
        ),
        Linear(name=down, inputs=width, outputs=hidden, reads="activation", bias=bias, copies=copies),
    )


GATED = ("gate_proj", "up_proj", "down_proj")
Feed = Callable[[Keys, int], Feeding]
"""What follows attention in the layer of that index."""


def dense(
    keys: Keys,
    _layer: int,
    *,
    names: tuple[str, ...] = GATED,
    gated: bool = True,
    bias: Bias = False,
    fourfold: bool = False,
) -> Feeding:
    """The same in every layer; `fourfold`: a width that is not said is four times the hidden one."""
    hidden = keys.count("hidden_size")
    said = keys.optional("intermediate_size") if fourfold else keys.count("intermediate_size")
    width = said or 4 * hidden
    linears = matrices(hidden, width, names=names, gated=gated, bias=keys.flag(bias))
    # transformers writes this activation out in Python, and autograd keeps four of its steps.
    steps = 4 if keys.word("hidden_act") == "gelu_new" else 1
    return Feeding(Mlp(width=width, gated=gated, steps=steps), linears)
