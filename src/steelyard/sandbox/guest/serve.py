"""The candidate's end of a judged run: do what the judge asks for, send values back.

One request at a time, over one socket, in frames of JSON. The judge asks

    ["open", names or null]                        what the module holds (null: all public names)
    ["call", target, args, kwargs, in_place]       target: a name of the module, or a handle
    ["method", handle, name, args, kwargs, in_place]
    ["get", target, name]   ["set", target, name, value]   ["del", target, name]
    ["op", handle, dunder, args]

and is answered `["v", value]`, `["v", value, args after the call]`, `["x", names, message, line, args,
class, handle]`, `["stop"]` (of `__next__` alone) or `["load_error", type, message, line]`. Before it
answers, the candidate may itself ask: functions and objects that the tests passed live at the judge
(`["call", handle, args, kwargs]`, `["get", ...]`, `["set", ...]`, `["op", ...]`).

Objects that are no plain values stay here, in a table, and go as handles: instances, functions, classes.
A handle's tag says the kind (`f` function, `a` coroutine function, `c` class, `x` instance), and with the
first mention of a class what a stand-in for it needs to know.
Nothing here is trusted by the judge: it is the candidate's process.
"""

from __future__ import annotations

import builtins
import os
import sys
from _thread import RLock
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType, FunctionType, MethodType, ModuleType
from typing import Any

from . import codec, frames, load

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

_read, _send, _exit = os.read, frames.send, os._exit
_PLAIN = (int, str, float, bool, type(None), list, tuple, dict)
_LIBRARY = ("fractions", "decimal", "datetime", "operator", "heapq", "bisect", "copy", "re", "random", "json")
_NO_CLASS = ("__init__", "__new__", "__class__", "__getattribute__", "__init_subclass__", "__subclasshook__")
_SPECIAL: dict[str, Callable[..., Any]] = {
    "__len__": len,
    "__iter__": iter,
    "__next__": next,
    "__str__": str,
    "__repr__": repr,
    "__format__": format,
    "__bool__": bool,
    "__hash__": hash,
    "__reversed__": reversed,
    "__round__": round,
    "__getitem__": lambda obj, key: obj[key],
    "__contains__": lambda obj, item: item in obj,
    "__eq__": lambda obj, other: bool(obj == other),
}


def run(header: dict[str, Any], source: bytes, fd: int, path: str) -> None:
    """Load the candidate, then serve until the judge hangs up."""
    limit = header.get("reply_bytes") or codec.LIMIT
    server = Server(fd, limit, path)
    try:
        server.module = load.load(source, header.get("module") or "candidate", path=path)
    except load.LoadError as error:
        server.failed = ["load_error", error.kind, error.message, error.line]
    while True:
        server.answer(server.receive())


