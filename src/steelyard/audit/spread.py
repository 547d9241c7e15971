"""How the file's own rollouts fare, and the traps that they and the recipe's make show. Pure.

Rewards are compared inside a group, for only there does one lift another. What is right is said by
the heaviest part that reads the gold: a reward of ours by its code, a function of a user's by paying what it
pays the gold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from steelyard.audit.observed import (
    TOLERANCE,
    Answer,
    Finding,
    Kind,
    Level,
    Observed,
    PartFacts,
    Spread,
    Told,
    figure,
    value,
)
from steelyard.outcome import Abstained, Scored, Unscored

_UNREADABLE: Final = ("no_answer", "hedged", "malformed")
_NO_GRADIENT: Final = 0.75
_MANY: Final = 8  # groups, for a share of them to mean something
_USUAL_SIZE: Final = 4  # of a group, for most of them not to be alike by chance
_BINS: Final = 6


def spread_of(seen: Observed) -> Spread:
    """Count."""
    groups = [group for group in seen.groups if group]
    told = [one for group in groups for one in group]
    main = _main(seen)
    alike = Counter(_alike(group, seen, main) for group in groups if len(group) > 1)
    return Spread(
        rollouts=len(told),
        groups=len(groups),
        all_right=alike["right"],
        all_wrong=alike["wrong"],
        all_alike=alike["alike"],
        histogram=_histogram(seen.own()),
        codes={part.name: _codes(told, part.name) for part in seen.parts},
        unscored=Counter(
            f"{one.answer.total.boundary}: {one.answer.total.cause}"
            for one in told
            if isinstance(one.answer.total, Unscored)
        ),
        abstained=Counter(
            part.name
            for part in seen.parts
            for one in told
            if isinstance(one.answer.of(part.name), Abstained)
        ),
    )


def spread_findings(seen: Observed, spread: Spread) -> list[Finding]:
    """What the file's rollouts leave in doubt, and the recipe's traps."""
    constant = _constant(seen)
    return [
        *constant,
        *([] if constant or len(seen.parts) < 2 else _idle(seen, spread)),
        *([] if constant else _gradient(seen, spread)),
        *_unreadable(seen, spread),
        *_inverted(seen),
        *_paid_for_nothing(seen),
        *_gates(seen),
    ]


def _main(seen: Observed) -> PartFacts | None:
    """The part that says what is right."""
    readers = [part for part in seen.parts if part.reads_gold and part.weight > 0]
    return max(readers, key=lambda part: (part.ours, part.weight), default=None)


def _right(answer: Answer, seen: Observed, main: PartFacts | None) -> bool | None:
    """Whether the main part says that it is right; `None` where nobody knows."""
    if main is None:
        return None
    verdict = answer.of(main.name)
    if not isinstance(verdict, Scored):
        return None
    if main.ours:
        return verdict.code is None
    form = seen.forms.get(main.name, "")
    gold = seen.values(Kind.GOLD, form, main.name)
    wrong = seen.values(Kind.WRONG, form, main.name)
    clear = [gold[row] for row in gold if row in wrong and gold[row] > wrong[row] + TOLERANCE]
    known = 2 * len(clear) >= max(1, len(gold))
    return verdict.value >= median(clear) - TOLERANCE if known else None


def _alike(group: Sequence[Told], seen: Observed, main: PartFacts | None) -> str:
    """Which kind of group without a gradient it is, if it is one."""
    numbers = [number for told in group if (number := value(told.answer.total)) is not None]
    if not numbers or max(numbers) - min(numbers) > TOLERANCE:
        return ""
    rights = {_right(told.answer, seen, main) for told in group}
    return "right" if rights == {True} else "wrong" if rights == {False} else "alike"


def _codes(told: Sequence[Told], part: str) -> dict[str, int]:
    verdicts = (one.answer.of(part) for one in told)
    codes = Counter(one.code for one in verdicts if isinstance(one, Scored) and one.code is not None)
    return dict(codes.most_common())


def _histogram(numbers: Sequence[float]) -> list[tuple[str, int]]:
    """The values, or ranges of them where there are many."""
    exact = Counter(figure(one) for one in sorted(numbers))
    if len(exact) <= _BINS:
        return list(exact.items())
    low, high = min(numbers), max(numbers)
    width = (high - low) / _BINS
    bins = Counter(min(int((one - low) / width), _BINS - 1) for one in numbers)
    return [
        (f"{figure(low + at * width)} to {figure(low + (at + 1) * width)}", bins[at]) for at in range(_BINS)
    ]


# Findings


def _constant(seen: Observed) -> list[Finding]:
    """One reward for everything, the file's rollouts and every specimen."""
    pay = _everywhere(seen)
    if pay is None:
        return []
    says = f"everything earns {figure(pay)}, {len(seen.own())} rollouts and {len(_made(seen))} specimens: "
    if pay > TOLERANCE:
        says += "it pays whatever is written, silence included; let it tell a right answer from a wrong one"
        return [Finding(Level.FAULT, "constant", says)]
    says += (
        "nothing can be learnt from it; either it is always so, or no completion here is of the form that it "
        "reads"
    )
    return [Finding(Level.DOUBT, "constant", says)]


