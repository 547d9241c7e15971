"""Values as tagged JSON of exact built-in types: all that ever leaves a candidate's process.

A value goes **by value**: a subclass is flattened to its base with the base's own methods, so that no
method which the candidate wrote runs at the other end, and an object of any other kind is *opaque*: it
has a type's name, perhaps a handle, and equals nothing. `decode` reads hostile bytes: it answers with
values or with `ValueError`, in time and memory linear in their number. What could break that is refused:
nesting, masses of containers, keys whose hashes collide (two are an accident, a hundred an attack),
fractions that take long to reduce, decimals that take long to expand.

Tags, one to an object: `i` a large integer, `f` nan and the infinities, `c` complex, `b` bytes,
`B` bytearray, `u` text with lone surrogates, `t` tuple, `s` set, `z` frozenset, `d` dict, `r` range,
`q` Fraction, `D` Decimal, `T` the datetime family, `Q` deque, `n` numpy array, `o` opaque with `h` its
handle, `R` the handle of an object that lives at the reader. A numpy scalar goes as Python's.

Not covered: identity and sharing (a list held twice arrives as two), attributes of subclasses.
"""

from __future__ import annotations

import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable
from json.decoder import JSONDecoder
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from math import isfinite
from typing import Any

from . import frames

__builtins__ = frames.BUILTINS

DEPTH = 200
LIMIT = 8 << 20
CONTAINERS = 600_000
"""The most lists and tags in one text: each costs the reader some 300 bytes."""
SMALL = 1 << 53
_CROWD = (64, 8)  # equal hashes in one set or dict: with plain keys, with sets as keys; deeper: none
_BITS = 1 << 16  # of a fraction's parts, and a decimal's exponent
_PLAIN = frozenset({str, bool, type(None)})
_SCALAR = frozenset({str, bool, type(None), int, float})

Remote = Callable[["dict[str, Any]"], Any]
Home = Callable[[Any], Any]


class Opaque:
    """What is no plain value: it equals nothing, itself included.

    Parameters
    ----------
    type_name
        The type's name, as the candidate's process said it.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_chunks = c_make_encoder(
    None, _unserialisable, encode_basestring_ascii, None, ":", ",", False, False, False
)
_scan = JSONDecoder(parse_constant=_no_constant).scan_once


def dumps(tree: object) -> bytes:
    """Return a tree's JSON, in ASCII."""
    return "".join(_chunks(tree, 0)).encode()


def loads(data: bytes) -> Any:
    """Read JSON of bounded width and depth.

    Raises
    ------
    ValueError
        The bytes are no such JSON.
    """
    if data.count(b"[") + data.count(b"{") > CONTAINERS:
        raise ValueError(f"more than {CONTAINERS} lists and objects")
    try:
        text = data.decode("ascii")
        tree, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply, or too large") from error
    if end != len(text):
        raise ValueError("more than one JSON value")
    return tree


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
    except Exception:  # noqa: BLE001 (the type is a stranger's)
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
        return {"r": [self.integer(part, 0) for part in (value.start, value.stop, value.step)]}

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
                except Exception:  # noqa: BLE001 (it only calls itself so)
                    break
                if tree is not None:
                    return tree
                break
        self.spend(40)
        tag = None if self.handles is None else self.handles(value, False)
        return {"o": type_name(value), "h": None} if tag is None else tag

    def fraction(self, value: Any, _depth: int) -> Any:
        top, bottom = int(value.numerator), int(value.denominator)
        if max(top.bit_length(), bottom.bit_length()) > _BITS:
            return None
        self.spend(top.bit_length() // 4 + bottom.bit_length() // 4)
        return {"q": [hex(top), hex(bottom)]}

    def decimal(self, value: Any, _depth: int) -> Any:
        said = type(value).__mro__[-2].__str__(value)
        self.spend(len(said))
        return {"D": said} if abs(value.adjusted()) <= _BITS else None

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


def from_tree(tree: Any, remote: Remote | None = None, home: Home | None = None) -> Any:
    """Make the value of a tree that `loads` read; its plain lists become the value's own.

    Raises
    ------
    ValueError
        The tree is no value's.
    """
    if type(tree) in _SCALAR:
        return tree
    try:
        return _Decoder(remote, home).value(tree, DEPTH)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"no value: {type(error).__name__}") from error


