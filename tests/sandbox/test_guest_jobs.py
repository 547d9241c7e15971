from __future__ import annotations

import json
import subprocess
import sys

import pytest
from guest_runs import job, nursery  # noqa: F401 (the fixture)

FULL = ["done"]


def call(name, *args, in_place=False, **kwargs):
    return [name, list(args), {"d": [[key, value] for key, value in kwargs.items()]}, in_place]


def table(work, source, *calls, **header):
    messages, status, _, errors = job(
        work, {"mode": "table", "seed": 0, **header}, source, json.dumps(calls).encode()
    )
    assert status == 0, errors
    assert messages[0][0] == "started"
    return messages[1:]


def outcomes(work, source, *calls, **header):
    first, *rest, last = table(work, source, *calls, **header)
    assert (first, last) == (["loaded"], FULL)
    listed = [(at + index, outcome) for _, at, several in rest for index, outcome in enumerate(several)]
    assert [index for index, _ in listed] == list(range(len(calls)))
    return [outcome for _, outcome in listed]


def test_every_call_has_its_outcome_in_order(tmp_path):
    source = "def f(x, k=1): return (x, k)\ndef g(xs):\n    xs.append(9)\n    return xs"
    calls = [call("f", 1), call("f", 1, k=[2]), call("g", [1], in_place=True), call("missing")]
    got = outcomes(tmp_path, source, *calls)
    assert got[:3] == [["v", {"t": [1, 1]}], ["v", {"t": [1, [2]]}], ["v", [1, 9], [[1, 9]]]]
    assert got[3][:2] == ["x", "AttributeError"]


def test_an_argument_that_a_call_changed_does_not_reach_the_next(tmp_path):
    source = "def f(xs):\n    xs.append(0)\n    return len(xs)"
    assert outcomes(tmp_path, source, call("f", [1]), call("f", [1])) == [["v", 2], ["v", 2]]


def test_a_value_that_the_candidate_changes_later_arrives_as_it_was_returned(tmp_path):
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return seen"
    assert outcomes(tmp_path, source, call("f", 1), call("f", 2)) == [["v", [1]], ["v", [1, 2]]]


@pytest.mark.parametrize(
    "kind",
    ["ValueError", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration", "BaseException"],
)
def test_whatever_a_call_raises_is_its_outcome_and_the_next_call_is_made(tmp_path, kind):
    source = f"def f():\n    raise {kind}('no')\ndef g(): return 1"
    raised, returned = outcomes(tmp_path, source, call("f"), call("g"))
    assert (raised[:4], raised[4][0], raised[4][-1]) == (["x", kind, "no", 2], kind, "BaseException")
    assert returned == ["v", 1]


def test_exceptions_that_lie_about_themselves_are_outcomes_too(tmp_path):
    source = """
class M(type):
    __name__ = property(lambda cls: 1 / 0)
class E(Exception, metaclass=M):
    def __str__(self): raise SystemExit
class Long(Exception):
    def __str__(self): return 'x' * 10_000_000
def f(): raise E
def g(): raise Long
"""
    first, second = outcomes(tmp_path, source, call("f"), call("g"))
    assert first == ["x", "E", "", 8, ["Exception", "BaseException"]]
    assert second[:2] == ["x", "Long"]
    assert len(second[2]) == 300


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        (b"x = (", "SyntaxError", 1),
        (b"x = 1\ny = 1 / 0", "ZeroDivisionError", 2),
        (b"import sys\nsys.exit(0)", "SystemExit", 2),
        (b"exit()", "SystemExit", None),
        (b"raise KeyboardInterrupt", "KeyboardInterrupt", 1),
        (b"x = 1\0", "SyntaxError", None),
        (b"# coding: nothing\n", "SyntaxError", None),
        (b"x = '\xff'", "SyntaxError", None),
        (b"(" * 5000, None, None),
    ],
    ids=range(9),
)
def test_a_source_that_does_not_become_a_module_says_why(tmp_path, source, kind, line):
    ((what, found, message, at),) = table(tmp_path, source, call("f"))
    assert what == "load_error"
    assert kind in {found, None}
    assert line in {at, None}
    assert type(message) is str


def test_marks_line_ends_and_encodings_of_a_source_are_read_as_python_reads_them(tmp_path):
    marked = b"\xef\xbb\xbfdef f():\r\n    return '\xc3\xa9'\r\n"
    latin = b"# -*- coding: latin-1 -*-\ndef f(): return '\xe9'\n"
    for source in (marked, latin):
        assert outcomes(tmp_path, source, call("f")) == [["v", "é"]]


def test_what_the_candidate_replaces_of_pythons_own_does_not_cost_it_its_answers(tmp_path):
    source = """
import builtins, json, os, sys, time
def f():
    os.write = os._exit = json.dumps = time.monotonic = None
    for name in ('len', 'isinstance', 'type', 'map', 'set', 'list', 'getattr', 'str'):
        setattr(builtins, name, None)
    sys.stdout = None
    return [1, (2, {3})]
"""
    assert outcomes(tmp_path, source, call("f"), call("f")) == [["v", [1, {"t": [2, {"s": [3]}]}]]] * 2


def test_chance_begins_at_the_seed(tmp_path):
    source = "import random\ndef f(): return random.random()"
    assert outcomes(tmp_path, source, call("f")) == outcomes(tmp_path, source, call("f"))


