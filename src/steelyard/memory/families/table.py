"""The families: what each is put together of, and what transformers takes of keys that its config lacks.

The defaults are those of transformers 5.24, `models/FAMILY/configuration_FAMILY.py`; a test compares each
with the installed classes. Sizes are among them for configs inside others only (`keys.NEEDED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from steelyard.memory.families import experts, older, windows
from steelyard.memory.families.keys import Keys
from steelyard.memory.families.parts import GATED, Attending, Feed, dense, grouped, latent


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How to read the configs of one `model_type`.

    Attributes
    ----------
    defaults
        Values of absent keys.
    attention, feed, windows
        Parts of a layer.
    norms
        Of one layer, each as wide as the hidden state.
    norm
        Which kind.
    norm_bias
        They have one.
    head_bias
        So has the head.
    ends
        Parameters beside the layers, embedding and head, where they are more than the last norm.
    other_names
        What this family calls some keys.
    """

    defaults: Mapping[str, object]
    attention: Callable[[Keys], Attending] = grouped
    feed: Feed = dense
    windows: windows.Windows = windows.nowhere
    norms: int | Callable[[Keys], int] = 2
    norm: Literal["rms", "rms_fp32", "layer"] = "rms"
    norm_bias: bool = False
    head_bias: bool = False
    ends: Callable[[Keys], int] | None = None
    other_names: Mapping[str, str] = field(default_factory=dict)


