"""Programs in real containers: by runc, by gVisor, and by a command, with a runner in each."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from boundaries import JUDGED, RIGHT, SNIPPET, WRONG, group_of, in_a_loop, until
from steelyard import Part, Recipe, Runtime, Scored
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import MIB, Ended, Limits
from steelyard.rewards.code import tests as unit_tests
from steelyard.sandbox import Program, boundary_of
from steelyard.sandbox.bundle import BundleSite
from steelyard.sandbox.cgroups import detect
from steelyard.sandbox.container import CommandSite, container_command
from steelyard.sandbox.interior import SYSTEM, Interior
from steelyard.sandbox.kinds import KINDS
from steelyard.sandbox.parcel import command, parcel
from steelyard.sandbox.remote import Remote
from steelyard.sandbox.site import Traits

PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
KINDS_HERE = [
    pytest.param("runc", marks=pytest.mark.needs("runc")),
    pytest.param("gvisor", marks=[pytest.mark.needs("gvisor"), pytest.mark.slow]),
    pytest.param("podman", marks=[pytest.mark.needs("podman"), pytest.mark.slow]),
]
MOUNTS = pytest.mark.needs("root", "tmpfs")
PATIENT = Limits(cpu_s=20.0, idle_s=3.0)
SHORT = Limits(cpu_s=0.3)
BROOD = """
import os, time
for _ in range(3):
    if not os.fork():
        while True: pass
time.sleep(60)
"""


def of_podman(folder, slots):
    """A container of this machine's own folders, since no image can be fetched: a prefix of a user's own."""
    root, interior = folder / "root", Interior(folder)
    for name in ("usr", "proc", "dev", "etc", "tmp", "run", "box", "sys", "var/tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shown = [
        ("/usr", "/usr"),
        *((str(t.source), str(s)) for t, s in zip(interior.trees, interior.shown, strict=True)),
    ]
    for name in SYSTEM:
        if Path(name).is_symlink():
            (root / name.strip("/")).symlink_to(Path(name).readlink())
        elif Path(name).is_dir():
            shown.append((name, name))
    for _, place in shown:
        (root / place.strip("/")).mkdir(parents=True, exist_ok=True)
    options = ["--ulimit", "nofile=2048:2048", "--ulimit", "nproc=4096:4096"]
    options += [word for of, to in shown for word in ("--volume", f"{of}:{to}:ro")]
    prefix = [*PODMAN, *container_command("podman", str(root), [*options, "--rootfs"])[1:]]
    traits = Traits(python=interior.python, packages=tuple(interior.packages))
    site = CommandSite(
        prefix, name="podman", end=[*PODMAN, "rm", "--force", "--time", "0", "{name}"], traits=traits
    )
    return Remote(site, slots=slots)


@asynccontextmanager
async def opened(kind, folder, slots=2):
    boundary = of_podman(folder, slots) if kind == "podman" else boundary_of(kind, slots=slots)
    try:
        yield boundary
    finally:
        began = time.monotonic()
        await boundary.close()
        took_s = time.monotonic() - began
        assert took_s < 10, "two seconds, on a machine that has nothing else to do"


def left_of(pid):
    """Folders and cgroups that carry a process's name."""
    places = [Path(tempfile.gettempdir()), *Path("/sys/fs/cgroup").iterdir(), *detect().folders.values()]
    return [path for place in places for path in place.glob(f"steelyard-*-{pid}-*")]


async def ran(boundary, source, limits=PATIENT, stdin=b""):
    return await boundary.run(Program("program", source.encode(), stdin=stdin), limits)


