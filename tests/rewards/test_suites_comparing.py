"""A check in a table agrees with Python's own assert, and no value that comes back is costly."""

import contextlib
import json
import math
import time
import tracemalloc
from collections import deque
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.rewards.suites import Raised, Value, compile_suite, encode_calls, judge, same_output
from steelyard.rewards.suites.comparing import shown
from steelyard.rewards.suites.operations import OPERATIONS
from steelyard.sandbox.guest.codec import Opaque, decode


def passed(tests, *values):
    suite = compile_suite(tests)
    assert suite.kind == "table", suite
    outcomes = [value if isinstance(value, Raised) else Value(value) for value in values]
    return [checked.passed for checked in judge(suite.table, outcomes)]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(-5, 5).map(lambda x: round(x, 3))
    | st.sampled_from(["", "a", "Ab", "1", b"a", math.inf, math.nan, 1j, 10**30])
)
hashable = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
values = st.recursive(
    hashable | st.frozensets(hashable, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
    ),
    max_leaves=6,
)


def stated(value):
    """Write a value as a test states it."""
    return repr(value).replace("inf", "float('inf')").replace("nan", "float('nan')")


TEMPLATES = [
    *(f"f(1) {operator} {{0}}" for operator in ("==", "!=", "<", "<=", ">", ">=")),
    *(f"{{0}} {operator} f(1)" for operator in ("==", "<", "+", "*", "-")),
    "f(1)",
    "not f(1)",
    "f(1) is None",
    "f(1) is not True",
    "f(1) in [{0}, {1}]",
    "f(1) not in ({0},)",
    "f(1) == {0} or f(1) == {1}",
    "f(1) and f(1) != {0}",
    "len(f(1)) == len({0})",
    "isinstance(f(1), (int, str, tuple))",
    "type(f(1)) == type({0})",
    "abs(f(1) - {0}) < 1.5",
    "round(f(1), 1) == {0}",
    "int(f(1)) == {0}",
    "float(f(1)) <= 1",
    "f(1)[0] == {0}",
    "f(1)[:2] == {0}",
    "f(1)[-1] != f(1)[0]",
    "{0} <= f(1) < {1}",
    "f(1) % 3 == 1",
    "f(1) // 2 + 1 > {0}",
    "f(1) ** 2 == {0}",
    "-f(1) == {0}",
    "f(1) | {0} == {1}",
    "f(1).upper() == {0}",
    "f(1).get({0}) is None",
    "f(1).count({0}) == 1",
    "repr(f(1)) == repr({0})",
    "bool(f(1)) is bool({0})",
    "f(1) == f(1)",
]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TEMPLATES), values, values, values, st.booleans())
def test_a_check_agrees_with_pythons_own_assert(template, value, one, other, same):
    check = template.format(stated(value if same else one), stated(other))
    suite = compile_suite(f"assert {check}")
    if getattr(suite, "kind", "fault") != "table":  # what is stated raises by itself
        return
    try:
        expected = bool(eval(check, {"f": lambda _: deepcopy(value)}))  # noqa: S307 - our own template
    except Exception:  # noqa: BLE001 - a check that raises fails
        expected = False
    outcomes = [Value(deepcopy(value)) for _ in suite.table.calls]
    assert all(checked.passed for checked in judge(suite.table, outcomes)) is expected


@pytest.mark.parametrize(
    ("tests", "value", "right"),
    [
        ("assert f() == 1", True, True),
        ("assert f() == 1", 1.0, True),
        ("assert f() == [1]", (1,), False),
        ("assert f() == (1, 3)", [1, 3], False),
        ("assert f() == float('nan')", math.nan, False),
        ("assert f() == {1, 2}", frozenset({2, 1}), True),
        ("assert f() == 0.5", Fraction(1, 2), True),
        ("assert f() == 1", Decimal("1.0"), True),
        ("assert f() == [1]", deque([1]), False),
    ],
)
def test_values_are_equal_as_in_python(tests, value, right):
    assert passed(tests, value) == [right]


