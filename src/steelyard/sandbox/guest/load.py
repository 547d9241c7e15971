"""Make a module of a candidate's source, so that it cannot tell itself from an imported one.

It is a real module in `sys.modules` with a file on disk, and its folder is on `sys.path`:
`inspect.getsource`, pickling of its own classes, dataclasses, `typing.get_type_hints`, `multiprocessing`
(fork and spawn) and `if __name__ == "__main__"` mean what they mean elsewhere. The source is bytes, and any
bytes: Python's own rules for a byte-order mark, line ends and an encoding cookie hold.
"""

from __future__ import annotations

import builtins
import os
import sys
from types import CodeType, ModuleType, TracebackType
from typing import Any

from . import frames

if not hasattr(builtins, "exit"):  # under `python -S` nobody has put them there
    from _sitebuiltins import Quitter

    builtins.exit = Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = Quitter("quit", "Ctrl-D (i.e. EOF)")

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

FOLDER = "/box/work"
_MESSAGE = 300
_EXCEPTIONS = frozenset(
    one for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, BaseException)
)


class LoadError(Exception):
    """A source did not become a module: it does not compile, or running it raised.

    Parameters
    ----------
    kind, message, line
        The exception's type, its text, and the last line of the source that it passed, or None.
    """

    def __init__(self, kind: str, message: str, line: int | None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.line = kind, message, line


def load(source: bytes, name: str = "candidate", *, path: str = "", write: bool = True) -> ModuleType:
    """Compile and run a source as the module `name`.

    Parameters
    ----------
    path
        Its file; default `/box/work/<name>.py`, or `main.py` for `__main__`.
    write
        Write the file. Without it the source is known to `linecache` alone.

    Raises
    ------
    LoadError
        Whatever the source raised, `SystemExit` and `KeyboardInterrupt` included.
    """
    path = path or f"{FOLDER}/{'main' if name == '__main__' else name}.py"
    try:
        module, code = prepare(source, name, path, write=write)
        exec(code, module.__dict__)
    except BaseException as error:
        raise LoadError(*told(error, path)) from None
    return module


def prepare(source: bytes, name: str, path: str, *, write: bool = True) -> tuple[ModuleType, CodeType]:
    """Return the module, in its places but not run yet, and its code."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if write:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, source)
        finally:
            os.close(fd)
    else:
        import linecache

        lines = source.decode("utf-8", "replace").splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
    module = ModuleType(name)
    module.__file__ = path
    vars(module)["__builtins__"] = builtins
    sys.modules[name] = module
    if name != "__main__":
        # A spawned child runs its parent's main file again: ours is none of its business.
        sys.modules["__main__"] = ModuleType("__main__")
    return module, compile(source, path, "exec", dont_inherit=True)


def told(error: BaseException, path: str) -> tuple[str, str, int | None]:
    """Return an exception's type, text and the last line of the file `path` that it passed.

    The exception may be the candidate's own class: whatever its methods do, three plain values come back.
    """
    try:
        kind = type.__dict__["__name__"].__get__(type(error))
        kind = str.__str__(kind)[:100]
    except Exception:
        kind = "Exception"
    try:
        message = str.__str__(str(error))[:_MESSAGE]
    except BaseException:
        message = ""
    line = None
    try:
        if isinstance(error, SyntaxError) and error.filename == path:
            line = error.lineno
        trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
        for _ in range(100_000):
            if trace is None:
                break
            if trace.tb_frame.f_code.co_filename == path:
                line = trace.tb_lineno
            trace = trace.tb_next
    except Exception:
        line = None
    return kind, message, line if type(line) is int else None


def bases(error: BaseException) -> list[str]:
    """Return the names of the built-in exceptions that an exception is, the nearest first."""
    try:
        kinds = type.__dict__["__mro__"].__get__(type(error))
        return [type.__dict__["__name__"].__get__(kind) for kind in kinds if kind in _EXCEPTIONS]
    except Exception:
        return []


def found(module: ModuleType, name: str) -> Any:
    """Return what the tests mean by a name, perhaps dotted.

    LeetCode's problems are methods of a class `Solution`, which its tests do not mention.

    Raises
    ------
    AttributeError
        The candidate has nothing of that name.
    """
    value: Any = module
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except AttributeError:
        solution = getattr(module, "Solution", None)
        if not isinstance(solution, type) or not callable(getattr(solution, name, None)):
            raise
        return getattr(solution(), name)
    return value
