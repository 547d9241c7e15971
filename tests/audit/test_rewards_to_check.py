"""Every alarm fires on a reward that has its fault, and on none that has not."""

import pytest
from directly import findings, own, recipe_of, rows, seen_by, told
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.outcome import Part
from steelyard.rewards import read_recipe
from steelyard.rewards.gates import gate
from steelyard.rewards.lengths import overlong
from steelyard.rewards.trajectory import turns


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("substring", {("fault", "several answers"), ("fault", "echo"), ("fault", "wrong answer")}),
        ("constant_with_gold", {("fault", "wrong answer"), ("fault", "constant")}),
        ("names_the_gold", {("fault", "wrong answer"), ("fault", "constant")}),
        ("constant", {("fault", "constant")}),
        ("coin", {("fault", "chance")}),
        ("novelty", {("fault", "chance")}),
        ("ranked", {("fault", "order")}),
        ("against_batch", {("fault", "order")}),
        ("below_floor", {("fault", "floor")}),
        ("abstaining_pays", {("doubt", "nothing said")}),
        ("raises_on_empty", {("doubt", "crash")}),
        ("raises_sometimes", {("fault", "crash")}),
        ("counts", {("fault", "several answers"), ("doubt", "repeated answer"), ("fault", "wrong answer")}),
        ("brevity", {("doubt", "nothing said")}),
        ("any_word", {("fault", "wrong answer")}),
        ("tolerant", {("fault", "wrong answer")}),
        ("begins", {("fault", "wrong answer")}),
        ("any_box", {("fault", "wrong answer")}),
    ],
)
def test_a_bad_reward_raises_its_alarm(reward, expected):
    raised = {one for one in told(reward) if one[0] != "note"}
    assert expected <= raised
    assert {one for one in raised - expected if one[0] == "fault"} == set()


@pytest.mark.parametrize(
    "reward",
    [
        "good",
        "tagged",
        "exact",
        "trl_good",
        "awaitable",
        "overlap",
        "within_one_percent",
        "last_number",
        "longest",
    ],
)
def test_a_function_as_it_should_be_raises_no_fault(reward):
    assert not {one for one in told(reward) if one[0] == "fault"}


def test_a_function_whose_form_is_known_and_that_the_file_keeps_to_raises_nothing():
    assert told("good") == set()


def test_conversations_are_inspected_with_conversations():
    some = [{**row, "completion": [{"role": "assistant", "content": row["completion"]}]} for row in rows()]
    assert told("conversational", some=some) == set()


def test_a_reward_that_reads_the_first_of_two_numbers_is_doubted_and_one_that_reads_the_first_tag_is_noted():
    assert ("doubt", "two answers") in told("first_number")
    assert ("note", "two answers") in told("first_tag")


def test_a_function_in_a_form_that_nobody_can_guess_is_not_blamed_for_golds_and_says_what_was_not_seen():
    seen, not_run = seen_by(recipe_of("unknown_format"), rows())
    assert "what unknown_format makes of answers" in dict(not_run)
    assert {one.check for one in findings(recipe_of("unknown_format"), rows())} <= {"constant", "gradient"}
    assert not seen.refused


def test_a_gold_that_its_reward_cannot_read_is_named_with_its_row():
    questions = {"How many metres?": "1,250", "How many seats?": "42", "How many pages?": "60"}
    (found,) = [one for one in findings(recipe_of("refuses_commas"), rows(questions)) if one.check == "gold"]
    assert found.level == "doubt"
    assert "'1,250'" in found.says
    assert "1 of 3 rows (first rows.jsonl:1)" in found.says


def test_a_function_that_is_given_every_column_and_compares_with_none_is_not_blamed_for_wrong_answers():
    # as trainers' format rewards are written: (completions, **kwargs), or with names that are never used
    assert ("doubt", "wrong answer") in told("any_tag")
    assert "wrong answer" not in {check for _, check in told("good", "names_the_gold")}
    some = rows(endings=("<think>a</think><answer>{right}</answer>", "x"))
    assert "fault" not in {level for level, _ in told("trl_tags", some=some)}


