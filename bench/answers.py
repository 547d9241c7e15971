"""Agreement of the answer rewards with labels, and their cost, on ../shared/data or $STEELYARD_DATA.

A row is positive where it gets full marks. Rows without a label are counted apart; rows whose label
depends on a documented policy have a line of their own. Nothing of a row is printed but its id.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from steelyard.rewards.answers import answer, gsm8k
from steelyard.rewards.base import TextReward
from steelyard.rewards.choice import choice
from steelyard.rewards.text import format_tags

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("STEELYARD_DATA") or HERE.parent.parent / "shared" / "data")
FULL = {"gsm8k": 1.2}
PLAN = [
    ("gsm8k_openai_solutions", gsm8k(), None),
    ("gsm8k_openai_solutions", gsm8k(flexible=True), None),
    ("mr_gsm8k_human_solution_labels", gsm8k(), None),
    ("gsm8k_tora_boxed", gsm8k(flexible=True), None),
    ("mcq_mmlu_pro", choice(), None),
    ("answers_cases", gsm8k(), "gsm8k"),
    ("answers_cases", gsm8k(flexible=True), "gsm8k"),
    ("answers_cases", answer(), "answer"),
    ("answers_cases", format_tags(around="any"), "answer"),
]


def measure(rows: list[dict], reward: TextReward) -> tuple[Counter, list[float], list[str]]:
    counts: Counter = Counter()
    costs: list[float] = []
    errors: list[str] = []
    full = FULL.get(reward.name, 1.0)
    for row in rows:
        if reward.lint(row):
            counts["bad row"] += 1
            continue
        reward.rule(row["completion"], row)  # the key is prepared once per row, as in a group
        start = time.perf_counter_ns()
        verdict = reward.rule(row["completion"], row)
        costs.append((time.perf_counter_ns() - start) / 1e3)
        if row["known_label"] is None:
            counts["unlabelled"] += 1
            continue
        right = verdict.value == full
        kind = ("T" if right == row["known_label"] else "F") + ("P" if right else "N")
        counts[kind] += 1
        if kind[0] == "F":
            errors.append(f"{kind} {row['id']}")
    return counts, sorted(costs), errors


def main() -> int:
    if not DATA.is_dir():
        print(f"bench/answers: {DATA} is no folder; set STEELYARD_DATA to the folder with the labelled rows")
        return 0
    table = Table(title=f"answer rewards on {DATA}")
    for column in ("file", "reward", "TP", "FP", "FN", "TN", "FPR", "FNR", "no label", "p50 us", "p99 us"):
        table.add_column(column, justify="left" if column in ("file", "reward") else "right")
    missed: list[str] = []
    for name, reward, who in PLAN:
        path = DATA / f"{name}.jsonl"
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        rows = [row for row in rows if who is None or row["reward"] == who]
        for policy in sorted({bool(row.get("policy")) for row in rows}):
            part = [row for row in rows if bool(row.get("policy")) == policy]
            counts, costs, errors = measure(part, reward)
            tp, fp, fn, tn = (counts[kind] for kind in ("TP", "FP", "FN", "TN"))
            cost = [f"{costs[int(len(costs) * q)]:.1f}" for q in (0.5, 0.99)] if costs else ["-", "-"]
            table.add_row(
                f"{name}{' (policy)' if policy else ''}",
                reward.name,
                *map(str, (tp, fp, fn, tn)),
                f"{fp / max(1, fp + tn):.4f}",
                f"{fn / max(1, fn + tp):.4f}",
                str(counts["unlabelled"]),
                *cost,
            )
            missed += [f"{reward.name}: {error}" for error in errors if reward.name != "format"]
    Console(width=130).print(table)
    for line in missed[:40]:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
