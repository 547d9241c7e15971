"""What becomes a slot joins its cgroups, stops being root, keeps its limits, and dies with its parent."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.sandbox import launch
from steelyard.sandbox.launch import FAILED, mapped

NOBODY = {"uid": 65534, "gid": 65534}
root = pytest.mark.needs("root")


def command(argv: list[str], /, **config: object) -> list[str]:
    asked = {"parent": os.getpid(), "argv": argv} | config
    return [sys.executable, "-I", "-S", launch.__file__, json.dumps(asked)]


def run(*argv: str, **config: object) -> subprocess.CompletedProcess[str]:
    whole = command(list(argv), **config)
    return subprocess.run(whole, capture_output=True, text=True, timeout=30, check=False)


def failure(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == FAILED
    (line,) = done.stderr.splitlines()
    return json.loads(line)


def test_it_becomes_the_program_with_its_status_and_output():
    done = run("sh", "-c", "echo hello; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello\n", "")


def test_descriptors_are_handed_down():
    out, into = os.pipe()
    says = [sys.executable, "-I", "-S", "-c", f"import os; os.write({into}, b'hello\\n')"]
    subprocess.run(command(says), pass_fds=[into], check=True, timeout=30)
    assert os.read(out, 100) == b"hello\n"
    os.close(out)
    os.close(into)


def test_limits_are_set_and_never_raised_above_what_there_is():
    _, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    asked = {"STACK": [8 << 20, 8 << 20], "CORE": [0, 0], "NOFILE": [highest + 1, highest + 1]}
    done = run("sh", "-c", "ulimit -s; ulimit -Hs; ulimit -c; ulimit -Hn", rlimits=asked)
    assert done.stdout.split() == ["8192", "8192", "0", str(highest)]


def test_signals_are_as_a_program_expects_them():
    done = run("grep", "-E", "SigIgn|SigBlk", "/proc/self/status")
    masks = dict(line.split(":\t") for line in done.stdout.splitlines())
    ours = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert int(masks["SigIgn"], 16) & ours == 0
    assert int(masks["SigBlk"], 16) == 0


def test_the_kernel_is_told_to_end_it_before_the_host():
    assert run("cat", "/proc/self/oom_score_adj", oom_score_adj=500).stdout.strip() == "500"


def test_it_dies_with_its_parent(tmp_path):
    said = tmp_path / "pid"
    code = (
        "import json, os, subprocess, sys, time\n"
        "argv = ['sh', '-c', 'echo $$ > \"$0\"; exec sleep 60', sys.argv[2]]\n"
        "config = {'parent': os.getpid(), 'argv': argv}\n"
        "subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], json.dumps(config)])\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, launch.__file__, said])
    give_up = time.monotonic() + 20
    while not (said.exists() and said.read_text().strip()) and time.monotonic() < give_up:
        time.sleep(0.01)
    child = int(said.read_text())
    parent.kill()
    parent.wait()
    while Path(f"/proc/{child}/exe").exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}/exe").exists()


def test_a_parent_that_has_ended_meanwhile_is_noticed():
    assert failure(run("true", parent=os.getpid() + 1))["stage"] == "parent"


def test_it_joins_the_cgroups_it_is_told(tmp_path):
    files = [tmp_path / "memory.procs", tmp_path / "pids.procs"]
    assert run("true", cgroup_procs=[str(file) for file in files]).returncode == 0
    assert [file.read_text() for file in files] == ["0", "0"]


@pytest.mark.parametrize(
    ("stage", "config"),
    [
        ("cgroup", {"cgroup_procs": ["/nowhere/cgroup.procs"]}),
        ("rlimits", {"rlimits": {"NOSUCH": [1, 1]}}),
        ("exec", {"argv": ["/nowhere/bwrap"]}),
        pytest.param("bind", {"binds": [["/nowhere", "/nowhere"]]}, marks=root),
    ],
)
def test_a_step_that_fails_is_named(stage, config):
    said = failure(run("true", **config))
    assert said["stage"] == stage
    assert said["error"]


@root
def test_root_becomes_nobody_for_good():
    done = run("sh", "-c", "id -u; id -g; id -G; grep -E 'Cap(Prm|Eff|Amb)' /proc/self/status", **NOBODY)
    ids, capabilities = done.stdout.split()[:3], done.stdout.split()[4::2]
    assert ids == ["65534", "65534", "65534"]
    assert set(capabilities) == {"0000000000000000"}


@root
def test_nobody_dies_with_the_parent_as_well():
    """A change of user makes the kernel forget the wish."""
    code = (
        "import ctypes; said = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(said), 0, 0, 0); "
        "print(said.value)"
    )
    done = run("/usr/bin/python3", "-I", "-c", code, **NOBODY)
    assert done.stdout.strip() == str(int(signal.SIGKILL))


@root
def test_a_folder_behind_a_locked_door_is_shown_elsewhere_read_only(tmp_path_factory):
    locked = tmp_path_factory.mktemp("locked")
    (locked / "python").mkdir()
    (locked / "python" / "file").write_text("hello")
    locked.chmod(0o700)
    with_a_door = Path(f"/tmp/steelyard-test-launch-{os.getpid()}")  # noqa: S108 - pytest's own folders are locked
    (with_a_door / "shown").mkdir(parents=True)
    try:
        shown = with_a_door / "shown"
        binds = [[str(locked / "python"), str(shown)]]
        reads = run("cat", str(shown / "file"), binds=binds, **NOBODY)
        assert (reads.stdout, reads.stderr) == ("hello", "")
        writes = run("sh", "-c", f"echo x > {shown}/file", binds=binds)
        assert "Read-only" in writes.stderr, "to root as well"
        assert list(shown.iterdir()) == [], "nobody else sees it"
    finally:
        (with_a_door / "shown").rmdir()
        with_a_door.rmdir()


def without_capability(number: int, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as a root that lacks a capability, as in a container."""
    drop = (
        "import ctypes, os, subprocess, sys\n"
        "assert ctypes.CDLL(None).prctl(24, int(sys.argv[1]), 0, 0, 0) == 0\n"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    whole = [sys.executable, "-I", "-S", "-c", drop, str(number), *argv]
    return subprocess.run(whole, capture_output=True, text=True, timeout=30, check=False)


@root
def test_root_that_may_not_mount_needs_no_mount_where_there_is_nothing_to_show():
    sys_admin = 21
    done = without_capability(sys_admin, command(["id", "-u"], **NOBODY))
    assert done.stdout == "65534\n"
    said = failure(without_capability(sys_admin, command(["true"], binds=[["/usr", "/mnt"]], **NOBODY)))
    assert said["stage"] == "mounts"
    assert "SYS_ADMIN" in said["remedy"]


@root
def test_root_that_may_become_nobody_else_says_so():
    said = failure(without_capability(7, command(["true"], **NOBODY)))
    assert said["stage"] == "uid"
    assert "SETUID" in said["remedy"]


@pytest.mark.parametrize(
    ("id_map", "who"),
    [
        ("         0          0 4294967295\n", 65534),
        ("0 100000 65536\n", 65534),
        ("0 1000 1\n1 100000 65535\n", 65534),
        ("0 1000 1\n1 100000 1000\n", 1000),
        ("0 1000 1\n", None),
        ("", None),
    ],
)
def test_of_a_small_map_of_users_the_last_that_is_not_root_is_taken(id_map, who):
    assert mapped(65534, id_map) == who
