"""The front's process: `python -m steelyard.service SETTINGS`, which `steelyard serve` becomes."""

from __future__ import annotations

import os
import sys

from steelyard.errors import RefusedError, SteelyardError
from steelyard.service.settings import Settings

_WEB = ("starlette", "uvicorn", "anyio", "h11")


def main(settings: Settings) -> int:
    """Serve until told to end: 0 then, 2 if refused."""
    try:
        if os.name != "posix":
            raise RefusedError(
                f"it needs POSIX processes, this is {os.name!r}", where="serve", remedy="run it under WSL"
            )
        try:
            from steelyard.service.server import serve  # noqa: PLC0415 - the extra may not be installed
        except ModuleNotFoundError as error:
            if error.name not in _WEB:
                raise
            raise RefusedError(
                f"{error.name} is not installed", where="serve", remedy="pip install 'steelyard[web]'"
            ) from None
        serve(settings)
    except SteelyardError as error:
        sys.stderr.write(f"steelyard: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Settings.from_json(sys.argv[1])))