def _made(seen: Observed, part: str = "") -> list[float]:
    """What specimens earned in a part, or in total."""
    numbers = (value(answer.of(part)) for answer in seen.earned.values())
    return [number for number in numbers if number is not None]


def _everywhere(seen: Observed, part: str = "") -> float | None:
    """What a part gives to every rollout of the file and every specimen, if it is one number."""
    own, made = seen.own(part), _made(seen, part)
    if len(own) < 2 or not made or max(own + made) - min(own + made) > TOLERANCE:
        return None
    return own[0]


def _idle(seen: Observed, spread: Spread) -> list[Finding]:
    """Parts among others that pay everything, or nothing; a penalty that nothing incurred is neither."""
    found = []
    for part in seen.parts:
        own, pay = seen.own(part.name), _everywhere(seen, part.name)
        if pay is not None and pay > TOLERANCE:
            says = f"{part.name} gives {figure(pay)} to everything, silence included: it teaches nothing"
        elif pay is not None and pay <= part.floor + TOLERANCE:
            says = (
                f"{part.name} pays nothing here, neither the file's {len(own)} rollouts nor any specimen: "
                "see which form it reads"
            )
        elif part.ours and not part.reads_columns and len(own) >= _MANY and _never_full(part, own, spread):
            says = (
                f"{part.name} pays none of the file's {len(own)} rollouts in full: see that the prompt asks "
                "for its form"
            )
        else:
            continue
        found.append(Finding(Level.DOUBT, "constant", says))
    return found


def _never_full(part: PartFacts, own: Sequence[float], spread: Spread) -> bool:
    return part.floor >= 0 and sum(spread.codes[part.name].values()) >= len(own)


def _gradient(seen: Observed, spread: Spread) -> list[Finding]:
    several = sum(len(group) > 1 for group in seen.groups)
    if not several:
        if spread.groups < _MANY:
            return []
        says = (
            "every group has one rollout, so that no advantage can be taken: rows of one prompt need equal "
            "columns, or a group column"
        )
        return [Finding(Level.NOTE, "gradient", says)]
    flat = spread.all_right + spread.all_wrong + spread.all_alike
    few = several < _MANY or spread.rollouts < _USUAL_SIZE * spread.groups
    if flat < several and (few or flat < _NO_GRADIENT * several):
        return []
    says = (
        f"{flat} of {several} groups have no gradient, their rewards are all alike ({spread.all_right} all "
        f"right, {spread.all_wrong} all wrong): take prompts of another difficulty, or see why nothing is "
        "paid"
    )
    return [Finding(Level.DOUBT, "gradient", says)] if several > 1 else []


def _unreadable(seen: Observed, spread: Spread) -> list[Finding]:
    found = []
    for part in seen.parts:
        if not (part.ours and part.reads_columns):
            continue
        codes = spread.codes[part.name]
        count = sum(codes.get(code, 0) for code in _UNREADABLE)
        asked = spread.rollouts - spread.abstained.get(part.name, 0)
        if asked >= _MANY and count > asked / 2:
            told = ", ".join(f"{codes[code]} {code}" for code in _UNREADABLE if codes.get(code))
            says = (
                f"{part.name} can read no answer in {count} of {asked} rollouts ({told}): see that the "
                "prompt asks for the format, and that completions are not cut"
            )
            found.append(Finding(Level.DOUBT, "unreadable", says))
    return found


