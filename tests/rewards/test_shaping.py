"""Length may take from what was earned; it never pays for failing, and never lifts what is below 0."""

import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Abstained, Part, Scored, Unscored
from steelyard.rewards.answers import answer, gsm8k
from steelyard.rewards.choice import choice
from steelyard.rewards.shaping import cosine, length_penalty
from steelyard.rollout import Rollout

ASKED = Part(answer())
FAILED = ["reward_error", "judge_unreadable", "cpu", "memory", "output", "reproduced", "wall_reproduced"]


def row(size=0, **columns):
    return Rollout("a", "Q", "x" * size, columns, (0, 0), 0, "rows.jsonl:1")


def broken(text):
    raise OSError(f"cannot read {text}")


def linear(**settings):
    return length_penalty(**{"target": 100, "limit": 200, "unit": "characters"} | settings)


def scaled(part=ASKED, **settings):
    return cosine(part, **{"max_length": 100, "unit": "characters"} | settings)


def of(shape, verdict, size):
    """What a recipe of this one part gets."""
    return shape(row(size), verdict, {"answer": verdict})


RIGHT, WRONG = Scored(1.0), Scored(0.0, "wrong", "committed 3, key 4")


# Both


@pytest.mark.parametrize("shape", [linear(), scaled(), linear(column="completion_tokens", unit=None)])
@pytest.mark.parametrize("missing", [Abstained("no such column"), Unscored("judge:x", "down")])
def test_what_has_no_value_passes_untouched(shape, missing):
    assert shape(row(150), missing, {"answer": missing}) is missing


@pytest.mark.parametrize("shape", [linear(), linear(least=0.5), scaled(), scaled(exceed=-3)])
def test_shapes_are_values_that_travel(shape):
    sent = pickle.loads(pickle.dumps(shape))  # noqa: S301 - our own bytes
    assert sent == shape
    assert hash(sent) == hash(shape)
    assert sent.identity == shape.identity


def test_every_setting_is_in_the_identity():
    shapes = [
        linear(),
        linear(target=99),
        linear(limit=201),
        linear(least=0.1),
        linear(unit="words"),
        scaled(),
        scaled(max_length=101),
        scaled(right=(1.0, 0.6)),
        scaled(wrong=(-1.0, -0.6)),
        scaled(exceed=-2),
        scaled(full=0.9),
        scaled(unit="words"),
        scaled(Part(answer(), weight=2.0)),
        scaled(Part(choice())),
    ]
    assert len({shape.identity for shape in shapes}) == len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("make", [linear, scaled])
def test_a_length_must_be_said_and_a_rows_own_count_is_linted(make):
    with pytest.raises(RefusedError, match="what a length counts"):
        make(unit=None)
    counted = make(unit=None, column="completion_tokens")
    assert "'completion_tokens'" in counted.lint({"completion_tokens": None})
    assert counted.lint({"completion_tokens": 3}) is None


@pytest.mark.parametrize("make", [linear, scaled])
def test_a_tokenizer_that_fails_on_a_text_counts_it_as_the_longest(make):
    failing = make(unit=None, tokenizer=broken)
    shaped = of(failing, RIGHT, 5)
    assert shaped.value == of(make(), RIGHT, 10_000).value
    assert shaped.code == "reward_error"
    assert "cannot read" in shaped.reason


@pytest.mark.parametrize("make", [linear, scaled])
def test_a_row_without_its_count_stops_and_is_no_completions_doing(make):
    with pytest.raises(RefusedError, match="column 'completion_ids'"):
        of(make(unit=None, column="completion_ids"), RIGHT, 5)


# length_penalty


@pytest.mark.parametrize(
    ("size", "value"), [(0, 1.0), (100, 1.0), (125, 0.75), (150, 0.5), (200, 0.0), (10_000, 0.0)]
)
def test_the_factor_falls_in_a_straight_line(size, value):
    assert of(linear(), RIGHT, size).value == value


def test_it_is_the_factor_of_l1_max():
    # clip(alpha * (wanted - length) + delta, 0, 1) with alpha = 0.0003 and delta = 0.5: arXiv:2503.04697
    alpha, wanted = 0.0003, 4_000
    half = 0.5 / alpha
    shape = linear(target=round(wanted - half), limit=round(wanted + half))
    for size in (0, 2_000, 2_500, 3_500, 4_000, 5_600, 6_000):
        theirs = min(1.0, max(0.0, alpha * (wanted - size) + 0.5))
        assert shape.factor(size) == pytest.approx(theirs, abs=2e-4)


