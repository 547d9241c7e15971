"""A suite's checks, found in its text and rewritten so that each is counted.

A *check* is an assert statement, a statement that calls something named `assert...` (`self.assertEqual`,
`np.testing.assert_allclose`) or `fail`, and a `with` block or a call of `raises` / `assertRaises`. Each
becomes

    if <begin>(3):
        try:
            if <condition>: <passed>(3)
            else: <failed>(3)
        except BaseException: <raised>(3)

where a condition `a == b` becomes `<compared>("==", a, b)`, so that what it compared can be told, and every
call that stands as a statement of its own becomes `<in_place>(function, *arguments)`, every
`a is b` `<same>(a, b)`.

Left alone: asserts in a `try` whose handlers catch `AssertionError` (they are the suite's own control
flow) and asserts inside `raises`. `Site.required` says whether a run that never came to a check has missed
something: not for `assert False`, nor inside branches, handlers and helper functions, which a right
solution need not enter.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from typing import Any, NamedTuple

from . import frames

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

BEGIN, PASSED, FAILED, RAISED, IN_PLACE, SAME, COMPARED, SEEN = (
    f"__steelyard_{name}__"
    for name in ("begin", "passed", "failed", "raised", "in_place", "same", "compared", "seen")
)
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_RAISES = frozenset({"raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertLogs"})
_CATCH_ALL = frozenset({"AssertionError", "Exception", "BaseException"})
_FRAME_BOUND = frozenset({"exec", "eval", "locals", "globals", "vars", "dir", "super", "breakpoint"})
_TEXT = 200


class Site(NamedTuple):
    """One check in the text of a suite.

    Parameters
    ----------
    line, text
        Where it stands, and its source, at most 200 characters.
    required
        Whether a run that never came to it is incomplete.
    """

    line: int
    text: str
    required: bool


class Suite(NamedTuple):
    """A suite, compiled once.

    Parameters
    ----------
    code
        The rewritten module.
    sites
        Its checks.
    free
        Names that it uses and neither defines nor finds among the built-in ones: the candidate's.
    bound
        Names that it binds at its top: `from candidate import *` must not replace them.
    imports
        Whether it imports pytest, unittest.
    calls_check
        Whether it calls `check(...)` itself.
    guarded
        Whether its checks stand under `if __name__ == "__main__"`: no test is defined.
    """

    code: object
    sites: list[Site]
    free: list[str]
    bound: set[str]
    imports: frozenset[str]
    calls_check: bool
    guarded: bool


def compiled(source: bytes, entry_point: str = "", file: str = "test_candidate.py") -> Suite:
    """Parse, rewrite and compile a suite.

    Raises
    ------
    SyntaxError, ValueError, RecursionError
        It is no Python.
    """
    tree = ast.parse(source, file)
    free, bound = _names(source, entry_point)
    imports = frozenset(
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    )
    calls_check = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check"
        for statement in tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        for node in ast.walk(statement)
    )
    guarded = any(map(_is_main_guard, tree.body)) and not any(map(_holds_tests, tree.body))
    rewriter = _Rewriter(tree)
    tree = ast.fix_missing_locations(_Identity().visit(rewriter.visit(tree)))
    code = compile(tree, file, "exec", dont_inherit=True)
    return Suite(code, rewriter.sites, free, bound, imports, calls_check, guarded)


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _holds_tests(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(map(_holds_tests, node.body))
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
        ("test", "check")
    )


def _names(source: bytes | str, entry_point: str = "") -> tuple[list[str], set[str]]:
    """The names that only the candidate can have meant, and those that the suite itself binds."""
    top = symtable.symtable(source, "tests", "exec")  # type: ignore[arg-type]
    used: set[str] = set()
    bound = {"__name__", "__file__", "__doc__", "__builtins__", "__class__"}
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is not top and not symbol.is_global():
                continue
            if symbol.is_assigned() or symbol.is_imported():
                bound.add(symbol.get_name())
            if symbol.is_referenced():
                used.add(symbol.get_name())
    return sorted(used - bound - (set(vars(builtins)) - {entry_point})), bound


class _Rewriter(ast.NodeTransformer):
    """The rewriting; it carries where in the suite it is."""

    def __init__(self, tree: ast.AST) -> None:
        self.sites: list[Site] = []
        self.own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.optional = 0  # branches and helpers around
        self.quiet = 0  # asserts around here are the suite's own business

    def block(self, body: list[ast.stmt], *, optional: bool = False, quiet: bool = False) -> list[ast.stmt]:
        self.optional += optional
        self.quiet += quiet
        done: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            done.extend(result if isinstance(result, list) else [result])
        self.optional -= optional
        self.quiet -= quiet
        return done

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        tested = node.name.startswith(("test", "check", "setup", "setUp"))
        node.body = self.block(node.body, optional=not tested)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (the names are ast's)

    def visit_If(self, node: ast.If) -> ast.AST:
        optional = not _is_main_guard(node)
        node.body = self.block(node.body, optional=optional)
        node.orelse = self.block(node.orelse, optional=optional)
        return node

    def visit_For(self, node: ast.For | ast.While | ast.AsyncFor) -> ast.AST:
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse, optional=True)
        return node

    visit_While = visit_AsyncFor = visit_For  # noqa: N815 (the names are ast's)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        for case in node.cases:
            case.body = self.block(case.body, optional=True)
        return node

    def visit_Try(self, node: Any) -> Any:
        node.body = self.block(node.body, quiet=any(map(_catches_asserts, node.handlers)))
        for handler in node.handlers:
            handler.body = self.block(handler.body, optional=True)
        node.orelse = self.block(node.orelse, optional=True)
        node.finalbody = self.block(node.finalbody)
        return node

    visit_TryStar = visit_Try  # noqa: N815 (the names are ast's)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> ast.AST:
        if not any(_call_name(item.context_expr) in _RAISES for item in node.items):
            node.body = self.block(node.body)
            return node
        text = "with " + ", ".join(ast.unparse(item) for item in node.items)
        node.body = self.block(node.body, quiet=True)
        return node if self.quiet else self.checked(node, text, [node, self.tell(PASSED, len(self.sites))])

    visit_AsyncWith = visit_With  # noqa: N815 (the names are ast's)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if self.quiet:
            return node
        at = len(self.sites)
        never = isinstance(node.test, ast.Constant) and not node.test.value
        text = ast.unparse(node)
        condition = ast.If(_watched(node.test), [self.tell(PASSED, at)], [self.tell(FAILED, at)])
        return self.checked(node, text, [condition], never=never)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call):
            return node
        name = _call_name(call)
        checks = name not in self.own and (name.startswith("assert") or name in {"raises", "fail"})
        if checks and not self.quiet:  # a helper of the suite's own has asserts of its own
            done: list[ast.stmt] = [node, self.tell(PASSED, len(self.sites))]
            return self.checked(node, ast.unparse(node), done, never=name == "fail")
        if call is node.value and name and name not in _FRAME_BOUND and not checks:
            asked = ast.Call(ast.Name(IN_PLACE, ast.Load()), [call.func, *call.args], call.keywords)
            node.value = ast.copy_location(asked, call)
        return node

    def tell(self, what: str, at: int) -> ast.stmt:
        return ast.Expr(ast.Call(ast.Name(what, ast.Load()), [ast.Constant(at)], []))

    def checked(self, node: ast.stmt, text: str, done: list[ast.stmt], *, never: bool = False) -> ast.AST:
        """Wrap what makes a check: it is begun, and whatever it raises is told."""
        at = len(self.sites)
        self.sites.append(Site(node.lineno, text[:_TEXT], not (self.optional or never)))
        handler = ast.ExceptHandler(ast.Name("BaseException", ast.Load()), None, [])
        again = ast.If(self.tell(RAISED, at).value, [ast.Raise()], [])  # type: ignore[attr-defined]
        handler.body = [again]
        whole = ast.Try([self.tell(BEGIN, at), *done], [handler], [], [])
        for part in ast.walk(whole):
            if isinstance(part, ast.stmt | ast.expr | ast.ExceptHandler) and not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return whole


def _watched(test: ast.expr) -> ast.expr:
    """The same condition, which says what it compares as it is evaluated."""
    if isinstance(test, ast.BoolOp):
        return ast.BoolOp(test.op, [_watched(part) for part in test.values])
    if isinstance(test, ast.Constant):
        return test
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        stated = not any(isinstance(part, ast.Name) for part in ast.walk(test.left))
        operands = [ast.Constant(_SIGNS[type(test.ops[0])]), test.left, test.comparators[0]]
        return _asked(COMPARED, operands, "stated", stated)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.UnaryOp(test.op, _asked(SEEN, [test.operand], "wanted", said=False))
    return _asked(SEEN, [test], "wanted", said=True)


def _asked(name: str, operands: list[ast.expr], keyword: str, said: bool) -> ast.Call:  # noqa: FBT001
    return ast.Call(ast.Name(name, ast.Load()), operands, [ast.keyword(keyword, ast.Constant(said))])


class _Identity(ast.NodeTransformer):
    """`a is b`, where neither is a constant."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        operator, left, right = node.ops[0], node.left, node.comparators[0]
        if len(node.ops) > 1 or not isinstance(operator, ast.Is | ast.IsNot):
            return node
        if isinstance(left, ast.Constant) or isinstance(right, ast.Constant):
            return node
        asked: ast.expr = ast.Call(ast.Name(SAME, ast.Load()), [left, right], [])
        if isinstance(operator, ast.IsNot):
            asked = ast.UnaryOp(ast.Not(), asked)
        return ast.copy_location(asked, node)


