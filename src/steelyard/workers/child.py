"""What runs inside a worker: a keeper, and forked from it the process that calls the function.

The parent starts this file by its path, so that it comes up in the time of a bare interpreter; it
imports nothing but the standard library, and is read by the parent for the layout below.

**Keeper.** Has nothing of the user's in it, so it always answers. It ends the worker's whole process
group when its lifeline is cut (the parent shut it, or died, be it by `kill -9`) and when the worker
has ended, and its last words are the worker's exit status and CPU time. No `prctl`: the same on
macOS, no matter which thread started it, and no matter who holds the interpreter's lock.

**Worker.** Answers messages `(serial, times, [pickled item, ...])`, item by item, in its main thread (so
`signal.alarm` works); `times` multiplies the limits. Results gather in memory shared with the parent
and are sent when a message is done: a process that dies leaves them behind, and beside them the number
of the item it died in. A fast item costs no write.

**CPU limit.** `ITIMER_PROF` with the default action of its signal: the kernel ends the process, also
in the middle of a `9**9**9` that never returns to the interpreter. Armed before an item is named as
running, so that a signal which comes late is never charged to the item behind.

The clock here is `time.monotonic` itself: no `Clock` reaches into another process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import mmap
import operator
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

# The shared memory: a page of float64 cells, then records. A cell is written in one store.
SERIAL, INDEX, STARTED, CPU, USED, PID = range(6)
CELLS = 6
FIRST_RECORD = 64
SHARED_BYTES = 1 << 20

# index, kind, started, service_s, cpu_s, number, length of the blob behind it
HEADER = struct.Struct("=QBddddQ")
RETURNED, NUMBER, RAISED, OUT_OF_MEMORY = range(4)  # a number stands in the header: most values are one

LAST_WORDS = struct.Struct("=qd")  # exit code as `subprocess` writes it, CPU seconds

RESULT_BYTES = 64 << 20
"""The longest pickled value that is handed back: a verdict is small, and the parent has to hold it."""

TICKS_S = 0.02
"""While a timer is armed, the CPU clock of a process moves in scheduler ticks (1 to 10 ms), that of a
thread does not: the former counts only where it shows other threads at work."""

SHORT_S = 0.001
"""Items share an armed timer that is no older, so a CPU limit may come this much early; an item that took
less has no CPU time, for reading the clock would cost as much as the item."""

NOT_MEASURED = -1.0
NAP_S = 0.002
RETIRED = 86

Function = Callable[[Any], object]
Setup = tuple[list[str], str, "bytes | None", "float | None", "int | None", bool]
"""The first message: sys.path, target, what the target is given to make the function (pickled; `None`:
the target is the function), cpu_s, memory_bytes, confined."""


def main(talk: int, life: int, shared: int, parent: int) -> None:
    """Fork the worker and keep it."""
    for descriptor in (talk, life, shared):
        os.set_inheritable(descriptor, False)
    worker = os.fork()
    with contextlib.suppress(OSError):  # both sides do it: whoever comes first, the group exists
        os.setpgid(worker, worker)
    if worker == 0:
        os.close(life)
        Worker(talk, shared).work()
    else:
        os.close(talk)
        os.close(shared)
        keep(worker, life, parent)


def keep(worker: int, life: int, parent: int) -> NoReturn:
    """Wait for the worker's end, or bring it about when the lifeline is cut."""

    def watch() -> None:
        line = select.poll()
        line.register(life, select.POLLIN)
        # A fork of the parent may hold the lifeline open beyond its death: hence the second look.
        while os.getppid() == parent and not line.poll(1000):
            pass
        end(worker)

    threading.Thread(target=watch, daemon=True).start()
    if hasattr(os, "waitid"):  # its group is ended while its number cannot belong to anyone else
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        end(worker)
    _, status, usage = os.wait4(worker, 0)
    end(worker)
    with contextlib.suppress(OSError):
        os.write(life, LAST_WORDS.pack(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime))
    os._exit(0)


