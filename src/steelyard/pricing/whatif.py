"""What to change first: every remedy, computed on this run, in the order of what it saves here.

| remedy | saves | on what ground |
|---|---|---|
| `timeout`, `adaptive` | what calls take beyond a shorter limit | `remedies.limits` |
| `tail`, `hedge` | steps that no call keeps waiting until the limit | `remedies.tails` |
| `groups`, `batch` | waiting for groups that training could do without | `remedies.barriers` |
| `pool`, `workers` | spawning; queues | `remedies.places` |
| `unscored` | advantages, no seconds | `remedies.votes` |

Where calls wait for one another, in a loop over completions or in a pool with fewer places than calls, what
one call is spared is passed on to those behind it: such steps are served again (`remedies.ground`).

Savings do not add up: two remedies of one tail take the same seconds off. Nothing is recited: a remedy whose
ground was not measured is refused and says what to record, and one that saves nothing here says 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.clock import Seconds
from steelyard.errors import RefusedError
from steelyard.pricing.observed import Observed
from steelyard.pricing.remedies.barriers import double, groups, half
from steelyard.pricing.remedies.ground import Ground
from steelyard.pricing.remedies.limits import adaptive, timeout
from steelyard.pricing.remedies.places import pool, workers
from steelyard.pricing.remedies.tails import hedge, tail, tails
from steelyard.pricing.remedies.votes import unscored
from steelyard.pricing.values import Remedy


def remedies(
    observed: Observed,
    *,
    training_s: Seconds | None = None,
    generation_s: Seconds | None = None,
    dollars_per_hour: float | None = None,
    sandbox_dollars_per_hour: float | None = None,
    places: int | None = None,
) -> list[Remedy]:
    """Every remedy, the largest saving first; then those that save no seconds; then those refused.

    Parameters
    ----------
    observed
        The run.
    training_s, generation_s
        Busy seconds of a step, where the run did not measure them.
    dollars_per_hour, sandbox_dollars_per_hour
        What the accelerators cost, all together; what one sandbox does.
    places
        How many calls can be served at once, where the run does not show it.

    Raises
    ------
    RefusedError
        A number that cannot be.
    """
    told = {
        "training_s": training_s,
        "generation_s": generation_s,
        "dollars_per_hour": dollars_per_hour,
        "sandbox_dollars_per_hour": sandbox_dollars_per_hour,
    }
    for name, value in told.items():
        if value is not None and not 0 <= value < float("inf"):
            raise RefusedError(
                f"must be 0 or more, is {value}", where=name, remedy="leave it out if not known"
            )
    return remedies_on(Ground(observed, places=places, **told))


def remedies_on(ground: Ground, asked: Iterable[Remedy] = ()) -> list[Remedy]:
    """As `remedies`, on ground that is laid already, among others that were asked for; none of them twice."""
    found = [
        *asked,
        timeout(ground),
        adaptive(ground),
        *tails(ground),
        groups(ground),
        half(ground),
        double(ground),
        pool(ground),
        hedge(ground),
        workers(ground),
        unscored(ground),
    ]
    return sorted({(one.name, one.title): one for one in reversed(found)}.values(), key=_rank)


def lower_timeout(observed: Observed | Ground, timeout_s: Seconds) -> Remedy:
    """What another timeout saves, and which passing calls it cuts; refused, with bounds, if it is longer.

    Raises
    ------
    RefusedError
        A timeout that is no positive number.
    """
    if not 0 < timeout_s < float("inf"):
        raise RefusedError(f"must be above 0, is {timeout_s}", where="timeout_s", remedy="give seconds")
    return timeout(_ground(observed), timeout_s)


def shave_tail(observed: Observed | Ground, rate: float) -> Remedy:
    """What it saves to bring the rate of calls that are cut down to `rate`.

    Raises
    ------
    RefusedError
        A rate that is no share.
    """
    if not 0 <= rate <= 1:
        raise RefusedError(f"must be from 0 to 1, is {rate}", where="rate", remedy="give a share: 0.005")
    return tail(_ground(observed), rate)


def _ground(observed: Observed | Ground) -> Ground:
    return observed if isinstance(observed, Ground) else Ground(observed)


def _rank(remedy: Remedy) -> tuple[int, float]:
    if remedy.saves is not None:
        return 0, -remedy.saves.value
    return (2, 0.0) if remedy.refused else (1, 0.0)
