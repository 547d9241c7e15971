"""What leaves: a failure is never a number, and only numbers are judgements."""

import math
from fractions import Fraction

import pytest

from steelyard.errors import SteelyardError, UnscoredValueError
from steelyard.outcome import LARGEST, Abstained, Part, Score, Scored, Unscored, as_judgement


def score(verdict):
    return Score((0, 0), 0, "part", "part/1", verdict, None)


def test_a_scored_rollout_is_its_number():
    assert float(Scored(0.5)) == float(score(Scored(0.5))) == 0.5
    assert sum(map(float, [Scored(1.0), Scored(-0.25)])) == 0.75


@pytest.mark.parametrize(
    "verdict", [Unscored("judge:x", "503"), Abstained("no column 'tone'")], ids=["unscored", "abstained"]
)
def test_whatever_asks_a_failure_for_its_number_gets_an_error_that_says_why(verdict):
    for ask in (float, lambda v: float(score(v)), math.isnan, lambda v: sum(map(float, [Scored(1.0), v]))):
        with pytest.raises(UnscoredValueError, match=r"503|tone") as asked:
            ask(verdict)
        assert isinstance(asked.value, TypeError)
        assert isinstance(asked.value, SteelyardError)


@pytest.mark.parametrize("verdict", [Unscored("judge:x", "503"), Abstained("no column")])
def test_a_failure_does_no_arithmetic_and_equals_no_number(verdict):
    with pytest.raises(TypeError):
        verdict + 1.0
    with pytest.raises(TypeError):
        sorted([verdict, Scored(1.0)])
    assert verdict not in (0.0, None, False)


def test_verdicts_are_values_that_nobody_changes():
    assert Unscored("a", "b") == Unscored("a", "b")
    assert len({Scored(1.0), Scored(1.0), Abstained("x"), Abstained("x")}) == 2
    with pytest.raises(AttributeError):
        Scored(1.0).value = 2.0


@pytest.mark.parametrize("number", [0, -1, True, 0.5, Fraction(1, 3), LARGEST, -LARGEST])
def test_numbers_are_judgements(number):
    judged = as_judgement(number)
    assert judged == Scored(float(number))
    assert type(judged.value) is float


def test_a_scored_keeps_its_words_and_gets_a_float():
    judged = as_judgement(Scored(True, "wrong", "5, not 4", "isolated"))
    assert judged == Scored(1.0, "wrong", "5, not 4", "isolated")
    assert type(judged.value) is float


@pytest.mark.parametrize(
    "value",
    [
        *(None, "1", b"1", [], (1.0,), {}, 1j, object, float("nan"), float("inf"), -float("inf"), 1e101),
        *(Scored(float("nan")), Scored("1"), Scored(None), Abstained("x"), Unscored("x", "y"), "x" * 10_000),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_everything_else_is_none_and_the_message_shows_what_it_was(value):
    with pytest.raises(ValueError, match=r"^returned ") as refused:
        as_judgement(value)
    assert len(str(refused.value)) < 200


def test_a_part_weighs_1_is_required_and_has_no_gate_unless_said():
    assert Part("reward")[1:] == (1.0, False, None)
