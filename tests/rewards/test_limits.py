"""CPU limits that are not fixed, from the row to the record: held, noted, audited, learnt from again."""

import asyncio
import pickle
from contextlib import contextmanager
from dataclasses import replace

import pytest

from boundaries import (
    JUDGED,
    LOST,
    RIGHT,
    SNIPPET,
    SPINNING,
    FakeBoundary,
    answering,
    group_of,
    in_a_loop,
    opened,
    row,
)
from steelyard.clock import Clocks
from steelyard.errors import RefusedError, RunStoppedError
from steelyard.execution import Ended, Execution, Limits
from steelyard.ledger import Ledger
from steelyard.outcome import Asked, End, Part, Scored
from steelyard.rewards import Recipe, limits
from steelyard.rewards.code import tests as unit_tests
from steelyard.rewards.limits import LOST as UNKNOWN
from steelyard.rewards.limits import References
from steelyard.rollout import Group
from steelyard.runtime import Runtime
from steelyard.sandbox.boundary import Opinion
from steelyard.sandbox.calibration import EVERY_S, STANDARD_S, Calibration
from steelyard.scheduling.audits import AUDIT
from steelyard.scheduling.deadlines import Deadlines
from steelyard.testing import FakeClock

real = pytest.mark.needs("bubblewrap")

TEN = Limits(cpu_s=10.0)


class Timed(FakeBoundary):
    """Runs programs that take as long as their first line says, and are right if they last."""

    speed = 1.0

    def __init__(self):
        super().__init__(None)
        self.held = []

    def _took(self, source, limits):
        self.held.append(limits.cpu_s)
        cpu_s = float(source.split(b"\n")[0].removeprefix(b"# ")) * self.speed
        if cpu_s > limits.cpu_s:
            clocks = Clocks(cpu_s=limits.cpu_s, wall_s=limits.cpu_s, censored=True)
            return Execution(Ended.LIMIT, limit="cpu", clocks=clocks)
        return replace(answering("4", "9"), clocks=Clocks(cpu_s=cpu_s, wall_s=cpu_s))

    async def run(self, program, limits, *, listen=None, fresh=False, urgent=False):
        await asyncio.sleep(0)
        said = self._took(program.source, limits)
        if program.mode == "program":
            return replace(said, stdout=b"4\n") if said.limit is None else said
        for frame in said.replies if listen is not None else ():
            if listen(frame):
                break
        return said

    async def check(self, source, checks, limits, *, fresh=False):
        await asyncio.sleep(0)
        said = self._took(source, limits)
        return said, Opinion(2, 2) if said.limit is None else Opinion(code="gone")


class Scaled(Timed):
    """The same on a machine that is half as fast."""

    speed = 2.0

    def score(self, _source):
        return self.speed


def takes(cpu_s, number=0):
    return f"# {cpu_s}\n\n# {number}\ndef f(x):\n    return x * x\n"


def step_of(number, times, *, size=8, **columns):
    """The groups of a step: programs that take so long."""
    groups = []
    for start in range(0, len(times), size):
        ordinal = number * 10_000 + start
        rows = [
            row(takes(cpu_s, ordinal + place), ordinal=ordinal + place, **columns)._replace(
                key=(ordinal, place)
            )
            for place, cpu_s in enumerate(times[start : start + size])
        ]
        groups.append(Group(f"g{ordinal}", ordinal, rows))
    return groups


def taught(cpu_s=1.0, kind="table"):
    """A limiter that knows a kind of suite from two steps, of which the second proved the first."""
    limiter = Deadlines()
    for step in ("one", "two"):
        for number in range(700):
            asked = Asked("tests", kind, str(number), step, 10.0)
            limiter.observe(asked, limiter.limit(asked), cpu_s, passed=True, cut=False)
    return limiter


@contextmanager
def recorded(path, reward):
    with Ledger(path) as ledger:
        yield ledger, ledger.begin("run", {"of": "this test"}, {reward.name: reward.identity})


async def run(steps, *, boundary=None, word="adaptive", limits=TEN, within=None, **settings):
    """What became of steps, one call of the runtime each; and the runtime."""
    reward = unit_tests(boundary or Timed(), limits=limits, deadline=word)
    async with Runtime(Recipe((Part(reward),)), workers=1, stop=False, **settings) as runtime:
        said = []
        for groups in steps:
            said.append([one async for one in runtime.score(groups)])
            if within is not None:
                await within(runtime)
    return said, runtime


