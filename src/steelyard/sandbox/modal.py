"""Modal: a remote sandbox for each slot, made by the client library `modal`, and a line to a command in it.

Covers: gVisor between the command and Modal's kernel, on a machine that is not ours; a file system, processes
and users of its own; no network, neither in nor out (`block_network`; Modal's own default is an open one);
memory and processor time up to a limit, which all that run in the place share.

Does not cover: how programs in one place are kept from each other, which is the business of the command; the
way to the place, which can be lost while a program runs (`ConnectionError`, and whoever listens decides whose
fault that was); faults of gVisor; what Modal itself can see. The time of day and the image are theirs.

One place serves many programs, because making one takes 0.2 to 1 s. Modal's old backend makes five a second,
so all that a site opens on it are spaced; the new one, which the client of today uses unless
MODAL_SANDBOX_V2=0 is set, is not. Whatever hits a limit of theirs waits, but never beyond `create_s`: the
client by itself waits 21 minutes for capacity, and for ever where the server tells it when to ask again. Its
other repetitions are short: three of a call; ten of a read or a write that lost its connection, within ten
seconds, which go on at the byte where it broke. `CONTACT_S` ends a write that takes longer.

Nothing is left behind. A creation that nobody waits for any more is not cut at once, since a cut one may
still arrive where nobody knows of it: what it makes is ended when it arrives. It is cut after `create_s`
more, or when the site closes; then whatever carries the site's tag is ended. Should even that fail, Modal
ends a place in which nothing has run for `IDLE_S`, and any place after `timeout_s`.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from steelyard.clock import Clock, Seconds, SystemClock
from steelyard.errors import RefusedError, SandboxError, SteelyardError, describe
from steelyard.execution import MIB
from steelyard.sandbox.pool import Mould
from steelyard.sandbox.site import Traits

if TYPE_CHECKING:
    import modal
    from modal.container_process import ContainerProcess

CHUNK_BYTES: Final = MIB
"""Written at once: the client takes 2 MiB, newer ones 16."""

OVERHEAD_BYTES: Final = 256 * MIB
"""Memory for the runner and files, beside what programs may use."""

CONTACT_S: Final = 30.0
"""How long a write may take; the command reads all the time."""

IDLE_S: Final = 300
"""After how long without a command Modal ends a place by itself."""

ENDING_S: Final = 1.5
"""How long the end of a place is waited for."""

RETRY_S: Final = 1.0
MOST_RETRY_S: Final = 8.0
"""The wait after a limit was hit: doubled each time, up to the second."""

SAID_BYTES: Final = 4_096
SAID_S: Final = 0.5
"""How much of standard error is kept, and how long its end is waited for."""

_UPGRADE: Final = "pip install --upgrade 'steelyard[modal]'"

REFUSED: Final[Mapping[str, str]] = {
    "AuthError": "run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
    "PermissionDeniedError": "get the right from the workspace's owner, or choose another MODAL_PROFILE",
    "InvalidError": "change the option that the message names",
    "NotFoundError": "check MODAL_ENVIRONMENT, MODAL_PROFILE, and the image",
    "ImageBuildError": "name an image that can be built: ModalSite(image='python:3.12-slim')",
    "RequestSizeError": "shorten the command",
    "UnimplementedError": _UPGRADE,
    "VersionError": _UPGRADE,
}
"""The client's errors that somebody has to act on, by name, and how."""

INFRA: Final = frozenset(
    {
        "AlreadyExistsError",
        "ClientClosed",
        "ConflictError",  # an InvalidError, but about the state of something, such as a place that has ended
        "ConnectionError",
        "DataLossError",
        "DeserializationError",
        "Error",
        "ExecTimeoutError",
        "ExecutionError",
        "FunctionTimeoutError",
        "InteractiveTimeoutError",
        "InternalError",
        "InternalFailure",
        "LogsFetchError",
        "MountUploadTimeoutError",
        "OutputExpiredError",
        "RemoteError",
        "ResourceExhaustedError",
        "SandboxFilesystemDirectoryNotEmptyError",
        "SandboxFilesystemError",
        "SandboxFilesystemFileTooLargeError",
        "SandboxFilesystemIsADirectoryError",
        "SandboxFilesystemNotADirectoryError",
        "SandboxFilesystemNotFoundError",
        "SandboxFilesystemPathAlreadyExistsError",
        "SandboxFilesystemPermissionError",
        "SandboxTerminatedError",
        "SandboxTimeoutError",
        "SerializationError",
        "ServiceError",
        "SnapshotCreationError",
        "TimeoutError",
        "VolumeUploadTimeoutError",
        "WorkspaceManagementError",
    }
)
"""Those that nobody has to act on: asked again, it may go well."""


