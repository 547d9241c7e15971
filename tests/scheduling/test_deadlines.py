# ruff: noqa: S311 - chance here is simulated
"""Deadlines that learn: what they are made of, when they are in force, and what they never do."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.outcome import Asked, Deadline
from steelyard.scheduling.deadlines import Deadlines
from steelyard.scheduling.falsekills import ACCEPTED, ALL_AUDITED, LEAST_S, Stratum, bound, quantile, rule

DECLARED = 30.0

seconds = st.floats(0.001, 60.0, allow_nan=False)
weights = st.sampled_from([1.0, 10.0])
passes = st.lists(st.tuples(seconds, weights), min_size=1, max_size=60)


def asked(test="t", step=0, *, kind="table", reference=None, declared=DECLARED):
    return Asked("tests", kind, test, step, declared, reference)


def shown(deadlines, step, times, *, test="t", kind="table"):
    """Let a step show programs that pass and take so long, as far as its deadlines let them."""
    for cpu_s in times:
        one = asked(test, step, kind=kind)
        deadline = deadlines.limit(one)
        cut = cpu_s > deadline.cpu_s
        deadlines.observe(one, deadline, min(cpu_s, deadline.cpu_s), passed=not cut, cut=cut)


def in_force(times=(1.0,), *, kind="table", passes=700):
    """A limiter that has learnt from two steps of programs that take so long."""
    deadlines = Deadlines()
    for step in ("a", "b"):
        for number in range(passes):
            shown(deadlines, step, [times[number % len(times)]], test=str(number), kind=kind)
    return deadlines


class TestQuantile:
    @given(passes, st.data())
    def test_it_never_falls_when_a_pass_turns_out_to_have_been_cut(self, passes, data):
        cut_s = max(value for value, _ in passes)  # a cut is above what the deadline let through
        at = data.draw(st.integers(0, len(passes) - 1))
        took, weight = passes[at]
        marked = [*passes[:at], (max(took, cut_s) + 1.0, 10.0 * weight), *passes[at + 1 :]]
        assert quantile(marked) >= quantile(passes)

    @given(passes)
    def test_it_is_one_of_the_values_with_its_share_of_the_weight_at_or_below(self, passes):
        found = quantile(passes)
        assert found in {value for value, _ in passes}
        total = sum(weight for _, weight in passes)
        below = sum(weight for value, weight in passes if value < found)
        at_or_below = sum(weight for value, weight in passes if value <= found)
        assert below < 0.99 * total <= at_or_below * (1 + 1e-9)

    def test_audited_cuts_weigh_for_those_that_were_not(self):
        seen = [(1.0, 1.0)] * 970 + [(9.0, 10.0)] * 3
        assert quantile(seen) == 9.0  # 30 of 1,000 by weight, though 3 of 973 by number
        assert quantile([(1.0, 1.0)] * 970 + [(9.0, 1.0)] * 3) == 1.0


class TestRule:
    @given(st.none() | seconds, st.none() | seconds, st.floats(LEAST_S, 100.0))
    def test_it_is_between_two_seconds_and_what_was_declared(self, reference, seen, declared):
        assert LEAST_S <= rule(declared, reference_s=reference, quantile_s=seen) <= declared

    def test_it_is_three_references_or_one_and_a_half_quantiles(self):
        assert rule(DECLARED, reference_s=1.0) == 3.0
        assert rule(DECLARED, quantile_s=4.0) == 6.0
        assert rule(DECLARED, reference_s=3.0, quantile_s=4.0) == 9.0
        assert rule(1.0, quantile_s=4.0) == 1.0


class TestBound:
    def test_six_hundred_passes_without_a_kill_are_just_enough(self):
        assert bound([Stratum(1.0, ALL_AUDITED - 1, 0)]) > ACCEPTED
        assert bound([Stratum(1.0, ALL_AUDITED, 0)]) < ACCEPTED

    def test_clopper_and_pearson_lie_a_trifle_below_it(self):
        # their 95 % limits for 0, 1 and 5 of 1,000
        for found, exact in ((0, 0.0029912), (1, 0.0047345), (5, 0.0104822)):
            assert exact < bound([Stratum(1.0, 1_000 - found, found)]) < 1.01 * exact

    @given(
        st.lists(
            st.builds(Stratum, st.sampled_from([0.1, 1.0]), st.integers(0, 2_000), st.integers(0, 20)),
            max_size=3,
        )
    )
    def test_it_is_a_share_and_rises_with_every_kill(self, strata):
        upper = bound(strata)
        assert 0.0 < upper <= 1.0
        more = [one._replace(found=one.found + 1) for one in strata[:1]] + strata[1:]
        assert bound(more) >= upper

    def test_what_audits_see_by_a_tenth_tells_a_tenth_as_much(self):
        wholly, by_a_tenth = bound([Stratum(1.0, 600, 0)]), bound([Stratum(0.1, 6_000, 0)])
        assert by_a_tenth == pytest.approx(wholly, rel=0.03)

    def test_it_is_at_or_above_the_truth_as_often_as_it_says(self):
        rng = random.Random(5)

        def drawn(share, passes, truth):
            killed = sum(rng.random() < truth for _ in range(passes))
            return Stratum(share, passes - killed, sum(rng.random() < share for _ in range(killed)))

        held = sum(bound([drawn(1.0, 600, 0.01), drawn(0.1, 1_500, 0.01)]) >= 0.01 for _ in range(300))
        assert held >= 0.93 * 300


class TestLevels:
    def test_nothing_is_known_at_first(self):
        assert Deadlines().limit(asked()) == Deadline(DECLARED, DECLARED)

    def test_a_word_that_is_no_limiter_is_refused(self):
        with pytest.raises(RefusedError, match="'fixed'"):
            Deadlines("fixed")

    def test_a_kind_of_suite_lends_its_deadline_to_a_test_that_is_new(self):
        told = in_force((4.0,)).limit(asked("new", "c"))
        assert (told.cpu_s, told.level) == (6.0, "kind")
        assert told.bound < ACCEPTED

    def test_a_test_that_is_forgotten_within_a_step_keeps_its_deadline_there(self, monkeypatch):
        from steelyard.scheduling import deadlines as module

        deadlines = in_force()
        shown(deadlines, "c", [1.0] * 40)
        before = deadlines.limit(asked(step="d"))
        assert before.level == "test"
        monkeypatch.setattr(module, "REMEMBERED", 2)
        shown(deadlines, "d", [1.0], test="other")
        shown(deadlines, "e", [1.0], test="another")
        deadlines.standings()
        assert ("tests", "t") not in deadlines._tests
        assert deadlines.limit(asked(step="d")) == before

    def test_another_kind_knows_nothing_of_it(self):
        told = in_force().limit(asked("new", "c", kind="judge"))
        assert (told.cpu_s, told.level) == (DECLARED, "declared")

    def test_fewer_than_thirty_passes_are_no_level(self):
        deadlines = Deadlines()
        shown(deadlines, 0, [1.0] * 29)
        assert deadlines.limit(asked(step=1)).level == "declared"
        shown(deadlines, 1, [1.0])
        assert deadlines.limit(asked(step=2)).level == "test"

    def test_a_slow_test_has_a_longer_deadline_at_once(self):
        deadlines = in_force((1.0,))
        shown(deadlines, "c", [1.4] * 40, test="slow")  # within the kind's 2 s
        shown(deadlines, "c", [1.0] * 40, test="quick")
        assert deadlines.limit(asked("slow", "d")).cpu_s == pytest.approx(2.1)

    def test_a_quick_test_keeps_its_kinds_deadline_until_its_own_has_proven_itself(self):
        deadlines = in_force((6.0,))
        shown(deadlines, "c", [1.0] * 40, test="quick")
        told = deadlines.limit(asked("quick", "d"))
        assert (told.level, told.proposed_s, told.cpu_s) == ("test", 2.0, 9.0)
        shown(deadlines, "d", [1.0] * 700, test="quick")
        assert deadlines.limit(asked("quick", "e")).cpu_s == 2.0

    def test_a_reference_raises_it_and_is_enough_by_itself_where_it_was_asked_for(self):
        assert in_force((1.0,)).limit(asked("new", "c", reference=1.5)).cpu_s == 4.5
        alone = Deadlines("reference")
        told = alone.limit(asked(reference=1.5))
        assert (told.cpu_s, told.level, told.bound) == (4.5, "reference", 1.0)
        assert alone.limit(asked()).cpu_s == DECLARED


class TestInForce:
    def test_it_is_not_before_six_hundred_passes_of_later_steps(self):
        deadlines = Deadlines()
        shown(deadlines, 0, [1.0] * 2_000, test="a")
        assert deadlines.limit(asked("b", 1)).cpu_s == DECLARED  # all of these shaped it
        shown(deadlines, 1, [1.0] * 599, test="b")
        shown(deadlines, 2, [1.0], test="c")  # a step for itself
        assert deadlines.limit(asked("z", 3)).cpu_s == 2.0

    def test_kills_end_it_and_their_runs_are_all_seen_again(self):
        deadlines = in_force((1.0,))
        told = deadlines.limit(asked("new", "c"))
        assert (told.cpu_s, told.share) == (2.0, 0.1)
        for number in range(40):
            one = asked(str(number), "c")
            deadline = deadlines.limit(one)
            deadlines.observe(one, deadline, 2.0, passed=False, cut=True)
            if number % 10 == 0:
                again = deadline._replace(cpu_s=DECLARED, proposed_s=deadline.cpu_s, audit=True)
                deadlines.audited(one, again, 5.0, passed=True)
        told = deadlines.limit(asked("new", "d"))
        assert told.cpu_s == DECLARED
        assert told.bound > ACCEPTED

    def test_kills_that_are_long_ago_are_forgotten(self, monkeypatch):
        monkeypatch.setattr("steelyard.scheduling.deadlines.BOUND_WINDOW", 1_000)
        deadlines = in_force((1.0,))
        for number in range(8):
            one = asked(str(number), "c")
            deadline = deadlines.limit(one)
            again = deadline._replace(cpu_s=DECLARED, proposed_s=deadline.cpu_s, audit=True)
            deadlines.audited(one, again, 5.0, passed=True)
        shown(deadlines, "d", [1.0] * 1_000, test="d")
        assert deadlines.limit(asked("new", "d")).bound > ACCEPTED
        assert deadlines.limit(asked("new", "e")).bound == bound([Stratum(1.0, 1_000, 0)])

    def test_hangs_alone_change_nothing(self):
        deadlines = in_force((1.0,))
        for number in range(300):
            one = asked(str(number), "c")
            deadlines.observe(one, deadlines.limit(one), 2.0, passed=False, cut=True)
        assert deadlines.limit(asked("new", "d")).cpu_s == 2.0

    def test_an_audited_pass_counts_for_ten(self):
        deadlines = in_force((1.0,))
        one = asked("x", "c")
        deadline = deadlines.limit(one)
        again = deadline._replace(cpu_s=DECLARED, proposed_s=deadline.cpu_s, audit=True)
        deadlines.audited(one, again, 8.0, passed=True)
        assert deadlines.limit(asked("new", "d")).proposed_s == 2.0  # 10 of 1,410 are below a hundredth
        deadlines.audited(one, again, 8.0, passed=True)
        assert deadlines.limit(asked("new", "e")).proposed_s == 12.0  # 20 of 1,420 are not


class TestFrozen:
    def test_a_step_learns_nothing_of_itself(self):
        deadlines = in_force((1.0,))
        before = deadlines.limit(asked("t", "c"))
        shown(deadlines, "c", [1.9] * 500)
        assert deadlines.limit(asked("t", "c")) == before
        assert deadlines.limit(asked("other", "c")) == before
        assert deadlines.limit(asked("t", "d")) != before

    def test_an_older_step_keeps_its_own_when_a_newer_one_has_begun(self):
        deadlines = in_force((1.0,))
        before = deadlines.limit(asked("t", "c"))
        shown(deadlines, "c", [1.9] * 500)
        deadlines.limit(asked("t", "d"))
        assert deadlines.limit(asked("t", "c")) == before

    @settings(max_examples=30)
    @given(
        st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 1.9)), min_size=40, max_size=80),
        st.randoms(),
    )
    def test_the_order_in_which_a_step_is_seen_does_not_matter(self, seen, shuffled):
        told = []
        for turn in range(2):
            deadlines = Deadlines()
            if turn:
                shuffled.shuffle(seen)
            for test, cpu_s in seen:
                shown(deadlines, 0, [cpu_s], test=test)
            told.append([deadlines.limit(asked(test, 1)) for test in "abc"])
        assert told[0] == told[1]

    @settings(max_examples=30)
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.floats(0.01, 29.0)), max_size=200),
        st.floats(2.0, 30.0),
    )
    def test_whatever_is_seen_no_weight_is_negative_and_no_deadline_outside_its_range(self, seen, declared):
        deadlines = Deadlines()
        for step, test, cpu_s in seen:
            one = asked(test, step, declared=declared)
            deadline = deadlines.limit(one)
            assert LEAST_S <= deadline.cpu_s <= declared
            assert LEAST_S <= deadline.proposed_s <= declared
            cut = cpu_s > deadline.cpu_s
            deadlines.observe(one, deadline, cpu_s, passed=not cut, cut=cut)
            if cut:
                again = deadline._replace(cpu_s=declared, proposed_s=deadline.cpu_s, audit=True)
                deadlines.audited(one, again, cpu_s, passed=cpu_s <= declared)
            assert all(weight >= 1.0 for *_, weight in deadlines._passes)

    def test_old_steps_and_tests_are_forgotten(self, monkeypatch):
        monkeypatch.setattr("steelyard.scheduling.deadlines.REMEMBERED", 3)
        deadlines = Deadlines()
        for step in range(8):
            shown(deadlines, step, [1.0], test=str(step))
        assert list(deadlines._steps) == [5, 6, 7]
        assert [test for _, test in deadlines._tests] == ["4", "5", "6"]


class TestAudits:
    def test_every_cut_is_audited_at_first_and_then_a_tenth_whatever_the_order(self):
        deadlines = Deadlines(seed=3)
        digests = [number.to_bytes(16, "big") for number in range(2_000)]
        assert all(deadlines.wanted(Deadline(2.0, 2.0, share=1.0), one) for one in digests)
        few = Deadline(2.0, 2.0, share=0.1)
        chosen = {one for one in digests if deadlines.wanted(few, one)}
        assert 140 < len(chosen) < 260
        assert chosen == {one for one in reversed(digests) if Deadlines(seed=3).wanted(few, one)}
        assert chosen != {one for one in digests if Deadlines(seed=4).wanted(few, one)}


@pytest.fixture(scope="module")
def bench():
    """The simulation of `bench/deadlines.py`."""
    import importlib.util
    import sys

    path = Path(__file__).parents[2] / "bench" / "deadlines.py"
    spec = importlib.util.spec_from_file_location("bench_deadlines", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class TestTheMix:
    @pytest.mark.parametrize("meetings", [[1] * 512, [5] * 256])
    def test_steps_wait_less_than_under_rollpackers_rule_and_fewer_right_programs_die(self, bench, meetings):
        told = {
            rule: bench.simulate(random.Random(2), made, meetings, bench.the_mix)
            for rule, made in {"ours": bench.Ours("adaptive"), "theirs": bench.Published()}.items()
        }
        assert told["ours"].step > told["theirs"].step
        assert told["ours"].killed <= min(told["theirs"].killed, 0.005)
        if max(meetings) > 1:
            assert told["theirs"].killed > 0.01

    def test_the_stated_bound_is_above_what_was_killed(self, bench):
        rule = bench.Ours("adaptive")
        result = bench.simulate(random.Random(3), rule, [1] * 768, bench.the_mix)
        (standing,) = rule.deadlines.standings()
        assert standing.in_force
        assert result.killed <= standing.bound < ACCEPTED
        assert standing.audited
        assert standing.cpu_s == pytest.approx(10.7, abs=0.6)
