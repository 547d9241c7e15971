import pytest

from steelyard.errors import RefusedError
from steelyard.memory.catalogue import shape_of
from steelyard.memory.plan import Engine, Lora
from steelyard.memory.verl_settings import overrides, read

MODEL = shape_of("Qwen3-8B")
ACTOR = "actor_rollout_ref.actor."
ROLLOUT = "actor_rollout_ref.rollout."
OURS = "actor_rollout_ref.model."
BASE = {
    "algorithm.adv_estimator": "grpo",
    ACTOR + "ppo_micro_batch_size_per_gpu": 4,
    ROLLOUT + "n": 8,
}


def plan(settings=None, **rest):
    return read({**BASE, **(settings or {})}, MODEL, **rest).plan


def notes(settings=None, **rest):
    return "\n".join(read({**BASE, **(settings or {})}, MODEL, **rest).notes)


def test_nothing_more_said_is_verl_as_it_is_out_of_the_box():
    told = plan()
    assert (told.prompt, told.completion, told.prompts, told.generations) == (512, 512, 1024, 8)
    assert (told.gpus, told.sharding, told.precision) == (8, "zero3", "sharded")
    assert (told.optimizer, told.step_kernel, told.checkpointing) == ("adamw", "foreach", "recompute")
    assert (told.attention, told.head, told.head_tokens) == ("flash", "selective", "all")
    assert (told.reference, told.lora, told.micro_batch, told.micro_tokens) == (False, None, 4, None)
    assert told.engine == Engine(
        mode="colocate",
        utilization=0.5,
        sleep=2,
        tensor_parallel=2,
        sequences=256,
        bucket_bytes=2.0**31,
        context=MODEL.positions,
        batched_tokens=8192,
        own_process=True,
    )
    assert not notes()


def test_a_nested_file_and_dotted_words_say_the_same_and_words_win():
    nested = {
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {
            "actor": {"ppo_micro_batch_size_per_gpu": 16, "_target_": "verl.workers.config.FSDPActorConfig"},
            "rollout": {"n": 8},
        },
    }
    assert read({**nested, ACTOR + "ppo_micro_batch_size_per_gpu": 4}, MODEL) == read(BASE, MODEL)
    assert read({ACTOR + "ppo_micro_batch_size_per_gpu": 4, **nested}, MODEL) == read(BASE, MODEL)


def test_references_are_followed_as_omegaconf_does():
    settings = {
        "data.max_response_length": "${data.max_prompt_length}",
        "data.max_prompt_length": 700,
        ROLLOUT + "max_num_seqs": "${oc.select:data.nowhere, 64}",
        ACTOR + "ppo_mini_batch_size": "${oc.select:data.train_batch_size,1}",
        ACTOR + "optim.optimizer": "${.name}",
        ACTOR + "optim.name": "SGD",
    }
    told = plan(settings)
    assert (told.completion, told.engine.sequences, told.optimizer) == (700, 64, "sgd")
    with pytest.raises(RefusedError, match="refers to itself"):
        plan({"data.max_prompt_length": "${data.max_prompt_length}"})


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("1_000", 1000),
        ("0.5", 0.5),
        ("1e-6", 1e-6),
        ("1.", 1.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("NULL", None),
        ("vllm", "vllm"),
        ("", ""),
        ("'1'", "1"),
        ('"a,b"', "a,b"),
        ("~/models/x=y", "~/models/x=y"),
        ("v1.2", "v1.2"),
        ("[]", []),
        ("[a,1,null]", ["a", 1, None]),
        ("[[1,2],['x,y']]", [[1, 2], ["x,y"]]),
        ("${data.max_prompt_length}", "${data.max_prompt_length}"),
    ],
)
def test_words_are_read_as_hydra_reads_scalars_and_lists(word, value):
    read_value = overrides([f"a.b={word}"])["a.b"]
    assert read_value == value
    assert type(read_value) is type(value)


def test_words_that_add_lose_their_sign_and_the_last_one_wins():
    assert overrides(["+a=1", "++a=2", "b=3"]) == {"a": 2, "b": 3}


@pytest.mark.parametrize("word", ["a.b", "~a.b", "=1", "--config-name=ppo", "a=[1,2", "~a=1"])
def test_words_that_set_nothing_are_refused(word):
    with pytest.raises(RefusedError, match="Hydra overrides"):
        overrides([word])


def test_a_reference_is_needed_for_either_kl_and_lies_on_the_host():
    assert plan({ACTOR + "use_kl_loss": True}).reference
    assert plan({"algorithm.use_kl_in_reward": True}).reference
    assert plan({ACTOR + "use_kl_loss": True}).offload_reference == "host"
    assert not plan({ACTOR + "use_kl_loss": True, OURS + "lora_rank": 8}).reference


