"""What a price predicts of a GRPO loop, and what the loop then takes: predicted and measured, with intervals.

Two loops train in turn, step by step, on the same waits: one waits for its whole batch, the other trains on
each group as it comes. The first one's ledger is priced. The remedy `groups` predicts the step of the
second; the calls of the first, drawn anew, predict its own. Waits are injected (`tests/waiting_loop.py`): at
least 80 % of the step on a machine that does nothing else.

    python bench/grpo_priced.py [STEPS] [SEED] [SCALE of the waits]

Fails where a prediction is off by more than 5 %, or less than 80 % of the plain step waits.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from steelyard import price_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from waiting_loop import drawn, in_turn

LIMIT, WAITS = 0.05, 0.8


def said(estimate):
    if estimate.low is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    scale = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ledgers = in_turn(Path(folder), drawn(seed, steps, scale))
        waiting, arriving = map(price_file, ledgers)
    remedy = next(one for one in waiting.remedies if one.name == "groups")
    table = Table("step, in seconds", "predicted", "measured", "off by")
    worst = 0.0
    for name, predicted, shown, measured in (
        ("trained on arrival", remedy.after.value, said(remedy.after), arriving.step),
        *(
            (f"as a batch, {words}", waiting.busy.value + barrier.value, None, waiting.step)
            for words, barrier in (
                ("calls drawn anew", waiting.independent),
                ("groups drawn anew", waiting.correlated),
            )
        ),
    ):
        off = predicted / measured.value - 1
        worst = max(worst, abs(off))
        table.add_row(name, shown or f"{predicted:.3f}", said(measured), f"{off:+.1%}")
    console = Console()
    console.print(table)
    console.print(
        f"{steps} steps, {waiting.idle.value:.0%} of the plain one waits; {said(remedy.saves)} s predicted "
        f"to be saved, {waiting.step.value - arriving.step.value:.3f} s saved"
    )
    return 1 if worst > LIMIT or waiting.idle.value < WAITS else 0


if __name__ == "__main__":
    sys.exit(main())
