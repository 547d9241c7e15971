"""`tests`: what a completion's code is worth, in each form of suite, and what each end is called."""

import asyncio
import json
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundaries import (
    ALL_HOLD,
    CANARY_ANSWERS,
    JUDGE_LOST,
    JUDGED,
    LOST,
    NEVER,
    RIGHT,
    SLEEPING,
    SMALL,
    SNIPPET,
    SPINNING,
    WALL,
    WRONG,
    FakeBoundary,
    answering,
    group_of,
    in_a_loop,
    opened,
    row,
    scored,
    verdicts,
)
from steelyard.blame import told_code
from steelyard.errors import RefusedError, RunStoppedError, SandboxError, SuspectError
from steelyard.execution import Ended, Execution, Limits
from steelyard.outcome import Context, End, Scored, Unscored, is_resident
from steelyard.rewards import builtin, hearing
from steelyard.rewards.code import tests as unit_tests
from steelyard.rewards.hearing import TableHearing, report_in
from steelyard.rewards.suites import compile_suite
from steelyard.rollout import Group
from steelyard.runtime import Runtime

real = pytest.mark.needs("bubblewrap")

HARMLESS = FakeBoundary(lambda _source, _times: answering("4", "9"))


WRITING = """
import os
for fd in range(3, 256):
    try:
        os.write(fd, b'x' * 64)
    except OSError:
        pass
os.closerange(0, 256)
"""


def codes(said):
    return [verdict.code for verdict in said]


def values(said):
    return [verdict.value for verdict in said]


class TestWithoutABoundary:
    def test_it_is_refused_when_it_is_made(self):
        for make in (unit_tests, lambda: builtin("tests")):
            with pytest.raises(RefusedError, match="no boundary to run it in was given") as refused:
                make()
            assert "boundary" in refused.value.remedy

    def test_a_name_that_is_none_is_refused_with_those_that_are(self):
        with pytest.raises(RefusedError, match="'bubble'") as refused:
            unit_tests("bubble")
        assert "bubblewrap" in refused.value.remedy

    @pytest.mark.parametrize(
        "setting", [{"cpu_s": 0.0}, {"cpu_s": float("nan")}, {"wall_s": float("inf")}, {"wall_s": -1}]
    )
    def test_a_limit_that_is_none_is_refused(self, setting):
        with pytest.raises(RefusedError, match="a number above 0"):
            unit_tests(HARMLESS, **setting)

    def test_what_changes_a_verdict_changes_its_identity(self):
        rewards = [
            unit_tests(HARMLESS, **settings)
            for settings in (
                {},
                {"share": True},
                {"in_place": True},
                {"cooperative": True},
                {"cpu_s": 1.0},
                {"wall_s": 9.0},
            )
        ]
        assert len({reward.identity for reward in rewards}) == len(rewards)


