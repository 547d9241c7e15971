"""Killable processes for trusted Python: users' synchronous rewards, and maths. Not a boundary."""

from steelyard.workers.blocking import BlockingPool
from steelyard.workers.ends import Cut, Died, Failure, NotStarted, Outcome, Raised
from steelyard.workers.pool import WorkerPool

__all__ = ["BlockingPool", "Cut", "Died", "Failure", "NotStarted", "Outcome", "Raised", "WorkerPool"]
