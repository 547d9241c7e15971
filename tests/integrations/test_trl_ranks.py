"""Two ranks that train together: the same gradient as TRL's, and no rank that waits for one which is gone.

`trl_ranks.py` plays all scenarios in one start; each test reads what one of them left.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

pytestmark = [pytest.mark.needs("trl"), pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("trl_ranks.py")
SECONDS = 30
"""Far more than any rank takes to end once another has, and far less than a process group waits."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture
def played(folder):
    """What both ranks of a scenario told (`None`: nothing), after a look at how they ended."""

    def read(scenario):
        ended = json.loads((folder / f"{scenario}.json").read_text())
        assert ended["hung"] == []
        assert ended["left"] == []
        paths = [folder / f"{scenario}.{rank}.json" for rank in range(2)]
        return [json.loads(path.read_text()) if path.exists() else None for path in paths], ended["ended_s"]

    return read


@pytest.mark.parametrize("case", ["dapo", "grpo", "dr_grpo", "voting", "a group on two ranks"])
def test_the_gradient_on_two_ranks_is_that_of_trl_with_those_rows_weighing_nothing(played, case):
    both, _ = played("gradients")
    for told in both:
        assert told[case]["same words"]
        assert told[case]["norm"] > 1e-4
        assert told[case]["apart"] <= 1e-6
    assert both[0]["TRL alone"]["apart"] > 1e-3  # so it can fail


def test_how_many_vote_in_a_group_is_counted_over_ranks(played):
    three_of_four = pytest.approx([0.577, -1.154, 0.577, 0], abs=1e-3)
    for told in played("gradients")[0]:
        assert told["a group on two ranks"]["advantages"] == three_of_four
        assert told["few votes on two ranks"] == 0  # with beta > 0


def test_a_worker_that_is_killed_on_one_rank_stops_nobody(played):
    both, _ = played("goes on")
    for told in both:
        assert told["was killed"]
        assert told["a worker is killed"]["verdicts"] == ["scored"] * 8
    assert both[0]["a worker is killed"]["weights"] == both[1]["a worker is killed"]["weights"]


@pytest.mark.parametrize("case", ["one rank unscored", "all unscored"])
def test_a_rank_on_which_nothing_was_scored_trains_on_with_the_others(played, case):
    both, _ = played("goes on")
    assert both[0][case]["weights"] == both[1][case]["weights"]
    for told in both:
        assert told[case]["finite"]
        assert (told[case]["norm"] == 0) is (case == "all unscored")
        share = 1 if case == "all unscored" else 0.5
        assert told[case]["logged"]["steelyard/unscored"] == share


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("raises", "ConnectionError: the checker is not there"),
        ("never answers", "1 of 1 groups are not scored 1 s after"),
        ("dies", "Event loop stopped"),
    ],
)
def test_what_stops_one_rank_stops_the_other_with_its_reason(played, case, reason):
    (zero, one), _ = played("stops")
    assert reason in one[case]["error"]
    assert zero[case]["error"].startswith("RunStoppedError: rank 1 stopped")
    assert reason in zero[case]["error"]
    assert max(told[case]["took_s"] for told in (zero, one)) < SECONDS


def test_ranks_that_stopped_together_can_begin_again_together(played):
    (zero, one), _ = played("stops")
    assert zero["again"]["weights"] == one["again"]["weights"]
    assert zero["again"]["norm"] > 0


def test_a_deadline_after_which_nobody_waits_any_more_is_refused_on_all_ranks(played):
    for told in played("stops")[0]:
        said = told["a deadline after the group's"]["error"]
        assert said.startswith("RefusedError: deadline_s")
        assert "ddp_timeout" in said


def test_a_rank_that_is_killed_ends_the_other(played):
    (zero, one), ended_s = played("killed")
    assert one is None
    assert "error" in zero
    assert ended_s[0] - ended_s[1] < SECONDS


def test_under_l0_a_rank_that_stops_ends_the_other_though_without_its_reason(played):
    (zero, one), ended_s = played("raises under L0")
    assert "the checker is not there" in one["error"]
    assert "error" in zero
    assert abs(ended_s[0] - ended_s[1]) < SECONDS
