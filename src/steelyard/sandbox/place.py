"""One place of a site: a line to the runner that was started there, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from steelyard.sandbox import telling
from steelyard.sandbox.guest import frames
from steelyard.sandbox.site import Line

_WAITING = 64
"""Messages that are kept unread: a runner that says more waits, and so does what it tells of."""

_OPENS_S = 1.0
_LONGEST = 1 << 26  # of what a runner says at once; what it is asked may be longer

Message = tuple[str, dict[str, Any], list[bytes]]


class Place:
    """One slot that is elsewhere.

    It listens all the time: a line that breaks while nothing is asked of it ends the place, so that no
    program is sent there any more.

    Parameters
    ----------
    opening
        Makes its line.
    on_gone
        Called once, when it has ended.
    """

    def __init__(self, opening: Callable[[], Awaitable[Line]], on_gone: Callable[[Place], None]) -> None:
        self.gone = False
        self.busy = True
        """Whether something is asked of it."""
        self._on_gone = on_gone
        self._line: Line | None = None
        self._messages: asyncio.Queue[Message | ConnectionError] = asyncio.Queue(_WAITING)
        self._opening = asyncio.ensure_future(opening())
        self._listening: asyncio.Future[None] | None = None
        self.closing: asyncio.Future[None] | None = None

    async def opened(self) -> None:
        """Wait for its line.

        Raises
        ------
        SandboxError, RefusedError
            If there is no place to be had.
        """
        self._line = await asyncio.shield(self._opening)
        self._listening = asyncio.ensure_future(self._listen(self._line))

    async def _listen(self, line: Line) -> None:
        reader = frames.Reader(_LONGEST)
        try:
            while data := await line.receive():
                for frame in reader.feed(data):
                    await self._messages.put(telling.read(frame))
            cause = f"the runner has ended: {line.said() or 'it said nothing'}"
        except (OSError, ValueError) as error:
            cause = str(error) or repr(error)
        if self.busy:
            await self._messages.put(ConnectionError(cause))
        else:
            self.close()

    async def send(self, said: bytes) -> None:
        """Send a message.

        Raises
        ------
        ConnectionError
            If the line is lost.
        """
        if self._line is None or self.gone:
            raise ConnectionError("the line is closed")
        try:
            await self._line.send(said)
        except OSError as error:
            raise ConnectionError(self._line.said() or str(error) or "nothing can be sent") from error

    async def hear(self) -> Message:
        """Wait for the runner's next message.

        Raises
        ------
        ConnectionError
            If the line is lost, or what comes is no message.
        """
        said = await self._messages.get()
        if isinstance(said, ConnectionError):
            raise said
        return said

    def close(self) -> None:
        """Begin to end it."""
        if self.gone:
            return
        self.gone = True
        if self._messages.full():
            self._messages.get_nowait()
        self._messages.put_nowait(ConnectionError("the line was closed"))  # for whoever hears now
        self.closing = asyncio.ensure_future(self._close())
        self._on_gone(self)

    async def _close(self) -> None:
        await asyncio.wait(
            {self._opening}, timeout=_OPENS_S
        )  # what is half made is best ended when it is made
        if not self._opening.done():
            self._opening.cancel()
        line: Line | None = None
        with suppress(Exception, asyncio.CancelledError):
            line = await self._opening
        if self._listening is not None:
            self._listening.cancel()
        if line is not None:
            with suppress(Exception):
                await line.close()
