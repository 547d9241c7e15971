"""What a boundary's conformance came to, as values, and as a table that anyone can publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

HOLDS: Final = "holds"
DOES_NOT: Final = "does not hold"
NO_VERDICT: Final = "no verdict"


class Fault(NamedTuple):
    """What was not as it must be.

    Parameters
    ----------
    program
        Of which program; the boundary's own name where it is none's.
    words
        What came, and what should have.
    """

    program: str
    words: str


class Row(NamedTuple):
    """What came of the programs of one kind.

    Parameters
    ----------
    kind, words
        The kind, and what its programs do.
    total, contained
        How many were run, and how many of them were as they must be.
    faults
        What was not.
    """

    kind: str
    words: str
    total: int
    contained: int
    faults: Sequence[Fault]


class Report(NamedTuple):
    """What a boundary's conformance came to.

    Parameters
    ----------
    boundary, identity, facts
        Who was held against the suite, and what it proved.
    version, date, machine
        Of steelyard, and of the run.
    honest
        The row of the honest programs.
    rows
        One for each kind of the others that was run.
    own
        What the boundary itself did wrong: it hung, closed late, left something running.
    unrun
        How many programs were not run, and why.
    left_out
        Honest programs that need what is not in this boundary.
    per_s
        Short honest programs a second, several at once.
    taken_s
        How long it all took.
    """

    boundary: str
    identity: str
    facts: Mapping[str, str]
    version: str
    date: str
    machine: str
    honest: Row
    rows: Sequence[Row]
    own: Sequence[Fault] = ()
    unrun: tuple[int, str] = (0, "")
    left_out: Sequence[str] = ()
    per_s: float | None = None
    taken_s: float = 0.0

    @property
    def faults(self) -> list[Fault]:
        """All that was not as it must be."""
        return [*self.honest.faults, *self.own, *(fault for row in self.rows for fault in row.faults)]

    @property
    def verdict(self) -> str:
        """`holds`, `does not hold`, or `no verdict` where honest programs fail."""
        if self.honest.faults or not self.honest.total:
            return NO_VERDICT
        return DOES_NOT if self.faults or self.unrun[0] else HOLDS

    def document(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        unrun, why = self.unrun
        return {
            "boundary": self.boundary,
            "identity": self.identity,
            "verdict": self.verdict,
            "steelyard": self.version,
            "date": self.date,
            "machine": self.machine,
            "facts": dict(self.facts),
            "honest": _plain(self.honest),
            "kinds": [_plain(row) for row in self.rows],
            "boundary_faults": [fault._asdict() for fault in self.own],
            "not_run": {"programs": unrun, "reason": why or None},
            "left_out": list(self.left_out),
            "programs_per_s": self.per_s,
            "taken_s": round(self.taken_s, 1),
        }

    def summary(self) -> str:
        """The verdict in a sentence."""
        total, contained = sum(row.total for row in self.rows), sum(row.contained for row in self.rows)
        honest = f"{self.honest.contained} of {self.honest.total} honest programs pass"
        if self.verdict == NO_VERDICT:
            return (
                f"no verdict on {self.boundary}: {honest}, and of a boundary that fails some nothing is said"
            )
        unrun = f", {self.unrun[0]} not run ({self.unrun[1]})" if self.unrun[0] else ""
        others = f"{contained} of {total} hostile ones are contained"
        return f"{self.boundary} {self.verdict}: {honest}, {others}{unrun}"

    def markdown(self) -> str:
        """The table in Markdown."""
        facts = ", ".join(f"{name} {value or '-'}" for name, value in self.facts.items())
        lines = [
            f"**{_cell(self.summary())}**",
            "",
            f"`{_cell(self.identity)}`, steelyard {self.version}, {self.date}, {_cell(self.machine)}"
            + (f", {self.per_s:,.0f} short programs a second" if self.per_s else ""),
            "",
            "| kind | programs | contained | not contained |",
            "|---|---:|---:|---|",
        ]
        for row in (self.honest, *self.rows):
            names = "; ".join(dict.fromkeys(fault.program for fault in row.faults)) or "-"
            what = f"{row.kind}: {row.words}"
            lines.append(f"| {_cell(what)} | {row.total} | {row.contained} | {_cell(names)} |")
        if self.faults:
            lines += ["", *(f"- {_cell(fault.program)}: {_cell(fault.words)}" for fault in self.faults)]
        if self.left_out:
            lines += ["", f"Left out, for what they import is not there: {_cell(', '.join(self.left_out))}."]
        lines += ["", f"Proved from inside: {_cell(facts)}."] if facts else []
        return "\n".join(lines) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    return row._asdict() | {"faults": [fault._asdict() for fault in row.faults]}


def _cell(text: str) -> str:
    """A text in one cell: no line, no bar, no markup of its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