def test_a_gold_that_carries_its_reasoning_is_written_as_its_answer_too():
    some = [{**row, "answer": f"Six and a half.\n#### {row['answer']}"} for row in rows()]
    seen, _ = seen_by(recipe_of("pays_errors"), some)
    assert seen.form == "#### …"
    assert {("fault", "nothing said"), ("fault", "several answers")} <= told("pays_errors", some=some)
    assert told("gsm8k", some=some) == set()


def test_a_part_that_pays_everything_or_nothing_is_a_doubt_and_a_penalty_that_nothing_incurs_is_not():
    def idle(*parts):
        return [one.says.split()[0] for one in findings(recipe_of(*parts), rows()) if one.check == "constant"]

    assert idle("gsm8k", Part(own("constant"), weight=5.0)) == ["constant"]
    assert idle("gsm8k", "never") == ["never"]
    assert idle("gsm8k", "format") == ["format"]
    assert idle("gsm8k", "no_shouting") == []


def test_silence_that_a_lone_penalty_does_not_punish_is_no_finding():
    long = "so " * 300
    assert ("doubt", "nothing said") not in told("overlong", some=rows(endings=(long, "#### {right}")))


def test_a_form_that_closes_thinking_itself_is_not_put_into_unclosed_thinking():
    some = rows(endings=("<think>a</think><answer>{right}</answer>", "x"))
    seen, _ = seen_by(recipe_of("answer", "format:think+answer"), some)
    assert "</think>" in seen.form
    assert not any(kind.name == "UNCLOSED" and form == seen.form for _, kind, form in seen.earned)


def test_the_bare_format_that_is_paid_is_a_doubt():
    some = rows(endings=("<think>a</think><answer>{right}</answer>", "<answer>{right}</answer>", "x"))
    assert ("doubt", "bare format") in told("tagged", "think_tags", some=some)


def test_a_format_that_outweighs_the_answer_is_a_doubt_and_in_a_file_where_it_did_so_another():
    format_first = (Part(own("good")), Part(own("long_enough"), weight=3.0))
    some = rows(endings=("#### {right}", "I think and think, and then I take it to be\n#### 7"))
    found = findings(recipe_of(*format_first), some)
    assert any(one.check == "weights" and "rows.jsonl:2" in one.says for one in found)
    assert ("doubt", "weights") in told("gsm8k", Part(recipe_of("format").parts[0].reward, weight=3.0))


def test_a_main_part_without_weight_is_a_fault():
    assert ("fault", "weights") in told(Part(own("good"), weight=0.0), "brevity")


def test_a_penalty_behind_a_gate_is_a_doubt_where_it_can_make_right_worth_no_more_than_wrong():
    penalty = overlong(500, 100, unit="characters")
    gated = gate("gsm8k >= 1")
    assert ("doubt", "gate") in told("gsm8k", Part(penalty, 1.0, only_if=gated))
    assert ("note", "gate") in told("gsm8k", Part(penalty, 0.5, only_if=gated))
    assert "gate" not in {check for _, check in told("gsm8k", Part(penalty, 1.0))}


def test_a_gate_that_never_opens_is_a_doubt():
    shut = Part(own("brevity"), only_if=gate("gsm8k > 2"))
    assert ("doubt", "gate") in told("gsm8k", shut)


def test_effort_that_is_paid_without_success_is_a_doubt_where_the_file_makes_an_effort():
    episode = [{"role": "assistant", "content": "look"}, {"role": "tool", "content": "ok"}] * 3
    some = [
        {"prompt": prompt, "completion": [*episode, {"role": "assistant", "content": said}], "answer": "4"}
        for prompt in ("2 + 2?", "1 + 3?")
        for said in ("#### 4", "#### 5", "#### 4")
    ]
    assert ("doubt", "nothing said") in told("gsm8k", turns(1, 6), some=some)


def test_a_file_whose_groups_are_all_alike_is_a_doubt():
    assert ("doubt", "gradient") in told("good", some=rows(endings=("#### {right}", "so\n#### {right}")))
    assert ("doubt", "gradient") not in told("good")


