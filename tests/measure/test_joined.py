"""Spans of a loop, alone or beside a run: steps find each other by name or by time."""

import dataclasses

import numpy as np
import pytest

from planted import planted
from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure.joined import BETWEEN, joined, latest, left_out, of_spans, without_clock
from steelyard.pricing.observed import MISSING, SCORED, UNSCORED, blank


def loop(steps, *, wait_s=30.0, numbers=None):
    """Steps of 12 s generation, a wait, 13 s training, ten seconds apart."""
    found = []
    for at, number in enumerate(numbers or range(steps)):
        start = at * 100.0
        phases = {"generation": 12.0, "reward": wait_s, "training": 13.0}
        found.append(Span(number, "main", "step", start, start + sum(phases.values())))
        for phase, took in phases.items():
            found.append(Span(number, "main", phase, start, start + took))
            start += took
    return found


def call(step, start, took, group, member, *, cut=None, value=1.0):
    begin = step * 100.0 + 12 + start
    return Span(step, "main", "call", begin, begin + took, group, member, cut, value)


def test_a_loop_with_calls_is_a_run_by_itself():
    calls = [
        call(0, 0.0, 2.0, 0, 0),
        call(0, 0.0, 30.0, 0, 1, cut="timeout", value=0.0),
        call(0, 1.0, 3.0, 1, 0, value=None),
        call(1, 0.0, 4.0, 0, 0),
    ]
    queue = Span(0, "main", "queued", 12.5, 13.0, 1, 0)
    found = of_spans([*loop(2), *calls, queue], source="run.ledger")
    assert found.calls.service_s.tolist() == [2.0, 30.0, 3.0, 4.0]
    assert found.calls.censored.tolist() == [False, True, False, False]
    assert found.causes == ["timeout"]
    assert found.calls.group.tolist() == [0, 0, 1, 2]  # group 0 of another step is another group
    assert np.array_equal(found.calls.queued_s, [np.nan, np.nan, 0.5, np.nan], equal_nan=True)
    assert found.rows.verdict.tolist() == [SCORED, SCORED, UNSCORED, SCORED]
    assert found.rows.failed.tolist() == [False, True, False, False]  # a timeout that was written down as 0
    assert found.steps.generation_s.tolist() == [12.0, 12.0]
    assert found.steps.exposed_s.tolist() == [30.0, 30.0]


def test_a_retry_is_another_call_of_the_same_rollout():
    found = of_spans(
        [*loop(1), call(0, 0.0, 15.0, 0, 0, cut="timeout", value=None), call(0, 15.0, 2.0, 0, 0)], source="x"
    )
    assert found.calls.row.tolist() == [0, 0]
    assert found.rows.value.tolist() == [1.0]
    assert not found.rows.failed.any()


def test_a_loop_without_calls_says_what_it_cannot_tell():
    found = of_spans(loop(2), source="x")
    assert len(found.calls) == len(found.rows) == 0
    assert "steps.call" in found.lacks[0]


def test_calls_without_a_reward_are_no_rollouts():
    found = of_spans([*loop(1), call(0, 0.0, 2.0, 0, 0, value=None)], source="x")
    assert len(found.calls) == 1
    assert len(found.rows) == 0


def bare(run):
    """A run as a ledger tells it: no phases, and calls that began when their step did."""
    nothing = blank(len(run.steps))
    steps = dataclasses.replace(
        run.steps, generation_s=nothing, training_s=nothing, exposed_s=nothing, wall_s=nothing
    )
    calls = dataclasses.replace(run.calls, began_s=run.calls.step * 100.0 + 12.0)
    return dataclasses.replace(
        run, calls=calls, steps=steps, lacks=["how long generation and training took: ..."]
    )


def test_steps_find_each_other_by_name():
    run = bare(planted(steps=3, batch=8))
    found = joined(run, loop(3))
    assert found.steps.generation_s.tolist() == [12.0] * 3
    assert found.steps.training_s.tolist() == [13.0] * 3
    assert found.lacks == []
    assert found.steps.machine.tolist() == run.steps.machine.tolist()


def test_a_step_that_was_not_recorded_stays_without_its_phases():
    found = joined(bare(planted(steps=3, batch=8)), loop(2))
    assert np.array_equal(found.steps.generation_s, [12.0, 12.0, np.nan], equal_nan=True)
    assert any("1 of 3 steps" in one for one in found.lacks)


