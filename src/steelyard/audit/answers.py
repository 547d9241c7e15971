"""What specimens earned, read: pure, from what was observed to findings.

A specimen is paid as the gold where it earns as much as the gold of its row, in the same part and the same
form. For one row that may be chance (an echoed prompt ends in the right letter), so nearly every row is
needed for a fault and half of them for a doubt. Only rows count on which the gold earns more than a wrong
answer: on the others the form of the gold is unknown, or right and wrong are paid alike, which is a finding
of its own. Of a part that gives one rollout two rewards nothing is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from steelyard.audit.conduct import wavering
from steelyard.audit.observed import (
    NOTHING,
    TOLERANCE,
    Finding,
    Kind,
    Level,
    Observed,
    PartFacts,
    figure,
    places,
    written,
)
from steelyard.outcome import Scored

_NEARLY_ALL: Final = 0.9
_HALF: Final = 0.5
_SEVERAL: Final = 3  # rows, for one make of wrong answer to be no chance

_WORDS: Final[Mapping[Kind, str]] = {
    Kind.EMPTY: "the empty completion",
    Kind.BLANK: "white space alone",
    Kind.THINKING: "thinking that is never closed",
    Kind.SHRUG: '"I do not know."',
    Kind.BARE: "the bare format without an answer",
    Kind.ECHO: "the prompt, echoed",
    Kind.LISTED: "all answers listed",
    Kind.LISTED_INSIDE: "all answers in one format",
    Kind.LISTED_EACH: "all answers, each in the format",
    Kind.GOLD_FIRST: "the gold and a wrong answer, in either order",
    Kind.GOLD_OR: "the gold `or` a wrong answer, in either order",
}
_WRONG: Final[Mapping[Kind, str]] = {
    Kind.WRONG: "another row's gold",
    Kind.WRONG_TOO: "an answer that was made up",
    Kind.NEAR: "the gold less one",
    Kind.EXTENDED: "the gold with a digit or a letter more",
}
_BOTH_ORDERS: Final = {Kind.GOLD_FIRST: Kind.GOLD_LAST, Kind.GOLD_OR: Kind.OR_GOLD}


def answer_findings(seen: Observed) -> list[Finding]:
    """Everything that the specimens tell."""
    found: list[Finding] = []
    for part in seen.parts:
        if part.name in seen.forms and not wavering(seen, part):
            found += _of_part(seen, part)
    if any(wavering(seen, part) for part in seen.parts):
        return found
    return found + (_without_gold(seen) if seen.form is None else _of_total(seen))


def untold(seen: Observed) -> list[tuple[str, str]]:
    """Parts of which the specimens tell nothing, for no form is known in which they pay the gold."""
    why = (
        "in no form that was tried does the gold earn more than a wrong answer; a form of its own is "
        "unknown here"
    )
    facts = [part for part in seen.parts if part.name in seen.forms and not part.perhaps]
    told = [(part.name, _Part(seen, part)) for part in facts]
    return [(f"what {name} makes of answers", why) for name, said in told if said.judged and not said.known]


class _Part:
    """What a part said of golds and wrong answers, in the form in which it pays the gold most."""

    def __init__(self, seen: Observed, part: PartFacts) -> None:
        self.part, self.form, self._seen = part, seen.forms[part.name], seen
        self.gold = self.values(Kind.GOLD)
        wrong, another = self.values(Kind.WRONG), self.values(Kind.WRONG_TOO)
        self.judged = [row for row in self.gold if row in wrong and row in another]
        least = {row: self.gold[row] - TOLERANCE for row in self.judged}
        self.clear = [row for row in self.judged if min(wrong[row], another[row]) < least[row]]
        self.sure = [row for row in self.judged if max(wrong[row], another[row]) < least[row]]

    @property
    def known(self) -> bool:
        """Whether its form is known: on at least half of the rows it tells right from wrong."""
        return 2 * len(self.clear) >= max(1, len(self.judged))

    def values(self, kind: Kind) -> dict[int, float]:
        """What specimens of a kind earned, by row."""
        return self._seen.values(kind, self.form, self.part.name)

    def paid(self, *kinds: Kind) -> tuple[set[int], list[int]]:
        """Rows on which each of some kinds earned as much as the gold, and those that were asked about.

        Both wrong answers beside which the gold stands must earn less than it.
        """
        values = [self.values(kind) for kind in kinds]
        asked = [row for row in self.sure if all(row in some for some in values)]
        return {r for r in asked if all(some[r] >= self.gold[r] - TOLERANCE for some in values)}, asked

    @property
    def pays(self) -> Callable[[int], bool]:
        """Whether the gold of a row is paid: above the floor, and as well as anything in the part.

        Where the file's rollouts earned more, the gold stands in a form that the reward does not know.
        """
        least = max([*self._seen.own(self.part.name), self.part.floor + 2 * TOLERANCE])
        return lambda row: self.gold[row] >= least - TOLERANCE


def _of_part(seen: Observed, facts: PartFacts) -> list[Finding]:
    part = _Part(seen, facts)
    alike = [row for row in part.judged if row not in part.clear and part.pays(row)]
    if len(alike) >= _NEARLY_ALL * len(part.judged) > 0:
        if facts.perhaps and any(one.reads_gold for one in seen.parts if one is not facts):
            return []  # it could read the gold and does not, another does
        says = (
            f"{facts.name} pays a wrong answer as much as the gold on {_places(seen, alike, part.judged)}: "
            f"{figure(part.gold[alike[0]])} for either, {written(part.form)}; let it compare with the gold"
        )
        level = Level.DOUBT if facts.perhaps and not facts.named else Level.FAULT
        return [Finding(level, "wrong answer", says)]
    nearly = _nearly_right(seen, part)
    found = [*_refused(seen, part), *nearly]
    if alike and not nearly:
        says = (
            f"{facts.name} pays two different wrong answers as much as the gold on "
            f"{_places(seen, alike, part.judged)}, gold {seen.rows[alike[0]].gold[:60]!r}: look how it "
            "compares"
        )
        found.append(Finding(Level.DOUBT, "wrong answer", says))
    if not part.known:
        return found
    return found + _hedges(seen, part) + _echo(seen, part) + _first_read(seen, part) + _repeated(seen, part)


def _nearly_right(seen: Observed, part: _Part) -> list[Finding]:
    """One make of wrong answer that is paid as the gold, though another is not."""
    levels: dict[Level, list[str]] = {}
    for kind, words in _WRONG.items():
        values = part.values(kind)
        asked = [row for row in part.gold if row in values]
        paid = {row for row in asked if values[row] >= part.gold[row] - TOLERANCE and part.pays(row)}
        level = _level(paid, asked)
        if level is not None and len(asked) >= _SEVERAL:
            levels.setdefault(level, []).append(f"{words}, on {_places(seen, paid, asked)}")
    return [
        Finding(
            level,
            "wrong answer",
            f"{part.part.name} pays a wrong answer as much as the gold, {written(part.form)}: "
            f"{'; '.join(ways)}; let it compare the whole answer, exactly",
        )
        for level, ways in sorted(levels.items(), reverse=True)[:1]
    ]


def _refused(seen: Observed, part: _Part) -> list[Finding]:
    """Golds that do not score full marks in any form."""
    name = part.part.name
    rows = [row for row, of in seen.refused if of == name]
    if not rows:
        return []
    verdict = seen.refused[rows[0], name]
    earned = "nothing"
    if isinstance(verdict, Scored):
        why = verdict.reason or verdict.code
        earned = figure(verdict.value) + (f" ({why})" if why else "")
    says = (
        f"the gold itself does not earn full marks in {name} on {_places(seen, rows, part.gold)}: "
        f"{seen.rows[rows[0]].gold[:60]!r}, {written(part.form)}, earns {earned}"
    )
    if part.part.ours:
        return [Finding(Level.FAULT, "gold", f"{says}; mend the row's gold, or the column that is read")]
    return [Finding(Level.DOUBT, "gold", f"{says}, nor more in any form that was tried: see whether it can")]


def _hedges(seen: Observed, part: _Part) -> list[Finding]:
    """Several answers where one was asked for: one finding for all ways in which that is paid."""
    levels: dict[Level, list[str]] = {}
    for kind in (Kind.LISTED, Kind.LISTED_INSIDE, Kind.LISTED_EACH, *_BOTH_ORDERS):
        paid, asked = part.paid(*(one for one in (kind, _BOTH_ORDERS.get(kind)) if one is not None))
        level = _level(paid, asked)
        if level is not None:
            levels.setdefault(level, []).append(f"{_WORDS[kind]} on {_places(seen, paid, asked)}")
    return [
        Finding(
            level,
            "several answers",
            f"{part.part.name} pays several answers as much as the gold alone: {'; '.join(ways)}; take one "
            "committed answer",
        )
        for level, ways in sorted(levels.items(), reverse=True)[:1]
    ]


def _echo(seen: Observed, part: _Part) -> list[Finding]:
    """The prompt paid as the gold, whatever the gold: what is always said is right by chance."""
    paid, asked = part.paid(Kind.ECHO)
    level = _level(paid, asked)
    if level is None or len({seen.rows[row].gold for row in paid}) < 2:
        return []
    says = (
        f"{part.part.name} pays the prompt, echoed, as much as the gold on {_places(seen, paid, asked)}: let "
        "the answer stand in a marked place that no prompt holds"
    )
    return [Finding(level, "echo", says)]


def _first_read(seen: Observed, part: _Part) -> list[Finding]:
    """Of two answers the first is read, in a function of a user's."""
    (first, asked), (last, _) = part.paid(Kind.GOLD_FIRST), part.paid(Kind.GOLD_LAST)
    if part.part.ours or _level(first - last, asked) is not Level.FAULT:
        return []
    says = (
        f"of two answers {part.part.name} reads the first, on {_places(seen, first - last, asked)}: a policy "
        "that works before it answers is judged by its working; read the last one"
    )
    # which of two tags counts is a choice; which of two numbers in a text is none
    return [Finding(Level.NOTE if "<" in part.form else Level.DOUBT, "two answers", says)]


