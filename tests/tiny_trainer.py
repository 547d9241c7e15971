"""A trainer of TRL on a CPU, in a second: a Qwen3 of two layers, thirty words, scripted rewards.

The policy generates for itself; what its completions get stands in columns of the data set, one word
for each completion of a group (`Scripted`). So a golden group is a line of words, whatever was sampled.
Import it only where torch and trl are installed.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from steelyard import Part, Recipe, Scored
from steelyard.errors import JudgeError, SandboxError
from steelyard.outcome import Context, How, Takes
from steelyard.rollout import Rollout

gc.collect()
gc.freeze()  # a trainer collects garbage at its start, and would look through all of torch for it each time

WORDS = ["<pad>", "<eos>", *(f"w{number}" for number in range(30))]
CHAT = "{% for message in messages %}{{ message.content }} {% endfor %}"
LOSSES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")


@dataclass(frozen=True)
class Scripted:
    """A reward that says what the column of its name has at a completion's place in its group.

    | word | what it does |
    |---|---|
    | a number | scores it |
    | crash | its sandbox fails before the first instruction: unscored |
    | outage | its judge cannot be reached, nor can its canary: unscored |
    | raise | raises on this completion alone: the floor |
    | hang | never answers |
    | 1@0.2 | the same, after so many seconds |
    """

    name: str = "code"
    floor: float = 0.0
    offset: int = 0
    """Place in its group of the first completion that this process has."""
    how: How = How.ASYNC
    takes: Takes = Takes.ROLLOUT
    depends_on: str = "content"

    @property
    def identity(self) -> str:
        return f"scripted {self.name}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        return None

    def applies(self, columns: Mapping[str, Any]) -> bool:
        return True

    async def canary(self) -> bool | None:
        return not OUTAGE.is_set()

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:
        word, _, delay_s = rollout.columns[self.name][self.offset + rollout.key[1]].partition("@")
        await asyncio.sleep(float(delay_s or 0))
        if word == "crash":
            raise SandboxError(f"sandbox:{self.name}", "no slot could be started")
        if word == "outage":
            OUTAGE.set()
            raise JudgeError(f"judge:{self.name}", "503 Service Unavailable")
        if word == "raise":
            raise ValueError("cannot read this one")
        if word == "hang":
            await asyncio.sleep(3600)
        return Scored(float(word), None if float(word) else "wrong")


class Outage:
    """Whether the judge is down; on as soon as a row says so, until `clear`."""

    def __init__(self) -> None:
        self._on = False

    def set(self) -> None:
        self._on = True

    def clear(self) -> None:
        self._on = False

    def is_set(self) -> bool:
        return self._on


OUTAGE = Outage()


def scripted(*names: str, weights: Sequence[float] = (), **settings: Any) -> Recipe:
    """A recipe of scripted parts."""
    weighted = weights or [1.0] * len(names)
    pairs = zip(names, weighted, strict=True)
    return Recipe(tuple(Part(Scripted(name, **settings), weight=weight) for name, weight in pairs))


def rows(*groups: str | Mapping[str, str]) -> Dataset:
    """A data set of one prompt for each group: words for its completions, or columns of words."""
    made = []
    for number, group in enumerate(groups):
        columns = {"code": group} if isinstance(group, str) else group
        words = {name: said.split() for name, said in columns.items()}
        made.append({"prompt": f"w{number} w{number + 1}", **words})
    return Dataset.from_list(made)


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows thirty words."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        chat_template=CHAT,
        pad_token=WORDS[0],
        eos_token=WORDS[1],
        padding_side="left",
    )


def save_model(folder: Path) -> Path:
    """Write the tiny model, the same each time; the reference model of beta > 0 is read from there, too."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@dataclass
class Told(TrainerCallback):
    """What a run told: the gradients before each optimizer step, and the logs."""

    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def on_pre_optimizer_step(self, args, state, control, model=None, **_more):
        self.gradients.append(
            {
                name: one.grad.detach().clone()
                for name, one in model.named_parameters()
                if one.grad is not None
            }
        )


