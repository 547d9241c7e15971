"""The jobs of a guest: read what the payload asks for, do it, leave.

`run` is the last call of a confined process. It says "started" on the channel right before anything of
the candidate's is compiled or run: from there on every end is the candidate's own. What fails before it
is a failure of the set-up (`["setup", text]`, exit status 120).
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from types import ModuleType
from typing import Any, NoReturn

from . import codec, frames, load, program, reading, serve, table
from .control import SETUP_FAILED

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

_send, _exit, _now = frames.send, os._exit, monotonic


def run(
    payload: bytes, channel: int, rpc: int | None = None, page: int | None = None, folder: str = load.FOLDER
) -> NoReturn:
    """Do the payload's job and leave the process.

    Parameters
    ----------
    payload
        `frames.pack(header as JSON, source, *what the mode needs)`.
    channel
        The descriptor on which the host listens.
    rpc
        `serve`: the socket to the judge.
    page
        `judge`: a memory file of one page, whose first byte says whether it waits for a candidate.
    folder
        Where the source is written.
    """
    reading.GUEST = True
    try:
        header, source, rest = _read(payload)
        mode = header["mode"]
        do = _JOBS[mode]
        if mode == "cooperative":
            from . import cooperative

            cooperative.ready()
        if mode in {"build", "command"}:
            from . import command

            command.ready(header)
        if mode != "judge":  # a judge says that it is ready, in its own words
            _seed(int(header.get("seed") or 0))
            _send(channel, b'["started",%r]' % _now())
    except BaseException as error:
        frames.send(channel, codec.dumps(["setup", f"{type(error).__name__}: {error}"[:300]]))
        _exit(SETUP_FAILED)
    try:
        do(header, source, rest, channel, rpc, page, folder)
    except BaseException as error:
        _leave(f"{type(error).__name__}: {error}", SETUP_FAILED)
    _leave("", 0)


_REHEARSED = b"""import math
class Pair:
    def __init__(self, left, right=0):
        self.left, self.right = left, right
def twice(xs, k=2):
    '''Double.'''
    best = sorted(xs, reverse=True)[:k]
    total = {}
    for place, value in enumerate(best):
        total[str(place)] = value * 2.5 + len(f"{value:>3}")
    return [total[key] for key in total if key], Pair(1).left, "a".join(["b", "c"])
"""


def rehearse() -> None:
    """Do once what every guest will do: what a first time makes ready, clones find ready in their parent."""
    for _ in range(3):
        code = compile(_REHEARSED, f"{load.FOLDER}/candidate.py", "exec", dont_inherit=True)
        module = ModuleType("candidate")
        exec(code, module.__dict__)
        payload = frames.pack(
            b'{"mode":"table","seed":0}', _REHEARSED, b'[["twice",[[3,1,2]],{"d":[]},false]]'
        )
        header, _source, (calls, *_rest) = _read(payload)
        _seed(header["seed"])
        for name, args, kwargs, _in_place in codec.loads(calls):
            values = [codec.from_tree(tree) for tree in args]
            value = getattr(module, name)(*values, **codec.from_tree(kwargs))
            codec.dumps(["v", codec.to_tree(value, None, codec.LIMIT)])


def _leave(said: str, status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        try:
            if said and stream is sys.stderr:
                stream.write(said[:1000] + "\n")
            stream.flush()  # type: ignore[union-attr]
        except BaseException:  # noqa: S110
            pass
    _exit(status)


def _read(payload: bytes) -> tuple[dict[str, Any], bytes, list[bytes]]:
    head, source, *rest = frames.unpack(payload)
    header = codec.loads(head)
    if type(header) is not dict:
        raise TypeError("the header is no JSON object")
    return header, source, rest


def _seed(seed: int) -> None:
    """Equal attempts get equal chance."""
    import random  # the server has it loaded

    random.seed(seed)
    if "numpy" in sys.modules and (chance := sys.modules.get("numpy.random")) is not None:
        chance.seed(seed)


def _table(header: Any, source: bytes, rest: Any, channel: int, _rpc: Any, _page: Any, folder: str) -> None:
    name = header.get("module") or "candidate"
    table.run(header, source, rest[0], channel, f"{folder}/{name}.py")


def _program(_header: Any, source: bytes, _rest: Any, _chan: int, _rpc: Any, _page: Any, folder: str) -> None:
    program.run(source, f"{folder}/main.py")


def _serve(header: Any, source: bytes, _rest: Any, _chan: int, rpc: Any, _page: Any, folder: str) -> None:
    serve.run(header, source, rpc, f"{folder}/{header.get('module') or 'candidate'}.py")


def _judge(header: Any, source: bytes, _rest: Any, channel: int, _rpc: Any, page: Any, _folder: str) -> None:
    from . import judge

    judge.run(header, source, channel, page)


def _cooperative(
    header: Any, source: bytes, rest: Any, chan: int, _rpc: Any, _page: Any, folder: str
) -> None:
    from . import cooperative

    cooperative.run(header, source, rest[0], chan, folder)


def _build(header: Any, source: bytes, _rest: Any, channel: int, _rpc: Any, _page: Any, folder: str) -> None:
    from . import command

    command.build(header, source, channel, folder)


def _command(header: Any, _source: bytes, rest: Any, chan: int, _rpc: Any, _page: Any, folder: str) -> None:
    from . import command

    command.run(header, rest, chan, folder)


_JOBS = {
    "table": _table,
    "program": _program,
    "serve": _serve,
    "judge": _judge,
    "cooperative": _cooperative,
    "build": _build,
    "command": _command,
}
