"""A trainer's settings as its own file spells them, each value read as what it must be.

`trl_settings` and `verl_settings` know the names and what they mean; here a value of the wrong kind is
refused by its name, and a name that nobody knows finds its neighbours. Nothing here knows a trainer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from steelyard.errors import RefusedError
from steelyard.memory.plan import Plan

MOST: Final = 10**12
"""More than any run has of anything that is counted: what is above it is a slip of the keyboard."""


def shown(value: object, length: int = 80) -> str:
    r"""A value in an error: not all of a long one, and nothing that a terminal would act on.

    Examples
    --------
    >>> shown("a" * 100, 10), shown("\x1b[31m")
    ("'aaaaaa...", "'\\x1b[31m'")
    """
    seen = repr(value)
    return seen if len(seen) <= length else f"{seen[: length - 3]}..."


def spelled(name: object, length: int = 80) -> str:
    r"""A name in a sentence: as it stands, unless it is long or a terminal would act on it.

    Examples
    --------
    >>> spelled("optim"), spelled("\x1b[31m")
    ('optim', "'\\x1b[31m'")
    """
    text = str(name)
    return text if len(text) <= length and text.isprintable() else shown(text, length)


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
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self.refused(f"{name} is {shown(value)}", f"give a whole number, {least} or more")
        return value

    def maybe(self, name: str, *, least: int = 0) -> int | None:
        """A whole number, or None."""
        return None if self.get(name) is None else self.whole(name, least=least)

    def number(self, name: str) -> float:
        """A finite number; None and anything else is refused."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
            raise self.refused(f"{name} is {shown(value)}", "give a number")
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
            raise self.refused(f"{name} is {shown(value)}", "give true or false")
        return bool(value)

    def word(self, name: str) -> str | None:
        """A string, or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.refused(f"{name} is {shown(value)}", "give a word")
        return value

    def table(self, name: str) -> Mapping[str, object]:
        """A mapping; None is empty."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.refused(f"{name} is {shown(value)}", "give the mapping itself: what its file holds")
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
