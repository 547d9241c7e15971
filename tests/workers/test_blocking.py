"""The pool for callers without an event loop."""

import asyncio
import multiprocessing
import os
import threading
import time

import pytest

from steelyard.errors import InfraError
from steelyard.workers import BlockingPool, Cut, WorkerPool


def pool(target="worker_functions:act", **more):
    return BlockingPool(lambda: WorkerPool(target, size=1, cpu_s=0.2, wall_s=10.0, **more))


@pytest.fixture
def blocking():
    made = pool()
    yield made
    made.close()


def answers(blocking):
    """An ordinary item, one that hangs, one after it."""
    return [blocking.once(item) for item in ("a", "spin", "b")]


def check(said):
    first, hung, after = said
    assert (first.value, hung.failure, after.value) == ("a", Cut("cpu"), "b")


def test_it_answers_from_the_main_thread_beside_a_running_loop_and_from_other_threads(blocking):
    check(answers(blocking))

    async def beside():
        return answers(blocking)

    check(asyncio.run(beside()))
    said = []
    threads = [threading.Thread(target=lambda: said.append(answers(blocking))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 2
    for one in said:
        check(one)


def test_a_forked_process_starts_its_own(blocking):
    mine = blocking.once("pid").value

    def in_fork(answers):
        answers.put((blocking.once("pid").value, blocking.once("a").value))
        blocking.close()

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=in_fork, args=(queue,))
    child.start()
    theirs, said = queue.get()
    child.join()
    assert theirs != mine
    assert said == "a"
    assert blocking.once("pid").value == mine


def test_closed_it_leaves_nothing_and_opens_again_when_it_is_asked(blocking):
    before = threading.active_count()
    pid = blocking.once("pid").value
    blocking.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert blocking.once("a").value == "a"
    blocking.close()
    assert threading.active_count() <= before + 2  # the loop's threads may still be on their way out


def test_who_waits_while_it_is_closed_is_told_and_nobody_hangs(blocking):
    blocking.once("a")
    ends = []

    def ask():
        try:
            ends.append(blocking.once("spin").failure)
        except InfraError as error:
            ends.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    blocking.close()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len(ends) == 6


CONFINED = {
    "socket": "import socket; socket.create_connection(('127.0.0.1', 9))",
    "process": "import subprocess; subprocess.run(['true'])",
    "system": "import os; os.system('true')",
    "fork": "import os; os.fork()",
    "write": "open({path!r}, 'w')",
    "append": "import os; os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)",
    "remove": "import os; os.remove({there!r})",
}


@pytest.mark.parametrize("way", CONFINED)
def test_a_confined_process_has_no_network_no_process_and_no_pen(way, tmp_path):
    path, there = tmp_path / "file", tmp_path / "there"
    there.touch()
    confined = pool("worker_functions:run_code", confined=True)
    try:
        said = confined.once(CONFINED[way].format(path=str(path), there=str(there)))
    finally:
        confined.close()
    assert said.failure is not None
    assert said.failure.type == "PermissionError"
    assert there.exists()
    assert not path.exists()


def test_a_confined_process_still_imports_and_reads(tmp_path):
    (tmp_path / "file").write_text("x")
    confined = pool("worker_functions:run_code", confined=True)
    try:
        said = confined.once(f"import decimal, json; assert open({str(tmp_path / 'file')!r}).read() == 'x'")
    finally:
        confined.close()
    assert said.failure is None


@pytest.mark.parametrize("confined", [True, False])
def test_only_a_confined_process_sees_nothing_of_the_environment(confined, monkeypatch):
    monkeypatch.setenv("STEELYARD_TEST_TOKEN", "secret")
    blocking = pool("worker_functions:run_code", confined=confined)
    try:
        said = blocking.once("import os; assert 'STEELYARD_TEST_TOKEN' not in os.environ")
    finally:
        blocking.close()
    assert (said.failure is None) is confined