def _repeated(seen: Observed, part: _Part) -> list[Finding]:
    values = part.values(Kind.REPEATED)
    asked = [row for row in part.clear if row in values]
    more = {row for row in asked if values[row] > part.gold[row] + TOLERANCE}
    if not _level(more, asked):
        return []
    row = min(more)
    says = (
        f"{part.part.name} pays the gold three times {figure(values[row])}, once {figure(part.gold[row])} "
        f"({seen.rows[row].where}): count an answer once"
    )
    return [Finding(Level.DOUBT, "repeated answer", says)]


def _level(paid: set[int], asked: Sequence[int]) -> Level | None:
    """How sure it is: on nearly every row of several, or on half of them."""
    share = len(paid) / len(asked) if asked else 0.0
    nearly = share >= _NEARLY_ALL and len(asked) > 1
    return Level.FAULT if nearly else Level.DOUBT if share >= _HALF else None


def _places(seen: Observed, rows: Iterable[int], of: Iterable[int]) -> str:
    return places([seen.rows[row].where for row in sorted(rows)], "rows", len(list(of)))


# In total


def _of_total(seen: Observed) -> list[Finding]:
    form = seen.form or ""
    gold = seen.values(Kind.GOLD, form)
    wrongs = [seen.values(kind, form) for kind in (Kind.WRONG, Kind.WRONG_TOO)]
    judged = [row for row in gold if all(row in wrong for wrong in wrongs) and _told(seen, row, form)]
    wrong = {row: max(one[row] for one in wrongs) for row in judged}
    clear = [row for row in judged if gold[row] - wrong[row] > TOLERANCE]
    alike = set(judged) - set(clear)
    if alike and len(alike) >= _NEARLY_ALL * len(judged):
        row = min(alike)
        says = (
            f"in total a wrong answer earns {figure(wrong[row])} and the gold {figure(gold[row])}, both "
            f"{written(form)}, on {_places(seen, alike, judged)}, though a part tells them apart: see "
            "the weights"
        )
        return [Finding(Level.FAULT, "weights", says)]
    if not clear:
        return _without_gold(seen)
    return [
        *_nothings(seen, gold, wrong, clear),
        *_format_first(seen, wrong, clear),
        *_joint(seen, clear),
    ]