class Server:
    """A table of the candidate's objects, and the socket."""

    def __init__(self, fd: int, limit: int, path: str) -> None:
        self.fd, self.limit, self.path = fd, limit, path
        self.module = ModuleType("candidate")
        self.failed: list[Any] | None = None
        self.objects: list[Any] = []
        self.places: dict[int, int] = {}
        self.described: set[int] = set()
        self.reader = frames.Reader(1 << 30)  # the judge's messages need no guard
        self.waiting: list[bytes] = []
        self.lock = RLock()
        self.loop: Any = None

    def receive(self) -> Any:
        while not self.waiting:
            data = _read(self.fd, 1 << 16)
            if not data:
                _exit(0)
            self.waiting += self.reader.feed(data)
        return codec.loads(self.waiting.pop(0))

    def answer(self, request: list[Any]) -> None:
        if self.failed is not None:
            reply: list[Any] = self.failed
        else:
            try:
                reply = getattr(self, f"do_{request[0]}")(*request[1:])
            except BaseException as error:
                ended = request[0] == "op" and request[2] == "__next__" and isinstance(error, StopIteration)
                reply = ["stop"] if ended else self.raised(error)
        with self.lock:
            _send(self.fd, codec.dumps(reply))

    def ask(self, *request: Any) -> Any:
        """Ask the judge; serve what it asks for meanwhile."""
        with self.lock:
            _send(self.fd, codec.dumps(list(request)))
            while True:
                reply = self.receive()
                if reply[0] == "v":
                    return self.value(reply[1])
                if reply[0] == "x":
                    raise self.rebuilt(reply[1], reply[2])
                if reply[0] == "stop":
                    raise StopIteration
                self.answer(reply)

    def rebuilt(self, names: list[str], message: str) -> Exception:
        for name in names:
            kind = vars(self.module).get(name) or getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                try:
                    return kind(message)
                except Exception:  # noqa: S112
                    continue
        return RuntimeError(message)

    # what a value becomes on its way out and in

    def tree(self, value: object) -> Any:
        tree = codec.to_tree(value, self.tag, self.limit)
        if type(tree) is dict and "o" in tree and tree["h"] is None:
            self.described.clear()  # what was told of classes went with the rest of a value too large
        return tree

    def value(self, tree: Any) -> Any:
        return codec.from_tree(tree, self.remote, self.here)

    def here(self, target: Any) -> Any:
        """The object that a handle, or a name in the module, stands for."""
        if type(target) is int:
            return self.objects[target]
        found: Any = self.module
        for part in target.split("."):
            found = getattr(found, part)
        return found

    def remote(self, tag: dict[str, Any]) -> Any:
        if "g" in tag:  # a name that every Python knows
            module, name = tag["g"]
            __import__(module)
            return getattr(sys.modules[module], name)
        if tag.get("h") is None:
            return codec.Opaque(tag["o"])
        return _function(self, tag["h"]) if tag.get("k") == "f" else Remote(self, tag["h"])

    def tag(self, value: Any, known: bool) -> dict[str, Any] | None:  # noqa: FBT001
        if known:  # by value, but for what the judge holds already
            if type(value) is Remote:
                return {"R": object.__getattribute__(value, "_handle")}
            at = self.places.get(id(value))
            return None if at is None else self.handle(value)
        return self.handle(value)

    def handle(self, value: Any) -> dict[str, Any]:
        if isinstance(value, FunctionType) and (back := value.__dict__.get("_steelyard")) is not None:
            return {"R": back}
        at = self.places.get(id(value))
        if at is None:
            at = self.places[id(value)] = len(self.objects)
            self.objects.append(value)
        tag = {"o": codec.type_name(value), "h": at, "k": "x"}
        if isinstance(value, type):
            tag["k"] = "c"
            self.describe(value, at, tag)
        elif isinstance(value, FunctionType | MethodType):
            tag["k"] = "a" if value.__code__.co_flags & 0x80 else "f"
            tag["n"] = str(value.__name__)
        else:
            kind = self.handle(type(value))
            tag["c"] = kind
        return tag

    def describe(self, kind: type, at: int, tag: dict[str, Any]) -> None:
        """Tell once what a stand-in for this class must know."""
        if at in self.described:
            return
        self.described.add(at)
        calls: list[str] = []
        waits: list[str] = []
        dunders: list[str] = []
        for base in kind.__mro__[:-1]:
            for name, member in list(vars(base).items()):
                if name.startswith("__") and name.endswith("__"):
                    if name not in _NO_CLASS and callable(member):
                        dunders.append(name)
                elif isinstance(member, staticmethod | classmethod | FunctionType):
                    inner = getattr(member, "__func__", member)
                    flags = getattr(getattr(inner, "__code__", None), "co_flags", 0)
                    (waits if flags & 0x80 else calls).append(name)
                elif callable(member) and not isinstance(member, type):
                    calls.append(name)
        names = [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"]
        module = self.module.__name__
        bases = [self.handle(base) for base in kind.__bases__ if base.__module__ == module]
        tag["m"] = {
            "n": kind.__name__,
            "calls": sorted(set(calls)),
            "waits": sorted(set(waits)),
            "dunders": sorted(set(dunders)),
            "error": names if issubclass(kind, BaseException) else None,
            "bases": bases,
        }

    def raised(self, error: BaseException) -> list[Any]:
        kind, message, line = load.told(error, self.path)
        try:
            names = [_known_as(base) for base in type(error).__mro__[:20]]
            args = codec.to_tree(tuple(error.args), None, 10_000)
            own = type(error).__module__ in {self.module.__name__, "__main__"}
            tag = self.handle(type(error)) if own else None
            held = self.handle(error)["h"] if own else None
        except BaseException:
            return ["x", [kind], message, line, None, None, None]
        return ["x", names, message, line, args, tag, held]

    def settled(self, value: Any) -> Any:
        """A coroutine's result: it is run to its end here."""
        if type(value) is not CoroutineType:
            return value
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(value)

    # the requests

    def do_open(self, names: list[str] | None) -> list[Any]:
        held = vars(self.module)
        if names is None:
            listed = held.get("__all__") or [name for name in held if name[:1] != "_"]
            names = [name for name in listed if type(name) is str]
        pairs = []
        for name in names:
            with suppress(AttributeError):
                pairs.append([name, self.named(name, load.found(self.module, name))])
        return ["v", {"d": pairs}]

    def named(self, name: str, value: object) -> Any:
        """What the module calls `name`; of Python's own the judge has its own."""
        if type(value) not in _PLAIN:
            for module in ("collections", "typing", "math", "itertools", "functools", *_LIBRARY):
                if module in sys.modules and vars(sys.modules[module]).get(name) is value:
                    return {"o": name, "h": None, "g": [module, name]}
        return self.tree(value)

    def do_call(self, target: Any, args: Any, kwargs: Any, in_place: Any) -> list[Any]:
        function = self.here(target)
        return self.called(function, args, kwargs, in_place)

    def do_method(self, target: Any, name: str, args: Any, kwargs: Any, in_place: Any) -> list[Any]:
        return self.called(getattr(self.here(target), name), args, kwargs, in_place)

    def called(self, function: Any, args: Any, kwargs: Any, in_place: Any) -> list[Any]:
        args = [self.value(tree) for tree in args]
        kwargs = {name: self.value(tree) for name, tree in kwargs.items()}
        value = self.settled(function(*args, **kwargs))
        # What the tests construct is theirs to call methods on, also where it could go by value.
        made = isinstance(function, type) and isinstance(value, function)
        tree = self.handle(value) if made and function.__module__ != "builtins" else None
        tag = self.tree(value) if tree is None else tree
        return ["v", tag, [self.tree(arg) for arg in args]] if in_place else ["v", tag]

    def do_get(self, target: Any, name: str) -> list[Any]:
        return ["v", self.tree(getattr(self.here(target), name))]

    def do_set(self, target: Any, name: str, tree: Any) -> list[Any]:
        setattr(self.here(target), name, self.value(tree))
        return ["v", None]

    def do_del(self, target: Any, name: str) -> list[Any]:
        delattr(self.here(target), name)
        return ["v", None]

    def do_op(self, target: Any, name: str, trees: Any) -> list[Any]:
        found, args = self.here(target), [self.value(tree) for tree in trees]
        if name == "__exit__":
            error = self.rebuilt([args[0]], args[1]) if args else None
            args = [None, None, None] if error is None else [type(error), error, None]
        if special := _SPECIAL.get(name):
            value = special(found, *args)
        else:
            value = getattr(type(found), name)(found, *args)
        if value is NotImplemented:
            raise TypeError(f"{codec.type_name(found)} does not support {name} with this operand")
        return ["v", self.tree(self.settled(value))]


def _known_as(kind: type) -> str:
    """The name by which the judge finds the same exception: a built-in's alone, another's with its module."""
    name, module = str.__str__(kind.__name__)[:100], str.__str__(kind.__module__)[:100]
    return name if module == "builtins" else f"{module}.{name}"


def _function(server: Server, handle: int) -> Callable[..., Any]:
    """A function of the tests, as a function."""

    def callback(*args: Any, **kwargs: Any) -> Any:
        trees = {name: server.tree(value) for name, value in kwargs.items()}
        return server.ask("call", handle, [server.tree(value) for value in args], trees)

    callback._steelyard = handle  # type: ignore[attr-defined]
    return callback


class Remote:
    """An object of the tests: public attributes, and what its class does with built-in syntax."""

    __slots__ = ("_handle", "_server")

    def __init__(self, server: Server, handle: int) -> None:
        object.__setattr__(self, "_server", server)
        object.__setattr__(self, "_handle", handle)

    def __getattr__(self, name: str) -> Any:
        return self._server.ask("get", self._handle, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._server.ask("set", self._handle, name, self._server.tree(value))

    def _op(self, name: str, *args: Any) -> Any:
        return self._server.ask("op", self._handle, name, [self._server.tree(value) for value in args])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _function(self._server, self._handle)(*args, **kwargs)

    def __iter__(self) -> Any:
        return self._op("__iter__")

    def __next__(self) -> Any:
        return self._op("__next__")

    def __len__(self) -> int:
        return int(self._op("__len__"))

    def __getitem__(self, key: Any) -> Any:
        return self._op("__getitem__", key)

    def __contains__(self, item: Any) -> bool:
        return bool(self._op("__contains__", item))

    def __bool__(self) -> bool:
        return True
