"""What a boundary is asked and what it answers: limits in, facts out.

An `Execution` says what happened inside a boundary: how it ended, what was written, what it used. It holds
no verdict, no expected value and no blame: those are made of it by a reward and by `steelyard.blame`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from steelyard.clock import Clocks, Seconds

MIB: Final = 1 << 20

FIXED: Final = "fixed"

RULES: Final = (FIXED, "reference", "adaptive")
"""Where a limit of CPU may come from: as declared, a reference solution, or what was seen as well."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one candidate may use; each has a code of its own (`docs/verdicts.md`).

    Parameters
    ----------
    cpu_s
        CPU seconds, user plus system, of all its processes together.
    idle_s
        Wall seconds during which none of its tasks is runnable and none does I/O.
    wall_s
        Wall seconds from its first instruction: loose, and never a verdict by itself.
    memory_bytes
        Resident memory, temporary files and shared memory, of all its processes together.
    processes
        Processes and threads at one time.
    file_bytes, files
        What its folders may hold, and how many files.
    output_bytes
        What it may write to standard output and standard error together.
    kept_bytes
        How much of each is kept when nothing reads it.
    source_bytes
        The length of its source.
    reply_bytes
        The length of all values that it hands back.
    """

    cpu_s: Seconds = 2.0
    idle_s: Seconds = 1.0
    wall_s: Seconds = 30.0
    memory_bytes: int = 512 * MIB
    processes: int = 64
    file_bytes: int = 64 * MIB
    files: int = 4_096
    output_bytes: int = 32 * MIB
    kept_bytes: int = 16_384
    source_bytes: int = MIB
    reply_bytes: int = 16 * MIB


class Ended(StrEnum):
    """How a candidate's process ended."""

    EXIT = "exit"  # by itself, with the status in `code`
    SIGNAL = "signal"  # by the signal in `code`, which nobody of ours sent
    ENOUGH = "enough"  # by us: what it said was enough for a verdict
    LIMIT = "limit"  # by us or the kernel: it used up `limit`
    LOST = "lost"  # contact was lost: the slot ended, or nobody knows


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of one candidate.

    Parameters
    ----------
    ended
        How it ended.
    code
        The exit status, or the signal's number.
    limit
        The limit it used up: a word of `Limits` without its unit (`cpu`, `idle`, `wall`, ...).
    started
        Whether its first instruction ran.
    replies
        What it sent, frame by frame; empty where a listener took them.
    stdout, stderr
        What it wrote, as far as it was kept.
    clocks
        The boundary's clocks.
    peak_bytes
        The most memory that its slot held, where a cgroup counts it.
    evidence
        What else was seen, for whoever asks what the verdict was made from.
    """

    ended: Ended
    code: int | None = None
    limit: str | None = None
    started: bool = True
    replies: tuple[bytes, ...] = ()
    stdout: bytes = b""
    stderr: bytes = b""
    clocks: Clocks = field(default_factory=Clocks)
    peak_bytes: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
