"""Run a source as `python main.py` would: standard input, arguments, exit status and all.

The differences that remain: nothing is finalised after the exit functions (no `__del__` at interpreter
shutdown), and the interpreter is a warm one, so modules may be loaded that nobody imported.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Any

from . import frames, load

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

_exit = os._exit
_run_exitfuncs = atexit._run_exitfuncs


def run(source: bytes, path: str) -> None:
    """Run it to its end and leave the process with its status; never returns."""
    sys.argv = [os.path.basename(path)]
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        # The warm interpreter's own streams remember what the descriptors were when it started.
        errors = "backslashreplace" if fd == 2 else "surrogateescape"
        stream = open(  # noqa: SIM115
            fd, mode, encoding="utf-8", errors=errors, closefd=False, buffering=1 if fd == 2 else -1
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    status = 0
    try:
        module, code = load.prepare(source, "__main__", path)
        exec(code, module.__dict__)
    except BaseException as error:
        status = _uncaught(error, path)
    status = _shut_down(status)
    _exit(status)


def _uncaught(error: BaseException, path: str) -> int:
    """Do what Python does with an exception that nobody caught; return the exit status."""
    if isinstance(error, SystemExit):
        said = error.code
        if said is None:
            return 0
        if isinstance(said, int):
            return int(said) & 0xFF
        _quietly(lambda: print(said, file=sys.stderr))
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next  # our own frames are none of its business
    error.__traceback__ = trace
    _quietly(lambda: sys.stdout.flush())  # noqa: PLW0108
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as asked:
        return _uncaught(asked, path)
    except BaseException:
        _quietly(lambda: sys.__excepthook__(type(error), error, trace))
    if isinstance(error, KeyboardInterrupt):
        _quietly(lambda: sys.stderr.flush())  # noqa: PLW0108
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 130  # process 1 of a namespace ignores its own signals
    return 1


def _shut_down(status: int) -> int:
    """Join threads, run the exit functions, flush: the order of `Py_FinalizeEx`."""
    threading = sys.modules.get("threading")
    if threading is not None:
        _quietly(threading._shutdown)
    _quietly(_run_exitfuncs)
    flushed = _quietly(lambda: sys.stdout.flush())  # noqa: PLW0108
    _quietly(lambda: sys.stderr.flush())  # noqa: PLW0108
    return status if flushed else 120


def _quietly(action: Any) -> bool:
    try:
        action()
    except BaseException as error:
        return isinstance(error, AttributeError | ValueError)  # closed, or None: Python is content too
    return True