@real
class TestEachFormOfSuite:
    """The same task in every form: right is paid, wrong is not."""

    FORMS: ClassVar = {
        "pytest": {"tests": SNIPPET},
        "asserts": {"tests": "assert f(2) == 4\nassert f(3) == 9\n"},
        "a list of asserts": {"tests": ["assert f(2) == 4", "assert f(3) == 9"]},
        "check": {
            "tests": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n",
            "columns": {"entry_point": "f"},
        },
        "judge": {"tests": JUDGED},
        "calls as data": {
            "tests": {"fn_name": "f", "inputs": [[2], [3]], "outputs": [4, 9]},
        },
    }  # fmt: skip

    @pytest.mark.parametrize("form", FORMS)
    def test_right_is_paid_and_wrong_is_not(self, form):
        raising = "def f(x):\n    raise ValueError(x)\n"
        said = verdicts([RIGHT, WRONG, raising, "def f(x) return x"], **self.FORMS[form])
        assert codes(said) == [None, "wrong_answer", "exception", "load_error"], said
        assert values(said) == [1.0, 0.0, 0.0, 0.0]
        assert {verdict.integrity for verdict in said} == {"isolated"}

    @pytest.mark.parametrize(
        "tests",
        [
            [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "9\n"}],
            {"inputs": ["2\n", "3\n"], "outputs": ["4\n", "9\n"]},
        ],
    )
    def test_standard_input_and_output(self, tests):
        right = "n = int(input())\nprint(n * n)\n"
        guarded = "if __name__ == '__main__':\n    n = int(input())\n    print(n ** 2)\n"
        said = verdicts(
            [
                right,
                guarded,
                "print(4)\n",
                "print(int(input()) ** 2 // 0)\n",
                "import sys\nsys.exit(0)\n",
                "raise SystemExit(3)",
            ],
            tests=tests,
        )
        assert codes(said) == [None, None, "wrong_answer", "exception", "wrong_answer", "exit"], said
        assert {verdict.integrity for verdict in said} == {"isolated"}

    def test_fences_are_opened_and_of_several_the_one_with_the_function_is_taken(self):
        fenced = f"Here it is:\n\n```python\n{RIGHT}```\n\nUse it so:\n\n```python\nprint(f(2))\n```\n"
        said = verdicts([fenced, f"```\n{RIGHT}```", f"So:\n```py\n{WRONG}```", "I cannot do that."])
        assert values(said) == [1.0, 1.0, 0.0, 0.0]

    def test_a_body_goes_on_where_its_prompt_ends(self):
        prompt = 'def f(x):\n    """The square."""\n'
        rows = [
            row(
                body,
                "assert f(2) == 4\nassert f(3) == 9",
                prompt,
                number,
                completion_mode="body",
                entry_point="f",
            )
            for number, body in enumerate(["    return x * x\n", "    return x\n"])
        ]

        async def main():
            async with opened() as boundary:
                (group,) = await scored(unit_tests(boundary), Group("g", 0, rows))
                return list(group.totals)

        assert values(asyncio.run(main())) == [1.0, 0.0]

    TWO_FOR_A_JUDGE = (
        "import random\nfrom candidate import f\nx = random.Random(1).randint(3, 9)\n\n"
        "def test_two():\n    assert f(2) == 4\n\ndef test_more():\n    assert f(x) == x * x\n"
    )

    @pytest.mark.parametrize("tests", [SNIPPET, TWO_FOR_A_JUDGE], ids=["table", "judge"])
    def test_the_share_of_checks_is_paid_where_it_is_asked_for(self, tests):
        half = "def f(x):\n    return 4\n"
        said = verdicts(
            [RIGHT, half, WRONG, "def f(x):\n    import os\n    if x != 2: os._exit(0)\n    return 4\n"],
            tests=tests,
            share=True,
        )
        assert values(said) == [1.0, 0.5, 0.0, 0.0], said
        assert "1 of 2 checks hold" in said[1].reason
        assert said[3].code == "exit"

    def test_the_share_of_inputs_is_paid_where_it_is_asked_for(self):
        tests = [{"input": "2", "output": "4"}, {"input": "3", "output": "9"}]
        said = verdicts(
            [
                "print(4)",
                "print(int(input())**2)",
                "import os\nprint(4, flush=True)\nif input() == '3': os.abort()",
            ],
            tests=tests,
            share=True,
        )
        assert values(said) == [0.5, 1.0, 0.0], said

    def test_a_problem_that_is_solved_in_place(self):
        tests = "xs = [3, 1, 2]\nsort(xs)\nassert xs == [1, 2, 3]\n"
        said = verdicts(
            ["def sort(xs):\n    xs.sort()\n", "def sort(xs):\n    return sorted(xs)\n"], tests=tests
        )
        assert codes(said) == [None, "wrong_answer"], said

    def test_arguments_are_by_value_unless_in_place_is_asked_for(self):
        tests = "xs = [1, 2, 3]\nassert f(xs) == [v * v for v in xs]\n"
        clearing = "def f(xs):\n    xs.clear()\n    return []\n"
        squares = "def f(xs):\n    return [x * x for x in xs]\n"
        assert values(verdicts([squares, clearing], tests=tests)) == [1.0, 0.0]
        assert values(verdicts([squares], tests=tests, in_place=True)) == [1.0]

    def test_the_column_in_place_reaches_a_judge(self):
        tests = (
            "import random\nfrom candidate import sort\nxs = random.Random(1).sample(range(9), 4)\n"
            "assert sort(xs) == sorted(xs) == xs\n"
        )
        assert compile_suite(tests).kind == "judge"
        sorting = "def sort(xs):\n    xs.sort()\n    return xs\n"
        assert values(verdicts([sorting], tests=tests)) == [0.0]
        assert values(verdicts([sorting], tests=tests, columns={"in_place": True})) == [1.0]

    TOGETHER = (
        "import candidate, inspect\nfrom candidate import f\n\ndef test_f(tmp_path):\n"
        "    assert 'return' in inspect.getsource(f)\n    assert f(2) == 4\n"
    )

    def test_tests_that_need_the_candidates_process_are_a_bad_row_unless_asked_for_by_name(self):
        isolated = unit_tests(HARMLESS)
        fault = isolated.lint({"tests": self.TOGETHER})
        if fault is None:  # what can be isolated is
            pytest.fail("this suite needs to be one that cannot be isolated")
        assert "cooperative" in fault

    def test_cooperative_suites_say_so(self):
        said = verdicts([RIGHT, WRONG, "import os\nos._exit(0)"], tests=self.TOGETHER, cooperative=True)
        assert values(said) == [1.0, 0.0, 0.0], said
        assert {verdict.integrity for verdict in said} == {"cooperative"}

    def test_what_can_be_isolated_is_although_cooperative_was_allowed(self):
        assert {verdict.integrity for verdict in verdicts([RIGHT, WRONG], cooperative=True)} == {"isolated"}


