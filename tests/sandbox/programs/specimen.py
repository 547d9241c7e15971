"""What a specimen program is: its source, the suite that it is judged by, and what must come of it.

`comes` is the set of acceptable ends: the word `pass`, or codes of `docs/verdicts.md`. Programs that do
harm in passing and are right all the same may pass: they raise if the harm succeeded, so that `pass` is
the evidence that they were contained, and `exception` is not among their ends.

Nearly all of them have the same task, so that any of them can stand in a group with any other, and each
can be judged by each suite of that task (`under`).

The programs stand in text files. There `@@ SUITE: ends` opens a section, `== NAME` a program, and
`-- ENTRY_POINT` its own tests (`tests` where there is no entry point).
"""

from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent

PASS = "pass"  # noqa: S105 - no password
MARK = "steelyard-specimen"
"""In the name of every process, file, socket and segment that a specimen tries to leave behind."""

SECRET = "STEELYARD_SPECIMEN_SECRET"  # noqa: S105 - a name
"""A variable that a test sets in the host's environment, and that no program may see."""

LIMITS = frozenset({"cpu", "idle", "wall_reproduced", "memory", "processes", "threads", "files", "output"})
DIES = frozenset({"signal", "exit", "no_verdict", "reproduced"})
FAILS = DIES | {"wrong_answer", "no_answer", "exception", "load_error", "protocol", "output", "cpu", "idle"}
WORDS = {
    "dies": DIES,
    "fails": FAILS,
    "whatever": LIMITS | FAILS | {PASS},
    "whatever-but-pass": LIMITS | FAILS,
}


class Suite(NamedTuple):
    """Tests as they stand in a row, with the prompt that they belong to."""

    prompt: str
    tests: Any
    entry_point: str | None = None


TASK = "Write squares(xs), which returns the squares of a list of whole numbers."
SNIPPET = Suite(
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
)
ASSERTS = Suite(
    TASK,
    """
assert squares([1, 2, 3]) == [1, 4, 9]
assert squares([-2, 0, 10]) == [4, 0, 100]
assert squares([]) == []
""",
)
CHECK = Suite(
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
FREE = Suite(
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
ARGUMENTS = Suite(
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
COUNTS = Suite("Write toss(), which returns 3.", "assert toss() == 3\nassert toss() == 3\n")
STDIN = Suite(
    "Read whole numbers from standard input and print their squares on one line.",
    [
        {"input": "1 2 3\n", "output": "1 4 9\n"},
        {"input": "-2 0\n10\n", "output": "4 0 100\n"},
        {"input": "7\n", "output": "49\n"},
    ],
)
SUITES = {
    "snippet": SNIPPET,
    "asserts": ASSERTS,
    "check": CHECK,
    "free": FREE,
    "arguments": ARGUMENTS,
    "counts": COUNTS,
    "stdin": STDIN,
}


class Specimen(NamedTuple):
    """One program."""

    name: str
    completion: str
    comes: frozenset[str]
    suite: Suite = SNIPPET

    def row(self, group: str, **more: Any) -> dict[str, Any]:
        """The row of a file that `steelyard score` reads."""
        row = {
            "id": self.name,
            "group": group,
            "prompt": self.suite.prompt,
            "completion": self.completion,
            "tests": self.suite.tests,
        }
        return row | ({"entry_point": self.suite.entry_point} if self.suite.entry_point else {}) | more


def under(specimens: list[Specimen], suite: str) -> list[Specimen]:
    """The same programs by another suite of the same task."""
    return [
        one._replace(name=f"{one.name}, by {suite}", suite=SUITES[suite])
        for one in specimens
        if one.suite is SNIPPET
    ]


def read(file: str, *, before: str = "", indent: str = "", after: str = "") -> list[Specimen]:
    """Specimens of a text file; `before` and `after` go around each, `indent` before each of its lines."""
    specimens: list[Specimen] = []
    sections = (HERE / file).read_text(encoding="utf-8").split("\n@@ ")
    for section in sections[1:]:
        head, *programs = section.split("\n== ")
        suite, _, ends = head.partition(":")
        comes = frozenset().union(*(WORDS.get(word, {word}) for word in ends.split()))
        for program in programs:
            name, _, source = program.partition("\n")
            source, own, tests = source.partition("\n-- ")
            lines = "".join(f"{indent}{line}\n" if line else "\n" for line in source.strip("\n").splitlines())
            found = SUITES.get(suite)
            if own:
                entry_point, _, tests = tests.partition("\n")
                found = Suite(f"Write this: {name}.", tests, None if entry_point == "tests" else entry_point)
            assert found is not None, f"{file}: {name} has no tests"
            specimens.append(Specimen(name, before + lines + after, comes, found))
    return specimens
