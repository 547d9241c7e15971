r"""What an expression is worth, at points; and so whether two are equal.

Two expressions are equal if their values are, at eight points that only the names of their letters decide
(positive, negative, mixed and integer ones). Values are exact fractions while nothing irrational occurs,
else numbers of 200 bits, and of more where those leave a doubt: 1/3^80 is not 1/3^81, nor e^{100} + 1
e^{100}. Letters are real; a point at which either side is not (a root of a negative number) is not
counted, unless no point is left.

Every cost is bounded before it is paid: `BITS` for exact values, `LOG_SIZE` for powers, `BUDGET` for the
work of one value; what exceeds them is `TooLargeError`. Numbers too large to be exact can be told apart,
but never be equal.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from steelyard.rewards.expressions import TRIGONOMETRIC, TooLargeError, Tree, UnreadError, read

BITS: Final = 32_768
"""Bits of an exact numerator or denominator: room for 1/2006!, which answers do hold."""
LOG_SIZE: Final = 100_000
"""Bits of the size of a power: 10^{30000} is a value, 9^{9^{9^9}} is none."""
BUDGET: Final = 1_000_000
"""Bits of exact arithmetic in one value, some 50 ms."""
COUNTED: Final = 3_000
"""The largest factorial."""
POINTS: Final = 8

Number: TypeAlias = Any
"""A `Fraction`, or an mpmath number where the value is not rational."""

_local = threading.local()


def _field(precision: int) -> Any:  # noqa: ANN401 - mpmath has no types
    """Return this thread's numbers of a precision: mpmath's contexts must not be shared."""
    fields: dict[int, Any] = _local.__dict__.setdefault("fields", {})
    if precision not in fields:
        from mpmath.ctx_mp import MPContext  # noqa: PLC0415 - heavy, and only irrational values need it

        fields[precision] = MPContext()
        fields[precision].prec = precision
    return fields[precision]


class _Point:
    """Values at one point, within one budget."""

    def __init__(self, point: int, precision: int) -> None:
        self.point = point
        self.precision = precision
        self.budget = BUDGET
        self.rounded = False
        """Whether an exact value was given up for its size."""

    def value(self, tree: Tree) -> Number:
        """Return the value of a tree: a `Fraction` while it is one."""
        kind = tree[0]
        if kind in {"number", "ratio"}:
            return tree[1]
        if kind == "symbol":
            return _letter(tree[1], self.point)
        values = [self.value(part) for part in tree[1:]]
        if kind == "+":
            total = values[0]
            for value in values[1:]:
                total = self.add(total, value)
            return total
        if kind == "*":
            total = values[0]
            for value in values[1:]:
                total = self.times(total, value)
            return total
        return _KINDS[kind](self, *values)

    @property
    def field(self) -> Any:  # noqa: ANN401 - mpmath has no types
        return _field(self.precision)

    def real(self, value: Number) -> Number:
        """Return a value as an mpmath number."""
        if isinstance(value, Fraction):
            return self.field.mpf(value.numerator) / value.denominator
        return value

    def kept(self, value: Fraction) -> Number:
        """Keep an exact value of bounded size; a larger one goes on rounded."""
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        self.budget -= bits + 64
        if self.budget < 0:
            raise TooLargeError("its value takes too much work")
        if bits <= 2 * BITS:
            return value
        self.rounded = True
        return self.real(value)

    def add(self, one: Number, other: Number) -> Number:
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return self.kept(one + other)
        return self.real(one) + self.real(other)

    def times(self, one: Number, other: Number) -> Number:
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return self.kept(one * other)
        return self.real(one) * self.real(other)

    def inverse(self, value: Number) -> Number:
        return self.kept(1 / value) if isinstance(value, Fraction) else 1 / value

    def power(self, base: Number, exponent: Number) -> Number:
        if isinstance(exponent, Fraction) and isinstance(base, Fraction):
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if exponent.denominator == 1:
                if bits * abs(exponent) <= BITS or abs(base) in {0, 1}:
                    return self.kept(
                        Fraction(base ** (exponent.numerator if abs(base) != 1 else exponent.numerator % 2))
                    )
                self.rounded = True
            elif base >= 0 and exponent.denominator <= 16:
                root = self.root(Fraction(exponent.denominator), base)
                if isinstance(root, Fraction):
                    return self.power(root, Fraction(exponent.numerator))
        base, exponent = self.real(base), self.real(exponent)
        if base and abs(exponent) * abs(self.field.log(abs(base), 2)) > LOG_SIZE:
            raise TooLargeError("a power is too large")
        return self.field.power(base, exponent)

    def root(self, order: Number, value: Number) -> Number:
        """The real root of an odd order is taken of negative numbers too."""
        if not isinstance(order, Fraction) or order.denominator != 1 or not 0 < order <= 1_000:
            return self.power(value, self.inverse(order))
        degree = order.numerator
        if isinstance(value, Fraction) and value >= 0:
            above, below = _exact_root(value.numerator, degree), _exact_root(value.denominator, degree)
            if above is not None and below is not None:
                return Fraction(above, below)
        value = self.real(value)
        if degree % 2 and is_real(value) and value < 0:
            return -self.field.root(-value, degree)
        return self.field.root(value, degree)

    def factorial(self, value: Number) -> Number:
        return self.kept(Fraction(math.factorial(_count(value))))

    def binomial(self, above: Number, below: Number) -> Number:
        return self.kept(Fraction(math.comb(_count(above), _count(below))))

    def floor(self, value: Number) -> Number:
        if isinstance(value, Fraction):
            return Fraction(math.floor(value))
        if abs(value) > 1 << 64:
            raise TooLargeError("a whole part is too large")
        return Fraction(int(self.field.floor(value)))

    def logarithm(self, value: Number, base: Number = Fraction(10)) -> Number:
        return self.field.log(self.real(value)) / self.field.log(self.real(base))

    def function(self, name: str, value: Number) -> Number:
        value = self.real(value)
        if abs(value) > LOG_SIZE:
            raise TooLargeError(f"the argument of {name} is too large")
        return getattr(self.field, name)(value)


def _count(value: Number) -> int:
    """A whole number that may be counted up to."""
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise ValueError("no whole number")
    if value > COUNTED:
        raise TooLargeError("a factorial is too large")
    return value.numerator


def _exact_root(value: int, degree: int) -> int | None:
    """The whole root of a whole number, if it is one."""
    if degree == 2:
        root = math.isqrt(value)
    elif value.bit_length() < 50:
        root = round(value ** (1 / degree))
    else:
        return None
    return root if root**degree == value else None


@lru_cache(maxsize=4_096)
def _letter(name: str, point: int) -> Fraction:
    """Return the value of a letter at a point: sign and size go with the point, the rest with the name."""
    seed = zlib.crc32(f"{point} {name}".encode())
    if point >= POINTS - 2:
        return Fraction(3 + seed % 11)
    share = Fraction(1 + seed % 96, 97)  # in (0, 1), of no denominator that answers have
    size = (share, 1 + 3 * share, 5 + 40 * share)[point % 3]
    return -size if point in {3, 4} or (point == 5 and seed >> 8 & 1) else size


_KINDS: dict[str, Callable[..., Number]] = {
    "-": lambda _, value: -value,
    "inverse": _Point.inverse,
    "fraction": lambda at, above, below: at.times(above, at.inverse(below)),
    "^": _Point.power,
    "root": _Point.root,
    "!": _Point.factorial,
    "binomial": _Point.binomial,
    "abs": lambda _, value: abs(value),
    "floor": _Point.floor,
    "ceil": lambda at, value: -at.floor(-value),
    "degrees": lambda at, value: at.times(value, at.field.pi / 180),
    "pi": lambda at: +at.field.pi,
    "e": lambda at: +at.field.e,
    "i": lambda at: at.field.mpc(0, 1),
    "infty": lambda at: at.field.inf,
    "ln": lambda at, value: at.field.log(at.real(value)),
    "log": _Point.logarithm,
    **{
        name: lambda at, value, name=name: at.function(name, value)
        for name in ("sinh", "cosh", "tanh", "exp", *TRIGONOMETRIC, *(f"a{name}" for name in TRIGONOMETRIC))
    },
}


class Expression:
    """An expression that was read, and its values so far."""

    __slots__ = ("_values", "complex", "symbols", "tree")

    def __init__(self, tree: Tree, symbols: frozenset[str]) -> None:
        self.tree = tree
        self.symbols = symbols
        self.complex = _holds(tree, "i")
        self._values: dict[tuple[int, int], tuple[Number | None, bool]] = {}

    def at(self, point: int, precision: int = 200) -> tuple[Number | None, bool]:
        """Return the value at a point (`None` where it has none), and whether it was rounded for its size.

        Raises
        ------
        TooLargeError
            If it would cost too much.
        """
        known = self._values.get((point, precision))
        if known is None:
            here = _Point(point, precision)
            try:
                value = here.value(self.tree)
            except (ArithmeticError, ValueError, TypeError):  # as mpmath says "not here"
                value = None
            except TooLargeError:
                if not self.symbols:
                    raise
                value = None  # other points are nearer to zero
            known = self._values[point, precision] = value, here.rounded
        return known


def _holds(tree: Tree, kind: str) -> bool:
    return tree[0] == kind or any(_holds(part, kind) for part in tree[1:] if isinstance(part, tuple))


def expression(text: str) -> Expression:
    r"""Read an expression, in the spelling of `latex.normal`.

    Raises
    ------
    UnreadError
        If it is none that `expressions` reads.
    TooLargeError
        If it is nested too deep.

    Examples
    --------
    >>> expression(r"\frac{1}{2}+\frac13").at(0)[0]
    Fraction(5, 6)
    """
    said = _expression(text)
    if isinstance(said, Exception):
        raise said
    return said


@lru_cache(maxsize=4_096)  # a group shares its gold, and answers repeat in it
def _expression(text: str) -> Expression | UnreadError | TooLargeError:
    try:
        return Expression(*read(text))
    except (UnreadError, TooLargeError) as error:
        return error.with_traceback(None)


def difference(one: Expression, other: Expression) -> Expression:
    """Return the difference of two expressions."""
    return Expression(("+", one.tree, ("-", other.tree)), one.symbols | other.symbols)


def equal(one: Expression, other: Expression) -> bool:
    r"""Whether two expressions have the same value wherever both have one.

    Raises
    ------
    TooLargeError
        If a value would cost too much, or both are too large to be told apart.

    Examples
    --------
    >>> equal(expression(r"\frac{1}{\sqrt{2}}"), expression(r"\frac{\sqrt2}{2}"))
    True
    """
    if not one.symbols and not other.symbols:
        return same_at(0, one, other)
    return everywhere(one, other, lambda point: same_at(point, one, other))


def factor(one: Expression, other: Expression) -> Number | None:
    """Return the number by which one is the other, if there is one: at least three points must tell."""
    quotient = Expression(("fraction", one.tree, other.tree), one.symbols | other.symbols)
    values = [quotient.at(point)[0] for point in range(POINTS)]
    known = [value for value in values if value is not None and is_real(value)]
    if len(known) < 3 or not known[0] or not quotient.symbols:
        return None
    if all(isinstance(value, Fraction) for value in known):
        return known[0] if len(set(known)) == 1 else None
    field = _field(200)
    first = field.convert(known[0])
    alike = all(abs(field.convert(value) - first) <= field.ldexp(abs(first), -100) for value in known)
    return first if alike else None


def everywhere(one: Expression, other: Expression, holds: Callable[[int], bool]) -> bool:
    """Whether something holds wherever both sides have a value: a real one, if there is any such point."""
    counted, rest = 0, []
    for point in range(POINTS):
        values = one.at(point)[0], other.at(point)[0]
        if values[0] is None or values[1] is None:
            continue
        if not (one.complex or other.complex or all(map(is_real, values))):
            rest.append(point)
            continue
        with suppress(TooLargeError):  # points nearer to zero decide
            if not holds(point):
                return False
            counted += 1
    return bool(counted or (rest and all(map(holds, rest))))


def is_real(value: Number) -> bool:
    """Whether a value is a real number."""
    return isinstance(value, Fraction) or not getattr(value, "imag", 0)


def same_at(point: int, one: Expression, other: Expression) -> bool:
    """Whether two values are equal: exactly, or in that their difference vanishes as precision grows."""
    (value, rounded), (wanted, too) = one.at(point), other.at(point)
    if isinstance(value, Fraction) and isinstance(wanted, Fraction):
        return value == wanted
    if value is None or wanted is None:
        return False
    field = _field(200)
    value, wanted = field.convert(value), field.convert(wanted)
    if not (field.isfinite(value) and field.isfinite(wanted)):
        return bool(value == wanted)
    distance, size = abs(value - wanted), max(abs(value), abs(wanted))
    if distance > field.ldexp(max(size, 1), -60):
        return False
    bits = max(0, field.mag(size)) if size else 0
    surely = bits < 40 and (distance == 0 or distance < field.ldexp(size, -160))
    same = surely or _vanishes(point, one, other, distance, 600 + bits)
    if same and (rounded or too) and not one.symbols | other.symbols:
        raise TooLargeError("its digits are too many to compare")
    return same


def _vanishes(point: int, one: Expression, other: Expression, distance: Number, precision: int) -> bool:
    """Whether a small difference is an error of rounding, for with more digits it is far smaller."""
    if precision > 4_000:
        raise TooLargeError("its digits are too many to compare")
    value, wanted = one.at(point, precision)[0], other.at(point, precision)[0]
    if value is None or wanted is None:
        return False
    field = _field(precision)
    value, wanted = field.convert(value), field.convert(wanted)
    left, size = abs(value - wanted), max(abs(value), abs(wanted))
    if size >= 1:
        return bool(left <= field.ldexp(1, -300))
    return bool(left <= field.ldexp(size, -300) or left <= field.ldexp(field.convert(distance), -200))