def test_answers_that_a_reward_of_ours_cannot_read_in_most_rows_are_a_doubt():
    assert ("doubt", "unreadable") in told(
        "gsm8k", some=rows(endings=("it is {right}", "so {right}", "#### 7"))
    )


TAGGED = (
    "<reasoning>a</reasoning><answer>{right}</answer>",
    "<reasoning>b</reasoning><answer>7</answer>",
    "x",
)
LETTERS = {
    "Which? A) up B) down C) left": "B",
    "Where? (A) in (B) out (C) on": "C",
    "When? A) now B) then": "A",
}
WORDS = {"What bird is black?": "raven", "What bird is red?": "robin", "What bird is white?": "swan"}
LATEX = {"Half?": r"\frac{1}{2}", "The same?": "0.5", "A root?": r"\sqrt{2}", "A third?": r"\frac{1}{3}"}


@pytest.mark.parametrize(
    ("parts", "some"),
    [
        (("gsm8k",), rows()),
        (("gsm8k:flexible",), rows()),
        (("gsm8k",), rows({"How much?": "1,250.50", "What share?": "3/8", "And?": "-7", "So?": "#### 12"})),
        (("answer",), rows(endings=TAGGED)),
        (("answer",), rows(WORDS, TAGGED)),
        (("answer",), rows(LATEX, TAGGED)),
        (("answer",), rows({"Is it?": "yes", "Is it so?": "no", "Or is it?": "yes"}, TAGGED)),
        (("answer",), rows({"One?": "42"}, TAGGED)),
        (("choice",), rows(LETTERS, ("The answer is ({right}).", "The answer is (D).", "No."))),
        (("choice",), rows({"Which?": "(A)", "Who?": "(B)"}, ("({right})", "(D)"))),
        (("format",), rows(endings=TAGGED)),
        (("format",), rows()),
        (("format:think+answer:any",), rows()),
        (("overlong",), rows()),
        (("repetition",), rows()),
        (("answer", "format"), rows(endings=TAGGED)),
        (("answer", Part(recipe_of("format").parts[0].reward, weight=0.1)), rows(endings=TAGGED)),
        (("gsm8k", "format"), rows()),
        (("gsm8k", "overlong", "repetition"), rows()),
        (("gsm8k", "answer"), rows()),
        (("gsm8k",), rows(endings=("no {right}", "x"))),
    ],
)
def test_a_reward_of_ours_raises_no_fault(parts, some):
    found = [one for one in findings(recipe_of(*parts), some) if one.level == "fault"]
    assert found == []


def test_a_recipe_file_with_shapes_raises_no_fault():
    recipe = read_recipe(
        '[[part]]\nreward = "gsm8k"\n[[part]]\nreward = "format"\nweight = 0.2\nonly_if = "gsm8k >= 1"\n'
        '[[shape]]\nkind = "length_penalty"\n'
        'settings = { unit = "words", target = 300, limit = 600, least = 0.5 }'
    )
    assert [one for one in findings(recipe, rows()) if one.level == "fault"] == []


def test_rows_that_carry_a_state_are_asked_about_and_no_specimen_stands_for_them():
    some = [
        {
            "prompt": "Pay it.",
            "completion": "Done.",
            "expected_state": {"paid": True},
            "state": {"paid": paid},
        }
        for paid in (True, False)
    ]
    recipe = read_recipe('[[part]]\nreward = "state"')
    seen, not_run = seen_by(recipe, some)
    assert not seen.earned
    assert "specimens" in dict(not_run)
    assert seen.own() == [1.0, 0.0]
    assert findings(recipe, some) == []


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=40), json_values), min_size=1, max_size=6))
def test_whatever_the_rows_hold_an_inspection_ends_with_sentences(some):
    made = [{"prompt": p, "completion": c, "answer": gold} for p, c, gold in some]
    for found in findings(recipe_of("as_text", "brevity"), made):
        assert found.says
        assert "\n" not in found.says
