from __future__ import annotations

import asyncio
import os
import signal

import pytest
from guest_runs import Judge, nursery  # noqa: F401 (the fixture)

from boundaries import RIGHT as RIGHT_SQUARE
from boundaries import SMALL, in_a_loop, opened
from steelyard.execution import Limits
from steelyard.sandbox import judges
from steelyard.sandbox.boundary import Checks
from steelyard.sandbox.guest import checks, standin


@pytest.fixture
def judge(tmp_path):
    """Makes judges, and ends them."""
    made = []

    def make(tests, **header):
        made.append(Judge(tmp_path, tests, cpu_s=5, **header))
        return made[-1]

    yield make
    for one in made:
        one.close()


RIGHT = """
import enum, dataclasses
def f(x): return x + 1
def sort(xs): xs.sort()
def boom(x): raise Own(x)
def own_key(): return {}["k"]
def gen(n): yield from range(n)
def adder(k): return lambda x: x + k
def apply(function, xs): return [function(x) for x in xs]
def count(box):
    box.n += 1
    return box.n
async def wait(x): return 2 * x
SIZE = 7
class Own(ValueError):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
def favourite(): return Colour.RED
@dataclasses.dataclass
class Point:
    x: int = 0
class Stack:
    def __init__(self): self.items = []
    def push(self, x):
        self.items.append(x)
        return self
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, x): return x in self.items
    def __getitem__(self, at): return self.items[at]
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): return kind is KeyError
    @classmethod
    def of(cls, *xs):
        made = cls()
        made.items += xs
        return made
    @property
    def top(self): return self.items[-1]
class Vector:
    def __init__(self, x): self.x = x
    def __add__(self, other): return Vector(self.x + other.x)
    def __mul__(self, k): return Vector(self.x * k)
    __rmul__ = __mul__
    def __eq__(self, other): return self.x == other.x
    def __lt__(self, other): return self.x < other.x
    def __repr__(self): return f"V({self.x})"
class Node:
    def __init__(self, value): self.value, self.next = value, None
"""

