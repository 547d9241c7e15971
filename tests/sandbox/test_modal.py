"""Modal's site against the real client library; only the other end is replaced (`modal_server.py`)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("modal")

import modal.exception
from grpclib import Status
from modal_proto import api_pb2
from modal_server import Loss, StandIn, standing_in

from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import MIB
from steelyard.sandbox.modal import INFRA, OVERHEAD_BYTES, REFUSED, SAID_BYTES, ModalSite, fault
from steelyard.sandbox.pool import Mould
from steelyard.testing import FakeClock

pytestmark = pytest.mark.needs("modal")

MOULD = Mould(memory_bytes=256 * MIB, processes=64, file_bytes=MIB, files=64, output_bytes=MIB)
CAT = (sys.executable, "-c", "import os\nwhile data := os.read(0, 65536): os.write(1, data)")


@pytest.fixture(params=["new", "old"])
def server(request) -> Iterator[StandIn]:
    """Either backend."""
    with nothing_left(standing_in(old=request.param == "old")) as standing:
        yield standing


@pytest.fixture
def one() -> Iterator[StandIn]:
    """The new backend, where the test is not about backends."""
    with nothing_left(standing_in()) as standing:
        yield standing


@contextmanager
def nothing_left(served) -> Iterator[StandIn]:
    """Whatever a test leaves there fails it."""
    with served as standing:
        yield standing
        wait_for(lambda: standing.live() == 0)
        wait_for(lambda: all(process.returncode is not None for process in standing.processes()))


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it comes true in another thread
            await asyncio.sleep(0.005)


async def waiting(clock: FakeClock, count: int) -> None:
    """Wait until so many wait for the clock; each opening does for its deadline."""
    await until(lambda: sum(timer.callback is not None for _, _, timer in clock._timers) == count)


async def exactly(line, count: int) -> bytes:
    got = b""
    while len(got) < count:
        some = await line.receive()
        assert some, "it has ended early"
        got += some
    return got


# --- what a line carries


def test_a_command_answers_and_nothing_is_left_after_its_line_is_closed(server):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        await line.send(b"to and fro")
        assert await exactly(line, 10) == b"to and fro"
        assert server.live() == 1
        await line.close()
        assert server.live() == 0
        with pytest.raises(ConnectionError):
            await line.send(b"more")
        await line.close()
        await site.close()

    asyncio.run(main())


def test_megabytes_go_each_way_unchanged(one):
    data = bytes(range(256)) * (5 * 4096)  # more than the client takes at once

    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        _, got = await asyncio.gather(line.send(data), exactly(line, len(data)))
        assert got == data
        await site.close()

    asyncio.run(main())


def test_the_end_of_standard_error_is_known_when_a_command_has_ended(one, monkeypatch):
    monkeypatch.setattr("steelyard.sandbox.modal.SAID_S", 20)
    program = (
        "import os, sys, time; os.close(1); time.sleep(0.2); sys.stderr.write('x' * 100_000 + 'the end')"
    )

    async def main():
        site = ModalSite()
        line = await site.open((sys.executable, "-c", program), MOULD)
        assert await line.receive() == b""
        assert line.said().endswith("xthe end")
        assert len(line.said()) == SAID_BYTES
        assert await line.receive() == b""
        await site.close()

    asyncio.run(main())


def test_a_receive_that_is_called_off_loses_nothing(one):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        waiting = asyncio.create_task(line.receive())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
        await line.send(b"still here")
        assert await exactly(line, 10) == b"still here"
        await site.close()

    asyncio.run(main())


def test_a_write_that_is_called_off_half_way_breaks_the_line(one):
    deaf = (sys.executable, "-c", "import time; time.sleep(60)")

    async def main():
        site = ModalSite()
        line = await site.open(deaf, MOULD)
        writing = asyncio.create_task(line.send(b"x" * 4 * MIB))
        await asyncio.sleep(0.1)
        writing.cancel()
        await asyncio.wait({writing})
        with pytest.raises(ConnectionError, match="half-way"):
            await line.send(b"x")
        await site.close()

    asyncio.run(main())


def test_whoever_listens_is_told_that_the_line_was_closed(one):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        listening = asyncio.create_task(line.receive())
        await asyncio.sleep(0.05)
        await line.close()
        with pytest.raises(ConnectionError, match="the line was closed"):
            await listening
        await site.close()

    asyncio.run(main())


def test_a_write_that_nobody_takes_is_a_lost_connection(one, monkeypatch):
    monkeypatch.setattr("steelyard.sandbox.modal.CONTACT_S", 0.2)

    async def main():
        site = ModalSite()
        line = await site.open((sys.executable, "-c", "import time; time.sleep(60)"), MOULD)
        with pytest.raises(ConnectionError, match="a write took longer"):
            await line.send(b"x" * 4 * MIB)
        await site.close()

    asyncio.run(main())


def test_a_site_closes_what_another_event_loop_opened(one):
    site = ModalSite()
    asyncio.run(site.open(CAT, MOULD))
    assert one.live() == 1
    asyncio.run(site.close())
    assert one.live() == 0


def test_a_sandbox_whose_end_was_refused_is_ended_when_the_site_closes(server):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        server.refuses = Status.PERMISSION_DENIED
        await line.close()
        assert server.live() == 1
        server.refuses = None
        await site.close()
        assert server.live() == 0

    asyncio.run(main())


# --- what is asked for


def test_a_sandbox_has_no_network_and_hard_limits(server):
    async def main():
        site = ModalSite(app="mine", cpu=2, timeout_s=1_000)
        await site.open(CAT, MOULD)
        await site.close()

    asyncio.run(main())
    (sandbox,) = server.sandboxes.values()
    asked = sandbox.definition
    mib = (MOULD.memory_bytes + OVERHEAD_BYTES) // MIB
    assert asked.network_access.network_access_type == api_pb2.NetworkAccess.BLOCKED
    assert (asked.resources.memory_mb, asked.resources.memory_mb_max) == (mib, mib)
    assert (asked.resources.milli_cpu, asked.resources.milli_cpu_max) == (2_000, 2_000)
    assert asked.timeout_secs == 1_000
    assert 0 < asked.idle_timeout_secs < 1_000
    assert server.apps == ["mine"]
    assert server.images[0][0].startswith(f"FROM python:{sys.version_info.major}.{sys.version_info.minor}.")


def test_the_image_and_the_share_of_a_processor_are_part_of_the_identity(one):
    assert ModalSite(image="python:3.12-slim").identity != ModalSite().identity != ModalSite(cpu=2).identity

    async def main():
        site = ModalSite(image="python:3.12-slim")
        await site.open(CAT, MOULD)
        await site.close()

    asyncio.run(main())
    assert one.images[0][0] == "FROM python:3.12-slim"


def test_facts_name_the_backend_that_the_client_chose(server):
    facts = ModalSite().facts()
    assert facts["modal"] == modal.__version__
    assert facts["network"] == "blocked"
    assert facts["backend"] == ("old" if server.old else "new")


# --- limits and deadlines of creation


def test_the_old_backend_is_asked_five_times_a_second():
    async def main(standing: StandIn):
        clock = FakeClock()
        site = ModalSite(clock=clock)
        await site.open(CAT, MOULD)
        opening = [asyncio.create_task(site.open(CAT, MOULD)) for _ in range(3)]
        await waiting(clock, 6)
        for made in (2, 3, 4):
            await asyncio.sleep(0.05)
            assert standing.tries == made - 1
            clock.tick(0.2)
            await until(lambda made=made: standing.live() == made)
        await asyncio.gather(*opening)
        await site.close()
        assert standing.live() == 0

    with nothing_left(standing_in(old=True)) as standing:
        asyncio.run(main(standing))


def test_the_new_backend_is_asked_at_once(one):
    async def main():
        site = ModalSite(clock=FakeClock())
        await asyncio.gather(*(site.open(CAT, MOULD) for _ in range(8)))
        assert one.live() == 8
        await site.close()

    asyncio.run(main())


def test_what_cannot_have_its_turn_in_time_is_not_asked_for():
    async def main(standing: StandIn):
        clock = FakeClock()
        site = ModalSite(clock=clock, create_s=0.3)
        await site.open(CAT, MOULD)
        opening = [asyncio.create_task(site.open(CAT, MOULD)) for _ in range(2)]
        with pytest.raises(SandboxError, match="5 a second"):
            await opening[1]
        clock.tick(0.2)
        await opening[0]
        assert standing.tries == 2
        await site.close()

    with nothing_left(standing_in(old=True)) as standing:
        asyncio.run(main(standing))


def test_a_limit_that_is_hit_is_waited_for(server):
    server.limits = 2

    async def main():
        clock = FakeClock()
        site = ModalSite(clock=clock)
        opening = asyncio.create_task(site.open(CAT, MOULD))
        for tries, wait_s in ((1, 1.0), (2, 2.0)):
            await waiting(clock, 2)
            assert server.tries == tries
            clock.tick(wait_s)
        line = await opening
        assert server.tries == 3
        await line.close()
        await site.close()

    asyncio.run(main())


def test_a_limit_that_stays_ends_the_creation_at_its_deadline(server):
    server.limits = 1_000

    async def main():
        clock = FakeClock()
        site = ModalSite(clock=clock, create_s=10)
        opening = asyncio.create_task(site.open(CAT, MOULD))
        for wait_s in (1, 2, 4):
            await waiting(clock, 2)
            clock.tick(wait_s)
        with pytest.raises(SandboxError, match="too many sandboxes"):
            await opening
        clock.tick(100)
        await asyncio.sleep(0.05)
        assert (server.tries, server.live()) == (4, 0)
        await site.close()

    asyncio.run(main())


def test_a_creation_that_hangs_ends_at_its_deadline_and_is_ended_when_it_arrives(server):
    server.held = True

    async def main():
        clock = FakeClock()
        site = ModalSite(clock=clock, create_s=10)
        opening = asyncio.create_task(site.open(CAT, MOULD))
        await until(lambda: server.tries == 1)
        clock.tick(10)
        with pytest.raises(SandboxError, match="within 10 s"):
            await opening
        server.held = False
        await until(lambda: bool(server.processes()))
        await until(lambda: server.live() == 0)
        await site.close()

    asyncio.run(main())


def test_a_command_that_does_not_start_in_time_is_ended_with_its_sandbox(server):
    server.deaf = True

    async def main():
        clock = FakeClock()
        site = ModalSite(clock=clock, create_s=10)
        opening = asyncio.create_task(site.open(CAT, MOULD))
        await until(lambda: server.starts == 1)
        clock.tick(10)
        with pytest.raises(SandboxError, match="within 10 s"):
            await opening
        await until(lambda: server.live() == 0)
        await site.close()

    asyncio.run(main())


def test_an_opening_that_is_called_off_is_ended_when_it_arrives(server):
    server.held = True

    async def main():
        site = ModalSite()
        opening = asyncio.create_task(site.open(CAT, MOULD))
        await until(lambda: server.tries == 1)
        opening.cancel()
        await asyncio.wait({opening})
        assert opening.cancelled()
        server.held = False
        await until(lambda: bool(server.processes()))
        await until(lambda: server.live() == 0)
        await site.close()

    asyncio.run(main())


def test_a_creation_that_hangs_for_ever_is_cut_and_ended_when_the_site_closes(server):
    server.held = True

    async def main():
        clock = FakeClock()
        site = ModalSite(clock=clock, create_s=10)
        opening = asyncio.create_task(site.open(CAT, MOULD))
        await until(lambda: server.tries == 1)
        clock.tick(10)
        await asyncio.wait({opening})
        assert isinstance(opening.exception(), SandboxError)
        clock.tick(10)
        await until(lambda: not site._tasks)
        await site.close()
        assert server.live() == 0

    asyncio.run(main())


def test_a_site_that_closes_ends_what_is_being_opened(server):
    server.held = True

    async def main():
        site = ModalSite()
        opening = asyncio.create_task(site.open(CAT, MOULD))
        await until(lambda: server.tries == 1)
        await site.close()
        with pytest.raises(SandboxError, match="closed"):
            await opening
        assert server.live() == 0

    asyncio.run(main())


# --- lost contact


@pytest.mark.parametrize("side", ["after_in", "after_out"])
def test_contact_that_is_lost_for_good_is_a_lost_connection_and_the_sandbox_is_ended(one, side):
    one.losses.append(Loss(**{side: 10}))

    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        with pytest.raises(ConnectionError):  # noqa: PT012 - which of both meets it is chance
            await line.send(b"0123456789")
            await exactly(line, 11)
        with pytest.raises(ConnectionError):
            await line.receive()
        with pytest.raises(ConnectionError):
            await line.send(b"x")
        assert one.live() == 1
        await line.close()
        assert one.live() == 0
        await site.close()

    asyncio.run(main())


def test_contact_lost_while_nothing_is_sent_is_noticed_by_whoever_listens(one):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        listening = asyncio.create_task(line.receive())
        await asyncio.sleep(0.05)
        one.lose()
        with pytest.raises(ConnectionError):
            await listening
        await site.close()

    asyncio.run(main())


@pytest.mark.parametrize("side", ["after_in", "after_out"])
def test_a_connection_that_breaks_once_goes_on_at_the_byte_where_it_broke(one, side):
    loss = Loss(**{side: 100_000}, for_good=False)
    one.losses.append(loss)
    data = bytes(range(256)) * 8192

    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        _, got = await asyncio.gather(line.send(data), exactly(line, len(data)))
        assert got == data
        assert loss.happened
        await site.close()

    asyncio.run(main())


def test_a_sandbox_that_modal_ends_is_a_lost_connection(one):
    async def main():
        site = ModalSite()
        line = await site.open(CAT, MOULD)
        listening = asyncio.create_task(line.receive())
        await asyncio.sleep(0.05)
        one.kill()
        with pytest.raises(ConnectionError):
            await listening
        await site.close()

    asyncio.run(main())


# --- whose errors they are


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.UNAUTHENTICATED, RefusedError),
        (Status.PERMISSION_DENIED, RefusedError),
        (Status.INVALID_ARGUMENT, RefusedError),
        (Status.NOT_FOUND, RefusedError),
        (Status.RESOURCE_EXHAUSTED, SandboxError),
        (Status.FAILED_PRECONDITION, SandboxError),
        (Status.INTERNAL, SandboxError),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_somebody_has_to_act_on_is_refused_and_the_rest_is_infrastructure(one, status, expected):
    one.refuses = status
    with pytest.raises(expected) as raised:
        asyncio.run(ModalSite().open(CAT, MOULD))
    assert "the stand-in was told to refuse" in str(raised.value)
    if expected is RefusedError:
        assert raised.value.remedy


def test_a_command_with_long_arguments_is_refused_and_its_sandbox_ended(one):
    async def main():
        with pytest.raises(RefusedError, match="65536"):
            await ModalSite().open(("echo", "x" * 70_000), MOULD)
        assert one.live() == 0

    asyncio.run(main())


def test_every_error_of_the_client_has_been_judged():
    errors = {
        name
        for name, kind in vars(modal.exception).items()
        if isinstance(kind, type) and issubclass(kind, modal.exception.Error) and not name.startswith("_")
    }
    assert errors == REFUSED.keys() | INFRA
    assert not REFUSED.keys() & INFRA


def test_what_is_not_found_after_a_sandbox_was_made_has_ended():
    missing = modal.exception.NotFoundError("no task")
    assert isinstance(fault(missing), RefusedError)
    assert isinstance(fault(missing, made=True), SandboxError)
    assert isinstance(fault(OSError("no route")), SandboxError)


def test_without_the_client_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "modal", None)
    with pytest.raises(RefusedError, match=r"pip install 'steelyard\[modal\]'"):
        ModalSite()


@pytest.mark.parametrize("option", ["timeout_s", "create_s", "per_second"])
def test_an_option_that_cannot_work_is_refused(option):
    with pytest.raises(RefusedError, match=option):
        ModalSite(**{option: 0})
