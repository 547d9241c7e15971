"""The incentive law: nothing that a completion can bring about is worth more than plain failure."""

import asyncio
from itertools import count

import pytest
from doubles import RAISED, Double, Scripted, by_completion, groups_of, judge, judged, scheduler_of, settled

from steelyard.clock import Clocks
from steelyard.errors import JudgeError, RewardError, RunStoppedError, SandboxError, SuspectError
from steelyard.outcome import Abstained, End, Failure, How, Part, Score, Scored, Takes, Unscored
from steelyard.testing import FakeClock

WALL = Failure(End.CUT, "no answer", limit="wall")
LOST = Failure(End.LOST, "its process was ended by SIGSEGV")


async def one(_rollout, _context):
    return 1.0


def scripted(rows=4, *, floor=-1.0, canary=None, **ends):
    """Verdicts of one group by a caller that fails as told."""
    caller = Scripted(by_completion(**ends), canary=canary)
    outcome = judged(groups_of(rows), Double(one, how=How.WORKER, floor=floor), callers={"double": caller})
    return outcome, caller


def tries(outcome, ordinal):
    return [(a.ordinal, a.end) for a in outcome.attempts if a.first == ordinal]


# --- twice, in a fresh place, then the canary


def test_a_reward_that_raises_once_is_asked_again_and_its_second_word_counts():
    outcome, caller = scripted(a1=[RAISED, Scored(0.5)])
    assert outcome.values() == {"a0": 1.0, "a1": 0.5, "a2": 1.0, "a3": 1.0}
    assert tries(outcome, 1) == [(0, End.RAISED), (1, End.FINISHED)]
    assert caller.fresh == [["a1"]]
    by_id = {attempt.id: attempt for attempt in outcome.attempts}
    (score,) = [score for score in outcome.scores if score.ordinal == 1]
    assert by_id[score.attempt].ordinal == 1


def test_a_reward_that_raises_twice_while_its_canary_is_answered_gives_the_floor():
    outcome, caller = scripted(canary=True, a1=RAISED)
    assert outcome.verdicts()["a1"] == Scored(-1.0, "reward_error", "ValueError: on this content")
    assert tries(outcome, 1) == [(0, End.RAISED), (1, End.RAISED)]
    assert caller.fresh == [["a1"]]


def test_without_a_canary_of_its_own_a_row_that_was_judged_serves_in_a_fresh_process():
    outcome, caller = scripted(a1=RAISED)
    assert outcome.codes()["a1"] == "reward_error"
    assert caller.fresh == [["a1"], ["a3"]]
    assert outcome.values()["a3"] == 1.0


@pytest.mark.parametrize("canary", [True, None], ids=["its own", "a judged row"])
def test_each_failure_has_its_code_when_it_is_reproduced(canary):
    outcome, _ = scripted(canary=canary, a0=RAISED, a1=WALL, a2=LOST)
    assert outcome.codes() == {"a0": "reward_error", "a1": "wall_reproduced", "a2": "reproduced", "a3": None}
    assert outcome.values() == {"a0": -1.0, "a1": -1.0, "a2": -1.0, "a3": 1.0}


def test_a_failing_canary_makes_a_row_unscored():
    outcome, _ = scripted(canary=False, a1=RAISED)
    verdict = outcome.verdicts()["a1"]
    assert isinstance(verdict, Unscored)
    assert "its canary failed too" in verdict.cause


@pytest.mark.parametrize("canary", ["raises", "hangs", "cancels itself"])
def test_a_canary_that_raises_or_does_not_answer_has_failed_and_hangs_nobody(canary):
    async def main():
        asked = asyncio.Event()

        async def ask():
            asked.set()
            if canary == "raises":
                raise ConnectionError("down")
            if canary == "cancels itself":
                raise asyncio.CancelledError
            await asyncio.Event().wait()

        async def fail(rollout, _context):
            if rollout.completion == "a1":
                raise ValueError("x")
            return 1.0

        clock = FakeClock()
        scheduler = scheduler_of(Double(fail, canary=ask), clock=clock, deadline_s=10.0)
        task = asyncio.create_task(judge(scheduler, groups_of(2)))
        await asked.wait()
        await asyncio.sleep(0)
        clock.tick(12.0)
        outcome = await task
        assert isinstance(outcome.verdicts()["a1"], Unscored)
        assert outcome.verdicts()["a0"] == Scored(1.0)

    asyncio.run(main())