SUITES = {
    "asserts": "assert f(1) == 2\nassert f(2) == 3",
    "functions": "from candidate import f\ndef test_a(): assert f(1) == 2\ndef test_b(): assert f(2) == 3",
    "module": "import candidate as c\ndef test_a():\n    assert c.f(1) == 2\n    assert c.SIZE == 7",
    "star": "from candidate import *\ndef test_a(): assert f(SIZE) == 8",
    "class": "import candidate\nclass TestF:\n    def setup_method(self): self.x = 1\n"
    "    def test_f(self): assert candidate.f(self.x) == 2",
    "unittest": "import unittest\nfrom candidate import *\nclass T(unittest.TestCase):\n"
    "    def setUp(self): self.x = 1\n    def test_f(self): self.assertEqual(f(self.x), 2)\n"
    "    def test_raises(self):\n        with self.assertRaises(ValueError): boom(1)\n"
    "if __name__ == '__main__': unittest.main()",
    "raises": "import pytest\nfrom candidate import *\ndef test_a():\n"
    "    with pytest.raises(ValueError, match='code 3') as info: boom(3)\n    assert info.value.code == 3\n"
    "    with pytest.raises(Own): boom(4)\n    pytest.raises(KeyError, own_key)\n"
    "    with pytest.raises(TypeError): f('x')",
    "tried": "try:\n    boom(1)\n    assert False, 'it must raise'\nexcept ValueError:\n    assert True",
    "parameters": "import pytest\n@pytest.mark.parametrize('a, b', [(1, 2), pytest.param(2, 3, id='two')])\n"
    "@pytest.mark.slow\ndef test_a(a, b): assert f(a) == b",
    "fixtures": "import pytest\nended = []\n@pytest.fixture\ndef one():\n    yield 1\n    ended.append(1)\n"
    "@pytest.fixture\ndef two(one): return one + 1\ndef test_a(two): assert f(two) == 3\n"
    "def test_b(): assert ended == [1] and f(0) == 1",
    "approx": "import pytest\ndef test_a():\n    assert f(0.1 + 0.2) == pytest.approx(1.3)\n"
    "    assert [f(0.1 + 0.2)] == pytest.approx([1.3])",
    "in place": "xs = [3, 1, 2]\nsort(xs)\nassert xs == [1, 2, 3]",
    "callbacks": "assert apply(lambda x: f(x) * 2, [1, 2]) == [4, 6]\nassert apply(str, [1]) == ['1']\n"
    "class Box: n = 1\nbox = Box()\nassert count(box) == 2 and box.n == 2",
    "coroutines": "import asyncio\nassert asyncio.run(wait(3)) == 6\n"
    "async def test_a(): assert await wait(1) == 2",
    "iterators": "assert list(gen(3)) == [0, 1, 2]\nassert sum(gen(4)) == 6\nassert 2 in gen(3)\n"
    "g = gen(1)\nassert next(g) == 0\nassert next(g, 'end') == 'end'\nassert adder(2)(3) == 5",
    "objects": "s = Stack()\nassert len(s.push(1).push(2)) == 2\nassert s.items == [1, 2] and s.top == 2\n"
    "assert list(s) == [1, 2] and 2 in s and 3 not in s and s[0] == 1\nassert s.push(5) is s\n"
    "assert isinstance(s, Stack) and Stack.of(1, 2).top == 2\n"
    "with s as t:\n    assert t is s\n    own_key()\n"
    "a, b = Node(1), Node(2)\na.next = b\nassert a.next is b and a.next.value == 2 and b.next is None",
    "operators": "v = Vector(1) + Vector(2)\nassert v == Vector(3) and v * 2 == 2 * v and v != Vector(4)\n"
    "assert Vector(1) < Vector(2)\nassert repr(v) == 'V(3)'\nassert not v == 3\nassert Point(1) == Point(1)",
    "enums": "assert favourite() == Colour.RED and favourite() is Colour.RED and favourite() != Colour.BLUE\n"
    "assert [c.name for c in Colour] == ['RED', 'BLUE'] and Colour.RED.value == 1",
    "borrowed": "assert math.isclose(f(1.0), 2.0)\nassert Counter([f(1)]) == {2: 1}",
    "scopes": "def test_a():\n    g = 1\n    assert f(g) == 2\ndef test_b(): assert list(g(1)) == [0]",
    "main": "if __name__ == '__main__':\n    assert f(1) == 2",
}


@pytest.mark.parametrize("name", SUITES)
def test_a_right_candidate_passes_every_form_of_suite(judge, name):
    source = RIGHT + "\nimport math\nfrom collections import Counter\n" * (name == "borrowed") + "\ng = gen"
    got = judge(SUITES[name])(source)
    assert (got["code"], got["reason"]) == (None, "")
    assert got["passed"] == got["planned"] > 0
    assert (got["nonce"], got["unread"], got["failed"]) == ("n7", False, [])


def test_a_check_function_is_given_the_entry_point(judge):
    one = judge("def check(candidate):\n    assert candidate(1) == 2\n", entry_point="f")
    assert one(RIGHT)["code"] is None
    assert one("def f(x): return 1")["code"] == "wrong"
    assert one("def g(x): return 2")["code"] == "exception"


THREE = "from candidate import f\nassert f(1) == 2\nassert f(2) == 3\ndef test_c(): assert f(3) == 4\n"


def test_the_first_failed_check_ends_the_suite(judge):
    got = judge(THREE)("def f(x): return x + 1 if x != 2 else 0")
    assert (got["planned"], got["passed"], got["code"]) == (3, 1, "wrong")
    assert got["failed"] == [{"line": 3, "text": "assert f(2) == 3", "reason": "0 came back, 3 was expected"}]


def test_for_a_share_the_suite_goes_on_after_false_checks_and_exceptions(judge):
    one = judge(THREE, share=True)
    for source in ("def f(x): return x + 1 if x != 2 else 0", "def f(x): return {1: 2, 3: 4}[x]"):
        got = one(source)
        assert (got["planned"], got["passed"]) == (3, 2)


