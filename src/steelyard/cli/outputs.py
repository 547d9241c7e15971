"""Files that a command writes beside its answer: refused before anything else is done, if they cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from steelyard.errors import RefusedError
from steelyard.ledger import BESIDE


def refuse_page(page: Path, others: Iterable[Path]) -> None:
    """Refuse a page that cannot be drawn or written.

    Raises
    ------
    RefusedError
        Naming `--report`.
    """
    from steelyard.report.figures import drawing

    drawing(str(page))
    refuse_output(page, "--report", others)


def refuse_output(path: Path, option: str, others: Iterable[Path]) -> None:
    """Refuse a file that cannot be written, or is another one of this command.

    Raises
    ------
    RefusedError
        Naming the option.
    """
    where = f"{option} {path}"
    taken = [one.resolve() for one in others]
    taken += [Path(f"{one}{suffix}") for one in taken for suffix in BESIDE]
    if path.resolve() in taken or (
        path.exists() and any(one.exists() and path.samefile(one) for one in taken)
    ):
        raise RefusedError("it is another file of this command", where=where, remedy="name one of its own")
    there = path if path.exists() else path.parent
    if path.is_dir() or not os.access(there, os.W_OK):
        raise RefusedError("it cannot be written", where=where, remedy="name a file in a folder that can be")
