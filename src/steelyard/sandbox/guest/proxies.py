"""The judge's end of the socket: stand-ins for what lives in the candidate's process.

Functions take and return values; objects are handles; classes are real classes whose instances are
handles; exceptions are raised here as the nearest built-in type. A candidate reaches nothing here but the
values that it returns, so each is held to what Python demands of it (a length is an int), and:

- a handle is equal to itself, and to another one only where the tests constructed both; never to a value,
  so an `__eq__` that always pleases pleases nobody;
- `StopIteration`, which would end a loop of the tests in silence, `SystemExit` and their kind arrive as
  `RuntimeError` (`next` on a handle alone may say that an iterator is at its end);
- arguments that a call has changed come back only where asked for (`in_place`);
- of the tests the candidate can call the functions that it was passed, and use public attributes of
  instances of the suite's own classes: no function's globals, no frame, no class.

A message nobody asked for, or one that is none, ends the run (`LostError`).
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from . import codec, frames

NESTED = 100  # calls back and forth that wait for one another
_HIDDEN = (StopIteration, StopAsyncIteration)
ERRORS: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _HIDDEN)
}
SHARED = frozenset(
    "bisect collections copy datetime decimal fractions functools heapq itertools json math operator random re"
    " statistics string time typing numpy".split()
)
"""Modules whose names a suite may use without importing them: the judge's own, never the candidate's."""
_ALIASES = {"np": "numpy", "dt": "datetime"}
_READS = {"__iter__": iter, "__next__": next, "__len__": len}
_TRUTHS = frozenset({"__contains__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__exit__"})
_NUMBERS = {"__len__": int, "__int__": int, "__index__": int, "__hash__": int, "__float__": float}
_TEXTS = frozenset({"__str__", "__repr__", "__format__"})
_OWN = frozenset(
    "__class__ __new__ __init__ __eq__ __ne__ __hash__ __getattr__ __getattribute__ __setattr__ __delattr__"
    " __dir__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __sizeof__ __init_subclass__ __repr__ __str__"
    " __subclasshook__ __del__ __class_getitem__ __format__ __instancecheck__ __subclasscheck__ __await__"
    " __prepare__ __mro_entries__ __set_name__ __post_init__ __buffer__ __release_buffer__".split()
)


class LostError(BaseException):
    """The candidate's process is gone, or does not keep to the protocol: no test may catch that."""


class CandidateLoadError(Exception):
    """The candidate did not become a module."""

    def __init__(self, kind: str, message: str, line: object) -> None:
        where = f", line {line}" if type(line) is int else ""
        super().__init__(f"{kind}: {message}{where}"[:400])


