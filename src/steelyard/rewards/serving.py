"""A reward in a worker process: made there once, asked there many times.

Only what the reward reads travels: for a function its arguments, for a rule of ours the text and its
columns. Back comes a number where a number was said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from steelyard.errors import RefusedError
from steelyard.outcome import NOTHING, Context, Reward, Room, Scored, Takes, as_judgement, as_judgements
from steelyard.rewards.carrying import Carried
from steelyard.rewards.own import again

_here = {"in_worker": False}  # whether this process is a worker: one must never start workers of its own


class Served(Reward, Protocol):
    """A reward that a worker process can run."""

    @property
    def spec(self) -> object:
        """What a process makes it from: picklable; of a user's function what `again` takes."""

    @property
    def room(self) -> Room | None:
        """What it may use, if it says so itself: such a process is confined, too."""

    def pack(self, given: Any, /) -> Any:  # noqa: ANN401 - whatever the reward reads
        """Take what is to be sent of a rollout, or of several."""

    def judge(self, packed: Any, context: Context, /) -> Any:  # noqa: ANN401 - what a reward returns
        """Judge what was packed."""


def serve(given: tuple[object, str]) -> Callable[[tuple[int, Any]], object]:
    """Make the function that a worker process runs.

    Parameters
    ----------
    given
        A reward's `spec`; and of a user's function the digest of its file, as the run read it.

    Raises
    ------
    RefusedError
        If the file holds something else by now: one run, one reward.

    Returns
    -------
    From (number of rollouts, what was packed of them) to a number or `Scored`; of several a list, with
    `None` for what was left out.
    """
    _here["in_worker"] = True
    spec, source = given
    made_here = isinstance(spec, str | Carried)
    reward: Any = again(spec) if isinstance(spec, str | Carried) else spec
    if made_here and reward.source != source:
        raise RefusedError(
            "its file was changed while the run is on, so this process would judge by other rules",
            where=f"reward {reward.name!r}",
            remedy="run again; to change a reward under a running trainer, let `steelyard serve` have it",
        )
    warm = getattr(reward, "warm", None)
    if warm is not None:
        warm()
    context = Context()

    def one(item: tuple[int, Any]) -> object:
        said = reward.judge(item[1], context)
        return said if type(said) is float else as_judgement(said)

    def many(item: tuple[int, Any]) -> object:
        said = reward.judge(item[1], context)
        if type(said) is list and len(said) == item[0] and set(map(type, said)) == {float}:
            return said  # what numbers they are, the parent looks at
        return [_light(one) for one in as_judgements(said, item[0])]

    return one if reward.takes is Takes.ROLLOUT else many


def _light(said: object) -> object:
    """What is quicker to send."""
    if type(said) is Scored and said.code is said.reason is said.integrity is None:
        return said.value
    return None if said is NOTHING else said


def refuse_in_worker(where: str) -> None:
    """Refuse to start a run in a worker process: a worker imports the script that holds the reward.

    Raises
    ------
    RefusedError
        If this process is a worker.
    """
    if _here["in_worker"]:
        raise RefusedError(
            "a run was started by importing its script, in a worker process",
            where=where,
            remedy='start it under if __name__ == "__main__": at the end of the script',
        )
