"""The intervals hold the truth as often as they say, in the simulation of `bench/coverage.py`."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def bench():
    path = Path(__file__).parents[2] / "bench" / "coverage.py"
    spec = importlib.util.spec_from_file_location("bench_coverage", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_truth_that_coverage_is_measured_against_is_what_simulation_gives(bench):
    for model in (bench.Model(), bench.Model(rate=0.01, rho=0.3)):
        rng = np.random.default_rng(0)
        drawn = np.stack([model.draw(rng)[0] for _ in range(150)])
        assert drawn.max(axis=2).mean() == pytest.approx(model.barrier, rel=0.02)
        assert np.quantile(drawn, 0.95) == pytest.approx(model.quantile, rel=0.03)
    assert bench.Model().barrier == pytest.approx(17.25, abs=0.02)


def test_with_shared_contention_nominal_95_percent_cover_as_much_for_barrier_and_quantile(bench):
    found = bench.chosen(bench.Model(), 300, seed=1)
    for name in ("mean barrier", "0.95 quantile", "idle of the run", "variance between steps"):
        assert 0.915 <= found[name].covered <= 0.985, name


def test_hangs_that_come_in_groups_are_covered_too(bench):
    found = bench.chosen(bench.Model(contention=0.0, sigma=0.3, rate=0.01, rho=0.3), 300, seed=2)
    for name, tally in found.items():
        assert 0.905 <= tally.covered <= 0.99, name


def test_calls_drawn_anew_one_by_one_would_cover_far_less(bench, monkeypatch):
    monkeypatch.setattr(bench, "RESAMPLES", 80)
    rng = np.random.default_rng(3)
    tally = bench.Tally(bench.Model().quantile)
    for _ in range(20):
        tally.add(bench.naive(bench.Model().draw(rng)[0], rng))
    assert tally.covered < 0.7
