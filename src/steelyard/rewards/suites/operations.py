"""Pure operations on plain values, each bounded by the size of its operands.

The same operations fold what a suite states when it is compiled and judge what a candidate returned. On
exact built-in values they are Python's own. What a candidate could make costly is not performed
(`TooLargeError`, and the check fails): arithmetic on integers of more than `LARGEST_BITS`, iterating over
more than `LARGEST` elements (a range holds more than memory does), a product that would weigh more than that,
a search whose cost is its operands' product, sets whose elements share their hash.

An operation that would iterate over a result has a name here, but is only used on stated values: what a
candidate returned may be an iterator, which does not come back by value. It is safe on any value even so.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from steelyard.rewards.suites.bounds import (
    ITERABLE,
    LARGEST_BITS,
    SEQUENCES,
    SETS,
    VIEWS,
    TooLargeError,
    fits,
    is_deque,
    items_of,
    opened,
    uncrowded,
    weigh,
)

_WHOLE = (int, bool)
_NUMBERS = (int, bool, float, complex, Fraction, Decimal)


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


def _arithmetic(perform: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def performed(left: Any, right: Any) -> Any:  # noqa: ANN401
        _sound(left, right)
        return perform(left, right)

    return performed


def _add(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(left) in SEQUENCES and type(left) is type(right):
        fits(len(left) + len(right))
        return left + right
    _sound(left, right)
    return left + right


def _subtract(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(left) in SETS and type(right) in SETS:
        return left - right
    _sound(left, right)
    return left - right


def _multiply(left: Any, right: Any) -> Any:  # noqa: ANN401
    if type(right) in SEQUENCES:
        left, right = right, left
    if type(left) in SEQUENCES and type(right) in _WHOLE:
        weigh(left, max(right, 0))
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
        if type(left) in SETS and type(right) in SETS:
            return uncrowded_set(type(left), perform(left, right))
        if type(left) is type(right) is dict and perform is operator.or_:
            return left | right
        _sound(left, right)
        return perform(left, right)

    return performed


def uncrowded_set(kind: Callable[[Iterable[Any]], Any], items: Iterable[Any]) -> Any:  # noqa: ANN401
    """Make a set of any kind without the cost of colliding hashes."""
    return kind(uncrowded(items_of(items)))


def mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make a dict without the cost of colliding hashes."""
    pairs = list(pairs)
    uncrowded(key for key, _ in pairs)
    return dict(pairs)


def _dict(given: Any = ()) -> dict[Any, Any]:  # noqa: ANN401
    return mapping(given.items() if type(given) is dict else items_of(given))


_WRITTEN = ("builtins", "collections", "datetime", "decimal", "fractions")


def _text(value: Any = "") -> str:  # noqa: ANN401
    if type(value) is str:
        return value
    _printable(value)
    return str(value)


def _repr(value: Any) -> str:  # noqa: ANN401
    _printable(value)
    return repr(value)


def _printable(value: Any) -> None:  # noqa: ANN401
    """Refuse what has no text of its own or a long one, and more digits than Python prints by default."""
    if type(value) in VIEWS:
        value = list(value)
    weigh(value, times=10)  # each element takes its time, and many checks may ask for the same text
    stack = [value]
    while stack:
        value = stack.pop()
        if not opened(value, stack) and type(value).__module__ not in _WRITTEN:
            raise TypeError(f"the text of {type(value).__name__} is not compared")
        numbers = (value.numerator, value.denominator) if type(value) in (int, Fraction) else ()
        if any(number.bit_length() > 14_000 for number in numbers):
            raise TooLargeError("the digits of a huge integer")


def _int(value: Any = 0, base: Any = 10) -> int:  # noqa: ANN401
    if type(value) is str:
        fits(len(value) * 200)  # Python reads 4,300 digits
        return int(value, base)
    _sound(value)
    return int(value)


def _float(value: Any = 0.0) -> float:  # noqa: ANN401
    items_of(value) if type(value) is str else _sound(value)
    return float(value)


def _complex(*values: Any) -> complex:  # noqa: ANN401
    for value in values:
        items_of(value) if type(value) is str else _sound(value)
    return complex(*values)


def _round(value: Any, ndigits: Any = None) -> Any:  # noqa: ANN401
    _sound(value)
    if ndigits is not None and not -1_000 <= ndigits <= 1_000:
        raise TooLargeError("rounding to that many digits")
    return round(value, ndigits) if ndigits is not None else round(value)


def _bytes(items: Any = b"") -> bytes:  # noqa: ANN401
    fits(items) if type(items) in _WHOLE else items_of(items)
    return bytes(items)


def _enumerate(items: Any, start: Any = 0) -> list[tuple[int, Any]]:  # noqa: ANN401
    if start.bit_length() > 64:  # a new integer for each item
        raise TooLargeError("counting from a huge integer")
    return list(enumerate(items_of(items), start))