def test_a_judged_row_that_fails_a_second_time_excuses_nobody_while_the_quickest_is_answered():
    def end(rollout, time):
        if rollout.completion == "a2":
            return RAISED
        if rollout.completion == "a1":  # judged last, but only just within a limit
            return (Scored(1.0), 9.9) if time == 1 else Failure(End.CUT, "cpu", limit="cpu")
        return Scored(1.0), 0.1

    caller = Scripted(end)
    parts = Double(one, how=How.WORKER)
    rows = groups_of(3, completions=["a0", "a1", "a2"])
    outcome = judged(rows, parts, callers={"double": caller})
    assert outcome.codes()["a2"] == "reward_error"
    assert caller.fresh == [["a2"], ["a1"], ["a0"]]


def test_judged_rows_that_all_fail_again_show_that_the_machinery_is_down():
    down = [False]

    def end(rollout, time):
        down[0] = down[0] or rollout.completion == "a3"
        return RAISED if down[0] else Scored(1.0)

    caller = Scripted(end)
    outcome = judged(groups_of(4), Double(one, how=How.WORKER), callers={"double": caller})
    assert isinstance(outcome.verdicts()["a3"], Unscored)
    assert [outcome.verdicts()[name] for name in ("a0", "a1", "a2")] == [Scored(1.0)] * 3


def test_a_service_that_fails_once_is_asked_again_and_its_answer_counts():
    calls = []

    async def ask(rollout, _context):
        calls.append(rollout.completion)
        if calls == ["a0", "a1"]:
            raise JudgeError("judge:tone", "429, retry after 30 s", clocks=Clocks(spawn_s=0.5))
        return 1.0

    outcome = judged(groups_of(2), Double(ask))
    assert outcome.verdicts()["a1"] == Scored(1.0)
    assert calls == ["a0", "a1", "a1"]
    first, second = (attempt for attempt in outcome.attempts if attempt.first == 1)
    assert (first.end, first.clocks.spawn_s) == (End.LOST, 0.5)
    assert first.evidence == {"cause": "429, retry after 30 s", "boundary": "judge:tone"}
    assert second.end is End.FINISHED


def test_a_text_on_which_a_service_always_fails_gets_the_floor_while_the_canary_is_answered():
    async def ask(rollout, _context):
        if rollout.completion == "a1":
            raise JudgeError("judge:tone", "500")
        return 1.0

    verdict = judged(groups_of(2), Double(ask)).verdicts()["a1"]
    assert (verdict.value, verdict.code) == (0.0, "reward_error")


def test_a_service_that_fails_everyone_by_now_is_unscored():
    down = []

    async def ask(rollout, _context):
        if rollout.completion == "a1":
            down.append(True)
        if down:
            raise JudgeError("judge:tone", "503")
        return 1.0

    verdict = judged(groups_of(2), Double(ask)).verdicts()["a1"]
    assert verdict == Unscored("judge:tone", "503; its canary failed too")


def test_a_boundary_that_fails_before_the_first_instruction_is_unscored_at_once():
    calls = []

    async def ask(rollout, _context):
        calls.append(rollout.completion)
        if rollout.completion == "a1":
            raise SandboxError("sandbox:bubblewrap", "no slot")
        return 1.0

    outcome = judged(groups_of(2), Double(ask))
    assert outcome.verdicts()["a1"] == Unscored("sandbox:bubblewrap", "no slot")
    assert calls == ["a0", "a1"]


def test_an_outage_from_the_first_rollout_on_is_unscored_and_blames_no_reward():
    async def ask(_rollout, _context):
        raise JudgeError("judge:tone", "connection refused")

    outcome = judged(groups_of(*[8] * 8, completions=[f"c{n}" for n in range(64)]), Double(ask))
    assert set(outcome.verdicts().values()) == {Unscored("judge:tone", "connection refused")}
    assert len(outcome.attempts) == 128  # each was asked twice