class Link:
    """One candidate: its socket, and the stand-ins that were made of it.

    Parameters
    ----------
    fd
        The socket.
    page
        A writable byte that is 1 while the candidate's answer is awaited, or None.
    message_bytes, total_bytes
        The longest message, and all that one candidate may send.
    """

    def __init__(self, fd: int, page: Any, message_bytes: int, total_bytes: int, suite: str) -> None:
        self.fd, self.page, self.suite = fd, page, suite
        self.left, self.message_bytes = total_bytes, message_bytes
        self.reader = frames.Reader(message_bytes)
        self.lost = ""
        self.why = ""
        self.touched = False
        self.in_place = False
        self.depth = 0
        self.handles: dict[int, Any] = {}
        self.kinds: dict[int, Any] = {}
        self.mine: list[Any] = []
        self.places: dict[int, int] = {}

    # the socket

    def lose(self, code: str, why: str) -> LostError:
        if not self.lost:
            self.lost, self.why = code, why
        return LostError(self.why)

    def unread(self) -> bool:
        """Whether the candidate sent what nobody asked for."""
        if self.reader.pending:
            return True
        os.set_blocking(self.fd, False)
        try:
            return bool(os.read(self.fd, 1))
        except OSError:
            return False
        finally:
            os.set_blocking(self.fd, True)

    def send(self, message: list[Any]) -> None:
        if self.lost:
            raise LostError(self.why)
        try:
            frames.send(self.fd, codec.dumps(message))
        except OSError as error:
            raise self.lose("gone", "the candidate's process is gone") from error

    def receive(self) -> list[Any]:
        """The next message; whatever else comes is the candidate's failure."""
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                raise self.lose("gone", "the candidate's process is gone")
            self.left -= len(data)
            try:
                got = self.reader.feed(data)
                if self.left < 0:
                    raise ValueError("the answers are too long together")  # noqa: TRY301
                if not got:
                    continue
                if len(got) > 1 or self.reader.pending:
                    raise ValueError("more than one answer")  # noqa: TRY301
                message = codec.loads(got[0])
                if type(message) is not list or not message or type(message[0]) is not str:
                    raise ValueError("no message")  # noqa: TRY301
            except ValueError as error:
                raise self.lose("protocol", str(error)[:200]) from None
            return message

    def ask(self, *request: Any) -> Any:
        """Send a request and return its reply, serving what the candidate asks meanwhile."""
        self.touched = True
        if self.depth >= NESTED:
            raise self.lose("protocol", f"more than {NESTED} calls wait for one another")
        self.depth += 1
        page = self.page
        if page is not None:
            page[0] = 1
        try:
            self.send(list(request))
            while True:
                reply = self.receive()
                if (kind := reply[0]) == "v":
                    return reply
                if kind in {"x", "stop", "load_error"}:
                    return reply
                if page is not None:
                    page[0] = 0
                self.send(self.served(reply))
                if page is not None:
                    page[0] = 1
        finally:
            self.depth -= 1
            if page is not None:
                page[0] = 0

    def result(self, *request: Any) -> Any:
        """Ask, and return the value or raise the exception."""
        reply = self.ask(*request)
        try:
            if reply[0] == "v":
                return self.value(reply[1])
            error = self.rebuilt(reply)
        except (ValueError, TypeError, IndexError, AttributeError, KeyError) as fault:
            raise self.lose("protocol", str(fault)[:200]) from None
        raise error from None

    # values

    def tree(self, value: object) -> Any:
        return codec.to_tree(value, self.tag)

    def value(self, tree: Any) -> Any:
        return codec.from_tree(tree, self.remote, self.here)

    def tag(self, value: Any, known: bool) -> dict[str, Any] | None:  # noqa: FBT001
        """How an object of the tests, or a stand-in, goes to the candidate."""
        kind = type(value)
        if kind in {Function, Method} or issubclass(kind, Handle):
            return {"R": object.__getattribute__(value, "_target")}
        if isinstance(kind, Proxied) and issubclass(kind, Exception):
            return None
        if isinstance(value, type) and type(value) is Proxied:
            return {"R": value._target}
        if known:
            return None
        if isinstance(value, type | BuiltinFunctionType) and _public(value):
            return {"o": codec.type_name(value), "h": None, "g": [value.__module__, value.__name__]}
        if not (callable(value) or self.open_to_candidate(value)) or isinstance(value, type | ModuleType):
            return None
        at = self.places.get(id(value))
        if at is None:
            at = self.places[id(value)] = len(self.mine)
            self.mine.append(value)
        function = isinstance(value, FunctionType | MethodType | BuiltinFunctionType)
        return {"o": codec.type_name(value), "h": at, "k": "f" if function else "x"}

    def open_to_candidate(self, value: object) -> bool:
        kind = type(value)
        return kind.__module__ in {self.suite, "_io", "unittest.mock"} or hasattr(kind, "__next__")

    def here(self, at: Any) -> Any:
        if type(at) is not int or not 0 <= at < len(self.mine):
            raise ValueError("no object of the tests")
        return self.mine[at]

    def remote(self, tag: dict[str, Any]) -> Any:
        """A stand-in for what a tag names: the same object for the same handle."""
        at = tag.get("h")
        if type(at) is not int:
            return codec.Opaque(tag["o"][:100])
        if (found := self.handles.get(at)) is not None:
            return found
        kind = tag.get("k")
        if kind in {"f", "a"}:
            made: Any = Function(self, at, str(tag.get("n") or tag["o"])[:100], waits=kind == "a")
        elif kind == "c":
            return self.kind(tag)
        elif kind == "x":
            made = Handle.__new__(self.kind(tag["c"], instance=True))
            object.__setattr__(made, "_link", self)
            object.__setattr__(made, "_target", at)
        else:
            raise ValueError("no tag")
        self.handles[at] = made
        return made

    def kind(self, tag: dict[str, Any], *, instance: bool = False) -> Any:
        """A class that stands for one of the candidate's, made when it is first mentioned."""
        at = tag["h"]
        if type(at) is not int:
            raise ValueError("no class")
        if at not in self.kinds:
            self.kinds[at] = _stand_in(self, at, tag["m"])
        found = self.kinds[at]
        if instance and not issubclass(found, Handle):
            raise ValueError("an exception as an object")
        return found

    def rebuilt(self, reply: list[Any]) -> Exception:
        """The exception that a candidate's becomes here."""
        if reply[0] != "x":
            return CandidateLoadError(str(reply[1])[:100], str(reply[2])[:300], reply[3])
        _, names, message, _line, tree, tag, held = reply
        message = str(message)[:400]
        args = self.value(tree) if tree is not None else None
        if tag is not None and held is not None and type(held) is int:
            kind = self.kind(tag)
            if issubclass(kind, Exception):
                return _raised(self, kind, message, held)
        names = [name for name in names if type(name) is str]
        hidden = {kind.__name__ for kind in _HIDDEN}
        for name in names:
            if name in hidden:
                break
            if (nearest := ERRORS.get(name)) is not None:
                try:
                    error = nearest(*args) if type(args) is tuple and len(args) < 10 else nearest(message)
                    if type(error) in ERRORS.values():
                        return error
                except Exception:  # noqa: BLE001, S110 (its arguments are not what the type demands)
                    pass
                break
        return RuntimeError(f"{names[0][:100] if names else 'exception'}: {message}")

    # what the candidate asks of the tests

    def served(self, request: list[Any]) -> list[Any]:
        """Call a function of the tests, or use an object of theirs; anything else ends the run."""
        try:
            what, at, *rest = request
            found = self.here(at)
            if what == "call":
                args = [self.value(tree) for tree in rest[0]]
                kwargs = {str(name): self.value(tree) for name, tree in rest[1].items()}
                action: Callable[[], Any] = lambda: found(*args, **kwargs)  # noqa: E731
                fit = callable(found)
            elif what in {"get", "set"}:
                fit = self.open_to_candidate(found) and type(rest[0]) is str and _plain_name(rest[0])
                fit = fit and not hasattr(type(found), "__next__")
                values = [self.value(tree) for tree in rest[1:]]
                action = lambda: (setattr if what == "set" else getattr)(found, rest[0], *values)  # noqa: E731
            elif what == "op":
                values = [self.value(tree) for tree in rest[1]]
                fit = self.open_to_candidate(found) and rest[0] in {*_READS, "__getitem__", "__contains__"}
                action = lambda: _operate(found, rest[0], values)  # noqa: E731
            else:
                fit = False
            if not fit:
                raise ValueError("no such request")  # noqa: TRY301
        except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
            raise self.lose("protocol", str(error)[:200]) from None
        try:
            return ["v", self.tree(action())]
        except StopIteration:
            return ["stop"]
        except Exception as error:  # noqa: BLE001 (it is the candidate's to handle)
            return ["x", [kind.__name__ for kind in type(error).__mro__], str(error)[:300]]

    def call(self, target: Any, args: Any, kwargs: Any, *, in_place: bool = False, name: str = "") -> Any:
        """Call a function or method of the candidate's."""
        trees = [self.tree(value) for value in args]
        named = {key: self.tree(value) for key, value in kwargs.items()}
        in_place = in_place or self.in_place
        what: list[Any] = ["method", target, name] if name else ["call", target]
        reply = self.ask(*what, trees, named, in_place)
        try:
            if reply[0] == "v":
                value = self.value(reply[1])
                if type(reply[1]) is dict and "made" in reply[1] and not name and isinstance(value, Handle):
                    object.__setattr__(value, "_made", True)
                if in_place:
                    for old, tree in zip(args, reply[2], strict=True):
                        copy_back(old, self.value(tree))
                return value
            error = self.rebuilt(reply)
        except (ValueError, TypeError, IndexError, AttributeError, KeyError) as fault:
            raise self.lose("protocol", str(fault)[:200]) from None
        raise error from None


