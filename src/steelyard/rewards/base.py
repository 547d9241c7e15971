"""How a rule about text becomes a reward.

A rule is a plain function `rule(completion_text, columns) -> Scored`: what a unit test
calls. `TextReward` is the value that the runtime runs: it names the rule, its floor and columns,
and judges whole chunks in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.outcome import Context, How, Scored, Takes
from steelyard.rollout import Rollout, final_text


def _no_fault(_columns: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class TextReward:
    """A reward of ours that reads the completion's text and the row's columns, and nothing else.

    Parameters
    ----------
    name
        Its name on the command line.
    rules
        Name and version of the rules, with the settings that change verdicts: the identity.
    rule
        Judges one completion's text; its cost is bounded by the length of the text.
    floor
        The lowest value that `rule` returns.
    columns
        The columns that `rule` reads.
    fault
        Says what is wrong with a row's columns, or `None`.
    """

    name: str
    rules: str
    rule: Callable[[str, Mapping[str, Any]], Scored]
    floor: float = 0.0
    columns: Sequence[str] = ()
    fault: Callable[[Mapping[str, Any]], str | None] = _no_fault

    how: How = How.INLINE
    takes: Takes = Takes.BATCH
    depends_on: str = "content"

    @property
    def identity(self) -> str:
        """The rules' name and version."""
        return self.rules

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, or `None`."""
        return self.fault(columns)

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002 - text rewards apply to every row
        """Text rewards apply to every row."""
        return True

    async def canary(self) -> bool | None:
        """Nothing outside the process can fail."""
        return None

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
