"""Steps replayed or drawn from what was measured (src/steelyard/pricing/simulate.py)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.pricing import barrier
from steelyard.pricing.simulate import bootstrap, draw, evenly, in_flight, served, trained_on_arrival

SECONDS = st.floats(0, 100).map(lambda s: round(s, 3))
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.0005, 0.2),
    rho=st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]),
    group=st.sampled_from([1, 2, 8]),
    groups=st.integers(1, 16),
    median=st.floats(0.1, 10),
    seed=SEEDS,
)
def test_the_analytic_barrier_equals_the_simulated_one_within_its_interval(
    *, rate, rho, group, groups, median, seed
):
    steps, batch = 2_000, group * groups
    drawn = draw(
        np.array([median]),
        np.random.default_rng(seed),
        steps=steps,
        batch=batch,
        group=group,
        rate=rate,
        timeout_s=30,
        rho=rho,
    )
    hit = float(barrier.step_hit(rate, batch, group=group, rho=rho))
    expected = barrier.expected_wait(median, 30, hit)
    error = (30 - median) * (hit * (1 - hit) / steps) ** 0.5
    assert abs(drawn.wait_s.mean() - expected) < 6 * error + 6 * 30 / steps
    assert (
        abs(drawn.hits.sum() - rate * steps * batch) < 6 * (rate * steps * batch * group) ** 0.5 + 6 * group
    )
    assert ((drawn.hits.sum(axis=1) > 0) == (drawn.wait_s == 30)).all()


@settings(max_examples=30, deadline=None)
@given(times=st.lists(SECONDS, min_size=1, max_size=60), batch=st.integers(1, 60), seed=SEEDS)
def test_the_mean_maximum_of_measured_times_equals_the_simulated_one(times, batch, seed):
    times = np.array(times)
    drawn = draw(
        times,
        np.random.default_rng(seed),
        steps=2_000,
        batch=batch,
        group=1,
        rate=0,
        timeout_s=60,
    )
    expected = barrier.expected_maximum(times, batch, timeout_s=60)
    # Bernstein: a time that is rarely drawn may not have been drawn at all
    error = drawn.wait_s.std() / 2_000**0.5
    assert abs(drawn.wait_s.mean() - expected) < 6 * error + 30 * 60 / 2_000


def test_correlation_within_a_prompt_takes_fewer_steps_for_the_same_rate():
    hits = {}
    for rho in (0.0, 0.3, 1.0):
        rng = np.random.default_rng(1)
        drawn = draw(np.array([2.0]), rng, steps=20_000, batch=128, group=8, rate=0.01, timeout_s=30, rho=rho)
        assert drawn.hits.mean() / 8 == pytest.approx(0.01, rel=0.05)
        hits[rho] = (drawn.wait_s == 30).mean()
        partly = ((drawn.hits > 0) & (drawn.hits < 8)).mean()
        assert partly == pytest.approx({0.0: 0.077, 0.3: 0.038, 1.0: 0.0}[rho], abs=0.002)
    assert hits == pytest.approx({0.0: 0.724, 0.3: 0.465, 1.0: 0.149}, abs=0.012)


def test_contention_of_a_step_is_kept_if_told_whose_each_time_is():
    rng = np.random.default_rng(0)
    step = np.repeat(np.arange(4_000), 128)
    factor = np.exp(rng.normal(0, 0.6, 4_000))[step]
    times = np.minimum(2 * np.exp(rng.normal(0, 0.8, len(step))) * factor, 30)
    shuffled = rng.permutation(len(step))
    asked = {"steps": 4_000, "batch": 128, "group": 8, "rate": 0.0, "timeout_s": 30}
    kept = draw(times[shuffled], rng, **asked, step=step[shuffled]).wait_s.mean()
    pooled = draw(times, rng, **asked).wait_s.mean()
    assert pooled / np.maximum.reduceat(times, np.arange(0, len(step), 128)).mean() == pytest.approx(
        1.42, abs=0.02
    )
    assert 0.85 < kept / np.maximum.reduceat(times, np.arange(0, len(step), 128)).mean() < 1.0


def test_a_bootstrap_of_steps_has_the_mean_and_the_spread_of_the_steps():
    rng = np.random.default_rng(3)
    waited = np.where(rng.random(500) < 0.4, 30.0, rng.normal(4, 1, 500))
    means = bootstrap(np.append(waited, np.nan), rng, steps=100, times=4_000)
    assert means.mean() == pytest.approx(waited.mean(), rel=0.01)
    assert means.std() == pytest.approx(waited.std() / 10, rel=0.05)
    assert bootstrap(waited, rng, steps=5_000_000, times=2).std() < 0.05


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    data=st.data(),
)
def test_training_on_arrival_is_one_server_in_order_of_arrival(sizes, data):
    step = np.repeat(np.arange(len(sizes)), sizes)
    arrivals = np.array([data.draw(SECONDS) for _ in step])
    training = np.array([data.draw(SECONDS) for _ in step])
    mixed = data.draw(st.permutations(range(len(step))))
    ends = trained_on_arrival(arrivals[mixed], training[mixed], step[mixed], len(sizes))
    for number in range(len(sizes)):
        mine = np.flatnonzero(step == number)
        clock = None
        for one in sorted(mine, key=lambda i: arrivals[i]):
            clock = max(arrivals[one], clock or 0.0) + training[one]
        assert ends[number] == pytest.approx(clock) if clock is not None else np.isnan(ends[number])


@given(
    arrivals=st.lists(SECONDS, min_size=1, max_size=16),
    training=st.floats(0, 50),
)
def test_training_on_arrival_is_never_later_than_after_the_batch_and_hides_at_most_all_groups_but_one(
    arrivals, training
):
    groups = len(arrivals)
    each, one = np.full(groups, training / groups), np.zeros(groups, np.int64)
    end = trained_on_arrival(np.array(arrivals), each, one, 1)[0]
    after = max(arrivals) + training
    assert after - training * (groups - 1) / groups - 1e-9 <= end <= after + 1e-9


def test_one_stalled_group_of_sixteen_takes_43_2_s_instead_of_54_7():
    arrivals, training = np.array([0.0] * 15 + [30.0]), np.full(16, 12.20 / 16)
    end = trained_on_arrival(arrivals, training, np.zeros(16, np.int64), 1)[0]
    assert 12.47 + arrivals.max() + training.sum() == pytest.approx(54.7, abs=0.05)
    assert 12.47 + end == pytest.approx(43.2, abs=0.05)


@given(
    jobs=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30),
    places=st.integers(1, 8),
)
def test_calls_are_served_first_ready_first_and_more_places_make_none_later(jobs, places):
    ready, service = (np.array(column) for column in zip(*jobs, strict=True))
    ends = served(ready, service, places)
    assert (ends >= ready + service - 1e-9).all()
    assert (served(ready, service, places + 1) <= ends + 1e-9).all()
    assert in_flight(ends - service, ends) <= places or service.min() < 1e-5
    free = [0.0] * places  # a plain loop over the first free place
    for one in np.argsort(ready, kind="stable"):
        place = free.index(min(free))
        free[place] = max(free[place], ready[one]) + service[one]
        assert ends[one] == pytest.approx(free[place])


def test_calls_are_served_in_the_order_told_and_in_one_place_at_least():
    ready, service = np.zeros(3), np.array([4.0, 1.0, 2.0])
    assert served(ready, service, 1, order=np.array([2, 0, 1])).tolist() == [6, 7, 2]
    assert served(ready, service, 0).tolist() == served(ready, service, 1).tolist() == [4, 5, 7]


def test_a_call_that_ends_as_another_begins_makes_room_for_it():
    assert in_flight(np.array([0.0, 1.0, 0.5]), np.array([1.0, 2.0, 0.75])) == 2
    assert in_flight(np.zeros(0), np.zeros(0)) == 0


@given(sizes=st.lists(st.integers(0, 50), max_size=40), most=st.integers(1, 400))
def test_steps_to_look_at_are_chosen_evenly(sizes, most):
    chosen = evenly(np.array(sizes, np.int64), most)
    assert chosen.all() if sum(sizes) <= most else 1 <= chosen.sum() < len(sizes) or len(sizes) == 1


@pytest.mark.parametrize("wrong", [{"batch": 12, "group": 8}, {"rate": 1.5}, {"rho": -0.1}, {"times": []}])
def test_what_cannot_be_drawn_is_refused(wrong):
    asked = {"steps": 3, "batch": 16, "group": 8, "rate": 0.1, "timeout_s": 30.0, **wrong}
    times = np.array(asked.pop("times", [2.0]))
    with pytest.raises(RefusedError, match="simulation needs"):
        draw(times, np.random.default_rng(0), **asked)
    with pytest.raises(RefusedError, match="there is none"):
        bootstrap(np.array([np.nan]), np.random.default_rng(0), steps=5)
