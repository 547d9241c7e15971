"""What TRL's GRPOTrainer makes of its settings: a `GRPOConfig`, with the fields of `ModelConfig` beside it.

Read in trl 1.16.0, transformers 5.24.0, accelerate 1.15.0 and peft 0.21.2; files and lines below are theirs.
What decides memory, and is easily taken for something else:

- A model given by name is loaded in **float32** (`trainer/utils.py:1328`), and `bf16` (true by default) only
  casts what is computed. So a plain run keeps 4 bytes of each weight, gradient and moment. FSDP trains in
  fp32 whatever was loaded (`accelerate/utils/fsdp_utils.py:815`); DeepSpeed keeps bf16 and an fp32 copy.
- Log-probabilities never make whole logits: `add_fused_lm_head` (`grpo_trainer.py:1068`) works in tiles of
  4,096 tokens x 32,768 entries of the vocabulary. There is no option to do otherwise.
- Nothing bounds a prompt any more: `max_prompt_length` is gone. A run's longest prompt is its dataset's.
- vLLM decodes all sequences of a generation at once (`max_num_seqs`, `grpo_trainer.py:1124`), sleeps at
  level 2 only (`generation/vllm_generation.py:797`), and has its weights loaded one tensor after another.
- A second model is loaded as reference if `beta` is not 0 and there is no LoRA (`grpo_trainer.py:982`).

`trl_launch` reads how processes share the model. Names of fields that cannot touch memory are in
`trl_fields`: those are passed over in silence; every other one that is not read gets a note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal

from steelyard.memory.plan import (
    AttentionKernel,
    Checkpointing,
    Engine,
    Lora,
    Optimizer,
    Plan,
    Precision,
    StepKernel,
)
from steelyard.memory.settings import Read, Settings, near, shown, spelled
from steelyard.memory.shapes import ModelShape
from steelyard.memory.states import NF4
from steelyard.memory.trl_fields import FORMER, NAMES, SCRIPTS, UNMODELLED
from steelyard.memory.trl_launch import Launch, launched

WHERE: Final = "TRL settings"

DEFAULTS: Final[Mapping[str, object]] = {
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": True,
    "optim": "adamw_torch_fused",  # with torch 2.8 and later (transformers/training_args.py:806)
    "fp16": False,
    "num_generations": 8,
    "max_completion_length": 512,
    "beta": 0.0,
    "eval_strategy": "no",
    "use_vllm": False,
    "vllm_mode": "colocate",
    "vllm_enable_sleep_mode": False,
    "vllm_gpu_memory_utilization": 0.3,
    "vllm_tensor_parallel_size": 1,
    "dtype": "float32",
    "use_peft": False,
    "lora_r": 16,
    "load_in_4bit": False,
    "load_in_8bit": False,
    "use_liger_kernel": False,
    "ds3_gather_for_generation": True,
}

TILE: Final = 4096
"""Tokens of one tile of the fused head (`trl/kernels/chunked_logprob.py:32`)."""

BATCHED_TOKENS: Final = 4096
"""vLLM's `max_num_batched_tokens`, which TRL sets itself (`generation/vllm_generation.py:322`)."""

PROMPT: Final = 512
"""Tokens that a prompt is taken to have where nothing says it: what TRL's `max_prompt_length` was by default
while it existed (`experimental/sdpo/sdpo_config.py:286` still has it)."""

_TOLD: Final = 8
"""Strange names that a refusal tells; a file of another kind has thousands."""

_OPTIMIZERS: Final[Mapping[str, tuple[Optimizer, StepKernel]]] = {
    "adamw_torch": ("adamw", "foreach"),  # torch.optim takes foreach on CUDA unless told
    "adamw_torch_fused": ("adamw", "fused"),
    "adamw_torch_8bit": ("adamw_8bit", "single"),  # torchao: one compiled update after the other
    "adamw_bnb_8bit": ("adamw_8bit", "fused"),  # bitsandbytes updates in place
    "adamw_8bit": ("adamw_8bit", "fused"),
    "paged_adamw_32bit": ("paged_adamw", "fused"),
    "paged_adamw": ("paged_adamw", "fused"),
    "paged_adamw_8bit": ("paged_adamw_8bit", "fused"),
    "adafactor": ("adafactor", "single"),
    "sgd": ("sgd", "foreach"),
}

