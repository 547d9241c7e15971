"""Estimates against real operators on fake tensors: real models, cut to a few layers, one case a moment.

`integrations.allocation.tracked` sees each storage's birth and death in transformers' own model, loss and
optimizer. What it and the formulas must agree on is every byte; 2 % is what roundings, masks and rotary
tables may make of small ones.
"""

import pytest

from steelyard.memory import cards
from steelyard.memory.catalogue import config_of
from steelyard.memory.estimate import estimate
from steelyard.memory.families import read_config
from steelyard.memory.plan import Lora, Plan

pytestmark = pytest.mark.needs("torch")

CARD = cards.card("H100 80GB")
LLAMA, MISTRAL = "meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.1"
QWEN2, QWEN3 = "Qwen/Qwen2.5-1.5B", "Qwen/Qwen3-0.6B"
GEMMA, GEMMA2, PHI3 = "google/gemma-2b", "google/gemma-2-2b", "microsoft/Phi-3-mini-128k"
ALONE = {
    "task": "sft",
    "prompt": 0,
    "completion": 1024,
    "micro_batch": 1,
    "precision": "bf16",
    "checkpointing": "none",
    "attention": "flash",
    "head": "naive",
    "step_kernel": "foreach",
    "engine": None,
}
FUSED = Lora(rank=16, targets=("qkv_proj", "o_proj", "gate_up_proj"))
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def both(name, layers=2, **changed):
    """Bytes that live at the peak as estimated and as tracked, and the moment it is estimated at."""
    from steelyard.integrations.allocation.tracked import CUBLAS, track

    config = {**config_of(name), "num_hidden_layers": layers}
    plan = Plan(model=read_config(config, name=name), **{**ALONE, **changed})
    peak = estimate(plan, CARD).peak
    return peak.allocated, track(config, plan).bytes - CUBLAS, peak.moment


@pytest.mark.parametrize(
    ("name", "changed", "moment"),
    [
        (LLAMA, {}, "backward of the head"),
        (
            QWEN2,
            {"precision": "autocast", "checkpointing": "recompute", "micro_batch": 2},
            "backward of the head",
        ),
        (GEMMA2, {"attention": "eager", "micro_batch": 2}, "backward of the head"),
        (LLAMA, {"lora": Lora(rank=64, targets=ATTENTION), "precision": "autocast"}, "backward of the head"),
        (GEMMA, {"lora": Lora(rank=8, targets=ATTENTION), "completion": 512}, "backward of the head"),
        (
            QWEN2,
            {"head": "selective", "completion": 512, "step_kernel": "fused"},
            "backward of the embedding",
        ),
        (MISTRAL, {"head": "selective", "completion": 512, "step_kernel": "fused"}, "backward of the head"),
        (
            MISTRAL,
            {"attention": "eager", "checkpointing": "recompute", "completion": 3072},
            "backward of a layer",
        ),
        (QWEN3, {"head": "fused", "checkpointing": "recompute", "completion": 16384}, "backward of a layer"),
        (PHI3, {"head": "fused", "checkpointing": "recompute", "lora": FUSED}, "backward of a layer"),
        (QWEN2, {"completion": 128}, "backward of the embedding"),
        (GEMMA2, {"completion": 128, "precision": "fp32", "attention": "eager"}, "backward of the embedding"),
        (MISTRAL, {"completion": 128}, "optimizer step"),
        (LLAMA, {"completion": 128, "optimizer": "sgd_momentum"}, "backward of the embedding"),
        (
            MISTRAL,
            {"precision": "fp32", "attention": "eager", "optimizer": "sgd_momentum"},
            "backward of the head",
        ),
        (LLAMA, {"task": "inference", "micro_batch": 4}, "forward pass"),
        (GEMMA2, {"task": "inference", "attention": "eager", "completion": 2048}, "forward pass"),
    ],
)
def test_estimates_are_within_two_percent_of_what_real_operators_keep(name, changed, moment):
    estimated, tracked, at = both(name, **changed)
    assert at == moment
    assert estimated == pytest.approx(tracked, rel=0.02)


def test_a_tied_head_costs_two_more_of_the_embedding_than_its_gradient():
    """Its gradient waits for the embedding's, and their sum is a third; untied, one goes before the other."""
    for name, copies in ((QWEN2, 3), (MISTRAL, 1)):
        shape = read_config({**config_of(name), "num_hidden_layers": 2}, name=name)
        plan = Plan(model=shape, **{**ALONE, "completion": 1, "step_kernel": "fused", "attention": "eager"})
        peak = estimate(plan, CARD).peak
        kept = 8 * shape.parameters
        assert peak.allocated - kept == pytest.approx(2 * copies * shape.embedding, rel=0.02)
