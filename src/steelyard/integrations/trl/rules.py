"""What a TRL trainer launders or loses, one rule for each.

A rule takes what there is to see (a trainer, or its arguments and reward functions) and says what goes wrong,
in numbers where it has them, and what to do. What the mixin sees to is not said under the mixin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from steelyard.advantages import SCHEMES
from steelyard.integrations.trl.rows import FROM_TRL
from steelyard.integrations.trl.scoring import Scoring
from steelyard.outcome import Takes
from steelyard.rewards import FunctionReward
from steelyard.rewards.carrying import inner, name_of
from steelyard.rollout import OF_THE_COMPLETION


class Finding(NamedTuple):
    """Something that a trainer would launder or lose.

    Parameters
    ----------
    name
        One word for it.
    says
        What happens.
    remedy
        What to do.
    """

    name: str
    says: str
    remedy: str


OWN_ARITHMETIC: Final = {
    "SDPO": "a completion that no function scored is summed as 0 (nansum) and votes in its group",
    "OnlineDPO": "a completion that no function scored is summed as 0 (nansum), and wins or loses its pair",
    "GFPO": "a completion that no function scored is summed as 0 (nansum) and votes in its group",
    "A2PO": "a None ends the run: it makes a tensor of what a function returns as it is",
    "AsyncGRPO": "of several functions a None is summed as 0 (nansum); it passes no log_extra and no "
    "log_metric, and scores in a thread, one group after another",
}
"""Experimental trainers with advantages of their own: their name, without `Trainer` or `Config`."""

SCHEME: Final = {"group": "grpo", "batch": "batch", "none": "dr_grpo"}
"""What TRL's `scale_rewards` is called here: it says how many votes a group needs."""

BY_TOKENS: Final = ("cispo", "dapo", "vespo")  # losses whose denominator is the batch's tokens
_VERIFIERS: Final = {"accuracy_reward", "reasoning_accuracy_reward", "cosine_scaled_reward"}
_ONE: Final = "reward_funcs=steelyard.integrations.trl.reward([...], weights=[...])"


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to see.

    Parameters
    ----------
    kind
        The trainer's name, without `Trainer`.
    args
        Its arguments.
    functions
        Its reward functions.
    columns
        Of the dataset, if it is there and names them.
    mixin
        Whether it is under `ScoringMixin`.
    has
        Whether the trainer has a feature.
    since
        The release of TRL that brought it.
    """

    kind: str
    args: Any
    functions: Sequence[Any]
    columns: Sequence[str] | None
    mixin: bool
    has: Callable[[str], bool]
    since: Callable[[str], str]

    def arg(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - whatever the argument is
        """Say what an argument is; the default, where it is `None` or this version has none of that name."""
        value = getattr(self.args, name, None)
        return default if value is None else value

    @property
    def ours(self) -> Scoring | None:
        """The reward function of ours, if it is among them."""
        return next((one for one in self.functions if isinstance(one, Scoring)), None)

    @property
    def foreign(self) -> list[Any]:
        """Functions of others: no models, and not what TRL makes of an environment."""
        return [
            one
            for one in self.functions
            if callable(one)
            and not isinstance(one, Scoring)
            and not hasattr(one, "forward")
            and not of_environments(one)
        ]

    @property
    def world(self) -> int:
        """How many ranks train."""
        return int(self.arg("world_size", 1))

    @property
    def scheme(self) -> str:
        """What is made of the rewards, by its name in `SCHEMES`."""
        scaled = self.arg("scale_rewards", "none")
        return SCHEME["group"] if scaled is True else SCHEME.get(scaled, SCHEME["none"])


def of_environments(function: Any) -> bool:  # noqa: ANN401
    """Whether it is what TRL makes of an environment's `get_reward`."""
    return str(getattr(function, "__module__", "")).startswith("trl.trainer")


def _names(functions: Sequence[Any]) -> str:
    return ", ".join(one if isinstance(one, str) else name_of(one) for one in functions)


