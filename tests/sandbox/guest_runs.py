"""Guests without a boundary, for harmless programs of our own: forks of a warm interpreter, as in a slot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.sandbox import guest
from steelyard.sandbox.guest import frames

NURSERY = """
import json, os, sys
sys.path[:0] = {paths!r}
import random, socket
from guest import cooperative, frames, jobs, judge
host = socket.socket(fileno={fd})
while True:
    data, fds, *_ = socket.recv_fds(host, 1 << 16, 16)
    if not data:
        break
    asked = json.loads(data)
    if "wait" in asked:
        host.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])).encode())
        continue
    pid = os.fork()
    if pid == 0:
        host.close()
        held = dict(zip(asked["names"], fds))
        for at, name in enumerate(("stdin", "stdout", "stderr")):
            if name in held:
                os.dup2(held.pop(name), at)
        os.chdir(asked["work"])
        payload = frames.read_all(held["payload"], 1 << 26)
        jobs.run(payload, held["channel"], held.get("rpc"), held.get("page"), asked["work"])
    for fd in fds:
        os.close(fd)
    host.send(json.dumps(pid).encode())
"""


_hosts: list[socket.socket] = []


@pytest.fixture(scope="module", autouse=True)
def nursery():
    """The warm interpreter from which a module's guests are forked; it ends when its socket is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = [str(Path(guest.__file__).parent.parent), *(path for path in sys.path if "site-packages" in path)]
    code = NURSERY.format(paths=paths, fd=there.fileno())
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = [sys.executable, "-P", "-S", "-B", "-c", code]
    with subprocess.Popen(command, pass_fds=[there.fileno()], env=environment) as process, here:
        there.close()
        _hosts.append(here)
        yield
        _hosts.remove(here)
        here.close()
        process.wait(timeout=10)


def start(work: Path, payload: bytes, **fds: int) -> int:
    """Start a guest with these descriptors; return its process id."""
    memory = os.memfd_create("payload")
    os.write(memory, payload)
    told = json.dumps({"names": ["payload", *fds], "work": str(work)}).encode()
    socket.send_fds(_hosts[-1], [told], [memory, *fds.values()])
    os.close(memory)
    return json.loads(_hosts[-1].recv(100))


def wait(pid: int) -> int:
    _hosts[-1].send(json.dumps({"wait": pid}).encode())
    return json.loads(_hosts[-1].recv(100))


def job(work: Path, header: dict[str, Any], source: bytes | str, *rest: bytes, stdin: bytes = b""):
    """Do a job; return its messages, its exit status, its output and its errors."""
    here, there = socket.socketpair()
    source = source.encode() if isinstance(source, str) else source
    payload = frames.pack(json.dumps(header).encode(), source, *rest)
    streams = {name: os.memfd_create(name) for name in ("stdin", "stdout", "stderr")}
    os.pwrite(streams["stdin"], stdin, 0)
    pid = start(work, payload, channel=there.fileno(), **streams)
    there.close()
    received = b""
    with here:
        while part := here.recv(1 << 16):
            received += part
    status = wait(pid)
    output, errors = (frames.read_all(streams[name], 1 << 24) for name in ("stdout", "stderr"))
    for fd in streams.values():
        os.close(fd)
    return [json.loads(frame) for frame in frames.unpack(received)], status, output, errors


class Judge:
    """A judge process; call it with a candidate's source."""

    def __init__(self, work: Path, tests: str, **header: Any) -> None:
        self.work = work
        self.host, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.page = os.memfd_create("page")
        os.truncate(self.page, 4096)
        payload = frames.pack(json.dumps({"mode": "judge", **header}).encode(), tests.encode())
        self.pid: int | None = start(work, payload, channel=there.fileno(), page=self.page)
        there.close()
        self.ready = json.loads(self.host.recv(1 << 16))

    def __call__(self, source: str) -> dict[str, Any]:
        """The verdict; without one, how the judge ended."""
        judged, serving = socket.socketpair()
        here, there = socket.socketpair()
        payload = frames.pack(b'{"mode": "serve"}', source.encode())
        candidate = start(self.work, payload, channel=there.fileno(), rpc=serving.fileno())
        serving.close()
        there.close()
        with judged:
            socket.send_fds(self.host, [b'{"nonce": "n7", "seed": 0}'], [judged.fileno()])
        with here:
            answer = self.host.recv(1 << 16)
        with contextlib.suppress(ProcessLookupError):
            os.kill(candidate, signal.SIGKILL)
        wait(candidate)
        return json.loads(answer) if answer else {"code": "judge", "status": self.ended()}

    def ended(self) -> int:
        pid, self.pid = self.pid, None
        return wait(pid) if pid is not None else 0

    def close(self) -> None:
        self.host.close()
        os.close(self.page)
        self.ended()
