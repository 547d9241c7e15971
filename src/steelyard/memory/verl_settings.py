"""What verl makes of its settings: the YAML of its PPO trainer, or words on Hydra's command line.

Read in verl 0.9.1: defaults in `verl/trainer/config/_generated_ppo_trainer.yaml` (and its megatron sibling),
their meaning in `verl/workers/`; a file and a line below are of that release. What decides memory:

- FSDP keeps weights, gradients and moments in fp32, sharded, and gathers a layer at a time in bf16
  (`engine/fsdp/transformer_impl.py:393`); `model_dtype: bf16` keeps all in bf16. Megatron keeps bf16 and an
  fp32 copy.
- `param_offload` and `optimizer_offload` clear the GPU while the engine generates, and not while the trainer
  works (`engine/base.py:330`); `offload_policy` (FSDP2) keeps all on the host, always. The reference model is
  always on the host, and comes a layer at a time (`transformer_impl.py:432`, `:459`).
- Log-probabilities are made of whole logits in bf16, of prompt and completion; flash-attn's cross entropy
  writes their gradient over them (`utils/torch_functional.py:110`). That is the head `selective`. With
  `use_fused_kernels` they are made 512 tokens at a time: `chunked`, or `fused` by Triton.
- The engine is a process of its own. It sleeps at level 2 if `free_cache_engine`, at level 1 where LoRA is
  served as an adapter, and not at all otherwise (`rollout/vllm_rollout/vllm_async_server.py:1289`).

A name that verl 0.9.1 has not is noted, not refused: verl renames its settings from month to month. One that
is a letter away from a name read here is refused. Only GRPO and its kin are planned: a critic is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from steelyard.memory.plan import (
    AttentionKernel,
    Checkpointing,
    Engine,
    Head,
    Lora,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Sharding,
    StepKernel,
)
from steelyard.memory.settings import Read, Settings, near, shown, spelled
from steelyard.memory.shapes import ModelShape
from steelyard.memory.verl_words import DEFAULTS, flattened, known, overrides, resolved

__all__ = ["DEFAULTS", "overrides", "read"]

WHERE: Final = "verl settings"

ACTOR: Final = "actor_rollout_ref.actor."
ROLLOUT: Final = "actor_rollout_ref.rollout."
MODEL: Final = "actor_rollout_ref.model."
FSDP: Final = ACTOR + "fsdp_config."
MEGATRON: Final = ACTOR + "megatron."

CHUNK: Final = 512
"""Tokens of one chunk of the fused head in torch (`utils/experimental/torch_functional.py:104`)."""

MIB: Final = 2**20

_OPTIMIZERS: Final[Mapping[str, tuple[Optimizer, StepKernel]]] = {
    "adamw": ("adamw", "foreach"),  # torch.optim takes foreach on CUDA unless told
    "adam": ("adamw", "foreach"),
    "_adamw": ("adamw", "single"),  # torchao, with bf16_stochastic_round
    "adamw8bit": ("adamw_8bit", "fused"),  # bitsandbytes updates in place
    "pagedadamw8bit": ("paged_adamw_8bit", "fused"),
    "pagedadamw": ("paged_adamw", "fused"),
    "pagedadamw32bit": ("paged_adamw", "fused"),
    "adafactor": ("adafactor", "single"),
    "muon": ("muon", "single"),
    "sgd": ("sgd", "foreach"),
}


def read(settings: Mapping[str, object], model: ModelShape, *, gpus: int | None = None) -> Read:
    """Read what a GRPO run of verl keeps in memory.

    Parameters
    ----------
    settings
        The nested YAML, and dotted names over it (`overrides` makes them of a command line).
    model
        Its shape.
    gpus
        GPUs of the trainer; None: `trainer.n_gpus_per_node` x `trainer.nnodes`.

    Raises
    ------
    RefusedError
        A value that verl refuses, or a setting that cannot be reckoned with.

    Examples
    --------
    >>> from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
    >>> heads = Attention(heads=2, kv_heads=2, head_dim=32, value_dim=32, cache_dim=128)
    >>> up = Linear(name="q_proj", inputs=64, outputs=64, reads="attention norm")
    >>> layer = Layer(count=2, attention=heads, mlp=Mlp(width=128), linears=(up,), vectors=128)
    >>> tiny = ModelShape(
    ...     name="tiny", family="qwen3", hidden=64, vocabulary=512, layers=(layer,), tied=True, vectors=64
    ... )
    >>> words = ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.n=8"]
    >>> plan = read(overrides(words), tiny).plan
    >>> plan.gpus, plan.sharding, plan.precision, plan.head, plan.engine.sleep
    (8, 'zero3', 'sharded', 'selective', 2)
    """
    flat = flattened(settings)
    if flat.get("model_engine") == "megatron":  # a group of Hydra's, with defaults of its own
        flat = {ACTOR + "strategy": "megatron", **flat}
    asked = Settings(resolved(flat), {}, WHERE)
    notes = _unread(flat, asked)
    count = gpus or asked.whole("trainer.n_gpus_per_node", least=1) * asked.whole("trainer.nnodes", least=1)
    return Read(_plan(asked, model, count, notes), tuple(notes))


def _plan(asked: Settings, model: ModelShape, gpus: int, notes: list[str]) -> Plan:
    megatron = _strategy(asked) == "megatron"
    lora = _lora(asked, model)
    parallel, spread = _parallel(asked, gpus, megatron=megatron)
    micro, packed = _micro(asked, gpus // (parallel * spread), spread)
    engine = _engine(asked, model, lora, gpus, notes)
    group, prompts = _group(asked, gpus, megatron=megatron, notes=notes)
    optimizer, kernel = _optimizer(asked)
    if megatron:
        kernel = "fused"  # Transformer Engine's Adam, or apex's (megatron/core/optimizer)
    elif _strategy(asked) == "fsdp2":
        kernel = "single"  # DTensors are in no list that torch.optim takes foreach for
    head, chunk = _head(asked, notes)
    states, weights = _offloads(asked, megatron=megatron)
    if head == "selective":
        _scored(asked, packed or micro * _sequence(asked), gpus // (parallel * spread), notes)
    return Plan(
        model=model,
        prompt=asked.whole("data.max_prompt_length", least=1),
        completion=asked.whole("data.max_response_length", least=1),
        micro_batch=micro,
        micro_tokens=packed,
        generations=asked.whole(ROLLOUT + "n", least=1),
        prompts=prompts,
        precision=_precision(asked, megatron=megatron),
        optimizer=optimizer,
        # verl/utils/megatron_utils.py has gradients reduced in fp32
        gradient_bytes=4 if megatron else None,
        step_kernel=kernel,
        lora=lora,
        checkpointing=_checkpointing(asked, megatron=megatron),
        attention=_attention(asked),
        fused_kernels=asked.flag(MODEL + "use_liger"),
        head=head,
        chunk=chunk,
        head_tokens="all",
        expandable_segments=_expandable(asked),
        reference=_reference(asked) and lora is None,
        gpus=group,
        sharding=_sharding(asked, megatron=megatron),
        tensor_parallel=parallel,
        sequence_parallel=spread,
        offload_optimizer=states,
        offload_weights=weights,
        offload_reference="idle" if megatron else "host",
        engine=engine,
    )


_TOLD: Final = 40
"""Strange names that are looked at one by one; a file of another kind has thousands."""
_SECTIONS: Final = ("actor_rollout_ref.", "data.", "algorithm.", "trainer.")


def _unread(flat: Mapping[str, object], asked: Settings) -> list[str]:
    """Notes on names that verl 0.9.1 has not; a name that is nearly one that is read is refused."""
    notes: list[str] = []
    strange = [name for name in flat if name.startswith(_SECTIONS) and not known(name)]
    if len(strange) > _TOLD:
        notes.append(f"{len(strange) - _TOLD} more names are no settings of verl 0.9.1, and are not read")
    for name in strange[:_TOLD]:
        remedy = near(name, DEFAULTS)
        if remedy != "remove it" and _slip(name):
            raise asked.refused(f"{name!r} is no setting of verl 0.9.1", remedy)
        notes.append(f"{spelled(name)} is no setting of verl 0.9.1, and is not read")
    if asked.word("algorithm.adv_estimator") == "gae" or asked.flag("critic.enable"):
        raise asked.refused(
            "a critic (algorithm.adv_estimator gae, critic.enable) is not reckoned with", "give grpo"
        )
    if "algorithm.adv_estimator" not in flat:
        notes.append(
            "algorithm.adv_estimator is not set: taken for grpo, while verl's default trains a critic, too"
        )
    if asked.flag("reward_model.enable") or asked.flag("reward.reward_model.enable"):
        notes.append("the reward model is not reckoned with: give it GPUs of its own")
    if asked.get(ROLLOUT + "quantization") is not None:
        notes.append("rollout.quantization: weights of the engine are counted with one byte")
    if asked.get(ROLLOUT + "n") == 1:
        notes.append(
            "rollout.n is 1, verl's default: GRPO compares the completions of a group, so give 2 or more"
        )
    return notes


def _slip(name: str) -> bool:
    """A name is an unknown sibling of one that is read, and differs by a letter or two."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - for names that are wrong only

    parent, _, leaf = name.rpartition(".")
    siblings = (other.rpartition(".")[2] for other in DEFAULTS if other.rpartition(".")[0] == parent)
    return any(SequenceMatcher(None, leaf, other).ratio() > 0.9 for other in siblings)


