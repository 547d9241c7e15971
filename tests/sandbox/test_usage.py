"""What a guest used is its own: not what a limit above its slot's ended, and not what others did to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from steelyard.blame import ending
from steelyard.execution import Ended, Limits
from steelyard.sandbox import usage
from steelyard.sandbox.cgroups import Cgroup, Places, detect, make
from steelyard.sandbox.ends import execution
from steelyard.sandbox.processes import State, ourselves
from steelyard.sandbox.usage import SlotUsage
from steelyard.sandbox.watch import PROBATION_S
from steelyard.testing import FakeClock

MIB = 1 << 20
real = pytest.mark.needs("cgroup")


class Above:
    """A cgroup with limits of its own, in which slots are made."""

    def __init__(self) -> None:
        places = detect()
        folders = {name: folder / ourselves().named("above") for name, folder in places.folders.items()}
        self.folders = list(dict.fromkeys(folders.values()))
        self.made: list[Cgroup] = []
        for folder in self.folders:
            folder.mkdir()
        self.places = Places(places.mode, folders)
        if places.mode == "v2":
            (folders["unified"] / "cgroup.subtree_control").write_text("+memory +pids")

    def limit(self, memory: int, processes: int) -> None:
        v2 = self.places.mode == "v2"
        named = {"memory.max" if v2 else "memory.limit_in_bytes": memory, "pids.max": processes}
        for name, number in named.items():
            (path,) = [folder / name for folder in self.folders if (folder / name).exists()]
            path.write_text(str(number))

    def slot(self, *, memory: int, processes: int) -> Cgroup:
        name = f"slot{len(self.made)}"
        self.made.append(make(self.places, name, memory_bytes=memory, processes=processes))
        return self.made[-1]


@pytest.fixture
def above() -> Iterator[Above]:
    made = Above()
    yield made
    for slot in made.made:
        assert slot.remove(10.0)
    for folder in made.folders:
        folder.rmdir()


def used(cgroup: Cgroup | None, **more: object) -> SlotUsage:
    return SlotUsage(os.getpid(), frozenset(), cgroup, 1.0, FakeClock(), **more)


def run(cgroup: Cgroup, code: str) -> int:
    joined = "".join(f"open({str(path)!r}, 'w').write('0')\n" for path in cgroup.join_paths)
    return subprocess.run([sys.executable, "-I", "-S", "-c", joined + code], check=False).returncode


TAKE = "x = bytearray(200 << 20)"
FORK = """
import os, signal
pids = []
try:
    for _ in range(40):
        pids.append(os.fork())
        if pids[-1] == 0:
            signal.pause()
except OSError:
    pass
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""


@real
def test_what_a_limit_above_the_slot_s_ended_is_not_the_guest_s_doing(above):
    above.limit(100 * MIB, 100)
    slot = above.slot(memory=512 * MIB, processes=50)
    use = used(slot)
    assert run(slot, TAKE) == -signal.SIGKILL
    assert slot.oom_kills() == 1, "the kernel counts it here as well"
    assert use.memory_kills() == 0
    assert use.counted() == {"memory_kills": 0, "refused_processes": 0, "foreign": 1}


@real
def test_what_the_slot_s_own_limit_ended_is(above):
    above.limit(900 * MIB, 100)
    slot = above.slot(memory=64 * MIB, processes=50)
    use = used(slot)
    assert run(slot, TAKE) == -signal.SIGKILL
    assert use.counted() == {"memory_kills": 1, "refused_processes": 0}


@real
def test_processes_that_a_limit_above_refuses_are_not_the_guest_s_doing(above):
    above.limit(900 * MIB, 10)
    slot = above.slot(memory=512 * MIB, processes=30)
    use = used(slot)
    assert run(slot, FORK) == 0
    counted = use.counted()
    assert counted["refused_processes"] == 0
    if slot.refused_forks():  # newer kernels count it above only
        assert counted["foreign"] > 0


@real
def test_processes_that_the_slot_s_own_limit_refuses_are(above):
    above.limit(900 * MIB, 100)
    slot = above.slot(memory=512 * MIB, processes=10)
    if not any((folder / "slot0/pids.peak").exists() for folder in above.folders):
        pytest.skip("this kernel does not say how many there were")
    use = used(slot)
    assert run(slot, FORK) == 0
    assert use.counted()["refused_processes"] > 0
    assert "foreign" not in use.counted()


# --- what is made of it


class Counted:
    """A guest's use, as a test says it is."""

    def __init__(self, **counted: object) -> None:
        self.told = {"memory_kills": 0, "refused_processes": 0, **counted}

    def cpu_s(self) -> float:
        return 0.1

    def memory_kills(self) -> int:
        return self.told["memory_kills"]

    def counted(self) -> dict[str, object]:
        return self.told

    def peak_bytes(self) -> None:
        return None


def ended(status: int | None, *, cut: str | None = None, itself: bool = False, **counted: object):
    guest = SimpleNamespace(
        slot=SimpleNamespace(may_kill_itself=itself),
        asked=0.0, started=1.0, ended=3.0, killed=2.5 if cut else None, cut=cut, failed=None,
        status=status, outputs=[], cpu_s=0.0, peak_bytes=None,
    )  # fmt: skip
    watched = SimpleNamespace(guest=guest, usage=Counted(**counted), limits=Limits())
    return execution(watched, "bubblewrap", 0.0, kept_bytes=100)


KILLED, FAILED = int(signal.SIGKILL), 1 << 8


def test_a_kill_for_its_own_memory_is_final_and_one_for_somebody_else_s_is_suspect():
    assert ending(ended(KILLED, memory_kills=1)) == "memory"
    assert ended(KILLED, foreign=1).ended is Ended.LOST
    assert ending(ended(KILLED, foreign=1)) is None


