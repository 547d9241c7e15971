"""How a recipe behaves, whatever it pays: whether it returns, raises, repeats itself. Pure.

What is said twice of one rollout is compared part by part. Where chance already differs, order and
neighbours are not looked at: one cause is one finding. Ends by a limit are left out, for a rollout that needs
about the limit may end either way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from steelyard.audit.observed import (
    TOLERANCE,
    Ended,
    Finding,
    Kind,
    Level,
    Observed,
    PartFacts,
    Repeat,
    figure,
    places,
)
from steelyard.blame import DOUBTS, UNSCORED_SHARE, excused
from steelyard.outcome import Scored, Unscored, Verdict

_WAYS: Final[Mapping[str, str]] = {
    "again": "asked twice",
    "fresh": "asked in another process",
    "reversed": "asked in reverse order",
    "alone": "asked alone",
}
_ADVICE: Final[Mapping[str, str]] = {
    "again": "chance, time or what it keeps between calls decides; seed it by the rollout, keep nothing",
    "fresh": "the process decides; keep nothing between calls",
    "reversed": "what was judged before, or its place, decides; judge by content alone",
    "alone": "its neighbours decide; judge each by itself, or say takes='group'",
}
_IN_BATCHES: Final = (
    "its neighbours in the batch, chance or time decide; judge each by itself, or say takes='group'"
)


def conduct_findings(seen: Observed) -> list[Finding]:
    """Everything about how the recipe behaves."""
    found = [*_stopped(seen), *_late(seen)]
    for part in seen.parts:
        ends = _ended(seen, part.name)
        own = max(seen.asked, sum(end.own for end in ends))
        found += [*_below(part, ends, own), *_cut(part, ends, own), *_raised(part, ends, own)]
        found += _missing(part, ends, own)
        if (unsteady := wavering(seen, part)) is not None:
            found.append(unsteady)
    return found


def _stopped(seen: Observed) -> list[Finding]:
    if not seen.stopped:
        return []
    why = " ".join(seen.stopped[0].replace("\n", ";").split())
    return [Finding(Level.FAULT, "stopped", f"a run would be stopped: {why}")]


def _late(seen: Observed) -> list[Finding]:
    if not seen.late or seen.broken:  # processes that must be started again take the time
        return []
    if any(seen.groups) or seen.earned:
        says = (
            f"{places(seen.late, 'rollouts')} had not come back when time was over, though others like them "
            "had"
        )
        return [Finding(Level.DOUBT, "hang", f"{says}: see what it waits for")]
    says = (
        f"nothing had come back when {figure(seen.within_s)} s were over: its process may start slowly, or "
        "it waits for something; give it longer with --within"
    )
    return [Finding(Level.FAULT, "hang", says)]


def _ended(seen: Observed, part: str) -> list[Ended]:
    """Everything that a part said, of the file's rollouts and of specimens."""
    ends = [Ended(told.where, part, told.answer.of(part)) for group in seen.groups for told in group]
    for (row, kind, _), answer in seen.earned.items():
        where = f"{seen.rows[row].where}: {kind}"
        ends.append(Ended(where, part, answer.of(part), own=False, long=kind is Kind.LONG))
    judged = {end.where for end in ends}
    return ends + [end for end in seen.broken if end.part == part and end.where not in judged]


def _below(part: PartFacts, ends: list[Ended], own: int) -> list[Finding]:
    """Values below the floor, which stop a run."""
    below = [
        (end.verdict.value, end)
        for end in ends
        if isinstance(end.verdict, Scored) and end.verdict.value < part.floor - TOLERANCE
    ]
    if not below:
        return []
    lowest = min(value for value, _ in below)
    says = (
        f"{part.name} returns {figure(below[0][0])} on {_counted([end for _, end in below], own)}, below its "
        f"floor {figure(part.floor)}: completions that make it fail would earn more, and a run is stopped; "
        f"state its lowest value, @steelyard.reward(floor={figure(lowest)}) or floor = {figure(lowest)} in "
        "the recipe"
    )
    return [Finding(Level.FAULT, "floor", says)]


def _excused(end: Ended) -> str:
    """The code of an end that came of a failure, or nothing; a program that ran has ends of its own."""
    code = end.verdict.code if isinstance(end.verdict, Scored) and end.verdict.integrity is None else None
    return code if code is not None and excused(code) else ""


