"""What is answered, as JSON: lines, and errors that end with the next step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from steelyard.errors import RefusedError, SteelyardError


class BadPostError(RefusedError):
    """What was posted cannot be scored.

    Parameters
    ----------
    status
        The HTTP status.
    rows
        What is wrong with single rows.
    """

    def __init__(
        self,
        reason: str,
        *,
        where: str,
        remedy: str,
        status: int = 400,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(reason, where=where, remedy=remedy)
        self.status = status
        self.rows = rows


def error_of(error: SteelyardError) -> dict[str, Any]:
    """What is answered instead of rows."""
    if not isinstance(error, RefusedError):
        reason, _, remedy = str(error).partition("\n  next: ")
        then = f"{remedy}; here: POST /reload when it is mended, and post again" if remedy else "post again"
        return {"error": {"where": "scoring", "reason": reason, "next": then}}
    told: dict[str, Any] = {"where": error.where, "reason": error.reason, "next": error.remedy}
    if isinstance(error, BadPostError) and error.rows:
        told["rows"] = error.rows
    return {"error": told}


def line(document: Mapping[str, Any]) -> bytes:
    """Write a document as one line of JSON."""
    try:
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a lone surrogate in a name
        return json.dumps(document).encode() + b"\n"
