"""`check_file` and `steelyard check`: files in, processes, time limits, exit codes."""

import gzip
import io
import json
import sys

import pytest
from directly import recipe_of, rows
from typer.testing import CliRunner

from steelyard.audit import check_file, inspection, sample
from steelyard.cli.app import app
from steelyard.errors import RefusedError
from steelyard.outcome import Part
from steelyard.rewards import builtin


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "rows.jsonl", rows())


def written(path, some):
    path.write_text("".join(json.dumps(row) + "\n" for row in some))
    return path


def checked(file, *parts, **settings):
    return check_file(file, recipe_of(*parts), workers=1, **settings)


def levels(report):
    return {(str(found.level), found.check) for found in report.findings}


def test_a_good_function_in_its_own_process_has_no_finding_and_its_times_are_told(file):
    report = checked(file, "good")
    assert report.findings == []
    assert report.not_run == []
    assert report.form == "#### …"
    (times,) = report.times
    assert times.part == "good"
    assert 0 < times.p50_s <= times.p99_s <= times.step_s
    assert times.long_s > 0
    assert (report.rollouts, report.groups, report.whole) == (16, 4, True)


def test_a_function_that_never_returns_is_cut_and_the_inspection_ends(file):
    report = checked(file, "hangs", timeout_s=0.1)
    assert ("fault", "hang") in levels(report)
    assert "code cpu" in report.findings[0].says
    assert "everything else" in dict(report.not_run)


def test_a_function_that_sleeps_is_given_up_when_time_is_over(file):
    report = checked(file, "sleeps", within_s=0.5)
    assert levels(report) == {("fault", "hang")}
    assert report.taken_s < 6.0


def test_what_hangs_on_the_longest_specimen_alone_is_a_doubt_and_all_else_is_seen(tmp_path):
    file = written(tmp_path / "rows.jsonl", rows({"2 + 2?": "4", "40 + 2?": "42"}))
    report = checked(file, "hangs_on_long", timeout_s=0.2)
    assert levels(report) == {("doubt", "hang")}
    assert report.spread.rollouts == 8


def test_values_below_an_unstated_floor_do_not_keep_the_rest_from_being_seen(file):
    report = checked(file, "below_floor")
    assert ("fault", "floor") in levels(report)
    assert report.spread.histogram == [("-1", 8), ("1", 8)]


@pytest.mark.parametrize("reward", ["raises_without_tag", "raises_sometimes"])
def test_a_function_that_raises_is_asked_about_everything_and_its_failures_are_counted(file, reward):
    report = checked(file, reward, within_s=60.0)
    (crash,) = [found for found in report.findings if found.check == "crash"]
    assert crash.level == "fault"
    assert "fails on 4 of 16 rollouts of the file (first rows.jsonl:" in crash.says
    assert "it earns the floor 0" in crash.says
    assert report.form == "#### …"
    assert report.spread.histogram == [("0", 8), ("1", 8)]
    assert not [why for _, why in report.not_run if "time" in why]


def test_a_function_that_always_raises_fails_on_every_rollout(file):
    report = checked(file, "always_raises", within_s=60.0)
    assert "fails on 16 of 16 rollouts of the file" in report.findings[0].says


def test_a_group_function_is_asked_about_whole_groups(file):
    report = checked(file, "ranked")
    assert levels(report) == {("fault", "order")}
    assert "neighbours" in dict(report.not_run)


def test_of_a_recipe_that_awaits_few_groups_are_asked_about(tmp_path):
    some = rows({f"What is {n} + 1?": str(n + 1) for n in range(10)})
    report = checked(written(tmp_path / "rows.jsonl", some), "awaited")
    assert report.findings == []
    assert report.spread.groups == 4
    assert "most groups" in dict(report.not_run)


def test_a_bad_row_is_named_as_a_fault_or_a_note_and_the_good_ones_are_gone_on_with(tmp_path):
    some = [*rows(), {"prompt": "p", "completion": "x"}, {"prompt": "q"}]
    file = written(tmp_path / "rows.jsonl", some)
    report = checked(file, "gsm8k")
    assert levels(report) == {("fault", "rows")}
    assert "rows.jsonl:17" in report.findings[0].says
    assert report.spread.rollouts == 16
    assert levels(checked(file, "gsm8k", skip_bad_rows=True)) == {("note", "rows")}


@pytest.mark.parametrize(
    ("some", "complaint"),
    [
        ([], "no row can be judged"),
        ([{"prompt": "p", "completion": "x", "gold": "1"}], "the column 'answer' is in no row"),
        ([{"prompt": "p", "completion": "x", "answer": "none"}], "no row can be judged: 1 bad column"),
    ],
)
def test_a_file_without_a_good_row_is_refused(tmp_path, some, complaint):
    with pytest.raises(RefusedError, match=complaint):
        checked(written(tmp_path / "rows.jsonl", some), "gsm8k")


