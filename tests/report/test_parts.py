"""What the page is made of: numbers as words, labels that keep apart, histograms."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.pricing.values import Estimate
from steelyard.report import blocks, figures, scored, step_charts, units, words
from steelyard.report.scored import histogram_of


@pytest.mark.parametrize("module", [blocks, figures, scored, step_charts, units, words])
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
        (Estimate(15.0, "s", 15.0, 15.0 + 1e-9), "15.0 s", ""),
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
        assert most - least <= 0.01 * value
        return
    low, high = (float("".join(c for c in end if c in "0123456789.-")) for end in told.split(" to "))
    times = {"share": 100}.get(unit, 1e3 if told.endswith(" ms") else 1e6 if told.endswith(" µs") else 1)
    assert low / times == pytest.approx(least, abs=0.06 * value)
    assert high / times == pytest.approx(most, rel=0.06)


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=400), st.integers(2, 12))
def test_ticks_of_steps_are_even_round_and_at_the_nearest_step_that_is_drawn(steps, most):
    labels = [str(step) for step in sorted(steps)]
    ticks = step_charts.round_ticks(labels, most)
    assert len(ticks) <= most
    assert set(ticks) <= set(labels)
    told = [int(one) for one in ticks.values()]
    assert told == sorted(set(told))
    gaps = [lead * 10**power for power in range(7) for lead in (1, 2, 5)]
    assert any(
        all(one % gap == 0 for one in told)
        and all(abs(int(at) - int(one)) <= gap / 10 for at, one in ticks.items())
        and (max(steps) - min(steps)) // gap < most
        for gap in gaps
    )


def test_ticks_of_a_long_run_are_round_and_steps_with_names_have_their_names():
    drawn = [str(int(999 * place / 399)) for place in range(400)]
    assert list(step_charts.round_ticks(drawn, 12).values()) == [str(100 * place) for place in range(10)]
    assert step_charts.round_ticks(["b", "a"], 5) == step_charts.round_ticks(["2", "1"], 5) == {}


@pytest.mark.parametrize(
    ("size", "unit"), [(30.0, "seconds"), (0.0, "seconds"), (0.054, "milliseconds"), (1e-6, "microseconds")]
)
def test_an_axis_has_the_unit_of_its_text(size, unit):
    assert units.time_unit(size).name == unit
    assert units.amount(size, "s").endswith((f" {units.time_unit(size).sign}", " ms"))  # 0 is 0 of any
    assert units.time_unit(size).of(size) == pytest.approx(size * units.time_unit(size).times)
