"""Reading what a candidate claims to be values: the hostile half of `codec`, which names the tags.

Every limit here keeps time and memory linear in the text's length, whoever wrote it. Nothing but
`ValueError` is ever raised.
"""

from __future__ import annotations

import sys
from binascii import a2b_base64
from collections.abc import Callable
from json.decoder import JSONDecoder
from typing import Any

from . import frames

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

DEPTH = 200
LIMIT = 8 << 20
CONTAINERS = 600_000
"""The most lists and tags in one text: each costs the reader some 300 bytes."""
BITS = 1 << 16
"""The longest part of a fraction, in bits, and the most digits and the largest exponent of a decimal."""
RANGE_BITS = 64
"""The longest part of a range, in bits: to make one, Python divides by its step."""
_CROWD = (64, 8)  # equal hashes in one set or dict: with plain keys, with sets as keys; deeper: none
_SCALAR = frozenset({str, bool, type(None), int, float})
_NUMBERS = frozenset({bool, int, float, complex})

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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_scan: Any = JSONDecoder(parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]


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


GUEST = False
"""Whether this is a guest, who imports what a value needs: an array may be given to who names no NumPy."""


def _arrays_are_loaded() -> bool:
    if GUEST:
        try:
            __import__("numpy")
        except Exception:
            return False
    return GUEST


class _Decoder:
    __slots__ = ("decimals", "home", "huge", "level", "remote")

    def __init__(self, remote: Remote | None, home: Home | None) -> None:
        self.remote = remote
        self.home = home
        self.level = 0  # how deep sets stand in sets, seen so far
        self.huge = self.decimals = False

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
        if len(held) > BITS // 4:
            self.huge = True
            self.compared()
        return int(held, 16)

    def compared(self) -> None:
        """Refuse what a set or dict may have to compare in time that grows with the square of its digits."""
        if self.huge and self.decimals:
            raise ValueError("a decimal beside a huge integer")

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
        from fractions import Fraction

        if max(map(len, held)) > BITS // 4 + 3:
            raise ValueError("a fraction that takes long to reduce")
        top, bottom = held
        return Fraction(self.integer(top), self.integer(bottom))

    def decimal(self, held: Any, _depth: int) -> Any:
        from decimal import Decimal

        if type(held) is not str or len(held) > BITS:
            raise ValueError("no decimal, or one of very many digits")
        self.decimals = True
        self.compared()
        value = Decimal(held)
        if abs(value.adjusted()) > BITS:
            raise ValueError("a decimal that takes long to expand")
        return value

    def moment(self, held: Any, _depth: int) -> Any:
        import datetime  # noqa: ICN001

        kind, said = held
        if kind == "timedelta":
            days, seconds, micros = said.split(":")
            return datetime.timedelta(int(days), int(seconds), int(micros))
        if kind not in {"datetime", "date", "time"}:
            raise ValueError("no moment")
        return getattr(datetime, kind).fromisoformat(said)

    def deque(self, held: Any, depth: int) -> Any:
        from collections import deque

        return deque(self.array(held, depth))

    def numpy(self, held: Any, depth: int) -> Any:
        dtype, shape, flat = held
        items = self.array(flat, depth)
        if "numpy" not in sys.modules and not _arrays_are_loaded():
            return Opaque("ndarray")
        kind, kinds = dtype[1:2], set(map(type, items))
        if kind == "U" and kinds <= {str}:
            dtype, size = "U", 4 * max(map(len, items), default=1)
        elif kind in set("biufc") and kinds <= _NUMBERS:
            size = int(dtype[2:])
        else:
            raise ValueError("no array")
        if size * len(items) > LIMIT or (kind != "U" and size > 16):
            raise ValueError("no array, or one of more bytes than its text accounts for")
        return sys.modules["numpy"].array(items, dtype=dtype).reshape(shape)

    def range(self, held: Any, _depth: int) -> Any:
        start, stop, step = map(self.integer, held)
        if max(start.bit_length(), stop.bit_length(), step.bit_length()) > RANGE_BITS:
            raise ValueError("a range of huge integers")
        return range(start, stop, step)

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
    "r": _Decoder.range,
    "q": _Decoder.fraction,
    "D": _Decoder.decimal,
    "T": _Decoder.moment,
    "Q": _Decoder.deque,
    "n": _Decoder.numpy,
    "o": _Decoder.opaque,
    "R": _Decoder.mine,
}