_PEFT_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"),
        ("q_proj", "v_proj"),
    ),
}
"""What PEFT adapts where `lora_target_modules` is not set (`peft/utils/constants.py:67`)."""


def read(
    settings: Mapping[str, object],
    model: ModelShape,
    *,
    gpus: int | None = None,
    prompt: int | None = None,
) -> Read:
    """Read what a GRPO run of TRL keeps in memory.

    Parameters
    ----------
    settings
        What the file of `trl grpo --config` holds, or `GRPOConfig.to_dict()`. `deepspeed`, `fsdp_config` and
        `accelerate_config` may be the mappings that their files hold; nothing here opens a file.
    model
        Its shape.
    gpus
        Processes of the trainer; None: `num_processes` of the settings, else 1.
    prompt
        Tokens of the longest prompt; None: `vllm_max_model_length` less the completion, or 512, noted.

    Raises
    ------
    RefusedError
        A name that no field of TRL has, a value that TRL refuses, or a setting that cannot be reckoned with.

    Examples
    --------
    >>> from steelyard.memory.shapes import Attention, Layer, Linear, Mlp, ModelShape
    >>> heads = Attention(heads=2, kv_heads=1, head_dim=32, value_dim=32, cache_dim=64)
    >>> up = Linear(name="q_proj", inputs=64, outputs=64, reads="attention norm")
    >>> layer = Layer(count=2, attention=heads, mlp=Mlp(width=128), linears=(up,), vectors=128)
    >>> tiny = ModelShape(
    ...     name="tiny", family="qwen3", hidden=64, vocabulary=512, layers=(layer,), tied=True, vectors=64
    ... )
    >>> plan = read({"num_generations": 4, "dtype": "bfloat16", "use_vllm": True}, tiny, prompt=128).plan
    >>> plan.precision, plan.head, plan.prompts, plan.engine.sequences
    ('bf16', 'fused', 2, 8)
    """
    asked = Settings(settings, DEFAULTS, WHERE)
    notes = _unread(asked)
    launch = launched(asked, gpus, notes)
    return Read(_plan(asked, model, launch, prompt, notes), tuple(notes))


def _plan(asked: Settings, model: ModelShape, launch: Launch, prompt: int | None, notes: list[str]) -> Plan:
    lora = _lora(asked, model, notes)
    loaded = _loaded(asked, notes)
    micro, prompts, sequences = _batch(asked, launch.gpus, notes)
    longest, completion = _lengths(asked, prompt, notes)
    optimizer, kernel = _optimizer(asked)
    quantized = lora is not None and lora.quantized
    return Plan(
        model=model,
        prompt=longest,
        completion=completion,
        micro_batch=micro,
        generations=asked.whole("num_generations", least=2),
        prompts=prompts,
        precision=_precision(asked, launch, loaded, adapted=lora is not None),
        optimizer=optimizer,
        step_kernel=kernel,
        lora=lora,
        checkpointing=_checkpointing(asked, launch),
        attention=_attention(asked),
        fused_kernels=_kernels(asked),
        head="fused",
        chunk=TILE,
        head_tokens="completion",
        reference=asked.number("beta") != 0 and lora is None,
        gpus=launch.gpus,
        sharding=launch.sharding,
        offload_optimizer=launch.optimizer,
        offload_weights=launch.weights,
        offload_reference=launch.weights,
        expandable_segments=_expandable(asked),
        engine=_engine(asked, model, launch, notes, sequences=sequences, quantized=quantized),
    )


