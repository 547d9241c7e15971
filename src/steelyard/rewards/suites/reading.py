"""From the syntax tree of a test to expressions, without running it.

What the tests state is folded into values as it is read (`[0] * 5`, `float("inf")`, `10 ** 6`); a call of a
candidate's function becomes an entry of the table and a `Result`. Comprehensions over stated values are
unrolled. Whatever has no place in a table raises `NotATableError` with its line and a reason in words, and
the suite goes to a judge process.

A result is compared, ordered, computed with, indexed, unpacked, measured with `len`, and asked for its type;
neither it nor an element of it is ever iterated over (`sorted(f(x))`, `3 in f(x)[0]`): a function may return
a generator, which cannot be sent by value, and an honest one must not fail for that.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from steelyard.errors import describe
from steelyard.rewards.suites.bounds import LARGEST, LARGEST_SENT, sendable
from steelyard.rewards.suites.comparing import evaluate, leaves
from steelyard.rewards.suites.operations import (
    CONSTANTS,
    FUNCTIONS,
    HANDS_ON,
    ITERATES,
    ITERATES_ARGUMENTS,
    MATHS,
    METHODS,
    TYPES,
)
from steelyard.rewards.suites.suite import After, Apply, Both, Call, Either, Expression, Literal, Result

CANDIDATE: Final = "candidate"
MOST_NODES: Final = 2_000_000
MOST_CALLS: Final = 10_000
MOST_TURNS: Final = 1_000
DEEPEST: Final = 60

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MUTABLE = (list, dict, set, bytearray)
_CLASS_NAME = re.compile(r"[A-Z][a-zA-Z0-9]*")


class NotATableError(Exception):
    """The suite needs a Python process.

    Parameters
    ----------
    node
        Where.
    reason
        Why, in words.
    """

    def __init__(self, node: ast.AST | None, reason: str) -> None:
        line = getattr(node, "lineno", None)
        super().__init__(f"line {line}: {reason}" if line else reason)


class Function(NamedTuple):
    """A function of the candidate."""

    name: str


class Module(NamedTuple):
    """A module that the tests import."""

    name: str


class Import(NamedTuple):
    """A name imported from a module that is not the candidate's."""

    module: str
    name: str


class Helper(NamedTuple):
    """A function that the tests define, with the local names around it."""

    node: ast.FunctionDef
    around: dict[str, Any]


Bound: TypeAlias = Literal | Result | After | Apply | Both | Either | Function | Module | Import | Helper
Names: TypeAlias = dict[str, Bound]

_COMPARISONS: Final = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_BINARY: Final = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_UNARY: Final = {ast.Not: "not", ast.USub: "negative", ast.UAdd: "positive", ast.Invert: "inverted"}
_DISPLAYS: Final = {ast.List: "a list", ast.Tuple: "a tuple", ast.Set: "a set"}


def _may_be_iterator(expression: Expression) -> bool:
    """Whether a value may be a result, or what one holds: what an operation makes is a value of its own."""
    if isinstance(expression, Both | Either):
        return any(map(_may_be_iterator, expression.parts))
    if isinstance(expression, Apply):
        return expression.operation in HANDS_ON and bool(leaves(expression))
    return isinstance(expression, Result)


def _is_tolerance(expression: Expression) -> bool:
    """Whether an expression is an `approx` that waits for what it is compared with."""
    return (
        isinstance(expression, Apply)
        and expression.operation == "approx"
        and expression.operands[0] == Literal(None)
    )


