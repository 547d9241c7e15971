"""A price of runs whose truth is known: what was planted comes out, and clean runs raise no doubt."""

import dataclasses

import numpy as np
import pytest

from planted import planted
from steelyard.errors import RefusedError
from steelyard.pricing.money import Prices
from steelyard.pricing.observed import MISSING, Observed, Rows, blank
from steelyard.pricing.price import STEPS_DRAWN, price_observed
from steelyard.pricing.values import DoubtKind, Price

BUSY_S = 12.47 + 12.04


def kinds(price: Price) -> list[DoubtKind]:
    return [doubt.kind for doubt in price.doubts]


def within(estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


@pytest.mark.parametrize("seed", range(8))
def test_a_clean_run_raises_no_doubt(seed):
    assert kinds(price_observed(planted(seed=seed))) == []


@pytest.mark.parametrize(
    ("truth", "kind", "number"),
    [
        ({"steps": 12}, DoubtKind.FEW_STEPS, 12),
        ({"steps": 1}, DoubtKind.ONE_BURST, 1),
        ({"rate": 0.02, "rho": 0.4}, DoubtKind.CORRELATED, 0.4),
        ({"drift": 0.06}, DoubtKind.DRIFT, 0.06),
        ({"drift": -0.06}, DoubtKind.DRIFT, -0.06),
        ({"contention": 0.6, "sigma": 0.8}, DoubtKind.CONTENTION, 0.36 / (0.36 + 0.64)),
        ({"rate": 0.03}, DoubtKind.CENSORED_TAIL, 0.03),
        ({"machines": 2}, DoubtKind.MIXED_MACHINES, 2),
        ({"unscored_to": 0.08}, DoubtKind.RISING_UNSCORED, 0.08),
    ],
)
def test_what_was_planted_is_doubted_with_its_number_and_a_remedy(truth, kind, number):
    price = price_observed(planted(seed=3, **truth))
    doubt = next(one for one in price.doubts if one.kind is kind)
    assert doubt.number == pytest.approx(number, rel=0.35)
    assert len(doubt.says) > 30
    assert len(doubt.remedy) > 15


def test_a_falling_share_of_unscored_rows_is_no_doubt():
    assert DoubtKind.RISING_UNSCORED not in kinds(price_observed(planted(unscored_from=0.08)))


def test_a_run_whose_steps_nobody_told_is_one_burst():
    run = dataclasses.replace(planted(steps=1), stepped=False)
    (doubt,) = price_observed(run).doubts
    assert doubt.kind is DoubtKind.ONE_BURST
    assert "column `step`" in doubt.remedy


@pytest.mark.parametrize("rate", [0.004, 0.01, 0.05])
def test_the_planted_rate_the_idle_share_and_the_step_come_out(rate):
    price = price_observed(planted(steps=200, rate=rate, sigma=0.01, seed=1))
    hit = 1 - (1 - rate) ** 128
    wait = 2.05 + (30 - 2.05) * hit  # the longest of 128 near 2 s
    assert within(price.rate, rate)
    assert within(price.hit, hit)
    assert price.step.value == pytest.approx(BUSY_S + wait, rel=0.05)
    assert price.idle.value == pytest.approx(wait / (BUSY_S + wait), rel=0.05)
    assert price.idle_hit.value == pytest.approx(30 / (BUSY_S + 30), abs=0.002)
    assert price.idle.low < price.idle.value < price.idle.high
    assert price.idle.value <= price.idle_hit.value  # a hit step is not the run


def test_three_barriers_stand_beside_each_other_and_differ_where_they_should():
    shared = price_observed(planted(steps=400, sigma=0.8, contention=0.6, seed=2))
    assert shared.observed.value == pytest.approx(17.25, rel=0.06)
    assert shared.independent.value == pytest.approx(24.49, rel=0.06)
    together = price_observed(planted(steps=400, sigma=0.01, rate=0.01, rho=0.5, seed=2))
    assert together.correlation.value == pytest.approx(0.5, abs=0.15)
    assert together.correlated.value == pytest.approx(together.observed.value, rel=0.08)
    assert together.independent.value > 1.4 * together.observed.value


def test_the_interval_of_the_independent_barrier_holds_the_truth():
    held = 0
    for seed in range(60):
        found = price_observed(planted(steps=40, sigma=0.5, seed=seed)).independent
        held += within(found, 7.49)  # integral of 1 - F^128, lognormal of median 2 and sigma 0.5
    assert 50 <= held <= 60


def test_quantiles_beyond_the_cut_are_bounds_and_no_numbers():
    price = price_observed(planted(rate=0.08, seed=1))
    by_share = {one.share: one for one in price.quantiles}
    assert by_share[0.5].estimate.value == pytest.approx(2.05, abs=0.1)
    assert by_share[0.95].estimate is None
    assert by_share[0.95].above_s == 30.0


def test_money_follows_the_seconds():
    price = price_observed(planted(rate=0.01), prices=Prices(3.95))
    assert price.money["per_step"].value == pytest.approx(price.step.value * 3.95 / 3600)
    assert price.money["idle_share"].value == pytest.approx(price.idle.value)
    saving = next(one for one in price.remedies if one.name == "timeout")
    assert saving.dollars.value == pytest.approx(saving.saves.value * 3.95 / 3.6)


def test_busy_time_that_was_not_measured_can_be_told():
    run = planted(rate=0.01)
    unknown = {name: blank(40) for name in ("generation_s", "training_s", "wall_s")}
    bare = dataclasses.replace(run, steps=dataclasses.replace(run.steps, **unknown))
    assert price_observed(bare).step is None
    told = price_observed(bare, busy_s=24.51)
    assert told.step.value == pytest.approx(24.51 + told.wait.value)
    halves = price_observed(bare, generation_s=12.47, training_s=12.04)
    assert halves.step.value == pytest.approx(told.step.value)


def test_failures_that_do_not_vote_corrupt_nothing_and_zeroed_ones_do():
    zeroed = price_observed(planted(steps=200, rate=0.01, seed=5))
    silent = price_observed(planted(steps=200, rate=0.01, zeroed=False, seed=5))
    assert within(zeroed.group_hit, 1 - 0.99**8)
    assert zeroed.corrupted.value == pytest.approx(zeroed.group_hit.value, rel=0.15)
    assert zeroed.sign_changed.value > 0
    assert silent.group_hit.value == zeroed.group_hit.value
    assert silent.corrupted.value == silent.sign_changed.value == 0
    assert silent.zeroed.value == pytest.approx(zeroed.corrupted.value, rel=0.15)
    assert silent.thin.value == 0


def test_what_is_asked_for_stands_among_the_remedies_in_its_place():
    price = price_observed(planted(rate=0.01), timeout_s=12.0, rate=0.002)
    savings = [one.saves.value for one in price.remedies if one.saves is not None]
    assert savings == sorted(savings, reverse=True)
    titles = " ".join(one.title for one in price.remedies)
    assert "to 12 s" in titles
    assert "to 0.20 %" in titles
    longer = price_observed(planted(rate=0.01), timeout_s=60.0)
    refused = [one for one in longer.remedies if one.name == "timeout" and one.refused]
    assert "30" in refused[0].refused


def test_rows_without_any_clock_are_priced_for_their_groups_alone():
    run = planted(rate=0.02)
    calls = dataclasses.replace(run.calls, service_s=blank(len(run.calls)))
    nothing = blank(len(run.steps))
    steps = dataclasses.replace(run.steps, exposed_s=nothing, wall_s=nothing)
    price = price_observed(dataclasses.replace(run, calls=calls, steps=steps))
    assert price.wait is price.rate is price.observed is None
    assert price.corrupted.value > 0
    assert "no second is priced" in price.notes[0]


def test_phases_alone_give_the_wait_and_the_idle_share():
    run = planted(rate=0.02)
    nobody = {field.name: getattr(run.calls, field.name)[:0] for field in dataclasses.fields(run.calls)}
    none = np.zeros(0, np.int64)
    bare = dataclasses.replace(
        run, calls=type(run.calls)(**nobody), rows=Rows(none, none, blank(0), none, np.zeros(0, bool))
    )
    price = price_observed(bare)
    assert price.wait.value == pytest.approx(float(run.steps.exposed_s.mean()))
    assert price.idle.low < price.idle.value < price.idle.high
    assert price.remedies == ()


def test_nothing_at_all_is_refused_with_what_to_record():
    run = planted(steps=1, batch=8)
    nobody = {field.name: getattr(run.calls, field.name)[:0] for field in dataclasses.fields(run.calls)}
    none = np.zeros(0, np.int64)
    empty = Observed(
        "empty.ledger",
        type(run.calls)(**nobody),
        Rows(none, none, blank(0), none, np.zeros(0, bool)),
        dataclasses.replace(run.steps, exposed_s=blank(1)),
        ["a"],
        [],
        stepped=True,
    )
    with pytest.raises(RefusedError, match=r"empty.ledger: .*nothing to price\n.*record the phase"):
        price_observed(empty)


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 1.0},
        {"batch": 8, "group": 8},
        {"batch": 8, "group": 1, "rate": 0.1},
        {"steps": 1, "batch": 1, "group": 1},
        {"median_s": 0.0},
        {"steps": 2, "rate": 0.5},
    ],
)
def test_extreme_runs_are_priced_and_break_nothing(change):
    price = price_observed(planted(**change), prices=Prices(1.0))
    for field in dataclasses.fields(price):
        value = getattr(price, field.name)
        if type(value).__name__ == "Estimate":
            assert np.isfinite(value.value), field.name
            assert value.low is None or value.low <= value.value <= value.high, field.name


