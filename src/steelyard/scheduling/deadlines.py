"""CPU deadlines that learn: what earlier steps showed, one frozen deadline for each test and step.

A step sees what was known when its first attempt asked, and nothing of itself, so the members of a group
have one limit and the order in which they end changes nothing. Two levels are kept: a test with enough
passes of its own, and all tests of its kind. What each level's deadline would cost is counted on runs that
did not shape it: under the declared limit, where a run that passes above the deadline is seen, and under
the deadline by audits. A level whose bound is too high is not in force: its runs get the declared limit
again, and are all seen.

A deadline of a test that is shorter than its kind's comes into force by its own bound; one that is longer
at once, for it kills no more than the kind's would.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.execution import RULES
from steelyard.outcome import Asked, Deadline
from steelyard.scheduling.falsekills import (
    ACCEPTED,
    ALL_AUDITED,
    AUDITED,
    NEEDED,
    QUANTILE_TIMES,
    Stratum,
    bound,
    quantile,
    rule,
)

WINDOW: Final = 4_096
"""Passes that a quantile is taken over: the last steps with so many."""

REMEMBERED: Final = 65_536
"""Steps, and tests, that are remembered: the last ones; a service never ends."""

BOUND_WINDOW: Final = 16_384
"""Passes that a bound is taken over: audits are few, and false kills rare."""


class Standing(NamedTuple):
    """Where a deadline stands after a run.

    Parameters
    ----------
    part, level, kind
        Whose it is: of a part's tests with passes of their own, of all of a kind, or of references.
    cpu_s
        The deadline; `None` where each test has its own.
    in_force
        Whether attempts are cut there.
    bound
        The 95 % upper bound of P(cut | would pass).
    passes
        Runs that pass and that the bound was made from.
    cuts, audited, killed, dropped
        Attempts that were cut; of these run again at the declared limit; of these again the ones that
        pass there; and audits that were due and not made.
    """

    part: str
    level: str
    kind: str
    cpu_s: Seconds | None
    in_force: bool
    bound: float
    passes: int
    cuts: int
    audited: int
    killed: int
    dropped: int


_Level: TypeAlias = tuple[str, str, str]  # part, level, kind of suite


class _Passes:
    """Runs of one level that pass: (CPU seconds, weight), by the number of steps begun before them."""

    def __init__(self) -> None:
        self.steps: deque[tuple[int, list[tuple[Seconds, float]]]] = deque()
        self._count = 0

    def add(self, step: int, passes: list[tuple[Seconds, float]]) -> None:
        self.steps.append((step, passes))
        self._count += len(passes)
        while self._count - len(self.steps[0][1]) >= WINDOW:
            self._count -= len(self.steps.popleft()[1])

    def quantile(self, step: int) -> Seconds | None:
        """The quantile as a step sees it, if there are passes enough."""
        known = [one for begun, passes in self.steps if begun <= step for one in passes]
        return quantile(known) if len(known) >= NEEDED else None


class _Cost:
    """What one level's deadline cost, or would have: strata by share of audits, of the last steps."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._steps: deque[Counter[tuple[float, bool]]] = deque()
        self._seen: Counter[tuple[float, bool]] = Counter()

    def add(self, seen: Counter[tuple[float, bool]]) -> None:
        self._steps.append(seen)
        self._seen += seen
        while self.passes() - self._steps[0].total() >= BOUND_WINDOW:
            self._seen -= self._steps.popleft()

    def passes(self) -> int:
        return self._seen.total()

    def bound(self) -> float:
        seen = self._seen
        shares = {share for share, _ in seen}
        return bound([Stratum(share, seen[share, False], seen[share, True]) for share in shares])


