"""`steelyard doctor`: what this machine can isolate with, what that covers, and the command that mends it.

Whether a boundary holds is asked of the boundary, which proves it from inside; the survey of the machine
says why it does not, and what else is there.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson
from rich.console import Console
from rich.table import Table

from steelyard import __version__
from steelyard.cli.boundaries import is_ours, maker_of
from steelyard.cli.words import console, plain
from steelyard.errors import RefusedError, describe
from steelyard.sandbox.conformance.holding import made_by
from steelyard.sandbox.kinds import KINDS
from steelyard.sandbox.machine import Fact, Machine, survey

HOLDS, NONE_HOLDS = 0, 1

_ATTEST_S: Final = 30.0
_NAMED_S: Final = 300.0  # its image may have to be fetched
_HERE: Final = "steelyard doctor"
_PROGRAMS: Final = {"runc": "runc", "gvisor": "runsc"}
_TELLING: Final = frozenset(
    {"bwrap", "runc", "runsc", "program", "modal", "image", "cgroups", "confined_by", "uid", "cap_eff"}
    | {"no_new_privs", "seccomp", "landlock", "network", "network_socket", "emulated"}
)
"""Facts that a person reads; a tool reads all."""
_COUNTED_HERE: Final = frozenset({"bubblewrap", "runc", "gvisor"})
_NO_CGROUP: Final = (
    "memory and processes of several processes together: without cgroups each process has the whole limit"
)


class Attesting(Protocol):
    """The part of a boundary (`steelyard.sandbox.boundary`) that is asked here."""

    @property
    def name(self) -> str:
        """The word for it."""

    async def attest(self) -> Mapping[str, str]:
        """Prove that it holds."""

    async def close(self) -> None:
        """End everything."""


class Found(NamedTuple):
    """What became of asking a boundary.

    Parameters
    ----------
    name
        Which one.
    facts
        What it proved; empty if it does not hold.
    reason, remedy
        Why it does not, and the next step.
    """

    name: str
    facts: Mapping[str, str]
    reason: str = ""
    remedy: str = ""

    @property
    def holds(self) -> bool:
        """Whether code of a model may run in it."""
        return not self.reason


def run(
    *,
    as_json: bool,
    named: Sequence[str] = (),
    boundaries: Sequence[Attesting] | None = None,
    within_s: float | None = None,
) -> int:
    """Ask the machine and each boundary, print what they say, and return the exit code.

    Parameters
    ----------
    as_json
        One JSON document instead of words.
    named
        Whom to ask, by name; those of ours that need only a program that is there, if none is.
    boundaries
        Whom to ask instead.
    within_s
        How long each has, if not half a minute, or five for those that were named.
    """
    machine = survey()
    asked = _asked(named) if boundaries is None else boundaries
    found = asyncio.run(_all(asked, within_s or (_NAMED_S if named else _ATTEST_S)))
    if as_json:
        document = orjson.dumps(_document(machine, found), option=orjson.OPT_INDENT_2).decode()
        sys.stdout.write(document + "\n")
    else:
        _show(console(), machine, found)
    return HOLDS if any(one.holds for one in found) else NONE_HOLDS


def _asked(named: Sequence[str] = ()) -> list[Attesting | Found]:
    """Those that were named; else bubblewrap, and whatever needs only a program that is there.

    What cannot even be made has its answer already.

    Raises
    ------
    RefusedError
        If there is none of that name.
    """
    here = [name for name, program in _PROGRAMS.items() if shutil.which(program)]
    found: list[Attesting | Found] = []
    for name in named or ["bubblewrap", *here]:
        make = maker_of(name, where="--boundary", slots=1)
        try:
            found.append(make() if is_ours(name) else made_by(make, where="--boundary"))
        except RefusedError as error:
            found.append(Found(name, {}, error.reason, error.remedy))
    return found


async def _all(boundaries: Sequence[Attesting | Found], within_s: float) -> list[Found]:
    return [one if isinstance(one, Found) else await _attested(one, within_s) for one in boundaries]


async def _attested(boundary: Attesting, within_s: float) -> Found:
    """Ask one; whatever it raises is its answer: a boundary that fails to attest does not hold."""
    try:
        async with asyncio.timeout(within_s):
            return Found(boundary.name, await boundary.attest())
    except RefusedError as error:
        return Found(boundary.name, {}, error.reason, error.remedy)
    except TimeoutError:
        return Found(boundary.name, {}, f"it proved nothing within {within_s:g} s")
    except Exception as error:  # noqa: BLE001
        return Found(boundary.name, {}, describe(error))
    finally:
        await boundary.close()


def _covers(machine: Machine, name: str) -> tuple[list[str], list[str]]:
    """What a boundary keeps a candidate from on this machine, and what not."""
    kind = KINDS.get(name)
    if kind is None:
        return [], []
    without = [_NO_CGROUP] if machine.places.mode == "none" and name in _COUNTED_HERE else []
    return list(kind.covers), [*kind.lacks, *without]


def _next(machine: Machine, found: Sequence[Found]) -> list[str]:
    """What to do, the machine's own faults first: they are why a boundary refuses."""
    refused = [one for one in found if not one.holds]
    if not refused:
        return []
    steps = [fact.remedy for fact in machine.lacking() if any(one.name == "bubblewrap" for one in refused)]
    steps = steps or [one.remedy for one in refused if one.remedy and _HERE not in one.remedy]
    return list(dict.fromkeys(steps)) or [
        f"report it, with what `{_HERE} --json` says: nothing seen here explains it"
    ]


