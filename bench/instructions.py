"""The kinds of the reward `instructions` on recorded verdicts of the published checker, and what they cost.

For each kind in ../shared/data (or $STEELYARD_DATA): how often it was asked, how many of our verdicts agree
with the recorded ones, how many would if nothing were ever followed (the baseline), whether a full stop
alone follows it, and the cost per completion beside that of splitting the text into words. Kinds that a
package must check are listed with what is missing here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from steelyard.rewards.instructions import KINDS, instructions_fault, judge_instructions

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("STEELYARD_DATA") or HERE.parent.parent / "shared" / "data")
FILE = "instructions_ifbench.jsonl"
TIMES = 5


def cost_us(call, *arguments) -> float:
    """The quickest of a few calls."""
    took = []
    for _ in range(TIMES):
        start = time.perf_counter_ns()
        call(*arguments)
        took.append(time.perf_counter_ns() - start)
    return min(took) / 1e3


def one(id_: str, arguments: dict) -> dict:
    return {"instruction_id_list": [id_], "kwargs": [arguments]}


def table_of(rows: list[dict]) -> tuple[Table, dict[str, str], list[str]]:
    asked = defaultdict(list)
    for row in rows:
        for place, id_ in enumerate(row["instruction_id_list"]):
            asked[id_].append((row, row["kwargs"][place], row["per_instruction"][place]))
    table = Table(title=f"instructions: recorded verdicts in {DATA / FILE}")
    for column in ("kind", "asked", "agree", "never", "'.' follows", "p50 us", "max us", "words us"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    faults, differ, sums = {}, [], [0, 0, 0]
    for id_, cases in sorted(asked.items()):
        fault = instructions_fault(one(id_, cases[0][1]))
        if fault:
            faults[id_] = f"{len(cases)} asked here; {fault}"
            continue
        agree, costs, plain = 0, [], []
        for row, arguments, recorded in cases:
            columns = one(id_, arguments)
            followed = judge_instructions(row["completion"], columns).value == 1.0
            agree += followed == recorded
            differ += [] if followed == recorded else [f"{row['id']} {id_}: recorded {recorded}"]
            costs.append(cost_us(judge_instructions, row["completion"], columns))
            plain.append(cost_us(row["completion"].split))
        never = sum(not recorded for _, _, recorded in cases)
        farmed = judge_instructions(".", one(id_, cases[0][1])).value == 1.0
        costs.sort()
        figures = (costs[len(costs) // 2], costs[-1], sorted(plain)[len(plain) // 2])
        table.add_row(
            id_,
            *map(str, (len(cases), agree, never)),
            "yes" if farmed else "",
            *(f"{f:.0f}" for f in figures),
        )
        sums = [total + more for total, more in zip(sums, (len(cases), agree, never), strict=True)]
    table.add_section()
    table.add_row("all of these", *map(str, sums), "", "", "", "")
    return table, faults, differ


def whole_rows(rows: list[dict]) -> str:
    """Agreement on rows whose kinds can all be checked here, strict and loose."""
    sound = [row for row in rows if instructions_fault(row) is None]
    agree = [
        sum(
            (judge_instructions(row["completion"], row, loose=loose).value == 1.0) == row[label]
            for row in sound
        )
        for loose, label in ((False, "known_label"), (True, "label_loose"))
    ]
    return f"rows whose kinds can all be checked: {len(sound)}; agree: strict {agree[0]}, loose {agree[1]}"


def main() -> int:
    console = Console(width=130)
    path = DATA / FILE
    rows = []
    if path.exists():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        table, faults, differ = table_of(rows)
        console.print(table)
        print(whole_rows(rows))
        for line in differ:
            print(f"differs: {line}")
        for fault in faults.values():
            print(f"not checked here: {fault}")
    else:
        print(
            f"bench/instructions: {path} is absent; set STEELYARD_DATA to the folder with the labelled rows"
        )
    seen = {id_ for row in rows for id_ in row["instruction_id_list"]}
    absent = {id_: kind.absent() for id_, kind in KINDS.items()}
    here = sorted(id_ for id_, why in absent.items() if why is None and id_ not in seen)
    print(f"{len(KINDS)} kinds, {sum(why is None for why in absent.values())} of them checked here")
    print(f"checked, but in no row of the file: {', '.join(here)}")
    for id_, why in absent.items():
        if why is not None and id_ not in seen:
            print(f"not checked here: {id_}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
