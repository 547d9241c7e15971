"""Shaping: what happens to the sum of the parts before it is the total.

A shape is a value that a recipe calls after the sum, one after the other. What is unscored or abstained
it hands on as it is. It says its own floor, for nothing that a completion can bring about may be worth
more than plain failure: what the parts' floor was worth before, it must not be worth more after.

- `length_penalty` multiplies what is above 0 with a factor in [0, 1] that falls with the length. What is
  0 or below stays as it is: -1 is never made -0.5 by being long.
- `cosine` replaces what one part pays by a value that depends on length and on whether that part gave
  full marks.

A completion on which a tokenizer of the user's fails counts as the longest there is, with the code
`reward_error`. Penalties that are added (`overlong`, `repetition`) are no shapes but parts of their own.
Left out: penalties relative to the group (Kimi k1.5, arXiv:2501.12599), where a verdict would depend on a
completion's siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi
from typing import Any, Protocol

from steelyard.blame import excused
from steelyard.errors import RefusedError, SteelyardError, describe
from steelyard.outcome import LARGEST, Part, Scored, Verdict
from steelyard.rewards.answers import shown
from steelyard.rewards.lengths import Length, Tokenizer, Unit, length
from steelyard.rollout import Rollout


class Shape(Protocol):
    """What a recipe asks of a shape; shapes are values: equal settings, equal shapes."""

    @property
    def identity(self) -> str:
        """Changes whenever a total could."""

    @property
    def reads_parts(self) -> bool:
        """Whether it takes the total for the sum of the parts, so that only its like may stand before it."""

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, or `None`."""

    def floor(self, lowest: float, /) -> float:
        """Return the lowest total that it makes, from the lowest that it is given."""

    def __call__(self, rollout: Rollout, total: Verdict, verdicts: Mapping[str, Verdict], /) -> Verdict:
        """Shape a total; it must be pure."""


@dataclass(frozen=True, slots=True)
class LengthPenalty:
    """The shape that `length_penalty` makes.

    Parameters
    ----------
    length
        How lengths are counted.
    target, limit
        Up to `target` the factor is 1, from `limit` on it is `least`.
    least
        The lowest factor.
    """

    length: Length
    target: int
    limit: int
    least: float

    @property
    def identity(self) -> str:
        """The rules with their settings."""
        return f"length_penalty/1:{self.target}:{self.limit}:{self.least}:{self.length.identity}"

    @property
    def reads_parts(self) -> bool:
        """It reads the total alone."""
        return False

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the row's own count, if that is what is counted."""
        return self.length.fault(columns)

    def floor(self, lowest: float, /) -> float:
        """What is not above 0 stays as it is."""
        return lowest if lowest <= 0.0 else lowest * self.least

    def factor(self, size: int) -> float:
        """Return what a positive total is multiplied with."""
        if size <= self.target:
            return 1.0
        if size >= self.limit:
            return self.least
        return 1.0 - (1.0 - self.least) * ((size - self.target) / (self.limit - self.target))

    def __call__(self, rollout: Rollout, total: Verdict, _verdicts: Mapping[str, Verdict], /) -> Verdict:
        """Shape a total."""
        if not isinstance(total, Scored) or total.value <= 0.0:
            return total
        size, failed = _measured(self.length, rollout)
        factor = self.least if size is None else self.factor(size)
        if factor == 1.0:
            return total
        value = total.value * factor
        if size is None:
            return Scored(value, "reward_error", failed, total.integrity)
        return _lowered(total, value, f"{size} long, target {self.target}")


