"""Remedies, computed on the calls that were measured (src/steelyard/pricing/whatif.py)."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted import planted
from steelyard.errors import RefusedError
from steelyard.pricing import barrier
from steelyard.pricing.observed import MISSING, Calls, Observed, Rows, Steps, blank
from steelyard.pricing.price import price_observed
from steelyard.pricing.remedies import limits
from steelyard.pricing.remedies.barriers import double, groups, half
from steelyard.pricing.remedies.ground import Ground
from steelyard.pricing.remedies.limits import adaptive, bounds, timeout
from steelyard.pricing.remedies.places import pool, workers
from steelyard.pricing.remedies.tails import hedge, tail, tails
from steelyard.pricing.simulate import served
from steelyard.pricing.waits import waits
from steelyard.pricing.whatif import lower_timeout, remedies, shave_tail
from steelyard.scheduling import deadlines, falsekills

NAMES = {"timeout", "adaptive", "tail", "groups", "batch", "pool", "hedge", "workers", "unscored"}


def by_hand(
    *rows, parts=1, causes=("wall",), steps=None, exposed=None, generation=10.0, training=8.0, limit=None
):
    """A run of calls, each a dictionary of columns; what is not told was not measured."""
    unknown = {"step": 0, "group": 0, "part": 0, "cause": MISSING, "censored": False, "passed": True}

    def column(name, otherwise):
        kind = type(unknown.get(name, 0.0))
        return np.array([one.get(name, unknown.get(name, otherwise)) for one in rows], kind)

    calls = Calls(
        **{name: column(name, np.nan) for name in Calls.__slots__ if name != "row"},
        row=np.array([one.get("row", number) for number, one in enumerate(rows)], np.int64),
    )
    count = steps or int(calls.step.max(initial=0)) + 1
    table = Steps(
        [str(one) for one in range(count)],
        np.full(count, generation),
        np.full(count, training),
        np.full(count, np.nan) if exposed is None else np.array(exposed, float),
        blank(count),
        np.zeros(count, np.int64),
    )
    empty = np.zeros(0, np.int64)
    no_rows = Rows(empty, empty, blank(0), empty, np.zeros(0, bool))
    names = [f"part{one}" for one in range(parts)]
    return Observed("by hand", calls, no_rows, table, names, causes, stepped=True, limit_s=limit)


def saved(remedy):
    assert remedy.refused is None, remedy
    return remedy.saves.value


# --- how long a step waits ---------------------------------------------------------------------------


def test_a_step_waits_for_its_slowest_call():
    run = planted(rate=0.02, contention=0.5)
    told = waits(run)
    assert told.wait_s == pytest.approx(run.steps.exposed_s)
    assert not told.queue_s.any()
    assert not told.timed.any()


def test_retries_multiply_the_constant():
    cut = {"row": 0, "service_s": 15.0, "censored": True}
    run = by_hand(cut, cut, cut, cut, {"row": 1, "service_s": 20.0})
    assert waits(run).wait_s == pytest.approx([60])
    assert saved(lower_timeout(run, 10)) == pytest.approx(20)  # four attempts at 10 s


def test_parts_run_side_by_side_unless_it_was_seen_that_they_do_not():
    first, second = {"row": 0, "service_s": 4.0}, {"row": 0, "part": 1, "service_s": 5.0}
    assert waits(by_hand(first, second, parts=2)).wait_s == pytest.approx([5])
    gated = by_hand({**first, "began_s": 1.0}, {**second, "began_s": 5.0}, parts=2)
    told = waits(gated)
    assert told.wait_s == pytest.approx([9])
    assert told.slowest_s == pytest.approx([9])
    assert told.less(np.array([3.0, 0.0])) == pytest.approx([3])  # the second part begins 3 s sooner
    beside = by_hand({**first, "began_s": 1.0}, {**second, "began_s": 2.0}, parts=2)
    assert waits(beside).wait_s == pytest.approx([6])
    assert waits(beside).less(np.array([3.0, 0.0])) == pytest.approx([0])


def test_a_queue_is_waited_in_and_told_apart_from_service():
    told = waits(by_hand({"service_s": 4.0, "queued_s": 3.0}, {"service_s": 5.0}))
    assert (told.wait_s[0], told.slowest_s[0], told.queue_s[0]) == (7, 5, 2)
    seen = waits(
        by_hand(
            {"service_s": 4.0, "queued_s": 1.0, "began_s": 3.0},
            {"service_s": 5.0, "queued_s": 0.0, "began_s": 9.0},
        )
    )
    assert seen.timed.all()
    assert seen.wait_s == pytest.approx([14 - 2])
    assert seen.queue_s == pytest.approx([7])


def test_a_step_of_which_nothing_was_measured_has_no_wait():
    told = waits(by_hand({"step": 0, "service_s": 2.0}, {"step": 2}, steps=4))
    assert told.wait_s[0] == 2
    assert np.isnan(told.wait_s[1:]).all()
    lost = by_hand({"service_s": 2.0, "began_s": 1.0, "row": 0}, {"row": 1})  # never started
    assert waits(lost).timed.all()
    assert waits(lost).wait_s == pytest.approx([2])


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_order_of_calls_and_the_numbers_of_rollouts_change_no_wait(data):
    run = planted(steps=4, batch=16, rate=0.1, seed=data.draw(st.integers(0, 99)))
    mixed = np.array(data.draw(st.permutations(range(64))))
    columns = {name: getattr(run.calls, name)[mixed] for name in Calls.__slots__}
    columns["row"] = columns["row"] * 1_000 + 7
    other = replace(run, calls=Calls(**columns))
    assert waits(other).wait_s == pytest.approx(waits(run).wait_s)
    assert saved(groups(Ground(other))) == pytest.approx(saved(groups(Ground(run))))


# --- limits ------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    limits=st.lists(st.floats(0.1, 29), min_size=2, max_size=2).map(sorted),
    rate=st.sampled_from([0, 0.01, 0.2]),
    seed=st.integers(0, 50),
)
def test_a_lower_timeout_never_saves_less(limits, rate, seed):
    run = Ground(planted(steps=30, batch=16, rate=rate, seed=seed))
    low, high = (lower_timeout(run, one) for one in limits)
    assert saved(low) >= saved(high) - 1e-9
    assert 0 <= saved(high) <= waits(run.observed).wait_s.mean()
    truncated = np.minimum(run.observed.calls.service_s, limits[0]).reshape(30, 16).max(axis=1)
    assert saved(low) == pytest.approx((run.observed.steps.exposed_s - truncated).mean())
    assert low.after.value == pytest.approx((run.observed.steps.busy_s + truncated).mean())


def test_the_timeout_proposed_cuts_hardly_any_call_that_passes():
    run = planted(rate=0.05)
    found = timeout(Ground(run))
    assert found.title == "lower the timeout from 30 s to 5 s"
    passing = run.calls.service_s[run.calls.passed]
    assert found.costs.startswith(f"cuts {(passing > 5).sum():,} of {len(passing):,} passing calls")
    assert (passing > 5).mean() < 0.005 <= (passing > 4).mean()
    slow = planted(rate=0.05, median_s=22, sigma=0.05, timeout_s=25)
    assert "no lower round constant" in timeout(Ground(slow)).refused


def test_calls_that_a_shorter_limit_cut_keep_it_and_the_remedy_says_how_many():
    short = [
        {"step": s, "row": 9 * s, "service_s": 10.0, "censored": True, "passed": False} for s in range(3)
    ]
    long = [{**short[0], "step": s, "row": 9 * s, "service_s": 30.0} for s in range(3, 6)]
    good = [{"step": s, "row": 9 * s + 1, "service_s": 1.0} for s in range(6)]
    run = by_hand(*short, *long, *good)
    found = lower_timeout(run, 20)
    assert saved(found) == pytest.approx(10 / 2)
    assert "3 of 6 calls that were cut (50.00 %) were cut sooner, after 10 s, and keep" in found.rests_on
    assert "not identified (up to 5 s a step)" in found.rests_on
    assert "cut sooner" not in lower_timeout(run, 8).rests_on


def test_a_slow_part_keeps_the_constant_long_for_a_quick_one():
    quick = [{"row": r, "service_s": 1.0 + r / 1e6} for r in range(2_000)]
    slow = [{"row": 5_000 + r, "part": 1, "service_s": 7.0} for r in range(5)]
    found = timeout(
        Ground(by_hand(*quick, *slow, {"service_s": 30.0, "censored": True, "passed": False}, parts=2))
    )
    assert found.title == "lower the timeout from 30 s to 8 s"
    assert found.costs == "cuts 0 of 2,005 passing calls (0.00 %)"


def test_a_longer_timeout_is_refused_with_bounds():
    run = planted(rate=0.01)
    found = lower_timeout(run, 60)
    share = (run.steps.exposed_s == 30).mean()
    assert found.saves is None
    assert "nothing was seen beyond 30 s" in found.refused
    assert f"by 0 to {30 * share:.3g} s a step" in found.refused
    assert f"one of the {round(40 * share)} steps" in found.refused
    assert saved(lower_timeout(planted(rate=0), 60)) == 0  # no call was cut, so all is known
    with pytest.raises(RefusedError, match="timeout_s"):
        lower_timeout(run, 0)


def test_a_call_that_passes_under_a_longer_timeout_is_not_tried_again():
    cut = {"row": 0, "service_s": 15.0, "censored": True, "passed": False}
    found = lower_timeout(by_hand(cut, cut, cut, {"row": 1, "service_s": 20.0}), 20)
    assert "the wait would change by -25 s to 15 s a step" in found.refused  # 20 s of row 1; three times 20 s
    gated = by_hand(cut, {**cut, "part": 1}, parts=2)
    assert "grow by 0 to 5 s" in lower_timeout(gated, 20).refused  # another part is no later try


@settings(max_examples=25, deadline=None)
@given(
    places=st.integers(1, 6),
    limit=st.floats(4, 12),
    jobs=st.lists(st.tuples(st.floats(0.1, 6), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_the_bounds_of_a_longer_timeout_hold_where_calls_queue(places, limit, jobs):
    true, share = (np.array(column) for column in zip(*jobs, strict=True))

    def run(until):
        service = np.minimum(true, until)
        began = served(np.zeros(len(true)), service, places) - service
        return service, began

    service, began = run(4)
    cut = service >= 4
    rows = [
        {"row": i, "service_s": s, "began_s": b, "queued_s": b, "censored": c, "passed": not c}
        for i, (s, b, c) in enumerate(zip(service, began, cut, strict=True))
    ]
    ground = Ground(by_hand(*rows), places=places)
    if not cut.any() or limit == 4:
        return
    least, most, _ = bounds(ground, limit)
    now = (service + began).max()
    for late in (limit, 4 + share * (limit - 4)):  # all hang, or each passes somewhere
        then = served(np.zeros(len(true)), np.where(cut, late, service), places).max()
        assert least[0] - 1e-5 <= then - now <= most[0] + 1e-5
    hanging = served(np.zeros(len(true)), np.where(cut, limit, service), places).max()
    assert most[0] == pytest.approx(hanging - now, abs=1e-5)
    assert f"served again in {places} places" in lower_timeout(ground, limit).rests_on


def test_an_adaptive_deadline_knows_nothing_of_its_own_step():
    run = planted(rate=0.02, steps=6, batch=64)
    found = adaptive(Ground(run))
    passing, expected = run.calls.passed, []
    for step in range(6):
        before = np.sort(run.calls.service_s[passing & (run.calls.step < step)])
        deadline = np.inf
        if len(before) >= 30:
            deadline = max(2.0, 1.5 * before[int(np.ceil(0.99 * len(before))) - 1])
        mine = run.calls.service_s[run.calls.step == step]
        expected.append(mine.max() - np.minimum(mine, deadline).max())
    assert expected[0] == 0
    assert saved(found) == pytest.approx(np.mean(expected))
    later = run.calls.service_s * np.where(run.calls.step == 5, 10, 1)
    changed = replace(run, calls=replace(run.calls, service_s=later))
    assert adaptive(Ground(changed)).rests_on == found.rests_on


def test_an_adaptive_deadline_goes_by_cpu_where_it_was_measured():
    rows = [
        {"step": s, "row": 40 * s + r, "service_s": 3.0, "cpu_s": 1.0} for s in range(2) for r in range(40)
    ]
    spins = {"step": 1, "row": 99, "service_s": 30.0, "cpu_s": 20.0, "censored": True, "passed": False}
    sleeps = {"step": 1, "row": 98, "service_s": 12.0, "cpu_s": 0.1, "censored": True, "passed": False}
    found = adaptive(Ground(by_hand(*rows, spins, sleeps)))
    assert saved(found) == pytest.approx((30 - 12) / 2)  # the spinning one ends at 2 of 20 CPU seconds
    assert "CPU seconds" in found.rests_on
    assert (
        "; 1 of 2 calls that were cut (50.00 %) were so before their deadline" in found.rests_on
    )  # the sleeping one
    assert adaptive(Ground(by_hand(*rows[:20]))).refused.startswith("no step has 30 passing calls")


def test_why_no_constant_is_proposed_is_told_as_it_is():
    cut = {"row": 99, "service_s": 30.0, "censored": True, "passed": False}
    assert "no call finished" in timeout(Ground(by_hand(cut))).refused
    slow = [{"row": r, "service_s": 90_000.0} for r in range(9)]  # beyond every round constant
    found = timeout(Ground(by_hand(*slow)))
    assert found.refused == "no lower round constant cuts less than 0.5% of the passing calls"
    at_once = [{"row": r, "service_s": 0.0} for r in range(9)]
    assert "the 9 passing calls took 0 s" in timeout(Ground(by_hand(*at_once, cut))).refused
    unmeasured = [{"row": r} for r in range(300)]  # no clock of theirs makes the others quick
    good = [{"row": 400 + r, "service_s": 4.0} for r in range(3)]
    assert timeout(Ground(by_hand(*unmeasured, *good, cut))).title == "lower the timeout from 30 s to 4 s"


def test_one_call_that_hung_on_is_not_the_limit():
    cut = {"service_s": 0.06, "censored": True, "passed": False}
    rows = [{**cut, "row": r} for r in range(20)] + [{"row": 50 + r, "service_s": 0.009} for r in range(99)]
    stuck = {**cut, "row": 200, "service_s": 0.4}
    ground = Ground(by_hand(*rows, stuck))
    assert (ground.limit_s, ground.seen_to_s, ground.limit_words) == (0.06, 0.4, "about 60 ms")
    assert timeout(ground).title == "lower the timeout from about 60 ms to 10 ms"
    between = lower_timeout(ground, 0.1)
    assert between.title == "change the timeout from about 60 ms to 0.1 s"
    assert "20 of 21 calls that were cut (95.24 %) were cut sooner" in between.rests_on
    assert "nothing was seen beyond 0.4 s" in lower_timeout(ground, 0.5).refused
    assert Ground(by_hand(*rows)).limit_words == "60 ms"
    told = Ground(by_hand(*rows, stuck, limit=0.06))
    assert (told.seen_to_s, told.limit_words) == (0.06, "60 ms")


def test_a_deadline_that_can_not_be_below_the_limit_is_refused():
    rows = [{"step": s, "row": 40 * s + r, "service_s": 0.1} for s in range(3) for r in range(40)]
    cut = {"step": 2, "row": 999, "service_s": 0.5, "censored": True, "passed": False}
    assert adaptive(Ground(by_hand(*rows, cut))).refused == (
        "calls are cut at 0.5 s, and no deadline of it is below 2 s: it can save nothing"
    )
    assert saved(adaptive(Ground(by_hand(*rows)))) == 0  # nobody knows of a limit
    assert saved(adaptive(Ground(by_hand(*rows, {**cut, "service_s": 5.0})))) == pytest.approx(1)


def test_the_rule_of_a_deadline_is_the_one_that_is_applied():
    assert (limits.LEAST_S, limits.QUANTILE, limits.QUANTILE_TIMES, limits.NEEDED, limits.ACCEPTED) == (
        falsekills.LEAST_S,
        falsekills.QUANTILE,
        falsekills.QUANTILE_TIMES,
        falsekills.NEEDED,
        falsekills.ACCEPTED,
    )
    assert limits.WINDOW == deadlines.WINDOW


# --- calls that wait for one another -----------------------------------------------------------------


def makespan(service, places):
    """When the last of these calls ends, each served by the first free place."""
    free = [0.0] * places
    for one in service:
        free[free.index(min(free))] += one
    return max(free)


def in_turn(places, *, batch=64, queue=True, **asked):
    """A planted run whose calls are all asked for at once and served in so few places."""
    run = planted(batch=batch, **asked)
    service = run.calls.service_s.reshape(-1, batch)
    began = np.array([served(np.zeros(batch), one, places) - one for one in service])
    waited = (began + service).max(axis=1)
    calls = replace(
        run.calls, began_s=began.ravel() + 7, queued_s=began.ravel() if queue else blank(began.size)
    )
    steps = replace(run.steps, exposed_s=waited, wall_s=run.steps.busy_s + waited)
    return replace(run, calls=calls, steps=steps)


@settings(max_examples=20, deadline=None)
@given(
    places=st.sampled_from([1, 2, 8, 15]),
    limit=st.floats(1, 29),
    queue=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_shorter_limit_is_passed_on_to_the_calls_that_wait(places, limit, queue, seed):
    run = in_turn(places, batch=16, steps=8, rate=0.1, seed=seed, queue=queue)
    found = lower_timeout(run, limit)
    service = run.calls.service_s.reshape(8, 16)
    true = [makespan(one, places) - makespan(np.minimum(one, limit), places) for one in service]
    assert saved(found) == pytest.approx(np.mean(true), abs=1e-4)
    assert f"served again in the order in which they began, in {places} place" in found.rests_on
    assert ("no queue was measured" in found.rests_on) is not queue


def test_a_loop_over_completions_gains_by_limits_and_places_and_by_no_other_batch():
    run = in_turn(1, batch=16, group=4, rate=0.05, queue=False)
    found = {one.title.split(" to ")[0].split(" (")[0]: one for one in remedies(run)}
    service = run.calls.service_s.reshape(40, 16)
    assert saved(found["lower the timeout from 30 s"]) == pytest.approx(
        np.maximum(service - 5, 0).sum(axis=1).mean()
    )
    assert saved(found["double the batch"]) == pytest.approx(0, abs=1e-6)
    assert saved(found["halve the batch"]) == pytest.approx(0, abs=1e-6)
    two = [one.sum() - makespan(one, 2) for one in service]
    assert saved(found["serve twice as many calls at once: 2 instead of 1"]) == pytest.approx(np.mean(two))
    hits = (service == 30).sum(axis=1)
    spared = (hits * 30 - hits * np.ma.masked_equal(service, 30).mean(axis=1).filled(0)).mean()
    assert saved(tail(Ground(run))) == pytest.approx(spared / 2, rel=0.1)  # of every other one


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("places", [1, 8])
def test_a_lower_rate_of_hits_and_other_batches_save_in_turn_what_such_runs_show(places, rho):
    asked = {"rate": 0.02, "rho": rho, "group": 4, "sigma": 0.1}

    def waited(batch=64, **more):
        return in_turn(places, batch=batch, **asked | more).steps.exposed_s

    ground = Ground(in_turn(places, steps=1_000, **asked))
    now = ground.wait_s.mean()
    for found, then in (
        (tail(ground), waited(steps=1_000, rate=0.01, seed=1)),
        (tail(ground, 0.004), waited(steps=1_000, rate=0.004, seed=2)),
        (half(ground), 2 * waited(batch=32, steps=2_000, seed=3)),
        (double(ground), waited(batch=128, steps=500, seed=4) / 2),
    ):
        error = np.hypot((found.saves.high - found.saves.low) / 4, then.std() / len(then) ** 0.5)
        assert saved(found) == pytest.approx(now - then.mean(), abs=4 * error + 0.1), found.title
    assert "knee" not in tail(ground).costs
    assert "the mean of its step's calls that finished" in tail(ground).rests_on


def test_more_places_than_calls_change_no_remedy():
    run = planted(rate=0.01, rho=0.3, contention=0.3)
    seen = replace(run, calls=replace(run.calls, began_s=np.full(len(run.calls), 3.0)))
    assert not Ground(seen).in_turn.any()
    told, again = ({one.title: one for one in remedies(of)} for of in (run, seen))
    for title, one in told.items():
        if one.name != "workers":
            for name in ("value", "low", "high") if one.saves else ():
                known = getattr(one.saves, name)
                assert getattr(again[title].saves, name) == pytest.approx(known, abs=1e-9), title
            assert again[title].refused == one.refused
            assert again[title].rests_on == one.rests_on


def test_calls_that_come_while_generation_goes_on_do_not_wait_for_one_another():
    rows = [
        {"step": s, "row": 8 * s + i, "began_s": 10.0 * i, "service_s": 9.0 if i == 3 else 2.0}
        for s in range(3)
        for i in range(8)
    ]
    streamed = Ground(by_hand(*rows, exposed=[2.0] * 3, generation=70.0))
    assert not streamed.in_turn.any()
    assert saved(lower_timeout(streamed, 5)) == 0
    loop = Ground(by_hand(*rows, exposed=[72.0] * 3))  # nothing else went on: it could have been asked for
    assert loop.in_turn.all()
    assert saved(lower_timeout(loop, 5)) == pytest.approx(4)
    seen = [{**row, "queued_s": 0.0} for row in rows]
    assert not Ground(by_hand(*seen)).in_turn.any()  # ready when it began


def test_places_that_are_told_are_those_that_calls_wait_for_but_no_fewer_than_were_at_work():
    run = in_turn(4, batch=16, rate=0.1)
    assert Ground(run, places=6).places_again == 6
    assert Ground(run, places=2).places_again == 4
    assert not Ground(run, places=16).in_turn.any()


def test_a_warm_pool_a_hedge_and_a_deadline_are_passed_on_to_the_calls_that_wait():
    run = in_turn(1, batch=16, steps=40, rate=0.05)
    spawn = Ground(replace(run, calls=replace(run.calls, spawn_s=np.full(640, 0.5))))
    assert saved(pool(spawn)) == pytest.approx(16 * 0.5)
    expected, service = [], run.calls.service_s.reshape(40, 16)
    for step in range(40):
        before = np.sort(run.calls.service_s[run.calls.passed & (run.calls.step < step)])
        learnt = len(before) >= 30
        deadline = max(2.0, 1.5 * before[int(np.ceil(0.99 * len(before))) - 1]) if learnt else np.inf
        expected.append(np.maximum(service[step] - deadline, 0).sum())
    assert saved(adaptive(Ground(run))) == pytest.approx(np.mean(expected))
    late = Ground(replace(run, calls=replace(run.calls, spawn_s=np.where(run.calls.censored, 29.0, 0.2))))
    hits = run.calls.censored.reshape(40, 16).sum(axis=1).mean()
    mean = run.calls.service_s[~run.calls.censored].mean()
    rate = run.calls.censored.mean()
    assert saved(hedge(late)) == pytest.approx(hits * (30 - mean) * (1 - rate), rel=0.02)


def test_of_a_long_run_whose_calls_wait_some_steps_are_served_again_and_every_remedy_says_so():
    found = remedies(in_turn(8, batch=128, steps=2_000, rate=0.01))
    for one in found:
        if one.saves and one.name != "groups":
            assert one.saves.basis.startswith("n = 1,562 steps (199,936 calls)"), one.title
            if one.name != "workers":
                assert "1,562 of 2,000 steps (78.10 %) are served again" in one.rests_on


def test_calls_that_took_no_time_are_served_in_one_place():
    rows = [
        {"step": s, "row": 4 * s + i, "service_s": 0.0, "began_s": 1.0} for s in range(3) for i in range(4)
    ]
    ground = Ground(by_hand(*rows))
    assert (ground.seen_in_flight, ground.seats) == (0, 1)
    assert all(one.saves.value == 0 for one in remedies(ground.observed) if one.saves)


# --- tails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "lower"), [(0.05, 0.02), (0.02, 0.005), (0.01, 0.005)])
def test_shaving_a_tail_saves_what_the_two_point_law_says(rate, lower):
    busy = {"generation_s": 12.47, "training_s": 12.04}
    run = planted(steps=4_000, rate=rate, sigma=1e-9, **busy)
    found = shave_tail(run, lower)
    before, after = (24.51 + barrier.expected_wait(2, 30, barrier.step_hit(p, 128)) for p in (rate, lower))
    assert found.after.value + found.saves.value == pytest.approx(before, rel=0.01)
    assert found.after.value == pytest.approx(after, rel=0.02)
    assert found.saves.low - 0.2 < before - after < found.saves.high + 0.2


def test_above_the_knee_shaving_is_noise_and_below_it_a_quarter_of_the_step():
    above = shave_tail(planted(steps=2_000, rate=0.05, sigma=1e-9), 0.02)
    below = shave_tail(planted(steps=2_000, rate=0.02, sigma=1e-9), 0.005)
    share = {one.title: one.saves.value / (one.saves.value + one.after.value) for one in (above, below)}
    assert share[above.title] < 0.05
    assert share[below.title] == pytest.approx(0.24, abs=0.02)
    assert "above the knee (1.9" in above.costs


def test_a_target_below_the_knee_leaves_half_of_the_steps_unhit_whatever_was_tried_again():
    once = planted(steps=2_000, rate=0.05, sigma=1e-9)
    cut = np.flatnonzero(once.calls.censored)
    again = np.concatenate([np.arange(len(once.calls)), cut, cut])  # each cut call is tried three times
    thrice = replace(
        once, calls=Calls(**{name: getattr(once.calls, name)[again] for name in Calls.__slots__})
    )
    thrice = replace(thrice, steps=replace(once.steps, exposed_s=blank(2_000)))
    for run, spared in ((once, 30 - 2), (thrice, 3 * (30 - 2))):
        half, below = tails(Ground(run))
        assert saved(below) == pytest.approx(spared * (1 - 0.95**128 - 0.5), rel=0.05)
        assert saved(below) > 4 * saved(half)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 1.0])
def test_fewer_cut_calls_come_together_within_prompts_as_they_did(rho):
    found = shave_tail(planted(steps=6_000, rate=0.01, rho=rho, sigma=1e-9), 0.005)
    now, then = (barrier.step_hit(p, 128, group=8, rho=rho) for p in (0.01, 0.005))
    assert saved(found) == pytest.approx(28 * (now - then), rel=0.06)
    assert float(re.search(r"prompt as they are now \((.*?)\)", found.rests_on)[1]) == pytest.approx(
        rho, abs=0.04
    )


def test_the_interval_of_a_tail_is_the_jackknife_of_all_that_it_is_told_from():
    run = planted(steps=35, rate=0.01, rho=0.4, seed=5)

    def without(step):
        kept = np.flatnonzero(run.calls.step != step)
        calls = Calls(**{name: getattr(run.calls, name)[kept] for name in Calls.__slots__})
        exposed = np.where(np.arange(35) == step, np.nan, run.steps.exposed_s)
        return Ground(replace(run, calls=calls, steps=replace(run.steps, exposed_s=exposed)))

    for rate in (None, 0.004):  # of a told rate, only the present one is uncertain
        left = np.array([saved(tail(without(step), rate)) for step in range(35)])
        error = (34 / 35 * ((left - left.mean()) ** 2).sum()) ** 0.5
        found = tail(Ground(run), rate).saves
        assert found.high - found.value == pytest.approx(2.0322 * error, rel=1e-3)
        assert found.value - found.low == pytest.approx(2.0322 * error, rel=1e-3)


def test_a_rollout_with_a_quick_part_beside_the_one_that_hangs_is_as_correlated_as_alone():
    run = planted(steps=300, rate=0.01, rho=0.6)
    both = np.concatenate([np.arange(len(run.calls))] * 2)
    columns = {name: getattr(run.calls, name)[both] for name in Calls.__slots__}
    quick = np.arange(len(both)) >= len(run.calls)
    columns |= {"part": quick.astype(int), "service_s": np.where(quick, 0.1, columns["service_s"])}
    columns |= {"censored": columns["censored"] & ~quick, "cause": np.where(quick, MISSING, columns["cause"])}
    two = replace(run, calls=Calls(**columns), parts=["slow", "quick"])
    assert saved(tail(Ground(two))) == pytest.approx(saved(tail(Ground(run))))


def test_a_tail_that_is_not_there_cannot_be_shaved():
    assert "no call was cut" in shave_tail(planted(), 0.001).refused
    assert "no higher" in shave_tail(planted(rate=0.01), 0.5).refused
    with pytest.raises(RefusedError, match="from 0 to 1"):
        shave_tail(planted(rate=0.01), 5)


def lost_once(run, lost):
    """The same run, where these calls were lost and finished in 0 s when they were tried again."""
    again = np.concatenate([np.arange(len(run.calls)), np.flatnonzero(lost)])
    second = np.arange(len(again)) >= len(run.calls)
    columns = {name: getattr(run.calls, name)[again] for name in Calls.__slots__}
    columns["cause"] = np.where(second, MISSING, np.where(lost[again], 1, columns["cause"]))
    columns["service_s"] = np.where(second, 0.0, columns["service_s"])
    columns["censored"] = columns["censored"] & ~lost[again]
    return replace(run, calls=Calls(**columns), causes=["wall", "lost"])


def test_hedging_repairs_what_the_machinery_did_and_nothing_else():
    run = planted(steps=2_000, rate=0.01, sigma=1e-9)
    assert saved(hedge(Ground(run))) == 0  # every slow call ran
    rng, hits, savings = np.random.default_rng(1), {}, {}
    for share in (0.1, 1.0):
        lost = run.calls.censored & (rng.random(len(run.calls)) < share)
        savings[share] = saved(hedge(Ground(lost_once(run, lost))))
        hits[share] = 0.724 - savings[share] / 28
    assert hits == pytest.approx({0.1: 0.686, 1.0: 0.013}, abs=0.03)
    spawns = np.where(run.calls.censored, 29.0, 0.2)
    slow = replace(run, calls=replace(run.calls, spawn_s=spawns))
    assert saved(hedge(Ground(slow))) == pytest.approx(savings[1.0], rel=0.01)


def test_a_candidate_that_kills_its_process_twice_is_no_fault_of_the_machinery():
    lost = {"row": 0, "service_s": 9.0, "cause": 0, "passed": False}
    finished = {"row": 0, "service_s": 1.0}
    others = [{"row": 1 + r, "service_s": 1.0} for r in range(9)]
    crashes = by_hand(lost, lost, *others, causes=("lost",))
    assert saved(hedge(Ground(crashes))) == 0
    assert "0 of 2 calls that were cut or lost" in hedge(Ground(crashes)).rests_on
    mended = hedge(Ground(by_hand(lost, finished, *others, causes=("lost",))))
    assert "1 of 1 calls that were cut or lost" in mended.rests_on
    assert saved(mended) > 0
    elsewhere = by_hand(lost, {**finished, "part": 1}, *others, causes=("lost",), parts=2)
    assert "0 of 1 calls" in hedge(Ground(elsewhere)).rests_on  # another part's end says nothing


def hung(places, *, late=0.0):
    """40 steps of 12 calls of 1 s, the last of which hangs for 10 s; each call starts `late` s too late."""
    rows = []
    for step in range(40):
        service = np.where(np.arange(12) == 11, 10.0, 8.0 if places < 12 else 1.0)
        began = served(np.zeros(12), service, places) - service + late
        rows += [
            {
                "step": step,
                "row": 12 * step + i,
                "group": step,
                "service_s": s,
                "began_s": b,
                "queued_s": b,
                "censored": s == 10,
                "cause": 0 if s == 10 else MISSING,
            }
            for i, (s, b) in enumerate(zip(service, began, strict=True))
        ]
    return by_hand(*rows)


def test_a_queue_for_places_is_cured_by_places_and_no_hedge():
    full = hedge(Ground(hung(4)))
    assert saved(full) == 0
    assert "40 more were longer in a queue for places" in full.rests_on
    free = hung(12, late=11.0)  # 11 s from ready to started, with 12 places and none taken
    found = hedge(Ground(free))
    assert "40 of 40 calls that were cut or lost (100.00 %) owe it to the machinery" in found.rests_on
    assert saved(found) > 0
    unseen = replace(free, calls=replace(free.calls, began_s=blank(480)))
    assert saved(hedge(Ground(unseen))) == 0  # nobody saw that there were places


# --- barriers ----------------------------------------------------------------------------------------


def test_training_on_arrival_hides_all_groups_but_the_stalled_one():
    rows = [{"row": 8 * g + r, "group": g, "service_s": 1e-9} for g in range(16) for r in range(8)]
    rows[100] |= {"service_s": 30.0, "censored": True}
    found = groups(Ground(by_hand(*rows, generation=12.47, training=12.20)))
    assert found.saves.value + found.after.value == pytest.approx(54.7, abs=0.05)
    assert found.after.value == pytest.approx(43.2, abs=0.05)
    assert "at most 94 % of training" in found.costs


def trained(*, arrival, streamed=False):
    """35 steps: 10 s of generation, 16 groups in after 2 s and the last after 30 s, 1 s of training each.

    `arrival`: each group is trained on when it is in. `streamed`: calls are ready while generation goes on.
    """
    ends = np.append(np.full(15, 2.0), 30.0)
    exposed = 15.0 if arrival else 22.0 if streamed else 30.0
    ready = np.linspace(-8.0, 0.0, 16) if streamed else np.zeros(16)
    ends = np.where(ends == 30, 22.0, ends) if streamed else ends
    rows = [
        {"step": s, "row": 16 * s + g, "group": 16 * s + g, "began_s": r, "service_s": e - r}
        for s in range(35)
        for g, (r, e) in enumerate(zip(ready, ends, strict=True))
    ]
    return by_hand(*rows, exposed=[exposed] * 35, training=16.0)


def test_a_loop_that_trains_on_arrival_has_nothing_to_gain_by_it():
    assert saved(groups(Ground(trained(arrival=False)))) == pytest.approx(15)
    already = groups(Ground(trained(arrival=True)))
    assert saved(already) == pytest.approx(0)
    assert "in 35 of 35 steps (100.00 %) more was covered than generation can" in already.rests_on
    assert "training overlaps rewards already" in already.rests_on
    hidden = groups(Ground(trained(arrival=False, streamed=True)))  # 8 s of the calls lie in generation
    assert saved(hidden) == pytest.approx(22 + 16 - 23)
    assert "already" not in hidden.rests_on


def test_of_calls_that_nobody_saw_begin_generation_covers_no_more_than_it_took():
    run = trained(arrival=True)
    unseen = replace(run, calls=replace(run.calls, began_s=blank(len(run.calls))))
    found = groups(Ground(unseen))
    assert "more was covered than generation can (175 s in all)" in found.rests_on.replace("175.0", "175")
    assert saved(found) == pytest.approx(10)  # of 15 s covered, 10 s may have been generation


def test_no_step_hides_more_than_all_its_groups_but_one_nor_more_than_it_waits():
    run = planted(steps=60, rate=0.02)
    found = groups(Ground(run))
    assert 0 < saved(found) <= min(12.04 * 15 / 16, run.steps.exposed_s.mean())
    assert saved(groups(Ground(planted(batch=8)))) == pytest.approx(0, abs=1e-9)  # a single group
    unknown = replace(run, steps=replace(run.steps, training_s=blank(60)))
    assert "pass --training" in groups(Ground(unknown)).refused
    assert saved(groups(Ground(unknown, training_s=12.04))) == pytest.approx(saved(found))


def test_a_call_that_judged_several_groups_holds_them_all_up():
    alone = [{"group": g, "service_s": float(g)} for g in range(4)]
    late = {"group": MISSING, "service_s": 9.0}
    assert saved(groups(Ground(by_hand(*alone, late)))) == pytest.approx(0)
    assert saved(groups(Ground(by_hand(*alone)))) == pytest.approx(3)  # four times 2 s, from the first on
    assert "no call says which group" in groups(Ground(by_hand(late))).refused


def test_smaller_batches_cost_more_and_larger_ones_less_per_completion():
    run = Ground(planted(steps=4_000, rate=0.01, sigma=1e-9))
    waited = {n: barrier.expected_wait(2, 30, barrier.step_hit(0.01, n)) for n in (64, 128, 256)}
    assert saved(half(run)) == pytest.approx(waited[128] - 2 * waited[64], rel=0.05)
    assert saved(double(run)) == pytest.approx(waited[128] - waited[256] / 2, rel=0.05)
    assert "cannot be halved" in half(Ground(planted(batch=8))).refused


def test_a_batch_is_counted_in_completions_whatever_calls_they_take():
    run = planted(steps=40, batch=64)
    both = np.concatenate([np.arange(len(run.calls))] * 2)
    columns = {name: getattr(run.calls, name)[both] for name in Calls.__slots__}
    columns["part"] = (np.arange(len(both)) >= len(run.calls)).astype(int)
    two = Ground(replace(run, calls=Calls(**columns), parts=["one", "other"]))
    assert (two.batch, two.chains) == (64, 128)
    assert double(two).title == "double the batch to 128 (per 64 completions)"
    first = np.arange(0, len(run.calls), 8)  # a reward of whole groups
    columns = {name: getattr(run.calls, name)[first] for name in Calls.__slots__}
    whole = Ground(replace(run, calls=Calls(**columns)))
    assert (whole.batch, whole.chains) == (64, 8)
    assert half(whole).title == "halve the batch to 32 (per 64 completions)"
    assert Ground(by_hand({"service_s": 1.0}, {"service_s": 2.0})).batch == 2  # no row is told


def test_joined_steps_have_the_jackknife_of_all_pairs():
    run = planted(steps=35, rate=0.01)
    waited = run.steps.exposed_s

    def joined(values):
        pairs = np.minimum.outer(values, values)
        return pairs[~np.eye(len(values), dtype=bool)].mean() / 2

    found = double(Ground(run)).saves
    without = np.array([joined(np.delete(waited, one)) for one in range(35)])
    error = (34 / 35 * ((without - without.mean()) ** 2).sum()) ** 0.5
    assert found.value == pytest.approx(joined(waited))
    assert found.high - found.value == pytest.approx(2.0322 * error, rel=1e-3)


# --- places ------------------------------------------------------------------------------------------


def queued(places, count=24, steps=40):
    """A run of calls of 1 to 3 s, all ready at once, served by so many places."""
    rng, rows = np.random.default_rng(0), []
    for step in range(steps):
        service = rng.uniform(1, 3, count)
        began = served(np.zeros(count), service, places) - service
        rows += [
            {
                "step": step,
                "row": step * count + i,
                "group": step,
                "service_s": s,
                "began_s": 5 + b,
                "queued_s": b,
            }
            for i, (s, b) in enumerate(zip(service, began, strict=True))
        ]
    return by_hand(*rows)


def test_twice_the_places_save_the_queue_and_nothing_else():
    few, many = queued(4), queued(24)
    found = workers(Ground(few))
    assert found.title == "serve twice as many calls at once: 8 instead of 4"
    assert saved(found) == pytest.approx((waits(few).wait_s - waits(queued(8)).wait_s).mean())
    assert saved(found) < waits(few).queue_s.mean()
    assert saved(workers(Ground(many))) == 0
    assert "pass --places" in workers(Ground(planted())).refused
    assert saved(workers(Ground(planted(), places=16))) > 0
    assert "$0.80 per hour more" in workers(Ground(few, sandbox_dollars_per_hour=0.2)).costs


def test_places_that_are_told_are_not_those_that_were_seen():
    ground = Ground(queued(4), places=64)
    assert (ground.seats, ground.seen_in_flight) == (64, 4)
    assert Ground(planted(), places=64).seen_in_flight is None
    for places in (0, -3):
        with pytest.raises(RefusedError, match="--places: must be 1 or more"):
            price_observed(planted(), places=places)


def test_of_a_long_run_some_steps_are_served_again_and_the_remedy_says_how_many():
    found = workers(Ground(planted(steps=4_000, batch=128), places=16))
    assert "1,562 of 4,000 steps" in found.rests_on
    assert found.saves.basis.startswith("n = 1,562 steps (199,936 calls)")


def test_a_warm_pool_spares_what_was_spawned():
    rows = [
        {"step": s, "row": 2 * s + r, "service_s": 3.0 + r, "spawn_s": 0.5} for s in range(40) for r in (0, 1)
    ]
    found = pool(Ground(by_hand(*rows), places=128, sandbox_dollars_per_hour=0.1))
    assert saved(found) == pytest.approx(0.5)
    assert found.costs == "128 places held all the time, $12.80 per hour"
    assert "spawn was not measured" in pool(Ground(planted())).refused


# --- all of them -------------------------------------------------------------------------------------


def test_remedies_are_sorted_by_what_they_save_on_this_run():
    hangs = remedies(planted(rate=0.01))
    slow = remedies(planted(rate=0.0, median_s=9, sigma=0.02), places=64)
    for found in (hangs, slow):
        assert {one.name for one in found} == NAMES
        known = [one.saves.value for one in found if one.saves]
        assert known == sorted(known, reverse=True)
        assert [bool(one.saves) for one in found] == [True] * len(known) + [False] * (len(found) - len(known))
        assert all(one.saves or one.refused or one.name == "unscored" for one in found)
        assert all(one.costs and one.rests_on for one in found if one.saves)
    assert hangs[0].name == "timeout"
    assert slow[0].name == "workers"
    rank = [[one.name for one in found] for found in (hangs, slow)]
    assert rank[0].index("groups") < rank[0].index("workers")
    assert rank[1].index("groups") > rank[1].index("workers")


def test_what_was_asked_for_is_not_listed_twice():
    run = planted(rate=0.05)
    found = price_observed(run, timeout_s=5, rate=Ground(run).rate / 2).remedies
    titles = [one.title for one in found]
    assert titles.count("lower the timeout from 30 s to 5 s") == 1
    assert len(set(titles)) == len(titles)
    assert len(titles) == len(price_observed(run).remedies)


def test_what_generation_covers_costs_nothing_and_sparing_it_saves_nothing():
    run = planted(steps=40, rate=0.01)
    covered = replace(run, steps=replace(run.steps, exposed_s=np.maximum(run.steps.exposed_s - 10, 0)))
    for find in (lambda on: lower_timeout(on, 5), groups, half, double):
        assert saved(find(Ground(covered))) <= covered.steps.exposed_s.mean() + 1e-9
    truncated = np.minimum(run.calls.service_s, 5).reshape(40, 128).max(axis=1)
    left = np.maximum(truncated - 10, 0)
    assert saved(lower_timeout(covered, 5)) == pytest.approx((covered.steps.exposed_s - left).mean())
    hidden = replace(run, steps=replace(run.steps, exposed_s=np.zeros(40)))
    assert max(one.saves.value for one in remedies(hidden) if one.saves) == pytest.approx(0)


def test_a_saving_is_told_in_dollars_where_a_price_is_known():
    run = planted(rate=0.01)
    found = remedies(run, dollars_per_hour=3.6)[0]
    assert found.dollars.unit == "$ per 1,000 steps"
    assert found.dollars.value == pytest.approx(found.saves.value)  # 3.6 $/h is a dollar per 1,000 seconds
    assert found.dollars.high == pytest.approx(found.saves.high)
    assert remedies(run)[0].dollars is None
    both = remedies(run, dollars_per_hour=3.6, sandbox_dollars_per_hour=0.036, places=100)[0]
    assert both.dollars.value == pytest.approx(2 * found.saves.value)
    for wrong in ({"dollars_per_hour": -1}, {"training_s": float("nan")}, {"places": 0}):
        with pytest.raises(RefusedError, match="must be"):
            remedies(run, **wrong)


def test_below_thirty_steps_there_is_no_interval_and_the_reason_is_given():
    for one in remedies(planted(steps=29, rate=0.01)):
        if one.saves:
            assert one.saves.low is None
            assert one.saves.high is None
            assert one.saves.basis == "n = 29 steps (3,712 calls); an interval needs 30 steps"
    found = lower_timeout(planted(steps=30, rate=0.01), 5).saves
    assert found.low < found.value < found.high
    assert found.basis == "n = 30 steps (3,840 calls)"


def test_busy_time_is_as_measured_else_as_told_else_not_known():
    run = planted(rate=0.01)
    bare = replace(
        run,
        steps=replace(run.steps, **{name: blank(40) for name in ("generation_s", "training_s", "wall_s")}),
    )
    assert remedies(bare)[0].after is None
    told = remedies(bare, generation_s=12.47, training_s=12.04)[0]
    assert told.after.value == pytest.approx(remedies(run)[0].after.value, abs=0.01)


def test_a_corrupted_group_is_cured_without_a_second_saved():
    found = {one.name: one for one in remedies(planted(rate=0.02))}["unscored"]
    assert found.saves is None
    assert found.refused is None
    assert "have a corrupted advantage, then none" in found.title
    assert "votes per group" in found.costs
    clean = {one.name: one for one in remedies(planted())}["unscored"]
    assert "nothing is to be left out" in clean.refused


ODD = {
    "one step, one call": planted(steps=1, batch=1, group=1),
    "one call that was cut": planted(steps=1, batch=1, group=1, rate=1.0),
    "two steps": planted(steps=2, batch=8),
    "no hit": planted(),
    "every call hit": planted(rate=1.0),
    "half of the calls hit": planted(rate=0.5, steps=31, batch=16),
    "unknown groups": replace(
        planted(rate=0.1), calls=replace(planted(rate=0.1).calls, group=np.full(5_120, MISSING))
    ),
    "unknown rollouts": replace(
        planted(rate=0.1), calls=replace(planted(rate=0.1).calls, row=np.full(5_120, MISSING))
    ),
    "no clock at all": replace(
        planted(rate=0.1), calls=replace(planted(rate=0.1).calls, service_s=blank(5_120))
    ),
    "clocks of every other call": replace(
        planted(rate=0.1),
        calls=replace(
            planted(rate=0.1).calls,
            service_s=np.where(np.arange(5_120) % 2, planted(rate=0.1).calls.service_s, np.nan),
            began_s=np.where(np.arange(5_120) % 3, 1.0, np.nan),
            queued_s=np.where(np.arange(5_120) % 5, 0.5, np.nan),
            spawn_s=np.where(np.arange(5_120) % 7, 0.5, np.nan),
            cpu_s=np.where(np.arange(5_120) % 11, 0.5, np.nan),
        ),
    ),
    "nothing passes": planted(rate=0.1, pass_rate=0.0),
    "several parts": replace(
        planted(rate=0.1),
        parts=["a", "b", "c"],
        calls=replace(planted(rate=0.1).calls, part=np.arange(5_120) % 3, row=np.arange(5_120) // 3),
    ),
    "retries": replace(planted(rate=0.1), calls=replace(planted(rate=0.1).calls, row=np.arange(5_120) // 2)),
    "instantaneous": replace(planted(), calls=replace(planted().calls, service_s=np.zeros(5_120))),
    "no call": by_hand(steps=3),
}


@pytest.mark.parametrize("run", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize(
    "told", [{}, {"training_s": 5.0, "places": 4, "dollars_per_hour": 1.0}], ids=["", "told"]
)
def test_nothing_odd_about_a_run_breaks_a_remedy(run, told):
    found = remedies(run, **told)
    assert {one.name for one in found} == NAMES
    for one in found:
        assert (one.saves is None) == (one.refused is not None or one.name == "unscored")
        if one.saves:
            assert np.isfinite(one.saves.value)
            assert one.saves.low is None or one.saves.low <= one.saves.value <= one.saves.high
        assert "nan" not in f"{one.title} {one.costs} {one.rests_on} {one.refused}".replace("finance", "")


@pytest.mark.slow
def test_intervals_of_savings_cover_the_truth_in_about_19_of_20_runs():
    asked = {"rate": 0.006, "rho": 0.2, "contention": 0.3}
    finds = {
        "timeout": lambda on: lower_timeout(on, 8),
        "tail": tail,
        "groups": groups,
        "half": half,
        "double": double,
        "workers": workers,
    }
    long = Ground(planted(steps=20_000, seed=10_000, **asked), places=32)
    truth = {name: find(long).saves.value for name, find in finds.items()}
    covered = dict.fromkeys(finds, 0)
    for seed in range(300):
        run = Ground(planted(steps=40, seed=seed, **asked), places=32)
        for name, find in finds.items():
            saves = find(run).saves
            covered[name] += saves.low <= truth[name] <= saves.high
    assert all(0.90 < count / 300 < 0.995 for count in covered.values()), covered
