"""Several rewards, one number: parts with weights, and what is made of their sum.

A part that abstained is left out of the sum; one that is unscored makes the whole sum missing, for a
sum that lacks a term is another number, not a smaller one. A part behind a gate (`gates`) is asked only
if earlier parts said enough. Shapes (`shaping`) then bend the sum, one after the other; instead of the
sum a function of one's own may combine the verdicts. `recipe_file` reads the same from TOML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from steelyard.errors import RefusedError, RunStoppedError, describe
from steelyard.outcome import Abstained, Part, Scored, Unscored, Verdict, as_judgement
from steelyard.rewards.gates import Gate
from steelyard.rewards.importing import fingerprint
from steelyard.rewards.shaping import Shape
from steelyard.rollout import OF_THE_COMPLETION, Rollout, canonical_json

_FULL = frozenset({"isolated"})

HEAVIEST = 1e50
"""The largest weight: of the largest rewards the sum over a batch stays finite."""


def weighted_sum(parts: Sequence[Part], verdicts: Mapping[str, Verdict]) -> Verdict:
    """Add `weight * value` over the parts that judged.

    Parameters
    ----------
    parts
        The recipe's parts.
    verdicts
        By the parts' names.

    Examples
    --------
    >>> from steelyard.rewards import builtin
    >>> two = [Part(builtin("gsm8k")), Part(builtin("format"), weight=0.5)]
    >>> weighted_sum(two, {"gsm8k": Scored(1.2), "format": Scored(1.0)})
    Scored(value=1.7, code=None, reason=None, integrity=None)
    >>> weighted_sum(two, {"gsm8k": Unscored("judge:x", "down"), "format": Scored(1.0)})
    Unscored(boundary='judge:x', cause='down')
    """
    if len(parts) == 1 and parts[0].weight == 1.0:
        return verdicts[parts[0].reward.name]
    total, judged = 0.0, 0
    code = reason = None
    integrities: set[str] = set()
    for part in parts:
        verdict = verdicts[part.reward.name]
        if isinstance(verdict, Unscored):
            return verdict
        if isinstance(verdict, Abstained):
            continue
        judged += 1
        total += part.weight * verdict.value
        if code is None and verdict.code is not None:
            code = verdict.code
            reason = f"{part.reward.name}: {verdict.reason or verdict.code}"
        if verdict.integrity is not None:
            integrities.add(verdict.integrity)
    if not judged:
        return Abstained("every part abstained")
    integrity = None if not integrities else "isolated" if integrities <= _FULL else "cooperative"
    return Scored(total, code, reason, integrity)


@dataclass(frozen=True)
class Recipe:
    """What is asked of every rollout, and how the answers become one number.

    Parameters
    ----------
    parts
        One or more, with names of their own.
    combine
        From the rollout and the parts' verdicts to the total, a number or `Scored`; `None` for the
        weighted sum. It must be pure: the same verdicts give the same total, whenever they are
        combined. It is asked where a part judged and none is unscored; where it fails, or returns what
        no reward may, the run stops.
    shapes
        What bends the sum, in this order.

    Raises
    ------
    RefusedError
        If there is no part, two parts share a name, a weight is no number from 0 up, a gate reads what
        is no earlier part, or a shape that reads the parts comes after one that changed their sum.
    """

    parts: tuple[Part, ...]
    combine: Callable[[Rollout, Mapping[str, Verdict]], float | Scored] | None = None
    shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        if not self.parts:
            raise RefusedError("a recipe needs a reward", where="recipe", remedy="name one with --reward")
        given: tuple[object, ...] = self.parts
        strange = next((one for one in given if not isinstance(one, Part)), None)
        if strange is not None:
            raise RefusedError(
                f"{strange!r:.60} is no part",
                where="recipe",
                remedy="Part(builtin('gsm8k')), or Part(reward(function)) of a function of yours",
            )
        bare = next((part.reward for part in self.parts if not hasattr(part.reward, "identity")), None)
        if bare is not None:
            raise RefusedError(
                f"{bare!r:.60} is no reward",
                where="recipe",
                remedy="Part(reward(function)) of a function, Part(builtin('gsm8k')) of a name",
            )
        name, times = Counter(part.reward.name for part in self.parts).most_common(1)[0]
        if times > 1:
            raise RefusedError(
                f"{name!r} is named {times} times",
                where="recipe",
                remedy="parts of a recipe have names of their own",
            )
        for part in self.parts:
            if not 0.0 <= part.weight <= HEAVIEST:
                raise RefusedError(
                    f"the weight must be between 0 and {HEAVIEST:g}, not {part.weight:g}: under a negative "
                    "one, a completion on which the reward fails would gain",
                    where=f"recipe: {part.reward.name!r}",
                    remedy="for a penalty, let the reward return values below 0, state its floor, and weigh "
                    "it with a positive number",
                )
        self._refuse_gates()
        self._refuse_shapes()

    def _refuse_gates(self) -> None:
        earlier: list[str] = []
        stages = [part for part in self.parts if part.only_if is None]  # those are asked first
        earlier += [part.reward.name for part in stages]
        for part in self.parts:
            if not isinstance(part.only_if, Gate):
                continue
            unknown = next((name for name in part.only_if.reads if name not in earlier), None)
            if unknown is not None:
                raise RefusedError(
                    f"its gate reads {unknown!r}, which is no part before it",
                    where=f"recipe: {part.reward.name!r}",
                    remedy=f"name one of {', '.join(earlier)}"
                    if earlier
                    else "put an ungated part before it",
                )
            earlier.append(part.reward.name)

    def _refuse_shapes(self) -> None:
        if self.shapes and self.combine is not None:
            raise RefusedError(
                "shapes bend the weighted sum, and combine replaces it",
                where="recipe",
                remedy="shape inside combine, or leave combine out",
            )
        bent = None
        of = {part.reward.name: (part.weight, part.reward.floor) for part in self.parts}
        for shape in self.shapes:
            reads = getattr(shape, "reads", None)
            if reads is not None and of.get(reads[0]) != reads[1:]:
                raise RefusedError(
                    f"{shape.identity} was made for a part {reads[0]!r} with weight {reads[1]:g} and floor "
                    f"{reads[2]:g}, which is not here",
                    where="recipe: shapes",
                    remedy="make it with this recipe's own Part",
                )
            if shape.reads_parts and bent is not None:
                raise RefusedError(
                    f"{shape.identity} takes the total for the sum of the parts; {bent.identity} changed it",
                    where="recipe: shapes",
                    remedy="put it first",
                )
            bent = bent if shape.reads_parts else shape

    @cached_property
    def identity(self) -> str:
        """Changes whenever a total could."""
        combine = self.combine
        said = [
            [part.reward.name, part.reward.identity, part.weight, part.optional, _digest(part.only_if)]
            for part in self.parts
        ]
        bent = [[shape.identity for shape in self.shapes]] if self.shapes else []
        return blake2b(canonical_json([said, _digest(combine), *bent]), digest_size=8).hexdigest()

    @cached_property
    def floor(self) -> float:
        """The lowest total: the weighted sum of the parts' floors, shaped."""
        lowest = sum(part.weight * part.reward.floor for part in self.parts)
        for shape in self.shapes:
            lowest = shape.floor(lowest)
        return lowest

    @cached_property
    def plain(self) -> bool:
        """Whether the one part's verdict is the total."""
        return (
            self.combine is None and not self.shapes and len(self.parts) == 1 and self.parts[0].weight == 1.0
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parts' names."""
        return tuple(part.reward.name for part in self.parts)

    @cached_property
    def weights(self) -> dict[str, float]:
        """Name to weight."""
        return {part.reward.name: part.weight for part in self.parts}

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a row cannot be judged."""
        return tuple(
            dict.fromkeys(name for part in self.parts if not part.optional for name in part.reward.columns)
        )

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """What is read of a rollout beside its columns, `files` or `state`."""
        return tuple(
            dict.fromkeys(name for part in self.parts for name in getattr(part.reward, "fields", ()))
        )

    @cached_property
    def read(self) -> tuple[str, ...]:
        """Columns that any part reads, and that are the same for a whole group."""
        rewards = [part.reward for part in self.parts]
        names = dict.fromkeys(name for one in rewards for name in (*one.columns, *getattr(one, "also", ())))
        return tuple(name for name in names if name not in OF_THE_COMPLETION)

    @cached_property
    def counts(self) -> bool:
        """Whether a part or a shape may read what differs within a group."""
        return bool(self.shapes) or any(name in OF_THE_COMPLETION for name in self.needed)

    def lint(self, columns: Mapping[str, Any]) -> tuple[str, str] | None:
        """(column, what is wrong with it) for the first part that finds a fault, or `None`."""
        for part in self.parts:
            reward = part.reward
            if any(columns.get(name) is None for name in reward.columns) or not reward.applies(columns):
                continue
            wrong = reward.lint(columns)
            if wrong is not None:
                return (reward.columns[0] if reward.columns else "", wrong)
        for shape in self.shapes:
            wrong = shape.lint(columns)
            if wrong is not None:
                return ("", wrong)
        return None

    def total(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> Verdict:
        """Combine the parts' verdicts on one rollout."""
        summed = weighted_sum(self.parts, verdicts)
        for shape in self.shapes if isinstance(summed, Scored) else ():
            wrong = shape.lint(rollout.columns)
            if wrong is not None:  # no file was looked over before, as in a trainer
                return Unscored("data", f"{rollout.where}: {wrong}")
            summed = shape(rollout, summed, verdicts)
        if self.combine is None or not isinstance(summed, Scored):
            return summed
        try:
            return as_judgement(self.combine(rollout, verdicts))
        except Exception as error:
            # no number is safe here: the parts' floor may be more than what combine gives a wrong answer
            raise RunStoppedError(
                f"combine failed on {rollout.where}: {describe(error)}; it was given {dict(verdicts)}"
                "\n  next: let it return a number for whatever the parts say, and run again"
            ) from error


def _digest(function: Callable[..., object] | None) -> str:
    return "" if function is None else fingerprint(function)