def fault(error: Exception, *, made: bool = False) -> SteelyardError:
    """What an error of the client means to whoever opens a place; no other place judges them.

    Parameters
    ----------
    error
        The client's, or one that it let through.
    made
        Whether the place had been made: what is not found then has ended.
    """
    for kind in type(error).__mro__:
        name = kind.__name__
        if name in INFRA or (made and name == "NotFoundError"):
            break
        if name in REFUSED and kind.__module__ == "modal.exception":
            return RefusedError(describe(error), where="boundary modal", remedy=REFUSED[name])
    return SandboxError("sandbox:modal", describe(error))


class ModalSite:
    """Makes Modal sandboxes, one for each slot.

    Parameters
    ----------
    app
        The Modal app that they belong to; made if it is missing.
    image
        What is in them: an image of a registry with a Python in it, or the id (`im-...`) of one that Modal
        built. Without one, Modal's `debian_slim` with this interpreter's version.
    cpu
        Cores for each, which is also their limit, so that clocks can be compared.
    region
        Where they are, if not anywhere.
    timeout_s
        How long each may live.
    create_s
        How long one may take to be there, from the asking to its command's start.
    per_second
        How many the old backend makes a second.
    client
        A `modal.Client`, if not the one of the environment.
    clock
        Time.

    Raises
    ------
    RefusedError
        If the client library is missing, or an option cannot work.
    """

    name = "modal"

    def __init__(
        self,
        *,
        app: str = "steelyard",
        image: str | None = None,
        cpu: float = 1.0,
        region: str | None = None,
        timeout_s: int = 6 * 3_600,
        create_s: Seconds = 120.0,
        per_second: float = 5.0,
        client: modal.Client | None = None,
        clock: Clock | None = None,
    ) -> None:
        try:
            import_module("modal")
        except ImportError as error:
            raise RefusedError(
                f"the client library `modal` cannot be imported ({error})",
                where="boundary modal",
                remedy="pip install 'steelyard[modal]'",
            ) from error
        for option, value in (("timeout_s", timeout_s), ("create_s", create_s), ("per_second", per_second)):
            if not value > 0:
                raise RefusedError(f"{option} is {value}", where="boundary modal", remedy=f"{option} above 0")
        self._app = app
        self._image = image
        self._cpu = cpu
        self._region = region
        self._timeout_s = timeout_s
        self._create_s = create_s
        self._spacing_s = 1 / per_second
        self._client = client
        self._clock = clock or SystemClock()
        self._next_s = -math.inf  # when the next one may be asked for
        self._tag = {"steelyard": secrets.token_hex(8)}
        self._looked_up: tuple[modal.App, modal.Image] | None = None
        self._sandboxes: set[modal.Sandbox] = set()
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[_Line] | asyncio.Task[None]] = set()
        self._unsure = False  # whether one that was cut may still arrive
        self.traits = Traits(emulated=True)

    @property
    def identity(self) -> str:
        """Changes whenever a verdict could: the kind of place, its image, its share of a processor."""
        return f"modal/1:{self._image or f'debian_slim-{_python()}'}:{self._cpu:g}"

    def facts(self) -> Mapping[str, str]:
        """What is known of the outside: the client's version, the backend, the image, the network."""
        return {
            "modal": version("modal"),
            "backend": "old" if _old_backend() else "new",
            "image": self._image or f"debian_slim {_python()}",
            "network": "blocked",
        }

    async def open(self, command: Sequence[str], mould: Mould) -> _Line:
        """Make a sandbox and start a command in it: see `steelyard.sandbox.site.Site`."""
        loop = asyncio.get_running_loop()
        making = loop.create_task(self._make(command, mould, self._clock.now() + self._create_s))
        self._keep(making)
        late = loop.create_future()
        timer = self._clock.call_later(self._create_s, late.cancel)
        line: _Line | None = None
        try:
            await asyncio.wait({making, late}, return_when=asyncio.FIRST_COMPLETED)
            if not making.done():
                raise SandboxError(
                    "sandbox:modal", f"no sandbox within {self._create_s:g} s (ModalSite(create_s=...))"
                )
            if making.cancelled():
                raise SandboxError("sandbox:modal", "the site was closed")
            line = making.result()
        finally:
            timer.cancel()
            if line is None:
                self._forsake(making)
        return line

    async def close(self) -> None:
        """End whatever is left, within two seconds."""
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            self._cut(task)
        if tasks:
            await asyncio.wait(tasks, timeout=SAID_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                here = asyncio.get_running_loop()
                await asyncio.gather(*(line.close() for line in self._lines if line.loop is here))
                await asyncio.gather(*(self._end(sandbox) for sandbox in self._sandboxes))
                await self._sweep()

    def _keep(self, task: asyncio.Task[_Line] | asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cut(self, task: asyncio.Task[_Line] | asyncio.Task[None]) -> None:
        self._unsure = True
        task.cancel()

    def _forsake(self, making: asyncio.Task[_Line]) -> None:
        """Nobody waits for this one any more: end it when it arrives."""
        timer = self._clock.call_later(self._create_s, lambda: self._cut(making))

        def over(_making: object) -> None:
            timer.cancel()
            if not making.cancelled() and making.exception() is None:
                self._keep(asyncio.get_running_loop().create_task(making.result().close()))

        making.add_done_callback(over)

    async def _make(self, command: Sequence[str], mould: Mould, until: Seconds) -> _Line:
        try:
            sandbox = await self._created(mould, until)
        except SteelyardError:
            raise
        except Exception as error:
            raise fault(error) from error
        self._sandboxes.add(sandbox)
        mine = asyncio.current_task()
        timer = self._clock.call_later(until - self._clock.now(), lambda: mine and mine.cancel())
        try:
            line = _Line(self, sandbox, await sandbox.exec.aio(*command, text=False))
        except Exception as error:
            await self._end(sandbox)
            raise fault(error, made=True) from error
        except asyncio.CancelledError:
            await self._end(sandbox)
            raise
        finally:
            timer.cancel()
        self._lines.add(line)
        return line

    async def _created(self, mould: Mould, until: Seconds) -> modal.Sandbox:
        """Ask for a sandbox until there is one, or the time is up."""
        import modal  # noqa: PLC0415 - an extra, and a second to load
        from modal.exception import ResourceExhaustedError  # noqa: PLC0415

        app, image = await self._place()
        mib = math.ceil((mould.memory_bytes + OVERHEAD_BYTES) / MIB)
        wait_s = RETRY_S
        while True:
            await self._turn(until)
            try:
                return await modal.Sandbox.create.aio(
                    "sleep",
                    str(self._timeout_s),
                    app=app,
                    image=image,
                    tags=self._tag,
                    block_network=True,
                    cpu=(self._cpu, self._cpu),
                    memory=(mib, mib),  # what it may use it was promised: no neighbour can take it
                    region=self._region,
                    timeout=self._timeout_s,
                    idle_timeout=min(IDLE_S, self._timeout_s),
                    client=self._client,
                )
            except ResourceExhaustedError as error:
                if self._clock.now() + wait_s >= until:
                    raise SandboxError(
                        "sandbox:modal", f"a limit was hit for {self._create_s:g} s: {describe(error)}"
                    ) from error
            await self._sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_RETRY_S)

    async def _place(self) -> tuple[modal.App, modal.Image]:
        """The app and the image of all sandboxes, looked up once."""
        import modal  # noqa: PLC0415

        if self._looked_up is None:
            app = await modal.App.lookup.aio(self._app, create_if_missing=True, client=self._client)
            if self._image is None:
                image = modal.Image.debian_slim(_python())
            elif self._image.startswith("im-"):
                image = modal.Image.from_id(self._image, client=self._client)
            else:
                image = modal.Image.from_registry(self._image)
            self._looked_up = app, image
        return self._looked_up

    async def _turn(self, until: Seconds) -> None:
        """Wait until the backend takes another one."""
        now = self._clock.now()
        mine_s = max(now, self._next_s) if _old_backend() else now
        if mine_s >= until:
            raise SandboxError(
                "sandbox:modal",
                f"within {self._create_s:g} s it cannot be its turn: {1 / self._spacing_s:g} a second",
            )
        self._next_s = mine_s + self._spacing_s
        if mine_s > now:
            await self._sleep(mine_s - now)

    async def _sleep(self, delay_s: Seconds) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(delay_s, over.cancel)
        try:
            await asyncio.wait({over})
        finally:
            timer.cancel()

    async def _end(self, sandbox: modal.Sandbox) -> None:
        """End a sandbox; one that cannot be reached is tried again when the site closes."""
        try:
            async with asyncio.timeout(ENDING_S):
                await sandbox.terminate.aio()
                await sandbox.detach.aio()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - whatever it is, the sandbox may be there
            if type(error).__name__ != "NotFoundError":
                return
        self._sandboxes.discard(sandbox)

    async def _sweep(self) -> None:
        """End what arrived after it was cut."""
        if not self._unsure or self._looked_up is None:
            return
        import modal  # noqa: PLC0415

        app, _ = self._looked_up
        with suppress(Exception):  # Modal ends what is idle
            left = modal.Sandbox.list.aio(app_id=app.app_id, tags=self._tag, client=self._client)
            async for sandbox in left:
                await self._end(sandbox)
            self._unsure = False


class _Line:
    """A command in a sandbox: see `steelyard.sandbox.site.Line`."""

    def __init__(self, site: ModalSite, sandbox: modal.Sandbox, process: ContainerProcess[bytes]) -> None:
        self._site = site
        self.loop = asyncio.get_running_loop()
        self._sandbox = sandbox
        self._process = process
        self._out: AsyncGenerator[bytes, None] = aiter(process.stdout)
        self._said = bytearray()
        self._listening = asyncio.ensure_future(self._listen())
        self._next: asyncio.Task[bytes] | None = None
        self._sending = asyncio.Lock()
        self._lost = ""

    async def send(self, data: bytes) -> None:
        """Write to its standard input; a write that is called off half-way breaks the line."""
        async with self._sending:
            with self._contact():
                try:
                    for start in range(0, len(data), CHUNK_BYTES):
                        self._process.stdin.write(data[start : start + CHUNK_BYTES])
                        async with asyncio.timeout(CONTACT_S):
                            await self._process.stdin.drain.aio()
                except TimeoutError as error:
                    raise TimeoutError(f"a write took longer than {CONTACT_S:g} s") from error
                except asyncio.CancelledError:
                    self._lost = "a write was called off half-way"
                    raise

    async def receive(self) -> bytes:
        """Read some of its standard output; nothing that arrives is lost if this is called off."""
        with self._contact():
            reading = self._next = self._next or asyncio.ensure_future(self._read())
            await asyncio.wait({reading})
            self._next = None
            if reading.cancelled():
                raise ConnectionError(self._lost)
            data = reading.result()
        if not data:
            await asyncio.wait({self._listening}, timeout=SAID_S)
        return data

    def said(self) -> str:
        """The end of its standard error."""
        return self._said.decode(errors="replace")

    async def close(self) -> None:
        """End the command and its sandbox."""
        self._lost = self._lost or "the line was closed"
        reading = [task for task in (self._listening, self._next) if task is not None]
        for task in reading:
            task.cancel()
        self._site._lines.discard(self)  # noqa: SLF001 - the line is the site's
        await self._site._end(self._sandbox)  # noqa: SLF001
        with suppress(TimeoutError):
            async with asyncio.timeout(SAID_S):
                await asyncio.gather(*reading, return_exceptions=True)
                await self._out.aclose()

    async def _read(self) -> bytes:
        return await anext(self._out, b"")

    async def _listen(self) -> None:
        with suppress(Exception):  # who reads standard output is told
            async for some in self._process.stderr:
                self._said += some
                del self._said[:-SAID_BYTES]

    @contextmanager
    def _contact(self) -> Iterator[None]:
        """Turn whatever the client raises into the loss of contact, which lasts."""
        self._whole()
        try:
            yield
        except Exception as error:
            self._lost = self._lost or describe(error)
            raise ConnectionError(f"modal: {self._lost}") from error

    def _whole(self) -> None:
        if self._lost:
            raise ConnectionError(f"modal: {self._lost}")


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _old_backend() -> bool:
    """Whether the client makes sandboxes on the backend that has a limit."""
    from modal.config import config  # noqa: PLC0415

    return not config.get("sandbox_v2")
