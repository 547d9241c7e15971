import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.pricing.money import Prices
from steelyard.pricing.numbers import BASIS, price_numbers

SWEEP = {"busy_s": 24.51, "timeout_s": 30.0, "median_s": 2.0, "rate": 0.01, "batch": 128, "group": 8}
GATE = SWEEP | {"busy_s": None, "generation_s": 12.47, "training_s": 12.20}


def priced(**changed):
    return price_numbers(**SWEEP | changed)


def remedy(price, name, saying=""):
    (found,) = [one for one in price.remedies if one.name == name and saying in one.title]
    return found


def told(price):
    """What a price says of the step, in the words of the study."""
    return {
        "step": f"{price.step.value:.1f} s",
        "idle": f"{price.idle.value:.1%}",
        "idle of a hit step": f"{price.idle_hit.value:.1%}",
        "hit": f"{price.hit.value:.0%}",
        "hit groups": f"{price.group_hit.value:.1%}",
        "corrupted": f"{price.corrupted.value:.1%}",
    }


@pytest.mark.parametrize(
    ("rate", "step", "idle", "hit"),
    [
        (0.0, "26.5 s", "7.5%", "0%"),
        (0.005, "39.8 s", "38.4%", "47%"),
        (0.01, "46.8 s", "47.6%", "72%"),
        (0.02, "52.4 s", "53.2%", "92%"),
        (0.05, "54.5 s", "55.0%", "100%"),
        (0.1, "54.5 s", "55.0%", "100%"),
    ],
)
def test_the_study_comes_out_of_numbers_alone(rate, step, idle, hit):
    price = priced(rate=rate)
    said = told(price)
    assert (said["step"], said["idle"], said["idle of a hit step"], said["hit"]) == (step, idle, "55.0%", hit)
    assert price.step.value == pytest.approx(price.busy.value + price.wait.value)


@pytest.mark.parametrize(
    ("changed", "moves"),
    [
        ({"rate": 0.011}, {"step", "idle", "hit", "hit groups", "corrupted"}),
        ({"busy_s": 26.0}, {"step", "idle", "idle of a hit step"}),
        ({"timeout_s": 33.0}, {"step", "idle", "idle of a hit step"}),
        ({"median_s": 2.5}, {"step", "idle"}),
        ({"batch": 144}, {"step", "idle", "hit"}),
        ({"group": 16}, {"hit groups", "corrupted"}),
        ({"rho": 0.3}, {"step", "idle", "hit", "hit groups", "corrupted"}),
        ({"pass_rate": 0.5}, {"corrupted"}),
        ({"attempts": 2}, {"step", "idle", "idle of a hit step"}),
    ],
)
def test_a_price_moves_with_its_inputs_and_with_nothing_else(changed, moves):
    before, after = told(priced()), told(priced(**changed))
    assert {name for name in before if before[name] != after[name]} == moves


def test_groups_of_8_are_corrupted_as_the_study_says():
    assert told(priced())["corrupted"] == "7.7%"
    assert told(priced(rate=0.05))["corrupted"] == "33.7%"
    assert told(priced(pass_rate=0.5))["corrupted"] == "3.9%"
    assert told(priced(rho=0.3))["corrupted"] == "3.8%"


def test_every_estimate_says_that_nothing_was_measured_and_has_no_interval():
    price = priced(rho=0.2, pass_rate=0.4, prices=Prices(3.95), infrastructure=0.5, spawn_s=0.2)
    estimates = [value for name in price.__slots__ if hasattr(value := getattr(price, name), "basis")]
    assert len(estimates) > 12
    for estimate in [*estimates, *(one.saves for one in price.remedies if one.saves)]:
        assert (estimate.low, estimate.high, estimate.basis) == (None, None, BASIS)
    assert not price.measured


def test_remedies_are_sorted_by_what_they_save_here():
    for price in (priced(), price_numbers(**GATE), priced(rate=0.05, attempts=3, spawn_s=0.3)):
        saved = [one.saves.value for one in price.remedies if one.saves]
        assert saved == sorted(saved, reverse=True)
        assert len(saved) > 3
        for one in price.remedies[: len(saved)]:
            assert one.after.value == pytest.approx(price.step.value - one.saves.value)
        assert [one.refused is None for one in price.remedies] == sorted(
            (one.refused is None for one in price.remedies), reverse=True
        )