def test_an_infrastructure_error_on_the_second_attempt_is_unscored_too():
    never = Failure(End.NEVER_STARTED, "no process", boundary="reward:double")
    outcome, _ = scripted(a1=[RAISED, never])
    assert outcome.verdicts()["a1"] == Unscored("reward:double", "no process")


def test_a_wall_reached_twice_is_wall_reproduced_and_reached_once_is_nothing():
    cut = count()

    async def ask(rollout, _context):
        if rollout.completion == "a1" or (rollout.completion == "a2" and next(cut) == 0):
            raise SuspectError("wall", clocks=Clocks(wall_s=30.0, censored=True))
        return 1.0

    outcome = judged(groups_of(3), Double(ask, floor=-2.0))
    assert outcome.codes() == {"a0": None, "a1": "wall_reproduced", "a2": None}
    assert outcome.values() == {"a0": 1.0, "a1": -2.0, "a2": 1.0}
    cuts = [attempt for attempt in outcome.attempts if attempt.end is End.CUT]
    assert {(a.limit, a.clocks.wall_s, a.clocks.censored) for a in cuts} == {("wall", 30.0, True)}


@pytest.mark.parametrize("limit", ["cpu", "memory", "output", "idle"])
def test_a_limit_of_its_own_is_final_at_once_and_draws_no_second_time(limit):
    outcome, caller = scripted(a1=[Failure(End.CUT, "cut", limit=limit), Scored(1.0)])
    assert outcome.verdicts()["a1"] == Scored(-1.0, limit, "cut")
    assert tries(outcome, 1) == [(0, End.CUT)]
    assert caller.fresh == []


def test_a_cut_by_its_own_limit_after_a_first_failure_is_final():
    outcome, caller = scripted(a1=[RAISED, Failure(End.CUT, "cut", limit="cpu")])
    assert outcome.codes()["a1"] == "cpu"
    assert caller.fresh == [["a1"]]


def test_one_of_64_that_raises_connection_error_gets_the_floor_and_63_are_scored():
    async def ask(rollout, _context):
        if rollout.ordinal == 13:
            raise ConnectionError("reset by peer")
        return 1.0

    outcome = judged(groups_of(*[8] * 8, completions=[f"c{n}" for n in range(64)]), Double(ask))
    assert len(outcome.left) == 8
    assert outcome.codes()["c13"] == "reward_error"
    assert [name for name, code in outcome.codes().items() if code] == ["c13"]


def test_one_of_64_that_raises_while_its_canary_fails_too_is_the_one_unscored():
    async def ask(rollout, _context):
        if rollout.ordinal == 13:
            raise ConnectionError("reset by peer")
        return 1.0

    outcome = judged(groups_of(*[8] * 8, completions=[f"c{n}" for n in range(64)]), Double(ask, canary=False))
    unscored = [name for name, verdict in outcome.verdicts().items() if isinstance(verdict, Unscored)]
    assert unscored == ["c13"]


# --- a reward that is broken


def test_a_reward_whose_first_32_attempts_raise_the_same_error_stops_the_run_with_it():
    async def broken(rollout, _context):
        raise KeyError("gold")

    reward = Double(broken, floor=-1.0)
    with pytest.raises(RunStoppedError) as stopped:
        judged(groups_of(*[8] * 20), reward)
    message = str(stopped.value)
    assert "reward 'double': its first 32 attempts all failed alike" in message
    assert "on rollouts.jsonl:1: KeyError: 'gold'" in message
    assert "next: mend the reward (a rollout it cannot judge is its floor, -1)" in message


def test_an_inline_reward_whose_first_32_attempts_fail_alike_stops_the_run():
    def broken(given, _context):
        raise KeyError("gold")

    with pytest.raises(
        RunStoppedError, match=r"first 32 attempts all failed alike; on rollouts.jsonl:1: KeyError"
    ):
        judged(groups_of(*[8] * 20), Double(broken, how=How.INLINE, takes=Takes.BATCH))


