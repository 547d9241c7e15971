from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure import Steps, calltimes
from steelyard.measure.calltimes import CallTimes
from steelyard.measure.timeline import Timeline, check_coverage, holes, timeline
from steelyard.pricing.observed import MISSING
from steelyard.testing import FakeClock

BUSY = {"generation", "training"}


def lane(name, *phases, step=0):
    """Spans of a lane: word, start, end."""
    return [Span(step, name, *phase) for phase in phases]


def same(one, other):
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=0, atol=1e-9, equal_nan=True)
        for name in Timeline.__slots__
    )


BARRIER = lane("rank 0", ("step", 0, 54), ("generation", 0, 12), ("reward", 12, 42), ("training", 42, 54))


def test_behind_one_barrier_the_wait_is_from_the_accelerator_free_to_the_last_reward():
    found = timeline(BARRIER)
    assert found.exposed_s.tolist() == [30.0]
    assert found.tail_ratio.tolist() == [1.0]
    assert (found.generation_s[0], found.training_s[0], found.busy_s[0]) == (12, 12, 24)
    assert (found.reward_s[0], found.other_s[0], found.wall_s[0]) == (30, 0, 54)


def test_reward_time_that_generation_covers_is_not_exposed():
    found = timeline(
        [
            *lane("rank 0", ("generation", 0, 12), ("reward", 12, 20), ("training", 20, 30)),
            *lane("judge", ("call", 8, 14), ("call", 9, 20)),
        ]
    )
    assert (found.exposed_s[0], found.reward_s[0], found.tail_ratio[0]) == (8, 12, 8 / 12)


def test_a_reward_that_is_covered_entirely_costs_nothing():
    found = timeline(
        [*lane("rank 0", ("generation", 0, 12), ("training", 12, 20)), *lane("j", ("call", 5, 19))]
    )
    assert (found.exposed_s[0], found.reward_s[0], found.tail_ratio[0]) == (0, 14, 0)


def test_where_groups_are_trained_on_as_they_arrive_every_wait_counts_and_what_training_hides_does_not():
    found = timeline(
        [
            *lane("rank 0", ("generation", 0, 12), ("reward", 12, 14), ("training", 14, 15)),
            *lane("rank 0", ("reward", 15, 42), ("training", 42, 53)),
            *lane("judge", ("call", 12, 14), ("call", 12, 42)),
        ]
    )
    assert (found.exposed_s[0], found.reward_s[0]) == (2 + 27, 30)


def test_training_that_outlasts_the_last_reward_leaves_only_the_time_before_it():
    found = timeline(
        [
            *lane("rank 0", ("generation", 0, 12), ("reward", 12, 30), ("training", 30, 45)),
            *lane("j", ("call", 12, 42)),
        ]
    )
    assert found.exposed_s[0] == 18


def test_a_reward_under_the_generation_of_the_next_step_is_not_exposed():
    found = timeline(
        [
            *lane("rank 0", ("step", 0, 20), ("generation", 0, 10), ("training", 10, 20)),
            *lane("judge", ("call", 10, 26)),
            *lane("rank 0", ("step", 20, 40), ("generation", 20, 30), ("training", 30, 40), step=1),
            *lane("judge", ("call", 30, 39), step=1),
        ]
    )
    assert found.exposed_s.tolist() == [0, 0]
    assert found.reward_s.tolist() == [16, 9]
    assert found.wall_s.tolist() == [20, 20]


def test_a_step_of_several_ranks_goes_from_the_first_start_to_the_last_end_and_work_on_any_covers():
    found = timeline(
        [
            *lane("rank 0", ("step", 0, 40), ("generation", 0, 10), ("reward", 10, 30), ("training", 30, 40)),
            *lane("rank 1", ("step", 1, 43), ("generation", 1, 13), ("reward", 13, 30), ("training", 30, 43)),
        ]
    )
    assert (found.wall_s[0], found.generation_s[0], found.training_s[0]) == (43, 13, 13)
    assert found.exposed_s[0] == 17