async def audited(runtime):
    """Let every audit that is due be made."""
    (audits,) = runtime._audits.values()
    await audits.close()


def learnt(steps, **settings):
    return asyncio.run(run(steps, **settings))


def totals(scored):
    return [total for one in scored for total in one.totals]


class TestHeld:
    def test_a_fixed_limit_asks_nobody(self):
        boundary = Timed()
        said, runtime = learnt([step_of(0, [1.0])], boundary=boundary, word="fixed", limiter=taught())
        assert set(boundary.held) == {10.0}
        assert runtime.standings() == []
        assert {type(total) for total in totals(said[0])} == {Scored}

    def test_what_takes_longer_than_the_deadline_is_the_floor_with_a_code_of_its_own(self):
        steps = [step_of(0, [1.0] * 32), step_of(1, [1.0] * 608), step_of(2, [1.0] * 7 + [5.0])]
        boundary = Timed()
        said, _ = learnt(steps, boundary=boundary)
        assert set(boundary.held[:640]) == {10.0}
        codes = [total.code for total in totals(said[2])]
        assert codes == [None] * 7 + ["cpu_adaptive"]
        last = totals(said[2])[7]
        assert (last.value, last.integrity) == (0.0, "isolated")
        assert "its deadline was 2 CPU-s of 10, P(cut | would pass) < 0.49% (95 %)" in last.reason

    def test_a_kind_of_suite_of_its_own_is_not_cut(self):
        said, _ = learnt([step_of(4, [5.0], tests=JUDGED)], limiter=taught())
        assert totals(said[0])[0].value == 1.0

    def test_for_pairs_it_holds_for_each_input_and_the_longest_counts(self):
        pairs = [{"input": "2", "output": "4"}] * 5
        steps = [step_of(0, [1.5] * 40, tests=pairs), step_of(1, [2.2, 2.3], tests=pairs)]
        said, _ = learnt(steps, limiter=taught(kind="stdio"))  # the kind's is 2 s, its own 2.25 s
        assert [total.code for total in totals(said[1])] == [None, "cpu_adaptive"]

    def test_on_a_slower_machine_the_same_programs_are_cut(self):
        boundary = Scaled()
        said, _ = learnt([step_of(4, [1.9, 2.1])], boundary=boundary, limiter=taught())
        assert [total.code for total in totals(said[0])] == [None, "cpu_adaptive"]
        assert boundary.held[:2] == [4.0, 4.0]

    def test_on_a_machine_so_slow_that_nothing_is_below_what_was_declared_it_is_the_declared_limit(self):
        said, _ = learnt([step_of(0, [6.0])], boundary=Scaled())
        assert totals(said[0])[0].code == "cpu"

    def test_a_word_that_is_none_is_refused(self):
        with pytest.raises(RefusedError, match="'quick'"):
            unit_tests(Timed(), deadline="quick")

    def test_the_word_is_part_of_the_identity(self):
        identities = {
            unit_tests(Timed(), deadline=word).identity for word in ("fixed", "reference", "adaptive")
        }
        assert len(identities) == 3