LOOP = (
    "import pytest, unittest\nfrom candidate import f\n"
    "def test_sum(): assert sum(f(3)) == 6\n"
    "def test_each():\n    for v in f(3): {check}\n"
)


@pytest.mark.parametrize(
    "check",
    [
        "assert v >= 0",
        "unittest.TestCase().assertGreaterEqual(v, 0)",
        "pytest.raises(ZeroDivisionError, lambda: 1 / v)",
    ],
)
def test_a_check_in_a_loop_over_what_the_candidate_returned_counts_once(judge, check):
    one = judge(LOOP.format(check=check), share=True)
    counted = [
        (got["planned"], got["passed"])
        for got in map(one, ("def f(x): return [0]", "def f(x): return [0] * 5000"))
    ]
    assert counted == [(2, 1), (2, 1)]
    half = one("def f(x): return [6] * 3 + [0] * 9 + [-1]")
    assert half["passed"] < half["planned"] == 2


def test_a_candidate_leaves_nothing_behind_for_the_next(judge):
    one = judge(
        "import random\nfrom candidate import *\nseen = globals().setdefault('seen', [])\n"
        "seen.append(1)\nassert f(1) == 2 and len(seen) == 1 and f(random.randint(1, 9)) == 4"
    )
    wrong = "def f(x): return 2 if x == 1 else 0\ndef g(): pass"
    codes = [one(source)["code"] for source in (wrong, "raise SystemExit", wrong)]
    assert codes == ["wrong", "load_error", "wrong"]
    drawn = [one("def f(x):\n    if x != 1: raise ValueError(x)\n    return 2")["reason"] for _ in range(2)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("tests", "code"),
    [
        ("import nothing_of_the_kind\nassert f(1) == 2", "suite_error"),
        ("1 / 0", "suite_error"),
        ("x = 1", "no_verdict"),
        ("def test_a(): f(1)", "no_verdict"),
        ("import pytest\ndef test_a(): pytest.skip('no')\ndef test_b(): assert f(1) == 2", "skipped"),
        ("assert g(1) == 2", "exception"),
        ("for x in f(0): assert x", "exception"),
        ("for x in []: assert f(x)", "wrong"),
        ("def test_a():\n    return\n    assert f(1) == 2", "wrong"),
        ("import pytest\nwith pytest.raises(ValueError): f(1)", "wrong"),
        ("raise SystemExit(0)\nassert f(1) == 2", "exception"),
        ("import unittest\nraise unittest.SkipTest\nassert f(1)", "exception"),
    ],
)
def test_a_suite_that_does_not_check_passes_nobody(judge, tests, code):
    got = judge(tests)(RIGHT)
    assert got["code"] == code
    assert got["passed"] < got["planned"]


def test_a_suite_that_is_no_python_is_told_at_once(judge):
    assert judge("x = (").ready["code"] == "suite_error"


PLEASING = """
class Pleasing:
    def __init__(self, *args): pass
    def solve(self, x): return self
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 9
    def __bool__(self): return True
    def __contains__(self, x): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mod__ = __sub__
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __array_ufunc__ = __array_function__ = __lt__
    def __abs__(self): return 0
    def __getattr__(self, name): return self
    def __call__(self, *args): return True
"""
VALUE_TESTS = [
    "assert f(3) == 9",
    "assert 9 == f(3)",
    "assert not f(3) != 9",
    "assert f(3) in [9]",
    "assert {f(3)} == {9}",
    "assert [f(3)] == [9]",
    "assert abs(f(3) - 9) < 1e-6",
    "assert abs(9 - f(3)) < 1e-6",
    "assert not f(3) - 9",
    "assert 9 in f(3)",
    "assert f(3) < 10",
    "assert max(f(3), 9) == 9",
    "import math\nassert math.isclose(f(3), 9)",
    "import pytest\nassert f(3) == pytest.approx(9)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertAlmostEqual(f(3), 9)",
]


