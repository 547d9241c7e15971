"""TRL's completions: groups, totals, stale columns and repeated batches."""

import numpy as np
import pytest
from foreign_files import TrlRun, trl_batch

from steelyard.errors import RefusedError
from steelyard.files.foreign import read_foreign, recognise
from steelyard.pricing.observed import ABSTAINED, SCORED, UNSCORED
from steelyard.pricing.price import price_observed

pytestmark = pytest.mark.needs("parquet")


def a_run(folder, *, steps=4, groups=4, group=8, chat=False, seed=0, scale="group"):
    rng = np.random.default_rng(seed)
    run = TrlRun(folder, batch=groups * group, group=group, scale=scale)
    values = []
    for step in range(1, steps + 1):
        prompts, completions, right = trl_batch(rng, step, groups=groups, group=group, chat=chat)
        run.generate(prompts, completions, {"accuracy": right})
        run.log(step)
        values += right
    return values


@pytest.mark.parametrize("chat", [False, True])
def test_a_folder_is_one_run_with_its_steps_groups_and_rewards(tmp_path, chat):
    values = a_run(tmp_path / "completions", chat=chat)
    for path in (tmp_path, tmp_path / "completions"):
        read = read_foreign(path)
        observed = read.observed
        assert (observed.rows.value == values).all()
        assert observed.steps.labels == ["1", "2", "3", "4"]
        assert (observed.rows.step == np.repeat(range(4), 32)).all()
        assert (observed.rows.group == np.repeat(range(16), 8)).all()
        assert (observed.rows.verdict == SCORED).all()
        assert not observed.rows.failed.any()
        assert observed.parts == ["accuracy"]
        assert read.suspicions == []
        assert read.skipped == 0


def test_without_our_columns_no_time_is_invented_and_it_is_said(tmp_path):
    a_run(tmp_path)
    observed = read_foreign(tmp_path).observed
    assert np.isnan(observed.calls.service_s).all()
    assert np.isnan(observed.steps.busy_s).all()
    assert any("no time of the reward" in one for one in observed.lacks)
    assert observed.limit_s is None


def test_our_columns_are_read_and_decide_what_is_a_failure(tmp_path):
    rng = np.random.default_rng(1)
    run = TrlRun(tmp_path, batch=16, group=8)
    prompts, completions, _ = trl_batch(rng, 1, groups=2, group=8)
    value = [1.0] * 8 + [0.0] * 6 + [None, None]
    verdict = ["scored"] * 13 + ["unscored", "unscored", "abstained"]
    service = [*rng.uniform(1, 3, 12), 30.0, 30.0, 0.5, np.nan]
    code = [None] * 12 + ["time", "lost", "sandbox lost", None]
    censored = [False] * 12 + [True, True, False, False]
    run.generate(
        prompts,
        completions,
        {"code": value},
        steelyard__verdict=verdict,
        steelyard__service_s=service,
        steelyard__code=code,
        steelyard__censored=censored,
    )
    run.log(1)
    read = read_foreign(tmp_path, limit_s=30)
    rows, calls = read.observed.rows, read.observed.calls
    assert np.array_equal(calls.service_s, service, equal_nan=True)
    assert (calls.censored == censored).all()
    assert [read.observed.causes[at] for at in calls.cause[calls.censored]] == ["time", "lost"]
    assert (rows.verdict[-2:] == [UNSCORED, ABSTAINED]).all()
    assert np.flatnonzero(rows.failed).tolist() == [13]  # the other was cut by its own doing: a judgement
    counted = [("timeout", 1, 6), ("flagged", 1, 6), ("error", 1, 6)]
    assert [(one.kind, one.seen, one.of) for one in read.suspicions] == counted
    assert read.observed.tells_failures


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_plain_sum_of_several_functions_is_confirmed_by_the_advantages(tmp_path, scale):
    rng = np.random.default_rng(2)
    run = TrlRun(tmp_path, batch=32, group=8, scale=scale)
    prompts, completions, right = trl_batch(rng, 1, groups=4, group=8)
    form = (0.1 * rng.integers(0, 3, 32)).tolist()
    right[3] = None
    run.generate(prompts, completions, {"code": right, "form": form}, tokens=rng.uniform(1, 9, 32).tolist())
    run.log(1)
    read = read_foreign(tmp_path)
    expected = np.nan_to_num(np.array(right, float)) + form
    assert np.allclose(read.observed.rows.value, expected)
    assert any("code + form" in one for one in read.observed.says)
    assert [(one.kind, one.seen) for one in read.suspicions] == [("part", 1)]