def test_where_no_name_is_told_calls_belong_to_the_step_in_which_they_began():
    run = bare(planted(steps=3, batch=8))
    unnamed = dataclasses.replace(
        run,
        calls=dataclasses.replace(run.calls, step=np.zeros(24, np.int64)),
        rows=dataclasses.replace(run.rows, step=np.zeros(24, np.int64)),
        steps=dataclasses.replace(run.steps, labels=[""], **{
            name: blank(1) for name in ("generation_s", "training_s", "exposed_s", "wall_s")
        }, machine=np.array([0])),
        stepped=False,
    )  # fmt: skip
    found = joined(unnamed, loop(3, numbers=[7, 8, 9]))
    assert found.stepped
    assert list(found.steps.labels) == ["7", "8", "9"]
    assert found.calls.step.tolist() == run.calls.step.tolist()
    assert found.rows.step.tolist() == run.rows.step.tolist()
    early = dataclasses.replace(
        unnamed, calls=dataclasses.replace(unnamed.calls, began_s=run.calls.began_s - 100)
    )
    found = joined(early, loop(3, numbers=[7, 8, 9]))
    assert found.steps.labels[-1] == BETWEEN
    assert (found.calls.step[:8] == 3).all()
    assert (found.rows.step[:8] == 3).all()


def test_a_run_and_spans_that_have_nothing_in_common_are_refused_with_what_to_do():
    run = bare(planted(steps=2, batch=8))
    far = dataclasses.replace(run, calls=dataclasses.replace(run.calls, began_s=run.calls.began_s + 1e6))
    with pytest.raises(RefusedError, match=r"neither by name nor by time\n.*steps\.step\(17\)"):
        joined(far, loop(2, numbers=[70, 71]))


def test_what_the_runtime_scored_during_generation_is_not_exposed():
    run = bare(planted(steps=1, batch=8, median_s=2.0, sigma=0.01))
    covered = dataclasses.replace(run, calls=dataclasses.replace(run.calls, began_s=np.full(8, 1.0)))
    spans = [
        Span(0, "main", "step", 0.0, 25.0),
        Span(0, "main", "generation", 0.0, 12.0),
        Span(0, "main", "training", 12.0, 25.0),
    ]
    found = joined(covered, spans)
    assert found.steps.exposed_s.tolist() == [0.0]
    assert found.steps.reward_s[0] == pytest.approx(2.0, abs=0.2)


def unphased(steps):
    """A loop whose rewards have a word of its own."""
    return [span._replace(phase="score") if span.phase == "reward" else span for span in loop(steps)]


def test_a_step_whose_calls_tell_no_start_has_no_wait_that_was_seen_and_says_so():
    run = bare(planted(steps=4, batch=8))
    lost = dataclasses.replace(
        run,
        calls=dataclasses.replace(run.calls, began_s=np.where(run.calls.row == 9, np.nan, run.calls.began_s)),
    )
    found = joined(lost, unphased(4))
    unseen = [False, True, False, False]  # one call of step 1 was not timed: the last one, for all we know
    assert np.isnan(found.steps.exposed_s).tolist() == unseen
    assert np.isnan(found.steps.reward_s).tolist() == unseen
    assert found.steps.generation_s.tolist() == [12.0] * 4
    assert any("what 1 of 4 steps waited" in one for one in found.lacks)
    assert np.isnan(joined(run, unphased(4)).steps.exposed_s).sum() == 0
    covered = joined(lost, loop(4))  # the phase of rewards tells when they were at work
    assert covered.steps.exposed_s.tolist() == [30.0] * 4
    assert covered.lacks == []


def test_a_half_that_some_steps_did_not_record_is_unknown_there_and_said_to_be():
    lane_lost = [span for span in loop(4) if (span.step, span.phase) != (2, "generation")]
    found = of_spans(lane_lost, source="x", coverage=None)
    assert np.array_equal(found.steps.busy_s, [25.0, 25.0, np.nan, 25.0], equal_nan=True)
    assert any("generation of 1 of 4 steps" in one for one in found.lacks)
    never = [span for span in loop(4) if span.phase != "training"]
    found = of_spans(never, source="x", coverage=None)
    assert np.isnan(found.steps.busy_s).all()  # nobody knows, and 0 is a number
    assert any("how long training took" in one and "--busy" in one for one in found.lacks)


def broken_in(step, steps=3):
    """A loop that ends in the rewards of a step."""
    whole = [span for span in loop(steps) if span.step != step]
    at = step * 100.0
    return [
        *whole,
        Span(step, "main", "generation", at, at + 12),
        Span(step, "main", "reward", at + 12, at + 13),
        Span(step, "main", "step", at, at + 13, cut_by="broken"),
    ]