def _inverted(seen: Observed) -> list[Finding]:
    """Groups in which a wrong rollout earns more in total than a right one."""
    main = _main(seen)
    if main is None or len(seen.parts) == 1:
        return []
    found, mixed = [], 0
    for group in seen.groups:
        rights = [(value(told.answer.total), told.where) for told in group if _right(told.answer, seen, main)]
        wrongs = [
            (value(told.answer.total), told.where)
            for told in group
            if _right(told.answer, seen, main) is False
        ]
        right = min(((one, where) for one, where in rights if one is not None), default=None)
        wrong = max(((one, where) for one, where in wrongs if one is not None), default=None)
        if right is None or wrong is None:
            continue
        mixed += 1
        if wrong[0] > right[0] + TOLERANCE:
            found.append((wrong, right))
    if not found:
        return []
    wrong, right = found[0]
    says = (
        f"in {len(found)} of {mixed} groups a rollout that {main.name} calls wrong earns more than one it "
        f"calls right ({figure(wrong[0])} in {wrong[1]}, {figure(right[0])} in {right[1]}): the other parts "
        "outweigh it; see the weights"
    )
    return [Finding(Level.DOUBT, "weights", says)]


def _paid_for_nothing(seen: Observed) -> list[Finding]:
    """Parts that read the completion alone and pay those who say nothing best."""
    found = []
    for part in seen.parts if len(seen.parts) > 1 else ():
        own = seen.own(part.name)
        if part.reads_columns or part.weight <= 0 or not own:
            continue
        for kind, words in ((Kind.EMPTY, "the empty completion"), (Kind.SHRUG, '"I do not know."')):
            values = list(seen.values(kind, "", part.name).values())
            mean = fmean(values) if values else 0.0
            if mean > TOLERANCE and mean > fmean(own) + TOLERANCE and mean >= _upper(own) - TOLERANCE:
                says = (
                    f"{part.name} pays {words} {figure(mean)}, the file's rollouts {figure(fmean(own))} on "
                    "average: saying little is its best; let it be asked only where the answer is right "
                    "(only_if)"
                )
                found.append(Finding(Level.DOUBT, "nothing said", says))
                break
    return found


def _upper(numbers: Sequence[float]) -> float:
    return sorted(numbers)[int(0.9 * (len(numbers) - 1))]


def _gates(seen: Observed) -> list[Finding]:
    """Penalties that a failure avoids, and gates that never open."""
    found = []
    for part in seen.parts:
        if not part.gate:
            continue
        asked = [
            (kind, not isinstance(answer.of(part.name), Abstained))
            for (_, kind, _), answer in seen.earned.items()
        ]
        own = any(
            not isinstance(told.answer.of(part.name), Abstained) for group in seen.groups for told in group
        )
        opened = {kind for kind, opens in asked if opens}
        if not own and not opened and asked:
            says = (
                f"the gate before {part.name} opened for no rollout of the file and no specimen, the gold "
                "included: see its condition"
            )
            found.append(Finding(Level.DOUBT, "gate", says))
        elif part.floor < 0 < part.weight and Kind.GOLD in opened and Kind.EMPTY not in opened:
            found.append(_avoided(seen, part))
    return found


def _avoided(seen: Observed, part: PartFacts) -> Finding:
    """A penalty behind a gate: a doubt if it can make a right answer worth no more than a wrong one."""
    form = seen.form or ""
    right, wrong = (list(seen.values(kind, form).values()) for kind in (Kind.GOLD, Kind.WRONG))
    takes = -part.weight * part.floor
    lowest = fmean(right) - takes if right else None
    says = (
        f"{part.name} takes up to {figure(takes)} and stands behind a gate that the gold opens and the empty "
        "completion does not, so failing avoids it"
    )
    if lowest is not None and wrong and lowest > fmean(wrong) + TOLERANCE:
        return Finding(Level.NOTE, "gate", f"{says}; a right answer is worth more all the same")
    worth = (
        f": a right answer may earn {figure(lowest)}, a wrong one {figure(fmean(wrong))}"
        if lowest is not None and wrong
        else ""
    )
    return Finding(Level.DOUBT, "gate", f"{says}{worth}; ask it of every completion")
