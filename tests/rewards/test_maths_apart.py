"""Answers that would take for ever: a verdict in time, from wherever it is asked, and the next unharmed."""

import asyncio
import concurrent.futures
import multiprocessing
import threading
import time

import pytest

from steelyard import Group, Part, Recipe, Rollout, Runtime
from steelyard.rewards import apart, builtin
from steelyard.rewards.apart import ROOM, equal_apart
from steelyard.rewards.maths import judge_math
from steelyard.workers import BlockingPool, WorkerPool

SLOW = [
    r"\boxed{10^{(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4)}}",
    r"\boxed{24! \times 24!}",
    r"\boxed{10^{10^{10}}}",
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{((((3!)!)!)!)!}",
    r"\boxed{\binom{10^{9}}{5 \cdot 10^{8}}}",
    r"\boxed{\sum_{k=1}^{10^{12}} \frac{1}{k}}",
    r"\boxed{\prod_{i=1}^{10^9} i}",
    r"\boxed{(x+1)^{5000}}",
    r"\boxed{" + r"\sqrt{1+" * 400 + "1" + "}" * 400 + "}",
    r"\boxed{" + r"\frac{1}{1+" * 400 + "1" + "}" * 400 + "}",
    r"\boxed{" + "7" * 100_000 + "}",
    r"\boxed{" + "((" * 5_000 + "1" + "))" * 5_000 + "}",
    r"\boxed{\int_0^{10^9} \sin(x^{x^x}) dx}",
    r"\boxed{\begin{pmatrix}" + r"1 & 2 \\" * 2_000 + r"\end{pmatrix}}",
    r"\boxed{1" + "+1" * 20_000 + "}",
]
CODES = {"malformed", "wrong", "no_answer", "cpu", "memory"}
GOLDS = ["5", r"\sqrt{2}", r"x^2 + 1"]


@pytest.fixture(autouse=True)
def nothing_left_running():
    yield
    apart.close()


def questions():
    return [(text, gold) for text in SLOW for gold in GOLDS]


def check(judge):
    """Every slow answer has a verdict in time, and an ordinary one between them its full marks."""
    for text, gold in questions():
        started = time.monotonic()
        verdict = judge(text, {"answer": gold})
        assert verdict.value == 0.0, text[:60]
        assert verdict.code in CODES
        assert time.monotonic() - started < 2, text[:60]
    assert judge(r"\boxed{\frac{\sqrt{8}}{2}}", {"answer": r"\sqrt{2}"}).value == 1.0


def test_from_the_main_thread():
    check(judge_math)


def test_from_an_event_loop():
    async def main():
        check(judge_math)

    asyncio.run(main())


def test_from_a_thread():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(check, judge_math) for _ in range(2)]:
            done.result()


def test_from_a_forked_worker_process():
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def work():
        try:
            check(judge_math)
            told.put(None)
        except BaseException as error:  # noqa: BLE001 - told to the test
            told.put(repr(error))

    child = context.Process(target=work)
    child.start()
    assert told.get() is None
    child.join()


def test_in_the_runtime():
    rows = [
        Rollout(place, "?", text, {"answer": gold}, (place, 0), place, f"row {place}")
        for place, (text, gold) in enumerate(questions())
    ]
    rows.append(
        Rollout(999, "?", r"\boxed{\tfrac{\sqrt8}2}", {"answer": r"\sqrt2"}, (999, 0), 999, "row 999")
    )

    async def main():
        runtime = Runtime(Recipe((Part(builtin("math")),)), workers=1)
        return {
            one.group.ordinal: one.totals[0]
            async for one in runtime.score([Group(r.id, r.ordinal, [r]) for r in rows])
        }

    verdicts = asyncio.run(main())
    assert verdicts.pop(999).value == 1.0
    assert {verdict.value for verdict in verdicts.values()} == {0.0}
    assert {verdict.code for verdict in verdicts.values()} <= CODES


HOGS = {
    "cpu": "9**9**9**9",
    "memory": "[0] * 10**12",
}


@pytest.mark.parametrize("limit", HOGS)
def test_a_comparison_that_no_guard_stopped_is_ended_by_its_limit_and_the_next_is_answered(
    limit, tmp_path, monkeypatch
):
    (tmp_path / "hog.py").write_text(
        "def prepared(_given):\n"
        f"    return lambda pair: {HOGS[limit]} if pair[0] == 'hog' else pair[0] == pair[1]\n"
    )
    pool = BlockingPool(
        lambda: WorkerPool(
            f"{tmp_path / 'hog.py'}:prepared", given=(), size=1, cpu_s=0.3, wall_s=10.0,
            memory_bytes=ROOM.memory_bytes, confined=True,
        )
    )  # fmt: skip
    monkeypatch.setattr(apart, "_POOL", pool)
    try:
        assert equal_apart("hog", "1").code == limit
        assert equal_apart("1", "1") is True
    finally:
        pool.close()


def test_threads_wait_for_one_another_and_all_are_answered():
    said = []
    threads = [
        threading.Thread(target=lambda: said.append(equal_apart(r"\sqrt{8}", r"2\sqrt{2}"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [True] * 8