class TestReferences:
    def cut_at(self, reference, word="reference"):
        boundary = Timed()
        said, _ = learnt([step_of(0, [2.5, 5.0], reference=reference)], boundary=boundary, word=word)
        return boundary.held[:-1], [total.code for total in totals(said[0])]  # the last is an audit

    def test_a_number_is_what_a_solution_took(self):
        assert self.cut_at(0.1) == ([2.0, 2.0, 10.0], ["cpu_adaptive", "cpu_adaptive"])
        assert self.cut_at(1) == ([3.0, 3.0], [None, "cpu_adaptive"])

    def test_a_text_is_a_solution_that_is_run_once(self):
        held, codes = self.cut_at(takes(1.0))
        assert sorted(held) == [3.0, 3.0, 10.0]
        assert codes == [None, "cpu_adaptive"]

    def test_a_solution_that_does_not_pass_limits_nothing_and_the_record_says_so(self, tmp_path):
        reward = unit_tests(Timed(), limits=TEN, deadline="reference")
        with recorded(tmp_path / "l", reward) as (ledger, run_):
            said, _ = learnt(
                [step_of(0, [5.0], reference=takes(11.0))], word="reference", ledger=ledger, run=run_
            )
            (attempt,) = ledger.attempts(run_)
        assert totals(said[0])[0].value == 1.0
        assert attempt.evidence["deadline"]["reference"] == "fails its own tests"

    @pytest.mark.parametrize("lost", [LOST, Execution(Ended.LIMIT, limit="wall", clocks=Clocks(wall_s=9.0))])
    def test_a_solution_that_was_lost_limits_nothing_in_its_step_and_is_run_again_in_the_next(
        self, tmp_path, lost
    ):
        class Losing(Timed):
            left = 1

            def _took(self, source, limits):
                if b"reference" not in source or not self.left:
                    return super()._took(source, limits)
                self.left -= 1
                return lost

        boundary, reference = Losing(), takes(1.0, "reference")
        reward = unit_tests(boundary, limits=TEN, deadline="reference")
        with recorded(tmp_path / "l", reward) as (ledger, run_):
            steps = [step_of(number, [5.0] * 2, size=1, reference=reference) for number in range(2)]
            said, _ = learnt(steps, boundary=boundary, word="reference", ledger=ledger, run=run_)
            faults = [
                one.evidence["deadline"].get("reference")
                for one in ledger.attempts(run_)
                if one.ordinal != AUDIT
            ]
        assert [[total.code for total in totals(one)] for one in said] == [[None] * 2, ["cpu_adaptive"] * 2]
        assert faults == [UNKNOWN] * 2 + [None] * 2

    def test_what_solutions_took_is_known_by_kind_and_not_for_ever_and_stays_in_its_process(
        self, monkeypatch
    ):
        monkeypatch.setattr(limits, "REMEMBERED", 2)
        references, ran = References(), []

        async def took(kind, test):
            async def judge(_boundary, _context):
                ran.append((kind, test))
                return Scored(1.0)

            asked = Asked("tests", kind, test, "a step", 10.0)
            assert (await references.took(asked, "a solution", Timed(), judge)).fault is None

        async def main():
            for kind, test in [("stdio:c", "1"), ("stdio:rust", "1"), ("stdio:c", "1"), ("stdio:c", "2")]:
                await took(kind, test)
            await took("stdio:c", "1")
            await took("stdio:rust", "1")

        asyncio.run(main())
        assert ran == [("stdio:c", "1"), ("stdio:rust", "1"), ("stdio:c", "2"), ("stdio:rust", "1")]
        assert pickle.loads(pickle.dumps(references))._asked == {}  # noqa: S301 - our own

    @pytest.mark.parametrize("wrong", [0, -1.0, True, "", " ", [1.0], float("inf"), float("nan")])
    def test_what_is_neither_is_a_bad_row(self, wrong):
        reward = unit_tests(Timed(), deadline="reference")
        assert "'reference' is" in reward.lint({"tests": SNIPPET, "reference": wrong})
        assert unit_tests(Timed()).lint({"tests": SNIPPET, "reference": wrong}) is None

    def test_where_limits_are_fixed_it_is_no_column(self):
        assert "reference" not in unit_tests(Timed()).also
        assert "reference" in unit_tests(Timed(), deadline="reference").also


