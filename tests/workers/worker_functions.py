"""What the pool's tests run in workers: imported by the child, by name or by path."""

import os
import signal
import sys
import threading
import time
from pathlib import Path


def act(what):
    """Do the deed that `what` names; a plain string is returned."""
    deed, *rest = what if isinstance(what, tuple) else (what,)
    return DEEDS[deed](*rest) if deed in DEEDS else what


def count(path, then="ok"):
    """Leave a line in `path` for each time this is called, then act."""
    with Path(path).open("a") as file:
        file.write("x")
    return act(then)


def spin():
    while True:
        pass


def hold(path):
    """Say so in a FIFO and hold it open until killed: its reader meets the end when all holders are gone."""
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, b"h")
    threading.Event().wait()


def hold_once(fifo, path):
    """Hold the first time only."""
    if not Path(path).exists():
        Path(path).touch()
        hold(fifo)
    return "second time"


def hold_in_deaf_child(path):
    """Leave a child behind that ignores SIGTERM and holds a FIFO open."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hold(path)
    return "forked"


def deaf_child_then(path, then):
    hold_in_deaf_child(path)
    return act(then)


def raise_(name):
    raise {"ValueError": ValueError, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[
        name
    ]("no such answer")


def close_everything():
    os.closerange(3, 1024)
    return "closed"


def come_back_twice():
    return "parent" if os.fork() else "child"


def leave_thread(*, busy):
    threading.Thread(target=spin if busy else threading.Event().wait, daemon=True).start()
    return os.getpid()


def leave_alarm():
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    return os.getpid()


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return os.getpid()


def shout():
    print("x" * 5_000_000)  # noqa: T201 (users' functions print)
    os.write(1, b"y" * 1_000_000)
    return "shouted"


class Unreadable:
    """Pickles in the child, and cannot be read in the parent."""

    def __reduce__(self):
        return (fail_in_parent, (os.getpid(),))


def fail_in_parent(pid):
    if os.getpid() != pid:
        raise RuntimeError("not here")


class UnreadableItem:
    """An item that can be sent, and not be read by the worker."""

    def __reduce__(self):
        return (int, ("no number",))


DEEDS = {
    "pid": os.getpid,
    "spin": spin,
    "bignum": lambda: 9**9**9,
    "hold": hold,
    "hold once": hold_once,
    "deaf child": hold_in_deaf_child,
    "deaf child then": deaf_child_then,
    "raise": raise_,
    "sys.exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(0),
    "kill the keeper": lambda: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(30)),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "lambda": lambda: lambda: None,
    "bytes": bytes,
    "memory": lambda: bytearray(1 << 40),
    "close": close_everything,
    "fork": come_back_twice,
    "busy thread": lambda: leave_thread(busy=True),
    "idle thread": lambda: leave_thread(busy=False),
    "alarm": leave_alarm,
    "burn": burn,
    "doze": threading.Event().wait,
    "shout": shout,
    "unreadable": Unreadable,
    "hash": lambda: hash("steelyard"),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "count": count,
}


def run_code(text):
    exec(text, {})  # noqa: S102 - our own text
    return "done"
