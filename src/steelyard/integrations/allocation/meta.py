"""Parameters and logits of the real model, on the meta device, where nothing is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from steelyard.integrations.allocation.asked import Asked
from steelyard.integrations.allocation.training import Adapted, batch_of, built
from steelyard.memory.plan import Plan
from steelyard.memory.shapes import ModelShape
from steelyard.memory.states import trained


def compared(asked: Asked, plan: Plan) -> dict[str, Any]:
    """Build the model and compare; the answer's `model`.

    Parameters
    ----------
    asked
        What was asked.
    plan
        Its part of one GPU.
    """
    with torch.device("meta"):
        model = built(asked.config, plan, dtype=torch.bfloat16, attention="eager")
    shape, names = plan.model, _by_name(model)
    adapters = names.pop(_ADAPTERS, 0)
    parameters = sum(names.values())
    logits = _logits(model, plan)
    counts = [
        _count("parameters", shape.parameters, parameters),
        _count("logits", 2 * plan.logit_tokens * shape.vocabulary, 2 * logits.numel(), unit="bytes"),
    ]
    if plan.lora is not None and plan.task != "inference":
        counts.append(_count("trained parameters", trained(plan).count, adapters))
    planned = _planned(shape)
    differences = [
        {"module": name, "planned": planned.get(name, 0), "built": names.get(name, 0)}
        for name in sorted(planned.keys() | names.keys())
        if planned.get(name, 0) != names.get(name, 0)
    ]
    same = parameters == shape.parameters  # then matrices may be stored in other pieces, as experts are
    return {
        "agrees": all(count["planned"] == count["built"] for count in counts),
        "counts": counts,
        "logits": list(logits.shape),
        "differences": [] if same else differences,
    }


_EMBEDDING, _HEAD, _VECTORS, _ADAPTERS = "embedding", "head", "norms and vectors", "adapters"


def _planned(shape: ModelShape) -> Mapping[str, int]:
    found: Counter[str] = Counter({_EMBEDDING: shape.embedding, _VECTORS: shape.vectors})
    found[_HEAD] = 0 if shape.tied else shape.embedding
    for layer in shape.layers:
        found[_VECTORS] += layer.count * layer.vectors
        for linear in layer.linears:
            found[linear.name] += layer.count * linear.parameters
    return found


def _by_name(model: Any) -> Counter[str]:  # noqa: ANN401 - no types are read of transformers
    """Parameters by the last name of the module that has them; what is shared counts once.

    So does what a checkpoint stores and nobody trains: the biases of DeepSeek's routers are buffers here.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    ends = {id(model.get_input_embeddings()): _EMBEDDING, id(model.get_output_embeddings()): _HEAD}
    adapters = {id(p) for m in model.modules() if isinstance(m, Adapted) for p in _adapters(m)}
    stored = model.state_dict().keys()
    for path, module in model.named_modules():
        name = path.removesuffix(".base").rpartition(".")[2]
        kept = ((own, b) for own, b in module.named_buffers(recurse=False) if f"{path}.{own}" in stored)
        for own, parameter in (*module.named_parameters(recurse=False), *kept):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if id(parameter) in adapters:
                label = _ADAPTERS
            elif id(module) in ends:
                label = ends[id(module)]
            elif isinstance(module, nn.Linear):
                label = name
            else:
                label = _VECTORS if parameter.dim() < 2 else f"{name}.{own}"
            found[label] += parameter.numel()
    return found


def _adapters(module: Adapted) -> list[Any]:
    return [module.lora_A.weight, module.lora_B.weight]


def _logits(model: Any, plan: Plan) -> Any:  # noqa: ANN401
    """What the head makes of the hidden states that get logits."""
    rows, length = batch_of(plan)
    keep = max(1, length * plan.logit_tokens // max(1, plan.step_tokens))
    head = model.get_output_embeddings()
    return head(torch.empty(rows, keep, head.in_features, dtype=head.weight.dtype, device="meta"))


def _count(what: str, planned: int, found: int, *, unit: str = "parameters") -> dict[str, Any]:
    return {"what": what, "planned": planned, "built": found, "unit": unit}
