"""Reports of runs that fitted or did not: the planner is on the right side of each (`bench/fits.py`)."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.memory.estimate import estimate
from steelyard.memory.values import GIB

BENCH = Path(__file__).parents[2] / "bench" / "fits.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_fits", BENCH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(bench, data_dir):
    return bench.rows(data_dir / "memory" / "fits.csv")


def side(bench, row):
    report = bench.REPORTS.get(bench.key(row))
    if report is None:
        return f"no settings in bench/fits.py for {bench.key(row)}: write its source's out in REPORTS"
    return bench.disagreement(row, report) or bench.judged(row, report).wrong


@pytest.mark.needs("data")
def test_every_report_has_settings_and_every_setting_a_report(bench, rows):
    assert sorted(bench.key(row) for row in rows) == sorted(bench.REPORTS)


@pytest.mark.needs("data")
def test_every_report_is_on_the_right_side_with_its_sources_defaults(bench, rows):
    wrong = {bench.key(row): said for row in rows if (said := side(bench, row))}
    assert rows
    assert not wrong


@pytest.mark.needs("data")
def test_what_a_report_leaves_open_is_an_interval_around_the_best_guess(bench, rows):
    for row in rows:
        found = bench.judged(row, bench.REPORTS[bench.key(row)])
        assert found.low <= found.best <= found.high, bench.key(row)
        assert found.predicted == ("fits" if found.fits else "out of memory"), bench.key(row)


@pytest.mark.needs("data")
def test_a_report_of_the_opposite_outcome_is_noticed_at_every_row(bench, rows):
    for row in rows:
        fits = row["outcome"].startswith("fits")
        swapped = row | {"outcome": "out of memory" if fits else "fits"}
        assert "its best guess takes" in side(bench, swapped) or "its open end takes" in side(bench, swapped)


@pytest.mark.needs("data")
def test_a_row_without_settings_and_an_outcome_without_meaning_are_named(bench, rows):
    strange = rows[0] | {"model": "Qwen3-1.7B"}
    assert "write its source's out in REPORTS" in side(bench, strange)
    assert "neither 'fits' nor 'out of memory'" in side(bench, rows[0] | {"outcome": "perhaps"})


@pytest.mark.needs("data")
@pytest.mark.parametrize("column", ["gpus", "lora_rank", "seq", "micro_batch"])
def test_settings_that_a_row_contradicts_are_named(bench, rows, column):
    row = next(row for row in rows if row[column])
    assert f"{column} is '7'" in bench.disagreement(row | {column: "7"}, bench.REPORTS[bench.key(row)])


def test_a_card_of_a_class_is_read_against_the_report(bench):
    assert bench.smallest("20GB card").bytes == 20e9
    assert bench.largest("20GB card").bytes == 20 * GIB
    assert bench.smallest("L4 24GB") == bench.largest("L4 24GB")


def test_the_studys_step_runs_once_its_log_softmax_is_fused(bench):
    report, card = bench.the_study(), bench.smallest("L4 24GB")
    assert estimate(bench.fused_ran(report), card).peak.bytes < card.bytes


def test_trls_report_holds_as_much_before_the_forward_pass_as_it_says(bench):
    """It reports 8 GB, and 20 GB in the pass."""
    generation, training = estimate(bench.trl_3678().best, bench.largest("20GB card")).phases
    assert generation.bytes == pytest.approx(8e9, rel=0.1)
    assert training.bytes > 20e9


def test_the_largest_batch_of_a_report_is_no_measurement_of_memory(bench):
    """At the lengths that GSM8K has, the plan is far from filling the card; at the limit it exceeds it."""
    card = bench.smallest("H100 80GB")
    for model, batch in (("Qwen2.5-0.5B", 116), ("Qwen2.5-3B", 62)):
        report = bench.verl_lora(model, batch)
        size = estimate(report.best, card).peak.bytes
        assert size < card.bytes / 2
        assert size + bench.entropy(report.best) < card.bytes
        assert bench.MEAN < bench.full_at(report, card) < report.high.tokens
        more = replace(report.best, micro_batch=batch + 1, micro_tokens=(batch + 1) * bench.MEAN)
        assert estimate(more, card).peak.bytes < card.bytes
