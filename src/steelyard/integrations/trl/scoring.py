"""One reward function for TRL's trainers, which owns the composition (L0).

TRL adds up what several reward functions return and takes a missing part for 0 (`nansum`), so a checker that
crashed beside a format that holds trains like a wrong answer. `reward` gives one function instead: a recipe
adds up the parts, a required part that is unscored makes the whole row `None`, and TRL (from 1.6 on)
leaves a row that no function scored out of its group.

It is synchronous. Every version dispatches that alike and in the thread that trains; asynchronous
functions TRL starts only when all synchronous ones have ended, does not recognise as instances before
1.14, and cannot cut. Scoring goes on in the `Scorer`'s own thread and processes in either case, under our
deadlines.

What it can tell goes into TRL's own log: per completion (`log_extra`, so that the completions' Parquet is
a source of prices) and per batch (`log_metric`). The names never depend on what happened: before 1.14
ranks that log different ones wait for each other for ever.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from steelyard.advantages import SCHEMES, dead
from steelyard.clock import Seconds, SystemClock
from steelyard.errors import RefusedError, RunStoppedError, describe
from steelyard.integrations.scorer import DEADLINE_S, Durability, Pending, Scorer
from steelyard.integrations.trl.recipes import Asked, recipe_of_asked
from steelyard.integrations.trl.rows import FROM_TRL, Rows
from steelyard.integrations.trl.told import failures, per_batch, per_row
from steelyard.outcome import Scored, ScoredGroup, Unscored
from steelyard.rewards import Recipe
from steelyard.rollout import Text
from steelyard.runtime import PLACES

_log = logging.getLogger("steelyard")


class Log(Protocol):
    """TRL's `log_extra` and `log_metric`."""

    def __call__(self, name: str, value: Any, /) -> None:  # noqa: ANN401 - values, or one
        """Log."""


def reward(
    recipe: Asked,
    *,
    weights: Sequence[float] | None = None,
    floors: Sequence[float | None] | None = None,
    name: str = "steelyard",
    boundary: str | None = None,
    advantage: str = "grpo",
    ledger: str | Path | None = None,
    durability: Durability = "full",
    timeout_s: Seconds | None = None,
    workers: int | None = None,
    places: int = PLACES,
    stop: bool = True,
    deadline_s: Seconds | None = None,
    group_size: int | None = None,
) -> Scoring:
    """Make one reward function for a TRL trainer: its `reward_funcs`.

    Parameters
    ----------
    recipe
        What to ask: a `Recipe`, the path of one (`recipe.toml`), rewards by name (`"gsm8k,format"`), a reward
        or function, or a list of reward functions as TRL takes it, of rewards and of names.
    weights, floors
        Of a list: one weight for each (TRL's `reward_weights`), and the lowest value each can return (0 if
        not said): what a completion gets on which the function fails.
    name
        What TRL's log calls it.
    boundary
        Where model-written code runs, for rewards by name that run any (`bubblewrap`, `runc`, ...).
    advantage
        What the trainer makes of the rewards: `grpo` (its `scale_rewards="group"`), `batch`, or `dr_grpo`
        (`"none"`). It says how many votes a group needs after a failure; with fewer, none of it votes.
    ledger
        Where to write it down: rank `r` from 1 on writes `NAME.rank{r}.SUFFIX`.
    durability, timeout_s, workers, places, stop
        As in `Scorer`.
    deadline_s
        Wall seconds that a batch may take; the run stops then. If not said, 900, and at most half of the
        time after which the process group gives up on a rank.
    group_size
        `num_generations`, for rewards that take a whole group where a prompt may follow itself.

    Raises
    ------
    RefusedError
        If a reward cannot be run here.

    Examples
    --------
    >>> from steelyard.integrations.trl import reward
    >>> with reward("gsm8k,format:think+answer") as scoring:
    ...     scoring(prompts=["6 * 3?"] * 2, completions=["#### 18", "#### 17"], answer=["18", "18"])
    [1.2, 0.2]
    """
    settings = Settings(
        name, advantage, ledger, durability, timeout_s, workers, places, stop, deadline_s, group_size
    )
    return Scoring(recipe_of_asked(recipe, weights, floors, boundary), settings)


