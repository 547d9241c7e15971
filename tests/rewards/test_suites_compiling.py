"""What becomes a table of calls, what needs a process, and which tests cannot judge anything."""

import json
import pickle
import sys
from copy import deepcopy

import pytest

from steelyard.rewards.suites import Fault, Raised, Suite, Value, compile_suite, judge, source_of


def run(suite, **functions):
    """Make a table's calls on functions of our own, as a boundary would: every argument is a copy."""
    outcomes = []
    for call in suite.table.calls:
        arguments = deepcopy(call.arguments)
        try:
            value = functions[call.function](*arguments, **deepcopy(call.keywords))
        except Exception as error:  # noqa: BLE001 - a candidate may raise anything
            outcomes.append(Raised(type(error).__name__, str(error)))
        else:
            outcomes.append(Value(value, arguments))
    return [checked.passed for checked in judge(suite.table, outcomes)]


def table(tests, entry_point=None, **settings):
    suite = compile_suite(tests, entry_point, **settings)
    assert isinstance(suite, Suite), suite
    assert suite.kind == "table", suite.why_not_table
    return suite


def double(x):
    return x * 2


# --- the three forms of Python, told by their syntax


BOTH = "assert double(2) == 4\n{0}assert double('a') == 'aa'\n"
PLAIN, INSIDE = BOTH.format(""), "    " + BOTH.format("    ")
CHECK = f"def check(candidate):\n{INSIDE}".replace("double", "candidate")
CLASS = "class TestDouble:\n    'Both.'\n    def test_number(self):\n        assert double(2) == 4\n"
TURNS = "for x, y in [(2, 4), ('a', 'aa')]:\n    assert double(x) == y, f'{x} fails'"
ROWS = "import pytest\n@pytest.mark.parametrize('x, y', [(2, 4), ('a', 'aa')])\n"


@pytest.mark.parametrize(
    "tests",
    [
        PLAIN,
        PLAIN.splitlines(),
        f"from candidate import double\n\ndef test_it():\n{INSIDE}",
        f"import candidate\n\ndef test_it():\n{INSIDE}".replace("double", "candidate.double"),
        f"from candidate import *\n{CHECK}",
        f"{CHECK}\ncheck(double)",
        f"METADATA = {{'author': 'me'}}\n{CHECK}\ndef test_all():\n    check(double)",
        f"{CLASS}    def test_text(self):\n        assert double('a') == 'aa'",
        f"{ROWS}def test_it(x, y):\n    assert double(x) == y",
        TURNS,
        f"if __name__ == '__main__':\n{INSIDE}",
    ],
)
def test_a_suite_of_plain_asserts_is_a_table_in_every_form(tests):
    suite = table(tests, "double")
    assert suite.planned == 2
    assert [call.arguments for call in suite.table.calls] == [(2,), ("a",)]
    assert suite.names == ("double",)
    assert run(suite, double=double) == [True, True]
    assert run(suite, double=abs) == [False, False]


def test_stated_values_are_computed_when_the_suite_is_compiled():
    tests = (
        "import math\nbig = 10 ** 6\nxs = [0] * 5 + list(range(3))\n"
        "assert f(xs, -big, float('inf'), {1, 2}, {'a': (1,)}, b'x', 2 - 1j, set(), math.pi) == 'a' * 3"
    )
    (call,) = table(tests).table.calls
    expected = ([0, 0, 0, 0, 0, 0, 1, 2], -1_000_000, float("inf"), {1, 2}, {"a": (1,)}, b"x", 2 - 1j, set())
    assert call.arguments[:-1] == expected