def _better(machine: Machine) -> list[Fact]:
    """Facts that bubblewrap does without, and what betters them."""
    return [fact for fact in machine.facts if fact.ok is None and fact.remedy]


def _document(machine: Machine, found: Sequence[Found]) -> dict[str, Any]:
    boundaries = []
    for one in found:
        does, does_not = _covers(machine, one.name)
        boundaries.append(
            {
                "name": one.name,
                "attests": one.holds,
                "facts": dict(one.facts),
                "reason": one.reason or None,
                "remedy": one.remedy or None,
                "covers": does,
                "does_not_cover": does_not,
            }
        )
    return {
        "steelyard": __version__,
        "boundaries": boundaries,
        "machine": [fact._asdict() for fact in machine.facts],
        "next": _next(machine, found),
    }


def _show(words: Console, machine: Machine, found: Sequence[Found]) -> None:
    for one in found:
        held = "[bold green]holds[/]" if one.holds else "[bold red]does not hold[/]"
        reason = re.sub(r"^it does not hold(?: on this machine)?: ", "", one.reason)
        words.print(f"[bold]{plain(one.name)}[/] {held}{plain(': ' + reason) if reason else ''}")
        if facts := _telling(one):
            proved = ", ".join(f"{name} {value or '-'}" for name, value in facts.items())
            words.print(f"[dim]proved from inside: {plain(proved)} (--json has all)[/]")
        does, does_not = _covers(machine, one.name)
        _list(words, "covers" if one.holds else "would cover", does)
        _list(words, "does not cover" if one.holds else "would not", does_not)
        words.print()
    if any(one.name == "bubblewrap" for one in found):
        _show_machine(words, machine)
    if steps := _next(machine, found):
        words.print("\n[bold]next[/]")
        for step in steps:
            words.print(f"  {plain(step)}", soft_wrap=True)


def _telling(one: Found) -> Mapping[str, str]:
    """What a person reads of its facts; of a boundary with words of its own, all."""
    return {name: value for name, value in one.facts.items() if name in _TELLING} or one.facts


def _show_machine(words: Console, machine: Machine) -> None:
    """Print what bubblewrap stands on."""
    table = Table("this machine", "", box=None, pad_edge=False, header_style="bold")
    table.add_column(overflow="fold")
    for fact in machine.facts:
        mark = "-" if fact.ok is None else "[green]ok[/]" if fact.ok else "[bold red]lacking[/]"
        table.add_row(plain(fact.name), mark, plain(fact.value))
    words.print(table)
    if better := _better(machine):
        words.print("\n[bold]better with[/]")
        for fact in better:
            words.print(f"  {plain(fact.name)}: {plain(fact.remedy)}", soft_wrap=True)


def _list(words: Console, head: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, width=14)
    table.add_column()
    for number, line in enumerate(lines):
        table.add_row(head if number == 0 else "", plain(line))
    words.print(table)
