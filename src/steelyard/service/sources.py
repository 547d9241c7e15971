"""The user's source files: a scoring process reads each once, and its workers run what it read.

An edit is loaded when a reload is asked for, and not by a worker process that happens to be started
after it (`Pinned`). Python's own caches have no say either: a `.pyc` passes for fresh if its source was
edited within the same second and kept its length.

Files of the standard library, of installed packages and of this one are left to Python.
"""

from __future__ import annotations

import marshal
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, cast

from steelyard.outcome import How, Reward
from steelyard.rewards import FunctionReward, Recipe
from steelyard.rewards.carrying import Carried
from steelyard.rewards.own import again, refuse_unreachable
from steelyard.service.wire import Stamp, stamp

_OTHERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(word) for word in ("stdlib", "platstdlib", "purelib", "platlib")),
)


class Sources:
    """The user's files as they were when they were read.

    Parameters
    ----------
    codes
        By path, what another process read and compiled.
    """

    def __init__(self, codes: dict[str, bytes] | None = None) -> None:
        self.codes = codes or {}
        self.stamps: dict[str, Stamp] = {}
        self._digests: list[str] = []

    def rule(self) -> None:
        """Have every import in this process read the user's files through here."""
        ordinary = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            path = loader.get_filename(name)
            theirs = path.startswith(_OTHERS) or "site-packages" in path or "dist-packages" in path
            return ordinary(loader, name) if theirs else self._code(path)

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]

    def _code(self, path: str) -> CodeType:
        if path not in self.codes:
            self.stamps[path] = stamp(path)  # before it is read: a later edit is seen to be one
            text = Path(path).read_bytes()
            self.codes[path] = marshal.dumps(compile(text, path, "exec", dont_inherit=True))
            self._digests.append(blake2b(text, person=Path(path).name.encode()[-16:]).hexdigest())
        code: CodeType = marshal.loads(self.codes[path])  # noqa: S302 - it was compiled by our own kind
        return code

    def digest(self) -> str:
        """Changes with whatever was read."""
        return blake2b("".join(sorted(self._digests)).encode(), digest_size=4).hexdigest()


class Pinned:
    """A function of the user's whose worker processes run what was read here.

    It is that reward in everything but what a worker makes it from.
    """

    def __init__(self, reward: FunctionReward, sources: Sources) -> None:
        self._reward = reward
        self._sources = sources

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the reward has
        return getattr(self._reward, name)

    @property
    def spec(self) -> Pinned:
        """What a process makes it from: itself."""
        return self

    def __reduce__(self) -> tuple[Callable[..., FunctionReward], tuple[str | Carried, dict[str, bytes]]]:
        return _found_again, (self._reward.spec, self._sources.codes)


def _found_again(spec: str | Carried, codes: dict[str, bytes]) -> FunctionReward:
    """Find a function in a worker process, as the scoring process read it."""
    Sources(codes).rule()
    return again(spec)


def pinned(recipe: Recipe, sources: Sources) -> Recipe:
    """Pin the parts that run in worker processes.

    Raises
    ------
    RefusedError
        If one cannot be found there.
    """
    pin = partial(_pin, sources=sources)
    return replace(recipe, parts=tuple(part._replace(reward=pin(part.reward)) for part in recipe.parts))


def _pin(reward: Reward, sources: Sources) -> Reward:
    if not isinstance(reward, FunctionReward) or reward.how is not How.WORKER:
        return reward
    refuse_unreachable(reward)
    return cast("Reward", Pinned(reward, sources))