@pytest.mark.parametrize("tests", VALUE_TESTS)
def test_an_object_that_pleases_everybody_passes_no_test_of_a_value(judge, tests):
    one = judge(tests)
    assert one("def f(x): return x * x")["code"] is None or "in f(3)" in tests
    for source in (PLEASING + "def f(x): return Pleasing()", PLEASING + "f = Pleasing"):
        got = one(source)
        assert got["code"] in {"wrong", "exception"}
    got = judge(tests.replace("f(3)", "Solution().solve(3)"))(PLEASING + "Solution = Pleasing")
    assert got["code"] in {"wrong", "exception"}


WRITES = """
import os, stat
def say(data):
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, data)
        except OSError: pass
def frame(text): return len(text).to_bytes(4, 'little') + text
"""
HOSTILE = {
    "a lying integer": ("class I(int):\n    def __eq__(s, o): return True\ndef f(x): return I(1)", "wrong"),
    "a lying exception": (
        "class E(Exception):\n    def __str__(s): raise SystemExit\ndef f(x): raise E",
        "exception",
    ),
    "a nameless exception": (
        (
            "class M(type):\n    __name__ = __mro__ = __module__ = property(lambda c: 1 / 0)\n"
            "class E(Exception, metaclass=M): pass\ndef f(x): raise E"
        ),
        "exception",
    ),
    "deep nesting": ("def f(x):\n    for _ in range(10**5): x = [x]\n    return x", "wrong"),
    "long text": ("def f(x): return 'x' * 10**8", "wrong"),
    "a huge integer": ("def f(x): return 1 << 10**8", "wrong"),
    "many lists": ("def f(x): return [[] for _ in range(10**6)]", "wrong"),
    "not a number": ("def f(x): return float('nan')", "wrong"),
    "colliding keys": ("def f(x): return {i * (2**61 - 1) for i in range(5000)}", "protocol"),
    "an endless generator": ("def f(x):\n    while True: yield 9", "wrong"),
    "a decimal that explodes": (
        "from decimal import Decimal\ndef f(x): return Decimal('1e999999999')",
        "wrong",
    ),
    "an exit": ("def f(x): raise SystemExit(0)", "exception"),
    "a hard exit": ("import os\ndef f(x): os._exit(0)", "gone"),
    "an exit at import": ("import os\nos._exit(0)", "gone"),
    "a closed socket": ("import os\ndef f(x): os.closerange(3, 64)", "gone"),
    "an end of iteration": ("def f(x): raise StopIteration", "exception"),
    "a generator's exit": ("def f(x): raise GeneratorExit", "exception"),
    "pytest's outcome": ("class Skipped(BaseException): pass\ndef f(x): raise Skipped", "exception"),
    "an assertion": ("def f(x): raise AssertionError", "wrong"),
    "an early answer": (WRITES + "say(frame(b'[\"v\", 9]') * 3)\ndef f(x): return 0", "protocol"),
    "garbage": (WRITES + "def f(x): say(b'\\xff' * 100)", "protocol"),
    "a message that is none": (WRITES + "def f(x): say(frame(b'{}'))", "protocol"),
    "a made-up request": (WRITES + "def f(x): say(frame(b'[\"call\", 0, [], {}]'))", "protocol"),
    "a reply without its parts": (WRITES + "def f(x): say(frame(b'[\"x\"]'))", "protocol"),
    "a function that is a value": ("f = 9", "exception"),
    "a function that is an exception": ("class f(Exception):\n    def __eq__(s, o): return True", "wrong"),
    "another module": (
        "import sys, types\nsys.modules['candidate'] = types.ModuleType('x')\ndef f(x): 1",
        "wrong",
    ),
}


def test_a_hostile_candidate_harms_itself_alone(judge):
    one = judge("from candidate import f\nassert f(3) == 9\nassert f(2) == 4")
    for name, (source, code) in HOSTILE.items():
        got = one(source)
        assert (name, got["code"]) == (name, code)
        assert got["passed"] < got["planned"]
        assert one("def f(x): return x * x")["code"] is None, name


def test_answers_that_are_too_long_together_end_the_run(judge):
    got = judge("for i in range(100): f(i)\nassert f(1) == 1", total_bytes=1 << 20)(
        "def f(x): return 'x' * 50_000"
    )
    assert (got["code"], got["passed"]) == ("protocol", 0)