class _Decoder:
    __slots__ = ("home", "level", "remote")

    def __init__(self, remote: Remote | None, home: Home | None) -> None:
        self.remote = remote
        self.home = home
        self.level = 0  # how deep sets stand in sets, seen so far

    def value(self, tree: Any, depth: int) -> Any:
        kind = type(tree)
        if kind in _SCALAR:
            return tree
        if kind is list:
            return self.array(tree, depth)
        ((tag, held),) = tree.items() if "o" not in tree else (("o", tree),)
        return _READERS[tag](self, held, depth)

    def array(self, tree: Any, depth: int) -> list[Any]:
        if type(tree) is not list:
            raise ValueError("no list where one belongs")
        if depth < 0:
            raise ValueError(f"nested more than {DEPTH} deep")
        if _SCALAR.issuperset(map(type, tree)):
            return tree
        value, depth = self.value, depth - 1
        return [value(item, depth) for item in tree]

    def keys(self, tree: Any, depth: int) -> list[Any]:
        """Members of a set, keys of a dict: as many different ones as there are hashes, nearly."""
        outer, self.level = self.level, 0
        keys = self.array(tree, depth)
        inner, self.level = self.level, max(outer, self.level + 1)
        hashes = list(map(hash, keys))
        if len(set(hashes)) < len(hashes):
            most = _CROWD[inner] if inner < len(_CROWD) else 1
            crowds: dict[int, int] = {}
            for code in hashes:
                crowds[code] = crowds.get(code, 0) + 1
                if crowds[code] > most:
                    raise ValueError("the keys' hashes collide")
        return keys

    def integer(self, held: Any, _depth: int = 0) -> int:
        if type(held) is dict and held.keys() == {"i"}:
            held = held["i"]
        if type(held) is int:
            return held
        if type(held) is not str or "_" in held or held.lstrip("-")[:2] != "0x":
            raise ValueError("no integer")
        return int(held, 16)

    def real(self, held: Any, _depth: int = 0) -> float:
        if type(held) is dict and held.keys() == {"f"}:
            held = held["f"]
        if type(held) is float or held in {"nan", "inf", "-inf"}:
            return float(held)
        raise ValueError("no float")

    def complex(self, held: Any, _depth: int) -> complex:
        re, im = held
        return complex(self.real(re), self.real(im))

    def set(self, held: Any, depth: int) -> set[Any]:
        return set(self.keys(held, depth))

    def frozenset(self, held: Any, depth: int) -> frozenset[Any]:
        return frozenset(self.keys(held, depth))

    def mapping(self, held: Any, depth: int) -> dict[Any, Any]:
        keys = self.keys([key for key, _ in held], depth)
        return dict(zip(keys, self.array([item for _, item in held], depth), strict=True))

    def fraction(self, held: Any, _depth: int) -> Any:
        from fractions import Fraction  # noqa: PLC0415 (loaded when one arrives)

        if max(map(len, held)) > _BITS // 4 + 3:
            raise ValueError("a fraction that takes long to reduce")
        top, bottom = held
        return Fraction(self.integer(top), self.integer(bottom))

    def decimal(self, held: Any, _depth: int) -> Any:
        from decimal import Decimal  # noqa: PLC0415

        if type(held) is not str:
            raise ValueError("no decimal")
        value = Decimal(held)
        if abs(value.adjusted()) > _BITS:
            raise ValueError("a decimal that takes long to expand")
        return value

    def moment(self, held: Any, _depth: int) -> Any:
        import datetime  # noqa: PLC0415

        kind, said = held
        if kind == "timedelta":
            days, seconds, micros = said.split(":")
            return datetime.timedelta(int(days), int(seconds), int(micros))
        if kind not in {"datetime", "date", "time"}:
            raise ValueError("no moment")
        return getattr(datetime, kind).fromisoformat(said)

    def deque(self, held: Any, depth: int) -> Any:
        from collections import deque  # noqa: PLC0415

        return deque(self.array(held, depth))

    def numpy(self, held: Any, depth: int) -> Any:
        dtype, shape, flat = held
        items = self.array(flat, depth)
        if "numpy" not in sys.modules:
            return Opaque("ndarray")
        module = sys.modules["numpy"]
        kind = dtype[1:2]
        if kind not in set("biufcU") or (kind != "U" and int(dtype[2:]) > 16):
            raise ValueError("no array")
        return module.array(items, dtype="U" if kind == "U" else dtype).reshape(shape)

    def opaque(self, held: dict[str, Any], _depth: int) -> Any:
        name, handle = held["o"], held.get("h")
        if type(name) is not str or not (handle is None or type(handle) is int):
            raise ValueError("no opaque value")
        return Opaque(name[:100]) if self.remote is None else self.remote(held)

    def mine(self, held: Any, _depth: int) -> Any:
        if self.home is None:
            raise ValueError("a reference to nothing")
        return self.home(held)


def _octets(_decoder: _Decoder, held: Any, _depth: int) -> bytes:
    return a2b_base64(held, strict_mode=True)


_READERS: dict[str, Callable[[_Decoder, Any, int], Any]] = {
    "i": _Decoder.integer,
    "f": _Decoder.real,
    "c": _Decoder.complex,
    "b": _octets,
    "B": lambda decoder, held, depth: bytearray(_octets(decoder, held, depth)),
    "u": lambda decoder, held, depth: _octets(decoder, held, depth).decode("utf-8", "surrogatepass"),
    "t": lambda decoder, held, depth: tuple(decoder.array(held, depth)),
    "s": _Decoder.set,
    "z": _Decoder.frozenset,
    "d": _Decoder.mapping,
    "r": lambda decoder, held, _depth: range(*map(decoder.integer, held)),
    "q": _Decoder.fraction,
    "D": _Decoder.decimal,
    "T": _Decoder.moment,
    "Q": _Decoder.deque,
    "n": _Decoder.numpy,
    "o": _Decoder.opaque,
    "R": _Decoder.mine,
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
