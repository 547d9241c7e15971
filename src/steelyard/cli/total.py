"""What a rollout's total is made of, as far as the record and the scored file beside it can say.

The ledger holds what each part said, and the run's weights: the weighted sum is known from them. What
shapes, or a `combine` of the user's own, made of it stands in the scored file alone. A row of that file is
believed if it is this run's: written since the run began, with the parts' values and the advantage that
the ledger has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from steelyard.errors import RefusedError
from steelyard.files import read_once
from steelyard.ledger import Entered, Ledger, Run
from steelyard.outcome import Abstained, Part, Reward, Scored, Unscored, Verdict
from steelyard.rewards import weighted_sum
from steelyard.rollout import parse_json

_SLACK_S = 1.0  # a file system's clock may lag


class Total(NamedTuple):
    """What the parts of one rollout came to.

    Parameters
    ----------
    parts
        What each said.
    sum
        Their weighted sum; `None` if the run's weights were not written down.
    total
        What became of it; `None` if neither the ledger nor the scored file says.
    """

    parts: Mapping[str, Verdict]
    sum: Verdict | None
    total: Verdict | None


def totals(
    ledger: Ledger, run: Run, members: Sequence[Entered], said: Mapping[int, Mapping[str, Verdict]]
) -> dict[int, Total]:
    """Total rollouts of one group, by their ordinals.

    Parameters
    ----------
    ledger, run
        The record.
    members
        The rollouts.
    said
        What the parts said, by ordinal; rollouts that some part has not judged yet have no total.
    """
    weights = run.spec.get("weights")
    judged = [one for one in members if set(said[one.ordinal]) == set(run.parts)]
    sums = {} if weights is None else {one.ordinal: _summed(weights, said[one.ordinal]) for one in judged}
    bent = _bent(run)
    # no shape and no combine is asked about a sum that is missing
    known = {place: one for place, one in sums.items() if bent == [] or not isinstance(one, Scored)}
    if len(known) < len(judged):
        known = {**_written(ledger, run, judged, said), **known}
    return {
        one.ordinal: Total(said[one.ordinal], sums.get(one.ordinal), known.get(one.ordinal))
        for one in members
    }


def told(run: Run, made: Total) -> str:
    """Say in one line what a total is made of."""
    summed, total = made.sum, made.total
    if isinstance(summed, Unscored):
        missing = next(name for name, verdict in made.parts.items() if isinstance(verdict, Unscored))
        return f"missing: {missing} is unscored"
    if isinstance(summed, Abstained):
        return "none: every part abstained"
    if summed is None or run.spec.get("combine") == "own":
        why = "the record holds no weights" if summed is None else "by the recipe's combine"
        return f"{_number(total)} ({why})"
    weights, bent = run.spec["weights"], _bent(run)
    terms = " + ".join(
        f"{weights[name]:g}*{verdict.value:.4g}"
        for name, verdict in made.parts.items()
        if isinstance(verdict, Scored)
    )
    if bent == [] or (bent is None and total == summed):
        plain = list(weights.values()) == [1.0]
        return f"{summed.value:.4g}" + ("" if plain else f" = {terms}")
    if bent is None and total is None:
        return f"not in the record; the weighted sum is {summed.value:.4g} = {terms}"
    shapes = ", then ".join(bent or ["shapes"])
    return f"{_number(total)} = ({terms} = {summed.value:.4g}), then {shapes}{_changed(total, summed)}"


def _number(total: Verdict | None) -> str:
    """A total's value; where only a scored file has it, and none of this run is there, words for it."""
    return f"{total.value:.4g}" if isinstance(total, Scored) else "(only the scored file has it)"


def _changed(total: Verdict | None, summed: Scored) -> str:
    """Why a shape took something off, if it said so."""
    if not isinstance(total, Scored) or total.code == summed.code:
        return ""
    return f" ({total.code}: {total.reason})"


def _bent(run: Run) -> list[str] | None:
    """What comes after the sum, by name; `None` if the record does not say."""
    if run.spec.get("combine") == "own":
        return ["combine"]
    shapes = run.spec.get("shapes")
    return None if shapes is None else [str(identity).partition("/")[0] for identity in shapes]


def _summed(weights: Mapping[str, float], said: Mapping[str, Verdict]) -> Verdict:
    # a sum reads of a reward its name alone
    parts = [Part(cast("Reward", SimpleNamespace(name=name)), weights[name]) for name in said]
    return weighted_sum(parts, said)


def _written(
    ledger: Ledger, run: Run, members: Sequence[Entered], said: Mapping[int, Mapping[str, Verdict]]
) -> dict[int, Verdict]:
    """Totals from the scored file beside the ledger, by ordinal."""
    found: dict[int, Verdict] = {}
    advantages = [d.advantages for d in ledger.departed_group(run, members[0].group)] if members else []
    wanted = {one.ordinal: one for one in members}
    for ordinal, row in _rows(ledger, run, wanted):
        one, parts = wanted[ordinal], row.get("parts") or {}
        same = (
            str(row.get("id")) == str(one.id)
            and any(values[one.place] == row.get("advantage") for values in advantages)
            and all(
                _value(verdict) == (parts.get(name) or {}).get("value")
                for name, verdict in said[ordinal].items()
            )
        )
        if same and row.get("verdict") == "scored":
            words = (row.get(name) for name in ("code", "reason", "integrity"))
            found[ordinal] = Scored(float(row["value"]), *words)
    return found


def _value(verdict: Verdict) -> float | None:
    return verdict.value if isinstance(verdict, Scored) else None


def _rows(ledger: Ledger, run: Run, wanted: Mapping[int, object]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of the scored file, which stand in input order; none if there is no such file of this run."""
    path = ledger.path.with_suffix("")
    try:
        if ledger.path.suffix != ".ledger" or path.stat().st_mtime + _SLACK_S < run.began_unix:
            return
        for ordinal, line in enumerate(islice(read_once(str(path)), max(wanted, default=-1) + 1)):
            if ordinal in wanted:
                row = parse_json(line)
                if isinstance(row, dict):
                    yield ordinal, row
    except (OSError, ValueError, RefusedError):  # not there, or not what it was: nothing is known from it
        return
