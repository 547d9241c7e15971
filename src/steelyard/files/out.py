"""The scored file: one row per rollout in input order, complete or not there at all.

Rows are written beside the target and renamed onto it at the end, so that a reader never sees half
a file. A name that ends in `.gz` is compressed, one that ends in `.parquet` is Parquet.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, cast

from steelyard.errors import RefusedError, RunStoppedError
from steelyard.files.parquet import Columns, arrow, write_parquet


def partial_of(path: Path) -> Path:
    """The file in which rows are gathered until they are complete, beside the target."""
    target = path.resolve()
    return target.with_name(target.name + ".partial")


class ScoredFile:
    """A file that appears whole.

    Parameters
    ----------
    path
        Where it shall appear.

    Raises
    ------
    RefusedError
        If nothing can be written there, or what writes it is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._target = path.resolve()  # a link stays a link: what it points to is replaced
        self._partial = partial_of(path)
        self.is_table = path.suffix == ".parquet"
        if path.is_dir():
            raise RefusedError("this is a folder", where=str(path), remedy="name a file with --out")
        if self._target.exists() and not self._target.is_file():
            raise RefusedError(
                "this is no file that could be replaced by a whole one (a device, a pipe or a socket)",
                where=str(path),
                remedy="name a file with --out, and read it when the command has ended",
            )
        try:
            # another run may be writing the partial file: the trial is a file of its own
            tempfile.TemporaryFile(dir=self._target.parent).close()
        except OSError as error:
            raise RefusedError(
                f"nothing can be written there ({error.strerror})",
                where=str(path),
                remedy="choose a folder that exists and can be written with --out PATH",
            ) from error
        if self.is_table:
            arrow(str(path))

    def write(self, chunks: Iterable[bytes]) -> None:
        """Write all chunks, then let the file appear.

        Raises
        ------
        RunStoppedError
            If the disk is full or the folder went away; the ledger still holds every verdict.
        """

        def fill(raw: IO[bytes]) -> None:
            with self._compressed(raw) as file:
                file.writelines(chunks)

        self._appear(fill)

    def write_table(self, rows: Iterable[Mapping[str, Any]], columns: Columns) -> None:
        """Write all rows as Parquet, then let the file appear.

        Raises
        ------
        RunStoppedError
            As for `write`.
        """
        self._appear(lambda raw: write_parquet(raw, rows, columns))

    def _appear(self, fill: Callable[[IO[bytes]], None]) -> None:
        try:
            self._partial.unlink(missing_ok=True)  # of a run that was killed
            with self._partial.open("xb") as raw:
                try:
                    fill(raw)
                    raw.flush()
                    os.fsync(raw.fileno())
                except BaseException:
                    self._forget(raw)
                    raise
                if not self._is_ours(raw):
                    raise OSError("another run is writing the same file")  # noqa: TRY301 - mapped below
            self._partial.replace(self._target)
        except OSError as error:
            raise RunStoppedError(
                f"{self.path}: the scored rows could not be written ({error.strerror or error}); "
                "every verdict is in the ledger\n  next: free space and run the same command again"
            ) from error

    def _is_ours(self, raw: IO[bytes]) -> bool:
        """Whether the partial file is the one that was opened here."""
        try:
            return os.path.samestat(os.fstat(raw.fileno()), self._partial.stat())
        except FileNotFoundError:
            return False

    def _forget(self, raw: IO[bytes]) -> None:
        if self._is_ours(raw):
            self._partial.unlink(missing_ok=True)

    def _compressed(self, raw: IO[bytes]) -> IO[bytes]:
        if self.path.suffix != ".gz":
            return open(raw.fileno(), "wb", buffering=1 << 20, closefd=False)
        # no name, no time: equal rows make equal files
        return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6))
