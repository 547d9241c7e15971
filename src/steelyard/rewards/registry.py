"""The rewards of ours by the names they have on the command line and in recipes.

A name may carry a variant after a colon, `gsm8k:flexible`, `format:think+answer`: short for settings
that a recipe spells out. A factory's own signature says which settings there are; `steelyard rewards
NAME` prints its documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Reward
from steelyard.rewards.answers import answer, gsm8k
from steelyard.rewards.choice import choice
from steelyard.rewards.code import tests
from steelyard.rewards.gym import gym
from steelyard.rewards.instructions import instructions
from steelyard.rewards.lengths import overlong
from steelyard.rewards.maths import math
from steelyard.rewards.own import named
from steelyard.rewards.repetition import repetition
from steelyard.rewards.schema import schema
from steelyard.rewards.text import format_tags
from steelyard.rewards.trajectory import files, state, turns


class Builtin(NamedTuple):
    """A reward of ours, as `steelyard rewards` lists it.

    Parameters
    ----------
    name, summary, values
        Its word, what it judges, what it pays.
    make
        Its factory: keyword settings to a reward.
    example, example_settings
        A row that earns full marks, and the settings without which the reward cannot be made.
    variants
        The variants that its name may carry, for people.
    settings
        From a variant to settings; `None` if there is no such variant.
    """

    name: str
    summary: str
    values: str
    make: Callable[..., Reward]
    example: Mapping[str, Any]
    example_settings: Mapping[str, Any] = {}
    variants: str = ""
    settings: Callable[[str], Mapping[str, Any] | None] = lambda _variant: None


def _row(prompt: str, completion: object, **columns: object) -> Mapping[str, Any]:
    return {"prompt": prompt, "completion": completion, **columns}


def _format(variant: str) -> Mapping[str, Any] | None:
    tags, _, around = variant.partition(":")
    names = tuple(tags.split("+")) if tags else ("reasoning", "answer")
    if around not in {"", "any"} or not all(name.isidentifier() for name in names):
        return None
    return {"tags": names, "around": "any" if around else "whitespace"}


def _flags(*words: str) -> Callable[[str], Mapping[str, Any] | None]:
    def read(variant: str) -> Mapping[str, Any] | None:
        said = variant.split(":")
        return dict.fromkeys(said, True) if len(set(said) & set(words)) == len(said) else None

    return read


BUILTIN: Mapping[str, Builtin] = {
    one.name: one
    for one in (
        Builtin(
            "answer",
            "what stands in the <answer> tag against the column `answer`, by value",
            "1 right, 0 else",
            answer,
            _row("Which city?", "<think>Rome? No.</think><answer>paris</answer>", answer="Paris"),
        ),
        Builtin(
            "choice",
            "the committed letter of a multiple choice against the column `answer`",
            "1 right, 0 else",
            choice,
            _row("(A) ice (B) water (C) steam?", "It boils. The answer is (C).", answer="C"),
        ),
        Builtin(
            "files",
            "what an agent wrote against the column `expected_files`",
            "1 all as expected, 0 else; with share the share of them",
            files,
            _row("Write x.", "Done.", files={"a.txt": "x\n"}, expected_files={"a.txt": "x"}),
        ),
        Builtin(
            "format",
            "tags, each exactly once, in order, not empty",
            "1 kept, 0 else",
            format_tags,
            _row("2 + 2?", "<reasoning>two and two</reasoning><answer>4</answer>"),
            variants="format:think+answer, format:think+answer:any",
            settings=_format,
        ),
        Builtin(
            "gsm8k",
            "the number after the last #### against the column `answer`, by value",
            "1.2 right, 0.2 wrong but readable, 0 else",
            gsm8k,
            _row("3 boxes of 360?", "3 * 360 = 1080\n#### $1,080.00", answer=1080),
            variants="gsm8k:flexible (the last number will do, for 1)",
            settings=_flags("flexible"),
        ),
        Builtin(
            "instructions",
            "whether a completion follows the instructions of its row (IFEval, IFBench)",
            "1 all followed, 0 else; with share the share of them",
            instructions,
            _row(
                "Answer without a comma.",
                "It is 4.",
                instruction_id_list=["punctuation:no_comma"],
                kwargs=[{}],
            ),
            variants="instructions:share, instructions:loose",
            settings=_flags("share", "loose"),
        ),
        Builtin(
            "math",
            "the committed answer, as mathematics, against the column `answer`",
            "1 right, 0 else",
            math,
            _row("What is x?", r"So $x = \boxed{\tfrac{\sqrt{8}}{2}}$.", answer=r"\sqrt{2}"),
        ),
        Builtin(
            "overlong",
            "a penalty for length, growing over the last stretch before the limit (DAPO)",
            "0 short enough, down to -1",
            overlong,
            _row("2 + 2?", "It is 4."),
            {"max_length": 400, "buffer": 100, "unit": "words"},
        ),
        Builtin(
            "reasoning-gym",
            "reasoning-gym's scorer of the row's dataset, where that runs nothing",
            "1 full marks, 0 else; with graded its raw score",
            gym,
            _row(
                "State the answer: 2 + 4?",
                "<answer>6</answer>",
                answer="6",
                metadata={"source_dataset": "chain_sum"},
            ),
            variants="reasoning-gym:graded, reasoning-gym:whole",
            settings=_flags("graded", "whole", "unaudited"),
        ),
        Builtin(
            "repetition",
            "a penalty for saying the same again, by the share of repeated n-grams",
            "0 nothing repeated, down to -1",
            repetition,
            _row("2 + 2?", "It is 4."),
        ),
        Builtin(
            "schema",
            "the JSON in a completion against the JSON Schema in the column `schema`",
            "1 valid, 0 else",
            schema,
            _row("How old?", 'It is {"age": 3}.', schema={"properties": {"age": {"type": "integer"}}}),
            variants="schema:formats, schema:strict",
            settings=_flags("formats", "strict"),
        ),
        Builtin(
            "state",
            "the end state that the environment confirms against the column `expected_state`",
            "1 as expected, 0 else",
            state,
            _row(
                "Pay order 7.",
                "Paid.",
                state={"order": {"id": 7, "status": "paid"}},
                expected_state={"order": {"status": "paid"}},
            ),
        ),
        Builtin(
            "tests",
            "code against the unit tests in the column `tests`, behind an isolation boundary",
            "1 all checks hold, 0 else; with share the share of them",
            tests,
            _row(
                "Write add(a, b).",
                "```python\ndef add(a, b):\n    return a + b\n```",
                tests="assert add(2, 3) == 5\nassert add(-1, 1) == 0",
            ),
            {"boundary": "bubblewrap"},
            variants="tests:share, tests:cooperative, tests:in_place",
            settings=_flags("share", "cooperative", "in_place"),
        ),
        Builtin(
            "turns",
            "how few turns an episode took; behind a gate on its outcome",
            "1 at most `best` turns, 0 from `limit` on",
            turns,
            _row("Pay order 7.", [{"role": "assistant", "content": "Paid."}]),
            {"best": 3, "limit": 10},
        ),
    )
}
"""Every reward of ours, by name."""


def builtin(name: str, /, **settings: Any) -> Reward:  # noqa: ANN401 - each factory's own
    """Make a reward of ours from its name, with its variant after a colon, or with its settings.

    Raises
    ------
    RefusedError
        If there is none of that name, variant or setting; the message names the nearest.

    Examples
    --------
    >>> builtin("gsm8k:flexible").identity
    'gsm8k/1:flexible'
    >>> builtin("format", tags=["think", "answer"], around="any").identity
    'format/1:think,answer:any'
    """
    word, _, variant = name.partition(":")
    one = known(word)
    if variant:
        meant = one.settings(variant)
        if meant is None:
            others = f" or {one.variants}" if one.variants else ""
            raise RefusedError(
                f"it has no variant {variant!r}", where=f"reward {word}", remedy=f"use {word}{others}"
            )
        doubled = sorted(meant.keys() & settings.keys())
        if doubled:
            raise RefusedError(
                f"{doubled[0]} is set twice, by the variant {variant!r} and by a setting",
                where=f"reward {word}",
                remedy="say it once",
            )
        settings = {**meant, **settings}
    reward: Reward = made(one.make, settings, where=f"reward {word}")
    return reward


def known(word: str) -> Builtin:
    """Find a reward of ours by its word alone.

    Raises
    ------
    RefusedError
        If there is none; the message names the nearest.
    """
    one = BUILTIN.get(word)
    if one is None:
        near = get_close_matches(word, BUILTIN, n=1)
        raise RefusedError(
            f"there is no reward {word!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            where=f"reward {word}",
            remedy=f"one of {', '.join(BUILTIN)} (steelyard rewards), "
            "or your own function as package.module:function or path/to/file.py:function",
        )
    return one


def made(make: Callable[..., Any], settings: Mapping[str, Any], *, where: str) -> Any:  # noqa: ANN401 - what it makes
    """Call a factory with settings that came from a file or a command line.

    Raises
    ------
    RefusedError
        If it knows no such setting, lacks one, or cannot take a value.
    """
    parameters = inspect.signature(make).parameters
    unknown = next((name for name in settings if name not in parameters), None)
    if unknown is not None:
        near = get_close_matches(unknown, parameters, n=1)
        raise RefusedError(
            f"there is no setting {unknown!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            where=where,
            remedy=f"settings are {', '.join(parameters)}" if parameters else "it has no settings: drop it",
        )
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in settings]
    if missing:
        raise RefusedError(
            f"the setting{'s' if len(missing) > 1 else ''} {', '.join(missing)} must be given",
            where=where,
            remedy=f"in a recipe: settings = {{ {missing[0]} = ... }}",
        )
    try:
        return make(**settings)
    except (TypeError, ValueError, AttributeError) as error:  # a factory was given another kind of value
        told = ", ".join(f"{name} = {value!r}" for name, value in settings.items())
        raise RefusedError(
            f"it cannot be made with {told} ({describe(error)})",
            where=where,
            remedy="steelyard rewards NAME says what each setting is",
        ) from error


def find(name: str, /, **settings: Any) -> Reward:  # noqa: ANN401 - each factory's own
    """Find a reward by name: one of ours, or a user's function as `module:function`.

    Raises
    ------
    RefusedError
        If there is none.
    """
    if is_ours(name):
        return builtin(name, **settings)
    if settings:
        raise RefusedError(
            f"a function of yours takes no settings, and {', '.join(settings)} was given",
            where=f"reward {name}",
            remedy="write the values into the function, or as defaults of its parameters",
        )
    return named(name)


def runs_code(name: str) -> bool:
    """Whether a name is a reward of ours that runs what a model wrote, and so needs a boundary."""
    return name.partition(":")[0] == "tests"


def is_ours(name: str) -> bool:
    """Whether a name is one of ours (or a misspelt one), not a user's function."""
    word, colon, rest = name.partition(":")
    return word in BUILTIN or not colon or not rest