@dataclass(frozen=True, slots=True)
class Settings:
    """What `reward` was told besides the recipe; its parameters say what each is."""

    name: str
    advantage: str
    ledger: str | Path | None
    durability: Durability
    timeout_s: Seconds | None
    workers: int | None
    places: int
    stop: bool
    deadline_s: Seconds | None
    group_size: int | None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.advantage not in SCHEMES:
            raise RefusedError(
                f"there is no scheme {self.advantage!r}",
                where="advantage",
                remedy=f"one of {', '.join(SCHEMES)}",
            )
        for what in ("timeout_s", "workers", "places", "deadline_s", "group_size"):
            number, seconds = getattr(self, what), what.endswith("_s")
            sound = isinstance(number, int | float if seconds else int) and 0 < number < float("inf")
            if number is not None and not sound:
                kind = "a positive number" if seconds else "a positive whole number"
                raise RefusedError(f"{number!r} is not {kind}", where=what, remedy=f"give {kind}")


class Begun:
    """One call's rows under way, and what they are."""

    def __init__(
        self,
        pending: Pending,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        advantage: str,
        group_size: int | None = None,
    ) -> None:
        self.pending = pending
        self.prompts = prompts
        self.completions = completions
        self.advantage = advantage
        """What the trainer makes of the rewards."""
        self.group_size = group_size
        """Of whole groups, where somebody sees the rest of those that another rank has a part of."""
        self.scored: Sequence[ScoredGroup] | None = None
        self.exposed_s = 0.0
        """Seconds that somebody waited for it."""

    def wait(self) -> Sequence[ScoredGroup]:
        """Wait until all is scored.

        Raises
        ------
        RunStoppedError
            As `Pending`.
        """
        if self.scored is None:
            clock = SystemClock()
            began = clock.now()
            try:
                self.scored = self.pending.result()
            finally:
                self.exposed_s += clock.now() - began
        return self.scored