@pytest.mark.parametrize("field", ["state", "files"])
def test_a_file_that_lacks_what_agents_left_behind_is_refused(tmp_path, field):
    some = [{"prompt": "p", "completion": "x", f"expected_{field}": {}}]
    with pytest.raises(RefusedError, match=f"the column '{field}' is in no row"):
        checked(written(tmp_path / "rows.jsonl", some), Part(builtin(field)))


def test_columns_have_the_names_that_the_file_gives_them(tmp_path):
    some = [
        {"prompt": r["prompt"], "completion": r["completion"], "meta": {"gold": r["answer"]}} for r in rows()
    ]
    report = checked(written(tmp_path / "rows.jsonl", some), "gsm8k", columns={"answer": "meta.gold"})
    assert report.findings == []
    assert report.form == "#### …"


def test_gzip_and_standard_input_are_read_once_as_score_reads_them(tmp_path, file, monkeypatch):
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert checked(packed, "gsm8k").spread.rollouts == 16
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    report = checked("-", "gsm8k")
    assert (report.file, report.spread.rollouts) == ("standard input", 16)


def test_of_a_long_file_the_beginning_is_looked_over_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "ROWS", 12)
    file = written(tmp_path / "rows.jsonl", rows())
    report = checked(file, "gsm8k")
    assert (report.rollouts, report.whole) == (12, False)
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    report = checked(packed, "gsm8k")
    assert (report.rollouts, report.whole) == (12, False)


def test_groups_are_chosen_evenly_over_the_file_and_any_beginning_of_them_is_spread(tmp_path):
    some = rows({f"What is {n} + 1?": str(n + 1) for n in range(300)})
    chosen = sample.sample(str(written(tmp_path / "rows.jsonl", some)), recipe_of("gsm8k"), {})
    lines = [int(group.rollouts[0].where.rpartition(":")[2]) for group in chosen.groups]
    assert len(lines) == sample.GROUPS
    assert max(lines[:4]) - min(lines[:4]) > 600
    assert min(lines) < 20
    assert max(lines) > 1180
    again = sample.sample(str(tmp_path / "rows.jsonl"), recipe_of("gsm8k"), {})
    assert [group.rollouts[0].where for group in again.groups] == [g.rollouts[0].where for g in chosen.groups]


def run(*words):
    return CliRunner().invoke(app, ["check", *map(str, words)])


def test_the_command_exits_with_one_for_a_fault_and_with_zero_without(file, tmp_path):
    done = run("gsm8k", file)
    assert (done.exit_code, "0 faults, 0 doubts, 0 notes" in done.stdout) == (0, True)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[part]]\nreward = "gsm8k"\nweight = 0.0\n[[part]]\nreward = "format"\n')
    done = run(recipe, file)
    assert done.exit_code == 1
    assert "fault weights: in total a wrong answer earns 1 and the gold 1" in " ".join(done.stdout.split())


def test_what_cannot_be_used_is_refused_by_the_command(file):
    for words in (
        ("gsm9k", file),
        ("gsm8k", file.with_name("absent.jsonl")),
        (file.with_name("no.toml"), file),
    ):
        assert isinstance(run(*words).exception, RefusedError)


def test_the_command_takes_a_recipe_file_or_several_names(tmp_path, file):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[part]]\nreward = "gsm8k"\n[[part]]\nreward = "format"\nweight = 0.1')
    for what in (recipe, "gsm8k,format"):
        done = run(what, file)
        assert (done.exit_code, done.stdout.startswith("gsm8k + format on 16 rollouts in 4 groups")) == (
            0,
            True,
        )


def test_numbers_are_never_cut_however_many_parts_there_are(file, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ["gsm8k", "tolerant", "constant_with_gold", "names_the_gold", "within_one_percent", "never"]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("".join(f'[[part]]\nreward = "gsm8k"\nname = "{name}"\n' for name in names))
    done = run(recipe, file)
    table = done.stdout.partition("the file's rollouts")[0]
    assert all(name in table for name in names)
    assert "…" not in "".join(line.partition("'")[0] for line in table.splitlines())
    assert max(map(len, table.splitlines()[1:])) <= 80


def test_the_command_prints_everything_as_one_json_document(file):
    said = json.loads(run("gsm8k", file, "--json").stdout)
    assert said["faults"] == 0
    assert said["form"] == "#### …"
    gold = next(line for line in said["specimens"] if line["kind"] == "gold")
    assert (gold["mean"], gold["as_gold"], gold["rows"]) == (1.2, 4, 4)
    assert said["spread"]["histogram"] == [["0", 4], ["0.2", 4], ["1.2", 8]]
    assert said["times"][0]["part"] == "gsm8k"
    assert set(said) >= {"findings", "not_run", "rollouts", "groups", "whole", "taken_s"}


def test_the_limits_are_those_that_the_documents_state():
    assert (inspection.WITHIN_S, inspection.CPU_S, inspection.AWAIT_S) == (8.0, 2.0, 10.0)
    assert (sample.GROUPS, sample.ROWS) == (64, 100_000)
