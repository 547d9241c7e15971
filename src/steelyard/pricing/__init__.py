"""What a reward costs a training step: seconds, idle share, corrupted groups, dollars.

| name | what it is |
|---|---|
| `price_numbers` | a `Price` from numbers alone |
| `price_observed` | a `Price` of an `Observed`: calls, rollouts and steps, whatever file they came from |
| `Prices` | dollars per hour |

Names are loaded when they are first used: importing this costs nothing. `steelyard.priced.price_file` goes
from a file to a `Price`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.pricing.money import Prices as Prices
    from steelyard.pricing.numbers import price_numbers as price_numbers
    from steelyard.pricing.observed import Observed as Observed
    from steelyard.pricing.price import price_observed as price_observed
    from steelyard.pricing.values import Price as Price

_HOMES = {
    "Observed": "observed",
    "Price": "values",
    "Prices": "money",
    "price_numbers": "numbers",
    "price_observed": "price",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names above are strings


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'steelyard.pricing' has no attribute {name!r}")
    return getattr(import_module(f"steelyard.pricing.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
