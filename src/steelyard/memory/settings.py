"""A trainer's settings as its own file spells them, each value read as what it must be.

`trl_settings` and `verl_settings` know the names and what they mean; here a value of the wrong kind is
refused by its name, and a name that nobody knows finds its neighbours. Nothing here knows a trainer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from steelyard.errors import RefusedError
from steelyard.memory.plan import Plan


@dataclass(frozen=True, slots=True)
class Read:
    """A plan that was read, and what a reader of it should know.

    Attributes
    ----------
    plan
        What is to run.
    notes
        A sentence each: what the settings leave open and was assumed, what touches memory and is not
        modelled, what was set and has no effect.
    """

    plan: Plan
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by name over their defaults.

    Attributes
    ----------
    values
        As a file or a command gave them.
    defaults
        What the trainer takes where nothing is given.
    where
        How a refusal names them: `TRL settings`.
    """

    values: Mapping[str, object]
    defaults: Mapping[str, object]
    where: str

    def get(self, name: str) -> object:
        """Whatever it is: as given, else the default, else None."""
        return self.values.get(name, self.defaults.get(name))

    def whole(self, name: str, *, least: int = 0) -> int:
        """A whole number, at least `least`; None and anything else is refused."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.refused(f"{name} is {value!r}", f"give a whole number, {least} or more")
        return value

    def maybe(self, name: str, *, least: int = 0) -> int | None:
        """A whole number, or None."""
        return None if self.get(name) is None else self.whole(name, least=least)

    def number(self, name: str) -> float:
        """A number; None and anything else is refused."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(f"{name} is {value!r}", "give a number")
        return value

    def share(self, name: str) -> float:
        """A number above 0 and at most 1."""
        value = self.number(name)
        if not 0 < value <= 1:
            raise self.refused(f"{name} is {value!r}", "give a share of the card, above 0 and at most 1")
        return value

    def flag(self, name: str) -> bool:
        """True or false; None is false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refused(f"{name} is {value!r}", "give true or false")
        return bool(value)

    def word(self, name: str) -> str | None:
        """A string, or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.refused(f"{name} is {value!r}", "give a word")
        return value

    def table(self, name: str) -> Mapping[str, object]:
        """A mapping; None is empty."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.refused(f"{name} is {value!r}", "give the mapping itself: what its file holds")
        return value

    def refused(self, reason: str, remedy: str) -> RefusedError:
        """An error that names these settings, to be raised."""
        return RefusedError(reason, where=self.where, remedy=remedy)


def near(name: str, known: Collection[str]) -> str:
    """Names like this one, as a remedy.

    Examples
    --------
    >>> near("num_generation", ["num_generations", "seed"])
    'did you mean num_generations?'
    """
    names = get_close_matches(name, sorted(known), n=3)
    return f"did you mean {' or '.join(names)}?" if names else "remove it"
