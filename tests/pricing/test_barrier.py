from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from planted import planted
from steelyard.errors import RefusedError
from steelyard.pricing.barrier import (
    expected_maximum,
    expected_on_arrival,
    expected_wait,
    hedged_rate,
    hits,
    idle_of_hit_step,
    idle_share,
    knee,
    seconds_per_completion,
    stalled_on_arrival,
    step_hit,
)
from steelyard.pricing.simulate import trained_on_arrival

quick = settings(max_examples=40, deadline=None)


class Golden(NamedTuple):
    """A number that must come out of its inputs, and that must move when one of them does."""

    told: str
    formula: object
    inputs: dict
    without_effect: frozenset = frozenset()


def step(*, busy, median, timeout, rate, batch):
    return f"{busy + expected_wait(median, timeout, step_hit(rate, batch)):.1f} s"


def idle(*, busy, median, timeout, rate, batch):
    return f"{idle_share(expected_wait(median, timeout, step_hit(rate, batch)), busy):.1%}"


def constant(*, busy, median):
    return f"{idle_share(median, busy):.1%}"


def idle_when_hit(*, busy, timeout):
    return f"{idle_of_hit_step(busy, timeout):.1%}"


def hit(*, rate, batch):
    return f"{step_hit(rate, batch):.0%}"


def hit_groups(*, rate, group):
    return f"{step_hit(rate, group):.1%}"


def bend(*, share, batch):
    return f"{knee(share, batch):.2%}"


def stalled(*, generation, training, timeout):
    return f"{generation + training + timeout:.1f} s"


def arriving(*, generation, training, median, timeout, groups):
    return f"{stalled_on_arrival(generation, training, median, timeout, int(groups)):.1f} s"


def hidden(*, generation, training, median, timeout, groups):
    after = stalled_on_arrival(generation, training, median, timeout, int(groups))
    return f"{generation + training + timeout - after:.1f} s"


def dearer(*, busy, median, timeout, rate, batch, small):
    now, then = (seconds_per_completion(busy, median, timeout, rate, batch, to=to) for to in (batch, small))
    return f"{then / now:.1f}x"


def shaved(*, busy, median, timeout, rate, to, batch):
    now, then = (busy + expected_wait(median, timeout, step_hit(p, batch)) for p in (rate, to))
    return f"{(now - then) / now:.0%}"


def hedged(*, rate, batch, infrastructure):
    return f"{step_hit(hedged_rate(rate, infrastructure), batch):.1%}"


SWEEP = {"busy": 24.51, "median": 2.0, "timeout": 30.0, "batch": 128}
GATE = {"generation": 12.47, "training": 12.20, "timeout": 30.0}
ALL_HIT = frozenset({"median"})  # of steps that are as good as all hit, the median says nothing

GOLDEN = [
    Golden("7.5%", constant, {"busy": 24.51, "median": 2.0}),
    Golden("29.0%", constant, {"busy": 24.51, "median": 10.0}),
    Golden("55.0%", idle_when_hit, {"busy": 24.51, "timeout": 30.0}),
    Golden("72%", hit, {"rate": 0.01, "batch": 128}),
    Golden("92%", hit, {"rate": 0.02, "batch": 128}),
    Golden("1.95%", bend, {"share": 0.92, "batch": 128}),
    Golden("7.7%", hit_groups, {"rate": 0.01, "group": 8}),
    Golden("33.7%", hit_groups, {"rate": 0.05, "group": 8}),
    Golden("54.5 s", step, SWEEP | {"rate": 0.1}, ALL_HIT | {"batch", "rate"}),
    Golden("54.5 s", step, SWEEP | {"rate": 0.05}, ALL_HIT),
    Golden("52.4 s", step, SWEEP | {"rate": 0.02}),
    Golden("46.8 s", step, SWEEP | {"rate": 0.01}),
    Golden("39.8 s", step, SWEEP | {"rate": 0.005}),
    Golden("55.0%", idle, SWEEP | {"rate": 0.05}, ALL_HIT),
    Golden("53.2%", idle, SWEEP | {"rate": 0.02}, ALL_HIT),
    Golden("47.6%", idle, SWEEP | {"rate": 0.01}),
    Golden("38.4%", idle, SWEEP | {"rate": 0.005}),
    Golden("54.7 s", stalled, GATE),
    Golden("43.2 s", arriving, GATE | {"median": 2.0, "groups": 16}, ALL_HIT),
    Golden("11.4 s", hidden, GATE | {"median": 2.0, "groups": 16}, ALL_HIT | {"generation", "timeout"}),
    Golden("3.8x", dearer, SWEEP | {"rate": 0.05, "small": 8}),
    Golden("4%", shaved, SWEEP | {"rate": 0.05, "to": 0.02}, ALL_HIT),  # noise
    Golden("24%", shaved, SWEEP | {"rate": 0.02, "to": 0.005}),  # a quarter of the step
    Golden("1.3%", hedged, {"rate": 0.01, "batch": 128, "infrastructure": 1.0}),
    Golden("68.6%", hedged, {"rate": 0.01, "batch": 128, "infrastructure": 0.1}),
    Golden(
        "72.4%", hedged, {"rate": 0.01, "batch": 128, "infrastructure": 0.0}, frozenset({"infrastructure"})
    ),
]

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.told)


