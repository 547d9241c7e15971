"""What the page is made of: numbers as words, labels that keep apart, histograms."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.pricing.values import Estimate
from steelyard.report import blocks, figures, scored, words
from steelyard.report.scored import histogram_of


@pytest.mark.parametrize("module", [blocks, figures, scored, words])
def test_examples_in_docstrings_hold(module):
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0


@given(st.lists(st.floats(0, 1e3), max_size=12), st.floats(0.1, 50))
def test_labels_keep_apart_and_in_order(positions, gap):
    moved = figures.apart(positions, gap)
    assert sum(moved) == pytest.approx(sum(positions), abs=1e-6)
    order = sorted(range(len(positions)), key=positions.__getitem__)
    for before, after in pairwise(order):
        assert moved[after] - moved[before] >= gap * (1 - 1e-9) - 1e-9


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60))
def test_a_histogram_counts_every_reward_once(rewards):
    edges, counts = histogram_of(rewards)
    assert sum(counts) == len(rewards)
    assert len(edges) == len(counts) + 1 <= scored.BINS + 1


@pytest.mark.parametrize("rewards", [[0, 1, 1], [0, 0.25, 1], [0.2, 1.2, 0, 1.2], [3]])
def test_each_of_a_few_rewards_has_a_bar_of_its_own(rewards):
    edges, counts = histogram_of(rewards)
    assert sorted(count for count in counts if count) == sorted(rewards.count(one) for one in set(rewards))
    assert all(low < one < high for one in rewards for low, high in [bin_of(one, edges)])


def bin_of(value, edges):
    return next((low, high) for low, high in pairwise(edges) if low <= value <= high)


@pytest.mark.parametrize(
    ("low", "high", "unit", "said"),
    [
        (0.52, 0.58, "share", "52.0 to 58.0 %"),
        (-0.1, 0.5, "s", "-0.10 to 0.50 s"),
        (11.2, 15.0, "$/h", "$11.20 to $15.00 an hour"),
        (0.0123, 0.0456, "$", "$0.012 to $0.046"),
        (0.12, 0.31, "correlation", "0.12 to 0.31"),
        (None, None, "s", ""),
    ],
)
def test_an_interval_has_one_unit_and_as_many_digits_at_both_ends(low, high, unit, said):
    assert words.interval(Estimate(0.2, unit, low, high)) == said
