"""What every reader of other people's files shares: its answer, its options, its columns, its faults.

| name | is |
|---|---|
| `Read` | what a reader hands back |
| `Options` | what only the user knows |
| `SERVICE`, `VERDICT`, ... | columns of ours in other people's files, written and read by these names |
| `Faults` | what happens to a row that cannot be read |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.pricing.observed import Observed
from steelyard.pricing.values import Suspicion

SERVICE: Final = "steelyard/service_s"
"""Seconds from the start of the reward to its end, for this completion."""
VERDICT: Final = "steelyard/verdict"
"""`scored`, `abstained` or `unscored`."""
CODE: Final = "steelyard/code"
"""Why it is not full marks, or what failed; null for full marks."""
CENSORED: Final = "steelyard/censored"
"""Whether a limit cut it: the service time is then a lower bound."""
ROW: Final = "steelyard/row"
"""A number or text that no other completion of the run has: by it a stale row is found for certain."""
CALL: Final = "steelyard/call"
"""Which call judged it, a number or text: rows of one call share it, and its time counts once."""
OWN: Final = (SERVICE, VERDICT, CODE, CENSORED, ROW, CALL)

TIMEOUTS: Final = ("timeout", "timed_out", "is_timeout")
"""Columns that people log to say that the reward was cut."""
ERRORS: Final = ("error", "exception")
"""Columns that people log to say that the reward failed."""
MARKS: Final = frozenset({VERDICT, CENSORED, *TIMEOUTS, *ERRORS})
"""Columns of which any one tells a failure from a wrong answer."""
OPTION: Final[Mapping[str, str]] = {
    "group_size": "--group",
    "rewards": "--function",
    "weights": "--weight",
    "limit_s": "--limit",
    "split": "--split",
}
"""What each of the `Options` is called on the command line: messages say it so."""


class Read(NamedTuple):
    """What was read.

    Parameters
    ----------
    observed
        The run, for pricing.
    suspicions
        Zeros that look like failures.
    skipped
        Rows (of Parquet: files) that were left out because they cannot be read.
    """

    observed: Observed
    suspicions: Sequence[Suspicion]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What a file does not say.

    Parameters
    ----------
    group_size
        Completions of one prompt (TRL: `num_generations`).
    rewards
        TRL: which columns are reward functions, in order; else they are derived.
    weights
        TRL: the weight of each (`reward_weights`); else they must follow from the advantages.
    limit_s
        The timeout of the reward.
    split
        prime-rl: `train` or `eval`.
    skip
        Leave out what cannot be read, and count it.
    """

    group_size: int | None = None
    rewards: Sequence[str] = ()
    weights: Sequence[float] = ()
    limit_s: Seconds | None = None
    split: str = "train"
    skip: bool = False


@dataclass(slots=True)
class Faults:
    """Rows that cannot be read: the first is an error, unless they shall be skipped and counted.

    Parameters
    ----------
    skip
        Whether to leave them out.
    """

    skip: bool
    count: int = 0
    first: str = ""
    torn: list[str] = field(default_factory=list)

    def bad(self, where: str, reason: str, remedy: str) -> None:
        """Leave a row out, or stop.

        Raises
        ------
        RefusedError
            Unless rows shall be skipped.
        """
        if not self.skip:
            raise RefusedError(reason, where=where, remedy=f"{remedy}; or leave such rows out with --skip")
        self.count += 1
        self.first = self.first or f"{where}: {reason}"

    def cut(self, where: str) -> None:
        """Note a last line without its end: whoever wrote it was stopped."""
        self.count += 1
        self.torn.append(where)

    @property
    def lacks(self) -> list[str]:
        """In sentences."""
        said = []
        if self.count > len(self.torn):
            said.append(f"{self.count - len(self.torn):,} rows are left out; the first: {self.first}.")
        if self.torn:
            others = f" (and {len(self.torn) - 1} more)" if len(self.torn) > 1 else ""
            said.append(
                f"The last line is torn and left out: {self.torn[0]}{others}; its writer was stopped."
            )
        return said


def beneath(path: Path, *patterns: str) -> list[Path]:
    """Files of a folder by the first pattern that finds any, in natural order (`10` after `9`)."""
    for pattern in patterns:
        found = [one for one in path.glob(pattern) if one.is_file()]
        if found:
            return sorted(found, key=natural)
    return []


def natural(path: Path) -> list[str | int]:
    """A key that sorts numbers in names as numbers."""
    return [int(piece) if at % 2 else piece for at, piece in enumerate(re.split(r"([0-9]+)", str(path)))]
