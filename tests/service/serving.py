"""`steelyard serve` in a process of its own, and a client of it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from steelyard.service.settings import Settings
from steelyard.service.supervisor import GRACE_S, LOOKS_S

PATIENCE_S = 10.0


def until(what, *, within_s=PATIENCE_S):
    """Wait until something holds, and return it."""
    give_up = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < give_up, f"still not after {within_s} s"
        time.sleep(0.01)
    return found


class Served:
    """A server that runs, and a client that keeps its connections."""

    def __init__(self, process, folder, client):
        self.process = process
        self.folder = folder
        self.client = client
        self.pid = process.pid

    def score(self, *rows, **more):
        """Post rows; return the answer."""
        return self.client.post("/score", json={"rollouts": list(rows)}, **more)

    def values(self, *rows):
        """Post rows; return their values."""
        answer = self.score(*rows)
        assert answer.status_code == 200, answer.text
        return [row["value"] for row in answer.json()["rows"]]

    def health(self):
        return self.client.get("/health").json()

    def reload(self):
        return self.client.post("/reload")

    def said(self):
        """What stands on its standard error until now."""
        return (self.folder / "stderr").read_text()

    def end(self, number=signal.SIGTERM):
        """End it with a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


DEFAULTS = Settings(
    "",
    "127.0.0.1",
    0,
    "s",
    watch=False,
    columns={},
    advantage="grpo",
    code={"boundary": "bubblewrap"},
    timeout_s=None,
    workers=1,
    places=64,
)


HASTY = """
import runpy
from steelyard.service import supervisor
supervisor.LOOKS_S, supervisor.GRACE_S = {looks_s}, {grace_s}
runpy.run_module("steelyard.service", run_name="__main__")
"""


def command(recipe, *, looks_s=LOOKS_S, grace_s=GRACE_S, **settings):
    """What `steelyard serve` becomes, in haste if told so; the command itself has a test of its own."""
    told = replace(DEFAULTS, recipe=recipe, **settings).to_json()
    return [sys.executable, "-c", HASTY.format(looks_s=looks_s, grace_s=grace_s), told]


@contextmanager
def served(folder, recipe, *, begin=command, **settings):
    """Serve from a folder, on its socket `s`, until the block ends."""
    port = "socket" in settings
    stderr = folder / "stderr"
    with stderr.open("w") as file:
        process = subprocess.Popen(begin(recipe, **settings), cwd=folder, stderr=file, stdout=file)
    try:
        until(lambda: "is served at" in stderr.read_text() or process.poll() is not None)
        assert process.poll() is None, stderr.read_text()
        url = stderr.read_text().partition("served at ")[2].partition(";")[0] if port else "http://steelyard"
        transport = httpx.HTTPTransport(uds=None if port else str(folder / "s"))
        with httpx.Client(transport=transport, base_url=url, timeout=PATIENCE_S) as client:
            yield Served(process, folder, client)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)


def runs(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def children(pid):
    """The processes that a process started and that run."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in listed if runs(one)]


def edit(path, text):
    """Write a file over so that its time and its length tell nothing; Python's caches believe them."""
    found = path.stat()
    path.write_text(text)
    assert path.stat().st_size == found.st_size
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
