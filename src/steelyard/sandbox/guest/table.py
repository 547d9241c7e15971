"""The call table: call the candidate's functions with given inputs, and send the values back.

The candidate's process holds inputs, and no expected value: what is right is compared on the host. Each
call's arguments are made from their text when it is due, so that one that a function changed never
reaches the next call.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any

from . import codec, frames, load

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

HOLD_S = 0.002
_send, _now, _getpid, _exit = frames.send, monotonic, os.getpid, os._exit


def run(header: dict[str, Any], source: bytes, calls: bytes, channel: int, path: str) -> None:
    """Load the candidate and make every call; one outcome each, whatever it raises.

    `header["share"]` sends each outcome at once: where the calls before a hanging one are paid for, they
    must not depend on how long it took until it hung.
    """
    table = codec.loads(calls)
    limit = header.get("reply_bytes") or codec.LIMIT
    name = header.get("module") or "candidate"
    try:
        module = load.load(source, name, path=path)
    except load.LoadError as error:
        _send(channel, codec.dumps(["load_error", error.kind, error.message, error.line]))
        return
    ahead = [b'["loaded"]']  # goes with the first outcomes: each message wakes the host
    hold, me = 0.0 if header.get("share") else HOLD_S, _getpid()
    waiting: list[bytes] = []
    first, last = 0, _now()
    for index, call in enumerate(table):
        # Its text at once: the candidate may change a value after it has returned it.
        waiting.append(codec.dumps(_outcome(module, call, limit, path)))
        if _getpid() != me:  # the candidate forked, and this is the child
            _exit(0)
        if _now() - last >= hold:
            _send(channel, *ahead, b'["r",%d,[%b]]' % (first, b",".join(waiting)))
            ahead, waiting, first, last = [], [], index + 1, _now()
    if waiting:
        ahead.append(b'["r",%d,[%b]]' % (first, b",".join(waiting)))
    _send(channel, *ahead, b'["done"]')


def _outcome(module: Any, call: Any, limit: int, path: str) -> list[Any]:
    name, args, kwargs, in_place = call
    args = [codec.from_tree(tree) for tree in args]
    kwargs = codec.from_tree(kwargs) if kwargs else {}
    try:
        value = load.found(module, name)(*args, **kwargs)
        if in_place:
            return ["v", *_both(value, args, limit)]
        return ["v", codec.to_tree(value, None, limit)]
    except BaseException as error:
        return ["x", *load.told(error, path), load.bases(error)]


def _both(value: object, args: list[Any], limit: int) -> tuple[Any, list[Any]]:
    first, *rest = codec.texts([value, *args], None, limit)
    return first, rest