class TestAudits:
    SLOW = step_of(4, [5.0] * 40)

    def test_they_are_attempts_of_their_own_and_change_no_score(self, tmp_path):
        reward = unit_tests(Timed(), limits=TEN, deadline="adaptive")
        with recorded(tmp_path / "l", reward) as (ledger, run_):
            said, runtime = learnt([self.SLOW], within=audited, ledger=ledger, run=run_, limiter=taught())
            attempts = [one for one in ledger.attempts(run_) if one.first >= 40_000]
            scores = {ordinal: verdict for ordinal, _, verdict, _ in ledger.scores(run_)}
            times = list(ledger.service_times(run_, 0))
        assert {total.code for total in totals(said[0])} == {"cpu_adaptive"}
        tries = [one for one in attempts if one.ordinal != AUDIT]
        audits = [one for one in attempts if one.ordinal == AUDIT]
        assert (len(tries), len(audits)) == (40, len(audits))
        assert {one.limit for one in tries} == {"cpu_adaptive"}
        assert 0 < len(audits) < 20
        assert {one.end for one in audits} == {End.FINISHED}
        assert {scores[one.first].code for one in audits} == {"cpu_adaptive"}
        assert len(times) == len(scores)
        killed = sum(one.killed for one in runtime.standings())
        assert killed == len(audits) == sum(one.audited for one in runtime.standings())

    def test_kills_that_they_find_end_the_deadline(self):
        after = step_of(5, [5.0] * 8)
        said, _ = learnt([self.SLOW, after], within=audited, limiter=taught())
        assert {total.code for total in totals(said[0])} == {"cpu_adaptive"}
        assert {total.code for total in totals(said[1])} == {None}

    def test_what_is_left_when_the_runtime_closes_is_dropped_and_counted(self, monkeypatch):
        from steelyard import runtime

        monkeypatch.setattr(runtime, "CLOSE_S", 0.0)
        _, closed = learnt([self.SLOW], limiter=taught())
        dropped, made = (
            sum(getattr(one, word) for one in closed.standings()) for word in ("dropped", "audited")
        )
        assert dropped > 0
        assert dropped + made < 20

    def test_an_older_record_is_learnt_from_and_its_missed_audits_are_made(self, tmp_path):
        reward = unit_tests(Timed(), limits=TEN, deadline="adaptive")
        path, slow = tmp_path / "l", step_of(4, [5.0] * 40)
        with recorded(path, reward) as (ledger, run_):
            said, before = learnt([slow], within=audited, ledger=ledger, run=run_, limiter=taught())
            whole = [(one.first, one.ordinal) for one in ledger.attempts(run_)]
            ledger._db.execute("DELETE FROM attempts WHERE try = -1")
        with recorded(path, reward) as (ledger, run_):
            assert run_.resumed
            again, after = learnt([slow], within=audited, ledger=ledger, run=run_, limiter=taught())
            now = [(one.first, one.ordinal) for one in ledger.attempts(run_)]
        assert sorted(now) == sorted(whole)
        assert after.standings() == before.standings()
        assert [totals(one) for one in again] == [totals(one) for one in said]

    def test_a_step_that_was_interrupted_goes_on_with_its_deadlines(self, tmp_path):
        reward = unit_tests(Timed(), limits=TEN, deadline="adaptive")
        path, slow = tmp_path / "l", step_of(4, [1.0] * 8 + [5.0] * 8)
        boundary = Timed()
        with recorded(path, reward) as (ledger, run_):
            learnt([slow[:1]], ledger=ledger, run=run_, limiter=taught())
        with recorded(path, reward) as (ledger, run_):
            settings = {"boundary": boundary, "ledger": ledger, "run": run_}
            said, _ = learnt([slow], **settings, limiter=taught(4.0))  # 6 s, had it not begun
        assert {total.code for total in said[0][-1].totals} == {"cpu_adaptive"}
        assert boundary.held.count(2.0) == 8  # the others were judged before


class TestTheEnd:
    """However a runtime ends: nothing runs on."""

    class Kept(Timed):
        """An audit there lasts for ever; that it was ended, and the boundary closed, is noted."""

        def __init__(self):
            super().__init__()
            self.events, self.audits = [], asyncio.Event()

        def score(self, _source):
            return 1.0

        async def run(self, program, limits, **more):
            if limits.cpu_s < 10.0:
                return await super().run(program, limits, **more)
            try:
                self.audits.set()
                await asyncio.Event().wait()
            finally:
                self.events.append("ended")

        async def close(self):
            self.events.append("closed")

    async def scored(self, boundary, **record):
        reward = unit_tests(boundary, limits=TEN, deadline="adaptive")
        runtime = Runtime(Recipe((Part(reward),)), workers=1, stop=False, limiter=taught(), **record)
        async with runtime:
            async for _ in runtime.score(step_of(4, [5.0] * 40)):
                pass
            await boundary.audits.wait()

    @in_a_loop
    async def test_an_interrupt_while_audits_are_waited_for_ends_them_and_closes_the_boundary(self):
        boundary = self.Kept()
        task = asyncio.ensure_future(self.scored(boundary))
        await boundary.audits.wait()
        for _ in range(100):  # until it waits for them
            await asyncio.sleep(0)
        assert boundary.events == []
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert boundary.events == ["ended"] * (len(boundary.events) - 1) + ["closed"]
        assert len(boundary.events) > 1

    @in_a_loop
    async def test_a_record_that_cannot_be_written_closes_the_boundary(self, monkeypatch, tmp_path):
        from steelyard import runtime

        class Full(Ledger):
            def leave(self, *given, **what):
                if "scores" not in what:
                    raise RunStoppedError("the disk is full")
                super().leave(*given, **what)

        monkeypatch.setattr(runtime, "CLOSE_S", 0.0)
        boundary = self.Kept()
        with Full(tmp_path / "l") as ledger:
            run_ = ledger.begin("run", {"of": "this test"}, {"tests": unit_tests(boundary).identity})
            with pytest.raises(RunStoppedError, match="the disk is full"):
                await self.scored(boundary, ledger=ledger, run=run_)
        assert boundary.events[-1] == "closed"


