"""An inspection before training: what a recipe pays for on a file of rollouts.

A reward is asked about specimens, completions whose worth is known: the gold in the reward's own format,
a wrong answer in it, nothing at all, the prompt, every answer at once, two answers. Then about the file's own
rollouts: again, in a fresh process, in another order, alone. What is found is a sentence with a number and
a place, on one of three levels: a `fault` must be mended, at a `doubt` one must look, a `note` is good to
know. A fault is only what is wrong whatever was meant; where a function of a user's may mean it, a doubt.

`sample` picks groups of a file; `plan` decides what to ask of them, with `forms`, in which a gold is
written down, and `specimens`, what a policy might write instead; `steps` asks, by `judging` and `caught`,
while there is time, and `choosing` picks the form that is paid; `inspection` is the edge where these meet.
`observed` has the values; `answers`, `conduct` and `spread` are the core, from what was observed to
findings, without a process, and `tables` the rest of the report.

Not covered: whether the golds are true, whether a judge agrees with people (calibration), whether a
boundary isolates (its own conformance suite). A time limit cuts the inspection: what did not run is named.
"""

from steelyard.audit.inspection import check_file
from steelyard.audit.observed import Finding, Level, Report

__all__ = ["Finding", "Level", "Report", "check_file"]
