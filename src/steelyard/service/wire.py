"""What the front and a scoring process tell one another.

One connection is one request.

There: how to answer (`ROWS` or `LINES`), the body. Back: an empty frame when the request is taken, the
status as a number, the answer in pieces, an empty frame. A frame is its length in eight bytes, and its
bytes. An answer without its last frame was cut; what was not taken may be asked of another process.
Hanging up is how either side leaves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import Final, TypeAlias, TypeVar

ROWS: Final = b"rows"
LINES: Final = b"lines"

CUT: Final = OSError, asyncio.IncompleteReadError
"""What is raised where the other side has left."""

BUFFER: Final = 1 << 20
"""What a reader of frames holds; frames may be longer."""

Stamp: TypeAlias = list[int] | None
"""What tells one state of a file from another; `None` if there is no file."""

_T = TypeVar("_T")


def frame(data: bytes) -> bytes:
    """Make a frame of bytes."""
    return len(data).to_bytes(8) + data


async def next_frame(reader: asyncio.StreamReader) -> bytes:
    """Read a frame.

    Raises
    ------
    IncompleteReadError
        If the other side left.
    """
    return await reader.readexactly(int.from_bytes(await reader.readexactly(8)))


async def unless(gone: Awaitable[object], work: Awaitable[_T]) -> _T | None:
    """Do the work; if `gone` comes first give it up, and return `None` when it has ended."""
    leaving, working = asyncio.ensure_future(gone), asyncio.ensure_future(work)
    try:
        await asyncio.wait((leaving, working), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(leaving, working, return_exceptions=True)


def stamp(path: str) -> Stamp:
    """Look at a file: time of writing, size, and which file it is."""
    try:
        found = os.stat(path)  # noqa: PTH116 - paths are keys here, and many are looked at
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]
