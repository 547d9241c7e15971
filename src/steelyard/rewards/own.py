"""The user's own reward: a function, as it is.

`reward` makes a value of it that the runtime can run, and `named` finds one by
`package.module:function` or `path/to/file.py:function`. What the function is given follows from the
names of its parameters: `rollout` is the whole rollout, `prompt` and `completion` are text (of a
conversation the last message of the user and of the assistant), `files` and `state` are what an agent
left behind, `context` is what it may know about its attempt, every other name is a column. A parameter
with a default keeps it where the row has no such column; `**more` is given nothing, for a reward must
say what it reads.

Synchronous functions run in worker processes that can be killed: they must be importable there, so a
lambda or a function inside another is refused. Coroutine functions run in the event loop.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import CellType, ModuleType
from typing import Any, overload

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Context, How, Scored, Takes, as_judgement
from steelyard.rollout import Rollout, Text, final_text

_GIVEN = ("rollout", "prompt", "completion", "context", "files", "state")
_FOREIGN = ("completions", "prompts", "solution_str")  # TRL's and verl's
_NAMES = ("id", "group")  # of the row, not of what is judged: equal contents get equal verdicts

_here = {"in_worker": False}  # whether this process is a worker: one must never start workers of its own


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
    given: tuple[inspect.Parameter, ...] = field(default=(), repr=False)

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

    def __call__(self, given: Rollout, context: Context, /) -> Any:  # noqa: ANN401 - a judgement, or its awaitable
        """Call the function; the scheduler takes what it returns as a judgement."""
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self.given:
            value = _argument(parameter, given, context)
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                plain.append(value)
        return self.function(*plain, **named)


def _argument(parameter: inspect.Parameter, rollout: Rollout, context: Context) -> Any:  # noqa: ANN401
    """What a function is given for a parameter."""
    name = parameter.name
    if name == "completion":
        return final_text(rollout.completion)
    if name == "prompt":
        return _question(rollout.prompt)
    if name == "context":
        return context
    if name == "rollout":
        return rollout
    value = getattr(rollout, name) if name in _GIVEN else rollout.columns.get(name)
    return parameter.default if value is None and parameter.default is not parameter.empty else value


def _question(prompt: Text) -> str:
    """The text of a prompt: itself, or what the user said last."""
    if isinstance(prompt, str):
        return prompt
    asked = [message.get("content") for message in prompt if message.get("role") == "user"]
    return final_text([{"role": "assistant", "content": asked[-1]}]) if asked else ""


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
        The lowest value it returns: what a rollout gets on which it fails for the rollout's content. A
        run in which it returns less is stopped, for then failing would be paid.
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
    where = f"reward {its_name!r}"
    try:
        parameters = inspect.signature(function).parameters.values()
        lowest = as_judgement(floor).value
    except (TypeError, ValueError) as error:
        raise RefusedError(
            f"it cannot be made a reward ({describe(error)})",
            where=where,
            remedy="give a function whose parameters can be seen, and a finite number as its floor",
        ) from None
    open_ended = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if open_ended is not None:
        raise RefusedError(
            f"the parameter {open_ended} names nothing it could be given",
            where=where,
            remedy=f"name plain parameters: {', '.join(_GIVEN)}, or columns",
        )
    given = tuple(p for p in parameters if p.kind is not p.VAR_KEYWORD)
    foreign = next((p.name for p in given if p.name in _FOREIGN), None)
    if foreign is not None:
        raise RefusedError(
            f"the parameter {foreign} is another framework's: one call judges one completion here",
            where=where,
            remedy="name its parameters completion, prompt, and the columns it reads, as in "
            "def f(completion, answer): return other(...)",
        )
    name_of_row = next((p.name for p in given if p.name in _NAMES), None)
    if name_of_row is not None:
        raise RefusedError(
            f"the parameter {name_of_row} is a row's name, no column: equal contents are judged alike",
            where=where,
            remedy="drop it, or carry what is to be judged in a column of another name",
        )
    needed = tuple(p.name for p in given if p.default is p.empty)
    awaited = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether calling it is awaited, not whether it is callable
    )
    return FunctionReward(
        function,
        its_name,
        lowest,
        target or _target(function),
        tuple(column for column in needed if column not in _GIVEN),
        f"{its_name}/{fingerprint(function, fault, lowest, _file_text(function))}",
        How.ASYNC if awaited else How.WORKER,
        fault=fault,
        given=given,
    )


def _file_text(function: Callable[..., Any]) -> str | None:
    """Everything in the function's file: a constant or a helper beside it changes verdicts, too."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
        return None if file is None else Path(file).read_text(errors="replace")
    except (TypeError, OSError, ValueError):
        return None


