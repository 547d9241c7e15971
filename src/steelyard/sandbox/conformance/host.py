"""The host's side of the suite: bait that no program may reach, and traces that none may leave.

While programs run there are, on the host: a secret in the environment, a file that anybody may read, a port
on the loopback device, a named socket, and a process with a telling name. What a program leaves has its own
number in the name, so that whose it is can be told.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final, Self

from steelyard.sandbox.conformance.specimen import BAIT, MARK, SECRET

_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - where traces would be
_OWN: Final = re.compile(rf"{MARK}-(\d+)")


class Host:
    """What is laid out on the host, and what is looked for there; a context manager."""

    def __init__(self) -> None:
        self._word = f"steelyard-bait-{token_hex(8)}"
        self._bait = BAIT
        self._open = ExitStack()
        self._before: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        self._before = frozenset(_processes())
        try:
            self._lay_out()
        except BaseException:
            self._open.close()
            raise
        return self

    def _lay_out(self) -> None:
        opened = self._open
        earlier = os.environ.get(SECRET)
        os.environ[SECRET] = self._word
        opened.callback(_restore, earlier)
        descriptor, file = tempfile.mkstemp(prefix="steelyard-bait-")
        opened.callback(Path(file).unlink)
        os.write(descriptor, self._word.encode())
        os.close(descriptor)
        Path(file).chmod(0o644)
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        with suppress(OSError):  # only Linux has names without a file
            named = opened.enter_context(socket.socket(socket.AF_UNIX))
            named.bind(f"\0{self._word}")
            named.listen()
        if sleep := shutil.which("sleep"):
            shown = subprocess.Popen([self._word, "3600"], executable=sleep)  # noqa: S603 - our own
            opened.callback(shown.wait)
            opened.callback(shown.kill)
        port = listener.getsockname()[1]
        self._bait = f"HOST_FILE, HOST_PORT = {file!r}, {port}; HOST_WORD = {self._word[::-1]!r}[::-1]"

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def source(self, completion: str, number: int) -> bytes:
        """A specimen's source, with the host's bait and its own number in what it leaves."""
        own = completion.replace(BAIT, self._bait).replace(MARK, f"{MARK}-{number}")
        return own.encode("utf-8", "surrogatepass")

    def traces(self) -> dict[str, set[int]]:
        """What is left now: a file or a process, and the numbers of the programs in its name."""
        found: dict[str, set[int]] = {}
        for folder in {*_FOLDERS, str(Path.home())}:
            for path in Path(folder).glob(f"*{MARK}-[0-9]*"):
                found[f"the file {path}"] = _numbers(path.name)
        for pid in set(_processes()) - self._before:
            if numbers := _numbers(_said(pid)):
                found[f"a process ({_said(pid)[:60]})"] = numbers
        return found

    def sweep(self) -> None:
        """Remove the files that programs of ours left on the host."""
        for folder in {*_FOLDERS, str(Path.home())}:
            for path in Path(folder).glob(f"*{MARK}-[0-9]*"):
                with suppress(OSError):
                    path.unlink()

    def running(self) -> list[str]:
        """Processes below this one that were not there before, beside the bait."""
        parents, mine = _processes(), {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
            mine |= more
        words = (_said(pid) for pid in mine - self._before - {os.getpid()})
        return [said[:80] for said in words if said and self._word not in said]


def _restore(earlier: str | None) -> None:
    if earlier is None:
        os.environ.pop(SECRET, None)
    else:
        os.environ[SECRET] = earlier


def _numbers(text: str) -> set[int]:
    return {int(number) for number in _OWN.findall(text)}


def _processes() -> dict[int, int]:
    """Processes that run, and their parents; none where there is no /proc."""
    return dict(_parents())


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            if state not in "ZX":
                yield int(folder.name), int(parent)


def _said(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""
