"""What a person is told after a run, counted right; and the same rows out of whatever order came in."""

import io
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from steelyard.cli.score import report
from steelyard.clock import Clocks
from steelyard.files import Survey
from steelyard.ledger import Ledger
from steelyard.outcome import Abstained, Attempt, Part, Scored, ScoredGroup, Unscored
from steelyard.rewards import Recipe, find
from steelyard.rollout import Group, Rollout
from steelyard.scheduling.deadlines import Standing
from steelyard.scoring import Options, Summary, score_file
from steelyard.scoring.summary import Counting, _deciles

GSM8K = Recipe((Part(find("gsm8k")),))
LOST = Unscored("judge:tone", "503")


def deciles(lengths, unscored=()):
    return _deciles(Counter(lengths), Counter(unscored))


# --- length deciles


def test_a_hundred_lengths_make_ten_deciles_of_ten():
    found = deciles(range(1, 101), [95, 96, 97, 5])
    assert found == [(n * 10, 10, {10: 1, 100: 3}.get(n * 10, 0)) for n in range(1, 11)]


def test_fewer_rollouts_than_deciles_make_one_part_each():
    assert deciles([3, 1, 2], [3]) == [(1, 1, 0), (2, 1, 0), (3, 1, 1)]
    assert deciles([7], [7]) == [(7, 1, 1)]
    assert deciles([]) == []


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300))
def test_deciles_hold_every_rollout_once_from_short_to_long(lengths):
    found = deciles(lengths, lengths[::3])
    assert len(found) <= 10
    assert sum(count for _, count, _ in found) == len(lengths)
    assert sum(missing for *_, missing in found) == len(lengths[::3])
    ends = [longest for longest, *_ in found]
    assert ends == sorted(set(ends))
    assert ends[-1] == max(lengths)
    assert all(0 <= missing <= count for _, count, missing in found)


def test_a_part_after_many_equal_lengths_is_still_a_tenth():
    assert deciles([1] * 85 + list(range(2, 17))) == [(1, 85, 0), (6, 5, 0), (16, 10, 0)]


# --- counting


def counted(groups, scheme="grpo", lengths=None):
    """The summary of groups given as lists of verdicts, with a ledger that knows no attempt."""
    survey = Survey("f", {})
    scored, ordinal = [], 0
    for number, totals in enumerate(groups):
        rollouts = []
        for place in range(len(totals)):
            rollouts.append(Rollout(ordinal, "p", "c", {}, (number, place), ordinal, ""))
            survey.places.append(ordinal)
            survey.lengths.append(lengths[ordinal] if lengths else 1)
            ordinal += 1
        survey.starts.append(ordinal)
        survey.group_ids.append(f"g{number}")
        scored.append(ScoredGroup(Group(f"g{number}", number, rollouts), totals, {}))
    counting = Counting(survey, scheme)
    for one in reversed(scored):
        counting.see(one)
    return counting


@pytest.fixture
def record(tmp_path):
    with Ledger(tmp_path / "x.ledger") as ledger:
        yield ledger, ledger.begin("one", {}, {"gsm8k": "gsm8k/1"})


def test_verdicts_codes_and_causes_are_counted(record):
    groups = [[Scored(1.0), Scored(0.0, "wrong"), Scored(0.0, "wrong")], [LOST, LOST, Abstained("x")]]
    summary = counted(groups).finish(*record)
    assert summary.verdicts == {"scored": 3, "unscored": 2, "abstained": 1}
    assert summary.codes == {"wrong": 2}
    assert summary.whys == {"judge:tone: 503": 2}
    assert summary.value_sum == 1.0
    assert summary.rollouts == 6


