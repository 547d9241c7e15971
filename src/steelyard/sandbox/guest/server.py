"""The fork server: one warm interpreter per slot, which starts guests and never reads what they are given.

It imports what guests will need, proves from inside a guest that the slot holds, and then serves its control
socket: a message with descriptors starts a guest, another ends it, and the end of a guest is reported with
its status and use. A guest is a clone of this process in namespaces of its own; it confines itself and only
then reads its payload from a descriptor that this process never reads (a clone sees the memory of its
parent). When the control socket closes, everything here ends.
"""

from __future__ import annotations

# `signal` and `socket` would bring enum and selectors along, and every guest would pay for their pages
import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import struct
from contextlib import suppress
from time import thread_time
from typing import Any

from . import confine, frames, jobs
from .control import (
    ASK,
    CHANNEL,
    ENDED,
    ERRORS,
    INPUT,
    KILL,
    KINDS,
    NOT_STARTED,
    OUTPUT,
    PAYLOAD,
    PHASE,
    PROBE,
    READY,
    RPC,
    SETUP_FAILED,
    SPIN,
    SPUN,
    TELL,
)

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
_seen: dict[str, str] = {}
_INT = struct.calcsize("i")
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)


def main(settings: dict[str, Any]) -> None:
    """Serve until the control socket closes; never returns."""
    os.environ.pop(
        "LD_BIND_NOW", None
    )  # it has saved every guest some page faults, and is none of their business
    control = _socket.socket(fileno=settings["control"])
    os.set_inheritable(settings["control"], False)
    _seen["confined_by"] = "users" if settings["limits"].get("users") else "namespaces"
    for kind in NAMESPACES:  # a guest cannot see whose network it is without
        with suppress(OSError):  # gVisor has no such links
            _seen[f"{kind}_namespace"] = os.readlink(f"/proc/self/ns/{kind}")
    for name in settings["preload"]:
        with suppress(Exception):  # a guest that needs it will say what is wrong with it
            __import__(name)
    prepared = confine.prepare(settings["limits"])
    jobs.rehearse()
    _quiet()
    control.send(bytes([READY]))
    _Server(control, prepared).serve()


def _quiet() -> None:
    import gc

    gc.collect()
    gc.freeze()  # what is here now is never looked at again: its pages stay shared


class _Server:
    def __init__(self, control: _socket.socket, prepared: confine.Prepared) -> None:
        self._control = control
        self._prepared = prepared
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._guests: dict[int, tuple[int, int | None]] = {}  # by number: pid, user
        self._watches: dict[int, int] = {}  # a descriptor that says that one has ended: its number
        self._bell = None if _has_pidfds() else _bell(self._poll)

    def serve(self) -> None:
        """Serve for ever."""
        listening = self._control.fileno()
        poll, ask, end = self._poll.poll, self._ask, self._end
        while True:
            for ready, _event in poll():
                if ready == listening:
                    ask()
                elif ready == self._bell:
                    self._rung()
                else:
                    end(self._watches.pop(ready), ready)

    def _rung(self) -> None:
        """Some child has ended: see whether it was a guest."""
        if self._bell is not None:
            os.read(self._bell, 512)
        for guest, (pid, _user) in list(self._guests.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._end(guest)

    def _ask(self) -> None:
        message, extra, _flags, _address = self._control.recvmsg(
            64, _socket.CMSG_SPACE(len(KINDS) * _INT), _CLOEXEC
        )
        if not message:
            os._exit(0)  # the host is gone, or wants no more
        kind, guest, cpu_s, which = ASK.unpack(message)
        if kind == KILL:
            if guest in self._guests:  # not waited for yet, so its number is nobody else's
                os.kill(self._guests[guest][0], 9)
            return
        if kind == SPIN:
            self._tell(SPUN, 0, 0, (_spin(), 0.0, 0))
            return
        descriptors = struct.unpack(f"{len(extra[0][2]) // _INT}i", extra[0][2]) if extra else ()
        given = dict(zip((bit for bit in KINDS if which & bit), descriptors, strict=True))
        try:
            self._start(guest, given, cpu_s, probed=kind == PROBE)
        except (confine.SetupError, OSError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            self._tell(NOT_STARTED, guest, getattr(cause, "errno", None) or 0)
        for descriptor in descriptors:
            os.close(descriptor)

    def _start(self, guest: int, given: dict[int, int], cpu_s: int, *, probed: bool) -> None:
        users = self._prepared.users
        user = users.next(guest) if users is not None else None
        pid = confine.clone(self._prepared)
        if pid == 0:
            if self._bell is not None:
                _unhung()
            _guest(self._prepared, given, cpu_s, probed=probed)
        self._guests[guest] = (pid, user)
        if self._bell is None:
            watch = os.pidfd_open(pid)
            self._watches[watch] = guest
            self._poll.register(watch, select.POLLIN)

    def _end(self, guest: int, watch: int | None = None) -> None:
        if watch is not None:
            self._poll.unregister(watch)
            os.close(watch)
        pid, user = self._guests.pop(guest)
        _pid, status, use = os.wait4(pid, 0)
        users = self._prepared.users
        more_s = users.end(user) if users is not None and user is not None else 0.0
        self._tell(ENDED, guest, status, (use.ru_utime + more_s, use.ru_stime, use.ru_maxrss * 1024))
        if users is not None and user is not None:
            try:
                users.clear(user)
            except OSError as error:  # then nobody else may come after it
                os.write(2, f"what a guest left cannot be removed: {error}\n".encode())
                os._exit(1)

    def _tell(
        self, kind: int, guest: int, status: int, use: tuple[float, float, int] = (0.0, 0.0, 0)
    ) -> None:
        try:
            self._control.send(TELL.pack(kind, guest, status, *use))
        except OSError:
            os._exit(0)


def _spin() -> float:
    """CPU seconds of a fixed piece of work in this interpreter."""
    begun, total = thread_time(), 0
    for number in range(60_000):
        total += number * number % 7
    return thread_time() - begun


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # before Linux 5.3, on gVisor of old
        return False
    return True


def _bell(poll: select.poll) -> int:
    """A descriptor that can be read when a child has ended."""
    bell, rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
    _signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
    poll.register(bell, select.POLLIN)
    return bell


def _unhung() -> None:
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def _guest(prepared: confine.Prepared, given: dict[int, int], cpu_s: int, *, probed: bool) -> None:
    """Become a guest: confine, read, do the job; never returns."""
    channel = given[CHANNEL]
    try:
        os.dup2(given[INPUT] if INPUT in given else os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(given[OUTPUT], 1)
        os.dup2(given.get(ERRORS, given[OUTPUT]), 2)
        kept = tuple(given[bit] for bit in (PAYLOAD, CHANNEL, RPC, PHASE) if bit in given)
        confine.enter(prepared, keep=kept, cpu_s=cpu_s)
        payload = _whole(given[PAYLOAD])
        os.close(given[PAYLOAD])
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace")[:500].decode()
        frames.send(channel, b'["setup", "%s"]' % text.replace("\\", "/").replace('"', "'").encode())
        os._exit(SETUP_FAILED)
    if probed:
        _tell_facts(channel)
    jobs.run(payload, channel, given.get(RPC), given.get(PHASE), os.getcwd())


def _tell_facts(channel: int) -> None:
    import json

    from . import facts

    frames.send(channel, json.dumps(["facts", {**facts.facts(), **_seen}]).encode())
    os._exit(0)


def _whole(descriptor: int) -> bytes:
    size, parts = os.fstat(descriptor).st_size, []
    at = 0
    while at < size:
        part = os.pread(descriptor, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
