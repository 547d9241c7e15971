import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.memory.catalogue import config_of, names, shape_of
from steelyard.memory.families import known_families, read_config

CONFIGS = {path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("configs/*.json")}

# As the models' pages give them, typed by hand: neither our reader nor transformers had a part in these.
# DeepSeek-V3 and GLM-4.5-Air without the layers for further tokens, as their bf16 offspring are published
# (microsoft/MAI-DS-R1, PrimeIntellect/INTELLECT-3).
PUBLIC = {
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-2-7b": 6_738_415_616,
    "Llama-2-13b": 13_015_864_320,
    "Llama-2-70b": 68_976_648_192,
    "TinyLlama-1.1B-v1.0": 1_100_048_384,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "SmolLM3-3B": 3_075_098_624,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Mistral-Nemo-2407": 12_247_782_400,
    "Mistral-Small-24B-2501": 23_572_403_200,
    "Mixtral-8x7B-v0.1": 46_702_792_704,
    "Mixtral-8x22B-v0.1": 140_620_634_112,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "phi-2": 2_779_683_840,
    "Phi-3-mini-4k": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "Phi-4-mini": 3_836_021_760,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V2": 235_741_434_880,
    "DeepSeek-V3": 671_026_419_200,
    "OLMo-2-1124-7B": 7_298_617_344,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "starcoder2-3b": 3_030_371_328,
    "pythia-6.9b": 6_857_302_016,
    "GLM-4.5-Air": 106_852_251_264,
    "OLMoE-1B-7B-0924": 6_919_161_856,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
}

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 160,
    "max_position_embeddings": 128,
    "pad_token_id": None,
}
LATENT = {
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "moe_intermediate_size": 40,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 4,
}
QWEN_EXPERTS = {"moe_intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 2}
# What public configs leave at one value: each option of each family, the other way round.
OTHERWISE = [
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    ("llama", {"num_key_value_heads": None, "tie_word_embeddings": True}),
    ("mistral", {"head_dim": 24}),
    ("ministral", {"head_dim": 16}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"attention_bias": True}),
    ("phi", {"qk_layernorm": True}),
    ("phi3", {"tie_word_embeddings": True}),
    ("granite", {"attention_bias": True, "mlp_bias": True}),
    ("smollm3", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
    ("glm4", {"attention_bias": False}),
    ("gemma", {"attention_bias": True, "tie_word_embeddings": False}),
    ("gemma2", {"attention_bias": True}),
    ("gemma3_text", {"attention_bias": True, "tie_word_embeddings": False}),
    ("olmo2", {"attention_bias": True}),
    ("olmo3", {}),
    ("cohere", {"use_qk_norm": True}),
    ("cohere2", {"attention_bias": True}),
    ("starcoder2", {"use_bias": False, "tie_word_embeddings": False}),
    ("stablelm", {"use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True}),
    ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 24}),
    ("qwen2_moe", {**QWEN_EXPERTS, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2}),
    (
        "qwen2_moe",
        {**QWEN_EXPERTS, "shared_expert_intermediate_size": 48, "mlp_only_layers": [0, 5], "qkv_bias": False},
    ),
    ("qwen3_moe", {**QWEN_EXPERTS, "mlp_only_layers": [1], "decoder_sparse_step": 2, "attention_bias": True}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": 32, "first_k_dense_replace": 2, "n_shared_experts": 3}),
    (
        "deepseek_v2",
        {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 0, "n_shared_experts": 1, "mlp_bias": True},
    ),
    (
        "deepseek_v3",
        {
            **LATENT,
            "q_lora_rank": 32,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "attention_bias": True,
        },
    ),
    (
        "glm4_moe",
        {
            "moe_intermediate_size": 40,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 2,
            "first_k_dense_replace": 2,
            "use_qk_norm": True,
            "attention_bias": True,
            "head_dim": 24,
        },
    ),
    ("olmoe", {"num_experts": 8, "num_experts_per_tok": 2, "attention_bias": True}),
    ("gpt_oss", {"num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": False}),
    ("falcon", {"multi_query": False, "parallel_attn": False, "bias": True, "ffn_hidden_size": 100}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    ("falcon", {"num_ln_in_parallel_attn": 2, "tie_word_embeddings": False}),
    ("gpt_neox", {"attention_bias": False, "tie_word_embeddings": True}),
    ("opt", {"ffn_dim": 100, "enable_bias": False, "do_layer_norm_before": False}),
]


def small(family, options):
    return SMALL | {"model_type": family} | options


def own():
    """Models of the catalogue that are not another one with a change."""
    seen = set()
    for name in names():
        key = json.dumps({**config_of(name), "max_position_embeddings": 0, "sliding_window": 0})
        if key not in seen:
            seen.add(key)
            yield name


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_model_has_as_many_parameters_as_its_checkpoint(name):
    assert shape_of(name).parameters == PUBLIC[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_as_downloaded_gives_the_shape_that_the_catalogue_has(name):
    assert read_config(CONFIGS[name], name=name) == shape_of(name)


@pytest.mark.parametrize(
    ("name", "whole"),
    [("gemma-3-4b", 4_300_079_472), ("gemma-3-12b", 12_187_325_040), ("gemma-3-27b", 27_432_406_640)],
)
def test_the_language_part_of_a_multimodal_model_is_the_whole_less_its_vision(name, whole):
    shape = shape_of(name)
    tower, width = 416_866_032, 1152  # SigLIP-so400m at 896 pixels, without its head
    projector = width * shape.hidden + width
    assert shape.parameters == whole - tower - projector


def built(config):
    """The language model of a config, on no device, by transformers."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**plain).get_text_config())


def counted(model):
    """Unique parameters, and the router's bias, which is a buffer that checkpoints hold."""
    biases = (b.numel() for name, b in model.named_buffers() if name.endswith("e_score_correction_bias"))
    return sum(p.numel() for p in model.parameters()) + sum(biases)


def matrices(model):
    """Every linear layer but the head, by the name that LoRA finds it under."""
    found = Counter()
    for path, module in model.named_modules():
        name, kind = path.rsplit(".", 1)[-1], type(module).__name__
        if kind == "Conv1D":
            found[name, module.nx, module.nf, True] += 1
        elif kind.endswith("Linear") and path != "lm_head":
            found[name, module.in_features, module.out_features, module.bias is not None] += 1
    return found


def said(shape):
    """The same of a shape; routers and experts are no linear layers in transformers 5 but bare tensors."""
    found = Counter()
    for layer in shape.layers:
        for linear in layer.linears:
            if linear.copies == 1 and linear.name not in {"gate", "router"}:
                key = linear.name, linear.inputs, linear.outputs, linear.bias
                found[key] += layer.count
    return found


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", list(own()))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_shape_has_the_matrices_and_parameters_of_the_model_that_transformers_builds(name):
    model, shape = built(config_of(name)), shape_of(name)
    assert shape.parameters == counted(model)
    assert said(shape) == matrices(model)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("family", "options"), OTHERWISE, ids=[family for family, _ in OTHERWISE])
def test_every_option_of_a_family_is_read_as_transformers_reads_it(family, options):
    config = small(family, options)
    model, shape = built(config), read_config(config, name=family)
    assert shape.parameters == counted(model)
    assert said(shape) == matrices(model)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("family", [f for f in known_families() if not f.endswith(("_vl", "_text"))])
def test_an_absent_key_has_the_value_that_transformers_gives_it(family):
    from transformers import AutoConfig

    from steelyard.memory.families.table import FAMILIES

    default = AutoConfig.for_model(family)
    pattern = {"sliding_window_pattern", "moe_layer_freq", "mlp_bias"}  # not theirs, or no attribute
    for key, value in FAMILIES[family].defaults.items():
        known = FAMILIES[family].other_names.get(key, key)
        if hasattr(default, known) or key not in pattern:
            theirs = getattr(default, known, None)
            # their __post_init__ replaced these after the fact
            derived = {
                "num_key_value_heads": default.num_attention_heads,
                "head_dim": default.hidden_size // default.num_attention_heads,
                "intermediate_size": 4 * default.hidden_size,
                "word_embed_proj_dim": default.hidden_size,
            }
            unused = key == "sliding_window" and FAMILIES[family].defaults.get("use_sliding_window") is False
            assert unused or theirs == value or (value is None and theirs in {None, derived.get(key)}), key


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 4}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 0}),
        ("qwen3", {"use_sliding_window": False, "sliding_window": 32, "max_window_layers": 0}),
        ("ministral", {"sliding_window": 32}),
        ("ministral", {"sliding_window": None}),
        ("gemma2", {"sliding_window": 32}),
        ("gemma2", {"sliding_window": 32, "layer_types": ["full_attention"] * 5 + ["sliding_attention"]}),
        ("gemma3_text", {"sliding_window": 32}),
        ("gemma3_text", {"sliding_window": 32, "sliding_window_pattern": 4}),
        ("olmo3", {"sliding_window": 32}),
        ("cohere2", {"sliding_window": 32}),
        ("cohere2", {"sliding_window": 32, "sliding_window_pattern": 3}),
        ("smollm3", {"sliding_window": 32, "use_sliding_window": True}),
        ("smollm3", {"sliding_window": 32, "use_sliding_window": False}),
        ("gpt_oss", {"sliding_window": 32, "num_local_experts": 8, "num_experts_per_tok": 2}),
        (
            "qwen2_moe",
            {
                **QWEN_EXPERTS,
                "shared_expert_intermediate_size": 48,
                "use_sliding_window": True,
                "sliding_window": 32,
                "max_window_layers": 4,
            },
        ),
    ],
)
def test_as_many_layers_have_a_window_as_in_transformers(family, options):
    from transformers import AutoConfig

    config = small(family, options)
    theirs = AutoConfig.for_model(**config)
    windowed = theirs.layer_types.count("sliding_attention") if theirs.sliding_window else 0
    layers = read_config(config, name=family).layers
    assert sum(layer.count for layer in layers if layer.attention.window == 32) == windowed
    assert sum(layer.count for layer in layers) == SMALL["num_hidden_layers"]


