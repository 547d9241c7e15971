"""Durations that were observed, or cut: survival, quantiles, intervals whose unit is the step.

`survival` is Kaplan and Meier's curve and the log-rank comparison, `intervals` says how far a number is
known when calls share steps, `correlation` whether calls stand or fall together, `causes` what cut them.
All are functions of columns: numbers in, values out. A row that was not measured is refused, never filled
in.
"""

from steelyard.durations.causes import Ended, Split, counted, split
from steelyard.durations.correlation import (
    Between,
    Correlation,
    all_hit,
    between_steps,
    intra_prompt,
    none_hit,
)
from steelyard.durations.intervals import (
    MIN_STEPS,
    Interval,
    Located,
    mean,
    over_steps,
    quantile,
    ratio,
    share,
)
from steelyard.durations.survival import Drawn, Found, LogRank, Survival, log_rank, survival

__all__ = [
    "MIN_STEPS",
    "Between",
    "Correlation",
    "Drawn",
    "Ended",
    "Found",
    "Interval",
    "Located",
    "LogRank",
    "Split",
    "Survival",
    "all_hit",
    "between_steps",
    "counted",
    "intra_prompt",
    "log_rank",
    "mean",
    "none_hit",
    "over_steps",
    "quantile",
    "ratio",
    "share",
    "split",
    "survival",
]