@pytest.mark.parametrize(
    ("line", "right", "wrong"),
    [
        ("assert f(1)", [0], []),
        ("assert not f(1)", [], [0]),
        ("assert f(1) is None", None, False),
        ("assert f(1) is True", True, 1),
        ("assert f(1) != 3 and f(2) in (4, 5)", 4, 3),
        ("assert 0 <= f(1) < 10", 9, 10),
        ("assert abs(f(1) - 0.5) < 1e-6", 0.5 + 1e-9, 0.51),
        ("assert round(f(1), 2) == 0.33", 1 / 3, 0.34),
        ("import math\nassert math.isclose(f(1), 2.0, rel_tol=1e-3)", 2.001, 2.1),
        ("import pytest\nassert f(1) == pytest.approx(0.3)", 0.1 + 0.2, 0.31),
        ("from pytest import approx\nassert f(1) == approx([1.0, 2.0], abs=0.1)", [1.05, 2], [1.2, 2]),
        ("assert len(f(1)) == 2 and f(1)[0] == 'a'", "ab", "abc"),
        ("assert isinstance(f(1), (list, tuple))", (1,), {1}),
        ("assert type(f(1)) is int", 1, True),
        ("a, b = f(1)\nassert a == 1 and b == 2", (1, 2), (1, 2, 3)),
        ("assert f(1).strip().lower() == 'yes'", " Yes\n", "no"),
        ("assert 'es' in f(1).lower() and sorted(f(1).split()) == ['YES']", "YES", "no"),
        ("assert f(1) in (f(1), 2) and max(f(1), 2) == 3", 3, 2),
        ("assert round(f(1), ndigits=1) == 0.5", 0.51, 0.6),
        ("assert f(1).replace('a', 'b', 1) == 'ba'", "aa", "bb"),
        ("assert str(f(1)) == '[1, 2]'", [1, 2], (1, 2)),
        ("want = {'a': 1}\nassert f(1) == want, 'message'", {"a": 1}, {"a": 2}),
        ("assert all(f(x) > 0 for x in (1, 2, 3))", 1, 0),
        ("def helper(x):\n    y = f(x)\n    return y + 1\nassert helper(1) == 3", 2, 3),
        ("n = 1\nn += 1\nassert f(n if n > 1 else 0) == 7", 7, 8),
    ],
)
def test_a_check_means_in_a_table_what_it_means_in_python(line, right, wrong):
    suite = table(line)
    assert all(run(suite, f=lambda *_: right))
    assert not all(run(suite, f=lambda *_: wrong))


def test_an_exception_that_must_be_raised_is_a_check():
    suite = table(
        "import pytest\nwith pytest.raises(LookupError):\n    f({}, 'a')\nassert f({'a': 1}, 'a') == 1"
    )
    assert run(suite, f=lambda d, key: d[key]) == [True, True]
    assert run(suite, f=dict.get) == [False, True]
    assert run(suite, f=lambda *_: 1 / 0) == [False, False]


def test_a_call_that_no_check_reads_must_return():
    suite = table("f(0)\nassert f(2) == 0.5")
    assert run(suite, f=lambda x: 1 / x) == [True, False]
    assert run(suite, f=lambda x: 1 / (x or 1)) == [True, True]


# --- arguments after the call


IN_PLACE = "xs = [3, 1, 2]\nsort(xs)\nassert xs == [1, 2, 3]"


def test_an_argument_that_a_check_looks_at_alone_is_read_after_the_call():
    suite = table(IN_PLACE)
    assert suite.table.calls[0].in_place
    assert run(suite, sort=list.sort) == [True]
    assert run(suite, sort=sorted) == [False]


def test_a_check_that_an_argument_is_left_alone_sees_what_the_call_did():
    suite = table("xs = [3, 1]\nassert sort(xs) == [1, 3]\nassert xs == [3, 1]")
    assert run(suite, sort=sorted) == [True, True]
    assert run(suite, sort=lambda xs: xs.sort() or xs) == [True, False]


def test_clearing_an_argument_pleases_no_check_that_holds_the_result():
    suite = table("xs = [1, 2]\nassert squares(xs) == [x * x for x in xs]")
    assert run(suite, squares=lambda xs: xs.clear() or []) == [False]
    suite = table("xs, ys = [1], [2]\nassert f(xs) == f(ys)\nassert len(xs) == 1")
    assert run(suite, f=lambda xs: xs.clear()) == [True, False]


def test_in_place_reads_every_argument_as_the_call_left_it():
    tests = "xs = [3, 1]\nr = sort(xs)\nassert r == xs"
    suite = table(tests, in_place=True)
    assert suite.table.calls[0].in_place
    assert run(suite, sort=lambda xs: xs.sort() or xs) == [True]
    assert compile_suite(tests).digest != suite.digest


def test_two_arguments_that_calls_may_have_changed_are_not_compared_in_a_table():
    assert compile_suite("xs, ys = [1], [2]\nf(xs, ys)\nassert xs == ys").kind == "judge"


