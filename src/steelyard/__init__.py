"""steelyard: rewards for GRPO / RLVR training.

Names are loaded when they are first used, so that `import steelyard` costs a training script nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.advantages import SCHEMES as SCHEMES
    from steelyard.clock import Clocks as Clocks
    from steelyard.errors import InfraError as InfraError
    from steelyard.errors import RefusedError as RefusedError
    from steelyard.errors import RunStoppedError as RunStoppedError
    from steelyard.errors import SteelyardError as SteelyardError
    from steelyard.errors import SuspectError as SuspectError
    from steelyard.errors import TooManyUnscoredError as TooManyUnscoredError
    from steelyard.ledger import Ledger as Ledger
    from steelyard.outcome import Abstained as Abstained
    from steelyard.outcome import Context as Context
    from steelyard.outcome import Part as Part
    from steelyard.outcome import Scored as Scored
    from steelyard.outcome import ScoredGroup as ScoredGroup
    from steelyard.outcome import Unscored as Unscored
    from steelyard.priced import price_file as price_file
    from steelyard.recording import record_steps as record_steps
    from steelyard.rewards import Recipe as Recipe
    from steelyard.rewards import builtin as builtin
    from steelyard.rewards import load_recipe as load_recipe
    from steelyard.rewards import reward as reward
    from steelyard.rollout import Group as Group
    from steelyard.rollout import Rollout as Rollout
    from steelyard.runtime import Runtime as Runtime
    from steelyard.scoring import Options as Options
    from steelyard.scoring import score_file as score_file

__version__ = "0.1.0"

_HOMES = {
    "SCHEMES": "advantages",
    "Abstained": "outcome",
    "Clocks": "clock",
    "Context": "outcome",
    "Group": "rollout",
    "InfraError": "errors",
    "Ledger": "ledger",
    "Options": "scoring",
    "Part": "outcome",
    "Recipe": "rewards",
    "RefusedError": "errors",
    "Rollout": "rollout",
    "RunStoppedError": "errors",
    "Runtime": "runtime",
    "Scored": "outcome",
    "ScoredGroup": "outcome",
    "SteelyardError": "errors",
    "SuspectError": "errors",
    "TooManyUnscoredError": "errors",
    "Unscored": "outcome",
    "builtin": "rewards",
    "load_recipe": "rewards",
    "price_file": "priced",
    "record_steps": "recording",
    "reward": "rewards",
    "score_file": "scoring",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the names above are strings


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    return getattr(import_module(f"steelyard.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
