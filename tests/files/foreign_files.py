"""Files as other trainers write them, made here; `docs/readers.md` names the writers that were read."""

from __future__ import annotations

import json
from collections import defaultdict, deque

import numpy as np


class TrlRun:
    """What TRL keeps of its completions, and writes at every log: one deque of a batch for each column."""

    def __init__(self, folder, *, batch, group, weights=None, scale="group"):
        self.folder, self.batch, self.group, self.weights, self.scale = folder, batch, group, weights, scale
        self.logs = {name: deque(maxlen=batch) for name in ("prompt", "completion", "advantage")}
        self.rewards = defaultdict(lambda: deque(maxlen=batch))
        self.extra = defaultdict(lambda: deque(maxlen=batch))
        folder.mkdir(parents=True, exist_ok=True)

    def generate(self, prompts, completions, rewards, **extra):
        """One batch; `rewards` by name, None where a function gave none; `extra` is what was logged in it."""
        self.logs["prompt"].extend(prompts)
        self.logs["completion"].extend(completions)
        parts = np.array([[np.nan if v is None else v for v in one] for one in rewards.values()]).T
        weights = np.ones(parts.shape[1]) if self.weights is None else np.array(self.weights)
        total = np.where(np.isnan(parts).all(1), np.nan, np.nansum(parts * weights, axis=1))
        for name, column in zip(rewards, parts.T, strict=True):
            self.rewards[name].extend(column.tolist())
        self.logs["advantage"].extend(advantages(total, self.group, self.scale).tolist())
        for name, values in sorted(extra.items()):
            self.extra[name.replace("__", "/")].extend(values)

    def log(self, step):
        """Write the file of a step, as pandas does."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = {
            "step": [step] * len(self.logs["prompt"]),
            "prompt": list(self.logs["prompt"]),
            "completion": list(self.logs["completion"]),
            **{name: list(values) for name, values in self.rewards.items()},
            **{name: list(values) for name, values in self.extra.items()},
            "advantage": list(self.logs["advantage"]),
        }
        path = self.folder / f"completions_{step:05d}.parquet"
        columns = {name: pa.array(column, from_pandas=True) for name, column in table.items()}
        pq.write_table(pa.table(columns), path)
        return path


def advantages(total, group, scale):
    out = []
    every = total[~np.isnan(total)]
    for start in range(0, len(total), group):
        one = total[start : start + group]
        valid = one[~np.isnan(one)]
        mean = valid.mean() if len(valid) else np.nan
        spread = valid.std(ddof=1) if len(valid) > 1 else np.nan
        if scale == "batch":
            spread = every.std(ddof=1) if len(every) > 1 else np.nan
        out += list((one - mean) / (1.0 if scale == "none" else spread + 1e-4))
    return np.nan_to_num(np.array(out).astype(np.float32), nan=0.0).astype(float)


def trl_batch(rng, step, *, groups, group, chat=False):
    """Prompts and completions of a batch, and rewards that are right at random."""
    prompts, completions = [], []
    for of in range(groups):
        text = f"Problem {step}.{of}"
        prompts += [[{"role": "user", "content": text}] if chat else text] * group
        said = [f"answer {step}.{of}.{at}" for at in range(group)]
        completions += [[{"role": "assistant", "content": one}] for one in said] if chat else said
    return prompts, completions, (rng.random(groups * group) < 0.5).astype(float).tolist()


def write_lines(path, rows, *, torn=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return path


def verl_rows(rng, step, *, samples, group, uid=False, **extra):
    """Rows of one step, shuffled unless they have a `uid` (then sorted by it, as the v1 trainer does)."""
    rows = [
        {
            "input": f"user\nProblem {step}.{sample}\nassistant\n",
            "output": f"answer {at}",
            "gts": str(sample),
            "score": float(rng.random() < 0.5),
            "step": step,
            **({"uid": f"s{sample}_{at}_0"} if uid else {}),
        }
        for sample in range(samples)
        for at in range(group)
    ]
    for name, values in extra.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    if not uid:
        rng.shuffle(rows)
    return rows


def result_row(example, reward, *, start=1_700_000_000.0, scoring=(10.0, 12.0), error=None):
    """One line of verifiers 0.1.14; times are seconds after `start`."""

    def span(begin, end):
        return {"start": start + begin, "end": start + end, "duration": end - begin}

    row = {
        "example_id": example,
        "prompt": [{"role": "user", "content": f"Problem {example}"}],
        "completion": [{"role": "assistant", "content": "answer"}],
        "reward": reward,
        "error": error,
        "timing": {
            "start_time": start,
            "setup": span(0.0, 0.5),
            "generation": span(0.5, scoring[0]),
            "scoring": span(*scoring),
            "model": {"spans": [], "duration": 0.0},
            "env": {"spans": [], "duration": 0.0},
            "total": scoring[1] - 0.5,
            "overhead": 0.0,
        },
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "has_error" if error else "max_turns_reached",
        "metrics": {"correct": reward},
        "tool_defs": None,
        "correct": reward,
    }
    if error:
        row["error_chain"] = error["error_chain_repr"]
    return row


FAILED = {"error": "SandboxError", "error_chain_repr": "SandboxError()", "error_chain_str": "SandboxError"}


def episode(
    name,
    *,
    group=None,
    step=None,
    rewards=None,
    scoring=(10.0, 12.0),
    ok=True,
    stop="agent_completed",
    limit=None,
):
    """One line of verifiers 0.4: nulls of fields left out, those in `rewards` kept."""
    start = 1_700_000_000.0
    spans = {"agent": {"start": start + 1, "end": start + scoring[0], "model": {"duration": 5.0}}}
    if scoring[1]:
        spans["scoring"] = {"start": start + scoring[0], "end": start + scoring[1]}
    timeout = stop.endswith("_timeout")
    task = {"type": "Task", "data": {"idx": 0, "prompt": "p"}, "key": f"task-{name}", "hash": "h"}
    if limit is not None:
        task["data"]["timeout"] = {"scoring": limit}
    trace = {
        "version": 1,
        "id": f"trace-{name}",
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": [],
        "calls": [],
        "rewards": rewards or {},
        "metrics": {},
        "info": {},
        "is_completed": True,
        "ok": ok,
        "stop_condition": stop,
        "is_timeout": timeout,
        "errors": [] if ok else [{"type": "SandboxError", "message": "gone"}],
        "timing": {"start": start, "boot": {"start": 0.0, "end": 0.0}, **spans},
    }
    row = {
        "id": f"episode-{name}",
        "env": {"id": "env"},
        "task": task,
        "ok": ok,
        "is_timeout": False,
        "errors": [],
    }
    if group is not None:
        row["group"] = {"id": group}
    if step is not None:
        row["run"] = {"type": "train", "id": "r", "work": {"type": "train", "step": step}}
    return {**row, "traces": [trace], "num_total_tokens": 10}
