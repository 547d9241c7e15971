"""What /proc says of processes, whose they are, and whether the machine starved them."""

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.sandbox.processes import idle, ourselves, owner, state, tree, tree_cpu, tree_state
from steelyard.sandbox.sentinel import Sentinel, starved

SLEEPER = "import signal; print('here', flush=True); signal.pause()"


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def run():
    running = []

    def start(code: str) -> subprocess.Popen[str]:
        running.append(started(code))
        running[-1].stdout.readline()
        return running[-1]

    yield start
    for process in running:
        for pid in reversed(tree(process.pid)):
            os.kill(pid, 9)
        with process:
            process.wait(10)


def looked(pid: int):
    """Two looks, the first when it has come to rest."""
    give_up = time.monotonic() + 10
    while tree_state(pid).runnable and time.monotonic() < give_up:
        time.sleep(0.01)
    first = tree_state(pid)
    time.sleep(0.2)
    return first, tree_state(pid), 0.2


def test_a_sleeping_process_is_idle(run):
    assert idle(*looked(run(SLEEPER).pid))


def test_a_sleeping_process_whose_child_computes_is_not_idle(run):
    process = run(f"import os\nif os.fork() == 0:\n while True: pass\n{SLEEPER}")
    before = tree_state(process.pid)
    time.sleep(0.2)
    assert not idle(before, tree_state(process.pid), 0.2)
    assert tree_cpu(process.pid) > 0.0


def test_a_process_that_talks_is_not_idle(run):
    process = run(
        "import sys\nprint('here', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
    )
    before, _, wall_s = looked(process.pid)
    process.stdin.write("x\n")
    process.stdin.flush()
    process.stdout.readline()
    assert not idle(before, tree_state(process.pid), wall_s)


def test_a_tree_holds_children_of_children(run):
    process = run(f"import os\nif os.fork() == 0:\n os.fork()\n{SLEEPER}")
    give_up = time.monotonic() + 10
    while len(tree(process.pid)) < 3 and time.monotonic() < give_up:
        time.sleep(0.01)
    assert len(set(tree(process.pid))) == 3
    assert tree(process.pid)[0] == process.pid


def test_threads_are_tasks(run):
    sleeps = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    process = run(f"import threading, time\n{sleeps}\n{SLEEPER}")
    assert state([process.pid]).tasks == 2


def test_the_time_of_children_that_were_waited_for_counts(run):
    process = run(
        "import os, time\n"
        "if (child := os.fork()) == 0:\n"
        " while time.process_time() < 0.1: pass\n"
        " os._exit(0)\n"
        f"os.waitpid(child, 0)\n{SLEEPER}"
    )
    assert state([process.pid]).cpu_s >= 0.09


def test_a_process_cannot_lie_about_its_state_by_its_name(run):
    process = run(f"open('/proc/self/comm', 'w').write(') R 1 (x) R')\n{SLEEPER}")
    assert process.pid in tree(os.getpid())
    assert looked(process.pid)[1].runnable == 0


def test_processes_that_have_ended_are_nothing():
    with started("pass") as process:
        process.wait(10)
    assert state([process.pid])[:3] == (0, 0, 0.0)
    assert tree(process.pid) == [process.pid]


def test_an_owner_is_read_back_from_the_name_it_gave():
    us = ourselves()
    assert owner(us.named("slot-1")) == us
    assert owner("steelyard-slot") is None


def test_an_owner_is_dead_only_when_that_is_certain():
    us = ourselves()
    assert not us.is_dead()
    assert us._replace(start=us.start + 1).is_dead(), "another process with our number"
    assert us._replace(pid=2**22 + 1).is_dead()
    assert not us._replace(namespace=us.namespace + 1, pid=2**22 + 1).is_dead(), "nobody can tell"


# --- starvation


def test_a_sentinel_is_gone_when_it_is_closed_and_remembers():
    with Sentinel(0.001) as sentinel:
        time.sleep(0.02)
    told = sentinel.delay_s()
    assert told >= 0.0
    time.sleep(0.02)
    assert sentinel.delay_s() == told
    assert not [one for one in threading.enumerate() if one.name == "steelyard-sentinel"]


seconds = st.floats(0.0, 100.0)


@given(st.floats(0.1, 8.0), seconds, st.integers(1, 100), seconds, st.integers(1, 8))
def test_a_crowd_of_its_own_never_excuses(entitled, wall, runnable, delay, cores):
    if starved(entitled, 0.0, wall, runnable, delay, cores=cores):
        assert runnable <= cores


@given(st.floats(0.1, 8.0), seconds, seconds, seconds, seconds)
def test_getting_more_of_the_cpu_is_never_a_sign_of_starving(entitled, got, more, wall, delay):
    if starved(entitled, got + more, wall, 1, delay):
        assert starved(entitled, got, wall, 1, delay)


def test_who_gets_a_tenth_while_the_sentinel_waits_as_well_is_starved():
    assert starved(1.0, cpu_got_s=0.2, wall_s=2.0, runnable=1, sentinel_delay_s=1.0)


@given(st.floats(0.1, 8.0), seconds, seconds, st.integers(0, 8))
def test_nobody_starves_while_the_sentinel_is_served(entitled, got, wall, runnable):
    assert not starved(entitled, got, wall, runnable, 0.0, cores=8)
