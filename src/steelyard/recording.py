"""A training loop's recorder that writes to a ledger: `steelyard.record_steps`."""

from __future__ import annotations

from pathlib import Path

from steelyard.ledger.spans import SpanLog
from steelyard.measure import Steps


def record_steps(path: str | Path, *, lane: str = "main") -> Steps:
    """Record the phases of a training loop in a ledger.

    Parameters
    ----------
    path
        The ledger, made if absent; it may be the one that a runtime writes at the same time.
    lane
        Who records: each process that trains has a name of its own, as `rank 0`. Its steps count on after
        the last one that the ledger holds of this name.

    Raises
    ------
    RefusedError
        If the file is no ledger, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with record_steps(f"{folder}/run.ledger", lane="rank 0") as steps:
    ...         with steps.step():
    ...             with steps.phase("generation"):
    ...                 pass
    """
    log = SpanLog(Path(path))
    return Steps(log.append, lane=lane, first=log.next_step(lane))