def _call_name(node: ast.AST) -> str:
    """The last word of what is called, `raises` of `pytest.raises(...)`; empty where there is none."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _catches_asserts(handler: ast.ExceptHandler) -> bool:
    names = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    return handler.type is None or any(isinstance(n, ast.Name) and n.id in _CATCH_ALL for n in names)


_PYTEST = frozenset({"raises", "approx", "mark", "param", "fixture", "skip", "fail"})
_FIXTURES = frozenset(
    "tmp_path tmpdir tmp_path_factory capsys capfd caplog monkeypatch request recwarn mocker pytestconfig"
    " testdir benchmark event_loop".split()
)
_INSIDE = frozenset(
    "getsource getsourcelines signature __code__ __wrapped__ __defaults__ __annotations__ __closure__"
    " __globals__ redirect_stdout redirect_stderr GeneratorType getmembers getfullargspec".split()
)
"""What looks into a function or its output, which live in another process."""


def unsupported(tests: bytes | str, module: str = "candidate") -> str | None:
    """Say why a suite needs to run in one process with its candidate, or None.

    It reads the text alone: a suite can do what it does not show.

    Examples
    --------
    >>> unsupported("def test(capsys): f(); assert capsys.readouterr().out")
    'line 1: the fixture `capsys`'
    >>> unsupported("assert f(2) == 4")
    """
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # no Python at all: that is another fault
    tree.body = [node for node in tree.body if not _is_main_guard(node)]
    theirs, pytests = _imported(tree, module)
    theirs |= set(_names(ast.unparse(tree))[0])
    fixtures = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(mark) for mark in node.decorator_list)
    }
    for node in ast.walk(tree):
        if why := _needs(node, theirs, pytests, fixtures, module):
            return f"line {getattr(node, 'lineno', 1)}: {why}"
    return None


def _imported(tree: ast.AST, module: str) -> tuple[set[str], set[str]]:
    """Names that come from the candidate's module, and names of pytest itself."""
    theirs, pytests = {module}, {"pytest"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            theirs |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            pytests |= {alias.asname or alias.name for alias in node.names if alias.name == "pytest"}
            theirs |= {alias.asname or alias.name for alias in node.names if alias.name == module}
    return theirs, pytests


def _needs(node: ast.AST, theirs: set[str], pytests: set[str], fixtures: set[str], module: str) -> str | None:
    match node:
        case ast.ClassDef():
            return _class_needs(node, theirs)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            asked = [argument.arg for argument in node.args.args if argument.arg in _FIXTURES - fixtures]
            mine = node.name.startswith("test") or node.name in fixtures
            why = f"the fixture `{asked[0]}`" if asked and mine else None
        case ast.Attribute():
            why = _attribute_needs(node, pytests)
        case ast.ImportFrom(module="pytest"):
            others = [alias.name for alias in node.names if alias.name not in _PYTEST]
            why = f"`pytest.{others[0]}`" if others else None
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()]):
            why = _equality_needs([node.left, *node.comparators], theirs)
        case ast.Call() if _call_name(node) in {"assertEqual", "assertNotEqual"}:
            why = _equality_needs(node.args[:2], theirs)
        case ast.Call():
            why = _call_needs(node, module)
        case ast.Subscript(value=ast.Attribute(attr="environ"), ctx=ast.Store()):
            why = "it sets the environment of the candidate's process"
        case _:
            why = None
    return why