class Reader:
    """Reads expressions, and keeps the calls that they make.

    Parameters
    ----------
    entry_point
        The candidate's function, which may be called as a built-in one is.
    in_place
        Whether every argument is read as the call left it.
    """

    def __init__(self, entry_point: str, *, in_place: bool) -> None:
        self.calls: list[Call] = []
        self.called_at: list[ast.AST] = []
        self.scopes: list[Names] = [{}]
        self.in_place = in_place
        self.looks_after = in_place
        self.given: dict[int, After] = {}
        self.saw_given = False
        self.names: set[str] = set()
        self._nodes = 0
        self._sent = 0
        self._depth = 0
        if entry_point.isidentifier():
            self.scopes[0] |= {entry_point: Function(entry_point), CANDIDATE: Function(entry_point)}

    # --- names

    def bind(self, target: ast.expr, value: Bound) -> None:
        """Bind the target of an assignment, a loop or a comprehension."""
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            if any(isinstance(element, ast.Starred) for element in target.elts):
                raise NotATableError(target, "a starred target")
            whole = self.apply(target, "unpacked", self.expression(target, value), Literal(len(target.elts)))
            for at, element in enumerate(target.elts):
                self.bind(element, self.apply(target, "[]", whole, Literal(at)))
        else:
            raise NotATableError(target, f"an assignment to {ast.unparse(target)[:40]}")

    def lookup(self, node: ast.Name) -> Bound | None:
        """Return what a name is bound to; one that neither tests nor Python know is the candidate's."""
        for scope in (self.scopes[-1], self.scopes[0]):
            if node.id in scope:
                return scope[node.id]
        if hasattr(builtins, node.id):
            return None
        return Function(node.id)

    def expression(self, node: ast.AST, bound: Bound | None) -> Expression:
        """Take what is bound as a value."""
        if isinstance(bound, Literal | Result | After | Apply | Both | Either):
            return bound
        what = type(bound).__name__.lower() if bound else "name"
        raise NotATableError(node, f"a {what} used as a value ({ast.unparse(node)[:40]})")

    # --- expressions

    def read(self, node: ast.expr) -> Expression:
        """Read one expression.

        Raises
        ------
        NotATableError
            If it has no place in a table.
        """
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise NotATableError(node, "more than a table holds")
        if isinstance(node, ast.Constant):
            if type(node.value) not in _PLAIN:
                raise NotATableError(node, "an ellipsis")
            return Literal(node.value)
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotATableError(node, "too deeply nested")
        try:
            method = getattr(self, f"_read_{type(node).__name__.lower()}", None)
            if method is None:
                raise NotATableError(node, f"{type(node).__name__} ({ast.unparse(node)[:40]})")
            read: Expression = method(node)
            return read
        finally:
            self._depth -= 1

    def apply(
        self, node: ast.AST, operation: str, *operands: Expression, **keywords: Expression
    ) -> Expression:
        """Apply an operation, at once where every operand is stated."""
        made = Apply(operation, operands, tuple(keywords.items()))
        if any(_is_tolerance(operand) for operand in operands):
            raise NotATableError(node, "approx that is not compared at once")
        if self._takes_object(operation, operands):
            raise NotATableError(node, "an object of a class")
        if not all(type(operand) is Literal for operand in (*operands, *keywords.values())):
            return made
        try:
            value = evaluate(made, ())
        except Exception as error:
            raise NotATableError(node, f"{operation} on stated values: {describe(error)}") from error
        if isinstance(value, Sized) and len(value) > LARGEST:
            raise NotATableError(node, "a value larger than a table holds")
        return Literal(value)

    def _read_name(self, node: ast.Name) -> Expression:
        bound = self.lookup(node)
        if bound is None and node.id in TYPES:
            return Literal(TYPES[node.id])
        if isinstance(bound, Import) and bound.module == "math" and bound.name in CONSTANTS:
            return Literal(CONSTANTS[bound.name])
        if type(bound) is Literal and (after := self.given.get(id(bound.value))):
            self.saw_given = True
            if self.looks_after:
                call = self.calls[after.call]
                self.calls[after.call] = call._replace(in_place=True)
                return after
        return self.expression(node, bound)

    def _read_display(self, node: ast.List | ast.Tuple | ast.Set) -> Expression:
        if all(type(element) is ast.Constant and type(element.value) in _PLAIN for element in node.elts):
            self._nodes += len(node.elts)
            values = [element.value for element in node.elts if type(element) is ast.Constant]
            return self.apply(node, _DISPLAYS[type(node)], *map(Literal, values))
        return self.apply(node, _DISPLAYS[type(node)], *self._elements(node.elts))

    _read_list = _read_tuple = _read_set = _read_display

    def _elements(self, nodes: list[ast.expr]) -> list[Expression]:
        elements: list[Expression] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                elements.extend(Literal(value) for value in self.stated(node.value))
            else:
                elements.append(self.read(node))
        return elements

    def _read_dict(self, node: ast.Dict) -> Expression:
        if None in node.keys:
            raise NotATableError(node, "a dict made of another")
        pairs = zip(node.keys, node.values, strict=True)
        return self.apply(node, "a dict", *(self.read(part) for pair in pairs for part in pair if part))

    def _read_unaryop(self, node: ast.UnaryOp) -> Expression:
        return self.apply(node, _UNARY[type(node.op)], self.read(node.operand))

    def _read_binop(self, node: ast.BinOp) -> Expression:
        if type(node.op) not in _BINARY:
            raise NotATableError(node, "a matrix product")
        return self.apply(node, _BINARY[type(node.op)], self.read(node.left), self.read(node.right))

    def _read_boolop(self, node: ast.BoolOp) -> Expression:
        parts = tuple(self.read(value) for value in node.values)
        made = Both(parts) if isinstance(node.op, ast.And) else Either(parts)
        return made if leaves(made) else Literal(evaluate(made, ()))

    def _read_compare(self, node: ast.Compare) -> Expression:
        operands = [self.read(operand) for operand in (node.left, *node.comparators)]
        parts = []
        for at, operator in enumerate(node.ops):
            parts.append(self._compared(node, _COMPARISONS[type(operator)], *operands[at : at + 2]))
        if len(parts) == 1:
            return parts[0]
        made = Both(tuple(parts))
        return made if leaves(made) else Literal(evaluate(made, ()))

    def _compared(self, node: ast.Compare, name: str, left: Expression, right: Expression) -> Expression:
        if name in ("in", "not in"):
            self._not_iterated(node, right)
        if name in ("is", "is not"):
            singletons = (None, True, False, *TYPES.values())
            for side in (left, right):
                if type(side) is Literal and any(side.value is single for single in singletons):
                    break
            else:
                raise NotATableError(node, "identity of other values than None, True, False")
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Apply) and _is_tolerance(one):
                if name not in ("==", "!="):
                    raise NotATableError(node, "approx in an order")
                made = self.apply(node, "approx", other, *one.operands[1:], **dict(one.keywords))
                return made if name == "==" else self.apply(node, "not", made)
        return self.apply(node, name, left, right)

    def _read_subscript(self, node: ast.Subscript) -> Expression:
        value = self.read(node.value)
        if not isinstance(node.slice, ast.Slice):
            return self.apply(node, "[]", value, self.read(node.slice))
        bounds = (node.slice.lower, node.slice.upper, node.slice.step)
        return self.apply(node, "[:]", value, *(self.read(at) if at else Literal(None) for at in bounds))

    def _read_ifexp(self, node: ast.IfExp) -> Expression:
        return self.read(node.body if self.decided(node.test) else node.orelse)

    def _read_attribute(self, node: ast.Attribute) -> Expression:
        module = self.module(node.value)
        if module == "math" and node.attr in CONSTANTS:
            return Literal(CONSTANTS[node.attr])
        raise NotATableError(node, f"an attribute ({ast.unparse(node)[:40]})")

    def _read_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Expression:
        elements = [self.read(node.elt) for _ in self._turns(node.generators)]
        return self.apply(node, "a set" if isinstance(node, ast.SetComp) else "a list", *elements)

    _read_setcomp = _read_generatorexp = _read_listcomp

    def _read_dictcomp(self, node: ast.DictComp) -> Expression:
        turns = self._turns(node.generators)
        return self.apply(
            node, "a dict", *(self.read(part) for _ in turns for part in (node.key, node.value))
        )

    def _turns(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Bind the targets of a comprehension once for each element."""
        with self.scope(dict(self.scopes[-1])):
            yield from self._nested(generators)

    def _nested(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if not generators:
            yield
            return
        first, *others = generators
        for value in self.stated(first.iter):
            self.bind(first.target, Literal(value))
            if all(self.decided(condition) for condition in first.ifs):
                yield from self._nested(others)

    @contextmanager
    def scope(self, names: Names) -> Iterator[None]:
        """Read under other local names."""
        if len(self.scopes) > DEEPEST:
            raise NotATableError(None, "functions that call each other")
        self.scopes.append(names)
        try:
            yield
        finally:
            self.scopes.pop()

    def decided(self, node: ast.expr) -> bool:
        """Return the truth of a condition that does not depend on the candidate."""
        read = self.read(node)
        if type(read) is not Literal:
            raise NotATableError(node, "a condition on a result")
        return bool(read.value)

    def stated(self, node: ast.expr) -> list[Any]:
        """Return the elements of something that is stated."""
        read = self.read(node)
        if type(read) is not Literal:
            raise NotATableError(node, "iterates over a result")
        try:
            values = list(read.value)
        except TypeError as error:
            raise NotATableError(node, str(error)) from error
        return values

    def _takes_object(self, operation: str, operands: tuple[Expression, ...]) -> bool:
        """Whether an operation needs the object that a class of the candidate makes, and not its value."""
        made = [
            isinstance(operand, Result) and _CLASS_NAME.fullmatch(self.calls[operand.call].function)
            for operand in operands
        ]
        compared = operation in ("==", "!=", "is", "is not", "isinstance()", "returned")
        return any(made) and not (compared and any(type(operand) is Literal for operand in operands))

    # --- calls

    def module(self, node: ast.expr) -> str | None:
        """Return the name of the module that an expression is."""
        bound = self.lookup(node) if isinstance(node, ast.Name) else None
        return bound.name if isinstance(bound, Module) else None

    def callee(self, node: ast.expr) -> Bound | None:
        """Return what a call calls, if it is something with a name."""
        if isinstance(node, ast.Name):
            bound = self.lookup(node)
            return Import("builtins", node.id) if bound is None else bound
        if isinstance(node, ast.Attribute) and (module := self.module(node.value)):
            return Function(node.attr) if module == CANDIDATE else Import(module, node.attr)
        return None

    def _read_call(self, node: ast.Call) -> Expression:
        callee = self.callee(node.func)
        if isinstance(callee, Function):
            return self.call(node, callee.name)
        if isinstance(callee, Helper):
            return self.inlined(node, callee)
        if isinstance(callee, Import):
            return self._computed(node, callee)
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            receiver = self.read(node.func.value)
            arguments = self._elements(node.args)
            if name not in METHODS or node.keywords:
                raise NotATableError(node, f"a method ({ast.unparse(node)[:40]})")
            if name in ITERATES_ARGUMENTS:
                self._not_iterated(node, *arguments)
            return self.apply(node, f".{name}()", receiver, *arguments)
        raise NotATableError(node, f"a call ({ast.unparse(node)[:40]})")

    def inlined(self, node: ast.Call, helper: Helper) -> Expression:
        """Read the call of a function that the tests define: statements are another class's business."""
        raise NotATableError(node, f"a call of {helper.node.name}")

    def call(self, node: ast.Call, function: str) -> Result:
        """Put a call of the candidate's function into the table."""
        arguments = self._elements(node.args)
        keywords = {key.arg: self.read(key.value) for key in node.keywords if key.arg}
        if len(keywords) != len(node.keywords):
            raise NotATableError(node, "keywords from a dict")
        values = [self._value(node, read) for read in (*arguments, *keywords.values())]
        if len(self.calls) >= MOST_CALLS:
            raise NotATableError(node, f"more than {MOST_CALLS} calls")
        index = len(self.calls)
        named = dict(zip(keywords, values[len(arguments) :], strict=True))
        self.calls.append(Call(function, tuple(values[: len(arguments)]), named))
        self.called_at.append(node)
        self.names.add(function)
        plain = len(arguments) == len(node.args)  # and not starred: positions are the same
        for position, argument in enumerate(node.args if plain else ()):
            value = values[position]
            if isinstance(argument, ast.Name) and type(value) in _MUTABLE:
                self.given[id(value)] = After(index, position)
        return Result(index)

    def _value(self, node: ast.AST, read: Expression) -> Any:  # noqa: ANN401
        if type(read) is not Literal:
            raise NotATableError(node, "a result given to another call")
        why, size = sendable([read.value])
        self._sent += size
        if why or self._sent > LARGEST_SENT:
            raise NotATableError(node, why or "arguments that are too large to be sent")
        return read.value

    def _computed(self, node: ast.Call, callee: Import) -> Expression:
        """Read the call of a function that only computes."""
        arguments = self._elements(node.args)
        keywords = {key.arg: self.read(key.value) for key in node.keywords if key.arg}
        if len(keywords) != len(node.keywords):
            raise NotATableError(node, "keywords from a dict")
        module, name = callee
        if module == "builtins" and name in FUNCTIONS:
            if name in ITERATES and (len(arguments) == 1 or name not in ("max", "min")):
                self._not_iterated(node, *arguments)
            if "key" in keywords:
                raise NotATableError(node, f"a key of {name}")
            return self.apply(node, f"{name}()", *arguments, **keywords)
        if module == "math" and name in MATHS:
            return self.apply(node, f"math.{name}()", *arguments, **keywords)
        if module == "pytest" and name == "approx" and keywords.keys() <= {"rel", "abs"} and arguments:
            if type(arguments[0]) is not Literal:
                raise NotATableError(node, "approx of a result")
            tolerances = {f"{key}_" if key == "abs" else key: value for key, value in keywords.items()}
            return Apply("approx", (Literal(None), *arguments), tuple(tolerances.items()))
        if module == "copy" and name in ("copy", "deepcopy") and len(arguments) == 1:
            return self._copied(node, arguments[0])
        raise NotATableError(node, f"{name} of {module}")

    def _copied(self, node: ast.Call, read: Expression) -> Expression:
        if type(read) is Literal:
            kind = type(read.value)
            return Literal(kind(read.value)) if kind in _MUTABLE else read
        raise NotATableError(node, "a copy of a result")

    def _not_iterated(self, node: ast.AST, *operands: Expression) -> None:
        if any(map(_may_be_iterator, operands)):
            raise NotATableError(node, "iterates over a result, which may be an iterator")
