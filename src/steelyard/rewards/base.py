"""How a rule becomes a reward.

A rule is a plain function that a unit test calls: about a text it is `rule(completion_text, columns) ->
Scored`, about anything else in a rollout `rule(rollout) -> Scored`. `TextReward` and `RolloutReward` are
the values that the runtime runs: they name the rule, its floor and columns, and judge whole chunks in
one call; or, where a rule may take long (`how` is `WORKER`), one rollout each in a process with a room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from steelyard.outcome import Context, How, Room, Scored, Takes
from steelyard.rollout import Rollout, final_text

TextRule = Callable[[str, Mapping[str, Any]], Scored]
RolloutRule = Callable[[Rollout], Scored]
_Rule = TypeVar("_Rule", TextRule, RolloutRule)


def _no_fault(_columns: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class _Ruled(Generic[_Rule]):
    """What a reward of ours says of itself, whatever its rule is given.

    Parameters
    ----------
    name
        Its name on the command line.
    rules
        Name and version of the rules, with the settings that change verdicts: the identity.
    rule
        Judges one completion; its cost is bounded by the size of what it is given.
    floor
        The lowest value that `rule` returns.
    columns
        The columns that `rule` reads, the same for a whole group.
    fault
        Says what is wrong with a row's columns, or `None`.
    also
        Columns that `rule` reads where a row has them.
    fields
        What it reads of a rollout beside its columns: a file in which no row has `files` or `state` asks
        for another reward.
    write
        From an answer to a completion that states it as the rule reads it best; `None` where there is no
        such form. `steelyard check` tries it.
    room
        What its process may use, if it is run in one.
    inside
        The rule as its process runs it, where that needs no protection of its own.
    warm
        Called in such a process before it judges.
    """

    name: str
    rules: str
    rule: _Rule
    floor: float = 0.0
    columns: Sequence[str] = ()
    fault: Callable[[Mapping[str, Any]], str | None] = _no_fault

    how: How = How.INLINE
    takes: Takes = Takes.BATCH
    depends_on: str = "content"
    also: Sequence[str] = ()
    fields: Sequence[str] = ()
    write: Callable[[str], str] | None = None
    room: Room | None = None
    inside: _Rule | None = None
    warm: Callable[[], None] | None = None

    @property
    def identity(self) -> str:
        """The rules' name and version."""
        return self.rules

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, or `None`."""
        return self.fault(columns)

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002 - rules apply to every row
        """Rules apply to every row."""
        return True

    async def canary(self) -> bool | None:
        """Nothing outside the process can fail."""
        return None

    @property
    def spec(self) -> Self:
        """A worker process is sent the reward itself."""
        return self


class TextReward(_Ruled[TextRule]):
    """A reward of ours that reads the completion's text and the row's columns, and nothing else."""

    __slots__ = ()

    def pack(self, rollout: Rollout, /) -> tuple[str, dict[str, Any]]:
        """What the rule reads of a rollout."""
        columns = rollout.columns
        return final_text(rollout.completion), {
            name: columns.get(name) for name in (*self.columns, *self.also)
        }

    def judge(self, packed: tuple[str, Mapping[str, Any]], _context: Context, /) -> Scored:
        """Judge what was packed."""
        return (self.inside or self.rule)(*packed)

    def __call__(self, given: Sequence[Rollout], _context: Context, /) -> list[Scored]:
        """Judge a batch, in order."""
        rule = self.rule
        return [
            rule(
                rollout.completion if isinstance(rollout.completion, str) else final_text(rollout.completion),
                rollout.columns,
            )
            for rollout in given
        ]


class RolloutReward(_Ruled[RolloutRule]):
    """A reward of ours that reads more of a rollout than a text: its messages, its files, its state."""

    __slots__ = ()

    def pack(self, rollout: Rollout, /) -> Rollout:
        """The rollout, without the text it was read from."""
        return rollout._replace(raw=None)

    def judge(self, packed: Rollout, _context: Context, /) -> Scored:
        """Judge what was packed."""
        return (self.inside or self.rule)(packed)

    def __call__(self, given: Sequence[Rollout], _context: Context, /) -> list[Scored]:
        """Judge a batch, in order."""
        return [self.rule(rollout) for rollout in given]