@pytest.mark.parametrize(
    "tests",
    [
        "assert f() == 1", "assert 1 == f()", "assert f() in [1, None]", "assert f() < 1", "assert f() >= 1",
        "assert f() is None", "assert len(f()) == 0", "assert abs(f() - 1) < 5", "assert f()[0] == 1",
        "assert not f()", "assert isinstance(f(), int)", "assert str(f()) == '<E>'",
        "assert f().upper() == 'A'",
        "import pytest\nassert f() == pytest.approx(1)", "assert f() == f()", "assert round(f()) == 1",
    ],
)  # fmt: skip
def test_an_object_that_wants_to_please_equals_nothing(tests):
    assert not any(passed(tests, Opaque("E"), Opaque("E")))
    assert not any(passed(tests, [Opaque("E")], [Opaque("E")])) or "len" in tests or "isinstance" in tests


def test_what_raised_or_was_never_called_fails_with_its_words():
    table = compile_suite("assert f(1) == 2\nassert f(2) == 3\nassert f(3) == 4").table
    said = judge(table, [Raised("ValueError", "no\nsuch \ud800", 7), Value([1] * 1000)])
    assert [checked.code for checked in said] == ["exception", "wrong_answer", "exception"]
    assert said[0].reason == "f(1) == 2: ValueError in line 7: no such \\ud800"
    assert said[1].reason.endswith("[1, 1, 1, 1, 1, 1, 1, 1, ...] came back")
    assert said[2].reason == "f(3) == 4: the candidate ended before this call"
    assert [checked.line for checked in said] == [1, 2, 3]


def test_a_call_behind_or_may_raise():
    assert passed("assert f(1) == 1 or f(2) == 2", 1, Raised("ValueError")) == [True]
    assert passed("assert f(1) == 1 or f(2) == 2", 0, Raised("ValueError")) == [False]


@pytest.mark.parametrize(
    ("wanted", "raised", "right"),
    [
        ("ValueError", Raised("ValueError"), True),
        ("ValueError", Raised("UnicodeDecodeError"), True),
        ("(KeyError, IndexError)", Raised("IndexError"), True),
        ("ArithmeticError", Raised("KeyError"), False),
        ("Exception", Raised("MyError"), True),
        ("ValueError", Raised("MyError"), False),
        ("ValueError", Raised("MyError", bases=("ValueError",)), True),
        ("Exception", Raised("SystemExit"), False),
        ("Exception", Raised("KeyboardInterrupt"), False),
    ],
)
def test_an_exception_counts_by_pythons_tree(wanted, raised, right):
    assert passed(f"import pytest\nwith pytest.raises({wanted}):\n    f(1)", raised) == [right]


HUGE = (1 << 4_000_000) + 1


