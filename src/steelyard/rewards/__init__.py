"""Rewards: questions about one completion. They see no queue, no disk, no trainer.

`builtin` finds one of ours by the name it has on the command line (`registry` lists them), `own` makes
one of a user's function, `recipe` combines several, `recipe_file` reads that from TOML. Each of ours is a
plain rule with a test of its own: `answers` (`answer`, `gsm8k`), `choice`, `maths`, `schema`, `text`
(`format`), `instructions`, `gym`, `trajectory` (`state`, `files`, `turns`), `lengths` (`overlong`),
`repetition`; `shaping` has what bends a sum.
"""

from steelyard.rewards.own import FunctionReward, named, reward
from steelyard.rewards.recipe import Recipe, weighted_sum
from steelyard.rewards.recipe_file import load_recipe, read_recipe
from steelyard.rewards.registry import BUILTIN, builtin, find

__all__ = [
    "BUILTIN",
    "FunctionReward",
    "Recipe",
    "builtin",
    "find",
    "load_recipe",
    "named",
    "read_recipe",
    "reward",
    "weighted_sum",
]
