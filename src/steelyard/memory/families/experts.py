"""Mixtures of experts: which layers have them, how many, what always runs beside them, and the router.

An expert's matrices are counted one by one (`Linear.copies`), also where transformers keeps all experts
of a layer in one tensor: that is the same memory.
"""

from __future__ import annotations

from steelyard.memory.families.keys import Keys
from steelyard.memory.families.parts import GATED, Feeding, dense, matrices
from steelyard.memory.shapes import Linear, Mlp


def everywhere(keys: Keys, _layer: int, *, key: str, names: tuple[str, ...]) -> Feeding:
    """Experts in every layer, `key` of them, of the width that a dense one would have (Mixtral, OLMoE)."""
    hidden, width = keys.count("hidden_size"), keys.count("intermediate_size")
    experts, active = _experts(keys, key)
    router = Linear(name="gate", inputs=hidden, outputs=experts, reads="mlp norm")
    linears = matrices(hidden, width, names=names, gated=True, copies=experts)
    return Feeding(Mlp(width=width, experts=experts, active=active), (router, *linears))


def qwen(keys: Keys, layer: int, *, shared: bool) -> Feeding:
    """Experts in each `decoder_sparse_step`-th layer but `mlp_only_layers`; Qwen2 has a gated shared one."""
    sparse = (layer + 1) % keys.count("decoder_sparse_step") == 0
    if not sparse or layer in keys.indices("mlp_only_layers"):
        return dense(keys, layer)
    hidden, width = keys.count("hidden_size"), keys.count("moe_intermediate_size")
    experts, active = _experts(keys, "num_experts")
    linears = [
        Linear(name="gate", inputs=hidden, outputs=experts, reads="mlp norm"),
        *matrices(hidden, width, names=GATED, gated=True, copies=experts),
    ]
    always = keys.count("shared_expert_intermediate_size") if shared else 0
    if always:
        linears += matrices(hidden, always, names=GATED, gated=True)
        linears.append(Linear(name="shared_expert_gate", inputs=hidden, outputs=1, reads="mlp norm"))
    return Feeding(Mlp(width=width, experts=experts, active=active, shared=always), tuple(linears))


def deepseek(keys: Keys, layer: int, *, router_bias: bool) -> Feeding:
    """Experts from the layer `first_k_dense_replace` on, beside shared ones that are one wide MLP.

    `moe_layer_freq` is read as DeepSeek's own modeling file does. The router's bias of V3
    (`e_score_correction_bias`) is in the checkpoint, so it counts, though nothing trains it.
    """
    first, every = keys.count("first_k_dense_replace", least=0), keys.count("moe_layer_freq")
    if layer < first or layer % every:
        return dense(keys, layer, bias="mlp_bias")
    hidden, width = keys.count("hidden_size"), keys.count("moe_intermediate_size")
    experts, active = _experts(keys, "n_routed_experts")
    shared = keys.optional("n_shared_experts", said=True) or 0
    linears = [
        Linear(name="gate", inputs=hidden, outputs=experts, reads="mlp norm"),
        *matrices(hidden, width, names=GATED, gated=True, copies=experts),
    ]
    if shared:
        linears += matrices(hidden, width * shared, names=GATED, gated=True, bias=keys.flag("mlp_bias"))
    mlp = Mlp(width=width, experts=experts, active=active, shared=width * shared)
    return Feeding(mlp, tuple(linears), experts if router_bias else 0)


def gpt_oss(keys: Keys, _layer: int) -> Feeding:
    """Experts in every layer, biases everywhere, gate and up in one."""
    hidden, width = keys.count("hidden_size"), keys.count("intermediate_size")
    experts, active = _experts(keys, "num_local_experts")
    router = Linear(name="router", inputs=hidden, outputs=experts, reads="mlp norm", bias=True)
    linears = matrices(
        hidden, width, names=("gate_up_proj", "down_proj"), gated=True, bias=True, copies=experts
    )
    return Feeding(Mlp(width=width, experts=experts, active=active), (router, *linears))


def _experts(keys: Keys, key: str) -> tuple[int, int]:
    """Routed experts, and how many of them see a token."""
    experts, active = keys.count(key), keys.count("num_experts_per_tok")
    if active > experts:
        raise keys.refused("num_experts_per_tok", active, f"{experts} or less, the experts there are")
    return experts, active
