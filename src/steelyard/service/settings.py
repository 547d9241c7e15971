"""What `steelyard serve` was told; it travels from process to process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from steelyard.clock import Seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """What is served, where and how.

    Parameters
    ----------
    recipe
        A recipe's TOML file, or rewards' names, comma-separated.
    host, port
        Where to listen; port 0 is any free one.
    socket
        The path of a Unix socket to listen on instead.
    watch
        Whether to reload when a file that was loaded changes.
    columns
        Our column names to the rows', where they differ.
    code
        Settings of rewards that run code: `boundary`, `cpu_s`, `wall_s`.
    advantage, timeout_s, workers, places
        As in `Runtime`.
    """

    recipe: str
    host: str
    port: int
    socket: str | None
    watch: bool
    columns: Mapping[str, str]
    advantage: str
    code: Mapping[str, Any]
    timeout_s: Seconds | None
    workers: int | None
    places: int

    def to_json(self) -> str:
        """Write them down."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read them."""
        return cls(**json.loads(text))