def test_other_weights_are_not_guessed_but_taken_when_told(tmp_path):
    rng = np.random.default_rng(3)
    run = TrlRun(tmp_path, batch=32, group=8, weights=[1.0, 0.2])
    prompts, completions, right = trl_batch(rng, 1, groups=4, group=8)
    form = rng.integers(0, 2, 32).astype(float).tolist()
    run.generate(prompts, completions, {"code": right, "form": form})
    run.log(1)
    observed = read_foreign(tmp_path).observed
    assert np.isnan(observed.rows.value).all()
    assert any("total cannot be known" in one for one in observed.lacks)
    assert (observed.rows.verdict == SCORED).all()
    assert not observed.tells_failures
    told = read_foreign(tmp_path, rewards=["code", "form"], weights=[1, 0.2]).observed
    assert np.allclose(told.rows.value, np.array(right) + 0.2 * np.array(form))
    with pytest.raises(RefusedError, match="--weight: 3 weights for 2 reward functions"):
        read_foreign(tmp_path, weights=[1, 1, 1])
    with pytest.raises(RefusedError, match="no column of numbers 'cod'"):
        read_foreign(tmp_path, rewards=["cod"])


@pytest.mark.parametrize("timed", [False, True])
def test_a_folder_of_which_the_total_is_unknown_is_priced_without_its_groups(tmp_path, timed):
    rng = np.random.default_rng(3)
    run = TrlRun(tmp_path, batch=32, group=8, weights=[1.0, 0.2])
    prompts, completions, right = trl_batch(rng, 1, groups=4, group=8)
    form = rng.integers(0, 2, 32).astype(float).tolist()
    right[3] = form[3] = None
    times = {"steelyard__service_s": rng.uniform(1, 2, 32).tolist()} if timed else {}
    run.generate(prompts, completions, {"code": right, "form": form}, **times)
    run.log(1)
    observed = read_foreign(tmp_path).observed
    assert np.flatnonzero(observed.rows.verdict == UNSCORED).tolist() == [3]
    found = price_observed(observed)
    assert (found.group_hit, found.corrupted) == (None, None)
    told = price_observed(read_foreign(tmp_path, rewards=["code", "form"], weights=[1, 0.2]).observed)
    assert told.group_hit.value == 0.25


@pytest.mark.parametrize(
    ("values", "extra", "tells"),
    [
        ([1.0, 0.0], {}, False),
        ([1.0, 0.0], {"steelyard__code": [None, "tests"] * 4}, False),
        ([1.0, None], {}, True),
        ([1.0, 0.0], {"steelyard__verdict": ["scored"] * 8}, True),
        ([1.0, 0.0], {"timeout": [False] * 8}, True),
    ],
)
def test_a_file_that_tells_no_failure_from_a_reward_says_what_to_log(tmp_path, values, extra, tells):
    run = TrlRun(tmp_path, batch=8, group=4)
    run.generate(["a"] * 4 + ["b"] * 4, list("12345678"), {"code": values * 4}, **extra)
    run.log(1)
    observed = read_foreign(tmp_path).observed
    assert observed.tells_failures == tells
    said = "log 'steelyard/verdict' with log_extra, or return None for what could not be judged"
    assert any(said in one for one in observed.lacks) != tells
    assert any("A None may be" in one for one in observed.lacks) == (None in values)
    assert (price_observed(observed).corrupted is not None) == tells


