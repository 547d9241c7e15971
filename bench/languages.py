"""Completions per second in other languages, with ten inputs each, and what compiling and running cost.

    python bench/languages.py [COMPLETIONS]        default 40

The same small program in each language: it reads numbers, sorts them and writes them. A third of the
completions is wrong on the last input, so that every one is compiled once and run ten times; every verdict is
compared with what is known of the completion. CPU and wall are those of the candidates' own processes, as the
boundary measured them. Languages whose toolchain is not where candidates run are named and left out.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from rich.console import Console
from rich.table import Table

from steelyard import Rollout, builtin
from steelyard.clock import Clocks
from steelyard.errors import RefusedError
from steelyard.outcome import Context
from steelyard.sandbox.bubblewrap import Bubblewrap

COMPLETIONS, INPUTS = 40, 10

CPP = """#include <{header}>
#include <vector>
#include <algorithm>
int main() {{
    int n;
    std::cin >> n;
    std::vector<int> numbers(n);
    for (auto &number : numbers) std::cin >> number;
    std::sort(numbers.begin(), numbers.end());
    for (auto number : numbers) std::cout << number << (n == {wrong} ? "," : " ");
}}
"""
C = """#include <stdio.h>
#include <stdlib.h>
int less(const void *a, const void *b) {{ return (*(int *)a > *(int *)b) - (*(int *)a < *(int *)b); }}
int main(void) {{
    int n, numbers[1000];
    scanf("%d", &n);
    for (int i = 0; i < n; i++) scanf("%d", numbers + i);
    qsort(numbers, n, sizeof *numbers, less);
    for (int i = 0; i < n; i++) printf(n == {wrong} ? "%d," : "%d ", numbers[i]);
}}
"""
JAVA = """import java.util.*;
public class Main {{
    public static void main(String[] given) {{
        Scanner in = new Scanner(System.in);
        int[] numbers = new int[in.nextInt()];
        for (int i = 0; i < numbers.length; i++) numbers[i] = in.nextInt();
        Arrays.sort(numbers);
        for (int number : numbers) System.out.print(number + (numbers.length == {wrong} ? "," : " "));
    }}
}}
"""
JAVASCRIPT = """const text = require("fs").readFileSync(0, "utf8");
const [n, ...numbers] = text.split(/\\s+/).filter(Boolean).map(Number);
console.log(numbers.sort((a, b) => a - b).join(n === {wrong} ? "," : " "));
"""
PYTHON = """n, *numbers = map(int, open(0).read().split())
print(*sorted(numbers), sep="," if n == {wrong} else " ")
"""
PROGRAMS = (
    ("cpp, <iostream>", "cpp", CPP.replace("{header}", "iostream")),
    ("cpp, <bits/stdc++.h>", "cpp", CPP.replace("{header}", "bits/stdc++.h")),
    ("c", "c", C),
    ("java", "java", JAVA),
    ("javascript", "javascript", JAVASCRIPT),
    ("python, warm", "python", PYTHON),
)


def pairs() -> list[dict[str, str]]:
    chance = random.Random(1)  # noqa: S311
    some = [[chance.randint(-999, 999) for _ in range(number)] for number in range(90, 90 + INPUTS)]
    return [
        {"input": f"{len(n)}\n{' '.join(map(str, n))}\n", "output": " ".join(map(str, sorted(n)))}
        for n in some
    ]


async def measured(boundary: Bubblewrap, language: str, template: str, count: int) -> list[list[Clocks]]:
    """The clocks reported for each completion, in order: what was compiled, then after each run."""
    reward = builtin("tests", boundary=boundary, language=language, cpu_s=5.0)
    await reward.attest()
    reported: list[list[Clocks]] = [[] for _ in range(count)]

    async def judge(number: int) -> None:
        wrong = number % 3 == 0
        said = template.format(wrong=90 + INPUTS - 1 if wrong else -1)
        rollout = Rollout(number, "Sort.", said, {"tests": pairs()}, (0, number), number, f"row {number}")
        verdict = await reward(rollout, Context(report=reported[number].append))
        if (verdict.value, verdict.code) != ((0.0, "wrong_answer") if wrong else (1.0, None)):
            raise RuntimeError(f"{language}: completion {number} is {verdict}")

    await asyncio.gather(*(judge(number) for number in range(count)))
    return reported


async def main(count: int) -> None:
    table = Table("program", "completions/s", "compiling, CPU-s", "ten runs, CPU-s", "compiling, of the CPU")
    for name, language, template in PROGRAMS:
        boundary = Bubblewrap()
        try:
            await measured(boundary, language, template, 4)  # slots are warm, files are read
            began = time.perf_counter()
            reported = await measured(boundary, language, template, count)
            took_s = time.perf_counter() - began
        except RefusedError as error:
            table.add_row(name, f"left out: {error.reason[:60]}", "", "", "")
            continue
        finally:
            await boundary.close()
        compiled = [clocks[0].cpu_s or 0.0 if len(clocks) > INPUTS else 0.0 for clocks in reported]
        total = [clocks[-1].cpu_s or 0.0 for clocks in reported]
        compiling, running = sum(compiled) / count, (sum(total) - sum(compiled)) / count
        share = f"{compiling / (compiling + running):.0%}"
        table.add_row(name, f"{count / took_s:.1f}", f"{compiling:.3f}", f"{running:.3f}", share)
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else COMPLETIONS))
