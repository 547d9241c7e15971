"""The step that is measured: a model with random weights, a batch, forward, loss, backward, optimizer.

One optimizer step, then two micro-batches and another step: the second micro-batch finds the optimizer's
states and kept gradients, which is the worst that accumulation does. The logits of a naive head stay alive
during the backward, as in any loop that keeps its `outputs`.

Adapters are PEFT's: the base is frozen, what an adapter is given is cast to its fp32, and what it says
is cast back (`peft.tuners.lora.layer.Linear.forward`; `autocast_adapter_dtype`). PEFT itself is no
dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from steelyard.integrations.allocation.selective import gathered
from steelyard.integrations.logprobs import selective_log_softmax
from steelyard.memory.plan import Lora, Plan

Phase = Callable[[str], None]
"""Told when a phase begins: `build`, `forward`, `loss`, `backward`, `step`."""

_MODEL_KEYS: Final = ("torch_dtype", "dtype", "quantization_config")
"""Keys of a `config.json` that say how the checkpoint is stored, which is the plan's to say here."""


class Adapted(nn.Module):  # type: ignore[misc]  # torch's types are not read
    """A frozen linear layer with a pair of adapters beside it."""

    def __init__(self, base: Any, rank: int) -> None:  # noqa: ANN401 - no types are read of torch
        super().__init__()
        self.base = base
        where = {"dtype": torch.float32, "device": base.weight.device}
        self.lora_A = nn.Linear(base.in_features, rank, bias=False, **where)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False, **where)

    def forward(self, x: Tensor) -> Tensor:
        """The base's answer and the adapters', in the dtype of the former."""
        said = self.base(x)
        narrow = x if torch.is_autocast_enabled(x.device.type) else x.to(self.lora_A.weight.dtype)
        return (said + self.lora_B(self.lora_A(narrow)) * 2.0).to(said.dtype)


@dataclass(frozen=True, slots=True)
class Trainee:
    """A model, its optimizer (None where nothing is trained) and a batch of token ids."""

    model: Any
    optimizer: Any
    ids: Any
    parameters: tuple[Any, ...]


def built(config: Mapping[str, Any], plan: Plan, *, dtype: Any, attention: str) -> Any:  # noqa: ANN401
    """The model of a `config.json`, with its adapters, on the device that is current."""
    kept = {key: value for key, value in config.items() if key not in _MODEL_KEYS}
    settings = AutoConfig.for_model(**kept)
    text = settings.get_text_config()  # of a multimodal model, what writes
    model = AutoModelForCausalLM.from_config(text, dtype=dtype, attn_implementation=attention)
    if plan.lora is not None and plan.task != "inference":
        _adapt(model, plan.lora)
    return model


def prepared(config: Mapping[str, Any], plan: Plan, *, device: Any, attention: str) -> Trainee:  # noqa: ANN401
    """Build what a step needs, on `device`."""
    with torch.device(device):
        dtype = torch.float32 if plan.precision in ("autocast", "fp32") else torch.bfloat16
        model = built(config, plan, dtype=dtype, attention=attention)
        rows, length = batch_of(plan)
        ids = torch.zeros(rows, length, dtype=torch.long)
    model.train(plan.task != "inference")
    if plan.checkpointing == "recompute" and plan.task != "inference":
        # nothing random is in a step here, and the state of a generator cannot be fake
        how = {"use_reentrant": False, "preserve_rng_state": False}
        if hasattr(model, "activation_checkpointing_enable"):  # transformers 5.2 knows the older name
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=how)
        else:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    trained = tuple(p for p in model.parameters() if p.requires_grad)
    optimizer = None if plan.task == "inference" else _optimizer(plan, trained)
    return Trainee(model, optimizer, ids, trained)


def batch_of(plan: Plan) -> tuple[int, int]:
    """Sequences of a micro-batch and their length; packed ones are one long one."""
    if plan.micro_tokens is not None:
        return 1, plan.step_tokens
    return plan.micro_batch, plan.tokens


def run(trainee: Trainee, plan: Plan, phase: Phase) -> None:
    """Do what the module says, telling `phase` where it is."""
    if plan.task == "inference":
        phase("forward")
        with torch.no_grad(), _cast(plan, trainee):
            trainee.model(input_ids=trainee.ids, use_cache=True)
        return
    for micro_batches in (1, 2):
        for _ in range(micro_batches):
            _micro_batch(trainee, plan, phase)
        phase("step")
        trainee.optimizer.step()
        trainee.optimizer.zero_grad(set_to_none=True)


def _micro_batch(trainee: Trainee, plan: Plan, phase: Phase) -> None:
    phase("forward")
    ids = trainee.ids
    length = ids.shape[1]
    keep = max(1, length * plan.logit_tokens // max(1, plan.step_tokens))
    targets = ids[:, -keep:]
    with _cast(plan, trainee):
        if plan.head in ("chunked", "fused"):
            body = trainee.model.get_decoder()
            hidden = body(input_ids=ids, use_cache=False).last_hidden_state[:, -keep:]
            phase("loss")
            head = trainee.model.get_output_embeddings()
            chunk = plan.chunk if plan.head == "chunked" else None
            said, _ = selective_log_softmax(hidden, head.weight, targets, bias=head.bias, chunk=chunk)
            loss = -said.mean()
        else:
            outputs = trainee.model(input_ids=ids, use_cache=False, logits_to_keep=keep)
            phase("loss")
            loss = (_naive if plan.head == "naive" else _selective)(outputs.logits, targets)
            if plan.head == "selective":  # TRL's loop keeps log-probabilities, and no logits
                del outputs
    phase("backward")
    loss.backward()


def _naive(logits: Tensor, targets: Tensor) -> Tensor:
    """As transformers' `ForCausalLMLoss`."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def _selective(logits: Tensor, targets: Tensor) -> Tensor:
    """As TRL's kernel."""
    return -gathered(logits, targets).mean()


def _cast(plan: Plan, trainee: Trainee) -> Any:  # noqa: ANN401
    if plan.precision != "autocast":
        return nullcontext()
    return torch.autocast(trainee.ids.device.type, dtype=torch.bfloat16)


def _adapt(model: Any, lora: Lora) -> None:  # noqa: ANN401
    """Freeze a model, and give the linear layers that are meant their adapters."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            wanted = lora.targets is None or name in lora.targets
            if isinstance(layer, nn.Linear) and layer is not head and wanted:
                setattr(parent, name, Adapted(layer, lora.rank))


def _optimizer(plan: Plan, trained: tuple[Any, ...]) -> Any:  # noqa: ANN401
    if plan.optimizer in ("sgd", "sgd_momentum"):
        return torch.optim.SGD(trained, lr=1e-6, momentum=0.9 if plan.optimizer == "sgd_momentum" else 0.0)
    if plan.optimizer == "adamw":
        kernels = {"fused": plan.step_kernel == "fused", "foreach": plan.step_kernel == "foreach"}
        return torch.optim.AdamW(trained, lr=1e-6, **kernels)
    import bitsandbytes  # type: ignore[import-not-found]  # noqa: PLC0415 - `asked.not_run` has looked

    kind = {
        "adamw_8bit": bitsandbytes.optim.AdamW8bit,
        "paged_adamw": bitsandbytes.optim.PagedAdamW,
        "paged_adamw_8bit": bitsandbytes.optim.PagedAdamW8bit,
    }[plan.optimizer]
    return kind(trained, lr=1e-6)