ENDS = {
    "cpu": {
        "spinning": SPINNING,
        "when it is loaded": "while True:\n    pass\n",
        "in children": (
            "import os, time\ndef f(x):\n    for _ in range(3):\n        if os.fork() == 0:\n"
            "            while True: pass\n    time.sleep(60)\n"
        ),
        "in threads": (
            "import threading\ndef spin():\n    while True: pass\ndef f(x):\n"
            "    ts = [threading.Thread(target=spin) for _ in range(3)]\n"
            "    [t.start() for t in ts]; [t.join() for t in ts]\n"
        ),
        "in one instruction": "def f(x):\n    return 7 ** (10 ** 9)\n",
    },
    "idle": {
        "asleep": SLEEPING,
        "in a deadlock": "import threading\ndef f(x):\n    l = threading.Lock()\n    while 1: l.acquire()\n",
        "in short sleeps": "import time\ndef f(x):\n    while True:\n        time.sleep(0.01)\n",
    },
    "memory": {
        "at once": "def f(x):\n    return len(b'x' * (400 << 20))\n",
        "bit by bit": "def f(x):\n    kept = []\n    while True:\n        kept.append(b'x' * (1 << 20))\n",
    },
    "processes": {"a fork bomb": "import os\ndef f(x):\n    while True:\n        os.fork()\n"},
    "threads": {
        "ten thousand": (
            "import threading, time\ndef f(x):\n    for _ in range(10000):\n"
            "        threading.Thread(target=time.sleep, args=(60,)).start()\n"
        ),
    },
    "files": {
        "too many": "def f(x):\n    for i in range(10000):\n        open(f'/tmp/{i}', 'w').close()\n",
        "too large": "def f(x):\n    h = open('/tmp/a', 'wb')\n    while True: h.write(b'x' * 100000)\n",
        "too many open": "def f(x):\n    kept = [open('/dev/null') for _ in range(10000)]\n",
    },
    "output": {
        "printed": "def f(x):\n    while True:\n        print('x' * 1000)\n",
        "when it is loaded": "while True:\n    print('x' * 1000)\n",
        "to standard error": "import os\ndef f(x):\n    while True:\n        os.write(2, b'x' * 100000)\n",
    },
    "source": {"too long": "#" * (1 << 20) + "\n" + RIGHT},
}  # fmt: skip


@pytest.fixture(scope="module")
def ends():
    """All of them in one run, with the groups' clocks."""
    programs = {(code, name): text for code, some in ENDS.items() for name, text in some.items()}

    async def main():
        async with opened(slots=16) as boundary:
            (group,) = await scored(unit_tests(boundary, limits=SMALL), group_of(*programs.values(), RIGHT))
            return dict(zip([*programs, ("right", "")], group.totals, strict=True))

    return asyncio.run(main())