def test_groups_that_nobody_knows_are_left_out():
    run = planted(rate=0.02)
    unknown = np.full(len(run.calls), MISSING)
    calls, rows = dataclasses.replace(run.calls, group=unknown), dataclasses.replace(run.rows, group=unknown)
    price = price_observed(dataclasses.replace(run, calls=calls, rows=rows))
    assert price.correlation is price.corrupted is None
    assert price.wait.value > 0


def test_a_long_run_is_drawn_by_an_even_selection_of_its_steps():
    price = price_observed(planted(steps=1_000, batch=16))
    assert len(price.by_step) == STEPS_DRAWN
    assert (price.by_step[0].label, price.by_step[-1].label) == ("0", "999")


def test_a_memory_limit_is_no_timeout():
    run = planted(rate=0.02)
    price = price_observed(dataclasses.replace(run, causes=["memory"]))
    assert price.rate.value == 0
    assert price.causes[0].cause == "memory"


def test_time_that_is_neither_busy_nor_waiting_is_told_apart_and_is_not_lost():
    run = planted(rate=0.01)
    longer = dataclasses.replace(run, steps=dataclasses.replace(run.steps, wall_s=run.steps.wall_s + 3.0))
    plain, found = price_observed(run), price_observed(longer)
    assert plain.other is None
    assert found.other.value == pytest.approx(3.0)
    assert found.step.value == pytest.approx(plain.step.value + 3.0)
    assert found.idle.value == pytest.approx(found.wait.value / found.step.value)
    assert found.remedies[0].after.value == pytest.approx(found.step.value - found.remedies[0].saves.value)


