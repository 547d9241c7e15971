"""Opening the file: is it ours, is it of our time, can it be written."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from steelyard.errors import RefusedError
from steelyard.ledger.migrations import migrate, refuse_newer

_APPLICATION_ID: Final = 0x53_54_45_45  # "STEE": tells our files from other people's SQLite files
WAIT_S: Final = 30.0
"""How long whoever opens a file waits for others that write it."""
_PAGE_BYTES: Final = 16_384  # larger pages append rollouts faster: bench/choices.py compares


def open_database(path: Path, *, write: bool, wait_s: float = WAIT_S) -> sqlite3.Connection:
    """Open a ledger; make it if it is to be written and absent. Writers wait for each other.

    Raises
    ------
    RefusedError
        If it is no ledger, one of a newer version, or cannot be opened.
    """
    try:
        new = write and (not path.exists() or path.stat().st_size == 0)
        name = f"{path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}"
        if not write and not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK):
            name += "&immutable=1"  # WAL is read through -shm, which nobody can make here, nor write
        db = sqlite3.connect(name, timeout=wait_s, isolation_level=None, check_same_thread=False, uri=True)
        try:
            if new:
                db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            _refuse_strangers(db.execute("PRAGMA application_id").fetchone()[0], path)
            if write:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                migrate(db, str(path))
            else:
                refuse_newer(db, str(path))
        except BaseException:
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        raise RefusedError(
            f"the ledger cannot be opened ({error})",
            where=str(path),
            remedy="free space and run the same command again"
            if "full" in str(error)
            else "check that the folder can be written and the file is a steelyard ledger, "
            "or name another file with --ledger",
        ) from error
    return db


def _refuse_strangers(owner: int, path: Path) -> None:
    if owner != _APPLICATION_ID:
        raise RefusedError(
            "this is a SQLite file, but not a steelyard ledger",
            where=str(path),
            remedy="name another file with --ledger",
        )
