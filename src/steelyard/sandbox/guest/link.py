"""What passes between the tests and one candidate: values, handles, and calls in both directions.

`wire` carries it, `proxies` are the stand-ins that the tests see. Here is decided what goes by value, what
becomes which stand-in, and what of the tests a candidate may use: the functions that it was passed, and
public attributes of instances of the suite's own classes. No function's globals, no frame, no class. Of
mocks and test cases nothing that unittest gave them, since with that they check; and what is set on an
object is plain data, in the place of data: no candidate puts its own code where the tests call theirs.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import partial
from operator import contains, getitem
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from . import codec
from .proxies import ERRORS, HIDDEN, Function, Handle, Method, Proxied, raised, stand_in
from .wire import CandidateLoadError, Wire

HANDLES, KINDS = 100_000, 1_000  # of one candidate: each costs the judge memory
SHARED = frozenset(
    "bisect collections copy datetime decimal fractions functools heapq itertools json math operator random re"  # noqa: E501
    " statistics string time typing numpy".split()
)
"""Modules whose names a suite may use without importing them: the judge's own, never the candidate's."""
_ALIASES = {"np": "numpy"}
_LIBRARY = {
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections"),
    "Decimal": "decimal",
    "Fraction": "fractions",
    "deepcopy": "copy",
    "isclose": "math",
    "reduce": "functools",
}
_READS: dict[str, Callable[..., Any]] = {
    "__iter__": iter,
    "__next__": next,
    "__len__": len,
    "__getitem__": getitem,
    "__contains__": contains,
}


class Shared(codec.Opaque):
    """Something of Python's own that the candidate imported: the judge has it too, under the same name."""

    __slots__ = ("module",)

    def __init__(self, module: object, name: object) -> None:
        super().__init__(str(name)[:100])
        self.module = str(module)[:100]

    def resolved(self, name: str) -> dict[str, Any]:
        """The judge's own, if the candidate calls it by its right name."""
        if name != self.type_name or self.module not in SHARED:
            return {}
        __import__(self.module)
        found = getattr(sys.modules[self.module], name, self)
        return {} if found is self else {name: found}


def shared(name: str) -> Any:
    """What a suite means by a usual name of Python's own that it does not import; None where it is none."""
    module = _LIBRARY.get(name) or _ALIASES.get(name, name)
    if module not in SHARED:
        return None
    try:
        __import__(module)
    except ImportError:
        return None
    return getattr(sys.modules[module], name) if name in _LIBRARY else sys.modules[module]