def _unread(asked: Settings) -> list[str]:
    """Refuse names that are no field; what is a field, touches memory and is not reckoned with, is noted."""
    strange = [name for name in asked.values if name not in NAMES | SCRIPTS and name not in FORMER]
    if strange:
        first = {spelled(name): near(name, NAMES) for name in strange[:_TOLD]}
        more = f", and {len(strange) - _TOLD} more" if len(strange) > _TOLD else ""
        raise asked.refused(
            f"no fields of TRL 1.16's GRPOConfig or ModelConfig: {', '.join(first)}{more}",
            "; ".join(f"{name}: {remedy}" for name, remedy in first.items()),
        )
    former = [name for name in asked.values if name in FORMER]
    notes = [f"{name}: {FORMER[name]}" for name in former if FORMER[name]]
    if former:
        notes.append(f"{', '.join(former)}: of an earlier TRL; the plan is what TRL 1.16 would do")
    for name, (default, why) in UNMODELLED.items():
        value = asked.values.get(name, default)
        if isinstance(value, Mapping):
            value = {key: one for key, one in value.items() if key != "use_reentrant"} or default
        if value != default:
            notes.append(f"{name} = {shown(value)} is not reckoned with: {why}")
    if asked.flag("auto_find_batch_size"):
        raise asked.refused(
            "auto_find_batch_size breaks prompt groups, and TRL refuses it", "set it to false"
        )
    liger = asked.table("liger_kernel_config")
    if asked.flag("use_liger_kernel") and liger.get("fused_linear_cross_entropy"):
        raise asked.refused(
            "liger_kernel_config.fused_linear_cross_entropy replaces the forward pass that TRL patches",
            "remove it: TRL 1.16's head is fused already",
        )
    parallel = asked.table("parallelism_config")
    for name in ("cp_size", "sp_size"):
        if parallel.get(name, 1) not in (1, None):
            raise asked.refused(
                f"parallelism_config.{name} is not supported by GRPOTrainer", f"set {name} to 1"
            )
    return notes


def _batch(asked: Settings, gpus: int, notes: list[str]) -> tuple[int, int, int]:
    """Completions of a micro-batch, prompts of a generation over all GPUs, and sequences of one GPU in it.

    As `GRPOConfig.__post_init__` (`grpo_config.py:1094-1140`).
    """
    micro = asked.whole("per_device_train_batch_size", least=1)
    steps = asked.maybe("steps_per_generation", least=1)
    batch = asked.maybe("generation_batch_size", least=1)
    world = micro * gpus
    accumulated = asked.whole("gradient_accumulation_steps", least=1)
    if batch is None:
        steps = steps or accumulated
        batch = world * steps
    elif batch % world:
        raise asked.refused(
            f"generation_batch_size {batch} is no multiple of {micro} completions x {gpus} GPUs",
            f"make it a multiple of {world}, or leave it out",
        )
    elif steps is not None and batch != world * steps:
        raise asked.refused(
            f"generation_batch_size {batch} is not {micro} x {gpus} GPUs x steps_per_generation {steps}",
            "give one of the two",
        )
    steps = batch // world
    generations = asked.whole("num_generations", least=2)
    if batch % generations:
        raise asked.refused(
            f"a generation of {batch} completions does not hold whole groups of {generations}",
            f"make per_device_train_batch_size x gpus x steps_per_generation a multiple of {generations}",
        )
    if asked.word("eval_strategy") != "no" and asked.get("do_eval") is not False:
        evaluated = asked.whole("per_device_eval_batch_size", least=1) * gpus
        group = asked.maybe("num_generations_eval", least=1) or generations
        if evaluated % group:
            raise asked.refused(
                f"an evaluation batch of {evaluated} completions does not hold whole groups of {group}",
                "change per_device_eval_batch_size or num_generations_eval",
            )
    if steps != accumulated:
        notes.append(f"one generation of {batch} completions serves {steps} micro-batches of each GPU")
    return micro, batch // generations, micro * steps


def _lengths(asked: Settings, prompt: int | None, notes: list[str]) -> tuple[int, int]:
    """Tokens of the longest prompt, and of a completion."""
    if asked.get("max_completion_length") is None:
        raise asked.refused("max_completion_length is None, so nothing bounds a completion", "give tokens")
    completion = asked.whole("max_completion_length", least=1)
    window = asked.maybe("vllm_max_model_length", least=1) if asked.flag("use_vllm") else None
    if window is not None and window <= completion:
        raise asked.refused(
            f"vllm_max_model_length {window} leaves no room for a prompt beside {completion} new tokens",
            "raise it to the longest prompt plus max_completion_length",
        )
    given = prompt if prompt is not None else asked.maybe("max_prompt_length", least=1)
    if given is not None:
        if window is not None and given + completion > window:
            notes.append(
                f"a prompt of {given} and {completion} new tokens exceed vllm_max_model_length {window}: "
                "vLLM ends such completions early and refuses longer prompts"
            )
        return given, completion
    if window is not None:
        notes.append(
            f"a prompt is taken for {window - completion} tokens: vllm_max_model_length less the completion"
        )
        return window - completion, completion
    notes.append(
        f"nothing bounds a prompt in TRL 1.16; taken for {PROMPT} tokens: give the dataset's longest"
    )
    return PROMPT, completion