def test_mistral_sees_a_window_in_every_layer_and_its_successor_in_none():
    assert [layer.attention.window for layer in shape_of("Mistral-7B-v0.1").layers] == [4096]
    assert [layer.attention.window for layer in shape_of("Mistral-7B-v0.3").layers] == [None]


def test_a_window_bounds_what_the_cache_keeps_of_a_long_sequence():
    shape = shape_of("gemma-2-2b")
    half = 13 * 2 * 4 * 256
    assert shape.cached(4096) == 2 * half * 4096
    assert shape.cached(8192) == half * 4096 + half * 8192


def test_latent_attention_caches_one_compressed_vector_and_one_rotary_key():
    assert shape_of("DeepSeek-V3").cache_dim == 61 * (512 + 64)
    assert shape_of("DeepSeek-V2-Lite").cache_dim == 27 * (512 + 64)


def test_equal_layers_are_one_and_dense_layers_of_a_mixture_are_apart():
    dense, routed = shape_of("DeepSeek-V3").layers
    assert (dense.count, dense.mlp.experts, dense.mlp.width) == (3, 0, 18432)
    assert (routed.count, routed.mlp.experts, routed.mlp.active, routed.mlp.shared) == (58, 256, 8, 2048)


def test_a_token_meets_the_active_experts_only():
    assert round(shape_of("Qwen3-235B-A22B").active / 1e9) == 22
    assert round(shape_of("Mixtral-8x7B-v0.1").active / 1e9, 1) == 12.9
    assert shape_of("Qwen3-4B").active == shape_of("Qwen3-4B").parameters


