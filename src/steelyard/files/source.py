"""Where lines come from, and how one is found again.

A file is read twice: once whole, to find its faults and its groups (equal prompts need not stand
together), once to be judged, group by group. What can be read only once, standard input and gzip, is
spooled first, and the spool is read twice. So is Parquet: any row of it can be found again, but not
without its neighbours (bench/parquet.py has what both cost).
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from steelyard.errors import RefusedError
from steelyard.files.parquet import MAGIC, parquet_lines

STDIN = "-"


class LineSource(Protocol):
    """Lines of bytes that can be read in order and found again by their place."""

    name: str

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(place, line) from the first to the last; a line keeps its newline."""

    def at(self, place: int) -> bytes:
        """The line at a place; cheap when it is the one after the last that was asked for."""

    def changed(self) -> bool:
        """Whether it was written to since it was opened."""

    def close(self) -> None:
        """Let go of the file."""


class FileSource:
    """A plain file; a place is a byte offset.

    Raises
    ------
    RefusedError
        If the file is absent, a folder, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = open_input(path)
        self._next = -1
        self._stamp = self._look()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(byte offset, line) from the first to the last."""
        self._file.seek(0)
        place = 0
        for line in self._file:
            yield place, line
            place += len(line)
        self._next = -1

    def at(self, place: int) -> bytes:
        """The line that starts at a byte offset."""
        if place != self._next:
            self._file.seek(place)
        line = self._file.readline()
        self._next = place + len(line)
        return line

    def changed(self) -> bool:
        """Whether its size or its time of writing is another than when it was opened."""
        return self._look() != self._stamp

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SpoolSource:
    """Lines that were spooled; a place is a line number, from 1.

    Parameters
    ----------
    name
        The word for it in messages.
    spooled
        The spooled lines from a line number on.
    """

    def __init__(self, name: str, spooled: Callable[[int], Iterator[bytes]]) -> None:
        self.name = name
        self._spooled = spooled
        self._rest: Iterator[bytes] = iter(())
        self._next = -1

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(line number, line) from the first to the last."""
        return enumerate(self._spooled(1), start=1)

    def at(self, place: int) -> bytes:
        """The line of a number."""
        if place != self._next:
            self._rest = self._spooled(place)
        self._next = place + 1
        return next(self._rest)

    def changed(self) -> bool:
        """Nobody else writes to the spool."""
        return False

    def close(self) -> None:
        """Nothing to let go of: the spool belongs to the ledger."""


def is_once(file: str) -> bool:
    """Whether an input is spooled: standard input, gzip, a pipe, Parquet."""
    return (
        file == STDIN
        or file.endswith(".gz")
        or (Path(file).exists() and not Path(file).is_file())
        or _is_parquet(file)
    )


def _is_parquet(file: str) -> bool:
    """Whether a file begins as Parquet does, whatever its name."""
    if not Path(file).is_file():
        return False
    with open_input(Path(file)) as raw:
        begin = raw.read(len(MAGIC))
    if begin != MAGIC and Path(file).suffix == ".parquet":
        raise RefusedError(
            f"it is called Parquet, but begins with {begin!r}, not with {MAGIC!r}",
            where=file,
            remedy="write it again, or give it the name of what it is (.jsonl, .jsonl.gz)",
        )
    return begin == MAGIC


def read_once(file: str) -> Iterator[bytes]:
    """Lines of an input that is spooled.

    Raises
    ------
    RefusedError
        If it is absent, or no gzip or Parquet although its name says so, or its end is missing.
    """
    if file == STDIN:
        if sys.stdin is None:
            raise RefusedError(
                "standard input is closed", where=STDIN, remedy="pipe rows into it, or name a file"
            )
        yield from sys.stdin.buffer
        return
    if _is_parquet(file):
        yield from parquet_lines(Path(file))
        return
    with open_input(Path(file)) as raw:
        if not file.endswith(".gz"):
            yield from raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as lines:
                yield from lines
        except (OSError, EOFError, zlib.error) as error:
            raise RefusedError(
                f"not a whole gzip file ({error})",
                where=file,
                remedy="gzip --test tells where it breaks; copy it again, or gunzip what is there",
            ) from error


def open_input(path: Path) -> IO[bytes]:
    """Open a file to read bytes, or refuse with what to do about it."""
    try:
        if path.is_dir():
            raise RefusedError("this is a folder", where=str(path), remedy="name a file of JSON Lines in it")
        return path.open("rb", buffering=1 << 20)
    except FileNotFoundError:
        raise RefusedError("there is no such file", where=str(path), remedy=_neighbours(path)) from None
    except OSError as error:
        raise RefusedError(
            f"the file cannot be read ({error.strerror})", where=str(path), remedy="check its permissions"
        ) from error


def _neighbours(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either: check the path"
    like = sorted(p.name for p in folder.iterdir() if {".jsonl", ".parquet"} & set(p.suffixes))[:5]
    return f"check the path; in {folder} there are {', '.join(like)}" if like else "check the path"
