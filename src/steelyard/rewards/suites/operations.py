"""Pure operations on plain values, each bounded by the size of its operands.

The same operations fold what a suite states when it is compiled and judge what a candidate returned. On
exact built-in values they are Python's own. What a candidate could make costly is not performed
(`TooLargeError`, and the check fails): arithmetic on integers of more than `LARGEST_BITS`, sequences of
more than `LARGEST` elements, sets whose elements share their hash.

An operation that would iterate over a result has a name here, but is only used on stated values: what a
candidate returned may be an iterator, which does not come back by value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

LARGEST: Final = 1_000_000
LARGEST_BITS: Final = 1 << 16
LARGEST_SENT: Final = 4_000_000
DEEPEST: Final = 100
_CROWD: Final = 64

_WHOLE = (int, bool)
_NUMBERS = (int, bool, float, complex, Fraction, Decimal)
_SEQUENCES = (list, tuple, str, bytes)
_SETS = (set, frozenset)
_SENT = (type(None), bool, int, float, complex, str, bytes, bytearray, range)


class TooLargeError(Exception):
    """An operation that is not performed: its cost would not be bounded by the size of its operands."""


def _sound(*values: Any) -> None:  # noqa: ANN401 - whatever a candidate returned
    """Refuse what is no number, and integers that make arithmetic slow."""
    for value in values:
        if type(value) not in _NUMBERS:
            raise TypeError(f"arithmetic on {type(value).__name__}")
        largest = value if type(value) is int else 0
        if type(value) is Fraction:
            largest = max(abs(value.numerator), value.denominator)
        if largest.bit_length() > LARGEST_BITS:
            raise TooLargeError("arithmetic on a huge integer")


def _fits(length: int) -> None:
    if length > LARGEST:
        raise TooLargeError(f"a sequence of {length} elements")


def uncrowded(items: Iterable[Any]) -> list[Any]:
    """Return the different ones of hashable items; refuse many that share one hash."""
    seen: dict[int, list[Any]] = {}
    for item in items:
        bucket = seen.setdefault(hash(item), [])
        if item not in bucket:
            if len(bucket) >= _CROWD:
                raise TooLargeError("a set whose elements share their hash")
            bucket.append(item)
    return [item for bucket in seen.values() for item in bucket]


def _arithmetic(perform: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def performed(left: Any, right: Any) -> Any:  # noqa: ANN401
        _sound(left, right)
        return perform(left, right)

    return performed


def _add(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(left) in _SEQUENCES and type(left) is type(right):
        _fits(len(left) + len(right))
        return left + right
    _sound(left, right)
    return left + right


def _subtract(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(left) in _SETS and type(right) in _SETS:
        return left - right
    _sound(left, right)
    return left - right


def _multiply(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(right) in _SEQUENCES:
        left, right = right, left
    if type(left) in _SEQUENCES and type(right) in _WHOLE:
        _fits(len(left) * max(right, 0))
        return left * right
    _sound(left, right)
    return left * right


def _power(base: Any, exponent: Any) -> Any:  # noqa: ANN401
    _sound(base, exponent)
    if {type(base), type(exponent)} & {Fraction, Decimal}:
        raise TooLargeError("a power of fractions")
    if type(base) in _WHOLE and type(exponent) in _WHOLE and base.bit_length() * exponent > LARGEST_BITS:
        raise TooLargeError("a huge power")
    return base**exponent


def _shift(perform: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    def shifted(left: Any, right: Any) -> Any:  # noqa: ANN401
        _sound(left, right)
        if right > LARGEST_BITS:
            raise TooLargeError("a huge shift")
        return perform(left, right)

    return shifted


def _bits(perform: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def performed(left: Any, right: Any) -> Any:  # noqa: ANN401
        if type(left) in _SETS and type(right) in _SETS:
            return uncrowded_set(type(left), perform(left, right))
        if type(left) is type(right) is dict and perform is operator.or_:
            return left | right
        _sound(left, right)
        return perform(left, right)

    return performed


def uncrowded_set(kind: Callable[[Iterable[Any]], Any], items: Iterable[Any]) -> Any:  # noqa: ANN401
    """Make a set of any kind without the cost of colliding hashes."""
    return kind(uncrowded(items))


def mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make a dict without the cost of colliding hashes."""
    pairs = list(pairs)
    uncrowded(key for key, _ in pairs)
    return dict(pairs)


