"""The front's life: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from steelyard.clock import SystemClock
from steelyard.errors import RefusedError
from steelyard.service.front import Front
from steelyard.service.settings import Settings
from steelyard.service.supervisor import GRACE_S, Supervisor
from steelyard.service.wire import stamp, unless

BACKLOG: Final = 1_024
"""Connections that wait to be taken, as while the first recipe is loaded."""

KEPT_S: Final = 3_600
"""An idle connection is kept for as long as a training step may take: one that is closed at the moment in
which the next step is posted fails that step."""


def serve(settings: Settings) -> None:
    """Serve until told to end by SIGTERM or SIGINT.

    Raises
    ------
    RefusedError
        If the socket cannot be had, or the recipe cannot be loaded.
    """
    with _listening(settings) as listening:
        asyncio.run(_serve(settings, listening))


class _Server(uvicorn.Server):
    """Uvicorn, without its own idea of signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(settings: Settings, listening: socket.socket) -> None:
    supervisor = Supervisor(settings, SystemClock())
    config = uvicorn.Config(
        Front(supervisor).app(),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=int(GRACE_S) + 1,
    )
    server = _Server(config)
    told_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_end.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: supervisor.background(supervisor.reload()))
    try:
        scorer = await unless(told_to_end.wait(), supervisor.reload())
        if scorer is None:
            return
        serving, told = loop.create_task(server.serve([listening])), loop.create_task(told_to_end.wait())
        sys.stderr.write(
            f"steelyard: {settings.recipe} ({scorer.facts['identity']}) is served at {_address(listening)}"
            f"; kill -HUP {os.getpid()} reloads it\n"
        )
        sys.stderr.flush()
        if settings.watch:
            supervisor.background(supervisor.watch())
        await asyncio.wait((serving, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        server.should_exit = True
        await supervisor.end()
        await serving
    finally:
        await supervisor.end()


def _address(listening: socket.socket) -> str:
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Listen; the file of a Unix socket goes with us."""
    path = settings.socket
    try:
        listening = _tcp(settings.host, settings.port) if path is None else _unix(path)
    except OSError as error:
        where = f"--host {settings.host} --port {settings.port}" if path is None else f"--socket {path}"
        raise RefusedError(
            f"it cannot be listened on ({error})",
            where=where,
            remedy="--port 0 takes any that is free" if path is None else "name another path, a shorter one",
        ) from None
    with listening:
        ours = None if path is None else stamp(path)
        try:
            yield listening
        finally:
            if path is not None and stamp(path) == ours:
                Path(path).unlink(missing_ok=True)


def _tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # whom it accepts inherits it: else an answer of two writes waits 40 ms for the client's delayed ACK
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _unix(path: str) -> socket.socket:
    """Listen on a path; a socket there that nobody listens on is left from somebody who was killed."""
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)  # from the beginning nobody else may open it: its mode is what guards it
    try:
        listening.bind(path)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
    return listening