def test_a_run_may_have_words_of_its_own():
    spans = lane("rank 0", ("rollout", 0, 12), ("score", 12, 42), ("update", 42, 54))
    words = {"rollout": "generation", "score": "reward", "update": "training"}
    assert timeline(spans, phases=words).exposed_s.tolist() == [30]
    assert np.isnan(timeline(spans).exposed_s).all()
    with pytest.raises(RefusedError, match="generate"):
        timeline(spans, phases={"rollout": "generate"})


def test_what_was_not_recorded_is_not_known_and_never_zero():
    found = timeline(lane("rank 0", ("generation", 0, 10)))
    assert np.isnan(
        [found.training_s, found.reward_s, found.exposed_s, found.service_s, found.queued_s]
    ).all()
    assert found.in_flight.tolist() == [MISSING]
    found = timeline([*BARRIER, *lane("rank 0", ("generation", 60, 70), step=1)])
    for column, first in (("training_s", 12), ("busy_s", 24), ("reward_s", 30), ("exposed_s", 30)):
        assert np.array_equal(getattr(found, column), [first, np.nan], equal_nan=True), column
    found = timeline([*BARRIER, *lane("rank 0", ("reward", 60, 70), ("training", 70, 75), step=1)])
    assert np.array_equal(found.generation_s, [12, np.nan], equal_nan=True)
    assert np.array_equal(found.busy_s, [24, np.nan], equal_nan=True)


def test_a_run_that_has_one_half_only_is_busy_in_that_half():
    found = timeline(
        [*lane("rank 0", ("generation", 0, 10)), *lane("rank 0", ("generation", 10, 15), step=1)]
    )
    assert found.busy_s.tolist() == [10, 5]
    assert found.wall_s.tolist() == [10, 5]


def test_a_phase_in_which_nothing_was_to_be_done_takes_no_time_and_is_known():
    second = lane("rank 0", ("generation", 60, 70), ("training", 70, 70), step=1)
    found = timeline([*BARRIER, *second])
    assert found.training_s.tolist() == [12, 0]
    assert found.busy_s.tolist() == [24, 10]


def test_nobody_knows_how_long_a_step_was_whose_whole_and_half_are_missing():
    half = [("reward", 72, 102), ("training", 102, 114)]
    assert np.isnan(timeline([*BARRIER, *lane("rank 0", *half, step=1)]).wall_s).tolist() == [False, True]
    told = timeline([*BARRIER, *lane("rank 0", ("step", 60, 114), ("rollout", 60, 72), *half, step=1)])
    assert told.wall_s.tolist() == [54, 54]
    assert told.other_s.tolist() == [0, 12]


# Steps that were broken off, steps that overlap


def cut(start, end, *, by="broken", name="rank 0", step=1):
    return Span(step, name, "step", start, end, cut_by=by)


@pytest.mark.parametrize("by", ["broken", "closed"])
def test_a_step_that_was_broken_off_is_left_out_and_its_holes_are_nobodys(by):
    spans = [*BARRIER, *lane("rank 0", ("generation", 54, 60), step=1), cut(54, 63, by=by)]
    assert timeline(spans).step.tolist() == [0]
    assert timeline(spans).wall_s.tolist() == [54]
    assert not holes(spans)
    assert timeline(spans, unfinished=True).wall_s.tolist() == [54, 9]


def test_a_step_is_broken_off_if_one_of_its_ranks_was():
    whole = lane("rank 1", ("step", 54, 90), ("generation", 54, 70), ("training", 70, 90), step=1)
    assert timeline([*BARRIER, *whole]).step.tolist() == [0, 1]
    assert timeline([*BARRIER, *whole, cut(54, 63)]).step.tolist() == [0]


def test_the_work_of_a_step_that_was_broken_off_covers_the_rewards_of_others():
    first = lane("rank 0", ("step", 0, 20), ("generation", 0, 10), ("training", 10, 20))
    spans = [*first, *lane("judge", ("call", 15, 26)), *lane("rank 0", ("generation", 20, 30), step=1)]
    assert timeline([*spans, cut(20, 30)]).exposed_s.tolist() == [0]


def test_a_run_without_a_finished_step_is_refused():
    with pytest.raises(RefusedError, match="no step of 1 was finished"):
        timeline([*lane("rank 0", ("generation", 0, 6), step=1), cut(0, 6)])


