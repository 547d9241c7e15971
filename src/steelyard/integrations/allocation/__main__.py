"""`python -m steelyard.integrations.allocation`: a request on stdin, an answer on stdout."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

import orjson

from steelyard.errors import RefusedError
from steelyard.integrations.allocation.asked import PROTOCOL, read_asked


def main() -> int:
    """Answer one request."""
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print: that must not get into the answer
    absent = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if absent:
        sys.stderr.write(
            f"{' and '.join(absent)} cannot be imported\n  next: pip install 'steelyard[torch]'\n"
        )
        return 1
    for name, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
        os.environ.setdefault(name, value)
    status, answer = _answer(sys.stdin.buffer.read())
    with said:
        said.write(orjson.dumps(answer))
    return status


def _answer(request: bytes) -> tuple[int, dict[str, Any]]:
    try:
        try:
            document = orjson.loads(request)
        except orjson.JSONDecodeError as error:
            raise RefusedError(
                f"it is no JSON: {error}", where="request", remedy="start it by `steelyard fit --verify`"
            ) from error
        asked = read_asked(document)  # before torch: what cannot be is said at once
        from steelyard.integrations.allocation import gpu  # noqa: PLC0415
        from steelyard.integrations.allocation.answer import answered  # noqa: PLC0415

        return 0, answered(asked, gpu.meter() if asked.gpu else None)
    except RefusedError as error:
        refused = {"reason": error.reason, "where": error.where, "remedy": error.remedy}
        return 2, {"protocol": PROTOCOL, "refused": refused}


if __name__ == "__main__":
    sys.exit(main())
