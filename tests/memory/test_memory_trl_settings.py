import dataclasses
from dataclasses import replace

import pytest

from steelyard.errors import RefusedError
from steelyard.memory import trl_fields, trl_launch, trl_settings
from steelyard.memory.catalogue import shape_of
from steelyard.memory.plan import Engine, Lora
from steelyard.memory.trl_settings import read

MODEL = shape_of("Qwen3-8B")
BF16 = {"dtype": "bfloat16"}


def plan(settings, **rest):
    return read(settings, MODEL, **rest).plan


def notes(settings, **rest):
    return "\n".join(read(settings, MODEL, **rest).notes)


def test_nothing_said_is_trl_as_it_is_out_of_the_box():
    told = plan({})
    assert (told.micro_batch, told.generations, told.prompts, told.completion) == (8, 8, 1, 512)
    assert (told.precision, told.optimizer, told.step_kernel) == ("autocast", "adamw", "fused")
    assert (told.checkpointing, told.attention, told.reference) == ("recompute", "sdpa", False)
    assert (told.head, told.head_tokens) == ("fused", "completion")
    assert told.engine == Engine(mode="none", sequences=8, graphs=False)


@pytest.mark.needs("trl")
def test_defaults_are_those_of_the_installed_trl():
    from trl import GRPOConfig, ModelConfig

    real = {
        field.name: field.default for kind in (GRPOConfig, ModelConfig) for field in dataclasses.fields(kind)
    }
    assert {name: real[name] for name in trl_settings.DEFAULTS} == dict(trl_settings.DEFAULTS)
    assert {name: real[name] for name in trl_fields.UNMODELLED if name in real} == {
        name: default for name, (default, _) in trl_fields.UNMODELLED.items() if name in real
    }


@pytest.mark.needs("trl")
def test_every_field_of_the_installed_trl_is_known_and_no_former_one_is_back():
    from trl import DatasetMixtureConfig, GRPOConfig, ModelConfig
    from trl.scripts.grpo import GRPOScriptArguments

    kinds = (GRPOConfig, ModelConfig, GRPOScriptArguments, DatasetMixtureConfig)
    real = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert real == trl_fields.NAMES - set(trl_fields.LAUNCH)
    assert not real & set(trl_fields.FORMER)


@pytest.mark.needs("trl")
def test_trl_refuses_the_same_batches():
    from trl import GRPOConfig

    for settings in (
        {"per_device_train_batch_size": 4},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"per_device_train_batch_size": 4, "num_generations": 4, "steps_per_generation": 3},
        {"per_device_train_batch_size": 3, "num_generations": 2},
        {"generation_batch_size": 24},
        {"generation_batch_size": 20},
        {"generation_batch_size": 24, "num_generations": 16},
        {"num_generations": 1},
        {"auto_find_batch_size": True},
        {"eval_strategy": "steps", "eval_steps": 5, "per_device_eval_batch_size": 6},
        {
            "eval_strategy": "steps",
            "eval_steps": 5,
            "per_device_eval_batch_size": 6,
            "num_generations_eval": 3,
        },
    ):
        try:
            config = GRPOConfig(
                output_dir="x", use_cpu=True, bf16=False, activation_checkpointing=True, **settings
            )
        except ValueError:
            with pytest.raises(RefusedError):
                plan({**settings, **BF16})
        else:
            told = plan({**settings, **BF16})
            assert told.completions == config.generation_batch_size, settings


@pytest.mark.needs("trl")
def test_a_config_that_was_built_reads_like_the_words_it_was_built_of():
    from trl import GRPOConfig

    words = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "beta": 0.04,
        "use_vllm": True,
    }
    built = GRPOConfig(
        output_dir="x", use_cpu=True, bf16=True, activation_checkpointing=True, **words
    ).to_dict()
    assert plan({**built, **BF16}) == plan({**words, **BF16})


@pytest.mark.needs("trl")
def test_files_that_trl_ships_for_accelerate_read_like_their_names():
    import importlib.resources

    import yaml

    for name in trl_launch.SHIPPED:
        text = importlib.resources.files("trl.accelerate_configs").joinpath(f"{name}.yaml").read_text()
        held = plan({"accelerate_config": yaml.safe_load(text)})
        assert held == plan({"accelerate_config": name}), name