@pytest.mark.parametrize(
    ("rows", "errors"), [(31, [ValueError]), (100, [ValueError, KeyError])], ids=["few rows", "mixed errors"]
)
@pytest.mark.parametrize("how", [How.ASYNC, How.WORKER, How.INLINE])
def test_a_part_that_judges_nothing_at_all_stops_the_run_at_its_end_without_a_hang(rows, errors, how):
    def error(rollout):
        return errors[rollout.ordinal % len(errors)]("x")

    async def broken(rollout, _context):
        raise error(rollout)

    def broken_now(rollout, _context):
        raise error(rollout)

    callers = {}
    if how is How.WORKER:
        callers = {"double": Scripted(lambda rollout, _time: Failure(End.RAISED, f"{error(rollout)!r}: x"))}
    reward = Double(broken_now if how is How.INLINE else broken, how=how)
    with pytest.raises(RunStoppedError, match=r"it judged no rollout at all; on rollouts.jsonl:1: "):
        judged(groups_of(rows), reward, callers=callers)


def test_a_part_that_judges_nothing_is_given_up_when_the_window_is_full_not_when_memory_is():
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 8
            yield groups_of(8, start=read - 8)

    async def broken(rollout, _context):
        raise (KeyError, ValueError)[rollout.ordinal % 2]("x")

    with pytest.raises(RunStoppedError, match="judged no rollout at all"):
        judged(None, Double(broken), chunks=endless(), window=64)
    assert read == 64


def test_failures_that_happen_to_end_first_do_not_stop_a_run_whose_first_attempts_still_go_on():
    async def main():
        go = asyncio.Event()

        async def ask(rollout, _context):
            if rollout.ordinal < 8:
                await go.wait()
                return 1.0
            raise ValueError("empty")

        reward = Double(ask, canary=None)
        task = asyncio.create_task(
            judge(scheduler_of(reward), groups_of(64, completions=map(str, range(64))))
        )
        await settled(lambda: len(reward.asked) >= 64 + 56)
        go.set()
        outcome = await task
        assert list(outcome.codes().values()) == [None] * 8 + ["reward_error"] * 56

    asyncio.run(main())


def test_suspects_wait_for_a_first_judged_row_and_are_then_decided():
    def end(rollout, _time):
        return Scored(1.0) if rollout.ordinal == 9 else RAISED

    def chunks():
        yield groups_of(4)
        yield groups_of(6, completions=[f"late{n}" for n in range(6)], start=4)

    outcome = judged(None, Double(one, how=How.WORKER), chunks=chunks(), callers={"double": Scripted(end)})
    assert sorted(outcome.codes().values(), key=str) == [None] + ["reward_error"] * 9


def test_a_row_that_was_judged_before_the_interruption_serves_as_canary_of_a_resumed_run():
    known = {(0, "double"): Score((0, 0), 0, "double", "double/1", Scored(1.0), 3)}
    caller = Scripted(by_completion(a1=RAISED))
    outcome = judged(groups_of(2), Double(one, how=How.WORKER), recorded=known, callers={"double": caller})
    assert outcome.codes()["a1"] == "reward_error"
    assert caller.fresh == [["a1"], ["a0"]]


def test_a_recorded_floor_of_a_failed_reward_is_no_canary():
    failed = Scored(0.0, "reward_error", "ValueError")
    known = {(0, "double"): Score((0, 0), 0, "double", "double/1", failed, 3)}
    with pytest.raises(RunStoppedError, match="judged no rollout at all"):
        judged(
            groups_of(2),
            Double(one, how=How.WORKER),
            recorded=known,
            callers={"double": Scripted(lambda _rollout, _time: RAISED)},
        )


# --- who pays


