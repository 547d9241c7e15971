import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from worker_functions import UnreadableItem

from steelyard.errors import InfraError, RefusedError
from steelyard.workers import Cut, Died, NotStarted, Raised, WorkerPool, child

HERE = Path(__file__).parent
LINUX = sys.platform == "linux"


def pool_of(size=1, *, target="worker_functions:act", cpu_s=5.0, wall_s=20.0, **more):
    return WorkerPool(target, size=size, cpu_s=cpu_s, wall_s=wall_s, **more)


def run(items, **settings):
    """Outcomes of one message in a fresh pool, and proof that the pool works afterwards."""

    async def main():
        async with pool_of(**settings) as pool:
            outcomes = await pool.call(items)
            assert (await pool.once("still here")).value == "still here"
            return outcomes

    return asyncio.run(main())


def values(outcomes):
    return [outcome.value if outcome.failure is None else outcome.failure for outcome in outcomes]


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


def held_by(fifo, holders=1):
    """Wait until so many processes hold the FIFO open for writing."""
    descriptor = os.open(fifo, os.O_RDONLY)
    for _ in range(holders):
        assert os.read(descriptor, 1) == b"h"
    return descriptor


def nobody_holds(descriptor):
    """Wait until no process holds it any more."""
    gone = os.read(descriptor, 1) == b""
    os.close(descriptor)
    return gone


def test_outcomes_come_in_the_items_order_with_their_clocks():
    outcomes = run(["a", "bb", ("burn", 0.05)])
    assert values(outcomes)[:2] == ["a", "bb"]
    burnt = outcomes[2]
    assert 0.04 < burnt.cpu_s <= burnt.service_s + 0.02
    assert outcomes[0].service_s < 0.05
    assert burnt.clocks.queued_s == burnt.queued_s >= 0.0
    assert not burnt.clocks.censored


def test_a_message_of_no_items_has_no_outcomes():
    assert run([]) == []


def test_thousands_of_items_and_large_values_pass_in_one_message():
    items = [("bytes", 100)] * 20_000 + [("bytes", 5_000_000), "last"]
    assert [len(value) for value in values(run(items))] == [100] * 20_000 + [5_000_000, 4]


def test_large_items_pass():
    assert values(run(["x" * 20_000_000, "y"])) == ["x" * 20_000_000, "y"]


def test_an_item_that_loops_is_cut_by_its_cpu_limit_and_the_others_are_judged():
    outcomes = run(["a", "spin", "b", "c"], cpu_s=0.2)
    assert values(outcomes) == ["a", Cut("cpu"), "b", "c"]
    assert 0.15 < outcomes[1].cpu_s < 1.0
    assert outcomes[1].clocks.censored


def test_a_power_that_holds_the_interpreters_lock_is_cut_too():
    assert values(run(["bignum", "a"], cpu_s=0.2)) == [Cut("cpu"), "a"]


def test_cpu_seconds_are_counted_per_item():
    assert all(isinstance(value, int) for value in values(run([("burn", 0.15)] * 4, cpu_s=0.3)))


def test_the_limits_of_items_in_one_message_can_be_multiplied_for_each():
    async def main():
        async with pool_of(cpu_s=0.1, wall_s=60.0) as pool:
            return values(await pool.call([("burn", 0.15), ("burn", 0.15), "spin", "a"], times=5))

    first, second, *rest = asyncio.run(main())
    assert isinstance(first, int)
    assert isinstance(second, int)
    assert rest == [Cut("cpu"), "a"]


def test_an_item_that_sleeps_is_cut_by_its_wall_limit_counted_from_its_own_start():
    outcomes = run([("doze", 0.3), ("doze", 0.3), ("doze", 60), "a"], wall_s=0.5)
    assert values(outcomes) == [False, False, Cut("wall"), "a"]
    assert 0.5 <= outcomes[2].service_s < 30
    assert outcomes[2].cpu_s < 0.2


def test_a_process_that_stops_itself_is_cut_by_its_wall_limit():
    assert values(run(["stopped", "a"], wall_s=0.3)) == [Cut("wall"), "a"]


def test_a_memory_error_is_a_cut_and_the_next_item_gets_a_fresh_process():
    before, failure, after = values(run(["pid", "memory", "pid"], memory_bytes=200 << 20))
    assert failure == Cut("memory")
    assert before != after


@pytest.mark.skipif(not LINUX, reason="the memory limit needs /proc")
def test_the_memory_limit_holds_and_leaves_room_for_what_is_within():
    small, large = values(run([("bytes", 20 << 20), ("bytes", 300 << 20)], memory_bytes=128 << 20))
    assert len(small) == 20 << 20
    assert large == Cut("memory")


