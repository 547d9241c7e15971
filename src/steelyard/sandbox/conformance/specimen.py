"""What a specimen program is: its source, the suite that it is judged by, its kind, and what must come of it.

`comes` is the set of acceptable ends: the word `pass`, or codes of `docs/verdicts.md`. Programs that do
harm in passing and are right all the same may pass: they raise if the harm succeeded, so that `pass` is
the evidence that they were contained, and `exception` is not among their ends.

Nearly all of them have the same task, so that any of them can stand in a group with any other, and each
can be judged by each suite of that task (`under`).

The programs stand in text files. There `@@ SUITE: ends | KIND` opens a section, `== NAME` a program, and
`-- ENTRY_POINT` its own tests (`tests` where there is no entry point).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_PROGRAMS: Final = Path(__file__).resolve().parent / "programs"

PASS: Final = "pass"  # noqa: S105 - no password
MARK: Final = "steelyard-specimen"
"""In the name of every process, file, socket and segment that a specimen tries to leave behind."""

SECRET: Final = "STEELYARD_SPECIMEN_SECRET"  # noqa: S105 - a name
"""A variable that is set in the host's environment, and that no program may see."""

BAIT: Final = 'HOST_FILE, HOST_PORT, HOST_WORD = "/nowhere", 22, "no such word"'
"""Where a specimen looks for the host's file, socket and process, until somebody lays them out."""

KINDS: Final[Mapping[str, str]] = {
    "honest": "right programs, however they go about it",
    "separation": "sees the host's environment, files or processes",
    "files": "reads, writes or opens what is not its own",
    "network": "reaches a network, a name, a socket of the host",
    "rights": "mounts, namespaces, root, limits, the clock, the kernel",
    "others": "kills, stops, traces or reads other processes",
    "leaving": "leaves processes, files or segments behind",
    "cpu": "uses up CPU time, itself or by children",
    "idle": "waits for what never comes",
    "memory": "uses up memory, with or without a name",
    "forking": "fork bombs and masses of threads",
    "disk": "uses up files, folders or descriptors",
    "output": "prints without end",
    "values": "hands back what breaks its reader",
    "dying": "exits, crashes, becomes another program",
    "channel": "writes to, reads or shuts what it inherited",
    "pleasing": "hands back what equals everything",
    "patching": "patches Python, or whoever calls it",
    "planting": "plants files that a harness would load",
    "reading": "reads the tests or the expected values",
    "forging": "forges replies and verdicts",
    "raising": "raises or skips in place of an answer",
    "leaving early": "ends with success before its tests do",
    "arguments": "changes its arguments to fit",
    "state": "counts its calls, or finds its own earlier runs",
    "sabotage": "makes the programs beside it or after it fail",
}
"""The kinds of programs, in the order of the table, with what they do."""

LIMITS: Final = frozenset(
    {"cpu", "idle", "wall_reproduced", "memory", "processes", "threads", "files", "output"}
)
DIES: Final = frozenset({"signal", "exit", "no_verdict", "reproduced"})
FAILS: Final = DIES | {
    "wrong_answer",
    "no_answer",
    "exception",
    "load_error",
    "protocol",
    "output",
    "cpu",
    "idle",
}
_WORDS: Final = {
    "dies": DIES,
    "fails": FAILS,
    "whatever": LIMITS | FAILS | {PASS},
    "whatever-but-pass": LIMITS | FAILS,
}


class Asked(NamedTuple):
    """One call of a table: what is called, with what, and what must come back."""

    function: str
    arguments: tuple[object, ...]
    wanted: object


class Suite(NamedTuple):
    """Tests as they stand in a row, with the prompt that they belong to.

    Parameters
    ----------
    prompt, tests, entry_point
        The columns. Tests are Python, or pairs of input and output.
    calls
        The same tests as a table of calls, where they are one.
    in_place
        Whether a judge lets them see what a call did to its arguments.
    """

    prompt: str
    tests: Any
    entry_point: str | None = None
    calls: tuple[Asked, ...] = ()
    in_place: bool = False