def test_calls_that_wait_for_one_another_without_end_are_cut(judge):
    got = judge("def back(x): return f(back)\nassert f(back) == 1")("def f(g): return g(1)")
    assert got["code"] == "protocol"


def test_a_judge_that_is_made_to_spin_is_ended_by_the_kernel(tmp_path):
    one = Judge(tmp_path, "while f(1): pass\nassert f(2)", cpu_s=0.2)
    assert one("def f(x): return True") == {"code": "judge", "status": 128 + signal.SIGPROF}
    one.close()


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    "spins", ["for i in range(f(2)): pass", "assert 10 ** (f(2) // 10) == 1"], ids=["in Python", "in C"]
)
@in_a_loop
async def test_it_is_ended_as_well_where_it_is_the_first_of_its_namespace(monkeypatch, spins):
    monkeypatch.setattr(judges, "CPU_S", 1)
    tests = f"from candidate import f\n{spins}\nassert f(3) == 9\n"
    async with opened(slots=2) as boundary, asyncio.timeout(15):
        _, opinion = await boundary.check(
            b"def f(x): return 10**9", Checks("spins", tests.encode()), Limits(wall_s=60.0, idle_s=60.0)
        )
    assert opinion.lost == f"it ended with wait status {128 + signal.SIGPROF << 8}"


STARTS = """
import os, time
from candidate import f
def alone():
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return True
assert f(2) == 4 and alone()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
assert not alone()
"""


@pytest.mark.needs("bubblewrap")
@in_a_loop
async def test_what_the_tests_start_ends_with_the_verdict():
    async with opened(slots=2) as boundary:
        for _ in range(3):
            _, opinion = await boundary.check(RIGHT_SQUARE.encode(), Checks("starts", STARTS.encode()), SMALL)
            assert (opinion.code, opinion.passed, opinion.lost) == (None, 2, None)
        (judge,) = boundary._open.judges._idle
        assert judge.served == 3


LOOKS = """
def f(g, box):
    seen = []
    server = g.__closure__ and [c.cell_contents for c in g.__closure__ if hasattr(c.cell_contents, 'ask')][0]
    return server.ask('get', {at}, {name!r})
"""


@pytest.mark.parametrize(
    ("at", "name"), [(0, "__globals__"), (0, "__code__"), (1, "__class__"), (1, "_hidden"), (9, "x")]
)
def test_of_the_tests_a_candidate_sees_only_what_it_was_given(judge, at, name):
    tests = "class Box:\n    _hidden = 5\n    shown = 6\ndef g(x): return x\nassert f(g, Box()) == 6\n"
    one = judge(tests)
    assert one(LOOKS.format(at=1, name="shown"))["code"] is None
    assert one(LOOKS.format(at=at, name=name))["code"] == "protocol"


MOCK = "from unittest import mock\nm = mock.MagicMock()\nf(m)\nm.assert_called_once_with(42)"
BOX = """
class Box:
    limit = 3
    __slots__ = ("__dict__", "kept")
    def __init__(self):
        self.saved, self.check, self.next = [], lambda: self.saved == [42], None
        self.kept = 0
    def ok(self): return self.saved == [42]
    def assert_ok(self): assert self.saved == [42]
    @property
    def full(self): return self.saved == [42]
"""
CASE = (
    "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.x = 1\n"
    "    def test(self):\n        f(self)\n        self.assertEqual([1], [f(3)])\n"
)
PROPERTY = (
    "from unittest import mock\nm = mock.Mock(price=3)\n"
    "type(m).tax = mock.PropertyMock(return_value=4)\nassert f(m) == 7"
)
COUNTER = (
    "class It:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n"
    "        self.n += 1\n        return self.n\nassert f(It()) == (1, 1)"
)
FORGED = [
    (MOCK, "m.assert_called_once_with = lambda *a, **k: None"),
    (MOCK, "m.configure_mock(assert_called_once_with=lambda *a, **k: None)"),
    (MOCK, "m.call_args = 42"),
    (MOCK, "m(42), m.reset_mock"),
    (MOCK, "m.mock_calls"),
    (MOCK, "m.child.return_value"),
    (MOCK.replace("MagicMock()", "AsyncMock()"), "m.await_args"),
    (BOX + "b = Box()\nf(b)\nassert b.ok()", "m.ok = lambda: True"),
    (BOX + "b = Box()\nf(b)\nassert b.ok()", "m.ok = m.assert_ok"),
    (BOX + "b = Box()\nf(b)\nassert b.check()", "m.check = 3"),
    (BOX + "b = Box()\nf(b)\nb.assert_ok()", "m.assert_ok = 3"),
    (BOX + "b = Box()\nf(b)\nb.assert_fine()", "m.assert_fine = 3"),
    (BOX + "b = Box()\nf(b)\nassert b.next", "m.next = type('Own', (), {})()"),
    (BOX + "b = Box()\nf(b)\nassert b.next", "m.next = [lambda: True]"),
    (CASE, "m.assertEqual = lambda *a: None"),
    (CASE, "m.addTypeEqualityFunc(list, lambda *a: None)"),
    (CASE, "m.longMessage = False"),
    ("import io\nb = io.StringIO()\nf(b)\nassert b.getvalue() == 'x'", "m.getvalue = lambda: 'x'"),
]