# --- what needs a process


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("assert f(f(2)) == 8", "a result given to another call"),
        ("import random\nx = random.randint(1, 9)\nassert f(x) == 2 * x", "randint of random"),
        ("s = Stack()\ns.push(1)\nassert s.pop() == 1", "an object of a class|a method"),
        ("s = Stack()\nassert len(s) == 0", "an object of a class"),
        ("assert Point(1, 2) == Point(1, 2)", "an object of a class"),
        ("assert f(lambda x: x) == 1", "Lambda"),
        ("assert f(int) == 1", "an argument of type"),
        ("assert sorted(f(1)) == [1]", "iterates over a result"),
        ("assert 1 in f(1)", "iterates over a result"),
        ("assert sorted(f(1)[0]) == [1]", "iterates over a result"),
        ("a, b = f(1)\nassert sum(a) == 3", "iterates over a result"),
        ("assert sum(f(1), 0) == 3", "iterates over a result"),
        ("assert list(zip([1], f(1))) == []", "iterates over a result"),
        ("assert {1, 2}.issubset(f(1))", "iterates over a result"),
        ("assert {1, 2}.isdisjoint(f(1) or [])", "iterates over a result"),
        ("assert max(f(1), f(2), key=list) == 1", "a key of max"),
        ("assert f(range(10 ** 30, 10 ** 30 + 5)) == 1", "an argument of range"),
        ("assert [x for x in f(1)] == [1]", "iterates over a result"),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "a Try statement"),
        ("i = 0\nwhile i < 3:\n    assert f(i) == i\n    i += 1", "a While statement"),
        ("def test(thing):\n    assert f(1) == 1", "fixtures of test"),
        ("xs = [1]\nxs.append(2)\nassert f(xs) == 3", "a method"),
        ("import numpy as np\nassert np.allclose(f(1), 1)", "allclose of numpy"),
        ("def check(candidate):\n    assert candidate(1) is candidate(2)\ncheck(f)", "identity"),
        ("assert f([0] * 10 ** 7) == 0", "a sequence of 10000000 elements"),
        ("assert f([[0] * 500] * 500) == 0", "too large to be sent"),
        ("for i in range(5000):\n    assert f(i) == i", "a loop of 5000 turns"),
        ("assert f(10 ** 10 ** 10) == 0", "a huge power"),
        ("if f(1):\n    assert f(2)", "a condition on a result"),
    ],
)
def test_what_a_table_cannot_hold_goes_to_a_judge_and_says_why(tests, why):
    suite = compile_suite(tests)
    assert suite.kind == "judge"
    assert any(part in suite.why_not_table for part in why.split("|")), suite.why_not_table
    assert suite.source == tests.encode()
    assert suite.planned >= 1


def test_tests_that_need_the_candidates_own_process_are_a_fault_unless_that_is_asked_for():
    tests = "def test_prints(capsys):\n    hello()\n    assert capsys.readouterr().out == 'hello\\n'"
    pytest.importorskip("steelyard.sandbox.guest.judge")
    assert "tests:cooperative" in compile_suite(tests).reason
    assert compile_suite(tests, cooperative=True).kind == "cooperative"
    assert compile_suite("assert f(2) == 4", cooperative=True).kind == "table"


def test_the_candidates_names_are_told_for_a_judge_too():
    imports = "from candidate import Stack, size as s\nimport candidate\n"
    tests = f"{imports}def test():\n    stack = Stack()\n    assert s(stack) == candidate.empty(stack)"
    assert compile_suite(tests, "Stack").names == ("Stack", "empty", "size")


# --- rows that cannot judge


