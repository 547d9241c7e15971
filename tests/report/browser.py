"""A headless Chromium over its debugging pipe: JSON ended by NUL on two pipes, and nothing to install.

The protocol: https://chromedevtools.github.io/devtools-protocol/. One browser per test, ended in all cases.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 40.0
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",  # as on a telephone; with one, a window is narrower and nothing else
    "--no-default-browser-check",
    "--remote-debugging-pipe",
]


def program() -> str | None:
    """The browser, under whichever name it goes."""
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path), None)


class Browser:
    """The pipe: commands out, answers and events in."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._next = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, /, **params: object) -> dict[str, Any]:
        """Send a command and wait for its answer; events that arrive meanwhile are kept."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            told = self._read(until, method)
            if told.get("id") == self._next:
                assert "error" not in told, (method, told["error"])
                return told["result"]
            self.events.append(told)

    def _read(self, until: float, why: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError(f"no answer to {why} within {PATIENCE_S} s")
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise ConnectionError(f"the browser ended before it answered {why}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, *, width: int = 1600, dark: bool = False) -> Page:
        """Open a file in a window of that width and wait until every figure is drawn."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, path.resolve().as_uri())
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.show(width=width, dark=dark)
        page.ask("Page.navigate", url=page.url)
        page.wait("document.readyState === 'complete'")
        return page


@dataclass
class Page:
    """One tab."""

    browser: Browser
    session: str
    url: str
    media: list[dict[str, str]] = field(default_factory=list)

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **params)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression holds."""
        until = time.monotonic() + PATIENCE_S
        while not self.js(expression):
            assert time.monotonic() < until, f"never: {expression}"
            time.sleep(0.02)

    def show(self, *, width: int, dark: bool = False, media: str = "", height: int = 900) -> None:
        """Take another window, another scheme of colours, or paper."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def drawn(self, width: int) -> None:
        """Wait until every figure is drawn for a window of that width."""
        self.wait(
            f"innerWidth === {width} && [...document.querySelectorAll('[data-figure]')]"
            ".every(box => box.dataset.drawn === String(Math.floor(box.clientWidth)))"
        )

    def complaints(self) -> list[str]:
        """What the console says, exceptions, and what the policy kept from happening."""
        self.js("1")  # whatever happened has been told by now
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [json.dumps(event["params"])[:600] for event in self._mine() if event["method"] in kinds]

    def asked_for(self) -> list[str]:
        """What was asked of a network or a disk."""
        self.js("1")
        return [
            event["params"]["request"]["url"]
            for event in self._mine()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _mine(self) -> Iterator[dict[str, Any]]:
        return (event for event in self.browser.events if event.get("sessionId") == self.session)

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(taken["data"]))

    def pdf(self) -> bytes:
        """The page on paper."""
        return b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])


@contextmanager
def launched(folder: Path) -> Iterator[Browser]:
    """Start a browser whose profile is an empty folder, and end it with all its processes."""
    ours: list[int] = []

    def pipe() -> tuple[int, int]:
        low = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in low]  # 3 and 4 are the browser's
        for end in low:
            os.close(end)
        ours.extend(ends)
        return ends[0], ends[1]

    commands_in, commands = pipe()
    answers, answers_out = pipe()
    log = os.open(folder / "browser.log", os.O_CREAT | os.O_WRONLY, 0o600)
    ours.append(log)
    profile = folder / "profile"
    words = [program() or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    moves = [
        (os.POSIX_SPAWN_DUP2, end, fd) for end, fd in ((log, 1), (log, 2), (commands_in, 3), (answers_out, 4))
    ]
    child = os.posix_spawnp(
        words[0], words, os.environ | {"HOME": str(folder)}, file_actions=moves, setsid=True
    )
    try:
        for end in (commands_in, answers_out):
            os.close(end)
            ours.remove(end)
        browser = Browser(commands, answers)
        yield browser
        with suppress(ConnectionError, TimeoutError):
            browser.ask("Browser.close")
    finally:
        for end in ours:
            os.close(end)
        end_group(child)


def end_group(leader: int) -> None:
    """End a process and its session, at the latest after five seconds by force."""
    until = time.monotonic() + 5
    while not os.waitpid(leader, os.WNOHANG)[0]:
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
            os.waitpid(leader, 0)
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