def config_of(folder: Path, kind: type = GRPOConfig, **settings: Any) -> Any:
    """A configuration in which nothing but the gradient happens; an unknown setting is an error."""
    told = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "max_steps": 1,
        "learning_rate": 0.0,
        "max_grad_norm": 0.0,
        "max_completion_length": 8,
        "num_generations": 4,
        "shuffle_dataset": False,
        "dataloader_pin_memory": False,
        "seed": 7,
        **settings,
    }
    return kind(**told)


def trainer_of(kind: type, rewards: Any, data: Dataset, model: Path, folder: Path, **settings: Any) -> Any:
    """A trainer of this kind, its policy a little off the model it began as; every group in each batch."""
    OUTAGE.clear()
    keywords = settings.pop("keywords", {})
    away = settings.pop("away", 0.3)
    generations = settings.setdefault("num_generations", 4)
    settings.setdefault("per_device_train_batch_size", len(data) * generations)
    policy = Qwen3ForCausalLM.from_pretrained(model)
    trainer = kind(
        model=policy,
        reward_funcs=rewards,
        args=config_of(folder, settings.pop("config", GRPOConfig), **settings),
        train_dataset=data,
        processing_class=tokenizer(),
        **keywords,
    )
    chance = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(
                away * parameter.std().nan_to_num(0.0) * torch.randn(parameter.shape, generator=chance)
            )
    trainer.told = Told()
    trainer.add_callback(trainer.told)
    return trainer


def as_words(run: Any) -> list[Any]:
    """What the last batch's policy said."""
    return list(run._logs["completion"])


def norm(gradient: Mapping[str, torch.Tensor]) -> float:
    """The length of a gradient."""
    return sum(float(part.double().pow(2).sum()) for part in gradient.values()) ** 0.5


def apart(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """How far two gradients are apart, relative to the second."""
    assert one.keys() == other.keys()
    difference = {name: one[name] - other[name] for name in one}
    return norm(difference) / norm(other)


def by_word(
    completions: Sequence[Any], code: Sequence[Sequence[str]], offset: int = 0, **_more: Any
) -> list[float | None]:
    """The script as a reward function of TRL's: what failed is `None`."""
    size = len(code[0])
    words = [column[(offset + row) % size] for row, column in enumerate(code)]
    return [None if word in {"crash", "outage"} else float(word) for word in words]


def untrained(*groups: str, least: int = 3) -> list[bool]:
    """Which rows of groups are not trained on: those that failed, and all where fewer than `least` vote."""
    found: list[bool] = []
    for group in groups:
        failed = [word in {"crash", "outage"} for word in group.split()]
        found += [True] * len(failed) if any(failed) and failed.count(False) < least else failed
    return found


class Reference(GRPOTrainer):
    """TRL's own trainer, told which rows are not trained on, by TRL's own means only.

    Their advantages are 0, and so are their loss weights (`tool_mask`). Every denominator stays what it was:
    bnpo and the entropy bonus count the mask, which is made up for (`kept_share`, of one micro-batch).
    """

    skipped: Sequence[bool] = ()
    """Of the rows of this process's batch, which."""
    voting = False
    """Whether the tokens of those rows leave the denominator of the batch."""
    kept_share = 1.0

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        skipped = torch.tensor(self.skipped)
        output["advantages"] = output["advantages"].masked_fill(skipped, 0.0)
        output["tool_mask"] = torch.ones_like(output["completion_mask"]) * ~skipped.unsqueeze(1)
        counted = output["completion_mask"].sum()
        kept = (output["completion_mask"] * output["tool_mask"]).sum()
        self.kept_share = float(kept / counted)
        if self.voting:
            output["num_items_in_batch"] = self.accelerator.gather(kept).sum()
        if getattr(self, "_entropy_bonus_enabled", False):
            self.entropy_coef = self.args.entropy_coef * self.kept_share
        return output