class TestStepsOfAFile:
    def seen(self, times, **columns):
        async def main():
            reward = unit_tests(Timed(), limits=TEN, deadline="adaptive")
            recipe = Recipe((Part(reward),))
            groups = [one for many in times for one in many]
            runtime = Runtime(recipe, workers=1, stop=False, by_chunk=True)
            return [one async for one in runtime.score(groups)], runtime

        return asyncio.run(main())

    def test_each_value_of_the_column_is_one(self):
        steps = [step_of(number, [1.0] * 16, step=number) for number in range(3)]
        cut = step_of(4, [5.0], step=9)
        _, runtime = self.seen([*steps, cut])
        (limiter,) = [audits.limiter for audits in runtime._audits.values()]
        assert list(limiter._steps) == ["step 0", "step 1", "step 2", "step 9"]

    def test_else_every_thousand_rollouts_are_one(self):
        _, runtime = self.seen([step_of(0, [1.0] * 1_050)])
        (limiter,) = [audits.limiter for audits in runtime._audits.values()]
        assert list(limiter._steps) == [0, 1_024]


@real
def test_behind_a_boundary_a_hanging_program_is_cut_there_and_the_record_shows_why(tmp_path, capsys):
    from steelyard.cli.row import show_row

    reward = unit_tests("bubblewrap", limits=Limits(cpu_s=30.0), deadline="reference")
    rows = [row(code, ordinal=at, reference=RIGHT) for at, code in enumerate((RIGHT, SPINNING))]
    rows = [one._replace(key=(0, at)) for at, one in enumerate(rows)]

    async def main(**record):
        async with asyncio.timeout(100):
            runtime = Runtime(Recipe((Part(reward),)), workers=1, **record)
            (one,) = [one async for one in runtime.score([Group("g", 0, rows)])]
            return one.totals

    with recorded(tmp_path / "l", reward) as (ledger, run_):
        right, spinning = asyncio.run(main(ledger=ledger, run=run_))
        show_row(ledger, "1")
    assert (right.value, spinning.code) == (1.0, "cpu_adaptive")
    shown = capsys.readouterr().out
    assert "2 s of CPU at slowness 1, from reference, of 30 s" in " ".join(shown.split())
    assert "step from group 0 on; " in " ".join(shown.split())
    assert "P(cut | would pass) < 100.00% (95 %)" in " ".join(shown.split())


class FakeSlot:
    def __init__(self, *spins):
        self.spun, self.spins = None, list(spins)

    async def spin(self):
        return self.spins.pop(0)


class TestCalibration:
    def test_nothing_is_spun_before_somebody_asks(self):
        slot = FakeSlot(STANDARD_S)
        calibration = Calibration(FakeClock())
        asyncio.run(calibration.refresh(slot, ""))
        assert slot.spins
        assert calibration.score("") == 1.0
        asyncio.run(calibration.refresh(slot, ""))
        assert not slot.spins

    def test_a_slot_spins_again_after_a_while_and_the_median_counts(self):
        clock, slot = FakeClock(), FakeSlot(2 * STANDARD_S, 3 * STANDARD_S, 90 * STANDARD_S)
        calibration = Calibration(clock)
        calibration.score("")
        for _ in range(3):
            asyncio.run(calibration.refresh(slot, ""))
            asyncio.run(calibration.refresh(slot, ""))
            clock.tick(EVERY_S + 1)
        assert calibration.score("") == 3.0
        assert calibration.score("numpy") == 1.0

    @real
    def test_a_slot_times_a_piece_of_work_that_is_not_its_guests(self):
        async def main():
            async with opened() as boundary:
                assert boundary.score(b"") == 1.0
                reward = unit_tests(boundary, limits=TEN, deadline="adaptive")
                async with Runtime(Recipe((Part(reward),)), workers=1) as runtime:
                    (one,) = [one async for one in runtime.score([group_of(takes(0), takes(0, 1))])]
                    return boundary.score(b""), one

        score, one = asyncio.run(main())
        assert score != 1.0
        assert 0.05 < score < 50
        assert [total.value for total in one.totals] == [1.0, 1.0]
