"""A trainer's steps as generation, reward and training, in a ledger: what `steelyard price` reads.

A step goes from `on_step_begin` to `on_step_end`. What is neither generation nor waiting for rewards is
training: forward passes for log-probabilities, backward, the optimizer. Where generation serves several
steps, only the first has any. Evaluation, logging and saving stand between steps and are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from transformers import TrainerCallback

from steelyard.clock import Seconds
from steelyard.measure import Steps

GENERATION: Final = "generation"
REWARD: Final = "reward"
TRAINING: Final = "training"


class Phases(TrainerCallback):  # type: ignore[misc]  # its types are not read
    """Writes down what a trainer does.

    Parameters
    ----------
    steps
        Where to; `None` for nowhere.
    """

    def __init__(self, steps: Steps | None) -> None:
        self._steps = steps
        self._scope: Any = None
        self._since: Seconds = 0.0

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Something that is no training."""
        steps = self._steps
        if steps is None or self._scope is None:
            yield
            return
        began = steps.now()
        steps.span(TRAINING, self._since, began)
        try:
            yield
        finally:
            self._since = steps.now()
            steps.span(phase, began, self._since)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Open a step."""
        if self._steps is not None and self._scope is None:
            self._scope = self._steps.step(state.global_step)
            self._scope.__enter__()
            self._since = self._steps.now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Close it."""
        if self._steps is not None and self._scope is not None:
            self._steps.span(TRAINING, self._since, self._steps.now())
            scope, self._scope = self._scope, None
            scope.__exit__(None, None, None)

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Write down what there is."""
        if self._steps is not None:
            self._steps.flush()