def test_the_walls_of_steps_that_overlap_add_up_to_the_time_of_the_run():
    spans = []
    for step in range(4):  # each begins when its predecessor trains: a step every 20 s
        at = 20.0 * step
        spans += lane(
            f"rank {step % 2}",
            ("step", at, at + 30),
            ("generation", at, at + 12),
            ("reward", at + 12, at + 20),
            ("training", at + 20, at + 30),
            step=step,
        )
    found = timeline(spans)
    assert found.wall_s.tolist() == [30, 20, 20, 20]
    assert (found.end - found.start).tolist() == [30] * 4
    assert found.other_s.tolist() == [0] * 4
    pause = [span._replace(start=span.start + 200, end=span.end + 200, step=span.step + 9) for span in spans]
    assert timeline([*spans, *pause]).wall_s.tolist() == [30, 20, 20, 20] * 2


def test_a_step_within_another_is_counted_once():
    within = lane("rank 1", ("step", 10, 30), ("generation", 10, 20), ("training", 20, 30), step=1)
    assert timeline([*BARRIER, *within]).wall_s.tolist() == [24, 30]


def test_other_time_is_what_is_neither_work_nor_reward():
    spans = lane("rank 0", ("step", 0, 20), ("generation", 0, 8), ("sync", 8, 11), ("reward", 11, 20))
    assert timeline(spans).other_s.tolist() == [3]


def test_a_reward_that_outlives_its_step_explains_none_of_it():
    spans = lane("rank 0", ("step", 0, 20), ("generation", 0, 10), ("training", 10, 18), ("sync", 18, 20))
    assert timeline([*spans, *lane("judge", ("call", 22, 26))]).other_s.tolist() == [2]


def test_what_happens_between_two_steps_makes_none_of_them_longer():
    around = lane("rank 0", ("restore", -30, 0), ("checkpoint", 54, 90))
    assert timeline([*BARRIER, *around]).wall_s.tolist() == [54]


def test_steps_are_given_as_pricing_reads_them():
    steps = timeline([*BARRIER, *lane("rank 0", ("generation", 60, 70), step=7)]).steps()
    assert steps.labels == ["0", "7"]
    assert np.array_equal(steps.busy_s, [24, np.nan], equal_nan=True)
    assert np.array_equal(steps.exposed_s, [30, np.nan], equal_nan=True)
    assert np.array_equal(steps.reward_s, [30, np.nan], equal_nan=True)
    assert steps.machine.tolist() == [MISSING, MISSING]


# Holes


def test_a_hole_is_refused_by_its_step_its_lane_its_place_and_its_neighbours():
    spans = lane("rank 1", ("step", 100, 154), ("generation", 100, 112), ("training", 142, 154), step=7)
    with pytest.raises(RefusedError) as refused:
        timeline([*BARRIER, *spans])
    assert str(refused.value) == (
        "step 7 of 'rank 1': no phase for 30.000 s, from 12.000 to 42.000 s after its start, "
        "between generation and training: phases cover 44.44% of it, and must cover 99%\n"
        '  next: wrap what happens there: with steps.phase("sync"): ..., or any other word'
    )
    assert timeline([*BARRIER, *spans], coverage=None).wall_s.tolist() == [54, 54]


def test_holes_at_the_edges_of_a_step_are_found_in_order():
    found = holes(lane("rank 0", ("step", 0, 100), ("generation", 10, 50), ("training", 60, 95)))
    assert [(hole.start, hole.end, hole.after, hole.before) for hole in found] == [
        (0, 10, "its start", "generation"),
        (50, 60, "generation", "training"),
        (95, 100, "training", "its end"),
    ]
    assert {(hole.step, hole.lane, hole.covered) for hole in found} == {(0, "rank 0", 0.75)}


def test_the_longest_hole_is_named_and_the_others_are_counted():
    spans = [
        *lane("rank 0", ("step", 0, 10), ("generation", 0, 9)),
        *lane("rank 1", ("step", 0, 10), ("generation", 0, 7)),
    ]
    with pytest.raises(RefusedError, match=r"'rank 1': .*3\.000 s.*1 more steps of lanes"):
        check_coverage(spans)