def _dict(given: Any = ()) -> dict[Any, Any]:  # noqa: ANN401
    return mapping(given.items() if type(given) is dict else given)


def comparable(values: Iterable[Any]) -> None:
    """Refuse what does not compare in time linear in its size.

    That is a decimal beside a huge integer (quadratic in the digits), and an array (two broadcast).
    """
    decimal = huge = False
    stack = list(values)
    while stack and not (decimal and huge):
        value = stack.pop()
        kind = type(value)
        if kind is int:
            huge = huge or value.bit_length() > LARGEST_BITS
        elif not _opened(value, stack):
            decimal = decimal or kind is Decimal
            if kind.__module__ == "numpy":
                raise TypeError("an array")
    if decimal and huge:
        raise TooLargeError("a decimal beside a huge integer")


def _opened(value: Any, stack: list[Any]) -> bool:  # noqa: ANN401
    """Put what a container holds on a stack; false if it is none."""
    if type(value) in (list, tuple, *_SETS) or _is_deque(value):
        stack.extend(value)
    elif type(value) is dict:
        stack.extend((*value, *value.values()))
    else:
        return False
    return True


def sendable(values: Iterable[Any]) -> tuple[str, int]:
    """Say what keeps values from being sent as arguments (empty: nothing), and how large they are."""
    size = 0
    level: list[Any] = list(values)
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if not _opened(value, inner):
                if type(value) not in _SENT:
                    return f"an argument of {type(value).__name__}", size
                size += value.bit_length() // 4 if type(value) is int else 0
                size += len(value) if type(value) in (str, bytes, bytearray) else 0
        size += 20 * len(level)
        if size > LARGEST_SENT:
            return "arguments that are too large to be sent", size
        if not inner:
            return "", size
        level = inner
    return "arguments that are too deep to be sent", size


_WRITTEN = ("builtins", "collections", "datetime", "decimal", "fractions")


def _text(value: Any = "") -> str:  # noqa: ANN401
    _printable(value)
    return str(value)


def _repr(value: Any) -> str:  # noqa: ANN401
    _printable(value)
    return repr(value)


def _printable(value: Any) -> None:  # noqa: ANN401
    """Refuse what has no text of its own, and integers of more digits than Python prints by default."""
    stack = [value]
    while stack:
        value = stack.pop()
        if not _opened(value, stack) and type(value).__module__ not in _WRITTEN:
            raise TypeError(f"the text of {type(value).__name__} is not compared")
        numbers = (value.numerator, value.denominator) if type(value) in (int, Fraction) else ()
        if any(number.bit_length() > 14_000 for number in numbers):
            raise TooLargeError("the digits of a huge integer")


def _int(value: Any = 0, base: Any = 10) -> int:  # noqa: ANN401
    if type(value) is str:
        _fits(len(value) * 200)  # Python reads 4,300 digits
        return int(value, base)
    _sound(value)
    return int(value)


def _float(value: Any = 0.0) -> float:  # noqa: ANN401
    if type(value) is not str:
        _sound(value)
    return float(value)


def _round(value: Any, digits: Any = None) -> Any:  # noqa: ANN401
    _sound(value)
    if digits is not None and not -1_000 <= digits <= 1_000:
        raise TooLargeError("rounding to that many digits")
    return round(value, digits) if digits is not None else round(value)


def _sum(values: Any, start: Any = 0) -> Any:  # noqa: ANN401
    total = start
    for value in values:
        total = _ADDITION(total, value)
    return total


def _len(value: Any) -> int:  # noqa: ANN401
    if type(value) not in (*_SEQUENCES, *_SETS, dict, range, bytearray) and not _is_deque(value):
        raise TypeError(f"object of type {type(value).__name__} has no len()")
    return len(value)