def test_a_slip_of_the_pen_is_refused_with_the_name_that_was_meant():
    with pytest.raises(RefusedError, match="did you mean per_device_train_batch_size"):
        plan({"per_device_train_batchsize": 8})
    with pytest.raises(RefusedError, match="frobnicate: remove it; seeed: did you mean seed"):
        plan({"frobnicate": 1, "seeed": 2})


def test_fields_of_an_earlier_trl_are_read_as_this_one_would_and_that_is_said():
    assert "max_prompt_length, warmup_ratio: of an earlier TRL" in notes(
        {"max_prompt_length": 9, "warmup_ratio": 0.1}
    )
    assert "earlier" not in notes({"warmup_steps": 10})


def test_what_cannot_touch_memory_is_passed_over_in_silence():
    quiet = {
        **BF16,
        "learning_rate": 1e-5,
        "logging_steps": 5,
        "temperature": 0.7,
        "dataset_name": "x",
        "seed": 3,
    }
    assert read(quiet, MODEL, prompt=64) == read(BF16, MODEL, prompt=64)
    assert not read(quiet, MODEL, prompt=64).notes


def test_what_touches_memory_and_is_not_reckoned_with_gets_a_note():
    assert "torch_compile = True is not reckoned with" in notes({"torch_compile": True})
    assert "torch_compile" not in notes({"torch_compile": False})
    assert "every_n_layers" in notes({"gradient_checkpointing_kwargs": {"every_n_layers": 2}})
    assert "checkpointing" not in notes({"gradient_checkpointing_kwargs": {"use_reentrant": False}})


def test_a_prompt_is_bounded_by_the_caller_then_by_the_file_then_by_the_engine_and_else_guessed_aloud():
    window = {"use_vllm": True, "vllm_max_model_length": 4096}
    assert plan({**window, "max_prompt_length": 300}, prompt=100).prompt == 100
    assert plan({**window, "max_prompt_length": 300}).prompt == 300
    assert plan(window).prompt == 4096 - 512
    assert plan({}).prompt == 512
    assert "nothing bounds a prompt" in notes({})
    assert "nothing bounds a prompt" not in notes({}, prompt=100)
    with pytest.raises(RefusedError, match="leaves no room"):
        plan({**window, "max_completion_length": 4096})


@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        ({}, "autocast"),
        ({"fp16": True}, "autocast"),
        ({"bf16": True}, "autocast"),
        (BF16, "bf16"),
        ({"model_init_kwargs": {"dtype": "bfloat16"}}, "bf16"),
        ({"model_init_kwargs": '{"dtype": "bfloat16"}'}, "bf16"),
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float32", "model_init_kwargs": {"torch_dtype": "bfloat16"}}, "bf16"),
        ({**BF16, "bf16": False}, "bf16"),
        ({"dtype": "auto"}, "bf16"),
        ({"fsdp": True}, "sharded"),
        ({**BF16, "fsdp": True}, "sharded"),
        ({**BF16, "fsdp": True, "bf16": False}, "bf16"),
        ({**BF16, "fsdp": True, "use_peft": True}, "bf16"),
        ({"fsdp": True, "use_peft": True}, "sharded"),
        ({"deepspeed": {"zero_optimization": {"stage": 2}}}, "master"),
        ({**BF16, "zero_stage": 3}, "master"),
    ],
)
def test_what_is_kept_of_a_weight_follows_from_how_it_is_loaded_cast_and_shared(settings, precision):
    assert plan(settings).precision == precision


def test_float32_without_mixed_precision_is_refused_rather_than_guessed():
    with pytest.raises(RefusedError, match="bf16: true"):
        plan({"bf16": False})


