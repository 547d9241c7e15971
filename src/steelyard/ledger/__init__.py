"""The append-only record of rollouts, attempts and scores, in one SQLite file.

`log.Ledger` is the record; `migrations` is its history. What it knows outlives the code that filled
it: it imports no reward and no scheduler, and stores what it is given.
"""

from steelyard.ledger.log import BESIDE, Departure, Entered, Ledger, Recorded
from steelyard.ledger.runs import Run

__all__ = ["BESIDE", "Departure", "Entered", "Ledger", "Recorded", "Run"]