def _plain_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not name.startswith(("gi_", "f_", "tb_", "cr_"))


def _public(value: Any) -> bool:
    """Whether the candidate's Python finds the same thing under the same name."""
    module = getattr(value, "__module__", None)
    known = module == "builtins" or (module or "").partition(".")[0] in SHARED | {"_operator", "_functools"}
    return known and getattr(sys.modules.get(module or ""), value.__name__, None) is value


def _operate(found: Any, name: str, values: list[Any]) -> Any:
    if read := _READS.get(name):
        return read(found)  # type: ignore[operator]
    return found[values[0]] if name == "__getitem__" else values[0] in found


def copy_back(old: Any, new: Any) -> None:
    """Give a list, dict, set or bytearray of the tests the content that the candidate left in it."""
    if type(old) is not type(new) or old == new:
        return
    if type(old) is list:
        if len(old) == len(new):
            for at, (inner, item) in enumerate(zip(old, new, strict=True)):
                if type(inner) in {list, dict, set} and type(inner) is type(item):
                    copy_back(inner, item)
                else:
                    old[at] = item
        else:
            old[:] = new
    elif type(old) is bytearray:
        old[:] = new
    elif type(old) in {dict, set}:
        old.clear()
        old.update(new)


class Function:
    """A function of the candidate's."""

    __slots__ = ("__name__", "_link", "_target", "_waits")

    def __init__(self, link: Link, target: Any, name: str, *, waits: bool = False) -> None:
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

    def __init__(self, link: Link, handle: Any, name: str, *, waits: bool) -> None:
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


