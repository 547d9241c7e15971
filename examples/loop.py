"""A training loop whose rewards have a tail, recorded: `python examples/loop.py out/loop.ledger`.

Nothing is trained here: generation, training and the reward sleep for about a hundredth of what they take in
life, twelve seconds in all. One test suite in a hundred hangs, as those of generated code do, and is cut at a
timeout; its completion gets 0, as most trainers do it. What is recorded is real: `steelyard price
out/loop.ledger` says what that costs.
"""

import asyncio
import random
import sys

from steelyard import record_steps

STEPS, PROMPTS, SIZE = 40, 8, 8
GENERATION_S, TRAINING_S, TIMEOUT_S = 0.08, 0.06, 0.3
SHORTEST_S, LONGEST_S, HANGS_S = 0.005, 0.035, 60.0


async def tests(seconds: float) -> float:
    """Run a test suite that takes so long; the quicker half passes."""
    await asyncio.sleep(seconds)
    return float(seconds < (SHORTEST_S + LONGEST_S) / 2)


async def reward(steps, prompt: int, member: int, seconds: float) -> float:
    """Ask the tests under a timeout, and record that."""
    with steps.call(group=prompt, member=member) as call:
        try:
            value = await asyncio.wait_for(tests(seconds), TIMEOUT_S)
        except TimeoutError:
            call.cut("timeout")
            value = 0.0
        call.value(value)
    return value


async def train(path: str) -> None:
    """Do forty steps, each with a barrier over its batch."""
    rng = random.Random(8)
    with record_steps(path) as steps:
        for _ in range(STEPS):
            takes = [
                [HANGS_S if rng.random() < 0.01 else rng.uniform(SHORTEST_S, LONGEST_S) for _ in range(SIZE)]
                for _ in range(PROMPTS)
            ]
            with steps.step():
                with steps.phase("generation"):
                    await asyncio.sleep(GENERATION_S)
                with steps.phase("reward"):
                    await asyncio.gather(
                        *(
                            reward(steps, prompt, member, seconds)
                            for prompt, of_prompt in enumerate(takes)
                            for member, seconds in enumerate(of_prompt)
                        )
                    )
                with steps.phase("training"):
                    await asyncio.sleep(TRAINING_S)


if __name__ == "__main__":
    asyncio.run(train(sys.argv[1]))