@pytest.mark.parametrize(
    ("tests", "values"),
    [
        ("assert str(f()) == '1'", [HUGE]),
        ("assert f() ** 2 == 1", [HUGE]),
        ("assert 10 ** f() == 1", [HUGE]),
        ("assert f() * f() == 1", [HUGE, HUGE]),
        ("assert 1 << f() == 1", [HUGE]),
        ("assert 'a' * f() == 'a'", [10**12]),
        ("assert f() % 7 == 1", [HUGE]),
        ("assert round(f(), f()) == 1", [1.5, -HUGE]),
        ("assert f() == f()", [Decimal(1), HUGE]),
        ("assert f() == f()", [[Decimal(1)], [HUGE]]),
        ("assert f() | {1} == {1}", [{at * ((1 << 61) - 1) for at in range(60)}]),
        ("assert repr(f()) == '1'", [[HUGE]]),
        ("assert int(f()) == 1", ["9" * 4_000_000]),
        ("assert f() == 1", [HUGE]),
        ("assert f() < 0.5", [HUGE]),
        ("assert f() == [1]", [list(range(400_000))]),
        ("assert f().count('a') == 1", [range(10**18)]),
        ("assert f()[0] == f().count('a')", [[1], range(10**18)]),
        ("assert f() * f() == f() * f()", [["x" * 1_000_000], 10**6, ["x" * 1_000_000], 10**6]),
        ("assert f().rfind(f()) == 1", ["a" * 1_000_000, "b" + "a" * 500_000]),
        ("assert f().strip(f()) == 'a'", ["a" * 1_000_000, "b" * 1_000_000 + "a"]),
        ("assert f().split() == ['a']", ["ab " * 3_000_000]),
        ("assert ['a', 'b'].index(f()) == 0", ["ab " * 3_000_000]),
        ("assert {'a': 1}[f()] == 1", ["ab " * 3_000_000]),
        ("assert range(9)[f()] == 1", [range(1 << 63)]),
        ("import pytest\nassert f() == pytest.approx(1000, rel=f())", [1, "x" * 8_000_000]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_values_are_compared_at_once_and_fail(tests, values):
    started = time.process_time()
    assert not any(passed(tests, *values))
    assert time.process_time() - started < 5  # done in earnest, these take minutes


LAZY = range(3 * 10**7)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_no_operation_walks_through_a_range_that_a_candidate_returned(operation):
    started = time.process_time()
    for operands in ((LAZY,), (LAZY, LAZY), ("a", LAZY), (LAZY, "a"), ({1, 2}, LAZY), ([LAZY, LAZY],)):
        with contextlib.suppress(Exception):
            OPERATIONS[operation](*operands)
    assert time.process_time() - started < 0.3  # one walk takes more


def test_values_are_looked_through_once_however_many_checks_read_them():
    suite = compile_suite("r = f()\n" + "assert abs(r[0] - 1) < 0.5\n" * 400)
    started = time.process_time()
    assert all(checked.passed for checked in judge(suite.table, [Value([1] * 1_000_000)]))
    assert time.process_time() - started < 2  # 400 walks take 30 s


def test_arrays_do_not_broadcast_on_the_host():
    numpy = pytest.importorskip("numpy")
    wide, tall = numpy.zeros((1, 100_000)), numpy.zeros((100_000, 1))
    assert passed("assert f() == f()", wide, tall) == [False]
    assert passed("assert f() == 0", numpy.zeros(1)) == [False]


@pytest.mark.parametrize(
    "value",
    [HUGE, "x" * 10_000, [[["deep"] * 9] * 9] * 9, {"k" * 500: Opaque("E" * 500)}, "\ud800"],
    ids=["integer", "text", "nested", "opaque", "surrogate"],
)
def test_what_came_back_is_shown_in_a_line(value):
    text = shown(value)
    assert len(text) <= 130
    text.encode()


def test_calls_are_written_as_their_process_reads_them():
    table = compile_suite("xs = [(1,), 2.0]\nf(xs, key={'a': {1}})\nassert xs == []").table
    ((name, arguments, keywords, in_place),) = json.loads(encode_calls(table))
    assert (name, in_place) == ("f", True)
    assert decode(json.dumps(arguments).encode()) == [[(1,), 2.0]]
    assert decode(json.dumps(keywords).encode()) == {"key": {"a": {1}}}


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        ("1 2\nYES", "1 2\nYES\n", True),
        ("1 2\nYES", "1 2   \r\nYES\r\n\r\n", True),
        ("1 2\nYES", "1\n2\nYES", True),
        ("3.0", "3", True),
        ("0.50", "0.5", True),
        ("-0.0", "0", True),
        ("+1.5", "1.5", True),
        ("", "\n", True),
        ("YES", "yes", False),
        ("1 2", "1 2 3", False),
        ("1 2", "12", False),
        ("007", "7", False),
        ("0.3333", "0.33333", False),
        ("1e3", "1000", False),
        ("1", "", False),
        ("1.", "1", True),
        ("1.2.3", "1.2.30", False),
        ("a.0", "a", False),
    ],
)
def test_outputs_are_the_same_words_in_the_same_order(expected, got, right):
    assert same_output(expected, got) is right
    assert same_output(got, expected) is right


def test_outputs_are_compared_a_word_at_a_time():
    long = "ab " * 100_000
    tracemalloc.start()
    try:
        assert same_output(long, long + "\n")
        assert not same_output("ab ab", long)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(long)  # all words at once take 17 times the text
    finally:
        tracemalloc.stop()
