import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted import planted
from steelyard import advantages as by_group
from steelyard.errors import RefusedError
from steelyard.outcome import Abstained, Scored, Unscored
from steelyard.pricing.barrier import step_hit
from steelyard.pricing.corruption import advantages, corrupted_groups, corruption, votes
from steelyard.pricing.observed import ABSTAINED, MISSING, SCORED, UNSCORED, Rows

quick = settings(max_examples=40, deadline=None)
SCHEMES = ["grpo", "grpo_population"]
LOST = Unscored("sandbox:bubblewrap", "spawn: no memory")


def rows(values, *, failed=(), group=None, step=None, verdict=None):
    """Rows of one group and one step, unless told otherwise; `failed` are positions."""
    count = len(values)
    zero = np.zeros(count, np.int64)
    value = np.array([np.nan if one is None else one for one in values])
    told = np.where(np.isnan(value), UNSCORED, SCORED) if verdict is None else np.array(verdict)
    return Rows(
        zero if step is None else np.array(step),
        zero if group is None else np.array(group),
        value,
        told,
        np.isin(np.arange(count), failed),
    )


# The numbers of the study


@pytest.mark.parametrize("scored", [by_group.grpo_population, None])
def test_a_crash_scored_zero_in_a_group_that_is_all_correct_punishes_and_praises_for_nothing(scored):
    values = [1.0] * 7 + [0.0]
    told = (
        advantages(np.array(values), np.ones(8, bool), np.zeros(8, np.int64))
        if scored is None
        else scored([Scored(value) for value in values]).values
    )
    assert [f"{value:+.3f}" for value in told] == ["+0.378"] * 7 + ["-2.646"]
    found = corruption(rows(values, failed=[7]), 1)
    assert (found.corrupted.tolist(), found.changed.tolist(), f"{found.largest:.3f}") == ([1], [8], "2.646")


def test_a_correct_completion_scored_zero_in_a_group_that_is_half_correct_is_pushed_the_other_way():
    half, cut = [1.0] * 4 + [0.0] * 4, [0.0] + [1.0] * 3 + [0.0] * 4
    everybody, nobody = np.ones(8, bool), np.zeros(8, np.int64)
    assert f"{advantages(np.array(half), everybody, nobody)[0]:+.2f}" == "+1.00"
    assert f"{advantages(np.array(cut), everybody, nobody)[0]:+.2f}" == "-0.77"
    told = by_group.grpo_population([Scored(value) for value in cut]).values
    assert f"{told[0]:+.2f}" == "-0.77"


@pytest.mark.parametrize(
    ("told", "rate", "group", "pass_rate", "rho"),
    [
        ("7.7%", 0.01, 8, 1.0, 0.0),
        ("33.7%", 0.05, 8, 1.0, 0.0),
        ("3.9%", 0.01, 8, 0.5, 0.0),
        ("3.8%", 0.01, 8, 1.0, 0.3),
        ("0.0%", 0.01, 8, 1.0, 1.0),
    ],
)
def test_the_shares_of_corrupted_groups_come_out_of_rate_group_pass_rate_and_correlation(
    told, rate, group, pass_rate, rho
):
    def share(rate=rate, group=group, pass_rate=pass_rate, rho=rho):
        return f"{corrupted_groups(rate, group, pass_rate=pass_rate, rho=rho):.1%}"

    assert share() == told
    if rho < 1:  # a group that stands or falls as one is dead, not wrong, whatever the rate
        assert told not in {share(rate=1.1 * rate), share(group=group + 1)}
        assert told not in {share(pass_rate=0.9 * pass_rate), share(rho=rho + 0.1)}


def test_what_leaving_failures_out_costs_is_a_thinner_group():
    left = votes(0.05, 8)
    assert left.mean == pytest.approx(7.6)
    assert left.thin == pytest.approx(8 * 0.05**7 * 0.95 + 0.05**8)
    assert votes(0.05, 8, rho=1.0) == pytest.approx((7.6, 0.05, 0.05))
    assert votes(0.5, 8).short == pytest.approx(sum([1, 8, 28, 56]) / 256)


# Laws of the closed form

rates = st.floats(0.001, 0.45)
shares = st.floats(0.05, 1)
rhos = st.floats(0, 0.95)


@quick
@given(rates, shares, rhos, st.integers(2, 32))
def test_corrupted_groups_grow_with_rate_and_group_and_are_fewer_than_the_hit(rate, passing, rho, group):
    now = corrupted_groups(rate, group, pass_rate=passing, rho=rho) - 1e-12
    assert corrupted_groups(rate + 0.05, group, pass_rate=passing, rho=rho) >= now
    assert corrupted_groups(rate, group + 1, pass_rate=passing, rho=rho) >= now
    assert now <= step_hit(rate, group, group=group, rho=rho)
    assert corrupted_groups(rate, group, pass_rate=0.0, rho=rho) == 0