def test_in_a_batch_whose_call_fails_only_the_culprit_pays():
    async def ask(given, _context):
        if any(rollout.completion == "a2" for rollout in given):
            raise ValueError("cannot read this one")
        return [0.5] * len(given)

    outcome = judged(groups_of(4), Double(ask, takes=Takes.BATCH))
    assert outcome.codes() == {"a0": None, "a1": None, "a2": "reward_error", "a3": None}
    assert outcome.values() == {"a0": 0.5, "a1": 0.5, "a2": 0.0, "a3": 0.5}
    first = outcome.attempts[0]
    assert (first.members, first.end, first.ordinal) == (4, End.RAISED, 0)
    assert [a.ordinal for a in outcome.attempts if a.members == 1 and a.first == 2] == [1, 2]


def test_in_a_batch_whose_answer_is_the_wrong_length_everybody_is_asked_alone():
    async def ask(given, _context):
        return [0.5] * (len(given) if len(given) == 1 else len(given) - 1)

    assert set(judged(groups_of(4), Double(ask, takes=Takes.BATCH)).values().values()) == {0.5}


def test_in_an_inline_batch_only_the_culprit_pays():
    def ask(given, _context):
        return [1 / len(rollout.completion.strip("?")) for rollout in given]

    rows = groups_of(4, completions=["x", "?", "xx", "x"])
    outcome = judged(rows, Double(ask, how=How.INLINE, takes=Takes.BATCH))
    assert [float(score) for score in outcome.left[0][1]["double"]] == [1.0, 0.0, 0.5, 1.0]
    assert [attempt.members for attempt in outcome.attempts][:4] == [1, 1, 1, 1]


def group_reward(*wreckers, alone=True):
    async def ask(given, _context):
        if any(rollout.completion in wreckers for rollout in given):
            raise ValueError("cannot compare")
        if len(given) == 1 and not alone:
            raise ValueError("needs two")
        return [rollout.key[1] / 10 for rollout in given]

    return Double(ask, takes=Takes.GROUP, floor=-1.0)


def test_a_group_reward_is_one_attempt_for_each_group():
    outcome = judged(groups_of(3, 2), group_reward())
    assert [attempt.members for attempt in outcome.attempts] == [3, 2]
    assert outcome.values() == {"a0": 0.0, "a1": 0.1, "a2": 0.2, "b0": 0.0, "b1": 0.1}


@pytest.mark.parametrize("alone", [True, False], ids=["judges one alone", "needs two"])
def test_a_member_that_makes_its_groups_reward_fail_pays_alone(alone):
    outcome = judged(groups_of(3, 3), group_reward("a1", alone=alone))
    assert outcome.codes() == {
        "a0": None,
        "a1": "reward_error",
        "a2": None,
        "b0": None,
        "b1": None,
        "b2": None,
    }
    assert outcome.values()["a1"] == -1.0
    assert outcome.values()["a2"] == 0.2


def test_several_members_that_make_their_groups_reward_fail_pay_alone():
    outcome = judged(groups_of(4, 3), group_reward("a1", "a2"))
    assert [name for name, code in outcome.codes().items() if code] == ["a1", "a2"]


def test_a_group_whose_culprit_cannot_be_told_gets_the_floor_and_none_is_unscored():
    outcome = judged(groups_of(4, 3), group_reward("a1", "a2", alone=False))
    assert [name for name, code in outcome.codes().items() if code] == ["a0", "a1", "a2", "a3"]


def test_a_large_group_that_fails_once_is_one_failed_attempt_and_does_not_stop_the_run():
    outcome = judged(groups_of(40, 2), group_reward("a7"))
    assert outcome.codes()["a7"] == "reward_error"
    assert outcome.codes()["a8"] is None


# --- what no completion may get by


WRONG = [
    float("nan"),
    float("inf"),
    -float("inf"),
    1e300,
    None,
    "1.0",
    b"1",
    [1.0],
    {"score": 1.0},
    object(),
    1j,
]
WRONG += [
    Abstained("I would rather not"),
    Unscored("judge:x", "says I"),
    Scored(float("nan")),
    Scored("0.5"),
    Scored(None),
]
WRONG += [Scored(1.0, code=["cpu"]), Scored(1.0, reason=7), 10**400]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("how", [How.ASYNC, How.INLINE])
def test_what_a_reward_may_not_return_is_the_floor_and_never_a_way_out(value, how):
    def now(rollout, _context):
        return value if rollout.completion == "a1" else 0.5

    async def later(rollout, context):
        return now(rollout, context)

    outcome = judged(groups_of(3), Double(now if how is How.INLINE else later, how=how, floor=-1.0))
    assert outcome.codes() == {"a0": None, "a1": "reward_error", "a2": None}
    assert outcome.values() == {"a0": 0.5, "a1": -1.0, "a2": 0.5}


