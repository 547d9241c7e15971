"""Advantages against golden rows, against laws, and against a reference made with `statistics` only."""

from __future__ import annotations

import math
import statistics
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.advantages import (
    SCHEMES,
    GroupAdvantages,
    VotingGroup,
    batch,
    dr_grpo,
    gdpo,
    grpo,
    grpo_population,
    rloo,
)
from steelyard.errors import RewardError
from steelyard.outcome import Abstained, Scored, Unscored

LOST = Unscored("sandbox:bubblewrap", "spawn: cannot allocate memory")
SKIPPED = Abstained("no schema")
BY_GROUP = {name: scheme for name, scheme in SCHEMES.items() if scheme.scope == "group"}
EPS = {"grpo": 1e-4, "grpo_population": 1e-8}


def verdicts(*values):
    """Numbers are votes; `None` is a failure."""
    return [LOST if value is None else Scored(value) for value in values]


def rounded(result, digits=3):
    return tuple(round(value, digits) for value in result.values)


def close(left, right, *, rel=1e-9, abs_=1e-9):
    return left == pytest.approx(right, rel=rel, abs=abs_)


def of_totals(*groups):
    return [VotingGroup(group, {}) for group in groups]


# Hundredths rather than any float: a spread is then either none or far above rounding.
rewards = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)
rows = st.one_of(
    rewards.map(Scored), st.sampled_from([Scored(0.0), Scored(1.0)]), st.just(LOST), st.just(SKIPPED)
)
groups = st.lists(rows, max_size=12)
voters_only = st.lists(rewards.map(Scored), min_size=3, max_size=12)
part_rows = st.tuples(st.booleans(), st.one_of(rewards, st.none()), st.one_of(rewards, st.none()))
WEIGHTS = {"right": 1.0, "style": 0.25}


@st.composite
def voting_groups(draw):
    """Two parts, either of which may abstain; of a failed member some parts may have been judged."""
    totals, right, style = [], [], []
    for failed, *values in draw(st.lists(part_rows, max_size=9)):
        parts = [SKIPPED if value is None else Scored(value) for value in values]
        asked = [w * p.value for w, p in zip(WEIGHTS.values(), parts, strict=True) if p is not SKIPPED]
        totals.append(LOST if failed else Scored(sum(asked)) if asked else SKIPPED)
        right.append(LOST if failed else parts[0])
        style.append(parts[1])
    return VotingGroup(totals, {"right": right, "style": style})


batches = st.lists(voting_groups(), max_size=6)


# --- the reference: a second way to the same numbers


def voting(verdicts_):
    return [verdict.value for verdict in verdicts_ if isinstance(verdict, Scored)]


def scattered(verdicts_, values):
    queue = iter(values)
    return [next(queue) if isinstance(verdict, Scored) else 0.0 for verdict in verdicts_]


def reference_group(name, verdicts_):
    voters = voting(verdicts_)
    enough = 2 if name in {"dr_grpo", "rloo"} else max(3, math.ceil(len(verdicts_) / 2))
    if len(voters) < enough or 2 * verdicts_.count(LOST) > len(verdicts_):
        return [0.0] * len(verdicts_)
    mean = statistics.mean(voters)
    if name == "rloo":
        total = math.fsum(voters)
        values = [r - (total - r) / (len(voters) - 1) for r in voters]
    elif name == "dr_grpo":
        values = [r - mean for r in voters]
    else:
        std = statistics.stdev(voters) if name == "grpo" else statistics.pstdev(voters)
        values = [(r - mean) / (std + EPS[name]) for r in voters]
    return scattered(verdicts_, values)


def reference_batch(voting_groups_):
    everyone = [value for group in voting_groups_ for value in voting(group.totals)]
    divisor = (statistics.stdev(everyone) if len(everyone) > 1 else 0.0) + 1e-4
    return [[value / divisor for value in reference_group("dr_grpo", g.totals)] for g in voting_groups_]


