"""The benches whose tables docs/memory.md shows run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("name", ["memory", "roofline", "anchors", "fits"])
def test_a_bench_prints_its_tables(name):
    done = subprocess.run(
        [sys.executable, BENCH / f"{name}.py"], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