class Scoring:
    """A reward function as TRL calls it. `reward` makes it.

    It starts its runtime at the first call, so that it can be pickled, and is sent to whichever process
    trains. Close it, or use it in a `with`, to end worker processes before the program ends.

    Attributes
    ----------
    recipe
        What is asked.
    settings
        How.
    """

    def __init__(self, recipe: Recipe, settings: Settings) -> None:
        self.__name__ = settings.name
        self.recipe = recipe
        self.settings = settings
        self._scorer: Scorer | None = None
        self._pid = 0
        self._rows: Rows | None = None
        self._begun: Begun | None = None
        self._run = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"recipe": self.recipe, "settings": self.settings}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        Scoring.__init__(self, state["recipe"], state["settings"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(RunStoppedError) if kind is not None else nullcontext():
            self.close()

    def close(self) -> None:
        """End worker processes, slots and the thread, and close the ledger; a later call starts anew."""
        scorer, self._scorer, self._begun = self._scorer, None, None
        if scorer is not None and self._pid == os.getpid():
            scorer.close()

    @property
    def ledger(self) -> Path | None:
        """Where this rank writes it down."""
        path, rank = self.settings.ledger, _rank()
        if path is None:
            return None
        path = Path(path)
        return path.with_name(f"{path.stem}.rank{rank}{path.suffix}") if rank else path

    @property
    def deadline_s(self) -> Seconds:
        """Wall seconds that a batch may take, here and now.

        Raises
        ------
        RefusedError
            If the process group gives up on a rank before.
        """
        gives_up_s, said_s = _gives_up_s(), self.settings.deadline_s
        if said_s is None:
            return min(DEADLINE_S, gives_up_s / 2)
        if said_s >= gives_up_s:
            raise RefusedError(
                f"a batch may take {said_s:g} s, and the process group gives up after {gives_up_s:g} s",
                where="deadline_s",
                remedy="lower it, or raise ddp_timeout in the trainer's arguments",
            )
        return said_s

    def begin(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Sequence[Any]],
        *,
        step: int | str | None,
        advantage: str | None = None,
        group_size: int | None = None,
    ) -> Begun:
        """Begin to score a batch, of which the next call with the same rows takes the outcome.

        Raises
        ------
        RefusedError
            As `Rows.groups` and `Scorer`.
        """
        self._drop()
        advantage = advantage or self.settings.advantage
        if self._scorer is None or self._pid != os.getpid() or self._scorer.ended:
            self._start(advantage)
        assert self._scorer is not None  # noqa: S101 - for the type
        assert self._rows is not None  # noqa: S101 - for the type
        groups = self._rows.groups(
            prompts, completions, ids, columns, step=step, group_size=group_size or self.settings.group_size
        )
        pending = self._scorer.submit(groups, step=step)
        self._begun = Begun(pending, prompts, completions, advantage, group_size)
        return self._begun

    def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        completion_ids: Sequence[Sequence[int]] | None = None,
        *,
        trainer_state: Any = None,  # noqa: ANN401 - TRL's
        log_extra: Log | None = None,
        log_metric: Log | None = None,
        **columns: Sequence[Any],
    ) -> list[float | None]:
        """Score a batch: a number for each completion, or `None` for one that does not vote.

        Raises
        ------
        TooManyUnscoredError, RunStoppedError, RefusedError
            What stops the run; with the reason, and the next step.
        """
        batch = self._begun
        if batch is None or batch.completions != completions or batch.prompts != prompts:
            step = getattr(trainer_state, "global_step", None)
            of_dataset = {name: values for name, values in columns.items() if name not in FROM_TRL}
            batch = self.begin(prompts, completions, completion_ids, of_dataset, step=step)
        try:
            scored = self.wait(batch)
        finally:
            self._begun = None
        if (said := failures(scored)) is not None:
            _log.warning("steelyard: %s: %s", scored[0].group.rollouts[0].where, said)
        if log_extra is not None:
            for word, values in per_row(scored, self.recipe, run=self._run).items():
                log_extra(word, values)
        if log_metric is not None:
            for word, value in per_batch(scored, self.recipe, exposed_s=batch.exposed_s).items():
                log_metric(word, value)
        return [value for one in scored for value in _numbers(one, batch.advantage, batch.group_size)]

    def wait(self, begun: Begun) -> Sequence[ScoredGroup]:
        """Wait until all is scored.

        Raises
        ------
        TooManyUnscoredError, RunStoppedError
            As `Pending`. A later batch begins a run of its own.
        """
        try:
            return begun.wait()
        except RunStoppedError:
            self.close()
            raise
        except BaseException:
            begun.pending.cancel()
            raise

    def _drop(self) -> None:
        batch, self._begun = self._begun, None
        if batch is not None and batch.scored is None:
            batch.pending.cancel()

    def _start(self, advantage: str) -> None:
        told, ledger = self.settings, self.ledger
        self._scorer = Scorer(
            self.recipe,
            ledger=ledger,
            name=told.name,
            durability=told.durability,
            advantage=advantage,
            timeout_s=told.timeout_s,
            workers=told.workers,
            places=told.places,
            stop=told.stop,
            deadline_s=self.deadline_s,
        )
        self._pid = os.getpid()
        self._run = f"{_rank()}.{SystemClock().unix():.3f}"
        self._rows = Rows(self.recipe, rank=_rank(), recorded=ledger is not None)


def _numbers(scored: ScoredGroup, scheme: str, size: int | None) -> list[float | None]:
    """What TRL is told of a group: nothing, where a failure left too few votes for its arithmetic.

    Of a part of a group that cannot be said; whoever knows the `size` of groups sees all parts.
    """
    totals = scored.totals
    values = [total.value if type(total) is Scored else None for total in totals]
    if None not in values:
        return values
    failed = any(isinstance(total, Unscored) for total in totals) and len(totals) >= (size or 0)
    votes = sum(isinstance(total, Scored) for total in totals)
    if failed and (dead(totals) or votes < SCHEMES[scheme].minimum(len(totals))):
        return [None] * len(totals)
    return values


def _rank() -> int:
    return int(os.environ.get("RANK") or 0)


def _gives_up_s() -> Seconds:
    """After how many seconds the process group of this process gives up; no end if there is none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return float("inf")
    if torch.distributed.get_world_size() == 1:
        return float("inf")
    try:
        group = torch.distributed.distributed_c10d._get_default_group()  # noqa: SLF001 - no other door
        backend = group._get_backend(group._device_types[0])  # noqa: SLF001
        seconds: float = backend.options._timeout.total_seconds()  # noqa: SLF001
    except (AttributeError, IndexError, RuntimeError) as error:  # another PyTorch keeps it elsewhere
        _log.warning(
            "steelyard: after how long the process group gives up on a rank cannot be found out (%s); "
            "deadline_s must be shorter than ddp_timeout",
            describe(error),
        )
        return float("inf")
    return seconds