def test_where_a_program_could_have_killed_itself_it_did_unless_memory_was_short():
    assert ending(ended(KILLED, itself=True)) == "signal"
    assert ending(ended(KILLED, itself=True, foreign=1)) is None
    assert ending(ended(KILLED, itself=True, memory_kills=1)) == "memory"
    assert ending(ended(KILLED)) is None


@pytest.mark.parametrize(("status", "cut"), [(FAILED, None), (int(signal.SIGABRT), None), (KILLED, "idle")])
def test_a_failure_after_somebody_else_s_limit_is_suspect(status, cut):
    own = ended(status, cut=cut)
    assert ending(own) is not None
    foreign = ended(status, cut=cut, foreign=1)
    assert (foreign.ended, foreign.limit) == (Ended.LOST, None)
    assert foreign.evidence["foreign"] == 1
    assert foreign.clocks.censored is own.clocks.censored is bool(cut)


@pytest.mark.parametrize(("status", "cut"), [(0, None), (KILLED, "cpu")])
def test_what_a_guest_does_by_itself_stays_its_own(status, cut):
    assert ended(status, cut=cut, foreign=1).ended is ended(status, cut=cut).ended


def test_run_delay_is_a_clock_and_evidence_and_is_absent_where_nobody_measured():
    told = ended(KILLED, cut="cpu", run_delay_s=1.5)
    assert (told.clocks.run_delay_s, told.evidence["run_delay_s"]) == (1.5, 1.5)
    untold = ended(KILLED, cut="cpu")
    assert untold.clocks.run_delay_s is None
    assert "run_delay_s" not in untold.evidence


def test_run_delay_is_that_of_the_last_look_at_living_tasks():
    cgroup = Served()
    use = used(cgroup)
    assert use.run_delay_s() is None
    cgroup.delay_s = 0.75
    use.active()
    assert use.run_delay_s() == use.counted()["run_delay_s"] == 0.75
    cgroup.tasks = 0  # it has ended meanwhile
    use.active()
    assert use.run_delay_s() == 0.75


def test_whoever_has_ended_and_was_not_told_of_yet_does_not_sleep():
    cgroup = Served()
    cgroup.could_run = 0
    use = used(cgroup)
    assert [use.active(), use.active()] == [True, False]
    cgroup.tasks = 0
    assert [use.active(), use.active()] == [True, True]


# --- starvation


class Served:
    """A cgroup whose one task can run and gets nothing."""

    tasks = could_run = 1
    delay_s = 0.0

    def cpu_s(self) -> float:
        return 0.0

    def state(self, _own: frozenset[int]) -> State:
        return State(self.tasks, self.could_run, self.delay_s, 1, 0)

    def oom_kills(self) -> int:
        return 0

    memory_refusals = refused_forks = oom_kills

    def reset_peak(self) -> bool:
        return False


class Waiting:
    """A sentinel that waits most of the time, or never."""

    delay = 1.0
    open = 0

    def __enter__(self) -> Self:
        type(self).open += 1
        return self

    def __exit__(self, *_: object) -> None:
        type(self).open -= 1

    def delay_s(self) -> float:
        return self.delay


@pytest.fixture
def sentinel(monkeypatch):
    monkeypatch.setattr(usage, "Sentinel", Waiting)
    monkeypatch.setattr(Waiting, "delay", 1.0)
    yield Waiting
    assert Waiting.open == 0


def at_the_wall(*, announced: bool = True, could_run: int = 1, **more: object) -> SlotUsage:
    cgroup = Served()
    cgroup.could_run = could_run
    use = used(cgroup, **more)
    if announced:
        use.near_the_wall()
        use.near_the_wall()
        use._clock.tick(PROBATION_S)
    return use


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_whoever_comes_near_the_wall_is_judged_at_the_wall_at_once(sentinel, monkeypatch, delay):
    monkeypatch.setattr(Waiting, "delay", delay)
    use = at_the_wall()
    assert sentinel.open == 1
    assert use.starved() is (delay > 0.0)
    use.close()


def test_a_wall_that_came_unannounced_waits_for_a_look(sentinel, monkeypatch):
    monkeypatch.setattr(Waiting, "delay", 0.0)
    use = at_the_wall(announced=False)
    assert use.starved()
    use._clock.tick(PROBATION_S)
    assert not use.starved()
    use.close()


def test_a_crowd_is_measured_against_the_cores_that_are_ours(sentinel, monkeypatch):
    for cores, starves in ((1, False), (2, True)):
        use = at_the_wall(could_run=2, machine_cores=cores)
        assert use.starved() is starves
        use.close()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    use = at_the_wall(could_run=2)
    assert not use.starved(), "one core is ours, however many the machine has"
    use.close()


def test_without_a_cgroup_nobody_is_starved(sentinel):
    use = used(None)
    use.near_the_wall()
    assert sentinel.open == 0
    assert not use.starved()


# --- without a cgroup


def test_without_a_cgroup_the_time_of_killed_children_counts():
    code = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if (child := os.fork()) == 0:
    while time.process_time() < 0.15: pass
    print("burnt", flush=True)
    signal.pause()
input()
os.kill(child, 9)
print("killed", flush=True)
input()
"""
    argv = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        use = SlotUsage(process.pid, frozenset(), None, 1.0, FakeClock())
        process.stdout.readline()
        before = use.cpu_s()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert use.cpu_s() >= before >= 0.14
        process.communicate("\n", timeout=10)
    assert use.cpu_s() >= before, "nor do they when all is over"
    assert not Path(f"/proc/{process.pid}").exists()
