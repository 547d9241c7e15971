"""What runs in a scoring process: the recipe, a runtime that stays entered, and one task per request.

`python -m steelyard.service.scorer CONTROL PARENT SETTINGS NUMBER`. Control is a socket to the front: the
first line out says that the process is ready, or why it is not; then each byte in brings the connection
of one request along. When control is shut the process finishes what it began, and ends. When the front
has died it ends too, at once, or within two seconds if its event loop is held up.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from steelyard.advantages import SCHEMES
from steelyard.blame import Shares
from steelyard.errors import RefusedError, RunStoppedError, SteelyardError, describe
from steelyard.outcome import ScoredGroup
from steelyard.rewards import Recipe
from steelyard.rewards.asked import recipe_file_of, recipe_of
from steelyard.runtime import Runtime, refuse_unattested
from steelyard.service.documents import BadPostError, error_of, line
from steelyard.service.rows import groups_of, rows_of
from steelyard.service.settings import Settings
from steelyard.service.sources import Sources, pinned
from steelyard.service.wire import BUFFER, CUT, LINES, frame, next_frame, stamp, unless

_LOOKS_S: Final = 0.5  # between two looks whether the front lives


def main(control: int, parent: int, settings: Settings, number: int) -> None:
    """Load the recipe, say so, and score until the front hangs up."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    sources = Sources()
    if recipe_file_of(settings.recipe) is not None:
        sources.stamps[settings.recipe] = stamp(settings.recipe)
    with socket.socket(fileno=control) as front:
        front.set_inheritable(False)
        sources.rule()
        try:
            recipe = pinned(recipe_of(settings.recipe, places=settings.code), sources)
            runtime = _runtime(recipe, settings)
            refuse_unattested(recipe)
        except RefusedError as error:
            refused = {"reason": error.reason, "where": error.where, "remedy": error.remedy}
            _tell(front, {"refused": refused, "files": sources.stamps})
            return
        facts = _facts(recipe, sources)
        _tell(front, {**facts, "files": sources.stamps})
        signature = {"identity": facts["identity"], "reloaded": number}
        asyncio.run(_Scorer(runtime, settings, signature).run(front))


def _runtime(recipe: Recipe, settings: Settings) -> Runtime:
    if SCHEMES[settings.advantage].scope == "batch":
        raise RefusedError(
            f"{settings.advantage} normalises over a batch, and a request is none",
            where="--advantage",
            remedy="take another scheme, or normalise where the batch is",
        )
    return Runtime(
        recipe,
        advantage=settings.advantage,
        timeout_s=settings.timeout_s,
        workers=settings.workers,
        places=settings.places,
        stop=False,
    )


def _facts(recipe: Recipe, sources: Sources) -> dict[str, Any]:
    """What the front tells of the recipe."""
    return {
        "identity": f"{recipe.identity}.{sources.digest()}" if sources.codes else recipe.identity,
        "floor": recipe.floor,
        "needed": recipe.needed,
        "parts": [
            {
                "name": part.reward.name,
                "weight": part.weight,
                "identity": part.reward.identity,
                "columns": part.reward.columns,
            }
            for part in recipe.parts
        ],
    }


def _tell(front: socket.socket, facts: dict[str, Any]) -> None:
    front.sendall(json.dumps(facts).encode() + b"\n")


def _end_with(parent: int) -> None:
    """End this process when its parent has died, if nothing else sees to it."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_S)
    time.sleep(1.0)
    os._exit(1)


class _Scorer:
    """Takes requests from the front until it hangs up.

    Parameters
    ----------
    runtime
        Scores.
    settings
        What was asked for.
    signature
        Stands in every answer.
    """

    def __init__(self, runtime: Runtime, settings: Settings, signature: dict[str, Any]) -> None:
        self._runtime = runtime
        self._settings = settings
        self._signature = signature
        self._shares = Shares()
        self._under_way: set[asyncio.Task[None]] = set()
        self._hung_up = asyncio.Event()

    async def run(self, front: socket.socket) -> None:
        """Serve; when the front has hung up, finish what is under way."""
        loop = asyncio.get_running_loop()
        front.setblocking(False)
        async with self._runtime:
            loop.add_reader(front, self._accept, front)
            await self._hung_up.wait()
            loop.remove_reader(front)
            if self._under_way:
                await asyncio.wait(self._under_way)

    def _accept(self, front: socket.socket) -> None:
        try:
            said, descriptors, _, _ = socket.recv_fds(front, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            said, descriptors = b"", []
        if not said:
            self._hung_up.set()
        for descriptor in descriptors:
            task = asyncio.get_running_loop().create_task(self._serve(socket.socket(fileno=descriptor)))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """Answer one request, unless the front leaves first."""
        connection.set_inheritable(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=BUFFER)
        try:
            writer.write(frame(b""))
            kind, body = await next_frame(reader), await next_frame(reader)
            await unless(reader.read(1), self._answer(writer, body, in_lines=kind == LINES))
        except CUT:
            pass  # the front left
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: bytes, *, in_lines: bool) -> None:
        """Write the status of the first document, and every document."""
        begun = False
        async with aclosing(self._documents(body, in_lines=in_lines)) as documents:
            async for status, document in documents:
                if not begun:
                    writer.write(frame(str(status).encode()))
                    begun = True
                writer.write(frame(line(document)))
                await writer.drain()
        writer.write(frame(b"") if begun else frame(b"200") + frame(b""))
        await writer.drain()

    async def _documents(self, body: bytes, *, in_lines: bool) -> AsyncGenerator[tuple[int, dict[str, Any]]]:
        """One document, or one for each group when it is scored; or what is wrong, with its status."""
        try:
            groups = groups_of(body, self._runtime.recipe, self._settings.columns)
            rows: list[dict[str, Any]] = [{}] * sum(len(group.rollouts) for group in groups)
            async with aclosing(self._runtime.score(groups)) as scored:
                async for one in scored:
                    self._see(one)
                    said = rows_of(one)
                    if in_lines:
                        yield 200, self._document(said)
                    for rollout, row in zip(one.group.rollouts, said, strict=True):
                        rows[rollout.ordinal] = row
            if not in_lines:
                yield 200, self._document(rows)
        except BadPostError as error:
            yield error.status, {**self._signature, **error_of(error)}
        except SteelyardError as error:
            yield 500, {**self._signature, **error_of(error)}
        except Exception as error:  # noqa: BLE001 - a fault of ours: the client is told, too
            traceback.print_exc()
            yield 500, {**self._signature, **error_of(RunStoppedError(describe(error)))}

    def _see(self, scored: ScoredGroup) -> None:
        for place, total in enumerate(scored.totals):
            self._shares.see(total, (scores[place].verdict for scores in scored.parts.values()))

    def _document(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._signature, "rows": rows, "stop": self._shares.excess()}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Settings.from_json(sys.argv[3]), int(sys.argv[4]))