def reference_gdpo(voting_groups_, weights):
    sums, everyone = [], []
    for group in voting_groups_:
        votes = [isinstance(total, Scored) for total in group.totals]
        values = [0.0] * len(votes)
        reached = 0
        for name, part in group.parts.items():
            # a member that does not vote was asked all the same, so it counts in the part's minimum
            heard = [p if v or isinstance(p, Abstained) else LOST for p, v in zip(part, votes, strict=True)]
            applies = [p for p in heard if not isinstance(p, Abstained)]
            reached += len(voting(applies)) >= max(3, math.ceil(len(applies) / 2))
            queue = iter(reference_group("grpo", applies))
            own = [0.0 if isinstance(p, Abstained) else next(queue) for p in heard]
            values = [value + weights[name] * z for value, z in zip(values, own, strict=True)]
        counts = reached and sum(votes) >= max(3, math.ceil(len(votes) / 2))
        sums.append(values if counts else [0.0] * len(votes))
        everyone += [value for value, v in zip(values, votes, strict=True) if v and counts]
    mean = statistics.fmean(everyone) if everyone else 0.0
    divisor = (statistics.stdev(everyone) if everyone else 0.0) + 1e-4
    assert mean == pytest.approx(0.0, abs=1e-9)  # why `gdpo` need not subtract it
    return [[value / divisor for value in values] for values in sums]


# --- golden rows


def test_a_masked_member_leaves_mean_and_std():
    group = verdicts(1, None, 0, 0)
    assert rounded(dr_grpo(group)) == (0.667, 0, -0.333, -0.333)
    assert rounded(grpo(group)) == (1.155, 0, -0.577, -0.577)
    assert rounded(rloo(group)) == (1, 0, -0.5, -0.5)


@pytest.mark.parametrize("name", BY_GROUP)
def test_a_group_whose_only_loser_is_masked_has_no_signal(name):
    assert BY_GROUP[name].by_group(verdicts(1, 1, 1, None)) == GroupAdvantages(
        (0.0,) * 4, 3, False, "no_spread"
    )


def test_the_baseline_is_the_mean_of_those_that_vote():
    assert dr_grpo(verdicts(1, 3, 2, None)).values == (-1.0, 1.0, 0.0, 0.0)  # 2.0, not 1.5


@pytest.mark.parametrize("name", SCHEMES)
def test_groups_of_different_sizes_are_each_centred_within_themselves(name):
    halves, most, short = verdicts(*[1, 0] * 4), verdicts(*[1] * 7, 0), verdicts(1, 1, 0, 0, 0, 0, 0)
    together = SCHEMES[name].by_batch(
        [VotingGroup(totals, {"right": totals}) for totals in (halves, most, short)], {"right": 1.0}
    )
    assert [len(group.values) for group in together] == [8, 8, 7]
    assert [math.fsum(group.values) for group in together] == pytest.approx([0, 0, 0], abs=1e-12)
    if SCHEMES[name].by_group:
        assert together == [SCHEMES[name].by_group(group) for group in (halves, most, short)]


@pytest.mark.parametrize("name", SCHEMES)
def test_all_correct_and_one_crashed_teaches_nothing(name):
    totals = verdicts(*[1] * 7, None)
    (group,) = SCHEMES[name].by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})
    assert group == GroupAdvantages((0.0,) * 8, 7, False, "no_spread")


def test_what_a_failure_scored_zero_would_have_done():
    half, hit = verdicts(1, 1, 1, 1, 0, 0, 0, 0), verdicts(0, 1, 1, 1, 0, 0, 0, 0)
    assert (rounded(grpo_population(half), 2)[0], rounded(grpo_population(hit), 2)[0]) == (1.0, -0.77)
    assert (rounded(grpo(half))[0], rounded(grpo(hit))[0]) == (0.935, -0.724)
    assert rounded(grpo_population(verdicts(*[1] * 7, 0))) == (*[0.378] * 7, -2.646)


