"""From the column `tests` to a suite, once for a group: what can be judged how, or why it cannot be.

| tests | suite |
|---|---|
| Python whose asserts are about calls with stated arguments | `table`: calls in, values out, compared here |
| other Python that a judge process can hold | `judge` |
| Python that looks into the candidate's own process | a fault, or `cooperative` where that is asked for |
| inputs and outputs | `stdio`, or with `fn_name` a `table` |

Python is a pytest snippet, plain asserts or `check(candidate)`: its syntax tree tells, never a file's name.
Nothing of a row is executed here: it is parsed, and what it states is computed by bounded operations.

What a `table` takes for granted: calls that Python would skip behind `and`, `or` and a failed assert are
made, too; a built-in function is Python's, whatever the candidate calls its own (the entry point and what is
imported by name excepted); a check that holds no call and is true is no check.
"""

from __future__ import annotations

import ast
import builtins
import json
import marshal
import re
import sysconfig
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from typing import Final

from steelyard.errors import describe
from steelyard.rewards.suites.pairs import read_pairs
from steelyard.rewards.suites.reading import CANDIDATE, NotATableError
from steelyard.rewards.suites.suite import Fault, Pair, Suite, Table
from steelyard.rewards.suites.walking import FaultError, table_of
from steelyard.sandbox.guest.checks import unsupported

LARGEST: Final = 10_000_000
_KEPT: Final = 600
"""Suites that are kept: those of all groups that may be under way, and some more."""

_KEPT_BYTES: Final = 64_000_000
_COOPERATIVE: Final = "ask for `tests:cooperative`, which runs them beside the candidate, or rewrite them"


