"""verl and verifiers: what their lines say, what they do not, and lines that cannot be read."""

import copy
import gzip
import json
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from foreign_files import FAILED, episode, result_row, verl_rows, write_lines

from steelyard.errors import RefusedError
from steelyard.files.foreign import read_foreign, recognise, table
from steelyard.files.foreign.read import Faults
from steelyard.pricing.observed import SCORED, UNSCORED
from steelyard.pricing.price import price_observed

# verl


@pytest.mark.parametrize("uid", [False, True])
def test_verl_groups_by_sample_wherever_its_rows_stand(tmp_path, uid):
    rng = np.random.default_rng(0)
    rows = {step: verl_rows(rng, step, samples=4, group=8, uid=uid) for step in range(1, 13)}
    for step, its in rows.items():
        write_lines(tmp_path / f"{step}.jsonl", its)
    read = read_foreign(tmp_path)
    observed = read.observed
    assert list(observed.steps.labels) == [str(step) for step in range(1, 13)]
    assert np.bincount(observed.rows.group).tolist() == [8] * 48
    for step, its in rows.items():
        by_sample = Counter()
        for row in its:
            by_sample[row["input"]] += row["score"]
        mine = observed.rows.step == step - 1
        sums = np.bincount(observed.rows.group[mine], weights=observed.rows.value[mine])
        assert sorted(sums[-4:]) == sorted(by_sample.values())
    assert np.isnan(observed.calls.service_s).all()
    assert any("verl records no time" in one for one in observed.lacks)
    assert read.suspicions == []


def test_verl_says_which_zeros_were_marked_as_failures(tmp_path):
    rng = np.random.default_rng(1)
    timeout, error = (
        [at % 16 == 0 for at in range(64)],
        ["" if at % 32 != 1 else "Traceback" for at in range(64)],
    )
    rows = verl_rows(rng, 1, samples=8, group=8, timeout=timeout, error=error)
    for row in rows:
        if row["timeout"] or row["error"]:
            row["score"] = 0.0
    read = read_foreign(write_lines(tmp_path / "1.jsonl", rows))
    assert [(one.kind, one.seen) for one in read.suspicions] == [("flagged", 4), ("error", 2)]
    assert read.observed.rows.failed.sum() == 6
    assert read.observed.causes == ["wall"]
    assert read.observed.calls.censored.sum() == 4
    assert {read.observed.causes[at] for at in read.observed.calls.cause[read.observed.calls.censored]} == {
        "wall"
    }


def test_verl_reads_what_numpy_became_on_the_way(tmp_path):
    row = verl_rows(np.random.default_rng(2), 1, samples=1, group=1)[0]
    path = tmp_path / "1.jsonl"
    path.write_text(
        "".join(
            json.dumps({**row, "score": score, "timeout": timeout}) + "\n"
            for score, timeout in [("0.5", "False"), (float("nan"), "True"), (0.0, "True")]
        )
    )
    observed = read_foreign(path).observed
    assert np.array_equal(observed.rows.value, [0.5, np.nan, 0.0], equal_nan=True)
    assert observed.rows.verdict.tolist() == [SCORED, UNSCORED, SCORED]
    assert observed.rows.failed.tolist() == [False, False, True]


def test_verl_finds_the_timeout_that_our_times_show(tmp_path):
    rng = np.random.default_rng(3)
    times = rng.lognormal(0.7, 0.3, 512)
    times[::16] = 30.0
    rows = verl_rows(rng, 1, samples=64, group=8, **{"steelyard/service_s": times.tolist()})
    for row in rows:
        if row["steelyard/service_s"] == 30.0:
            row["score"] = 0.0
    zeros = sum(row["score"] == 0 for row in rows)
    read = read_foreign(write_lines(tmp_path / "1.jsonl", rows))
    assert read.observed.limit_s == 30.0
    assert read.observed.calls.censored.sum() == 32
    assert read.observed.rows.failed.sum() == 32
    assert [one.says for one in read.suspicions] == [f"32 of these {zeros} zeros sit at the timeout (30 s)."]


