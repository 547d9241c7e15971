import json

import pytest

from steelyard import RefusedError, record_steps
from steelyard.priced import price_file, read_run


@pytest.fixture
def loop(tmp_path):
    path = tmp_path / "run.ledger"
    with record_steps(path) as steps:
        for step in range(3):
            asked = 100 * step + 12
            steps.span("rollout", asked - 12, asked, step=step)
            steps.span("reward", asked, asked + 30, step=step)
            for member, seconds in enumerate([2, 4, 30]):
                cut = "timeout" if seconds == 30 else None
                steps.span("call", asked, asked + seconds, step=step, group=0, member=member, cut_by=cut)
            steps.span("training", asked + 30, asked + 42, step=step)
    return path


@pytest.fixture
def verl(tmp_path):
    folder = tmp_path / "rollouts"
    folder.mkdir()
    row = {"input": "6 * 3?", "output": "18", "gts": "18", "score": 0.0, "step": 1, "timeout": True}
    (folder / "1.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_a_recorded_loop_is_priced_with_what_its_phases_mean(loop):
    price = price_file(loop, phases={"rollout": "generation"})
    assert (price.busy.value, price.wait.value, price.step.value) == (24, 30, 54)
    assert price.remedies[0].name == "timeout"
    assert price_file(str(loop), phases={"rollout": "generation"}, timeout_s=8) != price


def test_where_rewards_were_cut_is_taken_from_whoever_knows(loop):
    assert read_run(loop, limit_s=31.0).observed.limit_s == 31
    assert price_file(loop, phases={"rollout": "generation"}, limit_s=31.0).limit_s == 31


def test_what_others_wrote_is_priced_with_its_suspicions(verl):
    price = price_file(verl)
    assert price.wait is None
    assert [one.kind for one in price.suspicions] == ["flagged"]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("run", 1, r"run.ledger: there is no run 1\n  next: there are none"),
        ("group_size", 8, r"group_size: a ledger says it\n  next: leave it out"),
        ("rewards", ["one"], r"rewards: a ledger says it"),
    ],
)
def test_what_means_nothing_for_a_ledger_is_refused(loop, name, value, complaint):
    with pytest.raises(RefusedError, match=complaint):
        price_file(loop, **{name: value})


def test_what_means_nothing_for_others_is_refused(verl):
    with pytest.raises(RefusedError, match=r"run: it is for ledgers\n  next: leave it out"):
        price_file(verl, run=1)
    with pytest.raises(RefusedError, match=r"nowhere: there is no such file\n  next: check the path"):
        price_file("nowhere")


def test_pricing_says_what_it_has():
    import steelyard.pricing

    assert {"Observed", "Price", "Prices", "price_numbers", "price_observed"} == set(dir(steelyard.pricing))
    with pytest.raises(AttributeError, match=r"'steelyard.pricing' has no attribute 'prise'"):
        steelyard.pricing.prise  # noqa: B018