# What is added up


def _unscorable(seen: Seen) -> Iterator[Finding]:
    if seen.kind not in OWN_ARITHMETIC and not seen.has("unscorable"):
        yield Finding(
            "unscorable",
            "this TRL trains a completion that no function scored as if its reward were 0",
            f"install trl>={seen.since('unscorable')}",
        )


def _several(seen: Seen) -> Iterator[Finding]:
    others = [one for one in seen.functions if not of_environments(one)]
    if len(seen.functions) < 2 or (seen.mixin and len(others) < 2):
        return
    gdpo = seen.arg("multi_objective_aggregation") == "normalize_then_sum"
    instead = "its group's mean" if gdpo else "0"
    says = (
        f"where one of {_names(seen.functions)} returns None, TRL adds up the others, as if it had returned "
    )
    if len(others) < len(seen.functions):
        remedy = f"put ScoringMixin before the trainer, and make one of the functions: {_ONE}"
        yield Finding("environment", says + instead, remedy)
    else:
        yield Finding("several", says + instead, f"make one of them: {_ONE}")


def _own_arithmetic(seen: Seen) -> Iterator[Finding]:
    if seen.kind in OWN_ARITHMETIC:
        remedy = "train with GRPO or RLOO where rewards can fail"
        if seen.kind == "AsyncGRPO":
            remedy = f"give it one function: {_ONE}, with a deadline_s below heartbeat_stale_after_s"
        yield Finding("own_arithmetic", f"{seen.kind}: {OWN_ARITHMETIC[seen.kind]}", remedy)


def _gdpo(seen: Seen) -> Iterator[Finding]:
    if seen.arg("multi_objective_aggregation") == "normalize_then_sum" and len(seen.functions) == 1:
        yield Finding(
            "gdpo",
            "of one reward function normalize_then_sum normalises the sum, by its group and then by the "
            "batch: that is not GDPO, which normalises each part",
            "take sum_then_normalize; the step of our own (steelyard.integrations.grpo) has GDPO",
        )


def _few_votes(seen: Seen) -> Iterator[Finding]:
    size = int(seen.arg("num_generations", 0))
    if size < 1 or seen.kind in OWN_ARITHMETIC:
        return
    least = SCHEMES[seen.scheme].minimum(size)
    if size - 1 < least:
        yield Finding(
            "few_votes",
            f"one failure leaves {size - 1} votes of {size} completions, and advantages need {least}: "
            "the group then trains nothing",
            f"raise num_generations to {_enough(seen.scheme)} or more",
        )


def _enough(scheme: str) -> int:
    return next(size for size in range(2, 100) if size - 1 >= SCHEMES[scheme].minimum(size))


def _token_window(seen: Seen) -> Iterator[Finding]:
    generated, steps = seen.arg("steps_per_generation"), seen.arg("gradient_accumulation_steps")
    if seen.arg("loss_type") not in BY_TOKENS or generated is None or steps is None or generated == steps:
        return
    if not seen.has("token_window"):
        yield Finding(
            "token_window",
            f"this TRL divides each step's loss by the tokens of {generated} micro-batches where it adds up "
            f"{steps}: the gradient is {steps / generated:.3g} of the right one",
            f"install trl>={seen.since('token_window')}, or let steps_per_generation be "
            "gradient_accumulation_steps",
        )


# What an unscored row still trains, and what a masked one does not


def _still_trained(seen: Seen) -> Iterator[Finding]:
    pulls = [name for name in ("beta", "entropy_coef", "use_adaptive_entropy") if seen.arg(name, 0)]
    if pulls and not seen.mixin and seen.arg("loss_type") is not None:
        yield Finding(
            "still_trained",
            f"the tokens of a completion that could not be judged are trained on by {', '.join(pulls)}: TRL "
            "sets its advantage to 0, not its loss",
            "use steelyard.integrations.trl.GRPOTrainer, or put ScoringMixin before yours",
        )