def test_a_group_without_a_gradient_has_too_few_votes_or_votes_that_agree(record):
    spread, alike = [Scored(1.0), Scored(0.0), Scored(1.0)], [Scored(1.0)] * 3
    few, pair = [Scored(1.0), Scored(0.0), LOST], [Scored(1.0), Scored(0.0)]
    summary = counted([spread, alike, few, pair, [LOST] * 3]).finish(*record)
    assert (summary.no_spread, summary.too_few_votes) == (1, 3)
    summary = counted([spread, alike, few, pair, [LOST] * 3], "rloo").finish(*record)
    assert (summary.no_spread, summary.too_few_votes) == (1, 1)


def test_a_groups_line_says_size_votes_mean_and_range(record):
    first, second = counted([[Scored(1.0), Scored(0.5), LOST], [LOST]]).finish(*record).groups
    assert first == ("g0", 3, 2, 0.75, 0.5, 1.0)
    assert second == ("g1", 1, 0, None, None, None)


def test_of_more_than_twenty_groups_the_ten_hardest_are_shown(record):
    groups = [[Scored(float(n * 7 % 25))] for n in range(25)]
    assert len(counted(groups[:20]).finish(*record).groups) == 20
    shown = counted(groups).finish(*record).groups
    assert [line.mean for line in shown] == [float(n) for n in range(10)]


def test_unscored_shares_are_told_by_length(record):
    groups = [[Scored(1.0)] * 9 + [LOST]]
    summary = counted(groups, lengths=[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]).finish(*record)
    assert summary.length_deciles[-1] == (100, 1, 1)
    assert sum(missing for *_, missing in summary.length_deciles) == 1


# --- service times


def told(summary):
    said = io.StringIO()
    report(Console(file=said, width=200, highlight=False), summary, Options(), 1.0)
    return said.getvalue()


def test_quantiles_are_those_of_the_attempts_and_a_cut_one_is_a_lower_bound(record):
    ledger, run = record
    times = [(n / 100, n == 100) for n in range(1, 101)]
    ledger.leave(
        run,
        attempts=[
            Attempt(n, "gsm8k", 0, n, 3, Clocks(service_s=s, censored=cut))
            for n, (s, cut) in enumerate(times[::-1])
        ],
    )
    summary = counted([[Scored(1.0)]]).finish(ledger, run)
    (part,) = summary.times
    assert (part.part, part.attempts, part.rollouts_each, part.cut) == ("gsm8k", 100, 3.0, 1)
    assert list(part.quantiles) == [(0.5, False), (0.9, False), (0.99, False), (1.0, True)]
    line = next(line for line in told(summary).splitlines() if line.startswith("gsm8k"))
    assert "> 1 s" in line
    assert line.count(">") == 1


def test_a_part_that_was_never_called_has_no_times(record):
    summary = counted([[Scored(1.0)]]).finish(*record)
    assert summary.times[0].attempts == 0
    assert "service time" not in told(summary)


# --- when it is too much


@pytest.mark.parametrize(
    ("scored", "unscored", "errors", "stated", "says"),
    [
        (0, 0, 0, None, None),
        (100, 100, 0, None, None),  # a doubt: below 256 rollouts
        (243, 13, 0, None, "13 of 256 rollouts are unscored (at most 5.0%)"),
        (244, 12, 0, None, None),
        (9, 1, 0, 0.1, None),
        (9, 1, 0, 0.09, "1 of 10 rollouts are unscored (at most 9.0%)"),
        (9, 1, 0, 0.0, "1 of 10"),
        (10, 0, 0, 0.0, None),
        (243, 13, 0, 1.0, None),
        (256, 0, 2, None, "a reward failed twice on 2 of 256 rollouts, which got its floor (at most 0.5%)"),
        (256, 0, 1, None, None),
        (255, 0, 9, None, None),
    ],
)  # fmt: skip
def test_a_share_above_what_is_stated_is_said(scored, unscored, errors, stated, says):
    summary = Summary(
        verdicts=Counter(scored=scored, unscored=unscored),
        errors=errors,
        reproduced=errors,
    )
    said = summary.excess(stated, 0.05)
    assert said is None if says is None else says in said


