"""A GRPO loop whose rewards take as long as they are told: what a price predicted can be held against it.

Every reward sleeps for seconds that were drawn beforehand, per step, group and member: most are quick, some
are slow. Two loops of one seed sample the same completions and wait for the same rewards, whatever their
barrier. Prompts are long, so that training takes a part of the step that can be measured.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch

import steelyard
from steelyard.integrations.grpo import Grpo, Report, Settings
from steelyard.integrations.scorer import Scorer
from steelyard.outcome import Part
from steelyard.rewards import Recipe
from tiny_model import tiny_model, tiny_tokenizer

GROUPS, MEMBERS = 8, 4
QUICK_S, SLOW_S, SLOW = (0.05, 0.5), (1.4, 1.7), 0.12


class Shape(NamedTuple):
    """How much work training is: the model, and the prompt's words."""

    hidden: int = 64
    layers: int = 2
    words: int = 45
    tokens: int = 4


@steelyard.reward
async def waits(rollout, seconds):
    member = rollout.key[1]
    await asyncio.sleep(seconds[member])
    return float(member % 2)  # every group has a signal


def drawn(seed: int, steps: int, scale: float = 1.0) -> list[list[list[float]]]:
    """Seconds per step, group and member."""
    chance = random.Random(seed)  # noqa: S311 - no secret

    def one() -> float:
        return scale * chance.uniform(*(SLOW_S if chance.random() < SLOW else QUICK_S))

    return [[[one() for _ in range(MEMBERS)] for _ in range(GROUPS)] for _ in range(steps)]


class Loop(ExitStack):
    """A policy in training that records itself in a ledger; its first step, to warm up, is not recorded."""

    def __init__(self, ledger: Path, barrier: str, shape: Shape = Shape()) -> None:  # noqa: B008
        super().__init__()
        tokenizer = tiny_tokenizer()
        model = tiny_model(tokenizer, hidden=shape.hidden, layers=shape.layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        settings = Settings(
            estimator="dr_grpo", group_size=MEMBERS, max_new_tokens=shape.tokens, barrier=barrier
        )
        recipe = Recipe((Part(waits),))
        self.prompts = [f"{place} " * shape.words for place in range(GROUPS)]
        with Scorer(recipe, advantage="dr_grpo") as scorer:
            self.loop = Grpo(model, tokenizer, optimizer, scorer, settings=settings)
            self.step([[0.0] * MEMBERS] * GROUPS)
        steps = self.enter_context(steelyard.record_steps(ledger))
        scorer = self.enter_context(Scorer(recipe, advantage="dr_grpo", ledger=ledger))
        self.loop = Grpo(model, tokenizer, optimizer, scorer, settings=settings, steps=steps)

    def step(self, seconds: Sequence[Sequence[float]]) -> Report:
        """Train one step, whose rewards take so long per group and member."""
        report = self.loop.step(self.prompts, [{"seconds": of_group} for of_group in seconds])
        assert report.updates == 1
        assert report.unscored == 0
        return report


def in_turn(folder: Path, seconds: Sequence, shape: Shape = Shape()) -> tuple[Path, Path]:  # noqa: B008
    """Train two loops step by step in turn, one with each barrier: a slow minute of the machine is in both.

    Returns their ledgers: barrier `batch`, barrier `arrival`.
    """
    waiting, arriving = folder / "batch.ledger", folder / "arrival.ledger"
    with Loop(waiting, "batch", shape) as one, Loop(arriving, "arrival", shape) as other:
        for number, of_step in enumerate(seconds):
            for loop in (one, other) if number % 2 else (other, one):
                loop.step(of_step)
    return waiting, arriving
