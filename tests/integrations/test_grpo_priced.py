"""What a price says that another barrier would save, against a loop that has that barrier.

Within 5 % on 40 steps is what `bench/grpo_priced.py` shows; here a busy machine and 8 steps get 10 %.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import steelyard  # noqa: E402
from waiting_loop import GROUPS, MEMBERS, drawn, in_turn  # noqa: E402

STEPS = 8
OFF = 0.1


def remedy(price):
    return next(one for one in price.remedies if one.name == "groups")


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    """Of the same waits, waited for as a batch and trained on as they come."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ledgers = in_turn(tmp_path_factory.mktemp("priced"), drawn(1, STEPS))
    finally:
        torch.set_num_threads(threads)
    return [steelyard.price_file(ledger) for ledger in ledgers]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_loop_is_recorded_whole_and_waits_for_most_of_its_time(prices):
    waiting, arriving = prices
    for price in prices:
        assert price.basis.startswith(f"n = {STEPS} steps ({STEPS * GROUPS * MEMBERS} calls")
        assert price.notes == []
        assert price.in_flight == GROUPS * MEMBERS
    assert waiting.idle.value > 0.5  # about 0.88 where nothing else runs
    assert waiting.wait.value == pytest.approx(waiting.observed.value, rel=OFF)
    assert arriving.wait.value < waiting.wait.value  # training covers some of it


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_step_that_trains_on_arrival_takes_what_the_price_of_the_plain_one_predicted(prices):
    waiting, arriving = prices
    predicted = remedy(waiting)
    assert predicted.title == "train on each group as it arrives"
    assert arriving.step.value < waiting.step.value
    assert predicted.after.value == pytest.approx(arriving.step.value, rel=OFF)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_plain_step_takes_what_its_calls_predict_if_they_are_drawn_anew(prices):
    waiting, _ = prices
    for barrier in (waiting.independent, waiting.correlated):
        assert waiting.busy.value + barrier.value == pytest.approx(waiting.step.value, rel=OFF)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_where_training_overlaps_rewards_already_nothing_is_promised_again(prices):
    _, arriving = prices
    again = remedy(arriving)
    assert "training overlaps rewards already" in again.rests_on
    assert again.saves.value <= OFF * arriving.step.value
