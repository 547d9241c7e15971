"""The conformance suite catches boundaries that are broken on purpose, by name, and covers every line."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from steelyard.cli import conformance as command
from steelyard.cli import main
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import Ended, Execution
from steelyard.sandbox import Opinion, boundary_of
from steelyard.sandbox.conformance import PROGRAMS, Fault, Programs, Report, Row, asking, hold, holding
from steelyard.sandbox.conformance.asking import Asking
from steelyard.sandbox.conformance.cheating import CHEATING, ON_A_JUDGE
from steelyard.sandbox.conformance.honest import HONEST, PLAIN
from steelyard.sandbox.conformance.hostile import HOSTILE, SLOW
from steelyard.sandbox.conformance.saboteurs import SABOTEURS
from steelyard.sandbox.conformance.specimen import KINDS, MARK, PASS, SNIPPET, STDIN, Specimen, under
from steelyard.sandbox.guest import codec

BY_NAME = {one.name: one for one in (*HONEST, *HOSTILE, *CHEATING, *SABOTEURS)}
RIGHT = [Specimen(f"right {n}", PLAIN, frozenset({PASS})) for n in range(3)]
WRONG = [
    Specimen(
        f"wrong {n}", f"def squares(xs):\n    return {n}\n", frozenset({"wrong_answer"}), kind="pleasing"
    )
    for n in range(6)
]
SOON = {"wall_s": 0.05, "grace_s": 1.0}


@pytest.fixture(autouse=True)
def measured_shortly(monkeypatch):
    monkeypatch.setattr(holding, "_SHORT_S", 0.1)


def some(*names):
    return [BY_NAME[name] for name in names]


def held(boundary, others=(), honest=RIGHT, **settings):
    return hold(lambda: boundary, programs=Programs(honest, list(others)), **{"lanes": 2, **settings})


def blamed(report):
    return {fault.program for fault in report.faults}


# --- boundaries that are broken on purpose


class InProcess:
    """Answers tables of calls right, by running them here: only for programs of this file."""

    name, identity = "in-process", "in-process/1"
    closes_s = 0.0

    async def attest(self, limits=None):
        return {"uid": "0"}

    async def run(self, program, limits, *, listen=None, fresh=False, urgent=False):
        await asyncio.sleep(0)
        space = {}
        exec(program.source, space)  # noqa: S102
        outcomes = []
        for name, arguments, *_ in codec.loads(program.frames[0]):
            value = space[name](*map(codec.from_tree, arguments))
            outcomes.append(["v", codec.to_tree(value)])
        for frame in (["loaded"], ["r", 0, outcomes], ["done"]):
            if listen(codec.dumps(frame)):
                return Execution(Ended.ENOUGH)
        return Execution(Ended.EXIT, 0)

    async def check(self, source, checks, limits, *, fresh=False):
        await asyncio.sleep(0)
        return Execution(Ended.ENOUGH), Opinion(2, 2)

    async def close(self):
        await asyncio.sleep(self.closes_s)


PLAINLY = """
import json, os, sys
source, calls = json.loads(sys.stdin.read())
channel = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
space = {}
exec(source, space)
told = []
for name, arguments, *_ in calls:
    try:
        told.append(["v", space[name](*arguments)])  # lists of small numbers stand for themselves
    except BaseException as error:
        told.append(["x", type(error).__name__, str(error), None, []])
