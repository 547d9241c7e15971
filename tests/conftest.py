"""What every test can count on: a skip that says why, and no process left behind.

`@pytest.mark.needs("data")` names what must be present; asking for the fixture of the same need says it
too. Where it is absent the test is skipped with the reason. Where STEELYARD_MUST_WORK names it (a comma
list, set by `.ci/run`), that skip is a failure, and so is any skip that the test makes itself.

| need | present when | fixture |
|---|---|---|
| data | the folder $STEELYARD_DATA, or ../shared/data beside the repository, exists | `data_dir` |
| py313 | a Python 3.13 runs (a pyenv shim may only run when told the version) | `python_313` |
| bubblewrap, cgroup | candidates can run behind bubblewrap; cgroups can be made | |
| runc, gvisor | the boundary of that name proves that it holds | |
| podman | it starts a container of a folder, as root, by runc | |
| cxx | a g++ is where candidates see it, and they can run | |
| tmpfs | root may mount one | `tmpfs` |
| root | we are root | |
| chromium | a Chromium is on the PATH (the tests of the page look at it) | |
| modal, parquet, reasoning_gym, report, tokens, torch, trl, web | the extra of that name is installed | |
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent


# --- needs: each probe returns None when the thing is present, else why it is absent


def data_folder() -> Path:
    return Path(os.environ.get("STEELYARD_DATA") or ROOT.parent / "shared" / "data")


def no_data() -> str | None:
    return None if data_folder().is_dir() else f"{data_folder()} is no folder; set STEELYARD_DATA"


@cache
def find_python_313() -> Path | None:
    """Run whatever is called python3.13, and under pyenv each 3.13 that it has: only that tells."""
    tell = "import ensurepip, sys; print(sys.executable if sys.version_info[:2] == (3, 13) else '')"
    versions = run_quietly("pyenv", "versions", "--bare").split()
    for version in ["", *(v for v in versions if v.startswith("3.13"))]:
        told = run_quietly("python3.13", "-c", tell, **({"PYENV_VERSION": version} if version else {}))
        if told.strip():
            return Path(told.strip())
    return None


def run_quietly(*command: str, **environment: str) -> str:
    """Return the output of a command that ran, or nothing."""
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def no_python_313() -> str | None:
    return None if find_python_313() else "no python3.13 runs here, nor under any PYENV_VERSION"


def no_root() -> str | None:
    return None if os.geteuid() == 0 else "only root may do this"


@cache
def no_tmpfs() -> str | None:
    if no_root():
        return "only root may mount"
    with tempfile.TemporaryDirectory() as folder:
        try:
            mount_tmpfs(Path(folder), 1 << 20)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"mounting a tmpfs failed: {error}"
        unmount(Path(folder))
    return None


def mount_tmpfs(folder: Path, size_bytes: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "steelyard-test", folder], check=True)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


def without(*modules: str) -> Callable[[], str | None]:
    def probe() -> str | None:
        absent = [name for name in modules if importlib.util.find_spec(name) is None]
        return f"{', '.join(absent)} is not installed" if absent else None

    return probe


@cache
def no_bubblewrap() -> str | None:
    from steelyard.sandbox.machine import survey

    return "; ".join(f"{fact.name}: {fact.value}" for fact in survey().lacking()) or None


@cache
def no_cgroup() -> str | None:
    from steelyard.sandbox.cgroups import detect

    return detect().reason or None


def refusing(name: str) -> Callable[[], str | None]:
    """Return a probe that has a boundary prove itself."""

    @cache
    def probe() -> str | None:
        import asyncio

        from steelyard.errors import RefusedError
        from steelyard.sandbox import boundary_of

        async def attest() -> None:
            boundary = boundary_of(name, slots=1)
            try:
                await boundary.attest()
            finally:
                await boundary.close()

        try:
            asyncio.run(attest())
        except RefusedError as error:
            return str(error)
        return None

    return probe


@cache
def no_podman() -> str | None:
    if no_root() or not shutil.which("podman") or not shutil.which("runc"):
        return "podman and runc are needed, and root"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("usr", "proc", "dev", "sys", "etc", "tmp", "run", "var/tmp"):
            (Path(folder) / name).mkdir(parents=True)
        words = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "run", "--rm"]
        limits = [
            "--network",
            "none",
            "--ulimit",
            "nofile=2048:2048",
            "--ulimit",
            "nproc=4096:4096",
            "--volume",
            "/usr:/usr:ro",
        ]
        linked = [name for name in ("lib", "lib64", "bin") if Path("/", name).is_symlink()]
        for name in linked:
            (Path(folder) / name).symlink_to(Path("/", name).readlink())
        done = subprocess.run(
            [*words, *limits, "--rootfs", folder, "/usr/bin/true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    return None if done.returncode == 0 else done.stderr[-300:]


def no_cxx() -> str | None:
    found = shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin")
    return no_bubblewrap() if found else "no g++ below /usr"


def no_chromium() -> str | None:
    found = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    return None if found else "no chromium, chromium-browser or google-chrome is on the PATH"


PROBES: dict[str, Callable[[], str | None]] = {
    "bubblewrap": no_bubblewrap,
    "cgroup": no_cgroup,
    "chromium": no_chromium,
    "cxx": no_cxx,
    "runc": refusing("runc"),
    "gvisor": refusing("gvisor"),
    "podman": no_podman,
    "data": no_data,
    "py313": no_python_313,
    "tmpfs": no_tmpfs,
    "root": no_root,
}
EXTRAS = {
    "modal": without("modal"),
    "parquet": without("pyarrow"),
    "reasoning_gym": without("reasoning_gym"),
    "report": without("altair", "vl_convert"),
    "tokens": without("tokenizers"),
    "torch": without("torch", "transformers"),
    "trl": without("trl"),
    "web": without("starlette", "uvicorn", "httpx"),
}
PROBES |= EXTRAS
FIXTURES = {"data_dir": "data", "python_313": "py313", "tmpfs": "tmpfs"}


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of measured examples, with their sources and licences."""
    return data_folder()


