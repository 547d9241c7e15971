"""Honest, cheating and sabotaging programs by the hundred, through the reward and the real boundary.

The hostile ones, and what the boundary makes of them all, are in test_conformance.py.
"""

import asyncio
from pathlib import Path

import pytest

from steelyard import Group, Part, Recipe, Rollout, Runtime, Scored, builtin
from steelyard.sandbox.bubblewrap import Bubblewrap
from steelyard.sandbox.conformance.cheating import CHEATING, ON_A_JUDGE
from steelyard.sandbox.conformance.honest import HONEST, PLAIN
from steelyard.sandbox.conformance.saboteurs import SABOTEURS
from steelyard.sandbox.conformance.specimen import MARK, PASS, SECRET, Specimen, under

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.timeout(240)]

FENCE = "```"
COMPLETIONS = [
    Specimen(name, completion, frozenset({PASS}))
    for name, completion in {
        "fenced in prose": f"My solution:\n\n{FENCE}python\n{PLAIN}{FENCE}\n\nIt gives `[]` for none.\n",
        "fenced without a language": f"{FENCE}\n{PLAIN}{FENCE}",
        "fenced, and never closed": f"Sure!\n\n{FENCE}py\n{PLAIN}",
        "thinking first": f"<think>\nSo:\n{FENCE}python\ndef squares(xs): ...\n{FENCE}\n</think>\n\n"
        f"{FENCE}python\n{PLAIN}{FENCE}\n",
    }.items()
]
"""Right, once the code is found in it: what a reward is given, and a boundary never."""

TOO_LONG = Specimen("a source of 4 MB", PLAIN + "#" * (4 << 20) + "\n", frozenset({"source"}))
QUICK_CPU_S = 0.5
"""For programs whose limit is not the point: what spins is cut sooner."""


def ends_of(groups, **settings):
    """How each rollout ended, by its id: `pass`, or a code."""

    async def score():
        boundary = Bubblewrap()
        try:
            runtime = Runtime(
                Recipe((Part(builtin("tests", boundary=boundary, **settings)),)), advantage="rloo", stop=False
            )
            async for scored in runtime.score(groups):
                for rollout, total in zip(scored.group.rollouts, scored.totals, strict=True):
                    ends[rollout.id] = (total.code or "pass") if isinstance(total, Scored) else repr(total)
        finally:
            await boundary.close()

    ends = {}
    asyncio.run(score())
    return ends


def alone(specimens):
    """Each specimen as a group of its own."""
    return [Group(one.name, at, [rollout_of(one, (at, 0), at)]) for at, one in enumerate(specimens)]


def rollout_of(specimen, key, ordinal):
    row = specimen.row("")
    columns = {name: row[name] for name in ("tests", "entry_point") if name in row}
    return Rollout(specimen.name, row["prompt"], specimen.completion, columns, key, ordinal, specimen.name)


def unexpected(specimens, ends):
    return {one.name: ends[one.name] for one in specimens if ends[one.name] not in one.comes}


def left_on_the_host():
    folders = ("/tmp", "/var/tmp", "/dev/shm", "/run", str(Path.home()))  # noqa: S108 - where they would be
    return [path for folder in folders for path in Path(folder).glob(f"*{MARK}*")]


def test_no_honest_program_fails():
    honest = [*HONEST, *COMPLETIONS]
    assert unexpected(honest, ends_of(alone(honest))) == {}


def test_a_source_that_is_too_long_is_not_run():
    assert ends_of(alone([TOO_LONG])) == {TOO_LONG.name: "source"}


@pytest.mark.slow
@pytest.mark.parametrize("specimens", [CHEATING, ON_A_JUDGE], ids=["call table", "judge"])
def test_no_cheat_passes(specimens, monkeypatch):
    monkeypatch.setenv(SECRET, "known to the host alone")
    assert unexpected(specimens, ends_of(alone(specimens), cpu_s=QUICK_CPU_S)) == {}
    assert left_on_the_host() == []


@pytest.mark.slow
def test_a_saboteur_among_seven_honest_siblings_changes_no_verdict():
    groups = []
    for suite in ("snippet", "free"):  # by call table, and before a judge
        for saboteur in under(SABOTEURS, suite):
            at, name = len(groups), f"{saboteur.name}, {suite}"
            rollouts = [
                rollout_of(
                    saboteur._replace(
                        name=f"{name}, {place}", completion=saboteur.completion if place == 3 else PLAIN
                    ),
                    (at, place),
                    at * 8 + place,
                )
                for place in range(8)
            ]
            groups.append(Group(name, at, rollouts))
    ends = ends_of(groups, cpu_s=QUICK_CPU_S, wall_s=10.0)
    honest = {name: end for name, end in ends.items() if not name.endswith(", 3")}
    assert len(honest) == 2 * 7 * len(SABOTEURS)
    assert {name: end for name, end in honest.items() if end != "pass"} == {}
