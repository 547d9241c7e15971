"""How a fork server is started, in whatever kind of slot, and what must hold for its guests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from steelyard.sandbox.pool import Mould

PRELOADED: Final = (
    "collections", "functools", "itertools", "math", "re", "typing", "heapq", "bisect", "string", "random",
    "copy", "operator",
)  # fmt: skip
"""What nearly every candidate imports: each further module costs every guest the copy of its pages."""

JUDGES_PRELOADED: Final = ("guest.judge", "unittest", "math", "re", "typing", "random", "copy", "collections")

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/box/home",
    "USER": "user",
    "TMPDIR": "/tmp",  # noqa: S108 - inside
    "LANG": "C.UTF-8",
    "LD_BIND_NOW": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
DESCRIPTORS: Final = 512
"""Open files of a guest. Less than the 1,024 that a host usually has: what guests send one another is counted
together with what the host sends them, and each sender is refused at a limit of its own."""

JUDGE_PROCESSES: Final = 16
"""Processes of one judge; many live in one slot."""


FACTS: Final[Mapping[str, str]] = {
    "own_session": "yes",
    "cap_eff": "0",
    "no_new_privs": "1",
    "seccomp": "2",
    "dumpable": "0",
    "shadow_readable": "no",
    "network_socket": "no",
    "new_user_namespace": "no",
    "ptrace": "no",
    "root_writable": "no",
    "usr_writable": "no",
    "dev_writable": "no",
    "proc_writable": "no",
    "box_writable": "yes",
}
"""What must hold for a guest of any slot."""

_BOOT: Final = (
    "import sys; sys.path[:0] = [{folder!r}]; sys.path += {packages!r}; "
    "from guest.server import main; main({told!r})"
)


def settings(mould: Mould, control: int, *, counted: bool) -> dict[str, Any]:
    """What a fork server is told.

    Parameters
    ----------
    mould
        What its guests may use, and what it has imported before they come.
    control
        The descriptor of its control socket.
    counted
        Whether something counts the memory of all of a guest's processes together.
    """
    judging = mould.preload == "judge"
    usual = JUDGES_PRELOADED if judging else PRELOADED
    return {
        "control": control,
        "preload": [*usual, *filter(None, mould.preload.split(","))],
        "limits": {
            "file_bytes": mould.file_bytes,
            "files": mould.files,
            "memory_bytes": None if counted else mould.memory_bytes,
            "processes": JUDGE_PROCESSES if judging else mould.processes,
            "file_size": mould.output_bytes + 1,
            "descriptors": DESCRIPTORS,
        },
    }


def command(python: str, *, folder: str, packages: Sequence[str], told: Mapping[str, Any]) -> list[str]:
    """The command that becomes a fork server.

    Parameters
    ----------
    python
        The interpreter.
    folder
        Where the package `guest` lies.
    packages
        Where else guests may import from.
    told
        Its settings.
    """
    return [
        python, "-P", "-S", "-B",
        "-c", _BOOT.format(folder=folder, packages=list(packages), told=dict(told)),
    ]  # fmt: skip


def unproven(facts: Mapping[str, str], needed: Mapping[str, str]) -> str | None:
    """Say which fact is not as it must be, if one is not."""
    for fact, value in needed.items():
        if facts.get(fact) != value:
            return f"seen from inside, {fact} is {facts.get(fact, 'unknown')!r} and must be {value!r}"
    if len(facts.get("descriptors", "").split()) != 4:  # standard ones, and its channel
        return f"its open descriptors are {facts.get('descriptors')}"
    return None