@pytest.mark.parametrize("kind", KINDS_HERE)
@in_a_loop
async def test_programs_end_as_they_do_everywhere(kind, tmp_path):
    async with opened(kind, tmp_path) as boundary:
        facts = await boundary.attest()
        assert facts["confined_by"] == ("namespaces" if kind == "runc" else "users")
        right = await ran(boundary, "print(input() * 2)", stdin=b"ab\n")
        assert (right.ended, right.code, right.stdout) == (Ended.EXIT, 0, b"abab\n")
        assert right.clocks.cpu_s > 0
        dead = await ran(boundary, "import os\nos._exit(3)")
        assert (dead.ended, dead.code) == (Ended.EXIT, 3)
        spins = await ran(boundary, "while True: pass", SHORT)
        assert (spins.ended, spins.limit) == (Ended.LIMIT, "cpu")
        assert (await ran(boundary, BROOD, SHORT)).limit == "cpu"
        sleeps = await ran(boundary, "import time\ntime.sleep(60)", Limits(idle_s=0.3))
        assert (sleeps.ended, sleeps.limit) == (Ended.LIMIT, "idle")
        assert boundary.score(b"") == 1.0
        await ran(boundary, "print(1)")
        assert boundary.score(b"") != 1.0, "once somebody asks, slots spin"
        killed = await ran(boundary, "import os\nos.kill(os.getpid(), 9)\nprint('alive')")
        first = kind == "runc"  # of its namespace: whom its own signal does not reach
        assert killed.ended in {Ended.EXIT, Ended.SIGNAL}, "what it does to itself is no suspicion"
        assert killed.ended is Ended.EXIT or not first
        floods = await ran(boundary, "while True: print('x' * 1000)", Limits(cpu_s=20, output_bytes=MIB))
        assert floods.limit == "output"


@pytest.mark.parametrize("kind", KINDS_HERE)
@in_a_loop
async def test_a_program_finds_nothing_of_the_one_before_it(kind, tmp_path):
    leaves = """
import os, time
from pathlib import Path
for folder in ("/tmp", "/dev/shm", "/var/tmp", "."):
    try:
        Path(folder, "left-behind").write_text("x")
    except OSError:
        pass
for depth in range(1500):
    os.mkdir("d")
    os.chdir("d")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        Path("/tmp/daemon").write_text(str(os.getpid()))
        time.sleep(100)
"""
    looks = """
import os
from pathlib import Path
folders, names = ("/tmp", "/dev/shm", "/var/tmp", "."), ("left-behind", "daemon")
places = [Path(folder, name) for folder in folders for name in names]
print([str(place) for place in places if place.exists()])
ours = [p for p in os.listdir("/proc") if p.isdigit() and os.stat(f"/proc/{p}").st_uid == os.getuid()]
print(ours[1:])  # the first is itself, where it can see itself
"""
    async with opened(kind, tmp_path, slots=1) as boundary:
        assert (await ran(boundary, leaves)).ended is Ended.EXIT
        seen = await ran(boundary, looks)
        assert seen.stdout == b"[]\n[]\n", seen.stderr


@pytest.mark.parametrize("kind", KINDS_HERE)
@in_a_loop
async def test_verdicts_of_a_group_are_those_of_bubblewrap(kind, tmp_path):
    async with opened(kind, tmp_path) as boundary:
        for tests in (SNIPPET, JUDGED):
            reward = unit_tests(boundary, limits=PATIENT)
            runtime = Runtime(Recipe((Part(reward),)), advantage="rloo", stop=False)
            codes = [
                RIGHT,
                WRONG,
                "def f(x):\n    raise ValueError\n",
                "def f(x:\n",
                "import os\nos._exit(0)\n",
            ]
            async for scored in runtime.score([group_of(*codes, tests=tests)]):
                totals = [(total.value, total.code) for total in scored.totals if isinstance(total, Scored)]
            last = "exit" if tests == SNIPPET else totals[4][1]
            assert totals == [(1, None), (0, "wrong_answer"), (0, "exception"), (0, "load_error"), (0, last)]
            await reward.close()


