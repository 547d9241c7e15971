"""A length counts what the policy generated, in a unit that was named; `overlong` is DAPO's."""

import json
import pickle
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Context, Part
from steelyard.rewards import Recipe, lengths
from steelyard.rewards.lengths import generated, length, overlong, soft_punishment
from steelyard.rollout import Rollout


def row(completion="", **columns):
    return Rollout("a", "Q", completion, columns, (0, 0), 0, "rows.jsonl:1")


def letters(text):
    return sum(map(str.isalpha, text))


def broken(text):
    raise OSError(text)


AGENT = [
    {"role": "user", "content": "not mine at all"},
    {
        "role": "assistant",
        "reasoning_content": "look it up",
        "content": "Searching.",
        "tool_calls": [{"id": "call_1", "function": {"name": "search", "arguments": '{"q": "x"}'}}],
    },
    {"role": "tool", "content": "a thousand words " * 1_000},
    {"role": "assistant", "content": [{"type": "text", "text": "It is "}, {"type": "text", "text": "x."}]},
]


def test_of_a_conversation_everything_the_policy_wrote_counts_and_nothing_else():
    assert generated(AGENT) == ["look it up", "Searching.", "search", '{"q": "x"}', "It is x."]
    assert length("characters").of(row(AGENT)) == sum(map(len, generated(AGENT)))
    assert length("words").of(row(AGENT)) == 3 + 1 + 1 + 2 + 3


@pytest.mark.parametrize(
    ("completion", "texts"),
    [
        ("plain", ["plain"]),
        ([], []),
        ([{"role": "user", "content": "hi"}], []),
        ([{"role": "assistant", "content": None}], []),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], ["a", "b"]),
        ([{"role": "assistant", "reasoning": "r", "thinking": "r", "content": "a"}], ["r", "a"]),
        ([{"role": "assistant", "function_call": {"name": "f", "arguments": {"a": 1}}}], ["f", '{"a":1}']),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "x"}, 7, None]}], ["f", "x"]),
        ([{"role": "assistant", "tool_calls": "raw"}], ["raw"]),
    ],
)
def test_what_was_generated_is_found_in_all_its_forms(completion, texts):
    assert generated(completion) == texts


def test_without_a_unit_a_length_is_refused_with_what_to_name():
    for settings in ({}, {"unit": "tokens"}):
        with pytest.raises(RefusedError, match=r"tokenizer=.*column=.*unit='words'"):
            overlong(100, 20, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "words", "column": "completion_ids"},
        {"unit": "characters", "tokenizer": letters},
        {"tokenizer": letters, "column": "completion_ids"},
        {"column": "my_tokens"},
        {"unit": "lines"},
        {"tokenizer": 7},
        {"tokenizer": lambda text: len(text) // 4},
        {"tokenizer": "no/such/tokenizer.json"},
    ],
)
def test_a_length_that_cannot_be_counted_is_refused(settings):
    with pytest.raises(RefusedError, match="overlong"):
        overlong(100, 20, **settings)


def test_a_tokenizer_with_which_no_reward_could_be_pickled_is_refused_for_that_reason():
    with pytest.raises(RefusedError, match=r"cannot be pickled .*, and so neither could the reward"):
        overlong(100, 20, tokenizer=lambda text: len(text))  # noqa: PLW0108 - a lambda is the point


@pytest.mark.parametrize(
    ("max_length", "buffer"), [(0, 0), (10, 0), (10, 11), (10, -1), (10.0, 5), (True, 1)]
)
def test_a_buffer_lies_inside_the_length(max_length, buffer):
    with pytest.raises(RefusedError, match="1 <= buffer <= max_length"):
        overlong(max_length, buffer, unit="words")


# The row's own count


@pytest.mark.parametrize(("count", "value"), [(80, 0.0), (90, -0.5), ([1] * 90, -0.5), ((1,) * 300, -1.0)])
def test_a_row_may_bring_its_own_count(count, value):
    reward = overlong(100, 20, column="completion_tokens")
    assert reward.lint({"completion_tokens": count}) is None
    assert reward([row("x", completion_tokens=count)], Context())[0].value == value


@pytest.mark.parametrize("count", [None, "90", -1, 90.5, True, {"n": 1}])
def test_a_count_that_is_none_is_a_fault_of_the_row(count):
    reward = overlong(100, 20, column="completion_tokens")
    assert "'completion_tokens'" in reward.lint({"completion_tokens": count})
    with pytest.raises(RefusedError, match="completion_tokens"):
        reward.rule(row("x", completion_tokens=count))


def test_a_count_of_its_own_is_needed_and_does_not_take_rows_out_of_their_group():
    recipe = Recipe((Part(overlong(100, 20, column="completion_tokens")),))
    assert (recipe.needed, recipe.read) == (("completion_tokens",), ())


# Tokenizers


@pytest.fixture
def tokenizer_json(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    unknown = {"unk_token": "[UNK]"}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "[UNK]": 1, "a": 2}, **unknown))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    made.enable_truncation(4)
    made.enable_padding(length=8)
    file = tmp_path / "tokenizer.json"
    made.save(str(file))
    return file


def test_a_tokenizer_file_counts_tokens_without_its_truncation_padding_and_extra_tokens(tokenizer_json):
    counted = length(tokenizer=tokenizer_json)
    assert counted.of(row("")) == 0
    assert counted.of(row("a")) == 1
    assert counted.of(row("a b, c " * 50)) == 200
    assert counted.of(row([{"role": "assistant", "content": "a b"}, {"role": "tool", "content": "a"}])) == 2


