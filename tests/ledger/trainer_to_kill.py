"""Score one step after another into a ledger written behind; say each when it has been handed on."""

import asyncio
import sys

from steelyard.ledger import Ledger
from steelyard.outcome import Part
from steelyard.rewards import Recipe, builtin
from steelyard.rollout import Group, Rollout
from steelyard.runtime import Runtime


def group_of(number):
    rows = [
        Rollout(i, "1 + 1?", f"#### {i % 3}", {"answer": "2"}, (number, i % 2), i, f"row {i}")
        for i in range(2 * number, 2 * number + 2)
    ]
    return Group(number, number, rows)


async def main(path):
    reward = builtin("gsm8k")
    ledger = Ledger(path)
    run = ledger.begin("run", {}, {reward.name: reward.identity})
    async with Runtime(Recipe((Part(reward),)), ledger=ledger, run=run, durability="step") as runtime:
        for step in range(10_000):
            async for _ in runtime.score([group_of(n) for n in range(4 * step, 4 * step + 4)], step=step):
                pass
            print(step, flush=True)  # noqa: T201 - who kills it reads on


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