@pytest.mark.needs("runc")
@in_a_loop
async def test_answers_larger_than_a_pipe_follow_one_another(tmp_path):
    async with opened("runc", tmp_path, slots=1) as boundary:
        for number in range(10):
            said = await ran(boundary, f"print('{number}' * 3_000_000)", PATIENT)
            assert said.stdout == str(number).encode() * 3_000_000 + b"\n"


@pytest.mark.needs("runc", "cgroup")
@in_a_loop
async def test_memory_is_counted_by_the_container_and_named(tmp_path):
    async with opened("runc", tmp_path, slots=1) as boundary:
        big = await ran(boundary, "x = bytearray(3 << 30)\nprint(1)", Limits(cpu_s=60, memory_bytes=64 * MIB))
        assert (big.ended, big.limit) == (Ended.LIMIT, "memory")
        assert (await ran(boundary, "print(1)", Limits(cpu_s=60, memory_bytes=64 * MIB))).ended is Ended.EXIT


@pytest.mark.needs("runc")
@in_a_loop
async def test_a_container_that_is_killed_under_its_program_is_lost_and_replaced():
    site = BundleSite("runc")
    boundary = Remote(site, slots=1)
    try:
        await boundary.attest()
        running = asyncio.ensure_future(
            ran(boundary, "import time\nprint(1, flush=True)\ntime.sleep(60)", Limits(idle_s=60))
        )
        await until(lambda: running_in(site), 30)
        state = str(site._interior.folder / "state")
        await asyncio.to_thread(
            subprocess.run, ["runc", "--root", state, "kill", next(iter(site._open)), "KILL"], check=True
        )
        assert (await running).ended is Ended.LOST
        assert (await ran(boundary, "print(2)")).stdout == b"2\n"
    finally:
        await boundary.close()


def running_in(site):
    """Whether a program runs in the site's only container."""
    name = next(iter(site._open), None)
    procs = Path("/sys/fs/cgroup/pids") / (name or "none") / "cgroup.procs"
    return procs.exists() and len(procs.read_text().split()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_HERE[:2])
