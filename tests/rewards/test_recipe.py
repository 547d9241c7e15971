"""Several rewards, one number: the verdict table, and what names a recipe."""

from dataclasses import replace

import pytest

from steelyard.errors import RefusedError, RunStoppedError
from steelyard.outcome import Abstained, Part, Scored, Unscored
from steelyard.rewards import Recipe, builtin, reward, weighted_sum
from steelyard.rollout import Rollout


def judge(completion, tone="dry"):
    return 0.0


def named_reward(name, **settings):
    return reward(name=name, **settings)(judge)


A, B, C = (named_reward(name, floor=floor) for name, floor in (("a", -1.0), ("b", 0.0), ("c", -0.5)))
ROW = Rollout(0, "?", "x", {}, (0, 0), 0, "r.jsonl:1")
DOWN = Unscored("judge:x", "503")
NOT_ASKED = Abstained("column 'tone' is absent")


def total(*verdicts, weights=(1.0, 0.5, 2.0), combine=None):
    parts = tuple(Part(one, weight=weight) for one, weight in zip((A, B, C), weights, strict=False))[
        : len(verdicts)
    ]
    said = dict(zip("abc", verdicts, strict=False))
    return Recipe(parts, combine).total(ROW, said)


# --- the verdict table


def test_scored_parts_add_weight_times_value():
    assert total(Scored(1.0), Scored(1.0), Scored(-0.5)) == Scored(0.5)


def test_an_abstained_part_is_left_out_as_if_it_were_not_asked():
    assert total(Scored(1.0), NOT_ASKED, Scored(0.25)) == total(Scored(1.0), Scored(0.0), Scored(0.25))


@pytest.mark.parametrize("place", range(3))
def test_one_unscored_part_makes_the_whole_sum_missing(place):
    verdicts = [Scored(1.0), NOT_ASKED, Scored(0.0)]
    verdicts[place] = DOWN
    assert total(*verdicts) is DOWN


def test_an_unscored_part_makes_the_sum_missing_also_where_all_others_abstain_or_weigh_nothing():
    assert total(NOT_ASKED, DOWN) is DOWN
    assert total(Scored(1.0), DOWN, weights=(1.0, 0.0)) is DOWN


def test_a_sum_of_which_every_part_abstained_abstains():
    assert total(NOT_ASKED, NOT_ASKED) == Abstained("every part abstained")


def test_a_single_part_of_weight_1_is_its_own_total():
    verdict = Scored(0.5, "wrong", "because", "isolated")
    assert total(verdict) is verdict
    assert total(NOT_ASKED) is NOT_ASKED
    assert total(Scored(0.5, "wrong"), weights=(2.0,)) == Scored(1.0, "wrong", "a: wrong")


def test_a_total_has_the_first_code_with_the_name_of_its_part():
    assert total(Scored(1.0), Scored(0.0, "wrong", "5, not 4"), Scored(0.0, "cpu")) == Scored(
        1.0, "wrong", "b: 5, not 4"
    )


@pytest.mark.parametrize(
    ("integrities", "together"),
    [
        ((None, None), None),
        (("isolated", None), "isolated"),
        (("isolated", "isolated"), "isolated"),
        (("isolated", "cooperative"), "cooperative"),
        (("cooperative", None), "cooperative"),
    ],
)
def test_a_total_is_as_far_to_be_trusted_as_its_weakest_part(integrities, together):
    assert total(*(Scored(1.0, integrity=one) for one in integrities)).integrity == together


def test_the_sum_is_a_function_of_its_own():
    parts = [Part(A), Part(B, weight=3.0)]
    assert weighted_sum(parts, {"a": Scored(1.0), "b": Scored(1.0)}) == Scored(4.0)


# --- combine


def test_an_own_combine_is_given_the_rollout_and_the_verdicts_and_may_return_a_number():
    def shorter_is_better(rollout, verdicts):
        return verdicts["a"].value - len(rollout.completion) / 10

    assert total(Scored(1.0), combine=shorter_is_better) == Scored(0.9)
    assert total(Scored(1.0), combine=lambda _r, said: said["a"]) == Scored(1.0)


