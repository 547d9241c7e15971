"""Rollouts in files: JSON Lines or Parquet in, scored rows out as either.

`source` reads lines and finds them again, `survey` looks at a whole file before anything is judged
(faults, groups, digest), `out` writes the scored rows, `parquet` turns rows into lines and columns.
Nothing here judges.
"""

from steelyard.files.out import ScoredFile, partial_of
from steelyard.files.parquet import Columns
from steelyard.files.source import FileSource, LineSource, SpoolSource, is_once, read_once
from steelyard.files.survey import Fault, Survey, groups, survey

__all__ = [
    "Columns",
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