def test_what_runs_beside_the_experts_is_one_mlp_as_wide_as_all_shared_ones():
    shared = {
        name: shape_of(name).layers[-1].mlp.shared
        for name in ("DeepSeek-V2-Lite", "Qwen1.5-MoE-A2.7B", "Qwen3-30B-A3B", "Mixtral-8x7B-v0.1")
    }
    assert list(shared.values()) == [2 * 1408, 5632, 0, 0]


def test_norms_are_of_the_kind_that_the_family_has():
    kinds = {}
    for name in names():
        shape = shape_of(name)
        kinds.setdefault(shape.layers[0].norm, set()).add(shape.family)
    assert kinds["rms_fp32"] == {"gemma", "gemma2", "gemma3_text"}
    older = {"phi", "starcoder2", "stablelm", "falcon", "gpt_neox", "gpt2", "opt"}
    assert kinds["layer"] == {"cohere", "cohere2"} | older


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen2_vl_text", {}),
        ("qwen2_5_vl_text", {}),
        ("qwen3_vl_text", {"attention_bias": True}),
        ("qwen3_vl_moe_text", QWEN_EXPERTS),
    ],
)
def test_the_language_model_of_a_multimodal_one_is_another_familys(family, options):
    import torch
    from transformers import AutoConfig, AutoModel

    config = small(family, options | {"tie_word_embeddings": True})
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**config))  # without a head: it is tied
    assert read_config(config, name=family).parameters == counted(model)


# --- what is left out is said


def test_of_a_multimodal_model_the_language_model_is_sized_and_the_rest_is_named():
    shape = read_config(CONFIGS["gemma-3-4b"], name="gemma-3-4b")
    assert shape.family == "gemma3_text"
    assert shape.vocabulary == 262_208  # absent from the file: the family's own
    assert "vision" in " ".join(shape.left_out)


