"""The step on fake tensors says what a GPU said, where a public row tells enough to run the same."""

import csv

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from steelyard.integrations.allocation import tracked
from steelyard.memory.catalogue import config_of, names, shape_of
from steelyard.memory.points import read_point


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs("data", "torch")
def test_the_tracked_peak_is_the_measured_one_within_one_percent(data_dir):
    """Of forward passes and recomputed layers: what else is kept differs by the version of transformers."""
    with (data_dir / "memory" / "points.csv").open(newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["kind"] == "max_memory_allocated"]
    points = [read_point(row, shape_of, place="points.csv") for row in rows]
    compared = 0
    for row, point in zip(rows, points, strict=True):
        plan = point.plan
        if plan.lora is not None or (plan.task != "inference" and plan.checkpointing == "none"):
            continue
        (known,) = (name for name in names() if name.rpartition("/")[2] == row["model"])
        found = tracked.track(config_of(known), plan)
        assert found.bytes == pytest.approx(point.measured, rel=0.01), row
        compared += 1
    assert compared >= 5
