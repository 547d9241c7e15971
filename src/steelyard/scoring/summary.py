"""What a person wants to know after a run, counted while groups leave."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

from steelyard.advantages import SCHEMES, dead
from steelyard.blame import DOUBTS, REPRODUCED, REWARD_ERROR_SHARE, SHARE_ACTS_FROM, UNSCORED_SHARE
from steelyard.execution import FIXED
from steelyard.files import Survey
from steelyard.ledger import Ledger, Run
from steelyard.outcome import Abstained, Scored, ScoredGroup, Unscored
from steelyard.rewards.limits import FAILS as REFERENCE_FAILS
from steelyard.scheduling.deadlines import Standing

QUANTILES = (0.5, 0.9, 0.99, 1.0)
_DECILES = 10
_GROUPS_SHOWN = 20
_HARDEST_SHOWN = 10
_MISSING = "missing column"
_OF_COLUMNS = (_MISSING, "bad column")  # kinds of faults that a rollout may have
_WHYS = 1_000  # causes may name rows, and so be as many


class GroupLine(NamedTuple):
    """One group of the summary."""

    id: str | int
    size: int
    votes: int
    mean: float | None
    lowest: float | None
    highest: float | None


class Rewards(NamedTuple):
    """Every total, group after group: those of `ids[i]` are `values[starts[i]:starts[i + 1]]`.

    One that is not scored is `nan`.
    """

    ids: Sequence[str | int]
    starts: Sequence[int]
    values: Sequence[float]


class PartTimes(NamedTuple):
    """Service times of one part's attempts: each a duration of one call."""

    part: str
    attempts: int
    rollouts_each: float
    cut: int
    quantiles: Sequence[tuple[float, bool]]
    """At `QUANTILES`: seconds, and whether the attempt there was cut, so that the truth is longer."""


@dataclass(slots=True)
class Summary:
    """The result of `score_file`, counted.

    Parameters
    ----------
    run
        The number of the run in its ledger.
    verdicts
        Totals by verdict: `scored`, `abstained`, `unscored`.
    codes
        Scored rollouts without full marks, by code.
    integrities
        Scored rollouts whose code ran, by integrity: `isolated`, `cooperative`.
    whys
        Unscored rollouts, by boundary and cause.
    value_sum
        Of the scored totals.
    sizes
        Groups by size.
    too_few_votes, no_spread
        Groups without a gradient: too few votes for the scheme, or votes that all agree.
    groups
        Every group's line; of more than twenty groups the ten with the lowest mean.
    rewards
        Every total.
    length_deciles
        (longest completion of the decile in characters, rollouts, unscored) from short to long.
    times
        Service times by part.
    code
        Of parts that run code, the settings: `boundary`, `cpu_s`, `deadline`, ...
    deadlines
        Where learnt CPU limits stand, and what they cost.
    has_references, failing_references
        Whether any row has a field for the column `reference`, and tests whose reference does not pass them.
    errors, reproduced
        Rollouts on which a part failed twice for their content: by an error; by that, the wall clock or
        lost contact.
    skipped
        Lines of the input that are no rollout.
    faults
        What was wrong with the input, by kind: with a line each, or with the columns of a group.
    """

    run: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    integrities: Counter[str] = field(default_factory=Counter)
    whys: Counter[str] = field(default_factory=Counter)
    value_sum: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)
    too_few_votes: int = 0
    no_spread: int = 0
    groups: Sequence[GroupLine] = ()
    rewards: Rewards = field(default_factory=lambda: Rewards((), (0,), ()))
    length_deciles: Sequence[tuple[int, int, int]] = ()
    times: Sequence[PartTimes] = ()
    code: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deadlines: Sequence[Standing] = ()
    has_references: bool = False
    failing_references: int = 0
    errors: int = 0
    reproduced: int = 0
    skipped: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def rollouts(self) -> int:
        """How many rollouts there are."""
        return sum(self.verdicts.values())

    @property
    def bad_lines(self) -> dict[str, int]:
        """The lines that were skipped, by kind."""
        found = {kind: count for kind, count in self.faults.items() if kind not in _OF_COLUMNS}
        # a completion or a prompt may be missing, too; every other kind is either of lines or of columns
        missing = self.skipped - sum(found.values())
        return found | ({_MISSING: missing} if missing else {})

    @property
    def bad_columns(self) -> dict[str, int]:
        """The groups whose columns are bad, by kind."""
        lines = self.bad_lines
        found = {kind: self.faults.get(kind, 0) - lines.get(kind, 0) for kind in _OF_COLUMNS}
        return {kind: count for kind, count in found.items() if count}

    def excess(self, stated: float | None, default: float) -> str | None:
        """Say which share is above what was stated, or `None`.

        A share that the user stated holds for any number of rollouts; a default acts from
        `SHARE_ACTS_FROM` rollouts on and is a doubt below.
        """
        acts = self.rollouts >= SHARE_ACTS_FROM
        unscored = self._unscored_above(default if stated is None else stated)
        if unscored is not None and (acts or stated is not None):
            return unscored
        return self._failed_above(self.errors) if acts else None

    def doubts(self) -> list[str]:
        """What the run leaves in doubt, whether it acts or not."""
        return [
            one for one in (self._unscored_above(UNSCORED_SHARE), self._failed_above(self.reproduced)) if one
        ]

    def _unscored_above(self, share: float) -> str | None:
        unscored = self.verdicts["unscored"]
        if unscored <= share * self.rollouts:
            return None
        return f"{unscored} of {self.rollouts} rollouts are unscored (at most {share:.1%})"

    def _failed_above(self, failed: int) -> str | None:
        if failed <= REWARD_ERROR_SHARE * self.rollouts:
            return None
        return (
            f"a reward failed twice on {failed} of {self.rollouts} rollouts, which got its floor "
            f"(at most {REWARD_ERROR_SHARE:.1%})"
        )


