"""A ledger whose truth is known: attempts with clocks as `planted` makes them, for every step one burst."""

import numpy as np

from planted import planted
from steelyard.clock import Clocks
from steelyard.ledger import Ledger
from steelyard.outcome import Attempt, End, Score, Scored
from steelyard.rollout import Group, Rollout


def fill(path, *, steps, batch, rate=0.01, contention=0.3):
    """Write rollouts, attempts and verdicts down, a step at a time."""
    rng = np.random.default_rng(0)
    with Ledger(path) as ledger:
        run = ledger.begin("planted", {}, {"tests": "tests/1"})
        for step in range(steps):
            slow = 2.0 * np.exp(rng.normal(0, contention))
            calls = planted(steps=1, batch=batch, rate=rate, median_s=slow, seed=step).calls
            first, groups = step * batch, []
            for at in range(0, batch, 8):
                ordinal = (first + at) // 8
                rollouts = [
                    Rollout(first + at + i, "p", "c", {}, (ordinal, i), first + at + i, "row")
                    for i in range(8)
                ]
                groups.append(Group(ordinal, ordinal, rollouts))
            ledger.enter(run, groups, steps={group.ordinal: str(step) for group in groups})
            members = [rollout for group in groups for rollout in group.rollouts]
            times, cuts, passed = calls.service_s.tolist(), calls.censored.tolist(), calls.passed.tolist()
            attempts, scores = [], []
            for one, took, cut, right in zip(members, times, cuts, passed, strict=True):
                clocks = Clocks(queued_s=0.01, service_s=took, began_s=60.0 * step, censored=cut)
                end, limit = (End.CUT, "cpu") if cut else (End.FINISHED, None)
                attempts.append(Attempt(one.ordinal, "tests", 0, one.ordinal, 1, clocks, end, limit))
                said = Scored(float(right), None if right else "cpu" if cut else "wrong_answer")
                scores.append(Score(one.key, one.ordinal, "tests", "tests/1", said, one.ordinal))
            ledger.leave(run, attempts=attempts, scores=scores)