@real
@pytest.mark.needs("cgroup")
class TestEachLimitHasACode:
    """Small limits; every case is its own program and its own end."""

    @pytest.mark.parametrize(("code", "name"), [(code, name) for code, some in ENDS.items() for name in some])
    def test_a_limit_is_the_floor_with_its_own_code(self, ends, code, name):
        verdict = ends[code, name]
        assert (verdict.value, verdict.code) == (0.0, code), verdict
        assert verdict.reason

    def test_the_honest_one_among_them_is_paid(self, ends):
        assert ends["right", ""].value == 1.0

    def test_children_share_their_parents_memory(self):
        together = (
            "import os, time\ndef f(x):\n    for _ in range(8):\n        if os.fork() == 0:\n"
            "            kept = b'x' * (40 << 20)\n            time.sleep(0.3)\n            os._exit(0)\n"
            "    for _ in range(8):\n        if os.wait()[1]: os.abort()\n    return x * x\n"
        )
        (verdict,) = verdicts([together])
        assert (verdict.value, verdict.code) == (0.0, "memory"), verdict

    @pytest.mark.parametrize("stdio", [False, True])
    def test_five_megabytes_of_output_are_allowed(self, stdio):
        noisy = "import sys\nsys.stderr.write('x' * 5_000_000)\ndef f(x):\n    return x * x\n"
        tests = SNIPPET
        if stdio:
            tests, noisy = [{"input": "2", "output": "x" * 5_000_000}], "print('x' * 5_000_000)"
        assert values(verdicts([noisy], tests=tests)) == [1.0]

    def test_limits_have_their_codes_in_each_kind_of_suite(self):
        programs = {
            "cpu": "while True:\n    pass\n",
            "idle": "import time\ntime.sleep(60)\n",
            "memory": "kept = []\nwhile True:\n    kept.append(b'x' * (1 << 20))\n",
            "processes": "import os\nwhile True:\n    os.fork()\n",
            "files": "for n in range(10000):\n    open(f'/tmp/{n}', 'w').close()\n",
        }
        for tests in (JUDGED, [{"input": "", "output": "x"}]):
            said = verdicts(list(programs.values()), tests=tests, limits=replace(SMALL, cpu_s=0.5))
            assert codes(said) == list(programs), said
            assert values(said) == [0.0] * len(programs)

    def test_a_flood_is_cut_in_each_kind_of_suite(self):
        flood = "while True:\n    print('x' * 1000)\n"
        for tests in (JUDGED, [{"input": "", "output": "x"}]):
            (verdict,) = verdicts([flood], tests=tests)
            assert (verdict.value, verdict.code) == (0.0, "output"), verdict

    def test_values_have_a_length(self):
        limits = Limits(reply_bytes=1 << 20)
        long, often, right = (
            "def f(x):\n    return 'x' * (5 << 20)\n",
            "def f(x):\n    return 'x' * 500_000\n",
            RIGHT,
        )
        tests = "\n".join(f"assert f({n}) == {n * n}" for n in range(8))
        said = verdicts([long, often, right], tests=tests, limits=limits, share=True)
        assert values(said) == [0.0, 0.0, 1.0], said

    @in_a_loop
    async def test_clocks_are_measured_apart_and_a_cut_is_censored(self):
        async with opened(slots=1) as boundary:
            reward = unit_tests(boundary, limits=SMALL)
            reported = []
            await reward(row(RIGHT), Context(report=reported.append))  # the slot is warm now
            both = [reward(row(code), Context(report=reported.append)) for code in (SPINNING, RIGHT)]
            await asyncio.gather(*both)
        right, spun, waited = reported
        for clocks in reported:
            assert clocks.spawn_s > 0
            assert clocks.wall_s > 0
        assert SMALL.cpu_s <= spun.cpu_s < SMALL.cpu_s * 2
        assert spun.censored
        assert not right.censored
        assert right.cpu_s < SMALL.cpu_s
        assert (
            waited.queued_s >= SMALL.cpu_s / 2 > waited.wall_s
        )  # it stood behind the other, at no cost of its own
        assert not waited.censored


@real
class TestTheIncentiveLaw:
    def test_the_wall_is_floor_only_after_a_second_attempt_and_an_honest_canary(self):
        awake = (
            "import time\ndef f(x):\n    while True:\n        until = time.process_time() + 0.002\n"
            "        while time.process_time() < until: pass\n        time.sleep(0.02)\n"
        )
        said = verdicts([awake, RIGHT], limits=Limits(cpu_s=1.0, wall_s=1.0))
        assert [(v.value, v.code) for v in said] == [(0.0, "wall_reproduced"), (1.0, None)], said

    def test_a_saboteur_changes_no_siblings_verdict(self):
        saboteurs = [
            "import os\nfor pid in range(2, 999):\n    try: os.kill(pid, 9)\n    except OSError: 0\n" + RIGHT,
            "import os\ndef f(x):\n    while True: os.fork()\n",
            "kept = []\nwhile True: kept.append(b'x' * (8 << 20))\n",
            WRITING + RIGHT,
            "import sys\ndef f(x):\n    sys.setrecursionlimit(10**9)\n    return f(x + 1)\n",
        ]  # fmt: skip
        honest = [
            RIGHT,
            WRONG,
            RIGHT.replace("x * x", "x ** 2"),
            WRONG,
            RIGHT,
            "def f(x):\n    raise KeyError\n",
            RIGHT,
        ]
        alone = values(verdicts(honest))
        assert alone == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
        for tests in (SNIPPET, JUDGED):
            said = [verdicts([*honest[:3], one, *honest[3:]], tests=tests) for one in saboteurs]
            assert [[v.value for n, v in enumerate(some) if n != 3] for some in said] == [alone] * len(
                saboteurs
            )

    def test_equal_attempts_draw_equal_chance(self):
        chance = (
            "import random\nx = random.random()\ndef f(n):\n    return x, hash('steelyard'), id.__name__\n"
        )
        tests = "assert f(1) == 0"
        said = verdicts([chance] * 3, tests=tests)
        assert len({v.reason for v in said}) == 1, said
        assert "0." in said[0].reason


