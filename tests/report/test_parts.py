"""What the page is made of: numbers as words, labels that keep apart, histograms."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.pricing.values import Estimate
from steelyard.report import blocks, figures, scored, units, words
from steelyard.report.scored import histogram_of


@pytest.mark.parametrize("module", [blocks, figures, scored, units, words])
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
    ("estimate", "value", "interval"),
    [
        (Estimate(0.55, "share", 0.52, 0.58), "55.0 %", "52.0 to 58.0 %"),
        (Estimate(0.2, "s", -0.1, 0.5), "0.20 s", "-0.10 to 0.50 s"),
        (Estimate(0.0777, "s", 0.05, 0.1), "77.7 ms", "50.0 to 100.0 ms"),
        (Estimate(0.2, "s", 0.1998, 0.2003), "0.20 s", "0.1998 to 0.2003 s"),
        (Estimate(0.0, "s", 0.0, 0.02), "0 ms", "0.0 to 20.0 ms"),
        (Estimate(0.003, "s", -1.0, 1.2), "0.0030 s", "-1.00 to 1.20 s"),
        (Estimate(13.0, "$/h", 11.2, 15.0), "$13.00 an hour", "$11.20 to $15.00"),
        (Estimate(47.8, "$/day", 45.06, 50.6), "$47.80 a day", "$45.06 to $50.60"),
        (Estimate(0.03, "$", 0.0123, 0.0456), "$0.030", "$0.012 to $0.046"),
        (Estimate(-0.4, "$", -1.0, -0.1), "-$0.40", "-$1.00 to -$0.10"),
        (Estimate(0.2, "correlation", 0.12, 0.31), "0.20", "0.12 to 0.31"),
        (Estimate(8e-14, "share", 0.0, 1e-9), "under 0.001 %", "under 0.001 %"),
        (Estimate(0.0, "share", 0.0, 0.0881), "0 %", "0.00 to 8.81 %"),
        (Estimate(0.0105, "s", 0.0073), "10.5 ms", "at least 7.3 ms"),
        (Estimate(1.0, "share", 1.0, 1.0), "100 %", ""),
        (Estimate(1.0, "calls"), "1 call", ""),
    ],
)
def test_a_value_and_its_interval_have_one_unit_and_ends_that_differ(estimate, value, interval):
    assert (units.said(estimate), units.interval(estimate)) == (value, interval)


@given(
    st.floats(1e-5, 1e3),
    st.floats(0, 0.9),
    st.floats(0, 0.9),
    st.sampled_from(["s", "share", "$", "$/h", "correlation"]),
)
def test_the_ends_of_an_interval_are_read_as_they_are(value, below, above, unit):
    least, most = value * (1 - below), value * (1 + above)
    told = units.interval(Estimate(value, unit, least, most))
    if not told:
        assert least == most
        return
    low, high = (float("".join(c for c in end if c in "0123456789.-")) for end in told.split(" to "))
    times = {"share": 100}.get(unit, 1e3 if told.endswith(" ms") else 1e6 if told.endswith(" µs") else 1)
    assert low / times == pytest.approx(least, abs=0.06 * value)
    assert high / times == pytest.approx(most, rel=0.06)
