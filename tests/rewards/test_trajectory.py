"""An agent is paid for the state and the files that the environment confirms, never for what it says."""

import json
import pickle
import time
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Context
from steelyard.rewards.jsonvalues import unequal
from steelyard.rewards.trajectory import files, judge_turns, state, turns
from steelyard.rollout import Rollout

END = {
    "orders": [{"id": 7, "status": "paid", "lines": [{"sku": "a/b", "n": 2}]}, {"id": 8, "status": "open"}],
    "user": {"name": "Ada", "vip": True, "note": None},
    "count": 2,
    "~": "tilde",
}


def row(completion="Done.", files=None, state=None, **columns):
    return Rollout("a", "Q", completion, columns, (0, 0), 0, "rows.jsonl:1", files, state)


def met(expected, there=END, match="subset"):
    reward = state(match)
    assert reward.lint({"expected_state": expected}) is None
    verdict = reward.rule(row(state=there, expected_state=expected))
    assert (verdict.value, verdict.code) in ((1.0, None), (0.0, "wrong"))
    return verdict.value == 1.0


# state


@pytest.mark.parametrize(
    "expected",
    [
        {"count": 2},
        {"count": 2.0},
        {"user": {"vip": True}},
        {"user": {"note": None}},
        {"user": {}},
        {"orders": END["orders"]},
        END,
        json.dumps({"user": {"name": "Ada"}}),
    ],
)
def test_every_key_that_is_expected_is_there_with_an_equal_value(expected):
    assert met(expected)


@pytest.mark.parametrize(
    "expected",
    [
        {"count": 3},
        {"count": "2"},
        {"count": True},
        {"count": [2]},
        {"count": None},
        {"missing": None},
        {"user": {"vip": 1}},
        {"user": {"vip": "true"}},
        {"user": {"name": "ada"}},
        {"user": {"name": "Ada "}},
        {"user": {"note": False}},
        {"user": {"note": ""}},
        {"user": ["Ada"]},
        {"orders": []},
        {"orders": END["orders"][:1]},
        {"orders": END["orders"][::-1]},
        {"orders": [{"id": 7}, {"id": 8}]},  # what stands in a list is equal as a whole
        {"orders": {"0": END["orders"][0]}},
        [END],
        "Ada",
        7,
    ],
)
def test_anything_else_is_wrong(expected):
    assert not met(expected)


@pytest.mark.parametrize(
    ("expected", "there", "equal"),
    [
        ([[1, 3]], [(1, 3)], False),
        ([1, 3], (1, 3), False),
        ([1], {"0": 1}, False),
        ([True], [1], False),
        ([0], [False], False),
        ([1], [1.0], True),
        ([2**53 + 1], [float(2**53)], False),
        ([0.0], [-0.0], True),
        ([None], [0], False),
        ([""], [None], False),
        ([], [], True),
        ([[]], [{}], False),
        ([1], [float("nan")], False),
        ([1], [1, 1], False),
    ],
)
def test_types_count_as_json_has_them(expected, there, equal):
    assert met(expected, there, "exact") is equal
    assert met(expected, there) is equal


def test_exact_lets_nothing_else_stand_there():
    assert met(END, END, "exact")
    assert not met({"count": 2}, END, "exact")
    assert not met({**END, "user": {"name": "Ada"}}, END, "exact")
    assert met({}, {}, "exact")
    assert not met({}, {"a": 1}, "exact")


@pytest.mark.parametrize(
    ("expected", "right"),
    [
        ({"/orders/0/status": "paid"}, True),
        ({"/orders/0/status": "paid", "/count": 2}, True),
        ({"/orders/0/status": "paid", "/count": 3}, False),
        ({"/orders/0": {"status": "paid"}}, True),
        ({"/orders/0/lines/0/sku": "a/b"}, True),
        ({"/~0": "tilde"}, True),
        ({"": {"count": 2}}, True),
        ({"/orders/1/status": "paid"}, False),
        ({"/orders/2/status": "paid"}, False),
        ({"/orders/-/status": "paid"}, False),
        ({"/orders/00/status": "paid"}, False),
        ({"/orders/-1/status": "open"}, False),
        ({"/orders/٠/status": "paid"}, False),
        ({"/count/0": 2}, False),
        ({"/user/note": None}, True),
        ({"/user/missing": None}, False),
        ({"/user/": None}, False),
    ],
)
def test_pointers_lead_into_lists_and_nowhere_else(expected, right):
    assert met(expected, END, "pointers") is right


