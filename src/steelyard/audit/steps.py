"""What is asked, in steps, each with its share of the time that is left.

First a pilot: two rollouts of the file, for as long as there is time, since processes may take long to
start and a reward may hang on everything. Then in which form the gold earns most (few rows, many forms); the
file's own rollouts; the specimens; some of the file's rollouts again: as they are, in a runtime of its own
with fresh processes, in reverse order, and alone; and at last the specimens that a reward may raise or hang
on, which say nothing or far too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from steelyard.audit.choosing import best_forms
from steelyard.audit.judging import Asking
from steelyard.audit.observed import (
    NOTHING,
    TOLERANCE,
    Answer,
    Ended,
    Kind,
    Observed,
    Place,
    Repeat,
    RowFacts,
    Told,
    value,
)
from steelyard.audit.plan import Plan
from steelyard.audit.specimens import Numbering, Row, formless, made, stated
from steelyard.blame import DOUBTS, excused
from steelyard.clock import Clock, Seconds
from steelyard.outcome import Attempt, End, Scored, Verdict
from steelyard.rollout import Group, Rollout

FORM_ROWS: Final = 4
SPECIMEN_ROWS: Final = 16
NOTHING_ROWS: Final = 4
LONG_ROWS: Final = 2
AGAIN: Final = 128
"""Rows for which every form is tried, rows with specimens, rows of which nothing is said, or too much, and
rollouts that are asked about again."""

_REFUSED: Final = 8  # rows whose gold was not paid, for which every form is tried
_FORMS, _OWN, _SPECIMENS, _AGAIN, _LAST = 0.25, 0.4, 0.4, 0.3, 0.9  # shares of the time that is left

_LATE: Final = {**dict.fromkeys(NOTHING, NOTHING_ROWS), Kind.LONG: LONG_ROWS}

_Made = tuple[Place, Row, str]


@dataclass(slots=True)
class Steps:
    """Asks what was planned, and keeps what was seen.

    Parameters
    ----------
    plan
        What to ask.
    clock, until
        Time, and when it is over.
    """

    plan: Plan
    clock: Clock
    until: Seconds
    within_s: Seconds
    numbering: Numbering = field(default_factory=Numbering)
    earned: dict[Place, Answer] = field(default_factory=dict)
    texts: dict[tuple[Kind, str], str] = field(default_factory=dict)
    """By kind and form, the first specimen."""
    form: str | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    refused: dict[tuple[int, str], Verdict] = field(default_factory=dict)
    told: list[list[Told]] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    late: list[Group] = field(default_factory=list)
    given_up: list[tuple[str, str]] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    long: set[int] = field(default_factory=set)
    """Ordinals of the file's rollouts, and of the long specimens, in the inspection's run."""
    _asked: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By ordinal, what was asked about: its group, its place in words."""
    _answered: set[int] = field(default_factory=set)
    _pilot: list[Told] = field(default_factory=list)
    _left: dict[str, list[str]] = field(default_factory=dict)

    async def first(self, asking: Asking) -> bool:
        """Ask the pilot, and once more when its processes have started; whether anything came back."""
        few = self.plan.groups[0].rollouts[:2]
        some = (
            [self.numbering.group(few)] if self.plan.grouped else [self.numbering.group([one]) for one in few]
        )
        self.own.update(rollout.ordinal for group in some for rollout in group.rollouts)
        await self._ask(asking, some, 1.0, "rollouts of a pilot")
        asking.forget_rate()
        answers = [asking.answers.get(group.ordinal) for group in some]
        self._pilot = [
            told for one, group in zip(answers, some, strict=True) for told in _told(group.rollouts, one)
        ]
        if self._pilot and all(_was_cut(told.answer) for told in self._pilot):
            self.given_up.append(("everything else", "the first rollouts of the file did not return"))
            return False
        if asking.answers:
            await asking.ask([self.numbering.group(group.rollouts) for group in some], self.until)
        return bool(asking.answers or self.stopped)

    async def look(self, asking: Asking) -> None:
        """Ask in which form the gold earns most, about the file's rollouts, and about specimens."""
        golds = [row for row in self.plan.rows if row.gold is not None]
        await self._specimens(
            asking, list(self._in_every_form(golds[:FORM_ROWS])), _FORMS, "forms of the gold"
        )
        tried = [row.place for row in golds[:FORM_ROWS]]
        self.form, self.forms = best_forms(list(self.plan.forms), tried, self.earned, self.plan.parts)
        await self._own(asking)
        every = list(self._every_specimen())
        await self._specimens(
            asking, [one for one in every if one[0][1] not in _LATE], _SPECIMENS, "specimens"
        )
        await self._try_refused(asking, golds)

    async def look_last(self, asking: Asking) -> None:
        """Ask about specimens that say nothing, or far too much."""
        every = list(self._every_specimen())
        for kind, rows in _LATE.items():
            some = [one for one in every if one[0][1] is kind and one[1].place < rows]
            await self._specimens(asking, some, _LAST, f"specimens ({kind})")

    # Specimens

    def _in_every_form(self, rows: Sequence[Row]) -> Iterator[_Made]:
        for row in rows:
            for form in self.plan.forms.values():
                for kind, text in stated(row, form):
                    if kind is not Kind.WRONG_TOO:
                        yield (row.place, kind, form.name), row, text

    def _every_specimen(self) -> Iterator[_Made]:
        used = {name: self.plan.forms[name] for name in (self.form, *self.forms.values()) if name is not None}
        for at, row in enumerate(self.plan.rows):
            full = at < SPECIMEN_ROWS
            for form in used.values():
                for kind, text in [*stated(row, form), *(made(row, form) if full else ())]:
                    yield (row.place, kind, form.name), row, text
            for kind, text in formless(row, self.plan.writes) if full else ():
                yield (row.place, kind, ""), row, text

    async def _specimens(self, asking: Asking, some: Sequence[_Made], share: float, what: str) -> None:
        asked: list[tuple[Place, Group]] = []
        for place, row, text in some:
            if place in self.earned:
                continue
            group = self.numbering.around(row, text, grouped=self.plan.grouped)
            asked.append((place, group))
            self._asked[group.rollouts[0].ordinal] = (group.ordinal, f"{row.where}: {place[1]}")
            self.texts.setdefault(place[1:], text)
            if place[1] is Kind.LONG:
                self.long.add(group.rollouts[0].ordinal)
        await self._ask(asking, [group for _, group in asked], share, what)
        for place, group in asked:
            if group.ordinal in asking.answers:
                self.earned[place] = asking.answers[group.ordinal][0]

    async def _try_refused(self, asking: Asking, rows: Sequence[Row]) -> None:
        """Where a gold is not paid, try every form before saying so."""
        for part in self.plan.parts:
            form = self.forms.get(part.name)
            if form is None:
                continue
            said = {row.place: self.earned.get((row.place, Kind.GOLD, form)) for row in rows}
            verdicts = {place: answer.of(part.name) for place, answer in said.items() if answer is not None}
            full = self._full(part.name, verdicts, ours=part.ours)
            short = [
                row for row in rows if row.place in verdicts and not full(row.place, verdicts[row.place])
            ]
            if not part.ours and 2 * len(short) > len(verdicts):
                continue  # a form that is unknown on most rows is no finding about the others
            some = [made for made in self._in_every_form(short[:_REFUSED]) if made[0][1] is Kind.GOLD]
            await self._specimens(asking, some, _SPECIMENS, "golds that were not paid, in every form")
            for row in short[:_REFUSED]:
                tried = [self.earned.get((row.place, Kind.GOLD, name)) for name in self.plan.forms]
                if all(one is not None and not full(row.place, one.of(part.name)) for one in tried):
                    self.refused[row.place, part.name] = verdicts[row.place]

    def _full(
        self, part: str, verdicts: Mapping[int, Verdict], *, ours: bool
    ) -> Callable[[int, Verdict], bool]:
        """What full marks are: as a reward of ours says, else what most golds earn."""
        if ours:
            return lambda _place, verdict: not isinstance(verdict, Scored) or verdict.code is None
        numbers = sorted(number for one in verdicts.values() if (number := value(one)) is not None)
        usual = numbers[len(numbers) // 2] if numbers else 0.0

        def full(place: int, verdict: Verdict) -> bool:
            number = value(verdict)
            wrong = self.earned.get((place, Kind.WRONG, self.forms.get(part, "")))
            floor = value(wrong.of(part)) if wrong else None
            return (
                number is None
                or number >= usual - TOLERANCE
                or (floor is not None and number > floor + TOLERANCE)
            )

        return full

    # The file's rollouts

    async def _own(self, asking: Asking) -> None:
        groups = [self.numbering.group(group.rollouts) for group in self.plan.groups]
        await self._ask(asking, groups, _OWN, "the file's groups")
        self.told = [_told(group.rollouts, asking.answers.get(group.ordinal)) for group in groups]
        self.own.update(rollout.ordinal for group in groups for rollout in group.rollouts)

    async def again(self, asking: Asking, *, fresh: bool) -> None:
        """Ask about rollouts of the file again; in a fresh runtime also in reverse order and alone."""
        some = self._some_of_the_file()
        ways: dict[str, list[list[tuple[int, int]]]] = {"fresh" if fresh else "again": some}
        if fresh and some:
            first = [self.plan.groups[at].rollouts[index] for at, index in some[0]]
            await asking.ask([self.numbering.group(first)], self.until)
            asking.forget_rate()  # its processes had to start
        if fresh:
            ways["reversed"] = [group[::-1] for group in reversed(some)]
            together = all(part.grouped for part in self.plan.parts)
            ways["alone"] = [] if together else [[one] for group in some for one in group]
        for way, wanted in ways.items():
            groups = [
                self.numbering.group([self.plan.groups[at].rollouts[index] for at, index in one])
                for one in wanted
            ]
            self.own.update(rollout.ordinal for group in groups for rollout in group.rollouts)
            late = list(self.late)
            await self._ask(asking, groups, _AGAIN, f"rollouts {way}")
            self.late = late  # they came back before: processes that have to start take the time
            for one, group in zip(wanted, groups, strict=True):
                for (at, index), after in zip(one, asking.answers.get(group.ordinal, ()), strict=False):
                    self._compare(way, self.told[at][index], after)

    def _some_of_the_file(self) -> list[list[tuple[int, int]]]:
        """Groups that were judged, as (group, index): at most `AGAIN` rollouts, at least one group."""
        some: list[list[tuple[int, int]]] = []
        size = 0
        for at, group in enumerate(self.told):
            if group and (not size or size + len(group) <= AGAIN):
                some.append([(at, index) for index in range(len(group))])
                size += len(group)
        return some

    def _compare(self, way: str, before: Told, after: Answer) -> None:
        self.repeats += [
            Repeat(way, before.where, part.name, before.answer.of(part.name), after.of(part.name))
            for part in self.plan.parts
        ]

    # Asking

    async def _ask(self, asking: Asking, groups: Sequence[Group], share: float, what: str) -> None:
        now = self.clock.now()
        for group in groups:
            for rollout in group.rollouts:
                self._asked.setdefault(rollout.ordinal, (group.ordinal, rollout.where))
        await asking.ask(groups, now + share * max(0.0, self.until - now))
        self._answered.update(asking.answers)
        missing = sum(group.ordinal not in asking.answers for group in groups)
        self.late += asking.late
        if missing:
            over = f"there was no time for it within {self.within_s:g} s (--within)"
            why = "the run was stopped" if asking.stopped else over
            self._left.setdefault(why, []).append(f"{missing} of {len(groups)} {what}")
        self.stopped += asking.stopped
        asking.late.clear()
        asking.stopped.clear()

    @property
    def not_run(self) -> list[tuple[str, str]]:
        """What was not asked, and why."""
        return self.given_up + [(", ".join(what), why) for why, what in self._left.items()]

    def observed(self, attempts: Iterable[Attempt]) -> Observed:
        """Everything that was seen."""
        broken = list(self._broken(attempts))
        failed = {end.where for end in broken}
        late = [self._asked[rollout.ordinal][1] for group in self.late for rollout in group.rollouts]
        there = sum(len(group.rollouts) for group in self.plan.groups)
        return Observed(
            parts=self.plan.parts,
            rows=[RowFacts(row.where, "" if row.gold is None else row.gold.text) for row in self.plan.rows],
            form=self.form,
            forms=self.forms,
            earned=self.earned,
            refused=self.refused,
            groups=[group for group in self.told if group] or [[told] for told in self._pilot],
            repeats=self.repeats,
            broken=broken,
            asked=len(self._pilot) if self.given_up else there,
            stopped=self.stopped,
            late=[where for where in late if where not in failed],
            within_s=self.within_s,
        )

    def _broken(self, attempts: Iterable[Attempt]) -> Iterator[Ended]:
        """First attempts that failed, where no verdict came of it."""
        floors = {part.name: part.floor for part in self.plan.parts}
        seen = set()
        for attempt in attempts:
            group, where = self._asked.get(attempt.first, (-1, ""))
            if attempt.end is End.FINISHED or group in self._answered or (where, attempt.part) in seen:
                continue
            seen.add((where, attempt.part))
            cause = str((attempt.evidence or {}).get("cause", ""))
            code = attempt.limit if attempt.end is End.CUT else "reward_error"
            own = attempt.first in self.own
            yield Ended(where, attempt.part, Scored(floors[attempt.part], code, cause), own=own)


def _was_cut(answer: Answer) -> bool:
    codes = (verdict.code for verdict in answer.parts.values() if isinstance(verdict, Scored))
    return any(code is not None and excused(code) and code not in DOUBTS for code in codes)


def _told(rollouts: Iterable[Rollout], answers: Sequence[Answer] | None) -> list[Told]:
    if answers is None:
        return []
    return [Told(rollout.where, answer) for rollout, answer in zip(rollouts, answers, strict=True)]
