"""What `import steelyard` gives, and what it costs."""

import statistics
import subprocess
import sys
import time

import pytest

import steelyard

PUBLIC = [
    "SCHEMES",
    "Abstained",
    "Clocks",
    "Context",
    "Group",
    "InfraError",
    "Ledger",
    "Options",
    "Part",
    "Recipe",
    "RefusedError",
    "Rollout",
    "RunStoppedError",
    "Runtime",
    "Scored",
    "ScoredGroup",
    "SteelyardError",
    "SuspectError",
    "TooManyUnscoredError",
    "Unscored",
    "__version__",
    "builtin",
    "load_recipe",
    "price_file",
    "record_steps",
    "reward",
    "score_file",
]


def test_the_public_names_are_these():
    assert sorted(steelyard.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported_and_says_what_it_is(name):
    value = getattr(steelyard, name)
    assert name in dir(steelyard)
    assert isinstance(value, str) or value.__doc__, f"{name} has no docstring"


def test_the_import_loads_nothing_that_is_only_used_later():
    heavy = {"asyncio", "numpy", "rich", "scipy", "sqlite3", "typer"}
    loaded = python("import steelyard, sys; print(*sys.modules)").split()
    assert not heavy & {name.partition(".")[0] for name in loaded}


def test_the_import_costs_less_than_100_ms():
    """Pairs, one after the other, so that a busy machine slows both; the median forgives a hiccup."""

    def wall_s(code):
        start = time.perf_counter()
        python(code)
        return time.perf_counter() - start

    costs_s = [wall_s("import steelyard") - wall_s("pass") for _ in range(7)]
    assert statistics.median(costs_s) < 0.1, costs_s


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