def test_a_host_that_is_killed_leaves_no_container(kind, tmp_path):
    script = tmp_path / "host.py"
    script.write_text(
        "import asyncio, sys\n"
        "from steelyard.execution import Limits\n"
        "from steelyard.sandbox import Program, boundary_of\n"
        "async def main():\n"
        "    boundary = boundary_of(sys.argv[1], slots=1)\n"
        "    await boundary.attest()\n"
        "    print('ready', flush=True)\n"
        "    source = b'import time\\ntime.sleep(60)'\n"
        "    await boundary.run(Program('program', source), Limits(idle_s=60, wall_s=60))\n"
        "asyncio.run(main())\n"
    )
    host = subprocess.Popen([sys.executable, script, kind], stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout.readline() == "ready\n"
        assert left_of(host.pid)
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
        host.stdout.close()
    give_up = time.monotonic() + 20
    while (alive := named(host.pid)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert alive == []
    boundary = boundary_of(kind, slots=1)  # whoever comes next sweeps
    asyncio.run(boundary.close())
    assert [path for path in left_of(host.pid) if path.exists()] == []


def named(pid):
    """Processes in whose command line a host's name stands: its runtime's, and what that started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"-{pid}-" in words and "steelyard-" in words:
            found.append(words.replace("\0", " ")[:200])
    return found


def test_the_runner_imports_nothing_that_is_not_sent_with_it(tmp_path):
    said = subprocess.run(
        [*command(sys.executable)[:-1], command(sys.executable)[-1].replace("main()", "print('imported')")],
        input=parcel(),
        capture_output=True,
        check=True,
        env={"TMPDIR": str(tmp_path)},
        timeout=60,
    )
    assert said.stdout == b"imported\n"
    for folder in Path("/run").glob(
        "steelyard-*/steelyard/sandbox/runner.py"
    ):  # nothing removes it outside a container
        shutil.rmtree(folder.parents[2])


class TestACommandAsABoundary:
    def test_its_words_are_filled_in_and_other_braces_stay(self, tmp_path):
        site = CommandSite(["env", "N={name}", "M={memory_bytes}", "{json}"])
        assert site.identity.startswith("container/1:env")
        assert site.facts()["command"] == "env N={name} M={memory_bytes} {json}"

    def test_one_that_is_not_there_is_refused_with_the_remedy(self):
        with pytest.raises(RefusedError, match=r"there is no no-such-program[\s\S]*install"):
            CommandSite(["no-such-program", "run"])

    @in_a_loop
    async def test_one_that_fails_says_in_whose_words(self):
        boundary = Remote(CommandSite(["sh", "-c", "echo 'no daemon answers' >&2; exit 1"]))
        with pytest.raises(RefusedError, match="no daemon answers"):
            await boundary.attest()

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param("env", id="nothing"),
            pytest.param(
                "unshare -n -p -f --mount-proc", id="namespaces", marks=pytest.mark.needs("root", "tmpfs")
            ),
        ],
    )
    @in_a_loop
    async def test_one_that_starts_no_container_runs_nothing_here(self, words):
        boundary = Remote(CommandSite(words.split(), traits=Traits(python=sys.executable)))
        with pytest.raises(RefusedError, match="in no container"):
            await boundary.attest()

    @in_a_loop
    async def test_a_python_that_cannot_run_the_runner_is_said_to_be_so(self, monkeypatch):
        monkeypatch.setattr("steelyard.sandbox.parcel.OLDEST", (9, 9))
        boundary = Remote(CommandSite(["env"], traits=Traits(python=sys.executable)))
        with pytest.raises(RefusedError, match=r"is too old for the runner: 9\.9 or newer"):
            await boundary.attest()

    @in_a_loop
    async def test_its_end_is_called_whatever_became_of_its_client(self, tmp_path):
        ended = tmp_path / "ended"
        site = CommandSite(["sh", "-c", "exit 0"], end=["sh", "-c", f"echo $0 >> {ended}", "{name}"])
        boundary = Remote(site)
        with pytest.raises(SandboxError):
            await boundary.run(Program("program", b""), Limits())
        await boundary.close()
        assert len(set(ended.read_text().split())) == 3

    def test_dockers_command_grants_root_only_what_making_users_takes(self):
        words = " ".join(container_command("docker", "python:3.12-slim"))
        assert "--network none" in words
        assert "--cap-drop ALL" in words
        assert "SYS_ADMIN" not in words


class TestNames:
    def test_of_boundaries_are_those_that_doctor_and_the_documents_know(self):
        assert set(KINDS) == {"bubblewrap", "runc", "gvisor", "docker", "podman", "modal"}
        assert all(kind.covers and kind.lacks for kind in KINDS.values())

    @pytest.mark.parametrize("name", ["nothing", "bubblewrap:x", "docker:", ""])
    def test_that_are_none_are_refused_with_those_there_are(self, name):
        with pytest.raises(RefusedError, match=r"docker\[:IMAGE\]"):
            boundary_of(name)

    def test_a_boundary_is_taken_as_it_is(self):
        boundary = Remote(CommandSite(["true"]))
        assert boundary_of(boundary) is boundary


@pytest.mark.needs("runc")
def test_the_command_line_scores_in_containers(tmp_path):
    rows = [{"prompt": "?", "completion": code, "tests": SNIPPET} for code in (RIGHT, WRONG)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "score",
        "rows.jsonl",
        "--reward",
        "tests",
        "--boundary",
        "runc",
        "--out",
        "out.jsonl",
        "--quiet",
    ]
    subprocess.run([sys.executable, "-m", "steelyard", *words], cwd=tmp_path, check=True, timeout=100)
    scored = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["value"], row["integrity"]) for row in scored] == [(1, "isolated"), (0, "isolated")]
    assert os.listdir(tmp_path)  # noqa: PTH208
