"""`steelyard doctor` says what holds, what it covers, and the command that mends what does not."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from steelyard.cli import doctor
from steelyard.errors import RefusedError, SandboxError
from steelyard.sandbox.cgroups import Places
from steelyard.sandbox.machine import Fact, Machine

SOUND = Machine((Fact("user namespaces", "granted", ok=True),), None, Places("v2", {}), ())
MENDABLE = "sysctl -w kernel.unprivileged_userns_clone=1"
BROKEN = Machine(
    (
        Fact("user namespaces", "refused", ok=False, remedy=MENDABLE),
        Fact("cgroups", "none", None, "systemd-run --user --scope"),
        Fact("podman", "not installed"),
    ),
    None,
    Places("none", reason="no controllers", remedy="systemd-run --user --scope"),
    (),
)


class Boundary:
    """Attests by saying, raising or hanging."""

    name = "bubblewrap"

    def __init__(self, answer: Mapping[str, str] | Exception | None) -> None:
        self.answer = answer
        self.closed = False

    async def attest(self) -> Mapping[str, str]:
        if self.answer is None:
            await asyncio.sleep(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or {}

    async def close(self) -> None:
        self.closed = True


HOLDS = {"uid": "1000", "network": "none"}
REFUSED = RefusedError("no user namespace", where="boundary bubblewrap", remedy="steelyard doctor says more")


def ask(monkeypatch, capsys, machine: Machine, *answers: object, as_json: bool = True):
    monkeypatch.setattr(doctor, "survey", lambda: machine)
    monkeypatch.setenv("COLUMNS", "200")
    boundaries = [Boundary(answer) for answer in answers]
    code = doctor.run(as_json=as_json, boundaries=boundaries, within_s=0.2)
    assert all(one.closed for one in boundaries)
    out = capsys.readouterr().out
    return code, json.loads(out) if as_json else out


def test_a_machine_on_which_a_boundary_holds_is_well(monkeypatch, capsys):
    code, told = ask(monkeypatch, capsys, SOUND, HOLDS)
    assert code == 0
    (boundary,) = told["boundaries"]
    assert boundary["attests"] is True
    assert boundary["facts"] == HOLDS
    assert boundary["covers"]
    assert boundary["does_not_cover"]
    assert told["next"] == []


def test_one_boundary_that_holds_is_enough(monkeypatch, capsys):
    code, told = ask(monkeypatch, capsys, SOUND, REFUSED, HOLDS)
    assert code == 0
    assert [one["attests"] for one in told["boundaries"]] == [False, True]


def test_where_none_holds_the_command_that_mends_it_is_said(monkeypatch, capsys):
    code, told = ask(monkeypatch, capsys, BROKEN, REFUSED)
    assert code == 1
    assert told["boundaries"][0]["reason"] == "no user namespace"
    assert told["next"] == [MENDABLE]


def test_a_refusal_that_the_survey_does_not_explain_gives_its_own_remedy(monkeypatch, capsys):
    refused = RefusedError("old", where="boundary", remedy="apt-get install bubblewrap")
    assert ask(monkeypatch, capsys, SOUND, refused)[1]["next"] == ["apt-get install bubblewrap"]


def test_nobody_is_sent_round_in_a_circle(monkeypatch, capsys):
    (step,) = ask(monkeypatch, capsys, SOUND, REFUSED)[1]["next"]
    assert step.startswith("report it")


@pytest.mark.parametrize("answer", [SandboxError("sandbox:bubblewrap", "it ended"), KeyError("uid"), None])
def test_a_boundary_that_fails_to_attest_does_not_hold(monkeypatch, capsys, answer):
    code, told = ask(monkeypatch, capsys, SOUND, answer)
    assert code == 1
    assert told["boundaries"][0]["reason"]


def test_without_cgroups_it_is_said_what_is_not_covered(monkeypatch, capsys):
    _, told = ask(monkeypatch, capsys, BROKEN, HOLDS)
    assert any("cgroups" in line for line in told["boundaries"][0]["does_not_cover"])
    _, told = ask(monkeypatch, capsys, SOUND, HOLDS)
    assert not any("cgroups" in line for line in told["boundaries"][0]["does_not_cover"])


def test_a_person_reads_the_same(monkeypatch, capsys):
    code, said = ask(monkeypatch, capsys, BROKEN, REFUSED, as_json=False)
    assert code == 1
    for words in ("does not hold", "no user namespace", "lacking", "would cover", MENDABLE, "systemd-run"):
        assert words in said
    code, said = ask(monkeypatch, capsys, SOUND, HOLDS, as_json=False)
    assert code == 0
    for words in ("bubblewrap holds", "network none", "does not cover"):
        assert words in said


def test_what_a_boundary_says_is_printed_as_it_is(monkeypatch, capsys):
    _, said = ask(monkeypatch, capsys, SOUND, {"network": "\x1b[31m[red]"}, as_json=False)
    assert "\\x1b[31m[red]" in said


def test_a_boundary_that_cannot_be_made_is_told_and_the_others_are_asked(monkeypatch, capsys):
    def maker(name, **_):
        def make():
            if name == "bubblewrap":
                raise REFUSED
            return Boundary(HOLDS)

        return make

    monkeypatch.setattr(doctor, "survey", lambda: SOUND)
    monkeypatch.setattr(doctor, "maker_of", maker)
    monkeypatch.setattr(doctor.shutil, "which", lambda program: program if program == "runc" else None)
    assert doctor.run(as_json=True) == 0
    told = json.loads(capsys.readouterr().out)["boundaries"]
    assert [(one["attests"], one["reason"]) for one in told] == [(False, "no user namespace"), (True, None)]


def test_a_name_that_is_no_boundarys_is_refused(monkeypatch):
    monkeypatch.setattr(doctor, "survey", lambda: SOUND)
    with pytest.raises(RefusedError, match=r"no boundary 'moon'\n.*path/to/file\.py:factory"):
        doctor.run(as_json=True, named=["moon"])


def test_a_boundary_of_the_users_is_asked_by_its_factory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name, identity = 'mine', 'mine/1'\n    run = check = None\n"
        "    async def attest(self, limits=None): return {'box': 'tight'}\n"
        "    async def close(self): pass\n"
        "class Lame:\n    name, identity = 'lame', 'lame/1'\n"
    )
    monkeypatch.setattr(doctor, "survey", lambda: BROKEN)
    assert doctor.run(as_json=False, named=[f"{tmp_path}/mine.py:Mine"]) == 0
    said = capsys.readouterr().out
    assert "mine holds\nproved from inside: box tight" in said
    assert "this machine" not in said
    assert doctor.run(as_json=False, named=[f"{tmp_path}/mine.py:Lame"]) == 1
    assert "it has no attest, run, check, close" in capsys.readouterr().out


def test_a_person_is_told_the_telling_facts_and_once_that_it_does_not_hold(monkeypatch, capsys):
    _, said = ask(monkeypatch, capsys, SOUND, {"uid": "1000", "usr_writable": "no"}, as_json=False)
    assert "proved from inside: uid 1000 (--json has all)" in said
    refused = RefusedError("it does not hold on this machine: why", where="boundary", remedy="mend it")
    _, said = ask(monkeypatch, capsys, SOUND, refused, as_json=False)
    assert "bubblewrap does not hold: why" in said


@pytest.mark.needs("bubblewrap")
def test_bubblewrap_holds_on_this_machine(capsys):
    assert doctor.run(as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["boundaries"][0]["attests"] is True