async def _later(link: Link, target: Any, args: Any, kwargs: Any, name: str = "") -> Any:
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

    _link: Link
    _target: int
    _made = False
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
        if self is other:
            return True
        if not isinstance(other, Handle) or not (self._made and other._made):
            return False
        return bool(self._link.result("op", self._target, "__eq__", [{"R": other._target}]) is True)

    def __hash__(self) -> int:
        said = self._link.result("op", self._target, "__hash__", []) if self._made else self._target
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

    _link: Link
    _target: int

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        if issubclass(cls, Exception):
            return type.__call__(cls, *args, **kwargs)
        made = cls._link.call(cls._target, args, kwargs)
        if not isinstance(made, Handle):
            raise cls._link.lose("protocol", "an instance that is none")
        return made

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

    def __getitem__(cls, key: Any) -> Any:
        return cls._link.result("op", cls._target, "__getitem__", [cls._link.tree(key)])


def _stand_in(link: Link, at: int, said: dict[str, Any]) -> Any:
    """Make a class of a class's description."""
    name = str(said["n"])[:100]
    bases = tuple(link.kind(tag) for tag in said["bases"][:10])
    body: dict[str, Any] = {"__module__": "candidate", "_link": link, "_target": at}
    if said["error"] is not None:
        nearest = next((ERRORS[word] for word in said["error"] if word in ERRORS), None)
        if nearest is None or any(word in {"StopIteration", "StopAsyncIteration"} for word in said["error"]):
            nearest = RuntimeError
        body |= {"__str__": _said, "__getattr__": _error_attribute}
        return Proxied(name, tuple(base for base in bases if issubclass(base, Exception)) or (nearest,), body)
    body["_calls"] = frozenset(str(word) for word in said["calls"][:1000])
    body["_waiting"] = frozenset(str(word) for word in said["waits"][:1000])
    for dunder in said["dunders"][:200]:
        if dunder not in _OWN and type(dunder) is str and dunder.startswith("__") and dunder.endswith("__"):
            body[dunder] = _operator(dunder)
    return Proxied(name, tuple(base for base in bases if issubclass(base, Handle)) or (Handle,), body)


def _operator(name: str) -> Callable[..., Any]:
    ordering = name in {"__lt__", "__le__", "__gt__", "__ge__"}

    def operate(self: Any, *args: Any, **kwargs: Any) -> Any:
        link, target = self._link, self._target
        if name == "__call__":
            return link.call(target, args, kwargs)
        if ordering and not (isinstance(args[0], Handle) and self._made and args[0]._made):
            return NotImplemented
        if name == "__exit__":
            args = () if args[0] is None else (args[0].__name__, str(args[1]))
        reply = link.ask("op", target, name, [link.tree(value) for value in args])
        if reply[0] == "stop" and name == "__next__":
            raise StopIteration
        try:
            value = link.value(reply[1]) if reply[0] == "v" else link.rebuilt(reply)
        except (ValueError, TypeError, IndexError, AttributeError, KeyError) as fault:
            raise link.lose("protocol", str(fault)[:200]) from None
        if reply[0] != "v":
            raise value from None
        return _coerced(name, value)

    operate.__name__ = name
    return operate


def _coerced(name: str, value: Any) -> Any:
    if name in _TRUTHS:
        return value is True
    if (kind := _NUMBERS.get(name)) and type(value) is not kind:
        raise TypeError(f"{name} returned no {kind.__name__}")
    if name == "__iter__" and not (isinstance(value, Handle) and hasattr(type(value), "__next__")):
        raise TypeError("__iter__ returned no iterator")
    return value


def _raised(link: Link, kind: Any, message: str, held: int) -> Exception:
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


class Module(ModuleType):
    """`candidate`, as the suite imports it: each name is asked for when it is first used."""

    def __init__(self, link: Link, name: str) -> None:
        super().__init__(name)
        vars(self)["_link"] = link

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            if name == "__all__":
                held = self._link.result("open", None)
                vars(self).update(self._link.opened(held) if False else held)
                return list(held)
            raise AttributeError(name)
        found = self._link.result("open", [name])
        if type(found) is not dict or name not in found:
            raise AttributeError(f"module 'candidate' has no attribute {name!r}")
        vars(self)[name] = found[name]
        return found[name]