def _is_deque(value: Any) -> bool:  # noqa: ANN401
    return type(value).__name__ == "deque" and type(value).__module__ == "collections"


def _range(*bounds: Any) -> range:  # noqa: ANN401
    made = range(*bounds)
    _fits(len(made))
    return made


def _joined(separator: Any, parts: Any) -> Any:  # noqa: ANN401
    parts = list(parts)
    _fits(len(separator) * len(parts) + sum(map(len, parts)))
    return separator.join(parts)


def _replaced(text: Any, old: Any, new: Any) -> Any:  # noqa: ANN401
    _fits(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _unpacked(value: Any, count: int) -> tuple[Any, ...]:  # noqa: ANN401
    if type(value) not in (list, tuple, str, bytes, dict, set, frozenset, range):
        raise TypeError(f"cannot unpack {type(value).__name__}")
    if len(value) != count:
        raise ValueError(f"{len(value)} values to unpack, {count} expected")
    return tuple(value)


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:  # noqa: ANN401
    if type(value) not in (*_SEQUENCES, range):
        raise TypeError(f"cannot slice {type(value).__name__}")
    return value[start:stop:step]


def _index(value: Any, index: Any) -> Any:  # noqa: ANN401
    if type(value) not in (*_SEQUENCES, dict, range) and not _is_deque(value):
        raise TypeError(f"cannot index {type(value).__name__}")
    return value[index]


def _isinstance(value: Any, kinds: Any) -> bool:  # noqa: ANN401
    return isinstance(value, kinds)


def approximately(value: Any, expected: Any, rel: Any = None, abs_: Any = None) -> bool:  # noqa: ANN401
    """Whether `value == pytest.approx(expected, rel, abs)`.

    Examples
    --------
    >>> approximately([0.1 + 0.2], [0.3]), approximately(0.31, 0.3)
    (True, False)
    """
    if type(expected) in (list, tuple):
        return (
            type(value) in (list, tuple)
            and len(value) == len(expected)
            and all(approximately(one, other, rel, abs_) for one, other in zip(value, expected, strict=True))
        )
    if type(expected) is dict:
        return (
            type(value) is dict
            and value.keys() == expected.keys()
            and all(approximately(value[key], expected[key], rel, abs_) for key in expected)
        )
    if type(expected) not in (int, float) or type(value) not in (int, float, bool):
        return bool(value == expected)
    _sound(value, expected)
    if value == expected:
        return True
    if math.isinf(expected) or math.isnan(expected) or math.isnan(value):
        return False
    absolute = 1e-12 if abs_ is None else abs_
    relative = 1e-6 if rel is None else rel
    wide = relative * abs(expected) if rel is not None or abs_ is None else 0.0
    return bool(abs(value - expected) <= max(absolute, wide))


def json_equal(value: Any, expected: Any) -> bool:  # noqa: ANN401
    """Whether a value equals one that was written as JSON, which knows no tuples.

    Examples
    --------
    >>> json_equal((1, (2,)), [1, [2]]), json_equal({1}, [1])
    (True, False)
    """
    if type(expected) is list:
        return (
            type(value) in (list, tuple)
            and len(value) == len(expected)
            and all(json_equal(one, other) for one, other in zip(value, expected, strict=True))
        )
    if type(expected) is dict:
        return (
            type(value) is dict
            and len(value) == len(expected)
            and all(key in value and json_equal(value[key], expected[key]) for key in expected)
        )
    return bool(value == expected)


def _method(name: str, kinds: tuple[type, ...]) -> Callable[..., Any]:
    def called(value: Any, *arguments: Any) -> Any:  # noqa: ANN401
        if type(value) not in kinds:
            raise TypeError(f"{type(value).__name__} has no {name}() here")
        return getattr(value, name)(*arguments)

    return called


def _on_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*values: Any) -> Any:  # noqa: ANN401
        _sound(*values)
        return function(*values)

    return called


_ADDITION = _arithmetic(operator.add)

