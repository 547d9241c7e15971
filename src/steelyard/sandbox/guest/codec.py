"""Values as tagged JSON of exact built-in types: all that ever leaves a candidate's process.

A value goes **by value**: a subclass is flattened to its base with the base's own methods, so that no
method which the candidate wrote runs at the other end, and an object of any other kind is *opaque*: it
has a type's name, perhaps a handle, and equals nothing. `decode` reads hostile bytes: it answers with
values or with `ValueError`, in time and memory linear in their number. What could break that is refused:
nesting, masses of containers, keys whose hashes collide (two are an accident, a hundred an attack),
fractions that take long to reduce, decimals that take long to expand, ranges of huge integers, arrays
whose items are all as long as the longest.

Tags, one to an object: `i` a large integer, `f` nan and the infinities, `c` complex, `b` bytes,
`B` bytearray, `u` text with lone surrogates, `t` tuple, `s` set, `z` frozenset, `d` dict, `r` range,
`q` Fraction, `D` Decimal, `T` the datetime family, `Q` deque, `n` numpy array, `o` opaque with `h` its
handle, `R` the handle of an object that lives at the reader. A numpy scalar goes as Python's.

Not covered: identity and sharing (a list held twice arrives as two), attributes of subclasses, the `fold`
of a time, names of time zones.
"""

from __future__ import annotations

import sys
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from math import isfinite
from typing import Any

from . import frames
from .reading import BITS, DEPTH, LIMIT, RANGE_BITS, Home, Opaque, Remote, from_tree, loads

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

__all__ = ["DEPTH", "LIMIT", "Opaque", "decode", "dumps", "encode", "from_tree", "loads", "texts", "to_tree"]

SMALL = 1 << 53
_PLAIN = frozenset({str, bool, type(None)})


class _TooMuchError(Exception):
    """A value is deeper or longer than may leave."""


def encode(value: object, handles: Any = None, limit: int = LIMIT) -> bytes:
    """Return a value's text; one that is too deep or too long is opaque as a whole.

    Parameters
    ----------
    handles
        Called with an object that is no plain value: its tag (`{"o": ..., "h": ...}`, `{"R": ...}`), or
        None. It is also asked about instances of subclasses, as `handles(value, True)`: None means by value.

    Examples
    --------
    >>> encode([1, (2.0, "x")])
    b'[1,{"t":[2.0,"x"]}]'
    """
    return dumps(to_tree(value, handles, limit))


def decode(data: bytes, remote: Remote | None = None, home: Home | None = None) -> Any:
    """Read what `encode` wrote, or what a candidate claims that it wrote.

    Parameters
    ----------
    remote
        Makes a value of an opaque one's tag (`o` a string, `h` an integer or None); default an `Opaque`.
    home
        Finds an object that lives here by its handle; without it such a reference is refused.

    Raises
    ------
    ValueError
        Whatever is wrong with the bytes.
    """
    return from_tree(loads(data), remote, home)


def _unserialisable(value: object) -> object:
    raise TypeError(type(value).__name__)


_chunks = c_make_encoder(None, _unserialisable, encode_basestring_ascii, None, ":", ",", False, False, False)


def dumps(tree: object) -> bytes:
    """Return a tree's JSON, in ASCII."""
    return "".join(_chunks(tree, 0)).encode()


def to_tree(value: object, handles: Any = None, limit: int = LIMIT) -> Any:
    """Return the value as JSON types, ready for `dumps`; such a tree may stand inside a larger one."""
    kind = type(value)
    if kind is str:
        if len(value) < limit and value.isascii():  # type: ignore[attr-defined,arg-type]
            return value
    elif value is None or kind is bool or (kind is int and -SMALL < value < SMALL):  # type: ignore[operator]
        return value
    try:
        return _Encoder(handles, limit).tree(value, DEPTH)
    except (_TooMuchError, RecursionError, MemoryError):
        return {"o": f"{type_name(value)}, too deep or too long", "h": None}


def type_name(value: object) -> str:
    """The name of a value's type, at most 100 characters, whatever its metaclass says."""
    try:
        name = type.__dict__["__name__"].__get__(type(value))
        return str.__str__(name)[:100].encode("ascii", "replace").decode()
    except Exception:
        return "object"


