"""The penalty `repetition`: the share of n-grams that stood there before.

`max_penalty * (1 - different / all)` over the n-grams of what the policy generated, as in appendix C.2 of
arXiv:2502.03373 and in open-r1: 0 where no n-gram comes twice, towards `max_penalty` where nothing but
one comes. N-grams are of words, lower-cased and split at white space; for languages that write none, of
characters, white space folded. They do not reach across messages, but one that an earlier message held is
a repetition.

Honest prose repeats its short n-grams, so those of the usual n = 3 punish it: `bench/lengths.py` prints
what real completions pay for each n. A share can be diluted with fresh padding, so stand `overlong`
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from steelyard.errors import RefusedError
from steelyard.outcome import LARGEST, Scored
from steelyard.rewards.answers import shown
from steelyard.rewards.base import RolloutReward
from steelyard.rewards.lengths import generated
from steelyard.rollout import Rollout

Pieces = Literal["words", "characters"]

DEFAULT_N = {"words": 20, "characters": 60}
"""Where honest completions pay next to nothing: `bench/lengths.py`."""

LONGEST_N = 100
"""An n-gram is held as it is, so an n without bound would cost the square of the completion."""

_NONE = Scored(0.0)


def repeated(sequences: Sequence[str | tuple[str, ...]], n: int) -> float:
    """Return the share of n-grams, over several sequences, that stood there before.

    Examples
    --------
    >>> words = tuple("this is a this is a test".split())
    >>> round(repeated([words], 2), 3)  # 4 different of 6
    0.333
    """
    total = sum(max(0, len(one) - n + 1) for one in sequences)
    different = {one[at : at + n] for one in sequences for at in range(len(one) - n + 1)}
    return 1 - len(different) / total if total else 0.0


def judge_repetition(
    rollout: Rollout, *, n: int, max_penalty: float = -1.0, unit: Pieces = "words"
) -> Scored:
    """Judge how much a completion repeats itself: a value in [max_penalty, 0]."""
    split = [text.lower().split() for text in generated(rollout.completion)]
    share = repeated([tuple(words) if unit == "words" else " ".join(words) for words in split], n)
    if share == 0.0:
        return _NONE
    return Scored(max_penalty * share, "repetitive", f"{share:.0%} of its {n}-grams of {unit} stood before")


def repetition(n: int | None = None, *, max_penalty: float = -1.0, unit: Pieces = "words") -> RolloutReward:
    """Make the penalty `repetition`: 0 for a completion that repeats nothing, down to `max_penalty`.

    Parameters
    ----------
    n
        The n-grams' length: 20 words or 60 characters if not given.
    max_penalty
        What a completion that only repeats itself comes close to: a number below 0.
    unit
        N-grams of `words`, or of `characters` where the language writes no spaces.

    Raises
    ------
    RefusedError
        If a setting is out of range.

    Examples
    --------
    >>> from steelyard import Context, Rollout
    >>> row = Rollout("a", "", "word " * 6, {}, (0, 0), 0, "here")
    >>> repetition(3)([row], Context())[0].value  # 1 different of 4
    -0.75
    """
    where = "repetition(...)"
    if unit not in DEFAULT_N:
        raise RefusedError(f"there is no unit {unit!r}", where=where, remedy="one of words, characters")
    n = DEFAULT_N[unit] if n is None else n
    if type(n) is not int or not 1 <= n <= LONGEST_N:
        raise RefusedError(
            f"n must be an integer from 1 to {LONGEST_N}, got {shown(n)}", where=where, remedy="try n=20"
        )
    if type(max_penalty) not in (int, float) or not -LARGEST <= max_penalty < 0:
        raise RefusedError(
            f"max_penalty must be a finite number below 0, got {shown(max_penalty)}",
            where=where,
            remedy="for example max_penalty=-1.0",
        )
    lowest = float(max_penalty)
    return RolloutReward(
        "repetition",
        f"repetition/1:{n}:{lowest}:{unit}",
        partial(judge_repetition, n=n, max_penalty=lowest, unit=unit),
        floor=lowest,
    )
