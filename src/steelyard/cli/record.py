"""What a ledger holds, looked up for whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from steelyard.errors import RefusedError
from steelyard.ledger import Entered, Ledger, Run
from steelyard.outcome import Abstained, Scored, Verdict
from steelyard.rollout import follow, parse_json, paths_among
from steelyard.scoring import ledger_of


def opened(path: Path) -> Ledger:
    """Open a ledger for reading; the scored file beside it will do."""
    beside = ledger_of(path) if path.name else path
    return Ledger(beside if path.suffix != ".ledger" and beside.exists() else path, write=False)


def runs_of(ledger: Ledger) -> list[Run]:
    """The runs of a ledger, the last one last.

    Raises
    ------
    RefusedError
        If there is none.
    """
    found = ledger.runs()
    if not found:
        raise RefusedError("the ledger holds no run", where=str(ledger.path), remedy="score a file first")
    return found


def find(ledger: Ledger, run: Run, name: str) -> Entered:
    """The row of that id, or the first one of the group of that name.

    Raises
    ------
    RefusedError
        If there is neither.
    """
    found = ledger.find(run, name) or member(ledger, run, name)
    if found is None:
        some = ", ".join(str(head[3]) for head, _ in zip(ledger.heads(run), range(5), strict=False))
        raise RefusedError(
            f"there is no row or group {name!r}",
            where=str(ledger.path),
            remedy=f"ids are such as {some}; a group is named by its column or by its first row",
        )
    return found


def member(ledger: Ledger, run: Run, name: str) -> Entered | None:
    """The first row of the group that a `group` column names."""
    firsts = (one for one in ledger.entered(run) if one.place == 0)
    return next((one for one in firsts if _group_name(run, one) == name), None)


def group_name(ledger: Ledger, run: Run, one: Entered) -> str | int:
    """The name of a rollout's group: what its `group` column says, or the id of its first row."""
    named = _group_name(run, one)
    return next(iter(ledger.entered(run, group=one.group))).id if named is None else named


def _group_name(run: Run, one: Entered) -> str | None:
    record = parse_json(one.content)
    field = run.spec.get("columns", {}).get("group", "group")
    follow(record, paths_among([field]))
    value = record.get(field)
    return None if value is None else str(value)


def verdicts_of(ledger: Ledger, run: Run, members: list[Entered]) -> Mapping[int, dict[str, Verdict]]:
    """What each part said of some rollouts, by their ordinals."""
    names = {place: name for name, place in run.parts.items()}
    said: dict[int, dict[str, Verdict]] = {one.ordinal: {} for one in members}
    for (ordinal, part), (verdict, _) in sorted(ledger.recorded(run, list(said)).items()):
        said[ordinal][names[part]] = verdict
    return said


def word(verdict: Verdict) -> str:
    """What kind of verdict it is."""
    return type(verdict).__name__.lower()


def told(verdict: Verdict) -> tuple[str, str, str]:
    """Its value, code and reason, as far as it has them."""
    if isinstance(verdict, Scored):
        return f"{verdict.value:.4g}", verdict.code or "", verdict.reason or ""
    if isinstance(verdict, Abstained):
        return "", "", verdict.reason
    return "", "", f"{verdict.boundary}: {verdict.cause}"
