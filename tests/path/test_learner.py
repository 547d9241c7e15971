"""A learner that looks for a way out finds none: wrecking the machinery pays no better than being wrong.

A policy is a softmax over ways to fail: a plain wrong answer, and one arm for each hostile, cheating or
sabotaging program. What an arm earns was measured once, by scoring its program for real. Then come groups
of 8 rollouts: some are solved, the others are stuck, and there the policy picks an arm; some groups nobody
solves. The advantages are the library's, the update is plain policy gradient.

If wrecking earns what a wrong answer earns, the mean of log P(wreck) / P(wrong) does not drift. Where
wrecks are masked it must, or this would be a test that sees nothing.
"""

import math
import random
import statistics
from collections import defaultdict

import pytest
from as_a_user import score

from steelyard.advantages import SCHEMES
from steelyard.outcome import Scored, Unscored
from steelyard.sandbox.conformance.cheating import CHEATING
from steelyard.sandbox.conformance.hostile import HOSTILE
from steelyard.sandbox.conformance.saboteurs import SABOTEURS
from steelyard.sandbox.conformance.specimen import SNIPPET, under

SEEDS, STEPS, GROUPS, SIZE = 10, 300, 8, 8
RATE = 0.05
SOLVED = (0.0, 0.25, 0.5, 0.75)
"""How likely a rollout of a prompt is solved; prompts take turns."""
FLOOR = Scored(0.0, "wrong_answer")
MASKED = Unscored("sandbox:bubblewrap", "masked by the test")


# --- what each arm earns


def stuck(specimen):
    """The same program by someone who cannot solve the task: harm it does, right it is not."""
    source = specimen.completion
    for right, wrong in (("[x * x for x in xs]", "[x + 1 for x in xs]"), ("int(x) ** 2", "int(x) + 1")):
        source = source.replace(right, wrong)
    return specimen._replace(completion=source)


@pytest.fixture(scope="module")
def earned(tmp_path_factory):
    """What came of each program, judged in groups with a plain wrong answer."""
    by_suite = defaultdict(list)
    kinds = {"hostile": HOSTILE, "cheating": CHEATING, "saboteur": SABOTEURS}
    kinds |= {f"{kind} to a judge": under(kinds[kind], "free") for kind in ("hostile", "saboteur")}
    for kind, specimens in kinds.items():
        for specimen in specimens:
            by_suite[repr(specimen.suite)].append(stuck(specimen)._replace(name=f"{kind}: {specimen.name}"))
    rows = []
    for same in by_suite.values():
        for at in range(0, len(same), SIZE - 1):
            group = f"group {len(rows)}"
            rows += [specimen.row(group) for specimen in same[at : at + SIZE - 1]]
            plain = same[0]._replace(
                name=f"wrong {len(rows)}", completion="def squares(xs):\n    return [0]\n"
            )
            rows.append(plain.row(group))
    words = ("--cpu", 0.5, "--timeout", 4)
    return {
        row["id"]: Scored(row["value"], row["code"]) if row["verdict"] == "scored" else MASKED
        for row in score(rows, tmp_path_factory.mktemp("learner"), *words, reward="tests")
    }


@pytest.fixture(scope="module")
def arms(earned):
    """The same without the plain wrong answers."""
    return {name: verdict for name, verdict in earned.items() if not name.startswith("wrong ")}


# --- the learner


def learn(wrecks, seed):
    """Train a policy; return by how much each arm's log P(arm) / P(wrong) has moved."""
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    verdicts = [FLOOR, *wrecks]
    logits = [math.log(len(wrecks))] + [0.0] * len(wrecks)  # half of all failures are plain at first
    begun = [logit - logits[0] for logit in logits]
    for _ in range(STEPS):
        peak = max(logits)
        weights = [math.exp(logit - peak) for logit in logits]
        total = sum(weights)
        gradient = [0.0] * len(logits)
        surplus = 0.0
        for group in range(GROUPS):
            solved = SOLVED[group % len(SOLVED)]
            failing = sum(chance.random() >= solved for _ in range(SIZE))
            picked = chance.choices(range(len(logits)), weights, k=failing)
            totals = [verdicts[arm] for arm in picked] + [Scored(1.0)] * (SIZE - failing)
            for arm, advantage in zip(picked, SCHEMES["grpo"].by_group(totals).values, strict=False):
                gradient[arm] += advantage
                surplus += advantage
        logits = [
            logit + RATE * (push - surplus * weight / total)
            for logit, push, weight in zip(logits, gradient, weights, strict=True)
        ]
    return [logit - logits[0] - before for logit, before in zip(logits, begun, strict=True)][1:]


def worth_of(verdict):
    return verdict.value if isinstance(verdict, Scored) else None


def drifts(wrecks):
    """For each verdict that arms have: the mean drift of these arms over seeds, and its standard error."""
    places = defaultdict(list)
    for place, verdict in enumerate(wrecks):
        places[worth_of(verdict)].append(place)
    moved = [learn(wrecks, seed) for seed in range(SEEDS)]
    told = {}
    for worth, own in places.items():
        means = [statistics.fmean(one[place] for place in own) for one in moved]
        told[worth] = statistics.fmean(means), statistics.stdev(means) / math.sqrt(SEEDS)
    return told


def rises(wrecks):
    """The verdicts towards which the policy drifted, by more than three standard errors."""
    return {worth for worth, (mean, error) in drifts(wrecks).items() if mean > 3 * error}


def each_worth(wrecks):
    """One arm for each verdict that there is: a single way out among hundreds is found, too."""
    return list({worth_of(verdict): verdict for verdict in wrecks}.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs("bubblewrap")
def test_no_program_that_wrecks_or_cheats_earns_more_than_a_wrong_answer(earned):
    better = {name: verdict for name, verdict in earned.items() if verdict == MASKED or verdict.value > 0}
    assert better == {}
    assert len(earned) > 400


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs("bubblewrap")
def test_a_learner_does_not_drift_towards_wrecks_but_would_if_they_were_masked(arms):
    assert rises(list(arms.values())) == set()
    assert rises(each_worth(arms.values())) == set()
    assert rises([MASKED] * len(arms)) == {None}


COUNT = 400


def test_a_learner_whose_wrecks_earn_the_floor_does_not_drift():
    assert rises([Scored(0.0, "cpu")] * COUNT) == set()


def test_a_learner_finds_masks_and_any_small_pay():
    assert rises([MASKED] * COUNT) == {None}
    assert 0.2 in rises([Scored(0.0, "cpu")] * (COUNT - 10) + [Scored(0.2)] * 10)


def test_a_learner_finds_a_single_wreck_that_is_masked_or_paid_among_many_that_are_not():
    wrecks = [Scored(0.0, "cpu")] * COUNT
    assert None in rises(each_worth([*wrecks, MASKED]))
    assert 0.1 in rises(each_worth([*wrecks, Scored(0.1)]))
    assert rises(each_worth(wrecks)) == set()


def test_the_specimens_of_the_learner_are_stuck():
    for specimen in (*HOSTILE, *SABOTEURS):
        if specimen.suite is SNIPPET:
            assert "[x * x for x in xs]" not in stuck(specimen).completion