def _still_seen(seen: Seen) -> Iterator[Finding]:
    sees = {
        "router_aux_loss_coef": "the auxiliary loss of a mixture of experts is taken over all completions",
        "use_adaptive_entropy": "the entropy that is adapted to is that of all completions",
    }
    told = [says for name, says in sees.items() if seen.arg(name, 0)]
    if seen.arg("top_entropy_quantile", 1.0) not in {None, 1.0}:
        told.append("which tokens are in the top_entropy_quantile depends on all completions")
    if told and seen.mixin:
        yield Finding(
            "still_seen",
            f"{'; '.join(told)}: those that could not be judged, too",
            "leave it out where many are missing",
        )


def _truncated(seen: Seen) -> Iterator[Finding]:
    if seen.arg("mask_truncated_completions", default=False):
        yield Finding(
            "truncated",
            "a completion cut at max_completion_length votes in its group and trains nothing, which beats a "
            "wrong answer: a policy that is stuck learns to run on",
            "let a cut completion be judged as what it is (mask_truncated_completions=False)",
        )


def _liger(seen: Seen) -> Iterator[Finding]:
    if seen.arg("use_liger_kernel", seen.arg("use_liger_loss", default=False)):
        yield Finding(
            "liger",
            "Liger computes the loss in a kernel of its own: ScoringMixin refuses it, and without the mixin "
            "completions that could not be judged are trained on by beta",
            "switch use_liger_kernel off",
        )


# What a reward function of others may do


def _unguarded(seen: Seen) -> Iterator[Finding]:
    if seen.foreign:
        ranks = f", and {seen.world - 1} other ranks with it" if seen.world > 1 else ""
        yield Finding(
            "unguarded",
            f"{_names(seen.foreign)}: nothing ends one that hangs{ranks}, one that raises ends the run, and "
            "inf is trained on",
            _ONE,
        )
    if seen.foreign and seen.kind not in OWN_ARITHMETIC and not seen.has("length_check"):
        yield Finding(
            "length_check",
            f"{_names(seen.foreign)}: a list of one value is trained on as that of every completion",
            f"install trl>={seen.since('length_check')}, or {_ONE}",
        )


def _async_instances(seen: Seen) -> Iterator[Finding]:
    if seen.kind in OWN_ARITHMETIC or seen.has("async_instances"):
        return
    lost = [one for one in seen.foreign if not inspect.iscoroutinefunction(one) and _is_async(one)]
    if lost:
        yield Finding(
            "async_instances",
            f"{_names(lost)}: this TRL does not see that it must be awaited",
            f"write async def, install trl>={seen.since('async_instances')}, or {_ONE}",
        )


def _is_async(function: Any) -> bool:  # noqa: ANN401
    called = getattr(inner(function), "__call__", None)  # noqa: B004 - whether calling it is awaited
    return inspect.iscoroutinefunction(called)


def _log_union(seen: Seen) -> Iterator[Finding]:
    if seen.world == 1 or seen.kind in OWN_ARITHMETIC or seen.has("log_union"):
        return
    loggers = [one for one in seen.foreign if {"log_extra", "log_metric"} & _parameters(one)]
    if loggers:
        yield Finding(
            "log_union",
            f"{_names(loggers)}: if one rank logs a name that another does not, this TRL waits for ever",
            f"log the same names whatever happened, install trl>={seen.since('log_union')}, or {_ONE}",
        )


def _parameters(function: Any) -> set[str]:  # noqa: ANN401
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _functions(seen: Seen) -> list[Any]:
    """Functions of the user's: those given to TRL, and those given to us."""
    parts = [] if seen.ours is None else [part.reward for part in seen.ours.recipe.parts]
    return [*seen.foreign, *(one.function for one in parts if isinstance(one, FunctionReward))]


