"""The user's own reward: a function, as it is.

`reward` makes a value of it that the runtime can run, and `named` finds one by
`package.module:function` or `path/to/file.py:function`. What the function is given follows from the
names of its parameters (`arguments`): one rollout, or several, as trainers' functions are written.

Synchronous functions run in worker processes that can be killed: they must be importable there, or be
values that can be sent (`carrying`), so a lambda or a function inside another is refused. Coroutine functions
run in the event loop.
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Context, How, Room, Takes, as_judgement
from steelyard.rewards.arguments import SEVERAL, Arguments, arguments
from steelyard.rewards.carrying import (
    Carried,
    UncarriedError,
    inner,
    is_value,
    name_of,
    pickled,
    said_in,
    settings,
)
from steelyard.rewards.importing import file_text, fingerprint, resolve, target_of, unreachable
from steelyard.rollout import Rollout


@dataclass(frozen=True, slots=True)
class FunctionReward:
    """A function of the user's that judges one rollout, or several.

    Parameters
    ----------
    function
        The function.
    name
        Its name in records and metrics.
    floor
        What a rollout gets on which it fails for the rollout's content.
    target
        Where a worker process finds it.
    columns
        The columns it reads, from its parameters without a default.
    identity
        Its name, with a digest of its text, its file and its settings.
    how, takes, depends_on
        As in `Reward`: it is awaited or run in processes; it is given a rollout, a batch or a group.
    arguments
        How its parameters are filled.
    fault
        Says what is wrong with a row's columns, if it was given.
    source
        The digest of its file, when it was read.
    carried
        What a worker process is sent instead of `target`: of a partial, an instance, a bound method.
    """

    function: Callable[..., Any]
    name: str
    floor: float
    target: str
    columns: tuple[str, ...]
    identity: str
    how: How
    arguments: Arguments
    takes: Takes = Takes.ROLLOUT
    depends_on: str = "content"
    fault: Callable[[Mapping[str, Any]], str | None] | None = None
    source: str = ""
    carried: Carried | None = None

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, if a `fault` function was given."""
        if self.fault is None:
            return None
        try:
            return self.fault(columns)
        except Exception as error:  # noqa: BLE001 - it saw the columns only: they are what it cannot take
            return f"the reward's own check of the columns failed on it ({describe(error)})"

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002 - a function applies to every row
        """A function applies to every row that has its columns."""
        return True

    async def canary(self) -> bool | None:
        """None of its own: the last rollout that it judged serves."""
        return None

    @property
    def also(self) -> tuple[str, ...]:
        """The columns it reads where a row has them, from its parameters with a default."""
        return self.arguments.also

    @property
    def spec(self) -> Any:  # noqa: ANN401 - what `again` takes; a child of this class is sent whole
        """What a worker process makes it from: where it finds it, or what it is sent."""
        return self.carried or self.target

    @property
    def room(self) -> Room | None:
        """A user's function says nothing of what it may use: the run does."""
        return None

    def pack(self, given: Rollout | Sequence[Rollout], /) -> Any:  # noqa: ANN401 - what its parameters name
        """What the function is given of a rollout, or of several."""
        if isinstance(given, Rollout):
            return self.arguments.packed(given)
        return self.arguments.packed_many(given)

    def judge(self, packed: Any, context: Context, /) -> Any:  # noqa: ANN401 - a judgement, or its awaitable
        """Call the function on what was packed."""
        return self.arguments.call(self.function, packed, context)

    def __call__(self, given: Rollout | Sequence[Rollout], context: Context, /) -> Any:  # noqa: ANN401 - as above
        """Call the function; the scheduler takes what it returns as judgements."""
        return self.judge(self.pack(given), context)


@overload
def reward(function: Callable[..., Any], /) -> FunctionReward: ...


@overload
def reward(
    *,
    name: str | None = None,
    floor: float = 0.0,
    fault: Callable[[Mapping[str, Any]], str | None] | None = None,
    takes: Literal["batch", "group"] | None = None,
) -> Callable[[Callable[..., Any]], FunctionReward]: ...


def reward(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    floor: float = 0.0,
    fault: Callable[[Mapping[str, Any]], str | None] | None = None,
    takes: Literal["batch", "group"] | None = None,
) -> FunctionReward | Callable[[Callable[..., Any]], FunctionReward]:
    """Make a reward of a function, with or without settings.

    Parameters
    ----------
    function
        Takes what its parameters name: `rollout`, `prompt`, `completion`, `context`, or a column;
        returns a finite number or a `Scored`. With `completions`, `prompts` or `rollouts` among them it
        is given lists and returns one, as trainers' functions do; `None` in it abstains if it stands for
        the whole group, and else is a failure.
    name
        Its name in records; the function's own if not given.
    floor
        The lowest value it returns: what a rollout gets on which it fails for the rollout's content. A
        run in which it returns less is stopped, for then failing would be paid.
    fault
        Says what is wrong with a row's columns, or `None`; asked before anything is judged.
    takes
        Of several rollouts: a whole `group` each call (default), or a `batch` of whole groups.

    Raises
    ------
    RefusedError
        If one of its parameters cannot be filled, or `takes` does not fit them.

    Examples
    --------
    >>> @reward
    ... def short(completion: str) -> float:
    ...     return 1.0 if len(completion) < 200 else 0.0
    >>> short.name, short.columns
    ('short', ())
    """

    def make(function: Callable[..., Any]) -> FunctionReward:
        return _make(function, name=name, floor=floor, fault=fault, takes=takes)

    return make if function is None else make(function)


