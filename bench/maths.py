"""Agreement of `math` with labels, and its cost, against math-verify alone on the same rows.

Rows come from ../shared/data or $STEELYARD_DATA where it is present; the rates come from answers made here,
so they are measured everywhere. math-verify is given the gold in a box, and its own timeouts (SIGALRM). A
row is positive where it gets full marks; rows whose label depends on a documented policy have a line of
their own. Nothing of a row is printed but its id.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from steelyard.rewards import latex, maths, symbolic, values
from steelyard.rewards.maths import judge_here, math_fault

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("STEELYARD_DATA") or HERE.parent.parent / "shared" / "data")
FILES = ["gsm8k_tora_boxed", "gsm8k_openai_solutions", "math_qwen_cot", "answers_cases"]
HARD = {
    "a tower": r"10^{(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4)}",
    "9^9^9^9": "9^{9^{9^{9}}}",
    "24! x 24!": r"24! \times 24!",
    "an expanded power": "(x+1)^{5000}",
    "factorials": "3000!" * 300,
    "nested roots": r"\sqrt{" * 400 + "2" + "}" * 400,
    "a continued fraction": r"\frac{1}{1+" * 60 + "x" + "}" * 60,
    "100,000 digits": "7" * 100_000,
    "a product to a billion": r"\prod_{i=1}^{10^9} i",
    "a large matrix": r"\begin{pmatrix}" + r"\\".join(["&".join("1" * 40)] * 40) + r"\end{pmatrix}",
    "10,000 brackets": "(" * 10_000,
    "Python": "__import__('os').system('true')",
}

Judge = Callable[[str, object], bool]


def ours(completion: str, gold: object) -> bool:
    return judge_here(completion, {"answer": gold}).value == 1.0


def theirs(completion: str, gold: object) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"\\boxed{{{gold}}}"), parse(completion)))


def label(row: dict) -> bool | None:
    fixed = row.get("label_fixed")
    return row["known_label"] if fixed is None else fixed


def measure(rows: list[dict], judge: Judge) -> tuple[Counter, list[float], list[str]]:
    counts: Counter = Counter()
    costs: list[float] = []
    errors: list[str] = []
    judge(r"\boxed{\sqrt{2}}", r"\sqrt{3}")  # what is imported on first use
    for row in rows:
        start = time.thread_time()
        right = judge(row["completion"], row["answer"])
        costs.append((time.thread_time() - start) * 1e6)
        if (wanted := label(row)) is None:
            counts["unlabelled"] += 1
            continue
        kind = ("T" if right == wanted else "F") + ("P" if right else "N")
        counts[kind] += 1
        if kind[0] == "F":
            errors.append(f"{kind} {row['id']}")
    return counts, sorted(costs), errors


def parts(name: str) -> list[tuple[str, list[dict]]]:
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [row for row in rows if row.get("reward", "math") == "math" and not math_fault(row)]
    return [
        (f"{name}{' (policy)' if policy else ''}", [row for row in rows if bool(row.get("policy")) == policy])
        for policy in sorted({bool(row.get("policy")) for row in rows})
    ]


def agreement(console: Console) -> None:
    table = Table(title=f"math on {DATA}, CPU time")
    for column in ("file", "judge", "TP", "FP", "FN", "TN", "p50 us", "p99 us", "per second"):
        table.add_column(column, justify="left" if column in {"file", "judge"} else "right")
    missed: list[str] = []
    for name, rows in (part for file in FILES for part in parts(file)):
        for who, judge in (("math", ours), ("math-verify", theirs)):
            counts, costs, errors = measure(rows, judge)
            table.add_row(
                name,
                who,
                *(str(counts[kind]) for kind in ("TP", "FP", "FN", "TN")),
                *(f"{costs[int(len(costs) * q)]:.0f}" for q in (0.5, 0.99)),
                f"{len(costs) / sum(costs) * 1e6:,.0f}",
            )
            missed += [f"{name}: {error}" for error in errors if who == "math"]
    console.print(table)
    for line in missed[:40]:
        console.print(line)


def integers(count: int) -> list[tuple[str, str]]:
    """Completions of a few hundred characters that end in a boxed integer."""
    draw = random.Random(1)  # noqa: S311 - the same answers every time
    prose = "First we add the apples of both days, then we take away what was sold. " * 6
    pairs = []
    for _ in range(count):
        gold = draw.randint(1, 5_000)
        said = gold if draw.random() < 0.7 else gold + 1
        pairs.append((f"{prose}So there are $\\boxed{{{said}}}$ left.", str(gold)))
    return pairs


def formulas(count: int) -> list[tuple[str, str]]:
    """Answers like those of contests, no two alike, half of them right and written differently."""
    draw = random.Random(2)  # noqa: S311 - the same answers every time
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        a, b, c, d = (draw.randint(2, 97) for _ in range(4))
        x, y = draw.sample("xyzabnt", 2)
        pairs += [
            (rf"\dfrac{{{2 * a}\sqrt{{{b}}}}}{{{2 * c}}}", rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}"),
            (rf"{x}({a}{x}+{b})-{c}", rf"{a}{x}^2+{b}{x}-{c}"),
            (rf"{a}{x}^2-{b}{x}-{c}", rf"{a}{x}^2+{b}{x}-{c}"),
            (rf"({a}, {b}\pi/{c})", rf"\left({a},\frac{{{b}\pi}}{{{c}}}\right)"),
            (rf"({a},\infty)", rf"[{a},\infty)"),
            (rf"{b}i+{a}", rf"{a}+{b}i"),
            (rf"\{{{c + 100},{a},{b}\}}", rf"\{{{a},{b},{c + 100}\}}"),
            (rf"{a}\sqrt{{{b}}}+\sqrt{{{c}}}", rf"{a}\sqrt{{{b}}}-\sqrt{{{c}}}"),
            (rf"y-{b}={a}x", rf"y={a}x+{b}"),
            (rf"\frac{{{a}+{x}}}{{-{b}+{y}}}", rf"\frac{{{x}+{a}}}{{{y}-{b}}}"),
            (rf"\begin{{pmatrix}}{a}\\{d}\end{{pmatrix}}", rf"\begin{{pmatrix}}{a}\\{c}\end{{pmatrix}}"),
            (rf"1-\cos^2({a}{x})", rf"\sin^2({a}{x})"),
            (rf"\frac{{\ln {b}}}{{\ln {a}}}", rf"\log_{{{a}}}{b}"),
            (rf"{a} \le {x} < {a + b}", rf"[{a},{a + b})"),
        ]  # fmt: skip
    return [(f"Hence the answer is $\\boxed{{{said}}}$.", gold) for said, gold in pairs[:count]]


def cold() -> None:
    for module in (latex, maths, symbolic, values):
        for known in vars(module).values():
            if hasattr(known, "cache_clear"):
                known.cache_clear()


def rates(console: Console) -> None:
    table = Table(title="CPU time of one core; golds prepared, no answer seen before")
    for column in ("answers", "judge", "calls", "per second", "p50 us", "p99 us", "max us"):
        table.add_column(column, justify="left" if column in {"answers", "judge"} else "right")
    for name, pairs in (("integers", integers(20_000)), ("LaTeX", formulas(7_000))):
        for who, judge, limit in (("math", ours, len(pairs)), ("math-verify", theirs, 210)):
            cold()
            costs = []
            for completion, gold in pairs[:limit]:
                judge("\\boxed{0}", gold)
                start = time.thread_time()
                judge(completion, gold)
                costs.append((time.thread_time() - start) * 1e6)
            costs.sort()
            table.add_row(
                name,
                who,
                f"{len(costs):,}",
                f"{len(costs) / sum(costs) * 1e6:,.0f}",
                *(f"{costs[int(len(costs) * q)]:.0f}" for q in (0.5, 0.99)),
                f"{costs[-1]:.0f}",
            )
    console.print(table)


def hard(console: Console) -> None:
    table = Table(title="answers that must not cost anything, gold 5")
    for column in ("answer", "code", "reason", "ms"):
        table.add_column(column, justify="right" if column == "ms" else "left")
    for name, said in HARD.items():
        start = time.perf_counter()
        verdict = judge_here(f"\\boxed{{{said}}}", {"answer": "5"})
        table.add_row(name, verdict.code, verdict.reason, f"{(time.perf_counter() - start) * 1e3:.2f}")
    console.print(table)


WARM = """
import resource, time
def held(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
start, before = time.perf_counter(), held()
from steelyard.rewards.maths import judge_here
from steelyard.rewards.symbolic import warm
light, mb = time.perf_counter() - start, held()
warm()
print(f"import {light * 1e3:.0f} ms, {mb:.0f} MB held; warm() {(time.perf_counter() - start - light) * 1e3:.0f} ms, {held():.0f} MB held")
"""  # noqa: E501 - a program in a string


def main() -> int:
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    console = Console(width=130)
    if DATA.is_dir():
        agreement(console)
    else:
        console.print(
            f"bench/maths: {DATA} is no folder; set STEELYARD_DATA to the folder with the labelled rows"
        )
    rates(console)
    hard(console)
    subprocess.run([sys.executable, "-c", WARM], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
