"""The conformance suite: honest, hostile and cheating programs that any boundary can be held against.

`hold` runs them through the protocol `steelyard.sandbox.boundary.Boundary` alone and returns a `Report`:
under 100 % honest no verdict, then by kind how many were contained, and by name what was not. It knows no
reward and no boundary of ours, so a third party's counts the same.

`specimen` says what a program is; they stand in `programs/*.txt` and in `honest`, `hostile`, `cheating` and
`saboteurs`. `asking` runs one and says what came; `holding` runs all and keeps the deadlines; `host` looks at
the host's side; `report` is what it came to.

It cannot show that there is no way out; only that these are none.
"""

from steelyard.sandbox.conformance.holding import PROGRAMS as PROGRAMS
from steelyard.sandbox.conformance.holding import Programs as Programs
from steelyard.sandbox.conformance.holding import hold as hold
from steelyard.sandbox.conformance.report import Fault as Fault
from steelyard.sandbox.conformance.report import Report as Report
from steelyard.sandbox.conformance.report import Row as Row

__all__ = ["PROGRAMS", "Fault", "Programs", "Report", "Row", "hold"]