def length_penalty(
    target: int,
    limit: int,
    *,
    least: float = 0.0,
    unit: Unit | None = None,
    tokenizer: Tokenizer | None = None,
    column: str | None = None,
) -> LengthPenalty:
    """Make the shape `length_penalty`: long completions keep less of what they earned.

    The factor falls in a straight line, as in L1-Max (arXiv:2503.04697): its `clip(alpha * (wanted -
    length) + 0.5, 0, 1)` is `target = wanted - 0.5 / alpha`, `limit = wanted + 0.5 / alpha`.

    Where a wrong answer is paid something (`gsm8k` pays 0.2 for a readable one), a right one that is long
    must not fall below it: let `least` be more than that share of full marks.

    Parameters
    ----------
    target
        The length up to which nothing is taken.
    limit
        The length from which on only `least` of it is kept.
    least
        The lowest factor, from 0 to 1.
    unit, tokenizer, column
        What is counted, as in `steelyard.rewards.lengths.length`.

    Raises
    ------
    RefusedError
        If the numbers are out of order, or nothing says what is counted.

    Examples
    --------
    >>> from steelyard import Rollout
    >>> shape = length_penalty(100, 200, unit="characters")
    >>> row = Rollout("a", "", "x" * 150, {}, (0, 0), 0, "here")
    >>> shape(row, Scored(1.0), {}).value, shape(row, Scored(-1.0), {}).value
    (0.5, -1.0)
    """
    where = "length_penalty(...)"
    if not (type(target) is type(limit) is int and 0 <= target < limit):
        raise RefusedError(
            f"target and limit must be integers with 0 <= target < limit, got {shown(target)} and "
            f"{shown(limit)}",
            where=where,
            remedy="for example length_penalty(target=2000, limit=4000, ...)",
        )
    if not (_finite(least) and 0.0 <= least <= 1.0):
        raise RefusedError(
            f"least is a factor from 0 to 1, got {shown(least)}", where=where, remedy="leave it at 0.0"
        )
    counted = length(unit, tokenizer=tokenizer, column=column, where=where)
    return LengthPenalty(counted, target, limit, float(least))


@dataclass(frozen=True, slots=True)
class Cosine:
    """The shape that `cosine` makes: cosine length scaling, equation 1 of arXiv:2502.03373.

    Of two lengths a right answer is worth more at the shorter; a wrong one, with a rising `wrong`, more at
    the longer, so that a policy that is stuck goes on thinking. That pays for padding: stand `repetition`
    beside it, as the paper does, or let `wrong` be flat. The paper's own values are `right=(2, 1)`,
    `wrong=(-10, 0)`, `exceed=-10`; the defaults are open-r1's, whose cosine however turns back beyond
    `max_length`.

    What the part pays is taken out of the sum and this value, under the part's weight, put in its place;
    other parts stay in the sum. Where the part abstained, the total stays as it is.

    A completion that was not really judged (it raised, ran into a limit, made a judge unreadable) gets
    `exceed` at any length. So no wrong answer, short or long, could gain by failing instead.

    Parameters
    ----------
    part, weight, part_floor
        The part whose pay is replaced: its name, its weight, its lowest value.
    length
        How lengths are counted.
    max_length
        Where a completion is cut.
    right, wrong
        The values at length 0 and at `max_length`.
    exceed
        The value from `max_length` on, and of a completion that was not really judged.
    full
        What full marks are at least.
    """

    part: str
    weight: float
    part_floor: float
    length: Length
    max_length: int
    right: tuple[float, float]
    wrong: tuple[float, float]
    exceed: float
    full: float

    @property
    def identity(self) -> str:
        """The rules with their settings."""
        settings = (self.part, self.weight, self.part_floor, self.max_length, self.right, self.wrong)
        return f"cosine/1:{settings}:{self.exceed}:{self.full}:{self.length.identity}"

    @property
    def reads(self) -> tuple[str, float, float]:
        """The part that it takes out of the sum: its name, its weight, its floor."""
        return self.part, self.weight, self.part_floor

    @property
    def reads_parts(self) -> bool:
        """It takes the part's own pay out of the sum."""
        return True

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the row's own count, if that is what is counted."""
        return self.length.fault(columns)

    def floor(self, lowest: float, /) -> float:
        """`exceed` stands where the part's floor stood."""
        return lowest + self.weight * (self.exceed - self.part_floor)

    def value(self, verdict: Scored, size: int) -> float:
        """Return what the part pays instead, for a completion of this length."""
        if size >= self.max_length or excused(verdict.code):
            return self.exceed
        full_marks = verdict.code is None and verdict.value >= self.full
        start, end = self.right if full_marks else self.wrong
        return end + 0.5 * (start - end) * (1.0 + cos(pi * size / self.max_length))

    def __call__(self, rollout: Rollout, total: Verdict, verdicts: Mapping[str, Verdict], /) -> Verdict:
        """Shape a total."""
        verdict = verdicts[self.part]
        if not isinstance(total, Scored) or not isinstance(verdict, Scored):
            return total
        size, failed = _measured(self.length, rollout)
        value = self.exceed if size is None else self.value(verdict, size)
        value = total.value + self.weight * (value - verdict.value)
        if size is None:
            return Scored(value, "reward_error", failed, total.integrity)
        if size >= self.max_length:
            return _lowered(total, value, f"{size} long, cut at {self.max_length}")
        return Scored(value, total.code, total.reason, total.integrity)


