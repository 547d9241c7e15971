"""Rewards as users write them: found by worker processes through this module's name, or its path."""

import asyncio
import os
import time
from functools import partial, wraps

import steelyard
from steelyard.outcome import Scored


def right(completion, answer):
    """A plain function."""
    return completion.strip() == str(answer)


@steelyard.reward
def decorated(completion: str) -> float:
    return float(len(completion))


@steelyard.reward(name="own name", floor=-1.0)
def with_settings(completion: str) -> float:
    return -1.0 if completion == "bad" else 1.0


def everything(rollout, prompt, completion, context, answer, /, tolerance=0.25, *, scale=2.0, **more):  # noqa: PLR0917
    said = (
        prompt,
        completion,
        answer,
        tolerance,
        scale,
        sorted(more),
        context.deadline_s is None,
        rollout.id,
    )
    return Scored(1.0, reason=repr(said))


def raises(completion):
    if completion.startswith("raise"):
        raise ValueError(f"on {completion}")
    return 1.0


def act(completion):
    """Do what the completion says."""
    if completion == "spin":
        while True:
            pass
    if completion == "die":
        os._exit(0)
    if completion == "exit":
        raise SystemExit(0)
    if completion == "sleep":
        time.sleep(600)
    if completion == "memory":
        raise MemoryError
    return 1.0


def returns(completion):
    return {
        "nan": float("nan"),
        "none": None,
        "abstain": steelyard.Abstained("no"),
        "unscored": steelyard.Unscored("judge:x", "no"),
        "true": True,
        "reason": Scored(0.5, "wrong", "\ud800"),
        "code": Scored(0.5, ["cpu"]),
        "text": "1.0",
    }.get(completion, 1.0)


async def awaited(completion):
    await asyncio.sleep(0)
    return len(completion) / 10


class Judge:
    """Callable objects, methods: not found again by name."""

    async def __call__(self, completion):
        return 1.0

    def method(self, completion):
        return 1.0

    @staticmethod
    def static(completion):
        return 0.5


JUDGE = Judge()
PARTIAL = partial(right, answer="1")
by_lambda = lambda completion: 1.0  # noqa: E731 - users do


def shadowed(completion):
    return 1.0


first_shadowed = shadowed


def shadowed(completion):
    return 0.0


def wrapping(function):
    @wraps(function)
    def wrapped(completion):
        return function(completion) / 2

    return wrapped


@wrapping
def half(completion):
    return 1.0


def counted(completion, path):
    """Leave a line for every call."""
    with open(path, "a") as file:  # noqa: PTH123 - as users write it
        file.write(f"{completion}\n")
    return 1.0


def process(completion):
    return float(os.getpid())


def whole(rollout):
    return 1.0


def trl_accuracy(prompts, completions, answer, **kwargs):
    """As trainers' users write them: lists in, a list out, `None` where the gold cannot be read."""
    values = []
    for prompt, completion, gold in zip(prompts, completions, answer, strict=True):
        said = completion if isinstance(completion, str) else completion[-1]["content"]
        if said == "crash":
            raise KeyError(prompt)
        if said == "spin":
            while True:
                pass
        values.append(None if gold == "unreadable" or said == "unreadable" else float(said == gold))
    return values


async def trl_waits(completions, level=None, **kwargs):
    await asyncio.sleep(0)
    return [float(len(kwargs.get("answer", []))) + (0 if level is None else level[0]) for _ in completions]


@steelyard.reward(takes="batch")
def in_batches(completions):
    return [float(len(completions)) for _ in completions]


def lengths(completions, **_columns):
    """As TRL calls them: of a batch."""
    return [float(len(completion)) for completion in completions]


def scaled(completions, by, **_columns):
    """To be made a reward by `functools.partial(scaled, by=2.0)`."""
    return [by * len(completion) for completion in completions]
