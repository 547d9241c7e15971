"""What a slot is shown of the host, and what becomes of it where the host hides something."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from boundaries import until
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import Ended, Limits
from steelyard.sandbox import Program
from steelyard.sandbox.bubblewrap import Bubblewrap
from steelyard.sandbox.interior import _shown
from steelyard.sandbox.machine import Tree


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("/opt/venv/lib", "/opt/venv/lib"),
        ("/tmp/venv/lib", "/steelyard/tree3"),  # noqa: S108 - where a guest has a folder of its own
        ("/dev/shm/venv", "/steelyard/tree3"),  # noqa: S108
    ],
)
def test_a_runtime_that_lies_where_a_guest_has_something_else_is_shown_elsewhere(target, inside):
    assert _shown(Tree(Path(target), Path(target), None, None), 3) == Path(inside)


@pytest.mark.needs("bubblewrap", "root", "tmpfs")
def test_it_holds_where_parts_of_proc_are_masked_as_in_containers():
    masked = f"mount -t tmpfs none /proc/irq && exec {sys.executable} -m steelyard doctor"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", masked], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[:16]) == (0, "bubblewrap holds"), done.stdout + done.stderr


@pytest.mark.needs("bubblewrap")
def test_a_second_loop_that_runs_at_the_same_time_is_refused_and_the_first_goes_on():
    boundary, open_in_the_first, may_end = Bubblewrap(slots=1), threading.Event(), threading.Event()

    async def first():
        await boundary.attest()
        opened = boundary._opened()
        open_in_the_first.set()
        await asyncio.to_thread(may_end.wait, 30)
        held.append(boundary._opened() is opened)
        await boundary.close()

    async def second():
        boundary._opened()

    held = []
    thread = threading.Thread(target=lambda: asyncio.run(first()))
    thread.start()
    try:
        assert open_in_the_first.wait(30)
        with pytest.raises(RefusedError, match="another event loop"):
            asyncio.run(second())
    finally:
        may_end.set()
        thread.join()
    assert held == [True]


@pytest.mark.needs("bubblewrap")
def test_closing_while_programs_wait_ends_them_all_and_opens_nothing_again():
    async def close_them():
        boundary = Bubblewrap(slots=1)
        await boundary.attest()
        program = Program("program", b"import time\ntime.sleep(60)\n")
        runs = [asyncio.ensure_future(boundary.run(program, Limits(idle_s=50.0))) for _ in range(6)]
        await until(lambda: boundary._open.slots._watchdog._watched)
        await boundary.close()
        ends = await asyncio.gather(*runs, return_exceptions=True)
        return ends, boundary._open

    ends, opened = asyncio.run(close_them())
    assert opened is None
    assert all(isinstance(end, SandboxError) or end.ended is Ended.LOST for end in ends), ends
    assert sum(isinstance(end, SandboxError) for end in ends) >= 5  # those that had not begun