def _make(
    function: Callable[..., Any],
    *,
    name: str | None,
    floor: float,
    fault: Callable[[Mapping[str, Any]], str | None] | None,
    takes: str | None = None,
    target: str | None = None,
) -> FunctionReward:
    its_name = name if name is not None else name_of(function)
    where = f"reward {its_name!r}"
    try:
        given = arguments(function, where)
        lowest = as_judgement(floor).value
    except (TypeError, ValueError) as error:
        raise RefusedError(
            f"it cannot be made a reward ({describe(error)})",
            where=where,
            remedy="give a function whose parameters can be seen, and a finite number as its floor",
        ) from None
    if takes not in ((None, "batch", "group") if given.many else (None,)):
        raise RefusedError(
            f"takes={takes!r} does not fit a function of {'several' if given.many else 'one'}",
            where=where,
            remedy="say 'batch' or 'group'"
            if given.many
            else f"name a parameter {' or '.join(sorted(SEVERAL))}",
        )
    together = given.many and takes != "batch"
    text = file_text(said_in(function))
    is_held = is_value(function)
    carried = None
    how = How.ASYNC if _awaited(function) else How.WORKER
    if is_held and target is None and how is How.WORKER:
        with contextlib.suppress(UncarriedError):  # said where a run begins, as of a lambda
            carried = Carried(pickled(function), its_name, takes)
    held = (settings(function),) if is_held else ()
    return FunctionReward(
        function,
        its_name,
        lowest,
        target or target_of(function),
        given.columns,
        f"{its_name}/{fingerprint(function, fault, lowest, text, *held)}",
        how,
        given,
        takes=Takes.GROUP if together else Takes.BATCH if given.many else Takes.ROLLOUT,
        depends_on="group" if together else "content",
        fault=fault,
        source=fingerprint(text),
        carried=carried,
    )


def _awaited(function: Callable[..., Any]) -> bool:
    """Whether calling it gives what is to be awaited."""
    function = inner(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether calling it is awaited, not whether it is callable
    )


def again(spec: str | Carried) -> FunctionReward:
    """Make a reward of its `spec`, in another process.

    Raises
    ------
    RefusedError
        If it is not found there, or cannot be unpickled.
    """
    if isinstance(spec, str):
        return named(spec)
    try:
        function = pickle.loads(spec.pickled)  # noqa: S301 - the process that scores made it
    except Exception as error:
        raise RefusedError(
            f"a worker process cannot make it again ({describe(error)})",
            where=f"reward {spec.name!r}",
            remedy="mend it until pickle.loads(pickle.dumps(it)) works in a fresh interpreter",
        ) from error
    return _make(function, name=spec.name, floor=0.0, fault=None, takes=spec.takes)


def named(target: str) -> FunctionReward:
    """Find a reward by `package.module:function` or `path/to/file.py:function`.

    Raises
    ------
    RefusedError
        If there is no such module, file or function.
    """
    found = resolve(target)
    if isinstance(found, FunctionReward):
        return replace(found, target=target)
    if not callable(found):
        raise RefusedError(
            f"{target} is {type(found).__name__}, not a function",
            where=f"reward {target}",
            remedy="name a function",
        )
    return _make(found, name=None, floor=0.0, fault=None, target=target)


def refuse_unreachable(reward: FunctionReward) -> None:
    """Refuse a synchronous function that a worker process cannot find.

    Raises
    ------
    RefusedError
        For a lambda, a function inside another, or one typed into an interpreter; for a partial, an instance
        or a bound method that holds such, or what cannot be pickled.
    """
    if reward.carried is not None:
        return
    reason = unreachable(reward.function, reward.target, lambda found: getattr(found, "function", found))
    if reason is not None and is_value(reward.function):
        raise RefusedError(
            f"{_uncarried(reward.function)}, so it cannot be sent to a worker process",
            where=f"reward {reward.name!r}",
            remedy="let it hold functions and classes of a module and what can be pickled (it may open the "
            "rest when it is first called), or make it async if it only waits",
        )
    if reason is not None:
        raise RefusedError(
            f"{reason}, so no worker process can import it",
            where=f"reward {reward.name!r}",
            remedy="define it at the top level of a module, or make it async if it only waits",
        )


def _uncarried(function: Callable[..., Any]) -> str:
    try:
        pickled(function)
    except UncarriedError as error:
        return str(error)
    return "it was made under a name that it does not have"