def test_an_exception_is_told_with_its_innermost_frames():
    first, second = values(run([("raise", "ValueError"), "a"]))
    assert (first.type, first.message, second) == ("ValueError", "no such answer", "a")
    assert "in raise_" in first.traceback_tail
    assert str(first) == "ValueError: no such answer"


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "GeneratorExit"])
def test_an_interrupt_ends_its_item_only(name):
    raised, pid, again = values(run([("raise", name), "pid", "pid"]))
    assert raised.type == name
    assert pid == again


def test_sys_exit_ends_its_item_only():
    assert [getattr(value, "type", value) for value in values(run(["sys.exit", "a"]))] == ["SystemExit", "a"]


@pytest.mark.skipif(not LINUX, reason="the keeper is the parent process where there is a fork")
def test_an_item_that_kills_its_keeper_is_no_failure_before_the_start():
    outcomes = run(["a", "kill the keeper", "b"])
    assert values(outcomes) == ["a", Died(signal=signal.SIGKILL), "b"]


def test_an_exit_code_of_zero_is_no_answer():
    outcomes = run(["a", "os._exit", "b"])
    assert values(outcomes) == ["a", Died(code=0), "b"]
    assert "exit code 0" in str(outcomes[1].failure)


def test_a_crash_is_told_by_its_signal():
    assert values(run(["segfault", "a"])) == [Died(signal=signal.SIGSEGV), "a"]
    assert "SIGSEGV" in str(Died(signal=signal.SIGSEGV))


def test_killers_in_one_message_have_the_blame_each_and_nothing_is_run_twice(tmp_path):
    deeds = ["a", "segfault", "b", "os._exit", "spin", "c", "memory", "d", "sys.exit", "e"]
    items = [("count", str(tmp_path / str(place)), deed) for place, deed in enumerate(deeds)]
    ends = [type(outcome.failure) for outcome in run(items, cpu_s=0.2)]
    fine = type(None)
    assert ends == [fine, Died, fine, Died, Cut, fine, Cut, fine, Raised, fine]
    assert [(tmp_path / str(place)).read_text() for place in range(len(deeds))] == ["x"] * len(deeds)


def test_what_cannot_be_pickled_or_is_too_long_or_unreadable_is_the_items_failure():
    unpicklable, too_long, unreadable, fine = values(
        run(["lambda", ("bytes", child.RESULT_BYTES), "unreadable", "a"])
    )
    assert unpicklable.type in {"PicklingError", "AttributeError"}
    assert too_long.type == "OverflowError"
    assert "not here" in unreadable.message
    assert fine == "a"


def test_an_item_that_cannot_be_pickled_is_told_without_sending_it():
    first, second, third = values(run([lambda: None, "a", threading.Lock()]))
    assert (type(first), second, type(third)) == (NotStarted, "a", NotStarted)
    assert "plain values" in str(first)


def test_an_item_that_the_worker_cannot_read_is_that_items_failure():
    first, second = values(run([UnreadableItem(), "a"]))
    assert (first.type, second) == ("ValueError", "a")


def test_a_function_that_prints_megabytes_harms_nobody(capfd):
    assert values(run(["shout", "a"])) == ["shouted", "a"]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert len(captured.err) == 6_000_001


def test_a_function_that_closes_every_descriptor_keeps_its_value():
    assert values(run(["close", "a"])) == ["closed", "a"]


def test_a_forked_child_that_comes_back_out_of_the_function_judges_nothing(tmp_path):
    counter = str(tmp_path / "count")
    assert values(run(["fork", ("count", counter)])) == ["parent", "ok"]
    assert Path(counter).read_text() == "x"


def test_a_busy_thread_left_behind_is_charged_to_nobody_else():
    first, second = values(run(["busy thread", "pid"]))
    assert first != second


def test_an_idle_thread_left_behind_costs_no_process():
    first, second = values(run(["idle thread", "pid"]))
    assert first == second


def test_an_alarm_left_behind_rings_for_nobody_else():
    first, second = values(run(["alarm", ("burn", 0.05)]))
    assert first == second


def test_verdicts_are_equal_across_processes_for_hashes_are():
    async def main():
        async with pool_of() as pool:
            return [(await pool.once("hash", fresh=True)).value for _ in range(2)]

    first, second = asyncio.run(main())
    assert first == second