@quick
@given(rates, st.integers(2, 32), rhos, rhos)
def test_correlation_lowers_the_share_of_corrupted_groups(rate, group, one, other):
    less, more = sorted((one, other))
    assert corrupted_groups(rate, group, rho=more) <= corrupted_groups(rate, group, rho=less) + 1e-12


@quick
@given(rates, shares, st.integers(2, 32))
def test_without_correlation_the_closed_form_is_the_one_of_independent_failures(rate, passing, group):
    dead = rate**group * (1 - (1 - passing) ** group)
    told = corrupted_groups(rate, group, pass_rate=passing)
    assert told == pytest.approx(1 - (1 - rate * passing) ** group - dead)


# Observed rows

verdicts = st.one_of(
    st.sampled_from([Scored(0.0), Scored(1.0), Scored(0.5), LOST, Abstained("no tests")]),
    st.floats(-1e6, 1e6).map(Scored),
)
recorded = st.sampled_from([0.0, 0.3, 1.0, None])
seeds = st.integers(0, 99)


@pytest.mark.parametrize("scheme", SCHEMES)
@quick
@given(groups=st.lists(st.lists(verdicts, min_size=1, max_size=9), min_size=1, max_size=6), seed=seeds)
def test_advantages_over_columns_are_those_of_each_group(scheme, groups, seed):
    told = [value for group in groups for value in by_group.SCHEMES[scheme].by_group(group).values]
    flat = [verdict for group in groups for verdict in group]
    order = np.random.default_rng(seed).permutation(len(flat))
    voting = np.array([isinstance(verdict, Scored) for verdict in flat])
    value = np.array([verdict.value if isinstance(verdict, Scored) else np.nan for verdict in flat])
    of = np.repeat(np.arange(len(groups)) * 7 % 11, [len(group) for group in groups])
    found = advantages(value[order], voting[order], of[order], scheme=scheme)
    assert found == pytest.approx(np.array(told)[order], abs=1e-6)


@pytest.mark.parametrize("size", [5e-324, 1e-160, 1e-6, 1e160])
def test_rewards_of_any_size_have_the_advantages_of_their_group(size):
    value = np.array([1.0, 2.0, 4.0]) * size
    told = by_group.grpo([Scored(one) for one in value]).values
    assert advantages(value, np.ones(3, bool), np.zeros(3, np.int64), scheme="grpo") == pytest.approx(told)


@pytest.mark.parametrize("scheme", SCHEMES)
@quick
@given(
    values=st.lists(st.lists(recorded, min_size=2, max_size=8), min_size=1, max_size=5),
    failing=st.sets(st.integers(0, 39)),
    floor=st.sampled_from([None, 0.0, -1.0]),
)
def test_corruption_counts_what_the_schemes_say_group_by_group(scheme, values, failing, floor):
    flat = [value for group in values for value in group]
    of = np.repeat(np.arange(len(values)), [len(group) for group in values])
    failed = [place for place in failing if place < len(flat) and flat[place] is not None]
    found = corruption(rows(flat, failed=failed, group=of, step=of % 2), 2, scheme=scheme, floor=floor)
    scored = by_group.SCHEMES[scheme].by_group
    corrupted, changed, opposed, largest = [0, 0], [0, 0], [0, 0], 0.0
    for number in range(len(values)):
        mine = np.flatnonzero(of == number)
        clean = scored([LOST if at in failed or flat[at] is None else Scored(flat[at]) for at in mine]).values
        missing = LOST if floor is None else Scored(floor)
        dirty = scored([missing if flat[at] is None else Scored(flat[at]) for at in mine]).values
        signs = np.sign(np.where(np.abs([clean, dirty]) < 1e-9, 0, [clean, dirty]))
        change = np.abs(np.subtract(clean, dirty))
        corrupted[number % 2] += bool((change > 1e-9).any())
        changed[number % 2] += int((signs[0] != signs[1]).sum())
        opposed[number % 2] += int((signs[0] * signs[1] < 0).sum())
        largest = max(largest, change.max())
    assert (found.corrupted.tolist(), found.changed.tolist(), found.reversed.tolist()) == (
        corrupted,
        changed,
        opposed,
    )
    assert found.largest == pytest.approx(largest, abs=1e-6)
    assert (int(found.rows.sum()), int(found.groups.sum())) == (len(flat), len(values))