def test_times_and_a_timeout_tell_failures_too(tmp_path):
    run = TrlRun(tmp_path, batch=8, group=4)
    times = [1.0, 30.0, 2.0, 3.0] * 2
    run.generate(
        ["a"] * 4 + ["b"] * 4, list("12345678"), {"code": [1.0, 0.0] * 4}, steelyard__service_s=times
    )
    run.log(1)
    assert not read_foreign(tmp_path).observed.tells_failures
    observed = read_foreign(tmp_path, limit_s=30).observed
    assert observed.tells_failures
    assert np.flatnonzero(observed.rows.failed).tolist() == [1, 5]


def test_a_column_that_was_not_logged_in_a_batch_is_not_believed(tmp_path):
    rng = np.random.default_rng(4)
    run = TrlRun(tmp_path, batch=16, group=8)
    for step in range(1, 5):
        prompts, completions, right = trl_batch(rng, step, groups=2, group=8)
        own = {"steelyard__service_s": rng.uniform(1, 3, 16).tolist(), "steelyard__verdict": ["scored"] * 16}
        run.generate(prompts, completions, {"code": right}, **({} if step in (3, 4) else own))
        run.log(step)
    observed = read_foreign(tmp_path).observed
    known = np.isfinite(observed.calls.service_s).reshape(4, 16)
    assert known.all(axis=1).tolist() == [True, True, False, False]
    assert not known[2:].any()
    assert any("not logged in 2 batches" in one for one in observed.lacks)


def test_a_batch_that_trains_several_steps_is_counted_once(tmp_path):
    rng = np.random.default_rng(5)
    run = TrlRun(tmp_path, batch=16, group=8)
    for step in range(1, 7):
        if step % 2:
            run.generate(
                *trl_batch(rng, step, groups=2, group=8)[:2], {"code": rng.integers(0, 2, 16).tolist()}
            )
        run.log(step)
    observed = read_foreign(tmp_path).observed
    assert len(observed.rows) == 48
    assert observed.steps.labels == ["1", "3", "5"]
    assert any("48 rows stand in more than one file" in one for one in observed.says)


def test_a_deque_that_was_half_replaced_is_counted_once(tmp_path):
    rng = np.random.default_rng(6)
    run = TrlRun(tmp_path, batch=16, group=8)
    run.generate(*trl_batch(rng, 1, groups=2, group=8)[:2], {"code": [1.0, 0.0] * 8})
    run.log(1)
    run.generate(*trl_batch(rng, 2, groups=1, group=8)[:2], {"code": [1.0, 0.0] * 4})
    run.log(2)
    observed = read_foreign(tmp_path).observed
    assert np.bincount(observed.rows.step).tolist() == [16, 8]


def test_neighbouring_groups_of_one_prompt_are_split_and_it_is_said(tmp_path):
    run = TrlRun(tmp_path, batch=16, group=4)
    run.generate(
        ["a"] * 4 + ["b"] * 8 + ["c"] * 4, [f"y{at}" for at in range(16)], {"code": [1.0, 0.0, 0.0, 0.0] * 4}
    )
    run.log(1)
    observed = read_foreign(tmp_path).observed
    assert np.bincount(observed.rows.group).tolist() == [4, 4, 4, 4]
    assert any("1 blocks of equal prompts are longer than 4" in one for one in observed.lacks)
    assert not any("longer" in one for one in read_foreign(tmp_path, group_size=4).observed.lacks)


def test_a_group_size_that_advantages_contradict_is_said(tmp_path):
    rng = np.random.default_rng(7)
    run = TrlRun(tmp_path, batch=64, group=4)
    run.generate(
        ["a"] * 64, [f"y{at}" for at in range(64)], {"code": rng.integers(0, 2, 64).astype(float).tolist()}
    )
    run.log(1)
    assert any("of 4 rather than 64" in one for one in read_foreign(tmp_path).observed.lacks)
    assert len(np.unique(read_foreign(tmp_path, group_size=4).observed.rows.group)) == 16