def test_a_fresh_process_ran_nothing_before_and_is_gone_afterwards():
    async def main():
        async with pool_of() as pool:
            warm = (await pool.once("pid")).value
            fresh = (await pool.once("pid", fresh=True)).value
            with pytest.raises(ProcessLookupError):
                os.kill(fresh, 0)
            crashed = await pool.once("segfault", fresh=True)
            unsendable = await pool.once(threading.Lock(), fresh=True)
            return warm, fresh, (await pool.once("pid")).value, crashed.failure, unsendable.failure

    warm, fresh, warm_again, crashed, unsendable = asyncio.run(main())
    assert warm == warm_again != fresh
    assert crashed == Died(signal=signal.SIGSEGV)
    assert isinstance(unsendable, NotStarted)


def test_a_pool_of_two_with_one_hang_judges_eight_good_ones_and_nothing_survives():
    async def main():
        async with pool_of(2, cpu_s=0.5) as pool:
            hung, *good = await asyncio.gather(pool.once("spin"), *(pool.once("pid") for _ in range(8)))
            again = await asyncio.gather(*(pool.once(("burn", 0.05)) for _ in range(8)))
            return hung.failure, values(good), values(again)

    hung, good, again = asyncio.run(main())
    assert hung == Cut("cpu")
    assert len(set(good)) == 1
    assert len(set(again)) == 2
    for pid in {*good, *again}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_messages_are_served_in_the_order_of_asking_and_the_rest_of_a_broken_one_asks_again():
    async def main():
        ended = []

        async def ask(name, *items):
            await pool.call(items)
            ended.append(name)

        async with pool_of(1) as pool:
            await asyncio.gather(ask("broken", "segfault", "a"), ask("second", "a"), ask("third", "a"))
        return ended

    assert asyncio.run(main()) == ["second", "third", "broken"]


def test_a_cancelled_call_takes_its_process_with_it_and_harms_no_other(fifo):
    async def main():
        async with pool_of(2) as pool:
            hanging = asyncio.create_task(pool.call([("deaf child then", fifo, "spin")]))
            descriptor = await asyncio.to_thread(held_by, fifo)
            other = asyncio.create_task(pool.call([("burn", 0.1), "a"]))
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            assert await asyncio.to_thread(nobody_holds, descriptor)
            after = await asyncio.gather(*(pool.once("b") for _ in range(4)))
            return values(await other)[1:] + values(after)

    assert asyncio.run(main()) == ["a", "b", "b", "b", "b"]


def test_a_call_cancelled_while_it_waits_for_a_process_takes_none():
    async def main():
        async with pool_of(1) as pool:
            pid = (await pool.once("pid")).value
            running = asyncio.create_task(pool.once(("burn", 0.1)))
            await asyncio.sleep(0)
            waiting = asyncio.create_task(pool.once("a"))
            await asyncio.sleep(0)
            waiting.cancel()
            return pid == (await running).value == (await pool.once("pid")).value

    assert asyncio.run(main())


def test_close_takes_busy_processes_and_deaf_grandchildren_in_under_two_seconds(fifo):
    async def main():
        pool = pool_of(2)
        await pool.start()
        busy = asyncio.create_task(pool.call([("deaf child", fifo), "bignum"]))
        queued = [asyncio.create_task(pool.call(["spin"])) for _ in range(4)]
        descriptor = await asyncio.to_thread(held_by, fifo)
        started = time.monotonic()
        await pool.close()
        took_s = time.monotonic() - started
        assert await asyncio.to_thread(nobody_holds, descriptor)
        ends = await asyncio.gather(busy, *queued, return_exceptions=True)
        await pool.close()
        return took_s, ends

    took_s, ends = asyncio.run(main())
    assert took_s < 2.0
    assert all(isinstance(end, InfraError) for end in ends)


def test_close_holds_also_where_its_caller_is_cancelled(fifo):
    async def main():
        pool = pool_of(1)
        await pool.start()
        task = asyncio.create_task(pool.call([("deaf child", fifo), "spin"]))
        descriptor = await asyncio.to_thread(held_by, fifo)
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await asyncio.to_thread(nobody_holds, descriptor)
        with pytest.raises(InfraError):
            await task

    asyncio.run(main())


def test_close_holds_also_where_a_keeper_was_stopped():
    async def main():
        async with pool_of(2) as pool:
            for worker in pool._alive:
                os.kill(worker._process.pid, signal.SIGSTOP)
            started = time.monotonic()
        return time.monotonic() - started

    assert asyncio.run(main()) < 2.0


