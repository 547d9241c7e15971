"""JSON Lines of others, one object after another; no line is kept.

A line that is no JSON object stops the reading at `file:line`, or is skipped and counted. The last line may
be torn by whoever stopped its writer: it is left out and said. The bare words `NaN` and `Infinity`, which
Python writes, are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from steelyard.files.foreign.read import Faults
from steelyard.files.source import read_once


class ValueFaultError(ValueError):
    """A field that is not what it must be: which, and what was seen."""


def records(paths: Iterable[Path], faults: Faults) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """(file, line number, object) of files in their order.

    Raises
    ------
    RefusedError
        If a file cannot be read; at a line that is no JSON object, unless such lines are skipped.
    """
    for path in paths:
        broken: tuple[int, str] | None = None
        for number, line in enumerate(read_once(str(path)), start=1):
            if not line.strip():
                continue
            if broken:
                _complain(path, broken, faults)
                broken = None
            try:
                found = parse(line)
            except ValueError as error:
                broken = number, f"not JSON ({error}): {seen(line)}"
                continue
            if isinstance(found, dict):
                yield path, number, found
            else:
                broken = number, f"a line must be one JSON object, this is {seen(line)}"
        if broken and broken[1].startswith("not JSON"):
            faults.cut(f"{path}:{broken[0]}")
        elif broken:
            _complain(path, broken, faults)


def parse(line: bytes) -> object:
    """One line; `NaN` and `Infinity` are numbers in it."""
    try:
        return orjson.loads(line)
    except ValueError:
        if not any(word in line for word in (b"NaN", b"Infinity")):
            raise
        return json.loads(line)


def seen(value: object) -> str:
    """A value, short enough for a message."""
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def number(record: dict[str, Any], name: str) -> float:
    """A number, or a number as text (whoever writes NumPy's numbers writes those); `nan` for null and absent.

    Raises
    ------
    ValueFaultError
        If it is something else, or infinite.
    """
    value = record.get(name)
    if value is None:
        return float("nan")
    try:
        real = float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        real = None
    if real is None or real in (float("inf"), float("-inf")):
        raise ValueFaultError(f"{name!r} must be a finite number, null or absent, this is {seen(value)}")
    return real


def flag(record: dict[str, Any], names: Iterable[str]) -> bool:
    """Whether one of these fields says that something happened: true, a text, an object, a number above 0."""
    return any(_says(record.get(name)) for name in names)


def _says(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in {"", "false", "0", "none", "null", "nan", "no"}
    if isinstance(value, float):
        return value > 0
    return bool(value)


def _complain(path: Path, broken: tuple[int, str], faults: Faults) -> None:
    faults.bad(f"{path}:{broken[0]}", broken[1], "write or copy the file again")