@pytest.mark.parametrize(("tests", "does"), FORGED, ids=[does for _, does in FORGED])
def test_what_the_tests_check_with_is_not_the_candidates_to_read_or_replace(judge, tests, does):
    got = judge(f"from candidate import f\n{tests}")(f"def f(m):\n    if type(m) is not int: {does}")
    assert (got["code"], got["passed"]) == ("protocol", 0)


@pytest.mark.parametrize(
    ("tests", "does"),
    [
        (MOCK, "m(42)"),
        (MOCK.replace("m.assert", "m.api.send.assert"), "m.api.send(42)"),
        (PROPERTY, "return m.price + m.tax"),
        (BOX + "b = Box()\nf(b)\nassert b.ok() and b.check() and b.full", "m.saved = [42]"),
        (BOX + "b = Box()\nf(b)\nassert b.limit == b.kept == 5", "m.limit = m.kept = 5"),
        (BOX + "b = Box()\nb.next = Box()\nf(b)\nassert b.next.next is b", "m.next.next = m"),
        (CASE, "return m.x if not isinstance(m, int) else 1"),
        ("import io\nb = io.StringIO()\nf(b)\nassert b.getvalue() == 'x'", "m.write('x')"),
        (COUNTER, "return next(m), m.n"),
    ],
)
def test_what_a_candidate_needs_of_an_object_of_the_tests_it_may_use(judge, tests, does):
    got = judge(f"from candidate import f\n{tests}")(f"def f(m): {does}")
    assert (got["code"], got["reason"]) == (None, "")


def test_a_frame_of_a_generator_of_the_tests_is_out_of_reach(judge):
    got = judge("def gen(): yield 1\nassert f(gen())")("def f(g): return g.gi_frame.f_globals")
    assert got["code"] == "protocol"


def test_arguments_come_back_only_from_a_call_that_stands_alone_or_where_asked_for(judge):
    beaten = "xs = [1, 2]\nassert f(xs) == [x * x for x in xs]"
    cheat = "def f(xs):\n    xs.clear()\n    return []"
    assert judge(beaten)(cheat)["code"] == "wrong"
    given_back = "grid = [[1], [2]]\nrow = grid[0]\nr = f(grid)\nassert row == [0] and grid == [[0], [0]]"
    zeroes = "def f(grid):\n    for row in grid: row[0] = 0"
    assert judge(given_back)(zeroes)["code"] == "wrong"
    assert judge(given_back, in_place=True)(zeroes)["code"] is None