def test_verl_keeps_a_number_that_was_trained_on_though_ours_said_unscored(tmp_path):
    rows = verl_rows(np.random.default_rng(4), 1, samples=1, group=4)
    for at, row in enumerate(rows):
        row.update({"score": 1.0 if at else 0.0, "steelyard/verdict": "unscored" if at < 2 else "scored"})
    path = tmp_path / "1.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_foreign(path)
    assert read.observed.rows.verdict.tolist() == [SCORED] * 4
    assert read.observed.rows.failed.tolist() == [True, True, False, False]
    assert [(one.kind, one.seen, one.of) for one in read.suspicions] == [("error", 1, 1)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": "high"}, "'score' must be a finite number, null or absent, this is 'high'"),
        ({"score": [1]}, "'score' must be a finite number"),
        ({"step": "one"}, "'step' must be an integer, this is 'one'"),
        ({"steelyard/verdict": "maybe"}, "must be scored, abstained, unscored, this is 'maybe'"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_or_counted(tmp_path, change, said):
    rows = verl_rows(np.random.default_rng(5), 1, samples=2, group=2)
    rows[2].update(change)
    path = write_lines(tmp_path / "1.jsonl", rows)
    with pytest.raises(RefusedError) as refused:
        read_foreign(path)
    assert f"{path}:3: " in str(refused.value)
    assert said in str(refused.value)
    assert str(refused.value).endswith("or leave such rows out with --skip")
    read = read_foreign(path, skip=True)
    assert (len(read.observed.rows), read.skipped) == (3, 1)
    assert any("1 rows are left out" in one for one in read.observed.lacks)


def test_a_line_in_the_middle_that_is_no_json_is_named(tmp_path):
    path = write_lines(tmp_path / "1.jsonl", verl_rows(np.random.default_rng(6), 1, samples=1, group=2))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], lines[1]]) + "\n")
    with pytest.raises(RefusedError, match=r"1\.jsonl:2: not JSON"):
        read_foreign(path)
    assert read_foreign(path, skip=True).skipped == 1


def test_gzip_is_read_and_a_cut_one_is_named(tmp_path):
    path = write_lines(tmp_path / "1.jsonl", verl_rows(np.random.default_rng(7), 1, samples=8, group=4))
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_foreign(packed).observed.rows) == 32
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(RefusedError, match="not a whole gzip file"):
        read_foreign(packed)


def test_verl_scores_no_row_that_has_no_number_whatever_its_verdict_says(tmp_path):
    rows = verl_rows(np.random.default_rng(8), 1, samples=2, group=4)
    for row in rows:
        row["steelyard/verdict"] = "scored"
    rows[3]["score"] = float("nan")
    observed = read_foreign(write_lines(tmp_path / "1.jsonl", rows)).observed
    assert observed.rows.verdict.tolist() == [
        UNSCORED if np.isnan(value) else SCORED for value in observed.rows.value
    ]
    assert price_observed(observed).group_hit.value == 0.5


@pytest.mark.parametrize(
    ("change", "tells"),
    [
        ({}, False),
        ({"acc": 1.0, "steelyard/code": None}, False),
        ({"timeout": False}, True),
        ({"error": ""}, True),
        ({"steelyard/verdict": "scored"}, True),
        ({"score": float("nan")}, True),
    ],
)
@pytest.mark.parametrize("uid", [False, True])
def test_verl_tells_failures_where_the_reward_marked_them_and_else_says_what_to_return(
    tmp_path, change, tells, uid
):
    rows = verl_rows(np.random.default_rng(9), 1, samples=4, group=4, uid=uid)
    for row in rows[:1] if "score" in change else rows:
        row.update(change)
    observed = read_foreign(write_lines(tmp_path / "1.jsonl", rows)).observed
    assert observed.tells_failures == tells
    assert any("return 'timeout' and 'error'" in one for one in observed.lacks) != tells
    assert (price_observed(observed).corrupted is not None) == tells


