"""What `steelyard fit` answers of a plan on a card: whether it fits, what to beware of, how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steelyard.cli.fit_options import FitOptions
from steelyard.report.memory_words import FitReport, runs

if TYPE_CHECKING:
    from steelyard.memory.settings import Read
    from steelyard.memory.values import Card


class Answer(NamedTuple):
    """A report, and the values of it that JSON has by name.

    Parameters
    ----------
    report
        What is printed and drawn.
    decode, step
        Of `steelyard.cli.fit_speed.Speed`.
    verified
        What a real allocation said.
    """

    report: FitReport
    decode: list[dict[str, Any]]
    step: dict[str, Any] | None
    verified: dict[str, Any] | None

    @property
    def runs(self) -> bool:
        """It fits, if tightly, nothing stops it, and it is the model that was reckoned with."""
        if self.verified is not None and not self.verified["model"]["agrees"]:
            return False
        return runs(self.report)


def answered(
    read: Read,
    card: Card,
    given: FitOptions,
    *,
    price: float | None = None,
    checked: dict[str, Any] | None = None,
) -> Answer:
    """All that is to be said of a plan on a card.

    Parameters
    ----------
    read
        The plan, and how it was read.
    card
        Where it is to run.
    given
        The options.
    price
        Of the card, in dollars per hour.
    checked
        What a real allocation said.

    Raises
    ------
    RefusedError
        The plan cannot be reckoned.
    """
    from steelyard.cli.fit_speed import speed_of
    from steelyard.cli.fit_verify import section
    from steelyard.memory import fit
    from steelyard.memory.lints import lints

    found = fit.fit(read.plan, card)
    speed = speed_of(found, given, price)
    return Answer(
        FitReport(
            fit=found,
            lints=lints(read.plan, card=card, estimate=found.estimate, allocator=_allocator()),
            speed=speed.sections,
            checked=None if checked is None else section(checked),
            notes=read.notes,
            step_s=None if speed.step is None else speed.step["step_s"] or speed.step["busy_s"],
            dollars=None if speed.step is None else speed.step["dollars"],
        ),
        decode=speed.decode,
        step=speed.step,
        verified=checked,
    )


def _allocator() -> str | None:
    """What this environment says to torch's allocator; newer releases have the second name."""
    import os

    return os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF")
