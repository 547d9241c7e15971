"""The reward `format`: a template of tags, each exactly once, in order, none empty.

It reads the whole completion, thinking included, for the template often *is* the thinking. Full marks
are 1.0, anything else 0.0 with the code `malformed` and what is wrong. A bonus for a format alone is
farmable: in a recipe, gate it with the reward that reads the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from steelyard.errors import RefusedError
from steelyard.outcome import Scored
from steelyard.rewards.base import TextReward

Around = Literal["whitespace", "any"]

_FULL = Scored(1.0)
_NAME = re.compile(r"[A-Za-z][\w-]{0,63}", re.ASCII)
_NOTHING = re.compile(  # whitespace, controls, and characters that show nothing: fillers, marks of direction
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*"
)


def judge_format(
    completion: str,
    columns: Mapping[str, Any],  # noqa: ARG001 - every rule takes the columns
    *,
    tags: Sequence[str] = ("reasoning", "answer"),
    around: Around = "whitespace",
) -> Scored:
    """Judge the template: 1.0, or 0.0 with what is wrong first.

    Parameters
    ----------
    completion
        The text.
    columns
        Not read.
    tags
        The tags' names, in their order. Names are matched as they are written, case included.
    around
        What may stand before, between and after the tags: `whitespace`, or `any` text.

    Examples
    --------
    >>> judge_format("<reasoning>2 + 2</reasoning><answer>4</answer>", {}).value
    1.0
    >>> judge_format("<reasoning>2 + 2</reasoning><answer> </answer>", {}).reason
    '<answer> is empty'
    """
    fault = _miscounted(completion, tags) or _misplaced(completion, tags, around)
    return Scored(0.0, "malformed", fault) if fault else _FULL


def _miscounted(text: str, tags: Sequence[str]) -> str | None:
    for part in (part for tag in tags for part in (f"<{tag}>", f"</{tag}>")):
        if (count := text.count(part)) != 1:
            return f"{part} stands {count} times, once is right" if count else f"{part} is missing"
    return None


def _misplaced(text: str, tags: Sequence[str], around: Around) -> str | None:
    """Name what is wrong with the places of tags that stand once each."""
    parts = [part for tag in tags for part in (f"<{tag}>", f"</{tag}>")]
    places = [text.index(part) for part in parts]
    if places != sorted(places):
        return f"the tags are nested or out of order, right is {' '.join(parts)}"
    ends = [0, *(place + len(part) for place, part in zip(places, parts, strict=True))]
    between = [text[end:place] for end, place in zip(ends, [*places, len(text)], strict=True)]
    for at, tag in enumerate(tags):
        if around == "whitespace" and not _blank(between[2 * at]):
            return f"text before <{tag}>"
        if _blank(between[2 * at + 1]):
            return f"<{tag}> is empty"
    return None if around == "any" or _blank(between[-1]) else f"text after </{tags[-1]}>"


def _blank(text: str) -> bool:
    """Whether a text shows nothing."""
    return _NOTHING.fullmatch(text) is not None


def format_tags(
    tags: Sequence[str] = ("reasoning", "answer"), *, around: Around = "whitespace"
) -> TextReward:
    """Make the reward `format`.

    Parameters
    ----------
    tags
        The tags' names, in their order.
    around
        What may stand before, between and after them: `whitespace` (default), or `any` text.

    Raises
    ------
    RefusedError
        If the template cannot be satisfied: no tag, a repeated one, or a name that is no tag's.
    """
    names = (tags,) if isinstance(tags, str) else tuple(tags)
    if not names or len(set(names)) != len(names) or not all(_NAME.fullmatch(name) for name in names):
        raise RefusedError(
            f"tags must be different names of letters, digits, _ and -, got {names!r}",
            where="format_tags(tags=...)",
            remedy='write them without brackets, such as ("reasoning", "answer")',
        )
    if around not in ("whitespace", "any"):
        raise RefusedError(
            f"around must be 'whitespace' or 'any', got {around!r}",
            where="format_tags(around=...)",
            remedy="choose one",
        )
    rules = f"format/1:{','.join(names)}:{around}"
    *before, last = names
    written = "".join(f"<{name}>Step by step.</{name}>" for name in before) + f"<{last}>{{}}</{last}>"
    return TextReward("format", rules, partial(judge_format, tags=names, around=around), write=written.format)
