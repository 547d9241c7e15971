"""What is posted is grouped as a file's rows are, and answered as the scored file says it."""

import asyncio
import json
from contextlib import aclosing
from itertools import chain

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import Options, Part, Recipe, RunStoppedError, Runtime, builtin, score_file
from steelyard.scoring.rows import OUT_COLUMNS
from steelyard.service.documents import BadPostError, error_of, line
from steelyard.service.rows import groups_of, rows_of

GSM8K = Recipe((Part(builtin("gsm8k")), Part(builtin("format"), weight=0.5)))
WORDS = st.text("01a# ", max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"prompt": st.sampled_from("pq"), "completion": WORDS, "answer": st.sampled_from([1, 1.0, "1", "2"])},
        optional={"id": st.sampled_from(["a", "b", "c"]), "other": st.integers()},
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row.get("id", id(row)),
)


def row(completion="#### 2", **more):
    return {"prompt": "1 + 1?", "completion": completion, "answer": 2, **more}


def body(rows=None, **more):
    return json.dumps({**({} if rows is None else {"rollouts": rows}), **more}).encode()


def scored(posted, recipe=GSM8K, columns=None):
    groups = groups_of(posted, recipe, columns or {})

    async def all_rows():
        async with Runtime(recipe) as runtime, aclosing(runtime.score(groups)) as some:
            return [rows_of(one) async for one in some]

    rows = chain.from_iterable(asyncio.run(all_rows()))
    by_key = {(row["group"], row["index"]): row for row in rows}
    return [by_key[group.id, place] for group in groups for place in range(len(group.rollouts))]


def refusal(posted, recipe=GSM8K, columns=None):
    with pytest.raises(BadPostError) as refused:
        groups_of(posted, recipe, columns or {})
    return refused.value.status, error_of(refused.value)["error"]