def end(worker: int) -> None:
    """Kill a worker and every descendant that stayed in its process group."""
    with contextlib.suppress(OSError):
        os.killpg(worker, signal.SIGKILL)


class Worker:
    """Answers messages until the parent hangs up."""

    def __init__(self, talk: int, shared: int) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            os.dup2(2, 1)  # what users print is seen, and meets no reader that waits for something else
        sys.stdout = sys.stderr
        sys.argv = ["steelyard-worker"]
        self._requests: BinaryIO = os.fdopen(talk, "rb")
        self._tray = Tray(mmap.mmap(shared, SHARED_BYTES), talk)
        os.close(shared)
        self._page = self._tray.page
        self._page[PID] = os.getpid()
        self._function: Function = self._prepare
        self._cpu_s: float | None = None
        self._forked = False
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._forked = True

    def _prepare(self, setup: Setup) -> float:
        """Import the target: the function that answers the first message."""
        sys.path[:], target, given, cpu_s, memory_bytes, confined = setup
        found: Any = find(target)
        self._function = found if given is None else found(pickle.loads(given))  # noqa: S301 (as in work)
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        if confined:
            confine()
        self._cpu_s = cpu_s
        return time.monotonic()

    def work(self) -> None:
        """Answer one message after another."""
        while True:
            try:
                serial, times, blobs = pickle.load(self._requests)  # noqa: S301 (from our own parent)
            except (EOFError, OSError):
                return
            self._page[INDEX] = -1
            self._page[STARTED] = time.monotonic()
            self._page[SERIAL] = serial
            self._answer(self._function, blobs, (self._cpu_s or 0.0) * times)
            self._tray.flush()

    def _answer(self, function: Function, blobs: Sequence[bytes], limit_s: float) -> None:
        page, put = self._page, self._tray.put
        now, all_cpu, own_cpu, arm = time.monotonic, time.process_time, time.thread_time, signal.setitimer
        threads = threading.active_count()
        armed = -1.0
        started, own, whole = now(), own_cpu(), all_cpu()
        for index, blob in enumerate(blobs):
            if started - armed > SHORT_S:
                arm(signal.ITIMER_PROF, limit_s)
                armed, own, whole = started, own_cpu(), all_cpu()
                page[CPU] = whole
            page[STARTED] = started
            page[INDEX] = index
            kind, number, answer = answered(function, blob)
            if self._forked:  # a child of the item came back out of the function: not its place
                os._exit(0)
            ended = now()
            service_s = ended - started
            cpu_s = NOT_MEASURED
            if service_s > SHORT_S:
                cpu_s, whole_s = own_cpu() - own, all_cpu() - whole
                if whole_s > cpu_s + TICKS_S:
                    cpu_s = whole_s
            put((index, kind, started, service_s, cpu_s, number), answer)
            arm(signal.ITIMER_REAL, 0.0)  # an alarm that the item left behind would ring for another
            started = ended
            if kind == OUT_OF_MEMORY:
                self._retire()
            if (count := threading.active_count()) != threads:
                if count > threads and busy_beside_us():
                    self._retire()
                threads, started = count, now()
        arm(signal.ITIMER_PROF, 0.0)

    def _retire(self) -> NoReturn:
        """End before the next item would pay for what the last one left in this process."""
        self._tray.flush()
        os._exit(RETIRED)


def answered(function: Function, blob: bytes) -> tuple[int, float, bytes]:
    """Call the function on one item: the kind of its end, its number, its pickled answer."""
    try:
        value = function(pickle.loads(blob))  # noqa: S301 (from our own parent)
        if type(value) is float:
            return NUMBER, value, b""
        answer = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if len(answer) > RESULT_BYTES:
            return RAISED, 0.0, pickle.dumps(too_long(len(answer)))
    except MemoryError:
        return OUT_OF_MEMORY, 0.0, b""
    except BaseException as error:  # noqa: BLE001 (SystemExit and KeyboardInterrupt are the item's too)
        return RAISED, 0.0, pickle.dumps(described(error))
    return RETURNED, 0.0, answer