def test_a_folder_is_looked_into_and_a_path_may_be_text(tokenizer_json):
    by_folder = length("tokens", tokenizer=str(tokenizer_json.parent))
    assert by_folder == length(tokenizer=tokenizer_json)


def test_the_tokenizers_content_is_the_identity_and_not_its_place(tokenizer_json, tmp_path):
    moved = tmp_path / "elsewhere.json"
    moved.write_bytes(tokenizer_json.read_bytes())
    changed = tmp_path / "changed.json"
    changed.write_text(tokenizer_json.read_text().replace('"a"', '"b"'))
    identities = [overlong(100, 20, tokenizer=file).identity for file in (tokenizer_json, moved, changed)]
    assert identities[0] == identities[1] != identities[2]


def test_a_tokenizer_that_changed_under_a_run_counts_no_more(tokenizer_json):
    counted = length(tokenizer=tokenizer_json)
    content = json.loads(tokenizer_json.read_text())
    tokenizer_json.write_text(json.dumps(content))
    lengths._read_tokenizer.cache_clear()  # as in a worker process, which reads it for itself
    with pytest.raises(RefusedError, match="has changed"):
        counted.of(row("a"))


def test_a_file_that_holds_no_tokenizer_is_refused_before_the_run(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RefusedError, match="no tokenizer that can be read"):
            overlong(100, 20, tokenizer=place)


def test_a_lone_surrogate_is_counted_and_does_not_raise(tokenizer_json):
    assert length(tokenizer=tokenizer_json).of(row("a \ud800 a")) == 3


def test_a_function_of_the_users_counts_and_is_the_identity():
    assert length(tokenizer=letters).of(row("a1b2")) == 2
    assert length(tokenizer=letters).identity == length(tokenizer=letters).identity
    assert length(tokenizer=letters).identity != length(tokenizer=len).identity


@pytest.mark.parametrize("tokenizer", [float, str, broken])
def test_what_a_function_of_the_users_may_not_return_or_do_is_an_error(tokenizer):
    with pytest.raises((TypeError, OSError)):
        length(tokenizer=tokenizer).of(row("7"))


def test_rewards_travel_to_other_processes_and_are_equal_there(tokenizer_json):
    for settings in (
        {"unit": "words"},
        {"tokenizer": tokenizer_json},
        {"tokenizer": letters},
        {"column": "completion_ids"},
    ):
        reward = overlong(100, 20, **settings)
        sent = pickle.loads(pickle.dumps(reward))  # noqa: S301 - our own bytes
        given = row("word " * 95, completion_ids=[7] * 95)
        assert sent.identity == reward.identity
        assert sent([given], Context()) == reward([given], Context())


# Overlong


def test_the_punishment_is_the_papers():
    # TRL's own example of equation 13: 100, 20, 90 long
    assert soft_punishment(90, 100, 20) == -0.5
    # the paper's setting: 16,384 expected and a buffer of 4,096
    paper = [soft_punishment(size, 20_480, 4_096) for size in (16_384, 17_408, 18_432, 20_480, 20_481)]
    assert paper == [0.0, -0.25, -0.5, -1.0, -1.0]


sizes = st.integers(1, 10_000).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most)))


@given(sizes, st.integers(0, 20_000))
def test_the_punishment_lies_in_its_range_and_is_steady_and_never_rises(setting, size):
    max_length, buffer = setting
    here, further = (soft_punishment(at, max_length, buffer) for at in (size, size + 1))
    assert -1.0 <= further <= here <= 0.0
    assert here - further <= 1 / buffer + 1e-12


@given(sizes)
def test_the_punishment_begins_and_ends_where_it_should(setting):
    max_length, buffer = setting
    assert soft_punishment(max_length - buffer, max_length, buffer) == 0.0
    assert soft_punishment(max_length, max_length, buffer) == -1.0


def test_overlong_names_its_settings_its_floor_and_what_it_took():
    reward = overlong(10, 5, unit="characters")
    assert (reward.name, reward.floor) == ("overlong", -1.0)
    others = [
        overlong(11, 5, unit="characters"),
        overlong(10, 4, unit="characters"),
        overlong(10, 5, unit="words"),
    ]
    assert len({reward.identity, *(other.identity for other in others)}) == 4
    short, long = reward([row("12345"), row("1" * 99)], Context())
    assert (short.value, short.code) == (0.0, None)
    assert (long.value, long.code, long.reason) == (-1.0, "overlong", "99 long, free up to 5")


@given(st.text(max_size=40), st.integers(1, 30))
def test_overlong_is_never_below_its_floor_nor_above_nothing(text, max_length):
    reward = overlong(max_length, 1, unit="words")
    assert reward.floor <= reward.rule(row(text)).value <= 0.0


def test_a_megabyte_is_counted_in_linear_time(tokenizer_json):
    for settings in ({"unit": "words"}, {"unit": "characters"}, {"tokenizer": tokenizer_json}):
        reward = overlong(100, 20, **settings)
        for unit in ("a", "a ", "\n", "\ud800"):
            start = time.perf_counter()
            reward.rule(row(unit * (1_000_000 // len(unit))))
            assert time.perf_counter() - start < 5  # quadratic would take minutes


def test_the_library_is_imported_by_whom_counts_tokens_only():
    script = (
        "import sys; from steelyard.rewards.lengths import overlong; overlong(9, 3, unit='words'); "
        "print('tokenizers' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
