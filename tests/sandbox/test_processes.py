"""What /proc says of processes, whose they are, and whether the machine starved them."""

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.sandbox.processes import Times, ourselves, owner, state, tree
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


def at_rest(pid: int):
    """Look when nothing in it could run any more."""
    give_up = time.monotonic() + 10
    while (seen := state(tree(pid))).runnable and time.monotonic() < give_up:
        time.sleep(0.01)
    return seen


def test_a_sleeping_process_is_told_from_one_whose_child_computes(run):
    asleep = run(SLEEPER).pid
    assert at_rest(asleep) == at_rest(asleep)
    assert at_rest(asleep).runnable == 0
    computes = run(f"import os\nif os.fork() == 0:\n while True: pass\n{SLEEPER}").pid
    give_up = time.monotonic() + 10
    while (seen := state(tree(computes)))[:2] != (2, 1) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert (seen.tasks, seen.runnable) == (2, 1)


def test_what_a_process_says_is_counted(run):
    process = run(
        "import sys\nprint('here', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
    )
    before = at_rest(process.pid)
    process.stdin.write("x\n")
    process.stdin.flush()
    process.stdout.readline()
    assert state(tree(process.pid)).io_bytes > before.io_bytes


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


def test_threads_that_outlive_the_first_one_are_tasks(run):
    leaves = "ctypes.CDLL(None).pthread_exit(None)"
    process = run(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        f"print('here', flush=True)\n{leaves}"
    )
    assert at_rest(process.pid).tasks == 1


def test_the_time_of_children_that_were_waited_for_counts(run):
    process = run(
        "import os, time\n"
        "if (child := os.fork()) == 0:\n"
        " while time.process_time() < 0.1: pass\n"
        " os._exit(0)\n"
        f"os.waitpid(child, 0)\n{SLEEPER}"
    )
    assert Times().cpu_s([process.pid]) >= 0.09


BURN = """
import os, signal, sys, time
def burn(wait):
    if (child := os.fork()) == 0:
        while time.process_time() < 0.15: pass
        signal.pause()
    sys.stdin.readline()
    os.kill(child, 9)
    if wait:
        os.waitpid(child, 0)
    print(sum(os.times()[:4]), flush=True)
print("here", flush=True)
"""


def burnt(process, times):
    """What is seen when its child has used its time, and when that child was killed."""
    give_up = time.monotonic() + 20
    while (seen := times.cpu_s(tree(process.pid))) < 0.14 and time.monotonic() < give_up:
        time.sleep(0.01)
    (child,) = set(tree(process.pid)) - {process.pid}
    process.stdin.write("go on\n")
    process.stdin.flush()
    used = float(process.stdout.readline())
    while child in tree(process.pid) and time.monotonic() < give_up:
        time.sleep(0.01)
    return seen, times.cpu_s(tree(process.pid)), used


def test_children_that_are_killed_and_not_waited_for_do_not_take_their_time_along(run):
    rounds = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(2): burn(wait=False)\n"
    process = run(f"{BURN}{rounds}signal.pause()")
    times = Times()
    seen, after, used = burnt(process, times)
    assert after >= seen >= 0.14
    assert used < 0.1, "the kernel has forgotten it"
    give_up = time.monotonic() + 20
    while times.cpu_s(tree(process.pid)) < 0.28 and time.monotonic() < give_up:
        time.sleep(0.01)
    assert times.cpu_s(tree(process.pid)) >= 0.28, "and so the next one's comes on top"


def test_the_time_of_children_that_were_seen_and_waited_for_counts_once(run):
    process = run(f"{BURN}burn(wait=True)\nsignal.pause()")
    seen, after, used = burnt(process, Times())
    assert seen >= 0.14
    assert seen <= after <= used + 0.05


def test_a_process_cannot_lie_about_its_state_by_its_name(run):
    process = run(f"open('/proc/self/comm', 'w').write(') R 1 (x) R')\n{SLEEPER}")
    assert process.pid in tree(os.getpid())
    assert at_rest(process.pid).runnable == 0


def test_processes_that_have_ended_are_nothing():
    with started("pass") as process:
        process.wait(10)
    assert state([process.pid])[:2] == (0, 0)
    assert Times().cpu_s([process.pid]) == 0.0
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
