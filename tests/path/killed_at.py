"""Run `steelyard` and kill it at a named point, as often as asked; see what the ledger holds each time.

A process per scenario: it reads one from standard input, forks a child for each run (the imports are
paid for once), and prints what became of each as a line of JSON. `POINTS` are all the places where a
child may kill itself: `at` counts how often it came by.
"""

import contextlib
import io
import json
import os
import random
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from steelyard import calling, runtime
from steelyard.cli import main
from steelyard.ledger import Ledger
from steelyard.scheduling import AsyncCaller, InlineCaller, Scheduler
from steelyard.scoring import rows

CHUNK, WINDOW, LINES = 16, 64, 8
STEPS = ("begin", "spool", "enter", "leave", "forget_spool")
POINTS = {
    **{f"{step}: {moment}": 1 if step in {"begin", "spool", "forget_spool"} else 4
       for step in STEPS for moment in ("begun", "before COMMIT", "after COMMIT")},
    "between enter and judging": 4,
    "in judging": 4,
    "after judging": 4,
    "writing rows": 8,
    "before the rename": 1,
    "after the rename": 1,
}  # fmt: skip
"""Each point, and how often a whole run comes by at the least."""


class Killer:
    """Kills this process when it comes by a point for the n-th time."""

    def __init__(self, point, times):
        self.point, self.times = point, times
        self.step = ""

    def at(self, point):
        if point == self.point:
            self.times -= 1
            if self.times == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def arm(killer, log):  # noqa: C901 - one small patch after another
    """Put the points into the code, and note every rollout that a reward is asked about."""
    runtime.CHUNK, rows._WRITE = CHUNK, LINES
    Scheduler.__init__.__kwdefaults__["window"] = WINDOW

    def named(step, method):
        def stepped(self, *given, **more):
            killer.step = step
            return method(self, *given, **more)

        return stepped

    for step in STEPS:
        setattr(Ledger, step, named(step, getattr(Ledger, step)))

    transaction = Ledger._transaction

    @contextmanager
    def watched(self):
        step = killer.step
        with transaction(self):
            killer.at(f"{step}: begun")
            yield
            killer.at(f"{step}: before COMMIT")
        killer.at(f"{step}: after COMMIT")

    Ledger._transaction = watched

    def note(rollouts):
        os.write(log, b"".join(b"%d\n" % rollout.ordinal for rollout in rollouts))

    now = InlineCaller.now

    def noted(self, rollouts):
        killer.at("between enter and judging")
        note(rollouts[: len(rollouts) // 2])
        killer.at("in judging")
        note(rollouts[len(rollouts) // 2 :])
        said = now(self, rollouts)
        killer.at("after judging")
        return said

    InlineCaller.now = noted
    for caller in (AsyncCaller, calling.WorkerCaller):

        async def call(self, rollouts, *, fresh=False, call=caller.call):
            killer.at("between enter and judging")
            note(rollouts)
            killer.at("in judging")
            said = await call(self, rollouts, fresh=fresh)
            killer.at("after judging")
            return said

        caller.call = call

    in_chunks = rows.in_chunks

    def slowly(lines):
        for chunk in in_chunks(lines):
            killer.at("writing rows")
            yield chunk

    sys.modules["steelyard.scoring.job"].in_chunks = slowly
    replace = Path.replace

    def renamed(self, target):
        killer.at("before the rename")
        done = replace(self, target)
        killer.at("after the rename")
        return done

    Path.replace = renamed


def run(words, stdin, log, point="", times=0):
    """Run the command in a child; return its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.dup2(os.open(stdin or os.devnull, os.O_RDONLY), 0)
        arm(Killer(point, times), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        sys.argv = ["steelyard", *words]
        main()
        os._exit(99)  # it always exits
    except SystemExit as exited:
        os._exit(exited.code or 0)
    except BaseException:  # noqa: BLE001
        os._exit(98)


def recorded(ledger):
    """Ordinals that every part has judged, by run; and what `verify` finds."""
    if not ledger.exists():
        return {}, []
    with Ledger(ledger, write=False) as record:
        judged = {}
        for one in record.runs():
            parts = {}
            for ordinal, part, *_ in record.scores(one):
                parts.setdefault(ordinal, set()).add(part)
            judged[one.number] = [n for n, some in parts.items() if len(some) == len(one.parts)]
        return judged, record.verify()


def chain(words, stdin, out, points, seed):
    """Kill runs one after another at these points, each but the first a resumed one where that can be."""
    rng = random.Random(seed)  # noqa: S311 - it chooses tests
    ledger, log = Path(f"{out}.ledger"), Path(f"{out}.log")
    rng.shuffle(points)
    for point in points:
        times = rng.randint(1, POINTS[point])
        judged, _ = recorded(ledger)
        log.unlink(missing_ok=True)
        code = run(words, stdin, log, point, times)
        if code == 0:  # a resumed run no longer comes by: begin afresh
            yield {"point": point, "finished": out.read_text()}
            for path in (out, ledger, log):
                path.unlink(missing_ok=True)
            judged = {}
            code = run(words, stdin, log, point, times)
        known, faults = recorded(ledger)
        asked = log.read_text().split() if log.exists() else []
        again = sorted({n for some in judged.values() for n in some} & set(map(int, asked)))
        yield {
            "point": point,
            "code": code,
            "again": again,
            "faults": faults,
            "known": sum(map(len, known.values())),
        }
    judged, _ = recorded(ledger)
    log.unlink(missing_ok=True)
    code = run(words, stdin, log)
    asked = log.read_text().split() if log.exists() else []
    again = sorted({n for some in judged.values() for n in some} & set(map(int, asked)))
    log.unlink(missing_ok=True)
    yield {"point": "the end", "code": code, "again": again, "faults": recorded(ledger)[1]}


def warm_up():
    """Import what the command imports when it runs, so that no child has to."""
    sys.argv = ["steelyard", "score", "none", "--reward", "gsm8k", "--out", "none/at/all"]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main()


if __name__ == "__main__":
    warm_up()
    asked = json.load(sys.stdin)
    for told in chain(asked["words"], asked["stdin"], Path(asked["out"]), asked["points"], asked["seed"]):
        print(json.dumps(told), flush=True)  # noqa: T201
