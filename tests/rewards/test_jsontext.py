"""One JSON value is found where the rule says, and read strictly or not at all."""

import json
import math
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.outcome import Scored
from steelyard.rewards.jsontext import (
    DEEPEST,
    LONGEST,
    MOST_LONG_INTEGERS,
    UnreadableError,
    committed_json,
    read_json,
)

ANN = '{"name": "Ann"}'
BOB = '{"name": "Bob"}'

FOUND = [
    ANN,
    f"  \n{ANN}\n",
    f"\ufeff{ANN}",
    f"```json\n{ANN}\n```",
    f"```JSON\n{ANN}\n```",
    f"```\n{ANN}\n```",
    f"~~~json\n{ANN}\n~~~",
    f"````json\n{ANN}\n````",
    f"   ```json\n{ANN}\n   ```",
    f"```json title=x\n{ANN}\n```",
    f"```json\r\n{ANN}\r\n```\r\n",
    f"Here it is:\n\n```json\n{ANN}\n```\nIt has [one] key, as in {{name}}.",
    f"```json\n{ANN}\n```\nand again\n```json\n{ANN}\n```",
    f"```python\nprint({{}})\n```\n```json\n{ANN}\n```",
    f"```\nnot that\n```\n```json\n{ANN}\n```",
    f"```json {ANN} ```",
    f"```json\n{ANN}",
    f"```json\n{ANN}```",
    f"Here it is: ```json\n{ANN}\n```",
    f"Here it is: {ANN}, as you wished.",
    f"**{ANN}**",
    f"{ANN} is what I found.",
    f"<answer>{ANN}</answer>",
    f"<answer>\n```json\n{ANN}\n```\n</answer>",
    f"<answer>{ANN}</answer> (that is {ANN})",
    f"<answer>{ANN}</answer><answer>{ANN}</answer>",
    f"<think>maybe {BOB}</think>{ANN}",
    f"<reasoning>{BOB}</reasoning><answer>{ANN}</answer>",
    f"maybe {BOB}</think>\n{ANN}",
    f"<think>```json\n{BOB}\n```</think>```json\n{ANN}\n```",
]

WHOLE = [  # markup in a completion that is one JSON value is part of the value
    '{"name": "</think>"}',
    '{"name": "<think>"}',
    '{"name": "<answer>x</answer>"}',
    '{"name": "```json\\n{}\\n```"}',
    '"{\\"name\\": 1}"',
    "5",
    "-0.5e3",
    "true",
    "null",
    '""',
    "[]",
]