def _over(perform: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a function that iterates over its first argument if that is its only one."""

    def performed(*values: Any, **settings: Any) -> Any:  # noqa: ANN401
        if "key" in settings:
            raise TypeError("a key function")
        if len(values) == 1:
            items_of(values[0])
        return perform(*values, **settings)

    return performed


def _sum(values: Any, start: Any = 0) -> Any:  # noqa: ANN401
    total = start
    for value in items_of(values):
        total = _ADDITION(total, value)
    return total


def _len(value: Any) -> int:  # noqa: ANN401
    if type(value) not in (*SEQUENCES, *SETS, dict, range, bytearray) and not is_deque(value):
        raise TypeError(f"object of type {type(value).__name__} has no len()")
    return len(value)


def _range(*bounds: Any) -> range:  # noqa: ANN401
    made = range(*bounds)
    fits(len(made))
    return made


def _joined(separator: Any, parts: Any) -> Any:  # noqa: ANN401
    parts = list(items_of(parts))
    fits(len(separator) * len(parts) + sum(map(len, parts)))
    return separator.join(parts)


def _replaced(text: Any, old: Any, new: Any, count: int = -1) -> Any:  # noqa: ANN401
    if type(text) not in (str, bytes):
        raise TypeError(f"{type(text).__name__} has no replace() here")
    fits(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def _unpacked(value: Any, count: int) -> tuple[Any, ...]:  # noqa: ANN401
    if type(value) not in (list, tuple, str, bytes, dict, set, frozenset, range):
        raise TypeError(f"cannot unpack {type(value).__name__}")
    if len(value) != count:
        raise ValueError(f"{len(value)} values to unpack, {count} expected")
    return tuple(value)


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:  # noqa: ANN401
    if type(value) not in (*SEQUENCES, range):
        raise TypeError(f"cannot slice {type(value).__name__}")
    return value[start:stop:step]


def _index(value: Any, index: Any) -> Any:  # noqa: ANN401
    if type(value) not in (*SEQUENCES, dict, range) and not is_deque(value):
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
    _sound(absolute, relative)
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
        if type(value) in ITERABLE:
            items_of(value)
        if type(value) in SETS:
            arguments = tuple(one if type(one) in SETS else uncrowded_set(set, one) for one in arguments)
        if name in _PAIRED and arguments and type(arguments[0]) in (str, bytes):
            fits(len(value) * len(arguments[0]) // 100)
        return getattr(value, name)(*arguments)

    return called


def _on_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*values: Any) -> Any:  # noqa: ANN401
        _sound(*values)
        return function(*values)

    return called


_PAIRED = frozenset({"strip", "lstrip", "rstrip", "rfind", "rsplit"})
"""Methods that may compare each character with each of their argument's."""
_ADDITION = _arithmetic(operator.add)

_TEXT = "lower upper title capitalize casefold swapcase strip lstrip rstrip"
_PARTS = "startswith endswith split rsplit splitlines"
_ASKED = "isdigit isalpha isalnum islower isupper isspace isnumeric isdecimal istitle isidentifier find rfind"
METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _method(name, (str, bytes)) for name in f"{_TEXT} {_PARTS} {_ASKED}".split()},
    **{name: _method(name, (str, bytes, list, tuple, range)) for name in ("count", "index")},
    **{name: _method(name, (dict,)) for name in ("keys", "values", "items", "get")},
    **{name: _method(name, SETS) for name in ("issubset", "issuperset", "isdisjoint")},
    **{name: _method(name, (list, dict, set, frozenset)) for name in ("copy",)},
    "join": _joined,
    "replace": _replaced,
    "is_integer": _method("is_integer", (float,)),
    "bit_length": _method("bit_length", _WHOLE),
}

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": _on_floats(abs),
    "bool": bool,
    "complex": _complex,
    "dict": _dict,
    "divmod": _arithmetic(divmod),
    "float": _float,
    "frozenset": lambda items=(): uncrowded_set(frozenset, items),
    "int": _int,
    "isinstance": _isinstance,
    "len": _len,
    "list": _over(list),
    "max": _over(max),
    "min": _over(min),
    "range": _range,
    "round": _round,
    "set": lambda items=(): uncrowded_set(set, items),
    "sorted": _over(sorted),
    "str": _text,
    "repr": _repr,
    "sum": _sum,
    "tuple": _over(tuple),
    "type": type,
    "all": _over(all),
    "any": _over(any),
    "bin": _on_floats(bin),
    "hex": _on_floats(hex),
    "oct": _on_floats(oct),
    "chr": chr,
    "ord": ord,
    "pow": _power,
    "bytes": _bytes,
    "enumerate": _enumerate,
    "zip": lambda *items: list(zip(*map(items_of, items), strict=False)),
    "reversed": lambda items: list(items_of(items))[::-1],
}

TYPES: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (bool, bytes, bytearray, complex, dict, float, frozenset, int, list, object, set, str, tuple)
} | {"range": range}

_OVER = "all any bytes dict enumerate frozenset list max min reversed set sorted sum tuple zip"
ITERATES: Final = frozenset(_OVER.split())
"""Functions that iterate over what they are given."""
ITERATES_ARGUMENTS: Final = frozenset({"join", "issubset", "issuperset", "isdisjoint"})
"""Methods that do."""
HANDS_ON: Final = frozenset({"[]", ".get()", "max()", "min()"})
"""Operations whose value is an element of an operand."""

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
    "in": lambda item, container: item in items_of(container),
    "not in": lambda item, container: item not in items_of(container),
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
