"""Names that a TRL file may have: what is no field at all is a slip of the pen, and is refused.

`NAMES` are the fields of trl 1.16.0's `GRPOConfig` (with transformers 5.24.0), `ModelConfig`,
`GRPOScriptArguments` and `DatasetMixtureConfig`, and what `trl grpo` hands on to `accelerate launch`; a test
compares them with the installed package. `FORMER` were fields once and still stand in people's files.
`UNMODELLED` touch memory, and nothing here reckons with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIELDS: Final = """
accelerator_config activation_checkpointing activation_checkpointing_kwargs adam_beta1 adam_beta2
adam_epsilon attn_implementation auto_find_batch_size average_tokens_across_devices batch_eval_metrics beta
bf16 bf16_full_eval bnb_4bit_quant_storage bnb_4bit_quant_type cache_implementation cast_lm_head_to_fp32
chat_template_kwargs data_seed dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context
dataloader_num_workers dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor
dataset_config dataset_name dataset_streaming dataset_test_split dataset_train_split datasets ddp_backend
ddp_broadcast_buffers ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug
deepspeed delta disable_dropout disable_tqdm do_eval do_predict do_train ds3_gather_for_generation dtype
enable_jit_checkpoint entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target
epsilon epsilon_high eval_accumulation_steps eval_delay eval_do_concat_batches eval_on_start eval_steps
eval_strategy eval_use_gather_object fp16 fp16_full_eval fsdp fsdp_config full_determinism
generation_batch_size generation_kwargs gradient_accumulation_steps gradient_checkpointing
gradient_checkpointing_kwargs greater_is_better hub_always_push hub_model_id hub_private_repo hub_revision
hub_strategy hub_token ignore_bias_buffers ignore_data_skip importance_sampling_level include_for_metrics
include_num_input_tokens_seen label_names label_smoothing_factor learning_rate length_column_name
liger_kernel_config load_best_model_at_end load_in_4bit load_in_8bit local_rank log_completions
log_completions_hub_repo log_level log_level_replica log_multimodal log_on_each_node log_unique_prompts
logging_first_step logging_nan_inf_filter logging_steps logging_strategy lora_alpha lora_dropout
lora_modules_to_save lora_r lora_target_modules lora_target_parameters lora_task_type loss_type
lr_scheduler_kwargs lr_scheduler_type mask_truncated_completions max_completion_length max_grad_norm
max_steps max_tool_calling_iterations metric_for_best_model min_p model_init_kwargs model_name_or_path
model_revision multi_objective_aggregation neftune_noise_alpha num_completions_to_print num_generations
num_generations_eval num_iterations num_train_epochs off_policy_mask_threshold optim optim_args
optim_target_modules output_dir pad_to_multiple_of parallelism_config per_device_eval_batch_size
per_device_train_batch_size prediction_loss_only project push_to_hub ref_model_mixup_alpha
ref_model_sync_steps remove_unused_columns repetition_penalty report_to
restore_callback_states_from_checkpoint resume_from_checkpoint reward_funcs reward_model_name_or_path
reward_weights router_aux_loss_coef run_name sapo_temperature_neg sapo_temperature_pos save_on_each_node
save_only_model save_steps save_strategy save_total_limit scale_rewards seed shuffle_dataset
skip_memory_metrics steps_per_generation streaming sync_ref_model temperature test_split_size tf32
top_entropy_quantile top_k top_p torch_compile torch_compile_backend torch_compile_mode
torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id train_sampling_strategy
transformers_continuous_batching_config trust_remote_code use_adaptive_entropy use_bias_correction_kl
use_bnb_nested_quant use_cache use_cpu use_dora use_liger_kernel use_peft use_rslora
use_transformers_continuous_batching use_transformers_paged use_vllm vespo_k_neg vespo_k_pos
vespo_lambda_neg vespo_lambda_pos vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port
vllm_importance_sampling_cap vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length vllm_mode
vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
vllm_structured_outputs_regex vllm_tensor_parallel_size warmup_steps weight_decay
"""

LAUNCH: Final = (
    "accelerate_config",
    "env",
    "config",
    "num_processes",
    "num_machines",
    "mixed_precision",
    "main_process_port",
    "gpu_ids",
    "use_deepspeed",
    "zero_stage",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "offload_optimizer_device",
    "offload_param_device",
    "use_fsdp",
    "fsdp_version",
    "fsdp_reshard_after_forward",
    "fsdp_sharding_strategy",
    "fsdp_offload_params",
    "fsdp_activation_checkpointing",
    "fsdp_auto_wrap_policy",
    "fsdp_state_dict_type",
)
"""What a file may say to `accelerate launch` (`trl/cli/commands/training.py:64`)."""

FORMER: Final[Mapping[str, str]] = {
    "max_prompt_length": "no field of TRL 1.16 any more, which cuts no prompt; taken for the longest",
    "use_liger_loss": "no field of TRL 1.16 any more: its head is always fused",
    "torch_dtype": "called dtype now",
    "ref_model_init_kwargs": "no field of TRL 1.16 any more: the reference is loaded like the model",
    "vllm_device": "no field of TRL 1.16 any more: vLLM runs on the trainer's GPUs or on a server",
    "vllm_max_model_len": "called vllm_max_model_length now, and not read",
    "vllm_dtype": "no field of TRL 1.16 any more: vLLM takes the checkpoint's",
    **dict.fromkeys(
        (
            "vllm_guided_decoding_regex",
            "vllm_enable_prefix_caching",
            "wandb_log_unique_prompts",
            "evaluation_strategy",
            "group_by_length",
            "half_precision_backend",
            "include_inputs_for_metrics",
            "include_tokens_per_second",
            "logging_dir",
            "no_cuda",
            "overwrite_output_dir",
            "push_to_hub_model_id",
            "push_to_hub_organization",
            "push_to_hub_token",
            "ray_scope",
            "save_safetensors",
            "tpu_num_cores",
            "use_mps_device",
            "warmup_ratio",
        ),
        "",
    ),
}
"""Fields of earlier releases, and what became of them; empty where they never touched memory."""

_SCRIPTS: Final = """
benchmarks callbacks chat_template code_eval_scoring_mode code_eval_test_batch_size code_language
code_provider cosine_max_len cosine_max_value_correct cosine_max_value_wrong cosine_min_value_correct
cosine_min_value_wrong dataset_mixture dataset_prompt_column e2b_router_url hub_model_revision ioi_provider
max_completion_len morph_router_url overwrite_hub_revision parallel_code_exec_per_proc push_to_hub_revision
repetition_max_penalty repetition_n_grams soft_punish_cache system_prompt wandb_entity wandb_project
wandb_run_group
"""

SCRIPTS: Final = frozenset(_SCRIPTS.split())
"""What open-r1's `grpo.py` has beside TRL's own fields (`open_r1/configs.py`): data, rewards, the hub;
nothing that a plan is made of."""

NAMES: Final = frozenset({*_FIELDS.split(), *LAUNCH})
"""Every name that TRL 1.16 knows."""

UNMODELLED: Final[Mapping[str, tuple[object, str]]] = {
    "torch_compile": (False, "compiled layers keep fewer activations"),
    "neftune_noise_alpha": (None, "noise is another copy of the embedded tokens"),
    "torch_empty_cache_steps": (None, "an emptied cache has fewer holes"),
    "ddp_bucket_cap_mb": (None, "buckets of another size than 25 MiB"),
    "cast_lm_head_to_fp32": (False, "the head, and its tiles, are in fp32"),
    "optim_args": (None, "the optimizer may keep other states"),
    "optim_target_modules": (None, "only some matrices have optimizer states"),
    "activation_checkpointing_kwargs": (None, "only some layers may be checkpointed"),
    "gradient_checkpointing_kwargs": (None, "only some layers may be checkpointed"),
    "cache_implementation": (None, "another cache of generated tokens"),
    "transformers_continuous_batching_config": (None, "another cache of generated tokens"),
    "use_transformers_continuous_batching": (False, "transformers sizes its cache by what the card has left"),
    "use_transformers_paged": (False, "transformers sizes its cache by what the card has left"),
    "lora_modules_to_save": (None, "these modules are trained in full, beside the adapters"),
    "lora_target_parameters": (None, "adapters of single parameters"),
    "use_dora": (False, "DoRA keeps a magnitude of each column, and makes weights of adapters as it goes"),
    "bnb_4bit_quant_storage": (None, "another storage of the 4-bit base"),
    "vllm_model_impl": ("vllm", "transformers' layers have other scratch than vLLM's"),
    "entropy_coef": (0.0, "entropy has a gradient, through the same tiles"),
    "use_cpu": (False, "nothing is on a GPU"),
    "generation_kwargs": (None, "it may change how many sequences are decoded"),
    "reward_model_name_or_path": (None, "a reward model lies on the trainer's GPUs, too"),
}
"""Names that touch memory and are not reckoned with: the value that says nothing, and what else would do."""
