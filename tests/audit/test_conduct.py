"""Whether a recipe returns, raises and repeats itself: from what was observed to one sentence."""

import pytest

from steelyard.audit.conduct import conduct_findings, wavering
from steelyard.audit.observed import Answer, Ended, Kind, Observed, PartFacts, Repeat, RowFacts, Told
from steelyard.outcome import Abstained, Scored, Unscored

TONE = PartFacts("tone")


def one_group(*verdicts, **more):
    """A group of the file, judged so by the one part."""
    told = [
        Told(f"f:{at}", Answer(verdict, {"tone": verdict})) for at, verdict in enumerate(verdicts, start=1)
    ]
    return Observed(parts=[more.pop("part", TONE)], groups=[told], **more)


def specimen(kind, verdict):
    return Observed(
        parts=[TONE], rows=[RowFacts("f:1")], earned={(0, kind, ""): Answer(verdict, {"tone": verdict})}
    )


def levels(seen):
    return [(str(found.level), found.check) for found in conduct_findings(seen)]


CUT = Scored(0.0, "cpu", "cut after 2 s of CPU")
RAISED = Scored(0.0, "reward_error", "KeyError: 'x'")


def test_a_rollout_that_was_cut_is_a_fault_that_says_how_and_where():
    (found,) = conduct_findings(one_group(Scored(1.0), CUT))
    assert (found.level, found.check) == ("fault", "hang")
    assert "1 of 2 rollouts of the file (first f:2): cut after 2 s of CPU, code cpu" in found.says


def test_only_the_longest_specimen_cut_is_a_doubt_and_so_is_a_cut_of_ours_whose_contract_it_is():
    assert levels(specimen(Kind.LONG, CUT)) == [("doubt", "hang")]
    assert levels(specimen(Kind.EMPTY, CUT)) == [("fault", "hang")]
    assert levels(one_group(Scored(1.0), CUT, part=PartFacts("tone", ours=True))) == [("doubt", "hang")]


def test_an_error_on_the_files_rollouts_is_a_fault_and_on_a_specimen_a_doubt():
    assert levels(one_group(Scored(1.0), RAISED)) == [("fault", "crash")]
    assert levels(specimen(Kind.EMPTY, RAISED)) == [("doubt", "crash")]


def test_an_attempt_that_failed_counts_where_time_was_over_before_its_verdict():
    seen = one_group(Scored(1.0), broken=[Ended("f:9", "tone", RAISED)], asked=8)
    (found,) = conduct_findings(seen)
    assert "1 of 8 rollouts of the file (first f:9)" in found.says


def test_unscored_rollouts_are_a_fault_above_the_share_at_which_a_run_stops():
    down = Unscored("judge:tone", "HTTP 503")
    assert levels(one_group(*[Scored(1.0)] * 9, down)) == [("fault", "unscored")]
    assert levels(one_group(*[Scored(1.0)] * 30, down)) == [("doubt", "unscored")]


def test_a_value_below_the_floor_is_a_fault_that_names_the_floor_to_state():
    (found,) = conduct_findings(one_group(Scored(-0.5), Scored(-1.0)))
    assert (found.level, found.check) == ("fault", "floor")
    assert "floor=-1" in found.says


def test_nothing_that_came_back_is_a_fault_and_something_that_did_not_a_doubt():
    assert levels(Observed(parts=[TONE], late=["f:1"], within_s=8.0)) == [("fault", "hang")]
    assert levels(one_group(Scored(1.0), late=["f:2"])) == [("doubt", "hang")]
    # processes that are started again after errors take the time
    assert levels(one_group(Scored(1.0), late=["f:2"], broken=[Ended("f:9", "tone", RAISED)])) == [
        ("fault", "crash")
    ]


def test_a_run_that_would_be_stopped_is_said_once():
    seen = one_group(Scored(1.0), stopped=["it failed\n  next: mend it", "it failed\n  next: mend it"])
    (found,) = conduct_findings(seen)
    assert found.says == "a run would be stopped: it failed; next: mend it"


@pytest.mark.parametrize("way", ["again", "fresh", "reversed", "alone"])
def test_another_reward_the_second_time_is_a_fault(way):
    seen = one_group(Scored(1.0), repeats=[Repeat(way, "f:1", "tone", Scored(1.0), Scored(0.0))])
    (found,) = conduct_findings(seen)
    assert found.level == "fault"
    assert "f:1" in found.says


def test_one_cause_is_one_finding_and_chance_comes_first():
    repeats = [Repeat(way, "f:1", "tone", Scored(1.0), Scored(0.0)) for way in ("alone", "reversed", "again")]
    (found,) = conduct_findings(one_group(Scored(1.0), repeats=repeats))
    assert found.check == "chance"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Scored(1.0), Scored(1.0 + 1e-13)),
        (Scored(1.0), CUT),
        (RAISED, Scored(1.0)),
        (Scored(1.0), Unscored("reward:tone", "no process")),
        (Abstained("x"), Abstained("y")),
    ],
)
def test_rounding_limits_and_failures_are_no_chance(before, after):
    seen = one_group(Scored(1.0), repeats=[Repeat("again", "f:1", "tone", before, after)])
    assert wavering(seen, TONE) is None


def test_who_says_that_chance_or_the_group_decides_is_not_blamed_for_it():
    by_chance = [Repeat("again", "f:1", "tone", Scored(1.0), Scored(0.0))]
    assert (
        wavering(one_group(Scored(1.0), repeats=by_chance), PartFacts("tone", by_chance=True)).level == "note"
    )
    alone = [Repeat("alone", "f:1", "tone", Scored(1.0), Scored(0.0))]
    assert wavering(one_group(Scored(1.0), repeats=alone), PartFacts("tone", grouped=True)) is None
    order = [Repeat("reversed", "f:1", "tone", Scored(1.0), Scored(0.0))]
    assert wavering(one_group(Scored(1.0), repeats=order), PartFacts("tone", grouped=True)).check == "order"