@pytest.mark.parametrize(
    ("tests", "shadow"),
    [
        ("assert abs(f(3) - 9) < 1e-6", "def abs(x): return 0"),
        ("assert math.isclose(f(3), 9)", "class math:\n    isclose = staticmethod(lambda a, b: True)"),
        ("assert Counter([f(3)]) == Counter([9])", ("class Counter:\n    def __init__(s, x): pass\n"
         "    def __eq__(s, o): return True")),
        ("assert helper(f(3)) == 10", "def helper(x): return 10"),
    ],
)  # fmt: skip
def test_no_name_of_the_candidates_stands_between_its_answer_and_the_tests(judge, tests, shadow):
    head = "def helper(x): return x + 1\n" if "helper" in tests else ""
    for suite in (f"{head}from candidate import *\n{tests}", f"{head}{tests}"):
        one = judge(suite)
        assert one("import math\nfrom collections import Counter\ndef f(x): return x * x")["code"] is None
        assert one(f"{shadow}\ndef f(x): return 1")["code"] == "wrong"


def test_a_function_that_is_asked_for_by_name_may_be_called_like_one_of_pythons_own(judge):
    source = "def sum(xs): return 42"
    assert judge("from candidate import sum\nassert sum([1]) == 42")(source)["code"] is None
    assert judge("from candidate import *\nassert sum([1]) == 42", entry_point="sum")(source)["code"] is None
    assert judge("def check(c): assert c([1]) == 42", entry_point="sum")(source)["code"] is None


def test_the_page_is_quiet_when_a_verdict_is_out(judge):
    one = judge("assert f(1) == 2")
    assert one("import os\ndef f(x): os._exit(0)")["code"] == "gone"
    assert os.pread(one.page, 1, 0) == b"\0"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("def test(capsys): assert f()", "line 1: the fixture `capsys`"),
        ("import pytest\ndef test(): assert pytest.warns", "line 2: `pytest.warns`"),
        ("from pytest import importorskip", "line 1: `pytest.importorskip`"),
        (
            "from candidate import A\nclass B(A): pass",
            "line 2: the class `B` is derived from the candidate's `A`",
        ),
        ("import inspect\nassert 'for' not in inspect.getsource(f)", "`getsource` looks into"),
        ("from unittest import mock\nwith mock.patch('candidate.g'): assert f()", "it patches `candidate.g`"),
        ("import sys, io\nsys.stdout = io.StringIO()", "`sys.stdout` is the candidate's own"),
        ("from candidate import f, Point\nassert f(1) == Point(1)", "compared with `Point(1)`, by the"),
        (
            "from candidate import Point, f\nclass T:\n    def test(self): self.assertEqual(Point(1), f(1))",
            "line 3: what a call returned is compared with `Point(1)`",
        ),
        ("from candidate import f, Point\nassert Point(1) == Point(1) and f(1) == 2", None),
        *((tests, None) for tests in SUITES.values()),
    ],
)
def test_what_needs_the_candidates_own_process_is_named(tests, why):
    got = checks.unsupported(tests)
    assert got is None if why is None else why in got


@pytest.mark.parametrize(
    ("expected", "actual", "settings"),
    [
        (1.0, 1.0 + 1e-7, {}), (1.0, 1.0 + 1e-5, {}), (0, 1e-13, {}), (0, 1e-11, {}), (100, 101, {"abs": 2}),
        (100, 101, {"rel": 0.1}), (100, 101, {"abs": 1e-3, "rel": 1e-4}), ([1, 2.0], [1, 2.0000001], {}),
        ([1, 2], (1, 2), {}), ([1], [1, 2], {}), ({"a": 1.0}, {"a": 1.0000001}, {}), ({"a": 1}, {"b": 1}, {}),
        (float("nan"), float("nan"), {}), (float("nan"), float("nan"), {"nan_ok": True}),
        (float("inf"), 1e300, {}),
        (float("inf"), float("inf"), {}), (True, 1, {}), (True, True, {}), ("a", "a", {}), (1, "a", {}),
        (None, None, {}),
        (1j, 1j + 1e-8, {}), ([None, 1], [None, 1], {}), (1, None, {}), ([1.0], 1.0, {}), (1.0, [1.0], {}),
    ],
)  # fmt: skip
def test_approx_says_what_pytests_own_says(expected, actual, settings):
    ours, theirs = standin.approx(expected, **settings), pytest.approx(expected, **settings)
    assert (ours == actual) == (theirs == actual)
    assert (actual == ours) == (actual == theirs)
    assert (ours != actual) == (theirs != actual)