def test_a_step_that_was_broken_off_is_left_out_with_its_calls_and_rollouts_and_said_to_be():
    calls = [call(step, 0.0, 1.0, group, 0, value=0.5) for step in range(3) for group in range(2)]
    found = of_spans([*broken_in(2), *calls], source="x")
    assert list(found.steps.labels) == ["0", "1"]
    assert found.calls.step.tolist() == found.rows.step.tolist() == [0, 0, 1, 1]
    assert found.steps.wall_s.tolist() == [55.0, 55.0]
    assert found.lacks == ["1 step that was broken off before the end: left out, with all calls"]
    assert len(of_spans([*loop(3), *calls], source="x").calls) == 6


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_run_loses_the_step_that_its_loop_broke_off(step):
    run = bare(planted(steps=3, batch=8))
    found = joined(run, broken_in(step))
    kept = [one for one in range(3) if one != step]
    assert list(found.steps.labels) == [run.steps.labels[one] for one in kept]
    assert found.calls.step.tolist() == found.rows.step.tolist() == [0] * 8 + [1] * 8
    assert found.rows.row.tolist() == [row for row in range(24) if run.rows.step[row] != step]
    assert found.calls.row.tolist() == [row for one in kept for row in run.calls.row[run.calls.step == one]]
    assert found.steps.exposed_s.tolist() == [30.0, 30.0]
    assert "1 step that was broken off" in found.lacks[0]


def test_a_run_whose_only_step_was_broken_off_is_refused():
    with pytest.raises(RefusedError, match="none of its steps was finished"):
        joined(bare(planted(steps=1, batch=8)), broken_in(0, steps=1))
    with pytest.raises(RefusedError, match="no step of 1 was finished"):
        of_spans(broken_in(0, steps=1), source="x")


def test_a_hole_in_the_recording_is_refused_by_name():
    spans = [
        Span(0, "main", "step", 0.0, 100.0),
        Span(0, "main", "generation", 0.0, 12.0),
        Span(0, "main", "training", 50.0, 100.0),
    ]
    with pytest.raises(RefusedError, match=r"generation.*training"):
        of_spans(spans, source="x")


def test_a_step_that_is_done_again_counts_as_the_last_session_did_it():
    first = [(1, span) for span in loop(2)]
    again = [
        (2, span._replace(start=span.start + 1e4, end=span.end + 1e4)) for span in loop(2, wait_s=5.0)[4:]
    ]
    found = of_spans(latest([*first, *again]), source="x")
    assert found.steps.exposed_s.tolist() == [30.0, 5.0]


def test_ranks_of_one_step_are_kept_side_by_side():
    both = [(rank, span._replace(lane=f"rank {rank}")) for rank in (1, 2) for span in loop(1)]
    assert len(latest(both)) == 8


def by_ranks(*told, judge=""):
    """Two ranks of one step, and calls: which rank, when, group, member, reward."""
    ranks = [span._replace(lane=f"rank {rank}") for rank in range(2) for span in loop(1)]
    return [
        *ranks,
        *(
            call(0, start, 2.0, group, member, value=value)._replace(lane=f"rank {rank}{judge}")
            for rank, start, group, member, value in told
        ),
    ]


@pytest.mark.parametrize("judge", ["", "/judge"])
def test_ranks_that_number_their_groups_each_for_itself_are_kept_apart(judge):
    told = [(rank, 0.0, group, member, rank) for rank in (0, 1) for group in (0, 1) for member in (0, 1)]
    found = of_spans(by_ranks(*told, judge=judge), source="x")
    assert len(found.rows) == 8
    assert found.calls.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.rows.value.tolist() == [0.0] * 4 + [1.0] * 4


def test_members_of_one_group_that_are_judged_by_two_ranks_are_one_group():
    told = [(member % 2, 0.0, group, member, 1.0) for group in (0, 1) for member in range(4)]
    found = of_spans(by_ranks(*told), source="x")
    assert found.calls.group.tolist() == [0] * 4 + [1] * 4
    assert len(found.rows) == 8


def test_a_retry_on_another_rank_is_another_call_of_the_same_rollout():
    found = of_spans(by_ranks((0, 0.0, 0, 0, 0.0), (1, 2.0, 0, 0, 1.0)), source="x")
    assert found.calls.row.tolist() == [0, 0]
    assert found.rows.value.tolist() == [1.0]


def test_two_processes_that_only_serve_rewards_may_judge_one_rollout_at_once():
    calls = [call(0, 0.0, 2.0, 0, 0)._replace(lane=lane) for lane in ("judge 0", "judge 1")]
    assert len(of_spans([*loop(1), *calls], source="x").rows) == 1


def test_threads_of_one_rank_share_its_numbers():
    calls = [call(0, 0.0, 2.0, 0, 0)._replace(lane=f"main/judge_{at}") for at in range(2)]
    assert len(of_spans([*loop(1), *calls], source="x").rows) == 1


def test_unknown_groups_stay_unknown():
    found = of_spans([*loop(1), call(0, 0.0, 2.0, None, None)], source="x")
    assert found.calls.group.tolist() == [MISSING]


# Several sessions in one ledger


def session(number, spans, *, at=0.0, lane="main"):
    """Spans of a session that begins at a moment."""
    return [(number, span._replace(lane=lane, start=span.start + at, end=span.end + at)) for span in spans]


