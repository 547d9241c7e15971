import pytest

from steelyard.errors import RefusedError
from steelyard.outcome import Abstained, Scored, Unscored
from steelyard.rewards.gates import gate


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("a >= 1", True),
        ("a > 1", False),
        ("a > 0.5 and b >= -0.5", True),
        ("a > 0.5 and b > -0.5", False),
        ("b>-1", True),
    ],
)
def test_a_gate_opens_where_every_condition_holds(text, opens):
    assert gate(text)({"a": Scored(1.0), "b": Scored(-0.5)}) is opens


@pytest.mark.parametrize("verdict", [Abstained("no column"), Unscored("judge:x", "down")])
def test_a_part_without_a_value_opens_no_gate(verdict):
    assert not gate("a >= 0")({"a": verdict})
    assert not gate("a >= 0")({})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a >=",
        ">= 1",
        "a >= x",
        "a >= nan",
        "a = 1",
        "a < 1",
        "a <= 1",
        "a == 1",
        "a != 1",
        "a >= 1 or b >= 1",
        "a >= 1 and",
    ],
)
def test_what_is_no_gate_is_refused_with_an_example(text):
    with pytest.raises(RefusedError, match=r"(?s)cannot be read.*'format >= 1'"):
        gate(text)


def test_a_gate_names_what_it_reads_and_equals_its_like():
    assert gate("a >= 1 and b > 0").reads == ("a", "b")
    assert gate("a>=1") == gate(" a >= 1.0 ")