def test_a_middling_reward_is_pushed_the_opposite_way_by_a_failure_scored_zero():
    found = corruption(rows([1.0, 1.0, 1.0, 0.7, 0.0, 0.0, 0.0], failed=[4, 5, 6]), 1)
    assert (found.changed.tolist(), found.reversed.tolist()) == ([4], [1])


def test_totals_that_differ_by_rounding_are_equal():
    value = np.array([0.1 + 0.2, 0.3, 0.3, 0.3])
    assert not advantages(value, np.ones(4, bool), np.zeros(4, np.int64)).any()
    assert by_group.grpo_population([Scored(one) for one in value]).why == "no_spread"


def test_a_reward_at_the_mean_of_its_group_has_no_sign():
    values = [0.1, 0.2, 0.3]
    clean = advantages(np.array(values), np.ones(3, bool), np.zeros(3, np.int64))
    assert 0 < clean[1] < 1e-9, "not the rounding that this is about"
    assert corruption(rows([*values, 0.0], failed=[3]), 1).changed.tolist() == [2]


def test_one_vote_is_too_few_to_learn_from():
    found = corruption(rows([1.0, 0.0, 0.0, 0.0], failed=[1, 2, 3]), 1)
    assert (found.voting.tolist(), found.thin.tolist(), found.dead.tolist()) == ([1], [1], [0])


def test_a_group_that_fails_as_one_is_dead_and_not_corrupted():
    found = corruption(rows([0.0] * 8, failed=range(8)), 1)
    assert (found.hit.tolist(), found.dead.tolist(), found.corrupted.tolist(), found.thin.tolist()) == (
        [1],
        [1],
        [0],
        [1],
    )


def test_failures_that_do_not_vote_corrupt_nothing_and_the_floor_says_what_they_would_have():
    unscored = planted(steps=20, rate=0.05, zeroed=False).rows
    found = corruption(unscored, 20)
    assert found.hit.sum() > 0
    assert (found.corrupted.sum(), found.changed.sum(), found.largest) == (0, 0, 0.0)
    spared = corruption(unscored, 20, floor=0.0)
    zeroed = corruption(planted(steps=20, rate=0.05).rows, 20)
    assert spared.corrupted.tolist() == zeroed.corrupted.tolist()
    assert zeroed.corrupted.sum() > 0


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_failures_scored_zero_corrupt_more_groups_the_more_fail_and_the_larger_they_are(rho):
    def share(rate, group):
        found = corruption(planted(steps=200, rate=rate, group=group, rho=rho, pass_rate=0.9).rows, 200)
        return found.corrupted.sum() / found.groups.sum()

    assert share(0.01, 4) < share(0.03, 4) < share(0.03, 8) < share(0.09, 8)
    assert share(0.03, 8) == pytest.approx(corrupted_groups(0.03, 8, rho=rho), abs=0.02)


def test_what_is_observed_does_not_depend_on_the_order_of_rows():
    run = planted(steps=10, rate=0.05).rows
    order = np.random.default_rng(1).permutation(len(run))
    mixed = Rows(*(getattr(run, name)[order] for name in Rows.__slots__ if name != "row"))
    assert corruption(mixed, 10).changed.tolist() == corruption(run, 10).changed.tolist()


def test_rows_of_which_nobody_knows_the_group_are_left_out():
    found = corruption(rows([1.0, 1.0, 1.0, 0.0, 0.0], failed=[3, 4], group=[0, 0, 0, 0, MISSING]), 1)
    assert (found.rows.tolist(), found.voting.tolist()) == ([4], [3])
    nothing = corruption(rows([]), 3)
    assert (nothing.groups.tolist(), nothing.largest) == ([0, 0, 0], 0.0)


def test_abstaining_rows_are_no_failures():
    found = corruption(rows([1.0, 0.0, None], verdict=[SCORED, SCORED, ABSTAINED]), 1, floor=0.0)
    assert (found.hit.tolist(), found.voting.tolist()) == ([0], [2])


def test_a_scored_row_without_a_value_is_refused():
    with pytest.raises(RefusedError, match=r"rows.value: 1 rows are scored with a value that is no number"):
        corruption(rows([1.0, None, 0.0], verdict=[SCORED] * 3, failed=[0]), 1)


def test_a_group_of_one_has_nothing_to_corrupt():
    assert corrupted_groups(0.5, 1) == 0


def test_a_scheme_that_is_not_computed_over_columns_is_refused():
    with pytest.raises(RefusedError, match=r"is 'rloo', and only grpo, grpo_population"):
        advantages(np.ones(1), np.ones(1, bool), np.zeros(1, np.int64), scheme="rloo")
