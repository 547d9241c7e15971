"""An inspection in this process: the same plan, steps and findings, but every reward is simply called."""

import asyncio
from pathlib import Path

from steelyard.audit.answers import answer_findings, untold
from steelyard.audit.conduct import conduct_findings
from steelyard.audit.observed import Answer
from steelyard.audit.plan import plan_of
from steelyard.audit.spread import spread_findings, spread_of
from steelyard.audit.steps import Steps
from steelyard.errors import describe
from steelyard.outcome import Abstained, Context, Part, Scored, Takes, as_judgement, as_judgements
from steelyard.rewards import Recipe, builtin, find
from steelyard.rewards.lengths import overlong
from steelyard.rewards.repetition import repetition
from steelyard.rollout import Group, Rollout
from steelyard.testing import FakeClock

REWARDS = Path(__file__).with_name("rewards_to_check.py")

QUESTIONS = {
    "Nine rows of five seats, three are broken: 45, 42 or 48 seats left?": "42",
    "A ticket is 6 and a meal 11, for two: 17, 34 or 28 in all?": "34",
    "Of 90 pages a third is read: 30, 60 or 45 left?": "60",
    "Seven boxes of 12, and 5 single ones: 89, 84 or 79?": "89",
}
ENDINGS = ("so it is\n#### {right}", "#### {right}", "I take\n#### 7", "no idea at all")


def rows(questions=None, endings=ENDINGS, **columns):
    """Rollouts of a file: every ending for every question."""
    asked = questions or QUESTIONS
    return [
        {"prompt": prompt, "completion": ending.format(right=gold), "answer": gold, **columns}
        for prompt, gold in asked.items()
        for ending in endings
    ]


def groups_of(some):
    """Groups by prompt, with the places that a file would give them."""
    by_prompt = {}
    for line, row in enumerate(some, start=1):
        columns = {k: v for k, v in row.items() if k not in {"prompt", "completion", "files", "state"}}
        by_prompt.setdefault(str(row["prompt"]), []).append(
            Rollout(
                line, row["prompt"], row["completion"], columns, (0, 0), line, f"rows.jsonl:{line}",
                row.get("files"), row.get("state"),
            )
        )  # fmt: skip
    return [Group(name, at, members) for at, (name, members) in enumerate(by_prompt.items())]


def recipe_of(*parts):
    """A recipe of rewards by name, of this folder's functions, or of parts."""
    made = {"overlong": lambda: overlong(500, 100, unit="characters"), "repetition": lambda: repetition(3)}

    def part(one):
        if isinstance(one, Part):
            return one
        if not isinstance(one, str):
            return Part(one)
        if one in made:
            return Part(made[one]())
        return Part(
            builtin(one) if one.partition(":")[0] in {"gsm8k", "answer", "choice", "format"} else own(one)
        )

    return Recipe(tuple(map(part, parts)))


def own(name):
    """A function of this folder's, as the command finds it."""
    return find(f"{REWARDS}:{name}")


class Directly:
    """What `Asking` is to `Steps`: every reward is called here and now."""

    def __init__(self, recipe):
        self.recipe = recipe
        self.answers, self.stopped, self.late = {}, [], []

    async def ask(self, groups, _until):
        for group in groups:
            said = {}
            for part in self.recipe.parts:
                said[part.reward.name] = self._said(part, group.rollouts, said)
            verdicts = [{name: some[at] for name, some in said.items()} for at in range(len(group.rollouts))]
            self.answers[group.ordinal] = [
                Answer(self.recipe.total(rollout, parts), parts)
                for rollout, parts in zip(group.rollouts, verdicts, strict=True)
            ]

    def forget_rate(self):
        """Nothing is measured here."""

    def _said(self, part, rollouts, before):
        reward = part.reward
        if reward.takes is Takes.ROLLOUT:
            said = [self._one(reward, rollout) for rollout in rollouts]
        else:
            said = as_judgements(reward(list(rollouts), Context()), len(rollouts))
        earlier = [{name: some[at] for name, some in before.items()} for at in range(len(rollouts))]
        return [
            one
            if part.only_if is None or part.only_if(verdicts)
            else Abstained("the gate before it is closed")
            for one, verdicts in zip(said, earlier, strict=True)
        ]

    @staticmethod
    def _one(reward, rollout):
        try:
            return as_judgement(reward(rollout, Context()))
        except Exception as error:  # noqa: BLE001 - what the scheduler makes of it
            return Scored(reward.floor, "reward_error", describe(error))


def seen_by(recipe, some):
    """Everything that an inspection of these rows sees, and what it could not ask."""
    steps = Steps(plan_of(recipe, groups_of(some)), FakeClock(), 1e9, 8.0)

    async def look():
        asking = Directly(recipe)
        await steps.first(asking)
        await steps.look(asking)
        await steps.again(asking, fresh=False)
        await steps.again(Directly(recipe), fresh=True)
        await steps.look_last(asking)

    asyncio.run(look())
    seen = steps.observed([])
    return seen, [*steps.plan.not_run, *untold(seen), *steps.not_run]


def findings(recipe, some):
    """Every finding about a recipe on rows."""
    seen, _ = seen_by(recipe, some)
    return [*conduct_findings(seen), *answer_findings(seen), *spread_findings(seen, spread_of(seen))]


def told(*parts, some=None):
    """(level, check) of every finding, for a recipe of these parts."""
    return {(str(one.level), one.check) for one in findings(recipe_of(*parts), some or rows())}
