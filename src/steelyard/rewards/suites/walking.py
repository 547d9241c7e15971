"""Walks the statements of a suite in the order in which pytest or Python would run them.

Module level first, then each `test_*` function and each method of a `Test*` class, `parametrize` unrolled;
a suite that only defines `check` is given the entry point. Functions that the tests define are read where
they are called. Loops over stated values are unrolled; conditions on stated values are decided.

What a check looks at decides whether arguments come back. `f(xs)` followed by `assert xs == [...]` reads the
argument as the call left it, for the check holds no result: clearing `xs` cannot please it. A check that
holds a result reads arguments as they were stated (`assert f(xs) == [v * v for v in xs]` would be pleased
by a function that clears them), unless `in_place` was asked for.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any

from steelyard.rewards.suites.comparing import leaves
from steelyard.rewards.suites.reading import (
    CANDIDATE,
    MOST_TURNS,
    Bound,
    Function,
    Helper,
    Import,
    Module,
    Names,
    NotATableError,
    Reader,
)
from steelyard.rewards.suites.suite import Apply, Check, Expression, Literal, Result, Table

MOST_STATEMENTS = 100_000
_IGNORED = ("print",)


class FaultError(Exception):
    """A suite that no candidate can pass."""


class _Returned(Exception):  # noqa: N818 - it ends a function, as a return does
    def __init__(self, value: Expression) -> None:
        super().__init__()
        self.value = value


def table_of(
    tree: ast.Module, lines: Sequence[str], entry_point: str, *, in_place: bool
) -> tuple[Table, set[str]]:
    """Make a table of a suite; also return the candidate's names that it calls.

    Raises
    ------
    NotATableError
        If it needs a Python process.
    FaultError
        If it cannot judge anything.
    """
    walker = _Walker(lines, entry_point, in_place=in_place)
    walker.suite(tree, entry_point)
    return walker.table(), walker.names


class _Walker(Reader):
    """A reader that also knows statements."""

    def __init__(self, lines: Sequence[str], entry_point: str, *, in_place: bool) -> None:
        super().__init__(entry_point, in_place=in_place)
        self.checks: list[Check] = []
        self._lines = lines
        self._statements = 0
        self._script = False
        self._ran: set[str] = set()

    def table(self) -> Table:
        """Return what was found; a call that no check reads must at least return."""
        read = {leaf.call for check in self.checks for leaf in leaves(check.expression)}
        for index, node in enumerate(self.called_at):
            if index not in read:
                self._check(node, Apply("returned", (Result(index),)))
        return Table(tuple(self.calls), tuple(self.checks))

    # --- the suite as a whole

    def suite(self, tree: ast.Module, entry_point: str) -> None:
        """Walk a module as pytest would run it."""
        self._script = not any(_is_test(node) for node in tree.body)
        self.block(tree.body)
        tests = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for node in tests:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                self._class(node)
            elif (
                isinstance(node, ast.FunctionDef)
                and node.name.startswith("test")
                and node.name not in self._ran
            ):
                self._test(node, {})
        check = self.scopes[0].get("check")
        if isinstance(check, Helper) and "check" not in self._ran and len(check.node.args.args) == 1:
            if not entry_point.isidentifier():
                raise NotATableError(check.node, f"check({entry_point})")
            self._ran.add("check")
            with self.scope({check.node.args.args[0].arg: Function(entry_point)}):
                self.block(check.node.body)

    def _class(self, node: ast.ClassDef) -> None:
        if node.bases or node.keywords or node.decorator_list:
            raise NotATableError(node, f"class {node.name} with bases or decorators")
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test") and method.args.args:
                self._test(method, {method.args.args[0].arg: Import("self", "self")})
            elif not (isinstance(method, ast.Expr) and isinstance(method.value, ast.Constant)):
                raise NotATableError(method, f"class {node.name} with more than tests")

    def _test(self, node: ast.FunctionDef, given: Names) -> None:
        parameters = {argument.arg for argument in node.args.args} - given.keys()
        rows: list[Names] = [given]
        for decorator in node.decorator_list:
            rows = [row | more for more in self._parametrized(decorator) for row in rows]
        if any(parameters - row.keys() for row in rows) or _variadic(node.args):
            raise NotATableError(node, f"fixtures of {node.name}")
        for row in rows:
            with self.scope(dict(row)):
                self._body(node)

    def _parametrized(self, decorator: ast.expr) -> list[Names]:
        """Return the arguments of each run that `pytest.mark.parametrize` asks for."""
        called = isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize"
        if not (isinstance(decorator, ast.Call) and called and len(decorator.args) == 2):
            raise NotATableError(decorator, f"decorator {ast.unparse(decorator)[:40]}")
        read = self.read(decorator.args[0])
        names = read.value if isinstance(read, Literal) else None
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names or ())
        rows: list[Names] = []
        for value in self.stated(decorator.args[1]):
            values = (value,) if len(names) == 1 else value
            if not isinstance(values, tuple | list) or len(values) != len(names):
                raise NotATableError(decorator, "parametrize with rows of another length")
            rows.append({name: Literal(one) for name, one in zip(names, values, strict=True)})
        return rows

    # --- statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Walk statements one after another."""
        for statement in statements:
            self._statements += 1
            if self._statements > MOST_STATEMENTS:
                raise NotATableError(statement, "more statements than a table holds")
            method = getattr(self, f"_walk_{type(statement).__name__.lower()}", None)
            if method is None:
                raise NotATableError(statement, f"a {type(statement).__name__} statement")
            method(statement)

    def _walk_pass(self, node: ast.Pass) -> None:
        pass

    def _walk_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.scopes[-1][name] = Module(alias.name if alias.asname else name)

    def _walk_importfrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            bound: Bound = Import(node.module or "", alias.name)
            if alias.name == "*":
                if node.module != CANDIDATE:
                    raise NotATableError(node, f"all names of {node.module}")
                continue
            if node.module == CANDIDATE:
                bound = Function(alias.name)
                self.names.add(alias.name)
            self.scopes[-1][alias.asname or alias.name] = bound

    def _walk_functiondef(self, node: ast.FunctionDef) -> None:
        around = self.scopes[-1] if len(self.scopes) > 1 else {}
        self.scopes[-1][node.name] = Helper(node, around)

    def _walk_classdef(self, node: ast.ClassDef) -> None:
        if not (node.name.startswith("Test") and len(self.scopes) == 1):
            raise NotATableError(node, f"class {node.name}")

    def _walk_assign(self, node: ast.Assign) -> None:
        bound = self.callee(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
        value = bound if isinstance(bound, Function | Helper) else self.read(node.value)
        for target in node.targets:
            self.bind(target, value)

    def _walk_annassign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.bind(node.target, self.read(node.value))

    def _walk_augassign(self, node: ast.AugAssign) -> None:
        left = self.read(node.target)
        if (
            isinstance(node.target, ast.Name)
            and isinstance(left, Literal)
            and type(left.value) not in (list, dict, set)
        ):
            self.bind(
                node.target, self.read(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node))
            )
        else:
            raise NotATableError(node, "an assignment that changes a value")

    def _walk_return(self, node: ast.Return) -> None:
        raise _Returned(self.read(node.value) if node.value else Literal(None))

    def _walk_if(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__"):
            if self._script:
                self.block(node.body)
            return
        self.block(node.body if self.decided(node.test) else node.orelse)

    def _walk_for(self, node: ast.For) -> None:
        values = self.stated(node.iter)
        if len(values) > MOST_TURNS:
            raise NotATableError(node, f"a loop of {len(values)} turns")
        for value in values:
            self.bind(node.target, Literal(value))
            self.block(node.body)
        self.block(node.orelse)

    def _walk_expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant | ast.Name):
            return
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _IGNORED:
            for argument in value.args:
                self.read(argument)
            return
        self.read(value)

    def _walk_assert(self, node: ast.Assert) -> None:
        before = len(self.calls)
        self.saw_given = False
        read = self.read(node.test)
        if (
            self.saw_given
            and not self.in_place
            and not any(isinstance(leaf, Result) for leaf in leaves(read))
        ):
            if before != len(self.calls):
                raise NotATableError(node, "a call beside an argument that it may have changed")
            self.looks_after = True
            read = self.read(node.test)
            self.looks_after = False
            if len(set(leaves(read))) > 1:
                raise NotATableError(node, "two arguments that calls may have changed")
        if not leaves(read):
            self._stated(node, read)
        else:
            self._check(node, read)

    def _stated(self, node: ast.Assert, read: Expression) -> None:
        """Leave out a check that asks the candidate nothing: a share of it would be paid to anything."""
        if isinstance(read, Literal) and read.value:
            return
        if self.calls:
            raise NotATableError(node, "a check that holds no result and is false as it is stated")
        raise FaultError(
            f"line {node.lineno}: this check fails whatever the candidate does: {self._text(node)}"
        )

    def _walk_with(self, node: ast.With) -> None:
        """Read `with pytest.raises(ValueError): f(x)`."""
        manager = node.items[0].context_expr
        callee = self.callee(manager.func) if isinstance(manager, ast.Call) else None
        simple = len(node.items) == 1 and node.items[0].optional_vars is None and len(node.body) == 1
        if not (isinstance(manager, ast.Call) and callee == Import("pytest", "raises") and simple):
            raise NotATableError(node, f"with {ast.unparse(manager)[:40]}")
        body = node.body[0]
        value = body.value if isinstance(body, ast.Expr | ast.Assign) else None
        if len(manager.args) != 1 or manager.keywords or not isinstance(value, ast.Call):
            raise NotATableError(node, "pytest.raises with more than an exception and a call")
        read = self.read(value)
        if not isinstance(read, Result):
            raise NotATableError(node, "pytest.raises around more than a call")
        self._check(node, read, raises=tuple(self._exceptions(manager.args[0])))

    def _exceptions(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Tuple):
            return [name for element in node.elts for name in self._exceptions(element)]
        kind = (
            getattr(builtins, node.id, None)
            if isinstance(node, ast.Name) and self.lookup(node) is None
            else None
        )
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return [kind.__name__]
        raise NotATableError(node, f"exception {ast.unparse(node)[:40]}")

    # --- functions of the tests

    def inlined(self, node: ast.Call, helper: Helper) -> Expression:
        """Walk a function that the tests define, where they call it."""
        definition = helper.node
        if (
            node.keywords
            or definition.decorator_list
            or definition.args.defaults
            or _variadic(definition.args)
        ):
            raise NotATableError(node, f"a call of {definition.name} with more than plain arguments")
        arguments = [self._argument(argument) for argument in node.args]
        if len(arguments) != len(definition.args.args):
            raise NotATableError(node, f"a call of {definition.name} with another number of arguments")
        parameters = (parameter.arg for parameter in definition.args.args)
        names = helper.around | dict(zip(parameters, arguments, strict=True))
        self._ran.add(definition.name)
        with self.scope(names):
            return self._body(definition)

    def _argument(self, node: ast.expr) -> Bound:
        if isinstance(node, ast.Name | ast.Attribute):
            bound = self.callee(node)
            if isinstance(bound, Function | Helper):
                return bound
        if isinstance(node, ast.Starred):
            raise NotATableError(node, "a starred argument")
        return self.read(node)

    def _body(self, node: ast.FunctionDef) -> Expression:
        if any(
            isinstance(inner, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom)
            for inner in ast.walk(node)
        ):
            raise NotATableError(node, f"{node.name} is a generator or changes names outside it")
        try:
            self.block(node.body)
        except _Returned as returned:
            return returned.value
        return Literal(None)

    def _check(self, node: ast.AST, expression: Expression, raises: tuple[str, ...] = ()) -> None:
        self.checks.append(Check(getattr(node, "lineno", 0), self._text(node), expression, raises))

    def _text(self, node: ast.AST) -> str:
        line = getattr(node, "lineno", 0)
        return self._lines[line - 1].strip()[:160] if 0 < line <= len(self._lines) else ""


def _is_test(node: ast.stmt) -> bool:
    """Whether pytest would run it."""
    return (isinstance(node, ast.FunctionDef) and node.name.startswith("test")) or (
        isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    )


def _variadic(arguments: ast.arguments) -> Any:  # noqa: ANN401 - something, or nothing
    return arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs
