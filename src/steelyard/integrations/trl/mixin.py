"""A TRL trainer under which a row that could not be judged trains nothing (L1).

TRL leaves a row that no function scored out of its group and gives it advantage 0, but its tokens still
pull: towards the reference model (`beta`), towards more entropy (`entropy_coef`). Here they do not. In the
forward of the loss the log-probabilities and entropies of such rows are cut off from the graph (`detach`),
so their gradient is zero, whatever the loss makes of them: nothing of TRL is copied, no attention mask
changes, and every denominator stays that of the full batch. That is what makes the gradient the same
however late a verdict comes, and for every type of loss; with `denominator="voting"` those that count the
batch's tokens (dapo, cispo, vespo) count those of voting rows only.

What votes is agreed on by all ranks, for TRL gathers the rewards of all before it normalises. If a failure
leaves a group too few votes for the arithmetic that follows, the whole group trains nothing. What stops
one rank's scoring stops all with that rank's reason, before any waits for another in a collective operation.

Scoring is submitted as soon as completions exist and joined when TRL asks for rewards: it overlaps the
forward passes between the two, and changes no gradient.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import torch
import trl
from accelerate.utils import gather_object

from steelyard.advantages import SCHEMES
from steelyard.errors import RefusedError, RunStoppedError, describe
from steelyard.integrations.trl.laundering import lint
from steelyard.integrations.trl.phases import GENERATION, REWARD, Phases
from steelyard.integrations.trl.rules import BY_TOKENS, SCHEME, of_environments
from steelyard.integrations.trl.scoring import Begun, Scoring
from steelyard.measure.which import EVALUATION
from steelyard.recording import record_steps

if TYPE_CHECKING:
    _Trainer: TypeAlias = Any
else:
    _Trainer = object

UNSCORED: Final = "steelyard_unscored"
"""Among a batch's tensors: which rows train nothing, shape `(B,)`."""

_log = logging.getLogger("steelyard")
_TELLER: Final = logging.getLogger("trl.trainer.grpo_trainer")


class ScoringMixin(_Trainer):  # type: ignore[misc]  # whatever trainer it is put before
    """Put before TRL's `GRPOTrainer`, or one derived from it: `class Mine(ScoringMixin, trl.GRPOTrainer)`.

    Its `reward_funcs` is one `reward(...)`; an environment's own `get_reward` may stand beside it.

    Parameters
    ----------
    *args, **kwargs
        As the trainer has them.
    denominator
        `full`: that of the whole batch, as if every row had been judged. `voting`: without the tokens of rows
        that train nothing (dapo, cispo, vespo).

    Raises
    ------
    RefusedError
        If the rewards are not ours, the loss is computed elsewhere (Liger), or has no such denominator.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - TRL's
        denominator: Literal["full", "voting"] = "full",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if not isinstance(self, trl.GRPOTrainer):
            raise RefusedError(
                f"{type(self).__name__} is no GRPOTrainer",
                where="ScoringMixin",
                remedy="use reward(...) with it as it is: in RLOOTrainer KL is part of the reward, so a row "
                "without one trains nothing there",
            )
        _refuse_rewards(_argument("reward_funcs", args, kwargs))
        super().__init__(*args, **kwargs)
        self._scoring, self._column = _ours(self.reward_funcs)
        self._scheme = _scheme(self.scale_rewards)
        self._denominator = denominator
        self._trained = False
        self._batch: list[dict[str, Any]] = []
        self._begun: Begun | Exception | None = None
        self._void: torch.Tensor | None = None
        self._rows: torch.Tensor | None = None
        self._refuse()
        for found in lint(self):
            _log.warning("steelyard: %s: %s; %s", found.name, found.says, found.remedy)
        path = self._scoring.ledger
        lane = f"rank {self.accelerator.process_index}"
        self._phases = Phases(None if path is None else partial(record_steps, path, lane=lane))
        self.add_callback(self._phases)

    def _refuse(self) -> None:
        loss = getattr(self, "loss_type", None)
        if self._denominator not in {"full", "voting"} or (
            self._denominator == "voting" and loss not in BY_TOKENS
        ):
            raise RefusedError(
                f"{self._denominator!r} is no denominator of the loss {loss!r}",
                where="denominator",
                remedy=f"'full'; or 'voting' with one of {', '.join(BY_TOKENS)}, which count tokens",
            )
        if getattr(self, "use_liger_kernel", False) or getattr(self, "use_liger_loss", False):
            raise RefusedError(
                "Liger computes the loss in a kernel of its own, which knows of no unscored row",
                where="use_liger_kernel",
                remedy="switch it off, or use reward(...) with TRL's own trainer",
            )
        gives_up_s, limit_s = self.args.ddp_timeout, self._scoring.deadline_s
        if self.accelerator.num_processes > 1 and limit_s >= gives_up_s:
            raise RefusedError(
                f"a batch may take {limit_s:g} s, and the other ranks give up after {gives_up_s} s",
                where="deadline_s",
                remedy=f"reward(..., deadline_s={gives_up_s / 2:g}), or a larger ddp_timeout",
            )

    def train(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - TRL's
        """Train; a second training is another run of the ledger, for its steps have the same numbers."""
        if self._trained:
            self._scoring.close()
        self._trained = True
        return super().train(*args, **kwargs)

    # Scoring begins when completions exist

    def _generate(self, prompts: list[Any]) -> Any:  # noqa: ANN401 - TRL's tuple, of a length that varies
        with self._phases.during(GENERATION):
            generated = super()._generate(prompts)
        if getattr(self, "rollout_func", None) is None:  # else rows get more columns afterwards
            self._begun = self._begin(prompts, generated[3], generated[1])
        return generated

    def _begin(self, prompts: list[Any], completions: list[Any], ids: list[Any]) -> Begun | Exception:
        try:
            names = [name for name in self._batch[0] if name not in _NO_COLUMNS]
            columns = {name: [row[name] for row in self._batch] for name in names}
            return self._scoring.begin(
                prompts,
                completions,
                ids,
                columns,
                step=self._now,
                advantage=self._scheme,
                group_size=self._group_size,
            )
        except Exception as error:  # noqa: BLE001 - told when all ranks are together
            return error

    @property
    def _now(self) -> int | str:
        step: int = self.state.global_step
        return step if self.model.training else f"{EVALUATION} at step {step}"

    @property
    def _group_size(self) -> int:
        size: int = self.num_generations if self.model.training else self.num_generations_eval
        return size

    # ... and is joined when TRL asks for rewards

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[Any],
    ) -> torch.Tensor:
        begun, self._begun = self._begun, None
        with self._phases.during(REWARD):
            if begun is None:
                begun = self._begin(prompts, completions, completion_ids_list)
            self._agree(self._failure(begun))
            with _quiet():
                rewards: torch.Tensor = super()._calculate_rewards(
                    inputs, prompts, completions, completion_ids_list
                )
        self._void = void = with_groups(self._lost(rewards), self._group_size, self._scheme)
        rewards[void] = torch.nan  # of a sum that lacks a part, nothing may be left
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["steelyard/untrained"].append(float(void.float().mean()))
        return rewards

    def _failure(self, begun: Begun | Exception) -> Exception | None:
        if isinstance(begun, Exception):
            return begun
        try:
            self._scoring.wait(begun)
        except Exception as error:  # noqa: BLE001 - told when all ranks are together
            return error
        return None

    def _lost(self, rewards: torch.Tensor) -> torch.Tensor:
        """Which rows have no sum: ours is missing, or that of the environment that they ran in."""
        lost = rewards[:, self._column].isnan()
        others = [column for column in range(rewards.shape[1]) if column != self._column]
        if others:
            environments = getattr(self, "environments", None) or []
            asked = [hasattr(one, "get_reward") for one in environments] or [True] * len(self._batch)
            owned = self.accelerator.gather(torch.tensor(asked, device=rewards.device))
            lost = lost | (owned & rewards[:, others].isnan().all(dim=1))
        return lost

    def _agree(self, failure: Exception | None) -> None:
        """Go on together, or not at all."""
        if self.accelerator.num_processes == 1:
            if failure is not None:
                raise failure
            return
        said = gather_object([None if failure is None else describe(failure)])
        if failure is not None:
            raise failure
        for rank, reason in enumerate(said):
            if reason is not None:
                raise RunStoppedError(f"rank {rank} stopped: {reason}")

    # What could not be judged trains nothing

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._batch = inputs
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rank, count = self.accelerator.process_index, len(inputs)
        assert self._void is not None  # noqa: S101 - rewards were calculated
        void, self._void = self._void[rank * count : (rank + 1) * count], None
        output[UNSCORED] = void
        if self._denominator == "voting":
            mask = output["completion_mask"] * output.get("tool_mask", 1) * ~void.unsqueeze(1)
            output["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum().clamp(min=1)
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:  # noqa: ANN401
        self._rows = inputs.get(UNSCORED)
        try:
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        finally:
            self._rows = None
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        found: tuple[Any, ...] = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._rows is None:
            return found
        rows = self._rows.unsqueeze(1)
        logps, entropies, *more = found
        return (_cut(logps, rows), entropies if entropies is None else _cut(entropies, rows), *more)


class GRPOTrainer(ScoringMixin, trl.GRPOTrainer):  # type: ignore[misc]  # trl's types are not read
    """TRL's `GRPOTrainer` under which a row that could not be judged trains nothing."""


