"""Values of a fit as JSON: by their fields' names."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from steelyard.errors import printable


def as_json(value: Any) -> str:  # noqa: ANN401 - whatever a fit holds
    """Write values by their fields' names; what is not finite is null, as what is not known."""
    import orjson

    return orjson.dumps(_plain(value), option=orjson.OPT_INDENT_2).decode()


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a fit holds
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