def _target(function: Callable[..., Any]) -> str:
    """Where a worker process finds a function; a script's own is found in its file."""
    module = getattr(function, "__module__", "")
    if module == "__main__":
        main = sys.modules.get("__main__")
        script = getattr(main, "__file__", None)
        spec = getattr(main, "__spec__", None)
        if spec is not None:  # python -m package.module
            module = spec.name
        elif script is not None:
            module = str(Path(script).resolve())
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def fingerprint(*values: object) -> str:
    """A digest that changes with the text of functions, and with the plain values that they hold.

    The same in every process, so it reads no address; of an object it knows the class, of a function
    that was made without a text its code.
    """
    return blake2b("\n".join(map(_told, values)).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _told(value: object) -> str:
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_told, value))})"
    if isinstance(value, functools.partial):
        return _told((value.func, value.args, *sorted(value.keywords.items())))
    if inspect.ismethod(value):
        return _told((value.__func__, value.__self__))
    code = getattr(value, "__code__", None)
    if code is None:
        kind = value if isinstance(value, type) else type(value)
        return f"{kind.__module__}.{kind.__qualname__} {_source(kind)}"
    plain = [
        held for held in map(_held, getattr(value, "__closure__", None) or ()) if isinstance(held, _PLAIN)
    ]
    defaults = [getattr(value, "__defaults__", None), *(getattr(value, "__kwdefaults__", None) or {}).items()]
    return f"{_source(value) or repr((code.co_names, code.co_consts))} {_told(plain)} {_told(defaults)}"


_PLAIN = (str, int, float, tuple)


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _source(value: Any) -> str:  # noqa: ANN401 - a class or a function
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""


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
        f"it is a lambda or defined inside another function ({name})"
        if "<" in name
        else "it was defined in an interactive session"
        if module in {"", "__main__"} or module.endswith(">")
        else None
        if _is_found(reward, module, name)
        else f"{module.rpartition('/')[2]}:{name} is something else"
    )
    if reason is not None:
        raise RefusedError(
            f"{reason}, so no worker process can import it",
            where=f"reward {reward.name!r}",
            remedy="define it at the top level of a module, or make it async if it only waits",
        )


def _is_found(reward: FunctionReward, module: str, name: str) -> bool:
    """Whether that name holds the reward, as far as it can be told without an import."""
    main = sys.modules.get("__main__")
    found: object = main if _is_main(main, module) else sys.modules.get(module)
    if found is None:
        return True
    for word in name.split("."):
        found = getattr(found, word, None)
    function = found.function if isinstance(found, FunctionReward) else found
    return function is reward.function


def _is_main(main: ModuleType | None, module: str) -> bool:
    spec = getattr(main, "__spec__", None)
    script = getattr(main, "__file__", None)
    return module == (spec.name if spec is not None else str(Path(script).resolve()) if script else "")


def in_worker(item: tuple[str, Rollout]) -> Scored:
    """What a worker process runs: find the reward, once, and judge."""
    _here["in_worker"] = True
    target, rollout = item
    return as_judgement(_found(target)(rollout, Context()))


def refuse_in_worker(where: str) -> None:
    """Refuse to start a run in a worker process: a worker imports the script that holds the reward.

    Raises
    ------
    RefusedError
        If this process is a worker.
    """
    if _here["in_worker"]:
        raise RefusedError(
            "a run was started by importing its script, in a worker process",
            where=where,
            remedy='start it under if __name__ == "__main__": at the end of the script',
        )


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
            else f"mend the file until python {module_name} works"
            if module_name.endswith(".py")
            else f"mend the module until python -c 'import {module_name}' works",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            inside = getattr(found, "__dict__", {})
            here = [n for n, v in inside.items() if callable(v) and not n.startswith("_")][:8]
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
    if str(path.parent) not in sys.path:  # as if it had been run: what lies beside it can be imported
        sys.path.insert(0, str(path.parent))
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module
