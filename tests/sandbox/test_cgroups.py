"""A slot's cgroup counts and cuts everything that ever ran in it, and what the dead left is swept."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.sandbox import cgroups, processes
from steelyard.sandbox.cgroups import LEAF, Cgroup, Places, detect, make, remove_all
from steelyard.sandbox.processes import Owner, ourselves
from steelyard.sandbox.sweep import sweep

MIB = 1 << 20
real = pytest.mark.needs("cgroup")


@pytest.fixture
def slot() -> Iterator[Cgroup]:
    made = make(detect(), ourselves().named("test"), memory_bytes=64 * MIB, processes=12)
    yield made
    made.remove()


def start(slot: Cgroup, code: str) -> subprocess.Popen[str]:
    joined = "".join(f"open({str(path)!r}, 'w').write('0')\n" for path in slot.join_paths)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", joined + code], stdout=subprocess.PIPE, text=True
    )


def run(slot: Cgroup, code: str) -> tuple[int, str]:
    with start(slot, code) as process:
        out, _ = process.communicate(timeout=30)
    return process.returncode, out


@real
def test_who_takes_too_much_memory_is_ended_and_that_is_counted(slot):
    status, _ = run(slot, "x = bytearray(200 << 20)")
    assert status == -signal.SIGKILL
    assert slot.oom_kills() == 1
    assert slot.memory_peak() <= 64 * MIB


@real
def test_memory_of_several_processes_is_counted_together(slot):
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        x = bytearray(40 << 20)
        break
time.sleep(60)
"""
    with start(slot, code) as process:
        give_up = time.monotonic() + 20
        while not slot.oom_kills() and time.monotonic() < give_up:
            time.sleep(0.01)
        assert slot.oom_kills() >= 1
        slot.kill()
        process.wait(10)


@real
def test_a_process_too_many_is_refused_and_that_is_counted(slot):
    code = """
import os, signal
pids = []
try:
    for _ in range(40):
        pids.append(os.fork())
        if pids[-1] == 0:
            signal.pause()
except OSError:
    print(len(pids))
for pid in pids:
    os.kill(pid, 9)
"""
    status, out = run(slot, code)
    assert (status, out.strip()) == (0, "11")
    assert slot.refused_forks() >= 1


@real
def test_cpu_time_of_descendants_that_were_killed_is_counted(slot):
    with start(slot, "import os\nif os.fork() == 0:\n while True: pass\nos.wait()") as process:
        give_up = time.monotonic() + 20
        while (used := slot.cpu_s()) < 0.1 and time.monotonic() < give_up:
            time.sleep(0.01)
        slot.kill()
        process.wait(10)
    assert slot.cpu_s() >= used >= 0.1


@real
def test_a_peak_can_be_counted_afresh(slot):
    run(slot, "x = bytearray(40 << 20)")
    assert slot.memory_peak() > 40 * MIB
    if slot.reset_peak():
        assert slot.memory_peak() < 40 * MIB


@real
def test_limits_can_be_raised_and_lowered(slot):
    for mib in (16, 256, 32):
        slot.limit(memory_bytes=mib * MIB, processes=20)
    status, _ = run(slot, "x = bytearray(100 << 20)")
    assert status == -signal.SIGKILL
    slot.limit(memory_bytes=256 * MIB, processes=20)
    status, _ = run(slot, "x = bytearray(100 << 20)")
    assert status == 0


@real
def test_a_fork_bomb_ends_with_its_slot(slot):
    slot.limit(memory_bytes=256 * MIB, processes=40)
    code = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    with start(slot, code) as process:
        give_up = time.monotonic() + 20
        while len(slot.pids()) < 40 and time.monotonic() < give_up:
            time.sleep(0.01)
        folders = [path.parent for path in slot.join_paths]
        assert slot.remove()
        process.wait(10)
    assert not any(folder.exists() for folder in folders)
    assert slot.remove(), "a second time there is nothing to do"