@pytest.mark.parametrize(  # the examples of RFC 6901, section 5
    ("pointer", "value"),
    [
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_are_those_of_the_standard(pointer, value):
    there = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4}
    there |= {"i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}
    assert met({pointer: value}, there, "pointers")


def test_without_a_confirmed_state_there_is_no_answer_whatever_the_completion_says():
    said = json.dumps({"count": 2})
    verdict = state().rule(row(said, expected_state={"count": 2}))
    assert (verdict.value, verdict.code) == (state().floor, "no_answer")
    assert "environment" in verdict.reason


def test_a_wrong_state_says_where():
    verdict = state().rule(row(state=END, expected_state={"user": {"vip": False, "name": "Ada"}}))
    assert verdict.reason == "at /user/vip: True, expected False"
    verdict = state("pointers").rule(row(state=END, expected_state={"/orders/5": {"status": "paid"}}))
    assert verdict.reason == "'/orders/5', as a whole: nothing, expected an object of 1"


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("subset", None),
        ("subset", {}),
        ("subset", "{}"),
        ("subset", '{"a": '),
        ("subset", '{"a": 1, "a": 2}'),
        ("subset", '{"a": NaN}'),
        ("subset", {"a": float("nan")}),
        ("subset", {"a": float("inf")}),
        ("subset", {"a": (1, 2)}),
        ("subset", {"a": {1: 2}}),
        ("exact", {"a": [{"b": object()}]}),
        ("pointers", {}),
        ("pointers", {"orders/0": 1}),
        ("pointers", {"/a~2": 1}),
        ("pointers", [1]),
        ("pointers", "text"),
    ],
)
def test_an_expectation_that_cannot_be_met_or_is_met_by_all_is_a_fault(match, expected):
    assert "'expected_state'" in state(match).lint({"expected_state": expected})


def test_a_direct_call_without_an_expectation_is_refused():
    for reward in (state(), state("pointers"), files()):
        with pytest.raises(RefusedError, match="expected_"):
            reward.rule(row(state=END, files={}))


def test_there_is_no_other_way_to_match():
    with pytest.raises(RefusedError, match="subset, exact, pointers"):
        state("superset")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(values, values)
def test_equal_is_what_typed_json_texts_say(one, other):
    def told(value):
        """Text that is equal where values are: numbers as fractions, keys sorted."""
        if isinstance(value, dict):
            return f"{{{sorted((key, told(inner)) for key, inner in value.items())}}}"
        if isinstance(value, list):
            return f"[{[told(inner) for inner in value]}]"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f"number {value.as_integer_ratio()}"
        return repr((type(value).__name__, value))

    assert (unequal(one, other) is None) == (told(one) == told(other))
    assert unequal(one, one) is None


@given(st.dictionaries(st.text(max_size=2), values, min_size=1, max_size=4), st.data())
def test_leaving_keys_out_of_an_expectation_never_makes_it_harder(there, data):
    keys = data.draw(st.sets(st.sampled_from(sorted(there)), min_size=1))
    assert unequal({key: there[key] for key in keys}, there, subset=True) is None
    assert (unequal({key: there[key] for key in keys}, there) is None) == (len(keys) == len(there))


# files


def left(expected, there, **settings):
    reward = files(**settings)
    assert reward.lint({"expected_files": expected}) is None
    return reward.rule(row(files=there, expected_files=expected))


