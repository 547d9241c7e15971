"""The judge's end of the socket: stand-ins for what lives in the candidate's process.

Functions take and return values; objects are handles; classes are real classes whose instances are
handles; exceptions are raised here as the nearest built-in type. A candidate reaches nothing here but the
values that it returns, so each is held to what Python demands of it (a length is an int), and:

- a handle is equal to itself, and to another one only where the tests constructed both; never to a value,
  so an `__eq__` that always pleases pleases nobody. What a call returns is never "constructed", also where
  it is the very object that was (`Solution().solve(3)` may return its `self`);
- arithmetic and `in` send the other operand, perhaps the expected value, to the candidate: only for objects
  that the tests constructed of a class which the suite calls by a capital name, and for what such arithmetic
  made. `abs(f(3) - 9) < 1e-6` and `9 in f(3)` are no questions for the candidate;
- `StopIteration`, which would end a loop of the tests in silence, `SystemExit` and their kind arrive as
  `RuntimeError` (`next` on a handle alone may say that an iterator is at its end);
- arguments that a call has changed come back only where asked for (`in_place`);
- of the tests the candidate can call the functions that it was passed, and use public attributes of
  instances of the suite's own classes: no function's globals, no frame, no class.

A message nobody asked for, or one that is none, ends the run (`LostError`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

_HIDDEN = (StopIteration, StopAsyncIteration)
HIDDEN = frozenset(kind.__name__ for kind in _HIDDEN)
ERRORS: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _HIDDEN)
}
_TRUTHS = frozenset({"__contains__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__exit__"})
_NUMBERS = {"__len__": int, "__int__": int, "__index__": int, "__hash__": int, "__float__": float}
_ORDERS = frozenset({"__lt__", "__le__", "__gt__", "__ge__"})
_ASKED = frozenset(
    "__len__ __iter__ __next__ __getitem__ __setitem__ __delitem__ __call__ __enter__ __exit__ __reversed__"
    " __int__ __float__ __index__ __bool__ __abs__ __neg__ __pos__ __invert__ __round__".split()
)
_ARITHMETIC = frozenset(
    f"__{how}{what}__"
    for how in ("", "r", "i")
    for what in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
)


def same(one: object, other: object) -> bool:
    """Whether two names mean one object: what was constructed and what a call returned are two handles."""
    if isinstance(one, Handle) and isinstance(other, Handle):
        return one._target == other._target
    return one is other


class Function:
    """A function of the candidate's."""

    __slots__ = ("__name__", "_link", "_target", "_waits")

    def __init__(self, link: Any, target: Any, name: str, *, waits: bool = False) -> None:
        self._link, self._target, self.__name__, self._waits = link, target, name, waits

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._waits:
            return _later(self._link, self._target, args, kwargs)
        return self._link.call(self._target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._link.result("get", self._target, name)


class Method:
    """A method of a handle, not asked for yet."""

    __slots__ = ("__name__", "__self__", "_link", "_waits")

    def __init__(self, link: Any, handle: Any, name: str, *, waits: bool) -> None:
        self._link, self.__self__, self.__name__, self._waits = link, handle, name, waits

    @property
    def _target(self) -> Any:
        """A method that is passed on needs a handle of its own."""
        bound = self._link.result("get", object.__getattribute__(self.__self__, "_target"), self.__name__)
        return object.__getattribute__(bound, "_target")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        target = object.__getattribute__(self.__self__, "_target")
        if self._waits:
            return _later(self._link, target, args, kwargs, self.__name__)
        return self._link.call(target, args, kwargs, name=self.__name__)


async def _later(link: Any, target: Any, args: Any, kwargs: Any, name: str = "") -> Any:
    return link.call(target, args, kwargs, name=name)


def call_in_place(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Make a call that stands as a statement: its effect on the arguments is the point of it."""
    if type(function) is Function and not function._waits:
        return function._link.call(function._target, args, kwargs, in_place=True)
    if type(function) is Method and not function._waits:
        target = object.__getattribute__(function.__self__, "_target")
        return function._link.call(target, args, kwargs, in_place=True, name=function.__name__)
    return function(*args, **kwargs)


class Handle:
    """An object of the candidate's."""

    _link: Any
    _target: int
    _known = False  # whether the tests constructed it, or computed it from such
    _trusted = False  # whether the suite calls its class by a capital name
    _calls: frozenset[str] = frozenset()
    _waiting: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        link = object.__getattribute__(self, "_link")
        kind = type(self)
        if name in kind._calls or name in kind._waiting:
            return Method(link, self, name, waits=name in kind._waiting)
        if name.startswith("__") and name.endswith("__") and name not in {"__dict__", "__name__", "__doc__"}:
            raise AttributeError(name)
        return link.result("get", object.__getattribute__(self, "_target"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.result("set", self._target, name, self._link.tree(value))

    def __delattr__(self, name: str) -> None:
        self._link.result("del", self._target, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return False
        if self._target == other._target:
            return True
        if not (self._known and other._known):
            return False
        return bool(self._link.result("op", self._target, "__eq__", [{"R": other._target}]) is True)

    def __hash__(self) -> int:
        said = self._link.result("op", self._target, "__hash__", []) if self._known else self._target
        return said if type(said) is int else self._target

    def __str__(self) -> str:
        return _text(self._link.result("op", self._target, "__str__", []))

    def __repr__(self) -> str:
        return _text(self._link.result("op", self._target, "__repr__", []))

    def __format__(self, spec: str) -> str:
        return _text(self._link.result("op", self._target, "__format__", [self._link.tree(spec)]))


def _text(said: Any) -> str:
    if type(said) is not str:
        raise TypeError("__str__ returned no string")
    return said


class Proxied(type):
    """The type of classes that stand for the candidate's."""

    _link: Any
    _target: int

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        kind: Any = cls
        if issubclass(kind, Exception):
            return type.__call__(cls, *args, **kwargs)
        made = kind._link.call(kind._target, args, kwargs)
        if not isinstance(made, Handle):
            raise kind._link.lose("protocol", "an instance that is none")
        return kind._link.handle(type(made), made._target, known=True)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return cls._link.result("get", cls._target, name)

    def __iter__(cls) -> Any:
        return cls._link.result("op", cls._target, "__iter__", [])

    def __len__(cls) -> int:
        return int(cls._link.result("op", cls._target, "__len__", []))

    def __bool__(cls) -> bool:
        return True

    def __setattr__(cls, name: str, value: Any) -> None:
        if name.startswith("_"):  # Python's own business, __abstractmethods__ and the like
            type.__setattr__(cls, name, value)
        else:
            cls._link.result("set", cls._target, name, cls._link.tree(value))

    def __getitem__(cls, key: Any) -> Any:
        return cls._link.result("op", cls._target, "__getitem__", [cls._link.tree(key)])


def stand_in(link: Any, at: int, said: dict[str, Any]) -> Any:
    """Make a class of a class's description."""
    name = str(said["n"])[:100]
    bases = tuple(link.kind(tag) for tag in said["bases"][:10])
    body: dict[str, Any] = {"__module__": "candidate", "_link": link, "_target": at, "_trusted": False}
    if said["error"] is not None:
        nearest = next((ERRORS[word] for word in said["error"] if word in ERRORS), None)
        if nearest is None or HIDDEN & {*said["error"]}:
            nearest = RuntimeError
        body |= {"__str__": _said, "__getattr__": _error_attribute}
        return Proxied(name, tuple(base for base in bases if issubclass(base, Exception)) or (nearest,), body)
    body["_calls"] = frozenset(str(word) for word in said["calls"][:1000])
    body["_waiting"] = frozenset(str(word) for word in said["waits"][:1000])
    for dunder in said["dunders"][:200]:
        if dunder in _OPERATORS:
            body[dunder] = _OPERATORS[dunder]
        elif dunder == "__contains__":
            body[dunder] = _contains
    return Proxied(name, tuple(base for base in bases if issubclass(base, Handle)) or (Handle,), body)


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: Any, *args: Any, **kwargs: Any) -> Any:
        link, target = self._link, self._target
        if name == "__call__":
            return link.call(target, args, kwargs)
        if name in _ORDERS and not (isinstance(args[0], Handle) and self._known and args[0]._known):
            return NotImplemented
        if name in _ARITHMETIC and not (self._known and self._trusted):
            return NotImplemented
        if name == "__exit__":
            args = () if args[0] is None else (args[0].__name__, str(args[1]))
        value = link.operation(target, name, [link.tree(value) for value in args])
        if name in _ARITHMETIC and isinstance(value, Handle):
            return link.handle(type(value), value._target, known=True)
        return _coerced(name, value)

    operate.__name__ = name
    return operate


_OPERATORS = {name: _operator(name) for name in (*_ASKED, *_ORDERS, *_ARITHMETIC)}


def _contains(self: Any, item: Any) -> bool:
    """Ask the tests' own containers; look through what others yield."""
    if self._known and self._trusted:
        return self._link.operation(self._target, "__contains__", [self._link.tree(item)]) is True
    return any(item is found or item == found for found in self)


def _coerced(name: str, value: Any) -> Any:
    if name in _TRUTHS:
        return value is True
    if (kind := _NUMBERS.get(name)) and type(value) is not kind:
        raise TypeError(f"{name} returned no {kind.__name__}")
    if name == "__iter__" and not (isinstance(value, Handle) and hasattr(type(value), "__next__")):
        raise TypeError("__iter__ returned no iterator")
    return value


def raised(kind: Any, message: str, held: int) -> Exception:
    """An instance of the stand-in for a candidate's exception class."""
    error: Exception = kind.__new__(kind)
    error.args = (message,)
    vars(error).update(_steelyard_said=message, _steelyard_held=held)
    return error


def _said(error: Any) -> str:
    said = vars(error).get("_steelyard_said")
    return said if type(said) is str else Exception.__str__(error)


def _error_attribute(error: Any, name: str) -> Any:
    held = vars(error).get("_steelyard_held")
    if held is None or (name.startswith("__") and name.endswith("__")):
        raise AttributeError(name)
    return type(error)._link.result("get", held, name)
