"""Programs in other languages: compile a source to files, and run files by a command.

Both start one process and wait for it. A guest is PID 1 of its namespace, where signals that a program sends
to itself do nothing and `abort` looks like a crash; a child of it dies as it would anywhere. What became of
it is said on the channel, which the child does not have: `["signal", n]`, and the made files (`made`, name,
content, name, content, ...). Nothing that the child does reaches this process: it holds no handler, and what
it reads of the folder are plain files.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import stat
from typing import Any, NoReturn

from . import frames

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

_PATH = "/usr/local/bin:/usr/bin:/bin"


def ready(header: dict[str, Any]) -> None:
    """Make sure that there is such a program, before anything of the candidate's is touched.

    Raises
    ------
    FileNotFoundError
        If it is not inside.
    """
    if _found(header["command"][0]) is None:
        raise FileNotFoundError(f"there is no {header['command'][0]} inside")


def _found(program: str) -> str | None:
    """Where a program is; one beside the source may still have to be made."""
    if program.startswith("./"):
        return program
    folders = [""] if "/" in program else os.environ.get("PATH", _PATH).split(":")
    paths = (os.path.join(folder, program) for folder in folders)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def build(header: dict[str, Any], source: bytes, channel: int, folder: str) -> NoReturn:
    """Compile a source, hand back what was made, and leave with the compiler's status.

    Parameters
    ----------
    header
        `command`, `environment`, `file` (the source's name), `makes` (a pattern of names), `most` (bytes).
    source, channel, folder
        The candidate's source; where the host listens; where all this happens.
    """
    from fnmatch import fnmatchcase

    _write(f"{folder}/{header['file']}", source)
    status = _wait(header, channel, folder)
    if status:
        os._exit(status)
    names = sorted(
        one.name
        for one in os.scandir(folder)
        if one.is_file(follow_symlinks=False) and fnmatchcase(one.name, header["makes"])
    )
    names = [name for name in names if name != header["file"]]
    size = sum(os.lstat(f"{folder}/{name}").st_size + len(os.fsencode(name)) + 8 for name in names)
    if size > header["most"]:
        frames.send(channel, b"large", b"%d" % size)
    else:
        made = [part for name in names for part in (os.fsencode(name), _read(f"{folder}/{name}"))]
        frames.send(channel, b"made", *made)
    os._exit(0)


def run(header: dict[str, Any], files: list[bytes], channel: int, folder: str) -> NoReturn:
    """Write files (name, content, name, content, ...), run the command, and leave with its status."""
    for name, content in zip(files[::2], files[1::2], strict=True):
        _write(f"{folder}/{os.fsdecode(name)}", content)
    os._exit(_wait(header, channel, folder))


def _wait(header: dict[str, Any], channel: int, folder: str) -> int:
    """Run the command to its end; a signal that ended it is told, and looks like a shell's status."""
    os.chdir(folder)
    os.set_inheritable(channel, False)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python's handler would run here if the child sent one
    command = [str(word) for word in header["command"]]
    program = _found(command[0]) or command[0]
    # the loader looks for `$ORIGIN` in a /proc that is not here
    origin = {"LD_ORIGIN_PATH": os.path.dirname(os.path.realpath(program))}
    child = os.posix_spawn(
        program,
        command,
        {**os.environ, **origin, **header["environment"]},
        setpgroup=0,
        setsigmask=(),
        setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),  # which Python ignores
    )
    while True:
        pid, status = os.wait()  # orphans come here, too
        if pid == child:
            break
    if os.WIFSIGNALED(status):
        frames.send(channel, b'["signal",%d]' % os.WTERMSIG(status))
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(f"{path} is no file any more")
    return frames.read_all(fd, 1 << 30)
