r"""One expression of LaTeX or plain text, read into a tree. Nothing that was written is evaluated as code.

`read` takes what school and contest answers consist of: numbers (`0.\overline{3}`, `2\frac{1}{2}`),
letters with subscripts and primes, `+ - * / ^ ! |x|`, roots, fractions, binomials, elementary functions,
floors, percent, degrees, `\pi`, `e`, `i`, `\infty`; in the spelling of `latex.normal`. Anything else is
`UnreadError`. Where notation is ambiguous:

| written | read as |
|---|---|
| `1/2x`, `3/4\pi` | a fraction of two integers binds first: half of x |
| `x/2y` | x over 2y: what stands side by side binds before `/` |
| `6e23`, `1.5e-3`, `2e-1` | powers of ten; but the last is twice the number e, less one |
| `x^10`, `2^-1` | the whole number after `^` is the exponent; `2^3^4` is not read |
| `\sin 2x \cos x` | an argument without brackets ends at the next function, `+`, `-`, `*` or `/` |
| `f(x)`, `g(2)` | a value with that name; any other letter before a bracket is a factor |
| `3\frac{1}{2}`, `3 1/2` | a mixed number; before a fraction that is no proper one, not read |
| `\log x`, `12_8`, `1 2` | base ten; the last two are not read |

A tree is a tuple: its kind, then its parts. It is no deeper than a few times `NESTING`, however it was
written, so that `values` may recurse over it. `steelyard.rewards.values` says what it is worth.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

NESTING: Final = 40
"""Brackets and functions within one another."""

Tree: TypeAlias = tuple[Any, ...]

TRIGONOMETRIC: Final = ("sin", "cos", "tan", "cot", "sec", "csc")
_TOKEN = re.compile(
    r"(?P<number>\d*\.\d+[eE][-+]?\d{1,3}(?!\d)|\d+[eE]\d{1,3}(?!\d)|\d+\.\d*|\.?\d+)"
    r"(?:\\(?:overline|bar|dot)\{?(?P<repeats>\d+)\}?)?"
    r"|(?P<command>\\[A-Za-z]+|\\%)|(?P<letter>[A-Za-z])|(?P<mark>\*\*|[-+*/^_!|(){}\[\]'%])|(?P<space>\s+)",
    re.ASCII,
)
_ACCENTS = frozenset({r"\vec", r"\hat", r"\bar", r"\tilde", r"\overline", r"\overrightarrow", r"\mathbb"})
_GREEK = frozenset(
    {
        r"\alpha", r"\beta", r"\gamma", r"\delta", r"\epsilon", r"\varepsilon", r"\zeta", r"\eta",
        r"\theta", r"\kappa", r"\lambda", r"\mu", r"\nu", r"\xi", r"\rho", r"\sigma", r"\tau", r"\phi",
        r"\varphi", r"\chi", r"\psi", r"\omega", r"\Gamma", r"\Delta", r"\Theta", r"\Lambda", r"\Phi",
        r"\Psi", r"\Sigma", r"\Omega", r"\ell",
    }
)  # fmt: skip
_FUNCTIONS = {
    **{f"\\{name}": name for name in (*TRIGONOMETRIC, "sinh", "cosh", "tanh", "ln", "exp", "log")},
    **{f"\\arc{name}": f"a{name}" for name in TRIGONOMETRIC},
}
_NAMED_VALUES = frozenset("fghFGH")  # before a bracket these are functions without a definition
_ENDS = {"(": ")", "{": "}", "[": "]", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_MINUS_ONE = ("-", ("number", Fraction(1)))


class UnreadError(Exception):
    """The text is no expression that is read here."""


class TooLargeError(Exception):
    """The expression, or its value, would cost more than judging an answer may."""


class Token(tuple[str, str, str]):
    """A token: its kind, what it says, and of a decimal the digits that repeat."""

    __slots__ = ()


def read(text: str) -> tuple[Tree, frozenset[str]]:
    r"""Return an expression's tree and the names of its letters.

    Raises
    ------
    UnreadError
        If it is none that is read here.
    TooLargeError
        If it is nested too deep.

    Examples
    --------
    >>> read(r"2\frac{1}{2}")
    (('number', Fraction(5, 2)), frozenset())
    >>> read("-x/2")[0]
    ('-', ('*', ('symbol', 'x'), ('inverse', ('number', Fraction(2, 1)))))
    """
    reader = _Reader(text)
    return reader.whole(), frozenset(reader.letters)


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise UnreadError(f"{text[at : at + 10]!r} is not read")
        at = token.end()
        kind = token.lastgroup if token.lastgroup != "repeats" else "number"
        said = {"**": "^", r"\%": "%"}.get(token[0], token["number"] or token[0])
        found.append(Token(("mark" if said == "%" else kind or "", said, token["repeats"] or "")))
    found.append(Token(("end", "", "")))
    return found


class _Reader:
    """Recursive descent over the tokens, loosest operator first."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.in_bars = False
        self.letters: set[str] = set()

    def peek(self) -> Token:
        """Return the next token that is no space."""
        self.at += self.tokens[self.at][0] == "space"
        return self.tokens[self.at]

    def take(self) -> str:
        """Go over the next token, and return what it says."""
        kind, said, _ = self.peek()
        self.at += kind != "end"
        return said

    def meets(self, *said: str) -> bool:
        """Whether the next token is one of these marks or commands."""
        token = self.peek()
        return token[1] in said and token[0] in {"mark", "command"}

    def expect(self, said: str) -> None:
        if self.take() != said:
            raise UnreadError(f"{said} is missing")

    def negative(self) -> bool:
        """Go over signs, and say whether they make a minus."""
        minus = False
        while self.meets("+", "-"):
            minus ^= self.take() == "-"
        return minus

    def nested(self, read_inner: Callable[[], Tree]) -> Tree:
        self.depth += 1
        if self.depth > NESTING:
            raise TooLargeError(f"nested more than {NESTING} deep")
        tree = read_inner()
        self.depth -= 1
        return tree

    def whole(self) -> Tree:
        tree = self.sum()
        if self.peek()[0] != "end":
            raise UnreadError(f"{self.peek()[1]!r} is left over")
        return tree

    def sum(self) -> Tree:
        terms = [self.product()]
        while self.meets("+", "-"):
            terms.append(self.product())
        return ("+", *terms) if len(terms) > 1 else terms[0]

    def product(self) -> Tree:
        minus = self.negative()
        factors = [self.beside()]
        while self.meets("*", "/"):
            divides = self.take() == "/"
            minus ^= self.negative()
            factor = self.beside()
            factors.append(("inverse", factor) if divides else factor)
        tree = ("*", *factors) if len(factors) > 1 else factors[0]
        return ("-", tree) if minus else tree

    def beside(self) -> Tree:
        """What stands side by side is multiplied; a whole number before a proper fraction is added."""
        kind, start = self.peek()[0], self.at
        factors = [self.power()]
        alone = kind == "number" and all(token[0] == "space" for token in self.tokens[start + 1 : self.at])
        while self.starts():
            kind, said, _ = self.peek()
            spaced = self.tokens[self.at - 1][0] == "space"
            factor = self.power()
            mixed = alone and ((kind == "number" and spaced and factor[0] == "ratio") or said == r"\frac")
            if mixed and (part := _plain(factor)) is not None:
                factors[-1] = _mixed(factors[-1], part)
            elif kind == "number" and _plain(factors[-1]) is not None:
                raise UnreadError("two numbers side by side")
            else:
                factors.append(factor)
            alone = False
        if self.meets("%"):
            self.take()
            factors.append(("number", Fraction(1, 100)))
        return ("*", *factors) if len(factors) > 1 else factors[0]

    def starts(self) -> bool:
        """Whether another factor follows."""
        kind, said, _ = self.peek()
        if kind == "mark":
            return said in "({[" or (said == "|" and not self.in_bars)
        return kind in {"number", "letter"} or (kind == "command" and said not in {r"\rfloor", r"\rceil"})

    def power(self) -> Tree:
        tree = self.marked(self.primary())
        if not self.meets("^"):
            return tree
        self.take()
        if self.meets(r"\circ"):
            self.take()
            return ("degrees", tree)
        tree = self.marked(("^", tree, self.exponent()))
        if self.meets("^"):
            raise UnreadError("a power of a power without brackets")
        return tree

    def marked(self, tree: Tree) -> Tree:
        if not self.meets("!"):
            return tree
        self.take()
        if self.meets("!"):
            raise UnreadError("two marks after a value")
        return ("!", tree)

    def exponent(self) -> Tree:
        minus = self.negative()
        tree = self.group("{") if self.meets("{") else self.primary(ratio=False)
        return ("-", tree) if minus else tree

    def group(self, opening: str) -> Tree:
        """Read a bracket and what it holds."""
        self.expect(opening)
        outside, self.in_bars = self.in_bars, opening == "|"
        tree = self.nested(self.sum)
        self.in_bars = outside
        self.expect(_ENDS[opening])
        return tree

    def primary(self, *, ratio: bool = True) -> Tree:
        kind, said, _ = self.peek()
        if kind == "number":
            return self.number(ratio=ratio)
        if kind == "letter":
            self.take()
            return self.letter(said)
        if said in {"(", "{", "[", "|"}:
            return ("abs", self.group(said)) if said == "|" else self.group(said)
        if kind == "command":
            return self.nested(self.command)
        raise UnreadError(f"{said or 'the end'!r} stands where a value is due")

    def number(self, *, ratio: bool) -> Tree:
        divides = self.at > 0 and self.tokens[self.at - 1][1] == "/"  # x/1/2 is no x over a half
        value = _decimal(self.peek())
        self.take()
        if self.tokens[self.at][1] == "_":
            raise UnreadError("a number with a base")
        slash, under, after = (*self.tokens[self.at : self.at + 3], Token(("", "", "")), Token(("", "", "")))[
            :3
        ]
        if (
            ratio
            and not divides
            and slash[1] == "/"
            and under[1].isdigit()
            and after[1] not in {"^", "!", "_"}
        ):
            self.at += 2
            below = Fraction(int(under[1]))
            if value.denominator == 1 and below:
                return ("ratio", value / below)
            return ("*", ("number", value), ("inverse", ("number", below)))
        return ("number", value)

    def letter(self, name: str) -> Tree:
        name += self.suffix()
        if name in {"e", "i"}:
            return (name,)
        if name[0] in _NAMED_VALUES and self.tokens[self.at][1] == "(":
            name += self.spelled(lambda: self.group("("))
        return self.symbol(name)

    def symbol(self, name: str) -> Tree:
        self.letters.add(name)
        return ("symbol", name)

    def spelled(self, go: Callable[[], object]) -> str:
        """Go on, and return what was gone over as it is spelled."""
        start = self.at
        go()
        return "".join(token[1] for token in self.tokens[start : self.at] if token[0] != "space")

    def suffix(self) -> str:
        """Go over primes and a subscript, which belong to a name."""
        name = ""
        while self.tokens[self.at][1] == "'":
            name += self.take()
        if self.tokens[self.at][1] != "_":
            return name
        self.take()
        if not self.meets("{"):
            return f"{name}_{self.take()}"
        self.take()
        subscript = self.spelled(self.to_brace)
        self.expect("}")
        return f"{name}_{subscript}"

    def to_brace(self) -> None:
        while not self.meets("}", "{") and self.peek()[0] != "end":
            self.take()

    def command(self) -> Tree:
        name = self.take()
        if name in _FUNCTIONS:
            return self.function(_FUNCTIONS[name])
        if name in _GREEK:
            return self.symbol(name + self.suffix())
        if name in _ACCENTS and self.meets("{"):
            return self.symbol(name + self.spelled(lambda: self.group("{")) + self.suffix())
        return self.construct(name)

    def construct(self, name: str) -> Tree:
        """Read what a command that is no name and no function makes of its arguments."""
        if name in {r"\pi", r"\infty"}:
            return (name[1:],)
        if name in {r"\frac", r"\binom"}:
            above, below = self.argument(), self.argument()
            return ("binomial", above, below) if name == r"\binom" else ("fraction", above, below)
        if name == r"\sqrt":
            order = self.group("[") if self.meets("[") else ("number", Fraction(2))
            return ("root", order, self.group("(") if self.meets("(") else self.argument())
        if name in {r"\lfloor", r"\lceil"}:
            tree = self.sum()
            self.expect(_ENDS[name])
            return (name[2:], tree)
        raise UnreadError(f"{name} is not read")

    def argument(self) -> Tree:
        """Read what LaTeX takes as an argument: a group, one digit, a letter, a command."""
        kind, said, _ = self.peek()
        if kind == "number" and said.isdigit() and len(said) > 1:
            self.tokens[self.at] = Token(("number", said[1:], ""))
            return ("number", Fraction(int(said[0])))
        return self.group("{") if self.meets("{") else self.primary(ratio=False)

    def function(self, name: str) -> Tree:
        base: tuple[Tree, ...] = ()
        if name == "log" and self.meets("_"):
            self.take()
            base = (self.argument(),)
        power: Tree | None = None
        if self.meets("^"):
            self.take()
            power = self.exponent()
        if power == _MINUS_ONE and name in TRIGONOMETRIC:
            name, power = f"a{name}", None
        bracket = next((opening for opening in "({" if self.meets(opening)), None)
        tree = (name, self.group(bracket) if bracket else self.bare(), *base)
        return ("^", tree, power) if power else tree

    def bare(self) -> Tree:
        """Read an argument without brackets: what stands side by side, up to the next function."""
        minus = self.negative()
        factors = [self.power()]
        while self.starts() and self.peek()[1] not in _FUNCTIONS:
            factors.append(self.power())
        tree = ("*", *factors) if len(factors) > 1 else factors[0]
        return ("-", tree) if minus else tree


def _decimal(token: Token) -> Fraction:
    _, written, repeats = token
    written, _, exponent = written.lower().partition("e")
    whole, _, part = written.partition(".")
    value = Fraction(int(whole + part or "0"), 10 ** len(part)) * Fraction(10) ** int(exponent or 0)
    if repeats:
        if "." not in written:
            raise UnreadError("digits repeat only after the point")
        value += Fraction(int(repeats), (10 ** len(repeats) - 1) * 10 ** len(part))
    return value


def _plain(tree: Tree) -> Fraction | None:
    """Return the value of a number, or of a fraction of two numbers, as it is written."""
    if tree[0] in {"number", "ratio"}:
        value: Fraction = tree[1]
        return value
    if tree[0] == "fraction" and tree[1][0] == tree[2][0] == "number" and tree[2][1]:
        return Fraction(tree[1][1] / tree[2][1])
    return None


def _mixed(whole: Tree, part: Fraction) -> Tree:
    if whole[0] != "number" or whole[1].denominator != 1 or not 0 < part < 1:
        raise UnreadError("a number beside a fraction that is no proper one")
    return ("number", whole[1] + part)
