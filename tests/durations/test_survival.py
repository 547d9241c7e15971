"""Kaplan and Meier's curve, its quantiles, and two samples compared."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from steelyard.durations import log_rank, survival
from steelyard.errors import RefusedError

TIMES = st.integers(0, 40).map(lambda tenths: tenths / 10)  # ties and zeros are common
CALLS = st.lists(st.tuples(TIMES, st.booleans()), min_size=1, max_size=40)
SHARES = st.floats(0.01, 0.99)


def columns(calls):
    return np.array([time for time, _ in calls]), np.array([cut for _, cut in calls], bool)


def placed(found):
    return np.inf if found.value is None else found.value


def sample(seed, count=200):
    rng = np.random.default_rng(seed)
    return np.round(rng.exponential(2, count), 1), rng.random(count) < 0.3


class TestCurve:
    @given(CALLS)
    def test_it_is_scipys(self, calls):
        times, cut = columns(calls)
        ours, theirs = survival(times, cut), stats.ecdf(stats.CensoredData.right_censored(times, cut)).sf
        ends = np.isin(theirs.quantiles, ours.x)
        assert ours.survival == pytest.approx(theirs.probabilities[ends])
        assert ours.at(times) == pytest.approx(theirs.evaluate(times))

    @pytest.mark.filterwarnings("ignore:The confidence interval is undefined")
    @pytest.mark.parametrize("seed", range(5))
    def test_its_band_is_scipys_where_that_is_defined(self, seed):
        times, cut = sample(seed)
        drawn = survival(times, cut).drawn(confidence=0.9)
        theirs = stats.ecdf(stats.CensoredData.right_censored(times, cut)).sf
        band = theirs.confidence_interval(0.9, method="log-log")
        ends = np.isin(theirs.quantiles, drawn.x)
        for ours, edge in ((drawn.low, band.low), (drawn.high, band.high)):
            known = np.isfinite(edge.probabilities[ends])
            assert known.sum() > 30
            assert ours[known] == pytest.approx(edge.probabilities[ends][known])

    def test_a_call_cut_at_the_time_another_ended_was_still_at_risk(self):
        curve = survival([2.0, 2.0], [False, True])
        assert curve.at_risk.tolist() == [2]
        assert curve.survival.tolist() == [0.5]

    def test_beyond_the_last_cut_nothing_is_known_and_beyond_the_last_end_nothing_is_left(self):
        assert np.isnan(survival([1.0, 30.0], [False, True]).at(31.0))
        assert survival([1.0, 30.0], [False, False]).at(31.0) == 0
        assert survival([1.0, 30.0], [False, True]).at([0.5, 1.0, 30.0]).tolist() == [1, 0.5, 0.5]

    def test_where_nothing_survives_the_band_still_reaches_from_zero_to_its_last_value(self):
        drawn = survival([1.0, 2.0, 3.0], [False] * 3).drawn()
        assert drawn.low[-1] == 0
        assert drawn.high[-1] == drawn.high[-2] > 0

    def test_a_drawing_has_few_points_of_the_same_curve_and_both_its_ends(self):
        rng = np.random.default_rng(1)
        times, cut = rng.lognormal(0, 1, 20_000), rng.random(20_000) < 0.1
        curve = survival(times, cut)
        drawn, whole = curve.drawn(200), curve.drawn(1_000_000)
        assert len(drawn.x) <= 202
        assert len(drawn.cuts) == 200
        assert drawn.x[[0, -1]].tolist() == curve.x[[0, -1]].tolist()
        kept = np.isin(whole.x, drawn.x)
        for ours, all_of_it in zip(drawn[:5], whole[:5], strict=True):
            assert np.array_equal(ours[:-1], all_of_it[kept][:-1])

    @given(CALLS, st.randoms(use_true_random=False))
    def test_the_order_of_calls_changes_nothing(self, calls, chance):
        mixed = calls.copy()
        chance.shuffle(mixed)
        one, other = survival(*columns(calls)), survival(*columns(mixed))
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.survival, other.survival)


class TestQuantile:
    @given(CALLS, st.integers(0), SHARES)
    def test_marking_a_call_cut_never_lowers_it(self, calls, place, share):
        times, cut = columns(calls)
        marked = cut.copy()
        marked[place % len(cut)] = True
        assert placed(survival(times, marked).quantile(share)) >= placed(survival(times, cut).quantile(share))

    @given(CALLS, SHARES)
    def test_it_is_a_time_at_which_a_call_ended_or_a_bound_that_was_seen(self, calls, share):
        times, cut = columns(calls)
        found = survival(times, cut).quantile(share)
        assert found.value in times[~cut] if found.identified else found.above == times.max()

    @given(st.lists(TIMES, min_size=1, max_size=40), SHARES)
    def test_without_cuts_it_is_numpys(self, times, share):
        ours = survival(times, np.zeros(len(times), bool)).quantile(share).value
        assume(abs(share * len(times) - round(share * len(times))) > 1e-6)  # numpy rounds otherwise
        assert ours == np.quantile(times, share, method="inverted_cdf")

    def test_dropping_the_cut_calls_would_bias_it_low(self):
        rng = np.random.default_rng(0)
        drawn = rng.lognormal(0.7, 0.8, 20_000)
        let = rng.exponential(6, 20_000)
        times, cut = np.minimum(drawn, let), let < drawn
        truth = np.exp(0.7 + 0.8 * 1.2816)
        assert survival(times, cut).quantile(0.9).value == pytest.approx(truth, rel=0.05)
        assert survival(times[~cut], cut[~cut]).quantile(0.9).value < 0.8 * truth

    def test_above_the_cut_only_a_bound_is_known(self):
        found = survival([1.0, 2.0, 3.0, 30.0], [False, False, False, True]).quantile(0.9)
        assert (found.identified, found.value, found.above) == (False, None, 30.0)

    def test_of_nothing_and_of_cut_calls_only_nothing_but_a_bound_is_known(self):
        assert survival([], []).quantile(0.5) == (0.5, None, 0.0)
        assert survival([30.0, 8.0], [True, True]).quantile(0.5) == (0.5, None, 30.0)
        assert len(survival([], []).drawn().x) == len(survival([30.0], [True]).drawn().x) == 0

    def test_of_one_call_every_quantile_is_its_time(self):
        assert survival([3.0], [False]).quantile(0.01).value == 3.0

    @pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
    def test_a_share_outside_0_to_1_is_refused(self, share):
        with pytest.raises(RefusedError, match="between 0 and 1"):
            survival([1.0], [False]).quantile(share)


class TestRefusals:
    @pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.5])
    def test_what_was_not_measured_is_refused_by_row_and_value(self, wrong):
        with pytest.raises(RefusedError, match=f"times: row 1 is {wrong}, and 2 of 3 rows"):
            survival([1.0, wrong, wrong], [False] * 3)

    def test_columns_of_different_lengths_are_refused(self):
        with pytest.raises(RefusedError, match="times 2, censored 1"):
            survival([1.0, 2.0], [False])

    def test_a_flag_is_yes_or_no(self):
        with pytest.raises(RefusedError, match="row 1 is 2, neither 0 nor 1"):
            survival([1.0, 2.0], [0, 2])


class TestLogRank:
    @pytest.mark.parametrize("seed", range(5))
    def test_with_one_block_it_is_scipys(self, seed):
        times, cut = sample(seed)
        second = np.random.default_rng(seed + 100).random(len(times)) < 0.4
        ours = log_rank(times, cut, second)
        first, other = (
            stats.CensoredData.right_censored(times[which], cut[which]) for which in (~second, second)
        )
        theirs = stats.logrank(first, other)
        assert ours.statistic == pytest.approx(-theirs.statistic)
        assert ours.pvalue == pytest.approx(theirs.pvalue)

    def test_over_blocks_differences_and_variances_are_summed(self):
        rng = np.random.default_rng(3)
        times, cut = sample(7, 300)
        second, block = rng.random(300) < 0.5, rng.integers(0, 6, 300)
        alone = [log_rank(times[block == one], cut[block == one], second[block == one]) for one in range(6)]
        excess = [one.observed - one.expected for one in alone]
        variance = [(part / one.statistic) ** 2 for part, one in zip(excess, alone, strict=True)]
        together = log_rank(times, cut, second, block=block)
        assert together.statistic == pytest.approx(sum(excess) / sum(variance) ** 0.5)
        assert together.blocks == 6

    def test_a_busy_block_does_not_make_two_equal_executors_differ(self):
        rng = np.random.default_rng(5)
        block = np.repeat(np.arange(20), 50)
        busy = np.where(block < 10, 1.0, 4.0)
        second = rng.random(1_000) < np.where(block < 10, 0.2, 0.8)
        times = busy * rng.lognormal(0, 0.5, 1_000)
        assert log_rank(times, np.zeros(1_000, bool), second).pvalue < 1e-6
        assert log_rank(times, np.zeros(1_000, bool), second, block=block).pvalue > 0.05
        slower = np.where(second, 1.3, 1.0) * times
        found = log_rank(slower, np.zeros(1_000, bool), second, block=block)
        assert found.pvalue < 1e-6
        assert found.statistic < 0

    @given(CALLS, st.data())
    def test_order_and_names_of_blocks_change_nothing_and_swapping_samples_turns_the_sign(self, calls, data):
        times, cut = columns(calls)
        count = len(times)
        second = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        block = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
        order = np.array(data.draw(st.permutations(range(count))))
        one = log_rank(times, cut, second, block=block)
        other = log_rank(times[order], cut[order], ~second[order], block=(7 - block[order]) * 1_000)
        assert other.statistic == pytest.approx(-one.statistic, abs=1e-9)
        assert other.blocks == one.blocks

    def test_with_nothing_to_compare_it_says_that_no_block_was(self):
        assert log_rank([], [], []) == (0.0, 1.0, 0, 0.0, 0)
        assert log_rank([1.0, 2.0], [False, False], [True, False], block=["a", "b"]).blocks == 0
