"""The judge's socket to a candidate: one question, one answer, and nothing else.

A message nobody asked for, one too long, or one that is none ends the run (`LostError`), and so does a
candidate's process that is gone. Between question and answer the candidate may ask the tests something of
its own (`served`): that much of a conversation there is.
"""

from __future__ import annotations

import os
import select
from collections.abc import MutableSequence
from typing import Any

from . import codec, frames

NESTED = 100  # calls back and forth that wait for one another
_REPLIES = frozenset({"v", "x", "stop", "load_error"})


class LostError(BaseException):
    """The candidate's process is gone, or does not keep to the protocol: no test may catch that."""


class CandidateLoadError(Exception):
    """The candidate did not become a module."""

    def __init__(self, kind: str, message: str, line: object) -> None:
        where = f", line {line}" if type(line) is int else ""
        super().__init__(f"{kind}: {message}{where}"[:400])


class Wire:
    """One candidate's socket.

    Parameters
    ----------
    fd
        The socket.
    page
        Its first byte is 1 while the candidate's answer is awaited: the host's watchdog reads it.
    message_bytes, total_bytes
        The longest message, and all that one candidate may send.
    """

    def __init__(
        self, fd: int, page: MutableSequence[int] | None, message_bytes: int, total_bytes: int
    ) -> None:
        self.fd = fd
        self.page: Any = bytearray(1) if page is None else page
        self.left = total_bytes
        self.reader = frames.Reader(message_bytes)
        self.poll = select.poll()
        self.poll.register(fd, select.POLLIN)
        self.lost = ""
        self.why = ""
        self.touched = False  # whether anything of the candidate's has run for the suite, or was missing
        self.depth = 0

    def lose(self, code: str, why: str) -> LostError:
        """Write down how the candidate was lost; the first reason stands."""
        if not self.lost:
            self.lost, self.why = code, why
        return LostError(self.why)

    def unread(self) -> bool:
        """Whether the candidate sent what nobody asked for; a hang-up is none."""
        if self.reader.pending:
            return True
        if not self.poll.poll(0):
            return False
        try:
            return bool(os.read(self.fd, 1))
        except OSError:
            return False

    def send(self, message: list[Any]) -> None:
        """Write one message."""
        try:
            frames.send(self.fd, codec.dumps(message))
        except OSError as error:
            raise self.lose("gone", "the candidate's process is gone") from error

    def receive(self) -> list[Any]:
        """The next message; whatever else comes is the candidate's failure."""
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                raise self.lose("gone", "the candidate's process is gone")
            self.left -= len(data)
            if self.left < 0:
                raise self.lose("protocol", "the answers are too long together")
            try:
                got = self.reader.feed(data)
                message = codec.loads(got[0]) if got else None
            except ValueError as error:
                raise self.lose("protocol", str(error)[:200]) from None
            if not got:
                continue
            if len(got) > 1 or self.reader.pending:
                raise self.lose("protocol", "more than one answer")
            if type(message) is not list or not message or type(message[0]) is not str:
                raise self.lose("protocol", "no message")
            return message

    def ask(self, *request: Any) -> list[Any]:
        """Send a request and return its reply, serving what the candidate asks meanwhile."""
        self.touched = self.touched or request[0] != "open"
        if self.depth >= NESTED:
            raise self.lose("protocol", f"more than {NESTED} calls wait for one another")
        if self.lost:
            raise LostError(self.why)
        if self.poll.poll(0) and self.unread():
            raise self.lose("protocol", "an answer that nobody asked for")
        self.depth += 1
        page = self.page
        message = list(request)
        try:
            while True:
                page[0] = 1
                self.send(message)
                reply = self.receive()
                page[0] = 0
                if reply[0] in _REPLIES:
                    return reply
                message = self.served(reply)
        finally:
            self.depth -= 1
            page[0] = 0

    def served(self, request: list[Any]) -> list[Any]:
        """Answer what the candidate asks of the tests."""
        raise self.lose("protocol", f"no request: {request[0]!r}"[:100])
