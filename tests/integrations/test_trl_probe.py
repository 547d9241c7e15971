"""`python -m steelyard.integrations.trl`: what the installed trainer does, and what its exit status says."""

import os
import subprocess
import sys

import pytest
from rich.console import Console

from steelyard.integrations.trl.probe import Case, Probe, print_probe, right, same

LOST = None


@pytest.mark.parametrize(
    ("said", "advantages"),
    [
        ((1, LOST, 0, 0), (1.155, 0, -0.577, -0.577)),
        ((1, 1, 1, LOST), (0, 0, 0, 0)),
        ((1, 3, 2, LOST), (-1, 1, 0, 0)),
        ((1, 0, LOST, LOST), (0, 0, 0, 0)),
        ((LOST,) * 4, (0, 0, 0, 0)),
        ((1, 1, 1, 1, 0, 0, 0, 0), (0.935,) * 4 + (-0.935,) * 4),
    ],
)
def test_what_the_probe_holds_for_right_are_the_golden_groups(said, advantages):
    assert same(right(said), advantages)


def seen(ours=(0.0, 0.0, 0.0, 0.0), pull_ours=0.0):
    case = Case("All are right, one is lost", (1, 1, 1, LOST), (0.5, 0.5, 0.5, -1.5), ours)
    return Probe("1.16.0", (case,), 0.0172, pull_ours)


def test_it_is_right_where_every_group_and_the_gradient_are():
    assert seen().right
    assert not seen(ours=(0.5, 0.5, 0.5, -1.5)).right
    assert not seen(pull_ours=1e-9).right


def test_the_page_says_what_is_wrong_and_stays_in_68_columns(capsys):
    print_probe(Console(width=200), seen())
    page = capsys.readouterr().out
    assert "TRL 1.16.0, two reward functions  1 of 1 groups wrong" in page
    assert "TRL 1.16.0, one of steelyard's    0 of 1 groups wrong" in page
    assert "  TRL 1.16.0 +0.500 +0.500 +0.500 −1.500" in page
    assert max(map(len, page.splitlines())) <= 72


@pytest.mark.slow
@pytest.mark.needs("trl")
def test_the_installed_trainer_is_right_with_ours_and_the_command_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "steelyard.integrations.trl"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 8 groups wrong" in done.stdout
    assert "0 of 8 groups wrong" in done.stdout
    assert done.stderr == ""


def test_without_trl_the_command_says_what_to_install():
    code = (
        "import sys\n"
        "from importlib import util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'trl' else find(name, *more)\n"
        "from steelyard.integrations.trl.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "next: pip install" in done.stderr