totals = st.floats(-10, 10)
lengths = st.integers(0, 400)
shares = st.floats(0, 1)


@given(totals, lengths, shares)
def test_what_is_not_above_nothing_is_handed_on_as_it_is(total, size, least):
    given_total = Scored(-abs(total), "wrong")
    assert of(linear(least=least), given_total, size) is given_total


@given(totals, lengths, lengths, shares)
def test_being_longer_never_pays_more(total, one, other, least):
    short, long = sorted((one, other))
    shape = linear(least=least)
    assert of(shape, Scored(total), long).value <= of(shape, Scored(total), short).value + 1e-12


@given(totals, totals, lengths, shares)
def test_at_equal_length_the_better_stays_the_better(one, other, size, least):
    shape = linear(least=least)
    worse, better = sorted((one, other))
    assert of(shape, Scored(worse), size).value <= of(shape, Scored(better), size).value


@given(totals, st.floats(0, 20), lengths, shares)
def test_its_floor_is_the_lowest_that_it_makes(lowest, above, size, least):
    shape = linear(least=least)
    assert shape.floor(lowest) <= of(shape, Scored(lowest + above), size).value + 1e-12
    assert of(shape, Scored(lowest), 400).value == pytest.approx(shape.floor(lowest))


def test_a_total_that_was_shortened_says_so_and_keeps_what_a_part_said():
    taken = of(linear(), RIGHT, 150)
    assert (taken.code, taken.reason) == ("overlong", "150 long, target 100")
    wrong = of(linear(), Scored(0.2, "wrong", "gsm8k: wrong", "isolated"), 150)
    assert (wrong.value, wrong.code, wrong.reason) == (0.1, "wrong", "gsm8k: wrong")
    assert wrong.integrity == "isolated"


@pytest.mark.parametrize(
    "settings",
    [
        {"target": 200},
        {"target": -1},
        {"limit": 100.5},
        {"least": -0.1},
        {"least": 1.1},
        {"least": float("nan")},
        {"least": True},
    ],
)
def test_a_penalty_with_numbers_out_of_order_is_refused(settings):
    with pytest.raises(RefusedError, match="length_penalty"):
        linear(**settings)


# cosine


@pytest.mark.parametrize(  # open-r1's own test, whose answer of 22 characters is longer than the 20 it names
    ("verdict", "size", "value"),
    [(RIGHT, 22, 0.943), (RIGHT, 80, 0.547), (WRONG, 22, -0.942), (WRONG, 80, -0.547)],
)
def test_the_values_are_open_r1s(verdict, size, value):
    assert of(scaled(), verdict, size).value == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(  # equation 1 with the paper's values, worked by hand
    ("verdict", "size", "value"),
    [
        (RIGHT, 0, 2.0),
        (RIGHT, 7_168, 1.5),
        (RIGHT, 14_335, 1.0),
        (RIGHT, 14_336, -10.0),
        (WRONG, 0, -10.0),
        (WRONG, 7_168, -5.0),
        (WRONG, 14_335, 0.0),
        (WRONG, 14_336, -10.0),
    ],
)
def test_the_values_are_the_papers(verdict, size, value):
    paper = scaled(max_length=14_336, right=(2, 1), wrong=(-10, 0), exceed=-10)
    assert of(paper, verdict, size).value == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("size", [100, 101, 150, 200, 400])
def test_beyond_the_length_nothing_turns_back(size):
    assert of(scaled(exceed=-2), RIGHT, size).value == -2.0
    assert of(scaled(), WRONG, size).value == -1.0


def test_what_pays_in_full_must_have_no_code_and_full_marks():
    right = of(scaled(), RIGHT, 20).value
    assert of(scaled(), Scored(1.2), 20).value == pytest.approx(right)
    for verdict in (Scored(0.0), Scored(0.9), Scored(1.0, "hedged"), WRONG):  # a user's float has no code
        assert of(scaled(), verdict, 20).value < 0
    assert of(scaled(full=0.9), Scored(0.9), 20).value == pytest.approx(right)