def test_an_own_combine_cannot_launder_a_missing_part_nor_unsay_a_row():
    assert total(Scored(1.0), DOWN, combine=lambda _r, _said: 1.0) is DOWN
    assert isinstance(total(NOT_ASKED, NOT_ASKED, combine=lambda _r, _said: 1.0), Abstained)


@pytest.mark.parametrize("said", [Abstained("too long"), Unscored("x", "y"), None, float("nan"), "1", 1e300])
def test_an_own_combine_that_returns_no_number_stops_the_run_for_no_number_is_safe(said):
    with pytest.raises(RunStoppedError, match="combine failed on"):
        total(Scored(1.0), Scored(1.0), combine=lambda _r, _said: said)


def test_an_own_combine_that_raises_stops_the_run_and_says_on_what():
    def divides(rollout, _verdicts):
        return 1 / (len(rollout.completion) - 1)

    with pytest.raises(RunStoppedError, match=r"ZeroDivisionError.*it was given"):
        total(Scored(1.0), combine=divides)


# --- the recipe


def test_the_floor_is_the_weighted_sum_of_the_parts_floors():
    assert Recipe((Part(A), Part(B, weight=5.0), Part(C, weight=2.0))).floor == -2.0


def test_the_identity_changes_with_every_part_weight_gate_and_combination():
    def above(threshold):
        return lambda said: said["a"].value > threshold

    base = Recipe((Part(A), Part(B)))
    others = [
        Recipe((Part(A), Part(B, weight=0.5))),
        Recipe((Part(A), Part(B, optional=True))),
        Recipe((Part(A), Part(B, only_if=above(0)))),
        Recipe((Part(A), Part(B, only_if=above(1)))),
        Recipe((Part(A), Part(B, only_if=lambda said: True))),
        Recipe((Part(B), Part(A))),
        Recipe((Part(A),)),
        Recipe((Part(A), Part(named_reward("b", floor=-3.0)))),
        Recipe((Part(A), Part(replace(B, identity="b/2")))),
        Recipe((Part(A), Part(B)), lambda _rollout, said: said["a"]),
        Recipe((Part(A), Part(B)), lambda _rollout, said: said["b"]),
    ]
    assert len({recipe.identity for recipe in [base, *others]}) == len(others) + 1
    assert Recipe((Part(A), Part(B))).identity == base.identity
    assert Recipe((Part(A), Part(B, only_if=above(0)))).identity == others[2].identity


def test_the_variants_of_a_builtin_are_different_recipes():
    assert Recipe((Part(builtin("gsm8k")),)).identity != Recipe((Part(builtin("gsm8k:flexible")),)).identity


def test_two_parts_of_one_name_are_refused():
    with pytest.raises(RefusedError, match=r"(?s)'a' is named 2 times.*names of their own"):
        Recipe((Part(A), Part(B), Part(named_reward("a"))))


def test_a_recipe_of_nothing_is_refused():
    with pytest.raises(RefusedError, match="a recipe needs a reward"):
        Recipe(())


@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf"), 1e200])
def test_a_weight_under_which_failing_would_pay_or_the_sum_be_no_number_is_refused(weight):
    with pytest.raises(
        RefusedError, match=r"(?s)recipe: 'a': the weight must be between 0 .*next: for a penalty"
    ):
        Recipe((Part(A, weight=weight),))


def test_columns_of_optional_parts_are_read_but_not_needed():
    recipe = Recipe((Part(builtin("gsm8k")), Part(builtin("choice"), optional=True), Part(builtin("format"))))
    assert recipe.needed == recipe.read == ("answer",)
    assert Recipe((Part(builtin("choice"), optional=True),)).needed == ()
    assert recipe.names == ("gsm8k", "choice", "format")
    assert recipe.weights == {"gsm8k": 1.0, "choice": 1.0, "format": 1.0}


def test_lint_tells_the_column_and_the_fault_of_the_first_part_that_finds_one():
    def fault(columns):
        return "is not above 0" if columns["answer"] <= 0 else None

    def needs(completion, answer):
        return 1.0

    recipe = Recipe((Part(A), Part(reward(fault=fault)(needs))))
    assert recipe.lint({"answer": 1}) is None
    assert recipe.lint({"answer": 0}) == ("answer", "is not above 0")
    assert recipe.lint({}) is None  # absent is another fault, and not this one's to tell