@pytest.mark.parametrize(
    ("expected", "text", "right"),
    [
        ("4", "4", True),
        ("4", "4\n", True),
        ("4\n", "4", True),
        ("4\n", "4\n", True),
        ("4", "4\n\n", False),
        ("4", " 4", False),
        ("a\nb", "a\r\nb", False),
        ("", "", True),
        ("", "\n", True),
        ("", "x", False),
        ({"contains": "def f"}, "x\ndef f():", True),
        ({"contains": ["a", "b"]}, "b a", True),
        ({"contains": ["a", "b"]}, "b", False),
        ({"contains": "A"}, "a", False),
        ({"lines": ["a", "b"]}, "a\nb", True),
        ({"lines": ["a", "b"]}, "a  \r\nb\t\n", True),
        ({"lines": ["a ", "b"]}, "a\nb\n", True),
        ({"lines": ["a", "b"]}, "a\nb\n\n", False),
        ({"lines": ["a", "b"]}, "b\na", False),
        ({"lines": ["a", "b"]}, " a\nb", False),
        ({"lines": ["a\u2028b"]}, "a\u2028b\n", True),
        ({"lines": []}, "", True),
        ({"lines": []}, "a", False),
        ({"lines": [""]}, "\n", True),
        ({"json": {"n": [1, 2]}}, ' {"n": [1.0, 2]}\n', True),
        ({"json": {"n": 1}}, '{"n": true}', False),
        ({"json": {"n": 1}}, '{"n": "1"}', False),
        ({"json": {"n": 1}}, '{"n": 1, "m": 2}', False),
        ({"json": None}, "null", True),
        ({"json": None}, "", False),
        ({"json": {"n": 1}}, '{"n": 2, "n": 1}', False),
        ({"json": {"n": 1}}, '```json\n{"n": 1}\n```', False),
        ({"json": "x"}, '"x"', True),
        ({"sha256": sha256(b"4\n").hexdigest()}, "4\n", True),
        ({"sha256": sha256(b"4\n").hexdigest().upper()}, "4\n", True),
        ({"sha256": sha256(b"4\n").hexdigest()}, "4", False),
        (None, "4", False),
        (None, "", False),
    ],
)
def test_a_file_is_what_is_expected_of_it(expected, text, right):
    verdict = left({"a.txt": expected}, {"a.txt": text})
    assert (verdict.value == 1.0) is right
    assert (verdict.code is None) is right


def test_a_file_that_must_not_be_there_is_not_there():
    assert left({"a.txt": None}, {"b.txt": "x"}).value == 1.0
    assert (
        left({"a.txt": None}, {"./a.txt": "x"}).reason == "1 of 1 are not as expected; 'a.txt' is still there"
    )


@pytest.mark.parametrize(
    "path", ["out/a.txt", "./out/a.txt", "out//a.txt", "out/./a.txt", "././out///./a.txt"]
)
def test_a_path_is_what_it_seems_however_it_is_written(path):
    assert left({"out/a.txt": "4"}, {path: "4"}).value == 1.0
    assert left({path: "4"}, {"out/a.txt": "4"}).value == 1.0


@pytest.mark.parametrize(
    "path",
    [
        "/out/a.txt",
        "//out/a.txt",
        "../out/a.txt",
        "out/../out/a.txt",
        "x/../out/a.txt",
        "out/a.txt/..",
        "OUT/a.txt",
        "out/a.txt ",
        "out\\a.txt",
        "a.txt",
        "",
        ".",
    ],
)
def test_no_other_path_passes_for_it(path):
    assert left({"out/a.txt": "4"}, {path: "4"}).code == "wrong"


def test_two_texts_under_one_path_are_none_whichever_comes_first():
    for texts in (["4", "5"], ["5", "4"], ["4", "5", "4"]):
        paths = ["a.txt", "./a.txt", ".//a.txt"]
        assert left({"a.txt": "4"}, dict(zip(paths, texts, strict=False))).value == 0.0
        assert left({"a.txt": None}, dict(zip(paths, texts, strict=False))).value == 0.0
    assert left({"a.txt": "4"}, {"a.txt": "4", "./a.txt": "4"}).value == 1.0