class TestTheIncentiveLawWithABoundaryThatObeys:
    TOGETHER = TestEachFormOfSuite.TOGETHER
    PAIRS: ClassVar = [{"input": "2", "output": "4"}, {"input": "3", "output": "9"}]

    def judged(self, end, *rows, tests=SNIPPET, judge=lambda _source, _times: ALL_HOLD, **settings):
        boundary = FakeBoundary(end, judge)

        async def main():
            async with asyncio.timeout(30):
                groups = await scored(unit_tests(boundary, **settings), group_of(*rows, tests=tests))
                return list(groups[0].totals)

        return boundary, asyncio.run(main())

    @staticmethod
    def by_source(**ends):
        """What the fake boundary answers: the canary is answered unless it is named."""

        def end(source, times):
            name = source.strip() if source.strip() in ends else "canary" if "double" in source else source
            said = ends.get(name, CANARY_ANSWERS if name == "canary" else answering("4", "9"))
            return said[min(times, len(said) - 1)] if isinstance(said, list) else said

        return end

    def test_what_never_started_is_unscored_and_tried_no_second_time(self):
        boundary, said = self.judged(self.by_source(a=NEVER), "a", "b")
        assert isinstance(said[0], Unscored)
        assert (said[0].boundary, said[0].cause) == ("sandbox:fake", "no slot starts")
        assert said[1] == Scored(1.0, integrity="isolated")
        assert [source for source, *_ in boundary.runs].count(b"a") == 1

    def test_lost_contact_is_tried_again_in_a_fresh_slot_and_judged_if_it_then_answers(self):
        boundary, said = self.judged(self.by_source(a=[LOST, answering("4", "9")]), "a")
        assert said == [Scored(1.0, integrity="isolated")]
        assert [fresh for source, fresh, *_ in boundary.runs if source == b"a"] == [False, True]

    def test_lost_twice_while_the_canary_answers_is_the_floor(self):
        boundary, said = self.judged(self.by_source(a=LOST), "a")
        assert (said[0].value, said[0].code) == (0.0, "reproduced")
        canaries = [(fresh, urgent) for source, fresh, urgent, _ in boundary.runs if b"double" in source]
        assert canaries
        assert set(canaries) == {(True, True)}

    def test_the_wall_twice_while_the_canary_answers_is_the_floor(self):
        _, said = self.judged(self.by_source(a=WALL), "a")
        assert (said[0].value, said[0].code) == (0.0, "wall_reproduced")

    def test_a_judge_that_is_lost_twice_while_the_canaries_answer_is_the_floor(self):
        def judge(source, _times):
            return JUDGE_LOST if source == "a" else ALL_HOLD

        boundary, said = self.judged(self.by_source(), "a", "b", tests=JUDGED, judge=judge)
        assert (said[0].value, said[0].code, said[0].integrity) == (0.0, "reproduced", "isolated")
        assert "the judge was lost" in said[0].reason
        assert said[1] == Scored(1.0, integrity="isolated")
        assert [fresh for source, fresh, _ in boundary.checked if source == b"a"] == [False, True]

    def test_a_canary_is_an_honest_program_by_table_and_before_a_new_judge(self):
        boundary = FakeBoundary(self.by_source())
        assert asyncio.run(unit_tests(boundary, in_place=True, share=True).canary())
        ((source, fresh, urgent, _),) = boundary.runs
        ((checked, newly, checks),) = boundary.checked
        assert source == checked
        assert fresh
        assert urgent
        assert newly
        assert b"assert" in checks.source

    @pytest.mark.parametrize(
        "end", [JUDGE_LOST, NEVER, (Execution(Ended.ENOUGH), ALL_HOLD[1]._replace(passed=1, code="wrong"))]
    )
    def test_judges_that_fail_an_honest_program_stop_the_run_and_make_no_floor(self, end):
        def judge(source, _times):
            return end if "double" in source else JUDGE_LOST

        boundary = FakeBoundary(self.by_source(), judge)
        with pytest.raises(RunStoppedError, match="two new slots of fake failed an honest program"):
            asyncio.run(scored(unit_tests(boundary), group_of("a", tests=JUDGED)))
        assert sum(b"double" in source for source, *_ in boundary.checked) == 2

    @pytest.mark.parametrize("column", [None, True, False])
    @pytest.mark.parametrize("setting", [True, False])
    def test_the_column_in_place_goes_over_the_setting(self, column, setting):
        boundary = FakeBoundary(self.by_source())
        columns = {} if column is None else {"in_place": column}
        reward = unit_tests(boundary, in_place=setting)
        asyncio.run(reward(row("a", JUDGED, **columns), Context()))
        ((_, _, checks),) = boundary.checked
        assert checks.header["in_place"] is (setting if column is None else column)

    def test_a_lost_judge_leaves_evidence(self):
        reward = unit_tests(FakeBoundary(self.by_source(), lambda _source, _times: JUDGE_LOST))
        with pytest.raises(SuspectError) as suspect:
            asyncio.run(reward(row("a", JUDGED), Context()))
        assert suspect.value.evidence["integrity"] == "isolated"
        assert suspect.value.evidence["status"] == "Killed"
        assert "wait status 9" in suspect.value.evidence["words"]

    def test_a_cooperative_run_that_is_lost_is_cooperative_still(self):
        _, said = self.judged(self.by_source(a=LOST), "a", tests=self.TOGETHER, cooperative=True)
        assert (said[0].code, said[0].integrity) == ("reproduced", "cooperative")

    @pytest.mark.parametrize(("times", "error"), [(0, SandboxError), (1, SuspectError)])
    def test_what_ran_once_and_then_does_not_begin_is_suspect(self, times, error):
        ends = [replace(answering(), stdout=b"4")] * times + [NEVER]
        reward = unit_tests(FakeBoundary(self.by_source(a=ends)))
        with pytest.raises(error) as raised:
            asyncio.run(reward(row("a", self.PAIRS), Context()))
        if error is SuspectError:
            assert raised.value.evidence["integrity"] == "isolated"
            assert raised.value.clocks.wall_s == 0.1

    def test_it_is_a_resident(self):
        assert is_resident(unit_tests(HARMLESS))

    @pytest.mark.parametrize("end", [LOST, NEVER, answering("[21,22]"), WALL])
    def test_a_canary_that_fails_in_two_new_slots_stops_the_run(self, end):
        boundary = FakeBoundary(self.by_source(a=LOST, canary=end))
        with pytest.raises(RunStoppedError, match="two new slots of fake failed an honest program"):
            asyncio.run(scored(unit_tests(boundary), group_of("a")))
        assert sum(b"double" in source for source, *_ in boundary.runs) == 2
        assert boundary.closed

    def test_a_canary_that_fails_once_is_asked_a_second_time(self):
        _, said = self.judged(self.by_source(a=LOST, canary=[LOST, CANARY_ANSWERS]), "a")
        assert said[0].code == "reproduced"

    @pytest.mark.parametrize("limit", ["cpu", "idle", "memory", "processes", "files", "output"])
    def test_a_limit_of_its_own_is_final(self, limit):
        boundary, said = self.judged(
            self.by_source(a=[Execution(Ended.LIMIT, limit=limit), answering("4", "9")]), "a"
        )
        assert (said[0].value, said[0].code) == (0.0, limit)
        assert len(boundary.runs) == 1

    @pytest.mark.parametrize(
        ("end", "code"),
        [
            (Execution(Ended.EXIT, 0), "exit"),
            (Execution(Ended.SIGNAL, 11), "signal"),
            (Execution(Ended.LIMIT, limit="protocol"), "protocol"),
            (Execution(Ended.SIGNAL, 6, evidence={"memory_kills": 1, "refused_processes": 0}), "memory"),
            (Execution(Ended.EXIT, 1, evidence={"memory_kills": 0, "refused_processes": 3}), "processes"),
        ],
    )
    def test_an_end_of_its_own_is_final(self, end, code):
        boundary, said = self.judged(self.by_source(a=end), "a")
        assert (said[0].value, said[0].code) == (0.0, code)
        assert len(boundary.runs) == 1

    def test_positive_evidence_only(self):
        """All answers and an end: what is missing is not made up for by an exit status of 0."""
        for replies in (
            (),
            (b'["loaded"]',),
            (b'["loaded"]', b'["r",0,[["v",4]]]'),
            (b'["loaded"]', b'["done"]'),
            (b'["done"]',),
        ):
            _, said = self.judged(self.by_source(a=Execution(Ended.EXIT, 0, replies=replies)), "a")
            assert said[0].value == 0.0, replies

    def test_a_second_attempt_is_equal_to_the_first(self):
        boundary, _ = self.judged(self.by_source(a=LOST), "a")
        headers = [header for source, *_, header in boundary.runs if source == b"a"]
        assert len(headers) == 2
        assert headers[0] == headers[1]

    def test_the_attempts_and_their_evidence_are_in_the_record(self, monkeypatch):
        attempts = []
        record = Runtime._record

        def noted(self, batch, *more):
            attempts.extend(batch.attempts)
            record(self, batch, *more)

        monkeypatch.setattr(Runtime, "_record", noted)
        lost = replace(LOST, stdout=b"here", stderr=b"there", peak_bytes=7)
        self.judged(self.by_source(a=lost, b=WALL, c=NEVER), "a", "b", "c")
        by_row = {}
        for one in attempts:
            by_row.setdefault(one.first, []).append(one)
        assert [one.end for one in by_row[0]] == [End.LOST, End.LOST]
        for one in by_row[0]:
            seen = {
                "status": "contact was lost",
                "ended": "lost",
                "stdout": "here",
                "stderr": "there",
                "peak_bytes": 7,
            }
            assert seen.items() <= one.evidence.items()
            assert one.evidence["cause"] == "nobody knows how it ended"
        assert [(one.end, one.limit, one.clocks.censored) for one in by_row[1]] == [
            (End.CUT, "wall", True)
        ] * 2
        assert by_row[1][0].clocks.wall_s == 9.0
        assert [one.end for one in by_row[2]] == [End.NEVER_STARTED]

    def test_a_bad_row_says_what_is_wrong_with_it(self):
        lint = unit_tests(HARMLESS).lint
        assert lint({"tests": SNIPPET}) is None
        assert "completion_mode" in lint({"tests": SNIPPET, "completion_mode": "half"})
        for tests in (None, "", "x = 1", 7, [], {"inputs": ["1"], "outputs": []}):
            assert "'tests'" in lint({"tests": tests}), tests


