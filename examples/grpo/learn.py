"""GRPO on a CPU in two minutes, with trouble: `python examples/grpo/learn.py out/learn`.

A tiny model (`tiny.py`) learns to write functions: its programs are run behind bubblewrap by the reward
`tests`, and `format` looks at its tags. Rewards take long, some very long, and for one rollout in twenty no
sandbox can be had (`trouble.py`). Three runs begin at the same weights and meet the same trouble:

- **streaming**: failures are unscored, and a group is trained on as soon as it is judged;
- **batch**: its first steps again, with training that waits for all verdicts;
- **laundered**: without the waits, and each failure is given the reward 0.

Beside the table that it prints, `learning.html` shows them, and each run has its ledger: `steelyard price
out/learn/batch.ledger` says what its rewards cost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import tiny
import torch
from plots import write
from trouble import Troubled

from steelyard import (
    Ledger,
    Part,
    Recipe,
    Rollout,
    Scored,
    ScoredGroup,
    SteelyardError,
    builtin,
    record_steps,
)
from steelyard.clock import Span
from steelyard.integrations.grpo import Grpo, Settings
from steelyard.integrations.scorer import Pending, Scorer
from steelyard.ledger.spans import spans
from steelyard.rollout import Group
from steelyard.runtime import refuse_unattested

PROMPTS, SIZE, LONGEST, RATE = 8, 8, 28, 2e-3
FAILING, MEDIAN_S, SPREAD = 0.05, 0.03, 1.1
FORMAT = 0.2
"""What the tags are worth beside a program that passes."""


class Watched(Scorer):
    """A scorer that remembers what it was last asked."""

    last: Pending

    def submit(self, groups: Sequence[Group], *, step: int | None = None) -> Pending:
        """Begin to score."""
        self.last = super().submit(groups, step=step)
        return self.last


@dataclass
class Run:
    """One run, step by step.

    Parameters
    ----------
    name
        What it is called.
    passed, kept
        Shares of completions that pass their tests (whether or not that could be judged) and keep their
        format.
    rewards, true
        The mean reward that was trained on, and the one that would have been without failures.
    failed, punished
        Rollouts without a sandbox, and those of them that are right and were pushed away from.
    seconds
        What each step took.
    spans
        What it did meanwhile.
    said
        A prompt with what was made of it, first and last.
    """

    name: str
    passed: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    true: list[float] = field(default_factory=list)
    failed: int = 0
    punished: int = 0
    seconds: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    said: list[tuple[Rollout, Scored]] = field(default_factory=list)

    def see(self, groups: Sequence[ScoredGroup], trouble: Troubled) -> None:
        """Count what a step brought."""
        rows = [
            (rollout, total, format_.verdict, advantage)
            for one in groups
            for rollout, total, format_, advantage in zip(
                one.group.rollouts, one.totals, one.parts["format"], one.advantages or (), strict=True
            )
        ]
        right = {rollout.ordinal: trouble.truth[rollout.ordinal] == 1.0 for rollout, *_ in rows}
        struck = {number for number in right if trouble.struck(number)[0]}
        values = [total.value for _, total, _, _ in rows if isinstance(total, Scored)]
        self.passed.append(sum(right.values()) / len(rows))
        self.kept.append(sum(float(kept) for _, _, kept, _ in rows) / len(rows))
        self.rewards.append(sum(values) / len(values))
        self.true.append(self.passed[-1] + FORMAT * self.kept[-1])
        self.failed += len(struck)
        self.punished += sum(
            rollout.ordinal in struck and right[rollout.ordinal] and advantage < 0
            for rollout, _, _, advantage in rows
        )
        first = next((rollout, total) for rollout, total, *_ in rows if isinstance(total, Scored))
        self.said = [*self.said[:1], first]


def train(
    run: Run,
    model: Any,
    tokenizer: Any,
    folder: Path,
    *,
    barrier: Literal["batch", "arrival"],
    steps: int,
    seed: int,
    waits: bool = True,
    laundered: bool = False,
) -> Iterator[None]:
    """Train a copy of a model, a step at a time, and write down what became of it."""
    model, name = deepcopy(model), run.name
    trouble = Troubled(
        builtin("tests", boundary="bubblewrap", cpu_s=0.5),
        seed,
        FAILING,
        laundered=laundered,
        median_s=MEDIAN_S if waits else 0.0,
        spread=SPREAD,
    )
    recipe = Recipe((Part(trouble), Part(builtin("format:think+answer"), weight=FORMAT)))
    ledger = folder / f"{name}.ledger"
    for old in folder.glob(f"{ledger.name}*"):
        old.unlink()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    settings = Settings(group_size=SIZE, max_new_tokens=LONGEST, barrier=barrier)
    tasks = tiny.prompts(PROMPTS, seed)
    with (  # `stop=False`: a run ends above 5 % unscored, and here that much is wanted
        Watched(recipe, ledger=ledger, name=name, stop=False) as scorer,
        record_steps(ledger) as recorder,
    ):
        grpo = Grpo(model, tokenizer, optimizer, scorer, settings=settings, steps=recorder, seed=seed)
        for step in range(steps):
            asked = next(tasks)
            began = recorder.now()
            grpo.step([one.prompt for one in asked], [{"tests": one.tests} for one in asked])
            run.seconds.append(recorder.now() - began)
            run.see(scorer.last.result(), trouble)
            if step % 10 == 9 or step == steps - 1:
                print(f"  {name}, step {step + 1}: {run.passed[-1]:.0%} pass their tests", flush=True)
            yield
    with Ledger(ledger, write=False) as record:
        run.spans = [span for _, span in spans(record)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the three, and show them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where ledgers and page go")
    parser.add_argument("--steps", type=int, default=40, help="of the long runs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # the other core is the programs'
    try:
        refuse_unattested(Recipe((Part(builtin("tests", boundary="bubblewrap")),)))
        options.folder.mkdir(parents=True, exist_ok=True)
        tokenizer = tiny.tokenizer_of(options.seed)
        model = tiny.model_of(tokenizer, options.seed)
        print("a model is shown what completions look like", flush=True)
        tiny.warm(model, tokenizer, options.seed)
        given = {"model": model, "tokenizer": tokenizer, "folder": options.folder, "seed": options.seed}
        streaming, batch, laundered = map(Run, ("streaming", "batch", "laundered"))
        long, short = options.steps, max(3, options.steps // 4)
        runs = [
            train(streaming, **given, barrier="arrival", steps=long),
            train(batch, **given, barrier="batch", steps=short),
        ]
        for _ in zip_longest(*runs):  # step by step in turn: the machine is as busy for one as for the other
            pass
        for _ in train(laundered, **given, barrier="arrival", steps=long, waits=False, laundered=True):
            pass
        page = options.folder / "learning.html"
        write(page, streaming, batch, laundered)
    except SteelyardError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\nthe page: {page}\nwhat its rewards cost: steelyard price {options.folder / 'batch.ledger'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
