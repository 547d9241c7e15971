"""A model, a tokenizer and a task, made on the spot: nothing is downloaded, and all of it in seconds.

The task: a prompt says in words what `f(x)` is to return, the model thinks one line, and writes the function.
There are eight operations and eight numbers. What it wrote is run against three asserts (the reward `tests`),
and must keep to its tags (the reward `format`).

A model that begins at nothing never writes a function, so it is first shown completions. Most of them are
wrong: they take an operation by chance, or another number, and some break their tags. It learns what a
completion looks like, and to be right about one time in four; the rest is left to the rewards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END, PAD = "<|end|>", "<|pad|>"
_PIECES = r"</?[a-z]+>|\n *| ?[a-z]+| ?[0-9]| ?[^\sa-z0-9<]"
NUMBERS = range(2, 10)
TRIED = (2, 13, 71)
"""What the tests give to `f`: no two tasks agree on all of them."""

RIGHT, COPIED, KEPT, COMPILES = 0.35, 0.9, 0.8, 0.95
"""How often a shown completion has the operation, the number, the tags and the syntax right."""

WARM_STEPS, WARM_ROWS, WARM_RATE = 240, 32, 6e-3


class Operation(NamedTuple):
    """Words of a prompt, words of a thought, and the ways to write it."""

    asks: str
    thinks: str
    writes: tuple[str, ...]


OPERATIONS = (
    Operation("the sum of x and {k}", "plus {k}", ("x + {k}", "{k} + x")),
    Operation("the product of x and {k}", "times {k}", ("x * {k}", "{k} * x")),
    Operation("x less {k}", "minus {k}", ("x - {k}", "-{k} + x")),
    Operation("{k} less x", "from {k}", ("{k} - x", "-x + {k}")),
    Operation("x over {k}, rounded down", "over {k}", ("x // {k}", "int(x / {k})")),
    Operation("the rest of x over {k}", "rest by {k}", ("x % {k}", "divmod(x, {k})[1]")),
    Operation("the larger of x and {k}", "at least {k}", ("max(x, {k})", "max({k}, x)")),
    Operation("the smaller of x and {k}", "at most {k}", ("min(x, {k})", "min({k}, x)")),
)


class Task(NamedTuple):
    """One prompt and its tests."""

    operation: int
    number: int

    @property
    def prompt(self) -> str:
        """What the model reads."""
        return f"Write f(x): {OPERATIONS[self.operation].asks.format(k=self.number)}.\n"

    @property
    def tests(self) -> str:
        """Three asserts about calls: the column that the reward `tests` reads."""
        right = eval(f"lambda x: {OPERATIONS[self.operation].writes[0].format(k=self.number)}")  # noqa: S307
        return "\n".join(f"assert f({x}) == {right(x)}" for x in TRIED)


TASKS = tuple(Task(place, number) for place in range(len(OPERATIONS)) for number in NUMBERS)


def completion(thought: str, expression: str) -> str:
    """A completion as it should look: `format:think+answer` in one line of thought and two of program."""
    return f"<think>{thought}</think>\n<answer>\ndef f(x):\n    return {expression}\n</answer>"


def shown(task: Task, chance: random.Random) -> str:
    """A completion to learn the language from: fair, and mostly wrong."""
    place = task.operation if chance.random() < RIGHT else chance.randrange(len(OPERATIONS))
    number = task.number if chance.random() < COPIED else chance.choice(NUMBERS)
    taken = OPERATIONS[place]
    said = completion(taken.thinks.format(k=number), chance.choice(taken.writes).format(k=number))
    if chance.random() > KEPT:
        lost = chance.choice(("</think>", "<answer>\n", "\n</answer>", "<think>"))
        said = said.replace(lost, "", 1)
    if chance.random() > COMPILES:
        said = said.replace(":\n", "\n", 1)
    return said


def tokenizer_of(seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, trained on the task's own texts."""
    chance = random.Random(seed)
    corpus = [task.prompt + shown(task, chance) for task in TASKS for _ in range(20)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=[PAD, END], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left"
    )


def model_of(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 of one layer and 47,000 weights, which chance gives."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        initializer_range=0.12,  # so narrow a model learns to copy a number in seconds from there
        attn_implementation="eager",
    )
    return Qwen3ForCausalLM(config)


def warm(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int, steps: int = WARM_STEPS
) -> float:
    """Show completions to a model; return the last loss."""
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, WARM_RATE, total_steps=steps)
    loss = torch.tensor(float("nan"))
    model.train()
    for _ in range(steps):
        tasks = chance.choices(TASKS, k=WARM_ROWS)
        rows = tokenizer([one.prompt for one in tasks])["input_ids"]
        said = tokenizer([shown(one, chance) + END for one in tasks])["input_ids"]
        longest = max(len(row) + len(more) for row, more in zip(rows, said, strict=True))
        ids = torch.full((len(tasks), longest), tokenizer.pad_token_id)
        labels = torch.full_like(ids, -100)
        for place, (row, more) in enumerate(zip(rows, said, strict=True)):
            ids[place, : len(row) + len(more)] = torch.tensor(row + more)
            labels[place, len(row) : len(row) + len(more)] = torch.tensor(more)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return float(loss.detach())


def prompts(count: int, seed: int) -> Iterator[Sequence[Task]]:
    """As many different tasks for each step, without end."""
    chance = random.Random(seed)
    while True:
        yield chance.sample(TASKS, count)
