"""The golden groups, through a real GRPOTrainer: what a failed row does to its group, and to nobody else.

Under L0 TRL's own trainer is given our one reward function; under L1 the trainer is ours, too.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import RLOOConfig, RLOOTrainer  # noqa: E402

from steelyard.integrations import trl as steelyard_trl  # noqa: E402
from tiny_trainer import GRPOTrainer, norm, rows, save_model, scripted, trainer_of  # noqa: E402

pytestmark = [pytest.mark.needs("trl"), pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=["L0", "L1"])
def played(request, model, tmp_path):
    """Train one step on groups; return the trainer, done."""
    kind = GRPOTrainer if request.param == "L0" else steelyard_trl.GRPOTrainer

    def play(data, *names, keywords=None, weights=(), **settings):
        with steelyard_trl.reward(scripted(*names, weights=weights)) as scoring:
            trainer = trainer_of(kind, scoring, data, model, tmp_path, keywords=keywords or {}, **settings)
            trainer.train()
        return trainer

    play.level = request.param
    return play


def advantages(trainer, size=4):
    """What TRL trained with, by group."""
    flat = list(trainer._logs["advantages"])
    return [pytest.approx(flat[start : start + size], abs=2e-4) for start in range(0, len(flat), size)]


GROUPS = {  # four words, and what mean-centring makes of them; normalised by the sample's deviation (+ 1e-4)
    "second of two right ones masked": (
        "1 crash 0 0",
        [0.6667, 0, -0.3333, -0.3333],
        [1.1545, 0, -0.5773, -0.5773],
    ),
    "the only wrong one masked": ("1 1 1 crash", [0, 0, 0, 0], [0, 0, 0, 0]),
    "the baseline is that of three": ("1 3 2 crash", [-1, 1, 0, 0], [-0.9999, 0.9999, 0, 0]),
    "an outage of the judge": ("0 0 1 outage", [-0.3333, -0.3333, 0.6667, 0], [-0.5773, -0.5773, 1.1545, 0]),
    "nothing masked": ("1 1 0 0", [0.5, 0.5, -0.5, -0.5], [0.8659, 0.8659, -0.8659, -0.8659]),
    "two votes are too few": ("1 0 crash crash", [0, 0, 0, 0], [0, 0, 0, 0]),
    "one vote is none": ("crash crash 1 crash", [0, 0, 0, 0], [0, 0, 0, 0]),
    "no vote": ("crash crash crash crash", [0, 0, 0, 0], [0, 0, 0, 0]),
}


@pytest.mark.parametrize(("scale", "place"), [("none", 1), ("group", 2)])
def test_golden_groups_get_the_right_advantages_each_within_itself(played, scale, place):
    trainer = played(rows(*(words for words, *_ in GROUPS.values())), "code", scale_rewards=scale)
    told = dict(zip(GROUPS, advantages(trainer), strict=True))
    for name, group in GROUPS.items():
        right = group[place]
        if scale == "none" and name == "two votes are too few":
            continue  # without a division two votes may do
        assert right == told[name], name


def test_in_groups_of_eight_one_crash_among_the_correct_costs_nobody_anything(played):
    data = rows(
        "1 1 1 1 1 1 1 crash",
        "1 1 1 1 0 0 0 0",
        "1 0 0 0 0 0 0 crash",
    )
    trainer = played(data, "code", num_generations=8)
    correct, full, seven = advantages(trainer, 8)
    assert correct == [0.0] * 8
    assert full == [0.9352] * 4 + [-0.9352] * 4
    assert seven == [2.2673] + [-0.3779] * 6 + [0]


def test_an_all_correct_group_with_one_crash_trains_nothing(played):
    trainer = played(rows("1 1 1 crash"), "code")
    assert norm(trainer.told.gradients[0]) == 0
    laundered = played(rows("1 1 1 0"), "code")  # the same, had the crash been a zero
    assert norm(laundered.told.gradients[0]) > 0.01


def test_a_failure_that_the_completion_brings_about_is_the_floor(played):
    trainer = played(rows("1 1 1 raise", "0 1 0 0"), "code")
    assert advantages(trainer)[0] == [0.4999] * 3 + [-1.4997]
    assert list(trainer._logs["extra"]["steelyard/code"])[3] == "reward_error"


def test_under_rloo_the_baseline_is_that_of_the_others_that_vote(model, tmp_path):
    data = rows("1 crash 0 0", "1 1 1 crash", "crash crash crash crash")
    with steelyard_trl.reward(scripted("code"), advantage="rloo") as scoring:
        trainer = trainer_of(RLOOTrainer, scoring, data, model, tmp_path, config=RLOOConfig, beta=0.0)
        trainer.train()
    assert advantages(trainer) == [[1, 0, -0.5, -0.5], [0] * 4, [0] * 4]
    assert norm(trainer.told.gradients[0]) > 0.01


TWO = {"code": "1 0 0 crash", "format": "1 1 1 1"}
PASSED = {"code": "1 1 1 crash", "format": "1 1 1 1"}


def test_code_unscored_beside_a_format_that_holds_does_not_make_a_loser(played):
    trainer = played(rows(TWO, PASSED), "code", "format")
    with_failure, passed = advantages(trainer)
    assert with_failure == [1.1545, -0.5773, -0.5773, 0]
    assert passed == [0, 0, 0, 0]
    assert list(trainer._logs["rewards"]["steelyard"])[:3] == [2, 1, 1]


def test_trl_by_itself_makes_that_loser(model, tmp_path):
    def code(completions, code, **_more):
        return [
            None if (word := column[row % 4]) == "crash" else float(word) for row, column in enumerate(code)
        ]

    def form(completions, **_more):
        return [1.0] * len(completions)

    trainer = trainer_of(GRPOTrainer, [code, form], rows(TWO, PASSED), model, tmp_path)
    trainer.train()
    with_failure, passed = advantages(trainer)
    assert with_failure == [1.4997, -0.4999, -0.4999, -0.4999]
    assert passed == [0.4999] * 3 + [-1.4997]


def test_the_weights_of_the_recipe_are_those_of_the_sum(played):
    data = rows({"code": "1 1 0 0", "format": "1 0 1 0"})
    trainer = played(data, "code", "format", weights=[1.0, 0.5], scale_rewards="none")
    (told,) = advantages(trainer)
    assert told == [0.75, 0.25, -0.25, -0.75]
    assert list(trainer._logs["rewards"]["steelyard"]) == [1.5, 1, 0.5, 0]


def test_where_nothing_was_scored_nothing_is_trained_and_no_number_is_broken(played):
    trainer = played(rows("crash crash crash crash", "crash crash crash crash"), "code", learning_rate=0.1)
    assert norm(trainer.told.gradients[0]) == 0
    assert all(bool(parameter.isfinite().all()) for parameter in trainer.model.parameters())
    logged = trainer.state.log_history[0]
    assert logged["loss"] == 0
    assert logged["steelyard/unscored"] == 1
    assert logged["grad_norm"] == 0
