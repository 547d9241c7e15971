"""Each tag exactly once, in order, not empty; what may stand around them is a flag."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.rewards.text import format_tags, judge_format

GOOD = "<reasoning>2 + 2</reasoning>\n<answer>4</answer>"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  \n{GOOD}\n\n",
        GOOD.replace("\n", ""),
        "<reasoning>a < b and <b>bold</b></reasoning><answer>x</answer>",
    ],
)
def test_the_template_pays_in_full(text):
    assert judge_format(text, {}).value == 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "<reasoning> is missing"),
        ("4", "<reasoning> is missing"),
        ("<answer>4</answer>", "<reasoning> is missing"),
        ("<reasoning>x</reasoning><answer>4", "</answer> is missing"),
        ("<reasoning>x<answer>4</answer>", "</reasoning> is missing"),
        ("<reasoning></reasoning><answer>4</answer>", "<reasoning> is empty"),
        ("<reasoning>x</reasoning><answer> \n\t</answer>", "<answer> is empty"),
        ("<reasoning>x</reasoning><answer>\u200b\u00a0</answer>", "<answer> is empty"),
        ("<reasoning>x</reasoning><answer>\u200f\u202e\u2066</answer>", "<answer> is empty"),
        ("<reasoning>\u2800\u3164\ufe0f\x00</reasoning><answer>4</answer>", "<reasoning> is empty"),
        ("＜reasoning＞x＜/reasoning＞＜answer＞4＜/answer＞", "<reasoning> is missing"),
        (f"{GOOD}<answer>5</answer>", "stands 2 times"),
        (f"{GOOD}{GOOD}", "stands 2 times"),
        ("<answer>4</answer><reasoning>x</reasoning>", "out of order"),
        ("<reasoning>x<answer>4</answer></reasoning>", "nested"),
        ("<reasoning>x<answer></reasoning>4</answer>", "nested"),
        ("</reasoning>x<reasoning><answer>4</answer>", "out of order"),
        (f"Sure! {GOOD}", "text before <reasoning>"),
        ("<reasoning>x</reasoning> so <answer>4</answer>", "text before <answer>"),
        (f"{GOOD} Done.", "text after </answer>"),
        ("<Reasoning>x</Reasoning><Answer>4</Answer>", "<reasoning> is missing"),
        ("<reasoning >x</reasoning><answer>4</answer>", "<reasoning> is missing"),
        ("<answer><reasoning>x</reasoning></answer>", "out of order"),
    ],
)
def test_what_breaks_the_template_is_named_and_pays_nothing(text, reason):
    verdict = judge_format(text, {})
    assert (verdict.value, verdict.code) == (0.0, "malformed")
    assert reason in verdict.reason


def test_text_around_the_tags_passes_only_when_asked_for():
    text = f"Sure! {GOOD} Done."
    assert judge_format(text, {}).value == 0.0
    assert judge_format(text, {}, around="any").value == 1.0
    assert judge_format(f"{text}<answer>5</answer>", {}, around="any").value == 0.0


def test_the_settings_are_in_the_identity():
    assert format_tags().identity != format_tags(around="any").identity
    assert format_tags(("think", "answer")).identity != format_tags().identity
    assert format_tags(("think", "answer")).rule("<think>a</think><answer>b</answer>", {}).value == 1.0


@pytest.mark.parametrize("tags", [(), ("a", "a"), ("<a>",), ("a b",), ("",)])
def test_a_template_that_cannot_be_met_is_refused(tags):
    with pytest.raises(RefusedError, match="tags"):
        format_tags(tags)


def test_text_around_is_one_of_two_words():
    with pytest.raises(RefusedError, match="around"):
        format_tags(around="some")


@pytest.mark.parametrize("unit", ["<", "<reasoning>", "</answer>", GOOD, " "])
def test_a_megabyte_is_judged_in_no_time(unit):
    text = unit * (1_000_000 // len(unit))
    start = time.perf_counter()
    judge_format(text, {})
    assert time.perf_counter() - start < 5  # quadratic would take minutes


@given(
    st.lists(
        st.sampled_from(["<reasoning>", "</reasoning>", "<answer>", "</answer>", " ", "x", "<"]), max_size=12
    )
)
def test_any_arrangement_gets_one_of_the_two_values(parts):
    verdict = judge_format("".join(parts), {})
    assert verdict.value in (0.0, 1.0)
    assert (verdict.value == 1.0) == (verdict.reason is None)
