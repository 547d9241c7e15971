"""Zeros that look like failures: planted ones are counted exactly, clean runs are left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted import planted
from steelyard.pricing.observed import ABSTAINED, UNSCORED
from steelyard.pricing.price import price_observed
from steelyard.pricing.suspicious import at_limit, find_limit, marked, of_observed, suspicious


def clean(seed, *, rows=2_000, group=8, sigma=0.5, right=0.5, digits=None, correlated=False):
    """Rewards and times that have nothing to do with one another, or wrong answers that take longer."""
    rng = np.random.default_rng(seed)
    value = (rng.random(rows) < right).astype(float)
    times = rng.lognormal(0.7, sigma, rows) * (1 + correlated * (1 - value) * rng.random(rows))
    number = np.arange(rows) // group
    return {
        "value": value,
        "service_s": times if digits is None else np.round(times, digits),
        "step": number // 8,
        "group": number,
        "timeout": np.zeros(rows, bool),
        "error": np.zeros(rows, bool),
        "parts": {"code": value},
    }


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=80, deadline=None)
@given(
    seed=seeds,
    right=st.floats(0.02, 0.98),
    sigma=st.floats(0.01, 1.5),
    digits=st.sampled_from([None, 0, 1, 3]),
    correlated=st.booleans(),
)
def test_a_clean_run_raises_no_suspicion(seed, right, sigma, digits, correlated):
    run = clean(seed, right=right, sigma=sigma, digits=digits, correlated=correlated)
    assert suspicious(**run) == []


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    limit=st.sampled_from([4.0, 8.0, 30.0, 600.0]),
    share=st.floats(0.02, 0.3),
    late=st.sampled_from([0.0, 1e-4, 3e-3]),
    strays=st.integers(0, 2),
)
def test_zeros_at_a_limit_that_nobody_told_are_found_and_counted(seed, limit, share, late, strays):
    rng = np.random.default_rng(seed)
    run = clean(seed, sigma=0.2)
    cut = (rng.random(2_000) < share) | (run["service_s"] >= 0.95 * limit)
    run["value"][cut] = 0.0
    run["service_s"][cut] = limit * (1 + late * rng.random(cut.sum()))
    run["service_s"][np.flatnonzero(cut)[:strays]] = limit * 1.7  # a kill that hung
    zeros = int((run["value"] == 0).sum())
    found = {one.kind: one for one in suspicious(**run)}
    assert found.keys() == {"timeout"}
    assert (found["timeout"].seen, found["timeout"].of) == (int(cut.sum()), zeros)
    assert find_limit(run["value"], run["service_s"]) == pytest.approx(limit, rel=late or 1e-12)


def test_the_sentence_counts():
    run = clean(1, rows=800)
    run["value"][:] = 1.0
    run["value"][:412] = 0.0
    run["service_s"][:] = np.minimum(run["service_s"], 20.0)
    run["service_s"][:37] = 30.0
    found = suspicious(run["value"], service_s=run["service_s"], limit_s=30.0)
    assert [one.says for one in found] == ["37 of these 412 zeros sit at the timeout (30 s)."]


def test_a_limit_of_its_own_for_each_row_counts():
    value = np.zeros(6)
    limits = np.array([10.0, 10.0, 20.0, 20.0, np.nan, 20.0])
    found = suspicious(value, service_s=np.array([10.0, 9.0, 20.1, 15.0, 99.0, np.nan]), limit_s=limits)
    assert [(one.kind, one.seen, one.of) for one in found] == [("timeout", 2, 6)]
    assert not at_limit(np.array([np.nan]), 1.0).any()


def test_right_answers_at_the_limit_mean_that_it_is_none():
    run = clean(2)
    run["service_s"][:200] = 30.0
    assert find_limit(run["value"], run["service_s"]) is None


def test_a_pile_of_zeros_is_no_limit_where_nearly_everything_is_zero():
    run = clean(4, right=0.01)
    slow = np.flatnonzero(run["value"] == 0)[:30]
    run["service_s"][slow] = 30.0
    assert find_limit(run["value"], run["service_s"]) is None


def test_wrong_answers_just_below_a_limit_are_not_counted_with_those_at_it():
    run = clean(5, sigma=0.2)
    wrong = np.flatnonzero(run["value"] == 0)
    run["service_s"][wrong[:60]] = 30.0 + 0.01 * np.random.default_rng(5).random(60)
    run["service_s"][wrong[60:62]] = 29.8, 29.9
    found = suspicious(run["value"], service_s=run["service_s"])
    assert [(one.kind, one.seen) for one in found] == [("timeout", 60)]


@settings(max_examples=40, deadline=None)
@given(seed=seeds, timeouts=st.integers(0, 40), errors=st.integers(0, 40))
def test_flags_and_errors_of_zeros_are_counted_and_those_of_numbers_are_not(seed, timeouts, errors):
    run = clean(seed)
    zeros, ones = np.flatnonzero(run["value"] == 0), np.flatnonzero(run["value"] == 1)
    run["timeout"][zeros[:timeouts]] = True
    run["error"][zeros[-errors:] if errors else []] = True
    run["timeout"][ones[:5]] = run["error"][ones[:5]] = True
    expected = [(kind, n, len(zeros)) for kind, n in (("flagged", timeouts), ("error", errors)) if n]
    assert [(one.kind, one.seen, one.of) for one in suspicious(**run)] == expected


@settings(max_examples=40, deadline=None)
@given(seed=seeds, at=st.integers(3, 28), long=st.integers(1, 3))
def test_steps_in_which_no_group_got_anything_are_counted(seed, at, long):
    run = clean(seed)
    lost = (run["step"] >= at) & (run["step"] < at + long)
    run["value"][lost] = 0.0
    found = suspicious(**run)
    assert [(one.kind, one.seen) for one in found] == [("step", int(lost.sum()))]
    assert ("1 step " if long == 1 else f"{long} steps ") in found[0].says


def test_hard_prompts_and_the_start_of_training_are_no_outage():
    run = clean(3, right=0.05)
    run["value"][run["step"] < 5] = 0.0  # nothing was right yet
    assert suspicious(run["value"], step=run["step"], group=run["group"]) == []
    rng = np.random.default_rng(0)
    hard = np.repeat(rng.random(250) < 0.7, 8)  # most groups get nothing, by their prompt
    run["value"][hard] = 0.0
    assert suspicious(run["value"], step=run["step"], group=run["group"]) == []


@settings(max_examples=40, deadline=None)
@given(seed=seeds, lost=st.integers(0, 50))
def test_a_part_that_is_missing_within_a_group_is_counted_and_one_that_does_not_apply_is_not(seed, lost):
    run = clean(seed)
    code, form = run["value"].copy(), np.ones(2_000)
    code[run["group"] % 3 == 0] = np.nan  # no code is asked for there
    asked = np.flatnonzero(np.isfinite(code) & (np.arange(2_000) % 8 < 4))
    code[np.random.default_rng(seed).permutation(asked)[:lost]] = np.nan
    value = np.nan_to_num(code) + form
    found = suspicious(value, group=run["group"], parts={"code": code, "form": form})
    assert [(one.kind, one.seen, one.of) for one in found] == ([("part", lost, 2_000)] if lost else [])


def test_planted_runs_are_recovered_and_those_that_leave_failures_unscored_are_clean():
    run = planted(rate=0.02, zeroed=True)
    cut = int(run.calls.censored.sum())
    found = suspicious(
        run.rows.value, step=run.rows.step, group=run.rows.group, service_s=run.calls.service_s
    )
    assert [(one.kind, one.seen) for one in found] == [("timeout", cut)]
    run = planted(rate=0.02, zeroed=False)
    assert not suspicious(
        run.rows.value, step=run.rows.step, group=run.rows.group, service_s=run.calls.service_s
    )


def test_nothing_and_a_few_are_read():
    empty = np.zeros(0)
    none = np.zeros(0, np.int64)
    assert suspicious(empty, step=none, group=none, service_s=empty, parts={"code": empty}) == []
    assert suspicious(np.zeros(3), service_s=np.full(3, 30.0)) == []
    assert suspicious(np.zeros(1), limit_s=30.0, service_s=np.full(1, 30.0))[0].says.startswith(
        "the only zero sits"
    )


# Runs that say what cut their calls, but not what a reward caught itself


def hiding(*, limit=30.0, late=0.0, rate=0.02, lowest=0.0, **options):
    """A planted run whose reward catches its own timeout: nothing is marked."""
    run = planted(rate=rate, timeout_s=limit, **options)
    cut, calls, rows = run.calls.censored, run.calls, run.rows
    service = calls.service_s * (1 + late * cut * np.random.default_rng(0).random(len(cut)))
    value = np.where(cut, lowest, np.where(rows.value == 1, lowest + 1, lowest))
    hidden = replace(
        run,
        calls=replace(calls, service_s=service, censored=cut & False, cause=0 * calls.cause - 1),
        rows=replace(rows, value=value, failed=cut & False),
        limit_s=None,
        causes=[],
    )
    return hidden, cut


@settings(max_examples=30, deadline=None)
@given(
    seed=seeds,
    rate=st.sampled_from([0.0, 0.01, 0.2]),
    rho=st.sampled_from([0.0, 0.3]),
    contention=st.sampled_from([0.0, 0.4]),
    zeroed=st.booleans(),
    unscored_to=st.sampled_from([0.0, 0.1]),
    pass_rate=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_a_run_that_marks_what_was_cut_raises_no_suspicion(**asked):
    run = planted(steps=8, **asked)
    assert of_observed(replace(run, limit_s=None)) == []


@pytest.mark.parametrize("lowest", [0.0, -1.0, 0.25])
@pytest.mark.parametrize(
    ("limit", "late", "said"),
    [(30.0, 0.0, "30"), (30.0, 5e-3, "30"), (12.34, 0.0, "12.34"), (600, 1e-3, "600")],
)
def test_a_timeout_that_a_reward_caught_itself_is_counted_and_the_next_step_is_said(
    lowest, limit, late, said
):
    run, cut = hiding(limit=limit, late=late, lowest=lowest)
    (found,) = of_observed(run)
    assert (found.kind, found.seen, found.of) == ("timeout", cut.sum(), (run.rows.value == lowest).sum())
    what = "lowest rewards" if lowest else "zeros"
    assert f"{found.seen:,} of these {found.of:,} {what} sit at the timeout" in found.says
    assert found.says.endswith(f": price it with --limit {said} to count them as cut.")
    told = marked(run, float(said))
    assert (told.calls.censored == cut).all()
    assert of_observed(told) == []


def test_a_run_whose_limit_is_told_is_priced_as_one_that_marked_its_timeouts():
    run, cut = hiding()
    told, honest = marked(run, 30.0), planted(rate=0.02)
    assert (told.rows.failed == cut).all()
    assert {told.causes[one] for one in told.calls.cause[cut]} == {"timeout"}
    assert not told.calls.passed[cut].any()
    assert not run.calls.censored.any()
    priced, expected = price_observed(told), price_observed(honest)
    assert priced.rate == expected.rate
    assert priced.corrupted == expected.corrupted
    assert price_observed(run).rate.value == 0


def test_a_right_answer_or_an_abstention_that_took_as_long_was_not_cut():
    run, cut = hiding()
    at = np.flatnonzero(cut)
    value, verdict = run.rows.value.copy(), run.rows.verdict.copy()
    value[at[0]] = 1.0
    value[at[1:3]], verdict[at[1]], verdict[at[2]] = np.nan, ABSTAINED, UNSCORED
    told = marked(replace(run, rows=replace(run.rows, value=value, verdict=verdict)), 30.0)
    assert np.flatnonzero(told.calls.censored).tolist() == at[2:].tolist()
    assert np.flatnonzero(told.rows.failed).tolist() == at[3:].tolist()  # of no value, none failed


def test_a_call_that_is_marked_keeps_its_cause_and_its_judgement():
    run = planted(rate=0.02)
    honest = replace(run, rows=replace(run.rows, failed=run.rows.failed & False))
    told = marked(honest, 30.0)
    assert (told.calls.cause == honest.calls.cause).all()
    assert not told.rows.failed.any()
    assert told.limit_s == 30.0


def test_rows_and_calls_find_each_other_by_number_in_any_order_and_by_the_longest_try():
    run, cut = hiding(steps=10)
    order = np.random.default_rng(1).permutation(len(run.calls))
    kept = np.flatnonzero(np.arange(len(run.rows)) % 7 != 3)  # the others were never judged
    columns = {name: getattr(run.calls, name) for name in run.calls.__slots__}
    short = columns | {"service_s": np.full(len(order), 0.5)}
    calls = {name: np.concatenate([columns[name][order], short[name]]) for name in columns}
    rows = {name: getattr(run.rows, name)[kept] for name in run.rows.__slots__ if name != "row"}
    mixed = replace(run, calls=type(run.calls)(**calls), rows=type(run.rows)(**rows, row=kept))
    (found,) = of_observed(mixed)
    assert (found.kind, found.seen) == ("timeout", cut[kept].sum())
    told = marked(mixed, 30.0)
    assert (told.rows.failed == cut[kept]).all()
    assert told.calls.censored.sum() == cut.sum()  # also those that nobody judged


def test_a_loop_that_tells_no_reward_and_an_empty_run_are_marked_by_time_alone():
    run, cut = hiding(steps=4)
    nothing = replace(
        run.rows, **{name: getattr(run.rows, name)[:0] for name in run.rows.__slots__ if name != "row"}
    )
    told = marked(replace(run, rows=nothing), 30.0)
    assert (told.calls.censored == cut).all()
    assert of_observed(told) == []
    calls = replace(run.calls, **{name: getattr(run.calls, name)[:0] for name in run.calls.__slots__})
    empty = replace(run, rows=nothing, calls=calls)
    assert len(marked(empty, 30.0).calls) == 0
    assert of_observed(empty) == []


def test_an_outage_in_a_run_is_said_and_rollouts_of_no_known_group_are_not_taken_for_one():
    run, _ = hiding(rate=0.0)
    lost = run.rows.step == 20
    out = replace(run, rows=replace(run.rows, value=np.where(lost, 0.0, run.rows.value)))
    assert [(one.kind, one.seen) for one in of_observed(out)] == [("step", int(lost.sum()))]
    nobody = replace(out.rows, group=np.where(lost, -1, out.rows.group))
    assert of_observed(replace(out, rows=nobody)) == []