def _strategy(asked: Settings) -> str:
    name = asked.word(ACTOR + "strategy")
    if name not in ("fsdp", "fsdp2", "megatron"):
        raise asked.refused(f"{ACTOR}strategy is {name!r}", "give fsdp, fsdp2 or megatron")
    return name


def _parallel(asked: Settings, gpus: int, *, megatron: bool) -> tuple[int, int]:
    """Ranks that share one copy of a matrix, and ranks that share one sequence."""
    name = MEGATRON + "tensor_model_parallel_size"
    parallel = asked.whole(name, least=1) if megatron else 1
    spread = 1 if megatron else asked.whole(ACTOR + "ulysses_sequence_parallel_size", least=1)
    if gpus % (parallel * spread):
        raise asked.refused(
            f"{gpus} GPUs are no multiple of {parallel * spread}", "change the parallel sizes"
        )
    return parallel, spread


def _micro(asked: Settings, ranks: int, spread: int) -> tuple[int, int | None]:
    """Completions of a micro-batch of one rank, and the tokens that bound it (`utils/config.py:95-180`)."""
    sequence = _sequence(asked)
    generations = asked.whole(ROLLOUT + "n", least=1)
    prompts, mini = (
        asked.whole(name, least=1) for name in ("data.train_batch_size", ACTOR + "ppo_mini_batch_size")
    )
    share = mini * generations // ranks
    if asked.flag(ACTOR + "use_dynamic_bsz"):
        budget = asked.whole(ACTOR + "ppo_max_token_len_per_gpu", least=1) * spread
        if budget < sequence:
            raise asked.refused(
                f"ppo_max_token_len_per_gpu holds {budget} tokens, and a sequence has up to {sequence}",
                f"raise it to {-(-sequence // spread)} or more",
            )
        return max(1, share), budget
    if prompts < mini:
        raise asked.refused(
            f"data.train_batch_size {prompts} is below {ACTOR}ppo_mini_batch_size {mini}",
            "raise the one or lower the other",
        )
    micro, whole = (
        asked.maybe(ACTOR + name, least=1)
        for name in ("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size")
    )
    if (micro is None) == (whole is None):
        raise asked.refused(
            f"{'both' if micro else 'none'} of {ACTOR}ppo_micro_batch_size_per_gpu and ppo_micro_batch_size",
            "set the first, or use_dynamic_bsz=true",
        )
    micro = micro if micro is not None else max(1, (whole or 0) // ranks)
    if mini * generations % ranks or share % micro:
        raise asked.refused(
            f"a mini-batch of {mini} prompts x {generations} completions on {ranks} ranks "
            f"does not divide into micro-batches of {micro}",
            f"make {share} a multiple of it",
        )
    return micro, None


def _sequence(asked: Settings) -> int:
    """Tokens of the longest prompt and response."""
    return asked.whole("data.max_prompt_length", least=1) + asked.whole("data.max_response_length", least=1)


def _scored(asked: Settings, trained: int, ranks: int, notes: list[str]) -> None:
    """Tell of a pass for old log-probabilities larger than a micro-batch of training.

    It has no gradient, but whole logits and their softmax, for entropy is always asked for
    (`trainer/ppo/ray_trainer.py:1300`): 4 bytes of each, as much as training has (`head`).
    """
    micro, whole = (
        asked.maybe(ROLLOUT + name, least=1)
        for name in ("log_prob_micro_batch_size_per_gpu", "log_prob_micro_batch_size")
    )
    tokens = (micro or (whole or 0) // ranks) * _sequence(asked)
    if asked.flag(ROLLOUT + "log_prob_use_dynamic_bsz"):
        tokens = asked.whole(ROLLOUT + "log_prob_max_token_len_per_gpu", least=1)
    if tokens > trained:
        notes.append(
            f"log-probabilities are made of {tokens:,} tokens at a time, training of {trained:,}: that pass "
            "has the larger logits, and is not reckoned with: lower log_prob_micro_batch_size_per_gpu, or "
            "log_prob_max_token_len_per_gpu"
        )


def _group(asked: Settings, gpus: int, *, megatron: bool, notes: list[str]) -> tuple[int, int]:
    """GPUs that share states, and their part of the prompts: `fsdp_size` makes groups that are copies."""
    prompts = asked.whole("data.train_batch_size", least=1)
    size = asked.get(FSDP + "fsdp_size")
    if megatron or size in (-1, None) or size == gpus:
        return gpus, prompts
    size = asked.whole(FSDP + "fsdp_size", least=1)
    if gpus % size or prompts % (gpus // size):
        raise asked.refused(
            f"groups of {size} GPUs do not divide {gpus} GPUs and {prompts} prompts", "change fsdp_size"
        )
    notes.append(f"{gpus} GPUs are {gpus // size} groups of {size} that are copies: one of them is planned")
    return size, prompts // (gpus // size)


def _sharding(asked: Settings, *, megatron: bool) -> Sharding:
    """`get_sharding_strategy` (`engine/fsdp/utils.py:56`); Megatron's distributed optimizer is stage 1."""
    if megatron:
        for name in ("pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"):
            if asked.whole(MEGATRON + name, least=1) > 1:
                raise asked.refused(f"{MEGATRON}{name} above 1 is not reckoned with", "set it to 1")
        return "zero1" if asked.flag(MEGATRON + "use_distributed_optimizer") else "none"
    return "zero3" if asked.flag(FSDP + "reshard_after_forward") else "zero2"


def _precision(asked: Settings, *, megatron: bool) -> Precision:
    if megatron:
        return "master"
    name = asked.word(FSDP + "model_dtype")
    if name in ("fp32", "float32", None):
        return "sharded"
    if name in ("bf16", "bfloat16", "fp16", "float16"):
        return "bf16"
    raise asked.refused(f"{FSDP}model_dtype is {name!r}", "give fp32 or bf16")


def _offloads(asked: Settings, *, megatron: bool) -> tuple[Offload, Offload]:
    """Where the optimizer's states and the weights lie."""
    if not megatron and asked.flag(FSDP + "offload_policy"):
        return "host", "host"
    section = MEGATRON if megatron else FSDP
    optimizer, weights = (asked.flag(section + name) for name in ("optimizer_offload", "param_offload"))
    return "idle" if optimizer else "none", "idle" if weights else "none"


def _checkpointing(asked: Settings, *, megatron: bool) -> Checkpointing:
    if megatron:
        granularity = asked.word(MEGATRON + "override_transformer_config.recompute_granularity")
        return "recompute" if granularity == "full" else "none"
    if asked.flag(MODEL + "enable_activation_offload"):
        return "offload"
    return "recompute" if asked.flag(MODEL + "enable_gradient_checkpointing") else "none"


def _attention(asked: Settings) -> AttentionKernel:
    """`flash_attention_2` unless overridden (`workers/config/model.py`)."""
    name = asked.word(MODEL + "override_config.attn_implementation") or "flash_attention_2"
    if name in ("sdpa", "eager"):
        return "sdpa" if name == "sdpa" else "eager"
    return "flash"


def _head(asked: Settings, notes: list[str]) -> tuple[Head, int]:
    if asked.flag(MODEL + "use_fused_kernels"):
        triton = asked.word(MODEL + "fused_kernel_options.impl_backend") == "triton"
        return ("fused" if triton else "chunked"), CHUNK
    if asked.number(ACTOR + "entropy_coeff") != 0 or asked.flag(ACTOR + "calculate_entropy"):
        notes.append(
            "entropy_coeff or calculate_entropy: the gradient is not written over the logits, and entropy "
            "makes copies of them, which are not reckoned with"
        )
    if asked.number(ROLLOUT + "temperature") != 1:
        notes.append("rollout.temperature is not 1: logits are copied once more, which is not reckoned with")
    return "selective", CHUNK


def _optimizer(asked: Settings) -> tuple[Optimizer, StepKernel]:
    name = (asked.word(ACTOR + "optim.optimizer") or "").lower()
    if name not in _OPTIMIZERS:
        raise asked.refused(f"{ACTOR}optim.optimizer {name!r} is not reckoned with", "give AdamW")
    kind, kernel = _OPTIMIZERS[name]
    fused = asked.flag(ACTOR + "optim.override_optimizer_config.fused")
    return kind, "fused" if fused else kernel


def _reference(asked: Settings) -> bool:
    """`need_reference_policy` (`trainer/ppo/utils.py:75`)."""
    return asked.flag(ACTOR + "use_kl_loss") or asked.flag("algorithm.use_kl_in_reward")


def _expandable(asked: Settings) -> bool:
    """Of the environment that Ray hands on; verl sets it for the trainer alone, between rollouts."""
    value = asked.get("ray_kwargs.ray_init.runtime_env.env_vars.PYTORCH_CUDA_ALLOC_CONF")
    return "expandable_segments:true" in str(value).lower().replace(" ", "")


def _lora(asked: Settings, model: ModelShape) -> Lora | None:
    """FSDP reads `lora_rank`, Megatron `lora.rank` (`workers/config/model.py:122-132`)."""
    rank = asked.whole(MODEL + "lora_rank") or asked.whole(MODEL + "lora.rank")
    if not rank:
        return None
    value = asked.get(MODEL + "target_modules")
    names = (value,) if isinstance(value, str) else value
    if not names or not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise asked.refused(f"{MODEL}target_modules is {shown(value)}", "give all-linear, or a list of names")
    if tuple(names) == ("all-linear",):
        return Lora(rank=rank)
    linears = {linear.name for layer in model.layers for linear in layer.linears}
    for name in names:
        if name not in linears:
            raise asked.refused(
                f"{MODEL}target_modules has {name!r}, and {model.name} has not", near(name, linears)
            )
    return Lora(rank=rank, targets=tuple(names))


def _engine(asked: Settings, model: ModelShape, lora: Lora | None, gpus: int, notes: list[str]) -> Engine:
    """The rollout; on GPUs of its own where `hybrid_engine` is false or it has nodes of its own."""
    parallel = asked.whole(ROLLOUT + "tensor_model_parallel_size", least=1)
    apart = not asked.flag("actor_rollout_ref.hybrid_engine") or asked.whole(ROLLOUT + "nnodes") > 0
    if not apart and gpus % parallel:
        raise asked.refused(
            f"{ROLLOUT}tensor_model_parallel_size {parallel} does not divide the {gpus} of the trainer's "
            "GPUs",
            f"say how many GPUs the trainer has: --gpus {parallel} or a multiple (trainer.n_gpus_per_node); "
            "or set it to 1 (verl's default is 2)",
        )
    bucket = asked.get(ROLLOUT + "update_weights_bucket_megabytes")
    name = "checkpoint_engine.update_weights_bucket_megabytes"
    megabytes = asked.whole(ROLLOUT + (name if bucket is None else "update_weights_bucket_megabytes"))
    window = _window(asked, model, notes)
    if asked.word(ROLLOUT + "name") == "sglang":
        notes.append("rollout.name is sglang: reckoned as vLLM, which shares a card's memory otherwise")
    quantized = asked.get(ROLLOUT + "quantization") is not None
    narrow = str(asked.get(ROLLOUT + "engine_kwargs.vllm.kv_cache_dtype")).startswith("fp8")
    return Engine(
        mode="server" if apart else "colocate",
        utilization=asked.share(ROLLOUT + "gpu_memory_utilization"),
        sleep=_sleep(asked, lora),
        tensor_parallel=parallel,
        sequences=asked.whole(ROLLOUT + "max_num_seqs", least=1),
        graphs=not asked.flag(ROLLOUT + "enforce_eager"),
        weight_bytes=1.0 if quantized else 2.0,
        cache_bytes=1.0 if narrow else 2.0,
        bucket_bytes=float(megabytes * MIB),
        context=window,
        batched_tokens=asked.whole(ROLLOUT + "max_num_batched_tokens", least=1),
        own_process=True,
    )


def _window(asked: Settings, model: ModelShape, notes: list[str]) -> int:
    """`max_model_len`, else the model's positions (`rollout/vllm_rollout/vllm_async_server.py:1103`)."""
    sequence = _sequence(asked)
    window = asked.maybe(ROLLOUT + "max_model_len", least=1) or model.positions or sequence
    if model.positions is not None and window > model.positions:
        raise asked.refused(
            f"{ROLLOUT}max_model_len {window} is more than the {model.positions} positions of {model.name}",
            f"give {model.positions} or less",
        )
    if window < sequence:
        notes.append(
            f"the engine ends a sequence at {window} tokens, of {sequence} that prompt and response may have"
        )
    return window


def _sleep(asked: Settings, lora: Lora | None) -> Literal[0, 1, 2]:
    if not (asked.flag(ROLLOUT + "free_cache_engine") and asked.flag(ROLLOUT + "enable_sleep_mode")):
        return 0
    adapter = lora is not None and not asked.flag(MODEL + "lora.merge")
    drafts = asked.flag(MODEL + "mtp.enable") and asked.flag(MODEL + "mtp.enable_rollout")
    return 1 if adapter or drafts else 2