def test_the_order_of_remedies_differs_with_the_numbers():
    first = priced().remedies[0].name
    assert first == "timeout"
    assert price_numbers(**GATE | {"timeout_s": 6.5}).remedies[0].name != first


def test_above_the_knee_shaving_buys_nothing_and_below_it_a_quarter_of_the_step():
    price = priced(rate=0.05)
    assert f"{price.knee.value:.2%}" == "1.95%"
    assert remedy(price, "tail", "to 2.5 %").saves.value < 0.05 * price.step.value
    assert remedy(price, "tail", "to 0.54 %").saves.value > 0.2 * price.step.value
    assert "down to the knee, 1.95 %, saves only 2.2 s" in remedy(price, "tail", "to 2.5 %").costs
    assert "knee" not in remedy(priced(), "tail", "to 0.5 %").costs


def test_a_step_with_one_late_group_is_told_with_backward_on_arrival():
    found = remedy(price_numbers(**GATE), "groups")
    assert "from 54.7 s to 43.2 s" in found.rests_on
    assert "at most 11.4 s of training" in found.costs
    assert 0 < found.saves.value < 11.4375
    assert "pass --training" in remedy(priced(), "groups").refused


def test_a_smaller_batch_stalls_less_often_and_costs_each_completion_more():
    found = remedy(priced(rate=0.05), "batch", "shrink")
    assert found.costs.startswith("33.7 % of steps are hit, and each completion takes 3.8 times as long")
    assert found.saves.value < 0 < remedy(priced(rate=0.05), "batch", "double").saves.value


def test_retries_multiply_the_constant():
    price = priced(timeout_s=15, attempts=4, rate=0.05)
    assert price.idle_hit.value == pytest.approx(60 / (24.51 + 60))
    assert remedy(price, "timeout", "cut once at 15 s, not 4 times (60 s)").saves.value > 40
    lower = remedy(price, "timeout", "from 15 s to 6 s").saves.value
    assert lower == pytest.approx(4 * (15 - 6) * price.hit.value)


@pytest.mark.parametrize("left_out", ["busy_s", "generation_s", "training_s"])
def test_of_busy_time_and_its_halves_two_give_the_third(left_out):
    three = {"busy_s": 24.5, "generation_s": 12.5, "training_s": 12.0}
    assert priced(**three | {left_out: None}) == priced(**three)
    assert remedy(priced(**three), "groups").saves.value > 0


def test_hedging_repairs_what_is_the_infrastructures():
    assert "72.4 % of steps hit now, 1.27 % then" in remedy(priced(), "hedge").refused
    assert "72.4 % of steps hit now, 68.6 % then" in remedy(priced(infrastructure=0.1), "hedge").rests_on
    assert remedy(priced(infrastructure=0.0), "hedge").saves.value == pytest.approx(0)


def test_a_pool_is_told_with_its_price():
    prices = Prices(3.95, sandbox=12.12 / 128)
    price = priced(rate=0.0, median_s=4.0, spawn_s=0.44, prices=prices)
    found = remedy(price, "pool")
    assert found.saves.value == pytest.approx(0.44)
    assert found.costs.startswith("128 places at $12.12/h, 3.07 times the accelerators")
    assert "11 % off a call of 4 s" in found.rests_on
    assert price.money["idle_per_day"].value == pytest.approx(24 * 3.95 * price.idle.value)
    assert found.dollars.value == pytest.approx(0.44 * 1000 / 3600 * 3.95)
    assert not priced().money
    hit = priced(spawn_s=0.22)
    assert remedy(hit, "pool").saves.value == pytest.approx(0.22 * (1 - hit.hit.value))


def test_leaving_failures_out_saves_no_time_and_has_its_price_in_votes():
    found = remedy(priced(rho=0.3), "unscored")
    assert found.saves is None
    assert found.costs.startswith("7.92 votes per group instead of 8; 0.0698 % keep fewer than two")


