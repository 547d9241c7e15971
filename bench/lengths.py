"""What honest completions pay for repetition at each n, and what counting lengths costs.

    python bench/lengths.py

The completions are those of ../shared/data or $STEELYARD_DATA: real, most of them right, none written to
repeat itself. The tokenizer is trained on them here, so its cost is typical and its counts are nobody's.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from steelyard.outcome import Context, Part, Scored
from steelyard.rewards.answers import answer
from steelyard.rewards.base import RolloutReward
from steelyard.rewards.lengths import overlong
from steelyard.rewards.repetition import DEFAULT_N, repetition
from steelyard.rewards.shaping import cosine, length_penalty
from steelyard.rewards.trajectory import files, state, turns
from steelyard.rollout import Rollout

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("STEELYARD_DATA") or HERE.parent.parent / "shared" / "data")
FILES = ("gsm8k_openai_solutions", "math_qwen_cot", "judgebench_pointwise")
MEGABYTE = 1_000_000
COLUMNS = {"expected_state": {"order": {"status": "paid"}}, "expected_files": {"a.json": {"json": {"n": 1}}}}
END = {"order": {"status": "paid", "id": 7}, "user": {"name": "Ada"}}


def row(completion: str) -> Rollout:
    return Rollout("a", "", completion, COLUMNS, (0, 0), 0, "bench", {"./a.json": '{"n": 1}'}, END)


def read(name: str) -> list[Rollout]:
    with (DATA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [row(json.loads(line)["completion"]) for line in lines]


def trained(rows: Sequence[Rollout], folder: str) -> Path:
    """A byte-level BPE as models have them, of 8,000 tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8_000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([str(one.completion) for one in rows], trainer)
    made.save(str(Path(folder) / "tokenizer.json"))
    return Path(folder) / "tokenizer.json"


def microseconds(function: Callable[[Sequence[Rollout]], object], rows: Sequence[Rollout]) -> float:
    """CPU per completion, the best of three."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        function(rows)
        spent.append(time.process_time() - start)
    return min(spent) / len(rows) * 1e6


def paid(rows: dict[str, list[Rollout]]) -> Table:
    table = Table(title="what honest completions pay for repetition (of at most 1)")
    for column in ("file", "unit", "n", "mean", "p90", "p99", "largest"):
        table.add_column(column, justify="left" if column in ("file", "unit") else "right")
    for name, some in rows.items():
        for unit in ("words", "characters"):
            for n in (3, 5, 10, 20, 40, 60):
                costs = sorted(abs(verdict.value) for verdict in repetition(n, unit=unit)(some, Context()))
                places = [costs[int(len(costs) * share)] for share in (0.9, 0.99)]
                shown = [f"{one:.4f}" for one in (sum(costs) / len(costs), *places, costs[-1])]
                whose = {(unit, DEFAULT_N[unit]): " (ours)", ("words", 3): " (open-r1)"}.get((unit, n), "")
                table.add_row(name, unit, f"{n}{whose}", *shown)
    return table


def judged(reward: RolloutReward) -> Callable[[Sequence[Rollout]], object]:
    return lambda rows: reward(rows, Context())


def costs(rows: Sequence[Rollout], tokenizer: Path) -> Table:
    said = [{"answer": Scored(1.0)} for _ in rows]
    shapes = {
        "length_penalty, words": length_penalty(100, 500, unit="words"),
        "cosine, words": cosine(Part(answer()), 500, unit="words"),
    }
    plan: dict[str, Callable[[Sequence[Rollout]], object]] = {
        "baseline: len(text.split())": lambda some: [len(str(one.completion).split()) for one in some],
        "overlong, characters": judged(overlong(4_000, 1_000, unit="characters")),
        "overlong, words": judged(overlong(500, 100, unit="words")),
        "overlong, tokens": judged(overlong(1_000, 200, tokenizer=tokenizer)),
        "repetition, words": judged(repetition()),
        "repetition, characters": judged(repetition(unit="characters")),
        **{
            name: lambda some, shape=shape: [
                shape(one, verdict["answer"], verdict) for one, verdict in zip(some, said, strict=True)
            ]
            for name, shape in shapes.items()
        },
        "state": judged(state()),
        "files": judged(files()),
        "turns": judged(turns(5, 20)),
    }
    table = Table(title=f"cost on {len(rows):,} completions of {size(rows):,.0f} characters on average")
    table.add_column("what")
    table.add_column("us/completion", justify="right")
    for name, function in plan.items():
        table.add_row(name, f"{microseconds(function, rows):.2f}")
    return table


def size(rows: Sequence[Rollout]) -> float:
    return sum(len(str(one.completion)) for one in rows) / len(rows)


def slowest(tokenizer: Path) -> Table:
    table = Table(title="the slowest megabyte of a few that are hard to split")
    table.add_column("what")
    table.add_column("text")
    table.add_column("seconds", justify="right")
    plan = {
        "overlong, tokens": overlong(1_000, 200, tokenizer=tokenizer),
        "repetition, words": repetition(),
        "repetition, characters": repetition(unit="characters"),
    }
    units = ("a", "a ", " ", "\n", "1", "'s", "漢字")
    texts = {repr(unit): unit * (MEGABYTE // len(unit)) for unit in units}
    texts["numbers"] = " ".join(map(str, range(MEGABYTE // 6)))
    for name, reward in plan.items():
        took = {}
        for text, body in texts.items():
            start = time.perf_counter()
            reward([row(body)], Context())
            took[text] = time.perf_counter() - start
        worst = max(took, key=lambda text: took[text])
        table.add_row(name, worst, f"{took[worst]:.2f}")
    return table


def main() -> int:
    if not DATA.is_dir():
        print(f"bench/lengths: {DATA} is no folder; set STEELYARD_DATA to the folder with the labelled rows")
        return 0
    rows = {name: read(name) for name in FILES}
    everything = [one for some in rows.values() for one in some]
    console = Console(width=110)
    console.print(paid(rows))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = trained(everything, folder)
        console.print(costs(everything, tokenizer))
        console.print(slowest(tokenizer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