class Link(Wire):
    """One candidate, and the stand-ins that were made of what lives there.

    Parameters
    ----------
    suite
        The module name of the tests: instances of its classes are open to the candidate.
    in_place
        Give every call's effect on its arguments back, not only that of a call which stands alone.
    """

    def __init__(
        self, fd: int, page: Any, message_bytes: int, total_bytes: int, *, suite: str, in_place: bool
    ) -> None:
        super().__init__(fd, page, message_bytes, total_bytes)
        self.suite, self.in_place = suite, in_place
        self.named = False  # whether the suite holds any name of the candidate's
        self.handles: dict[int, Any] = {}
        self.kinds: dict[int, Any] = {}
        self.mine: list[Any] = []
        self.places: dict[int, int] = {}
        self.last: tuple[Any, ...] | None = None  # the last call: target, name, arguments, whether in place
        self.came: Any = None  # what it returned

    def result(self, *request: Any) -> Any:
        """Ask, and return the value or raise the exception."""
        return self.settled(self.ask(*request))

    def settled(self, reply: list[Any], args: Any = ()) -> Any:
        """The value of a reply, once what it did to the arguments is done to ours; or raise its exception."""
        try:
            if reply[0] == "v":
                for old, tree in zip(args, reply[2] if args else (), strict=True):
                    copy_back(old, self.value(tree))
                return self.value(reply[1])
            error = self.rebuilt(reply)
            vars(error)["_steelyard_line"] = reply[3]
        except Exception as fault:
            raise self.lose("protocol", str(fault)[:200]) from None
        raise error from None

    def opened(self, names: list[str] | None) -> dict[str, Any]:
        """The named objects of the candidate's module, as far as it holds them."""
        self.named = self.named or names is None or bool(names)
        held = self.result("open", names)
        if type(held) is not dict or not all(type(name) is str for name in held):
            raise self.lose("protocol", "no names")
        found: dict[str, Any] = {}
        for name, item in held.items():
            if type(item) is Shared:
                found |= item.resolved(name)
            else:
                found[name] = item
                self.touched = self.touched or not isinstance(item, Function | type)
        if names is None:
            return found
        self.touched = self.touched or not found.keys() >= set(names)
        for name, item in found.items():
            if isinstance(item, Proxied) and name[:1].isupper():
                type.__setattr__(item, "_trusted", True)
        return {name: found[name] for name in names if name in found}

    # values

    def tree(self, value: object) -> Any:
        return codec.to_tree(value, self.tag)

    def value(self, tree: Any) -> Any:
        return codec.from_tree(tree, self.remote, self.here)

    def tag(self, value: Any, known: bool) -> dict[str, Any] | None:  # noqa: FBT001, PLR0911
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
        """Whether it goes as a handle: what the suite made, streams, mocks, and whatever iterates."""
        return self.has_open_names(type(value)) or hasattr(type(value), "__next__")

    def has_open_names(self, kind: type) -> bool:
        return kind.__module__ in {self.suite, "_io", "unittest.mock"}

    def here(self, at: Any) -> Any:
        if type(at) is not int or not 0 <= at < len(self.mine):
            raise ValueError("no object of the tests")
        return self.mine[at]

    def remote(self, tag: dict[str, Any]) -> Any:
        """A stand-in for what a tag names: the same object for the same handle."""
        at = tag.get("h")
        if type(at) is not int:
            return Shared(*tag["g"]) if "g" in tag else codec.Opaque(tag["o"][:100])
        if (found := self.handles.get(at)) is not None:
            return found
        if len(self.handles) >= HANDLES:
            raise ValueError(f"more than {HANDLES} objects")
        kind = tag.get("k")
        if kind in {"f", "a"}:
            made: Any = Function(self, at, str(tag.get("n") or tag["o"])[:100], waits=kind == "a")
        elif kind == "c":
            return self.kind(tag)
        elif kind == "x":
            made = self.handle(self.kind(tag["c"], instance=True), at)
        else:
            raise ValueError("no tag")
        self.handles[at] = made
        return made

    def handle(self, kind: Any, at: int, *, known: bool = False) -> Any:
        made = Handle.__new__(kind)
        vars(made).update(_link=self, _target=at, _known=known)
        return made

    def kind(self, tag: dict[str, Any], *, instance: bool = False) -> Any:
        """A class that stands for one of the candidate's, made when it is first mentioned."""
        at = tag["h"]
        if type(at) is not int:
            raise ValueError("no class")
        if at not in self.kinds:
            if len(self.kinds) >= KINDS:
                raise ValueError(f"more than {KINDS} classes")
            self.kinds[at] = stand_in(self, at, tag["m"])
        found = self.kinds[at]
        if instance and not issubclass(found, Handle):
            raise ValueError("an exception as an object")
        return found

    def rebuilt(self, reply: list[Any]) -> Exception:
        """The exception that a candidate's becomes here."""
        if reply[0] != "x":
            return CandidateLoadError(str(reply[1])[:100], str(reply[2])[:300], reply[3])
        _, names, message, _line, tree, tag, held = reply
        names = [name[:100] for name in names if type(name) is str] or ["Exception"]
        message = str(message)[:400]
        args = self.value(tree) if tree is not None else None
        if tag is not None and type(held) is int and issubclass(kind := self.kind(tag), Exception):
            return raised(kind, message, held)
        if foreign := _foreign(names, message):
            return foreign
        hidden = next((name for name in names if name in ERRORS or name in HIDDEN), "")
        if nearest := ERRORS.get(hidden):
            try:
                error = nearest(*args) if type(args) is tuple and len(args) < 10 else nearest(message)
            except Exception:
                error = RuntimeError()  # its arguments are not what the type demands
            if type(error) in ERRORS.values() and isinstance(error, nearest):
                return error
        return RuntimeError(f"{names[0].rpartition('.')[2]}: {message}")

    # what the candidate asks of the tests

    def served(self, request: list[Any]) -> list[Any]:
        """Call a function of the tests, or use an object of theirs; anything else ends the run."""
        try:
            action = self.allowed(*request)
        except Exception as error:
            raise self.lose("protocol", str(error)[:200]) from None
        try:
            return ["v", self.tree(action())]
        except StopIteration:
            return ["stop"]
        except Exception as error:
            return ["x", [kind.__name__ for kind in type(error).__mro__], str(error)[:300]]

    def allowed(self, what: str, at: int, *rest: Any) -> Callable[[], Any]:
        """What a request asks for, ready to be done.

        Raises
        ------
        ValueError
            No request of a candidate's may ask for that.
        """
        found = self.here(at)
        if what == "call" and callable(found):
            args = [self.value(tree) for tree in rest[0]]
            kwargs = {str(name): self.value(tree) for name, tree in rest[1].items()}
            return partial(found, *args, **kwargs)
        if self.open_to_candidate(found):
            name, kind = rest[0], type(found)
            if what == "op" and name in _READS:
                return partial(_READS[name], found, *[self.value(tree) for tree in rest[1]])
            named = self.has_open_names(kind) and _plain_name(name)
            if what == "get" and named and not any(name in names for names in _of_unittest(kind)):
                return partial(getattr, found, name)
            if what == "set" and named and _may_set(found, name):
                value = codec.from_tree(rest[1], _no_object, self.here)
                if not callable(value):
                    return partial(setattr, found, name, value)
            raise ValueError(f"no candidate may {what} {name} of {codec.type_name(found)}")
        raise ValueError("no such request")

    def operation(self, target: int, name: str, trees: list[Any]) -> Any:
        """Do what Python's syntax does with an object."""
        reply = self.ask("op", target, name, trees)
        if reply[0] == "stop" and name == "__next__":
            raise StopIteration
        return self.settled(reply)

    def call(self, target: Any, args: Any, kwargs: Any, *, in_place: bool = False, name: str = "") -> Any:
        """Call a function or method of the candidate's."""
        trees = [self.tree(value) for value in args]
        named = {key: self.tree(value) for key, value in kwargs.items()}
        in_place = in_place or self.in_place
        what: list[Any] = ["method", target, name] if name else ["call", target]
        self.last, self.came = (target, name, args, kwargs, in_place), None
        self.came = self.settled(self.ask(*what, trees, named, in_place), args if in_place else ())
        return self.came


