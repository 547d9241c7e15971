"""HTTP: requests are passed to the scoring process at hand, and its answers back.

| route | answer |
|---|---|
| `POST /score` | rows, or with `Accept: application/x-ndjson` a line per group when it is scored |
| `GET /health` | who judges since when, requests under way, the last load; 503 where nobody judges |
| `GET /recipe` | the parts, their weights, the columns they need |
| `POST /reload` | the new identity when it judges; 409 and the reason when the old one still does |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from steelyard.errors import RefusedError
from steelyard.service.documents import BadPostError, error_of, line
from steelyard.service.supervisor import Supervisor
from steelyard.service.wire import CUT, LINES, ROWS, frame, next_frame, unless

MOST_BYTES: Final = 64 << 20
"""The largest body: some 10,000 rollouts, of which a step's posts are a part."""

_JSON, _NDJSON = "application/json", "application/x-ndjson"

_TOO_LARGE: Final = f"more than {MOST_BYTES} bytes", "body", "post fewer groups in one request"
_NO_ROUTE: Final = "no such route", "path", "POST /score, GET /health, GET /recipe, or POST /reload"
_NO_JUDGE: Final = (
    "no scoring process is at hand",
    "recipe",
    "GET /health says whether it cannot be loaded: mend it, and POST /reload; else post again",
)
_LOST: Final = (
    "the scoring process ended while it was asked, or takes no more",
    "scoring",
    "post again; if it happens again, the server's stderr says what ended it",
)
_NOBODY_READS: Final = Response(status_code=400)  # the client has gone


class Front:
    """The routes.

    Parameters
    ----------
    supervisor
        Has the scoring processes.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._under_way = 0

    def app(self) -> Starlette:
        """Make the ASGI application."""
        routes = [
            Route("/score", self._score, methods=["POST"]),
            Route("/health", self._health),
            Route("/recipe", self._recipe),
            Route("/reload", self._reload, methods=["POST"]),
        ]
        handlers = {BadPostError: _refusal, HTTPException: _no_such_route, ClientDisconnect: _nobody_reads}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _score(self, request: Request) -> Response:
        body = await _body(request)
        in_lines = _NDJSON in request.headers.get("accept", "")
        answer = self._answer(body, LINES if in_lines else ROWS)
        try:
            status = await unless(_left(request), anext(answer))
            if status == b"200" and in_lines:
                return StreamingResponse(_lines(answer), media_type=_NDJSON)
            whole = None if status is None else await unless(_left(request), _whole(answer))
        except CUT:
            raise _refused(503, _LOST) from None
        if status is None or whole is None:
            return _NOBODY_READS
        return Response(whole, int(status), media_type=_JSON)

    async def _answer(self, body: bytes, kind: bytes) -> AsyncGenerator[bytes]:
        """The status, then the answer in pieces; closed early, it has the work given up."""
        self._under_way += 1
        try:
            connection = await self._supervisor.connect()
            if connection is None:
                raise _refused(503, _NO_JUDGE)
            reader, writer = connection
            try:
                writer.write(frame(kind))
                writer.write(frame(body))
                await writer.drain()
                while piece := await next_frame(reader):
                    yield piece
            finally:
                writer.close()
        finally:
            self._under_way -= 1

    async def _health(self, _request: Request) -> Response:
        scorer = self._supervisor.scorer
        health = {
            "ok": scorer is not None,
            "recipe": self._supervisor.settings.recipe,
            "identity": None if scorer is None else scorer.facts["identity"],
            "since": None if scorer is None else scorer.since,
            "under_way": self._under_way,
            "reloaded": self._supervisor.reloaded,
            "last_load": self._supervisor.last,
        }
        return _json(503 if scorer is None else 200, health)

    async def _recipe(self, _request: Request) -> Response:
        scorer = self._supervisor.scorer
        if scorer is None:
            raise _refused(503, _NO_JUDGE)
        return _json(200, {"recipe": self._supervisor.settings.recipe, **scorer.facts})

    async def _reload(self, _request: Request) -> Response:
        try:
            scorer = await self._supervisor.reload()
        except RefusedError as error:
            still = self._supervisor.scorer
            identity = None if still is None else still.facts["identity"]
            return _json(409, {"identity": identity, **error_of(error)})
        return _json(200, {"identity": scorer.facts["identity"], "reloaded": self._supervisor.reloaded})


async def _body(request: Request) -> bytes:
    """What was posted, if it is not too large."""
    length = request.headers.get("content-length", "")
    body = bytearray()
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise _refused(413, _TOO_LARGE)
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise _refused(413, _TOO_LARGE)
    return bytes(body)


async def _left(request: Request) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _whole(answer: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in answer])


async def _lines(answer: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """An answer's lines; if it is cut, the last one says so."""
    async with aclosing(answer):
        try:
            async for piece in answer:
                yield piece
        except CUT:
            yield line(error_of(_refused(503, _LOST)))


def _refused(status: int, words: tuple[str, str, str]) -> BadPostError:
    reason, where, remedy = words
    return BadPostError(reason, where=where, remedy=remedy, status=status)


async def _refusal(_request: Request, error: Exception) -> Response:
    if not isinstance(error, BadPostError):
        raise error
    return _json(error.status, error_of(error))


async def _no_such_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return await _refusal(request, _refused(status, _NO_ROUTE))


async def _nobody_reads(_request: Request, _error: Exception) -> Response:
    return _NOBODY_READS


def _json(status: int, document: Mapping[str, Any]) -> Response:
    return Response(line(document), status, media_type=_JSON)
