"""Reward functions as TRL's users write them: worker processes import this file, so it imports no torch."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path


def words_of(code):
    """The script's word for each completion: the column is the same for a group, one word for each place."""
    size = len(code[0])
    return [column[row % size] for row, column in enumerate(code)]


def scored(completions, code, **_more):
    """What the script says."""
    return [float(word) for word in words_of(code)]


def one_too_many(completions, **_more):
    return [1.0] * (len(completions) + 1)


def always_raises(completions, **_more):
    raise ConnectionError("the checker is not there")


def spins(completion, code):
    """Never ends."""
    while True:
        pass


def dies_once(completions, code, marker, **_more):
    """Its process is killed at the first call of all; later ones are answered."""
    mark = Path(marker[0][0])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return scored(completions, code)


def length(completions, **_more):
    return [len(completion) / 100 for completion in completions]


def scaled(completions, by, **_more):
    return [by * len(completion) for completion in completions]


async def awaited(completions, completion_ids, **_more):
    await asyncio.sleep(0)
    return [1.0 if len(ids) % 2 else 0.0 for ids in completion_ids]


def of_columns(prompts, completions, code, trainer_state=None, log_metric=None, **_more):
    """Reads a column, and what TRL hands over beside it."""
    return [float(word) + 0.001 * len(prompt) for word, prompt in zip(words_of(code), prompts, strict=True)]


class Counting:
    """A callable instance."""

    __name__ = "counting"

    def __init__(self, letter):
        self.letter = letter

    def __call__(self, completions, **_more):
        return [float(completion.count(self.letter)) for completion in completions]


halved = partial(scaled, by=0.5)
counting = Counting("1")
