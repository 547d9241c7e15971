"""Parts of families from before Llama: one matrix for queries, keys and values, biases, learned positions."""

from __future__ import annotations

from steelyard.memory.families.keys import Keys
from steelyard.memory.families.parts import Attending
from steelyard.memory.shapes import Attention, Linear


def falcon(keys: Keys) -> Attending:
    """Falcon: one head of keys and values (7B), or groups of them (`new_decoder_architecture`: 40B, 11B)."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    if hidden % heads:
        raise keys.refused("num_attention_heads", heads, f"a divisor of hidden_size {hidden}")
    width = hidden // heads
    groups = keys.optional("num_key_value_heads") or heads
    if not keys.flag("new_decoder_architecture"):
        groups = 1 if keys.flag("multi_query") else heads
    bias = keys.flag("bias")
    attention = Attention(
        heads=heads, kv_heads=groups, head_dim=width, value_dim=width, cache_dim=2 * groups * width
    )
    linears = (
        Linear(
            name="query_key_value",
            inputs=hidden,
            outputs=(heads + 2 * groups) * width,
            reads="attention norm",
            bias=bias,
        ),
        Linear(name="dense", inputs=hidden, outputs=hidden, reads="attention", bias=bias),
    )
    return Attending(attention, linears)


def falcon_norms(keys: Keys) -> int:
    """Norms of a layer: one where attention and MLP run side by side, unless each has its own."""
    said = keys.optional("num_ln_in_parallel_attn")
    if keys.flag("new_decoder_architecture"):
        return said or 2
    return 2 if said == 2 or not keys.flag("parallel_attn") else 1


def stablelm_norms(keys: Keys) -> int:
    """One where attention and MLP run side by side."""
    return 1 if keys.flag("use_parallel_residual") else 2


def opt_ends(keys: Keys) -> int:
    """Parameters of OPT outside of its layers: positions (two more than it says), and the last norm.

    Raises
    ------
    RefusedError
        An embedding of another width than the layers (OPT-350m), which no shape here has.
    """
    hidden, width = keys.count("hidden_size"), keys.optional("word_embed_proj_dim")
    if width is not None and width != hidden:
        raise keys.refused(
            "word_embed_proj_dim", width, f"hidden_size {hidden}: two widths cannot be sized here"
        )
    last = 2 * hidden if keys.flag("do_layer_norm_before") else 0
    return (keys.count("max_position_embeddings") + 2) * hidden + last


def gpt2_ends(keys: Keys) -> int:
    """Parameters of GPT-2 outside of its layers: learned positions, and the last norm."""
    return (keys.count("max_position_embeddings") + 2) * keys.count("hidden_size")