def test_all_or_nothing_unless_a_share_is_asked_for():
    expected = {"a": "1", "b": "2", "c": {"contains": "3"}}
    assert left(expected, {"a": "1", "b": "2", "c": "333"}).value == 1.0
    some = {"a": "1", "c": "333"}
    assert left(expected, some).value == 0.0
    assert left(expected, some, share=True).value == pytest.approx(2 / 3)
    assert left(expected, some, share=True).code == "wrong"
    assert left(expected, {}, share=True).value == 0.0


def test_leaving_things_alone_earns_no_share_and_a_forbidden_file_takes_all():
    expected = {"a": "1", "b": "2", "tmp": None, "log": None}
    assert left(expected, {}, share=True).value == 0.0
    assert left(expected, {"a": "1"}, share=True).value == 0.5
    assert left(expected, {"a": "1", "b": "2", "tmp": ""}, share=True).value == 0.0
    assert left({"tmp": None, "log": None}, {"tmp": ""}, share=True).value == 0.0


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy"), min_size=1), st.data())
def test_a_share_lies_between_nothing_and_full_marks_and_is_full_when_all_is_met(expected, data):
    there = data.draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy")))
    share, whole = (left(expected, there, share=share).value for share in (True, False))
    assert share == sum(there.get(path) == text for path, text in expected.items()) / len(expected)
    assert whole == (share == 1.0)


@pytest.mark.parametrize(
    ("there", "code"),
    [(None, "no_answer"), ([], "malformed"), ("a.txt", "malformed"), ({"a.txt": 4}, "wrong"), ({}, "wrong")],
)
def test_what_is_no_file_is_the_floor(there, code):
    verdict = files().rule(row("a.txt holds 4", files=there, expected_files={"a.txt": "4"}))
    assert (verdict.value, verdict.code) == (0.0, code)


@pytest.mark.parametrize(
    "expected",
    [
        None,
        {},
        [],
        "a.txt",
        "{}",
        {"": "x"},
        {".": "x"},
        {"/a": "x"},
        {"../a": "x"},
        {"a/../b": "x"},
        {"a": "x", "./a": "y"},
        {"a": 4},
        {"a": ["x"]},
        {"a": {}},
        {"a": {"contains": "x", "lines": ["x"]}},
        {"a": {"contains": None}},
        {"a": {"contains": ""}},
        {"a": {"contains": []}},
        {"a": {"contains": ["x", ""]}},
        {"a": {"contains": [1]}},
        {"a": {"lines": "x"}},
        {"a": {"sha256": "abc"}},
        {"a": {"json": float("nan")}},
        {"a": {"matches": "x"}},
    ],
)
def test_expected_files_that_say_nothing_sound_are_a_fault(expected):
    assert "'expected_files'" in files().lint({"expected_files": expected})


def test_expectations_may_be_json_text():
    text = json.dumps({"a": {"json": {"n": 1}}})
    assert left(text, {"a": '{"n": 1}'}).value == 1.0


# turns


def episode(*calls, words="go on"):
    messages = []
    for count in calls:
        messages.append({"role": "assistant", "content": words, "tool_calls": [{"name": "f"}] * count})
        messages.append({"role": "tool", "content": "ok"})
    return row(messages)


@pytest.mark.parametrize(
    ("took", "value"), [(1, 1.0), (2, 1.0), (3, 0.75), (4, 0.5), (5, 0.25), (6, 0.0), (50, 0.0)]
)
def test_fewer_turns_are_worth_more(took, value):
    assert judge_turns(episode(*[1] * took), best=2, limit=6).value == value
    assert judge_turns(episode(took), best=2, limit=6, count="calls").value == value


def test_of_a_turn_with_many_calls_each_counts_where_calls_do():
    assert turns(1, 11).rule(episode(6)).value == 1.0
    slow = turns(1, 11, count="calls").rule(episode(6))
    assert (slow.value, slow.code, slow.reason) == (0.5, "overlong", "6 calls, best 1, limit 11")


