"""A value pays if it validates; a schema that cannot be used is named before anything is judged."""

import json
import pickle
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Context, How
from steelyard.rewards.jsontext import DEEPEST
from steelyard.rewards.schema import judge_schema, schema
from steelyard.rollout import Rollout

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANN = '{"name": "Ann", "age": 3}'
TREE = {  # two ways down: a validator that explains goes both at every level
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tree"}},
            ]
        }
    },
}


def _judge(completion, its_schema, **settings):
    return judge_schema(completion, {"schema": its_schema}, **settings)


def _pays(completion, its_schema, **settings):
    return _judge(completion, its_schema, **settings).value == 1.0


# --- validation


def test_a_value_that_validates_pays_and_any_other_is_the_floor_with_its_first_fault():
    assert _judge(ANN, PERSON) == _judge(f"Here:\n```json\n{ANN}\n```", PERSON)
    assert (_judge(ANN, PERSON).value, _judge(ANN, PERSON).code) == (1.0, None)
    for completion, reason in [
        ('{"name": "Ann"}', '$: "age" is a required property'),
        ('{"name": "Ann", "age": -1}', "$.age: the value is less than the minimum of 0"),
        ('{"name": "Ann", "age": "3"}', '$.age: the value is not of type "integer"'),
        (
            '{"name": "Ann", "age": 3, "x": 1}',
            "$: Additional properties are not allowed ('x' was unexpected)",
        ),
        ("[]", '$: the value is not of type "object"'),
    ]:
        verdict = _judge(completion, PERSON)
        assert (verdict.value, verdict.code, verdict.reason) == (0.0, "wrong", reason)


@pytest.mark.parametrize(
    ("value", "its_schema", "valid"),
    [
        ("1.0", {"type": "integer"}, True),
        ("1.5", {"type": "integer"}, False),
        ("1e2", {"type": "integer"}, True),
        ("-0", {"type": "integer"}, True),
        ("true", {"type": "integer"}, False),
        ("true", {"const": 1}, False),
        ("1.0", {"const": 1}, True),
        ("0.3", {"multipleOf": 0.1}, True),
        ("0.35", {"multipleOf": 0.1}, False),
        ("12391239123", {"multipleOf": 1e-8}, True),
        ("9007199254740993", {"const": 9007199254740993}, True),
        ("9007199254740992", {"const": 9007199254740993}, False),
        (str(10**30), {"const": 10**30}, True),
        (str(10**30 + 1), {"const": 10**30}, False),
        (str(10**30 + 1), {"maximum": 10**30}, False),
        ("1e-400", {"exclusiveMinimum": 0}, False),
        ("[1, true]", {"uniqueItems": True}, True),
        ("[1, 1.0]", {"uniqueItems": True}, False),
        ('"a\\u0000b"', {"minLength": 3, "maxLength": 3}, True),
        ('"é"', {"maxLength": 1}, True),
        ('"a1"', {"pattern": "^\\p{L}+$"}, False),
        ("5", True, True),
        ("5", False, False),
        ("5", {}, True),
        ('{"a": null}', {"required": ["a"]}, True),
    ],
)
def test_values_count_as_json_schema_has_them(value, its_schema, valid):
    assert _pays(value, its_schema) == valid
    assert _pays(value, json.dumps(its_schema)) == valid


def test_the_dialect_is_the_schemas_own_then_the_rows_then_the_settings_then_the_newest():
    tuples = {"items": [{"type": "integer"}], "additionalItems": False}  # no items of 2020-12
    newest = {"prefixItems": [{"type": "string"}]}  # a remark before 2020-12
    assert not judge_schema("[1, 2]", {"schema": tuples, "draft": "draft7"}).value
    assert not judge_schema("[1, 2]", {"schema": tuples}, draft="draft7").value
    assert schema(draft="draft7").lint({"schema": tuples, "draft": None}) is None
    assert "'schema'" in schema().lint({"schema": tuples})
    assert judge_schema("[1, 2]", {"schema": newest, "draft": "draft7"}, draft="draft2020-12").value
    assert not judge_schema("[1, 2]", {"schema": newest}, draft="draft2020-12").value
    assert not judge_schema("[1, 2]", {"schema": newest}).value
    own = {"$schema": "https://json-schema.org/draft/2020-12/schema", **newest}
    assert not judge_schema("[1, 2]", {"schema": own, "draft": "draft7"}).value
    exclusive = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}
    assert not judge_schema("5", {"schema": exclusive, "draft": "draft7"}).value