# --- the whole path in whatever order


def scored_rows(folder, rows, **options):
    file, out = folder / "r.jsonl", folder / "o.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for old in folder.glob("o.jsonl*"):
        old.unlink()
    score_file(str(file), GSM8K, out, options=Options(**options))
    return [json.loads(line) for line in out.read_text().splitlines()]


ROWS = [
    {"id": f"r{n}", "prompt": f"p{n % 4}", "completion": f"#### {n % 3}", "answer": n % 4, "seed": n}
    for n in range(14)
]


@settings(max_examples=12, deadline=None)
@given(order=st.permutations(range(14)))
def test_rows_in_any_order_get_the_same_values_groups_and_advantages(order, tmp_path_factory):
    folder = tmp_path_factory.mktemp("order")
    scored = scored_rows(folder, [ROWS[n] for n in order])
    assert [row["id"] for row in scored] == [f"r{n}" for n in order]
    whole = {row["id"]: row for row in scored_rows(folder, ROWS)}
    members = {}
    for row in scored:
        members.setdefault(row["group"], []).append(row)
        same = whole[row["id"]]
        assert (row["value"], row["code"]) == (same["value"], same["code"])
        assert row["advantage"] == pytest.approx(same["advantage"], abs=1e-12)
    for name, rows in members.items():
        assert rows[0]["id"] == name
        assert [row["index"] for row in rows] == list(range(len(rows)))
        assert {int(row["id"][1:]) % 4 for row in rows} == {int(name[1:]) % 4}
        assert sum(row["advantage"] for row in rows) == pytest.approx(0, abs=1e-9)


def test_progress_is_told_by_stage_and_ends_at_the_total(tmp_path):
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    far = []
    score_file(str(tmp_path / "r.jsonl"), GSM8K, tmp_path / "o", progress=far.append)
    assert list(dict.fromkeys(one.stage for one in far)) == ["reading", "judging", "writing"]
    judged = [one for one in far if one.stage == "judging"][-1]
    assert (judged.done, judged.total, dict(judged.verdicts)) == (14, 14, {"scored": 14})


def test_one_rollout_is_one(record):
    assert "1 rollout in 1 group, " in told(counted([[Scored(1.0)]]).finish(*record))


# --- deadlines


def code(deadline, cpu_s=10.0):
    return {"tests": {"boundary": "fake/1", "deadline": deadline, "cpu_s": cpu_s}}


STANDING = Standing("tests", "kind", "table", 2.0, False, 0.06, 48, 0, 0, 0, 0)


@pytest.mark.parametrize(("given", "words"), [
    ({"code": code("adaptive", 2.0), "deadlines": [STANDING]}, "`adaptive` can never act: none is below 2 s"),
    ({"code": code("reference")}, "`reference` did nothing: no row has a column `reference`"),
    ({"code": code("adaptive")}, "`adaptive` did nothing yet: it needs 30 passes in earlier steps"),
    ({"code": code("adaptive"), "deadlines": [STANDING]}, "not in force yet: 48 of about 600 passes"),
    ({"deadlines": [STANDING._replace(passes=900)]}, "not in force: the bound must be below 0.5%"),
    ({"failing_references": 1}, "1 test with a reference that fails its own tests"),
])  # fmt: skip
def test_a_deadline_that_does_nothing_says_why(given, words):
    said = told(Summary(verdicts=Counter(scored=1), sizes=Counter({1: 1}), **given))
    assert words in said
    assert said.count("CPU deadline") + said.count("reference that fails") == 1


def test_a_deadline_in_force_or_fixed_says_nothing_more():
    given = {"code": code("adaptive"), "deadlines": [STANDING._replace(in_force=True)]}
    assert "force" not in told(Summary(verdicts=Counter(scored=1), **given))
    assert "CPU deadline" not in told(Summary(verdicts=Counter(scored=1), code=code("fixed", 2.0)))
