"""The law as a function: failures in, verdict or next step out; and the shares above which a run stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.blame import DOUBTS, OWN_LIMITS, Next, Shares, excused, verdict_on
from steelyard.outcome import Abstained, End, Failure, Scored, Unscored

RAISED = Failure(End.RAISED, "ValueError: x")
WALL = Failure(End.CUT, "too long", limit="wall")
LOST = Failure(End.LOST, "its process ended")
DOWN = Failure(End.NEVER_STARTED, "503", boundary="judge:x")


def law(*failures, canary=None, floor=-1.0):
    return verdict_on(failures, reward="tone", floor=floor, canary=canary)


@pytest.mark.parametrize("failure", [RAISED, WALL, LOST])
def test_a_first_failure_is_tried_again_a_second_asks_the_canary(failure):
    assert law(failure) is Next.TRY_AGAIN
    assert law(RAISED, failure) is Next.ASK_CANARY


@pytest.mark.parametrize(
    ("failure", "code"), [(RAISED, "reward_error"), (WALL, "wall_reproduced"), (LOST, "reproduced")]
)
def test_a_failure_that_repeats_while_the_canary_is_answered_is_the_floor(failure, code):
    assert law(RAISED, failure, canary=True) == Scored(-1.0, code, failure.cause)


@pytest.mark.parametrize("failure", [RAISED, WALL, LOST])
def test_a_failure_whose_canary_fails_too_is_unscored(failure):
    verdict = law(RAISED, failure, canary=False)
    assert verdict == Unscored("reward:tone", f"{failure.cause}; its canary failed too")


@pytest.mark.parametrize("limit", sorted(OWN_LIMITS))
def test_a_limit_of_its_own_is_final_whatever_came_before(limit):
    cut = Failure(End.CUT, "cut", limit=limit)
    assert law(cut) == law(RAISED, cut) == Scored(-1.0, limit, "cut")


def test_the_wall_is_not_a_limit_of_its_own():
    assert "wall" not in OWN_LIMITS


def test_evidence_that_no_completion_can_produce_is_unscored_at_once():
    assert law(DOWN) == law(RAISED, DOWN) == Unscored("judge:x", "503")


@pytest.mark.parametrize("first", [RAISED, WALL, LOST, DOWN])
@pytest.mark.parametrize("second", [RAISED, WALL, LOST])
def test_while_the_canary_is_answered_no_two_failures_of_a_completion_are_a_way_out(first, second):
    assert isinstance(law(first, second, canary=True), Scored)


def test_a_floor_that_came_of_failed_attempts_is_no_judgement_of_the_rollout():
    for code in ("cpu", "wall_reproduced", "reproduced", *DOUBTS):
        assert excused(code)
    for code in (None, "wrong", "no_answer"):
        assert not excused(code)


def seen(*verdicts, **settings):
    shares = Shares(**settings)
    for verdict in verdicts:
        shares.see(verdict)
    return shares.excess()


GOOD, MISSING, ERROR = Scored(1.0), Unscored("judge:x", "503"), Scored(0.0, "reward_error")


def test_shares_act_from_256_rollouts_on():
    assert seen(*[MISSING] * 255) is None
    assert seen(*[MISSING] * 256) == "256 of the last 256 rollouts are unscored (at most 5.0%)"


def test_a_share_acts_above_its_limit_and_not_at_it():
    assert seen(*[MISSING] * 50, *[GOOD] * 950) is None
    assert seen(*[MISSING] * 51, *[GOOD] * 949).startswith("51 of the last 1000")


def test_shares_are_taken_over_the_last_1024():
    assert seen(*[MISSING] * 500, *[GOOD] * 1024) is None
    assert seen(*[GOOD] * 5000, *[MISSING] * 52).startswith("52 of the last 1024")
    assert seen(*[GOOD] * 5000, *[MISSING] * 51) is None


def test_the_share_of_reward_errors_is_one_of_its_own():
    assert seen(*[ERROR] * 5, *[GOOD] * 1019) is None
    assert seen(*[ERROR] * 6, *[GOOD] * 1018) == (
        "6 of the last 1024 rollouts failed in a reward for their content (at most 0.5%)"
    )
    assert seen(*[Scored(0.0, "judge_unreadable")] * 6, *[GOOD] * 1018) is not None


def test_abstentions_and_wrong_answers_are_no_failures():
    assert seen(*[Abstained("x")] * 512, *[Scored(0.0, "wrong")] * 512) is None


def test_a_part_that_failed_counts_also_where_the_total_has_another_code():
    shares = Shares()
    for _ in range(256):
        shares.see(Scored(0.0, "wrong"), (Scored(0.0, "wrong"), ERROR))
    assert "256 of the last 256" in shares.excess()


def test_limits_are_settings():
    assert seen(*[MISSING] * 2, *[GOOD] * 8, unscored=0.1, acts_from=10) is not None
    assert seen(*[MISSING] * 2, *[GOOD] * 8, unscored=0.2, acts_from=10) is None
    assert seen(*[ERROR] * 2, *[GOOD] * 8, errors=0.1, acts_from=10) is not None


VERDICTS = st.sampled_from([GOOD, MISSING, ERROR, Abstained("x"), Scored(0.0, "wrong")])


@given(st.lists(st.lists(st.tuples(VERDICTS, VERDICTS, VERDICTS), max_size=9), max_size=40))
def test_a_group_counts_as_its_rollouts_do_one_by_one(groups):
    each, together = Shares(acts_from=1), Shares(acts_from=1)
    for group in groups:
        totals, *parts = [[row[at] for row in group] for at in range(3)]
        together.see_group(totals, parts)
        for total, *some in group:
            each.see(total, some)
        assert together.excess() == each.excess()