def test_a_flat_multimodal_config_is_sized_too():
    config = CONFIGS["Qwen2.5-0.5B"] | {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    shape = read_config(config, name="vl")
    assert shape.parameters == 494_032_768
    assert "vision" in " ".join(shape.left_out)


@pytest.mark.parametrize("tied", [True, False])
def test_whether_a_nested_head_is_tied_is_the_whole_models_to_say(tied):
    text = {**CONFIGS["Llama-3.2-1B"], "tie_word_embeddings": not tied}
    config = {"model_type": "llava", "tie_word_embeddings": tied, "text_config": text, "vision_config": {}}
    assert read_config(config, name="llava").tied is tied


def test_quantized_checkpoints_and_further_tokens_are_named():
    words = " ".join(read_config(CONFIGS["DeepSeek-V3"], name="v3").left_out)
    assert "fp8" in words
    assert "further tokens (1)" in words
    assert not shape_of("Qwen3-4B").left_out


# --- what cannot be read is refused by its name


def refusal(config, name="here/config.json"):
    with pytest.raises(RefusedError) as refused:
        read_config(config, name=name)
    assert refused.value.where == name
    assert refused.value.remedy
    return refused.value.reason


@pytest.mark.parametrize("value", ["4096", 0, -1, True, None, 4096.0, [4096], {}])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
def test_a_size_that_is_no_whole_number_is_refused_by_key_and_value(key, value):
    reason = refusal(CONFIGS["Llama-3.2-1B"] | {key: value})
    assert f"{key} = {value!r} must be a whole number" in reason


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama-3.2-1B", "hidden_size"),
        ("Llama-3.2-1B", "num_attention_heads"),
        ("Llama-3.2-1B", "vocab_size"),
        ("Qwen3-30B-A3B", "num_experts"),
        ("Qwen3-30B-A3B", "moe_intermediate_size"),
        ("Mixtral-8x7B-v0.1", "num_local_experts"),
        ("DeepSeek-V3", "kv_lora_rank"),
        ("DeepSeek-V2-Lite", "q_lora_rank"),
        ("DeepSeek-V2-Lite", "n_shared_experts"),
        ("gpt-oss-20b", "num_experts_per_tok"),
    ],
)
def test_an_absent_size_is_refused_by_its_name(name, key):
    config = {k: v for k, v in CONFIGS[name].items() if k != key}
    assert f"{key} is absent" in refusal(config)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"tie_word_embeddings": "true"}, "tie_word_embeddings = 'true' must be true or false"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings = None must be true or false"),
        ({"attention_bias": 1}, "attention_bias = 1 must be true or false"),
        ({"num_key_value_heads": 5}, "num_key_value_heads = 5 must be a divisor of the 32"),
        ({"num_attention_heads": 30, "head_dim": None, "num_key_value_heads": 30}, "divisor of hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000 must be a whole number, 1 to 1000"),
        ({"text_config": "llama"}, "text_config = 'llama' must be the keys of the language model"),
    ],
)
def test_keys_that_contradict_are_refused(changed, told):
    assert told in refusal(CONFIGS["Llama-3.2-1B"] | changed)


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "must be 24 times full_attention or"),
        ("Qwen3-30B-A3B", {"mlp_only_layers": 3}, "mlp_only_layers = 3 must be a list of layers"),
        ("Qwen3-30B-A3B", {"num_experts_per_tok": 200}, "num_experts_per_tok = 200 must be 128 or less"),
        ("DeepSeek-V3", {"first_k_dense_replace": -1}, "first_k_dense_replace = -1"),
    ],
)
def test_lists_and_experts_that_cannot_be_are_refused(name, changed, told):
    assert told in refusal(CONFIGS[name] | changed)


def test_an_embedding_of_another_width_is_refused_and_not_miscounted():
    config = small("opt", {"ffn_dim": 96, "word_embed_proj_dim": 32})
    assert "word_embed_proj_dim = 32 must be hidden_size 64" in refusal(config)


def test_an_unknown_family_is_refused_with_the_known_ones_and_what_is_needed():
    with pytest.raises(RefusedError) as refused:
        read_config(CONFIGS["Llama-3.2-1B"] | {"model_type": "mamba2"}, name="x")
    assert "'mamba2' is not known" in refused.value.reason
    assert all(family in refused.value.reason for family in known_families())
    for key in ("model_type", "hidden_size", "num_key_value_heads", "tie_word_embeddings"):
        assert key in refused.value.remedy


def test_the_nearest_family_is_named():
    with pytest.raises(RefusedError, match="such as 'qwen3'"):
        read_config({"model_type": "qwen3_5"}, name="x")


@pytest.mark.parametrize("value", [None, 7, ["llama"], {}])
def test_a_family_that_is_no_name_is_refused(value):
    assert "is not known" in refusal({"model_type": value})
    assert "model_type is absent" in refusal({})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data())
def test_whatever_a_key_holds_the_config_is_read_or_refused(data):
    config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
    broken = {**config, data.draw(st.sampled_from(sorted(config))): data.draw(JSON)}
    try:
        shape = read_config(broken, name="x")
    except RefusedError:
        return
    assert shape.parameters > 0
    assert shape.depth == sum(layer.count for layer in shape.layers)
