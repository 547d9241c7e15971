"""What enters: equal content has one digest, any other content another; records become rollouts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.rollout import (
    Group,
    Rollout,
    canonical_json,
    content_digest,
    final_text,
    from_record,
    parse_json,
)

BASE = {"prompt": "2 + 2?", "completion": "4", "columns": {"answer": "4", "k": [1, {"a": 2.5}]}}


def digest(**changed):
    return content_digest(**(BASE | changed))


def rollout(record, names=None, **more):
    return from_record(dict(record), names or {}, key=(0, 0), ordinal=0, line=7, where="r.jsonl:7", **more)


# --- the digest


CHANGES = [
    {"prompt": "2 + 2 ?"},
    {"prompt": ""},
    {"prompt": [{"role": "user", "content": "2 + 2?"}]},
    {"completion": "4 "},
    {"completion": [{"role": "assistant", "content": "4"}]},
    {"completion": json.dumps([{"role": "assistant", "content": "4"}])},
    {"completion": []},
    {"completion": "[]"},
    {"columns": {}},
    {"columns": {"answer": 4, "k": [1, {"a": 2.5}]}},
    {"columns": {"answer": "4", "k": [1, {"a": 2.25}]}},
    {"columns": {"answer": "4", "k": [{"a": 2.5}, 1]}},
    {"columns": {"answer": None}},
    {"columns": {"answer": "null"}},
    {"columns": {"answer": True}},
    {"columns": {"answer": 1}},
    {"columns": {"answer": 10**30}},
    {"columns": {"answer": 10**30 + 1}},
    {"columns": {"answer": float(10**30)}},
    {"columns": {"answer": "\ud800"}},
    {"columns": {"answer": "\\ud800"}},
    {"completion": "\ud800"},
    {"completion": "\ud801"},
    {"completion": "\\ud800"},
    {"files": {}},
    {"files": {"a.py": "x"}},
    {"files": {"a.py": "y"}},
    {"state": 0},
    {"state": {"done": True}},
    {"files": {}, "state": {"done": True}},
    {"prompt": "2 + 2?4", "completion": ""},
    {"prompt": "2 + 2", "completion": "?4"},
]


def test_any_change_of_content_is_another_digest():
    digests = [digest(), *(digest(**change) for change in CHANGES)]
    assert len(set(digests)) == len(digests)
    assert {len(one) for one in digests} == {16}


def test_equal_content_has_an_equal_digest_whatever_the_order_of_its_columns_and_wherever_it_stands():
    one = Rollout(1, "?", "4", {"a": 1, "b": {"c": 2, "d": 3}}, (0, 0), 0, "a.jsonl:1", raw=b"{}")
    other = Rollout("x", "?", "4", {"b": {"d": 3, "c": 2}, "a": 1}, (5, 2), 9, "b.jsonl:7")
    assert one.digest == other.digest
    assert one.digest != other._replace(state={}).digest


texts = st.text(st.characters(exclude_categories=()))  # surrogates too
fields = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(fields)
def test_json_that_was_written_reads_back_as_the_same_value(value):
    written = canonical_json(value)
    assert parse_json(written) == value
    assert canonical_json(parse_json(written)) == written


@given(texts, texts, texts, texts)
def test_no_text_can_move_from_one_field_to_the_next(prompt, completion, other_prompt, other_completion):
    same = (prompt, completion) == (other_prompt, other_completion)
    assert (
        content_digest(prompt, completion, {}) == content_digest(other_prompt, other_completion, {})
    ) is same


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, 10**40, -(2**63), -(10**40)])
def test_integers_of_any_size_are_read_as_they_were_written(number):
    assert parse_json(b'{"answer": %d}' % number) == {"answer": number}


@pytest.mark.parametrize(
    "text", [b'{"tests": [{"output": 100000000000000000001}]}', b"[-9223372036854775809]"]
)
def test_integers_are_read_as_they_were_written_also_deeper_inside(text):
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize("depth", [400, 499, 600, 980, 1_000, 1_015, 1_100])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_what_can_be_read_can_be_written_again_however_deep(depth, brackets):
    opening = "[" if brackets == "[]" else '{"a":'
    text = f'{{"completion": {opening * depth}1{brackets[1] * depth}}}'.encode()
    try:
        value = parse_json(text)
    except ValueError:
        assert depth > 500
    else:
        assert canonical_json(value)


def test_what_is_no_json_is_a_value_error_also_when_it_is_deep():
    for text in (b"{", b"[1,]", b"", b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            parse_json(text)


# --- records


def test_a_record_becomes_a_rollout_and_what_has_no_other_name_is_a_column():
    made = rollout(
        {
            "id": "a",
            "group": "g",
            "prompt": "?",
            "completion": "4",
            "answer": 4,
            "files": {"f": "x"},
            "state": 1,
        }
    )
    assert (made.id, made.prompt, made.completion, made.columns) == ("a", "?", "4", {"answer": 4})
    assert (made.files, made.state, made.where) == ({"f": "x"}, 1, "r.jsonl:7")


def test_a_record_without_id_is_named_by_its_line_and_without_prompt_has_an_empty_one():
    made = rollout({"completion": "4", "id": None, "prompt": None})
    assert (made.id, made.prompt) == (7, "")
    assert rollout({"completion": "4", "id": 0}).id == 0


def test_a_record_without_a_completion_is_none():
    with pytest.raises(KeyError):
        rollout({"prompt": "?"})


def test_fields_are_taken_under_our_names():
    made = rollout(
        {"q": "?", "response": "4", "gold": 4}, {"prompt": "q", "completion": "response", "answer": "gold"}
    )
    assert (made.prompt, made.completion, made.columns) == ("?", "4", {"answer": 4})


def test_a_renamed_field_takes_the_place_of_one_that_has_our_name_already():
    made = rollout({"completion": "4", "answer": "old", "gold": "new"}, {"answer": "gold"})
    assert made.columns == {"answer": "new"}


def test_a_row_that_lacks_the_named_field_has_no_such_column_whatever_it_has_under_our_name():
    assert rollout({"completion": "4", "answer": "old"}, {"answer": "gold"}).columns == {}
    assert rollout({"completion": "4", "answer": "old", "gold": None}, {"answer": "gold"}).columns == {}


@pytest.mark.parametrize(
    ("record", "names", "columns"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": "b", "b": "a"}, {"a": 2, "b": 1}, id="swapped"),
        pytest.param(
            {"a": 1, "b": 2, "c": 3},
            {"a": "b", "b": "c", "c": "a"},
            {"a": 2, "b": 3, "c": 1},
            id="in a circle",
        ),
        pytest.param(
            {"a": 1, "b": 2},
            {"x": "a", "a": "b"},
            {"x": 1, "a": 2},
            id="one after the other",
        ),
        pytest.param({"a": 1}, {"a": "a"}, {"a": 1}, id="itself"),
    ],
)
def test_names_may_be_swapped_and_chained(record, names, columns):
    assert rollout({"completion": "4", **record}, names).columns == columns
    assert rollout({"completion": "4", **record}, dict(reversed(names.items()))).columns == columns


def test_a_rollouts_record_is_the_text_it_was_read_from_or_its_fields():
    raw = b'{"completion":  "4"}'
    assert rollout({"completion": "4"}, raw=raw).record == raw
    made = rollout(
        {"id": "a", "prompt": "?", "completion": "4", "answer": 4, "files": {"f": "x"}, "state": 0}
    )
    assert rollout(parse_json(made.record)) == made


# --- the text that is judged


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("as it is", "as it is"),
        ([], ""),
        ([{"role": "user", "content": "?"}], ""),
        ([{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "last"}], "last"),
        ([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "ok"}], "4"),
        (
            [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                }
            ],
            "ab",
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": [{"type": "image", "url": "x"}, {"type": "text", "text": "b"}],
                }
            ],
            "b",
        ),
        ([{"role": "assistant", "content": ["no part", {"text": None}, {"text": 4}]}], "4"),
        ([{"role": "assistant", "content": 4}], ""),
        ([{"content": "no role"}], ""),
    ],
    ids=repr,
)
def test_the_text_that_is_judged_is_the_last_assistant_message(completion, text):
    assert final_text(completion) == text


def test_a_group_knows_its_rollouts():
    assert Group("g", 0, [1, 2]).rollouts == [1, 2]
