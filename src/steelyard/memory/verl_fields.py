"""Names that verl 0.9.1's settings have, in the sections that a plan is read from.

From `verl/trainer/config/_generated_ppo_trainer.yaml` and `_generated_ppo_megatron_trainer.yaml` of the
release: every leaf, by the section that it stands in. Below a section of `OPEN` anything may stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OPEN: Final = frozenset(
    (
        "agent",
        "apply_chat_template_kwargs",
        "checkpoint",
        "custom_cls",
        "datagen",
        "disaggregation",
        "engine_kwargs",
        "filter_groups",
        "fused_kernel_options",
        "kl_ctrl",
        "mm_processor_kwargs",
        "mtp",
        "multi_turn",
        "override_config",
        "override_ddp_config",
        "override_mcore_model_config",
        "override_optimizer_config",
        "override_transformer_config",
        "pf_ppo",
        "policy_loss",
        "profiler",
        "prometheus",
        "qat",
        "rollout_correction",
        "router_replay",
        "sampler",
        "tiled_mlp",
        "trace",
        "turbo_config",
        "v1",
        "val_kwargs",
        "wrap_policy",
    )
)
"""Sections that hold what they are given, or nothing that touches a plan."""

FIELDS: Final[Mapping[str, str]] = {
    "actor_rollout_ref": """
        hybrid_engine nccl_timeout
    """,
    "actor_rollout_ref.actor": """
        calculate_entropy calculate_sum_pi_squared clip_ratio clip_ratio_c clip_ratio_high clip_ratio_low
        data_loader_seed entropy_checkpointing entropy_coeff entropy_from_logits_chunk_size
        entropy_from_logits_with_chunking freeze_vision_tower grad_clip kl_loss_coef kl_loss_type
        loss_agg_mode loss_scale_factor pad_to_length ppo_epochs ppo_max_token_len_per_gpu
        ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_mini_batch_size rollout_n shuffle strategy
        tau_neg tau_pos ulysses_sequence_parallel_size use_dynamic_bsz use_fused_kernels use_kl_loss
        use_prefix_grouper use_remove_padding use_torch_compile
    """,
    "actor_rollout_ref.actor.fsdp_config": """
        dtype entropy_checkpointing entropy_from_logits_chunk_size entropy_from_logits_with_chunking
        forward_only forward_prefetch fsdp_size full_determinism model_dtype offload_policy
        optimizer_offload pad_to_length pad_to_length_bucket param_offload reshard_after_forward seed
        strategy ulysses_sequence_parallel_size use_no_sync_for_gradient_accumulation use_orig_params
        use_torch_compile
    """,
    "actor_rollout_ref.actor.megatron": """
        context_parallel_size dist_checkpointing_path dist_checkpointing_prefix
        dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient dtype
        dynamic_context_parallel entropy_from_logits_chunk_size entropy_from_logits_with_chunking
        expert_model_parallel_size expert_tensor_parallel_size forward_only max_seqlen_per_dp_cp_rank
        optimizer_offload pad_bshd_to_minibatch_max pad_to_length pad_to_length_bucket param_offload
        pipeline_model_parallel_size seed sequence_parallel tensor_model_parallel_size
        use_dist_checkpointing use_distributed_optimizer use_mbridge use_megatron_fsdp use_remove_padding
        vanilla_mbridge virtual_pipeline_model_parallel_size
    """,
    "actor_rollout_ref.actor.optim": """
        betas clip_grad exp_avg_dtype exp_avg_sq_dtype lr lr_decay_steps lr_decay_style lr_scheduler_type
        lr_warmup_init lr_warmup_steps lr_warmup_steps_ratio lr_wsd_decay_steps lr_wsd_decay_style
        main_grads_dtype min_lr min_lr_ratio muon_coefficient_type muon_extra_scale_factor
        muon_fp32_matmul_prec muon_match_adamw_update_rms muon_momentum muon_nesterov muon_num_ns_steps
        muon_scalar_optimizer muon_scale_mode muon_split_qkv muon_tp_mode num_cycles optimizer
        optimizer_impl total_training_steps use_checkpoint_opt_param_scheduler
        use_layer_wise_distributed_optimizer use_precision_aware_optimizer warmup_style weight_decay
        weight_decay_incr_style zero_indexed_step
    """,
    "actor_rollout_ref.model": """
        custom_chat_template enable_activation_offload enable_gradient_checkpointing exclude_modules
        external_lib hf_config_path lora_adapter_path lora_alpha lora_rank path target_modules
        tokenizer_path trust_remote_code use_fused_kernels use_liger use_remove_padding use_shm
    """,
    "actor_rollout_ref.model.lora": """
        a2a_experimental adapter_path alpha dropout dropout_position dtype exclude_modules
        freeze_language_model freeze_vision_model freeze_vision_projection lora_A_init_method
        lora_B_init_method merge rank target_modules type
    """,
    "actor_rollout_ref.ref": """
        entropy_checkpointing entropy_from_logits_chunk_size entropy_from_logits_with_chunking
        log_prob_max_token_len_per_gpu log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu
        log_prob_use_dynamic_bsz pad_to_length rollout_n strategy ulysses_sequence_parallel_size
        use_torch_compile
    """,
    "actor_rollout_ref.ref.fsdp_config": """
        dtype entropy_checkpointing entropy_from_logits_chunk_size entropy_from_logits_with_chunking
        forward_only forward_prefetch fsdp_size full_determinism model_dtype offload_policy
        optimizer_offload pad_to_length pad_to_length_bucket param_offload reshard_after_forward seed
        strategy ulysses_sequence_parallel_size use_no_sync_for_gradient_accumulation use_orig_params
        use_torch_compile
    """,
    "actor_rollout_ref.ref.megatron": """
        context_parallel_size dist_checkpointing_path dist_checkpointing_prefix
        dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient dtype
        dynamic_context_parallel entropy_from_logits_chunk_size entropy_from_logits_with_chunking
        expert_model_parallel_size expert_tensor_parallel_size forward_only max_seqlen_per_dp_cp_rank
        optimizer_offload pad_bshd_to_minibatch_max pad_to_length pad_to_length_bucket param_offload
        pipeline_model_parallel_size seed sequence_parallel tensor_model_parallel_size
        use_dist_checkpointing use_distributed_optimizer use_mbridge use_megatron_fsdp use_remove_padding
        vanilla_mbridge virtual_pipeline_model_parallel_size
    """,
    "actor_rollout_ref.rollout": """
        calculate_log_probs cudagraph_capture_sizes data_parallel_size disable_log_stats do_sample dtype
        enable_chunked_prefill enable_prefix_caching enable_rollout_routing_replay enforce_eager
        expert_parallel_size free_cache_engine full_determinism gpu_memory_utilization ignore_eos
        layered_summon load_format log_prob_max_token_len_per_gpu log_prob_micro_batch_size
        log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz logprobs_mode max_model_len
        max_num_batched_tokens max_num_seqs mode moe_load_balance_metrics_interval multi_stage_wake_up n
        n_gpus_per_node name nnodes over_sample_rate pipeline_model_parallel_size prompt_length quantization
        quantization_config_file response_length router_config_path scheduling_policy seed
        skip_tokenizer_init temperature tensor_model_parallel_size top_k top_p
    """,
    "actor_rollout_ref.rollout.checkpoint_engine": """
        backend custom_backend_module update_weights_bucket_megabytes
    """,
    "algorithm": """
        adv_estimator gamma kl_penalty lam norm_adv_by_std_in_grpo use_kl_in_reward use_pf_ppo
    """,
    "data": """
        audio_key dataloader_num_workers filter_overlong_prompts filter_overlong_prompts_workers
        function_tool_path gen_batch_size image_key image_patch_size max_prompt_length max_response_length
        prompt_key return_full_prompt return_multi_modal_inputs return_raw_chat return_raw_input_ids
        reward_fn_key seed shuffle tokenizer tool_config_path train_batch_size train_files train_max_samples
        truncation trust_remote_code use_shm val_batch_size val_files val_max_samples validation_shuffle
        video_key
    """,
    "trainer": """
        balance_batch checkpoint_callback_class critic_warmup default_hdfs_dir default_local_dir
        del_local_ckpt_after_load device esi_redundant_time experiment_name log_val_generations logger
        max_actor_ckpt_to_keep max_critic_ckpt_to_keep n_gpus_per_node nnodes project_name
        ray_wait_register_center_timeout resume_from_path resume_mode rollout_data_dir save_freq test_freq
        total_epochs total_training_steps use_v1 val_before_train val_only validation_data_dir
    """,
}
"""Leaves of each section, in words."""