def test_a_forked_child_that_comes_back_says_nothing(tmp_path):
    source = "import os\ndef f():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return 1"
    assert outcomes(tmp_path, source, call("f"), call("f")) == [["v", 1]] * 2


def test_the_module_is_one_like_any_other(tmp_path):
    source = """
import dataclasses, inspect, multiprocessing, pickle, typing
@dataclasses.dataclass
class Point:
    x: int
    y: "Point | None" = None
def square(x): return x * x
def f():
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
    assert typing.get_type_hints(Point)["x"] is int
    assert "def square" in inspect.getsource(square)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(square, [3])
if __name__ == "__main__":
    raise SystemExit("this is no script")
"""
    assert outcomes(tmp_path, source, call("f")) == [["v", [9]]]


def test_a_result_that_is_too_long_is_opaque(tmp_path):
    (got,) = outcomes(tmp_path, "def f(): return 'x' * 5000", call("f"), reply_bytes=1000)
    assert got == ["v", {"o": "str, too deep or too long", "h": None}]


def test_with_a_share_each_outcome_leaves_before_the_next_call(tmp_path):
    source = "import os\ndef f(x):\n    if x: os._exit(3)\n    return x"
    calls = json.dumps([call("f", 0), call("f", 1)]).encode()
    messages, status, *_ = job(tmp_path, {"mode": "table", "share": True}, source, calls)
    assert messages[1:] == [["loaded"], ["r", 0, [["v", 0]]]]
    assert status == 3


def test_a_payload_that_is_none_is_a_failure_of_the_set_up(tmp_path):
    for header in ({"mode": "nothing"}, {}):
        messages, status, *_ = job(tmp_path, header, "x = 1")
        assert [message[0] for message in messages] == ["setup"]
        assert status == 120


THREADS = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()\n"
SPAWN = """
import multiprocessing
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(double, [2]))
"""
PROGRAMS = {
    "echo": "print(input(), *open(0))",
    "status": "import sys; print('out'); sys.exit(300)",
    "text": "raise SystemExit('bye')",
    "none": "raise SystemExit",
    "raises": "def f():\n    return 1 / 0\nprint(1)\nf()",
    "syntax": "x = (",
    "own hook": "import sys\nsys.excepthook = lambda *a: print('hook')\n1 / 0",
    "threads": THREADS,
    "atexit": "import atexit\natexit.register(print, 'bye')\nprint('x')",
    "names": "import sys\nprint(__name__, sys.argv, __file__ == sys.path[0] + '/main.py')",
    "guard": "if __name__ == '__main__': print('main')",
    "getsource": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))",
    "spawn": SPAWN,
    "closed": "import sys\nprint(1)\nsys.stdout.close()",
    "unicode": "print('\\u00e9', '\\U0001f600')",
    "much": "print('x' * 1_000_000)",
    "own exit": "import os\nprint('lost')\nos._exit(4)",
    "unraisable": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_python_would_run_it(tmp_path, name):
    source = PROGRAMS[name]
    (tmp_path / "main.py").write_text(source)
    plain = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        input=b"one\ntwo\n",
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )
    messages, status, output, errors = job(tmp_path, {"mode": "program"}, source, stdin=b"one\ntwo\n")
    assert [message[0] for message in messages] == ["started"]
    assert (status, output) == (plain.returncode, plain.stdout)
    assert errors == plain.stderr


COOPERATIVE = {"mode": "cooperative", "nonce": "n7"}
RIGHT = "def f(x): return x + 1"


def cooperative(work, source, tests):
    messages, status, *_ = job(work, COOPERATIVE, source, tests.encode())
    assert (messages[0][0], status) == ("started", 0)
    return messages[1]


def test_cooperative_pytest_reports_what_it_counted_with_the_nonce(tmp_path):
    tests = "import pytest\nfrom candidate import f\n"
    tests += "@pytest.fixture(params=[1, 2])\ndef n(request): return request.param\n"
    tests += "def test_a(n, tmp_path): assert f(n) == n + 1\ndef test_b(): assert f(0) == 1"
    what, right = cooperative(tmp_path, RIGHT, tests)
    assert what == "report"
    assert (right["nonce"], right["collected"], right["passed"], right["all_passed"]) == ("n7", 3, 3, True)
    _, wrong = cooperative(tmp_path, "def f(x): return 1", tests)
    assert (wrong["passed"], wrong["failed"], wrong["all_passed"]) == (1, 2, False)


def test_cooperative_pytest_passes_nothing_without_tests_or_with_skipped_ones(tmp_path):
    for tests in ("x = 1", "import pytest\ndef test_a(): pytest.skip('no')", "import nothing_of_the_kind"):
        assert cooperative(tmp_path, RIGHT, tests)[1]["all_passed"] is False


def test_cooperative_pytest_reads_nothing_that_the_candidate_has_planted(tmp_path):
    planted = "def pytest_runtest_makereport(item, call):\n    raise SystemExit(0)\n"
    source = f"open('conftest.py', 'w').write({planted!r})\n"
    source += "open('pytest.ini', 'w').write('[pytest]\\naddopts=--co')\n"
    source += "def f(x): return x"
    got = cooperative(
        tmp_path,
        source,
        "import candidate\ndef test(): assert candidate.f(1) == 2",
    )
    assert (got[1]["failed"], got[1]["all_passed"]) == (1, False)