class Counting:
    """Counts groups as they leave, in whatever order."""

    def __init__(self, survey: Survey, scheme: str) -> None:
        self._survey = survey
        self._minimum = SCHEMES[scheme].minimum
        groups = len(survey.group_ids)
        self.summary = Summary(sizes=survey.sizes(), skipped=survey.skipped, faults=dict(survey.fault_counts))
        self._votes = array("I", bytes(4 * groups))
        self._sums = array("d", bytes(8 * groups))
        self._lows = array("d", bytes(8 * groups))
        self._highs = array("d", bytes(8 * groups))
        self._values = array("d", [math.nan]) * survey.starts[groups]
        self._unscored_lengths: Counter[int] = Counter()
        self._dead: set[int] = set()

    def see(self, one: ScoredGroup) -> None:
        """Count one group."""
        summary, totals = self.summary, one.totals
        votes = [total for total in totals if isinstance(total, Scored)]
        codes = [vote.code for vote in votes if vote.code is not None]
        if votes:
            group, values = one.group.ordinal, [vote.value for vote in votes]
            self._votes[group] = len(votes)
            self._sums[group] = math.fsum(values)
            self._lows[group] = min(values)
            self._highs[group] = max(values)
            summary.verdicts["scored"] += len(votes)
            summary.codes.update(codes)
            summary.integrities.update(vote.integrity for vote in votes if vote.integrity is not None)
        if len(votes) < len(totals):
            self._see_the_silent(one)
        else:
            start = self._survey.starts[one.group.ordinal]
            self._values[start : start + len(values)] = array("d", values)
            if dead(totals):
                self._dead.add(one.group.ordinal)
        if len(one.parts) > 1 or not REPRODUCED.isdisjoint(codes):
            self._see_failures(one)

    def _see_failures(self, one: ScoredGroup) -> None:
        """Count rows on which a part failed for their content, once each, whatever the total's code."""
        for scores in zip(*one.parts.values(), strict=True):
            codes = {score.verdict.code for score in scores if isinstance(score.verdict, Scored)}
            self.summary.reproduced += not codes.isdisjoint(REPRODUCED)
            self.summary.errors += not codes.isdisjoint(DOUBTS)

    def _see_the_silent(self, one: ScoredGroup) -> None:
        summary, lengths = self.summary, self._survey.lengths
        start = self._survey.starts[one.group.ordinal]
        for place, total in enumerate(one.totals):
            self._values[start + place] = total.value if isinstance(total, Scored) else math.nan
        for rollout, total in zip(one.group.rollouts, one.totals, strict=True):
            if isinstance(total, Abstained):
                summary.verdicts["abstained"] += 1
            elif isinstance(total, Unscored):
                summary.verdicts["unscored"] += 1
                why = f"{total.boundary}: {total.cause}"
                summary.whys[why if len(summary.whys) < _WHYS else "others"] += 1
                self._unscored_lengths[lengths[rollout.ordinal]] += 1

    def finish(self, ledger: Ledger, run: Run) -> Summary:
        """Close the books."""
        summary = self.summary
        summary.run = run.number
        for group, line in enumerate(self._lines()):
            enough = line.votes >= self._minimum(line.size) and group not in self._dead
            summary.no_spread += enough and line.lowest == line.highest
            summary.too_few_votes += not enough
        shown = list(islice(self._lines(), _GROUPS_SHOWN + 1))
        if len(shown) > _GROUPS_SHOWN:
            voted = (line for line in self._lines() if line.mean is not None)
            shown = nsmallest(_HARDEST_SHOWN, voted, key=lambda line: line.mean or 0.0)
        summary.groups = shown
        summary.rewards = Rewards(self._survey.group_ids, self._survey.starts, self._values)
        summary.value_sum = math.fsum(self._sums)
        summary.length_deciles = _deciles(Counter(self._survey.lengths), self._unscored_lengths)
        summary.times = [_times(ledger, run, name, place) for name, place in run.parts.items()]
        summary.code = run.spec.get("code", {})
        summary.has_references = self._survey.names.get("reference", "reference") in self._survey.fields
        if any(one["deadline"] != FIXED for one in summary.code.values()):
            summary.failing_references = _failing_references(ledger, run)
        return summary

    def _lines(self) -> Iterator[GroupLine]:
        starts = self._survey.starts
        for group, name in enumerate(self._survey.group_ids):
            size, votes = starts[group + 1] - starts[group], self._votes[group]
            if votes:
                mean = self._sums[group] / votes
                yield GroupLine(name, size, votes, mean, self._lows[group], self._highs[group])
            else:
                yield GroupLine(name, size, 0, None, None, None)