@pytest.mark.parametrize("spelled", ["draft7", "draft-07", "Draft 7", "7", 7, "DRAFT_7", "draft07"])
def test_a_draft_is_known_in_all_its_spellings(spelled):
    assert schema(draft=spelled).identity == "schema/1:draft7"
    assert schema().lint({"schema": {}, "draft": spelled}) is None


@pytest.mark.parametrize(
    "spelled", ["draft3", "draft-08", "7.5", "", "newest", 3, 7.0, True, ["draft7"], "2021"]
)
def test_an_unknown_draft_is_refused_with_the_known_ones(spelled):
    with pytest.raises(RefusedError, match="draft4, draft6, draft7, draft2019-09, draft2020-12"):
        schema(draft=spelled)
    fault = schema().lint({"schema": {}, "draft": spelled})
    assert "'draft'" in fault
    assert "draft4, draft6, draft7, draft2019-09, draft2020-12" in fault


def test_formats_are_remarks_unless_asked_for_whatever_the_draft():
    mail = {"type": "string", "format": "email"}
    for draft in ("draft4", "draft7", "draft2020-12"):
        assert _pays('"not an email"', mail, draft=draft)
        assert not _pays('"not an email"', mail, draft=draft, formats=True)
        assert _pays('"ann@example.org"', mail, draft=draft, formats=True)
    assert _pays('"x"', {"format": "a format of ours"}, formats=True)


# --- schemas that cannot be used


