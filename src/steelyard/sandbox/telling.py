"""What a host and a runner say to each other: frames, each a line of JSON and some bytes.

| to the runner | with | answered by |
|---|---|---|
| `settings` | first of all: users, packages, what counts memory | |
| `attest` | limits, preload | `facts`, or `refused` |
| `run` | limits, a program | `reply` for each frame it sends, then `ended`, or `never` |
| `check` | limits, a source, checks | `ended` with an opinion, or `never` |
| `enough` | | ends the program that runs |

One request at a time is under way; `enough` belongs to the one that is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from steelyard.clock import Clocks
from steelyard.execution import Ended, Execution, Limits
from steelyard.sandbox.boundary import Checks, Opinion, Program
from steelyard.sandbox.guest import frames

LONGEST: Final = 1 << 28
"""Bytes of a message, at most."""

_CLOCKS: Final = ("queued_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "censored")


def message(what: str, told: Mapping[str, Any] | None = None, *parts: bytes) -> bytes:
    """Pack a message."""
    return frames.pack(frames.pack(json.dumps({"what": what, **(told or {})}).encode(), *parts))


def read(frame: bytes) -> tuple[str, dict[str, Any], list[bytes]]:
    """Unpack a message.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        head, *parts = frames.unpack(frame)
        told = json.loads(head)
    except RecursionError as error:
        raise ValueError("no message: it is nested too deeply") from error
    if not isinstance(told, dict) or not isinstance(told.get("what"), str):
        raise ValueError(f"no message: {head[:100]!r}")  # noqa: TRY004 - as for what is no JSON
    return told.pop("what"), told, parts


def limits_told(limits: Limits) -> dict[str, Any]:
    """Limits as they are told."""
    return asdict(limits)


def program_told(program: Program) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """A program as it is told."""
    told = {"mode": program.mode, "header": dict(program.header)}
    return told, (program.source, program.stdin, *program.frames)


def program_read(told: Mapping[str, Any], parts: list[bytes]) -> Program:
    """The program that was told."""
    source, stdin, *rest = parts
    return Program(told["mode"], source, tuple(rest), stdin, told["header"])


def checks_told(source: bytes, checks: Checks) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """A candidate and its checks as they are told."""
    told = {"digest": checks.digest, "entry_point": checks.entry_point, "header": dict(checks.header)}
    return told, (source, checks.source)


def checks_read(told: Mapping[str, Any], parts: list[bytes]) -> tuple[bytes, Checks]:
    """The candidate and the checks that were told."""
    source, tests = parts
    return source, Checks(told["digest"], tests, told["entry_point"], told["header"])


def execution_told(
    execution: Execution, opinion: Opinion | None = None
) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """An execution, and an opinion, as they are told."""
    told = {
        "ended": execution.ended.value,
        "code": execution.code,
        "limit": execution.limit,
        "peak_bytes": execution.peak_bytes,
        "clocks": clocks_told(execution.clocks),
        "evidence": {name: value for name, value in execution.evidence.items() if _plain(value)},
        "opinion": None if opinion is None else list(opinion),
    }
    return told, (execution.stdout, execution.stderr)


def execution_read(told: Mapping[str, Any], parts: list[bytes]) -> tuple[Execution, Opinion]:
    """The execution and the opinion that were told."""
    stdout, stderr = parts
    code, limit, peak, evidence = (told[name] for name in ("code", "limit", "peak_bytes", "evidence"))
    sound = _is(code, int) and _is(limit, str) and _is(peak, int) and isinstance(evidence, dict)
    opinion = told["opinion"] or ()
    sound = sound and all(map(_is, opinion, (int, int, str, str, str, dict)))
    if not sound or len(opinion) > len(Opinion._fields):
        raise ValueError(f"no execution: {str(told)[:200]}")
    execution = Execution(
        Ended(told["ended"]),
        code,
        limit,
        stdout=stdout,
        stderr=stderr,
        clocks=clocks_read(told["clocks"]),
        peak_bytes=peak,
        evidence=evidence,
    )
    return execution, Opinion(*opinion)


def _is(value: object, kind: type) -> bool:
    return value is None or type(value) is kind


def clocks_told(clocks: Clocks | None) -> dict[str, Any]:
    """Clocks as they are told."""
    return {} if clocks is None else {name: getattr(clocks, name) for name in _CLOCKS}


def clocks_read(told: Mapping[str, Any]) -> Clocks:
    """The clocks that were told.

    Raises
    ------
    ValueError
        If one is no time.
    """
    for name, value in told.items():
        if name != "censored" and value is not None and not (_is(value, float) or _is(value, int)):
            raise ValueError(f"{name} is {value!r}")
        if name != "censored" and value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value!r}")
    return Clocks(**told)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))
