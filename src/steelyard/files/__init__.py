"""Rollouts in files: JSON Lines in, scored JSON Lines out.

`source` reads lines and finds them again, `survey` looks at a whole file before anything is judged
(faults, groups, digest), `out` writes the scored rows. Nothing here judges.
"""

from steelyard.files.out import ScoredFile, partial_of
from steelyard.files.source import FileSource, LineSource, SpoolSource, is_once, read_once
from steelyard.files.survey import Fault, Survey, groups, survey

__all__ = [
    "Fault",
    "FileSource",
    "LineSource",
    "ScoredFile",
    "SpoolSource",
    "Survey",
    "groups",
    "is_once",
    "partial_of",
    "read_once",
    "survey",
]
