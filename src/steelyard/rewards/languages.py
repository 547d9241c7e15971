"""Languages other than Python: recipes of commands that compile and run a program on standard input.

A recipe names programs that the boundary shows (`/usr` is in it), so a language is there wherever its
toolchain is; a recipe of one's own is as good as these. What no recipe can say by itself is whether its
toolchain works where candidates run: its program `hello` is compiled and run there before any candidate is
(`toolchains.py`), so that a missing compiler is never a candidate's fault.

In a command `{memory_mib}` is the memory limit in MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

from steelyard.errors import RefusedError
from steelyard.execution import MIB, Limits
from steelyard.rewards.suites import Fault

COMPILING: Final = Limits(cpu_s=10.0, idle_s=5.0, wall_s=60.0, memory_bytes=1_024 * MIB)
"""What a compilation may use: a slow machine reads all of C++'s standard headers in three CPU seconds."""

HELLO: Final = "hello\n"
"""What every `hello` writes."""

PYTHON: Final = ("python", "python3", "py", "py3", "pypy3", "pypy364")
"""Words for what needs no recipe (folded as `Language` says): Python 3, whatever was to run it."""


@dataclass(frozen=True)
class Language:
    """A recipe of commands.

    Parameters
    ----------
    name
        Its word in a row's column `language` and in settings.
    file
        The name of the source, in the folder in which all commands run.
    run
        The command that runs the program.
    hello
        A program that writes `hello` and a line's end.
    compile
        The command that compiles it; none for a language that is run as it is.
    makes
        A pattern of the names of what is compiled, as in `*.class`; carried to every run.
    aliases
        Other words for it. Case, blanks, `-`, `_`, `.`, the word `GNU` and what is in brackets do not count.
    fences
        Words that mark a block of it in a completion, beside its name and aliases.
    environment
        Names and values of variables that its commands see.
    limits
        What a compilation may use.
    """

    name: str
    file: str
    run: tuple[str, ...]
    hello: str
    compile: tuple[str, ...] = ()
    makes: str = "main"
    aliases: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    limits: Limits = COMPILING

    @cached_property
    def marks(self) -> re.Pattern[str]:
        """Matches what follows the fence of a block of it."""
        words = sorted({self.name, *self.aliases, *self.fences, "code", "solution"}, key=len, reverse=True)
        return re.compile(
            rf"[{{.]*(?:{'|'.join(map(re.escape, words))})(?![\w+#-])", re.ASCII | re.IGNORECASE
        )


def _cpp(name: str, standard: str, *aliases: str) -> Language:
    return Language(
        name,
        "main.cpp",
        ("./main",),
        '#include <cstdio>\nint main() { std::puts("hello"); }\n',
        ("g++", f"-std=gnu++{standard}", "-O2", "-pipe", "-w", "-DONLINE_JUDGE", "-o", "main", "main.cpp"),
        aliases=aliases,
        fences=("cpp", "c++", "cxx", "cc", *(f"{word}{year}" for word in ("cpp", "c++") for year in _YEARS)),
    )


def _c(name: str, standard: str, *aliases: str) -> Language:
    return Language(
        name,
        "main.c",
        ("./main",),
        '#include <stdio.h>\nint main(void) { puts("hello"); }\n',
        ("gcc", f"-std=gnu{standard}", "-O2", "-pipe", "-w", "-DONLINE_JUDGE", "-o", "main", "main.c", "-lm"),
        aliases=aliases,
        fences=("c", *(f"c{year}" for year in _C_YEARS)),
    )


def _rust(name: str, edition: str, *aliases: str) -> Language:
    return Language(
        name,
        "main.rs",
        ("./main",),
        'fn main() { println!("hello"); }\n',
        (
            "rustc",
            f"--edition={edition}",
            "-O",
            "-Cstrip=symbols",
            "-Awarnings",
            _BFD,
            "-o",
            "main",
            "main.rs",
        ),
        aliases=aliases,
        fences=("rust", "rs"),
    )


def _java(name: str, release: tuple[str, ...] = ()) -> Language:
    """Of another release than the installed one: its language and library; it is run by what there is."""
    return Language(
        name,
        "Main.java",
        ("java", *_JVM, "-Xss64m", "-Xmx{memory_mib}m", "-cp", ".", "Main"),
        'class Main { public static void main(String[] given) { System.out.print("hello\\n"); } }\n',
        ("javac", *(f"-J{word}" for word in _JVM), *release, "-proc:none", "-nowarn", "-d", ".", "Main.java"),
        makes="*.class",
        fences=("java", *(f"java{number}" for number in _RELEASES)),
    )


_YEARS: Final = ("11", "14", "17", "20", "23")
_C_YEARS: Final = ("99", "11", "17")
_EDITIONS: Final = ("2015", "2018", "2024")  # and 2021, which is what `rust` means
_RELEASES: Final = ("8", "11", "17", "21")
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_BFD: Final = "-Clink-arg=-fuse-ld=bfd"  # rustc's own linker looks for itself in /proc

LANGUAGES: Final = (
    _cpp("cpp", "17", "c++", "cxx", "cc", "g++"),
    *(_cpp(f"cpp{year}", year, f"c++{year}", f"g++{year}") for year in _YEARS),
    _c("c", "17", "gcc"),
    *(_c(f"c{year}", year) for year in _C_YEARS),
    _rust("rust", "2021", "rs", "rust2021"),
    *(_rust(f"rust{edition}", edition) for edition in _EDITIONS),
    _java("java"),
    *(_java(f"java{number}", ("--release", number)) for number in _RELEASES),
    Language(
        "javascript",
        "main.js",
        ("node", "--stack-size=50000", "main.js"),
        'console.log("hello")\n',
        aliases=("js", "node", "nodejs"),
    ),
)
"""The recipes that there are."""


