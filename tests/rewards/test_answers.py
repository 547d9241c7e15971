"""One committed answer, read after the thinking, against the key; nothing pays that is not right."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.rewards.answers import answer, gsm8k, judge_answer, judge_gsm8k, strip_thinking, words

RIGHT, WRONG, FLOOR = 1.2, 0.2, 0.0

# completion, gold, value: cases of our own, beyond those of `test_numbers`.
STRICT = [
    ("3 * 6 = 18\n#### 18", "18", RIGHT),
    ("#### 18", 18, RIGHT),
    ("#### 18", 18.0, RIGHT),
    ("#### 18.0", "18", RIGHT),
    ("#### 18.", "18", RIGHT),
    ("####18", "18", RIGHT),
    ("#### 18\r\n", "18", RIGHT),
    ("####\n18", "18", RIGHT),
    ("####\n\n\n  $18\n", "18", RIGHT),
    ("#### Answer:\n18", "18", RIGHT),
    ("#### Final Answer\n\nThe answer is 18.", "18", RIGHT),
    ("#### **Answer:** 18", "18", RIGHT),
    ("#### 64000", "64,000", RIGHT),
    ("#### 64,000", "64000", RIGHT),
    ("#### 64,000", "They earn 8 * 8,000 a year.\n#### 64,000", RIGHT),
    ("#### $64,000.00 per year", "64000", RIGHT),
    ("#### 12.50", "12.5", RIGHT),
    ("#### 12.50", 12.5, RIGHT),
    ("#### 0.1", 0.1, RIGHT),
    ("#### 1/10", 0.1, RIGHT),
    ("#### .5", "1/2", RIGHT),
    ("#### 10000000000000000", 1e16, RIGHT),
    ("#### 123456789012345678901234567890", "123456789012345678901234567890", RIGHT),
    ("#### -4", "-4", RIGHT),
    ("#### −4", "-4", RIGHT),
    ("#### 0", "0", RIGHT),
    ("#### 0", 0, RIGHT),
    ("#### 0.00", "0", RIGHT),
    ("#### 18\nThe answer is: 18", "18", RIGHT),
    ("#### 18\n" + "Checked again, nothing changes. " * 30, "18", RIGHT),
    ("#### 18 " + "and that is how many there are in the end " * 20, "18", RIGHT),
    ("#### 17\nWait, recount.\n#### 18", "18", RIGHT),
    ("###### 18", "18", RIGHT),
    ("<think>#### 17</think>\n#### 18", "18", RIGHT),
    ("<think>17?</think>#### 18", "18", RIGHT),
    ("maybe 17</think>#### 18", "18", RIGHT),
    ("<reasoning>9 + 9</reasoning>\n#### 18", "18", RIGHT),
    ("#### <answer>18</answer>", "18", RIGHT),
    ("#### $\\boxed{18}$", "18", RIGHT),
    ("#### 50%", "50", RIGHT),
    ("#### 50", "50%", RIGHT),
    ("#### 12.5%", "1/8", RIGHT),
    ("#### 1/4", "25%", RIGHT),
    ("#### 18 ####", "18", RIGHT),
    ("#### 18, not 17", "18", RIGHT),
    ("#### 12 (15 - 3)", "12", RIGHT),
    ("#### 36*.5=<<36*.5=18>>18", "18", RIGHT),
    ("#### \u202a18\u202c", "18", RIGHT),
    ("#### 9.9 billion", "9900000000", RIGHT),
    ("#### $1,234.50\nTotal: 3 * 6", "1234.5", RIGHT),
    ("#### 18<|im_end|>", "18", RIGHT),
    ("#### 18 cookies", "18 cookies", RIGHT),
    ("#### 18 cookie", "18 cookies", RIGHT),
    ("#### 5 hrs", "5 hours", RIGHT),
    ("#### 19", "18", WRONG),
    ("#### 19.5", "19", WRONG),
    ("#### 53.8", "53", WRONG),
    ("#### 4", "-4", WRONG),
    ("#### -4", "4", WRONG),
    ("#### 1,000", "1", WRONG),
    ("#### 1.000", "1000", WRONG),
    ("#### 0.5", "50%", RIGHT),
    ("#### 50%", "0.5", RIGHT),
    ("#### 3/4", "3", WRONG),
    ("#### 0.333", "1/3", WRONG),
    ("#### 18 cents", "18 dollars", WRONG),
    ("#### 18\n#### 17", "18", WRONG),
    ("#### 500%", "5", WRONG),
    ("#### 5", "500%", WRONG),
    ("#### 3 million", "3", WRONG),
    ("#### 100 + 9 = 108", "109", WRONG),
    ("#### 180", "18", WRONG),
    ("#### 18e1", "18", WRONG),
    ("#### 1.0000001", "1", WRONG),
    ("#### 10000000000000001", 1e16, WRONG),
    ("18", "18", FLOOR),
    ("", "18", FLOOR),
    ("####", "18", FLOOR),
    ("She has 18 of them. ####", "18", FLOOR),
    ("#### 18\n####", "18", FLOOR),
    ("18 ####", "18", FLOOR),
    ("#### 18 #### ####", "18", FLOOR),
    ("#### Step 3: add them up", "3", FLOOR),
    ("#### Step 3\nso it is 18", "3", FLOOR),
    ("#### 36*.5", "36.5", FLOOR),
    ("#### 1010_2", "10102", FLOOR),
    ("#### nan", "18", FLOOR),
    ("#### 18 is not 17", "18", FLOOR),
    ("### 18", "18", FLOOR),
    ("# # # # 18", "18", FLOOR),
    ("<think>#### 18", "18", FLOOR),
    ("<think>#### 18</think>", "18", FLOOR),
    ("#### 18</think>", "18", FLOOR),
    ("<thinking>so\n#### 18", "18", FLOOR),
    ("<reasoning>so\n#### 18", "18", FLOOR),
    ("<think>a</think><think>#### 18", "18", FLOOR),
    ("#### 7:30", "7", FLOOR),
    ("#### 18 or 19", "18", FLOOR),
    ("#### 18, 19", "18", FLOOR),
    ("#### 17, 18", "18", FLOOR),
    ("#### 10-12", "10", FLOOR),
    ("#### 10 dollars and 50 cents", "10", FLOOR),
    ("#### 9+John's age", "9", FLOOR),
    ("#### 1.5.2", "1.5", FLOOR),
    ("#### 2^3", "2", FLOOR),
    ("#### 10^9^9", "10", FLOOR),
    ("#### 1e400", "1", FLOOR),
    ("#### " + "9" * 5_000, "9", FLOOR),
    ("#### " + "{" * 5_000 + "18", "18", FLOOR),
    ("#### eighteen", "18", FLOOR),
    ("#### the number of apples", "18", FLOOR),
    ("#### not 18", "18", FLOOR),
    ("#### at least 18", "18", FLOOR),
]

FLEXIBLE = [
    ("#### 18", "18", 1.0),
    ("#### 19", "18", 0.0),
    ("so she has 18.", "18", 1.0),
    ("6 * 3 = 18 apples in total", "18", 1.0),
    ("He needs 6 boxes (24/4).", "6", 1.0),
    ("so she has 18, not 17", "18", 0.0),
    ("She has 18 of them. ####", "18", 0.0),
    ("<think>18", "18", 0.0),
    ("<think>18</think>It is 18.", "18", 1.0),
    ("between 10-12", "12", 0.0),
    ("at 7:30", "30", 0.0),
    ("no idea", "18", 0.0),
    ("He spends $\\boxed{18}$ dollars in 60 days.", "18", 1.0),
    ("He spends $\\boxed{18}$ dollars in 60 days.", "60", 0.0),
    ("first \\boxed{17}, no, \\boxed{18}", "18", 1.0),
    ("\\boxed{17} or \\boxed{18}", "18", 0.0),
    ("\\boxed{17, 18}", "18", 0.0),
    ("\\boxed{18} and an empty \\boxed{}", "18", 1.0),
    ("<think>\\boxed{18}</think>", "18", 0.0),
    ("\\boxed{\\frac{36}{2}}", "18", 1.0),
    ("\\boxed{50\\%}", "0.5", 1.0),
    ("So she has 18!", "18", 1.0),
    ("#### Step 1: add\nIt is 9 + 9 = 18.", "18", 1.0),
    ("#### Conclusion\n\nShe has \\boxed{18} apples, 60 pears.", "18", 1.0),
    ("\\boxed{18}\n#### Check\nIt took 3 steps.", "18", 1.0),
    ("#### 10-12\nso 12", "12", 0.0),
    ("#### Conclusion", "18", 0.0),
]


def tag(content):
    return f"<reasoning>x</reasoning>\n<answer>{content}</answer>"


TAG = [
    (tag("Paris"), "Paris", True),
    (tag("paris"), "Paris", True),
    (tag(" Paris \n"), "Paris", True),
    (tag("Paris."), "Paris", True),
    (tag("**Paris**"), "Paris", True),
    (tag('"Paris"'), "Paris", True),
    (tag("“Paris”"), "Paris", True),
    (tag("\\boxed{\\text{Paris}}"), "Paris", True),
    (tag("$\\text{Paris}$"), "Paris", True),
    (tag("New\u00a0York"), "New York", True),
    (tag("New\n  York"), "New York", True),
    (tag("e\u0301te\u0301"), "\u00e9t\u00e9", True),
    (tag("\u00e9t\u00e9"), "e\u0301te\u0301", True),
    (tag("ＰＡＲＩＳ"), "Paris", True),
    (tag("Straße"), "STRASSE", True),
    (tag("Pa\u200bris"), "Paris", True),
    (tag("don’t"), "don't", True),
    (tag("Jean–Paul"), "Jean-Paul", True),
    (tag("$42"), "42", True),
    (tag("42.0"), "42", True),
    (tag("42"), 42, True),
    (tag("forty-two"), "forty-two", True),
    (tag("\\boxed{42}"), "42", True),
    (tag("42 km"), "42", True),
    (tag("x = 42"), "42", True),
    (tag("The answer is 42."), "42", True),
    (tag("1,000"), "1000", True),
    (tag("\\frac{1}{2}"), "0.5", True),
    (tag("50%"), "50%", True),
    (tag("7:30"), "7:30", True),
    (tag("3:2"), "3:2", True),
    (tag("Apollo 11"), "Apollo 11", True),
    (tag("x^2"), "x²", True),
    (tag("C++"), "C++", True),
    (tag("snake_case"), "snake_case", True),
    (tag("(1, 2)"), "(1, 2)", True),
    (tag("B"), "B", True),
    (tag("(B)"), "B", True),
    (tag("B)"), "B", True),
    (tag("B) because it is larger"), "B", True),
    (tag("(B) because it is larger"), "B", True),
    (tag("B: Paris"), "B", True),
    (tag("Option B"), "B", True),
    (tag("The answer is B"), "B", True),
    (tag("B) C. elegans"), "B", True),
    (tag("The answer is Paris."), "Paris", True),
    (tag("Final answer: Paris"), "Paris", True),
    (tag("\u202aParis\u202c"), "Paris", True),
    (tag("50%"), "0.5", True),
    (tag("."), ".", True),
    ("<answer>Paris</answer>", "Paris", True),
    ("<ANSWER>Paris</ANSWER>", "Paris", True),
    ("<answer>Paris</answer> <answer>paris.</answer>", "Paris", True),
    ("<answer>42</answer> <answer>42.0</answer>", "42", True),
    ("<answer></answer><answer>Paris</answer>", "Paris", True),
    ("<reasoning><answer>London</answer>? no</reasoning><answer>Paris</answer>", "Paris", True),
    ("<think><answer>London</answer></think><answer>Paris</answer>", "Paris", True),
    ("<answer>London</answer> hm</think><answer>Paris</answer>", "Paris", True),
    ("<answer>Paris</answer>", "It is the capital. #### Paris", True),
    (tag("pairs"), "Paris", False),
    (tag("Paris or London"), "Paris", False),
    (tag("Paris, France"), "Paris", False),
    (tag("not Paris"), "Paris", False),
    (tag("London"), "Paris", False),
    (tag("Paris London"), "Paris", False),
    (tag("C"), "C++", False),
    (tag("NewYork"), "New York", False),
    (tag("snakecase"), "snake_case", False),
    (tag("11"), "Apollo 11", False),
    (tag("Apollo 11"), "11", False),
    (tag("Gemini 11"), "Apollo 11", False),
    (tag("42 miles"), "42 km", False),
    (tag("41"), "42", False),
    (tag("42.5"), "42", False),
    (tag("42 or 43"), "42", False),
    (tag("42, 43"), "42", False),
    (tag("42\n43"), "42", False),
    (tag("Paris 42"), "42", False),
    (tag("42"), "forty-two", False),
    (tag("7"), "7:30", False),
    (tag("7:30"), "7", False),
    (tag("07:30"), "7:30", False),
    (tag("2,1"), "1,2", False),
    (tag("a+b"), "b+a", False),
    (tag("D"), "B", False),
    (tag("B) or C)"), "B", False),
    (tag("(A), (B)"), "A", False),
    (tag("A) B)"), "A", False),
    (tag("B: C"), "B", False),
    (tag("The answer is"), "Paris", False),
    (tag("The answer is Paris or London"), "Paris", False),
    (tag("\u0420aris"), "Paris", False),
    (tag("..."), ".", False),
    (tag("Because"), "B", False),
    (tag("A person"), "A", False),
    (tag("because"), "B", False),
    (tag("10²"), "102", False),
    (tag("."), "Paris", False),
    (tag(""), "Paris", False),
    (tag("  \n"), "Paris", False),
    ("<answer>Paris", "Paris", False),
    ("<answer>Paris</answer><answer>Lon", "Paris", False),
    ("<answer>Paris <answer>London</answer>", "London", False),
    ("<answer>Paris</answer><answer>London</answer>", "Paris", False),
    ("<answer>London</answer><answer>Paris</answer>", "Paris", False),
    ("<answer>42</answer><answer>43</answer>", "42", False),
    ("<reasoning><answer>Paris</answer></reasoning>", "Paris", False),
    ("<think><answer>Paris</answer>", "Paris", False),
    ("<answer>Paris</answer></think>", "Paris", False),
    ("Paris", "Paris", False),
    ("Paris</answer>", "Paris", False),
    ("answer: Paris", "Paris", False),
    ("", "Paris", False),
]


@pytest.mark.parametrize(("completion", "gold", "value"), STRICT)
def test_the_number_after_the_last_marker_is_judged(completion, gold, value):
    assert judge_gsm8k(completion, {"answer": gold}).value == value


@pytest.mark.parametrize(("completion", "gold", "value"), FLEXIBLE)
def test_without_a_marker_flexible_takes_the_last_number(completion, gold, value):
    assert judge_gsm8k(completion, {"answer": gold}, flexible=True).value == value


@pytest.mark.parametrize(("completion", "gold", "right"), TAG)
def test_the_answer_tag_is_judged(completion, gold, right):
    assert judge_answer(completion, {"answer": gold}).value == (1.0 if right else 0.0)


@pytest.mark.parametrize(
    ("judge", "completion", "code"),
    [
        (judge_gsm8k, "18", "no_answer"),
        (judge_gsm8k, "####", "no_answer"),
        (judge_gsm8k, "#### 7:30", "malformed"),
        (judge_gsm8k, "#### 18 or 19", "hedged"),
        (judge_gsm8k, "#### 19", "wrong"),
        (judge_gsm8k, "#### $19", "wrong"),
        (judge_answer, "18", "no_answer"),
        (judge_answer, tag(""), "no_answer"),
        (judge_answer, "<answer>18", "no_answer"),
        (judge_answer, "<answer>18</answer><answer>19</answer>", "hedged"),
        (judge_answer, tag("18 or 19"), "hedged"),
        (judge_answer, tag("19"), "wrong"),
    ],
)
def test_a_verdict_below_full_marks_names_its_code_and_reason(judge, completion, code):
    verdict = judge(completion, {"answer": "18"})
    assert verdict.code == code
    assert 0 < len(verdict.reason) <= 80


def test_a_wrong_answer_shows_both_sides():
    assert judge_gsm8k("#### 19", {"answer": "18"}).reason == "committed '19', key '18'"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("plain", "plain"),
        ("a <b>c</b>", "a <b>c</b>"),
        ("<think>a</think>b", "b"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<think>a</reasoning>b</think>c", "c"),
        ("a</think>b", "b"),
        ("a<think>b", "a"),
        ("<thinking>a</thinking>b<think>c</think>d", "b\nd"),
    ],
)
def test_thinking_is_dropped_closed_cut_or_opened_by_the_prompt(text, rest):
    assert strip_thinking(text) == rest


BAD = [
    None,
    "",
    "  ",
    True,
    False,
    [],
    ["18"],
    {},
    {"a": 1},
    float("nan"),
    float("inf"),
    "18 ####",
    b"18",
    10**5_000,
]


@pytest.mark.parametrize("gold", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("reward", [gsm8k(), gsm8k(flexible=True), answer()])
def test_a_gold_that_is_none_is_a_fault_before_the_run_and_refused_in_a_direct_call(reward, gold):
    fault = reward.lint({"answer": gold})
    assert "'answer'" in fault
    assert ":" in fault
    assert len(fault) < 200
    with pytest.raises(RefusedError, match="answer"):
        reward.rule("#### 18 <answer>18</answer>", {"answer": gold})


@pytest.mark.parametrize("gold", ["Paris", "18 or 19", "7:30", "x", "9" * 500])
def test_gsm8k_needs_a_number_for_its_key(gold):
    assert "no single number" in gsm8k().lint({"answer": gold})
    with pytest.raises(RefusedError, match="number"):
        judge_gsm8k("#### 18", {"answer": gold})


def test_a_missing_column_is_a_fault():
    for reward in (gsm8k(), answer()):
        assert "missing" in reward.lint({})
        with pytest.raises(RefusedError):
            reward.rule("#### 18", {})


@pytest.mark.parametrize("gold", ["18", 18, 18.0, "64,000", "so\n#### 64,000", "1/2", 1e16, -3])
def test_a_good_gold_has_no_fault(gold):
    assert gsm8k().lint({"answer": gold}) is None
    assert answer().lint({"answer": gold}) is None


def test_equal_golds_of_different_types_are_not_mixed_up():
    assert judge_gsm8k("#### 1", {"answer": 1}).value == RIGHT
    assert judge_gsm8k("#### 1", {"answer": 1.0}).value == RIGHT
    assert judge_gsm8k("#### 1", {"answer": "1"}).value == RIGHT
    with pytest.raises(RefusedError):
        judge_gsm8k("#### 1", {"answer": True})


def test_the_rewards_name_their_rules():
    assert [gsm8k().identity, gsm8k(flexible=True).identity, answer().identity] == [
        "gsm8k/1",
        "gsm8k/1:flexible",
        "answer/1",
    ]
    assert {gsm8k().floor, gsm8k(flexible=True).floor, answer().floor} == {0.0}


@pytest.mark.parametrize(
    "unit",
    [
        "#",
        "<",
        "9",
        " ",
        ",",
        "{",
        "####",
        "#### 1\n",
        "<answer>",
        "<think>",
        "</think>",
        "<answer>1</answer>",
        "\\boxed{",
        "\n",
        "($",
        "½",
    ],
)
def test_a_megabyte_of_anything_is_judged_in_linear_time(unit):
    body = unit * (1_000_000 // len(unit))
    for completion in (body, f"#### {body}", f"<answer>{body}</answer>", f"#### 1{body}"):
        for judge in (judge_gsm8k, judge_answer):
            start = time.perf_counter()
            judge(completion, {"answer": "18"})
            assert time.perf_counter() - start < 5  # quadratic would take minutes


@pytest.mark.parametrize("opening", ["\\frac{", "\\frac{1}{", "^", "\\text{", "1/", "(", "½", "\\boxed{"])
@pytest.mark.parametrize("filling", [" ", " 1", ",", "{", "- "])
def test_an_opening_and_what_may_follow_it_cost_no_more(opening, filling):
    body = opening + filling * (4_800 // len(filling))
    for completion in (f"#### {body}x", f"<answer>{body}{{{body}x</answer>"):
        for judge in (judge_gsm8k, judge_answer):
            start = time.perf_counter()
            judge(completion, {"answer": "18"})
            assert time.perf_counter() - start < 5  # cubic would take minutes


soup = st.lists(
    st.sampled_from(
        [
            "####",
            "<answer>",
            "</answer>",
            "<think>",
            "</think>",
            "<reasoning>",
            "18",
            "19",
            " ",
            "\n",
            ".",
            ",",
            "-",
            "or",
            "/",
            "^",
            "e9",
            "$",
            "\\boxed{",
            "}",
            "%",
            "x",
            "=",
            "(",
            ")",
            "½",
        ]
    ),
    max_size=25,
).map("".join)


@given(st.one_of(st.text(), soup))
def test_no_completion_raises_or_earns_a_value_that_is_not_documented(completion):
    columns = {"answer": "18"}
    assert judge_gsm8k(completion, columns).value in (RIGHT, WRONG, FLOOR)
    assert judge_gsm8k(completion, columns, flexible=True).value in (1.0, 0.0)
    assert judge_answer(completion, columns).value in (1.0, 0.0)
    assert judge_answer(completion, {"answer": "Paris"}).value in (1.0, 0.0)


@given(soup)
def test_full_marks_need_the_key_in_the_text(completion):
    verdict = judge_gsm8k(completion, {"answer": "7777"})
    assert verdict.value < RIGHT


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
def test_the_short_way_and_the_long_way_agree(said, gold):
    short = judge_gsm8k(f"#### {said}", {"answer": str(gold)})
    long = judge_gsm8k(f"#### ${said}$ apples", {"answer": f"{gold:,}"})
    assert short.value == long.value == (RIGHT if said == gold else WRONG)


@given(st.text(max_size=60))
def test_folding_words_twice_changes_nothing_that_matters(text):
    assert isinstance(words(text), str)


def test_every_value_is_finite_and_verdicts_are_plain_data():
    verdict = judge_gsm8k("#### 18", {"answer": "18"})
    assert math.isfinite(verdict.value)
    assert json.dumps(verdict.value) == "1.2"


@pytest.mark.parametrize("gold", ["{}", "$$", r"\text{}"])
def test_a_gold_of_which_nothing_is_left_is_a_fault_for_nothing_could_equal_it(gold):
    assert "neither a number nor a word" in answer().lint({"answer": gold})