@each_golden
def test_the_numbers_of_the_study_come_out_of_their_inputs(golden):
    assert golden.formula(**golden.inputs) == golden.told


@each_golden
def test_a_number_of_the_study_moves_with_every_input_that_it_depends_on(golden):
    moving = golden.inputs.keys() - golden.without_effect
    assert moving
    for name in moving:
        told = {golden.formula(**golden.inputs | {name: golden.inputs[name] * by}) for by in (0.5, 0.95)}
        assert told - {golden.told}, f"{name} has no effect"


@pytest.mark.parametrize(
    ("rho", "chance"), [(0, 0.724), (0.1, 0.616), (0.2, 0.533), (0.3, 0.465), (0.5, 0.353), (1, 0.149)]
)
def test_the_table_of_correlation_comes_out_within_a_hundredth(rho, chance):
    assert step_hit(0.01, 128, group=8, rho=rho) == pytest.approx(chance, abs=0.01)
    assert step_hit(0.011, 128, group=8, rho=rho) != pytest.approx(chance, abs=0.01)


def allowed(deviation, *, span, draws=4_000):
    """Six standard errors of a simulated mean, and ten draws of what is too rare for a normal interval."""
    return 6 * deviation / np.sqrt(draws) + 10 * span / draws


rates = st.floats(0.005, 0.5)
sizes = st.integers(1, 300)
seconds = st.floats(0.01, 100)


@quick
@given(seconds, seconds, rates, sizes)
def test_the_two_point_formula_is_the_integral_over_two_points(median, more, rate, batch):
    two = expected_maximum([median, median + more], batch, weights=[1 - rate, rate])
    assert expected_wait(median, median + more, step_hit(rate, batch)) == pytest.approx(two)


@quick
@given(st.lists(seconds, min_size=1, max_size=30), sizes, seconds)
def test_the_closed_form_is_the_integral_of_one_minus_the_power_of_f(times, batch, timeout):
    ends = np.unique([0.0, *np.minimum(times, timeout)])
    below = [np.mean(np.minimum(times, timeout) <= start) for start in ends[:-1]]
    integral = np.sum((1 - np.power(below, batch)) * np.diff(ends))
    assert expected_maximum(times, batch, timeout_s=timeout) == pytest.approx(integral)


@quick
@given(st.lists(st.tuples(seconds, st.integers(1, 5)), min_size=1, max_size=20), sizes)
def test_a_weight_counts_as_often_as_a_repetition(counted, batch):
    times, weights = zip(*counted, strict=True)
    repeated = expected_maximum(np.repeat(times, weights), batch)
    assert expected_maximum(times, batch, weights=weights) == pytest.approx(repeated)


@quick
@given(rates, st.integers(1, 100), st.integers(0, 2**32))
def test_the_analytic_barrier_is_simulated_within_its_interval(rate, batch, seed):
    rng = np.random.default_rng(seed)
    times = np.where(rng.random(300) < rate, 30.0, rng.lognormal(0.7, 0.4, 300))
    waits = rng.choice(times, (4_000, batch)).max(axis=1)
    mean = expected_maximum(times, batch)
    variance = max(0.0, expected_maximum(times**2, batch) - mean**2)
    assert abs(waits.mean() - mean) <= allowed(np.sqrt(variance), span=times.max())


@quick
@given(rates, st.floats(0.02, 0.98), st.sampled_from([1, 2, 4, 8]), st.integers(1, 16), st.integers(0, 2**32))
def test_the_chance_of_a_hit_step_is_simulated_with_correlation(rate, rho, group, groups, seed):
    rng = np.random.default_rng(seed)
    scale = (1 - rho) / rho
    chances = rng.beta(rate * scale, (1 - rate) * scale, (4_000, groups, 1))
    seen = (rng.random((4_000, groups, group)) < chances).any(axis=(1, 2)).mean()
    told = step_hit(rate, group * groups, group=group, rho=rho)
    assert abs(seen - told) <= allowed(np.sqrt(told * (1 - told)), span=1)


@quick
@given(rates, rates, seconds, sizes, st.floats(0, 1))
def test_a_step_gets_longer_with_the_rate_the_timeout_and_the_batch(rate, more, late, batch, rho):
    def waits(rate=rate, timeout=2 + late, size=batch):
        return expected_wait(2, timeout, step_hit(rate, size, group=4, rho=rho))

    now = waits() * (1 - 1e-12)
    assert waits(rate=rate + more) >= now
    assert waits(timeout=2 + 2 * late) >= now
    assert waits(size=batch + 1) >= now


@quick
@given(rates, sizes, st.floats(0, 1), st.floats(0, 1))
def test_correlation_never_lets_more_steps_be_hit(rate, batch, one, other):
    less, more = sorted((one, other))
    loose, tight = (step_hit(rate, batch, group=8, rho=rho) for rho in (less, more))
    assert tight <= loose + 1e-12


