"""Every error is attributed once, at the nearest place, in words that can be written down."""

import asyncio

import pytest

from steelyard.errors import (
    InfraError,
    JudgeError,
    RefusedError,
    RewardError,
    RunStoppedError,
    SandboxError,
    SteelyardError,
    SuspectError,
    TooManyUnscoredError,
    UnscoredValueError,
    attributed,
    describe,
    printable,
)


def test_all_errors_have_one_root_and_boundaries_are_infrastructure():
    for kind in (RefusedError, InfraError, SuspectError, RewardError, RunStoppedError, UnscoredValueError):
        assert issubclass(kind, SteelyardError)
    assert issubclass(SandboxError, InfraError)
    assert issubclass(JudgeError, InfraError)
    assert issubclass(TooManyUnscoredError, RunStoppedError)
    assert not issubclass(SuspectError, InfraError)


def test_a_foreign_error_is_attributed_to_its_boundary():
    with (
        pytest.raises(InfraError, match=r"^judge:tone: ConnectionResetError: peer closed$") as raised,
        attributed("judge:tone"),
    ):
        raise ConnectionResetError("peer closed")
    assert raised.value.boundary == "judge:tone"
    assert isinstance(raised.value.__cause__, ConnectionResetError)


def test_the_nearest_attribution_stands():
    with pytest.raises(InfraError) as raised, attributed("far"), attributed("near"):
        raise OSError("x")
    assert raised.value.boundary == "near"


@pytest.mark.parametrize(
    "error", [SuspectError("wall"), RewardError("r", "x"), RefusedError("a", where="b", remedy="c")]
)
def test_our_own_errors_pass_untouched(error):
    with pytest.raises(type(error)) as raised, attributed("judge:x"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()]
)
def test_cancellation_and_interrupts_are_nobodys_fault(error):
    with pytest.raises(type(error)), attributed("judge:x"):
        raise error


def test_a_refusal_names_the_place_the_reason_and_the_next_step():
    error = RefusedError("it must be positive, not 0", where="--timeout", remedy="raise it")
    assert str(error) == "--timeout: it must be positive, not 0\n  next: raise it"


def test_a_reward_error_names_the_reward_and_the_row():
    assert (
        str(RewardError("tone", "returned nan", row="r.jsonl:7"))
        == "reward 'tone' on r.jsonl:7: returned nan"
    )
    assert str(RewardError("tone", "returned nan")) == "reward 'tone': returned nan"


def test_a_description_is_one_short_line_with_the_type_first():
    assert describe(ValueError("two\n lines ")) == "ValueError: two lines"
    assert describe(TimeoutError()) == "TimeoutError"
    assert len(describe(ValueError("x" * 1000))) == 300


def test_a_description_can_be_written_down_whatever_the_completion_put_in_it():
    class SpeechlessError(Exception):
        def __str__(self):
            raise ValueError

    assert describe(SpeechlessError()) == "SpeechlessError: (its message cannot be read)"
    assert describe(ValueError("\ud800é")).encode() == "ValueError: \\ud800é".encode()
    assert printable("plain é") == "plain é"
