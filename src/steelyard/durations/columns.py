"""Columns as they are asked for: numbers that were measured, one length, steps counted from 0.

`nan` means *not measured* everywhere in this library, so no statistic is computed over one: whoever has some
leaves those rows out, and says so.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard.errors import RefusedError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def measured(name: str, values: ArrayLike, *, least: float = 0.0) -> Floats:
    """A column of finite numbers, none below `least`.

    Raises
    ------
    RefusedError
        With the column, the row and the value.
    """
    column = np.asarray(values, float)
    if column.ndim != 1:
        raise RefusedError(
            f"needs one dimension, has shape {column.shape}",
            where=name,
            remedy="pass one number for each row",
        )
    wrong = ~(np.isfinite(column) & (column >= least))
    if wrong.any():
        row = int(wrong.argmax())
        raise RefusedError(
            f"row {row} is {column[row]}, and {int(wrong.sum())} of {len(column)} rows are not finite"
            + ("" if least == -np.inf else f" or below {least:g}"),
            where=name,
            remedy="leave out the rows that were not measured, and say how many they were",
        )
    return column


def flags(name: str, values: ArrayLike) -> Bools:
    """A column of yes and no; numbers other than 0 and 1 are refused."""
    column = np.asarray(values)
    if column.dtype != np.bool_ and column.size:
        wrong = (column != 0) & (column != 1)
        if wrong.any():
            row = int(wrong.argmax())
            raise RefusedError(
                f"row {row} is {column[row]}, neither 0 nor 1", where=name, remedy="pass booleans"
            )
    return column.astype(np.bool_, copy=False)


def coded(name: str, labels: ArrayLike) -> tuple[Ints, int]:
    """Labels as indices from 0, and how many different ones there are."""
    column = np.asarray(labels)
    if not column.size:
        return np.zeros(0, np.int64), 0
    if not np.issubdtype(column.dtype, np.integer):
        if np.issubdtype(column.dtype, np.floating):
            measured(name, column, least=-np.inf)
        different, codes = np.unique(column, return_inverse=True)
        return codes, len(different)
    first, last = int(column.min()), int(column.max())
    if last - first > 4 * column.size:
        different, codes = np.unique(column, return_inverse=True)
        return codes, len(different)
    shifted = column.astype(np.int64, copy=False) - first  # far cheaper than sorting
    present = np.bincount(shifted) > 0
    if present.all():
        return shifted, len(present)
    return (np.cumsum(present) - 1)[shifted], int(present.sum())


def same_length(**columns: Sized) -> None:
    """Refuse columns of different lengths."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise RefusedError(
            f"lengths differ: {said}", where=next(iter(lengths)), remedy="pass one entry for each row"
        )