def test_a_saboteur_gains_only_if_its_siblings_failures_were_numbers():
    assert rounded(grpo_population(verdicts(1, *[0] * 7)), 2)[0] == 2.65
    for scheme in BY_GROUP.values():
        assert scheme.by_group(verdicts(1, *[None] * 7)) == GroupAdvantages(
            (0.0,) * 8, 1, False, "too_few_votes"
        )


def test_batch_and_gdpo_give_what_trl_gives():
    # Measured with TRL 1.16 beside a second group [1, 1, 0, 0]; there the fourth completion is None.
    first, second = verdicts(1, 0, 0, None), verdicts(1, 1, 0, 0)
    assert rounded(batch(of_totals(first, second), {})[0], 4)[1:] == (-0.6235, -0.6235, 0)
    shape = verdicts(1, 1, 1, 1)
    abstained = [*verdicts(1, 0, 0), SKIPPED]
    mixed = [
        VotingGroup(verdicts(2, 1, 1, 1), {"right": abstained, "shape": shape}),
        VotingGroup(verdicts(2, 2, 1, 1), {"right": second, "shape": shape}),
    ]
    assert rounded(gdpo(mixed, {"right": 1.0, "shape": 1.0})[0]) == (1.366, -0.683, -0.683, 0)


# --- who votes, and how many must


@pytest.mark.parametrize(
    ("name", "size", "minimum"),
    [
        *[(name, size, 2) for name in ("dr_grpo", "rloo", "batch") for size in (2, 8, 16)],
        *[
            (name, size, minimum)
            for name in ("grpo", "grpo_population", "gdpo")
            for size, minimum in ((2, 3), (4, 3), (6, 3), (7, 4), (8, 4), (9, 5), (16, 8))
        ],
    ],
)
def test_below_the_minimum_of_votes_a_group_is_silent_and_says_so(name, size, minimum):
    scheme = SCHEMES[name]
    assert scheme.minimum(size) == minimum

    def judged(votes):
        totals = [*verdicts(*range(votes)), *[SKIPPED] * (size - votes)]
        return scheme.by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})[0]

    assert judged(minimum - 1) == GroupAdvantages((0.0,) * size, minimum - 1, False, "too_few_votes")
    if minimum <= size:
        assert judged(minimum).signal
        assert (judged(minimum).votes, judged(minimum).why) == (minimum, None)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_group_of_which_more_than_half_is_unscored_is_dead(name):
    def judged(lost):
        totals = verdicts(*range(8 - lost), *[None] * lost)
        return SCHEMES[name].by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})[0]

    assert judged(4).signal
    assert (judged(5).signal, judged(5).why) == (False, "too_few_votes")


@pytest.mark.parametrize("name", SCHEMES)
def test_no_groups_and_groups_of_nobody_are_not_special(name):
    scheme = SCHEMES[name]
    assert scheme.by_batch([], {}) == []
    empty, failed = VotingGroup([], {"right": []}), VotingGroup([LOST], {"right": [LOST]})
    assert scheme.by_batch([empty, failed], {"right": 1.0}) == [
        GroupAdvantages((), 0, False, "too_few_votes"),
        GroupAdvantages((0.0,), 0, False, "too_few_votes"),
    ]


@pytest.mark.parametrize("name", BY_GROUP)
@pytest.mark.parametrize("failure", [LOST, SKIPPED])
@given(group=groups, place=st.integers(0, 12))
def test_a_failure_changes_nobody_elses_advantage(name, failure, group, place):
    scheme = BY_GROUP[name]
    place = min(place, len(group))
    before = scheme.by_group(group)
    after = scheme.by_group([*group[:place], failure, *group[place:]])
    if "too_few_votes" not in {before.why, after.why}:  # one more that abstains can revive a dead group
        assert after.values == (*before.values[:place], 0.0, *before.values[place:])
        assert after[1:] == before[1:]