def _kwargs(asked: Settings) -> Mapping[str, object]:
    """`model_init_kwargs`, which a command line gives as JSON."""
    value = asked.get("model_init_kwargs")
    if not isinstance(value, str):
        return asked.table("model_init_kwargs")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise asked.refused(f"model_init_kwargs is {shown(value)}", "give a mapping, or JSON of one")
    return parsed


def _loaded(asked: Settings, notes: list[str]) -> Literal["fp32", "half"]:
    """Precision in which weights are loaded (`scripts/grpo.py:102-109`, `trainer/utils.py:1328`)."""
    kwargs = _kwargs(asked)
    stated = [
        table[name] for table in (kwargs, asked.values) for name in ("dtype", "torch_dtype") if name in table
    ]
    dtype = str(stated[0]).removeprefix("torch.") if stated else "float32"
    if not stated:
        notes.append(
            "dtype is not set: TRL loads a model by name in float32; `dtype: bfloat16` halves its bytes"
        )
    if dtype in ("auto", "None"):
        notes.append(f"dtype is {dtype}, the checkpoint's own: taken for bfloat16")
        return "half"
    if dtype not in ("float32", "bfloat16", "float16"):
        raise asked.refused(f"dtype is {dtype!r}", "give auto, bfloat16, float16 or float32")
    return "fp32" if dtype == "float32" else "half"


def _precision(
    asked: Settings, launch: Launch, loaded: Literal["fp32", "half"], *, adapted: bool
) -> Precision:
    """What is kept of each weight, by how it was loaded, cast and shared."""
    bf16 = asked.flag("bf16") if asked.get("bf16") is not None else not asked.flag("fp16")
    mixed = bf16 or asked.flag("fp16")
    if launch.by == "deepspeed" and mixed:
        return "master"
    if launch.by == "fsdp" and mixed and not (adapted and loaded == "half"):
        return "sharded"  # only what is trained is cast up: a frozen base stays as it was loaded
    if loaded == "half":
        return "bf16"
    if not mixed:
        raise asked.refused(
            "float32 without mixed precision is not reckoned with", "set bf16: true, or dtype: bfloat16"
        )
    return "autocast"


def _optimizer(asked: Settings) -> tuple[Optimizer, StepKernel]:
    name = asked.word("optim")
    name = "" if name is None else name.rsplit(".", 1)[-1].lower()
    if name not in _OPTIMIZERS:
        raise asked.refused(f"optim {name!r} is not reckoned with", f"choose of {', '.join(_OPTIMIZERS)}")
    return _OPTIMIZERS[name]


def _checkpointing(asked: Settings, launch: Launch) -> Checkpointing:
    """`activation_checkpointing` is the new name, and wins (`transformers/training_args.py:1533`)."""
    named = asked.get("activation_checkpointing")
    on = asked.flag("gradient_checkpointing") if named is None else asked.flag("activation_checkpointing")
    return "recompute" if on or launch.recompute else "none"


def _attention(asked: Settings) -> AttentionKernel:
    """Of `attn_implementation`: transformers takes SDPA unless told."""
    value = _kwargs(asked).get("attn_implementation", asked.get("attn_implementation"))
    name = "sdpa" if value is None else str(value).removeprefix("paged|")
    if name in ("sdpa", "eager"):
        return "sdpa" if name == "sdpa" else "eager"
    if "flash" in name or "flex" in name:
        return "flash"
    raise asked.refused(
        f"attn_implementation {name!r} is not reckoned with", "give sdpa, eager or flash_attention_2"
    )


def _kernels(asked: Settings) -> bool:
    return asked.flag("use_liger_kernel") or bool(_kwargs(asked).get("use_kernels"))