def test_verl_counts_a_cut_zero_as_a_failure_unless_ours_says_that_it_was_judged(tmp_path):
    rows = verl_rows(np.random.default_rng(10), 1, samples=1, group=8)
    for at, row in enumerate(rows):
        row.update(score=float(at > 3), timeout=at < 2, error="E" * (at == 2))
        row["steelyard/verdict"] = ["scored", None][at % 2]
    read = read_foreign(write_lines(tmp_path / "1.jsonl", rows))
    assert read.observed.rows.failed.tolist() == [False, True] + [False] * 6
    assert read.observed.calls.censored.tolist() == [True, True] + [False] * 6
    assert [(one.kind, one.seen) for one in read.suspicions] == [("flagged", 1)]


def test_what_a_reader_gathered_is_not_changed_by_making_a_run_of_it():
    gathered = table.Gathered()
    rng = np.random.default_rng(11)
    for at in range(400):
        cut, nothing = at % 10 == 0, at % 10 == 1
        gathered.add(
            step=1 - at // 200,
            group=at // 8,
            value=np.nan if nothing else float(not cut and at % 2),
            service_s=30.0 if cut or nothing else rng.uniform(1, 2),
        )
    columns, about = gathered.columns(), table.About("by hand", list(gathered.labels))
    before = copy.deepcopy((columns, about))
    first = table.read(columns, about, Faults(skip=False)).observed
    for one in fields(columns):
        if one.name != "parts":
            np.testing.assert_array_equal(getattr(columns, one.name), getattr(before[0], one.name))
    assert about == before[1]
    assert first.calls.censored.sum() == 80
    assert len(first.says) == 1
    assert table.read(columns, about, Faults(skip=False)).observed.says == first.says


# verifiers, results.jsonl


def results(folder, rows, **metadata):
    write_lines(folder / "results.jsonl", rows)
    described = {"env_id": "gsm8k", "model": "m", "num_examples": 4, "rollouts_per_example": 8, **metadata}
    (folder / "metadata.json").write_text(json.dumps(described))
    return folder