def twice(run, *, part, tries):
    """The same calls again: as another part of the recipe, or as further tries of what was cut."""
    again = np.flatnonzero(run.calls.censored) if tries else np.arange(len(run.calls))
    take = np.concatenate([np.arange(len(run.calls)), again])
    columns = {field.name: getattr(run.calls, field.name)[take] for field in dataclasses.fields(run.calls)}
    if part:
        columns["part"] = np.where(np.arange(len(take)) < len(run.calls), 0, 1)
        columns["service_s"] = np.where(columns["part"] == 1, 0.01, columns["service_s"])
        columns["censored"] = columns["censored"] & (columns["part"] == 0)
    return dataclasses.replace(run, calls=type(run.calls)(**columns), parts=["planted", "another"])


def test_a_batch_is_of_completions_however_many_calls_judge_them():
    run = planted(rate=0.02, rho=0.4, steps=80, seed=4)
    alone, both = price_observed(run, prices=Prices(3.95)), price_observed(
        twice(run, part=True, tries=False), prices=Prices(3.95)
    )  # fmt: skip
    assert alone.batch == both.batch == 128
    assert both.money["per_1000"].value == pytest.approx(alone.money["per_1000"].value)
    assert both.correlation.value == pytest.approx(alone.correlation.value)
    titles = [one.title for one in both.remedies if one.name == "batch"]
    assert any("to 256" in title for title in titles)


