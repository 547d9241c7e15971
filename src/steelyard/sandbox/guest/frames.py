"""Frames: a length of four bytes, little-endian, and that many bytes.

All that host, guest and judge say to each other is cut into these. Nothing here knows what is inside.

`BUILTINS` is a copy of Python's built-in names, taken before any model-written code ran. The modules of
`guest` look names up in it, so that a candidate which replaces `builtins.len` or `os.write` for reasons of
its own does not lose its answers (a hostile one only harms itself: nothing here is a secret).
"""

from __future__ import annotations

import builtins
import os

BUILTINS = dict(vars(builtins))
__builtins__ = BUILTINS  # type: ignore[assignment]

_CHUNK = 1 << 16
_from_bytes, _read, _pread, _write = int.from_bytes, os.read, os.pread, os.write


def pack(*frames: bytes) -> bytes:
    """Join frames into one text of bytes.

    Examples
    --------
    >>> unpack(pack(b"a", b""))
    [b'a', b'']
    """
    return b"".join(part for frame in frames for part in (len(frame).to_bytes(4, "little"), frame))


def unpack(data: bytes) -> list[bytes]:
    """Cut what `pack` joined.

    Raises
    ------
    ValueError
        The bytes do not end where a frame ends.
    """
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + _from_bytes(data[at : at + 4], "little")
        if end > len(data) or at + 4 > len(data):
            raise ValueError("a frame is cut short")
        frames.append(data[at + 4 : end])
        at = end
    return frames


def read_all(fd: int, limit: int) -> bytes:
    """Read a file from its start, whoever moved its offset, or a pipe to its end.

    Raises
    ------
    ValueError
        There are more than `limit` bytes.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = _pread(fd, _CHUNK, size)
        except OSError:  # a pipe or a socket
            part = _read(fd, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise ValueError(f"more than {limit} bytes")


def send(fd: int, *frames: bytes) -> None:
    """Write frames, whole."""
    data = pack(*frames)
    sent = _write(fd, data)
    while sent < len(data):
        data = data[sent:]
        sent = _write(fd, data)


class Reader:
    """Frames out of a stream that arrives in pieces of any size.

    Parameters
    ----------
    limit
        The longest frame, in bytes.

    Examples
    --------
    >>> reader = Reader(100)
    >>> reader.feed(pack(b"one")[:5]), reader.feed(pack(b"one")[5:])
    ([], [b'one'])
    """

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._held = bytearray()
        self._limit = limit

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are whole now.

        Raises
        ------
        ValueError
            A frame is longer than the limit; it is refused by its length, before it has arrived, and after
            the frames before it were returned.
        """
        held = self._held
        held += data
        frames: list[bytes] = []
        at = 0
        while len(held) - at >= 4:
            size = _from_bytes(held[at : at + 4], "little")
            if size > self._limit:
                if frames:
                    break  # those before it count: the refusal comes with the next piece
                raise ValueError(f"a frame of {size} bytes, at most {self._limit} are allowed")
            if len(held) - at - 4 < size:
                break
            frames.append(bytes(held[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            del held[:at]
        return frames
