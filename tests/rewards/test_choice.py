"""A letter counts when it is committed to, and the last commitment of its kind is the answer."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.rewards.choice import choice, committed_letter, judge_choice

COMMITTED = [
    ("C", "C"),
    ("C.", "C"),
    ("(C)", "C"),
    ("**C**", "C"),
    ("  C\n", "C"),
    ("Option C", "C"),
    ("C) because it is larger", "C"),
    ("C. Paris", "C"),
    ("(C) Paris", "C"),
    ("The answer is (C).", "C"),
    ("The answer is C.", "C"),
    ("The answer is C", "C"),
    ("The answer is C because it is larger", "C"),
    ("The answer is **C**.", "C"),
    ("The answer is **(C)**.", "C"),
    ("The answer is: C", "C"),
    ("the correct answer is option C.", "C"),
    ("The correct answer is (c).", "C"),
    ("The answer is H. The Tang relied on it.", "H"),
    ("The answer is A.", "A"),
    ("The answer is (A)", "A"),
    ("The answer is I.", "I"),
    ("Answer: C", "C"),
    ("ANSWER: C", "C"),
    ("**Answer:** C", "C"),
    ("**Answer: C**", "C"),
    ("Final answer: (C) Paris", "C"),
    ("Answer: C. Paris", "C"),
    ("Answer: C) Paris", "C"),
    ("Answer: J", "J"),
    ("#### C", "C"),
    ("Thus \\boxed{C}", "C"),
    ("Thus $\\boxed{\\text{C}}$", "C"),
    ("Thus \\boxed{(C)}", "C"),
    ("Thus \\boxed{\\text{(C) Paris}}", "C"),
    ("<answer>C</answer>", "C"),
    ("<answer>(C)</answer>", "C"),
    ("<answer>c</answer>", "C"),
    ("<answer>C) because it is larger</answer>", "C"),
    ("<answer>The answer is C</answer>", "C"),
    ("<reasoning>A or B</reasoning><answer>C</answer>", "C"),
    ("<think>The answer is (A).</think>The answer is (C).", "C"),
    ("The answer is (A).</think>The answer is (C).", "C"),
    ("The answer is (A). No, wait. The answer is (C).", "C"),
    ("\\boxed{A} no, \\boxed{C}", "C"),
    ("The answer is (A), so \\boxed{C}", "C"),
    ("The answer is (C). Option A is wrong since it is small.", "C"),
    ("The answer is (C). Choices (A) and (B) are not.", "C"),
    ("The answer is (C) and (D).", "C"),
    ("The answer is (C) or (D), depending on rounding.", "C"),
    ("The answer is (C): 75 J of heat.", "C"),
    ("The answer is (C) for no slip and (C) for 2% loss.", "C"),
    ("The answer is not listed, but the closest option is (C).", "C"),
    ("The closest option to the correct answer is (C) $2,250, but it is not exact.", "C"),
    ("The only statement that is true is (C). All squares have 4 sides.", "C"),
    ("So option C is correct.", "C"),
    ("I choose C.", "C"),
    ("I would go with option C.", "C"),
    ("The closest match to the practices in the passage is option C.", "C"),
    ("The factor is the priority of liberation over reform (C).", "C"),
    ("Long reasoning about it.\n\nC", "C"),
    ("Long reasoning about it.\n\n**C**", "C"),
    ("The answer is (Z).", "Z"),
    ("Thus (C) is the correct answer.", "C"),
    ("So, C is the best option.", "C"),
    ("Ans: C", "C"),
    ("Ans. (C)", "C"),
    ("Answer - C", "C"),
    ("Answer C", "C"),
    ("The correct choice: C", "C"),
    ("The answer is the letter C.", "C"),
    ("The answer is **C: Paris**", "C"),
    ("The answer is $C$.", "C"),
    ("The final answer is $\\text{(C)}$.", "C"),
    ("\\textbf{Answer: C}", "C"),
    ("<answer>C because A is wrong</answer>", "C"),
    ("<answer>\\boxed{C}</answer>", "C"),
    ("Answer:\n\n**C**", "C"),
    ("C\n\nExplanation: A is wrong because B is bad.", "C"),
    ("(C) Explanation: " + "it is larger. " * 40, "C"),
    ("The answer is J: all of the above", "J"),
    ("so x = \\boxed{42}. The answer is (C).", "C"),
    ("so x = \\boxed{42}, which is option C.", "C"),
    ("so x = \\boxed{42}\n\n(C)", "C"),
    ("The correct multiple-choice answer is (C) \\( \\boxed{12 \\, \\text{kJ}} \\).", "C"),
    ("\\boxed{A}? No. The answer is (C).", "C"),
    ("\\boxed{C}. The answer A gives is small.", "C"),
    ("The answer is (C: 42 J).", "C"),
    ("The answer is (C, D).", "C"),
    ("The answer is (C", "C"),
    ("The answer is （C）。", "C"),
    ("The answer is \u200b(\u200fC\u200f).", "C"),
    ("The answer is (C), though the exact answer is not listed.", "C"),
    ("The answer is (C). If the answer is (D), nothing melts.", "C"),
    ("C is the answer.", "C"),
    ("(C) is the answer.", "C"),
    ("Long reasoning about it.\n\n(C)", "C"),
]

NOTHING = [
    "",
    "   ",
    "A person who is vitamin C deficient may bleed.",
    "I think that a plan B is needed.",
    "The answer is a mixture of both.",
    "The answer is a",
    "The answer is I think hard to find.",
    "The answer is A person who leads.",
    "The answer is not (C).",
    "The answer is not listed.",
    "The answer is none of the above.",
    "Answer: None of the above.",
    "Answer: Cannot be determined from the given options.",
    "The answer is (None of the above).",
    "The answer is (not provided).",
    "The answer is (vii). It includes lagged values.",
    'There is no solution. The answer is "no solution".',
    "The answer is (C). On reflection the answer is not listed in the options.",
    "The closest option is (J), but this is not it. The correct answer is not given in the options.",
    "The statement C is not correct.",
    "Answer: I don't know",
    "Answer: A person",
    "The answer isn't (C).",
    "I don't think the answer is (C).",
    "An incorrect answer is (C).",
    "Suppose the answer is (C): then it melts.",
    "The answer is (i) and (iii).",
    "The answer is (A person",
    "\\boxed{C}\n\nOn reflection the answer is not listed.",
    "The answer is (\u0421).",
    "The area of a right triangle is given by:\nA = b h / 2, so it is \\boxed{36}.",
    "So these are they:\n\nA.",
    "Options:\n(A) x\n(B) y\n(C)",
    "It can't be (C).",
    "Neither (A) nor (B).",
    "Vitamin C is the best answer to that.",
    "A: yes\nB: no\nC: maybe",
    "B or C",
    "(i) The current is V = 3 and then " + "so on " * 60,
    "(a) The heat is 3, then " + "so on " * 60,
    "\\boxed{A} or \\boxed{C}",
    "<answer>A) x or B) y</answer>",
    "The answer is",
    "The answer is 42.",
    "The probability is P(A) and then P(B",
    "Hence H(C) = 3 and the heat capacity is C = 5",
    "\\boxed{42}",
    "A. True.\n\nB. False.\n\nC",
    "The defendants in (C), (D), (F) and (G) may have defences (H).",
    "<think>The answer is (C).",
    "The answer is (C).</think>",
    "<answer>C",
    "<answer></answer>",
    "<answer>A</answer><answer>C</answer>",
    "<answer>A or C</answer>",
    "<answer>A, C</answer>",
    "\\boxed{A, C}",
    "\\boxed{A} or <answer>B and C</answer>",
    "<answer>Paris</answer>",
    "<answer>none</answer>",
]


@pytest.mark.parametrize(("completion", "letter"), COMMITTED)
def test_a_commitment_is_read_in_all_its_forms(completion, letter):
    assert judge_choice(completion, {"answer": letter}).value == 1.0
    wrong = judge_choice(completion, {"answer": "B" if letter != "B" else "D"})
    assert (wrong.value, wrong.code) == (0.0, "wrong")


@pytest.mark.parametrize("completion", NOTHING)
def test_what_commits_to_nothing_gets_the_floor_for_every_key(completion):
    for key in "ABCDEFGHIJ":
        verdict = judge_choice(completion, {"answer": key})
        assert verdict.value == 0.0
        assert verdict.code in ("no_answer", "hedged", "malformed")


def test_naming_more_letters_never_pays_more_than_naming_the_first():
    for text in ("The answer is (A) or (B).", "The answer is (A), (B) and (C)."):
        assert [judge_choice(text, {"answer": key}).value for key in "ABC"] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("gold", ["C", "c", "(C)", "C.", "C)", " C ", "(C) Paris", "C. Paris"])
def test_a_gold_is_a_letter_however_it_is_wrapped(gold):
    assert choice().lint({"answer": gold}) is None
    assert judge_choice("The answer is (C).", {"answer": gold}).value == 1.0


@pytest.mark.parametrize(
    "gold", [None, "", "CD", "Paris", "42", 3, 1.0, True, ["C"], {}, "A person", "(CD)", "#"]
)
def test_a_gold_that_is_no_letter_is_a_fault(gold):
    fault = choice().lint({"answer": gold})
    assert "'answer'" in fault
    with pytest.raises(RefusedError, match="answer"):
        judge_choice("The answer is (C).", {"answer": gold})


def test_the_reward_names_its_rules():
    assert (choice().identity, choice().floor, list(choice().columns)) == ("choice/1", 0.0, ["answer"])


@pytest.mark.parametrize(
    "unit",
    [
        "#",
        "<",
        "(",
        "answer is ",
        "best ",
        "the correct ",
        "answer ",
        "option A ",
        "\\boxed{",
        "{",
        " ",
        "(A) ",
        "A",
        "*",
        "<answer>",
        "\n",
        "answer: ",
        "½",
        "if the answer is ",
        "\\boxed{C} ",
    ],
)
def test_a_megabyte_of_anything_is_judged_in_linear_time(unit):
    body = unit * (1_000_000 // len(unit))
    for text in (body, f"<answer>{body}</answer>", f"\\boxed{{4}} {body}"):
        start = time.perf_counter()
        judge_choice(text, {"answer": "C"})
        assert time.perf_counter() - start < 5  # quadratic would take minutes


soup = st.lists(
    st.sampled_from(
        [
            "The answer is ",
            "(A)",
            "(B)",
            "A",
            "B",
            " or ",
            ".",
            "\n",
            "not ",
            "\\boxed{",
            "}",
            "<answer>",
            "</answer>",
            "<think>",
            "</think>",
            "option ",
            "**",
            "#### ",
            "none",
        ]
    ),
    max_size=15,
).map("".join)


@given(st.one_of(st.text(), soup))
def test_no_completion_raises_and_at_most_one_letter_is_paid(completion):
    said = committed_letter(completion)
    paid = [key for key in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if judge_choice(completion, {"answer": key}).value]
    assert paid == ([said] if isinstance(said, str) else [])