@real
def test_what_its_processes_do_is_told_apart_from_what_the_slot_itself_does(slot):
    with start(slot, "print('here', flush=True); import signal; signal.pause()") as process:
        process.stdout.readline()
        assert slot.pids() == [process.pid]
        assert slot.state().tasks == 1
        assert slot.state(without=frozenset({process.pid})).tasks == 0
        slot.kill()
        process.wait(10)
    assert slot.state().tasks == 0


@real
def test_a_name_that_is_taken_leaves_its_cgroup_alone(slot):
    with pytest.raises(FileExistsError):
        make(detect(), ourselves().named("test"), memory_bytes=MIB, processes=1)
    assert all(path.exists() for path in slot.join_paths)


@real
def test_asking_for_the_place_again_changes_nothing():
    assert detect() == detect()


# --- sweeping


def a_dead_owner() -> Owner:
    told = subprocess.run(
        [sys.executable, "-c", "from steelyard.sandbox.processes import ourselves; print(*ourselves())"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Owner(*map(int, told.stdout.split()))


@real
def test_cgroups_of_the_dead_are_swept_with_what_still_runs_in_them(tmp_path):
    places = detect()
    left = make(places, a_dead_owner().named(1), memory_bytes=64 * MIB, processes=8)
    living = make(places, ourselves().named("living"), memory_bytes=64 * MIB, processes=8)
    with start(left, "import signal; print('here', flush=True); signal.pause()") as process:
        process.stdout.readline()
        swept = sweep(places, tmp_path)
        assert process.wait(10) == -signal.SIGKILL
    assert {path.parent for path in left.join_paths} <= set(swept)
    assert not any(path.exists() for path in left.join_paths)
    assert all(path.exists() for path in living.join_paths)
    living.remove()


def test_folders_of_the_dead_are_swept_and_no_others(tmp_path):
    dead = a_dead_owner()
    elsewhere = dead._replace(namespace=dead.namespace + 1)
    (tmp_path / dead.named("a")).mkdir()
    (tmp_path / dead.named("a") / "file").write_text("x")
    stay = [ourselves().named("b"), elsewhere.named("c"), "steelyard-host", "steelyard-1-x", "another"]
    for name in stay:
        (tmp_path / name).mkdir()
    (tmp_path / dead.named("link")).symlink_to(tmp_path / "another")
    (tmp_path / dead.named("file")).write_text("x")
    assert sweep(Places("none"), tmp_path) == [tmp_path / dead.named("a")]
    assert {path.name for path in tmp_path.iterdir()} == {*stay, dead.named("link"), dead.named("file")}


# --- version 2, whose files are told and not the kernel's


NEW = {
    "cgroup.controllers": "memory pids",
    "cgroup.subtree_control": "",
    "cgroup.type": "domain",
    "cgroup.procs": "",
    "cgroup.kill": "",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.events": "low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n",
    "memory.peak": "7340032\n",
    "pids.max": "max",
    "pids.peak": "9\n",
    "pids.events": "max 3\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
}


@pytest.fixture
def unified(tmp_path, monkeypatch) -> Path:
    """A tree of version 2 in which making a folder makes its files; our own cgroup is `/unit`."""
    mkdir, rmdir = Path.mkdir, Path.rmdir
    tree = tmp_path / "tree"

    def made(path: Path, *args: object, **kwargs: object) -> None:
        mkdir(path, *args, **kwargs)
        if path.is_relative_to(tree):
            for name, text in NEW.items():
                (path / name).touch()
                if not (path / name).read_text():
                    (path / name).write_text(text)

    def removed(path: Path) -> None:
        if not path.is_relative_to(tree):
            rmdir(path)
        elif (path / "cgroup.procs").read_text().strip():
            raise OSError(errno.EBUSY, "busy")
        else:
            shutil.rmtree(path)

    monkeypatch.setattr(Path, "mkdir", made)
    monkeypatch.setattr(Path, "rmdir", removed)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tree.mkdir()
    (tree / "unit").mkdir()
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/unit\n")
    (proc / "mountinfo").write_text(f"35 31 0:30 / {tree} rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
    return tree


def delegate(tree: Path) -> None:
    """Make our own cgroup the root of what we see, as in a container."""
    (tree / "cgroup.procs").unlink()


def test_of_a_delegated_cgroup_everybody_moves_into_a_leaf(unified, tmp_path):
    delegate(unified)
    (unified / "unit/cgroup.procs").write_text("4711\n")
    assert detect(proc=tmp_path / "proc") == Places("v2", {"unified": unified / "unit"})
    assert (unified / "unit" / LEAF / "cgroup.procs").read_text() == "4711"
    assert (unified / "unit/cgroup.subtree_control").read_text() == "+memory +pids"


def test_whoever_starts_in_the_leaf_makes_cgroups_beside_it(unified, tmp_path):
    delegate(unified)
    (unified / "unit/cgroup.subtree_control").write_text("memory pids")
    (unified / "unit" / LEAF).mkdir()
    (tmp_path / "proc/cgroup").write_text(f"0::/unit/{LEAF}\n")
    assert detect(proc=tmp_path / "proc").folders == {"unified": unified / "unit"}


def test_a_cgroup_that_nobody_gave_us_is_left_alone(unified, tmp_path):
    (unified / "unit/cgroup.procs").write_text("4711\n")
    found = detect(proc=tmp_path / "proc")
    assert found.mode == "none"
    assert "not delegated" in found.reason
    assert "systemd-run --scope -p Delegate=yes" in found.remedy
    assert not (unified / "unit" / LEAF).exists()


def test_a_cgroup_that_a_setting_names_is_ours(unified, tmp_path):
    (unified / "given").mkdir()
    found = detect(str(unified / "given"), proc=tmp_path / "proc")
    assert found.folders == {"unified": unified / "given"}


def test_a_dry_look_changes_nothing_and_says_what_would_be_done(unified, tmp_path):
    delegate(unified)
    (unified / "unit/cgroup.procs").write_text("4711\n")
    before = {path: path.is_file() and path.read_text() for path in unified.rglob("*")}
    found = detect(proc=tmp_path / "proc", dry=True)
    assert {path: path.is_file() and path.read_text() for path in unified.rglob("*")} == before
    assert found.folders == {"unified": unified / "unit"}
    assert f"would move into {unified / 'unit' / LEAF}" in found.would
    assert "memory and pids" in found.would
    assert detect(proc=tmp_path / "proc").would == ""


@real
def test_a_dry_look_makes_no_cgroup_and_finds_the_same_place(monkeypatch):
    found = detect()

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a dry look made something")

    for change in ("mkdir", "rmdir", "write_text"):
        monkeypatch.setattr(Path, change, refused)
    assert detect(dry=True)[:2] == found[:2]


def test_controllers_that_are_missing_are_named(unified, tmp_path):
    (unified / "unit/cgroup.controllers").write_text("cpu pids")
    found = detect(proc=tmp_path / "proc")
    assert found.mode == "none"
    assert "no controller memory" in found.reason


def test_a_slot_of_version_2_limits_and_reads_what_the_kernel_writes(unified):
    made = make(Places("v2", {"unified": unified / "unit"}), "slot", memory_bytes=123 * MIB, processes=9)
    own = unified / "unit/slot"
    written = {name: (own / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert written == {"memory.max": str(123 * MIB), "memory.swap.max": "0", "pids.max": "9"}
    assert made.join_paths == (own / "cgroup.procs",)
    assert (made.cpu_s(), made.memory_peak()) == (1.5, 7 * MIB)
    assert (made.oom_kills(), made.memory_refusals(), made.refused_forks()) == (2, 2, 3)
    assert made.was_full()
    made.kill()
    assert (own / "cgroup.kill").read_text() == "1"
    assert made.remove()
    assert not own.exists()


def test_a_slot_whose_tasks_do_not_die_is_given_up_in_time(unified, monkeypatch):
    made = make(Places("v2", {"unified": unified / "unit"}), "slot", memory_bytes=MIB, processes=9)
    (unified / "unit/slot/cgroup.procs").write_text("0\n")  # somebody of another process namespace
    killed = []
    monkeypatch.setattr(os, "kill", lambda *args: killed.append(args))
    assert not made.remove(within_s=0.05)
    assert killed == [], "process 0 would be our own group"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_are_given_up_under_one_deadline(unified):
    names = [f"slot{number}" for number in range(20)]
    places = Places("v2", {"unified": unified / "unit"})
    many = [make(places, name, memory_bytes=MIB, processes=9) for name in names]
    for name in names[1:]:
        (unified / "unit" / name / "cgroup.procs").write_text("0\n")
    began = time.monotonic()
    assert not remove_all(many, within_s=0.2)
    assert time.monotonic() - began < 2.0, "twenty times as long, if each had its own"
    assert not (unified / "unit/slot0").exists()
    assert all((unified / "unit" / name / "cgroup.kill").read_text() == "1" for name in names[1:])


@real
def test_many_are_removed_with_what_runs_in_them():
    many = [make(detect(), ourselves().named(f"m{n}"), memory_bytes=64 * MIB, processes=8) for n in range(3)]
    running = [start(one, "import signal; print('here', flush=True); signal.pause()") for one in many]
    for process in running:
        process.stdout.readline()
    assert remove_all(many, within_s=10.0)
    for process in running:
        with process:
            assert process.wait(10) == -signal.SIGKILL
    assert not any(path.exists() for one in many for path in one.join_paths)


def test_what_is_removed_holds_no_descriptor(unified):
    before = descriptors()
    made = make(Places("v2", {"unified": unified / "unit"}), "slot", memory_bytes=MIB, processes=9)
    assert descriptors() == before + 4
    made.remove()
    assert descriptors() == before
    made.remove()
    assert (made.oom_kills(), made.refused_forks(), made.memory_peak()) == (0, 0, None)


@pytest.mark.parametrize("absent", ["cpu.stat", "memory.events", "pids.events"])
def test_what_cannot_be_opened_holds_no_descriptor(unified, monkeypatch, absent):
    monkeypatch.delitem(NEW, absent)
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        make(Places("v2", {"unified": unified / "unit"}), "slot", memory_bytes=MIB, processes=9)
    assert descriptors() == before


def test_a_slot_that_cannot_be_limited_is_not_left_behind(unified, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(Cgroup, "limit", refused)
    with pytest.raises(OSError, match="no"):
        make(Places("v2", {"unified": unified / "unit"}), "slot", memory_bytes=MIB, processes=9)
    assert not (unified / "unit/slot").exists()


# --- version 1, and none


def test_in_a_container_a_hierarchy_begins_at_our_own_cgroup(tmp_path):
    proc = tmp_path / "proc"
    proc.mkdir()
    names = ("memory", "pids", "cpu,cpuacct")
    (proc / "cgroup").write_text("".join(f"{n}:{name}:/docker/abc\n" for n, name in enumerate(names)))
    mounts = ""
    for name in names:
        (tmp_path / name).mkdir()
        mounts += f"35 31 0:30 /docker/abc {tmp_path / name} rw - cgroup cgroup rw,{name}\n"
    (proc / "mountinfo").write_text(mounts)
    folders = {"memory": tmp_path / "memory", "pids": tmp_path / "pids", "cpuacct": tmp_path / "cpu,cpuacct"}
    assert detect(proc=proc) == Places("v1", folders)


def test_where_there_is_none_the_reason_and_the_way_out_are_said(tmp_path):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text("31 23 0:28 / / rw - ext4 /dev/vda rw\n")
    found = detect(proc=tmp_path)
    assert (found.mode, found.folders) == ("none", {})
    assert "lacks memory, pids, cpuacct" in found.reason
    assert "Delegate=yes" in found.remedy


def test_a_proc_that_says_nothing_is_no_error(tmp_path):
    assert detect(proc=tmp_path / "absent").mode == "none"


def test_only_what_can_be_killed_by_name_is_killed():
    assert processes.killable([0, os.getpid(), 4711]) == [4711]
    assert cgroups.remove((), 0.0)