def test_a_packed_micro_batch_is_bounded_by_its_tokens():
    settings = {
        ACTOR + "use_dynamic_bsz": True,
        ACTOR + "ppo_max_token_len_per_gpu": 4096,
        ACTOR + "ppo_micro_batch_size_per_gpu": None,
    }
    told = plan(settings)
    assert told.micro_tokens == told.step_tokens == 4096
    assert told.micro_batch == 256 * 8 // 8
    spread = plan({**settings, ACTOR + "ulysses_sequence_parallel_size": 2})
    assert (spread.sequence_parallel, spread.micro_tokens, spread.step_tokens) == (2, 8192, 4096)
    with pytest.raises(RefusedError, match="holds 1000 tokens"):
        plan({**settings, ACTOR + "ppo_max_token_len_per_gpu": 1000})


def test_the_micro_batch_of_all_gpus_is_shared_out():
    settings = {ACTOR + "ppo_micro_batch_size_per_gpu": None, ACTOR + "ppo_micro_batch_size": 64}
    assert plan(settings).micro_batch == 8


def test_offload_clears_the_gpu_for_the_engine_and_the_policy_of_fsdp2_for_good():
    parked = plan({ACTOR + "fsdp_config.param_offload": True, ACTOR + "fsdp_config.optimizer_offload": True})
    assert (parked.offload_weights, parked.offload_optimizer) == ("idle", "idle")
    gone = plan({ACTOR + "fsdp_config.offload_policy": True, ACTOR + "strategy": "fsdp2"})
    assert (gone.offload_weights, gone.offload_optimizer) == ("host", "host")


@pytest.mark.parametrize(
    ("settings", "sleep"),
    [
        ({}, 2),
        ({ROLLOUT + "free_cache_engine": False}, 0),
        ({ROLLOUT + "enable_sleep_mode": False}, 0),
        ({OURS + "lora_rank": 32}, 1),
        ({OURS + "lora_rank": 32, OURS + "lora.merge": True}, 2),
        ({OURS + "lora_rank": 32, ROLLOUT + "free_cache_engine": False}, 0),
        ({OURS + "mtp.enable": True, OURS + "mtp.enable_rollout": True}, 1),
    ],
)
def test_the_engine_sleeps_as_deep_as_a_sync_can_undo(settings, sleep):
    assert plan(settings).engine.sleep == sleep


def test_adapters_are_on_every_linear_layer_or_on_those_that_are_named():
    assert plan({OURS + "lora_rank": 32}).lora == Lora(rank=32)
    named = {OURS + "lora_rank": 8, OURS + "target_modules": ["q_proj", "v_proj"]}
    assert plan(named).lora == Lora(rank=8, targets=("q_proj", "v_proj"))
    with pytest.raises(RefusedError, match="did you mean q_proj"):
        plan({OURS + "lora_rank": 8, OURS + "target_modules": ["q_prj"]})


@pytest.mark.parametrize(
    ("settings", "head"),
    [
        ({}, ("selective", 512)),
        ({OURS + "use_fused_kernels": True}, ("chunked", 512)),
        (
            {OURS + "use_fused_kernels": True, OURS + "fused_kernel_options.impl_backend": "triton"},
            ("fused", 512),
        ),
    ],
)
def test_the_head_is_whole_logits_once_unless_kernels_are_fused(settings, head):
    assert (plan(settings).head, plan(settings).chunk) == head


def test_copies_of_logits_that_are_not_reckoned_with_are_told():
    assert "entropy" in notes({ACTOR + "entropy_coeff": 0.001})
    assert "temperature" in notes({ROLLOUT + "temperature": 0.7})
    assert not notes({ACTOR + "entropy_coeff": 0.001, OURS + "use_fused_kernels": True})


def test_a_pass_for_log_probabilities_that_is_larger_than_training_is_told():
    larger = {ROLLOUT + "log_prob_micro_batch_size_per_gpu": 8}
    assert "8,192 tokens at a time, training of 4,096" in notes(larger)
    assert "8,192 tokens at a time" in notes({ROLLOUT + "log_prob_micro_batch_size": 64})
    assert not notes({ROLLOUT + "log_prob_micro_batch_size_per_gpu": 4})
    assert not notes({**larger, OURS + "use_fused_kernels": True})
    packed = {ACTOR + "use_dynamic_bsz": True, ACTOR + "ppo_max_token_len_per_gpu": 2048}
    assert not notes(packed)
    assert "20,000 tokens at a time" in notes({**packed, ROLLOUT + "log_prob_max_token_len_per_gpu": 20000})