def cosine(
    part: Part,
    max_length: int,
    *,
    right: tuple[float, float] = (1.0, 0.5),
    wrong: tuple[float, float] = (-1.0, -0.5),
    exceed: float | None = None,
    full: float = 1.0,
    unit: Unit | None = None,
    tokenizer: Tokenizer | None = None,
    column: str | None = None,
) -> Cosine:
    """Make the shape `cosine`; see `Cosine` for what it does, and for its traps.

    Parameters
    ----------
    part
        The recipe's part that says what is right: code `None` and at least `full`.
    max_length
        Where the sampler cuts: from here on every completion gets `exceed`.
    right, wrong
        The values at length 0 and at `max_length`; every wrong value lies below every right one.
    exceed
        At most the lowest wrong value, which it is if not given.
    full
        What full marks are at least, in the part's own values.
    unit, tokenizer, column
        What is counted, as in `steelyard.rewards.lengths.length`.

    Raises
    ------
    RefusedError
        If failing would be paid more than being wrong, or being wrong more than being right; if the part
        is gated or weighs nothing; or if nothing says what is counted.

    Examples
    --------
    >>> from steelyard import Part, Rollout, builtin
    >>> shape = cosine(Part(builtin("answer")), 100, unit="characters")
    >>> row = Rollout("a", "", "x" * 20, {}, (0, 0), 0, "here")
    >>> round(shape(row, Scored(1.0), {"answer": Scored(1.0)}).value, 3)
    0.952
    """
    where = "cosine(...)"
    if type(max_length) is not int or max_length < 1:
        raise RefusedError(
            f"max_length must be an integer from 1 up, got {shown(max_length)}",
            where=where,
            remedy="give the length at which the sampler cuts",
        )
    _refuse_unusable(part, where)
    rights, wrongs = _pair(right, "right", where), _pair(wrong, "wrong", where)
    lowest = min(wrongs) if exceed is None else exceed
    _refuse_disorder(rights, wrongs, lowest, full, where)
    counted = length(unit, tokenizer=tokenizer, column=column, where=where)
    reward = part.reward
    levels = (rights, wrongs, float(lowest), float(full))
    return Cosine(reward.name, part.weight, reward.floor, counted, max_length, *levels)


def _refuse_disorder(
    right: tuple[float, float], wrong: tuple[float, float], exceed: float, full: float, where: str
) -> None:
    if not (_finite(exceed) and _finite(full) and exceed <= min(wrong) and max(wrong) < min(right)):
        raise RefusedError(
            f"it must hold that exceed <= every wrong value < every right value, got exceed={shown(exceed)}, "
            f"wrong={wrong}, right={right}, full={shown(full)}",
            where=where,
            remedy="for example right=(1.0, 0.5), wrong=(-1.0, -0.5), exceed=-1.0",
        )


def _refuse_unusable(part: Part, where: str) -> None:
    if part.only_if is not None:
        raise RefusedError(
            f"the part {part.reward.name!r} is gated: a completion at which its gate closes would be spared "
            "what a wrong answer pays",
            where=where,
            remedy="scale a part that every completion is asked",
        )
    if part.weight == 0.0:
        raise RefusedError(
            f"the part {part.reward.name!r} weighs nothing, and so would its scaling",
            where=where,
            remedy="give it a weight above 0",
        )


def _pair(values: object, name: str, where: str) -> tuple[float, float]:
    if isinstance(values, tuple | list) and len(values) == 2 and all(map(_finite, values)):
        return float(values[0]), float(values[1])
    raise RefusedError(
        f"{name} must be two finite numbers, got {shown(values)}",
        where=where,
        remedy="give the values at length 0 and at max_length",
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _measured(counted: Length, rollout: Rollout) -> tuple[int | None, str]:
    """Return the length; where the user's tokenizer fails on the text, `None` and why."""
    try:
        return counted.of(rollout), ""
    except SteelyardError:  # a bad row or file: no completion brings that about
        raise
    except Exception as error:  # noqa: BLE001 - the user's tokenizer may do anything
        return None, f"its length cannot be counted ({describe(error)})"


def _lowered(total: Scored, value: float, reason: str) -> Scored:
    """A total that length took from; what a part said of it stands first."""
    if total.code is not None:
        return Scored(value, total.code, total.reason, total.integrity)
    return Scored(value, "overlong", reason, total.integrity)