class TestWhatIsHeard:
    TABLE = compile_suite(SNIPPET).table

    def hear(self, *frames, share=False):
        hearing = TableHearing(self.TABLE, share=share)
        for frame in frames:
            if hearing.listen(frame):
                break
        return hearing

    def test_all_checks_and_an_end_are_a_pass(self):
        hearing = self.hear(b'["loaded"]', b'["r",0,[["v",4],["v",9]]]', b'["done"]')
        assert hearing.said() == (2, None)

    @pytest.mark.parametrize(
        "frames",
        [
            [b'["r",0,[["v",4],["v",9]]]', b'["done"]'],
            [b'["loaded"]', b'["loaded"]'],
            [b'["loaded"]', b'["r",0,[["v",4],["v",9],["v",9]]]'],
            [b'["loaded"]', b'["r",1,[["v",9]]]'],
            [b'["loaded"]', b'["r",0,[["v",4]]]', b'["done"]'],
            [b'["loaded"]', b'["r",0,[["v",4],["v",9]]]', b'["done"]', b'["done"]'],
            [b'["loaded"]', b'["r",0,[["v",4]]]', b'["r",0,[["v",4]]]'],
            [b'["load_error","E","m",1e999]'],
            [b'["load_error"]'],
            [b'"loaded"'],
            [b"{}"],
            [b""],
            [b"\xff\xfe"],
            [b"[" * 200_000],
            [b'["loaded"]', b'["r",0,[["v",{"i":"zz"}]]]'],
            [b'["loaded"]', b'["r",0,[["w",4]]]'],
            [b'["loaded"]', b'["r",0,' + b"[" * 50_000],
            [b'["passed",{"planned":2,"passed":2}]'],
        ],
    )
    def test_a_message_out_of_turn_is_no_pass_and_no_error_of_ours(self, frames):
        hearing = self.hear(*frames)
        assert hearing.said() is None or hearing.said()[0] < 2

    @given(
        st.lists(
            st.binary(max_size=40) | st.sampled_from([b'["loaded"]', b'["done"]', b'["r",0,[["v",4]]]']),
            max_size=6,
        )
    )
    def test_nothing_but_the_right_values_is_a_pass(self, frames):
        said = self.hear(*frames).said()
        assert said is None or said[0] < 2

    def test_an_error_of_ours_in_comparing_is_no_fault_of_the_candidate(self, monkeypatch):
        """It is raised, and tried again: a floor would say of the completion what is true of us."""
        monkeypatch.setattr(hearing, "judge_check", None)
        heard = self.hear(b'["loaded"]', b'["r",0,[["v",4],["v",9]]]', b'["done"]')
        assert heard.fault is None
        with pytest.raises(TypeError):
            heard.said()

    def test_one_that_fails_is_enough_unless_the_share_is_paid(self):
        frames = (b'["loaded"]', b'["r",0,[["v",5]]]', b'["r",1,[["v",9]]]', b'["done"]')
        assert self.hear(*frames).said()[0] == 0
        assert self.hear(*frames, share=True).said()[0] == 1

    def test_a_report_counts_only_with_its_nonce(self):
        report = {"collected": 1, "passed": 1, "all_passed": True, "reason": ""}
        frame = json.dumps(["report", {"nonce": "n", **report}]).encode()
        assert report_in([frame], "n").code is None
        assert report_in([frame], "m") is None
        for hostile in (
            {"passed": 2},
            {"passed": True},
            {"collected": 10**30},
            {"passed": -1},
            {"collected": 0, "passed": 0},
        ):
            said = report_in([json.dumps(["report", {"nonce": "n", **report, **hostile}]).encode()], "n")
            assert said is None or said.code is not None or said.passed != said.planned

    @pytest.mark.parametrize(
        ("reason", "code"),
        [
            ("f(2) == 4: MemoryError in line 3: ", "memory"),
            ("OSError in line 3: [Errno 12] Cannot allocate memory", "memory"),
            ("RuntimeError in line 3: can't start new thread", "threads"),
            ("BlockingIOError in line 3: [Errno 11] Resource temporarily unavailable", "processes"),
            ("OSError in line 1: [Errno 28] No space left on device", "files"),
            ("OSError in line 1: [Errno 24] Too many open files", "files"),
            ("ValueError in line 1: x", "exception"),
        ],
    )
    def test_an_exception_that_tells_of_a_limit_has_the_limits_code(self, reason, code):
        assert told_code("exception", reason) == code
        assert told_code("wrong_answer", reason) == "wrong_answer"


