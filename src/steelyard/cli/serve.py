"""`steelyard serve`: this process becomes the server.

The doors do not import one another, so the command does as a shell would: it starts the other program,
`python -m steelyard.service`, in its own place.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from steelyard.workers.process import interpreter_flags


def become(settings: dict[str, Any]) -> NoReturn:
    """Serve in this process; it does not come back."""
    command = [sys.executable, *interpreter_flags(), "-m", "steelyard.service", json.dumps(settings)]
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter, no shell
