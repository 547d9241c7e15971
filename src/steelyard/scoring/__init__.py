"""The main job: score the rollouts of a file.

`job.score_file` is the whole of it, `rows` writes the scored file from the ledger, `summary` counts
what a person wants to know afterwards.
"""

from steelyard.scoring.job import Options, Progress, ledger_of, score_file
from steelyard.scoring.summary import GroupLine, PartTimes, Summary

__all__ = ["GroupLine", "Options", "PartTimes", "Progress", "Summary", "ledger_of", "score_file"]