@pytest.mark.parametrize(("end", "found"), [(99.0, 0), (98.9, 1)])
def test_ninety_nine_of_a_hundred_seconds_are_enough(end, found):
    assert len(holes(lane("rank 0", ("step", 0, 100), ("generation", 0, end)))) == found


def test_a_step_without_any_phase_is_one_hole():
    (hole,) = holes(lane("rank 0", ("step", 3, 8)))
    assert (hole.seconds, hole.after, hole.before, hole.covered) == (5, "its start", "its end", 0)


def test_phases_that_overlap_are_not_counted_twice():
    assert holes(lane("rank 0", ("step", 0, 10), ("generation", 0, 6), ("weights", 1, 5)))


@pytest.mark.parametrize("order", [1, -1])
def test_of_phases_that_end_together_one_is_named_whatever_their_order(order):
    spans = lane("rank 0", ("step", 0, 10), ("weights", 0, 5), ("generation", 0, 5))[::order]
    assert [hole.after for hole in holes(spans)] == ["weights"]


def test_a_call_covers_nothing_on_its_lane():
    spans = lane("rank 0", ("step", 0, 10), ("generation", 0, 5), ("call", 0, 10))
    (hole,) = holes(spans)
    assert (hole.start, hole.end) == (5, 10)


@pytest.mark.parametrize("word", ["call", "queued", "reward"])
def test_a_lane_that_only_serves_rewards_may_wait(word):
    check_coverage([*BARRIER, *lane("rank 0/judge", (word, 12, 14), (word, 40, 42))])


def test_a_lane_that_generates_may_not_wait_without_saying_so():
    spans = [*BARRIER, *lane("rank 0/engine", ("generation", 0, 5), ("generation", 9, 12))]
    (hole,) = holes(spans)
    assert (hole.lane, hole.start, hole.end) == ("rank 0/engine", 5, 9)
    check_coverage([*spans, *lane("rank 0/engine", ("wait", 5, 9))])


def test_a_recorded_loop_accounts_for_its_time():
    clock, spans = FakeClock(), []
    with Steps(spans.extend, clock=clock) as steps:
        for _ in range(2):
            with steps.step():
                with steps.phase("generation"):
                    clock.tick(12)
                clock.tick(30)
                with steps.phase("training"):
                    clock.tick(12)
    assert [(hole.step, hole.start, hole.end) for hole in holes(spans)] == [(0, 12, 42), (1, 12, 42)]


def many(steps, *, holes):
    """Steps of 100 s one after the other, of which some miss 2 s."""
    return [
        span
        for step in range(steps)
        for at in [100.0 * step]
        for span in lane(
            "rank 0",
            ("step", at, at + 100),
            ("generation", at, at + (98 if step < holes else 100)),
            step=step,
        )
    ]


@pytest.mark.parametrize(("steps", "few"), [(20, 1), (40, 2), (41, 2)])
def test_a_few_steps_with_holes_are_left_out_and_more_are_refused(steps, few):
    assert timeline(many(steps, holes=few)).step.tolist() == list(range(few, steps))
    with pytest.raises(RefusedError, match=f"{few} more steps"):
        timeline(many(steps, holes=few + 1))
    with pytest.raises(RefusedError, match="no phase for 2"):
        check_coverage(many(steps, holes=1))


def test_work_that_outlives_its_step_ends_with_it():
    spans = [
        *lane("rank 0", ("step", 0, 20), ("generation", 0, 10), ("training", 10, 20), ("generation", 5, 55)),
        *lane("rank 0", ("step", 20, 60), ("generation", 20, 30), ("reward", 30, 50), step=1),
        *lane("rank 0", ("training", 50, 60), step=1),
    ]
    found = timeline(spans)
    assert found.generation_s.tolist() == [20, 10]
    assert found.busy_s.tolist() == [20, 20]
    assert found.exposed_s[1] == 20  # nobody generated meanwhile


def test_work_between_two_steps_is_not_taken_from_the_one_before():
    found = timeline([*BARRIER, *lane("rank 0", ("generation", 54, 60))])
    assert found.generation_s.tolist() == [18]


def test_a_phase_that_no_span_has_is_refused_with_those_there_are():
    with pytest.raises(RefusedError, match=r"'generat'\n.*'generation', 'reward', 'training'$"):
        timeline(BARRIER, phases={"generat": "generation"})


