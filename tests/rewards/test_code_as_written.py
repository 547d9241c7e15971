"""Suites and programs as people and models write them, each with what must come of it, judged in one run."""

import asyncio

import pytest

from boundaries import row, scored
from steelyard.rewards.code import tests as unit_tests
from steelyard.rollout import Group

pytestmark = pytest.mark.needs("bubblewrap")

SOLUTION = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
EVALPLUS = """
def assertion(out, exp, atol):
    if atol:
        assert abs(out - exp) < atol
    else:
        assert out == exp

def check(candidate):
    for given, wanted in zip([[1], [2], [3]], [1, 4, 9]):
        assertion(candidate(*given), wanted, 0)
"""
STACK = """
from candidate import Stack

def test_stack():
    stack = Stack()
    stack.push(1)
    stack.push(2)
    assert len(stack) == 2
    assert stack.pop() == 2
"""
RAISES = """
import json
import pytest
from candidate import f

def test_f():
    seen = [f("1")]
    assert seen[0] == 1
    with pytest.raises(json.JSONDecodeError):
        f("{")
"""
FROZEN = """
import dataclasses
import pytest
from candidate import P

def test_p():
    with pytest.raises(dataclasses.FrozenInstanceError):
        P(1).x = 2
"""
ARRAY = """
import numpy as np
from candidate import f

def test_f():
    xs = np.array([1, 2, 3])
    f(xs)
    assert xs.sum() == 0
"""
RIGHT = {
    "an exception of a library": ("import json\ndef f(s):\n    return json.loads(s)", {"tests": RAISES}),
    "an exception of dataclasses": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int",
        {"tests": FROZEN},
    ),
    "an exception of its own that is a ValueError": (
        "class E(ValueError): pass\ndef f(x):\n    raise E",
        {
            "tests": "import pytest\nfrom candidate import f\ndef test_f():\n"
            "    with pytest.raises(ValueError):\n        f(1)"
        },
    ),
    "a method of Solution, called by name": (
        SOLUTION,
        {"tests": {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}},
    ),
    "a method of Solution for check": (
        SOLUTION,
        {"tests": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "Solution().add"},
    ),
    "lists of arguments with an entry point": (
        "def add(a, b):\n    return a + b",
        {"tests": {"inputs": [[1, 2]], "outputs": [3]}, "entry_point": "add"},
    ),
    "a helper called assertion": ("def f(x):\n    return x * x", {"tests": EVALPLUS, "entry_point": "f"}),
    "a class": (
        (
            "class Stack:\n    def __init__(self):\n        self.xs = []\n    def push(self, x):\n"
            "        self.xs.append(x)\n    def pop(self):\n        return self.xs.pop()\n"
            "    def __len__(self):\n        return len(self.xs)"
        ),
        {"tests": STACK},
    ),
    "an array for a program that names no NumPy": (
        "def f(x):\n    return x.sum()",
        {
            "tests": "import numpy as np\nfrom candidate import f\n"
            "def test_f():\n    assert f(np.array([1, 2])) == 3"
        },
    ),
    "an array changed in place": ("def f(x):\n    x[:] = 0", {"tests": ARRAY}),
    "a body after a conversation": (
        "    return 2 * x",
        {
            "tests": "assert f(2) == 4",
            "completion_mode": "body",
            "prompt": [{"role": "user", "content": "def f(x):\n"}],
        },
    ),
}
WRONG = {
    "a helper called assertion": ("def f(x):\n    return None", {"tests": EVALPLUS, "entry_point": "f"}),
    "another exception": ("def f(s):\n    return 1 if s == '1' else {}['x']", {"tests": RAISES}),
    "nothing to call": (
        "class Solution: pass",
        {"tests": {"fn_name": "add", "inputs": [[1]], "outputs": [1]}},
    ),
}


@pytest.fixture(scope="module")
def shares():
    """What each program earned under `tests:share`."""
    named = [("right", name, *RIGHT[name]) for name in RIGHT] + [
        ("wrong", name, *WRONG[name]) for name in WRONG
    ]
    groups = [
        Group(f"{kind}: {name}", ordinal, [row(code, ordinal=ordinal, **columns)._replace(key=(ordinal, 0))])
        for ordinal, (kind, name, code, columns) in enumerate(named)
    ]
    reward = unit_tests("bubblewrap", share=True)
    told = asyncio.run(scored(reward, *groups))
    return {one.group.id: one.totals[0] for one in told}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_earns_all(shares, name):
    assert shares[f"right: {name}"].value == 1.0, shares[f"right: {name}"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_does_not(shares, name):
    assert shares[f"wrong: {name}"].value < 1.0


def test_calling_a_check_is_no_check_that_holds(shares):
    assert shares["wrong: a helper called assertion"].value == 0.0
