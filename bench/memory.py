"""How far the planner is from measured peaks: `python bench/memory.py [POINTS.csv ...]`.

Each file has the columns of `steelyard.memory.points`; `steelyard fit --verify --points FILE` writes such
files.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import fmean, median
from time import perf_counter

from steelyard.memory import cards
from steelyard.memory import estimate as reckoning
from steelyard.memory.catalogue import shape_of
from steelyard.memory.estimate import estimate
from steelyard.memory.fit import fit
from steelyard.memory.plan import Plan
from steelyard.memory.points import LeftOpen, predicted, read_point

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "memory" / "points.csv"

LEFT_OPEN = {
    "vramcalc": LeftOpen(targets=("q_proj", "k_proj", "v_proj", "o_proj"), momentum=True),
    "prime-rl": LeftOpen(chunk_vocabulary=8192),
}
"""What their code does: vramcalc 0.1.2, bench.py; prime-rl, trainer/models/layers/lm_head.py. prime-rl adapts
every linear layer."""


def main() -> None:
    paths = [Path(word) for word in sys.argv[1:]] or [SHARED]
    if not paths[0].is_file():
        print(f"no file {paths[0]}: name one")
        return
    card = cards.card("H100 80GB")  # no engine runs in these, so that the card does not matter
    points = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                points.append(read_point(row, shape_of, place=f"{path.name}:{number}", left_open=LEFT_OPEN))
    for kind in ("max_memory_reserved", "max_memory_allocated"):
        chosen = [point for point in points if point.kind == kind]
        if not chosen:
            continue
        print(f"\n{kind}, GiB\n\n| run | measured | estimate | off |\n|---|---|---|---|")
        errors = []
        for point in chosen:
            said = predicted(point, card)
            errors.append(said / point.measured - 1)
            print(f"| {point.said} | {point.measured / 2**30:.2f} | {said / 2**30:.2f} | {errors[-1]:+.1%} |")
        size = [abs(error) for error in errors]
        print(
            f"\n{len(size)} rows: mean {fmean(size):.1%}, median {median(size):.1%}, worst {max(size):.1%}, "
            f"bias {fmean(errors):+.1%}, over 10 %: {sum(error > 0.1 for error in size)}"
        )
        if kind == "max_memory_reserved":
            sensitivity(chosen, card)
    speed(card)


def speed(card):
    """What an estimate, and a whole fit, take."""
    plan = Plan(model=shape_of("Qwen3-8B"))
    fit(plan, card)  # the catalogue is read once
    print("\n| | ms |\n|---|---|")
    for name, run, times in (("an estimate", estimate, 200), ("a fit: levers, limits", fit, 5)):
        begun = perf_counter()
        for _ in range(times):
            run(plan, card)
        print(f"| {name} | {1e3 * (perf_counter() - begun) / times:.1f} |")


def sensitivity(points, card):
    """What another share of fragmentation would do."""
    used = reckoning.FRAGMENTATION
    print("\n| fragmentation | mean error | worst | bias |\n|---|---|---|---|")
    for share in (0.0, 0.01, 0.02, 0.03, 0.05):
        reckoning.FRAGMENTATION = share
        errors = [predicted(point, card) / point.measured - 1 for point in points]
        size = [abs(error) for error in errors]
        print(f"| {share:.0%} | {fmean(size):.1%} | {max(size):.1%} | {fmean(errors):+.1%} |")
    reckoning.FRAGMENTATION = used


if __name__ == "__main__":
    main()