class _Kept:
    """The suites compiled last, by content, within a number of bytes."""

    def __init__(self) -> None:
        self._suites: OrderedDict[bytes, tuple[Suite | Fault, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Suite | Fault | None:
        with self._lock:
            kept = self._suites.get(key)
            if kept is None:
                return None
            self._suites.move_to_end(key)
            return kept[0]

    def keep(self, key: bytes, suite: Suite | Fault, size: int) -> None:
        with self._lock:
            if key not in self._suites:
                self._suites[key] = (suite, size)
                self._bytes += size
            while len(self._suites) > _KEPT or (self._bytes > _KEPT_BYTES and len(self._suites) > 1):
                self._bytes -= self._suites.popitem(last=False)[1][1]


_kept = _Kept()


def compile_suite(
    tests: object,
    entry_point: object = None,
    *,
    share: bool = False,
    in_place: bool = False,
    cooperative: bool = False,
) -> Suite | Fault:
    """Compile a row's tests, or say why they cannot judge.

    Parameters
    ----------
    tests
        Python as text, a list of asserts as text, or inputs and outputs.
    entry_point
        The name of the candidate's function, where the row has one.
    share
        Whether the share of passed checks is paid; it only marks the suite.
    in_place
        Whether every argument is read as the call left it.
    cooperative
        Whether tests that cannot be isolated may run in the candidate's own process.

    Examples
    --------
    >>> suite = compile_suite("assert double(2) == 4")
    >>> suite.kind, suite.planned, suite.names
    ('table', 1, ('double',))
    >>> compile_suite("assert double(2) ==").reason
    "column 'tests' is no Python, line 1: invalid syntax"
    """
    try:
        content = marshal.dumps((tests, entry_point, share, in_place, cooperative), 2)  # type: ignore[arg-type]
    except (ValueError, RecursionError):
        return Fault(f"column 'tests' is {type(tests).__name__} with something that is no JSON: {_WANTED}")
    key = blake2b(content, digest_size=16).digest()
    suite = _kept.get(key)
    if suite is None:
        settings = {"share": share, "in_place": in_place, "cooperative": cooperative}
        suite = (
            _compile(tests, entry_point, key.hex(), settings)
            if len(content) <= LARGEST
            else _too_large(content)
        )
        _kept.keep(
            key, suite, 4 * len(content) + 1_000
        )  # a table of small literals takes some four times its text
    return suite


_WANTED: Final = "give Python as text, or inputs and outputs"


_INSIDE: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_SOLUTION: Final = re.compile(
    r"\ASolution\(\)\."
)  # LeetCode's way to name a method; guests find it by its name


def _too_large(content: bytes) -> Fault:
    return Fault(
        f"column 'tests' has {len(content):,} bytes, at most {LARGEST:,} are read: drop the row or some tests"
    )


def _compile(tests: object, entry_point: object, digest: str, settings: Mapping[str, bool]) -> Suite | Fault:
    if entry_point is not None and not isinstance(entry_point, str):
        return Fault(
            f"column 'entry_point' is {type(entry_point).__name__}: give the function's name as text"
        )
    name = _SOLUTION.sub("", (entry_point or "").strip())
    if name and not all(part.isidentifier() for part in name.split(".")):
        return Fault(f"column 'entry_point' is {name[:80]!r}, which names no function: write its name alone")
    if isinstance(tests, str) and tests.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # then it is Python, or a fault of its own
            tests = json.loads(tests)
    if isinstance(tests, list | tuple) and tests and all(isinstance(test, str) for test in tests):
        tests = "\n".join(tests)
    if isinstance(tests, str):
        return _python(tests, name, digest, settings)
    if not isinstance(tests, list | tuple | dict):
        what = "missing or null" if tests is None else type(tests).__name__
        return Fault(f"column 'tests' is {what}: {_WANTED}")
    read = read_pairs(tests, name)
    return read if isinstance(read, Fault) else _of_data(read, digest, name)


def _of_data(read: Table | tuple[Pair, ...], digest: str, entry_point: str) -> Suite:
    if isinstance(read, Table):
        names = (read.calls[0].function,)
        return Suite("table", digest, len(read.checks), table=read, entry_point=entry_point, names=names)
    return Suite("stdio", digest, len(read), pairs=read, entry_point=entry_point)


def _python(source: str, entry_point: str, digest: str, settings: Mapping[str, bool]) -> Suite | Fault:
    tree = _parsed(source)
    if isinstance(tree, Fault):
        return tree
    if (fault := _fault(tree, entry_point)) is not None:
        return fault
    try:
        table, called = table_of(tree, source.splitlines(), entry_point, in_place=settings["in_place"])
    except FaultError as error:
        return Fault(f"column 'tests', {error}")
    except (NotATableError, RecursionError) as error:
        why = str(error)
        return _process(tree, source, entry_point, digest, why, cooperative=settings["cooperative"])
    if not table.checks:
        return Fault("column 'tests' has no check of the candidate: assert something about a call of it")
    names = _first(entry_point, called)
    return Suite("table", digest, len(table.checks), table=table, entry_point=entry_point, names=names)


def _process(
    tree: ast.Module, source: str, entry_point: str, digest: str, why: str, *, cooperative: bool
) -> Suite | Fault:
    """Make a suite that needs a Python process of its own, or the candidate's."""
    planned = sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
    if not planned and not any(
        isinstance(node, ast.With | ast.Attribute | ast.Raise) for node in ast.walk(tree)
    ):
        return Fault("column 'tests' checks nothing: write at least one assert")
    shared = _not_isolated(source)
    if shared and not cooperative:
        return Fault(f"column 'tests' cannot be kept apart from the candidate ({shared}): {_COOPERATIVE}")
    return Suite(
        "cooperative" if shared else "judge",
        digest,
        planned,
        source=source.encode("utf-8", "surrogatepass"),
        entry_point=entry_point,
        names=_names(tree, entry_point),
        why_not_table=why,
    )


def _parsed(source: str) -> ast.Module | Fault:
    """Parse tests; whatever is wrong with them is a fault in words."""
    if not source.strip():
        return Fault("column 'tests' is empty: give the row its tests, or drop it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the row's own business
            return ast.parse(source)
    except SyntaxError as error:
        return Fault(f"column 'tests' is no Python, line {error.lineno}: {error.msg}")
    except (RecursionError, MemoryError, ValueError) as error:
        return Fault(f"column 'tests' cannot be parsed: {describe(error)}")


def _fault(tree: ast.Module, entry_point: str) -> Fault | None:
    """Say what keeps tests from judging anybody."""
    if absent := _absent(tree):
        return Fault(
            f"column 'tests' imports {absent!r}, which is not installed beside steelyard: install it, or "
            "import what is the candidate's from `candidate`"
        )
    if not entry_point and _wants_entry_point(tree):
        return Fault("column 'tests' defines check(candidate): name the function in column 'entry_point'")
    return None


def _absent(tree: ast.Module) -> str:
    """Return a module that tests import and that is not here; a `try` around an import knows what to do."""
    tried = {inner for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names if node not in tried else ():
            if not _is_here(name.partition(".")[0]):
                return name
    return ""


@lru_cache(maxsize=1_024)
def _is_here(module: str) -> bool:
    if module in {"candidate", "pytest", "__main__"}:  # the judge has a stand-in for pytest
        return True
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return spec is not None
    # what lies beside the run, in the working folder, is on no candidate's path
    return spec.origin in {"built-in", "frozen"} or spec.origin.startswith(_INSIDE)


def _wants_entry_point(tree: ast.Module) -> bool:
    """Whether tests define `check(candidate)` and nothing calls it or runs beside it."""
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    check = defined.get("check")
    if check is None or len(check.args.args) != 1:
        return False
    called = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check"
        for node in ast.walk(tree)
    )
    return not called


def _not_isolated(source: str) -> str | None:
    """Say what in tests a judge process cannot hold."""
    try:
        return unsupported(source)
    except RecursionError:
        return "it is nested too deeply"


def _names(tree: ast.Module, entry_point: str) -> tuple[str, ...]:
    """Return the names that tests use of the candidate: imported, or bound by nobody."""
    used: set[str] = set()
    bound, imported = set(dir(builtins)), {entry_point}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == CANDIDATE:
            imported.update(alias.name for alias in node.names)
            bound.update(alias.asname for alias in node.names if alias.asname)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == CANDIDATE
        ):
            imported.add(node.attr)
    return _first(entry_point, (imported | (used - bound)) - {"", "*", CANDIDATE})


def _first(entry_point: str, names: set[str]) -> tuple[str, ...]:
    return (*filter(None, [entry_point]), *sorted(names - {entry_point}))
