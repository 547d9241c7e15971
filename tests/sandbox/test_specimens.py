"""Honest, hostile and cheating programs by the hundred, through the reward and the real boundary."""

import asyncio
from pathlib import Path

import pytest
from programs.cheating import CHEATING, ON_A_JUDGE
from programs.honest import HONEST
from programs.hostile import HOSTILE, SLOW
from programs.saboteurs import SABOTEURS
from programs.specimen import MARK, SECRET, SUITES, under

from steelyard import Group, Part, Recipe, Rollout, Runtime, Scored, builtin
from steelyard.sandbox.bubblewrap import Bubblewrap

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.timeout(240)]

RIGHT = "def squares(xs):\n    return [x * x for x in xs]\n"
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
    assert unexpected(HONEST, ends_of(alone(HONEST))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("specimens", [CHEATING, ON_A_JUDGE], ids=["call table", "judge"])
def test_no_cheat_passes(specimens, monkeypatch):
    monkeypatch.setenv(SECRET, "known to the host alone")
    assert unexpected(specimens, ends_of(alone(specimens), cpu_s=QUICK_CPU_S)) == {}
    assert left_on_the_host() == []


@pytest.mark.slow
@pytest.mark.needs("cgroup")
@pytest.mark.parametrize("quick", [True, False], ids=["spinning", "other"])
def test_what_is_hostile_is_contained_and_its_code_names_the_limit(quick, monkeypatch):
    monkeypatch.setenv(SECRET, "known to the host alone")
    some = [one for one in HOSTILE if one.name not in SLOW and ("cpu" in one.comes) is quick]
    assert unexpected(some, ends_of(alone(some), cpu_s=QUICK_CPU_S if quick else 10.0)) == {}
    assert left_on_the_host() == []


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["snippet", "free"], ids=["call table", "judge"])
def test_a_saboteur_among_seven_honest_siblings_changes_no_verdict(suite):
    groups = []
    for at, saboteur in enumerate(under(SABOTEURS, suite)):
        rollouts = [
            rollout_of(
                saboteur._replace(
                    name=f"{saboteur.name}, {place}", completion=saboteur.completion if place == 3 else RIGHT
                ),
                (at, place),
                at * 8 + place,
            )
            for place in range(8)
        ]
        groups.append(Group(saboteur.name, at, rollouts))
    ends = ends_of(groups, cpu_s=QUICK_CPU_S)
    honest = {name: end for name, end in ends.items() if not name.endswith(", 3")}
    assert len(honest) == 7 * len(SABOTEURS)
    assert {name: end for name, end in honest.items() if end != "pass"} == {}
    assert SUITES[suite].tests