_TEXT = "lower upper title capitalize casefold swapcase strip lstrip rstrip"
_PARTS = "startswith endswith split rsplit splitlines"
_ASKED = "isdigit isalpha isalnum islower isupper isspace isnumeric isdecimal istitle isidentifier find rfind"
METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _method(name, (str, bytes)) for name in f"{_TEXT} {_PARTS} {_ASKED}".split()},
    **{name: _method(name, (str, bytes, list, tuple, range)) for name in ("count", "index")},
    **{name: _method(name, (dict,)) for name in ("keys", "values", "items", "get")},
    **{name: _method(name, _SETS) for name in ("issubset", "issuperset", "isdisjoint")},
    **{name: _method(name, (list, dict, set, frozenset)) for name in ("copy",)},
    "join": _joined,
    "replace": _replaced,
    "is_integer": _method("is_integer", (float,)),
    "bit_length": _method("bit_length", _WHOLE),
}

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": _on_floats(abs),
    "bool": bool,
    "complex": complex,
    "dict": _dict,
    "divmod": _arithmetic(divmod),
    "float": _float,
    "frozenset": lambda items=(): uncrowded_set(frozenset, items),
    "int": _int,
    "isinstance": _isinstance,
    "len": _len,
    "list": list,
    "max": max,
    "min": min,
    "range": _range,
    "round": _round,
    "set": lambda items=(): uncrowded_set(set, items),
    "sorted": sorted,
    "str": _text,
    "repr": _repr,
    "sum": _sum,
    "tuple": tuple,
    "type": type,
    "all": all,
    "any": any,
    "bin": _on_floats(bin),
    "hex": _on_floats(hex),
    "oct": _on_floats(oct),
    "chr": chr,
    "ord": ord,
    "pow": _power,
    "bytes": lambda items=b"": bytes([] if type(items) is int else items),
    "enumerate": lambda items, start=0: list(enumerate(items, start)),
    "zip": lambda *items: list(zip(*items, strict=False)),
    "reversed": lambda items: list(items)[::-1],
}

TYPES: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (bool, bytes, bytearray, complex, dict, float, frozenset, int, list, object, set, str, tuple)
} | {"range": range}

_OVER = "all any dict enumerate frozenset list max min reversed set sorted sum tuple zip"
ITERATES: Final = frozenset(_OVER.split())
"""Functions that iterate over what they are given."""

_MATHS = "sqrt fabs floor ceil trunc isnan isinf isfinite log log2 log10 exp sin cos tan asin acos atan atan2"
MATHS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _on_floats(getattr(math, name)) for name in f"{_MATHS} hypot radians degrees pow gcd".split()},
    "isclose": lambda left, right, rel_tol=1e-9, abs_tol=0.0: math.isclose(
        left, right, rel_tol=rel_tol, abs_tol=abs_tol
    ),
}
CONSTANTS: Final[Mapping[str, float]] = {
    name: getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")
}

OPERATORS: Final[Mapping[str, Callable[..., Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda item, container: item in container,
    "not in": lambda item, container: item not in container,
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _arithmetic(operator.truediv),
    "//": _arithmetic(operator.floordiv),
    "%": _arithmetic(operator.mod),
    "**": _power,
    "<<": _shift(operator.lshift),
    ">>": _shift(operator.rshift),
    "&": _bits(operator.and_),
    "|": _bits(operator.or_),
    "^": _bits(operator.xor),
    "not": operator.not_,
    "negative": _on_floats(operator.neg),
    "positive": _on_floats(operator.pos),
    "inverted": _on_floats(operator.invert),
    "[]": _index,
    "[:]": _slice,
    "unpacked": _unpacked,
    "a list": lambda *items: list(items),
    "a tuple": lambda *items: items,
    "a set": lambda *items: uncrowded_set(set, items),
    "a dict": lambda *items: mapping(zip(items[::2], items[1::2], strict=True)),
    "returned": lambda _value: True,
    "approx": approximately,
    "json": json_equal,
}

OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **OPERATORS,
    **{f"{name}()": function for name, function in FUNCTIONS.items()},
    **{f".{name}()": method for name, method in METHODS.items()},
    **{f"math.{name}()": function for name, function in MATHS.items()},
}
"""Every operation by the name that an expression calls it."""
