"""What a GRPO step asks of a model: `refuse_model` before anything is sampled, `settled` around each step.

The step multiplies with the matrix of the model's head itself (`logprobs`), so a head must be nothing but
that product, and nothing may stand before or behind it. That is tried, with numbers of a sensible size in
place of the model's own: where a head is all zeros, a scale cannot be seen in its logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from steelyard.integrations.grpo_settings import refused

_LOGITS: Final = 100.0
"""Beyond where any model caps its own (15 to 50)."""


def ends_of(model: Any, tokenizer: Any) -> list[int]:  # noqa: ANN401 - no types are read of torch and transformers
    """Ids of the tokens that end a completion: the tokenizer's, and the model's own.

    Raises
    ------
    RefusedError
        If there are none, or the tokenizer has nothing to pad with.
    """
    own = getattr(model.generation_config, "eos_token_id", None)  # a number, several, or a tensor of them
    several = [] if own is None else torch.as_tensor(own).flatten().tolist()
    ends = {tokenizer.eos_token_id, *several} - {None}
    if tokenizer.pad_token_id is None or not ends:
        raise refused("tokenizer", "it has no padding token, or no end", "set pad_token and eos_token")
    return sorted(ends)


def refuse_untrainable(model: Any, optimizer: Any) -> None:  # noqa: ANN401
    """Refuse an optimizer that can never move this model."""
    trainable = {id(one) for one in model.parameters() if one.requires_grad}
    if not any(id(one) in trainable for group in optimizer.param_groups for one in group["params"]):
        raise refused(
            "optimizer",
            "none of its parameters is one of the model's that can be trained",
            "make it over those of this very model, and unfreeze what is to learn",
        )


def refuse_model(model: Any, where: str = "model") -> None:  # noqa: ANN401
    """Refuse a model whose logits are not its last hidden states times the matrix of its head.

    Raises
    ------
    RefusedError
        If its head is no plain `torch.nn.Linear` (an adapter around it would be passed by), or its logits are
        scaled or capped before or behind it.
    """
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        raise refused(
            where,
            f"its head is a {type(head).__name__}, of which the step would read the matrix alone",
            "take a model with a torch.nn.Linear; merge an adapter of the head, or leave the head out of it",
        )
    seen: dict[str, Tensor] = {}

    def decoded(_module: object, _given: object, found: Any) -> Any:  # noqa: ANN401
        seen["hidden"] = found.last_hidden_state = _spread(found.last_hidden_state, 1.0)
        return found

    def foretold(_module: object, given: tuple[Tensor], found: Tensor) -> Tensor:
        bare = torch.nn.functional.linear(given[0], head.weight, head.bias)
        seen.update(given=given[0], product=found, bare=bare, logits=_spread(found, _LOGITS))
        return seen["logits"]

    hooks = [decoder.register_forward_hook(decoded), head.register_forward_hook(foretold)]
    try:
        with settled(model), torch.no_grad():
            made = model(input_ids=torch.arange(2, device=model.device)[None], use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    if not (
        seen.keys() >= {"hidden", "given"}  # both were called
        and torch.equal(seen["given"], seen["hidden"])
        and torch.equal(seen["product"], seen["bare"])
        and torch.equal(made.double(), seen["logits"].double())
    ):
        raise refused(
            where,
            "its logits are not its head times its hidden states",
            "take a model that neither caps nor scales its logits",
        )


@contextmanager
def settled(*models: Any) -> Iterator[None]:  # noqa: ANN401
    """Put models into evaluation mode, and back as they were; what recomputes its layers still does.

    `transformers` checkpoints gradients in training mode only, where dropout is on, too. Here both are had:
    no dropout, and layers with `gradient_checkpointing` are recomputed by the backward.

    Raises
    ------
    RefusedError
        If a model wants gradient checkpointing in a way of its own.
    """
    modules = [module for model in models for module in model.modules()]
    modes = [module.training for module in modules]
    wished = [module for module in modules if getattr(module, "gradient_checkpointing", False)]
    layers = [module for module in wished if isinstance(module, GradientCheckpointingLayer)]
    if wished and not layers:
        raise refused(
            "model",
            "its gradient checkpointing is its own, and off while dropout is",
            "gradient_checkpointing_disable(), or a model of transformers",
        )
    patched = [(layer, layer.__dict__.get("forward")) for layer in layers]
    try:
        for model in models:
            model.eval()
        for layer in layers:
            layer.forward = partial(_recomputed, layer, layer.forward)
        yield
    finally:
        for layer, own in patched:
            layer.__dict__.pop("forward", None)
            if own is not None:
                layer.forward = own
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _recomputed(layer: Any, forward: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
    if not torch.is_grad_enabled():  # generation, with its cache
        return forward(*given, **named)
    return layer._gradient_checkpointing_func(partial(forward, **named), *given)  # noqa: SLF001


def _spread(like: Tensor, size: float) -> Tensor:
    """Numbers from `-size` to `size`, in the shape and type of others."""
    return torch.linspace(-size, size, like.numel(), device=like.device).view(like.shape).to(like.dtype)
