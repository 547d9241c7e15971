"""Whether calls stand or fall together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planted import planted
from steelyard.durations import all_hit, between_steps, intra_prompt, none_hit
from steelyard.errors import RefusedError

RHO = np.array([0, 0.1, 0.2, 0.3, 0.5, 1])
GROUPS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 35)), min_size=1, max_size=60
)


def groups_of(run):
    """Hits, sizes and steps of the groups of a planted run."""
    group = run.calls.group
    return (
        np.bincount(group, run.calls.censored),
        np.bincount(group),
        run.calls.step[:: len(group) // (group[-1] + 1)],
    )


def measured_in(run):
    return intra_prompt(*groups_of(run))


class TestBetaBinomial:
    def test_the_chance_that_a_step_contains_a_timeout_falls_with_correlation(self):
        hit = 1 - none_hit(0.01, RHO, 8) ** 16
        assert hit == pytest.approx([0.724, 0.616, 0.533, 0.465, 0.353, 0.149], abs=0.001)

    def test_so_does_the_share_of_partly_hit_groups_until_there_is_none(self):
        partly = 1 - none_hit(0.01, RHO, 8) - all_hit(0.01, RHO, 8)
        assert partly[[0, 3, 5]] == pytest.approx([0.077, 0.038, 0], abs=0.0005)

    @given(st.floats(0.001, 0.999), st.floats(1e-4, 0.999), st.integers(0, 40))
    def test_it_is_scipys(self, rate, rho, size):
        scale = (1 - rho) / rho
        theirs = stats.betabinom(size, rate * scale, (1 - rate) * scale)
        assert none_hit(rate, rho, size) == pytest.approx(theirs.pmf(0), rel=1e-6, abs=1e-12)
        assert all_hit(rate, rho, size) == pytest.approx(theirs.pmf(size), rel=1e-6, abs=1e-12)

    def test_columns_are_broadcast_and_a_rate_above_1_is_refused(self):
        assert none_hit([[0.0], [0.5], [1.0]], [0, 1], 3) == pytest.approx(
            np.array([[1, 1], [0.125, 0.5], [0, 0]])
        )
        assert none_hit(0.5, 0, [0, 1, 2]).tolist() == [1, 0.5, 0.25]
        for wrong in ((1.1, 0, 8), (0.1, -0.1, 8), (0.1, 0, -1), (np.nan, 0, 8)):
            with pytest.raises(RefusedError, match="needs 0 to"):
                none_hit(*wrong)


class TestIntraPrompt:
    @pytest.mark.parametrize("rate", [0.01, 0.05])
    @pytest.mark.parametrize("rho", [0.1, 0.3, 0.5])
    def test_planted_correlation_is_recovered(self, rate, rho):
        runs = [measured_in(planted(rate=rate, rho=rho, seed=seed)) for seed in range(40)]
        assert np.mean([run.rho.value for run in runs]) == pytest.approx(rho, abs=0.06)
        assert sum(run.rho.low <= rho <= run.rho.high for run in runs) >= 34
        assert sum(run.rate.low <= rate <= run.rate.high for run in runs) >= 34
        assert sum(run.pvalue < 0.01 for run in runs) == 40

    @pytest.mark.parametrize("rate", [0.01, 0.05])
    def test_without_correlation_none_is_reported_more_often_than_by_chance(self, rate):
        runs = [measured_in(planted(rate=rate, seed=seed)) for seed in range(200)]
        assert sum(run.pvalue < 0.05 for run in runs) <= 18
        assert sum(run.pvalue < 0.01 for run in runs) <= 6
        assert sum(run.rho.low > 0 for run in runs) <= 12
        assert all(run.rho.low <= run.rho.value <= run.rho.high for run in runs)

    def test_fully_correlated_groups_are_hit_as_a_whole(self):
        found = measured_in(planted(rate=0.05, rho=1.0))
        assert (found.rho.value, found.rho.high) == (1, 1)
        assert 0.5 < found.rho.low < 1
        assert found.hits == 8 * found.hit_groups

    def test_a_busy_step_does_not_look_like_a_hard_prompt(self):
        rng = np.random.default_rng(0)
        step = np.repeat(np.arange(40), 16)
        found = intra_prompt(rng.binomial(8, np.where(step % 10 == 0, 0.4, 0.01)), np.full(640, 8), step)
        assert found.pvalue > 0.05
        assert found.rho.value < 0.05
        alone = intra_prompt(
            rng.binomial(8, np.where(step % 10 == 0, 0.4, 0.01)), np.full(640, 8), np.arange(640)
        )
        assert alone.rho.low > 0.1  # where each group is its own step the two cannot be told apart

    @given(GROUPS, st.randoms(use_true_random=False))
    def test_any_sizes_are_taken_and_order_and_names_change_nothing(self, groups, chance):
        def found(rows):
            size, hit, step = np.array(rows).T
            return intra_prompt(np.minimum(hit, size), size, 1_000 * step)

        one = found(groups)
        mixed = [(size, hit, 40 - step) for size, hit, step in groups]
        chance.shuffle(mixed)
        other = found(mixed)
        assert other.rate[:3] == pytest.approx(one.rate[:3])
        assert other.pvalue == pytest.approx(one.pvalue)
        assert (one.rho is None) == (other.rho is None)
        if one.rho is not None:
            assert other.rho[:3] == pytest.approx(one.rho[:3], abs=1e-9)
            assert 0 <= one.rho.value <= 1
            assert one.rho.low is None or one.rho.low <= one.rho.value <= one.rho.high

    def test_no_hits_and_groups_of_one_say_nothing_of_correlation(self):
        step = np.repeat(np.arange(40), 4)
        none = intra_prompt(np.zeros(160), np.full(160, 8), step)
        assert (none.rho, none.pvalue, none.rate.value, none.hits) == (None, 1.0, 0.0, 0)
        alone = intra_prompt(step % 2, np.ones(160), step)
        assert (alone.rho, alone.pvalue, alone.rate.value, alone.hits) == (None, 1.0, 0.5, 80)

    def test_where_all_are_hit_nothing_is_correlated_beyond_that(self):
        found = intra_prompt(np.full(160, 8), np.full(160, 8), np.repeat(np.arange(40), 4))
        assert (found.rate.value, found.rho.value) == (1, 0)
        assert found.pvalue > 0.4

    def test_the_test_is_of_so_many_pairs_or_more_given_the_hits_of_each_step(self):
        hits = np.zeros(16)
        hits[0] = 2  # one pair; of all 128 * 127 ordered pairs 16 * 8 * 7 lie within groups
        assert intra_prompt(hits, np.full(16, 8), np.zeros(16, int)).pvalue == pytest.approx(
            1 - np.exp(-7 / 127)
        )

    def test_more_hits_than_calls_are_refused(self):
        with pytest.raises(RefusedError, match="row 0 has 9 of 8"):
            intra_prompt([9], [8], [0])


class TestBetweenSteps:
    def test_planted_contention_is_recovered(self):
        for contention in (0.1, 0.3, 0.6):
            truth = contention**2 / (contention**2 + 0.09)
            runs = [planted(contention=contention, seed=seed) for seed in range(30)]
            found = [between_steps(run.calls.service_s, run.calls.step, run.calls.group) for run in runs]
            assert np.mean([one.share.value for one in found]) == pytest.approx(truth, rel=0.15)
            assert sum(one.share.low <= truth <= one.share.high for one in found) >= 25
            assert all(one.pvalue < 1e-6 for one in found)

    @pytest.mark.parametrize("hangs", [{}, {"rate": 0.01}, {"rate": 0.05, "rho": 0.5}])
    def test_clean_runs_stay_silent_even_if_prompts_hang_as_a_whole(self, hangs):
        runs = [planted(seed=seed, **hangs) for seed in range(100)]
        found = [between_steps(run.calls.service_s, run.calls.step, run.calls.group) for run in runs]
        assert sum(one.pvalue < 0.05 for one in found) <= 12
        assert sum(one.pvalue < 0.01 for one in found) <= 4
        assert np.mean([one.share.value for one in found]) < 0.005

    def test_without_groups_hard_prompts_would_look_like_a_busy_machine(self):
        rng = np.random.default_rng(0)
        group = np.repeat(np.arange(640), 8)
        times = np.exp(rng.normal(0, 0.5, 640)[group] + rng.normal(0, 0.3, 5_120))
        assert between_steps(times, group // 16).pvalue < 0.001
        assert between_steps(times, group // 16, group).pvalue > 0.01

    def test_with_every_call_its_own_group_it_is_the_one_way_analysis(self):
        run = planted(steps=6, batch=16, contention=0.2)
        logs = np.log(run.calls.service_s).reshape(6, 16)
        found = between_steps(run.calls.service_s, run.calls.step)
        assert (found.statistic, found.pvalue) == pytest.approx(tuple(stats.f_oneway(*logs)))
        within = logs.var(axis=1, ddof=1).mean()
        between = logs.mean(axis=1).var(ddof=1) - within / 16
        assert found.share.value == pytest.approx(between / (between + within))
        assert found.share.why == "6 steps; an interval needs 30"

    def test_with_groups_it_is_the_analysis_of_their_means(self):
        run = planted(steps=6, batch=16, group=4, contention=0.2)
        means = np.log(run.calls.service_s).reshape(6, 4, 4).mean(axis=2)
        found = between_steps(run.calls.service_s, run.calls.step, run.calls.group)
        assert (found.statistic, found.pvalue) == pytest.approx(tuple(stats.f_oneway(*means)))

    def test_order_and_names_change_nothing(self):
        run = planted(contention=0.2, rate=0.05, rho=0.3)
        times, step, group = run.calls.service_s, run.calls.step, run.calls.group
        order = np.random.default_rng(0).permutation(len(times))[:4_000]  # unequal sizes, too
        one = between_steps(times[order], step[order], group[order])
        order = order[::-1]
        other = between_steps(times[order], -7 * step[order], 10_000 - group[order])
        assert (*other.share[:3], *other[1:]) == pytest.approx((*one.share[:3], *one[1:]))

    def test_zeros_equal_times_and_times_equal_within_steps_have_an_answer(self):
        step = np.repeat(np.arange(40), 4)
        alike = between_steps(np.zeros(160), step)
        assert (alike.share.value, alike.statistic, alike.pvalue) == (0, 1, 1)
        apart = between_steps(step + 1.0, step)
        assert (apart.share.value, apart.statistic, apart.pvalue) == (1, np.inf, 0)
        some = between_steps(np.where(step % 4 == 0, 0.0, np.arange(160.0)), step)
        assert 0 <= some.share.low <= some.share.value <= some.share.high <= 1

    def test_one_step_cannot_be_compared(self):
        with pytest.raises(RefusedError, match="1 steps with 2 calls"):
            between_steps([1.0, 2.0], [0, 0])
        with pytest.raises(RefusedError, match="2 steps with 2 groups"):
            between_steps([1.0, 2.0, 3.0], [0, 0, 1], [0, 0, 1])