def test_the_table_of_correlation_is_told_where_independence_is_assumed():
    (note,) = [note for note in priced().notes if "independent" in note]
    assert "72.4 % at 0, 61.6 % at 0.1, 53.3 % at 0.2, 46.5 % at 0.3, 35.3 % at 0.5, 14.9 % at 1" in note
    price = priced(rho=0.3)
    assert not [note for note in price.notes if "taken for independent" in note]
    assert f"{price.hit.value:.1%}" == "46.5%"
    assert price.correlated.value < price.independent.value


def test_the_knee_curve_is_the_expected_step_by_rate():
    price = priced(rho=0.1)
    curve = price.knee_curve
    assert curve.marks == (0.01,)
    assert curve.y[list(curve.x).index(0.01)] == pytest.approx(price.step.value)
    assert list(curve.y) == sorted(curve.y)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0, 1),
    st.sampled_from([(1, 1), (8, 8), (128, 8), (512, 16)]),
    st.floats(0, 1),
    st.floats(0.1, 10),
    st.floats(0, 100),
)
def test_any_numbers_that_can_be_have_a_price(rate, sizes, rho, median, busy):
    batch, group = sizes
    numbers = {"busy_s": busy, "training_s": busy / 2, "timeout_s": 10, "median_s": median}
    price = price_numbers(**numbers, rate=rate, batch=batch, group=group, rho=rho)
    assert median - 1e-9 <= price.wait.value <= 10 + 1e-9
    assert 0 <= price.idle.value <= 1
    assert 0 <= price.corrupted.value <= price.group_hit.value + 1e-9
    for one in price.remedies:
        if one.name != "batch" and one.saves:
            assert -1e-6 <= one.saves.value <= price.wait.value + 1e-6


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (
            {"rate": 1.5},
            r"--rate: must be from 0 to 1, is 1.5\n  next: give a share of rewards, 0.01 for 1 %",
        ),
        ({"rate": -0.1}, r"--rate: must be from 0 to 1, is -0.1"),
        ({"rate": float("nan")}, r"--rate: must be from 0 to 1, is nan"),
        ({"rho": 2}, r"--rho: must be from 0 to 1, is 2"),
        ({"pass_rate": 50}, r"--pass-rate: must be from 0 to 1, is 50"),
        ({"infrastructure": 10}, r"--infrastructure: must be from 0 to 1, is 10"),
        ({"timeout_s": 1.0}, r"--timeout: is 1 s, below the median of 2 s"),
        ({"timeout_s": float("inf")}, r"--timeout: must be 0 or more, is inf"),
        ({"median_s": -2}, r"--median: must be 0 or more, is -2"),
        ({"busy_s": -24}, r"--busy: must be 0 or more, is -24"),
        ({"busy_s": float("nan")}, r"--busy: must be 0 or more, is nan"),
        ({"busy_s": None}, r"--busy: is not known: nor are its halves\n  next: give --busy SECONDS"),
        ({"busy_s": None, "training_s": 12}, r"--busy: is not known: one half of it is 12 s"),
        ({"generation_s": 12, "training_s": 2}, r"--busy: is 24.51 s, and its halves 12 and 2 s"),
        ({"training_s": 30}, r"--busy: is 24.51 s, and its halves 30 s"),
        ({"batch": 100}, r"--batch: is 100, no multiple of the group of 8"),
        ({"batch": 0}, r"--batch: must be a whole number from 1 on, is 0"),
        ({"group": 0}, r"--group: must be a whole number from 1 on, is 0"),
        ({"group": 2.5}, r"--group: must be a whole number from 1 on, is 2.5"),
        ({"attempts": 0}, r"--attempts: must be a whole number from 1 on, is 0"),
        ({"batch": float("nan")}, r"--batch: must be a whole number from 1 on, is nan"),
        ({"spawn_s": 3.0}, r"--spawn: is 3 s, more than the median of 2 s"),
        ({"knee_at": 92}, r"knee_at: must be from 0 to 1, is 92"),
        ({"median_s": 0.0, "busy_s": 0.0, "rate": 0.0}, r"--busy: is 0 s, and rewards take no time either"),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_their_option(changed, complaint):
    with pytest.raises(RefusedError, match=complaint):
        priced(**changed)
