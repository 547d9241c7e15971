"""Run rewards on groups: attempts start as soon as a rollout exists, groups leave when complete.

`groups.Scheduler` is the order of things, `calls` is one call of a reward with its deadline and its
clocks, `suspects` is what happens after a failure. The scheduler runs any callable with the reward
signature; it knows no reward, no disk and no trainer.
"""

from steelyard.scheduling.calls import AsyncCaller, Caller, InlineCaller
from steelyard.scheduling.groups import PartPlan, Scheduler
from steelyard.scheduling.written import Batch

__all__ = ["AsyncCaller", "Batch", "Caller", "InlineCaller", "PartPlan", "Scheduler"]
