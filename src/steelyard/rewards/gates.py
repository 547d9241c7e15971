"""When a part is asked at all: after earlier parts have spoken, and only if they said enough.

A closed gate is an abstention of the part it guards: it is left out of the sum. A gate opens from a value
upwards only: one that opened for low values would pay for failing. A guarded penalty is one that a
failure avoids, and `steelyard check` says so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from steelyard.errors import RefusedError
from steelyard.outcome import Scored, Verdict

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {">=": operator.ge, ">": operator.gt}
_CONDITION = re.compile(r"\s*([^\s<>=!]+)\s*(>=|>)\s*([^\s<>=!]+)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """Conditions on earlier parts, all of which must hold.

    Parameters
    ----------
    conditions
        (part's name, comparison, number). A part that abstained meets none.
    """

    conditions: tuple[tuple[str, str, float], ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts that must have spoken before."""
        return tuple(name for name, _, _ in self.conditions)

    def __call__(self, verdicts: Mapping[str, Verdict]) -> bool:
        """Whether the part behind it is asked."""
        for name, comparison, number in self.conditions:
            verdict = verdicts.get(name)
            if not isinstance(verdict, Scored) or not _COMPARE[comparison](verdict.value, number):
                return False
        return True


def gate(text: str) -> Gate:
    """Read a gate: `NAME COMPARISON NUMBER`, several joined by `and`.

    Raises
    ------
    RefusedError
        If it cannot be read.

    Examples
    --------
    >>> opens = gate("format >= 1 and tests > 0.5")
    >>> opens({"format": Scored(1.0), "tests": Scored(0.75)})
    True
    >>> opens({"format": Scored(1.0)})
    False
    """
    conditions = []
    for said in re.split(r"\sand\s", text):
        found = _CONDITION.fullmatch(said)
        try:
            number = float(found[3]) if found else None
        except ValueError:
            number = None
        if found is None or number is None or number != number:  # noqa: PLR0124 - NaN alone differs from itself
            raise RefusedError(
                f"the gate {text!r} cannot be read",
                where="only_if",
                remedy="write an earlier part's name, > or >=, and a number, as in 'format >= 1'; join "
                "several by 'and' (what opens for low values would pay for failing)",
            )
        conditions.append((found[1], found[2], number))
    return Gate(tuple(conditions))
