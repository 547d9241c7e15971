"""What a GRPO step is told, and what it tells: `Settings` and `Report` of `steelyard.integrations.grpo`.

Pure values: what cannot be is refused here, before a model is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import Final, Literal, TypeAlias

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.integrations.estimators import estimator

Barrier: TypeAlias = Literal["batch", "group", "arrival"]

_COUNTS: Final = ("group_size", "max_new_tokens", "groups_per_pass", "epochs")


@dataclass(frozen=True)
class Settings:
    """How a policy is trained.

    Parameters
    ----------
    estimator
        `grpo`, `dr_grpo`, `rloo`, `dapo` or `gdpo` (docs/losses.md).
    group_size
        Completions of each prompt.
    max_new_tokens, temperature
        Of a completion; how it is sampled, and the probability of its tokens counted.
    barrier
        What training waits for: `batch`, `group` or `arrival`.
    groups_per_pass
        Groups that go through the model together, under barrier `batch`.
    epochs
        Steps of the optimizer for one batch of completions, under barrier `batch`.
    beta
        Coefficient of KL to a reference model (the k3 estimate, Schulman 2020); 0 needs none.
    max_grad_norm
        Longer gradients are scaled down to this length; `None` leaves them. Positive.

    Raises
    ------
    RefusedError
        If these cannot be, or not together.
    """

    estimator: str = "grpo"
    group_size: int = 8
    max_new_tokens: int = 256
    temperature: float = 1.0
    barrier: Barrier = "batch"
    groups_per_pass: int = 1
    epochs: int = 1
    beta: float = 0.0
    max_grad_norm: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        means = estimator(self.estimator)
        if self.barrier not in ("batch", "group", "arrival"):
            raise refused("barrier", f"there is no {self.barrier!r}", "batch, group or arrival")
        self._refuse_values()
        least = means.scheme.minimum(self.group_size)
        if least > self.group_size:
            raise refused(
                "group_size",
                f"{means.name} needs {least} votes, a group has {self.group_size}",
                "larger groups",
            )
        if self.epochs > 1 and means.clip_low is None:
            raise refused("epochs", f"{means.name} has no clipped ratio, so a batch serves once", "epochs=1")
        if self.barrier == "batch":
            return
        if means.scheme.scope == "batch":
            raise refused(
                "barrier",
                f"{means.name} divides by a deviation of the whole batch's rewards",
                "barrier='batch'",
            )
        if self.epochs > 1 or self.groups_per_pass > 1:
            raise refused("barrier", "epochs and groups_per_pass need all groups", "barrier='batch'")

    def _refuse_values(self) -> None:
        for name in _COUNTS:
            if not _is(Integral, getattr(self, name)) or getattr(self, name) < 1:
                raise _strange(name, getattr(self, name), "a whole number, and positive")
        if not _is(Real, self.temperature) or not 0 < self.temperature < inf:
            raise _strange("temperature", self.temperature, "positive, and finite")
        if not _is(Real, self.beta) or not 0 <= self.beta < inf:
            raise _strange("beta", self.beta, "0 or more, and finite")
        limit = self.max_grad_norm
        if limit is not None and not (_is(Real, limit) and limit > 0):
            raise _strange("max_grad_norm", limit, "positive, or None for no limit")


@dataclass(frozen=True)
class Report:
    """What one step did.

    Parameters
    ----------
    step
        Its number.
    rows, tokens
        Completions that were sampled, and all their tokens.
    reward
        The mean of those that were scored; `None` if none was.
    unscored
        Rows that could not be judged.
    without_signal
        Groups that taught nothing, by why: `too_few_votes`, `no_spread`.
    updates
        Steps of the optimizer: 0 where nothing had a gradient.
    loss, kl, entropy
        Of the first epoch: the loss; KL to the reference and entropy of the policy, mean over the tokens that
        were trained on. `None` where there were none.
    grad_norm
        Of the first update, before it was scaled down; `None` where there was none.
    seconds
        By phase; with barrier `arrival` reward and training overlap.
    """

    step: int
    rows: int
    tokens: int
    reward: float | None
    unscored: int
    without_signal: Mapping[str, int]
    updates: int
    loss: float
    kl: float | None
    entropy: float | None
    grad_norm: float | None
    seconds: Mapping[str, Seconds]


def refused(where: str, reason: str, remedy: str) -> RefusedError:
    """What these modules say no with."""
    return RefusedError(reason, where=where, remedy=remedy)


def _strange(name: str, value: object, wanted: str) -> RefusedError:
    return refused(name, f"it must be {wanted}, is {value!r}", f"change {name}")


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
