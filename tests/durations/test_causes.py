"""What cut calls, and what re-runs say about why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.durations import counted, split
from steelyard.errors import RefusedError

FLAGS = st.lists(st.booleans(), min_size=1, max_size=40)


def reruns(rng, steps, *, infrastructure, slow, chance, cuts=6):
    """Re-runs of cut calls whose causes are known; what hovers at the limit falls either way by chance."""
    count = steps * cuts
    kind = rng.choice(3, count, p=[infrastructure, slow, 1 - infrastructure - slow])
    crosses = rng.random(count) < chance
    quiet = (kind == 0) | crosses
    longer = quiet | (kind == 1)
    return quiet, longer, rng.random(count) < chance, np.repeat(np.arange(steps), cuts)


class TestCounted:
    def test_cuts_are_counted_by_what_cut_them_with_their_seconds(self):
        found = counted([-1, 0, 2, 2, -1], [1.0, 30.0, 2.0, 4.0, 1.0], ["wall", "cpu", "lost"])
        assert found == [("lost", 2, 0.4, 6.0), ("wall", 1, 0.2, 30.0)]

    def test_nothing_cut_is_no_cause(self):
        assert counted([-1, -1], [1.0, 2.0], ["wall"]) == counted([], [], []) == []

    def test_a_cause_without_a_word_is_refused(self):
        with pytest.raises(RefusedError, match="has -1 to 1 for 1 words"):
            counted([-1, 1], [1.0, 2.0], ["wall"])


class TestSplit:
    def test_the_three_shares_are_what_the_re_runs_say_beyond_chance(self):
        quiet = [True] * 50 + [False] * 50
        longer = [False] * 50 + [True] * 30 + [False] * 20
        found = split(quiet, longer, [True] * 20 + [False] * 80)
        assert found.chance.value == 0.2
        assert found.infrastructure.value == pytest.approx((0.5 - 0.2) / 0.8)
        assert found.hang.value == 0.2
        assert found.slow.value == pytest.approx(1 - 0.375 - 0.2)
        assert (found.hang.low, found.hang.high) == pytest.approx((0.1334, 0.2888), abs=1e-4)  # Wilson's

    def test_what_passes_no_oftener_than_the_twins_fail_is_not_the_infrastructures(self):
        found = split([True] * 10 + [False] * 90, [True] * 100, [True] * 10 + [False] * 90)
        assert (found.infrastructure.value, found.infrastructure.low) == (0, 0)
        assert found.slow.value == 1

    @pytest.mark.parametrize("by_step", [False, True])
    def test_planted_causes_are_recovered(self, by_step):
        # of calls that hang none crosses the limit by chance: so this truth is exact only up to the hangs
        covered = np.zeros(3)
        for seed in range(60):
            rng = np.random.default_rng(seed)
            quiet, longer, twins, step = reruns(rng, 60, infrastructure=0.4, slow=0.6, chance=0.1)
            steps = {"step": step, "twin_step": step} if by_step else {}
            found = split(quiet, longer, twins, **steps)
            for place, (one, truth) in enumerate(zip(found, (0.4, 0.6, 0.0), strict=False)):
                covered[place] += one.low <= truth <= one.high
        assert covered.min() >= 54

    @given(FLAGS, FLAGS, st.data())
    def test_shares_sum_to_one_within_their_intervals_and_order_changes_nothing(self, quiet, twins, data):
        longer = data.draw(st.lists(st.booleans(), min_size=len(quiet), max_size=len(quiet)))
        found = split(quiet, longer, [*twins, False])
        assert sum(one.value for one in found[:3]) == pytest.approx(1)
        for one in found:
            assert -1e-12 <= one.low <= one.value <= one.high <= 1 + 1e-12
        other = split(quiet[::-1], longer[::-1], [False, *twins[::-1]])
        assert [one[:3] for one in other] == [pytest.approx(one[:3]) for one in found]

    def test_few_steps_give_shares_but_no_interval(self):
        quiet, longer, twins, step = reruns(
            np.random.default_rng(0), 20, infrastructure=0.5, slow=0.3, chance=0.1
        )
        for one in split(quiet, longer, twins, step=step, twin_step=step):
            assert (one.low, one.high, one.why) == (None, None, "20 steps; an interval needs 30")

    def test_without_twins_that_pass_nothing_can_be_told(self):
        for twins in ([], [True, True]):
            with pytest.raises(RefusedError, match="re-runs: 1 re-runs of cut calls"):
                split([True], [True], twins)
