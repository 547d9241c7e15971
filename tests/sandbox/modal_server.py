"""A stand-in for Modal's servers, for the real client library: what it runs are ordinary local processes.

`with standing_in() as modal:` starts it in a thread and makes it what the client's environment names, so that
`ModalSite()` finds it, in whatever event loop. It has the two services that the client calls: the control
plane (apps, images, sandboxes of both backends) and the command router (processes and their streams, at
offsets, as the client expects them). An RPC that it does not know is noted in `unknown`, which must be empty.

It isolates nothing: a sandbox is a number and the processes that were started in it.

| to | say |
|---|---|
| count | `modal.live()`, `modal.created` (when each was made), `modal.tries`, `modal.processes()` |
| refuse everything | `modal.refuses = Status.UNAUTHENTICATED` |
| hit the creation limit | `modal.limits = 3` (so many times), or `modal.per_second = 5` |
| hang creations | `modal.held = True`, later `False`; what the client hangs up on arrives all the same |
| hang the start of commands | `modal.deaf = True` |
| break a connection | `modal.losses.append(Loss(...))` for the next command, `modal.lose()` for all |
| end a sandbox | `modal.kill()` |
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from unittest import mock

import modal
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal.sandbox import _task_command_router_client as router_client
from modal_proto import api_pb2
from modal_proto import task_command_router_pb2 as router_pb2
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

PIECE_BYTES = 64 << 10
SUCCESS = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)


@dataclass
class Loss:
    """When a command's connection breaks: after so many bytes of input were taken, or of output were sent.

    One that is not for good heals when the client connects again, at the byte where it broke.
    """

    after_in: float = math.inf
    after_out: float = math.inf
    for_good: bool = True
    happened: bool = False

    def due(self, taken: int, sent: int) -> bool:
        due = taken >= self.after_in or sent >= self.after_out
        now = due and (self.for_good or not self.happened)
        self.happened = self.happened or now
        return now


class Output:
    """What a process wrote, kept whole: it is read from any offset."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self.data = bytearray()
        self.ended = False
        self.more = asyncio.Event()
        self.reading = asyncio.ensure_future(self._read(stream))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while some := await stream.read(PIECE_BYTES):
            self.data += some
            self.more.set()
        self.ended = True
        self.more.set()


@dataclass
class Process:
    """A command that was started in a sandbox."""

    running: asyncio.subprocess.Process
    loss: Loss
    outputs: dict[int, Output]
    taken: int = 0  # bytes of input
    sent: int = 0  # bytes of output
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, signal.SIGKILL)


@dataclass
class Sandbox:
    """A sandbox: what was asked for, and what runs in it."""

    id: str
    task: str
    definition: api_pb2.Sandbox
    tags: dict[str, str]
    created_at: float
    processes: dict[str, Process] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        self.ended.set()
        for process in self.processes.values():
            process.kill()


