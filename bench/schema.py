"""The reward `schema`: its speed beside a bare validator's, and its agreement with labels.

The bare loop is `json.loads` and `jsonschema_rs`'s `is_valid` with a compiled validator: it reads NaN, keys
twice and no fence. Ours is `reward(batch, Context())` on one core, the schema an object of each row's own
or one for all. Labelled rows come from ../shared/data or $STEELYARD_DATA; nothing of a row is printed but
its id.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
from rich.console import Console
from rich.table import Table

from steelyard.outcome import Context
from steelyard.rewards.base import TextReward
from steelyard.rewards.schema import schema
from steelyard.rollout import Rollout

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("STEELYARD_DATA") or HERE.parent.parent / "shared" / "data")
ROWS, ROUNDS = 20_000, 5
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def person(at: int, **more: object) -> str:
    return json.dumps({"name": f"Ann {at}", "age": at, "tags": ["a", "b"], **more})


KINDS: dict[str, Callable[[int], str]] = {
    "valid": person,
    "invalid": lambda at: person(at, age=-1),
    "malformed": lambda at: person(at)[:-1] + ",}",
    "in a fence": lambda at: f"Here it is:\n```json\n{person(at)}\n```",
    "in prose": lambda at: f"Here it is: {person(at)} as you wished.",
    "after thinking": lambda at: f"<think>{'let me see. ' * 50}</think>\n{person(at)}",
    "with \\u escapes": lambda at: person(at, name=f"Änn {at}"),
    "a long integer": lambda at: person(at, age=10**20 + at),
}


def rate(run: Callable[[], object]) -> float:
    best = 0.0
    for _ in range(ROUNDS):
        start = time.process_time()  # of this process: what else the machine does is not counted
        run()
        best = max(best, ROWS / (time.process_time() - start))
    return best


def speeds() -> Table:
    table = Table(title=f"completions per CPU second, small objects, best of {ROUNDS} rounds of {ROWS:,}")
    for column in ("completion", "characters", "a schema per row", "one for all", "bare loop", "lint us/row"):
        table.add_column(column, justify="left" if column == "completion" else "right")
    validator = jsonschema_rs.validator_for(PERSON)
    for kind, make in KINDS.items():
        texts = [make(at) for at in range(ROWS)]
        columns = [{"schema": json.loads(json.dumps(PERSON))} for _ in texts]
        cells = []
        for reward, its in ((schema(), columns), (schema(schema=PERSON), [{}] * ROWS)):
            batch = [
                Rollout(at, "p", text, own, (0, at), at, "bench")
                for at, (text, own) in enumerate(zip(texts, its, strict=True))
            ]
            cells.append(f"{rate(lambda reward=reward, batch=batch: reward(batch, Context())):,.0f}")
        bare = "cannot read it"
        if texts[0].startswith("{") and kind != "malformed":
            bare = f"{rate(lambda texts=texts: [validator.is_valid(json.loads(t)) for t in texts]):,.0f}"
        lint = schema().lint
        lint_us = 1e6 / rate(lambda lint=lint, columns=columns: [lint(row) for row in columns])
        table.add_row(kind, str(len(texts[0])), *cells, bare, f"{lint_us:.1f}")
    return table


def agreement() -> tuple[Table, list[str]]:
    table = Table(title=f"agreement on {DATA}")
    for column in ("file", "settings", "rows", "bad schema", "differ", "of these policy", "p50 us", "p99 us"):
        table.add_column(column, justify="left" if column in ("file", "settings") else "right")
    told: list[str] = []
    for name in ("schema_test_suite", "schema_llm_instances", "json_text_cases"):
        path = DATA / f"{name}.jsonl"
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for words, reward in (
            ("", schema()),
            ("formats", schema(formats=True)),
            ("strict", schema(strict=True)),
        ):
            bad, differ, costs = compared(rows, reward)
            policy = sum(bool(row.get("policy")) for row in differ)
            told += [f"{name} {words}: {row['id']}" for row in differ]
            costs.sort()
            p50, p99 = (f"{costs[int(len(costs) * share)]:.1f}" for share in (0.5, 0.99))
            table.add_row(name, words, *map(str, (len(rows), len(bad), len(differ), policy)), p50, p99)
    return table, told


def compared(rows: list[dict], reward: TextReward) -> tuple[list[dict], list[dict], list[float]]:
    bad, differ, costs = [], [], []
    for row in rows:
        if reward.lint(row):  # compiles the schema, too
            bad.append(row)
            continue
        start = time.perf_counter_ns()
        verdict = reward.rule(row["completion"], row)
        costs.append((time.perf_counter_ns() - start) / 1e3)
        if row["known_label"] is not None and (verdict.value == 1.0) != row["known_label"]:
            differ.append(row)
    return bad, differ, costs


def main() -> int:
    console = Console(width=130)
    console.print(speeds())
    if not DATA.is_dir():
        print(f"bench/schema: {DATA} is no folder; set STEELYARD_DATA to the folder with the labelled rows")
        return 0
    table, told = agreement()
    console.print(table)
    for line in told:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
