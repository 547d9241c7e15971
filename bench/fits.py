"""Reports of runs that fitted, or ran out of memory, against the planner: `python bench/fits.py [FITS.csv]`.

A report seldom says all that memory depends on. So each is three plans: the lowest and the highest that its
source leaves open, and the best guess, which has its source's defaults. "Fits" must hold for the lowest plan
and the best guess, "out of memory" for the highest and the best guess. Settings are written out below with
where they were read; where a source is silent the interval is wide, and what the best guess rests on is said.

A card named by its class is read both ways: what must fit has GB of 10^9 bytes, what must not has GiB.

What is left open is mostly the length of sequences. verl packs those of a micro-batch without padding, so
that their real lengths count, not the limits. Of GSM8K verl's own quickstart prints them at step 0
(docs/start/quickstart.rst, Qwen2.5-0.5B-Instruct): prompts of 104.9 tokens on average (at least 68),
responses of 239.1 (at least 77).

The "largest batch" of two reports (116, 62) is that of one micro-batch: ppo_micro_batch_size is the train
batch. At mean lengths their plans fill well under half of the card; they would fill it at a mean of `full_at`
tokens a sequence, of at most 1,536. So the largest batch is no measurement of memory: what stopped it (a
batch of long answers, validation, the host) is not in the source. Their entropy_coeff makes verl keep the
logits beside their gradient and entropy's (dp_actor.py: no inplace backward), up to 8 bytes of a logit where
the plan has 4.25: at mean lengths they fit with that, too (`entropy`).
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.memory import cards, states, verl_settings
from steelyard.memory.catalogue import shape_of
from steelyard.memory.estimate import estimate
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.values import GIB, Card

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "memory" / "fits.csv"

MEAN, LEAST = 105 + 239, 68 + 77
"""Tokens of a sequence of GSM8K: the mean, and the shortest prompt with the shortest response."""

Key = tuple[str, str, str]
"""Model, task and source of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report's source says, and the plans that are consistent with it."""

    low: Plan
    best: Plan
    high: Plan
    short: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A report against the planner; bytes of the peak, and of the card, read low and high."""

    outcome: str
    low: float
    best: float
    high: float
    least: Card
    most: Card

    @property
    def fits(self) -> bool:
        """It was reported to fit."""
        return self.outcome.startswith("fits")

    @property
    def predicted(self) -> str:
        """What the best guess says."""
        if self.best <= self.least.bytes:
            return "fits"
        return "out of memory" if self.best > self.most.bytes else "open"

    @property
    def wrong(self) -> str | None:
        """Why the planner contradicts the report, if it does."""
        if not self.fits and self.outcome != "out of memory":
            return f"outcome {self.outcome!r} is neither 'fits' nor 'out of memory'"
        for name, size in (("open end", self.low if self.fits else self.high), ("best guess", self.best)):
            if (size > self.least.bytes) if self.fits else (size <= self.most.bytes):
                return f"{self.outcome}, but its {name} takes {size / GIB:.2f} GiB"
        return None


def smallest(device: str) -> Card:
    """A card; of a class the least that it can mean."""
    return _sized(device, 1e9)


def largest(device: str) -> Card:
    """A card; of a class the most that it can mean."""
    return _sized(device, GIB)


def _sized(device: str, unit: float) -> Card:
    found = re.fullmatch(r"(\d+) ?GB(?: card)?", device)
    return cards.plain(float(found[1]) * unit, name=device) if found else cards.card(device)


# --- verl: docs/perf/device_tuning.rst links each script; those below are of volcengine/verl

VERL = {
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.n": 5,
    # defaults of the time (verl/trainer/config/ppo_trainer.yaml, April 2025), which 0.9.1 has otherwise
    "actor_rollout_ref.rollout.enforce_eager": True,
    "actor_rollout_ref.rollout.max_num_seqs": 1024,
}
FSDP_OFFLOADS = {
    "actor_rollout_ref.actor.fsdp_config.param_offload": True,
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": True,
}


def verl(model: str, gpus: int, settings: Mapping[str, object]) -> Plan:
    """A plan of a script's settings."""
    return verl_settings.read(VERL | settings, shape_of(model), gpus=gpus).plan