def _equality_needs(sides: list[ast.expr], theirs: set[str]) -> str | None:
    """What a call returned equals no object that the tests made: that would be the candidate's word."""

    def is_made(side: ast.expr) -> bool:
        return isinstance(side, ast.Call) and (name := _call_name(side))[:1].isupper() and name in theirs

    def is_returned(side: ast.expr) -> bool:
        if not isinstance(side, ast.Call) or is_made(side):
            return False
        function = side.func
        return isinstance(function, ast.Attribute) or (
            isinstance(function, ast.Name) and function.id in theirs
        )

    made = next((side for side in sides if is_made(side)), None)
    if made is None or not any(map(is_returned, sides)):
        return None
    return (
        f"what a call returned is compared with `{ast.unparse(made)[:60]}`, by the candidate's own `__eq__`"
    )


def _class_needs(node: ast.ClassDef, theirs: set[str]) -> str | None:
    for base in node.bases:
        root = base
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in theirs:
            return f"the class `{node.name}` is derived from the candidate's `{ast.unparse(base)}`"
    return None


def _attribute_needs(node: ast.Attribute, pytests: set[str]) -> str | None:
    if isinstance(node.value, ast.Name) and node.value.id in pytests and node.attr not in _PYTEST:
        return f"`pytest.{node.attr}`"
    if node.attr in {"usefixtures", "xfail"} and "mark" in ast.unparse(node.value):
        return f"the mark `{node.attr}`"
    if node.attr in _INSIDE:
        return f"`{node.attr}` looks into the candidate's process"
    if ast.unparse(node) in {"sys.stdout", "sys.stdin", "sys.stderr"}:
        return f"`{ast.unparse(node)}` is the candidate's own"
    return None


def _call_needs(node: ast.Call, module: str) -> str | None:
    """Patches of what lives in the candidate's process."""
    if _call_name(node) == "fixture" and any(keyword.arg == "params" for keyword in node.keywords):
        return "a fixture with parameters"
    if "patch" not in ast.unparse(node.func) or not node.args:
        return None
    first = node.args[0]
    if isinstance(first, ast.Name) and first.id in {module, "builtins", "sys", "os"}:
        return f"it patches `{first.id}`"
    if isinstance(first, ast.Constant) and type(first.value) is str:
        return f"it patches `{first.value}`"
    return None
