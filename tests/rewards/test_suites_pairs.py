"""Tests that are data: standard input and output, and calls."""

import json

import pytest

from steelyard.rewards.suites import Pair, Value, compile_suite, judge


@pytest.mark.parametrize(
    "tests",
    [
        [{"input": "1 2\n", "output": "3\n"}, {"input": "", "output": "0"}],
        [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}, {"input": "", "output": "0"}],
        {"inputs": ["1 2\n", ""], "outputs": ["3\n", "0"]},
        {"inputs": ["1 2\n", ""], "outputs": ["3\n", "0"], "fn_name": None},
        json.dumps({"inputs": ["1 2\n", ""], "outputs": ["3\n", "0"]}),
    ],
)
def test_inputs_and_outputs_are_read_in_every_form(tests):
    suite = compile_suite(tests)
    assert (suite.kind, suite.planned) == ("stdio", 2)
    assert suite.pairs == (Pair("1 2\n", "3\n"), Pair("", "0"))


def test_lists_of_lines_are_joined():
    suite = compile_suite({"inputs": [["2", "1 2"]], "outputs": [["3", "4"]]})
    assert suite.pairs == (Pair("2\n1 2", "3\n4"),)


def _passed(suite, *values):
    return [checked.passed for checked in judge(suite.table, [Value(value) for value in values])]


@pytest.mark.parametrize(
    ("tests", "entry_point"),
    [
        ({"fn_name": "add", "inputs": ["1\n2", "[1]\n[2]"], "outputs": ["3", "[1, 2]"]}, None),
        (
            [
                {"input": "1\n2", "output": "3", "testtype": "functional"},
                {"input": "[1]\n[2]", "output": "[1, 2]", "testtype": "functional"},
            ],
            "add",
        ),
        ({"fn_name": "add", "inputs": [[1, 2], [[1], [2]]], "outputs": [3, [1, 2]]}, None),
        ({"fn_name": "add", "inputs": [[1, 2], [[1], [2]]], "outputs": [[3], [[1, 2]]]}, None),
    ],
)
def test_tests_with_a_function_are_a_table_of_calls(tests, entry_point):
    suite = compile_suite(tests, entry_point)
    assert suite.kind == "table"
    assert [(call.function, call.arguments) for call in suite.table.calls] == [
        ("add", (1, 2)),
        ("add", ([1], [2])),
    ]
    assert _passed(suite, 3, [1, 2]) == [True, True]
    assert _passed(suite, 3, (1, 2)) == [True, True]
    assert _passed(suite, 4, {1, 2}) == [False, False]


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ({"fn_name": "add", "inputs": ["1\n"], "outputs": ["1"]}, "one JSON value a line"),
        ({"fn_name": "add", "inputs": [1], "outputs": [1]}, "a list of its arguments"),
        ({"fn_name": 5, "inputs": [[1]], "outputs": [1]}, "'fn_name' that is int"),
        ({"fn_name": "a b", "inputs": [[1]], "outputs": [1]}, "without a name"),
        ([{"input": "1", "output": "2", "testtype": "functional"}], "without a name"),
        ([{"input": "1", "output": "2", "testtype": "x"}], "test types"),
        (
            [{"input": "1", "output": "2"}, {"input": "1", "output": "2", "testtype": "functional"}],
            "mixes",
        ),
        ({"inputs": [1], "outputs": ["1"]}, "an input (number 1) that is int"),
        ({"inputs": ["1"], "outputs": [None]}, "an output (number 1) that is NoneType"),
    ],
)
def test_what_is_no_test_is_a_fault_in_words(tests, said):
    assert said in compile_suite(tests).reason
