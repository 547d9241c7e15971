"""The pipe's speed: GSM8K-length rollouts from a file to the scored file, one process on one core.

    python bench/pipe.py [ROLLOUTS]        default 200,000; the issue's figure is for 1,000,000

Prints completions per second with everything included (reading, lint, ledger, judging, OUT), the cost
of each stage, the last tenth's rate against the first's, peak memory, and the import's cost; beside
them a plain loop over the same rows that keeps no record, measured in the same run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROLLOUTS = 200_000
GROUP = 8


def write_rollouts(path: Path, rollouts: int) -> int:
    """Write made-up rollouts of about 650 bytes; return their mean size."""
    chance = random.Random(0)  # noqa: S311 - made-up rollouts
    with path.open("w") as file:
        for group in range(rollouts // GROUP):
            gold = chance.randint(2, 90_000)
            prompt = (
                f"Problem {group}: " + "A farmer has some apples and sells a few of them at the market. " * 4
            )
            for index in range(GROUP):
                told = gold if chance.random() < 0.5 else gold + chance.randint(1, 9)
                steps = "She sells some apples. " * chance.randint(9, 15)
                completion = f"{steps}So <<{told}-3={told - 3}>> we get {told}.\n#### {told}"
                row = {
                    "id": f"g{group}-{index}",
                    "prompt": prompt,
                    "completion": completion,
                    "answer": str(gold),
                }
                file.write(json.dumps(row) + "\n")
    return path.stat().st_size // rollouts


def score(path: str, out: str) -> None:
    """Score a file, in a process of its own, and print what it cost as JSON."""
    from steelyard import Options, Part, Recipe, builtin, score_file

    before = [time.perf_counter()]
    stages: dict[str, float] = {}
    marks: list[tuple[int, float]] = []
    last = ["start"]

    def progress(far):
        now = time.perf_counter()
        if far.stage != last[0]:
            stages[last[0]] = now - before[0]
            last[0], before[0] = far.stage, now
        if far.stage == "judging":
            marks.append((far.done, now))

    start = time.perf_counter()
    summary = score_file(
        path, Recipe((Part(builtin("gsm8k")),)), Path(out), options=Options(), progress=progress
    )
    end = time.perf_counter()
    stages[last[0]] = end - before[0]
    tenth = summary.rollouts // 10
    first = next(at for done, at in marks if done >= tenth) - start - stages.get("reading", 0.0)
    final = marks[-1][1] - next(at for done, at in marks if done >= summary.rollouts - tenth)
    told = {
        "rollouts": summary.rollouts,
        "taken_s": end - start,
        "stages_s": stages,
        "last_against_first": first / final,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    sys.stdout.write(json.dumps(told))


def plain_loop(path: Path) -> float:
    """Completions per second of a loop that reads, judges and keeps nothing."""
    from steelyard.rewards.answers import judge_gsm8k

    start = time.perf_counter()
    rows = 0
    with path.open() as file:
        for line in file:
            row = json.loads(line)
            judge_gsm8k(row["completion"], row)
            rows += 1
    return rows / (time.perf_counter() - start)


def import_cost_ms() -> float:
    """Milliseconds that `import steelyard` adds to a bare interpreter (median of pairs)."""

    def wall_s(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(wall_s("import steelyard") - wall_s("pass") for _ in range(9)) * 1e3


def main(rollouts: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rollouts.jsonl", Path(folder) / "scored.jsonl"
        size = write_rollouts(path, rollouts)
        done = subprocess.run(
            [sys.executable, __file__, "--score", path, out], check=True, capture_output=True, text=True
        )
        told = json.loads(done.stdout)
        loop = plain_loop(path)
    rate = told["rollouts"] / told["taken_s"]
    print(f"rollouts                     {told['rollouts']:>12,}  of {size} bytes, groups of {GROUP}")
    print(f"completions per second       {rate:>12,.0f}  everything included, one core")
    print(f"a plain loop, nothing kept   {loop:>12,.0f}  ratio {rate / loop:.2f}")
    names = {"start": "opening", "reading": "reading and lint", "judging": "entering, judging, leaving"}
    for stage, seconds in told["stages_s"].items():
        print(f"  {names.get(stage, stage):<27}{seconds / told['rollouts'] * 1e6:>12.2f}  us a completion")
    print(f"last tenth against the first {told['last_against_first']:>12.2f}  of its rate, while judging")
    print(f"peak memory                  {told['peak_mb']:>12.0f}  MB")
    print(f"import steelyard             {import_cost_ms():>12.0f}  ms over a bare interpreter")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--score"]:
        score(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROLLOUTS)