@quick
@given(st.floats(0.01, 0.99), sizes, st.sampled_from([0.0, 0.2, 1.0]))
def test_the_knee_is_where_that_share_of_steps_is_hit(share, groups, rho):
    there = knee(share, 8 * groups, group=8, rho=rho)
    assert step_hit(there, 8 * groups, group=8, rho=rho) == pytest.approx(share)


@quick
@given(rates, st.integers(1, 64), st.floats(0.001, 0.999))
def test_the_number_of_hits_in_a_group_is_the_beta_binomial_of_scipy(rate, size, rho):
    scale = (1 - rho) / rho
    there = stats.betabinom.pmf(np.arange(size + 1), size, rate * scale, (1 - rate) * scale)
    assert hits(rate, size, rho) == pytest.approx(there, abs=1e-9)
    assert hits(rate, size) == pytest.approx(stats.binom.pmf(np.arange(size + 1), size, rate), abs=1e-9)


@pytest.mark.parametrize(
    ("rate", "rho", "expected"), [(0, 0.3, [1, 0, 0]), (1, 0, [0, 0, 1]), (0.2, 1, [0.8, 0, 0.2])]
)
def test_a_group_that_stands_or_falls_as_one_has_no_part(rate, rho, expected):
    assert hits(rate, 2, rho).tolist() == pytest.approx(expected)


@quick
@given(seconds, seconds, seconds, st.integers(1, 16))
def test_one_stalled_group_is_what_the_schedule_of_its_arrivals_says(median, more, training, groups):
    arrivals = np.array([median] * (groups - 1) + [median + more])
    end = trained_on_arrival(arrivals, np.full(groups, training / groups), np.zeros(groups, np.int64), 1)[0]
    assert stalled_on_arrival(10.0, training, median, median + more, groups) == pytest.approx(10 + end)


@quick
@given(rates, st.integers(1, 16), seconds, st.integers(0, 2**32))
def test_expected_steps_with_backward_on_arrival_are_simulated_within_their_interval(
    rate, groups, training, seed
):
    late = np.random.default_rng(seed).random((4_000, groups)) < rate
    arrivals, step = np.where(late, 30.0, 2.0).ravel(), np.repeat(np.arange(4_000), groups)
    ends = trained_on_arrival(arrivals, np.full(len(arrivals), training / groups), step, 4_000)
    told = expected_on_arrival(training, 2.0, 30.0, rate, groups)
    assert abs(told - ends.mean()) <= allowed(np.std(ends), span=30 + training)


@quick
@given(rates, st.integers(1, 16), seconds)
def test_backward_on_arrival_hides_at_most_the_training_of_all_groups_but_one(rate, groups, training):
    after = expected_on_arrival(training, 2.0, 30.0, rate, groups)
    before = training + expected_wait(2.0, 30.0, step_hit(rate, groups))
    assert -1e-9 <= before - after <= training * (groups - 1) / groups + 1e-9


def test_contention_that_a_step_shares_makes_independence_predict_42_percent_too_much():
    rng, steps, batch = np.random.default_rng(7), 20_000, 128
    shared = rng.normal(0, 0.6, (steps, 1)).astype(np.float32)
    times = np.minimum(2 * np.exp(shared + rng.normal(0, 0.8, (steps, batch)).astype(np.float32)), 30)
    observed, independent = times.max(axis=1).mean(), expected_maximum(times.ravel(), batch)
    assert independent == pytest.approx(24.49, abs=0.25)
    assert observed == pytest.approx(17.25, abs=0.25)
    assert 100 * (independent / observed - 1) == pytest.approx(42, abs=2)


def test_the_maxima_of_groups_give_the_barrier_of_rewards_that_are_correlated_in_them():
    run = planted(steps=2_000, rate=0.01, rho=0.5, seed=3)
    times = run.calls.service_s.reshape(2_000, 16, 8)
    observed = times.max(axis=(1, 2)).mean()
    assert expected_maximum(times.max(axis=2).ravel(), 16) == pytest.approx(observed, rel=0.03)
    assert expected_maximum(times.ravel(), 128) > 1.3 * observed


@pytest.mark.parametrize("times", [[], [1.0, float("nan")]])
def test_a_barrier_of_what_was_not_measured_is_refused(times):
    with pytest.raises(RefusedError, match=r"times_s: a barrier needs service times, and . of . were not"):
        expected_maximum(times, 8)


def test_a_hedge_fails_where_both_attempts_are_slow_on_their_own():
    assert hedged_rate(0.2, 0.5) == pytest.approx(0.1 + 0.1**2)
    assert hedged_rate(np.array([0.2, 0.4]), 1.0).tolist() == pytest.approx([0.04, 0.16])


def test_idle_over_a_run_is_no_mean_of_ratios():
    assert idle_share([0.0, 30.0], [10.0, 10.0]) == pytest.approx(0.6)
