"""What a suite may use of pytest, without pytest: it is imported in a tenth of a millisecond, not in 150.

`raises`, `approx`, `mark.parametrize` (other marks do nothing, `skip` skips), `param`, `fixture` (a fresh
value for every test, whatever its scope), `skip`, `fail`, `xfail` behave as the real ones. A test that is
skipped is not passed. `unsupported` in `checks.py` names what needs the real thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isinf, isnan
from types import ModuleType, TracebackType
from typing import Any

NAMES = frozenset(
    "raises approx mark param fixture skip fail xfail Failed Skipped ExceptionInfo FixtureRequest".split()
)
_Kinds = type[BaseException] | tuple[type[BaseException], ...]


class Failed(BaseException):
    """The test has failed; like pytest's, no `except Exception` catches it."""

    Exception: type[BaseException]


class Skipped(BaseException):
    """The test is skipped."""


def fail(reason: str = "", pytrace: bool = True) -> None:  # noqa: ARG001, FBT001, FBT002
    """Fail the test."""
    raise Failed(reason)


def skip(reason: str = "", *, allow_module_level: bool = False) -> None:  # noqa: ARG001
    """Skip the test."""
    raise Skipped(reason)


def xfail(reason: str = "") -> None:
    """Give the test up: it is not passed."""
    raise Skipped(reason)


class ExceptionInfo:
    """What `raises` caught."""

    value: Any = None

    @property
    def type(self) -> Any:
        return type(self.value)

    @property
    def typename(self) -> str:
        return type(self.value).__name__

    @property
    def tb(self) -> TracebackType | None:
        return self.value.__traceback__ if self.value is not None else None

    def exconly(self, tryshort: bool = False) -> str:  # noqa: ARG002, FBT001, FBT002
        return f"{self.typename}: {self.value}"

    def match(self, regexp: str | re.Pattern[str]) -> bool:
        """Fail unless the exception's text holds a match."""
        if not re.search(regexp, str(self.value)):
            raise AssertionError(f"{str(self.value)[:200]!r} does not match {regexp!r}")
        return True


class _Raises:
    def __init__(self, kinds: _Kinds, match: Any = None, check: Any = None) -> None:
        self.kinds, self.regexp, self.check = kinds, match, check
        self.info = ExceptionInfo()

    def __enter__(self) -> ExceptionInfo:
        return self.info

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:  # noqa: PYI036 (any of them may be None)
        if kind is None:
            raise Failed(f"DID NOT RAISE {self.kinds!r}")
        if not issubclass(kind, self.kinds):
            return False
        self.info.value = error
        if self.regexp is not None:
            self.info.match(self.regexp)
        if self.check is not None and not self.check(error):
            raise AssertionError("the check of the exception is false")
        return True


def raises(
    expected_exception: _Kinds, *args: Any, match: Any = None, check: Any = None, **kwargs: Any
) -> Any:
    """Demand an exception, of a block or of a call."""
    kinds: Any = expected_exception if isinstance(expected_exception, tuple) else (expected_exception,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"expected an exception type, got {kind!r}")
    context = _Raises(expected_exception, match, check)
    if not args:
        return context
    function, *rest = args
    with context:
        function(*rest, **kwargs)
    return context.info