def test_a_group_size_that_does_not_fit_is_refused_or_skipped(tmp_path):
    a_run(tmp_path, steps=1)
    with pytest.raises(
        RefusedError, match=r"completions_00001.parquet:1: a block of 8 .* no multiple of .* 3"
    ):
        read_foreign(tmp_path, group_size=3)
    assert read_foreign(tmp_path, group_size=3, skip=True).skipped == 1


def test_prompts_in_no_blocks_are_refused(tmp_path):
    run = TrlRun(tmp_path, batch=7, group=7)
    run.generate(["a"] * 4 + ["b"] * 3, list("1234567"), {"code": [1.0] * 7})
    run.log(1)
    with pytest.raises(RefusedError, match="no size of groups divides them"):
        read_foreign(tmp_path)


def test_a_file_that_is_not_whole_is_named_or_skipped(tmp_path):
    a_run(tmp_path, steps=2)
    path = tmp_path / "completions_00002.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RefusedError, match=r"completions_00002.parquet: not a whole Parquet file"):
        read_foreign(tmp_path)
    read = read_foreign(tmp_path, skip=True)
    assert (len(read.observed.rows), read.skipped) == (32, 1)


def test_an_infinite_reward_is_named_with_its_row(tmp_path):
    run = TrlRun(tmp_path, batch=4, group=4)
    run.generate(["a"] * 4, list("1234"), {"code": [1.0, 0.0, 1.0, 0.0]})
    run.rewards["code"][2] = float("inf")
    run.log(1)
    with pytest.raises(RefusedError, match=r"completions_00001.parquet:3: column 'code' must be finite"):
        read_foreign(tmp_path)


def test_parquet_of_somebody_else_is_refused_with_its_columns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"question": ["a"], "answer": ["b"]}), tmp_path / "completions_00001.parquet")
    with pytest.raises(RefusedError, match="Parquet with the columns question, answer"):
        recognise(tmp_path)


def test_numbers_of_rows_show_stale_columns_that_times_cannot(tmp_path):
    rng = np.random.default_rng(8)
    run = TrlRun(tmp_path, batch=16, group=8)
    for step in (1, 2):
        own = {
            "steelyard__row": [f"{step}.{at}" for at in range(16)],
            "steelyard__verdict": ["unscored"] * 16,
            "steelyard__service_s": [1.0] * 16,
        }
        prompts, completions, right = trl_batch(rng, step, groups=2, group=8)
        run.generate(prompts, completions, {"code": right}, **(own if step == 1 else {}))
        run.log(step)
    rows = read_foreign(tmp_path).observed.rows
    assert (rows.failed == np.repeat([True, False], 16)).all()


def test_marks_that_repeat_are_stale_and_those_that_do_not_are_believed(tmp_path):
    rng = np.random.default_rng(9)
    run = TrlRun(tmp_path, batch=16, group=8)
    marks = {1: [True, True] + [False] * 14, 2: [False, True, True] + [False] * 13, 3: None}
    for step, its in marks.items():
        prompts, completions, _ = trl_batch(rng, step, groups=2, group=8)
        run.generate(
            prompts, completions, {"code": [0.0] * 4 + [1.0] * 12}, **({"timeout": its} if its else {})
        )
        run.log(step)
    read = read_foreign(tmp_path)
    assert read.observed.rows.failed.sum() == 4
    assert any("'timeout' was not logged in 1 batches" in one for one in read.observed.lacks)


def test_a_file_without_rows_is_a_run_without_rows(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"step": pa.int64(), "prompt": pa.string(), "completion": pa.string(), "code": pa.float64()}
    schema = pa.schema({**columns, "advantage": pa.float64()})
    pq.write_table(schema.empty_table(), tmp_path / "completions_00001.parquet")
    assert len(read_foreign(tmp_path).observed.rows) == 0
