"""Where model-written code runs: boundaries, and the warm slots behind them.

`boundary` is the protocol, `kinds` has the boundaries of ours by name.

A boundary of warm slots (`warm`) is told apart by its house, which makes them: `house` with bubblewrap,
`inside` in a container. `slot` talks with one, `forkserver` runs programs in them, `pool` keeps them, `watch`
enforces limits with what `usage` counts, `ends` says how a guest ended, `judges` keeps the processes that
hold tests. `guest/` is what runs inside, and imports nothing from outside.

Where slots are containers or far away, `remote` speaks over a line with a `runner` in each, which came there
in a `parcel`. A `site` makes the places: `bundle` with runc and gVisor, `container` with Docker and Podman,
`modal`.

`machine` says what this machine can isolate with; `conformance` holds any boundary against programs of known
ends.
"""

from steelyard.sandbox.boundary import Boundary as Boundary
from steelyard.sandbox.boundary import Checks as Checks
from steelyard.sandbox.boundary import Opinion as Opinion
from steelyard.sandbox.boundary import Program as Program
from steelyard.sandbox.kinds import boundary_of as boundary_of

__all__ = ["Boundary", "Checks", "Opinion", "Program", "boundary_of"]
