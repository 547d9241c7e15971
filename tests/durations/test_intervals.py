"""Intervals whose unit is the step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from steelyard.durations import mean, over_steps, quantile, ratio, share, survival
from steelyard.durations.intervals import _influences
from steelyard.errors import RefusedError

COLUMN = st.lists(st.floats(0, 100), min_size=30, max_size=50)


def contended(seed, steps=40, calls=64, *, cuts=False):
    """Times, cuts and steps of a run whose steps are slow or fast as a whole."""
    rng = np.random.default_rng(seed)
    drawn = 2 * np.exp(0.8 * rng.normal(size=(steps, calls)) + 0.6 * rng.normal(size=(steps, 1)))
    let = rng.exponential(20, drawn.shape) if cuts else np.full(drawn.shape, 30.0)
    return np.minimum(drawn, let).ravel(), (let < drawn).ravel(), np.repeat(np.arange(steps), calls)


class TestMeanAndRatio:
    def test_of_a_mean_it_is_students(self):
        values = np.random.default_rng(0).lognormal(2, 0.5, 40)
        found = mean(values)
        theirs = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
        assert (found.value, found.steps) == (pytest.approx(values.mean()), 40)
        assert (found.low, found.high) == pytest.approx(theirs)

    @given(COLUMN, st.data())
    def test_a_ratio_of_sums_lies_within_its_interval_and_the_order_of_steps_changes_nothing(
        self, waits, data
    ):
        below = np.array(waits) + 1.0
        found = ratio(waits, below)
        order = data.draw(st.permutations(range(len(waits))))
        assert found.value == pytest.approx(sum(waits) / below.sum())
        assert found.low <= found.value <= found.high
        assert ratio(np.array(waits)[order], below[order])[:3] == pytest.approx(found[:3])

    def test_idle_of_a_run_is_total_wait_over_total_wall_and_no_mean_of_ratios(self):
        waits = np.tile([2.0, 30.0], 20)
        assert ratio(waits, waits + 24.51).value == pytest.approx(32 / (32 + 49.02))

    def test_below_thirty_steps_there_is_a_value_but_no_interval_and_the_reason(self):
        for found in (mean(np.ones(29)), ratio(np.ones(29), np.ones(29)), share(np.ones(29), np.ones(29))):
            assert (found.value, found.low, found.high) == (1.0, None, None)
            assert found.why == "29 steps; an interval needs 30"
        assert mean([3.0]).why.startswith("1 step;")

    def test_a_ratio_that_one_step_decides_has_no_interval(self):
        found = ratio(np.ones(40), np.eye(40)[0])
        assert found.low is None
        assert found.why == "one step holds all of it"

    def test_nothing_is_refused_and_so_is_what_was_not_measured(self):
        with pytest.raises(RefusedError, match="sums to 0 over 0 steps"):
            mean([])
        with pytest.raises(RefusedError, match="above: row 2 is nan"):
            mean([1.0, 2.0, np.nan])
        with pytest.raises(RefusedError, match="sums to 0 over 2 steps"):
            ratio([1.0, 1.0], [0.0, 0.0])


class TestAnythingSmooth:
    def test_the_jackknife_of_a_mean_is_students_interval(self):
        values = np.random.default_rng(1).normal(5, 2, 50)
        assert over_steps(values.mean(), (values.sum() - values) / 49) == pytest.approx(mean(values))

    def test_it_does_not_leave_what_the_statistic_cannot_leave(self):
        values = np.r_[np.zeros(39), 1.0]
        found = over_steps(values.mean(), (values.sum() - values) / 39, within=(0.0, 1.0))
        assert found.low == 0.0


class TestShare:
    @given(st.lists(st.integers(0, 8), min_size=30, max_size=50), st.randoms(use_true_random=False))
    def test_it_lies_within_its_interval_and_the_order_of_steps_changes_nothing(self, hits, chance):
        found = share(hits, np.full(len(hits), 8))
        chance.shuffle(hits)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert share(hits, np.full(len(hits), 8))[:3] == pytest.approx(found[:3])

    def test_of_independent_calls_it_is_clopper_and_pearsons_or_a_little_wider(self):
        rng = np.random.default_rng(2)
        hits = rng.binomial(128, 0.05, 400)
        found, exact = (
            share(hits, np.full(400, 128)),
            stats.binomtest(int(hits.sum()), 51_200).proportion_ci(),
        )
        assert found.low <= exact.low
        assert found.high >= exact.high
        assert found.high - found.low < 1.15 * (exact.high - exact.low)

    def test_a_burst_counts_as_one_observation(self):
        burst, spread = np.r_[np.zeros(39), 40], np.ones(40)
        sizes = np.full(40, 128)
        assert share(burst, sizes).high > 5 * share(spread, sizes).high

    def test_no_hit_in_forty_steps_leaves_what_forty_steps_leave(self):
        found = share(np.zeros(40), np.full(40, 128))
        assert (found.value, found.low) == (0, 0)
        assert found.high == pytest.approx(1 - 0.025 ** (1 / 40))
        assert share(np.full(40, 128), np.full(40, 128))[:3] == pytest.approx((1, 0.025 ** (1 / 40), 1))

    def test_steps_without_calls_count_for_nothing(self):
        assert share(np.r_[np.ones(40), 0], np.r_[np.full(40, 9), 0]) == share(np.ones(40), np.full(40, 9))

    def test_more_hits_than_calls_are_refused(self):
        with pytest.raises(RefusedError, match="row 1 has 3 of 2"):
            share([0, 3], [2, 2])


class TestQuantile:
    @settings(max_examples=40)
    @given(st.integers(0, 10_000), st.floats(0.05, 0.98), st.booleans())
    def test_it_lies_within_its_interval_and_the_interval_within_what_was_seen(self, seed, asked, cuts):
        times, cut, step = contended(seed, calls=12, cuts=cuts)
        found = quantile(times, cut, step, asked)
        if found.value is None:
            assert found.above == times.max()
            return
        assert times.min() <= found.low <= found.value
        assert found.why if found.high is None else found.value <= found.high <= times.max()

    def test_the_order_of_calls_and_the_names_of_steps_change_nothing(self):
        for cuts in (False, True):
            times, cut, step = contended(1, cuts=cuts)
            order = np.random.default_rng(0).permutation(len(times))
            found = quantile(times, cut, step, 0.9)
            for names in (39 - step, step * 1_000_003, step / 7, np.array([f"step {one}" for one in step])):
                assert quantile(times[order], cut[order], names[order], 0.9) == pytest.approx(found)

    @settings(max_examples=40)
    @given(st.integers(0, 10_000), st.integers(0, 479), st.floats(0.05, 0.98))
    def test_marking_a_call_cut_never_lowers_it(self, seed, place, asked):
        times, cut, step = contended(seed, calls=12, cuts=True)
        marked = cut.copy()
        marked[place] = True
        before, after = (quantile(times, one, step, asked).value for one in (cut, marked))
        assert (after or np.inf) >= (before or np.inf)

    @pytest.mark.parametrize("cuts", [False, True])
    def test_its_variance_is_the_jackknifes_over_steps(self, cuts):
        times, cut, step = contended(3, cuts=cuts)
        curve = survival(times, cut)
        at = curve.quantile(0.9).value
        ours = _influences(times, cut, step, curve, at)
        left = np.array([survival(times[step != one], cut[step != one]).at(at) for one in range(40)])
        assert np.abs(ours.sum()) < 1e-12
        assert ours * 40 / 39 == pytest.approx(left - curve.at(at), rel=0.02, abs=1e-5)

    def test_a_shared_step_makes_it_wide_where_calls_alone_would_say_it_is_known(self):
        times, cut, step = contended(4)
        apart = quantile(times, cut, np.random.default_rng(0).permutation(step), 0.95)
        together = quantile(times, cut, step, 0.95)
        assert together.high - together.low > 2 * (apart.high - apart.low)

    def test_where_its_upper_end_lies_above_the_cut_it_says_so(self):
        rng = np.random.default_rng(6)
        times = np.where(rng.random(5_120) < 0.045, 30.0, rng.lognormal(0.7, 0.3, 5_120))
        slow = np.repeat(np.arange(40), 128)
        found = quantile(times, times == 30.0, slow, 0.95)
        assert found.high is None
        assert found.low < found.value < 30
        assert found.why == "the upper end lies above 30 s, the longest time seen"

    def test_where_it_is_not_identified_it_says_how_many_calls_were_cut(self):
        times, _, step = contended(2)
        none = quantile(times, np.ones(len(times), bool), step, 0.5)
        assert (none.value, none.above, none.low, none.high) == (None, times.max(), None, None)
        assert none.why == "2,560 of 2,560 calls were cut"
        assert quantile([], [], [], 0.5).why == "no calls"
        assert quantile([1.0], [False], [0], 0.5) == (
            0.5,
            1.0,
            None,
            None,
            None,
            1,
            "1 step; an interval needs 30",
        )

    def test_beyond_the_last_of_few_calls_there_is_no_upper_end(self):
        found = quantile(np.arange(40.0), np.zeros(40, bool), np.arange(40), 0.99)
        assert (found.value, found.high) == (39.0, None)
        assert found.low < 39
        assert quantile(np.full(80, 2.0), np.zeros(80, bool), np.arange(80), 0.5)[1:5] == (
            2.0,
            None,
            2.0,
            2.0,
        )

    def test_a_step_that_is_not_known_is_refused(self):
        with pytest.raises(RefusedError, match="step: row 1 is nan"):
            quantile([1.0, 2.0], [False, False], [0.0, np.nan], 0.5)
