"""What a user's function is given: it follows from the names of its parameters.

Of one rollout: `completion` and `prompt` are text (of a conversation the last message of the assistant
and of the user), `rollout` is all of it, `files` and `state` are what an agent left behind, `context` is
what the function may know about its attempt, every other name is a column. A parameter with a default
keeps it where the row has no such column; `**more` is given nothing, for a reward must say what it reads.

Of several, where it names `completions`, `prompts` or `rollouts`, as trainers' functions do, or
`completion_ids` and `**more` and nothing of one rollout: lists, one entry for each rollout, texts and
messages as they came. `**more` is then given every other column, as
TRL does it; `log_extra` and `log_metric`, which there feed a trainer's log, do nothing here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.outcome import Context
from steelyard.rollout import Rollout, Text, final_text

ONE: Final = ("rollout", "prompt", "completion", "context", "files", "state")
MANY: Final = ("rollouts", "prompts", "completions", "files", "state", "context", "log_extra", "log_metric")
SEVERAL: Final = frozenset(MANY[:3])
_OF_TRL = "completion_ids"  # in the plural: of each completion
_OURS = ("context", "log_extra", "log_metric")  # made where the function is called: nothing to send
_NAMES = ("id", "group")  # of the row, not of what is judged: equal contents get equal verdicts
_ELSEWHERE = {
    "solution_str": "write def f(completion, answer): return other(solution_str=completion, ...)",
    "trainer_state": "give it a default: no trainer runs here",
    "environments": "give it a default: no trainer runs here",
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters of a user's function, and how they are filled.

    Parameters
    ----------
    given
        The parameters that are filled.
    many
        Whether one call judges several rollouts.
    more
        Whether every other column is given, too.
    """

    given: tuple[inspect.Parameter, ...]
    many: bool
    more: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns without which it cannot be called."""
        known = MANY if self.many else ONE
        return tuple(p.name for p in self.given if p.default is p.empty and p.name not in known)

    @property
    def also(self) -> tuple[str, ...]:
        """The columns that it reads where a row has them."""
        known = MANY if self.many else ONE
        return tuple(p.name for p in self.given if p.default is not p.empty and p.name not in known)

    def packed(self, rollout: Rollout) -> list[Any]:
        """What a function of one rollout is given, in the order of its parameters."""
        return [_of_one(parameter, rollout) for parameter in self.given]

    def packed_many(self, rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """What a function of several rollouts is given, by name."""
        filled: dict[str, Any] = {}
        for parameter in self.given:
            values = _of_many(parameter.name, rollouts)
            if parameter.default is parameter.empty or any(value is not None for value in values or ()):
                filled[parameter.name] = values
        if self.more:
            named = {parameter.name for parameter in self.given} | {*MANY}
            others = {name: None for rollout in rollouts for name in rollout.columns if name not in named}
            filled.update({name: [rollout.columns.get(name) for rollout in rollouts] for name in others})
            filled.update(
                {name: _of_many(name, rollouts) for name in ("prompts", "completions") if name not in filled}
            )
        return filled

    def call(self, function: Callable[..., Any], packed: Any, context: Context) -> Any:  # noqa: ANN401
        """Call the function on what was packed, here or in another process."""
        if self.many:
            ours = {"context": context, "log_extra": _unlogged, "log_metric": _unlogged}
            here = {p.name: ours[p.name] for p in self.given if p.name in _OURS}
            return function(**{**packed, **here})
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for parameter, value in zip(self.given, packed, strict=True):
            filled = context if parameter.name == "context" else value
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = filled
            else:
                plain.append(filled)
        return function(*plain, **named)


def arguments(function: Callable[..., Any], where: str) -> Arguments:
    """Read what a function wants to be given.

    Raises
    ------
    TypeError, ValueError
        If its parameters cannot be seen.
    RefusedError
        If one of them cannot be filled.
    """
    parameters = inspect.signature(function).parameters.values()
    open_ended = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if open_ended is not None:
        raise RefusedError(
            f"the parameter {open_ended} names nothing it could be given",
            where=where,
            remedy=f"name plain parameters: {', '.join(ONE)}, or columns",
        )
    given = tuple(p for p in parameters if p.kind is not p.VAR_KEYWORD)
    for parameter in given:
        _refuse(parameter, where)
    names = {p.name for p in given}
    open_handed = any(p.kind is p.VAR_KEYWORD for p in parameters)
    many = not names.isdisjoint(SEVERAL) or (open_handed and names.isdisjoint(ONE) and _OF_TRL in names)
    mixed = sorted(names & {"rollout", "completion", "prompt"})
    if many and mixed:
        raise RefusedError(
            f"it asks for one rollout ({mixed[0]}) and for several ({', '.join(sorted(names & SEVERAL))})",
            where=where,
            remedy="name what it judges in one call: completion, or completions",
        )
    if many:
        # a trainer's own default stays where there is no trainer
        given = tuple(p for p in given if p.name not in _ELSEWHERE)
    return Arguments(given, many, more=many and open_handed)


def _refuse(parameter: inspect.Parameter, where: str) -> None:
    name = parameter.name
    if name in _NAMES:
        raise RefusedError(
            f"the parameter {name} is a row's name, no column: equal contents are judged alike",
            where=where,
            remedy="drop it, or carry what is to be judged in a column of another name",
        )
    if name in _ELSEWHERE and parameter.default is parameter.empty:
        raise RefusedError(
            f"the parameter {name} is another framework's", where=where, remedy=_ELSEWHERE[name]
        )


def _of_one(parameter: inspect.Parameter, rollout: Rollout) -> Any:  # noqa: ANN401 - whatever the column holds
    name = parameter.name
    if name == "completion":
        return final_text(rollout.completion)
    if name == "prompt":
        return question(rollout.prompt)
    if name == "context":
        return None
    if name == "rollout":
        return rollout._replace(raw=None)  # its text is what it was read from: nothing more to judge
    value = getattr(rollout, name) if name in ONE else rollout.columns.get(name)
    return parameter.default if value is None and parameter.default is not parameter.empty else value


def _of_many(name: str, rollouts: Sequence[Rollout]) -> list[Any] | None:
    if name in _OURS:
        return None
    if name == "completions":
        return [rollout.completion for rollout in rollouts]
    if name == "prompts":
        return [rollout.prompt for rollout in rollouts]
    if name == "rollouts":
        return [rollout._replace(raw=None) for rollout in rollouts]
    if name in MANY:
        return [getattr(rollout, name) for rollout in rollouts]
    return [rollout.columns.get(name) for rollout in rollouts]


def question(prompt: Text) -> str:
    """The text of a prompt: itself, or what the user said last."""
    if isinstance(prompt, str):
        return prompt
    asked = [message.get("content") for message in prompt if message.get("role") == "user"]
    return final_text([{"role": "assistant", "content": asked[-1]}]) if asked else ""


def _unlogged(*_values: Mapping[str, Any]) -> None:
    """Take what a trainer would log."""