# Input


def test_no_spans_are_refused():
    with pytest.raises(RefusedError, match="no span was recorded"):
        timeline([])


@pytest.mark.parametrize("times", [(5, 4), (0, float("nan")), (float("-inf"), 0)])
def test_a_span_that_cannot_be_is_refused(times):
    with pytest.raises(RefusedError, match="step 0 of 'rank 0'"):
        timeline([*BARRIER, *lane("rank 0", ("weights", *times))])


def test_a_step_that_was_recorded_twice_is_refused():
    again = [span._replace(start=span.start + 100, end=span.end + 100) for span in BARRIER]
    with pytest.raises(RefusedError, match="recorded 2 times"):
        timeline([*BARRIER, *again])


@pytest.mark.parametrize(
    "calls",
    [
        CallTimes(np.array([0]), np.array([2.0]), np.array([1.0])),
        CallTimes(np.array([0]), np.array([np.nan]), np.array([1.0])),
        CallTimes(np.array([0, 0]), np.array([1.0]), np.array([2.0])),
        CallTimes(np.array([0]), np.array([1.0]), np.array([2.0]), np.array([])),
    ],
)
def test_calls_that_cannot_be_are_refused(calls):
    with pytest.raises(RefusedError, match="call"):
        timeline(BARRIER, calls=calls)


# Calls in columns


def test_queues_are_apart_from_service():
    calls = CallTimes(np.array([0, 0]), np.array([12.0, 20.0]), np.array([20.0, 42.0]), np.array([0.0, 8.0]))
    found = timeline(BARRIER, calls=calls)
    assert (found.calls[0], found.service_s[0], found.queued_s[0], found.in_flight[0]) == (2, 30, 8, 1)
    spans = [*BARRIER, *lane("j", ("call", 12, 20), ("call", 20, 42), ("queued", 12, 20))]
    assert same(timeline(spans), found)
    assert np.isnan(timeline(BARRIER, calls=calls._replace(queued_s=None)).queued_s).all()


def test_calls_of_steps_without_spans_are_steps_too():
    found = timeline(BARRIER, calls=CallTimes(np.array([9]), np.array([70.0]), np.array([75.0])))
    assert found.step.tolist() == [0, 9]
    assert np.array_equal(found.wall_s, [54, np.nan], equal_nan=True)
    assert (found.end - found.start).tolist() == [54, 5]
    assert found.calls.tolist() == [0, 1]


@pytest.mark.parametrize("block", [1, 100, 1_000, 100_000])
def test_calls_are_counted_alike_in_whatever_blocks(monkeypatch, block):
    rng = np.random.default_rng(0)
    step = np.repeat(np.arange(30), rng.integers(1, 200, 30))
    start = step * 60 + rng.random(len(step)) * 20
    calls = CallTimes(step, start, start + rng.random(len(step)) * 30, rng.random(len(step)))
    whole = timeline(BARRIER, calls=calls)
    monkeypatch.setattr(calltimes, "BLOCK", block)
    mixed = rng.permutation(len(step))
    assert same(timeline(BARRIER, calls=CallTimes(*(column[mixed] for column in calls))), whole)
    assert whole.calls.tolist() == np.bincount(step).tolist()
    for one in (0, 7, 29):
        begun, ended = calls.start[step == one], calls.end[step == one]
        most = max(int(((begun <= moment) & (moment < ended)).sum()) for moment in begun)
        assert whole.in_flight[one] == most


# Properties: any spans on a grid, counted second by second

