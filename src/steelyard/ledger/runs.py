"""What a run is, and who wrote it: one session for each process that did."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.clock import Seconds, SystemClock
from steelyard.rollout import canonical_json


class Run(NamedTuple):
    """One run of a ledger: what was asked, and the numbers it is stored under."""

    number: int
    identity: str
    spec: Mapping[str, Any]
    parts: Mapping[str, int]
    began_unix: Seconds
    resumed: bool


def begin_session(db: sqlite3.Connection, run: int | None) -> int:
    """Write down who writes from now on, and return the number of that session.

    Monotonic clocks can be compared within one machine and boot; so both are told.
    """
    clock = SystemClock()
    row = (run, platform.node(), _boot(), clock.unix(), clock.now())
    return int(db.execute("INSERT INTO sessions VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid or 0)


def _boot() -> str:
    """Which start of the machine this is, as Linux tells it; elsewhere nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def difference(old: Mapping[str, Any], new: Mapping[str, Any], within: str = "") -> str:
    """Name the first thing that differs between two runs' specs; older ones do not have all."""
    for name, now in new.items():
        there = old.get(name)
        if name in old and there != now:
            if isinstance(there, Mapping) and isinstance(now, Mapping) and there.keys() == now.keys():
                return difference(there, now, f"{within}{name}.")
            return f"{within}{name}: {_short(there)} there, {_short(now)} now"
    return "its identity differs"


def _short(value: object) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
