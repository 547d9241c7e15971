"""Other people's rollout files, read as one run that pricing understands.

`read_foreign` recognises a file by its content, and readers invent nothing: where a file has no clock the
service time is `nan`, and a sentence says how to have it (`docs/readers.md`).
"""

from steelyard.files.foreign.read import CENSORED, CODE, OWN, ROW, SERVICE, VERDICT, Options, Read
from steelyard.files.foreign.recognise import Reader, read_foreign, recognise

__all__ = [
    "CENSORED",
    "CODE",
    "OWN",
    "ROW",
    "SERVICE",
    "VERDICT",
    "Options",
    "Read",
    "Reader",
    "read_foreign",
    "recognise",
]