def _deciles(lengths: Counter[int], unscored: Counter[int]) -> list[tuple[int, int, int]]:
    """Cut rollouts into ten parts of equal size by length; equal lengths stay together."""
    total = lengths.total()
    found: list[tuple[int, int, int]] = []
    seen = in_part = missing = 0
    due = 1  # the decile that the next part ends
    for length in sorted(lengths):
        seen += lengths[length]
        in_part += lengths[length]
        missing += unscored[length]
        if seen * _DECILES >= total * due:
            found.append((length, in_part, missing))
            in_part = missing = 0
            due = seen * _DECILES // total + 1
    return found


def _failing_references(ledger: Ledger, run: Run) -> int:
    """Tests whose reference solution was found not to pass them."""
    noted = ((one.evidence or {}).get("deadline", {}) for one in ledger.attempts(run))
    return len({said["test"] for said in noted if said.get("reference") == REFERENCE_FAILS})


def _times(ledger: Ledger, run: Run, name: str, place: int) -> PartTimes:
    times = array("d")
    cuts = bytearray()
    for service_s, cut in ledger.service_times(run, place):
        times.append(service_s)
        cuts.append(cut)
    if not times:
        return PartTimes(name, 0, 0.0, 0, ())
    ranks = [max(0, math.ceil(quantile * len(times)) - 1) for quantile in QUANTILES]
    rollouts = ledger.judged_rollouts(run, place)
    return PartTimes(
        name,
        len(times),
        rollouts / len(times),
        sum(cuts),
        [(times[rank], bool(cuts[rank])) for rank in ranks],
    )
