"""The rewards of ours by the names they have on the command line.

A name may carry a variant after a colon: `gsm8k:flexible`, `format:think+answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from steelyard.errors import RefusedError
from steelyard.outcome import Reward
from steelyard.rewards.answers import answer, gsm8k
from steelyard.rewards.choice import choice
from steelyard.rewards.own import named
from steelyard.rewards.text import format_tags


class Builtin(NamedTuple):
    """A reward of ours, as `steelyard rewards` lists it."""

    name: str
    summary: str
    values: str
    variants: str
    make: Callable[[str], Reward]


def _plain(make: Callable[[], Reward], name: str) -> Callable[[str], Reward]:
    def made(variant: str) -> Reward:
        if variant:
            raise RefusedError(
                f"it has no variant {variant!r}", where=f"--reward {name}", remedy=f"use {name}"
            )
        return make()

    return made


def _gsm8k(variant: str) -> Reward:
    if variant not in {"", "flexible"}:
        raise RefusedError(
            f"it has no variant {variant!r}", where="--reward gsm8k", remedy="use gsm8k or gsm8k:flexible"
        )
    return gsm8k(flexible=variant == "flexible")


def _format(variant: str) -> Reward:
    tags, _, around = variant.partition(":")
    names = tuple(tags.split("+")) if tags else ("reasoning", "answer")
    if around not in {"", "any"} or not all(name.isidentifier() for name in names):
        raise RefusedError(
            f"it has no variant {variant!r}",
            where="--reward format",
            remedy="name the tags in order, joined by +, as in format:think+answer; "
            "format:think+answer:any allows text around them",
        )
    return format_tags(names, around="any" if around else "whitespace")


BUILTIN: Mapping[str, Builtin] = {
    one.name: one
    for one in (
        Builtin(
            "answer",
            "what stands in the <answer> tag against the column `answer`, by value",
            "1 right, 0 else",
            "",
            _plain(answer, "answer"),
        ),
        Builtin(
            "choice",
            "the committed letter of a multiple choice against the column `answer`",
            "1 right, 0 else",
            "",
            _plain(choice, "choice"),
        ),
        Builtin(
            "format",
            "tags, each exactly once, in order, not empty",
            "1 kept, 0 else",
            "format:think+answer, format:think+answer:any",
            _format,
        ),
        Builtin(
            "gsm8k",
            "the number after the last #### against the column `answer`, by value",
            "1.2 right, 0.2 wrong but readable, 0 else",
            "gsm8k:flexible (the last number will do, for 1)",
            _gsm8k,
        ),
    )
}
"""Every reward of ours, by name."""


def builtin(name: str) -> Reward:
    """Make a reward of ours from its name, with its variant after a colon.

    Raises
    ------
    RefusedError
        If there is none of that name or variant; the message names the nearest.

    Examples
    --------
    >>> builtin("gsm8k:flexible").identity
    'gsm8k/1:flexible'
    """
    word, _, variant = name.partition(":")
    one = BUILTIN.get(word)
    if one is None:
        near = get_close_matches(word, BUILTIN, n=1)
        raise RefusedError(
            f"there is no reward {word!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            where=f"--reward {name}",
            remedy=f"one of {', '.join(BUILTIN)} (steelyard rewards), "
            "or your own function as package.module:function or path/to/file.py:function",
        )
    return one.make(variant)


def find(name: str) -> Reward:
    """Find a reward by name: one of ours, or a user's function as `module:function`.

    Raises
    ------
    RefusedError
        If there is none.
    """
    word, colon, rest = name.partition(":")
    ours = word in BUILTIN or not colon or not rest
    return builtin(name) if ours else named(name)
