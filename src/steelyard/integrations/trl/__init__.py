"""Rewards for TRL's trainers, 1.6 and later; `docs/trl.md` is the user's page.

| name | is |
|---|---|
| `reward` | one reward function that owns the composition (L0): `scoring.py`, `rows.py`, `told.py` |
| `ScoringMixin`, `GRPOTrainer` | an unscored row trains nothing (L1): `mixin.py`, `phases.py` |
| `lint` | what the installed trainer would launder: `laundering.py` |
| `python -m steelyard.integrations.trl` | the same, shown on the trainer itself: `probe.py` |

torch and trl are imported when a trainer is asked for, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.integrations.trl.laundering import lint as lint
    from steelyard.integrations.trl.mixin import GRPOTrainer as GRPOTrainer
    from steelyard.integrations.trl.mixin import ScoringMixin as ScoringMixin
    from steelyard.integrations.trl.scoring import Scoring as Scoring
    from steelyard.integrations.trl.scoring import reward as reward

_HOMES = {
    "GRPOTrainer": "mixin",
    "Scoring": "scoring",
    "ScoringMixin": "mixin",
    "lint": "laundering",
    "reward": "scoring",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - names of what __getattr__ loads


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