@real
@pytest.mark.needs("data")
class TestRealCompletions:
    def rows(self, data_dir, name):
        rows = map(json.loads, (data_dir / f"{name}.jsonl").read_text("utf-8").splitlines())
        return [one for one in rows if one["known_label"] is not None]

    def judged(self, rows):
        columns = ("tests", "entry_point", "completion_mode")
        groups = [
            Group(
                one["id"],
                number,
                [
                    row(
                        one["completion"],
                        prompt=one["prompt"],
                        ordinal=number,
                        **{k: one[k] for k in columns if k in one},
                    )
                ],
            )
            for number, one in enumerate(rows)
        ]

        async def main():
            async with opened(slots=16) as boundary:
                return {one.group.id: one.totals[0] async for one in _all(unit_tests(boundary), groups)}

        return asyncio.run(main())

    @pytest.mark.slow
    def test_every_label_of_real_completions_holds_and_their_suites_are_isolated(self, data_dir):
        rows = self.rows(data_dir, "code_humaneval_mbpp")
        said = self.judged(rows)
        assert [one["id"] for one in rows if (said[one["id"]].value >= 1.0) != one["known_label"]] == []
        kinds = [compile_suite(one["tests"], one["entry_point"]).kind for one in rows]
        assert {kind: kinds.count(kind) / len(kinds) for kind in set(kinds) - {"table", "judge"}} == {}

    def test_no_wrong_program_passes_but_the_one_that_satisfies_every_check(self, data_dir):
        rows = self.rows(data_dir, "code_adversarial")
        said = self.judged(rows)
        wrong = [one["id"] for one in rows if (said[one["id"]].value >= 1.0) != one["known_label"]]
        assert [name.rpartition("/")[2] for name in wrong] == ["hardcode"]


async def _all(reward, groups):
    for one in await scored(reward, *groups):
        yield one
