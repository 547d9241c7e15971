"""Killed at any moment, the same command goes on: nothing is lost, nothing is asked twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from as_a_user import faults, names, read, rollout, timeless, write
from killed_at import POINTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL are POSIX's"),
]

DRIVER = Path(__file__).with_name("killed_at.py")
INLINE = [point for point in POINTS if "spool" not in point]
ONCE = [point for point in POINTS if point.startswith(("spool", "forget"))]
SOME = [
    "enter: after COMMIT", "in judging", "after judging", "leave: begun", "leave: before COMMIT",
    "leave: after COMMIT", "writing rows", "before the rename",
]  # fmt: skip
MINE = """
import asyncio
async def late(completion):
    await asyncio.sleep(len(completion) % 7 / 1000)
    if completion.endswith('#### 3'):
        raise ValueError('three')
    return len(completion) % 5
def length(completion):
    return len(completion) % 5
"""


def rows(*, apart):
    """96 rollouts in groups of eight, together or scattered so that a group spans many chunks."""
    order = [n * 37 % 96 for n in range(96)] if apart else range(96)
    return [
        rollout(f"{'x' * (n % 11)} #### {n % 5}", prompt=f"p{n // 8}", id=f"r{n}", answer=n // 8)
        for n in order
    ]


SCENARIOS = {
    "a file": (INLINE, ["--reward", "gsm8k"], {}),
    "standard input": ([*ONCE, *SOME], ["--reward", "gsm8k"], {"stdin": True}),
    "scattered groups, two rewards": (SOME, ["--reward", "gsm8k,format"], {"apart": True}),
    "a scheme over the batch": (SOME, ["--reward", "gsm8k", "--advantage", "batch"], {"apart": True}),
    "an async reward that fails at times": (SOME, ["--reward", "mine.py:late"], {"apart": True}),
    "a reward in worker processes": (
        ["in judging", "leave: before COMMIT", "leave: after COMMIT"],
        ["--reward", "mine.py:length", "--workers", "1"],
        {},
    ),
}


def test_there_are_at_least_fifty_points_and_every_kind_is_among_them():
    asked = [point for points, *_ in SCENARIOS.values() for point in points]
    assert len(asked) >= 50
    assert set(asked) == set(POINTS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_killed_run_goes_on_and_ends_as_if_it_had_never_been_killed(scenario, tmp_path):
    points, words, settings = SCENARIOS[scenario]
    write(tmp_path / "r.jsonl", rows(apart=settings.get("apart", False)))
    (tmp_path / "mine.py").write_text(MINE)
    stdin = "r.jsonl" if settings.get("stdin") else ""
    words = ["score", "-" if stdin else "r.jsonl", *words, "--quiet", "--out"]

    def drive(out, points):
        asked = {"words": [*words, out], "stdin": stdin, "out": out, "points": points, "seed": scenario}
        done = subprocess.run(
            [sys.executable, DRIVER], input=json.dumps(asked), cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=100,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    drive("whole.jsonl", [])
    expected = read(tmp_path / "whole.jsonl")
    assert len(expected) == 96
    told = drive("o.jsonl", points)
    for one in told:
        if "finished" in one:  # between two kills a resumed run came to its end
            assert timeless(json.loads(line) for line in one["finished"].splitlines()) == timeless(expected)
            continue
        assert one["code"] == (0 if one["point"] == "the end" else -9), one
        assert one["again"] == [], one
        assert one["faults"] == [], one
    assert [one["point"] for one in told if "code" in one and one["point"] != "the end"] != []
    assert len([one for one in told if one.get("code") == -9]) == len(points)
    assert any(one.get("known") for one in told)  # some kills came when verdicts were recorded
    assert timeless(read(tmp_path / "o.jsonl")) == timeless(expected)
    assert faults(tmp_path / "o.jsonl.ledger") == []
    beside = {
        f"{name}{suffix}" for name in ("o.jsonl", "whole.jsonl") for suffix in ("", ".ledger", ".ledger.lock")
    }
    assert set(names(tmp_path)) - {"__pycache__"} == {"r.jsonl", "mine.py", *beside}