class _Encoder:
    __slots__ = ("budget", "handles")

    def __init__(self, handles: Any, limit: int) -> None:
        self.handles = handles
        self.budget = limit

    def spend(self, cost: int) -> None:
        self.budget -= cost
        if self.budget < 0:
            raise _TooMuchError

    def tree(self, value: Any, depth: int) -> Any:
        write = _WRITERS.get(type(value))
        return self.other(value, depth) if write is None else write(self, value, depth)

    def array(self, values: Any, depth: int) -> list[Any]:
        """Every container's members; the common ones go at C speed."""
        self.spend(14 + 2 * len(values))
        if depth <= 0:
            raise _TooMuchError
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            if str not in kinds:
                return values if type(values) is list else list(values)
            words = [value for value in values if type(value) is str]
            if all(map(str.isascii, words)):
                self.spend(sum(map(len, words)))
                return values if type(values) is list else list(values)
        elif kinds == {int} and min(values) > -SMALL and max(values) < SMALL:
            self.spend(2 * len(values))
            return values if type(values) is list else list(values)
        elif kinds == {float} and all(map(isfinite, values)):
            self.spend(16 * len(values))
            return values if type(values) is list else list(values)
        tree, depth = self.tree, depth - 1
        return [tree(value, depth) for value in values]

    def atom(self, value: Any, _depth: int) -> Any:
        self.spend(4)
        return value

    def integer(self, value: int, _depth: int) -> Any:
        if -SMALL < value < SMALL:
            self.spend(8)
            return value
        self.spend(value.bit_length() // 4)
        return {"i": hex(value)}

    def real(self, value: float, _depth: int) -> Any:
        self.spend(16)
        return value if isfinite(value) else {"f": repr(value)}

    def text(self, value: str, _depth: int) -> Any:
        if value.isascii():
            self.spend(len(value))
            return value
        self.spend(6 * len(value))
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"u": _base64(value.encode("utf-8", "surrogatepass"))}
        return value

    def complex(self, value: complex, _depth: int) -> Any:
        return {"c": [self.real(value.real, 0), self.real(value.imag, 0)]}

    def octets(self, value: bytes | bytearray, _depth: int) -> Any:
        self.spend(2 * len(value))
        return {"b" if type(value) is bytes else "B": _base64(value)}

    def tuple(self, value: tuple[Any, ...], depth: int) -> Any:
        return {"t": self.array(value, depth)}

    def set(self, value: Any, depth: int) -> Any:
        return {"s" if type(value) is set else "z": self.array(list(value), depth)}

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        self.spend(14 + 16 * len(value))
        if depth <= 0:
            raise _TooMuchError
        tree, depth = self.tree, depth - 1
        return {"d": [[tree(key, depth), tree(item, depth)] for key, item in list(value.items())]}

    def range(self, value: range, _depth: int) -> Any:
        parts = (value.start, value.stop, value.step)
        if max(map(int.bit_length, parts)) > RANGE_BITS:
            return self.other(value, 0)
        return {"r": [self.integer(part, 0) for part in parts]}

    def other(self, value: Any, depth: int) -> Any:
        """Subclasses, and types of modules that may not even be loaded."""
        if self.handles is not None and (known := self.handles(value, True)) is not None:
            self.spend(40)
            return known
        for kind, flat in _FLAT:
            if isinstance(value, kind):
                return self.tree(flat(value), depth)
        for base in type(value).__mro__:
            key = (getattr(base, "__module__", ""), getattr(base, "__name__", ""))
            if write := _FOREIGN.get(key):
                try:
                    tree = write(self, value, depth)
                except (_TooMuchError, RecursionError, MemoryError):
                    raise
                except Exception:
                    break
                if tree is not None:
                    return tree
                break
        self.spend(40)
        tag = None if self.handles is None else self.handles(value, False)
        return {"o": type_name(value), "h": None} if tag is None else tag

    def fraction(self, value: Any, _depth: int) -> Any:
        top, bottom = int(value.numerator), int(value.denominator)
        if max(top.bit_length(), bottom.bit_length()) > BITS:
            return None
        self.spend(top.bit_length() // 4 + bottom.bit_length() // 4)
        return {"q": [hex(top), hex(bottom)]}

    def decimal(self, value: Any, _depth: int) -> Any:
        said = str.__str__(type(value).__mro__[-2].__str__(value))  # type: ignore[call-arg]
        self.spend(len(said))
        return {"D": said} if len(said) <= BITS and abs(value.adjusted()) <= BITS else None

    def moment(self, value: Any, _depth: int) -> Any:
        module = sys.modules["datetime"]
        for kind in ("datetime", "date", "time"):
            if isinstance(value, getattr(module, kind)):
                return {"T": [kind, getattr(module, kind).isoformat(value)]}
        return {"T": ["timedelta", f"{value.days}:{value.seconds}:{value.microseconds}"]}

    def deque(self, value: Any, depth: int) -> Any:
        return {"Q": self.array(list(value), depth)}

    def numpy(self, value: Any, depth: int) -> Any:
        module = sys.modules["numpy"]
        if isinstance(value, module.generic):
            plain = value.item()
            return self.tree(plain, depth) if type(plain) in _WRITERS else None
        if value.dtype.kind not in "biufcU" or (value.dtype.kind != "U" and value.dtype.itemsize > 16):
            return None
        if value.size * value.dtype.itemsize > LIMIT:
            return None
        self.spend(value.size)
        flat = module.ndarray.tolist(module.ravel(module.asarray(value)))
        shape = [int(size) for size in value.shape]
        return {"n": [value.dtype.str, shape, self.array(flat, depth)]}


def _base64(value: bytes | bytearray) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


_WRITERS: dict[type, Callable[[_Encoder, Any, int], Any]] = {
    type(None): _Encoder.atom,
    bool: _Encoder.atom,
    int: _Encoder.integer,
    float: _Encoder.real,
    str: _Encoder.text,
    list: _Encoder.array,
    tuple: _Encoder.tuple,
    dict: _Encoder.mapping,
    set: _Encoder.set,
    frozenset: _Encoder.set,
    bytes: _Encoder.octets,
    bytearray: _Encoder.octets,
    complex: _Encoder.complex,
    range: _Encoder.range,
}


def _flat_bytearray(value: bytearray) -> bytearray:
    flat = bytearray()
    flat += memoryview(value)
    return flat


# The base's own method makes the base's value: one that the subclass overrides never runs.
_FLAT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, lambda value: int.__add__(value, 0)),
    (str, str.__str__),
    (list, lambda value: [*list.__iter__(value)]),
    (tuple, lambda value: (*tuple.__iter__(value),)),
    (dict, lambda value: {key: dict.__getitem__(value, key) for key in dict.__iter__(value)}),
    (set, lambda value: {*set.__iter__(value)}),
    (frozenset, lambda value: frozenset([*frozenset.__iter__(value)])),
    (float, float.__float__),
    (bytes, lambda value: bytes(memoryview(value))),
    (bytearray, _flat_bytearray),
    (complex, lambda value: complex.__add__(value, 0j) if value.imag else complex.__complex__(value)),
)
_FOREIGN: dict[tuple[str, str], Callable[[_Encoder, Any, int], Any]] = {
    ("fractions", "Fraction"): _Encoder.fraction,
    ("decimal", "Decimal"): _Encoder.decimal,
    ("datetime", "datetime"): _Encoder.moment,
    ("datetime", "date"): _Encoder.moment,
    ("datetime", "time"): _Encoder.moment,
    ("datetime", "timedelta"): _Encoder.moment,
    ("collections", "deque"): _Encoder.deque,
    ("numpy", "generic"): _Encoder.numpy,
    ("numpy", "ndarray"): _Encoder.numpy,
}


def texts(values: Iterable[object], handles: Any = None, limit: int = LIMIT) -> list[Any]:
    """The trees of several values, which share one limit."""
    encoder = _Encoder(handles, limit)
    trees: list[Any] = []
    for value in values:
        try:
            trees.append(encoder.tree(value, DEPTH))
        except (_TooMuchError, RecursionError, MemoryError):
            trees.append({"o": f"{type_name(value)}, too deep or too long", "h": None})
    return trees
