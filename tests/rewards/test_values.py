"""An expression is read as it is meant, and two are equal if their values are."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from steelyard.rewards.expressions import TooLargeError, UnreadError, read
from steelyard.rewards.values import Expression, equal, expression, factor

whole = st.integers(0, 99).map(lambda number: (str(number), Fraction(number)))
decimal = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(
    lambda pair: (f"{pair[0]}.{pair[1]:02}", Fraction(pair[0] * 100 + pair[1], 100))
)


def joined(pairs):
    """Written expressions with their values, from smaller ones."""

    def build(draw):
        kind, (one, a), (other, b), power = draw
        if kind == "fraction":
            return (rf"\frac{{{one}}}{{{other}}}", a / b) if b else (one, a)
        if kind == "power":
            return rf"\left({one}\right)^{{{power}}}".replace(r"\left", "").replace(r"\right", ""), a**power
        if kind == "beside":
            return f"({one})({other})", a * b
        written = {
            "+": f"{one}+{other}",
            "-": f"{one}-({other})",
            "*": f"({one})*({other})",
            "/": f"({one})/({other})",
        }
        if kind == "/" and not b:
            return one, a
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[kind]
        return f"({written[kind]})", value

    kinds = st.sampled_from(["+", "-", "*", "/", "fraction", "power", "beside"])
    return st.tuples(kinds, pairs, pairs, st.integers(0, 3)).map(build)


arithmetic = st.recursive(st.one_of(whole, decimal), joined, max_leaves=8)


@given(arithmetic)
def test_arithmetic_is_read_to_its_exact_value(written):
    text, value = written
    assert expression(text).at(0)[0] == value


@given(arithmetic, arithmetic)
def test_exact_values_are_equal_exactly_when_they_are(one, other):
    assert equal(expression(one[0]), expression(other[0])) is (one[1] == other[1])


@given(arithmetic, st.sampled_from([r"\sqrt{2}", r"\pi", "x", r"\sin y", "e^x"]))
def test_adding_and_taking_away_changes_nothing_and_adding_one_does(written, more):
    text, _ = written
    same = expression(f"{text}+{more}-({more})")
    assert equal(same, expression(text))
    assert not equal(expression(f"{text}+{more}+1"), expression(f"{text}+{more}"))


@given(st.text("0123456789xyei+-*/^()[]{}|!_',.\\ frac sqrt sin pi", max_size=40))
def test_no_text_does_anything_but_be_read_or_refused(text):
    try:
        read_it = expression(text)
        value, _ = read_it.at(0)
    except (UnreadError, TooLargeError):
        return
    assume(value is not None)
    assert equal(read_it, read_it) or read_it.at(0)[0] != read_it.at(0)[0]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1/2x", r"\frac{1}{2}*x"),
        ("x/2y", r"\frac{x}{2*y}"),
        ("x/1/2", r"\frac{x}{2}"),
        ("2^3/4", "2"),
        ("-x^2", "-(x^2)"),
        ("2^-1", "0.5"),
        ("x^10", "x^{10}"),
        (r"\sin x\cos x", r"(\sin(x))*(\cos(x))"),
        (r"\sin^2 x", r"(\sin(x))^2"),
        (r"\sin^{-1} y", r"\arcsin(y)"),
        (r"\ln{(x)}^2", r"(\ln(x))^2"),
        (r"\frac12", "0.5"),
        (r"\frac1{2}", "0.5"),
        (r"\sqrt2x", r"(\sqrt{2})*x"),
        (r"2\frac13", "7/3"),
        ("3x'", "x'*3"),
        ("2e-1", "2*e-1"),
        ("1.5e-3", "0.0015"),
        (r"50\%", "0.5"),
        (r"\vec{v}+1", r"1+\vec{v}"),
        ("|x||y|", "|x*y|"),
        (r"\lceil 2.1\rceil", "3"),
        ("0^0", "1"),
    ],
)
def test_ambiguous_notation_is_read_as_documented(text, same):
    assert equal(expression(text), expression(same))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x+",
        "1 2",
        "12_8",
        "2^3^4",
        "5!!",
        "(1",
        "1)",
        r"\foo",
        r"\frac{1}",
        "a=b",
        r"\sqrt",
        "3 4/3",
        "?",
        "0..1",
    ],
)
def test_what_is_no_expression_is_not_read(text):
    with pytest.raises(UnreadError):
        read(text)


def test_a_value_that_does_not_exist_equals_nothing():
    for text in ("1/0", r"\frac{1}{0}", "0^{-1}", "(-1)!", r"\ln 0*0"):
        assert not equal(expression(text), expression("0"))
        assert not equal(expression("0"), expression(text))


def test_what_is_known_about_a_letter_is_that_it_is_real():
    assert equal(expression(r"\sqrt{x^2}"), expression("|x|"))
    assert not equal(expression(r"\sqrt{x^2}"), expression("x"))
    assert equal(expression(r"\sqrt{-x}"), expression(r"\sqrt{-x}"))
    assert not equal(expression(r"\sqrt{-x}"), expression(r"\sqrt{x}"))
    assert equal(expression(r"e^{i t}"), expression(r"\cos t+i\sin t"))


def test_numbers_too_large_to_be_exact_are_told_apart_but_never_equal():
    assert not equal(expression("2^{90000}"), expression("2^{90001}"))
    with pytest.raises(TooLargeError):
        equal(expression("2^{90000}"), expression("2^{90000}+1"))
    with pytest.raises(TooLargeError):
        equal(expression("7^{7^{7^7}}"), expression("1"))


def test_a_factor_is_found_only_if_it_is_one():
    assert factor(expression("2x+4y"), expression("x+2y")) == 2
    assert factor(expression("2x+4y"), expression("x+y")) is None
    assert factor(expression("4"), expression("2")) is None  # constants have no common zeros


def test_values_are_kept_and_do_not_depend_on_the_order_of_asking():
    one, other = (Expression(*read("x^2+y")) for _ in range(2))
    forward = [one.at(point) for point in range(8)]
    assert forward == [other.at(point) for point in reversed(range(8))][::-1]
