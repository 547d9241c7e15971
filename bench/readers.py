"""How long reading other trainers' files takes, and what memory it needs: a million rollouts of each.

python bench/readers.py            # all
python bench/readers.py 100000     # of so many rollouts
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "files"))
from foreign_files import TrlRun, episode, result_row, verl_rows

BATCH, GROUP = 512, 8
TEXT = "word " * 200  # a completion of a thousand characters


def trl(folder: Path, rows: int, *, chat: bool = False) -> None:
    rng = np.random.default_rng(0)
    run = TrlRun(folder, batch=BATCH, group=GROUP)
    for step in range(rows // BATCH):
        prompts = np.repeat([f"{TEXT} {step}.{at}" for at in range(BATCH // GROUP)], GROUP).tolist()
        said = [f"{TEXT} {step} {at}" for at in range(BATCH)]
        if chat:
            prompts = [[{"role": "user", "content": one}] for one in prompts]
            said = [[{"role": "assistant", "content": one}] for one in said]
        value = (rng.random(BATCH) < 0.5).astype(float).tolist()
        run.generate(
            prompts, said, {"code": value}, steelyard__service_s=rng.lognormal(0.7, 0.3, BATCH).tolist()
        )
        run.log(step)


def verl(folder: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    for step in range(rows // BATCH):
        its = verl_rows(rng, step, samples=BATCH // GROUP, group=GROUP)
        with (folder / f"{step}.jsonl").open("w") as file:
            file.writelines(json.dumps({**row, "output": TEXT}) + "\n" for row in its)


def results(folder: Path, rows: int) -> None:
    with (folder / "results.jsonl").open("w") as file:
        for at in range(rows):
            row = result_row(
                at // GROUP, float(at % 2), start=1.7e9 + at, scoring=(10.0, 12.0 + at % 100 / 100)
            )
            file.write(json.dumps({**row, "completion": [{"role": "assistant", "content": TEXT}]}) + "\n")


def traces(folder: Path, rows: int) -> None:
    with (folder / "traces.jsonl").open("w") as file:
        for at in range(rows):
            reward = {"tests": {"score": float(at % 2), "weight": 1.0}}
            row = episode(str(at), group=str(at // GROUP), step=at // BATCH, rewards=reward)
            row["traces"][0]["nodes"] = [{"message": {"role": "assistant", "content": TEXT}}]
            file.write(json.dumps(row) + "\n")


READ = """
import resource, sys, time
from pathlib import Path
from steelyard.files.foreign import read_foreign
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, used = time.perf_counter(), time.process_time()
rows = len(read_foreign(Path(sys.argv[1])).observed.rows)
seconds, cpu = time.perf_counter() - began, time.process_time() - used
more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(f"{rows:>9,} rows {seconds:6.1f} s ({cpu:.1f} s of CPU), {more:.0f} MB more")
"""


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    cases = {"TRL, text": trl, "TRL, chat": lambda f, n: trl(f, n, chat=True), "verl": verl}
    cases |= {"verifiers results": results, "verifiers traces": traces}
    for name, write in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            write(Path(folder), rows)
            size = sum(one.stat().st_size for one in Path(folder).iterdir()) / 2**20
            print(
                f"{name:<18} {size:6.0f} MB, written in {time.perf_counter() - began:4.0f} s:",
                end="",
                flush=True,
            )
            read = subprocess.run(
                [sys.executable, "-c", READ, folder], check=True, capture_output=True, text=True
            )
            print(read.stdout, end="", flush=True)


if __name__ == "__main__":
    main()
