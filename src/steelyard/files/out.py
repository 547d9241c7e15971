"""The scored file: one row per rollout in input order, complete or not there at all.

Rows are written beside the target and renamed onto it at the end, so that a reader never sees half
a file. A name that ends in `.gz` is compressed.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from steelyard.errors import RefusedError, RunStoppedError


class ScoredFile:
    """A file that appears whole.

    Parameters
    ----------
    path
        Where it shall appear.

    Raises
    ------
    RefusedError
        If nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(path.name + ".partial")
        if path.is_dir():
            raise RefusedError("this is a folder", where=str(path), remedy="name a file with --out")
        try:
            self._partial.open("wb").close()
            self._partial.unlink()
        except OSError as error:
            raise RefusedError(
                f"nothing can be written there ({error.strerror})",
                where=str(path),
                remedy="choose a folder that exists and can be written with --out PATH",
            ) from error

    def write(self, chunks: Iterable[bytes]) -> None:
        """Write all chunks, then let the file appear.

        Raises
        ------
        RunStoppedError
            If the disk is full or the folder went away; the ledger still holds every verdict.
        """
        try:
            try:
                with self._partial.open("wb") as raw:
                    with self._compressed(raw) as file:
                        file.writelines(chunks)
                    raw.flush()
                    os.fsync(raw.fileno())
                self._partial.replace(self.path)
            except BaseException:
                self._partial.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise RunStoppedError(
                f"{self.path}: the scored rows could not be written ({error.strerror or error}); "
                "every verdict is in the ledger\n  next: free space and run the same command again"
            ) from error

    def _compressed(self, raw: IO[bytes]) -> IO[bytes]:
        if self.path.suffix != ".gz":
            return open(raw.fileno(), "wb", buffering=1 << 20, closefd=False)
        # no name, no time: equal rows make equal files
        return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6))