def _expandable(asked: Settings) -> bool:
    """`env` of a TRL file is the environment of the run."""
    env = asked.table("env")
    words = (str(env.get(name, "")) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    return any("expandable_segments:true" in word.lower().replace(" ", "") for word in words)


def _lora(asked: Settings, model: ModelShape, notes: list[str]) -> Lora | None:
    if asked.flag("load_in_8bit") and asked.flag("load_in_4bit"):
        raise asked.refused("load_in_8bit and load_in_4bit are both set", "choose one")
    if not asked.flag("use_peft"):
        if asked.flag("load_in_4bit") or asked.flag("load_in_8bit"):
            raise asked.refused("a quantized model cannot be trained without LoRA", "set use_peft: true")
        return None
    if asked.flag("load_in_8bit"):
        if asked.flag("use_vllm") and asked.word("vllm_mode") == "colocate":
            raise asked.refused("vLLM quantizes no weights to 8 bits as it loads them", "use load_in_4bit")
        notes.append("load_in_8bit is not reckoned with: the base is counted in full")
    return Lora(
        rank=asked.whole("lora_r", least=1),
        targets=_targets(asked, model),
        quantized=asked.flag("load_in_4bit"),
        nested=asked.flag("use_bnb_nested_quant"),
    )


def _targets(asked: Settings, model: ModelShape) -> tuple[str, ...] | None:
    """Matrices that get adapters; None is every linear layer but the head, which PEFT calls `all-linear`."""
    value = asked.get("lora_target_modules")
    value = [value] if isinstance(value, str) else value
    linears = {linear.name for layer in model.layers for linear in layer.linears}
    if value is None:
        if model.family not in _PEFT_TARGETS:
            raise asked.refused(
                f"PEFT knows no lora_target_modules of {model.family!r}", "set them, or `all-linear`"
            )
        value = [name for name in _PEFT_TARGETS[model.family] if name in linears]
    if not value or not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise asked.refused(f"lora_target_modules is {shown(value)}", "give a list of names, or `all-linear`")
    names = tuple(str(name) for name in value)
    if names == ("all-linear",):
        return None
    for name in names:
        if name not in linears:
            raise asked.refused(
                f"lora_target_modules has {name!r}, and {model.name} has not", near(name, linears)
            )
    return names


def _engine(
    asked: Settings, model: ModelShape, launch: Launch, notes: list[str], *, sequences: int, quantized: bool
) -> Engine:
    """What generates (`trainer/grpo_trainer.py:1107-1139`, `generation/vllm_generation.py:309-333`)."""
    if not asked.flag("use_vllm"):
        if launch.sharding == "zero3" and asked.flag("ds3_gather_for_generation"):
            notes.append(
                "without vLLM every GPU gathers the whole model to generate (ds3_gather_for_generation)"
            )
        return Engine(mode="none", sequences=sequences, graphs=False)
    mode = asked.word("vllm_mode")
    if mode == "server":
        return Engine(mode="server", context=asked.maybe("vllm_max_model_length", least=1), own_process=True)
    if mode != "colocate":
        raise asked.refused(f"vllm_mode is {mode!r}", "give colocate or server")
    parallel = asked.whole("vllm_tensor_parallel_size", least=1)
    if launch.gpus % parallel:
        raise asked.refused(
            f"vllm_tensor_parallel_size {parallel} does not divide the {launch.gpus} of the trainer's GPUs",
            f"say how many GPUs the trainer has: --gpus {parallel} or a multiple (num_processes in the file)",
        )
    context = asked.maybe("vllm_max_model_length", least=1)
    if context is None and model.positions is not None:
        context = model.positions
        notes.append(f"vllm_max_model_length is not set: vLLM needs room for {context} tokens to start")
    return Engine(
        mode="colocate",
        utilization=asked.share("vllm_gpu_memory_utilization"),
        sleep=2 if asked.flag("vllm_enable_sleep_mode") else 0,
        tensor_parallel=parallel,
        sequences=sequences * parallel,
        weight_bytes=_quantized(model) if quantized else 2.0,
        context=context,
        batched_tokens=BATCHED_TOKENS,
    )


def _quantized(model: ModelShape) -> float:
    """Bytes of a weight, on average: vLLM quantizes linear layers as it loads them (`:302-311`)."""
    linears = sum(layer.count * linear.parameters for layer in model.layers for linear in layer.linears)
    return (NF4 * linears + 2.0 * (model.parameters - linears)) / model.parameters