class _Step:
    """What is frozen for a step."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kinds: dict[tuple[str, str], Seconds | None] = {}
        self.bounds: dict[_Level, tuple[float, float]] = {}
        self.tests: dict[tuple[str, str], Seconds | None] = {}
        self.told: dict[Asked, Deadline] = {}


class Deadlines:
    """The limiter: deadlines from reference solutions, and from what was seen.

    Parameters
    ----------
    word
        `adaptive`, or `reference`: then nothing is learnt, a reference's deadline is in force from the
        start, and what it costs is measured.
    seed
        Which cuts are audited, together with what was cut.

    Raises
    ------
    RefusedError
        If the word is another one.
    """

    def __init__(self, word: str = "adaptive", *, seed: int = 0) -> None:
        if word not in RULES[1:]:
            raise RefusedError(
                f"there is no limiter {word!r}", where="deadline", remedy=f"one of {', '.join(RULES)}"
            )
        self.word = word
        self._seed = seed.to_bytes(8, "big", signed=True)
        self._steps: dict[int | str, _Step] = {}
        self._begun = 0
        self._tests: dict[tuple[str, str], _Passes] = {}
        self._kinds: dict[tuple[str, str], _Passes] = {}
        self._costs: dict[_Level, _Cost] = {}
        self._passes: list[tuple[str, str, str, Seconds, float]] = []  # seen since the last step began
        self._seen: dict[_Level, Counter[tuple[float, bool]]] = {}

    # What a step sees

    def limit(self, asked: Asked) -> Deadline:
        """The deadline of an attempt; the same throughout its step."""
        step = self._steps.get(asked.step) or self._begin(asked.step)
        return step.told.get(asked._replace(reference_s=None)) or self._made(step, asked)

    def _made(self, step: _Step, asked: Asked) -> Deadline:
        declared, reference, part = asked.declared_s, asked.reference_s, asked.part

        def made(level: str, quantile_s: Seconds | None) -> Deadline:
            cost, share = step.bounds.get((part, level, asked.kind), (1.0, 1.0))
            proposed = rule(declared, reference_s=reference, quantile_s=quantile_s)
            in_force = level == "reference" or cost < ACCEPTED
            return Deadline(proposed if in_force else declared, proposed, level, cost, share)

        if self.word == "reference":
            return Deadline(declared, declared) if reference is None else made("reference", None)
        of_kind = step.kinds.get((part, asked.kind))
        kind = Deadline(declared, declared) if of_kind is None else made("kind", of_kind)
        of_test = self._of_test(step, part, asked.test)
        if of_test is None:
            return kind
        own = made("test", of_test)
        if own.cpu_s == own.proposed_s:
            return own
        return own._replace(cpu_s=max(own.proposed_s, kind.cpu_s))

    def _of_test(self, step: _Step, part: str, test: str) -> Seconds | None:
        if (part, test) not in step.tests:  # else it stays, though the test be forgotten meanwhile
            passes = self._tests.get((part, test))
            if passes is None:
                return None
            step.tests[part, test] = passes.quantile(step.number)
        return step.tests[part, test]

    def _begin(self, name: int | str) -> _Step:
        """Begin a step: what was seen up to now is what it knows."""
        self._fold()
        step = self._steps[name] = _Step(self._begun)
        self._begun += 1
        _forget(self._steps)
        step.kinds = {key: passes.quantile(step.number) for key, passes in self._kinds.items()}
        step.bounds = {
            key: (cost.bound(), 1.0 if cost.passes() < ALL_AUDITED else AUDITED)
            for key, cost in self._costs.items()
        }
        return step

    def _fold(self) -> None:
        """Take what was seen into what is known, in an order that does not tell when it was seen."""
        some: dict[tuple[bool, str, str], list[tuple[Seconds, float]]] = {}
        for part, kind, test, cpu_s, weight in sorted(self._passes):
            some.setdefault((True, part, test), []).append((cpu_s, weight))
            some.setdefault((False, part, kind), []).append((cpu_s, weight))
        for (of_test, part, name), passes in some.items():
            level = self._tests if of_test else self._kinds
            known = level[part, name] = level.pop((part, name), _Passes())
            known.add(self._begun, passes)
        _forget(self._tests)
        for key, seen in self._seen.items():
            self._cost(key).add(seen)
        self._passes, self._seen = [], {}

    def _cost(self, level: _Level) -> _Cost:
        return self._costs.setdefault(level, _Cost())

    # What is seen

    def observe(self, asked: Asked, deadline: Deadline, cpu_s: Seconds, *, passed: bool, cut: bool) -> None:
        """Learn from an attempt that ended."""
        if cut:
            self._cost((asked.part, deadline.level, asked.kind)).counts["cuts"] += 1
        elif passed:
            share = deadline.share if deadline.cpu_s < asked.declared_s else 1.0
            above = deadline.cpu_s > deadline.proposed_s < cpu_s
            self._passed(asked, deadline, cpu_s, share=share, above=above, weight=1.0)

    def audited(self, asked: Asked, deadline: Deadline, cpu_s: Seconds, *, passed: bool) -> None:
        """Learn what an attempt that was cut does at the declared limit; its score stays."""
        counts = self._cost((asked.part, deadline.level, asked.kind)).counts
        counts["audited"] += 1
        if passed:
            counts["killed"] += 1
            cpu_s = max(cpu_s, deadline.proposed_s)  # it was there and not done
            self._passed(asked, deadline, cpu_s, share=deadline.share, above=True, weight=1 / deadline.share)

    def _passed(
        self, asked: Asked, deadline: Deadline, cpu_s: Seconds, *, share: float, above: bool, weight: float
    ) -> None:
        self._passes.append((asked.part, asked.kind, asked.test, cpu_s, weight))
        if deadline.level != "declared":
            seen = self._seen.setdefault((asked.part, deadline.level, asked.kind), Counter())
            seen[share, above] += 1

    def wanted(self, deadline: Deadline, digest: bytes) -> bool:
        """Whether a cut is to be audited: decided by what was cut, never by when or where."""
        drawn = int.from_bytes(blake2b(digest, key=self._seed, digest_size=8).digest(), "big")
        return drawn < deadline.share * 2**64

    def dropped(self, asked: Asked, deadline: Deadline) -> None:
        """Note that an audit was due and will not be made."""
        self._cost((asked.part, deadline.level, asked.kind)).counts["dropped"] += 1

    # What the record holds

    def replay(self, part: str, said: Mapping[str, Any]) -> None:
        """Learn again what an attempt noted of its deadline; attempts come in the order of their record.

        Steps that had begun keep the deadlines that were handed out.
        """
        asked, deadline = noted(part, said)
        step = self._steps.get(asked.step) or self._begin(asked.step)
        used_s, passed = said["used_s"], said["passed"]
        if not deadline.audit:
            self._tell(step, asked, deadline)
        if passed is not None and deadline.audit:
            self.audited(asked, deadline, used_s, passed=passed)
        elif passed is not None:  # else nobody knows how it ended
            self.observe(asked, deadline, used_s, passed=passed, cut=said["cut"])

    def _tell(self, step: _Step, asked: Asked, deadline: Deadline) -> None:
        step.told[asked._replace(reference_s=None)] = (
            deadline  # a reference is timed anew, and a little other
        )
        if deadline.level != "test" and asked.reference_s is None:  # other tests of its kind had the same
            kind = (asked.part, asked.kind)
            step.kinds[kind] = deadline.proposed_s / QUANTILE_TIMES if deadline.level == "kind" else None
            step.bounds[asked.part, deadline.level, asked.kind] = (deadline.bound, deadline.share)

    def standings(self) -> list[Standing]:
        """Where each level stands, as a step that began now would see it."""
        self._fold()
        found = []
        for (part, level, kind), cost in sorted(self._costs.items()):
            upper, seen = cost.bound(), self._kinds.get((part, kind)) if level == "kind" else None
            own = None if seen is None else seen.quantile(self._begun)
            found.append(
                Standing(
                    part, level, kind, None if own is None else rule(float("inf"), quantile_s=own),
                    level == "reference" or upper < ACCEPTED, upper, cost.passes(),
                    *(cost.counts[word] for word in ("cuts", "audited", "killed", "dropped")),
                )
            )  # fmt: skip
        return found


def _forget(known: dict[Any, Any]) -> None:
    while len(known) > REMEMBERED:
        del known[next(iter(known))]


def noted(part: str, said: Mapping[str, Any]) -> tuple[Asked, Deadline]:
    """What an attempt's evidence says of its deadline."""
    asked = Asked(part, *(said[name] for name in Asked._fields[1:]))
    return asked, Deadline(*(said[name] for name in Deadline._fields))