def test_the_trainer_s_other_switches_are_read():
    told = plan(
        {
            OURS + "enable_gradient_checkpointing": False,
            OURS + "use_liger": True,
            OURS + "override_config": {"attn_implementation": "eager"},
            ACTOR + "fsdp_config.model_dtype": "bf16",
            ACTOR + "fsdp_config.reshard_after_forward": False,
            ACTOR + "optim.override_optimizer_config": {"fused": True},
            ROLLOUT + "enforce_eager": True,
            ROLLOUT + "quantization": "fp8",
            ROLLOUT + "engine_kwargs.vllm.kv_cache_dtype": "fp8_e5m2",
            ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes": 512,
            "ray_kwargs.ray_init.runtime_env.env_vars.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        }
    )
    assert (told.checkpointing, told.fused_kernels, told.attention) == ("none", True, "eager")
    assert (told.precision, told.sharding, told.step_kernel) == ("bf16", "zero2", "fused")
    assert (told.engine.graphs, told.engine.weight_bytes, told.engine.cache_bytes) == (False, 1.0, 1.0)
    assert told.engine.bucket_bytes == 512 * 2**20
    assert told.expandable_segments
    assert plan({OURS + "enable_activation_offload": True}).checkpointing == "offload"


def test_a_rollout_on_gpus_of_its_own_is_a_server():
    assert plan({"actor_rollout_ref.hybrid_engine": False}).engine.mode == "server"
    assert plan({ROLLOUT + "nnodes": 1}).engine.mode == "server"


def test_groups_of_gpus_that_are_copies_are_planned_once():
    told = plan({ACTOR + "fsdp_config.fsdp_size": 4})
    assert (told.gpus, told.prompts) == (4, 512)
    assert "2 groups of 4" in notes({ACTOR + "fsdp_config.fsdp_size": 4})


def test_megatron_keeps_a_copy_in_fp32_and_shares_the_optimizer():
    settings = {
        ACTOR + "strategy": "megatron",
        ACTOR + "megatron.tensor_model_parallel_size": 4,
        ACTOR + "megatron.param_offload": True,
        ACTOR + "megatron.override_transformer_config.recompute_granularity": "full",
    }
    told = plan(settings)
    assert (told.precision, told.sharding, told.tensor_parallel) == ("master", "zero1", 4)
    assert (told.offload_weights, told.checkpointing) == ("idle", "recompute")
    assert plan({"model_engine": "megatron"}).precision == "master"
    assert plan({"model_engine": "megatron", ACTOR + "strategy": "fsdp"}).precision == "sharded"
    with pytest.raises(RefusedError, match="pipeline"):
        plan({**settings, ACTOR + "megatron.pipeline_model_parallel_size": 2})


def test_gpus_are_those_of_the_caller_or_of_all_nodes():
    assert plan({"trainer.nnodes": 2}).gpus == 16
    assert plan({"trainer.nnodes": 2}, gpus=4).gpus == 4
    with pytest.raises(RefusedError, match="verl's default is 2"):
        plan(gpus=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm.adv_estimator": "gae"},
        {"critic.enable": True},
        {ACTOR + "ppo_micro_batch_size_per_gpu": None},
        {ACTOR + "ppo_micro_batch_size": 8},
        {ACTOR + "ppo_micro_batch_size_per_gpu": 3},
        {ACTOR + "ppo_mini_batch_size": 2048},
        {ACTOR + "strategy": "ds"},
        {ACTOR + "optim.optimizer": "Lion"},
        {ACTOR + "fsdp_config.model_dtype": "int8"},
        {ACTOR + "fsdp_config.fsdp_size": 3},
        {ACTOR + "ulysses_sequence_parallel_size": 3},
        {ROLLOUT + "tensor_model_parallel_size": 3},
        {ROLLOUT + "gpu_memory_utilization": 0},
        {ROLLOUT + "max_model_len": 10**6},
        {ROLLOUT + "n": "8"},
        {OURS + "use_liger": "yes"},
        {ROLLOUT + "gpu_memory_utilisation": 0.7},
        {ACTOR + "ppo_micro_batch_size_per_gpus": 8},
    ],
)
def test_what_verl_refuses_or_nobody_reckons_with_is_refused_with_a_next_step(settings):
    with pytest.raises(RefusedError, match="next: "):
        plan(settings)


def test_names_of_other_releases_are_noted_and_known_ones_are_not():
    assert "frobnicate is no setting of verl 0.9.1" in notes({ACTOR + "frobnicate": 1})
    quiet = {
        ACTOR + "optim.lr": 1e-6,
        "trainer.logger": ["console"],
        "reward.num_workers": 8,
        OURS + "path": "x",
    }
    assert not notes(quiet)


def test_a_run_whose_advantage_is_not_said_is_taken_for_grpo_aloud():
    bare = {name: value for name, value in BASE.items() if not name.startswith("algorithm")}
    assert "taken for grpo" in "\n".join(read(bare, MODEL).notes)


def test_an_engine_that_ends_sequences_early_is_told():
    assert "ends a sequence at 600 tokens" in notes({ROLLOUT + "max_model_len": 600})


@pytest.mark.parametrize(
    ("strategy", "gradient", "kernel"),
    [("fsdp", None, "foreach"), ("fsdp2", None, "single"), ("megatron", 4, "fused")],
)
def test_what_a_strategy_keeps_of_gradients_and_makes_in_its_step(strategy, gradient, kernel):
    told = plan({ACTOR + "strategy": strategy})
    assert (told.gradient_bytes, told.step_kernel) == (gradient, kernel)