class Tray:
    """Results that wait to be sent, where the parent finds them if this process dies."""

    def __init__(self, shared: mmap.mmap, talk: int) -> None:
        self._shared = shared
        self._talk = talk
        self._used = FIRST_RECORD
        self.page = memoryview(shared)[: CELLS * 8].cast("d")
        self.page[USED] = FIRST_RECORD

    def put(self, facts: tuple[int, int, float, float, float, float], blob: bytes) -> None:
        """Add a record, header and blob; one that is larger than the tray is sent at once."""
        start = self._used + HEADER.size
        end = start + len(blob)
        if end > SHARED_BYTES:
            self.flush()
            start = self._used + HEADER.size
            end = start + len(blob)
            if end > SHARED_BYTES:
                header = HEADER.pack(*facts, len(blob))
                self._send(memoryview(header + blob))
                return
        HEADER.pack_into(self._shared, self._used, *facts, len(blob))
        if blob:
            self._shared[start:end] = blob
        self._used = end
        self.page[USED] = end

    def flush(self) -> None:
        """Send what is there. The parent may see it twice, if this process dies here, and knows."""
        with memoryview(self._shared) as view, view[FIRST_RECORD : self._used] as records:
            self._send(records)
        self._used = FIRST_RECORD
        self.page[USED] = FIRST_RECORD

    def _send(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(self._talk, view) :]
        except OSError:  # the user's function closed it, or the parent did: the tray is still readable
            os._exit(RETIRED)


def busy_beside_us() -> bool:
    """Whether threads that an item left running use the CPU: it would be charged to others."""
    before = time.process_time()
    time.sleep(NAP_S)
    return time.process_time() - before > NAP_S / 2


def limit_memory(room_bytes: int) -> None:
    """Limit the address space to what is in use now, imports included, plus `room_bytes`.

    Only where `/proc` tells what is in use: without it (macOS) there is no memory limit.
    """
    import resource  # noqa: PLC0415 (not on Windows, where the parent must be able to read this file)

    try:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = in_use + room_bytes
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


CONFINED = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.")
"""Audit events (as they begin) that a confined process does not get past: network and processes."""

CHANGING = frozenset(
    ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
)
"""And those that change files; opening one to write is another."""


def confine() -> None:
    """Refuse the network, other processes and writing to whatever Python this process runs from now on.

    For code of ours that reads what a policy wrote and must not be talked into anything. It holds for
    Python, not for machine code: no boundary for a program that somebody else wrote.
    """
    sys.dont_write_bytecode = True

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and _writes(arguments)
        if writes or event.startswith(CONFINED) or event in CHANGING:
            raise PermissionError(f"{event} is refused: this process is confined")

    sys.addaudithook(refuse)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(set(mode or "") & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def find(target: str) -> Function:
    """Import `package.module:function`, or `path/to/file.py:function`."""
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).resolve()
        sys.path.insert(0, str(path.parent))  # as if it had been run as a script
        known = path.stem in sys.modules
        spec = importlib.util.spec_from_file_location(f"_worker_{path.stem}" if known else path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    function: Function = operator.attrgetter(name)(module)
    if not callable(function):
        raise TypeError(f"{name!r} is not callable but {type(function).__name__}")
    return function


def described(error: BaseException) -> tuple[str, str, str]:
    """Type, message and innermost frames of an exception, all of bounded length."""
    try:
        message = " ".join(str(error).split())[:300]
    except Exception:  # noqa: BLE001 (a user's __str__)
        message = "(its message cannot be read)"
    beyond_ours = error.__traceback__ and error.__traceback__.tb_next
    return type(error).__name__, message, "".join(traceback.format_tb(beyond_ours, -3))[-2000:]


def too_long(length: int) -> tuple[str, str, str]:
    """What is said of a value that does not go back."""
    return (
        "OverflowError",
        f"returned {length} bytes pickled, at most {RESULT_BYTES} go back to the parent",
        "",
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