@pytest.mark.parametrize("name", ["batch", "gdpo"])
@given(full=st.lists(voters_only, min_size=1, max_size=5), place=st.integers(0, 12))
def test_a_failure_changes_nobody_elses_advantage_in_the_batch(name, full, place):
    def judged(totals_of):
        return SCHEMES[name].by_batch([VotingGroup(t, {"right": t}) for t in totals_of], {"right": 1.0})

    place = min(place, len(full[0]))
    before = judged(full)
    after = judged([[*full[0][:place], LOST, *full[0][place:]], *full[1:]])
    if after[0].why != "too_few_votes":
        values = before[0].values
        assert after[0].values == (*values[:place], 0.0, *values[place:])
        assert after[1:] == before[1:]


@pytest.mark.parametrize("name", SCHEMES)
@given(batch_=batches)
def test_only_voters_get_anything_and_what_they_get_sums_to_zero(name, batch_):
    for group, result in zip(batch_, SCHEMES[name].by_batch(batch_, WEIGHTS), strict=True):
        assert len(result.values) == len(group.totals)
        assert result.votes == len(voting(group.totals))
        assert result.signal == any(result.values) == (result.why is None)
        assert math.fsum(result.values) == pytest.approx(0.0, abs=1e-6)
        for total, value in zip(group.totals, result.values, strict=True):
            assert isinstance(total, Scored) or value == 0.0


# --- the formulas


@pytest.mark.parametrize("name", BY_GROUP)
@given(group=groups)
def test_each_scheme_is_its_formula(name, group):
    assert close(BY_GROUP[name].by_group(group).values, tuple(reference_group(name, group)), rel=1e-6)


@given(batch_=batches)
def test_batch_is_its_formula(batch_):
    for result, expected in zip(batch(batch_, {}), reference_batch(batch_), strict=True):
        assert close(result.values, tuple(expected))


@given(batch_=batches)
def test_gdpo_is_its_formula(batch_):
    for result, expected in zip(gdpo(batch_, WEIGHTS), reference_gdpo(batch_, WEIGHTS), strict=True):
        assert close(result.values, tuple(expected))


@given(totals=st.lists(groups, min_size=1, max_size=5))
def test_gdpo_of_one_part_is_grpo_over_its_std_in_the_batch(totals):
    inner = [grpo(group) for group in totals]
    voices = [
        value
        for group, result in zip(totals, inner, strict=True)
        for total, value in zip(group, result.values, strict=True)
        if isinstance(total, Scored) and result.why != "too_few_votes"
    ]
    divisor = (statistics.stdev(voices) if voices else 0.0) + 1e-4
    results = gdpo([VotingGroup(group, {"right": group}) for group in totals], {"right": 1.0})
    for group, result in zip(inner, results, strict=True):
        assert close(result.values, tuple(value / divisor for value in group.values))
        assert result[1:] == group[1:]


@given(group=groups)
def test_rloo_undoes_what_mean_centring_shrinks(group):
    result = rloo(group)
    factor = result.votes / (result.votes - 1) if result.votes > 1 else 1.0
    assert close(result.values, tuple(factor * value for value in dr_grpo(group).values))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_rloo_is_unbiased_for_every_number_of_votes_and_mean_centring_is_not(missing):
    # One completion passes with probability p: d E[r] / d logit(p) = p (1 - p), and the score is r - p.
    p, votes = 0.3, 4 - missing

    def expected_gradient(scheme):
        return math.fsum(
            p ** sum(rolls)
            * (1 - p) ** (votes - sum(rolls))
            * statistics.fmean(a * (r - p) for a, r in zip(scheme(group).values, rolls, strict=False))
            for rolls in product((0, 1), repeat=votes)
            for group in [verdicts(*rolls, *[None] * missing)]
        )

    assert expected_gradient(
        lambda g: GroupAdvantages(rloo(g).values[:votes], votes, True, None)
    ) == pytest.approx(p * (1 - p))
    assert expected_gradient(rloo) == pytest.approx(p * (1 - p))
    assert expected_gradient(dr_grpo) == pytest.approx(p * (1 - p) * (votes - 1) / votes)


