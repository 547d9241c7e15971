"""`python -m steelyard.integrations.allocation`: a request on stdin, an answer on stdout."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.util import find_spec
from typing import Any, Final

import orjson

from steelyard.errors import RefusedError
from steelyard.integrations.allocation.asked import PROTOCOL, read_asked

_PR_SET_PDEATHSIG: Final = 1
"""`linux/prctl.h`."""


def main() -> int:
    """Answer one request."""
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print: that must not get into the answer
    _end_with_parent()
    for name, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
        os.environ.setdefault(name, value)
    status, answer = _answer(sys.stdin.buffer.read())
    with said:
        said.write(orjson.dumps(answer))
    return status


def _refuse_absent() -> None:
    if absent := [name for name in ("torch", "transformers") if find_spec(name) is None]:
        raise RefusedError(
            f"{' and '.join(absent)} cannot be imported",
            where="--verify",
            remedy="pip install 'steelyard[torch]'",
        )


def _end_with_parent() -> None:
    """Let this process be killed when its parent is, which could not end it: a step takes a whole GPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _answer(request: bytes) -> tuple[int, dict[str, Any]]:
    try:
        try:
            document = orjson.loads(request)
        except orjson.JSONDecodeError as error:
            raise RefusedError(
                f"it is no JSON: {error}", where="request", remedy="start it by `steelyard fit --verify`"
            ) from error
        asked = read_asked(document)  # before torch: what cannot be is said at once
        _refuse_absent()
        from steelyard.integrations.allocation import gpu  # noqa: PLC0415
        from steelyard.integrations.allocation.answer import answered  # noqa: PLC0415

        return 0, answered(asked, gpu.meter() if asked.gpu else None)
    except RefusedError as error:
        refused = {"reason": error.reason, "where": error.where, "remedy": error.remedy}
        return 2, {"protocol": PROTOCOL, "refused": refused}


if __name__ == "__main__":
    sys.exit(main())
