"""How a guest ended, in words: from wait status, kill and counters to an `Execution`.

Facts only. Whether a guest began is what separates an error of the boundary from an end of the guest: it is
said to have begun when it was confined and about to run its first instruction. A guest that failed after
somebody else's limit (a cgroup's above the slot's, the machine's) ended or refused a process of it is lost:
suspect, like every end that may not be its own.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from steelyard.clock import Clocks, Seconds
from steelyard.errors import SandboxError
from steelyard.execution import Ended, Execution
from steelyard.sandbox.slot import Guest
from steelyard.sandbox.watch import Watched


def execution(watched: Watched, boundary: str, queued_s: Seconds, *, kept_bytes: int) -> Execution:
    """Say what became of a guest that is gone.

    Parameters
    ----------
    watched
        The guest, and what it used.
    boundary
        Whose guest it was.
    queued_s
        How long it waited for its slot.
    kept_bytes
        How much of each output is kept.

    Raises
    ------
    SandboxError
        If it never began.
    """
    guest, usage = watched.guest, watched.usage
    cpu_s = max(usage.cpu_s(), guest.cpu_s)
    counted = usage.counted()
    ended, code, limit = _end(watched, cpu_s)
    if counted.get("foreign") and (
        ended is Ended.SIGNAL or (ended is Ended.EXIT and code) or limit == "idle"
    ):
        ended, limit = Ended.LOST, None
    clocks = _clocks(
        guest,
        cpu_s,
        queued_s,
        run_delay_s=counted.get("run_delay_s"),
        censored=ended is Ended.LIMIT or guest.cut is not None,
    )
    if guest.started is None:
        cause = guest.failed or f"it was gone before its first instruction ({_words(guest.status)})"
        raise SandboxError(f"sandbox:{boundary}", cause, clocks=clocks)
    evidence: dict[str, Any] = {}
    if ended is not Ended.ENOUGH and (ended is not Ended.EXIT or code):
        evidence = {"status": _words(guest.status), **counted}
    stdout, stderr = (_kept(guest, place, kept_bytes) for place in (0, 1))
    return Execution(
        ended,
        code,
        limit,
        stdout=stdout,
        stderr=stderr,
        clocks=clocks,
        peak_bytes=usage.peak_bytes() or guest.peak_bytes,
        evidence=evidence,
    )


def _end(watched: Watched, cpu_s: Seconds) -> tuple[Ended, int | None, str | None]:
    guest, limits = watched.guest, watched.limits
    if guest.cut is not None:
        return Ended.LIMIT, None, _cause(guest.cut, watched)
    written = sum(os.fstat(output).st_size for output in guest.outputs)
    if written > limits.output_bytes:
        return Ended.LIMIT, None, "output"
    if guest.status is None:
        return Ended.LOST, None, None
    if os.WIFEXITED(guest.status):
        return (Ended.ENOUGH if guest.killed else Ended.EXIT), os.WEXITSTATUS(guest.status), None
    return _signalled(watched, os.WTERMSIG(guest.status), cpu_s)


def _signalled(watched: Watched, number: int, cpu_s: Seconds) -> tuple[Ended, int | None, str | None]:
    if number == signal.SIGXFSZ:
        return Ended.LIMIT, None, "files"
    if number == signal.SIGXCPU:
        return Ended.LIMIT, None, "cpu"
    if number != signal.SIGKILL:
        return Ended.SIGNAL, number, None
    if watched.guest.killed is not None:
        return Ended.ENOUGH, None, None
    # It was the kernel, for want of CPU or memory, or somebody outside: the first process of a namespace
    # cannot send itself this one.
    limit = "cpu" if cpu_s >= watched.limits.cpu_s else "memory" if watched.usage.memory_kills() else None
    if limit is None and watched.guest.slot.may_kill_itself:
        return Ended.SIGNAL, number, None  # unless somebody's want of memory is in the evidence
    return (Ended.LOST, number, None) if limit is None else (Ended.LIMIT, None, limit)


def _cause(cut: str, watched: Watched) -> str:
    """The limit behind a limit: who waits for a child that the kernel ended is idle for want of memory."""
    if cut in {"idle", "wall", "cpu", "protocol"}:
        if watched.usage.memory_kills():
            return "memory"
        if cut in {"idle", "cpu"} and watched.usage.counted().get("refused_processes"):
            return "processes"
    return cut


def _clocks(
    guest: Guest, cpu_s: Seconds, queued_s: Seconds, *, run_delay_s: Seconds | None, censored: bool
) -> Clocks:
    ended = guest.ended if guest.ended is not None else guest.slot.clock.now()
    if guest.started is None:
        return Clocks(queued_s=queued_s, spawn_s=ended - guest.asked)
    last = guest.killed if guest.killed is not None else ended
    return Clocks(
        queued_s=queued_s,
        spawn_s=guest.started - guest.asked,
        wall_s=last - guest.started,
        reap_s=ended - last,
        cpu_s=cpu_s,
        run_delay_s=run_delay_s,
        censored=censored,
    )


def _kept(guest: Guest, place: int, kept_bytes: int) -> bytes:
    if place >= len(guest.outputs):
        return b""
    return os.pread(guest.outputs[place], kept_bytes, 0)


def _words(status: int | None) -> str:
    if status is None:
        return "contact was lost"
    if os.WIFEXITED(status):
        return f"exit status {os.WEXITSTATUS(status)}"
    return signal.strsignal(os.WTERMSIG(status)) or f"signal {os.WTERMSIG(status)}"
