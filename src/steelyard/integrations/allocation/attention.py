"""What attention a GPU would run, on fake tensors of a CPU.

`scaled_dot_product_attention` chooses its kernel by device, and a fake tensor of CUDA cannot be
differentiated where torch is built without it. So the choice is made here, as torch makes it for CUDA
(`aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`): 16 bits, no mask, and heads of up to 256 go to flash
attention; the rest to the memory-efficient kernel. Both are real operators, whose derivatives keep what they
keep on a GPU: queries, keys, values, output and the fp32 log-sum-exp of each row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

ATEN: Final = torch.ops.aten
_WIDEST: Final = 256
"""Head that flash attention takes (`check_head_dim_size_flash`)."""


@contextmanager
def attention_of_cuda() -> Iterator[None]:
    """Make `scaled_dot_product_attention` choose as on a GPU, while this lasts."""
    usual = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _chosen
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = usual


def flash_workspace(query: Tensor, key: Tensor) -> int:
    """Bytes that the backward of flash attention allocates and returns nothing of.

    The fp32 sum of the queries' gradient and the rows' fp32 sums, tokens rounded up to 128 and heads to 32;
    with fewer heads of keys than of queries also their expanded gradients
    (`aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp`, `mha_bwd`).

    Examples
    --------
    >>> flash_workspace(torch.empty(1, 4, 100, 64), torch.empty(1, 4, 100, 64))
    133120
    """
    batch, heads, tokens, width = query.shape
    rows = batch * heads * _up(tokens, 128)
    fp32 = 4 * rows * (_up(width, 32) + 1)
    expanded = 2 * batch * key.shape[2] * heads * width * query.element_size()
    return int(fp32 + (expanded if key.shape[1] != heads else 0))


def _chosen(  # noqa: PLR0917 - torch's own signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Any:  # noqa: ANN401 - no types are read of torch
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    width = query.shape[-1]
    narrow = query.element_size() == 2 and width <= _WIDEST and width == value.shape[-1]
    if attn_mask is None and narrow and (enable_gqa or key.shape[1] == query.shape[1]):
        scale = 1 / math.sqrt(width) if scale is None else scale
        if pad := -width % 8:  # a head's bytes must be aligned
            query, key, value = (functional.pad(x, (0, pad)) for x in (query, key, value))
        flash = ATEN._scaled_dot_product_flash_attention  # noqa: SLF001 - operators have no public names
        said = flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return said[..., :width] if pad else said
    if key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    bias = None if attn_mask is None else _bias(attn_mask, query, key)
    trains = torch.is_grad_enabled() and query.requires_grad
    efficient = ATEN._scaled_dot_product_efficient_attention  # noqa: SLF001
    return efficient(query, key, value, bias, trains, dropout_p, is_causal, scale=scale)[0]


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask of truths as what is added to scores, which is what the kernel takes."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -torch.inf)
    return mask.expand(*query.shape[:-1], key.shape[2])


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
