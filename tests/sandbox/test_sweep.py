"""What looks like something that a dead run left, and was put there by somebody else, is not believed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.sandbox.cgroups import Places, detect
from steelyard.sandbox.processes import Owner, ourselves
from steelyard.sandbox.sweep import PLACES, holds_cgroups, sweep

DEAD = ourselves()._replace(pid=2**22 + 1)


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[str]]:
    code = "import signal; print('here', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, text=True) as one:
        one.stdout.readline()
        yield one
        one.kill()


def forged(folder: Path, pid: int, dead: Owner = DEAD) -> Path:
    """Make what looks like a folder of the dead, and a cgroup of theirs that holds this process."""
    place = folder / "place"
    (place / dead.named("slot")).mkdir(parents=True)
    (place / dead.named("slot") / "cgroup.procs").write_text(f"{pid}\n")
    left = folder / "temporary" / dead.named("x")
    left.mkdir(parents=True)
    (left / PLACES).write_text(f"{place}\n")
    return left


def test_nobody_is_killed_who_is_listed_in_a_folder_that_is_no_cgroup(tmp_path, victim):
    left = forged(tmp_path, victim.pid)
    assert sweep(Places("none"), left.parent) == [left], "the folder is our own, and goes"
    sweep(Places("v2", {"unified": tmp_path / "place"}), tmp_path / "none")
    assert victim.poll() is None
    assert (tmp_path / "place" / DEAD.named("slot")).exists()


@pytest.mark.needs("root")
def test_folders_of_another_user_are_not_believed(tmp_path, victim, monkeypatch):
    left = forged(tmp_path, victim.pid)
    os.chown(left, 65534, 65534)
    monkeypatch.setattr("steelyard.sandbox.sweep.holds_cgroups", lambda _: True)
    assert sweep(Places("none"), left.parent) == []
    assert victim.poll() is None
    assert left.exists()


@pytest.mark.needs("root")
def test_cgroups_of_another_user_are_not_believed(tmp_path, victim, monkeypatch):
    forged(tmp_path, victim.pid)
    os.chown(tmp_path / "place" / DEAD.named("slot"), 65534, 65534)
    monkeypatch.setattr("steelyard.sandbox.sweep.holds_cgroups", lambda _: True)
    assert sweep(Places("v2", {"unified": tmp_path / "place"}), tmp_path / "none") == []
    assert victim.poll() is None


def test_what_somebody_else_sweeps_meanwhile_hides_nothing(tmp_path, monkeypatch):
    names = [DEAD.named(letter) for letter in "abc"]
    for name in names:
        (tmp_path / name).mkdir()
    found = [tmp_path / DEAD.named("swept"), *map(tmp_path.joinpath, names)]
    monkeypatch.setattr(Path, "glob", lambda *_: iter(found))
    assert sweep(Places("none"), tmp_path) == found[1:]


@pytest.mark.needs("cgroup")
def test_a_place_for_cgroups_is_told_from_any_other_folder(tmp_path):
    assert all(map(holds_cgroups, detect().folders.values()))
    assert not holds_cgroups(tmp_path)
    assert not holds_cgroups(tmp_path / "absent")