def exits():
    raise SystemExit(0)


def interrupts_itself():
    raise asyncio.CancelledError


def leaves_generator():
    raise GeneratorExit


def overflows():
    return overflows()


def out_of_memory():
    raise MemoryError


def excuses_itself():
    raise RewardError("other", "not me")


def surrogates():
    raise ValueError("\ud800 in the answer")


def times_out():
    raise TimeoutError


def unspeakable():
    class UnspeakableError(Exception):
        def __str__(self):
            raise ValueError("no words")

    raise UnspeakableError


ESCAPES = [
    exits, interrupts_itself, leaves_generator, overflows, out_of_memory, excuses_itself, surrogates,
    times_out, unspeakable,
]  # fmt: skip


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.__name__)
def test_however_a_reward_ends_on_a_completion_it_is_the_floor_and_the_others_are_judged(escape):
    async def ask(rollout, _context):
        if rollout.completion == "a1":
            escape()
        return 1.0

    outcome = judged(groups_of(3), Double(ask, floor=-1.0))
    assert outcome.codes() == {"a0": None, "a1": "reward_error", "a2": None}
    assert outcome.values()["a1"] == -1.0
    outcome.verdicts()["a1"].reason.encode()  # can be written down


def test_a_reason_with_a_lone_surrogate_can_be_written_down():
    async def ask(rollout, _context):
        return Scored(0.0, "wrong", f"not {rollout.completion}")

    outcome = judged(groups_of(1, completions=["\ud800é"]), Double(ask))
    (verdict,) = outcome.verdicts().values()
    assert verdict.reason == "not \\ud800é"


def test_a_reward_that_swallows_its_cancellation_does_not_hang_the_run():
    async def main():
        clock, started = FakeClock(), asyncio.Event()
        done = asyncio.Event()

        async def deaf(rollout, _context):
            if rollout.completion != "a1":
                return 1.0
            started.set()
            while not done.is_set():
                try:
                    await done.wait()
                except asyncio.CancelledError:
                    continue
            return 1.0

        task = asyncio.create_task(
            judge(scheduler_of(Double(deaf), clock=clock, deadline_s=5.0), groups_of(2))
        )
        for _ in range(2):
            await started.wait()
            started.clear()
            await asyncio.sleep(0)
            clock.tick(7.0)
        outcome = await task
        assert outcome.codes()["a1"] == "wall_reproduced"
        done.set()
        await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize("how", [How.ASYNC, How.INLINE, How.WORKER])
def test_a_value_below_the_floor_stops_the_run_for_failing_would_be_paid(how):
    def now(_rollout, _context):
        return -0.5

    async def later(rollout, context):
        return -0.5

    callers = {"double": Scripted(lambda _rollout, _time: Scored(-0.5))} if how is How.WORKER else {}
    reward = Double(now if how is How.INLINE else later, how=how)
    with pytest.raises(
        RunStoppedError, match=r"(?s)returned -0.5 on rollouts.jsonl:1, .* floor 0.*lowest value.*floor=-1"
    ):
        judged(groups_of(2), reward, callers=callers)


def test_a_failed_part_closes_no_gate_for_the_others_and_all_parts_are_decided():
    async def broken(rollout, _context):
        if rollout.completion == "a0":
            raise ValueError("x")
        return 1.0

    verifier, paid = Double(broken, name="verifier"), Double(one, name="paid")
    outcome = judged(
        groups_of(2), Part(verifier), Part(paid, only_if=lambda said: said["verifier"].value >= 0)
    )
    assert outcome.codes("verifier") == {"a0": "reward_error", "a1": None}
    assert outcome.values("paid") == {"a0": 1.0, "a1": 1.0}