def _told(seen: Observed, row: int, form: str) -> bool:
    """Whether some part tells the gold of a row from both wrong answers, in this form."""

    def tells(part: str) -> bool:
        gold, *wrong = (
            seen.values(kind, form, part).get(row) for kind in (Kind.GOLD, Kind.WRONG, Kind.WRONG_TOO)
        )
        return gold is not None and all(one is not None and gold - one > TOLERANCE for one in wrong)

    return any(tells(part.name) for part in seen.parts if part.reads_gold)


def _nothings(
    seen: Observed, gold: Mapping[int, float], wrong: Mapping[int, float], clear: Sequence[int]
) -> list[Finding]:
    """Completions that say nothing, against the gold, a wrong answer, and the empty one."""
    form = seen.form or ""
    shrug = seen.values(Kind.SHRUG, form)
    as_gold, above_wrong, bare = [], [], []
    for kind in NOTHING:
        values = seen.values(kind, form)
        asked = [row for row in clear if row in values]
        pay = f"{_WORDS[kind]} ({figure(fmean(values[row] for row in asked))})" if asked else ""
        if _level({row for row in asked if values[row] >= gold[row] - TOLERANCE}, asked) is Level.FAULT:
            as_gold.append(pay)
        elif _level({row for row in asked if values[row] > wrong[row] + TOLERANCE}, asked):
            above_wrong.append(pay)
        elif kind is Kind.BARE and _level(
            {row for row in asked if row in shrug and values[row] > shrug[row] + TOLERANCE}, asked
        ):
            bare.append(pay)
    values = seen.values(Kind.ECHO, form)
    asked = [row for row in clear if row in values]
    if _level({row for row in asked if wrong[row] + TOLERANCE < values[row] < gold[row] - TOLERANCE}, asked):
        above_wrong.append(f"{_WORDS[Kind.ECHO]} ({figure(fmean(values[row] for row in asked))})")
    found = []
    if as_gold:
        says = (
            f"saying nothing earns as much as the right answer: {', '.join(as_gold)}; let the recipe ask for "
            "one"
        )
        found.append(Finding(Level.FAULT, "nothing said", says))
    if above_wrong:
        worth = figure(fmean(wrong[row] for row in clear))
        says = (
            f"saying nothing earns more than a wrong answer ({worth}): {', '.join(above_wrong)}; a policy "
            "may learn to give up, so let no answer earn no more than a wrong one"
        )
        found.append(Finding(Level.DOUBT, "nothing said", says))
    if bare:
        says = (
            f'{bare[0]} earns more than "I do not know." ({figure(fmean(shrug.values()))}): pay a format '
            "only where an answer can be read (only_if)"
        )
        found.append(Finding(Level.DOUBT, "bare format", says))
    return found