def test_a_killed_keeper_is_nobodys_fault():
    async def main():
        async with pool_of(1) as pool:
            (worker,) = pool._alive
            task = asyncio.create_task(pool.call([("burn", 0.3), "a"]))
            await asyncio.sleep(0)
            worker._process.kill()
            return values(await task)[1]

    assert asyncio.run(main()) == "a"


@pytest.mark.parametrize("data_loader", [[], ["with a fork that lives on"]], ids=["alone", "forked"])
def test_workers_and_their_children_die_with_a_parent_that_is_killed(fifo, data_loader):
    parent = subprocess.Popen(
        [sys.executable, HERE / "parent_to_kill.py", fifo, *data_loader],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])},
        stdin=subprocess.PIPE,
    )
    with parent:
        descriptor = held_by(fifo, 2)
        parent.kill()
        parent.wait()
        assert nobody_holds(descriptor)


def test_an_item_that_began_while_its_overdue_predecessor_was_being_cut_is_innocent(fifo, tmp_path):
    async def main():
        async with pool_of(1) as pool:
            (worker,) = pool._alive
            path = tmp_path / "second time"
            task = asyncio.create_task(pool.call([("hold once", fifo, str(path)), "a"]))
            descriptor = await asyncio.to_thread(held_by, fifo)
            worker._overdue = -1.0  # another item's start
            worker.cut()
            assert await asyncio.to_thread(nobody_holds, descriptor)
            return values(await task)

    assert asyncio.run(main()) == ["second time", "a"]


@pytest.mark.skipif(not LINUX, reason="counts descriptors in /proc")
def test_nothing_leaks():
    def held():
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return len([*Path("/proc/self/fd").iterdir()]), children, threading.active_count()

    async def main():
        async with pool_of(2, cpu_s=0.1) as pool:
            await pool.call(["a", "segfault", "spin", "b", "close", "c"])
            await pool.once("a", fresh=True)
            task = asyncio.create_task(pool.call(["spin"]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            inside = len(asyncio.all_tasks())
        assert inside == 1

    before = held()
    for _ in range(3):
        asyncio.run(main())
    assert held() == before


def test_a_target_that_cannot_be_imported_is_refused_with_its_error():
    async def main(target):
        pool = pool_of(2, target=target, start_s=5.0)
        with pytest.raises(RefusedError) as refused:
            await pool.start()
        return str(refused.value)

    assert "LookupError: the gold file is missing" in asyncio.run(main("importing_fails:reward"))
    assert "no attribute 'nothing'" in asyncio.run(main("worker_functions:nothing"))
    assert "not callable" in asyncio.run(main("worker_functions:DEEDS"))
    message = asyncio.run(main("no_such_module:reward"))
    assert "No module named 'no_such_module'" in message
    assert "next: give package.module:function" in message


def test_an_import_that_ends_or_hangs_is_refused(tmp_path):
    async def main(text):
        path = tmp_path / "rewards.py"
        path.write_text(text)
        with pytest.raises(RefusedError) as refused:
            await pool_of(1, target=f"{path}:reward", start_s=0.5).start()
        return str(refused.value)

    assert "exit code 0" in asyncio.run(main("import os; os._exit(0)"))
    assert "within 0.5 s" in asyncio.run(main("import threading; threading.Event().wait()"))


def test_a_file_is_a_target_with_its_folder_importable(tmp_path):
    (tmp_path / "helper_beside.py").write_text("WEIGHT = 3")
    path = tmp_path / "json.py"  # a name that is taken
    path.write_text(
        "import json, helper_beside\ndef reward(text):\n    return helper_beside.WEIGHT * len(text)\n"
    )

    async def main():
        async with pool_of(target=f"{path}:reward") as pool:
            return (await pool.once("ab")).value

    assert asyncio.run(main()) == 6


def test_a_process_that_ends_before_each_item_is_given_up_after_three():
    async def main():
        async with pool_of(1) as pool:
            for worker in list(pool._alive):
                worker.force()
            pool._job = replace(pool._job, target="importing_fails:reward")
            return await pool.call(["a", "b"])

    outcomes = asyncio.run(main())
    assert all(isinstance(outcome.failure, NotStarted) for outcome in outcomes)
    assert "the gold file is missing" in str(outcomes[0].failure)


def test_a_limit_that_is_not_positive_is_refused():
    with pytest.raises(RefusedError, match="cpu_s must be positive, not 0"):
        pool_of(cpu_s=0)


def test_a_value_of_none_is_a_value():
    (outcome,) = run([None])
    assert (outcome.value, outcome.failure) == (None, None)