TASK: Final = "Write squares(xs), which returns the squares of a list of whole numbers."
SNIPPET: Final = Suite(
    TASK,
    """
from candidate import squares

def test_some():
    assert squares([1, 2, 3]) == [1, 4, 9]
    assert squares([-2, 0, 10]) == [4, 0, 100]

def test_none():
    assert squares([]) == []

def test_large():
    assert squares([12345678901]) == [152415787526596567801]
""",
    calls=tuple(
        Asked("squares", (xs,), [x * x for x in xs]) for xs in ([1, 2, 3], [-2, 0, 10], [], [12345678901])
    ),
)
ASSERTS: Final = Suite(
    TASK,
    """
assert squares([1, 2, 3]) == [1, 4, 9]
assert squares([-2, 0, 10]) == [4, 0, 100]
assert squares([]) == []
""",
)
CHECK: Final = Suite(
    TASK,
    """
def check(candidate):
    assert candidate([1, 2, 3]) == [1, 4, 9]
    assert candidate([]) == []
    for n in range(5):
        assert candidate([n, -n]) == [n * n, n * n]
""",
    "squares",
)
FREE: Final = Suite(
    TASK,
    """
from candidate import squares

def test_all():
    xs = [1, 2, 3]
    assert squares(xs) == [v * v for v in xs]
    assert len(squares(xs)) == 3
    assert sum(squares(list(range(4)))) == 14
    for x, y in zip([5, 6], squares([5, 6]), strict=True):
        assert x * x == y
""",
)
ARGUMENTS: Final = Suite(
    TASK,
    """
from candidate import squares

def test_all():
    for xs in ([1, 2, 3], [7], [4, -5]):
        assert squares(xs) == [v * v for v in xs]
    shared = [2, 3]
    first, second = squares(shared), squares(shared)
    assert first == second == [4, 9]
""",
)
COUNTS: Final = Suite(
    "Write toss(), which returns 3.",
    "assert toss() == 3\nassert toss() == 3\n",
    calls=(Asked("toss", (), 3), Asked("toss", (), 3)),
)
STDIN: Final = Suite(
    "Read whole numbers from standard input and print their squares on one line.",
    [
        {"input": "1 2 3\n", "output": "1 4 9\n"},
        {"input": "-2 0\n10\n", "output": "4 0 100\n"},
        {"input": "7\n", "output": "49\n"},
    ],
)
SUITES: Final = {
    "snippet": SNIPPET,
    "asserts": ASSERTS,
    "check": CHECK,
    "free": FREE,
    "arguments": ARGUMENTS,
    "counts": COUNTS,
    "stdin": STDIN,
}


class Specimen(NamedTuple):
    """One program.

    Parameters
    ----------
    name
        What it does.
    completion
        Its source.
    comes
        The ends that are right.
    suite
        What it is judged by.
    kind
        One of `KINDS`.
    after
        What runs just before it, in the same place: it must not find what that one left.
    """

    name: str
    completion: str
    comes: frozenset[str]
    suite: Suite = SNIPPET
    kind: str = "honest"
    after: Specimen | None = None

    def row(self, group: str, **more: object) -> dict[str, object]:
        """The row of a file that `steelyard score` reads."""
        row: dict[str, object] = {
            "id": self.name,
            "group": group,
            "prompt": self.suite.prompt,
            "completion": self.completion,
            "tests": self.suite.tests,
        }
        return row | ({"entry_point": self.suite.entry_point} if self.suite.entry_point else {}) | more


def under(specimens: Iterable[Specimen], suite: str) -> list[Specimen]:
    """The same programs by another suite of the same task."""
    return [
        one._replace(name=f"{one.name}, by {suite}", suite=SUITES[suite])
        for one in specimens
        if one.suite is SNIPPET
    ]


def made(
    programs: Mapping[str, str], comes: frozenset[str], kind: str, *, suite: Suite = SNIPPET
) -> list[Specimen]:
    """Specimens of one kind, from their sources by name."""
    return [Specimen(name, source, comes, suite, kind) for name, source in programs.items()]


def read(file: str, *, before: str = "", indent: str = "", after: str = "") -> list[Specimen]:
    """Specimens of a text file; `before` and `after` go around each, `indent` before each of its lines."""
    specimens: list[Specimen] = []
    sections = (_PROGRAMS / file).read_text(encoding="utf-8").split("\n@@ ")
    for section in sections[1:]:
        head, *programs = section.split("\n== ")
        suite, ends, kind = (word.strip() for word in head.replace("|", ":").split(":"))
        comes = _ends(ends.split())
        for program in programs:
            name, _, source = program.partition("\n")
            source, own, tests = source.partition("\n-- ")
            lines = "".join(f"{indent}{line}\n" if line else "\n" for line in source.strip("\n").splitlines())
            found = _own(name, tests) if own else SUITES[suite]
            specimens.append(Specimen(name, before + lines + after, comes, found, kind))
    return specimens


def _ends(words: Sequence[str]) -> frozenset[str]:
    return frozenset().union(*(_WORDS.get(word, frozenset({word})) for word in words))


def _own(name: str, tests: str) -> Suite:
    entry_point, _, tests = tests.partition("\n")
    return Suite(
        f"Write this: {name}.", tests, None if entry_point == "tests" else entry_point, in_place=True
    )