def verl_lora(model: str, batch: int) -> Report:
    """Of examples/tuning/{0.5b,3b}/qwen2-*_grpo-lora_1_h100_fsdp_vllm.sh."""
    plan = verl(
        model,
        1,
        {
            **FSDP_OFFLOADS,
            "data.train_batch_size": batch,
            "data.max_prompt_length": 512,
            "data.max_response_length": 1024,
            "actor_rollout_ref.model.lora_rank": 32,
            "actor_rollout_ref.model.target_modules": "all-linear",
            "actor_rollout_ref.actor.ppo_mini_batch_size": batch,
            "actor_rollout_ref.actor.ppo_micro_batch_size": batch,
            "actor_rollout_ref.actor.entropy_coeff": 0.001,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size": batch,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.1,
            "actor_rollout_ref.rollout.max_num_seqs": 512,
            "actor_rollout_ref.rollout.max_model_len": 1536,
            "actor_rollout_ref.rollout.max_num_batched_tokens": 1536,
        },
    )
    return packed(
        plan,
        short=f"{batch} x up to 1,536 packed, LoRA 32 on fp32, FSDP, offload, vLLM 0.1 asleep",
        source="volcengine/verl examples/tuning, qwen2-*_grpo-lora_1_h100_fsdp_vllm.sh",
    )


def verl_7b() -> Report:
    """Of examples/tuning/7b/qwen2-7b_grpo_2_h800_fsdp_vllm.sh."""
    plan = verl(
        "Qwen2.5-7B",
        2,
        {
            **FSDP_OFFLOADS,
            "data.train_batch_size": 1024,
            "data.max_prompt_length": 1024,
            "data.max_response_length": 1024,
            "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,
            "actor_rollout_ref.actor.entropy_coeff": 0,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
        },
    )
    return packed(
        plan,
        short="16 x up to 2,048 packed, FSDP fp32 / 2, offload while generating, vLLM 0.6 asleep",
        source="volcengine/verl examples/tuning/7b/qwen2-7b_grpo_2_h800_fsdp_vllm.sh",
    )


def verl_32b() -> Report:
    """Of examples/tuning/32b/qwen2_32B_grpo_8_h20_megatron_vllm.sh; "recompute" is the row's.

    Gradients lie in fp32 (verl/utils/megatron_utils.py, get_model); Adam is Transformer Engine's, fused.
    Sequence parallel, which cuts layer inputs, is not reckoned with: too high. `megatron.grad_offload` goes
    with `param_offload` in verl 0.9.1. A micro-batch is one sequence: the longest counts, so the best guess
    is the limit.
    """
    plan = verl(
        "Qwen2.5-32B",
        8,
        {
            "model_engine": "megatron",
            "data.train_batch_size": 512,
            "data.max_prompt_length": 2048,
            "data.max_response_length": 6144,
            "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": 8,
            "actor_rollout_ref.actor.megatron.param_offload": True,
            "actor_rollout_ref.actor.megatron.optimizer_offload": True,
            "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity": "full",
            "actor_rollout_ref.actor.entropy_coeff": 0,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": 8,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
        },
    )
    return replace_best(
        packed(
            replace(plan, gradient_bytes=4, step_kernel="fused"),
            short="1 x up to 8,192, Megatron tensor parallel 8, offload while generating, vLLM 0.6 asleep",
            source="volcengine/verl examples/tuning/32b/qwen2_32B_grpo_8_h20_megatron_vllm.sh",
        )
    )


def packed(plan: Plan, *, short: str, source: str) -> Report:
    """Sequences of the shortest length, of the mean, and of the limit."""

    def of(tokens: int) -> Plan:
        return replace(plan, micro_tokens=plan.micro_batch * tokens)

    return Report(low=of(LEAST), best=of(MEAN), high=of(plan.tokens), short=short, source=source)


def replace_best(report: Report) -> Report:
    """The best guess is the limit."""
    return replace(report, best=report.high)


# --- others

LOCAL = Engine(mode="none", sequences=8, graphs=False)
"""The trainer's model generates: transformers' `generate`."""


def trl_3678() -> Report:
    """huggingface/trl#3678, July 2025: prompts of at most 168 tokens (limit 256), completions of 256, on TRL
    0.14 to 0.19; no vLLM (it profiles the model's own forward pass).

    Defaults of 0.19: 8 completions of a GPU, no checkpointing (true by default only later), weights loaded in
    fp32 and bf16 autocast (trl#3515), AdamW. Log-probabilities: accelerate makes logits fp32, which are
    divided by the temperature and gathered by `selective_log_softmax`: 16 bytes of a logit, measured on a
    CPU, so that `naive` (14) is the nearest word, and `selective` what it is called. It says 8 GB before the
    forward pass and 20 GB in it. Open: the batch (0.14 took 8 prompts x 8 completions at a time),
    checkpointing, precision.
    """
    best = Plan(
        model=shape_of("Qwen3-0.6B"),
        prompt=168,
        completion=256,
        micro_batch=8,
        generations=8,
        prompts=1,
        precision="autocast",
        step_kernel="foreach",
        checkpointing="none",
        attention="sdpa",
        head="naive",
        head_tokens="completion",
        engine=LOCAL,
    )
    low = replace(
        best,
        micro_batch=2,
        generations=2,
        precision="bf16",
        checkpointing="recompute",
        attention="flash",
        head="selective",
    )
    return Report(
        low=low,
        best=best,
        high=replace(best, prompt=256, micro_batch=64, prompts=8, head_tokens="all"),
        short="8 x (168 + 256), fp32 under autocast, no checkpointing, fp32 logits, no vLLM",
        source="huggingface/trl#3678, its description; TRL 0.19's defaults",
    )


