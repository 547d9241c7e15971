"""One place of a site: a line to the runner that was started there, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from steelyard.sandbox import telling
from steelyard.sandbox.guest import frames
from steelyard.sandbox.site import Line


class Place:
    """One slot that is elsewhere.

    Parameters
    ----------
    opening
        Makes its line.
    on_gone
        Called once, when it has ended.
    """

    def __init__(self, opening: Callable[[], Awaitable[Line]], on_gone: Callable[[Place], None]) -> None:
        self.gone = False
        self.served = 0
        self._on_gone = on_gone
        self._line: Line | None = None
        self._reader = frames.Reader(telling.LONGEST)
        self._messages: list[bytes] = []
        self._opening = asyncio.ensure_future(opening())
        self.closing: asyncio.Future[None] | None = None

    async def open(self, *, hello: bytes) -> None:
        """Wait for its line, and send what the runner needs.

        Raises
        ------
        SandboxError, RefusedError
            If there is no place to be had.
        """
        self._line = await asyncio.shield(self._opening)
        await self.send(hello)

    async def send(self, *said: bytes) -> None:
        """Send messages.

        Raises
        ------
        ConnectionError
            If the line is lost.
        """
        if self._line is None or self.gone:
            raise ConnectionError("the line is closed")
        try:
            await self._line.send(b"".join(said))
        except OSError as error:
            raise ConnectionError(self._line.said() or str(error) or "nothing can be sent") from error

    async def hear(self) -> tuple[str, dict[str, Any], list[bytes]]:
        """Wait for the runner's next message.

        Raises
        ------
        ConnectionError
            If the line is lost, or what comes is no message.
        """
        while not self._messages:
            if self._line is None or self.gone:
                raise ConnectionError("the line is closed")
            data = await self._line.receive()
            if not data:
                raise ConnectionError(f"the runner has ended: {self._line.said() or 'it said nothing'}")
            try:
                self._messages += self._reader.feed(data)
            except ValueError as error:
                raise ConnectionError(str(error)) from error
        try:
            return telling.read(self._messages.pop(0))
        except ValueError as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Begin to end it."""
        if self.gone:
            return
        self.gone = True
        self.closing = asyncio.ensure_future(self._close())
        self._on_gone(self)

    async def _close(self) -> None:
        if not self._opening.done():
            self._opening.cancel()
        line: Line | None = None
        with suppress(Exception, asyncio.CancelledError):
            line = await self._opening
        if line is not None:
            with suppress(Exception):
                await line.close()