finite = st.floats(-100, 100)


@st.composite
def cosines(draw):
    low, mid, high, top = sorted(draw(st.lists(finite, min_size=4, max_size=4)))
    assume(mid < high)
    order = draw(st.booleans())
    return scaled(
        wrong=(mid, low) if order else (low, mid),
        right=(top, high),
        exceed=draw(st.none() | st.just(low - 1)),
    )


@given(cosines(), lengths, lengths)
def test_the_right_are_worth_more_than_the_wrong_at_any_two_lengths_that_fit(shape, one, other):
    one, other = one % 100, other % 100
    assert of(shape, WRONG, one).value <= of(shape, RIGHT, other).value + 1e-9


@given(cosines(), lengths, lengths)
def test_of_two_right_answers_the_longer_is_never_worth_more(shape, one, other):
    short, long = sorted((one, other))
    assert of(shape, RIGHT, long).value <= of(shape, RIGHT, short).value + 1e-9


@given(cosines(), st.sampled_from(FAILED), lengths, lengths)
def test_no_wrong_answer_gains_by_failing_instead(shape, code, size, other):
    failed = of(shape, Scored(0.0, code), size).value
    assert failed <= of(shape, WRONG, other).value + 1e-9
    assert failed <= of(shape, RIGHT, other).value + 1e-9


@given(cosines(), st.sampled_from([RIGHT, WRONG, *(Scored(0.0, code) for code in FAILED)]), lengths)
def test_its_floor_is_what_failing_pays_and_the_lowest_of_all(shape, verdict, size):
    assert shape.floor(0.0) <= of(shape, verdict, size).value + 1e-9
    assert shape.floor(0.0) == pytest.approx(of(shape, Scored(0.0, "reward_error"), 0).value)


def test_other_parts_stay_in_the_sum_and_correctness_is_counted_once():
    part = Part(gsm8k(), weight=0.5)  # right 1.2, wrong 0.2
    shape = scaled(part, full=1.2)
    for verdict, worth in ((Scored(1.2), 0.75), (Scored(0.2, "wrong"), -0.75), (Scored(0.0, "cpu"), -1.0)):
        penalty = -0.3
        total = Scored(0.5 * verdict.value + penalty, verdict.code)
        shaped = shape(row(50), total, {"gsm8k": verdict, "overlong": Scored(penalty)})
        assert shaped.value == pytest.approx(0.5 * worth + penalty)
    assert shape.floor(0.0 - 1.0) == pytest.approx(0.5 * -1.0 - 1.0)


def test_where_the_part_abstained_the_total_stays_as_it_is():
    total = Scored(0.4)
    assert scaled()(row(50), total, {"answer": Abstained("not this row")}) is total


def test_a_part_that_the_recipe_lacks_is_an_error_and_no_silence():
    with pytest.raises(KeyError):
        scaled()(row(5), RIGHT, {"gsm8k": RIGHT})


def test_a_gated_part_is_refused_for_failing_its_gate_would_pay():
    with pytest.raises(RefusedError, match="gated"):
        scaled(Part(answer(), only_if=lambda _said: True))


@pytest.mark.parametrize(
    "settings",
    [
        {"wrong": (-1.0, 0.5)},
        {"wrong": (0.7, -1.0)},
        {"exceed": -0.9},
        {"exceed": float("nan")},
        {"exceed": float("-inf")},
        {"right": (float("inf"), 0.5)},
        {"right": (1.0,)},
        {"right": 1.0},
        {"wrong": ("a", "b")},
        {"full": float("nan")},
        {"max_length": 0},
        {"max_length": 10.0},
        {"part": Part(answer(), weight=0.0)},
    ],
)
def test_values_that_would_pay_the_wrong_thing_are_refused(settings):
    with pytest.raises(RefusedError, match="cosine"):
        scaled(**settings)


def test_a_completion_that_was_cut_says_so():
    cut = of(scaled(), RIGHT, 100)
    assert (cut.code, cut.reason) == ("overlong", "100 long, cut at 100")
    assert of(scaled(), WRONG, 100).code == "wrong"
    assert of(scaled(), RIGHT, 99).code is None


def test_only_cosine_takes_the_total_for_the_sum():
    assert (linear().reads_parts, scaled().reads_parts) == (False, True)