_NO_COLUMNS: Final = frozenset({"prompt", "completion", "completion_ids"})


def with_groups(void: torch.Tensor, size: int, scheme: str) -> torch.Tensor:
    """Which rows do not vote, if those of groups that are left with too few votes do not either.

    Parameters
    ----------
    void
        Which rows could not be judged, shape `(N,)`, groups of `size` one after another.
    size
        Completions of a prompt.
    scheme
        The arithmetic that follows, by its name in `SCHEMES`.

    Returns
    -------
    torch.Tensor
        Shape `(N,)`.
    """
    groups = void.view(-1, size)
    lost = groups.sum(dim=1)
    dead = (lost > 0) & ((size - lost < SCHEMES[scheme].minimum(size)) | (2 * lost > size))
    return (groups | dead.unsqueeze(1)).view(-1)


def _cut(of: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The same numbers; no gradient goes through those rows."""
    return torch.where(rows, of.detach(), of)


def _argument(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - TRL's
    """What TRL's trainer is given by that name; nothing if it is not."""
    try:
        given = inspect.signature(trl.GRPOTrainer.__init__).bind_partial(None, *args, **kwargs)
    except TypeError:
        return None  # TRL says what is wrong
    return given.arguments.get(name)


def _refuse_rewards(given: Any) -> None:  # noqa: ANN401 - TRL's
    """Refuse before a model is loaded what would be added up."""
    if given is not None:
        _ours(given if isinstance(given, list) else [given])


def _ours(functions: list[Any]) -> tuple[Scoring, int]:
    """The one reward function of ours, and the number of its column."""
    ours = [(one, column) for column, one in enumerate(functions) if isinstance(one, Scoring)]
    others = [one for one in functions if not isinstance(one, Scoring) and not of_environments(one)]
    if len(ours) != 1 or others:
        names = ", ".join(getattr(one, "__name__", type(one).__name__) for one in functions)
        several = "TRL would add up what several functions return, and take a missing part for 0"
        raise RefusedError(
            f"{several if len(functions) > 1 else 'it is not made by reward(...)'}: {names}",
            where="reward_funcs",
            remedy="reward_funcs=steelyard.integrations.trl.reward([...], weights=[...])",
        )
    return ours[0]


def _scheme(scale_rewards: Any) -> str:  # noqa: ANN401 - TRL's
    scheme = SCHEME.get(scale_rewards)
    if scheme is None:
        raise RefusedError(
            f"{scale_rewards!r} is none that is known here: how many votes a group then needs cannot be said",
            where="scale_rewards",
            remedy=f"one of {', '.join(SCHEME)}",
        )
    return scheme


class _Quiet(logging.Filter):
    """TRL prints all columns of a row that was not scored, its solution, too; `reward` says what failed."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "All reward functions returned None" not in str(record.msg)  # "[RANK 0]" may stand before it


@contextmanager
def _quiet() -> Iterator[None]:
    quiet = _Quiet()
    _TELLER.addFilter(quiet)
    try:
        yield
    finally:
        _TELLER.removeFilter(quiet)
