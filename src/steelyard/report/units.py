"""Numbers with their units, as one says them: as many digits as are worth reading, one unit to a line.

A value and its interval are read together, so they have one unit and as many digits, and an interval gets
more where its ends would look the same.
"""

from __future__ import annotations

from math import floor, log10
from typing import Final, NamedTuple

from steelyard.clock import Seconds, in_words
from steelyard.pricing.values import Estimate

_TINY: Final = 1e-5
"""Shares below are not told apart."""
_DIGITS: Final = 6
"""Digits behind the point with which the ends of an interval are told apart, or else it has no width."""


def number(value: float) -> str:
    """A number that is exact, such as a setting or a count: no zeros behind the point.

    Examples
    --------
    >>> number(5120), number(30.0), number(2.4512), number(0)
    ('5,120', '30', '2.45', '0')
    """
    text = f"{value:,.{decimals(value)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(value: float, one: str, many: str = "") -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(1, "call"), counted(5120, "call")
    ('1 call', '5,120 calls')
    """
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def decimals(value: float) -> int:
    """How many digits behind the point are worth reading.

    Examples
    --------
    >>> [decimals(size) for size in (5120, 55.1, 2.45, 0.18, 0.012, 0)]
    [0, 1, 2, 2, 3, 0]
    """
    size = abs(value)
    if size >= 100 or not size:
        return 0
    if size >= 0.1:
        return 1 if size >= 10 else 2
    return min(12, 1 - floor(log10(size)))


class _Scale(NamedTuple):
    """How a unit is written: times what, between which words, with how many digits at least."""

    times: float
    before: str
    after: str
    least: int = 0

    def written(self, value: float, digits: int) -> str:
        """The number without the word behind it."""
        told = f"{abs(value) * self.times:,.{max(self.least, digits)}f}"
        less = value < 0 and any(digit in told for digit in "123456789")
        return f"{'-' if less else ''}{self.before}{told}"


class TimeUnit(NamedTuple):
    """A unit of time: how many of it a second has, its sign, and its name for an axis."""

    times: float
    sign: str
    name: str

    def of(self, seconds: Seconds) -> float:
        """Seconds in this unit, with as many digits as a picture shows."""
        return float(f"{seconds * self.times:.6g}")


def time_unit(size: Seconds) -> TimeUnit:
    """The unit in which durations of about this size are told.

    Examples
    --------
    >>> time_unit(30.0).name, time_unit(0.054).sign, time_unit(0.054).of(0.0702)
    ('seconds', 'ms', 70.2)
    """
    size = abs(size)
    if size >= 0.1 or not size:
        return TimeUnit(1.0, "s", "seconds")
    return TimeUnit(1e3, "ms", "milliseconds") if size >= 1e-4 else TimeUnit(1e6, "µs", "microseconds")


def _scale(unit: str, size: float) -> _Scale:
    """How numbers of this unit are written beside one of this size."""
    if unit == "share":
        return _Scale(100.0, "", " %")
    if unit == "s":
        unit_of_time = time_unit(size)
        return _Scale(unit_of_time.times, "", f" {unit_of_time.sign}")
    if unit.startswith("$"):
        per = {"/h": " an hour", "/day": " a day", "/step": " a step"}.get(unit[1:], unit[1:])
        return _Scale(1.0, "$", per, least=2)
    return _Scale(1.0, "", "" if unit in ("", "correlation") else f" {unit}")


def amount(value: float, unit: str) -> str:
    """A number with its unit, as one says it.

    Examples
    --------
    >>> amount(0.555, "share"), amount(30.6, "s"), amount(12.12, "$/h"), amount(1, "calls")
    ('55.5 %', '30.6 s', '$12.12 an hour', '1 call')
    >>> amount(8e-14, "share"), amount(0.0777, "s")
    ('under 0.001 %', '77.7 ms')
    """
    return said(Estimate(value, unit))


def said(estimate: Estimate) -> str:
    """The number of an estimate with its unit."""
    value, unit = estimate.value, estimate.unit
    if unit == "calls":
        return counted(round(value), "call")
    if unit == "share" and 0 < value < _TINY:
        return f"under {100 * _TINY:g} %"
    scale = _scale(unit, _size(estimate))
    return scale.written(value, decimals(value * scale.times)) + scale.after


def interval(estimate: Estimate) -> str:
    """The interval of an estimate, in the unit of its value; empty where there is none, or no width.

    Examples
    --------
    >>> interval(Estimate(0.555, "share", 0.52, 0.58)), interval(Estimate(12.1, "$/h", 11, 13))
    ('52.0 to 58.0 %', '$11.00 to $13.00')
    >>> interval(Estimate(0.0777, "s", 0.05, 0.1)), interval(Estimate(0.2, "s", 0.1998, 0.2003))
    ('50.0 to 100.0 ms', '0.1998 to 0.2003 s')
    >>> interval(Estimate(15.0, "s", 15.0, 15.0 + 1e-9))
    ''
    """
    low, high = estimate.low, estimate.high
    if low is None or low == high:
        return ""
    if estimate.unit == "share" and high is not None and 0 < high < _TINY:
        return f"under {100 * _TINY:g} %"
    size = _size(estimate)
    scale = _scale(estimate.unit, size)
    digits = decimals(size * scale.times)
    after = "" if scale.before else scale.after  # of dollars, the value says per what
    if high is None:
        return f"at least {scale.written(low, digits)}{after}"
    for finer in range(digits, max(_DIGITS, digits + 2) + 1):
        ends = scale.written(low, finer), scale.written(high, finer)
        if ends[0] != ends[1]:
            return f"{ends[0]} to {ends[1]}{after}"
    return ""


def less(estimate: Estimate) -> Estimate:
    """The same the other way round: a saving as a loss.

    Examples
    --------
    >>> lost = less(Estimate(-0.0156, "s", -0.0184, -0.0129))
    >>> said(lost), interval(lost)
    ('15.6 ms', '12.9 to 18.4 ms')
    """
    low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
    return estimate._replace(value=-estimate.value, low=low, high=high)


def _size(estimate: Estimate) -> float:
    """Of which size the numbers of an estimate are: its value's, if that is not small beside its interval."""
    most = max(abs(end) for end in (estimate.value, estimate.low or 0.0, estimate.high or 0.0))
    return estimate.value if abs(estimate.value) >= 0.1 * most else most


def seconds(value: Seconds | None) -> str:
    """Seconds for a table; empty where not measured."""
    return "" if value is None else in_words(value)