def _cut(part: PartFacts, ends: list[Ended], own: int) -> list[Finding]:
    by_code: dict[str, list[Ended]] = defaultdict(list)
    for end in ends:
        if (code := _excused(end)) and code not in DOUBTS:
            by_code[code].append(end)
    found = []
    for code, some in by_code.items():
        level = Level.DOUBT if part.ours or all(end.long for end in some) else Level.FAULT
        says = (
            f"{part.name} does not return on {_counted(some, own)}: {_reason(some[0])}, code {code}, and so "
            f"the floor {figure(part.floor)}; let its time grow no faster than its input"
        )
        found.append(Finding(level, "hang", says))
    return found


def _raised(part: PartFacts, ends: list[Ended], own: int) -> list[Finding]:
    raised = [end for end in ends if _excused(end) in DOUBTS]
    if not raised:
        return []
    mine = [end for end in raised if end.own]
    some = mine or raised
    says = (
        f"{part.name} fails on {_counted(some, own)}: {_reason(some[0])}; it earns the floor "
        f"{figure(part.floor)}"
    )
    if mine and not part.ours:
        return [Finding(Level.FAULT, "crash", f"{says}: mend it")]
    says += (
        ", and a run is stopped above 0.5 % of such rollouts: return a number for whatever a policy can write"
    )
    return [Finding(Level.DOUBT, "crash", says)]


def _missing(part: PartFacts, ends: list[Ended], own: int) -> list[Finding]:
    missing = [end for end in ends if isinstance(end.verdict, Unscored)]
    if not missing:
        return []
    mine = [end for end in missing if end.own]
    some = mine or missing
    verdict = some[0].verdict
    why = f"{verdict.boundary}: {verdict.cause}" if isinstance(verdict, Unscored) else ""
    level = Level.FAULT if len(mine) > UNSCORED_SHARE * own else Level.DOUBT
    says = f"{part.name} cannot judge {_counted(some, own)}: {why}; see that what it needs is up"
    return [Finding(level, "unscored", says)]


def _reason(end: Ended) -> str:
    verdict = end.verdict
    return (verdict.reason or verdict.code or "") if isinstance(verdict, Scored) else ""


def _counted(ends: list[Ended], own: int) -> str:
    """How many, of the file's rollouts if any is one of them, and the first."""
    mine = [end.where for end in ends if end.own]
    if mine:
        return places(mine, "rollouts of the file", own)
    return places([end.where for end in ends], "specimens") if len(ends) > 1 else ends[0].where


# Asked twice


def wavering(seen: Observed, part: PartFacts) -> Finding | None:
    """Say how a part gives one rollout two rewards, if it does."""
    differ: dict[str, list[Repeat]] = defaultdict(list)
    asked: dict[str, int] = defaultdict(int)
    for repeat in seen.repeats:
        if repeat.part != part.name or not (_sound(repeat.before) and _sound(repeat.after)):
            continue
        asked[repeat.way] += 1
        if _other(repeat.before, repeat.after):
            differ[repeat.way].append(repeat)
    for way in _WAYS:
        if differ[way] and not (way == "alone" and part.grouped):
            return _differs(part, way, differ[way], asked[way])
    return None


def _differs(part: PartFacts, way: str, some: list[Repeat], asked: int) -> Finding:
    chance = way in {"again", "fresh"}
    where = places([one.where for one in some], "rollouts", asked)
    says = (
        f"{part.name} gives one rollout {_value(some[0].before)}, and {_WAYS[way]} {_value(some[0].after)}, "
        f"on {where}"
    )
    if chance and part.by_chance:
        return Finding(Level.NOTE, "chance", f"{says}: it says itself that chance or time decide")
    advice = _IN_BATCHES if way == "again" and part.batched else _ADVICE[way]
    return Finding(Level.FAULT, "chance" if chance else "order", f"{says}: {advice}")


def _sound(verdict: Verdict) -> bool:
    return not isinstance(verdict, Unscored) and not (isinstance(verdict, Scored) and excused(verdict.code))


def _other(before: Verdict, after: Verdict) -> bool:
    if isinstance(before, Scored) and isinstance(after, Scored):
        return abs(before.value - after.value) > TOLERANCE * max(1.0, abs(before.value))
    return type(before) is not type(after)


def _value(verdict: Verdict) -> str:
    return figure(verdict.value) if isinstance(verdict, Scored) else "an abstention"
