"""Tests under pytest in the candidate's own process: `cooperative`, for suites that cannot be isolated.

**A candidate that wants to can forge this report**: it shares memory with pytest and may write the channel
itself. It is run only where it was asked for by name, and says so in every score. What is done all the
same catches the careless: pytest is imported first; the tests come as bytes and reach a disk, in a folder
of their own with a name drawn by chance, after the candidate has been loaded; no `conftest.py`, no
configuration file and no plugin is read; tests are counted as they are collected and as they end; a canary
test that must fail stands beside them; the report carries the run's nonce.
"""

from __future__ import annotations

import os
import sys
from tempfile import mkdtemp
from typing import Any

from . import codec, frames, load

__builtins__ = frames.BUILTINS  # type: ignore[assignment]

_send, _urandom = frames.send, os.urandom
_OPTIONS = ("-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull)


def ready() -> None:
    """Import pytest before any code of the candidate's runs; raises ImportError where it is missing."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    import pytest  # noqa: F401


class _Count:
    """A plugin that counts."""

    def __init__(self, canary: str) -> None:
        self.canary = canary
        self.collected = self.passed = self.failed = self.skipped = self.errors = 0
        self.canary_failed = False
        self.reason = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.collected = sum(self.canary not in item.nodeid for item in items)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.errors += 1
            self.reason = self.reason or str(report.longrepr)[-300:]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if self.canary in report.nodeid:
            self.canary_failed = self.canary_failed or (report.when == "call" and report.failed)
        elif report.skipped or hasattr(report, "wasxfail"):
            self.skipped += 1
        elif report.failed:
            self.failed += report.when == "call"
            self.errors += report.when != "call"
            crash = getattr(report.longrepr, "reprcrash", None)
            self.reason = (
                self.reason or f"{report.nodeid}: {getattr(crash, 'message', report.longrepr)}"[:300]
            )
        elif report.when == "call":
            self.passed += 1


def run(header: dict[str, Any], source: bytes, tests: bytes, channel: int, folder: str) -> None:
    """Load the candidate, run its tests, send `["report", {...}]` or `["load_error", ...]`."""
    import pytest

    main, nonce = pytest.main, header.get("nonce")
    name = header.get("module") or "candidate"
    try:
        module = load.load(source, name, path=f"{folder}/{name}.py")
    except load.LoadError as error:
        _send(channel, codec.dumps(["load_error", error.kind, error.message, error.line]))
        return
    fresh, canary = mkdtemp(), f"test_{_urandom(8).hex()}.py"
    for file, text in (("test_suite.py", tests), (canary, b"def test_canary():\n    assert [1] == [2]\n")):
        with open(f"{fresh}/{file}", "wb") as held:
            held.write(text)
    sys.modules[name] = module
    count = _Count(canary)
    paths = [f"{fresh}/test_suite.py", f"{fresh}/{canary}"]
    try:
        status: Any = int(main([*_OPTIONS, "--rootdir", fresh, *paths], plugins=[count]))
    except BaseException as error:
        status = type(error).__name__
    held_up = count.canary_failed and count.collected > 0 and not (count.errors or count.skipped)
    told = {key: value for key, value in vars(count).items() if key != "canary"}
    passed_all = held_up and not count.failed and count.passed == count.collected
    _send(
        channel, codec.dumps(["report", {"nonce": nonce, "status": status, "all_passed": passed_all, **told}])
    )