def test_tries_of_one_rollout_are_no_correlation():
    run = planted(rate=0.02, steps=80, seed=6)
    price = price_observed(twice(run, part=False, tries=True))
    assert DoubtKind.CORRELATED not in kinds(price)
    assert price.correlation.value < 0.05
    assert price.observed.value == pytest.approx(2 * price_observed(run).observed.value, rel=0.15)


def test_unequal_batches_are_predicted_by_their_own_sizes():
    small, large = (
        planted(steps=60, batch=8, sigma=0.8, seed=1),
        planted(steps=60, batch=512, sigma=0.8, seed=2),
    )
    columns = {}
    for field in dataclasses.fields(small.calls):
        columns[field.name] = np.concatenate([getattr(one.calls, field.name) for one in (small, large)])
    for name, offset in (("step", 60), ("group", 60), ("row", 480)):
        columns[name][len(small.calls) :] += offset
    rows = Rows(
        *(
            np.concatenate([getattr(small.rows, name), getattr(large.rows, name) + shift])
            for name, shift in (
                ("step", 60),
                ("group", 60),
                ("value", 0.0),
                ("verdict", 0),
                ("failed", False),
            )
        )
    )
    nothing = blank(120)
    steps = type(small.steps)(
        [str(i) for i in range(120)], nothing, nothing, nothing, nothing, np.zeros(120, int)
    )
    run = Observed("two sizes", type(small.calls)(**columns), rows, steps, ["a"], ["wall"], stepped=True)
    price = price_observed(run)
    assert price.independent.value == pytest.approx(price.observed.value, rel=0.08)
    assert price.correlated.value == pytest.approx(price.observed.value, rel=0.08)


@pytest.mark.parametrize("cause", ["deadline", "cancelled", "memory", "closed"])
def test_whatever_cuts_a_call_its_time_is_a_lower_bound(cause):
    run = planted(steps=80, median_s=2.0, sigma=0.5, seed=3)
    rng = np.random.default_rng(99)
    until = rng.exponential(6.0, len(run.calls))
    cut = until < run.calls.service_s
    calls = dataclasses.replace(
        run.calls,
        service_s=np.minimum(until, run.calls.service_s),
        censored=cut,
        cause=np.where(cut, 0, MISSING),
    )
    price = price_observed(dataclasses.replace(run, calls=calls, causes=[cause]))
    truth = {one.share: one.estimate.value for one in price_observed(run).quantiles}
    found = {one.share: one.estimate.value for one in price.quantiles if one.estimate is not None}
    assert found[0.5] == pytest.approx(truth[0.5], rel=0.05)
    assert found[0.95] == pytest.approx(truth[0.95], rel=0.08)
    assert (price.rate.value > 0.2) == (cause != "memory")


def test_steps_that_were_judged_side_by_side_wait_for_service_alone():
    run = planted(steps=40, batch=16, seed=2)
    nothing = blank(40)
    bare = dict.fromkeys(("generation_s", "training_s", "exposed_s", "wall_s"), nothing)
    began = np.arange(len(run.calls)) * 0.1  # one after another, all ready at once
    calls = dataclasses.replace(run.calls, began_s=began, queued_s=began.copy())
    steps = dataclasses.replace(run.steps, **bare)
    price = price_observed(dataclasses.replace(run, calls=calls, steps=steps))
    assert price.wait.value == pytest.approx(price.observed.value)
    assert any("side by side" in note for note in price.notes)


def test_a_source_that_cannot_tell_failures_tells_of_no_corrupted_group():
    price = price_observed(dataclasses.replace(planted(rate=0.02), tells_failures=False))
    assert price.corrupted is price.group_hit is price.sign_changed is price.thin is None


@pytest.mark.parametrize(
    ("told", "where"),
    [
        ({"busy_s": 100.0}, "--busy"),
        ({"busy_s": 10.0, "generation_s": 12.0, "training_s": 12.0}, "--busy"),
        ({"generation_s": -1.0}, "--generation"),
    ],
)
def test_busy_time_that_contradicts_is_refused_by_its_option(told, where):
    with pytest.raises(RefusedError, match=where):
        price_observed(planted(), **told)
