"""The newest Python that is promised runs the core of this suite, in an environment of its own.

`.venv313` is kept between runs and made anew when pyproject.toml has changed.
"""

import os
import subprocess
from pathlib import Path

import pytest

BESIDES = [
    # what does not depend on the interpreter, or runs a hundred commands to compare their messages
    f"--ignore=tests/{name}"
    for name in (
        "audit",
        "docs",
        "durations",
        "files",
        "path/test_bad_input.py",
        "path/test_code_command.py",
        "path/test_killed.py",
        "path/test_learner.py",
        "path/test_price_command.py",
        "path/test_score_command.py",
        "path/test_show_code.py",
        "pricing",
        "report",
        "rewards/test_code.py",
        "rewards/test_code_as_written.py",
        "rewards/test_gym.py",
        "rewards/test_hearing.py",
        "rewards/test_instructions.py",
        "rewards/test_languages.py",
        "rewards/test_latex.py",
        "rewards/test_lengths.py",
        "rewards/test_limits.py",
        "rewards/test_numbers.py",
        "rewards/test_own.py",
        "rewards/test_real_data.py",
        "rewards/test_registry.py",
        "rewards/test_repetition.py",
        "rewards/test_suites_comparing.py",
        "rewards/test_suites_compiling.py",
        "rewards/test_suites_extract.py",
        "rewards/test_symbolic.py",
        "rewards/test_trajectory.py",
        "rewards/test_values.py",
        "sandbox/test_bubblewrap.py",
        "sandbox/test_cgroups.py",
        "sandbox/test_conformance.py",
        "sandbox/test_doctor.py",
        "sandbox/test_filter.py",
        "sandbox/test_house.py",
        "sandbox/test_judges.py",
        "sandbox/test_launch.py",
        "sandbox/test_life_cycle.py",
        "sandbox/test_machine.py",
        "sandbox/test_modal.py",
        "sandbox/test_modal_boundary.py",
        "sandbox/test_places.py",
        "sandbox/test_processes.py",
        "sandbox/test_slots.py",
        "sandbox/test_sweep.py",
        "sandbox/test_usage.py",
        "sandbox/test_watch.py",
        "scheduling/test_deadlines.py",
        "scoring/test_parquet.py",
        "service",
        "test_advantages.py",
        "test_floors.py",
        "test_must_work.py",
        "test_runtime_several.py",
    )
]
ROOT = Path(__file__).resolve().parent.parent


def run(*command):
    must = os.environ.get("STEELYARD_MUST_WORK", "").split(",")
    kept = {"STEELYARD_MUST_WORK": ",".join(name for name in must if name not in {"torch", "trl"})}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | kept,  # the trainers are not installed there
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def environment_313(python_313):
    environment = ROOT / ".venv313"
    made_from = environment / "pyproject.toml"
    pyproject = (ROOT / "pyproject.toml").read_text()
    python = environment / "bin" / "python"
    if not made_from.exists() or made_from.read_text() != pyproject:
        run(python_313, "-m", "venv", "--clear", environment)
        run(python, "-m", "pip", "install", "-qq", "--upgrade", "pip>=25.1")
        run(python, "-m", "pip", "install", "-qq", "--editable", ".", "--group", "core")
        made_from.write_text(pyproject)
    return python


@pytest.mark.needs("py313")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_core_of_the_suite_passes_on_python_313(environment_313):
    said = run(environment_313, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *BESIDES)
    assert " passed" in said.splitlines()[-1]