print(json.dumps([["loaded"], ["r", 0, told], ["done"]]), file=channel, flush=True)
"""


class InASubprocess(InProcess):
    """Runs a program in a process of its own, and isolates nothing: only for programs that do no harm."""

    name = "subprocess"

    def __init__(self, folder):
        self.folder = folder

    async def run(self, program, limits, *, listen=None, fresh=False, urgent=False):
        given = json.dumps([program.source.decode(), codec.loads(program.frames[0])]).encode()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-IS", "-c", PLAINLY),
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        process.stdin.write(given)
        process.stdin.close()
        line = await process.stdout.readline()
        code = await process.wait()
        for frame in json.loads(line or "[]"):
            listen(codec.dumps(frame))
        return Execution(Ended.EXIT, code)


class Failing(InProcess):
    """Fails some programs by what their source says."""

    def __init__(self, what, come):
        self.what, self.come = what, come

    async def run(self, program, limits, **more):
        if self.what in program.source.decode():
            return await self.come()
        return await super().run(program, limits, **more)


class Harmed(InProcess):
    """Once a program was wrong, the next one is lost: something was left in the slot."""

    harmed = False

    async def run(self, program, limits, **more):
        harmed, self.harmed = (
            self.harmed,
            b"return x * x" not in program.source and b"[x" not in program.source,
        )
        return Execution(Ended.EXIT, 1) if harmed else await super().run(program, limits, **more)


async def for_ever():
    await asyncio.sleep(3_600)


# --- what is caught, and by which programs


def test_a_boundary_that_does_as_it_must_holds():
    report = held(InProcess(), WRONG)
    assert (report.verdict, report.faults) == ("holds", [])
    assert [(row.kind, row.total, row.contained) for row in report.rows] == [("pleasing", 6, 6)]
    assert report.honest.contained == 3
    assert report.facts == {"uid": "0"}
    assert report.per_s > 0


def test_a_boundary_that_passes_everything_is_caught_by_every_cheat():
    report = held(InProcess(), ON_A_JUDGE, honest=under(RIGHT, "check"))
    assert report.verdict == "does not hold"
    assert blamed(report) == {one.name for one in ON_A_JUDGE}


def test_of_a_boundary_that_fails_honest_programs_nothing_is_said():
    async def fails():
        return Execution(Ended.SIGNAL, 9)

    odd = RIGHT[0]._replace(name="odd", completion=PLAIN + "# odd\n")
    report = held(Failing("# odd", fails), WRONG, honest=[*RIGHT, odd])
    assert report.verdict == "no verdict"
    assert blamed(report) == {"odd"}
    assert report.rows == []
    assert report.unrun == (6, "honest programs fail")
    assert (report.honest.contained, report.honest.total) == (3, 4)


def test_where_the_host_can_be_seen_nothing_worse_is_let_loose(tmp_path):
    looks = [one for one in HOSTILE if one.kind == "separation"]
    report = held(InASubprocess(tmp_path), [*looks, *some("forks without end", "kills everybody")])
    assert report.verdict == "does not hold"
    assert blamed(report) == {one.name for one in looks}
    assert {row.kind for row in report.rows} == {"separation"}
    assert report.unrun[0] == 2


def test_without_a_network_of_its_own_a_boundary_is_caught_by_the_bait(tmp_path):
    names = ("connects outside", "connects to named sockets")
    assert blamed(held(InASubprocess(tmp_path), some(*names))) == set(names)


def test_what_is_left_on_the_host_is_named_by_the_program_that_left_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(holding, "_LATER_S", 0.1)
    try:
        report = held(InASubprocess(tmp_path), some("leaves files everywhere", "leaves a daemon"))
    finally:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().startswith(MARK.encode()):
                    os.kill(int(process.name), signal.SIGKILL)
    assert blamed(report) == {"leaves files everywhere", "leaves a daemon"}
    assert any("/dev/shm" in fault.words for fault in report.faults)  # noqa: S108
    assert any("process" in fault.words for fault in report.faults)
    assert not list(Path("/dev/shm").glob(f"{MARK}-*"))  # noqa: S108


@pytest.mark.parametrize(("emulated", "blames"), [("yes", set()), ("no", {"fills"}), (None, {"fills"})])
def test_only_where_a_kernel_is_emulated_may_a_program_run_out_of_time_before_it_fills_something(
    emulated, blames
):
    class Slow(Failing):
        async def attest(self, limits=None):
            return {} if emulated is None else {"emulated": emulated}

    async def cut():
        return Execution(Ended.LIMIT, limit="cpu")

    fills = Specimen("fills", PLAIN + "# fills\n", frozenset({"memory"}), kind="memory")
    assert blamed(held(Slow("# fills", cut), [fills])) == blames


def test_what_one_program_leaves_the_next_must_not_find(tmp_path):
    leaves = Specimen("leaves", f"open('{MARK}-word', 'w').close()\n{PLAIN}", frozenset({PASS}))
    finds = Specimen(
        "finds",
        f"import os\n{PLAIN}\nif not os.path.exists('{MARK}-word'):\n    squares = list\n",
        frozenset({"wrong_answer"}),
        kind="sabotage",
        after=leaves,
    )
    assert "finds" in blamed(held(InASubprocess(tmp_path), [finds]))
    assert blamed(held(InProcess(), [finds._replace(after=None)])) == set()


def test_a_program_that_harms_its_slot_is_named_by_the_honest_one_after_it():
    report = held(Harmed(), WRONG[:1], lanes=1)
    assert blamed(report) == {"wrong 0"}
    assert "the honest program after it" in report.faults[0].words


def test_a_saboteur_is_named_by_the_honest_one_beside_it():
    class Shared(InProcess):
        busy = False

        async def run(self, program, limits, **more):
            if b"return 0" in program.source:
                self.busy = True
                await asyncio.sleep(0.2)
                self.busy = False
            return Execution(Ended.EXIT, 1) if self.busy else await super().run(program, limits, **more)

    saboteur = WRONG[0]._replace(name="saboteur", kind="sabotage")
    report = held(Shared(), [saboteur], lanes=1)
    assert blamed(report) == {"saboteur"}
    assert any("beside it" in fault.words for fault in report.faults)


def test_a_boundary_that_hangs_is_named_and_hangs_nobody():
    report = held(Failing("return 0", for_ever), WRONG, lanes=1, **SOON)
    assert report.verdict == "does not hold"
    assert "hung" in report.faults[0].words
    assert {"wrong 0"} == blamed(report)


def test_after_three_hangs_the_rest_is_not_run():
    report = held(Failing("return ", for_ever), WRONG, lanes=3, **SOON)
    assert report.verdict == "no verdict"
    assert report.unrun[0] == len(WRONG)


def test_who_does_not_let_go_when_called_off_is_left_alone(monkeypatch):
    monkeypatch.setattr(asking, "_LET_GO_S", 0.2)

    async def stubborn():
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3_600)

    report = held(Failing("return 0", stubborn), WRONG[:2], lanes=1, **SOON)
    assert blamed(report) == {"wrong 0"}


def test_a_boundary_that_blocks_its_loop_is_named_with_what_ran():
    let_go = threading.Event()

    async def blocks():
        let_go.wait(60)  # noqa: ASYNC251, RUF100 - that is the point

    report = held(Failing("return 0", blocks), WRONG[:1], lanes=1, **SOON)
    let_go.set()
    for thread in threading.enumerate():
        if thread.name == "conformance":
            thread.join(30)
    (fault,) = report.faults
    assert "blocked its event loop" in fault.words
    assert "wrong 0" in fault.words


def test_a_boundary_that_closes_late_or_leaves_a_process_is_named(monkeypatch):
    monkeypatch.setattr(holding, "CLOSES_S", 0.3)

    class Late(InProcess):
        closes_s = 0.5

        async def run(self, program, limits, **more):
            if not hasattr(self, "left"):
                self.left = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220
            return await super().run(program, limits, **more)

    boundary = Late()
    try:
        report = held(boundary)
    finally:
        boundary.left.kill()
        boundary.left.wait()
    assert [fault.program for fault in report.faults] == ["in-process"] * 2
    assert "close() took" in report.faults[0].words
    assert "sleep 60" in report.faults[1].words


def test_whatever_a_boundary_raises_is_its_fault_and_not_the_end_of_the_suite():
    async def raises():
        raise KeyError("slot")

    async def never():
        raise SandboxError("sandbox:x", "no slot starts")

    assert "boundary_error" in held(Failing("return 0", raises), WRONG[:2]).faults[0].words
    assert "never_started" in held(Failing("return 0", never), WRONG[:2]).faults[0].words


def test_honest_programs_whose_numpy_is_not_there_are_left_out_and_said():
    class Without(InProcess):
        async def run(self, program, limits, *, listen=None, **more):
            if b"import numpy" in program.source:
                listen(codec.dumps(["load_error", "ModuleNotFoundError", "No module named 'numpy'", 1]))
                return Execution(Ended.EXIT, 0)
            return await super().run(program, limits, listen=listen, **more)

    report = held(Without(), honest=[*RIGHT, BY_NAME["numpy"]])
    assert (report.verdict, report.left_out) == ("holds", ["numpy"])
    assert "numpy" in report.markdown()


# --- what came of one program


class Saying(InProcess):
    """Sends these frames, or says this of a judge."""

    def __init__(self, *ends, frames=(), opinion=None):
        self.ends, self.frames, self.opinion, self.asked = list(ends), frames, opinion, []

    async def run(self, program, limits, *, listen=None, fresh=False, urgent=False):
        self.asked.append(fresh)
        for frame in self.frames if listen else ():
            if listen(frame if isinstance(frame, bytes) else codec.dumps(frame)):
                break
        return self.ends.pop(0) if self.ends else Execution(Ended.EXIT, 0)

    async def check(self, source, checks, limits, *, fresh=False):
        return await self.run(None, limits, fresh=fresh), self.opinion


def came(boundary, suite=SNIPPET):
    from steelyard.execution import Limits

    return asyncio.run(Asking(boundary, 30.0).came(suite, b"", Limits())).code


RIGHT_VALUES = ["r", 0, [["v", codec.to_tree(call.wanted)] for call in SNIPPET.calls]]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([["loaded"], RIGHT_VALUES, ["done"]], PASS),
        ([["loaded"], RIGHT_VALUES], "exit"),
        ([RIGHT_VALUES, ["done"]], "protocol"),
        ([["loaded"], RIGHT_VALUES, ["done"], ["done"]], "protocol"),
        ([["loaded"], ["done"]], "protocol"),
        ([["loaded"], ["r", 1, RIGHT_VALUES[2]]], "protocol"),
        ([["loaded"], ["r", 0, RIGHT_VALUES[2] * 2]], "protocol"),
        ([["loaded"], ["passed", 4, 4]], "protocol"),
        ([b"true"], "protocol"),
        ([b"\xff"], "protocol"),
        ([["loaded"], ["r", 0, [["v", True]]]], "wrong_answer"),
        ([["loaded"], ["r", 0, [["x", "KeyError", "1", None, []]]]], "exception"),
        ([["load_error", "SyntaxError", "no", 1]], "load_error"),
    ],
)
def test_a_table_is_passed_by_its_values_alone(frames, code):
    ended = Execution(Ended.EXIT, 0) if code != "protocol" else Execution(Ended.ENOUGH)
    assert came(Saying(ended, frames=frames)) == code


def test_what_may_have_been_the_machine_is_tried_once_more_in_a_fresh_slot():
    lost, wall = Execution(Ended.LOST), Execution(Ended.LIMIT, limit="wall")
    boundary = Saying(lost, lost)
    assert came(boundary) == "reproduced"
    assert boundary.asked == [False, True]
    assert came(Saying(wall, wall)) == "wall_reproduced"
    assert came(Saying(wall, Execution(Ended.LIMIT, limit="cpu"))) == "cpu"


def test_a_lost_judge_is_suspect_and_a_limit_goes_before_what_a_judge_says():
    free = BY_NAME["leaves at once"]._replace(suite=under(RIGHT, "free")[0].suite).suite
    assert came(Saying(opinion=Opinion(lost="it ended")), free) == "reproduced"
    cut = Execution(Ended.LIMIT, limit="memory")
    assert came(Saying(cut, opinion=Opinion(4, 1, "gone")), free) == "memory"
    assert came(Saying(opinion=Opinion(0, 0)), free) == "no_verdict"
    assert came(Saying(opinion=Opinion(4, 4)), free) == PASS
    assert came(Saying(opinion=Opinion(4, 1, "wrong")), free) == "wrong_answer"


def test_a_script_is_passed_by_its_output_for_every_input():
    answers = [Execution(Ended.EXIT, 0, stdout=pair["output"].encode()) for pair in STDIN.tests]
    assert came(Saying(*answers), STDIN) == PASS
    assert came(Saying(*answers[:2], answers[0]), STDIN) == "wrong_answer"
    assert came(Saying(answers[0], Execution(Ended.EXIT, 1, stderr=b"KeyError")), STDIN) == "exception"


# --- the command


REPORT = Report(
    "mine",
    "mine/1",
    {"uid": "1000"},
    "0.1.0",
    "2026-01-01",
    "Linux, 2 cores",
    Row("honest", "right programs", 2, 2, ()),
    [Row("files", "reads files", 2, 1, [Fault("reads | all", "pass; it may end with <exit>")])],
    per_s=100.0,
)


@pytest.mark.parametrize(("faults", "code"), [((), 0), (REPORT.rows[0].faults, 1)])
def test_the_command_prints_a_table_for_people_for_pages_and_for_scripts(monkeypatch, capsys, faults, code):
    report = REPORT._replace(rows=[REPORT.rows[0]._replace(faults=faults, contained=2 - len(faults))])
    monkeypatch.setattr(command, "hold", lambda make, tell: report)
    monkeypatch.setenv("COLUMNS", "120")
    assert command.run("bubblewrap") == code
    said = capsys.readouterr().out
    assert report.summary() in said
    assert command.run("bubblewrap", markdown=True) == code
    said = capsys.readouterr().out
    row = "| 1 | reads \\| all |" if faults else "| 2 | - |"
    assert f"| files: reads files | 2 {row}" in said
    assert ("&lt;exit>" in said) is bool(faults)
    assert command.run("bubblewrap", as_json=True) == code
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == report.verdict
    assert said["kinds"][0]["faults"] == [fault._asdict() for fault in faults]


def test_a_third_partys_boundary_is_named_by_its_factory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name, identity = 'mine', 'mine/1'\n"
        "    async def attest(self, limits=None): return {}\n"
        "    async def run(self, program, limits, **more): raise OSError('no')\n"
        "    async def check(self, source, checks, limits, **more): raise OSError('no')\n"
        "    async def close(self): pass\n"
    )
    monkeypatch.setattr(
        sys, "argv", ["steelyard", "doctor", "--conformance", f"{tmp_path}/mine.py:Mine", "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "no verdict"
    assert said["honest"]["total"] == len(PROGRAMS.honest) - len(said["left_out"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--markdown"], "without --conformance"),
        (["--conformance", "nobody"], "there is no boundary 'nobody'"),
        (["--conformance", "narrow.py"], "say narrow.py:factory"),
        (["--conformance", "nowhere:make"], "cannot be imported"),
        (["--conformance", "sys:maxsize"], "cannot be called"),
        (["--conformance", "bubblewrap:image"], "there is no boundary 'bubblewrap:image'"),
        (["--conformance", "builtins:dict"], "cannot be made"),
        (["--conformance", "json:JSONDecodeError"], "cannot be made"),
    ],
)
def test_what_cannot_be_held_against_the_suite_is_refused_with_the_next_step(
    monkeypatch, capsys, words, said
):
    monkeypatch.setattr(sys, "argv", ["steelyard", "doctor", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert "next:" in told


def test_where_a_boundary_cannot_be_made_nothing_is_left_under_way():
    left = len(holding._LEFT)
    with pytest.raises(RefusedError, match="cannot be made"):
        hold(dict)
    assert len(holding._LEFT) == left


def test_a_boundary_that_does_not_attest_is_refused_and_closed():
    class Refusing(InProcess):
        closed = False

        async def attest(self, limits=None):
            raise SandboxError("sandbox:x", "no namespace")

        async def close(self):
            self.closed = True

    boundary = Refusing()
    with pytest.raises(RefusedError, match=r"it proves nothing.*no namespace"):
        held(boundary)
    assert boundary.closed


def test_an_interrupt_closes_the_boundary(monkeypatch):
    class Told(InProcess):
        closed = False

        async def close(self):
            self.closed = True

    once = iter([True])

    def interrupted(stage, done, total):
        if stage == "honest" and next(once, False):
            signal.raise_signal(signal.SIGINT)  # in the suite's thread; Python raises it in the main one
            time.sleep(0.3)

    boundary = Told()
    with pytest.raises(KeyboardInterrupt):
        held(boundary, tell=interrupted)
    assert boundary.closed


# --- what it is made of


LINES = {
    "peers 4: one loops, then others are right": ["loops in the function"],
    "peers 6: towers of powers": ["raises a tower of powers"],
    "peers 7: a child that ignores SIGTERM": ["leaves a daemon"],
    "peers 9: raises, and nothing or an empty text is expected": [
        "raises where nothing is expected",
        "raises where an empty text is expected",
    ],
    "peers 10: exit, KeyboardInterrupt, GeneratorExit, SystemExit": [
        "leaves in the function",
        "raises KeyboardInterrupt",
        "raises GeneratorExit",
        "raises SystemExit(0)",
    ],
    "peers 11: objects that please": [
        *(f"an object with {name}" for name in ("__eq__", "__ne__", "__bool__", "__sub__", "__abs__")),
    ],
    "peers 12: a fake result": ["reports a session that passed", "prints a verdict"],
    "peers 13: files that a harness loads": [
        *(f"plants {name}" for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini")),
        "plants an entry point",
        "plants candidate.py",
    ],
    "peers 14: a reward file": ["plants reward.txt"],
    "peers 15: output without end": [
        "prints without end",
        "writes 1 GB to standard error",
        "writes 1 GB to descriptor 1",
    ],
    "peers 16: right, with 150 kB and 5 MB of output": ["150 kB in one go", "5 MB of output"],
    "peers 17: writes later; a daemon": ["leaves a child that writes later", "leaves a daemon"],
    "peers 18: forks, threads, memory, recursion": [
        "forks without end",
        "10,000 threads",
        "asks for 64 GB",
        "fills memory without a name",
        "fills /dev/shm",
        "recurs a thousand million times",
    ],
    "peers 23: ends with success before the checks ran": [
        "leaves at once",
        "exits while it is loaded",
        "exits in the function",
        "leaves when an assert fails",
        "leaves through the hook",
        "becomes another program",
        "becomes itself without asserts",
        "exits in a thread",
        "skips",
        "plants conftest.py",
    ],
    "peers 24: reads expected values, reaches the supervisor": [
        "reads the caller's frame",
        "searches all objects",
        "reads its own memory",
        "reads every file",
        "asks the environment and the arguments",
        "writes to every descriptor",
        "traces others",
        "kills the first process",
        "reads through a link",
        "connects outside",
    ],
    "peers, group arithmetic: a saboteur among siblings": ["takes all memory", "dies"],
    "sandbox: hangs; idle is a limit": ["sleeps", "waits for a lock", "naps for ever"],
    "sandbox: the server never reads sources, tests or nonces": [
        "searches all objects",
        "reads its own memory",
    ],
    "sandbox: user, pid, mount, ipc, uts namespaces": [
        "makes namespaces",
        "sees other processes",
        "mounts",
        "leaves segments of memory",
    ],
    "sandbox: tmpfs with size and inode limits": ["fills its folder", "makes files without end"],
    "sandbox: /proc covered": ["pokes in proc"],
    "sandbox: close_range": ["reads every descriptor", "ties every descriptor to another"],
    "sandbox: rlimits": ["lifts its limits"],
    "sandbox: no capabilities, no new privileges": ["becomes root", "runs programs of root"],
    "sandbox: the allow list; a wrong ABI": [
        "holds memory without a name",
        "makes a ring",
        "asks the kernel for keys",
        "loads into the kernel",
        "uses the old system calls",
    ],
    "sandbox: every descendant dies with it": ["leaves a daemon", "leaves a child of another group"],
    "sandbox: never wait for standard output's end": ["answers, and leaves a child with its output"],
    "sandbox: the CPU time of descendants counts": ["loops in children", "loops in a chain of short lives"],
    "sandbox: limits hold for all processes together": ["grows in several children", "forks without end"],
    "sandbox: runsc do reads /etc/shadow": ["reads the passwords"],
    "sandbox: no network, not silently": ["connects outside", "asks for names", "connects to named sockets"],
    "sandbox: honest snippets that failed": [
        "a pool of processes",
        "asks who and where it is",
        "its own source",
        "pickled and copied classes",
        "a main guard with input",
    ],
    "sandbox: exit code, sentinel, reused folder": [
        "exits with nothing",
        "is right only if files outlive an input",
    ],
    "sandbox: code in a pickle": ["an object with __reduce__"],
    "sandbox: subclasses flattened, the rest opaque": ["a list that lies", "a list of pleasing objects"],
    "sandbox: size and depth caps": [
        "a value 100,000 deep",
        "a value of 100 MB",
        "a number of two million bits",
    ],
    "sandbox: malformed, surplus or early messages": [
        "forges replies while it is loaded",
        "forges replies when all is done",
        "announces a frame without end",
    ],
    "sandbox: mutated arguments": ["clears its argument", "makes its argument zeros"],
    "sandbox: StopIteration is not raised again": [
        "raises StopIteration([1, 4, 9])",
        "raises StopAsyncIteration",
    ],
    "sandbox: tuples are no lists": ["gives lists where tuples are expected"],
    "sandbox: a candidate kills its runner": ["kills everybody", "closes every descriptor"],
}
"""The lines of what is known to go wrong elsewhere, and programs that stand for each."""

ELSEWHERE = {
    1: "a run whose environment fails: the runtime's breaker",
    2: "groups with missing members: advantages",
    3: "columns that only some rows have: the reader",
    5: "a maths reward called from threads and loops",
    8: "a scorer that is collected in a loop",
    19: "a reward that raises",
    20: "rescoring a rubric",
    21: "kill -9 of the supervisor: test_life_cycle.py",
    22: "a judge's transport",
}
"""Cases of the list that no program brings about."""


def test_every_case_has_its_programs_or_is_no_matter_of_a_boundary():
    covered = (
        {int(line.split()[1].rstrip(":")) for line in LINES if line.startswith("peers ")} if LINES else {}
    )
    assert covered.isdisjoint(ELSEWHERE)
    assert covered | ELSEWHERE.keys() == set(range(1, 25))


@pytest.mark.parametrize("line", LINES)
def test_the_programs_of_a_line_are_in_the_suite(line):
    names = {one.name for one in (*PROGRAMS.honest, *PROGRAMS.others)}
    assert LINES[line]
    assert set(LINES[line]) <= names


def test_every_kind_has_programs_and_every_program_a_name_of_its_own():
    programs = [*PROGRAMS.honest, *PROGRAMS.others]
    assert {one.kind for one in programs} == set(KINDS)
    assert len(
        {(one.name, one.suite.tests if isinstance(one.suite.tests, str) else "") for one in programs}
    ) == len(programs)
    assert all(PASS in one.comes for one in PROGRAMS.honest)
    assert len(PROGRAMS.others) > 400


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.needs("bubblewrap")
@pytest.mark.needs("cgroup")
def test_bubblewrap_holds_what_is_hostile_and_each_end_names_its_limit():
    hostile = [one for one in HOSTILE if one.name not in SLOW]
    report = hold(lambda: boundary_of("bubblewrap"), programs=Programs(HONEST[::8], hostile))
    assert report.faults == []
    assert report.verdict == "holds"
