"""What is to run: a model, a batch, a trainer and an engine, on so many GPUs.

The words are those of the trainers; `trl_settings` and `verl_settings` read theirs.
Where nothing is said, the trainer is TRL 1.16's GRPOTrainer, with lengths and numbers that are ours, and
vLLM has 30 % of its cards.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Literal, get_args

from steelyard.errors import RefusedError
from steelyard.memory.shapes import ModelShape

Precision = Literal["bf16", "autocast", "sharded", "master", "fp32"]
"""How the trainer keeps what it trains.

`bf16`: weights, gradients and optimizer all in bf16. `autocast`: all in fp32, and matrices are cast as
they are used (`torch.autocast`). `sharded`: all in fp32, and a layer's bf16 copy is gathered while it is
used (FSDP's mixed precision). `master`: bf16 weights to compute with, and an fp32 copy beside them
(DeepSpeed, Megatron). `fp32`: all in fp32, and computed in it.
"""
Optimizer = Literal[
    "adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "adafactor", "muon", "sgd", "sgd_momentum"
]
StepKernel = Literal["fused", "foreach", "single"]
Checkpointing = Literal["none", "recompute", "offload"]
AttentionKernel = Literal["flash", "sdpa", "eager"]
Head = Literal["naive", "selective", "chunked", "fused"]
HeadTokens = Literal["completion", "all"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
Offload = Literal["none", "idle", "host"]
"""Where something lies that is not in use: `none`: on the GPU; `idle`: on the host while the engine
generates, and on the GPU while the trainer works (verl); `host`: always on the host, and a layer at a time
on the GPU (FSDP's CPUOffload, DeepSpeed's offload)."""
OptimizerOffload = Literal["none", "idle", "step", "host"]
"""The same of the optimizer's states, and `step`: on the GPU for the optimizer's step alone, as where a
wrapper fetches all of them before it and sends them back after it (prime-rl's `optim_cpu_offload`)."""
EngineMode = Literal["colocate", "server", "none"]
Sleep = Literal[0, 1, 2]
Task = Literal["grpo", "sft", "inference"]


_LEAST = {
    "prompt": 0,
    "completion": 0,
    "micro_batch": 1,
    "micro_tokens": 1,
    "generations": 1,
    "prompts": 1,
    "chunk": 1,
    "chunk_vocabulary": 1,
    "gradient_bytes": 1,
    "gpus": 1,
    "tensor_parallel": 1,
    "sequence_parallel": 1,
    "rank": 1,
    "sets": 1,
    "utilization": 0,
    "sequences": 1,
    "weight_bytes": 0,
    "cache_bytes": 0,
    "bucket_bytes": 0,
    "context": 1,
    "batched_tokens": 1,
}
_MOST = {"utilization": 1}
_CHOICES = {
    "task": Task,
    "precision": Precision,
    "optimizer": Optimizer,
    "step_kernel": StepKernel,
    "checkpointing": Checkpointing,
    "attention": AttentionKernel,
    "head": Head,
    "head_tokens": HeadTokens,
    "sharding": Sharding,
    "offload_optimizer": OptimizerOffload,
    "offload_weights": Offload,
    "offload_reference": Offload,
    "mode": EngineMode,
    "sleep": Sleep,
}


def _check(one: Plan | Engine | Lora, where: str) -> None:
    """Refuse numbers out of range, and words that are none of a field's."""
    for field in fields(one):
        name, value = field.name, getattr(one, field.name)
        if name in _CHOICES and value not in get_args(_CHOICES[name]):
            words = ", ".join(str(word) for word in get_args(_CHOICES[name]))
            raise RefusedError(
                f"{name} = {value!r} is none of {words}", where=where, remedy="choose one of them"
            )
        if name not in _LEAST or value is None:
            continue
        least, most = _LEAST[name], _MOST.get(name, inf)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            between = f"{least} or more" if most == inf else f"{least} to {most}"
            raise RefusedError(f"{name} = {value!r} is not {between}", where=where, remedy=f"give {between}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Adapters.

    Attributes
    ----------
    rank
        Of each pair of matrices.
    targets
        Names of the matrices that get a pair; None: every linear layer but the head.
    sets
        Adapters kept in memory at once.
    quantized
        The base lies in 4 bits (QLoRA).
    nested
        The scales of its blocks are quantized, too (bitsandbytes' double quantization).
    """

    rank: int = 16
    targets: tuple[str, ...] | None = None
    sets: int = 1
    quantized: bool = False
    nested: bool = False

    def __post_init__(self) -> None:
        _check(self, "LoRA")
        if self.targets is not None and not self.targets:
            raise RefusedError(
                "targets = () names no matrix", where="LoRA", remedy="name some, or none at all for every one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What generates: vLLM, or nothing beside the trainer's own model.

    Attributes
    ----------
    mode
        `colocate`: on the trainer's GPUs; `server`: on others; `none`: the trainer's model generates.
    utilization
        Share of a card that vLLM may take (`gpu_memory_utilization`). None: `trl vllm-serve`'s 0.9 of a
        server's cards, TRL's 0.3 where the trainer is, too.
    sleep
        0: stays awake while the trainer works; 1: weights go to the host, the cache goes; 2: both go.
    tensor_parallel
        GPUs that share one copy of the engine's weights.
    sequences
        Most sequences that it decodes at once (`max_num_seqs`).
    graphs
        CUDA graphs are recorded (not `enforce_eager`).
    weight_bytes, cache_bytes
        Bytes of one weight and of one cached value: 2 for bf16, 1 for fp8.
    bucket_bytes
        What weights are pushed through: the most bytes on their way at once. None: one tensor after
        another, so that the largest counts.
    """

    mode: EngineMode = "colocate"
    utilization: float | None = None
    sleep: Sleep = 0
    tensor_parallel: int = 1
    sequences: int = 256
    graphs: bool = True
    weight_bytes: float = 2.0
    cache_bytes: float = 2.0
    bucket_bytes: float | None = None
    context: int | None = None
    batched_tokens: int = 8192
    own_process: bool = False

    def __post_init__(self) -> None:
        _check(self, "engine")

    @property
    def share(self) -> float:
        """Of a card, that it may take."""
        if self.utilization is not None:
            return self.utilization
        return 0.9 if self.mode == "server" else 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that is to fit.

    Attributes
    ----------
    model
        Its shape.
    task
        `grpo`; `sft` has no engine and trains on whole sequences; `inference` is a forward pass.
    prompt, completion
        Tokens, at most.
    micro_batch
        Completions in one forward and backward pass of one GPU.
    micro_tokens
        Tokens in one such pass where sequences are packed (verl's `ppo_max_token_len_per_gpu`): at most so
        many, whatever `micro_batch` says. None: `micro_batch` sequences of full length.
    generations
        Completions of one prompt.
    prompts
        Prompts of one step, over all GPUs.
    precision, optimizer, lora, checkpointing, attention
        As their types say.
    offload_optimizer, offload_weights, offload_reference
        Where the optimizer's states, the weights and gradients, and the reference model lie.
    gradient_bytes
        Of one trained weight; None: as wide as the weight. Megatron keeps 4 beside weights in bf16.
    step_kernel
        How the optimizer goes over its tensors: `fused` makes no temporaries; `foreach` a copy of all;
        `single`, one after the other, two of the largest.
    fused_kernels
        Norms and the gated activation keep what they are given, and no copies (Liger).
    head
        How log-probabilities are made of hidden states: `naive` keeps whole logits in fp32; `selective`
        gathers before it casts; `chunked` and `fused` never hold all.
    chunk, chunk_vocabulary
        Tokens of one chunk of a chunked head, and how many entries of the vocabulary it takes; None: all.
    head_tokens
        Which tokens get logits: those of the completion, or all.
    rescored
        A forward pass of its own makes the old log-probabilities. None: where vLLM generates, as verl
        always does and TRL to correct for vLLM's rounding.
    reference
        A second model is resident (beta above 0, no LoRA).
    gpus
        Trainer's GPUs.
    sharding
        What they share: `none` is DDP; `zero1` optimizer states, `zero2` gradients too, `zero3` weights
        too (FSDP).
    tensor_parallel, sequence_parallel
        Trainer's GPUs that share one copy of each matrix, or one sequence (Ulysses, context parallel).
    engine
        What generates.
    expandable_segments
        PYTORCH_CUDA_ALLOC_CONF has it.
    """

    model: ModelShape
    task: Task = "grpo"
    prompt: int = 512
    completion: int = 1024
    micro_batch: int = 8
    micro_tokens: int | None = None
    generations: int = 8
    prompts: int = 8
    precision: Precision = "autocast"
    optimizer: Optimizer = "adamw"
    gradient_bytes: int | None = None
    step_kernel: StepKernel = "fused"
    lora: Lora | None = None
    checkpointing: Checkpointing = "recompute"
    attention: AttentionKernel = "sdpa"
    fused_kernels: bool = False
    head: Head = "fused"
    chunk: int = 256
    chunk_vocabulary: int | None = None
    head_tokens: HeadTokens = "completion"
    rescored: bool | None = None
    reference: bool = False
    gpus: int = 1
    sharding: Sharding = "none"
    tensor_parallel: int = 1
    sequence_parallel: int = 1
    offload_optimizer: OptimizerOffload = "none"
    offload_weights: Offload = "none"
    offload_reference: Offload = "none"
    expandable_segments: bool = False
    engine: Engine | None = Engine()

    def __post_init__(self) -> None:
        _check(self, "plan")
        if self.gpus % (self.tensor_parallel * self.sequence_parallel):
            raise RefusedError(
                f"{self.gpus} GPUs cannot be shared out by {self.tensor_parallel} x {self.sequence_parallel}",
                where="plan",
                remedy="make gpus a multiple of tensor_parallel x sequence_parallel",
            )

    @property
    def rescores(self) -> bool:
        """A step has a forward pass for the old log-probabilities."""
        if self.rescored is not None:
            return self.rescored
        return self.task == "grpo" and self.engine is not None and self.engine.mode != "none"

    @property
    def tokens(self) -> int:
        """Of one sequence, at most."""
        return self.prompt + self.completion

    @property
    def completions(self) -> int:
        """Of one step, over all GPUs."""
        return self.prompts * self.generations

    @property
    def step_tokens(self) -> int:
        """Tokens that one GPU has in one forward and backward pass."""
        packed = self.micro_batch * self.tokens
        if self.micro_tokens is not None:
            packed = min(packed, self.micro_tokens)
        return -(-packed // self.sequence_parallel)

    @property
    def logit_tokens(self) -> int:
        """Of those, the ones that get logits, at most."""
        if self.head_tokens == "all":
            return self.step_tokens
        return min(self.step_tokens, -(-self.micro_batch * self.completion // self.sequence_parallel))

    @property
    def shards(self) -> int:
        """GPUs that hold the same part of each matrix, and may share states."""
        return self.gpus // self.tensor_parallel