@pytest.mark.parametrize(
    ("settings", "sharding", "optimizer", "weights"),
    [
        ({}, "none", "none", "none"),
        ({"zero_stage": 1}, "zero1", "none", "none"),
        ({"use_deepspeed": True}, "zero2", "none", "none"),
        ({"deepspeed": {"zero_optimization": {"stage": 0}}}, "none", "none", "none"),
        (
            {"deepspeed": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}},
            "zero2",
            "host",
            "none",
        ),
        (
            {"deepspeed": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}},
            "zero3",
            "host",
            "host",
        ),
        ({"fsdp": True}, "zero3", "none", "none"),
        ({"fsdp": "full_shard offload auto_wrap"}, "zero3", "host", "host"),
        ({"fsdp": ["shard_grad_op"]}, "zero2", "none", "none"),
        ({"fsdp": True, "fsdp_config": {"reshard_after_forward": False}}, "zero2", "none", "none"),
        ({"fsdp": True, "fsdp_config": {"fsdp_cpu_offload": True}}, "zero3", "host", "host"),
        ({"use_fsdp": True, "fsdp_sharding_strategy": 2}, "zero2", "none", "none"),
        ({"accelerate_config": "zero3"}, "zero3", "none", "none"),
        ({"accelerate_config": {"distributed_type": "FSDP", "num_processes": 4}}, "zero3", "none", "none"),
    ],
)
def test_processes_share_what_deepspeed_fsdp_and_accelerate_say(settings, sharding, optimizer, weights):
    told = plan(settings)
    assert (told.sharding, told.offload_optimizer, told.offload_weights) == (sharding, optimizer, weights)


def test_processes_are_counted_by_the_caller_then_by_the_file():
    assert plan({"accelerate_config": "zero2"}).gpus == 8
    assert plan({"accelerate_config": "zero2", "num_processes": 4}).gpus == 4
    assert plan({"accelerate_config": "zero2", "num_processes": 4}, gpus=2).gpus == 2
    assert plan({"accelerate_config": "single_gpu"}).gpus == 1
    assert plan({"accelerate_config": {"distributed_type": "NO", "num_processes": 8}}).gpus == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"deepspeed": "zero2.json"},
        {"accelerate_config": "my.yaml"},
        {"fsdp": True, "fsdp_config": "fsdp.json"},
        {"fsdp": "hybrid_shard"},
        {"fsdp": True, "zero_stage": 2},
        {"zero_stage": 4},
        {"optim": "lion_8bit"},
        {"attn_implementation": "sage"},
        {"load_in_4bit": True},
        {"use_peft": True, "load_in_4bit": True, "load_in_8bit": True},
        {"use_peft": True, "load_in_8bit": True, "use_vllm": True},
        {"use_peft": True, "lora_target_modules": ["q_prj"]},
        {"use_vllm": True, "vllm_mode": "remote"},
        {"use_vllm": True, "vllm_tensor_parallel_size": 2},
        {"use_vllm": True, "vllm_gpu_memory_utilization": 1.3},
        {"max_completion_length": None},
        {"num_generations": "8"},
        {"gradient_checkpointing": "yes"},
        {"dtype": "int8"},
        {"parallelism_config": {"cp_size": 2}},
        {"use_liger_kernel": True, "liger_kernel_config": {"fused_linear_cross_entropy": True}},
        {"per_device_train_batch_size": True},
    ],
)
def test_what_trl_refuses_or_nobody_reckons_with_is_refused_with_a_next_step(settings):
    with pytest.raises(RefusedError, match="next: "):
        plan(settings)


def test_a_reference_is_resident_where_beta_is_set_and_nothing_can_be_switched_off():
    assert plan({"beta": 0.04}).reference
    assert not plan({"beta": 0.04, "use_peft": True}).reference
    assert not plan({"beta": 0.0}).reference


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("adamw_torch", ("adamw", "foreach")),
        ("adamw_torch_fused", ("adamw", "fused")),
        ("adamw_bnb_8bit", ("adamw_8bit", "fused")),
        ("adamw_8bit", ("adamw_8bit", "fused")),
        ("paged_adamw_8bit", ("paged_adamw_8bit", "fused")),
        ("paged_adamw_32bit", ("paged_adamw", "fused")),
        ("OptimizerNames.ADAFACTOR", ("adafactor", "single")),
        ("sgd", ("sgd", "foreach")),
    ],
)
def test_optimizers_go_by_the_names_of_transformers(name, told):
    assert (plan({"optim": name}).optimizer, plan({"optim": name}).step_kernel) == told