def _format_first(seen: Observed, wrong: Mapping[int, float], clear: Sequence[int]) -> list[Finding]:
    """A wrong answer in every format that is paid, against the right one in its own part's form alone."""
    form = seen.form or ""
    for part in seen.parts:
        own = seen.forms.get(part.name, form)
        if own == form:
            continue
        right, marks = seen.values(Kind.GOLD, own), seen.values(Kind.GOLD, own, part.name)
        full = seen.values(Kind.GOLD, form, part.name)
        asked = [
            row for row in clear if row in right and marks.get(row, 0.0) >= full.get(row, 0.0) - TOLERANCE
        ]
        paid = {row for row in asked if wrong[row] > right[row] + TOLERANCE}
        if _level(paid, asked):
            row = min(paid)
            says = (
                f"a wrong answer, {written(form)}, earns {figure(wrong[row])}, the right one, "
                f"{written(own)}, {figure(right[row])} ({seen.rows[row].where}): the format outweighs "
                f"{part.name}; weigh it less"
            )
            return [Finding(Level.DOUBT, "weights", says)]
    return []


def _joint(seen: Observed, clear: Sequence[int]) -> list[Finding]:
    """Parts of ours that the form that is best in total does not satisfy, though their own form does."""
    form, found = seen.form or "", []
    for part in seen.parts:
        own = seen.forms.get(part.name, form)
        there, here = (seen.values(Kind.GOLD, one, part.name) for one in (own, form))
        asked = [row for row in clear if row in there and row in here]
        less = {row for row in asked if here[row] < there[row] - TOLERANCE}
        if part.ours and own != form and _level(less, asked) is Level.FAULT:
            says = (
                f"no form was found in which the gold satisfies every part: {written(form)} it earns "
                f"most in total, but in {part.name} {figure(here[min(less)])} instead of "
                f"{figure(there[min(less)])}; see whether one completion can satisfy all"
            )
            found.append(Finding(Level.DOUBT, "format", says))
    return found


# Without a gold


def _without_gold(seen: Observed) -> list[Finding]:
    """What says nothing, or repeats the prompt, against the best of the file's rollouts."""
    own = seen.own()
    if not own or max(own) - min(own) <= TOLERANCE or max(own) <= TOLERANCE:
        return []  # where nothing is paid above zero there are penalties alone, and silence may avoid them
    best, told, where = max(own), [], ""
    for kind in (*NOTHING, Kind.ECHO):
        values = seen.values(kind, "")
        paid = {row for row in values if values[row] >= best - TOLERANCE}
        if _level(paid, list(values)) is Level.FAULT:
            told.append(_WORDS[kind])
            where = where or _places(seen, paid, values)
    if not told:
        return []
    says = (
        f"{', '.join(told)} earn as much as the best of the file's rollouts, {figure(best)}, on {where}: see "
        "what the recipe asks for"
    )
    return [Finding(Level.DOUBT, "nothing said", says)]