def folded(word: str) -> str:
    """A word for a language, without what does not count.

    Examples
    --------
    >>> folded("GNU C++17 (64)"), folded("Node.js"), folded("Rust 2021")
    ('c++17', 'nodejs', 'rust2021')
    """
    return re.sub(r"\([^()]*\)|\bgnu\b|[\s._-]", "", word.lower())


def words_of(languages: Iterable[Language]) -> Mapping[str, Language]:
    """Every word for languages, folded; of two that claim a word the first has it."""
    found: dict[str, Language] = {}
    for language in languages:
        for word in (language.name, *language.aliases):
            found.setdefault(folded(word), language)
    return found


def spoken(word: object, own: Iterable[Language], default: Language | None = None) -> Language | Fault | None:
    """Find the language of a word, of one's own recipes first; `None` is Python, as it needs no recipe.

    Examples
    --------
    >>> spoken("GNU C++20 (64)", []).compile[:2], spoken("Python 3", []), spoken(None, [])
    (('g++', '-std=gnu++20'), None, None)
    """
    if word is None:
        return default
    if not isinstance(word, str):
        return Fault(f"language is {word!r}: write a name as text")
    known, meant = words_of((*own, *LANGUAGES)), folded(word)
    if meant in known:
        return known[meant]
    if meant in PYTHON:
        return None
    names = ", ".join(dict.fromkeys(language.name for language in known.values()))
    return Fault(f"language {word!r} has no recipe: python, {names}, or one of your own (docs/languages.md)")


def recipes_of(default: Language | None, own: tuple[Language, ...]) -> str:
    """Tell recipes from others, in a reward's identity; nothing where there is only Python and ours."""
    if default is None and not own:
        return ""
    digest = blake2b(repr((default, own)).encode(), digest_size=6).hexdigest()
    return f":{default.name if default is not None else 'python'}:{digest}"


def own_languages(tables: Mapping[str, Any], where: str) -> tuple[Language, ...]:
    r"""Make languages of tables, as a recipe's file holds them, by name; a `Language` stands for itself.

    Raises
    ------
    RefusedError
        If one is no recipe.

    Examples
    --------
    >>> perl = {"file": "main.pl", "run": ["perl", "main.pl"], "hello": 'print "hello\n"'}
    >>> own_languages({"perl": perl}, "reward tests")[0].run
    ('perl', 'main.pl')
    """
    if not isinstance(tables, Mapping):
        raise RefusedError(
            f"languages is {type(tables).__name__}",
            where=where,
            remedy="write a table of recipes by name, as in docs/languages.md",
        )
    return tuple(
        said if isinstance(said, Language) else _own(name, said, f"{where}: language {name}")
        for name, said in tables.items()
    )


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "file": (str,),
    "hello": (str,),
    "makes": (str,),
} | dict.fromkeys(("run", "compile", "aliases", "fences"), (list, tuple))
_NEEDED: Final = ("file", "run", "hello")


def _own(name: str, said: object, where: str) -> Language:
    remedy = f'write {", ".join(_NEEDED)}, and compile = ["...", ...] where it is compiled'
    if not isinstance(said, Mapping):
        raise RefusedError(f"it is {said!r}, no table", where=where, remedy=remedy)
    given = dict(said)
    environment, limits = given.pop("environment", {}), given.pop("limits", {})
    for word, value in given.items():
        kinds = _KINDS.get(word)
        if kinds is None:
            known = ", ".join((*_KINDS, "environment", "limits"))
            raise RefusedError(f"{word!r} means nothing here", where=where, remedy=f"one of {known}")
        texts = [value] if isinstance(value, str) else value
        if not isinstance(value, kinds) or not texts or not all(isinstance(text, str) for text in texts):
            wanted = "text" if str in kinds else 'a list of words, as in ["zig", "build-exe", "main.zig"]'
            raise RefusedError(f"{word} = {value!r}", where=where, remedy=f"write {wanted}")
    if lacking := [word for word in _NEEDED if word not in given]:
        raise RefusedError(f"it lacks {', '.join(lacking)}", where=where, remedy=remedy)
    if "/" in given["file"]:
        raise RefusedError(
            f"file = {given['file']!r} is no plain name", where=where, remedy="drop the folder"
        )
    if not isinstance(environment, Mapping) or not all(isinstance(v, str) for v in environment.values()):
        raise RefusedError(f"environment = {environment!r}", where=where, remedy='write { NAME = "value" }')
    plain: dict[str, Any] = {
        word: value if isinstance(value, str) else tuple(value) for word, value in given.items()
    }
    return Language(name, **plain, environment=tuple(environment.items()), limits=_limits(limits, where))


def _limits(said: object, where: str) -> Limits:
    known = {one.name for one in fields(Limits)}
    if not isinstance(said, Mapping) or not said.keys() <= known:
        raise RefusedError(f"limits = {said!r}", where=where, remedy=f"a table of {', '.join(sorted(known))}")
    if wrong := [word for word, value in said.items() if not isinstance(value, int | float) or value <= 0]:
        raise RefusedError(f"limits.{wrong[0]} = {said[wrong[0]]!r}", where=where, remedy="a number above 0")
    return Limits(**{name: said.get(name, getattr(COMPILING, name)) for name in known})
