"""A trainer's steps as generation, reward and training, in a ledger: what `steelyard price` reads.

A step goes from `on_step_begin` to `on_step_end`. What is neither generation nor waiting for rewards is
training: forward passes for log-probabilities, backward, the optimizer. Where generation serves several
steps, only the first has any. Evaluation, logging and saving stand between steps and are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    recorder
        Makes a recorder, one for each training: steps have the trainer's numbers, and a second training in a
        program does them again. `None` records nothing.
    """

    def __init__(self, recorder: Callable[[], Steps] | None) -> None:
        self._recorder = recorder
        self._steps: Steps | None = None
        self._scope: Any = None
        self._since: Seconds = 0.0
        self._seen: set[str] = set()

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
            self._seen.add(phase)
            steps.span(phase, began, self._since)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Begin a record; what an earlier training left open is recorded as cut."""
        if self._recorder is not None:
            if self._steps is not None:
                self._steps.close()
            self._steps, self._scope = self._recorder(), None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Open a step."""
        if self._steps is not None and self._scope is None:
            self._scope = self._steps.step(state.global_step)
            self._scope.__enter__()
            self._since = self._steps.now()
            self._seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Close it; what it did not do took no time."""
        if self._steps is not None and self._scope is not None:
            now = self._steps.now()
            self._steps.span(TRAINING, self._since, now)
            for phase in sorted({GENERATION, REWARD} - self._seen):
                self._steps.span(phase, now, now)
            scope, self._scope = self._scope, None
            scope.__exit__(None, None, None)

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401, ARG002
        """Write down what there is."""
        if self._steps is not None:
            self._steps.flush()
