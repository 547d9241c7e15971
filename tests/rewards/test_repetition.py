"""What stood there before is charged by its share; what is said once costs nothing."""

import json
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Context
from steelyard.rewards.repetition import judge_repetition, repeated, repetition
from steelyard.rollout import Rollout


def row(completion):
    return Rollout("a", "Q", completion, {}, (0, 0), 0, "rows.jsonl:1")


@pytest.mark.parametrize(  # the values of open-r1's own tests of the same rule
    ("n", "max_penalty", "text", "value"),
    [
        (2, -1.0, "this is a test sentence", 0.0),
        (2, -1.0, "this this this this this", -0.75),
        (2, -1.0, "this is a this is a test", -1 / 3),
        (3, -0.5, "this is a test", 0.0),
        (3, -0.5, "test test test test", -0.25),
        (2, -1.0, "", 0.0),
        (3, -2.0, "this is a this is a test", -0.4),
        (3, -1.0, "word", 0.0),
        (3, -1.0, "two words", 0.0),
        (3, -1.0, "three different words", 0.0),
        (3, -1.0, "word word word word", -0.5),
        (3, -1.0, "one two one two", 0.0),
        (3, -0.5, "A B C A B", 0.0),
        (3, -1.0, "A B C A B C", -0.25),
        (3, -1.0, "A B C A B C E F G A B C A B C", -5 / 13),
        (3, -1.0, "A B C D E F G H I J K L", 0.0),
    ],
)
def test_the_values_are_the_published_ones(n, max_penalty, text, value):
    assert repetition(n, max_penalty=max_penalty).rule(row(text)).value == pytest.approx(value, abs=1e-12)


def test_case_and_white_space_make_no_difference():
    for unit in ("words", "characters"):
        plain = judge_repetition(row("this is this is"), n=2, unit=unit)
        assert judge_repetition(row("This  IS\n\tthis is "), n=2, unit=unit) == plain
        assert plain.value < 0


def test_a_language_without_spaces_is_read_by_characters():
    text = "今天天气很好。" * 20
    assert judge_repetition(row(text), n=10, unit="words").value == 0.0
    assert judge_repetition(row(text), n=10, unit="characters").value < -0.9


def test_what_an_earlier_message_said_is_repeated_and_no_ngram_reaches_across():
    def said(*texts):
        return row([{"role": "assistant", "content": text} for text in texts])

    assert judge_repetition(said("a b c", "a b c"), n=3).value == -0.5
    assert judge_repetition(said("a b", "c a b c"), n=3).value == 0.0
    answers = [{"role": "tool", "content": "a b c"}, {"role": "user", "content": "a b c"}]
    assert judge_repetition(row([{"role": "assistant", "content": "a b c"}, *answers]), n=3).value == 0.0


def test_what_was_charged_is_said():
    verdict = repetition(2).rule(row("this this this this this"))
    assert (verdict.code, verdict.reason) == ("repetitive", "75% of its 2-grams of words stood before")
    assert repetition(2).rule(row("once")).code is None


words = st.lists(st.sampled_from("abc"), max_size=60)


@given(words, st.integers(1, 8))
def test_the_share_is_that_of_a_count_by_hand(text, n):
    grams = [text[at : at + n] for at in range(len(text) - n + 1)]
    fresh = [gram for at, gram in enumerate(grams) if gram not in grams[:at]]
    expected = 1 - len(fresh) / len(grams) if grams else 0.0
    assert repeated([tuple(text)], n) == pytest.approx(expected)
    assert repeated(["".join(text)], n) == pytest.approx(expected)


@given(words, st.integers(1, 8), st.floats(-10, -0.001))
def test_the_penalty_stays_between_its_floor_and_nothing(text, n, max_penalty):
    reward = repetition(n, max_penalty=max_penalty)
    assert reward.floor <= reward.rule(row(" ".join(text))).value <= 0.0


@given(st.integers(1, 8), st.integers(0, 40))
def test_saying_it_all_again_costs_where_saying_it_once_was_free(n, more):
    text = [f"word{number}" for number in range(n + more)]
    once, twice = (judge_repetition(row(" ".join(text * times)), n=n).value for times in (1, 2))
    assert twice < once == 0.0


def test_the_floor_is_what_endless_repetition_comes_close_to():
    assert repetition(3, max_penalty=-2).rule(row("again " * 100_000)).value == pytest.approx(-2, abs=1e-3)


def test_the_settings_are_the_identity_and_travel():
    made = [repetition(), repetition(3), repetition(max_penalty=-0.5), repetition(unit="characters")]
    assert len({reward.identity for reward in made}) == 4
    for reward in made:
        sent = pickle.loads(pickle.dumps(reward))  # noqa: S301 - our own bytes
        assert sent([row("a b " * 50)], Context()) == reward([row("a b " * 50)], Context())


@pytest.mark.parametrize(
    "settings",
    [
        {"n": 0},
        {"n": 101},
        {"n": 2.0},
        {"n": True},
        {"max_penalty": 0.0},
        {"max_penalty": 1.0},
        {"max_penalty": float("nan")},
        {"max_penalty": float("-inf")},
        {"max_penalty": "-1"},
        {"unit": "tokens"},
    ],
)
def test_a_setting_out_of_range_is_refused(settings):
    with pytest.raises(RefusedError, match="repetition"):
        repetition(**settings)


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize("text", ["a", "a ", "ab cd ", " ", "漢字"])
def test_a_megabyte_is_judged_in_linear_time(unit, text):
    start = time.perf_counter()
    repetition(unit=unit).rule(row(text * (1_000_000 // len(text))))
    assert time.perf_counter() - start < 5  # quadratic would take minutes


@pytest.mark.needs("data")
def test_honest_completions_pay_next_to_nothing(data_dir):
    path = data_dir / "judgebench_pointwise.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    rows = [
        row(json.loads(line)["completion"]) for line in path.read_text(encoding="utf-8").splitlines()[:200]
    ]
    for unit in ("words", "characters"):
        paid = sorted(verdict.value for verdict in repetition(unit=unit)(rows, Context()))
        assert sum(value < -0.05 for value in paid) <= len(paid) * 0.05