@settings(max_examples=10, deadline=None)
@given(ROWS)
def test_rows_are_answered_as_a_file_of_them_is_scored(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("file")
    file, out = folder / "r.jsonl", folder / "o.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    score_file(file, GSM8K, out, options=Options())
    expected = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    for answered in scored(body(rows)):
        assert tuple(answered) == OUT_COLUMNS
        assert {**answered, "clocks": None} == {**expected[answered["id"]], "clocks": None}


def test_posted_groups_keep_their_names_and_their_members():
    groups = [{"id": "g", "rollouts": [row(), row("no")]}, {"id": 7, "rollouts": [row()]}]
    answered = scored(body(groups=groups))
    assert [(one["group"], one["index"], one["value"]) for one in answered] == [
        ("g", 0, 1.2),
        ("g", 1, 0.0),
        (7, 0, 1.2),
    ]
    assert [one.id for one in groups_of(body(groups=[{"rollouts": [row(), row()]}]), GSM8K, {})] == [1]


def test_the_rows_words_for_columns_are_followed():
    posted = body([{"prompt": "p", "text": "#### 2", "gold": {"value": 2}}])
    assert scored(posted, columns={"completion": "text", "answer": "gold.value"})[0]["value"] == 1.2


def test_nothing_posted_is_no_group():
    assert groups_of(body([]), GSM8K, {}) == groups_of(body(groups=[]), GSM8K, {}) == []


def test_a_group_with_a_bad_gold_is_unscored_and_the_others_are_not():
    answered = scored(body([row(answer=[]), row(prompt="q")]))
    assert [one["verdict"] for one in answered] == ["unscored", "scored"]
    assert answered[0]["value"] is None
    assert "row:1" in answered[0]["reason"]
    assert answered[0]["advantage"] == 0.0


def test_a_row_that_lacks_a_column_is_unscored_and_says_which():
    answered = scored(body([{"prompt": "p", "completion": "#### 2"}, row()]))
    assert [one["verdict"] for one in answered] == ["unscored", "scored"]
    assert "'answer'" in answered[0]["reason"]


def test_numbers_that_strict_json_lacks_arrive_as_they_were_sent():
    (group,) = groups_of(body([row(answer=float("nan"), big=2**70, word="\ud800")]), GSM8K, {})
    columns = group.rollouts[0].columns
    assert columns["answer"] != columns["answer"]  # NaN
    assert columns["big"] == 2**70
    assert columns["word"] == "\ud800"


def test_a_column_in_no_row_is_named_with_those_that_are_there():
    status, error = refusal(body([{"prompt": "p", "completion": "c", "gold": 2}]))
    assert status == 422
    assert "'answer'" in error["reason"]
    assert "completion, gold, prompt" in error["reason"]
    assert "--column answer=FIELD" in error["next"]


@pytest.mark.parametrize("field", ["state", "files"])
def test_what_an_agent_left_behind_is_asked_for_as_columns_are(field):
    recipe = Recipe((Part(builtin(field)),))
    posted = [{"prompt": "p", "completion": "c", f"expected_{field}": {"a": "b"}}]
    status, error = refusal(body(posted), recipe)
    assert (status, f"'{field}'" in error["reason"]) == (422, True)
    assert f"--column {field}=FIELD" in error["next"]
    assert scored(body([{**posted[0], "end": {"a": "b"}}]), recipe, {field: "end"})[0]["value"] == 1.0


@pytest.mark.parametrize(
    ("posted", "where", "said"),
    [
        (b"{", "body", "not JSON"),
        (b"[" * 9_999, "body", "nested too deeply"),
        (b"\xff", "body", "not JSON"),
        (b"[1]", "body", "no object"),
        (b"{}", "body", "nothing"),
        (body([row()], step=3), "body", "rollouts, step"),
        (body({}), "rollouts", "dict, not a list"),
        (body(groups=[[]]), "group 1", "no list of rollouts"),
        (body(groups=[{"id": 1, "rollouts": {}}]), "group 1", "no list of rollouts"),
        (body(groups=[{"id": "a", "rollouts": [row()]}, {"id": "a", "rollouts": [row()]}]), "group 2", "'a'"),
        (body(groups=[{"id": [], "rollouts": [row()]}]), "row 1", "column 'group': []"),
        (body(groups=[{"id": 1, "rollouts": [row(), row(answer=3)]}]), "row 2", "'answer'"),
        (body([3]), "row 1", "not an object: 3"),
        (body([row(), {"prompt": "p"}]), "row 2", "column 'completion': missing"),
        (body([row(completion=3)]), "row 1", "column 'completion': 3 (text, or a list of messages)"),
        (body([row(id="a"), row(id="a")]), "row 2", "column 'id': 'a'"),
    ],
)
def test_a_bad_post_is_refused_with_its_place_and_the_next_step(posted, where, said):
    status, error = refusal(posted)
    assert status == 400
    assert error["where"] == where
    assert said in error["reason"]
    assert error["next"]


def test_every_row_that_is_no_rollout_is_told_with_column_and_value():
    _, error = refusal(body([row(completion=3), row(), {"prompt": "p"}]))
    assert [(one["row"], one["column"], one["value"]) for one in error["rows"]] == [
        (1, "completion", "3"),
        (3, "completion", "missing"),
    ]
    assert all(one["next"] for one in error["rows"])
    assert "2 of 3 rows" in error["reason"]


def test_what_stops_a_run_is_told_with_the_step_that_a_client_can_take():
    told = error_of(RunStoppedError("reward 'f' returned -1\n  next: state its lowest value"))["error"]
    assert told["reason"] == "reward 'f' returned -1"
    assert told["next"].startswith("state its lowest value; here: POST /reload")


def test_a_lone_surrogate_is_answered_too():
    assert orjson.loads(line({"id": "a"})) == {"id": "a"}
    assert json.loads(line({"id": "\ud800"})) == {"id": "\ud800"}
