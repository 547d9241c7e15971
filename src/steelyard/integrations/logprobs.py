"""Log-probabilities of the tokens that were sampled, without the logits of all of them.

A policy gradient needs one number per token. The way there leads through logits: with 151,936 words in the
vocabulary and 32,768 tokens they are 20 GB in fp32, and as much again for their gradient. Here the head of
the model (a matrix product) is part of the function: a chunk of tokens at a time is taken through product,
logsumexp and choice, and forgotten. The backward computes each chunk again, from the hidden states and the
logsumexp that was kept, and adds up the gradients of hidden states, weight and bias.

So memory is one chunk, time is one product more. The product runs in the dtype of the model's own head: that
of `torch.autocast` where it is on, else the wider one of hidden states and weight. So does the backward's,
wherever it is called. What follows is fp32 (fp64 for fp64).

The gradient with respect to the logits `z` of one token is `(onehot(target) - softmax(z / T)) / T`.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK: Final = 1 << 26
"""Logits at once: 256 MB in fp32, about three times that at the peak."""


def selective_log_softmax(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`log_softmax((hidden @ weight.T + bias) / temperature)[targets]`, a chunk of tokens at a time.

    Parameters
    ----------
    hidden
        What the model hands its head, shape `(..., H)`.
    weight, bias
        The head's, shapes `(V, H)` and `(V,)`; dtypes may differ from that of `hidden`.
    targets
        Token ids, shape `(...)`.
    temperature
        What the logits are divided by: the one that was sampled with.
    chunk
        Tokens at once; as many as make `CHUNK` logits if not told.
    entropy
        Whether the entropies are wanted too, in nats; for reports, without a gradient.

    Returns
    -------
    tuple of Tensor
        Log-probabilities, shape `(...)`, fp32 (fp64 for fp64), and entropies of the same shape or `None`.

    Raises
    ------
    ValueError
        If shapes do not fit, or temperature or chunk is not positive and finite.

    Examples
    --------
    >>> hidden, weight = torch.ones(2, 3), torch.zeros(4, 3)
    >>> logps, entropies = selective_log_softmax(hidden, weight, torch.tensor([0, 3]), entropy=True)
    >>> [round(value, 4) for value in [*logps.tolist(), *entropies.tolist()]]  # ln 4
    [-1.3863, -1.3863, 1.3863, 1.3863]
    """
    if hidden.shape[:-1] != targets.shape or hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and targets {tuple(targets.shape)} "
            "do not fit; next: hand in (..., H), (V, H) and (...)"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias {tuple(bias.shape)} does not fit {len(weight)} words; next: hand in (V,)")
    size = max(1, CHUNK // weight.shape[0]) if chunk is None else chunk
    if not 0 < temperature < inf or size < 1:
        raise ValueError(f"temperature={temperature} and chunk={chunk} must be positive; next: change them")
    flat = hidden.reshape(-1, hidden.shape[-1])
    dtype = _product_dtype(hidden, weight)
    logps, entropies = _Selective.apply(
        flat, weight, bias, targets.reshape(-1), temperature, size, dtype, entropy
    )
    return logps.view(targets.shape), entropies.view(targets.shape) if entropy else None


def _product_dtype(hidden: Tensor, weight: Tensor) -> Any:  # noqa: ANN401 - torch's types are not read
    wider = torch.promote_types(hidden.dtype, weight.dtype)
    kind = hidden.device.type
    if wider == torch.float64 or not torch.is_autocast_enabled(kind):  # autocast leaves fp64 alone
        return wider
    return torch.get_autocast_dtype(kind)


def _scaled_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """In the dtype of `weight`, to which the others are brought."""
    logits = hidden.to(weight.dtype) @ weight.T
    if bias is not None:
        logits = logits + bias.to(weight.dtype)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide if temperature == 1.0 else wide / temperature


class _Selective(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not read
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd hands them on by place
        ctx: Any,  # noqa: ANN401 - torch gives it no type of use
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk: int,
        dtype: Any,  # noqa: ANN401
        entropy: bool,  # noqa: FBT001
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(dtype, torch.float32)
        tokens = len(targets)
        logps = torch.empty(tokens, dtype=wide, device=hidden.device)
        norms = torch.empty_like(logps)
        entropies = torch.empty_like(logps) if entropy else logps.new_empty(0)
        cast = weight.to(dtype)
        with torch.autocast(hidden.device.type, enabled=False):  # it would choose again
            for start in range(0, tokens, chunk):
                part = slice(start, start + chunk)
                logits = _scaled_logits(hidden[part], cast, bias, temperature)
                norm = torch.logsumexp(logits, dim=-1)
                norms[part] = norm
                logps[part] = logits.gather(-1, targets[part, None]).squeeze(-1) - norm
                if entropy:
                    logits.sub_(norm[:, None])  # norm - sum(p x logit) would lose digits
                    entropies[part] = -(torch.exp(logits) * logits).sum(-1)
        ctx.save_for_backward(hidden, weight, bias, targets, norms)
        ctx.temperature, ctx.chunk, ctx.dtype = temperature, chunk, dtype
        ctx.mark_non_differentiable(entropies)
        return logps, entropies

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, of_logps: Tensor, _of_entropies: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hidden, weight, bias, targets, norms = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        of_hidden = torch.empty_like(hidden) if wants_hidden else None
        of_weight = (
            torch.zeros(weight.shape, dtype=norms.dtype, device=weight.device) if wants_weight else None
        )
        of_bias = torch.zeros(len(weight), dtype=norms.dtype, device=weight.device) if wants_bias else None
        cast = weight.to(ctx.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, len(targets), ctx.chunk):
                part = slice(start, start + ctx.chunk)
                of_part = hidden[part].to(ctx.dtype)
                logits = _scaled_logits(of_part, cast, bias, ctx.temperature)
                of_logits = torch.exp_(logits.sub_(norms[part, None])).neg_()
                of_logits.scatter_add_(-1, targets[part, None], torch.ones_like(norms[part, None]))
                of_logits.mul_((of_logps[part] / ctx.temperature)[:, None])
                if of_bias is not None:
                    of_bias += of_logits.sum(0)
                narrow = of_logits.to(ctx.dtype)
                if of_hidden is not None:
                    of_hidden[part] = narrow @ cast
                if of_weight is not None:
                    of_weight += narrow.T @ of_part
        return (
            of_hidden,
            None if of_weight is None else of_weight.to(weight.dtype),
            None if of_bias is None else of_bias.to(bias.dtype),
            *[None] * 5,
        )