NOTHING = [
    ("", "no_answer"),
    ("   \n", "no_answer"),
    ("I cannot do that.", "no_answer"),
    ("The answer is 5.", "no_answer"),
    (f"<think>{ANN}</think>", "no_answer"),
    (f"<think>{ANN}", "no_answer"),
    (f"<answer>{ANN}", "no_answer"),
    ("<answer></answer>", "no_answer"),
    ("<answer>Ann</answer>", "no_answer"),
    (f"<answer>Ann</answer> {ANN}", "no_answer"),
    (f"<answer>{ANN}</answer><answer>{BOB}</answer>", "hedged"),
    (f"```json\n{ANN}\n```\nor\n```json\n{BOB}\n```", "hedged"),
    (f"```\n{ANN}\n```\nor\n```\n{BOB}\n```", "hedged"),
    (f"{ANN} or {BOB}", "hedged"),
    (f"{ANN}\n{ANN}", "hedged"),
    (f"I take {ANN} [1], see [2].", "hedged"),
    ("5 6", "malformed"),
    ("{'name': 'Ann'}", "malformed"),
    ('{"name": "Ann",}', "malformed"),
    ('[{"name": "Ann"},]', "malformed"),
    ('{"name": "Ann"', "malformed"),
    ('Here: {"name": "Ann', "malformed"),
    ('{"name": "Ann"}}', "malformed"),
    ('{"name": Ann}', "malformed"),
    ('{name: "Ann"}', "malformed"),
    ('{"name" "Ann"}', "malformed"),
    ('{"name": "Ann" /* her */}', "malformed"),
    ('{"name": "Ann", // her\n}', "malformed"),
    ('{"name": "A\nnn"}', "malformed"),
    ('{"name": "A\x00nn"}', "malformed"),
    ('{"name": "Ann", "name": "Bob"}', "malformed"),
    ('{"name": "Ann", "\\u006eame": "Bob"}', "malformed"),
    ('{"a": {"x": 1, "y": 2, "x": "\\u0022"}, "b": "\\u0022"}', "malformed"),
    ('{"name": "\\ud800"}', "malformed"),
    ('{"name": "\ud800"}', "malformed"),
    ('{"name": "\\x41"}', "malformed"),
    ('{"age": NaN}', "malformed"),
    ('{"age": Infinity}', "malformed"),
    ('{"age": -Infinity}', "malformed"),
    ("NaN", "malformed"),
    ("-Infinity", "malformed"),
    ('{"age": 1e400}', "malformed"),
    ('{"age": 012}', "malformed"),
    ('{"age": +1}', "malformed"),
    ('{"age": 1.}', "malformed"),
    ('{"age": .5}', "malformed"),
    ('{"age": 0x1F}', "malformed"),
    ('{"age": １}', "malformed"),
    ("9" * 5_000, "malformed"),
    ('{"age": ' + "9" * 5_000 + "}", "malformed"),
    ("[" * 100_000, "malformed"),
    ("[" * 100_000 + "]" * 100_000, "malformed"),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "malformed"),
    (f"```json\n[{ANN}\n```", "malformed"),
    (f"```json\n\n```\n{ANN}", "no_answer"),
    (f'[{ANN}, "a", oops]', "malformed"),
]


def _said(completion, **settings):
    found = committed_json(completion, **settings)
    return found if isinstance(found, Scored) else found.value


@pytest.mark.parametrize("completion", FOUND)
def test_the_value_is_found_in_fences_tags_and_prose(completion):
    assert _said(completion) == {"name": "Ann"}


@pytest.mark.parametrize("completion", WHOLE)
def test_a_completion_that_is_one_value_is_that_value_whatever_it_contains(completion):
    assert _said(completion) == json.loads(completion)
    if "think" not in completion:
        assert _said(f"<think>5?</think>\n{completion}") == json.loads(completion)


@pytest.mark.parametrize(("completion", "code"), NOTHING)
def test_anything_else_is_the_floor_with_a_code(completion, code):
    said = _said(completion)
    assert isinstance(said, Scored)
    assert (said.value, said.code) == (0.0, code)
    assert said.reason
    assert len(said.reason) <= 80


def test_strict_takes_the_value_alone_after_the_thinking_and_nothing_around_it():
    for alone in (ANN, f" {ANN}\n", f"<think>{BOB}</think>\n{ANN}"):
        assert _said(alone, strict=True) == {"name": "Ann"}
    for more in (*FOUND[2:26], f"{ANN}.", f"{ANN} {ANN}", ""):
        assert isinstance(_said(more, strict=True), Scored), more


def test_integers_are_exact_and_other_numbers_are_doubles():
    big = 2**64 + 1
    read = read_json(f'{{"big": {big}, "less": -{big}, "edge": {2**63}, "dot": 1.0, "tiny": 1e-400}}')
    assert read == {"big": big, "less": -big, "edge": 2**63, "dot": 1.0, "tiny": 0.0}
    assert [type(number) for number in read.values()] == [int, int, int, float, float]
    assert read_json("1" * 309) == int("1" * 309)


