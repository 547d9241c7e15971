"""Log-probabilities of chosen tokens from whole logits, keeping what TRL's kernel keeps.

TRL 1.16 has one in Triton (`trl/kernels/logprob_entropy.py`): between logits and their gradient nothing of
their size is kept. Without Triton, which torch's wheels for CUDA bring, it keeps a log-softmax, too. Here a
few rows at a time stand in for the kernel, so that the step runs anywhere.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

ROWS: Final = 32
"""At a time: in fp32 4 MB for each 32,768 words, which is lost beside whole logits."""


def gathered(logits: Tensor, targets: Tensor) -> Tensor:
    """`log_softmax(logits)[targets]` in fp32.

    Parameters
    ----------
    logits
        Shape `(..., V)`.
    targets
        Token ids, shape `(...)`.

    Examples
    --------
    >>> [round(value, 4) for value in gathered(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()]  # ln 4
    [-1.3863, -1.3863]
    """
    flat = _Gathered.apply(logits.flatten(0, -2), targets.flatten())
    return flat.view(targets.shape)


class _Gathered(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not read
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: ANN401 - torch gives it no type
        parts = [
            (some.logsumexp(-1), some.gather(-1, wanted[:, None])[:, 0])
            for some, wanted in _some(logits, targets)
        ]
        norms = torch.cat([norm for norm, _ in parts])
        ctx.save_for_backward(logits, targets, norms)
        return torch.cat([chosen for _, chosen in parts]) - norms

    @staticmethod
    def backward(ctx: Any, of_logps: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        logits, targets, norms = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for place, (some, wanted) in enumerate(_some(logits, targets)):
            part = slice(place * ROWS, (place + 1) * ROWS)
            some.sub_(norms[part, None]).exp_().neg_()
            some.scatter_add_(-1, wanted[:, None], torch.ones_like(some[:, :1]))
            gradient[part] = some.mul_(of_logps[part, None])
        return gradient, None


def _some(logits: Tensor, targets: Tensor) -> Any:  # noqa: ANN401 - pairs of tensors
    """A few rows of logits in fp32, a copy, and their targets."""
    pairs = zip(logits.split(ROWS), targets.split(ROWS), strict=True)
    return ((some.to(torch.float32, copy=True), wanted) for some, wanted in pairs)