def test_a_run_that_is_begun_again_leaves_nothing_of_the_one_before():
    threads = [call(step, 0.0, 30.0, 0, 0)._replace(lane="main/judge_7") for step in range(6)]
    first = [*session(1, loop(6)), *((1, one) for one in threads)]
    again = session(2, loop(4, wait_s=5.0), at=1e4)
    spans = [*first, *again]
    kept = latest(spans)
    assert kept == [span for _, span in again]
    assert left_out(spans, kept) == ["30 spans are left out: later sessions did their steps again"]
    assert of_spans(kept, source="x").steps.exposed_s.tolist() == [5.0] * 4


def test_a_run_that_is_resumed_keeps_what_it_did_not_do_again():
    first = session(1, loop(6))
    second = session(2, loop(2, numbers=[4, 5], wait_s=5.0), at=1e4)
    third = session(3, loop(1, numbers=[5], wait_s=7.0), at=2e4)
    found = of_spans(latest([*first, *second, *third]), source="x")
    assert found.steps.exposed_s.tolist() == [30.0] * 4 + [5.0, 7.0]


def test_runs_that_count_on_are_all_there():
    spans = [*session(1, loop(3)), *session(2, loop(3, numbers=[3, 4, 5]), at=1e4)]
    assert left_out(spans, latest(spans)) == []


def test_a_process_that_is_forked_off_a_run_belongs_to_it():
    child = [(2, call(step, 0.0, 2.0, 0, 0)._replace(lane="main/17")) for step in range(3)]
    spans = [*session(1, loop(3)), *child]
    assert latest(spans) == [span for _, span in spans]


def test_another_rank_is_not_left_out_because_this_one_began_again():
    other = session(1, loop(3), lane="rank 1")
    spans = [*session(2, loop(3), lane="rank 0"), *other, *session(3, loop(3), at=1e4, lane="rank 0")]
    assert {span.lane for span in latest(spans)} == {"rank 0", "rank 1"}
    assert len(latest(spans)) == 24


# What is said


def test_calls_without_a_reward_are_said_to_vote_for_nothing():
    calls = [call(0, 0.0, 2.0, 0, member, value=value) for member, value in enumerate([1.0, None, None])]
    found = of_spans([*loop(1), *calls], source="x")
    assert found.lacks == [
        "2 calls have no reward: taken as not voting; if your loop gave them 0, say call.value(0.0)"
    ]
    retried = [*calls[:1], call(0, 0.0, 2.0, 0, 1, value=None), call(0, 2.0, 2.0, 0, 1)]
    assert of_spans([*loop(1), *retried], source="x").lacks == []


def test_phases_in_words_of_the_loops_own_are_named_where_they_may_mean_something():
    words = {"generation": "generate", "training": "update"}
    own = [span._replace(phase=words.get(span.phase, span.phase)) for span in loop(2)]
    (told,) = [one for one in of_spans(own, source="x").lacks if "--phase" in one]
    assert "what the phases 'generate', 'update' mean (--phase generate=generation)" in told
    meant = {own: word for word, own in words.items()}
    assert of_spans(own, source="x", phases=meant).steps.busy_s.tolist() == [25.0, 25.0]
    assert not any("--phase" in one for one in of_spans([*loop(1)], source="x").lacks)


def holed(steps, *, without):
    """Steps of which some do not say what they did for 1 of 55 s."""
    return [
        span._replace(end=span.end - 1) if span.phase == "training" and span.step in without else span
        for span in loop(steps)
    ]


@pytest.mark.parametrize("beside", [False, True])
def test_a_step_with_a_hole_is_left_out_with_its_calls_and_its_longest_hole_is_named(beside):
    spans = holed(20, without=[7])
    if beside:
        found = joined(bare(planted(steps=20, batch=8)), spans)
    else:
        found = of_spans([*spans, *(call(step, 0.0, 1.0, 0, 0) for step in range(20))], source="x")
    assert "7" not in found.steps.labels
    assert len(found.steps) == found.seen_steps == 19
    (told,) = found.lacks
    assert told.startswith("1 step in which time is missing: left out, with all calls")
    assert "1 s of step 7 of 'main', between training and its end" in told


def test_a_run_of_another_clock_than_its_spans_is_joined_by_name_alone():
    run = bare(planted(steps=3, batch=8))
    found = joined(without_clock(run, ["a", "b"]), loop(3))
    assert np.isnan(found.calls.began_s).all()
    assert found.steps.exposed_s.tolist() == [30.0] * 3  # as the phase of rewards tells
    assert any("clocks of different machines" in one and "(a, b)" in one for one in found.lacks)
    assert np.isnan(joined(without_clock(run, ["a", "b"]), unphased(3)).steps.exposed_s).all()
