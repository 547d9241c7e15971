"""Specimens: how golds are written down, and which answers are wrong."""

import pytest
from directly import recipe_of
from hypothesis import given
from hypothesis import strategies as st

from steelyard.audit.forms import Gold, form, forms_of, gold_column, gold_of, listing, wrong_answers
from steelyard.audit.specimens import made, rows_of
from steelyard.rollout import Group, Rollout

golds = st.one_of(
    st.sampled_from("ABCDxyz"),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["1/2", "0.5", "50%", "zebra", "walrus", "(B)", r"\frac{1}{2}", "yes", "Paris", "#", "1e400"]
    ),
    st.text(min_size=1, max_size=30).filter(str.strip),
).map(lambda text: Gold(text, text))


@given(golds, st.lists(golds, max_size=6))
def test_wrong_answers_are_two_and_neither_is_the_gold(gold, others):
    wrong, another = wrong_answers(gold, others)
    assert len({gold.worth, wrong.worth, another.worth}) == 3


@given(golds, st.lists(golds, max_size=20))
def test_a_listing_holds_the_gold_once_and_neither_first_nor_last(gold, others):
    listed = [one.worth for one in listing(gold, wrong_answers(gold, others), others)]
    assert listed.count(gold.worth) == 1
    assert gold.worth not in (listed[0], listed[-1])


def test_letters_are_listed_as_options_whatever_the_file_holds():
    letters = [Gold(letter, letter) for letter in "BBC"]
    assert sorted(
        one.text for one in listing(letters[0], wrong_answers(letters[0], letters), letters)
    ) == list("ABCDEFGHIJ")


def test_the_gold_of_a_solution_is_what_follows_its_marker_and_the_column_as_it_stands_is_a_form_too():
    gold = gold_of({"answer": "6 * 7 = 42\n#### 42"}, "answer")
    assert gold == Gold("42", "6 * 7 = 42\n#### 42")
    written = {one.of(gold) for one in forms_of(recipe_of("good").parts, {"good"})}
    assert {"42", "#### 42", r"\boxed{42}", "<answer>42</answer>", "6 * 7 = 42\n#### 42"} <= written


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (0.5, "0.5"),
        (True, "True"),
        (["Paris", "paris"], "Paris"),
        ({"a": [1]}, '{"a":[1]}'),
        (None, None),
    ],
)
def test_a_gold_may_be_anything_that_json_holds(value, text):
    gold = gold_of({"answer": value}, "answer")
    assert (None if gold is None else gold.text) == text


def test_forms_of_ours_stand_inside_one_another_and_the_rewards_own_comes_first():
    recipe = recipe_of("gsm8k", "format")
    names = [one.name for one in forms_of(recipe.parts, {"gsm8k"})]
    assert names[0] == "#### …"
    assert any(name.startswith("<reasoning>") and "#### …" in name for name in names)


def test_a_template_is_written_as_it_stands_around_the_answer():
    assert form(r"\boxed{{}}").write("{x}") == r"\boxed{{x}}"


def test_the_column_of_golds_is_the_first_that_a_part_reads():
    assert gold_column(recipe_of("good").parts, ["answer", "solution"]) == ("answer", {"good": True})
    assert gold_column(recipe_of("brevity").parts, ["answer"]) == (None, {})
    assert gold_column(recipe_of("trl_good").parts, ["solution"]) == (None, {})


def test_who_is_given_everything_reads_what_its_code_names_and_who_never_loads_a_name_does_not_read_it():
    def reads(name, column="answer"):
        return gold_column(recipe_of(name).parts, [column])[1].get(name)

    assert reads("awaitable") is True  # rollout.columns["answer"]
    assert reads("awaitable", "solution") is False
    assert reads("trl_tags") is None  # **kwargs, never loaded
    assert reads("names_the_gold") is False
    assert reads("brevity") is None


def test_golds_of_several_lines_exclude_nothing_so_none_stands_beside_another():
    code = "def f(x):\n    return x"
    rollout = Rollout(1, "write f", "", {"answer": code}, (0, 0), 0, "f:1")
    (row,) = rows_of([Group("a", 0, [rollout])], {0: Gold(code, code)})
    kinds = {kind.name for kind, _ in made(row, form("```python\n{}\n```"))}
    assert {"PLAIN", "REPEATED", "LONG"} <= kinds
    assert not kinds & {"LISTED", "LISTED_EACH", "GOLD_FIRST", "GOLD_LAST"}