@pytest.mark.parametrize(
    ("tests", "entry_point", "said"),
    [
        (None, None, "missing or null"),
        (7, None, "is int"),
        ("", None, "is empty"),
        ("   \n", None, "is empty"),
        ("assert f(1) ==", None, "no Python, line 1"),
        ("def check(candidate):\n    assert candidate(1) == 2", None, "column 'entry_point'"),
        ("assert f(1)", 5, "column 'entry_point' is int"),
        ("x = 1", "f", "no check"),
        ("def test_f():\n    pass", "f", "no check"),
        ("assert True", "f", "no check"),
        ("assert 1 == 2", "f", "line 1: this check fails whatever the candidate does"),
        ([], None, "no test"),
        ([1, 2], None, "no 'input' and 'output'"),
        ({"inputs": "1", "outputs": "2"}, None, "without the lists"),
        ({"inputs": ["1"], "outputs": []}, None, "1 inputs and 0 outputs"),
        ({"inputs": [], "outputs": []}, None, "no test"),
        ({"inputs": [{"a": 1}], "outputs": ["2"]}, None, "number 1"),
        ("x = " + "[" * 5_000 + "]" * 5_000, None, "cannot be parsed|no Python"),
        ("assert f(1) == 1\x00", None, "column 'tests'"),
        ("assert f(" + "9" * 5_000 + ")", None, "column 'tests'"),
        ("#" * 10_000_001, None, "10,000,"),
        ([{"input": {1, 2}, "output": "1"}], None, "that is set"),
        (object(), None, "no JSON"),
    ],
)
def test_tests_that_cannot_judge_are_a_fault_in_words(tests, entry_point, said):
    suite = compile_suite(tests, entry_point)
    assert isinstance(suite, Fault)
    assert any(part in suite.reason for part in said.split("|")), suite.reason


def test_a_check_that_asks_the_candidate_nothing_is_not_planned():
    assert table("assert f(1) == 2\nassert True, 'well done'").planned == 1


def test_deeply_nested_tests_are_never_an_error():
    for tests in (
        "assert " + "f(" * 90 + "1" + ")" * 90,
        "assert f(1) == " + "-" * 4_000 + "1",
        "f(1)" + ".a" * 4_000,
    ):
        assert isinstance(compile_suite(tests), Suite | Fault)


def test_values_nested_by_loops_are_not_sent():
    suite = compile_suite("x = 1\nfor _ in range(300):\n    x = [x]\nassert f(x) == 1")
    assert "too deep" in suite.why_not_table


# --- one compilation for a group


def test_equal_tests_are_compiled_once_whatever_object_holds_them():
    tests = [{"input": "1", "output": "2"}]
    assert compile_suite(tests) is compile_suite(json.loads(json.dumps(tests)))
    assert compile_suite("assert f(1) == 2") is compile_suite("assert {}(1) == 2".format("f"))


def test_settings_and_entry_point_name_another_suite():
    tests = "assert f(1) == 2"
    made = [
        compile_suite(tests, **given)
        for given in ({}, {"share": True}, {"in_place": True}, {"entry_point": "f"})
    ]
    assert len({suite.digest for suite in made}) == 4


def test_a_suite_can_be_pickled():
    for tests in ("assert isinstance(f([1]), int)", "assert f(f(1))", [{"input": "1", "output": "2"}]):
        suite = compile_suite(tests)
        assert pickle.loads(pickle.dumps(suite)) == suite  # noqa: S301 - our own


def test_the_number_of_kept_suites_is_bounded_by_their_bytes():
    from steelyard.rewards.suites import compiling

    for at in range(12):
        compile_suite(f"assert f({at}) == 1\n#" + "x" * 2_000_000)
    assert compiling._kept._bytes <= 64_000_000


# --- real suites


@pytest.mark.needs("data")
def test_nine_of_ten_real_suites_are_tables_and_every_right_completion_has_a_source(data_dir):
    with (data_dir / "code_humaneval_mbpp.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    suites = {
        (row["tests"], row["entry_point"]): compile_suite(row["tests"], row["entry_point"]) for row in rows
    }
    assert all(isinstance(suite, Suite) for suite in suites.values())
    kinds = [suite.kind for suite in suites.values()]
    assert set(kinds) <= {"table", "judge"}
    assert kinds.count("table") >= 0.89 * len(kinds)  # 146 of 164
    for row in rows:
        suite = suites[row["tests"], row["entry_point"]]
        source = source_of(row["completion"], row["prompt"], row["completion_mode"], suite.names)
        if row["known_label"]:
            compile(source.text, row["id"], "exec")


def test_no_module_of_a_row_is_imported():
    before = set(sys.modules)
    compile_suite("import this_is_not_there, antigravity\nassert f(1) == 2")
    assert "antigravity" not in set(sys.modules) - before
