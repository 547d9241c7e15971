"""`steelyard fit --verify`: the model is built, and a step is run, in a process of its own.

That process has torch, and may die of what it tries; this one asks by JSON and reads JSON, by the protocol
that `steelyard.integrations.allocation` describes. `verified` of `--json` is its answer, as it came.
"""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired, run
from typing import TYPE_CHECKING, Any, Final

from steelyard.errors import RefusedError, SteelyardError
from steelyard.report.memory_words import gib
from steelyard.report.words import Row, Section, one_line

if TYPE_CHECKING:
    from steelyard.memory.plan import Plan
    from steelyard.memory.values import Card

PROTOCOL: Final = 1
_LONGEST_S: Final = 3600
"""Seconds: a step takes one to some minutes, by the layers of the model; what takes this long hangs."""
_CHILD: Final = ("-m", "steelyard.integrations.allocation")


class CheckDiedError(SteelyardError):
    """The process that checks ended without an answer."""


def verified(
    plan: Plan, card: Card, config: dict[str, Any] | None, *, points: Path | None = None
) -> dict[str, Any]:
    """Ask for a real allocation.

    Parameters
    ----------
    plan, card
        What is to run, on what.
    config
        The model's config.json.
    points
        Where what a GPU measured is appended.

    Raises
    ------
    RefusedError
        No config.json is at hand, torch is not installed, or the plan cannot be built.
    CheckDiedError
        The process died.
    """
    from steelyard.cli.fit_values import as_json
    from steelyard.memory.plain import values_of

    if config is None:
        raise RefusedError(
            f"{plan.model.name} cannot be built without its config.json",
            where="--verify",
            remedy="name it: --model path/to/config.json",
        )
    asked = {
        "protocol": PROTOCOL,
        "name": plan.model.name,
        "config": config,
        "plan": values_of(plan),
        "card": card,
        "points": None if points is None else str(points.resolve()),
        "device": "auto",
    }
    try:
        done = run(  # noqa: S603 - our own module
            [sys.executable, *_CHILD],
            input=as_json(asked).encode(),
            capture_output=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except TimeoutExpired as error:
        raise CheckDiedError(
            f"--verify: the check had no answer after {_LONGEST_S} s, and was ended\n"
            "  next: repeat it without --verify, or with a smaller --micro-batch"
        ) from error
    return _answer(done)


def _answer(done: CompletedProcess[bytes]) -> dict[str, Any]:
    import orjson

    try:
        found = orjson.loads(done.stdout)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("protocol") == PROTOCOL:
        if done.returncode == 0:
            return found
        if done.returncode == 2 and isinstance(refused := found.get("refused"), dict):
            raise RefusedError(**refused)
    how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    raise CheckDiedError(
        f"--verify: the check died ({how}); the last that it said: {one_line(last[-300:]) or 'nothing'}\n"
        "  next: repeat it without --verify; the estimate needs no torch"
    )


def section(found: dict[str, Any]) -> Section:
    """What came of it, in rows.

    Parameters
    ----------
    found
        The answer.
    """
    changed = f"; for {', '.join(found['changes'])}" if found["changes"] else ""
    rows = [
        _count(one["what"], one["planned"], one["built"], one["unit"]) for one in found["model"]["counts"]
    ]
    rows += [
        _count(f"of them {one['module']}", one["planned"], one["built"], "parameters")
        for one in found["model"]["differences"]
    ]
    for kind, name in (("tracked", "step, tracked"), ("gpu", "step on the GPU")):
        one = found[kind]
        measured = [key for key in ("allocated", "reserved") if one.get(key)]
        rows += [_measured(f"{name}: {key}", one[key], one, changed) for key in measured]
        if not measured:
            told = ", ".join(str(one[key]) for key in ("phase", "reason") if one.get(key))
            rows.append(Row(name, one["outcome"], "", told))
    if found["gpu"].get("context"):
        rows.append(Row("context", f"{gib(found['gpu']['context'])} GiB", "", "beside what torch reserves"))
    if found["stored"]:
        rows.append(Row("kept", f"{found['stored']['rows']} rows", "", found["stored"]["file"]))
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return Section("verified", f"Checked by building it ({versions})", rows)


def _count(what: str, planned: int, built: int, unit: str) -> Row:
    if planned == built:
        return Row(what, f"{built:,}", "", f"{unit}, as planned")
    return Row(what, f"{built:,}", "", f"{unit}; PLANNED WERE {planned:,}")


def _measured(name: str, one: dict[str, float], of: dict[str, Any], changed: str) -> Row:
    off = f"{100 * one['error']:+.1f} %"
    told = of.get("device") or of.get("label") or ""
    means = f"planned {gib(one['planned'])} GiB ({off}); {told}{changed}"
    return Row(name, f"{gib(one['measured'])} GiB", "", means)