@pytest.mark.parametrize("name", BY_GROUP)
@given(data=st.data(), group=groups)
def test_the_order_of_members_does_not_matter(name, data, group):
    order = data.draw(st.permutations(range(len(group))))
    straight = BY_GROUP[name].by_group(group)
    shuffled = BY_GROUP[name].by_group([group[i] for i in order])
    assert close(shuffled.values, tuple(straight.values[i] for i in order))


@pytest.mark.parametrize("name", SCHEMES)
@given(group=voters_only, shift=st.integers(-1000, 1000))
def test_a_constant_added_to_every_reward_changes_nothing(name, group, shift):
    def judged(totals):
        return SCHEMES[name].by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})[0].values

    assert close(judged([Scored(v.value + shift) for v in group]), judged(group), rel=1e-6)


@pytest.mark.parametrize("name", SCHEMES)
@given(group=voters_only, power=st.integers(-6, 20))
def test_a_unit_of_reward_cancels_where_a_std_divides_and_multiplies_where_none_does(name, group, power):
    def judged(totals):
        return SCHEMES[name].by_batch([VotingGroup(totals, {"right": totals})], {"right": 1.0})[0].values

    unit, plain = 2.0**power, judged(group)
    scaled = judged([Scored(unit * v.value) for v in group])
    if name in {"dr_grpo", "rloo"}:
        assert scaled == tuple(unit * value for value in plain)
    else:
        std = statistics.pstdev(v.value for v in group) or 1.0
        assert close(scaled, plain, rel=2e-4 / (std * min(1.0, unit)))  # the constant beside the std


@given(group=voters_only)
def test_population_std_is_sample_std_by_another_name(group):
    n = len(group)
    std = statistics.stdev(v.value for v in group) or 1.0
    expected = tuple(value * math.sqrt(n / (n - 1)) for value in grpo(group).values)
    assert close(grpo_population(group).values, expected, rel=2e-4 / std)


# --- parts


def test_a_part_that_abstains_leaves_its_own_statistics_and_the_row_votes_with_the_others():
    totals = verdicts(1, 0, 1, 0)
    style = [*verdicts(3, 6, 0), SKIPPED]
    with_style = VotingGroup(totals, {"right": totals, "style": style})
    expected = reference_gdpo([with_style], {"right": 1.0, "style": 1.0})[0]
    (group,) = gdpo([with_style], {"right": 1.0, "style": 1.0})
    assert close(group.values, tuple(expected))
    assert group.values[3] < 0  # its wrong answer still counts against it


def test_a_row_without_a_total_is_left_out_of_the_parts_that_were_judged():
    full = verdicts(1, 0, 1, 0)
    right = [*full, LOST]
    style = [*verdicts(0, 1, 2, 3), Scored(100.0)]
    (without,) = gdpo([VotingGroup(full, {"right": full, "style": style[:4]})], WEIGHTS)
    (with_lost,) = gdpo([VotingGroup(right, {"right": right, "style": style})], WEIGHTS)
    assert with_lost.values == (*without.values, 0.0)


def test_a_part_with_too_few_votes_says_nothing_and_a_group_with_no_other_is_counted():
    totals = verdicts(1, 0, 1, 0)
    style = [*verdicts(3, 6), SKIPPED, SKIPPED]
    (both,) = gdpo([VotingGroup(totals, {"right": totals, "style": style})], WEIGHTS)
    (right,) = gdpo([VotingGroup(totals, {"right": totals})], WEIGHTS)
    assert both == right
    (none,) = gdpo([VotingGroup(totals, {"style": style})], WEIGHTS)
    assert none == GroupAdvantages((0.0,) * 4, 4, False, "too_few_votes")


def test_a_parts_minimum_counts_the_failed_members_that_it_was_asked_for():
    totals = verdicts(1, 0, 1, 0, None, None, None, None)
    asked_of_seven = [*verdicts(3, 6, 0), SKIPPED, LOST, LOST, LOST, LOST]
    asked_of_three = [*verdicts(3, 6, 0), *[SKIPPED] * 5]
    (seven,) = gdpo([VotingGroup(totals, {"style": asked_of_seven})], WEIGHTS)
    (three,) = gdpo([VotingGroup(totals, {"style": asked_of_three})], WEIGHTS)
    assert (seven.why, three.why) == ("too_few_votes", None)