@pytest.mark.needs("trl")
def test_every_optimizer_that_is_read_is_one_of_transformers():
    from transformers.training_args import OptimizerNames

    assert set(trl_settings._OPTIMIZERS) - {"paged_adamw"} <= {name.value for name in OptimizerNames}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "sdpa"),
        ("eager", "eager"),
        ("flash_attention_2", "flash"),
        ("kernels-community/flash-attn3", "flash"),
        ("paged|sdpa", "sdpa"),
    ],
)
def test_attention_goes_by_the_names_of_transformers(name, told):
    assert plan({"attn_implementation": name}).attention == told


def test_checkpointing_goes_by_both_names_and_by_fsdp_s_own():
    assert plan({"gradient_checkpointing": False}).checkpointing == "none"
    assert plan({"activation_checkpointing": False}).checkpointing == "none"
    assert (
        plan({"activation_checkpointing": True, "gradient_checkpointing": False}).checkpointing == "recompute"
    )
    own = {"fsdp": True, "fsdp_config": {"activation_checkpointing": True}, "gradient_checkpointing": False}
    assert plan(own).checkpointing == "recompute"


def test_adapters_are_on_what_peft_puts_them_on():
    assert plan({"use_peft": True}).lora == Lora(rank=16, targets=("q_proj", "v_proj"))
    everywhere = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 64, "load_in_4bit": True}
    assert plan(everywhere).lora == Lora(rank=64, targets=None, quantized=True)
    named = {"use_peft": True, "lora_target_modules": ["q_proj", "down_proj"]}
    assert plan(named).lora == Lora(targets=("q_proj", "down_proj"))
    with pytest.raises(RefusedError, match="PEFT knows no lora_target_modules"):
        read({"use_peft": True}, replace(MODEL, family="new"))


def test_the_engine_decodes_a_whole_generation_at_once_and_sleeps_at_level_2_only():
    settings = {
        "use_vllm": True,
        "vllm_enable_sleep_mode": True,
        "vllm_tensor_parallel_size": 2,
        "vllm_max_model_length": 2048,
        "gradient_accumulation_steps": 4,
        "vllm_gpu_memory_utilization": 0.55,
    }
    told = plan(settings, gpus=4)
    assert told.engine == Engine(
        mode="colocate",
        utilization=0.55,
        sleep=2,
        tensor_parallel=2,
        sequences=8 * 4 * 2,
        context=2048,
        batched_tokens=4096,
    )
    assert told.prompts == 8 * 4 * 4 // 8
    assert plan({"use_vllm": True, "vllm_mode": "server"}).engine.mode == "server"


def test_a_context_that_is_not_set_is_the_model_s_and_that_is_said():
    settings = {"use_vllm": True}
    assert plan(settings).engine.context == MODEL.positions
    assert f"{MODEL.positions} tokens to start" in notes(settings)


def test_a_base_in_4_bits_is_quantized_in_the_engine_too():
    thin = plan({"use_vllm": True, "use_peft": True, "load_in_4bit": True}).engine.weight_bytes
    assert 0.5625 < thin < 2.0
    assert plan({"use_vllm": True, "use_peft": True}).engine.weight_bytes == 2.0


def test_the_environment_in_the_file_is_that_of_the_run():
    env = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128, expandable_segments:True"}
    assert plan({"env": env}).expandable_segments
    assert not plan({"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}}).expandable_segments


def test_kernels_of_liger_and_of_the_hub_are_seen():
    assert plan({"use_liger_kernel": True}).fused_kernels
    assert plan({"model_init_kwargs": {"use_kernels": True}}).fused_kernels
    assert not plan({}).fused_kernels


def test_generations_that_serve_several_steps_are_told():
    assert "serves 4 micro-batches" in notes({"steps_per_generation": 4})
    assert plan({"steps_per_generation": 4}).completions == 32


def test_without_an_engine_a_sharded_model_is_gathered_to_generate():
    assert "gathers the whole model" in notes({"zero_stage": 3})
    assert "gathers the whole model" not in notes({"zero_stage": 3, "ds3_gather_for_generation": False})