def test_the_limits_are_where_they_are_said_to_be():
    assert read_json("[" * DEEPEST + "]" * DEEPEST) is not None
    assert read_json('{"a":' * (DEEPEST - 1) + "[]" + "}" * (DEEPEST - 1)) is not None
    assert len(read_json('"' + "a" * (LONGEST - 2) + '"')) == LONGEST - 2
    long = str(10**18)
    assert len(read_json(f"[{','.join([long] * MOST_LONG_INTEGERS)}]")) == MOST_LONG_INTEGERS
    for text in (
        "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
        '"' + "a" * (LONGEST - 1) + '"',
        f"[{','.join([long] * (MOST_LONG_INTEGERS + 1))}]",
    ):
        with pytest.raises(UnreadableError):
            read_json(text)


def test_an_answer_that_is_too_long_is_the_floor_but_thinking_may_be_long():
    assert _said("so " * LONGEST).code == "malformed"
    assert _said(f"<think>{'so ' * LONGEST}</think>{ANN}") == {"name": "Ann"}


def _reference(text):
    """Python's own reader, with everything refused that it lets pass."""

    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise ValueError(pairs)
        return dict(pairs)

    def finite(digits):
        if not math.isfinite(float(digits)):
            raise ValueError(digits)
        return float(digits)

    value = json.loads(
        text, object_pairs_hook=once, parse_float=finite, parse_constant=lambda name: finite("inf")
    )
    json.dumps(value, ensure_ascii=False).encode()  # no lone surrogate
    return value


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('ab"\\é'), max_size=3), inner)
    ),
    max_leaves=12,
)
pieces = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        " ",
        "\n",
        '"a"',
        '"b"',
        '"\\u0061"',
        '"\\""',
        '"\\u0022"',
        "1",
        "-1",
        "0",
        "1.5",
        "1e999",
        "9223372036854775808",
        "NaN",
        "true",
        "null",
        '"\\ud800"',
        '"é"',
    ]
)
objects = st.lists(
    st.tuples(
        st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\""', '"\\u0022"']), st.sampled_from(['""', "1"])
    ),
    max_size=4,
).map(lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}")


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_valid_is_read_as_it_is(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(read_json(text)) == repr(value)
    assert _said(text) == value


@given(st.one_of(st.text(max_size=20), st.lists(pieces, max_size=9).map("".join), objects))
@example('{"\\u0022":"","a":1,"a":""}')
def test_what_is_read_is_what_a_second_reader_made_strict_reads(text):
    try:
        wanted = repr(_reference(text))
    except ValueError:
        with pytest.raises(UnreadableError):
            read_json(text)
    else:
        assert repr(read_json(text)) == wanted


soup = st.lists(
    st.sampled_from(
        [
            *(ANN, BOB, "{", "}", "[", "]", '"', "\\", "{}", "[]", "NaN", "5", "\ud800", " or ", "\n"),
            *("```json\n", "```\n", "\n```", "~~~", "<answer>", "</answer>", "<think>", "</think>"),
        ]
    ),
    max_size=12,
).map("".join)


@given(st.one_of(st.text(), soup), st.booleans())
def test_no_completion_raises_and_what_is_found_stands_in_it(completion, strict):
    found = committed_json(completion, strict=strict)
    if isinstance(found, Scored):
        assert found.value == 0.0
        assert found.code in {"no_answer", "malformed", "hedged"}
    else:
        assert found.text in completion
        assert repr(read_json(found.text)) == repr(found.value)


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "{",
            "[",
            '{"a":',
            '"',
            "\\",
            '{"',
            "}",
            "`",
            "```",
            "```json\n",
            "```\n{}\n",
            "``` ",
            "[],",
            "1",
            "1,",
        ),
        *(" ", "\n", '{"a":1}\n', "\ufeff", '\\"', '"a",', "9" * 30 + ",", "\u00e9", "<answer>", "<think>"),
    ],
)
def test_a_megabyte_of_anything_is_read_in_linear_time(unit):
    body = unit * (900_000 // len(unit))
    for text in (body, f"[{body}]", f'{{"a":"{body}"}}', f"```json\n{body}\n```"):
        start = time.perf_counter()
        committed_json(text)
        assert time.perf_counter() - start < 5  # quadratic would take minutes