GRID = 24
unhurried = settings(deadline=None)
some_spans = st.lists(
    st.builds(
        lambda step, lane, phase, start, length: Span(
            step, lane, phase, 30.0 * step + start, 30.0 * step + min(start + length, GRID)
        ),
        st.integers(0, 2),
        st.sampled_from(["rank 0", "rank 1"]),
        st.sampled_from(["generation", "reward", "training", "sync", "call"]),
        st.integers(0, GRID - 1),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=15,
)


def seconds(spans, *words):
    """Which seconds of the grid some span of these words has."""
    return {
        second for span in spans if span.phase in words for second in range(int(span.start), int(span.end))
    }


@unhurried
@given(some_spans)
def test_a_timeline_is_what_counting_second_by_second_gives(spans):
    found = timeline(spans, coverage=None)
    busy = seconds(spans, *BUSY)
    for at, step in enumerate(found.step.tolist()):
        own = [span for span in spans if span.step == step]
        reward = seconds(own, "reward", "call")
        wall = max(span.end for span in own) - min(span.start for span in own)
        assert found.end[at] - found.start[at] == wall
        halves = {span.phase for span in spans} & BUSY
        if halves <= {span.phase for span in own}:
            known = seconds(own, *BUSY) | reward
            assert found.wall_s[at] == wall
            assert found.other_s[at] == pytest.approx(wall - len(known), abs=1e-9)
        calls = [(span.start, span.end) for span in own if span.phase == "call"]
        if not np.isnan(found.exposed_s[at]):
            assert found.exposed_s[at] == pytest.approx(len(reward - busy), abs=1e-9)
        assert np.isnan(found.generation_s[at]) == (not any(span.phase == "generation" for span in own))
        if not np.isnan(found.generation_s[at]):
            assert found.generation_s[at] == pytest.approx(len(seconds(own, "generation")), abs=1e-9)
        if calls:
            assert found.in_flight[at] == max(
                sum(start <= moment < end for start, end in calls) for moment in range(3 * 30)
            )


@unhurried
@given(some_spans)
def test_nothing_lasts_longer_than_its_step_and_no_wait_longer_than_its_reward(spans):
    found = timeline(spans, coverage=None)
    for part in (found.generation_s, found.training_s, found.busy_s, found.reward_s, found.other_s):
        assert (np.isnan(part) | ((part >= 0) & (part <= found.end - found.start + 1e-9))).all()
    waited = ~np.isnan(found.exposed_s)
    assert (found.exposed_s[waited] >= 0).all()
    assert (found.exposed_s[waited] <= found.reward_s[waited]).all()


@unhurried
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=8))
def test_walls_add_up_to_the_time_in_which_some_step_was_open(steps):
    spans = [
        span
        for step, (start, length) in enumerate(steps)
        for span in lane(
            f"rank {step}",
            ("step", start, start + length),
            ("generation", start, start + length),
            step=step,
        )
    ]
    found = timeline(spans)
    assert (found.wall_s >= 0).all()
    assert found.wall_s.sum() == pytest.approx(len(seconds(spans, "step")), abs=1e-9)


@unhurried
@given(some_spans, st.randoms(use_true_random=False))
def test_the_order_of_spans_changes_nothing(spans, random):
    mixed = list(spans)
    random.shuffle(mixed)
    assert same(timeline(mixed, coverage=None), timeline(spans, coverage=None))
    assert holes(mixed) == holes(spans)


@unhurried
@given(some_spans)
def test_holes_are_exactly_the_seconds_that_no_phase_covers(spans):
    found = holes(spans, coverage=2.0)  # more than all: every hole of every lane that is asked
    for step, name in {(span.step, span.lane) for span in spans}:
        own = [s for s in spans if (s.step, s.lane) == (step, name) and s.phase != "call"]
        here = [hole for hole in found if (hole.step, hole.lane) == (step, name)]
        if BUSY.isdisjoint(span.phase for span in own):
            assert not here
            continue
        begins, ends = min(span.start for span in own), max(span.end for span in own)
        missing = set(range(int(begins), int(ends))) - seconds(own, *{span.phase for span in own})
        assert sum(hole.seconds for hole in here) == pytest.approx(len(missing), abs=1e-9)
        assert all(a.end <= b.start for a, b in combinations(here, 2))


def test_what_a_scheduler_takes_between_two_phases_of_a_short_step_is_no_hole():
    spans = [
        Span(0, "main", "step", 0.0, 0.25),
        Span(0, "main", "generation", 0.0, 0.1),
        Span(0, "main", "training", 0.115, 0.25),
    ]
    assert timeline(spans).wall_s.tolist() == [0.25]
    with pytest.raises(RefusedError, match="no phase"):
        timeline([spans[0], spans[1], spans[2]._replace(start=0.13)])
