"""How long a step of the planned run takes: generation, then training.

    generation = prefill + decoding / DECODE_SHARE                          (`roofline`)
    training   = operations of all completions / (operations per second of all GPUs * MFU)

Operations per token, in units of the active parameters (Kaplan et al. 2020; Chowdhery et al. 2022, PaLM,
appendix B, for attention, which comes in the same proportions on top):

| pass | units |
|---|---|
| forward | 2 |
| backward, to what is below | 2 |
| backward, of the weights | 2; none of frozen ones, so not with LoRA |
| forward again, with checkpointing | 2 |
| a reference model | 2 |
| log-probabilities of the policy that generated | 2, where the plan says so (`Plan.rescores`) |

What is not in it: rewards (`steelyard.planned` joins them), the push of weights to the engine, waking and
putting to sleep, the optimizer's step, what GPUs say to each other. Completions are all taken for full
length, which makes generation too long where many end early. No number here was measured on a run: `low` and
`high` are what the shares below leave open, not a confidence interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.memory.plan import Engine, Plan
from steelyard.memory.roofline import attention_flops, decode_s, known_flops, prefill_s
from steelyard.memory.values import Card


class Share(NamedTuple):
    """Of what the roofline allows: the worst, the one that is taken, the best."""

    low: float
    value: float
    high: float


MFU: Final = Share(0.2, 0.35, 0.5)
"""Of paper operations that training reaches, recomputed ones counted. Dense pretraining, tuned: 0.46 for 7B
on H100 (foundation-model-stack/fms-fsdp#89), 0.52 to 0.58 on A100 (torchtitan's docs/performance.md); a small
model on one RTX 4090 0.55 (karpathy/nanoGPT#182, whose 0.29 is of an A100's operations). Steps of RL have
ragged batches and are tuned less, and no public figure of one was found: 0.35, and 0.2 to 0.5, are
assumptions."""

DECODE_SHARE: Final = Share(0.5, 0.8, 1.0)
"""Of the decode roofline that an engine reaches. One stream: 0.9 of *paper* bandwidth on an RTX 4090
(pytorch-labs/gpt-fast#27), 0.65 to 0.97 of the measured ceiling by llama.cpp on a CPU (llama-roofline). Large
batches add scheduling and sampling, of which no figure was found: 0.8 is an assumption; 1 is the roofline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a planned step.

    Attributes
    ----------
    generation_s, training_s
        By the shares that are taken.
    low, high
        Of both together, by the best and the worst shares.
    says
        What it rests on, in sentences.
    """

    generation_s: float
    training_s: float
    low: float
    high: float
    says: tuple[str, ...]

    @property
    def busy_s(self) -> float:
        """Generation and training."""
        return self.generation_s + self.training_s


def step_time(
    plan: Plan,
    card: Card,
    *,
    engine_gpus: int | None = None,
    at_once: int | None = None,
    mfu: Share = MFU,
    decode_share: Share = DECODE_SHARE,
) -> StepTime:
    """Seconds of a step of a plan on such cards.

    Parameters
    ----------
    plan, card
        What is to run, on what.
    engine_gpus
        GPUs that generate. None: with a server, one copy's (`engine.tensor_parallel`); else the trainer's.
    at_once
        Sequences that one copy's KV cache holds, if fewer than `engine.sequences`.
    mfu, decode_share
        What is reached of the card.

    Raises
    ------
    RefusedError
        A card whose bandwidth or operations are not known; GPUs that hold no whole copy; shares that cannot
        be.
    """
    for name, share in (("mfu", mfu), ("decode_share", decode_share)):
        if not 0 < share.low <= share.value <= share.high <= 1:
            raise RefusedError(
                f"{name} = {tuple(share)} is not three rising shares",
                where="steps",
                remedy="give the worst, the likely and the best, such as 0.2, 0.35, 0.5",
            )
    says = ["all completions are taken for full length"]
    read, decoded = 0.0, 0.0
    if plan.task == "grpo":
        read, decoded = _generation(plan, card, engine_gpus, at_once)
        says.append(f"decoding at {decode_share.value:.0%} of the roofline of {card.name}, an assumption")
    trained = _training(plan) / (known_flops(card) * plan.gpus)
    if trained:
        says.append(f"training at {mfu.value:.0%} of its operations on paper, an assumption")

    def seconds(of_decode: float, of_training: float) -> tuple[float, float]:
        return read + decoded / of_decode, trained / of_training

    generation, training = seconds(decode_share.value, mfu.value)
    return StepTime(
        generation_s=generation,
        training_s=training,
        low=sum(seconds(decode_share.high, mfu.high)),
        high=sum(seconds(decode_share.low, mfu.low)),
        says=tuple(says),
    )


def _generation(plan: Plan, card: Card, engine_gpus: int | None, at_once: int | None) -> tuple[float, float]:
    """Seconds of prefill, and of decoding on the roofline, of the copy that has the most to do."""
    engine = plan.engine or Engine(mode="none")
    own = engine.mode == "none"
    each = plan.tensor_parallel if own else engine.tensor_parallel
    gpus = engine_gpus or (engine.tensor_parallel if engine.mode == "server" else plan.gpus)
    copies, left = divmod(gpus, each)
    if left or not copies:
        raise RefusedError(
            f"{gpus} GPUs cannot be shared out by {each}, which hold one copy",
            where="engine",
            remedy="make the GPUs that generate a multiple of tensor_parallel",
        )
    mine = -(-plan.completions // copies)
    prompts = mine if own else -(-mine // plan.generations)  # an engine caches the prefix that a group shares
    most = mine if own else engine.sequences
    read = prefill_s(
        plan.model, card, tokens=prompts * plan.prompt, context=plan.prompt, tensor_parallel=each
    )
    decoded = decode_s(
        plan.model,
        card,
        sequences=mine,
        prompt=plan.prompt,
        completion=plan.completion,
        at_once=most if at_once is None else min(most, at_once),
        tensor_parallel=each,
        weight_bytes=2.0 if own else engine.weight_bytes,
        cache_bytes=2.0 if own else engine.cache_bytes,
    )
    return read, decoded


def _training(plan: Plan) -> float:
    """Operations of a step, over all GPUs."""
    units = 2
    if plan.task != "inference":
        units += 2 if plan.lora else 4
        units += 0 if plan.checkpointing == "none" else 2
    if plan.task == "grpo":
        units += 2 * (plan.reference + plan.rescores)
    each = plan.model.active + attention_flops(plan.model, plan.tokens) / 2
    return units * each * plan.completions * plan.tokens
