"""Boxes are found by their braces, spellings are reduced to one, and an answer's outer form is told."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.rewards.latex import NESTING, boxes, form, normal, outline, spellings, too_large, worded


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"\boxed{5}", ["5"]),
        (r"\boxed{\frac{1}{2}} then \boxed{\frac{2}{3}}", [r"\frac{2}{3}"]),
        (r"$\boxed{5}$ or $\boxed{7}$", ["5", "7"]),
        (r"\(\boxed{1}\), \(\boxed{2}\), and \(\boxed{3}\)", ["1", "2", "3"]),
        (r"\boxed{x=1} \text{ and } \boxed{x=2}", ["x=1", "x=2"]),
        (r"\boxed{5}\boxed{7}", ["7"]),
        (r"\boxed{5}. Then we get \boxed{7}", ["7"]),
        (r"\boxed{5} or, if we look again, \boxed{7}", ["7"]),
        (r"\boxed{\boxed{5}}", ["5"]),
        (r"\boxed{x = \boxed{5}}", ["5"]),
        (r"\boxed{5} and \boxed{7", ["5"]),
        (r"\boxed{5}\boxed{}", ["5"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed 5", ["5"]),
        (r"\fbox{5}", ["5"]),
        (r"\boxed{}", []),
        ("boxed in", []),
        ("", []),
    ],
)
def test_the_last_box_counts_with_those_joined_to_it(text, said):
    assert boxes(text) == said


@pytest.mark.parametrize(
    "spelled",
    [
        [r"\left(\dfrac{1}{2},\,3\right)", r"( \frac{1}{2} , 3 )", r"$(\tfrac{1}{2}, 3).$"],
        [r"2\cdot\pi r", "2 * π r", r"2 \times \pi r"],
        [r"x \leq 3", r"x\le3", "x <= 3", "x ≤ 3", r"x \leqslant 3"],
        [r"90^\circ", r"90^{\circ}", "90°", r"90\text{ degrees}", r"90\degree"],
        [r"\{1, 2\}", r"\left\lbrace 1,2 \right\rbrace"],
        ["1, 2", "1 and 2", r"1 \text{ and } 2", "1; 2", "1, and 2"],
        ["The answer is 5", "5", "**5**", "5."],
        [r"10{,}000", r"10\,000", r"10,\!000", "10000", "10 000"],
        [r"\mathrm{sin}\,x", r"\sin x", "sin x"],
        [r"|x|", r"\left|x\right|", r"\lvert x \rvert"],
    ],
)
def test_spellings_of_one_answer_become_one_text(spelled):
    assert len({normal(text) for text in spelled}) == 1


def test_what_means_something_is_kept():
    for one, other in [
        ("xy", "x y z"),
        ("X", "x"),
        (".5", "5"),
        ("1, 2, ...", "1, 2"),
        ("y'", "y"),
        ("1 2", "12"),
    ]:
        assert normal(one) != normal(other)


def test_thousands_may_be_one_number_or_two_unless_typeset_or_spaced():
    assert spellings(normal("4,321")) == ["4321", "4,321"]
    assert spellings(normal("4, 321")) == ["4,321"]
    assert spellings(normal("(4,321)")) == ["(4321)", "(4,321)"]
    assert spellings(normal("4,32")) == ["4,32"]


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("5", "leaf", ()),
        ("1,2", "list", ("1", "2")),
        (r"[1,2)\cup(3,4)", "list", ("[1,2)", "(3,4)")),
        (r"1\pm x", "list", ("1+ x", "1- x")),
        (r"\{1,2\}", "set", ("1", "2")),
        (r"\emptyset", "set", ()),
        ("(1,(2,3))", "tuple", ("1", "(2,3)")),
        ("((1,2))", "tuple", ("1", "2")),
        ("(1+2)(3)", "leaf", ()),
        ("x=y=2", "relation", ("x", "y", "2")),
        (r"\{x:x>2\}", "relation", ("x", "2")),
        (r"\begin{bmatrix}1&2\end{bmatrix}", "matrix", ("1", "2")),
        (r"\begin{bmatrix}1&2\\3\end{bmatrix}", "leaf", ()),
        ("(1,2", "leaf", ()),
        ("1)(,2", "leaf", ()),
    ],
)
def test_the_outer_form_is_told(text, kind, parts):
    said = form(text)
    assert (said.kind, said.parts) == (kind, parts)


def test_words_are_told_from_mathematics():
    for text in ("Paris", r"\text{no solution}", "June20", "no"):
        assert worded(normal(text))
    for text in ("xy", "x+y", r"\pi", r"\sin x", "5\\text{apples}", r"\frac{abc}{d}", "A"):
        assert not worded(normal(text))


def test_size_is_refused_with_what_is_too_large():
    assert too_large(r"\frac{1}{2}") is None
    assert too_large("(" * NESTING + ")" * NESTING) is None
    assert "deep" in too_large("(" * (NESTING + 1))
    assert "characters" in too_large("1+" * 2_000)
    assert "digits" in too_large("1" * 500)


@pytest.mark.parametrize(
    "unit",
    [
        "x",
        "1",
        "1,",
        " ",
        r"\text{",
        "{",
        "}",
        "(",
        r"\boxed{",
        r"\boxed{1} or ",
        "$",
        "~",
        "1 a",
        r"\sqrt",
        "or ",
        "½",
    ],
)
def test_every_step_is_linear_in_a_text_of_any_kind(unit):
    body = unit * (40_000 // len(unit))
    start = time.process_time()
    normal(body)
    form(body)
    outline(body)
    boxes(body)
    too_large(body)
    assert time.process_time() - start < 5  # quadratic would take minutes


@given(st.text("1x,;=<>(){}[]\\|& text{}pm cup begin{matrix}end ", max_size=60))
def test_any_text_has_a_spelling_and_a_form(text):
    for one in spellings(normal(text)):
        said = form(one)
        assert said.kind in {"leaf", "list", "set", "tuple", "relation", "matrix"}
        assert said.kind == "leaf" or all(isinstance(part, str) for part in said.parts)
