"""Functions that are values: what no name finds, a worker process is sent.

A `functools.partial`, an instance with `__call__`, a bound method: what makes them is settings, and
trainers' libraries hand them out (`trl.rewards.get_cosine_scaled_reward(max_len=512)`). They are pickled
when the reward is made, so that the run judges by the settings that its identity tells; functions and
classes inside are pickled as names, and the script's own as names in its file, for in a worker `__main__`
is another module.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
from collections.abc import Callable
from hashlib import blake2b
from types import FunctionType
from typing import Any, Final, NamedTuple

from steelyard.errors import describe
from steelyard.rewards.importing import fingerprint, resolve, target_of, unreachable


class Carried(NamedTuple):
    """A function that is sent, not found.

    Parameters
    ----------
    pickled
        The function.
    name
        The reward's name, for messages.
    takes
        As `reward` was told it.
    """

    pickled: bytes
    name: str
    takes: str | None


class UncarriedError(Exception):
    """A value that cannot be sent; its text says why."""


def is_value(function: object) -> bool:
    """Whether a callable is a value with settings, and so has no name of its own to be found by."""
    if isinstance(function, functools.partial) or inspect.ismethod(function):
        return True
    return not isinstance(function, type) and not inspect.isroutine(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial is of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def said_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the text of a callable is: of an instance that is its class."""
    found = inspect.unwrap(inner(function))
    return found if inspect.isroutine(found) or isinstance(found, type) else type(found)


def name_of(function: Callable[..., Any]) -> str:
    """The name of a callable, as trainers show it: a partial's is that of its function.

    Examples
    --------
    >>> name_of(functools.partial(len)), name_of(max)
    ('len', 'max')
    """
    function = inner(function)
    return str(getattr(function, "__name__", type(function).__name__))


class _Pickler(pickle.Pickler):
    def reducer_override(self, given: object) -> Any:  # noqa: ANN401 - as pickle has it
        if not isinstance(given, FunctionType | type):
            return NotImplemented
        target = target_of(given)
        if given.__module__ == target.rpartition(":")[0]:
            return NotImplemented  # importable by that name, or pickle says why not
        reason = unreachable(given, target, _itself)
        if reason is not None:
            raise UncarriedError(f"it holds something that no worker process finds: {reason}")
        return resolve, (target,)


def _itself(found: object) -> object:
    return getattr(found, "function", found)


def pickled(function: Callable[..., Any]) -> bytes:
    """Pickle a callable for a worker process.

    Raises
    ------
    UncarriedError
        If it holds what cannot be sent: a lambda, a function inside another, an open file, a lock.
    """
    into = io.BytesIO()
    try:
        _Pickler(into).dump(function)
    except UncarriedError:
        raise
    except Exception as error:
        raise UncarriedError(f"it holds what cannot be pickled ({describe(error)})") from error
    return into.getvalue()


def settings(function: Callable[..., Any]) -> str:
    """A digest of what a callable holds, the same in every process.

    Of values by their contents (a set has no order), of objects by their class and what they pickle, of
    functions by their text.

    Examples
    --------
    >>> settings(functools.partial(round, ndigits=1)) == settings(functools.partial(round, ndigits=2))
    False
    """
    return blake2b(_told(function, ()).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _told(value: object, above: tuple[int, ...]) -> str:
    if type(value) in _PLAIN:
        return repr(value)
    if id(value) in above:
        return f"again {above.index(id(value))}"
    label, parts = _inside(value)
    told = [_told(part, (*above, id(value))) for part in parts]
    return f"{label}({', '.join(sorted(told) if label in _UNORDERED else told)})"


def _inside(value: object) -> tuple[str, list[object]]:
    """What a value is, and what it holds."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict:
        return kind.__name__, list(value.items())
    if isinstance(value, list | tuple | set | frozenset) and kind.__module__ == "builtins":
        return kind.__name__, list(value)
    if isinstance(value, functools.partial):
        return "partial", [value.func, value.args, value.keywords]
    if isinstance(value, type) or inspect.isroutine(value):
        bound = inspect.ismethod(value) and not isinstance(value.__self__, type)
        return fingerprint(value), [value.__self__] if bound else []  # type: ignore[union-attr]
    try:
        made = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - what cannot be sent is known by its class
        made = ()
    if isinstance(made, str):  # a name in its module
        return f"{fingerprint(kind)} {made}", []
    held = [list(part) if place >= _ITEMS and part is not None else part for place, part in enumerate(made)]
    return fingerprint(kind), held


_PLAIN: Final = (str, bytes, bool, int, float, complex, range, type(None), type(...))
_UNORDERED: Final = ("dict", "set", "frozenset")
_ITEMS: Final = 3  # from there on, what `__reduce_ex__` gives are iterators
