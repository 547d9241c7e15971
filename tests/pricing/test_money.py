import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.pricing.money import Prices, bill, pool, scaled
from steelyard.pricing.values import Estimate

quick = settings(max_examples=40, deadline=None)
STEP = Estimate(46.77, "s", 45.0, 48.0, "n = 40 steps")
IDLE = Estimate(0.476, "share", 0.46, 0.49, "n = 40 steps")


def test_a_step_costs_its_seconds_of_everything_that_is_paid_by_the_hour():
    owed = bill(Prices(3.95, accelerators=8, sandbox=0.05, sandboxes=100), step=STEP, idle=IDLE, batch=128)
    per_hour = 8 * 3.95 + 5
    assert owed["per_hour"].value == pytest.approx(per_hour)
    assert owed["per_step"].value == pytest.approx(46.77 / 3600 * per_hour)
    assert owed["per_1000"].value == pytest.approx(46.77 / 3600 * per_hour / 128 * 1000)


def test_only_accelerators_are_idle_while_they_wait():
    owed = bill(Prices(4.0, sandbox=0.01, sandboxes=100), step=STEP, idle=IDLE, batch=128)
    assert owed["idle_share"].value == pytest.approx(0.476 * 4 / 5)
    assert owed["idle_per_hour"].value == pytest.approx(0.476 * 4)
    assert owed["idle_per_day"].value == pytest.approx(24 * 0.476 * 4)
    assert bill(Prices(4.0), step=STEP, idle=IDLE, batch=128)["idle_share"].value == pytest.approx(0.476)


@quick
@given(st.floats(0.01, 1e3), st.integers(1, 64), st.integers(1, 4096))
def test_money_carries_the_interval_and_the_basis_of_what_it_was_made_of(price, accelerators, batch):
    for name, estimate in bill(Prices(price, accelerators), step=STEP, idle=IDLE, batch=batch).items():
        if name != "per_hour":
            assert estimate.low < estimate.value < estimate.high
            assert estimate.basis == "n = 40 steps"


def test_without_an_interval_there_is_none_in_dollars():
    assert scaled(Estimate(2.0, "s", basis="told"), 3, "$") == Estimate(6.0, "$", None, None, "told")


@pytest.mark.parametrize(
    ("prices", "complaint"),
    [
        (Prices(-1.0), r"prices.accelerator: must be 0 or more, is -1.0"),
        (Prices(float("nan")), r"prices.accelerator: must be 0 or more, is nan"),
        (Prices(1.0, sandboxes=-3), r"prices.sandboxes: must be 0 or more, is -3"),
        (Prices(0.0), r"prices: every price is 0"),
    ],
)
def test_a_price_that_cannot_be_is_refused(prices, complaint):
    with pytest.raises(RefusedError, match=complaint):
        bill(prices, step=STEP, idle=IDLE, batch=128)


def test_a_warm_pool_for_128_costs_three_times_the_accelerator_that_it_would_protect():
    prices = Prices(3.95, sandbox=12.12 / 128, sandboxes=128)
    warm = pool(prices, spawn_s=0.44, service_s=4.0, saves_s=0.44, step_s=28.51)
    assert (f"${warm.per_hour:.2f}", f"{warm.times:.2f}x", f"{warm.recovers:.0%}") == (
        "$12.12",
        "3.07x",
        "11%",
    )
    assert warm.gives_per_hour == pytest.approx(3.95 * 0.44 / 28.51)
    assert warm.gives_per_hour < warm.per_hour
    assert pool(prices._replace(accelerator=4.4), spawn_s=0.4, service_s=4, saves_s=0, step_s=1).times < 3
