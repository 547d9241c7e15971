"""What a judge tells of a check that failed, and that it asks the candidate nothing for it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest
from guest_runs import Judge, nursery  # noqa: F401 (the fixture)

HEAD = "import random\nfrom candidate import *\n"


@pytest.fixture
def judged(tmp_path):
    made = []

    def run(tests, source):
        made.append(Judge(tmp_path, HEAD + tests, cpu_s=5))
        return made[-1](source)

    yield run
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("check", "expected", "got"),
    [
        ("y = f(2)\nassert y == 2 * 2", "4", "3"),
        ("assert 2 * 2 == f(2)", "4", "3"),
        ("four = 2 * 2\nassert four == f(2)", "4", "3"),
        ("assert f(2) > 5", "it > 5", "3"),
        ("assert f(2) in [1, 2]", "it in [1, 2]", "3"),
        ("assert 7 in [f(2)]", "7 in it", "[3]"),
        ("assert not f(2)", "a false value", "3"),
        ("assert f(2) is None", "None", "3"),
        ("assert f(2) == 3 and f(2) == 4", "4", "3"),
        ("assert f(2) == 5 or f(2) == 4", "4", "3"),
        ("import pytest\nassert f(2) == pytest.approx(0.5)", "about 0.5", "3"),
        ("import pytest\nassert pytest.approx(0.5) == f(2)", "about 0.5", "3"),
    ],
)
def test_a_check_says_what_it_expected_and_what_came_back(judged, check, expected, got):
    said = judged(check, "def f(x): return x + 1")
    assert said["code"] == "wrong"
    told = said["check"]
    assert (told["expected"], told["got"], told["call"]) == (expected, got, "f(2)")
    assert told["text"] == check.rpartition("\n")[2].replace("f(2)", "f(2)")
    assert (told["number"], told["of"]) == (1, 1)


def test_the_call_has_the_values_that_it_was_made_with(judged):
    told = judged(
        "for xs, k in [([1, 2], 'a')]:\n    assert f(xs, key=k) == len(xs)", "def f(xs, key): return 7"
    )
    assert told["check"]["call"] == "f([1, 2], key='a')"
    assert told["reason"].endswith("7 came back, 2 was expected")


def test_an_exception_has_the_candidates_line_in_a_check_and_before_it(judged):
    source = "def f(x):\n    y = 1\n    return {}[x]\n"
    for check in ("assert f(2) == 4", "y = f(2)\nassert y == 4"):
        told = judged(check, source)["check"]
        assert (told["error"], told["raised"], told["call"]) == ("KeyError: 2", 3, "f(2)")


def test_of_a_candidate_that_is_gone_the_call_is_told_that_waited(judged):
    told = judged(
        "assert f(2) == 4\nassert f(3) == 9", "import os\ndef f(x):\n    x == 3 and os._exit(0)\n    return 4"
    )
    assert told["code"] == "gone"
    assert told["check"] == {"unanswered": 1, "call": "f(3)"}


def test_conditions_mean_what_they_meant(judged):
    source = "class A:\n    def __eq__(self, other): return 'yes'\ndef f(x): return x\ndef g(): return A()"
    checks = [
        "assert f(1) == 1 and f(2) != 1 or f(9)", "assert not (f(1) == 2)", "assert 1 < f(2) < 3",
        "x = f([])\nassert x is x and x is not f([])", "assert (y := f(4)) == 4\nassert y == 4",
        "assert f(1) in {1} and 3 not in [f(1)]", "assert f(0) is not None and not f(0)",
        "class T:\n    n = f(1)\n    assert n == 1", "assert [*map(f, [1])] == [1] if f(1) else False",
    ]  # fmt: skip
    for check in checks:
        said = judged(check, source)
        assert (said["code"], said["check"]) == (None, {}), check


PLEASING = """
class Box:
    def __init__(self, n=0): self.n = n
    def get(self): return [self.n]
    def __eq__(self, other): return False
    def __repr__(self): return "4"
    __str__ = __format__ = __repr__
    def __len__(self): return 4
    def __hash__(self): return 4
    def __iter__(self): return iter([self])
def f(x): return Box(x)
"""


@pytest.fixture
def sent(monkeypatch):
    """All bytes that a judge sends to its candidate: a tap lies on the first socket between two guests."""
    kept: list[bytes] = []
    ends: list[socket.socket] = []
    pair = socket.socketpair

    def copy(source, target, *heard):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                for one in heard:
                    one.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def tapped(*family):
        judge, candidate = pair(*family)
        if family or ends:
            return judge, candidate
        near, far = pair()
        ends.extend((far, judge))
        for given in ((far, judge, kept), (judge, far)):
            threading.Thread(target=copy, args=given, daemon=True).start()
        return near, candidate

    monkeypatch.setattr(socket, "socketpair", tapped)
    yield kept
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@pytest.mark.parametrize(
    "check",
    [
        "assert f(2) == 73911",
        "assert [f(2)] == [73911]",
        "assert 73911 in [Box(2)]",
        "assert not f(2).get() == [2]",
    ],
)
def test_for_what_is_told_the_candidate_is_sent_nothing(judged, check, sent):
    said = judged(check, PLEASING)
    assert said["code"] == "wrong"
    assert said["check"]["got"]
    everything = b"".join(sent)
    assert b'"open"' in everything
    assert b"73911" not in everything
    for asked in (b"__repr__", b"__str__", b"__len__", b"__iter__", b"__hash__"):
        assert asked not in everything
