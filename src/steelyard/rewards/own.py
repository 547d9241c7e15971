"""The user's own reward: a function, as it is.

`reward` makes a value of it that the runtime can run, and `named` finds one by
`package.module:function` or `path/to/file.py:function`. What the function is given follows from the
names of its parameters: `rollout` is the whole rollout, `prompt` and `completion` are text, every
other name is a column.

Synchronous functions run in worker processes that can be killed: they must be importable there, so a
lambda or a function inside another is refused. Coroutine functions run in the event loop.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Context, How, Scored, Takes, as_judgement
from steelyard.rollout import Rollout, final_text

_GIVEN = ("rollout", "prompt", "completion", "context")


@dataclass(frozen=True, slots=True)
class FunctionReward:
    """A function of the user's that judges one rollout.

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
    """

    function: Callable[..., Any]
    name: str
    floor: float
    target: str
    columns: tuple[str, ...]
    identity: str
    how: How
    takes: Takes = Takes.ROLLOUT
    depends_on: str = "content"
    fault: Callable[[Mapping[str, Any]], str | None] | None = None
    given: tuple[str, ...] = field(default=(), repr=False)

    def lint(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a row's columns, if a `fault` function was given."""
        return None if self.fault is None else self.fault(columns)

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002 - a function applies to every row
        """A function applies to every row that has its columns."""
        return True

    async def canary(self) -> bool | None:
        """None of its own: the last rollout that it judged serves."""
        return None

    def __call__(self, given: Rollout, context: Context, /) -> Any:  # noqa: ANN401 - a judgement, or its awaitable
        """Call the function; the scheduler takes what it returns as a judgement."""
        return self.function(*self._arguments(given, context))

    def _arguments(self, rollout: Rollout, context: Context) -> list[Any]:
        ready = {"rollout": rollout, "context": context}
        return [
            ready[name]
            if name in ready
            else final_text(rollout.completion)
            if name == "completion"
            else final_text(rollout.prompt) or rollout.prompt
            if name == "prompt"
            else rollout.columns.get(name)
            for name in self.given
        ]


@overload
def reward(function: Callable[..., Any], /) -> FunctionReward: ...


@overload
def reward(
    *,
    name: str | None = None,
    floor: float = 0.0,
    fault: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> Callable[[Callable[..., Any]], FunctionReward]: ...


def reward(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    floor: float = 0.0,
    fault: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> FunctionReward | Callable[[Callable[..., Any]], FunctionReward]:
    """Make a reward of a function, with or without settings.

    Parameters
    ----------
    function
        Takes what its parameters name: `rollout`, `prompt`, `completion`, `context`, or a column;
        returns a finite number or a `Scored`.
    name
        Its name in records; the function's own if not given.
    floor
        The lowest value it returns: what a rollout gets on which it fails for the rollout's content.
    fault
        Says what is wrong with a row's columns, or `None`; asked before anything is judged.

    Raises
    ------
    RefusedError
        If a worker process could not find the function.

    Examples
    --------
    >>> @reward
    ... def short(completion: str) -> float:
    ...     return 1.0 if len(completion) < 200 else 0.0
    >>> short.name, short.columns
    ('short', ())
    """

    def make(function: Callable[..., Any]) -> FunctionReward:
        return _make(function, name=name, floor=floor, fault=fault)

    return make if function is None else make(function)


def _make(
    function: Callable[..., Any],
    *,
    name: str | None,
    floor: float,
    fault: Callable[[Mapping[str, Any]], str | None] | None,
    target: str | None = None,
) -> FunctionReward:
    its_name = name if name is not None else str(getattr(function, "__name__", type(function).__name__))
    parameters = inspect.signature(function).parameters.values()
    open_ended = next((p for p in parameters if p.kind in {p.VAR_POSITIONAL, p.KEYWORD_ONLY}), None)
    if open_ended is not None:
        raise RefusedError(
            f"the parameter {open_ended} cannot be filled by position",
            where=f"reward {its_name!r}",
            remedy=f"name plain parameters: {', '.join(_GIVEN)}, or columns",
        )
    given = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    needed = tuple(p.name for p in parameters if p.default is p.empty and p.name in given)
    awaited = inspect.iscoroutinefunction(function)
    return FunctionReward(
        function,
        its_name,
        as_judgement(floor).value,
        target or _target(function),
        tuple(column for column in needed if column not in _GIVEN),
        f"{its_name}/{_source_digest(function)}",
        How.ASYNC if awaited else How.WORKER,
        fault=fault,
        given=given,
    )


def _target(function: Callable[..., Any]) -> str:
    """Where a worker process finds a function; a script's own is found in its file."""
    module = getattr(function, "__module__", "")
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if module == "__main__" and script is not None:
        module = str(Path(script).resolve())
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _source_digest(function: Callable[..., Any]) -> str:
    """A digest that changes with the function's text; with its code where the text is gone."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = repr(function).encode() if code is None else code.co_code + repr(code.co_consts).encode()
    return blake2b(text, digest_size=8).hexdigest()


def named(target: str) -> FunctionReward:
    """Find a reward by `package.module:function` or `path/to/file.py:function`.

    Raises
    ------
    RefusedError
        If there is no such module, file or function.
    """
    found = _resolve(target)
    if isinstance(found, FunctionReward):
        return replace(found, target=target)
    if not callable(found):
        raise RefusedError(
            f"{target} is {type(found).__name__}, not a function", where="--reward", remedy="name a function"
        )
    return _make(found, name=None, floor=0.0, fault=None, target=target)


def refuse_unreachable(reward: FunctionReward) -> None:
    """Refuse a synchronous function that a worker process cannot find.

    Raises
    ------
    RefusedError
        For a lambda, a function inside another, or one typed into an interpreter.
    """
    module, _, name = reward.target.rpartition(":")
    reason = (
        f"it is defined inside another function ({name})"
        if "<" in name
        else "it was defined in an interactive session"
        if module == "__main__"
        else None
    )
    if reason is not None:
        raise RefusedError(
            f"{reason}, so no worker process can import it",
            where=f"reward {reward.name!r}",
            remedy="define it at the top level of a module, or make it async if it only waits",
        )


def in_worker(item: tuple[str, Rollout]) -> Scored:
    """What a worker process runs: find the reward, once, and judge."""
    target, rollout = item
    return as_judgement(_found(target)(rollout, Context()))


@lru_cache(maxsize=64)
def _found(target: str) -> FunctionReward:
    return named(target)


def _resolve(target: str) -> object:
    module_name, _, path = target.rpartition(":")
    try:
        found: object = _load(module_name)
    except RefusedError:
        raise
    except BaseException as error:  # importing may do anything, sys.exit included
        if isinstance(error, KeyboardInterrupt):
            raise
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        raise RefusedError(
            f"{module_name} cannot be imported ({describe(error)})",
            where=f"--reward {target}",
            remedy="run from the folder that holds it, or name the file: path/to/file.py:function"
            if missing
            else f"mend the module until python -c 'import {module_name}' works",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            here = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")][:8]
            raise RefusedError(
                f"there is no {name!r} in {module_name}",
                where=f"--reward {target}",
                remedy=f"name one of: {', '.join(here)}" if here else "define the function there",
            )
        found = getattr(found, name)
    return found


def _load(name: str) -> ModuleType:
    if not name.endswith(".py"):
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise RefusedError("there is no such file", where=f"--reward {name}", remedy="check the path")
    alias = f"_steelyard_{blake2b(str(path).encode(), digest_size=6).hexdigest()}_{path.stem}"
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise RefusedError("this is no Python file", where=f"--reward {name}", remedy="check the path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module
