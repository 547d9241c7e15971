"""How the file's rollouts fare: counted, and read."""

from steelyard.audit.observed import Answer, Observed, PartFacts, Told
from steelyard.audit.spread import spread_findings, spread_of
from steelyard.outcome import Abstained, Scored, Unscored

MAIN = PartFacts("main", ours=True)
OTHER = PartFacts("other", reads_gold=False, reads_columns=False)
RIGHT, WRONG = Scored(1.0), Scored(0.0, "wrong")


def group(*mains, others=None):
    """Rollouts judged so by `main`, and by `other` if it was asked; the total is their sum."""
    told = []
    for at, verdict in enumerate(mains):
        other = None if others is None else Scored(others[at])
        parts = {"main": verdict} | ({} if other is None else {"other": other})
        total = Scored(verdict.value + other.value) if other is not None else verdict
        told.append(Told(f"f:{at + 1}", Answer(total, parts)))
    return told


def seen(*groups, parts=(MAIN,)):
    return Observed(parts=list(parts), groups=groups)


def checks(observed):
    return [(str(found.level), found.check) for found in spread_findings(observed, spread_of(observed))]


def test_groups_without_a_gradient_are_told_apart_by_what_is_right():
    spread = spread_of(seen(group(RIGHT, RIGHT), group(WRONG, WRONG), group(RIGHT, WRONG), group(WRONG)))
    assert (spread.groups, spread.all_right, spread.all_wrong, spread.all_alike) == (4, 1, 1, 0)
    assert spread.codes == {"main": {"wrong": 4}}


def test_equal_rewards_of_right_and_wrong_are_alike_otherwise():
    spread = spread_of(seen(group(RIGHT, WRONG, others=[0.0, 1.0]), parts=(MAIN, OTHER)))
    assert (spread.all_right, spread.all_wrong, spread.all_alike) == (0, 0, 1)


def test_few_values_are_told_as_they_are_and_many_in_ranges_that_hold_them_all():
    assert spread_of(seen(group(RIGHT, WRONG, RIGHT))).histogram == [("0", 1), ("1", 2)]
    many = spread_of(seen(group(*[Scored(n / 10) for n in range(11)]))).histogram
    assert len(many) == 6
    assert sum(count for _, count in many) == 11
    assert (many[0][0], many[-1][0]) == ("0 to 0.1667", "0.8333 to 1")


def test_what_is_unscored_or_abstained_is_counted_with_its_reason():
    down, apart = Unscored("judge:main", "HTTP 503"), Abstained("no column")
    spread = spread_of(seen(group(RIGHT, down, apart, down)))
    assert spread.unscored == {"judge:main: HTTP 503": 2}
    assert spread.abstained == {"main": 1}
    assert spread.rollouts == 4


def test_a_wrong_rollout_that_earns_more_is_looked_for_inside_its_group_alone():
    inside = seen(group(RIGHT, WRONG, others=[0.0, 3.0]), parts=(MAIN, OTHER))
    (found,) = [one for one in spread_findings(inside, spread_of(inside)) if one.check == "weights"]
    assert "in 1 of 1 groups" in found.says
    assert "3 in f:2, 1 in f:1" in found.says
    apart = seen(
        group(RIGHT, RIGHT, others=[0.0, 0.1]), group(WRONG, WRONG, others=[3.0, 3.1]), parts=(MAIN, OTHER)
    )
    assert ("doubt", "weights") not in checks(apart)


def test_groups_of_two_that_agree_are_no_doubt_and_groups_of_four_that_do_are():
    mixed = group(RIGHT, WRONG)
    assert ("doubt", "gradient") not in checks(seen(*[group(RIGHT, RIGHT)] * 9, mixed))
    four = [RIGHT] * 4
    assert ("doubt", "gradient") in checks(seen(*[group(*four)] * 9, group(RIGHT, WRONG, *four[:2])))


def test_a_file_of_single_rollouts_is_noted():
    assert checks(seen(*[group(RIGHT)] * 9)) == [("note", "gradient")]
