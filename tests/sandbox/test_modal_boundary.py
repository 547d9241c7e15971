"""Candidates on Modal: the real client library, a stand-in for its servers, and the real runner and guests.

The stand-in isolates nothing, so the interpreter of a place is bubblewrap here, around this machine's Python.
"""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("modal", reason="the extra modal is not installed")

from modal_server import Loss, standing_in

from boundaries import JUDGED, RIGHT, SNIPPET, WRONG, group_of, in_a_loop, until
from steelyard import Group, Part, Recipe, Rollout, Runtime, Scored
from steelyard.errors import SandboxError
from steelyard.execution import Ended, Limits
from steelyard.rewards.code import tests as unit_tests
from steelyard.sandbox import Program, telling
from steelyard.sandbox.interior import SYSTEM, Interior
from steelyard.sandbox.machine import find_bwrap
from steelyard.sandbox.modal import ModalSite
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.remote import Remote

pytestmark = pytest.mark.needs("modal", "bubblewrap")

PATIENT = Limits(cpu_s=10.0, idle_s=10.0)
LONG = "# " + "x" * 20_000 + "\n"
"""Makes a request longer than everything that is said before it."""


def walled(folder):
    """An interpreter that bubblewrap starts, as a script."""
    interior = Interior(folder)
    interior.furnish()
    words = [str(find_bwrap()[0].path), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    words += [
        "--unshare-uts",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--die-with-parent",
        "--ro-bind",
        "/usr",
        "/usr",
    ]
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    for tree, shown in zip(interior.trees, interior.shown, strict=True):
        words += ["--ro-bind", str(tree.source), str(shown)]
    words += ["--ro-bind", str(folder / "proc"), "/fake-proc", "--ro-bind", str(folder / "etc"), "/etc"]
    for name in ("null", "zero", "full", "random", "urandom"):
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    words += ["--proc", "/proc", "--tmpfs", "/run", "--dir", "/box", "--symlink", "/box/tmp", "/tmp"]  # noqa: S108 - inside
    words += ["--symlink", "/box/shm", "/dev/shm", "--remount-ro", "/", "--", interior.python]  # noqa: S108
    script = folder / "python"
    script.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
    script.chmod(0o755)
    return str(script), tuple(interior.packages)


@pytest.fixture
def python(tmp_path):
    return walled(tmp_path)


@pytest.fixture
def modal(request):
    """The stand-in, which a loop of its own serves; as the old backend, if the test says so."""
    with standing_in(old=getattr(request, "param", False)) as server:
        yield server


@asynccontextmanager
async def on_modal(modal, python, *, slots=2, **settings):
    """A boundary of Modal's; afterwards nothing of it is left."""
    path, packages = python
    site = ModalSite(**settings)
    site.traits = site.traits._replace(python=path, packages=packages, emulated=False)
    boundary = Remote(site, slots=slots, usual=slots)
    try:
        yield boundary
    finally:
        await boundary.close()
    assert modal.live() == 0
    await until(lambda: all(process.returncode is not None for process in modal.processes()))


def before_a_program(boundary):
    """How many bytes a place is sent before its first program."""
    mould = Mould.of(PATIENT)
    limits = Limits(**{name: getattr(mould, name) for name in mould._fields if name != "preload"})
    attest = telling.message("attest", {"limits": telling.limits_told(limits), "preload": ""})
    return len(boundary.settings(1)) + len(attest)


async def verdicts(boundary, groups):
    runtime = Runtime(Recipe((Part(unit_tests(boundary, limits=PATIENT)),)), advantage="rloo", stop=False)
    found = {}
    async for scored in runtime.score(groups):
        for rollout, total in zip(scored.group.rollouts, scored.totals, strict=True):
            found[rollout.ordinal] = (total.value, total.code) if isinstance(total, Scored) else total
    return found


@pytest.mark.slow
@in_a_loop
async def test_a_thousand_candidates_are_streamed_through_two_sandboxes(modal, python):
    codes = (RIGHT, WRONG, "def f(x):\n    raise ValueError\n", "def f(x:\n")
    ends = ((1, None), (0, "wrong_answer"), (0, "exception"), (0, "load_error"))
    groups = []
    for number in range(125):
        rows = [
            Rollout(
                number * 8 + place,
                f"? {number}",
                codes[place % 4],
                {"tests": JUDGED if number % 10 == 0 else SNIPPET},
                (number, place),
                number * 8 + place,
                "here",
            )
            for place in range(8)
        ]
        groups.append(Group(number, number, rows))
    async with on_modal(modal, python) as boundary:
        found = await verdicts(boundary, groups)
        assert len(modal.created) <= 4, "one for each slot and mould, none for a candidate"
    assert [found[ordinal] for ordinal in range(1000)] == [ends[ordinal % 4] for ordinal in range(1000)]


@in_a_loop
async def test_a_connection_that_is_lost_before_a_program_was_sent_costs_it_nothing(modal, python):
    async with on_modal(modal, python, slots=1) as boundary:
        modal.losses.append(Loss(after_in=1_000))
        execution = await boundary.run(Program("program", b"print(1)"), PATIENT)
        assert (execution.ended, execution.stdout) == (Ended.EXIT, b"1\n")
        assert len(modal.created) == 2


@in_a_loop
async def test_a_connection_that_is_lost_after_it_was_sent_is_suspect_and_decided_in_a_fresh_sandbox(
    modal, python
):
    async with on_modal(modal, python, slots=1) as boundary:
        modal.losses.append(Loss(after_in=before_a_program(boundary) + 10_000))
        found = await verdicts(boundary, [group_of(LONG + RIGHT)])
        assert found == {0: (1, None)}
        assert len(modal.created) >= 2


@in_a_loop
async def test_a_candidate_with_which_the_connection_is_lost_each_time_is_to_blame_while_canaries_pass(
    modal, python
):
    async with on_modal(modal, python, slots=1) as boundary:
        after = before_a_program(boundary) + 10_000  # no canary is as long
        modal.losses += [Loss(after_in=after) for _ in range(12)]
        found = await verdicts(boundary, [group_of(LONG + RIGHT)])
        assert found == {0: (0, "reproduced")}


@in_a_loop
async def test_a_sandbox_that_ends_under_a_running_program_is_suspect(modal, python):
    async with on_modal(modal, python, slots=1) as boundary:
        await boundary.attest()
        program = Program("program", b"import time\nprint(1, flush=True)\ntime.sleep(60)")
        running = asyncio.ensure_future(boundary.run(program, Limits(idle_s=60)))
        await asyncio.sleep(0.5)
        modal.kill()
        execution = await running
        assert execution.ended is Ended.LOST
        assert (await boundary.run(Program("program", b"print(2)"), PATIENT)).stdout == b"2\n"


@pytest.mark.parametrize("modal", [False, True], ids=["the new backend", "the old one"], indirect=True)
@in_a_loop
async def test_a_creation_limit_is_waited_for_and_is_nobodys_fault(modal, python):
    async with on_modal(modal, python, per_second=1000) as boundary:
        modal.limits = 2
        assert await verdicts(boundary, [group_of(RIGHT, WRONG)]) == {0: (1, None), 1: (0, "wrong_answer")}
        assert modal.tries > len(modal.created)


@in_a_loop
async def test_without_capacity_in_time_a_program_never_began(modal, python):
    async with on_modal(modal, python, create_s=1.5) as boundary:
        modal.limits = 1_000
        with pytest.raises(SandboxError):
            await boundary.run(Program("program", b"print(1)"), PATIENT)


def test_the_wall_around_the_stand_in_is_a_real_one(python):
    path, _packages = python
    done = asyncio.run(said(path, "import os; print(os.path.exists('/root/.bashrc'), os.listdir('/etc'))"))
    assert done.startswith("False ['")


async def said(path, source):
    process = await asyncio.create_subprocess_exec(path, "-c", source, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()