@pytest.mark.parametrize(("slope", "weight"), [(-1, 0.3), (1, -0.3)])
def test_parts_that_cancel_are_no_signal_though_rounding_leaves_a_rest(slope, weight):
    right = verdicts(0.1, 0.7, 0.4, 0.3, 0.9)
    other = [Scored(1 + slope * v.value) for v in right]
    parts = {"right": right, "other": other}
    (group,) = gdpo([VotingGroup(verdicts(1, 1, 1, 1, 1), parts)], {"right": 0.3, "other": weight})
    assert group == GroupAdvantages((0.0,) * 5, 5, False, "no_spread")


def test_a_weight_of_zero_leaves_a_part_out_and_no_weight_is_an_error():
    totals = verdicts(1, 0, 1, 0)
    logged = VotingGroup(totals, {"right": totals, "length": verdicts(math.nan, 9, 9, 9)})
    assert gdpo([logged], {"right": 1.0, "length": 0}) == gdpo(
        [VotingGroup(totals, {"right": totals})], WEIGHTS
    )
    for weights in ({"right": 1.0}, {"right": 1.0, "length": math.inf}):
        with pytest.raises(RewardError, match=r"'length': needs a finite weight.*0 leaves it out"):
            gdpo([logged], weights)


# --- numbers as the machine has them


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("totals", [[0.1], [1 / 3], [0.1 + 0.2, 0.3], [1e198], [5e-324], [-0.7]])
def test_equal_totals_are_no_spread_whatever_rounding_does_to_their_mean(name, totals):
    for size in range(3, 33):
        group = verdicts(*(totals[i % len(totals)] for i in range(size)))
        (result,) = SCHEMES[name].by_batch([VotingGroup(group, {"right": group})], {"right": 1.0})
        assert result == GroupAdvantages((0.0,) * size, size, False, "no_spread")


@pytest.mark.parametrize("name", SCHEMES)
@given(totals=st.lists(st.lists(st.floats(-1e199, 1e199), max_size=12), max_size=4))
def test_finite_rewards_make_finite_advantages(name, totals):
    groups_ = [VotingGroup(group, {"right": group}) for group in (verdicts(*row) for row in totals)]
    for result in SCHEMES[name].by_batch(groups_, {"right": -2.0}):
        assert all(map(math.isfinite, result.values))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e201, -1.7e308])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_reward_that_no_sum_survives_is_an_error_with_its_value(name, bad, place):
    group = verdicts(1, 0, 1, 0)
    group[place] = Scored(bad)
    with pytest.raises(RewardError, match=r"must be finite and within \+-1e\+200, got"):
        SCHEMES[name].by_batch([VotingGroup(group, {"total": group})], {"total": 1.0})


def test_a_large_offset_does_not_drown_the_spread():
    assert rounded(grpo(verdicts(*(1e9 + r for r in (1, 1, 0, 0))))) == rounded(grpo(verdicts(1, 1, 0, 0)))


# --- the table


def test_the_table_has_the_command_lines_names_and_one_line_each():
    assert list(SCHEMES) == ["grpo", "grpo_population", "dr_grpo", "rloo", "batch", "gdpo"]
    assert [scheme.scope for scheme in SCHEMES.values()] == [*["group"] * 4, *["batch"] * 2]
    for name, scheme in SCHEMES.items():
        assert scheme.name == name
        assert "\n" not in scheme.summary


@pytest.mark.parametrize("name", BY_GROUP)
@given(batch_=batches)
def test_a_scheme_over_groups_may_be_called_like_one_over_a_batch(name, batch_):
    scheme = BY_GROUP[name]
    assert scheme.by_batch(batch_, {}) == [scheme.by_group(group.totals) for group in batch_]