class approx:  # noqa: N801
    """Equality within a tolerance: 1e-6 of the expected number, at least 1e-12."""

    __array_ufunc__ = None
    __array_priority__ = 100

    def __init__(self, expected: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> None:  # noqa: A002, FBT001, FBT002
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok
        if isinstance(expected, set | frozenset | Iterator):
            raise TypeError(f"pytest.approx() does not support {type(expected).__name__}")

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise AssertionError("approx() is not supported in a boolean context")

    def __eq__(self, actual: object) -> bool:  # noqa: PLR0911
        expected: Any = self.expected
        if isinstance(expected, Mapping):
            if not isinstance(actual, Mapping) or set(actual) != set(expected):
                return False
            return all(self._near(expected[key], actual[key]) for key in expected)
        if hasattr(expected, "tolist") and hasattr(expected, "shape"):
            got = actual.tolist() if hasattr(actual, "tolist") else actual
            return self._like(approx(expected.tolist(), self.rel, self.abs, self.nan_ok), got)
        if isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
            try:
                if len(actual) != len(expected):  # type: ignore[arg-type]
                    return False
                return all(map(self._near, expected, actual))  # type: ignore[call-overload]
            except TypeError:
                return False
        return self._near(expected, actual)

    def _like(self, expected: approx, got: object) -> bool:
        return bool(expected == got)

    def _near(self, expected: Any, actual: Any) -> bool:  # noqa: PLR0911
        if isinstance(expected, list | tuple | dict) or hasattr(actual, "tolist"):
            actual = actual.tolist() if hasattr(actual, "tolist") else actual
            if isinstance(expected, list | tuple | dict):
                return self._like(approx(expected, self.rel, self.abs, self.nan_ok), actual)
        if isinstance(expected, bool) or expected is None or isinstance(expected, str | bytes):
            return bool(type(expected) is type(actual) and expected == actual)
        if expected == actual:
            return True
        try:
            if isnan(abs(expected)):
                return bool(self.nan_ok and isnan(abs(actual)))
            if isinf(abs(expected)):
                return False
            return bool(abs(expected - actual) <= self._tolerance(expected))
        except (TypeError, OverflowError):
            return False

    def _tolerance(self, expected: Any) -> Any:
        least = 1e-12 if self.abs is None else self.abs
        if least < 0 or (self.rel is not None and self.rel < 0):
            raise ValueError("tolerances cannot be negative")
        if self.rel is None and self.abs is not None:
            return least
        most = (1e-6 if self.rel is None else self.rel) * (
            abs(expected) if not _is_decimal(expected) else float(abs(expected))
        )
        tolerance = max(least, most) if not isnan(most) else inf
        return type(expected)(tolerance) if _is_decimal(expected) else tolerance


def _is_decimal(value: object) -> bool:
    return type(value).__module__ in {"decimal", "_decimal"}


class _Mark:
    """One mark: `mark.name` and `mark.name(...)` both decorate."""

    def __init__(self, name: str, args: tuple[Any, ...] = (), kwargs: Any = None) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs or {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and (isinstance(args[0], type) or hasattr(args[0], "__code__")):
            held = [*getattr(args[0], "pytestmark", []), self]
            args[0].pytestmark = held
            return args[0]
        return _Mark(self.name, args, kwargs)


class _Marks:
    def __getattr__(self, name: str) -> _Mark:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Mark(name)


mark = _Marks()


class Parameters(tuple[Any, ...]):
    """One row of a `parametrize`."""

    __slots__ = ()


def param(*values: Any, marks: Any = (), id: Any = None) -> Parameters:  # noqa: A002, ARG001
    """One row, with an id."""
    return Parameters(values)


class Fixture:
    """A function whose value a test asks for by its name."""

    def __init__(self, function: Callable[..., Any], name: str, *, autouse: bool) -> None:
        self.function, self.name, self.autouse = function, name, autouse


def fixture(function: Any = None, *, name: str = "", autouse: bool = False, **_kwargs: Any) -> Any:
    """Make a fixture; every test gets a fresh value."""
    if function is None:
        return lambda inner: fixture(inner, name=name, autouse=autouse)
    return Fixture(function, name or function.__name__, autouse=autouse)


def rows(function: Any, owner: Any = None) -> list[dict[str, Any]]:
    """Every combination of parameters that a test's marks, and its class's, ask for.

    Raises
    ------
    Skipped
        A mark says so.
    """
    made: list[dict[str, Any]] = [{}]
    own = getattr(owner, "pytestmark", [])
    for found in [*getattr(function, "pytestmark", []), *(own if isinstance(own, list) else [own])]:
        if found.name == "skip" or (found.name == "skipif" and found.args and found.args[0]):
            raise Skipped("marked so")
        if found.name != "parametrize":
            continue
        names, values = (*found.args, *found.kwargs.values())[:2]
        names = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
        table = [value if type(value) is Parameters or len(names) > 1 else (value,) for value in list(values)]
        made = [{**dict(zip(names, row, strict=True)), **rest} for row in table for rest in made]
    return made


def module() -> ModuleType:
    """The stand-in, as the module `pytest`."""
    made = ModuleType("pytest")
    vars(made).update({name: value for name, value in globals().items() if name in NAMES})
    return made