@pytest.mark.parametrize(
    "nothing",
    [row(""), row(" \n"), row([]), row([{"role": "tool", "content": "ok"}]), episode(0, 0, words="")],
)
def test_an_episode_in_which_nothing_was_done_earns_nothing(nothing):
    for count in ("turns", "calls"):
        verdict = turns(5, 20, count=count).rule(nothing)
        assert (verdict.value, verdict.code) == (0.0, "no_answer")


def test_words_without_a_call_are_nothing_where_calls_count():
    assert turns(5, 20).rule(row("Done.")).value == 1.0
    assert turns(5, 20, count="calls").rule(row("Done.")).code == "no_answer"
    assert turns(5, 20, count="calls").rule(episode(0, words="Done.")).code == "no_answer"


def test_empty_turns_are_turns():
    assert turns(1, 5).rule(episode(1, 0, 0, words="")).value == 0.5


@given(st.integers(1, 20), st.integers(1, 20), st.lists(st.integers(0, 3), max_size=30))
def test_one_more_turn_never_earns_more_and_all_lies_in_range(best, more, calls):
    for count in ("turns", "calls"):
        reward = turns(best, best + more, count=count)
        here = reward.rule(episode(1, *calls)).value
        assert reward.floor <= reward.rule(episode(1, *calls, 1)).value <= here <= 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"best": 0},
        {"best": 20},
        {"best": 1.0},
        {"limit": True},
        {"count": "tokens"},
    ],
)
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(RefusedError, match="turns"):
        turns(**{"best": 5, "limit": 20} | settings)


# All three


def test_the_settings_are_in_the_identity_and_the_rewards_travel():
    made = [
        *(state(match) for match in ("subset", "exact", "pointers")),
        files(),
        files(share=True),
        turns(1, 5),
        turns(1, 6),
        turns(2, 5),
        turns(1, 5, count="calls"),
    ]
    assert len({reward.identity for reward in made}) == len(made)
    columns = {"expected_state": {"/count": 2}, "expected_files": {"a": "1"}}
    given_row = row([{"role": "assistant", "content": "x"}], {"a": "1"}, END, **columns)
    for reward in made:
        sent = pickle.loads(pickle.dumps(reward))  # noqa: S301 - our own bytes
        assert sent([given_row], Context()) == reward([given_row], Context())


def nested(depth, inner):
    for _ in range(depth):
        inner = [inner]
    return inner


def test_what_is_nested_deeply_is_compared_without_recursion():
    assert met({"a": nested(400, 1)}, {"a": nested(400, 1)})
    assert not met({"a": nested(400, 1)}, {"a": nested(400, 2)})
    deep = nested(100_000, 1)
    assert not met({"a": 1}, {"a": deep})
    assert not met({"a": nested(400, 1)}, {"a": deep})
    verdict = state().rule(row(state=nested(100_000, 2), expected_state=deep))
    assert verdict.code == "wrong"
    assert len(verdict.reason) < 200


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"n":' * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "9" * 5_000,
        "1e999999",
        "-" * 1_000_000,
        '"' + "\\u0000" * 100_000,
        "[" + "1," * 300_000 + "1]",
        "\ud800",
        "NaN",
        "Infinity",
        '{"n": NaN}',
    ],
)
def test_a_hostile_file_is_wrong_and_quickly_so(text):
    start = time.perf_counter()
    for expected in (
        {"json": {"n": 1}},
        {"contains": "a" * 1_000 + "b"},
        {"lines": ["a"]},
        {"sha256": "0" * 64},
        "a",
    ):
        assert left({"f": expected}, {"f": text}).code == "wrong"
    assert time.perf_counter() - start < 5  # quadratic would take minutes


def test_many_files_and_many_turns_are_judged_in_linear_time():
    start = time.perf_counter()
    assert left({"a": "1"}, {f"{'./' * 50}{at}": "x" for at in range(20_000)}).code == "wrong"
    assert left({"a": "1"}, {"a/" * 100_000: "x"}).code == "wrong"
    assert turns(1, 5).rule(episode(*[1] * 50_000)).value == 0.0
    assert time.perf_counter() - start < 5  # quadratic would take minutes