@pytest.mark.parametrize(
    ("its_schema", "told"),
    [
        (None, "missing"),
        ([], "no object, boolean, or JSON text"),
        (5, "no object, boolean, or JSON text"),
        ("", "no JSON"),
        ("person.json", "no JSON"),
        ("5", "no object, boolean, or JSON text"),
        ("{", "no JSON"),
        ('{"type": "string", "type": "number"}', "stands twice"),
        ({"type": "objekt"}, "$.type: 'objekt'"),
        ({"properties": {"a": {"minimum": "x"}}}, "$.properties.a.minimum: 'x'"),
        ({"required": "a"}, "$.required"),
        ({"$ref": "#/$defs/nowhere"}, "/$defs/nowhere"),
        ({"$schema": "https://example.org/mine"}, "name a dialect"),
        ({"pattern": "(("}, "$.pattern: '(('"),
        ({"pattern": "^(?=a)"}, "without lookaround and backreference"),
        ({"patternProperties": {"(a)\\1": {}}}, "without lookaround and backreference"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "nothing is fetched"),
        ({"a": "\ud800"}, "'schema'"),
        ({"a": {1, 2}}, "no object, boolean, or JSON text"),
        ({"minimum": float("nan")}, "'schema'"),
        ('{"not":' * 1_000 + "{}" + "}" * 1_000, "nested deeper"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_fault_and_never_a_verdict(its_schema, told):
    fault = schema().lint({"schema": its_schema})
    assert fault.startswith("column 'schema' ")
    assert told in fault
    with pytest.raises(RefusedError, match="column 'schema'"):
        _judge(ANN, its_schema)
    if its_schema is not None and its_schema != "person.json":
        with pytest.raises(RefusedError):
            schema(schema=its_schema)


def test_nothing_is_fetched_from_the_network_or_from_a_file(tmp_path):
    held = tmp_path / "held.json"
    held.write_text("true")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        for uri in (f"http://127.0.0.1:{port}/x.json", held.as_uri(), str(held)):
            for its_schema in ({"$ref": uri}, {"$schema": uri}, {"$defs": {"a": {"$ref": uri}}}):
                assert schema().lint({"schema": its_schema}) is not None
        with pytest.raises(TimeoutError):
            server.accept()


def test_what_a_schema_holds_itself_may_be_referred_to():
    inside = {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}
    named = {
        "$id": "https://example.org/x",
        "$ref": "#it",
        "$defs": {"a": {"$anchor": "it", "type": "integer"}},
    }
    meta = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    for its_schema in (inside, named):
        assert _pays("5", its_schema)
        assert not _pays('"5"', its_schema)
    assert _pays('{"type": "string"}', meta)
    assert not _pays('{"type": "objekt"}', meta)


# --- one schema for all


def test_one_schema_for_all_may_be_an_object_a_boolean_a_text_or_a_file(tmp_path):
    file = tmp_path / "person.json"
    file.write_text("\ufeff" + json.dumps(PERSON), encoding="utf-8")
    for given_as in (PERSON, json.dumps(PERSON), file, str(file)):
        reward = schema(schema=given_as)
        assert list(reward.columns) == []
        assert reward.lint({}) is None
        assert reward.rule(ANN, {"schema": False, "draft": "unknown"}).value == 1.0
        assert reward.rule("{}", {}).code == "wrong"
    assert schema(schema=False).rule("1", {}).code == "wrong"


def test_a_schema_file_that_is_not_there_or_no_schema_is_refused_by_its_name(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "latin.json").write_bytes(b'{"title": "\xe9"}')
    for name in ("absent.json", "list.json", "latin.json"):
        with pytest.raises(RefusedError, match=name):
            schema(schema=str(tmp_path / name))


def test_the_identity_names_every_setting_that_changes_a_verdict():
    made = [
        schema(),
        schema(draft="draft7"),
        schema(formats=True),
        schema(strict=True),
        schema(schema={}),
        schema(schema=True),
        schema(schema={}, draft="draft4", formats=True, strict=True),
    ]
    assert made[0].identity == "schema/1"
    assert len({reward.identity for reward in made}) == len(made)
    assert schema(schema={}).identity == schema(schema="{}").identity
    assert {(reward.name, reward.floor, reward.how) for reward in made} == {("schema", 0.0, How.INLINE)}
    assert list(made[0].columns) == ["schema"]


def test_strict_wants_the_value_and_nothing_else():
    reward = schema(schema=PERSON, strict=True)
    assert reward.rule(ANN, {}).value == 1.0
    assert reward.rule(f"<think>so</think>\n{ANN}\n", {}).value == 1.0
    for more in (f"```json\n{ANN}\n```", f"Here: {ANN}", f"<answer>{ANN}</answer>"):
        assert reward.rule(more, {}).value == 0.0


def test_a_reward_is_a_value_that_travels_to_another_process_and_judges_there():
    for made in (schema(formats=True), schema(schema=PERSON)):
        assert (
            made.rule(ANN, {"schema": PERSON}).value == 1.0
        )  # its validator, which cannot travel, is compiled
        there = pickle.loads(pickle.dumps(made))  # noqa: S301 - ours
        assert there.identity == made.identity
        assert there.rule(ANN, {"schema": PERSON}).value == 1.0


def test_a_batch_is_judged_in_order_conversations_by_their_last_message():
    talk = [{"role": "user", "content": "A person?"}, {"role": "assistant", "content": ANN}]
    rollouts = [
        Rollout(at, "p", said, {"schema": its}, (0, at), at, f"x:{at}")
        for at, (said, its) in enumerate(
            [(ANN, PERSON), (talk, json.dumps(PERSON)), (ANN, False), ("no", True)]
        )
    ]
    verdicts = schema()(rollouts, Context())
    assert [(verdict.value, verdict.code) for verdict in verdicts] == [
        (1.0, None),
        (1.0, None),
        (0.0, "wrong"),
        (0.0, "no_answer"),
    ]


def test_schemas_that_python_calls_equal_are_not_mixed_up():
    for first, second in [({"const": 1}, {"const": True}), ({"const": 0}, {"const": False})]:
        assert _pays("1" if first["const"] else "0", first)
        assert not _pays("1" if first["const"] else "0", second)
    changing = {"const": 1}
    assert _pays("1", changing)
    changing["const"] = 2
    assert not _pays("1", changing)


def test_importing_the_reward_does_not_import_the_validator():
    told = "import sys, steelyard.rewards.schema as s; s.schema(); print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- hostile completions


def _nested(depth, leaf):
    return "[" * depth + leaf + "]" * depth


@pytest.mark.parametrize(
    ("completion", "its_schema"),
    [
        ("9" * 5_000, {"type": "integer"}),
        ('{"x": ' + "9" * 5_000 + "}", {}),
        ("[" * 100_000 + "]" * 100_000, {"type": "array"}),
        ("[" * 100_000, {"type": "array"}),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, {"type": "object"}),
        ('{"x": NaN}', {}),
        ('{"x": Infinity}', {}),
        ('{"x": 1, "x": 2}', {}),
        ('{"x": 1e400}', {}),
        ('{"x": "\\ud800"}', {}),
        ('{"x": "\ud800"}', {}),
        ("[" + ",".join(str(10**30 + at) for at in range(20_000)) + "]", {"uniqueItems": True}),
        ('"' + "a" * 10_000_000 + '"', {"type": "string"}),
        ("[" + "[]," * 3_000_000 + "[]]", {"type": "array"}),
    ],
)
def test_hostile_json_is_the_floor_with_a_code_soon(completion, its_schema):
    start = time.perf_counter()
    verdict = _judge(completion, its_schema)
    assert time.perf_counter() - start < 5  # pairs of 20,000 long integers would take minutes
    assert (verdict.value, verdict.code) == (0.0, "malformed")
    assert _pays("[]", {})  # the next one is unharmed


def test_a_schema_that_refers_to_itself_is_judged_and_not_explained():
    assert _pays(_nested(DEEPEST, "1").replace("[", "", 1).replace("]", "", 1), TREE)
    for depth in (1, 30, DEEPEST - 1):  # explained at depth 14, it takes seconds; at 30, weeks
        verdict = _judge(_nested(depth, '"x"'), TREE)
        assert (verdict.value, verdict.code) == (0.0, "wrong")
        assert verdict.reason == "the value does not match the schema"


def test_what_would_be_long_to_explain_is_only_judged():
    wide = {
        "anyOf": [{"items": {"anyOf": [{"const": f"{one}.{two}"} for two in range(20)]}} for one in range(20)]
    }
    assert "anyOf" in _judge('["x"]', wide).reason
    verdict = _judge(json.dumps(["x"] * 1_000), wide)
    assert (verdict.code, verdict.reason) == ("wrong", "the value does not match the schema")


def test_references_without_a_way_back_are_explained():
    leaf = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    either = {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}
    its_schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/either"},
        "$defs": {"leaf": leaf, "either": either},
    }
    assert _judge('[{"n": 1}, 5]', its_schema).reason.startswith("$[1]: the value is not valid under any")
    doubling = {"$ref": "#/$defs/d14", "$defs": {"d0": {"type": "integer"}}}
    for at in range(14):  # 2 ** 14 ways to the same leaf
        doubling["$defs"][f"d{at + 1}"] = {"anyOf": [{"$ref": f"#/$defs/d{at}"}] * 2}
    assert _judge('"x"', doubling).reason == "the value does not match the schema"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(x+x+)+y", "^(\\w+\\s?)*$", ".*.*.*=.*"])
def test_a_pattern_runs_in_linear_time(pattern):
    start = time.perf_counter()
    for text in ("a" * 100_000 + "!", "x" * 100_000, "a " * 50_000 + "!"):
        _judge(json.dumps(text), {"pattern": pattern})
    assert time.perf_counter() - start < 5


def test_reasons_stay_short_whatever_the_completion_names():
    for completion in (
        json.dumps({"k" * 5_000: 1}),
        json.dumps({f"k{at}": 1 for at in range(2_000)}),
        '{"' + "a" * 50 + '": ' + _nested(100, '"x"') + "}",
    ):
        for its_schema in (PERSON, {"additionalProperties": {"items": False}}, {"maxProperties": 0}):
            assert len(_judge(completion, its_schema).reason or "") <= 80
    deep = {"type": "integer"}
    for _ in range(60):
        deep = {"items": deep}
    assert _judge(_nested(60, '"x"'), deep).reason.endswith('the value is not of type "integer"')


soup = st.lists(
    st.sampled_from(
        ['{"a":', '"a"', "1", "-1", "}", "[", "]", ",", "null", "```json\n", "\n```", " or ", "NaN"]
    ),
    max_size=12,
).map("".join)


@settings(max_examples=60)
@given(st.one_of(st.text(), soup))
def test_no_completion_raises_or_is_paid_more_than_a_value_that_validates(completion):
    for its_schema in (PERSON, TREE, {"minimum": 0}, False):
        verdict = _judge(completion, its_schema)
        assert verdict.value in (0.0, 1.0)
        assert (verdict.code is None) == (verdict.value == 1.0)
    assert not _pays(completion, False)


def test_two_guesses_are_never_paid():
    right, wrong = ANN, '{"name": "Ann", "age": -3}'
    for first, second in ((right, wrong), (wrong, right), (right, '{"name": "Bob", "age": 3}')):
        for both in (
            f"{first}\n{second}",
            f"{first} or {second}",
            f"```json\n{first}\n```\n```json\n{second}\n```",
            f"<answer>{first}</answer><answer>{second}</answer>",
        ):
            assert _judge(both, PERSON).code == "hedged"


# --- labelled rows; they stay where they are


def _rows(data_dir, name):
    path = data_dir / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _errors(rows, reward):
    usable = [row for row in rows if reward.lint(row) is None]
    return {
        row["id"]
        for row in usable
        if (reward.rule(row["completion"], row).value == 1.0) != row["known_label"]
    }


@pytest.mark.needs("data")
def test_the_suite_is_judged_as_it_says_itself(data_dir):
    rows = _rows(data_dir, "schema_test_suite")
    assert [row["id"] for row in rows if schema().lint(row)] == []
    assert _errors(rows, schema()) == set()


@pytest.mark.needs("data")
def test_instances_of_models_need_their_formats_checked_and_nothing_else(data_dir):
    rows = _rows(data_dir, "schema_llm_instances")
    assert [row["id"] for row in rows if schema().lint(row)] == []
    assert _errors(rows, schema(formats=True)) == set()
    assert _errors(rows, schema()) == {row["id"] for row in rows if row.get("needs_format_assertion")}


# Choices of ours that differ from a row's label, which marks them as choices: an integer of 5,000 digits is
# no value that any reader of the completion could use, and a format is a remark.
CHOSEN = {"json-text/bigint", "json-text/format_email"}


@pytest.mark.needs("data")
def test_every_text_but_the_chosen_ones_is_read_as_labelled_and_unusable_schemas_are_named(data_dir):
    rows = _rows(data_dir, "json_text_cases")
    unusable = {row["id"] for row in rows if row["known_label"] is None}
    assert {row["id"] for row in rows if schema().lint(row)} == unusable
    assert _errors(rows, schema()) <= CHOSEN
    assert _errors(rows, schema(formats=True)) <= CHOSEN - {"json-text/format_email"}
    assert all(row["policy"] for row in rows if row["id"] in CHOSEN)