def _plain_name(name: str) -> bool:
    return (
        name.isidentifier() and not name.startswith("_") and not name.startswith(("gi_", "f_", "tb_", "cr_"))
    )


def _may_set(found: object, name: str) -> bool:
    """Whether a name holds data, and not what the tests call."""
    kind = type(found)
    if name.startswith("assert") or _of_unittest(kind):
        return False
    held = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if hasattr(type(held), "__set__"):  # a slot, or a property that decides for itself
        return True
    mine = getattr(found, "__dict__", {}).get(name)
    return not (hasattr(type(held), "__get__") or callable(held) or callable(mine))


def _of_unittest(kind: type) -> list[Any]:
    """What unittest's own classes among the bases define; on top of them a mock has a class for itself."""
    own = [
        vars(base)
        for base in kind.__mro__
        if base.__module__.startswith("unittest.")
        and getattr(sys.modules[base.__module__], base.__name__, None) is base
    ]
    return [*own, {"method_calls"}] if own else []


def _no_object(_tag: dict[str, Any]) -> Any:
    raise ValueError("what a candidate sets on an object of the tests is plain data")


def _public(value: Any) -> bool:
    """Whether the candidate's Python finds the same thing under the same name."""
    module = getattr(value, "__module__", None)
    known = module == "builtins" or (module or "").partition(".")[0] in SHARED | {"_operator", "_functools"}
    return known and getattr(sys.modules.get(module or ""), value.__name__, None) is value


def _foreign(names: list[str], message: str) -> Exception | None:
    """An exception that is none of Python's own, `json.JSONDecodeError`, of a library that is loaded here."""
    for known in names:
        module, _, name = known.rpartition(".")
        kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if isinstance(kind, type) and issubclass(kind, Exception):
            error = kind.__new__(kind)
            error.args = (message,)
            return error
        if not module:
            return None  # from here on Python's own
    return None


def copy_back(old: Any, new: Any) -> None:
    """Give a list, dict, set or bytearray of the tests the content that the candidate left in it."""
    if type(old) is not type(new):
        return
    if type(old).__name__ == "ndarray":
        if old.shape == new.shape and old.dtype == new.dtype:
            old[...] = new
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


class Module(ModuleType):
    """`candidate`, as the suite imports it: each name is asked for when it is first used."""

    def __init__(self, link: Link, name: str, bound: set[str], entry_point: str) -> None:
        super().__init__(name)
        vars(self)["_link"] = link
        vars(self)["_hidden"] = (bound | set(vars(builtins)) | SHARED | _ALIASES.keys() | _LIBRARY.keys()) - {
            entry_point
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            if name == "__all__":
                # An `abs` or a `math` of the candidate's must not stand between its answer and the tests.
                held = {key: item for key, item in self._link.opened(None).items() if key not in self._hidden}
                vars(self).update(held)
                return list(held)
            raise AttributeError(name)
        if name not in (found := self._link.opened([name])):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        vars(self)[name] = found[name]
        return found[name]