def the_study() -> Report:
    """shared/design/pricing.md: a hand-written step, micro-batch 4 of 128 + 512 tokens, naive log_softmax in
    fp32.

    Best guess: weights as the checkpoint has them (bf16), no checkpointing, torch's AdamW, vLLM awake beside
    it with TRL's share of 0.3. That there is a paged engine follows from its speed: 128 x 512 tokens in 12.47
    s is the roofline of an L4, which `generate`, that copies its cache at each token, does not come near. The
    same step ran once its log-softmax was fused, which this guess says, too (`fused_ran`). Open: all of that;
    without an engine and with checkpointing it would have fitted.
    """
    best = Plan(
        model=shape_of("Qwen3-0.6B"),
        prompt=128,
        completion=512,
        micro_batch=4,
        generations=8,
        prompts=16,
        precision="bf16",
        step_kernel="foreach",
        checkpointing="none",
        attention="sdpa",
        head="naive",
        head_tokens="all",
        engine=Engine(utilization=0.3, sequences=128),
    )
    return Report(
        low=replace(best, checkpointing="recompute", step_kernel="fused", attention="flash", engine=LOCAL),
        best=best,
        high=replace(best, precision="autocast", attention="eager"),
        short="4 x 640, bf16, no checkpointing, naive head, vLLM 0.3 awake",
        source="shared/design/pricing.md, The study; what it leaves open is torch's and TRL's default",
    )


def prime_rl() -> Report:
    """The row says all; its source's other sft rows (points.csv) say the rest, so that nothing is open."""
    plan = Plan(
        model=shape_of("Qwen3-0.6B"),
        task="sft",
        prompt=0,
        completion=65_536,
        micro_batch=1,
        precision="sharded",
        sharding="zero3",
        step_kernel="single",
        checkpointing="recompute",
        attention="flash",
        head="naive",
        head_tokens="all",
        engine=None,
    )
    return Report(
        low=plan,
        best=plan,
        high=plan,
        short="1 x 65,536, FSDP2 on one GPU, fp32 states, naive head",
        source="the row, and points.csv's sft rows of the same source",
    )


def unsloth() -> Report:
    """unsloth.ai/blog/grpo and its release script (2025-02-v2): 4 bits, rank 32, offloaded checkpoints, 8
    generations, 8-bit paged AdamW, vLLM with 0.6 of the card, which reads the trainer's weights ("uses the
    same memory space": they are in its share, and here once). Its notebook for Qwen2.5 of that month: 256 +
    200 tokens.

    Its loss takes one sequence's logits at a time: less than the layer that is computed anew, so that `fused`
    is near enough. Open: whether vLLM runs at all (fast_inference), rank 8 to 128, "reduce if out of memory"
    of the share, the completion (up to 768 of max_seq_length 1024).
    """
    card = smallest("5GB")
    base = Plan(
        model=shape_of("Qwen2.5-1.5B"),
        prompt=256,
        completion=200,
        micro_batch=8,
        generations=8,
        prompts=1,
        precision="bf16",
        optimizer="paged_adamw_8bit",
        lora=Lora(rank=32, quantized=True),
        checkpointing="offload",
        attention="flash",
        fused_kernels=True,
        head="fused",
        head_tokens="completion",
    )
    shared = sum(each.bytes for each in states.weights(base) if each.name == "weights")
    engine = Engine(
        utilization=0.6 - shared / card.bytes,
        weight_bytes=0.0,
        sequences=8,
        batched_tokens=1024,
        context=1024,
        bucket_bytes=2.0 * states.trained(base).count,
    )
    return Report(
        low=replace(base, micro_batch=1, lora=Lora(rank=8, quantized=True), engine=LOCAL),
        best=replace(base, engine=engine),
        high=replace(base, completion=768, lora=Lora(rank=128, quantized=True), engine=engine),
        short="8 x 456, QLoRA 32, offloaded checkpoints, vLLM 0.6 on the trainer's weights",
        source="unsloth.ai/blog/grpo; unsloth release 2025-02-v2; notebook Qwen2.5_(3B)-GRPO of that month",
    )


