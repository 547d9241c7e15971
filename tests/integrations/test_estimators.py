"""Estimators by name: their advantages, what their tokens weigh, their page, and how TRL is told the same."""

import re
from pathlib import Path

import pytest

from steelyard.advantages import SCHEMES, VotingGroup
from steelyard.errors import RefusedError
from steelyard.integrations.estimators import DENOMINATORS, ESTIMATORS, estimator
from steelyard.outcome import Scored, Unscored

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
LOST = Unscored("sandbox:bubblewrap", "no slot could be started")
LENGTHS = [4, 2, 8, 6]

each = pytest.mark.parametrize("one", ESTIMATORS.values(), ids=ESTIMATORS)


def test_the_five_of_the_field_are_here_by_name():
    assert list(ESTIMATORS) == ["grpo", "dr_grpo", "rloo", "dapo", "gdpo"]
    assert all(estimator(name).name == name for name in ESTIMATORS)


def test_any_other_name_is_refused_with_those_that_there_are():
    with pytest.raises(RefusedError, match=r"no 'ppo'[^\0]*one of grpo, dr_grpo, rloo, dapo, gdpo"):
        estimator("ppo")


@each
def test_each_has_a_scheme_a_denominator_and_both_ends_of_a_clip_or_none(one):
    assert one.advantage in SCHEMES
    assert one.scheme.name == one.advantage
    assert one.denominator in DENOMINATORS
    assert (one.clip_low is None) is (one.clip_high is None)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("grpo", [1 / 16, 1 / 8, 1 / 32, 1 / 24]),
        ("gdpo", [1 / 16, 1 / 8, 1 / 32, 1 / 24]),
        ("dr_grpo", [1 / 40] * 4),
        ("rloo", [1 / 4] * 4),
        ("dapo", [1 / 20] * 4),
    ],
)
def test_what_a_token_weighs_is_one_over_its_denominator(name, weights):
    assert estimator(name).token_weights(LENGTHS, 10) == pytest.approx(weights)


@each
def test_a_completion_without_tokens_weighs_nothing_but_counts_as_a_row(one):
    with_it = one.token_weights([4, 0, 4], 10)
    assert with_it[1] == 0
    assert with_it[0] == with_it[2] > 0
    rows = 1.0 if one.denominator == "tokens" else 2 / 3
    assert with_it[0] == pytest.approx(one.token_weights([4, 4], 10)[0] * rows)


@each
def test_a_batch_of_nothing_is_no_division_by_zero(one):
    assert one.token_weights([], 10) == []
    assert one.token_weights([0, 0], 10) == [0.0, 0.0]


@each
def test_a_lost_row_changes_no_weight_and_gets_no_advantage(one):
    """Rule A: the weights are a function of lengths, and what is lost is known only later."""
    totals = [Scored(1.0), Scored(1.0), Scored(0.0), LOST]
    [found] = one.scheme.by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})
    assert found.values[3] == 0
    assert found.votes == 3


# --- The page


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(heading):
    """The first table below a heading, as rows of cells, the line of dashes left out."""
    below = PAGE.read_text().split(f"\n## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()
    return [cells(line) for line in lines if not set(line) <= set("|- ")]


def clip(one):
    return "none" if one.clip_low is None else f"{1 - one.clip_low:g} to {1 + one.clip_high:g}"


def test_the_page_has_the_table_of_the_code():
    head, *rows = table("Which is which")
    assert head == [
        "`estimator=`",
        "",
        "advantage",
        "a token's part is divided by",
        "ratio",
        "KL in the loss",
        "from",
    ]
    assert rows == [
        [
            f"`{one.name}`",
            one.title,
            f"`{one.advantage}`",
            DENOMINATORS[one.denominator],
            clip(one),
            f"{one.beta:g}" if one.beta else "none",
            one.source,
        ]
        for one in ESTIMATORS.values()
    ]


def test_the_page_says_of_each_what_a_lost_row_changes():
    _, *rows = table("When a row is missing")
    assert rows == [[one.title, one.missing] for one in ESTIMATORS.values()]


def test_the_page_says_how_trl_is_told_the_same():
    _, *rows = table("The same in TRL")
    assert rows == [
        [
            one.title,
            f"`{one.trl_config}({', '.join(f'{name}={value!r}' for name, value in one.trl.items())})`",
            one.trl_differs,
        ]
        for one in ESTIMATORS.values()
    ]


# --- TRL


@pytest.mark.needs("trl")
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
@each
def test_trl_takes_these_settings_and_means_by_them_what_is_said(one, tmp_path):
    import trl

    kind = getattr(trl, one.trl_config)
    told = kind(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **one.trl)
    assert {name: getattr(told, name) for name in one.trl} == dict(one.trl)
    assert told.beta == one.beta
    if one.clip_low is not None:
        assert told.epsilon == one.clip_low
        high = told.epsilon if told.epsilon_high is None else told.epsilon_high
        assert high == one.clip_high
    if one.trl_config == "GRPOConfig":
        by_part = one.trl.get("multi_objective_aggregation", "sum_then_normalize") == "normalize_then_sum"
        assert (one.advantage == "gdpo") is by_part
        assert told.loss_type == {"row": "grpo", "constant": "dr_grpo", "tokens": "dapo"}[one.denominator]
        assert (told.scale_rewards == "none") is (one.advantage == "dr_grpo")