def _verifier_timeouts(seen: Seen) -> Iterator[Finding]:
    slow = [
        one
        for one in _functions(seen)
        if name_of(one) in _VERIFIERS and str(getattr(inner(one), "__module__", "")).startswith("trl.rewards")
    ]
    if slow:
        yield Finding(
            "verifier_timeouts",
            f"{_names(slow)}: TRL makes 0.0 of a check that took too long, be it for a busy machine",
            "the reward 'math' says which it was: reward('math')",
        )


def _kept_from_them(seen: Seen) -> Iterator[Finding]:
    parts = [] if seen.ours is None else [part.reward for part in seen.ours.recipe.parts]
    for part in parts:
        if not isinstance(part, FunctionReward):
            continue
        asked = _parameters(part.function)
        logs = sorted({"log_extra", "log_metric"} & asked)
        if logs:
            yield Finding(
                "logs",
                f"{part.name}: what it logs ({', '.join(logs)}) is lost, for it runs in another process",
                "read steelyard/part/ and the ledger instead",
            )
        if "trainer_state" in asked:
            yield Finding(
                "trainer_state",
                f"{part.name}: it runs in another process and is given no trainer_state; its default stays",
                "make what it decides by a column of the dataset, or weigh parts elsewhere",
            )


# Where it runs


def _deadline(seen: Seen) -> Iterator[Finding]:
    limit = None if seen.ours is None else seen.ours.settings.deadline_s
    gives_up = seen.arg("ddp_timeout")
    if limit is not None and gives_up is not None and seen.world > 1 and limit >= gives_up:
        yield Finding(
            "deadline",
            f"a batch may take {limit:g} s, and the other ranks give up after {gives_up:g} s",
            f"reward(..., deadline_s={gives_up / 2:g}), or a larger ddp_timeout",
        )


def _split_groups(seen: Seen) -> Iterator[Finding]:
    whole = [
        part.reward.name
        for part in (() if seen.ours is None else seen.ours.recipe.parts)
        if getattr(part.reward, "takes", None) is Takes.GROUP
    ]
    rows, size = seen.arg("per_device_train_batch_size", 0), seen.arg("num_generations", 0)
    rows *= seen.arg("steps_per_generation", 1)
    if whole and size and seen.world > 1 and rows % size:
        yield Finding(
            "split_groups",
            f"a rank generates {rows} completions, and groups have {size}: {', '.join(whole)} takes a whole "
            "group and would be given a part of one",
            "let per_device_train_batch_size * steps_per_generation be a multiple of num_generations",
        )


def _columns(seen: Seen) -> Iterator[Finding]:
    columns = set(seen.columns or ())
    for name in sorted(columns & {"prompts", "completions"}):
        yield Finding(
            "columns",
            f"the dataset's column {name!r} ends the run: TRL gives a reward function that name twice",
            f"dataset.rename_column({name!r}, ...)",
        )
    for name in sorted(columns & FROM_TRL):
        yield Finding(
            "columns",
            f"no reward function sees the dataset's column {name!r}: TRL gives its own under that name",
            f"dataset.rename_column({name!r}, ...)",
        )
    needed = () if seen.ours is None else seen.ours.recipe.needed
    absent = [name for name in needed if seen.columns and name not in columns | OF_THE_COMPLETION]
    if absent:
        yield Finding(
            "absent",
            f"the dataset has no column {absent[0]!r}, which the reward needs",
            f"dataset.rename_column(..., {absent[0]!r})",
        )
    if seen.arg("remove_unused_columns", default=False) and (needed or seen.foreign):
        yield Finding(
            "unused_columns",
            f"remove_unused_columns drops the columns that rewards read ({', '.join(needed) or 'all'})",
            "remove_unused_columns=False, which is TRL's own default",
        )


RULES: Final = (
    _unscorable, _own_arithmetic, _several, _gdpo, _few_votes, _token_window,
    _still_trained, _still_seen, _truncated, _liger,
    _unguarded, _async_instances, _log_union, _verifier_timeouts, _kept_from_them,
    _deadline, _split_groups, _columns,
)  # fmt: skip