REPORTS: Mapping[Key, Report] = {
    ("Qwen3-0.6B", "sft", "prime-rl benchmarks/baselines"): prime_rl(),
    ("Qwen2.5-0.5B", "grpo lora", "verl docs device_tuning"): verl_lora("Qwen2.5-0.5B", 116),
    ("Qwen2.5-3B", "grpo lora", "verl docs device_tuning"): verl_lora("Qwen2.5-3B", 62),
    ("Qwen2.5-7B", "grpo full", "verl docs device_tuning"): verl_7b(),
    ("Qwen2.5-32B", "grpo full", "verl docs device_tuning"): verl_32b(),
    (
        "Qwen3-0.6B",
        "grpo naive log_softmax micro-batch 4",
        "the study (2026-08-22)",
    ): the_study(),
    ("Qwen3-0.6B", "grpo", "trl issue 3678"): trl_3678(),
    ("Qwen2.5-1.5B", "grpo qlora", "Unsloth documentation"): unsloth(),
}


def key(row: Mapping[str, str]) -> Key:
    """Of a row."""
    return row["model"], row["task"], row["source"]


def disagreement(row: Mapping[str, str], report: Report) -> str | None:
    """What a row says and its plans do not."""
    for name, plan in (("low", report.low), ("best", report.best), ("high", report.high)):
        recomputed = "none" if plan.checkpointing == "none" else "recompute"
        has = {
            "model": plan.model.name,
            "gpus": str(plan.gpus),
            "lora_rank": "" if plan.lora is None else str(plan.lora.rank),
            "seq": str(plan.tokens),
            "micro_batch": str(plan.micro_batch),
            "checkpointing": recomputed,
        }
        for column, value in has.items():
            if row[column] and row[column] != value:
                return f"{column} is {row[column]!r} and the {name} plan has {value!r}"
    return None


def judged(row: Mapping[str, str], report: Report) -> Judged:
    """A row against its plans."""
    least, most = smallest(row["device"]), largest(row["device"])

    def peak(plan: Plan) -> float:
        return estimate(plan, least if row["outcome"].startswith("fits") else most).peak.bytes

    return Judged(
        outcome=row["outcome"],
        low=peak(report.low),
        best=peak(report.best),
        high=peak(report.high),
        least=least,
        most=most,
    )


def full_at(report: Report, card: Card) -> int:
    """Mean tokens of a sequence at which a packed report's plan fills the card."""
    low, high = 1, report.high.tokens + 1
    while high - low > 1:
        middle = (low + high) // 2
        plan = replace(report.high, micro_tokens=report.high.micro_batch * middle)
        low, high = (middle, high) if estimate(plan, card).peak.bytes <= card.bytes else (low, middle)
    return low


def entropy(plan: Plan) -> float:
    """Bytes of the copies of logits that verl's entropy adds, at most."""
    return (8 - 4.25) * plan.logit_tokens * plan.model.vocabulary


def fused_ran(report: Report) -> Plan:
    """The study's step as it ran in the end."""
    return replace(report.best, head="selective")


def rows(path: Path) -> list[dict[str, str]]:
    """Of the table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED
    if not path.is_file():
        print(f"no file {path}: name one")
        return
    print("| report | plan | low | best | high | card | reported | predicted | |\n" + "|---" * 9 + "|")
    for row in rows(path):
        report = REPORTS.get(key(row))
        if report is None:
            print(f"| {row['model']} {row['task']} | no settings in bench/fits.py |")
            continue
        found = judged(row, report)
        sizes = " | ".join(f"{size / GIB:.1f}" for size in (found.low, found.best, found.high))
        card = (found.least if found.fits else found.most).bytes / GIB
        side = found.wrong or disagreement(row, report) or "right"
        said = f"{row['model']} {row['task']}, {row['gpus']} x {row['device']}"
        ends = f"{card:.1f} | {row['outcome']} | {found.predicted} | {side}"
        print(f"| {said} | {report.short} | {sizes} | {ends} |")
    for row in rows(path):
        report = REPORTS.get(key(row))
        if report and "largest batch" in row["outcome"]:
            tokens = full_at(report, smallest(row["device"]))
            print(f"\n{row['model']}: {row['micro_batch']} sequences fill the card at {tokens:,} tokens each")


if __name__ == "__main__":
    main()