@pytest.fixture(scope="session")
def python_313() -> Path | None:
    """An interpreter of Python 3.13."""
    return find_python_313()


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a file system of a given size in bytes, which can be filled to the brim."""
    mounted: list[Path] = []

    def mount(size_bytes: int) -> Path:
        folder = tmp_path / f"tmpfs{len(mounted)}"
        folder.mkdir()
        mount_tmpfs(folder, size_bytes)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        unmount(folder)


# --- STEELYARD_MUST_WORK: where a skip is a failure


MUST = pytest.StashKey[frozenset[str]]()


def known(names: frozenset[str], where: str) -> frozenset[str]:
    if unknown := names - PROBES.keys():
        raise pytest.UsageError(f"{where} names {sorted(unknown)}; known needs are {sorted(PROBES)}")
    return names


def pytest_configure(config: pytest.Config) -> None:
    named = os.environ.get("STEELYARD_MUST_WORK", "").split(",")
    config.stash[MUST] = known(frozenset(n.strip() for n in named if n.strip()), "STEELYARD_MUST_WORK")
    for name in sorted(config.stash[MUST] & EXTRAS.keys()):
        if absent := EXTRAS[name]():  # modules that import an extra skip themselves before any test is known
            raise pytest.UsageError(f"STEELYARD_MUST_WORK names {name}: {absent}")


def needs(item: pytest.Item) -> frozenset[str]:
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    asked = {FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES}
    return known(frozenset(marked | asked), item.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needs(item)  # a misspelt need is an error also where nothing runs


@contextmanager
def no_skip_where_it_must_work(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    except pytest.skip.Exception as skip:
        if not (must := needs(item) & item.config.stash[MUST]):
            raise
        why = f"STEELYARD_MUST_WORK names {', '.join(sorted(must))}, but the test skipped itself: {skip.msg}"
        raise pytest.fail.Exception(why, pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    for name in sorted(needs(item)):
        if absent := PROBES[name]():
            if name in item.config.stash[MUST]:
                pytest.fail(f"STEELYARD_MUST_WORK names {name}: {absent}", pytrace=False)
            pytest.skip(f"needs {name}: {absent}")
    with no_skip_where_it_must_work(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with no_skip_where_it_must_work(item):
        return (yield)


# --- no process left behind: ours are our children, and whoever inherited this cookie (orphans too)


def process_folders() -> set[Path]:
    """One folder per running process; none where there is no Linux."""
    return set(Path("/proc").glob("[0-9]*")) if sys.platform == "linux" else set()


COOKIE = os.environ.setdefault("STEELYARD_TEST_RUN", secrets.token_hex(8)).encode()
foreign = set(process_folders())  # no process of ours: whatever ran before us, and what we looked at


def running_processes() -> dict[int, str]:
    """Our running processes (zombies do not run) and their command lines, by id; only where /proc is."""
    ours: dict[int, str] = {}
    for process in process_folders() - foreign:
        with suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
            state, parent = (process / "stat").read_text().rpartition(") ")[2].split()[:2]
            if int(parent) != os.getpid() and COOKIE not in (process / "environ").read_bytes():
                foreign.add(process)
            elif state not in "ZX":
                ours[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ").strip()
    return ours


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test whose processes outlive it by two seconds, and end them."""
    before = running_processes()
    yield
    give_up = time.monotonic() + 2
    while (left := {pid: name for pid, name in running_processes().items() if pid not in before}) and (
        time.monotonic() < give_up
    ):
        time.sleep(0.01)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        pytest.fail(f"the test left processes running: {sorted(left.values())}", pytrace=False)