def test_results_have_the_time_of_scoring_and_errors(tmp_path):
    rng = np.random.default_rng(0)
    times = rng.uniform(1, 3, 32)
    rows = [
        result_row(at // 8, float(at % 2), start=1.7e9 + at, scoring=(10.0, 10.0 + times[at]))
        for at in range(32)
    ]
    rows[4] = result_row(0, 0.0, start=1.7e9 + 4, scoring=(10.0, 10.0 + times[4]), error=FAILED)
    for path in (folder := results(tmp_path, rows), folder / "results.jsonl"):
        read = read_foreign(path)
        observed = read.observed
        assert np.allclose(observed.calls.service_s, times, atol=1e-5)
        assert np.allclose(observed.calls.began_s, np.arange(32) + 9.5, atol=1e-5)
        assert np.allclose(observed.steps.generation_s, 40.5, atol=1e-5)  # of 32 that overlap, 1 s apart
        assert np.isnan(observed.steps.training_s).all()
        assert not observed.stepped
        assert np.bincount(observed.rows.group).tolist() == [8] * 4
        assert np.flatnonzero(observed.rows.failed).tolist() == [4]
        assert [(one.kind, one.seen, one.of) for one in read.suspicions] == [("error", 1, 16)]
        assert "gsm8k" in observed.source
        assert observed.tells_failures


def test_results_of_a_group_that_was_judged_at_once_are_one_call(tmp_path):
    rows = [result_row(at // 8, 1.0, scoring=(10.0, 14.0 + at // 8)) for at in range(32)]
    observed = read_foreign(results(tmp_path, rows)).observed
    assert len(observed.rows) == 32
    assert observed.calls.row.tolist() == [0, 8, 16, 24]
    assert np.allclose(observed.calls.service_s, [4, 5, 6, 7], atol=1e-5)


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    rows = [result_row(at // 8, 1.0, scoring=(10.0, 12.0 + at)) for at in range(31)]
    folder = results(tmp_path, rows)
    with (folder / "results.jsonl").open("a") as file:
        file.write(json.dumps(rows[0])[:100])
    read = read_foreign(folder)
    assert (len(read.observed.rows), read.skipped) == (31, 1)
    assert any("results.jsonl:32" in one and "torn" in one for one in read.observed.lacks)
    assert any("31 of the 32 rollouts" in one for one in read.observed.lacks)


def test_results_that_nobody_scored_or_timed_have_no_number(tmp_path):
    row = result_row(0, None)
    row["timing"]["scoring"] = {"start": 0.0, "end": 0.0, "duration": 0.0}
    observed = read_foreign(results(tmp_path, [row, result_row(0, 1.0)])).observed
    assert observed.rows.verdict.tolist() == [UNSCORED, SCORED]
    assert np.isnan(observed.calls.service_s).tolist() == [True, False]
    assert any("1 of 2 rollouts have no scoring time" in one for one in observed.lacks)


def test_older_results_have_milliseconds_in_the_row(tmp_path):
    rows = [
        {
            "example_id": 0,
            "reward": 1.0,
            "task": "t",
            "generation_ms": 900.0,
            "scoring_ms": 250.0 + at,
            "total_ms": 1.0,
        }
        for at in range(2)
    ]
    observed = read_foreign(write_lines(tmp_path / "results.jsonl", rows)).observed
    assert observed.calls.service_s.tolist() == [0.25, 0.251]
    assert any("metadata.json" in one for one in observed.lacks)


def test_a_clock_that_runs_backwards_is_named(tmp_path):
    path = write_lines(tmp_path / "results.jsonl", [result_row(0, 1.0, scoring=(10.0, 8.0))])
    with pytest.raises(RefusedError, match=r"results.jsonl:1: 'timing.scoring' ends 2 s before it starts"):
        read_foreign(path)


# verifiers 0.4 and prime-rl, traces.jsonl


def score(value, weight=1.0):
    return {"score": value, "weight": weight}


def test_traces_have_weighted_rewards_groups_steps_and_times(tmp_path):
    rows = [
        episode(
            f"{step}.{at}",
            group=f"g{step}.{at // 4}",
            step=step,
            rewards={"tests": score(float(at % 2)), "form": score(1.0, 0.2)},
            scoring=(10.0, 12.0 + at / 8),
        )
        for step in (10, 9)
        for at in range(8)
    ]
    read = read_foreign(write_lines(tmp_path / "traces.jsonl", rows))
    observed = read.observed
    assert list(observed.steps.labels) == ["9", "10"]
    assert np.bincount(observed.rows.group).tolist() == [4] * 4
    assert np.allclose(observed.rows.value, [0.2, 1.2] * 8)
    assert np.allclose(observed.calls.service_s, list(2 + np.arange(8) / 8) * 2, atol=1e-5)
    assert read.suspicions == []
    assert not observed.rows.failed.any()


def test_a_timeout_of_scoring_is_a_zero_that_failed_and_an_error_is_no_number(tmp_path):
    rows = [episode(str(at), group="g", rewards={"tests": score(float(at))}, limit=30.0) for at in range(2)]
    rows.append(
        episode(
            "2", group="g", rewards={"tests": None}, stop="scoring_timeout", scoring=(10.0, 40.0), limit=30.0
        )
    )
    rows.append(
        episode("3", group="g", rewards={"tests": None}, stop="sandbox_error", ok=False, scoring=(10.0, 0))
    )
    rows.append(episode("4", group="g", rewards={"tests": score(0.0)}, stop="agent_timeout", limit=30.0))
    rows.append(
        {**episode("5", group="g"), "traces": [], "ok": False, "errors": [{"type": "E", "message": ""}]}
    )
    read = read_foreign(write_lines(tmp_path / "traces.jsonl", rows))
    observed = read.observed
    assert np.array_equal(observed.rows.value, [0, 1, 0, np.nan, 0, np.nan], equal_nan=True)
    assert observed.rows.failed.tolist() == [False, False, True, False, False, False]
    assert observed.calls.censored.tolist() == [False, False, True, False, False, False]
    assert observed.causes[observed.calls.cause[2]] == "scoring_timeout"
    assert observed.limit_s == 30.0
    assert not observed.stepped
    assert [(one.kind, one.seen, one.of) for one in read.suspicions] == [("timeout", 1, 3), ("flagged", 1, 3)]


def test_a_reward_that_is_null_beside_others_is_suspected_only_where_it_applies(tmp_path):
    rows = [
        episode(f"{of}.{at}", group=f"g{of}", rewards={"tests": score(1.0), "judge": judged})
        for of, judges in enumerate([[score(1.0), None], [None, None]])
        for at, judged in enumerate(judges)
    ]
    read = read_foreign(write_lines(tmp_path / "traces.jsonl", rows))
    assert [(one.kind, one.seen, one.of) for one in read.suspicions] == [("part", 1, 4)]


def test_a_folder_of_prime_rl_counts_each_episode_once(tmp_path):
    for step in (2, 11):
        every = [episode(f"{step}.{at}", group=f"{step}", rewards={"tests": score(1.0)}) for at in range(4)]
        for kind, its in (("all", every), ("effective", every[:2])):
            write_lines(tmp_path / "rollouts" / f"step_{step}" / "train" / kind / "traces.jsonl", its)
        write_lines(tmp_path / "rollouts" / f"step_{step}" / "eval" / "all" / "traces.jsonl", every[:1])
    for path in (tmp_path, tmp_path / "rollouts"):
        observed = read_foreign(path).observed
        assert (list(observed.steps.labels), len(observed.rows)) == (["2", "11"], 8)
    assert len(read_foreign(tmp_path, split="eval").observed.rows) == 2
    assert len(read_foreign(tmp_path / "rollouts" / "step_11" / "train").observed.rows) == 4


def test_prime_rl_streams_are_read_by_the_kind_of_work(tmp_path):
    rows = [episode(str(at), group="g", step=at // 2, rewards={"tests": score(1.0)}) for at in range(4)]
    rows[3]["run"]["work"]["type"] = "eval"
    write_lines(tmp_path / "traces" / "stream" / "00000.jsonl", [*rows, rows[0]])
    observed = read_foreign(tmp_path).observed
    assert (observed.rows.step.tolist(), list(observed.steps.labels)) == ([0, 0, 1], ["0", "1"])
    assert any("1 episodes stand in the files more than once" in one for one in observed.says)


# whose file it is


def test_names_decide_nothing(tmp_path):
    rng = np.random.default_rng(0)
    verl = write_lines(tmp_path / "a" / "results.jsonl", verl_rows(rng, 1, samples=1, group=2))
    results_ = write_lines(tmp_path / "b" / "7.jsonl", [result_row(0, 1.0)])
    traces = write_lines(tmp_path / "c" / "results.jsonl", [episode("0", rewards={"t": score(1.0)})])
    for path, name in (
        (verl, "verl rollouts"),
        (results_, "verifiers results"),
        (traces, "verifiers traces"),
    ):
        assert recognise(path).name == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line in it"),
        ("[1, 2]\n", "rows are no objects, such as [1, 2]"),
        ("hello\n", "neither Parquet nor JSON Lines; it begins with hello"),
        ('{"prompt": "p", "completion": "c"}\n', "with the fields prompt, completion"),
    ],
)
def test_what_nobody_reads_is_refused_with_what_was_seen_and_what_is_readable(tmp_path, text, said):
    path = tmp_path / "1.jsonl"
    path.write_text(text)
    with pytest.raises(RefusedError) as refused:
        recognise(path)
    assert said in str(refused.value)
    assert "completions_*.parquet of TRL" in str(refused.value)


def test_a_folder_of_something_else_and_no_file_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(RefusedError, match=r"no rollout file in this folder; there is notes.txt"):
        recognise(tmp_path)
    with pytest.raises(RefusedError, match="no such file"):
        recognise(tmp_path / "absent.jsonl")


def test_an_option_that_means_nothing_is_refused(tmp_path):
    path = write_lines(tmp_path / "1.jsonl", verl_rows(np.random.default_rng(0), 1, samples=1, group=2))
    with pytest.raises(RefusedError, match="--weight: means nothing for verl rollouts"):
        read_foreign(path, weights=[1.0])
    with pytest.raises(RefusedError, match="--limit: must be above 0, this is 0"):
        read_foreign(path, limit_s=0)