def jwt() -> str:
    """A token that is good for an hour."""
    parts = ({"alg": "none"}, {"exp": time.time() + 3600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in (*parts, {}))


class Service:
    """Whatever RPC has no method here is noted, and answered as unknown."""

    def __init__(self, modal: StandIn) -> None:
        self.modal = modal

    def __getattr__(self, name):
        if name.startswith("_") or not name[0].isupper():
            raise AttributeError(name)

        async def unknown(stream):
            self.modal.unknown.append(name)
            raise GRPCError(Status.UNIMPLEMENTED, name)

        return unknown


def answers(handler):
    """A handler of one request, given the request."""

    async def handle(self, stream):
        request = await stream.recv_message()
        if self.modal.refuses is not None:
            raise GRPCError(self.modal.refuses, "the stand-in was told to refuse")
        await stream.send_message(await handler(self, request))

    return handle


class Control(Service):
    """Apps, images and sandboxes."""

    __mapping__ = ModalClientBase.__mapping__

    @answers
    async def AuthTokenGet(self, request):  # noqa: N802
        return api_pb2.AuthTokenGetResponse(token=jwt())

    @answers
    async def AppGetOrCreate(self, request):  # noqa: N802
        self.modal.apps.append(request.app_name)
        return api_pb2.AppGetOrCreateResponse(app_id="ap-" + "A" * 22)

    @answers
    async def EnvironmentGetOrCreate(self, request):  # noqa: N802
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        metadata = api_pb2.EnvironmentMetadata(name="main", settings=settings)
        return api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-" + "E" * 22, metadata=metadata)

    @answers
    async def ImageGetOrCreate(self, request):  # noqa: N802
        self.modal.images.append(list(request.image.dockerfile_commands))
        return api_pb2.ImageGetOrCreateResponse(image_id="im-" + "I" * 22, result=SUCCESS)

    @answers
    async def SandboxCreate(self, request):  # noqa: N802
        self.modal.tries += 1
        sandbox = self.modal.make(request, old=True)
        return api_pb2.SandboxCreateResponse(sandbox_id=sandbox.id)

    @answers
    async def SandboxGetTaskId(self, request):  # noqa: N802
        sandbox = self.modal.sandbox(request.sandbox_id)
        ready = not self.modal.held
        return api_pb2.SandboxGetTaskIdResponse(task_id=sandbox.task if ready else "")

    @answers
    async def SandboxCreateV2(self, request):  # noqa: N802
        self.modal.tries += 1
        try:
            while self.modal.held:  # noqa: ASYNC110 - it is set in another thread
                await asyncio.sleep(0.005)
        finally:  # the client has hung up: it arrives all the same
            sandbox = self.modal.make(request, old=False)
        return api_pb2.SandboxCreateV2Response(sandbox_id=sandbox.id, task_id=sandbox.task)

    async def access(self, sandbox):
        self.modal.sandbox(sandbox)
        return {"url": self.modal.router_url, "jwt": jwt()}

    @answers
    async def TaskGetCommandRouterAccess(self, request):  # noqa: N802
        access = await self.access(request.task_id)
        return api_pb2.TaskGetCommandRouterAccessResponse(**access)

    @answers
    async def SandboxGetCommandRouterAccess(self, request):  # noqa: N802
        access = await self.access(request.sandbox_id)
        return api_pb2.SandboxGetCommandRouterAccessResponse(**access)

    @answers
    async def SandboxTerminate(self, request):  # noqa: N802
        self.modal.sandbox(request.sandbox_id).end()
        return api_pb2.SandboxTerminateResponse()

    SandboxTerminateV2 = SandboxTerminate

    @answers
    async def SandboxList(self, request):  # noqa: N802
        asked = {tag.tag_name: tag.tag_value for tag in request.tags}
        before = request.before_timestamp or math.inf
        found = [
            api_pb2.SandboxInfo(id=one.id, created_at=one.created_at)
            for one in self.modal.sandboxes.values()
            if not one.ended.is_set() and one.created_at < before and asked.items() <= one.tags.items()
        ]
        return api_pb2.SandboxListResponse(sandboxes=found)

    SandboxListV2 = SandboxList


class Router(Service):
    """Processes in sandboxes, and their streams."""

    __mapping__ = TaskCommandRouterBase.__mapping__

    def find(self, stream, request) -> tuple[Sandbox, Process]:
        sandbox = self.modal.sandbox(request.task_id)
        process = sandbox.processes[request.exec_id]
        self.lose(stream, process)
        return sandbox, process

    def lose(self, stream, process) -> None:
        """Break the connection if that is due."""
        if process.loss.due(process.taken, process.sent):
            stream._stream._transport.abort()
            raise GRPCError(Status.UNAVAILABLE, "lost")

    async def TaskExecStart(self, stream):  # noqa: N802
        request = await stream.recv_message()
        sandbox = self.modal.sandbox(request.task_id)
        self.modal.starts += 1
        while self.modal.deaf:  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.005)
        if request.exec_id not in sandbox.processes:
            pipe = asyncio.subprocess.PIPE
            running = await asyncio.create_subprocess_exec(
                *request.command_args, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
            outputs = {
                router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT: Output(running.stdout),
                router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR: Output(running.stderr),
            }
            loss = self.modal.losses.popleft() if self.modal.losses else Loss()
            process = sandbox.processes[request.exec_id] = Process(running, loss, outputs)
            if sandbox.ended.is_set():  # meanwhile
                process.kill()
        await stream.send_message(router_pb2.TaskExecStartResponse())

    async def TaskExecStdinWrite(self, stream):  # noqa: N802
        request = await stream.recv_message()
        _, process = self.find(stream, request)
        async with process.writing:
            if request.offset > process.taken:
                raise GRPCError(Status.FAILED_PRECONDITION, f"a gap: {process.taken} bytes were written")
            new = request.data[process.taken - request.offset :]  # a write that is repeated adds nothing
            process.taken += len(new)
            try:
                process.running.stdin.write(new)
                await process.running.stdin.drain()
                if request.eof:
                    process.running.stdin.close()
            except (ConnectionError, RuntimeError) as error:
                raise GRPCError(Status.FAILED_PRECONDITION, f"standard input is closed: {error}") from error
        self.lose(stream, process)
        await stream.send_message(router_pb2.TaskExecStdinWriteResponse())

    async def TaskExecStdioRead(self, stream):  # noqa: N802
        request = await stream.recv_message()
        sandbox, process = self.find(stream, request)
        output = process.outputs[request.file_descriptor]
        at = request.offset
        while True:
            output.more.clear()
            while piece := bytes(output.data[at : at + PIECE_BYTES]):
                await stream.send_message(router_pb2.TaskExecStdioReadResponse(data=piece))
                at += len(piece)
                if request.file_descriptor == router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT:
                    process.sent = max(process.sent, at)
                self.lose(stream, process)
            if sandbox.ended.is_set():
                raise GRPCError(Status.NOT_FOUND, "the sandbox has ended")
            if output.ended and at == len(output.data):
                return
            await output.more.wait()
            self.lose(stream, process)


class StandIn:
    """What is told to the stand-in, and what it has seen."""

    def __init__(self, *, old: bool) -> None:
        self.refuses: Status | None = None
        self.limits: float = 0
        self.per_second: float = math.inf
        self.held = False
        self.deaf = False
        self.starts = 0
        self.losses: deque[Loss] = deque()
        self.apps: list[str] = []
        self.images: list[list[str]] = []
        self.created: list[float] = []
        self.tries = 0
        self.unknown: list[str] = []
        self.sandboxes: dict[str, Sandbox] = {}
        self.url = self.router_url = ""
        self.old = old
        self._ids = itertools.count()
        self._loop = asyncio.new_event_loop()

    def live(self) -> int:
        """How many sandboxes there are."""
        return sum(not sandbox.ended.is_set() for sandbox in list(self.sandboxes.values()))

    def processes(self) -> list[asyncio.subprocess.Process]:
        """All that were ever started."""
        return [one.running for box in self.sandboxes.values() for one in box.processes.values()]

    def lose(self, *, for_good: bool = True) -> None:
        """Break the connections of all that runs."""

        def lose() -> None:
            for sandbox in self.sandboxes.values():
                for process in sandbox.processes.values():
                    process.loss = Loss(after_in=0, for_good=for_good)
                    for output in process.outputs.values():
                        output.more.set()

        self._loop.call_soon_threadsafe(lose)

    def kill(self) -> None:
        """End all sandboxes, as Modal does when their time is up."""
        self._loop.call_soon_threadsafe(lambda: [one.end() for one in self.sandboxes.values()])

    def sandbox(self, named: str) -> Sandbox:
        """The one with this id, or this task."""
        found = self.sandboxes.get(named) or next(
            (one for one in self.sandboxes.values() if one.task == named), None
        )
        if found is None:
            raise GRPCError(Status.NOT_FOUND, f"no {named}")
        return found

    def make(self, request, *, old: bool) -> Sandbox:
        """Make a sandbox, or say that a limit is hit."""
        now = time.time()
        recent = sum(now - then < 1.0 for then in self.created)
        if self.limits > 0 or recent >= self.per_second:
            self.limits -= 1
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many sandboxes")
        number = next(self._ids)
        identity = f"{number:022d}" if old else f"{number:026d}"
        tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        sandbox = Sandbox(
            f"sb-{identity}",
            f"ta-{identity}{'' if old else 'V'}",
            request.definition,
            tags,
            now + number * 1e-6,
        )
        self.sandboxes[sandbox.id] = sandbox
        self.created.append(now)
        return sandbox

    def serve(self, ready: threading.Event) -> None:
        """Serve until the loop is stopped."""
        asyncio.set_event_loop(self._loop)
        control, router = Server([Control(self)]), Server([Router(self)])

        async def start() -> None:
            for server in (control, router):
                await server.start("127.0.0.1", 0)
            ports = (server._server.sockets[0].getsockname()[1] for server in (control, router))
            self.url, self.router_url = (f"http://127.0.0.1:{port}" for port in ports)
            ready.set()

        async def stop() -> None:
            for sandbox in self.sandboxes.values():
                sandbox.end()
            for server in (control, router):
                server.close()
                await server.wait_closed()
            for process in self.processes():
                await process.wait()
                process._transport.close()  # its pipes may outlive it
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
                await asyncio.wait({task})

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        self._loop.run_until_complete(stop())
        self._loop.close()

    def stop(self) -> None:
        """End everything."""
        self._loop.call_soon_threadsafe(self._loop.stop)


@contextmanager
def standing_in(*, old: bool = False) -> Iterator[StandIn]:
    """Be Modal, for whatever client is made from the environment; `old` chooses the backend.

    What the client waits between its own repetitions is shortened: ten of them take half a second.
    """
    server = StandIn(old=old)
    ready = threading.Event()
    thread = threading.Thread(target=server.serve, args=[ready])
    thread.start()
    try:
        assert ready.wait(10)
        environment = {
            "MODAL_SERVER_URL": server.url,
            "MODAL_TOKEN_ID": "ak-stand-in",
            "MODAL_TOKEN_SECRET": "as-stand-in",
            "MODAL_SANDBOX_V2": "0" if old else "1",
            "MODAL_DISABLE_API_PROXY": "1",
        }
        read, write = (
            router_client.TaskCommandRouterClient.__init__,
            router_client.call_with_retries_on_transient_errors,
        )
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.dict(read.__kwdefaults__, stream_stdio_retry_delay_secs=0.0005),
            mock.patch.dict(write.__kwdefaults__, base_delay_secs=0.0005),
            modal.Client.from_env(),
        ):
            yield server
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert not server.unknown