def _sizes(  # noqa: PLR0917 - in the order of the file they are read from
    vocabulary: int, hidden: int, width: int, depth: int, heads: int, groups: int | None, *, tied: bool
) -> dict[str, object]:
    """The sizes that a family's config class has, in the order of its file."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "tie_word_embeddings": tied,
    }


_ALL_BIASED = partial(grouped, qkv_bias="attention_bias", out_bias="attention_bias")
_BIASED_MLP = partial(dense, bias="mlp_bias")
_FUSED_MLP = partial(dense, names=("gate_up_proj", "down_proj"))
_LLAMA: Final = _sizes(32000, 4096, 11008, 32, 32, None, tied=False)
_MISTRAL: Final = _sizes(32000, 4096, 14336, 32, 32, 8, tied=False)
_QWEN_WINDOWS: Final = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_COHERE: Final = _sizes(256000, 8192, 22528, 40, 64, None, tied=True)

_LLAMA_LIKE: Final = {
    "llama": Family(
        defaults={**_LLAMA, "head_dim": None, "attention_bias": False, "mlp_bias": False},
        attention=_ALL_BIASED,
        feed=_BIASED_MLP,
    ),
    "mistral": Family(
        defaults={**_MISTRAL, "head_dim": None, "sliding_window": 4096}, windows=windows.everywhere
    ),
    "ministral": Family(
        defaults={**_MISTRAL, "head_dim": None, "sliding_window": 4096}, windows=windows.everywhere
    ),
    "qwen2": Family(
        defaults={**_sizes(151936, 4096, 22016, 32, 32, 32, tied=False), **_QWEN_WINDOWS},
        attention=partial(grouped, qkv_bias=True),
        windows=windows.above,
    ),
    "qwen3": Family(
        defaults={
            **_sizes(151936, 4096, 22016, 32, 32, 32, tied=False),
            **_QWEN_WINDOWS,
            "head_dim": 128,
            "attention_bias": False,
        },
        attention=partial(_ALL_BIASED, qk_norm="head"),
        windows=windows.above,
    ),
    "phi3": Family(
        defaults={**_sizes(32064, 3072, 8192, 32, 32, None, tied=False), "sliding_window": None},
        attention=partial(grouped, names=("qkv_proj", "o_proj")),
        feed=_FUSED_MLP,
        windows=windows.everywhere,
    ),
    "granite": Family(
        defaults={**_LLAMA, "attention_bias": False, "mlp_bias": False},
        attention=_ALL_BIASED,
        feed=_BIASED_MLP,
    ),
    "smollm3": Family(
        defaults={
            **_sizes(128256, 2048, 11008, 36, 16, 4, tied=True),
            "use_sliding_window": False,
            "sliding_window": None,
            "no_rope_layer_interval": 4,
            "attention_bias": False,
            "mlp_bias": False,
        },
        attention=_ALL_BIASED,
        feed=_BIASED_MLP,
        windows=windows.without_positions,
    ),
    "glm4": Family(
        defaults={
            **_sizes(151552, 4096, 13696, 40, 32, 2, tied=False),
            "head_dim": 128,
            "attention_bias": True,
        },
        attention=partial(grouped, qkv_bias="attention_bias"),
        feed=_FUSED_MLP,
        norms=4,
    ),
}

_NORMED_DIFFERENTLY: Final = {
    "gemma": Family(
        defaults={
            **_sizes(256000, 3072, 24576, 28, 16, 16, tied=True),
            "head_dim": 256,
            "attention_bias": False,
        },
        attention=_ALL_BIASED,
        norm="rms_fp32",
    ),
    "gemma2": Family(
        defaults={
            **_sizes(256000, 2304, 9216, 26, 8, 4, tied=True),
            "head_dim": 256,
            "attention_bias": False,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        attention=_ALL_BIASED,
        windows=windows.alternating,
        norms=4,
        norm="rms_fp32",
    ),
    "gemma3_text": Family(
        defaults={
            **_sizes(262208, 2304, 9216, 26, 8, 4, tied=True),
            "head_dim": 256,
            "attention_bias": False,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "max_position_embeddings": 131072,
        },
        attention=partial(_ALL_BIASED, qk_norm="head"),
        windows=windows.alternating,
        norms=4,
        norm="rms_fp32",
    ),
    "olmo2": Family(
        defaults={**_sizes(50304, 4096, 11008, 32, 32, None, tied=False), "attention_bias": False},
        attention=partial(_ALL_BIASED, qk_norm="whole"),
    ),
    "olmo3": Family(
        defaults={
            **_sizes(50304, 4096, 11008, 32, 32, None, tied=False),
            "attention_bias": False,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        attention=partial(_ALL_BIASED, qk_norm="whole"),
        windows=windows.alternating,
    ),
    "cohere": Family(
        defaults={**_COHERE, "attention_bias": False, "use_qk_norm": False},
        attention=partial(_ALL_BIASED, qk_norm="whole", normed="use_qk_norm"),
        norms=1,
        norm="layer",
    ),
    "cohere2": Family(
        defaults={**_COHERE, "attention_bias": False, "sliding_window": 4096, "sliding_window_pattern": 4},
        attention=_ALL_BIASED,
        windows=windows.alternating,
        norms=1,
        norm="layer",
    ),
    "starcoder2": Family(
        defaults={
            **_sizes(49152, 3072, 12288, 30, 24, 2, tied=True),
            "use_bias": True,
            "sliding_window": None,
        },
        attention=partial(grouped, qkv_bias="use_bias", out_bias="use_bias"),
        feed=partial(dense, names=("c_fc", "c_proj"), gated=False, bias="use_bias"),
        windows=windows.everywhere,
        norm="layer",
        norm_bias=True,
    ),
    "stablelm": Family(
        defaults={
            **_sizes(50304, 2560, 6912, 32, 32, 32, tied=False),
            "use_qkv_bias": False,
            "qk_layernorm": False,
            "use_parallel_residual": False,
        },
        attention=partial(grouped, qkv_bias="use_qkv_bias", qk_norm="whole", normed="qk_layernorm"),
        norms=older.stablelm_norms,
        norm="layer",
        norm_bias=True,
    ),
    "phi": Family(
        defaults={
            **_sizes(51200, 2048, 8192, 24, 32, None, tied=False),
            "qk_layernorm": False,
            "hidden_act": "gelu_new",
        },
        attention=partial(
            grouped,
            names=("q_proj", "k_proj", "v_proj", "dense"),
            qkv_bias=True,
            out_bias=True,
            qk_norm="head_biased",
            normed="qk_layernorm",
        ),
        feed=partial(dense, names=("fc1", "fc2"), gated=False, bias=True),
        norms=1,
        norm="layer",
        norm_bias=True,
        head_bias=True,
    ),
}

_EXPERTS: Final = {
    "mixtral": Family(
        defaults={
            **_MISTRAL,
            "head_dim": None,
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        feed=partial(experts.everywhere, key="num_local_experts", names=("w1", "w3", "w2")),
        windows=windows.everywhere,
    ),
    "qwen2_moe": Family(
        defaults={
            **_sizes(151936, 2048, 5632, 24, 16, 16, tied=False),
            **_QWEN_WINDOWS,
            "qkv_bias": True,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
        },
        attention=partial(grouped, qkv_bias="qkv_bias"),
        feed=partial(experts.qwen, shared=True),
        windows=windows.below,
    ),
    "qwen3_moe": Family(
        defaults={
            **_sizes(151936, 2048, 6144, 24, 32, 4, tied=False),
            "use_sliding_window": False,
            "sliding_window": 4096,
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        attention=partial(_ALL_BIASED, qk_norm="head"),
        feed=partial(experts.qwen, shared=False),
        windows=windows.used_everywhere,
    ),
    "deepseek_v2": Family(
        defaults={
            **_sizes(102400, 4096, 11008, 32, 32, None, tied=False),
            "attention_bias": False,
            "mlp_bias": False,
            "first_k_dense_replace": 0,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "moe_intermediate_size": 1407,
            "moe_layer_freq": 1,
        },
        attention=latent,
        feed=partial(experts.deepseek, router_bias=False),
    ),
    "deepseek_v3": Family(
        defaults={
            **_sizes(129280, 7168, 18432, 61, 128, 128, tied=False),
            "attention_bias": False,
            "mlp_bias": False,
            "first_k_dense_replace": 3,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "moe_intermediate_size": 2048,
            "moe_layer_freq": 1,
        },
        attention=latent,
        feed=partial(experts.deepseek, router_bias=True),
    ),
    "glm4_moe": Family(
        defaults={
            **_sizes(151552, 4096, 10944, 46, 96, 8, tied=False),
            "attention_bias": False,
            "mlp_bias": False,
            "use_qk_norm": False,
            "first_k_dense_replace": 1,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408,
            "moe_layer_freq": 1,
        },
        attention=partial(grouped, qkv_bias="attention_bias", qk_norm="head", normed="use_qk_norm"),
        feed=partial(experts.deepseek, router_bias=True),
    ),
    "olmoe": Family(
        defaults={
            **_sizes(50304, 2048, 2048, 16, 16, None, tied=False),
            "attention_bias": False,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
        attention=partial(_ALL_BIASED, qk_norm="whole"),
        feed=partial(experts.everywhere, key="num_experts", names=GATED),
    ),
    "gpt_oss": Family(
        defaults={
            **_sizes(201088, 2880, 2880, 36, 64, 8, tied=False),
            "head_dim": 64,
            "attention_bias": True,
            "sliding_window": 128,
            "sliding_window_pattern": 2,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
        },
        attention=partial(_ALL_BIASED, sinks=True),
        feed=experts.gpt_oss,
        windows=windows.alternating,
    ),
}

_OLDER: Final = {
    "falcon": Family(
        defaults={
            **_sizes(65024, 4544, 0, 32, 71, None, tied=True),
            "intermediate_size": None,
            "max_position_embeddings": 2048,
            "bias": False,
            "new_decoder_architecture": False,
            "multi_query": True,
            "parallel_attn": True,
        },
        attention=older.falcon,
        feed=partial(
            dense, names=("dense_h_to_4h", "dense_4h_to_h"), gated=False, bias="bias", fourfold=True
        ),
        norms=older.falcon_norms,
        norm="layer",
        norm_bias=True,
        other_names={"num_key_value_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"},
    ),
    "gpt_neox": Family(
        defaults={**_sizes(50432, 6144, 24576, 44, 64, None, tied=False), "attention_bias": True},
        attention=partial(
            grouped,
            names=("query_key_value", "dense"),
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            even=True,
        ),
        feed=partial(dense, names=("dense_h_to_4h", "dense_4h_to_h"), gated=False, bias=True),
        norm="layer",
        norm_bias=True,
    ),
    "opt": Family(
        defaults={
            **_sizes(50272, 768, 3072, 12, 12, None, tied=True),
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": None,
            "do_layer_norm_before": True,
            "enable_bias": True,
        },
        attention=partial(
            grouped,
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
            qkv_bias="enable_bias",
            out_bias="enable_bias",
            even=True,
        ),
        feed=partial(dense, names=("fc1", "fc2"), gated=False, bias="enable_bias"),
        norm="layer",
        norm_bias=True,
        ends=older.opt_ends,
        other_names={"intermediate_size": "ffn_dim"},
    ),
    "gpt2": Family(
        defaults={
            **_sizes(50257, 768, 0, 12, 12, None, tied=True),
            "intermediate_size": None,
            "max_position_embeddings": 1024,
            "hidden_act": "gelu_new",
        },
        attention=partial(grouped, names=("c_attn", "c_proj"), qkv_bias=True, out_bias=True, even=True),
        feed=partial(dense, names=("c_fc", "c_proj"), gated=False, bias=True, fourfold=True),
        norm="layer",
        norm_bias=True,
        ends=older.gpt2_ends,
        other_names={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "n_positions",
            "intermediate_size": "n_inner",
            "hidden_act": "activation_function",
        },
    ),
}

FAMILIES: Final[Mapping[str, Family]] = {**_LLAMA_LIKE, **_NORMED_DIFFERENTLY, **_EXPERTS, **_OLDER}

SAME_AS: Final[Mapping[str, str]] = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""Language models of multimodal ones that are another family's, module for module (transformers 5.24)."""
